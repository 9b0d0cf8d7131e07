//! What people decide: one hold, several at once, or a no that stops the run.
//!
//! Every decision, on every surface, comes through here: who may is worked out by `auth`, what fits by `validate.rs`, and the
//! core says what follows. Several holds are decided by one command in one append, all or none of them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Choice, Command, Decide, Reject, Resolve, StoredCall};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::grant::SavedGrant;
use standfast_core::hold::{Demand, HoldKind};
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId};
use standfast_core::message::Message;
use standfast_core::name::{AgentName, ToolName};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_core::transcript::stored_call;
use standfast_store::StoreError;

use super::Submit;
use crate::EngineError;
use crate::auth::{
    Approvers, DecisionRight, Identification, Principal, Scope, ToDecide, approves, may_decide,
    may_decide_as_well, needs_sign_in,
};
use crate::commit::{Authority, Change, IdempotencyKey, is_leased_elsewhere};
use crate::drive::account::account;
use crate::drive::effects::{EffectCall, is_claimed_meanwhile};
use crate::drive::{Acceptance, DriveGuard, Queue, TakenRun};
use crate::log::{Snapshot, demands, needs, needs_for, recorded};
use crate::policy;
use crate::request_context;
use crate::settings::Agent;
use crate::tool::Tool;

/// A decision on a hold.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Which hold.
    pub hold: HoldId,
    /// What is decided.
    pub wanted: Choice,
    /// The digest that was shown, if the decider repeats it.
    pub digest: Option<Digest>,
    /// The revision that was shown, if the decider repeats it.
    pub revision: Option<u32>,
    /// Makes a repeat safe.
    pub once: Option<IdempotencyKey>,
}

/// Decisions on several holds of one run, which all count or none does.
#[derive(Debug, Clone)]
pub struct Decisions {
    /// Whose holds.
    pub run: RunId,
    /// What is decided.
    pub what: DecisionSet,
    /// The message that decides, where it is one: the history keeps it beside the decision.
    pub message: Option<Message>,
    /// Makes a repeat safe.
    pub once: Option<IdempotencyKey>,
    /// The standing approval that the approval of a call saves; `grants.rs` makes it.
    pub(crate) saves: Option<(HoldKey, Box<SavedGrant>)>,
}

impl Decisions {
    /// Decisions of which nothing stays but what is decided.
    #[must_use]
    pub fn new(
        run: RunId,
        what: DecisionSet,
        message: Option<Message>,
        once: Option<IdempotencyKey>,
    ) -> Decisions {
        Decisions { run, what, message, once, saves: None }
    }

    /// The holds.
    fn ids(&self) -> Vec<HoldId> {
        let run = self.run;
        self.what.holds().into_iter().map(|key| HoldId { run, key }).collect()
    }

    /// Makes the decisions count for exactly this call, whether or not their sender repeats what was shown.
    pub(super) fn pin(&mut self, digest: Option<Digest>, revision: u32) {
        let DecisionSet::Each(each) = &mut self.what else { return };
        for one in each {
            one.digest = one.digest.or(digest);
            one.revision = one.revision.or(Some(revision));
        }
    }
}

/// What is decided of several holds.
#[derive(Debug, Clone)]
pub enum DecisionSet {
    /// Each as it says.
    Each(Vec<HoldDecision>),
    /// No to all of them, and the run ends with it.
    Reject {
        /// Which holds.
        holds: Vec<HoldKey>,
        /// Why.
        reason: Option<String>,
        /// Runs above this one that end with it, in the same append.
        above: Vec<RunId>,
    },
}

/// One hold of several, with its decision.
#[derive(Debug, Clone)]
pub struct HoldDecision {
    /// Which hold.
    pub hold: HoldKey,
    /// What is decided.
    pub wanted: Choice,
    /// The digest that was shown, if the decider repeats it.
    pub digest: Option<Digest>,
    /// The revision that was shown, if the decider repeats it.
    pub revision: Option<u32>,
}

/// Whoever decides, and by what right.
#[derive(Debug, Clone)]
pub(crate) enum Decider {
    /// A person, as far as they may decide.
    Person(Principal),
    /// An outside system that has shown that it may report.
    Callback(Principal),
}

