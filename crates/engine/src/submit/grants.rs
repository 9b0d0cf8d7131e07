//! Standing approvals: the rule that an approver is shown, the approval that saves exactly that rule, the list, and the end.
//!
//! A grant is saved by the decision itself, in its event, with a sealed key beside it by which calls find it. Whoever may see the run
//! that it comes from may see and end it: ending one only tightens. What a grant covers is the policy's, how it is kept `log/grants.rs`.

use std::sync::Arc;

use serde::Serialize;
use standfast_core::command::Choice;
use standfast_core::definition::ToolSpec;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Envelope, Event};
use standfast_core::grant::{SavedGrant, id_of};
use standfast_core::hold::{Hold, HoldKind, RecordedDecision};
use standfast_core::id::{CallNo, HoldId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::name::{GrantId, UserId};
use standfast_core::policy::Role;
use standfast_core::project::HoldRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_core::transcript::stored_call;
use standfast_policy::grant::{Grant, GrantProposal, GrantRefusal, GrantRequest, HeldCall};

use super::Submit;
use super::decisions::{Decider, Decision, Decisions, authority};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::drive::Acceptance;
use crate::drive::grants::{beside_policy, judged, schema_of};
use crate::host::Host;
use crate::log::{KeptGrant, Log, Revocation, Snapshot, needs, needs_for};
use crate::policy::call_of;
use crate::settings::Rules;

/// Characters of a rule: it has every value of the call.
const RULE_MAX: usize = 16 * 1024;

/// Why there is no standing approval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The policy refuses it.
    #[error("{0}")]
    Refused(GrantRefusal),
    /// Several people must agree on this hold, and each of them sees one call.
    #[error("several people must agree on this call, so one of them cannot approve further ones")]
    Quorum,
    /// A worker elsewhere brings the tool and does not say its schema, so nobody could tell when it is another one.
    #[error(
        "the worker brings this tool itself and did not send its `inputSchema`; a standing approval ends when the schema \
         changes, so there is none"
    )]
    Elsewhere,
    /// There are too many.
    #[error("this agent has as many standing approvals as it may have; revoke some first")]
    TooMany,
    /// The rule would be too long to be read.
    #[error("the arguments of this call are too long for a rule that somebody reads")]
    TooLong,
    /// There is nothing to seal them with.
    #[error("standing approvals need `server.webhooks.key`: they are sealed with it")]
    NoKey,
    /// Anything else.
    #[error("{0}")]
    Engine(#[from] EngineError),
}

/// A standing approval as somebody sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantView {
    /// The hold whose approval saved it.
    pub hold: HoldId,
    /// The grant.
    pub grant: Grant,
    /// How many of its uses are taken.
    pub used: u32,
    /// The runs that took them, the first use first.
    pub used_by: Vec<RunId>,
    /// How it stands.
    pub state: GrantState,
}

/// How a standing approval stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantState {
    /// It answers calls.
    Live,
    /// All its uses are taken.
    UsedUp,
    /// It has expired.
    Expired,
    /// Somebody ended it; who and when, once that is written down.
    Revoked(Option<Revocation>),
    /// The tool has another schema now.
    SchemaChanged,
    /// A rule that it answers is another one now.
    RuleChanged,
}

/// What the audit says of the end of a grant.
#[derive(Serialize)]
struct RevocationRecord<'a> {
    kind: &'static str,
    grant: &'a GrantId,
    hold: HoldId,
    by: &'a UserId,
}

/// Standing approvals, as people make, see and end them.
pub struct Grants {
    submit: Arc<Submit>,
    log: Arc<Log>,
    host: Arc<Host>,
}

impl Grants {
    pub(crate) fn new(submit: Arc<Submit>) -> Grants {
        let (log, host) = (submit.log.clone(), submit.host.clone());
        Grants { submit, log, host }
    }

    /// The rule of a standing approval for calls like the held one, to be shown before it is saved.
    pub async fn propose(
        &self,
        who: &Principal,
        hold: HoldId,
        request: &GrantRequest,
    ) -> Result<GrantProposal, GrantError> {
        needs(who, Scope::HoldsDecide)?;
        let snapshot = self.log.whole_snapshot(who, hold.run).await?;
        self.propose_on(who, hold, request, &snapshot).await
    }