impl Decider {
    pub(crate) fn principal(&self) -> &Principal {
        let (Decider::Person(who) | Decider::Callback(who)) = self;
        who
    }

    pub(crate) fn actor(&self) -> Actor {
        match self {
            Decider::Person(who) if who.by == Identification::Link => Actor::Link(who.user.clone()),
            Decider::Person(who) => Actor::Person(who.user.clone()),
            Decider::Callback(who) => Actor::Callback(who.user.clone()),
        }
    }
}

/// How often a decision is decided again when others were faster.
const RETRIES: u32 = 2;

/// What a decision is made on: read for it alone, or by a caller who goes on with it.
pub(crate) enum DecisionBasis<'a> {
    Own(Box<Snapshot>),
    Lent(&'a Snapshot),
}

impl From<Snapshot> for DecisionBasis<'_> {
    fn from(own: Snapshot) -> Self {
        DecisionBasis::Own(Box::new(own))
    }
}

impl<'a> From<&'a Snapshot> for DecisionBasis<'a> {
    fn from(lent: &'a Snapshot) -> Self {
        DecisionBasis::Lent(lent)
    }
}

impl Deref for DecisionBasis<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        match self {
            DecisionBasis::Own(own) => own,
            DecisionBasis::Lent(lent) => lent,
        }
    }
}

/// Calls whose holds are decided, with what is known of them.
#[derive(Clone, Copy)]
struct DecidedCalls<'a> {
    /// None where it is no longer configured.
    agent: Option<&'a Agent>,
    definition: &'a Definition,
    run: &'a Run,
    holds: &'a [HoldRow],
    what: &'a DecisionSet,
    /// The log of the run where this node takes it.
    log: Option<&'a [Envelope]>,
    /// Whether their holds are open, and the caller may decide them.
    are_open: bool,
}

/// Whether a decision takes the run that it lets go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takeover {
    IfFree,
    Never,
}

impl From<Decision> for Decisions {
    fn from(decision: Decision) -> Decisions {
        let Decision { hold, wanted, digest, revision, once } = decision;
        let one = HoldDecision { hold: hold.key, wanted, digest, revision };
        Decisions::new(hold.run, DecisionSet::Each(vec![one]), None, once)
    }
}

impl DecisionSet {
    fn holds(&self) -> Vec<HoldKey> {
        match self {
            DecisionSet::Each(each) => each.iter().map(|one| one.hold).collect(),
            DecisionSet::Reject { holds, .. } => holds.clone(),
        }
    }

    fn wanted(&self, hold: HoldKey) -> Option<&Choice> {
        match self {
            DecisionSet::Each(each) => each.iter().find(|one| one.hold == hold).map(|one| &one.wanted),
            DecisionSet::Reject { .. } => None,
        }
    }

    /// Arguments that a person puts in the place of the model's.
    fn edited(&self, call: CallNo) -> Option<String> {
        let DecisionSet::Each(each) = self else { return None };
        each.iter().find(|one| one.hold.call == call).and_then(|one| match &one.wanted {
            Choice::ApproveEdited { arguments } => Some(arguments.text().to_owned()),
            Choice::Approve
            | Choice::Deny { .. }
            | Choice::Answer { .. }
            | Choice::Fail { .. }
            | Choice::Withdraw => None,
        })
    }

    /// Whoever reports for a job, also by a decision, may repeat what the job was told (T29).
    fn cut_secrets(&mut self, holds: &[HoldRow], tools: &BTreeMap<ToolName, Arc<dyn Tool>>) {
        let DecisionSet::Each(each) = self else { return };
        for one in each {
            let hold = holds.iter().find(|hold| hold.id.key == one.hold);
            let job = hold.filter(|hold| hold.kind == HoldKind::External);
            let tool = job.and_then(|hold| Some((hold.id, tools.get(hold.tool.as_ref()?)?)));
            if let Some((id, job)) = tool.and_then(|(id, tool)| Some((id, tool.external()?))) {
                let wanted = std::mem::replace(&mut one.wanted, Choice::Withdraw);
                one.wanted = job.handed(id).cut_wanted(wanted);
            }
        }
    }