    /// The same, on what the caller has read of the run.
    pub async fn propose_on(
        &self,
        who: &Principal,
        hold: HoldId,
        request: &GrantRequest,
        snapshot: &Snapshot,
    ) -> Result<GrantProposal, GrantError> {
        needs_for(who, Scope::HoldsDecide, &snapshot.run().facts.agent)?;
        self.proposal(who, snapshot, hold, request).await
    }

    async fn proposal(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        id: HoldId,
        request: &GrantRequest,
    ) -> Result<GrantProposal, GrantError> {
        let run = snapshot.run();
        let Some(hold) = run.hold(id.key) else { return Err(self.no_longer_open(snapshot, id).await) };
        let wrong_kind = || Refusal::WrongKind { hold: id, kind: hold.kind };
        if hold.kind != HoldKind::Approval {
            return Err(EngineError::from(wrong_kind()).into());
        }
        if hold.has_quorum() {
            return Err(GrantError::Quorum);
        }
        if !self.log.grants().can_keep() {
            return Err(GrantError::NoKey);
        }
        let agent = self.host.agent(&run.facts.agent)?;
        let not_allowed = || GrantError::Refused(GrantRefusal::NotAllowed);
        let Rules::Readable(policy) = &agent.rules else { return Err(not_allowed()) };
        let log = snapshot.log().await.map_err(EngineError::from)?;
        let stored = stored_call(log, id.key.call).ok_or(EngineError::NotFound)?;
        let definition = self.log.definition(&run.facts.agent, run.state.definition).await?;
        let brought = brought_schema(log, id.key.call);
        let schema = schema_of(run.facts.driver, (&definition, &agent), &stored.tool, brought);
        if schema.is_none() && run.facts.driver == Driver::Outside {
            return Err(GrantError::Elsewhere);
        }
        let (true, Some(schema)) = (policy.takes_grants(), schema) else { return Err(not_allowed()) };
        let call = call_of(&run.facts, &stored.tool, Some(&stored.arguments));
        let decision = judged(&agent, policy, &call, &stored.arguments);
        // The rules may ask for more people by now than when the hold opened.
        let row = snapshot.hold(id.key).await.map_err(EngineError::from)?.ok_or(EngineError::NotFound)?;
        let needs_more = decision.requirements.iter().any(|one| one.quorum > 1);
        if needs_more || !self.decides_alone(who, run, (hold, &row)) {
            return Err(GrantError::Quorum);
        }
        let also = beside_policy(&decision, &hold.rules, run.facts.driver).ok_or_else(not_allowed)?;
        let held = HeldCall { policy, call: &call, decision: &decision, schema, also: &also };
        let proposal = standfast_policy::grant::propose(held, request, self.host.clock.now())
            .map_err(GrantError::Refused)?;
        if self.log.grants().are_full(&run.facts.tenant, &run.facts.agent, self.host.clock.now()).await? {
            return Err(GrantError::TooMany);
        }
        match serde_json::to_string(&proposal) {
            Ok(text) if text.len() <= RULE_MAX => Ok(proposal),
            Ok(_) | Err(_) => Err(GrantError::TooLong),
        }
    }

    /// Whether somebody who may decide a hold counts for every rule of it. Who may not is refused where it is decided.
    fn decides_alone(&self, who: &Principal, run: &Run, (hold, row): (&Hold, &HoldRow)) -> bool {
        let now = self.host.clock.now();
        let approvers = self.host.approvers(&run.facts.agent);
        let by = Decider::Person(who.clone());
        let Some(right) = authority(&by, run, &[(row, hold.demands.clone())], &approvers, now) else {
            return true;
        };
        let place = hold.delegated_to(&who.user, now).next().filter(|_| right.role == Role::Delegate);
        let counts_for = place.map_or(&right.counts_for, |place| &place.counts_for);
        hold.demands.iter().all(|demand| counts_for.contains(&demand.rule))
    }