    fn command(self, idempotency_key: Option<&str>, message: Option<Message>) -> Command {
        // What was said in one is kept once.
        let mut message = message.map(Box::new);
        let mut resolve = |one: HoldDecision| Resolve {
            decide: Decide { hold: one.hold, digest: one.digest, revision: one.revision },
            resolution: one.wanted,
            idempotency_key: idempotency_key.map(str::to_owned),
            message: message.take(),
        };
        match self {
            DecisionSet::Reject { holds, reason, above: _ } => {
                Command::Reject(Reject { holds, reason, idempotency_key: idempotency_key.map(str::to_owned) })
            }
            DecisionSet::Each(mut each) => match each.len() {
                1 => Command::Resolve(resolve(each.remove(0))),
                _ => Command::ResolveAll(each.into_iter().map(resolve).collect()),
            },
        }
    }
}

impl Submit {
    /// Decides a hold.
    pub async fn decide(&self, who: &Principal, decision: Decision) -> Result<Answer, EngineError> {
        Ok(self.decide_all(who, decision.into()).await?.answer)
    }

    /// Decides several holds of a run at once. Every decision, on every surface, comes through here.
    pub async fn decide_all(&self, who: &Principal, decisions: Decisions) -> Result<Acceptance, EngineError> {
        self.needs_to_decide(who, &decisions).await?;
        let snapshot = self.log.whole_snapshot(who, decisions.run).await?;
        self.decide_on(who, decisions, &snapshot).await
    }

    /// The same, on what the caller has read of the run.
    pub async fn decide_on(
        &self,
        who: &Principal,
        decisions: Decisions,
        snapshot: &Snapshot,
    ) -> Result<Acceptance, EngineError> {
        self.needs_to_decide_of(who, &decisions, &snapshot.run().facts.agent).await?;
        self.decide_by(&Decider::Person(who.clone()), decisions, snapshot.into()).await
    }

    /// Refuses whose credential is not for deciding, and records that they tried.
    async fn needs_to_decide(&self, who: &Principal, decisions: &Decisions) -> Result<(), EngineError> {
        let needed = needs(who, Scope::HoldsDecide);
        if let Err(error) = &needed {
            self.refused.record(&self.log, who, decisions.ids(), error).await;
        }
        needed
    }

    /// The same, of an agent.
    async fn needs_to_decide_of(
        &self,
        who: &Principal,
        decisions: &Decisions,
        agent: &AgentName,
    ) -> Result<(), EngineError> {
        let needed = needs_for(who, Scope::HoldsDecide, agent);
        if let Err(error) = &needed {
            self.refused.record(&self.log, who, decisions.ids(), error).await;
        }
        needed
    }

    /// Says no to what a sub-run asks, and cancels the runs above it up to the task that it works for: in one append, so
    /// that none of them goes on in between, on any node.
    pub async fn decide_and_cancel(
        &self,
        who: &Principal,
        mut decisions: Decisions,
        snapshot: &Snapshot,
        task: RunId,
    ) -> Result<Acceptance, EngineError> {
        needs_for(who, Scope::RunsWrite, &snapshot.run().facts.agent)?;
        if let DecisionSet::Reject { above, .. } = &mut decisions.what {
            let mut next = snapshot.run().facts.parent;
            while let Some(parent) = next {
                above.push(parent.run);
                let found = self.log.visible(who, parent.run).await?;
                next = found.row.run.facts.parent.filter(|_| parent.run != task);
            }
        }
        self.decide_on(who, decisions, snapshot).await
    }

    /// The end of the runs that end with a decision.
    async fn endings(
        &self,
        who: &Principal,
        what: &DecisionSet,
    ) -> Result<Vec<(RunRow, Change)>, EngineError> {
        let DecisionSet::Reject { above, reason, .. } = what else { return Ok(Vec::new()) };
        let mut endings = Vec::new();
        for run in above {
            let cancel = Command::Cancel { reason: reason.clone() };
            let change = Change::new(Actor::Client(who.user.clone()), vec![cancel]);
            endings.push((self.log.visible(who, *run).await?.row, change));
        }
        Ok(endings)
    }

    /// Holds by whoever has a right to, on what they have read of the run.
    pub(crate) async fn decide_by(
        &self,
        by: &Decider,
        decisions: Decisions,
        snapshot: DecisionBasis<'_>,
    ) -> Result<Acceptance, EngineError> {
        let run = decisions.run;
        let mut decided = self.decide_at(by, decisions.clone(), snapshot, Takeover::IfFree).await;
        for _ in 0..RETRIES {
            match &decided {
                // It was there: somebody was faster. Once more, with their decision in hand.
                Err(EngineError::Refused(Refusal::NoSuchHold(_))) => {}
                // Another node works on the run, and goes on with it.
                Err(EngineError::Store(error)) if is_leased_elsewhere(error) => {}
                // Another run began the same effect: the decision counts, and whoever drives this run asks again.
                Err(error) if is_claimed_meanwhile(error) => {}
                Ok(_) | Err(_) => break,
            }
            let snapshot = match by {
                Decider::Person(who) => self.log.whole_snapshot(who, run).await?,
                Decider::Callback(_) => self.log.any_snapshot(run).await?,
            };
            decided = self.decide_at(by, decisions.clone(), snapshot.into(), Takeover::Never).await;
        }
        if let Ok(Acceptance { answer: Answer::Done | Answer::Held | Answer::Refused, .. }) = &decided {
            self.count(&decisions.what);
        }
        if let (Err(error), Decider::Person(who)) = (&decided, by) {
            self.refused.record(&self.log, who, decisions.ids(), error).await;
        }
        decided
    }

    /// Measures what was decided, and by which way it came.
    fn count(&self, what: &DecisionSet) {
        let (telemetry, channel) = (&self.host.fixed.telemetry, request_context::channel());
        match what {
            DecisionSet::Each(each) => each.iter().for_each(|one| telemetry.decided(channel, &one.wanted)),
            DecisionSet::Reject { holds, .. } => {
                let denied = Choice::Deny { reason: None };
                holds.iter().for_each(|_| telemetry.decided(channel, &denied));
            }
        }
    }