    async fn no_longer_open(&self, snapshot: &Snapshot, id: HoldId) -> GrantError {
        let row = match snapshot.hold(id.key).await {
            Ok(row) => row,
            Err(error) => return EngineError::from(error).into(),
        };
        match row.and_then(|row| row.closed) {
            Some(closed) => match snapshot.log().await {
                Ok(log) => match crate::log::recorded(closed.seq, log) {
                    Some(recorded) => already_decided(recorded),
                    None => EngineError::NotFound.into(),
                },
                Err(error) => EngineError::from(error).into(),
            },
            None => EngineError::NotFound.into(),
        }
    }

    /// Approves a held call and saves the standing approval whose rule was shown. What is approved is exactly that rule: where
    /// the same request would make another one by now, nothing is decided.
    pub async fn approve(
        &self,
        who: &Principal,
        decision: Decision,
        request: &GrantRequest,
        shown: Digest,
    ) -> Result<Acceptance, GrantError> {
        needs(who, Scope::HoldsDecide)?;
        let snapshot = self.log.whole_snapshot(who, decision.hold.run).await?;
        self.approve_on(who, decision, (request, shown), &snapshot).await
    }

    /// The same, on what the caller has read of the run.
    pub async fn approve_on(
        &self,
        who: &Principal,
        decision: Decision,
        (request, shown): (&GrantRequest, Digest),
        snapshot: &Snapshot,
    ) -> Result<Acceptance, GrantError> {
        let id = decision.hold;
        if decision.wanted != Choice::Approve {
            return Err(GrantError::Refused(GrantRefusal::NotHeld));
        }
        let mut decisions = Decisions::from(decision);
        if let Some(hold) = snapshot.run().hold(id.key) {
            let proposal = self.proposal(who, snapshot, id, request).await?;
            if proposal.digest() != shown {
                return Err(GrantError::Refused(GrantRefusal::NotAsShown));
            }
            let call = snapshot.run().call(id.key.call);
            // The rule is of this call: an edit in between is another one.
            decisions.pin(call.and_then(|call| call.digest), hold.revision);
            let rule = serde_json::to_string(&proposal).ok().and_then(|text| RawJson::parse(&text).ok());
            let rule = rule.ok_or(GrantError::TooLong)?;
            let (uses, until) = (proposal.uses, proposal.until);
            let saved = SavedGrant { id: id_of(id), digest: shown, rule, uses, until };
            decisions.saves = Some((id.key, Box::new(saved)));
        }
        // The decision and what makes the grant count are one append: it is there from then on, on every node.
        Ok(self.submit.decide_on(who, decisions, snapshot).await?)
    }

    /// The standing approvals that a caller may see, of all agents, the oldest of each agent first.
    pub async fn list(&self, who: &Principal) -> Result<Vec<GrantView>, EngineError> {
        needs(who, Scope::RunsRead)?;
        let mut views = Vec::new();
        for kept in self.all_visible(who).await? {
            views.push(self.view(who, kept).await?);
        }
        Ok(views)
    }

    /// One of them.
    pub async fn show(&self, who: &Principal, id: &GrantId) -> Result<GrantView, EngineError> {
        needs(who, Scope::RunsRead)?;
        let kept = self.one_visible(who, id).await?;
        self.view(who, kept).await
    }

    /// Ends a standing approval. From then on no call starts by it, on any node; what has started goes on.
    pub async fn revoke(&self, who: &Principal, id: &GrantId) -> Result<GrantView, EngineError> {
        needs(who, Scope::HoldsDecide)?;
        let kept = self.one_visible(who, id).await?;
        needs_for(who, Scope::HoldsDecide, &kept.grant.proposal.agent)?;
        if kept.revoked.is_none() {
            let now = self.host.clock.now();
            let revocation = Revocation { by: who.user.clone(), at: now };
            self.log.grants().end(&who.tenant, &kept, &revocation).await?;
            let record =
                RevocationRecord { kind: "grant.revoked", grant: id, hold: kept.hold, by: &who.user };
            let entry = serde_json::to_string(&record).unwrap_or_default();
            self.log.store.put_audit(who.tenant.clone(), now, entry).await?;
        }
        self.show(who, id).await
    }