    /// Decides on a run as it was at one moment. What others have appended since is found out by the append.
    async fn decide_at(
        &self,
        by: &Decider,
        decisions: Decisions,
        snapshot: DecisionBasis<'_>,
        take: Takeover,
    ) -> Result<Acceptance, EngineError> {
        let who = by.principal();
        let Decisions { run, mut what, message, once, saves } = decisions;
        let once = once.as_ref();
        let guard = match (take, &what) {
            (Takeover::IfFree, DecisionSet::Each(_)) => self.drives.guard(run),
            (Takeover::Never, _) | (_, DecisionSet::Reject { .. }) => None,
        };
        let row = &snapshot.stored().row;
        let facts = &row.run.facts;
        let agent = self.host.agent(&facts.agent).ok();
        let mut holds = Vec::new();
        for key in what.holds() {
            holds.push(snapshot.hold(key).await?.ok_or(EngineError::NotFound)?);
        }
        if self.commit.done_before(who, once).await?.is_some() {
            return Ok(Answer::Repeated.into());
        }
        if let Some(agent) = &agent {
            what.cut_secrets(&holds, &agent.tools);
        }
        let closed = holds.iter().find_map(|hold| hold.closed.as_ref());
        let (recorded, log) = match closed {
            Some(closed) => (recorded(closed.seq, snapshot.log().await?), snapshot.log().await?),
            None => (None, &[] as &[Envelope]),
        };
        let mut demanding = Vec::new();
        for hold in &holds {
            demanding.push((hold, demands(hold, &row.run, log)));
        }
        let approvers = self.host.approvers(&facts.agent);
        let standing = authority(by, &row.run, &demanding, &approvers, self.host.clock.now());
        let (role, counts_for) = match standing {
            Some(standing) => (Some(standing.role), standing.counts_for),
            None => (None, Vec::new()),
        };
        let definition = self.log.definition(&facts.agent, row.run.state.definition).await?;
        let is_open = role.is_some() && closed.is_none();
        for (hold, demands) in demanding.iter().filter(|_| is_open) {
            if let Some(wanted) = what.wanted(hold.id.key) {
                let to_decide = ToDecide { kind: hold.kind, tool: hold.tool.as_ref(), demands };
                refuse_stale_sign_in(by, wanted, to_decide, &approvers, self.host.clock.now())?;
                self.refuse_misfit(hold, wanted, &definition, &snapshot).await?;
            }
        }
        let taking = if is_open { self.taking(&snapshot, guard).await? } else { None };
        // A tool that is gone is not begun: whoever drives the run asks about it. Nor is one for which something outside
        // has to be looked at first.
        let can_begin = |hold: &&HoldRow| {
            let called = row.run.call(hold.id.key.call).map(|call| &call.tool);
            let tool = called.and_then(|tool| agent.as_ref()?.tools.get(tool));
            let wants_a_look = agent.as_ref().is_some_and(|agent| agent.rules.wants_a_look());
            tool.is_some_and(|tool| tool.look(&account(facts)).is_none()) && !wants_a_look
        };
        let mut begins = Vec::new();
        if let Some(taking) = &taking {
            let begin = |hold: &HoldRow| self.begin_decided(hold, what.wanted(hold.id.key)?, &taking.log);
            begins.extend(holds.iter().filter(can_begin).filter_map(begin));
        }
        let mut verdicts = self
            .verdicts_on(&DecidedCalls {
                agent: agent.as_deref(),
                definition: &definition,
                run: &row.run,
                holds: &holds,
                what: &what,
                log: taking.as_ref().map(|taking| taking.log.as_slice()),
                are_open: is_open,
            })
            .await?;
        let mut writes = self.commit.mark(who, once);
        if let Some((hold, saved)) = saves {
            let hold = HoldId { run, key: hold };
            writes.puts.extend(self.log.grants().marker(facts, hold, &saved));
            verdicts.saved_grants.push((hold.key.call, *saved));
        }
        let endings = self.endings(who, &what).await?;
        let command = what.command(once.and_then(IdempotencyKey::chosen_key), message);
        let mut change = Change {
            actor: by.actor(),
            authority: Authority { role, counts_for, verdicts, recorded },
            commands: std::iter::once(command).chain(begins).collect(),
            writes,
        };
        let base = row.clone();
        let Some(taking) = taking else {
            let answer = if endings.is_empty() {
                self.commit.commit_once(who, once, base, change).await
            } else {
                self.commit.commit_jointly_once(who, once, (base, change), endings).await
            };
            return answer.map(Acceptance::from);
        };
        change.writes.lease = self.commit.while_busy();
        // The log is the drive's from here on, which puts its own events behind it: nobody else looks at it meanwhile.
        drop(snapshot);
        let (answer, rest) = match self.drives.take(base, change, taking).await {
            Ok(Acceptance { answer, rest }) => (Ok(answer), rest),
            Err(error) => (Err(error), None),
        };
        let answer = self.commit.unless_repeated(who, once, answer).await?;
        Ok(Acceptance { answer, rest })
    }

    /// What rules, standing approvals and the world say of the calls that are decided, with the arguments that they get.
    async fn verdicts_on(&self, calls: &DecidedCalls<'_>) -> Result<Verdicts, EngineError> {
        let DecidedCalls { agent, definition, run, holds, what, log, are_open } = *calls;
        // What is about to be decided: edited arguments where there are some, the stored ones otherwise.
        let arguments = |call| what.edited(call).or_else(|| Some(stored_call(log?, call)?.arguments));
        let mut verdicts = policy::of_run(agent, definition, (run, self.host.clock.now()), arguments);
        let Some(agent) = agent.filter(|_| are_open) else { return Ok(verdicts) };
        // Other arguments may find something else, which is then asked about.
        let edited =
            |hold: &HoldRow| Some((hold.id.key.call, hold.tool.clone()?, what.edited(hold.id.key.call)?));
        let edited = holds.iter().filter_map(edited).collect();
        self.drives.look_at_preconditions(run, agent, edited, &mut verdicts).await;
        if agent.may_claim_effects() {
            let effect = |hold: &HoldRow| {
                let no = hold.id.key.call;
                Some(EffectCall { no, tool: hold.tool.clone()?, arguments: arguments(no)? })
            };
            let claiming: Vec<EffectCall> = holds.iter().filter_map(effect).collect();
            self.drives.see_to_effects(&run.facts, agent, claiming, &mut verdicts).await?;
        }
        Ok(verdicts)
    }

    /// Takes a held run, if there is room and nobody works on it.
    async fn taking(
        &self,
        snapshot: &Snapshot,
        guard: Option<DriveGuard>,
    ) -> Result<Option<TakenRun>, EngineError> {
        let (stored, facts) = (snapshot.stored(), &snapshot.run().facts);
        let Some(guard) = guard else { return Ok(None) };
        // A lease of this very node, whose run nobody drives here, is about to be given back, or to be driven with.
        let is_others = |lease: standfast_store::Lease| lease.node != self.host.node;
        if stored.lease.is_some_and(|lease| is_others(lease) && lease.until > self.host.clock.now()) {
            return Ok(None);
        }
        let Some(slot) = self.drives.pool.slot(&facts.agent, Queue::of(facts)) else { return Ok(None) };
        match snapshot.shared_log().await {
            Ok(log) => Ok(Some(TakenRun { slot, guard, log: log.clone() })),
            Err(StoreError::Corrupt { run, why }) => {
                self.commit.quarantine(run, &why).await;
                Err(StoreError::Corrupt { run, why }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The start of the call that a decision lets run: written with the decision, so that nothing comes between. The
    /// core refuses it where the decision alone does not let it run.
    fn begin_decided(&self, hold: &HoldRow, wanted: &Choice, log: &[Envelope]) -> Option<Command> {
        let call = hold.id.key.call;
        let stored = stored_call(log, call)?;
        let decided = match wanted {
            Choice::Approve => stored,
            Choice::ApproveEdited { arguments } => {
                StoredCall { arguments: arguments.text().to_owned(), ..stored }
            }
            Choice::Deny { .. } | Choice::Answer { .. } | Choice::Fail { .. } | Choice::Withdraw => {
                return None;
            }
        };
        Some(self.drives.begin_call(&hold.agent, call, decided))
    }
}

/// No approval by a person whose sign-in is older than the rules of the hold want.
fn refuse_stale_sign_in(
    by: &Decider,
    wanted: &Choice,
    hold: ToDecide<'_>,
    approvers: &Approvers,
    now: Timestamp,
) -> Result<(), EngineError> {
    match by {
        Decider::Person(who) if approves(wanted) => match needs_sign_in(who, hold, approvers, now) {
            Some(max_age) => Err(EngineError::StaleSignIn { max_age }),
            None => Ok(()),
        },
        Decider::Person(_) | Decider::Callback(_) => Ok(()),
    }
}

/// By what right somebody may decide all of these; none when one of them is not theirs.
pub(super) fn authority(
    by: &Decider,
    run: &Run,
    holds: &[(&HoldRow, Vec<Demand>)],
    approvers: &Approvers,
    now: Timestamp,
) -> Option<DecisionRight> {
    let standing = |(hold, demands): &(&HoldRow, Vec<Demand>)| match by {
        Decider::Person(who) => {
            let to_decide = ToDecide { kind: hold.kind, tool: hold.tool.as_ref(), demands };
            let named = may_decide(who, &run.facts, to_decide, approvers).ok();
            let open = run.hold(hold.id.key);
            let as_well = || may_decide_as_well(who, run, open?, approvers, now);
            match named {
                // Who is named for one rule may have been asked about another one later on.
                Some(mut named) => {
                    let more = as_well().map(|standing| standing.counts_for).unwrap_or_default();
                    named.counts_for.extend(more);
                    Some(named)
                }
                None => as_well(),
            }
        }
        Decider::Callback(_) => {
            let reports = DecisionRight { role: Role::Callback, counts_for: Vec::new() };
            (hold.kind == HoldKind::External).then_some(reports)
        }
    };
    let mut standings = holds.iter().map(standing);
    let first = standings.next()??;
    standings.try_fold(first, |mut all, one| {
        all.counts_for.extend(one?.counts_for);
        Some(all)
    })
}