    async fn all_visible(&self, who: &Principal) -> Result<Vec<KeptGrant>, EngineError> {
        let mut visible = Vec::new();
        let settings = self.host.settings();
        let gates = &settings.gate.definition.agent;
        let agents = settings.agents.keys().filter(|name| *name != gates).chain([gates]);
        for agent in agents {
            for kept in self.log.grants().of_agent(&who.tenant, agent).await? {
                match self.log.seen_by(who, kept.hold.run).await {
                    Ok(()) => visible.push(kept),
                    Err(EngineError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(visible)
    }

    async fn one_visible(&self, who: &Principal, id: &GrantId) -> Result<KeptGrant, EngineError> {
        let mut all = self.all_visible(who).await?.into_iter();
        all.find(|kept| kept.grant.id == *id).ok_or(EngineError::NotFound)
    }

    async fn view(&self, who: &Principal, kept: KeptGrant) -> Result<GrantView, EngineError> {
        let (id, most) = (&kept.grant.id, kept.grant.proposal.uses);
        let used = self.log.grants().count_uses(&who.tenant, id, most).await?;
        let mut used_by = Vec::new();
        for no in 1..=used {
            used_by.extend(self.log.grants().find_use(&who.tenant, id, no).await?.map(|record| record.run));
        }
        let is_revoked = self.log.grants().is_revoked(&who.tenant, &kept).await?;
        let state = if is_revoked {
            GrantState::Revoked(kept.revoked.clone())
        } else {
            match self.end_of(&kept.grant, used, false) {
                // The agent here may never have had it: a worker elsewhere brings its schema with each call.
                GrantState::SchemaChanged => {
                    let log = self.log.events(kept.hold.run, Seq(0)).await?;
                    let is_brought = brought_schema(&log, kept.hold.key.call).is_some();
                    self.end_of(&kept.grant, used, is_brought)
                }
                ended => ended,
            }
        };
        Ok(GrantView { hold: kept.hold, grant: kept.grant, used, used_by, state })
    }

    /// What has ended a grant by itself.
    fn end_of(&self, grant: &Grant, used: u32, is_brought: bool) -> GrantState {
        let of = &grant.proposal;
        if used >= of.uses {
            return GrantState::UsedUp;
        }
        if self.host.clock.now() >= of.until {
            return GrantState::Expired;
        }
        let Ok(agent) = self.host.agent(&of.agent) else { return GrantState::RuleChanged };
        let schema = agent.definition.tools.get(&of.tool).map(ToolSpec::schema_digest);
        // Each gate brings the schema of its tool, and so may a worker elsewhere: each call is compared by it.
        let is_brought = is_brought || agent.any_tool.is_some();
        if schema != Some(of.schema) && !is_brought {
            return GrantState::SchemaChanged;
        }
        let Rules::Readable(policy) = &agent.rules else { return GrantState::RuleChanged };
        // The server's own rules are known by their names, and those of the file by what they say.
        let is_gone =
            |id: &standfast_core::name::RuleId| id.as_str().starts_with("rule:") && policy.rule(id).is_none();
        let is_other = |digest: &Digest, id| policy.rule(id).is_some_and(|rule| rule.digest != *digest);
        if of.rules.iter().any(|(id, digest)| is_gone(id) || is_other(digest, id)) || !policy.takes_grants() {
            return GrantState::RuleChanged;
        }
        GrantState::Live
    }
}

/// The schema of a tool that a worker brought with its call.
fn brought_schema(log: &[Envelope], call: CallNo) -> Option<Digest> {
    log.iter().find_map(|envelope| match &envelope.event {
        Event::CallProposed(proposed) if proposed.call.no == call => proposed.schema,
        _ => None,
    })
}

fn already_decided(recorded: RecordedDecision) -> GrantError {
    EngineError::from(Refusal::AlreadyDecided(Box::new(recorded))).into()
}
