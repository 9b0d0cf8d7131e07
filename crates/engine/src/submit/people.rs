//! What people do to a hold without deciding it: assign it, take it, hand it on for a while, give it a new deadline, change
//! the arguments, have it asked again.
//!
//! Who may do it may decide it; the core says what follows. Decisions are `decisions.rs`.

use standfast_core::actor::Actor;
use standfast_core::command::{Choice, Command, Decide, Edit};
use standfast_core::decide::Answer;
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::id::{CallNo, HoldId};
use standfast_core::json::RawJson;
use standfast_core::name::UserId;
use standfast_core::policy::Verdicts;
use standfast_core::refusal::Refusal;
use standfast_core::time::Timestamp;
use standfast_core::transcript::stored_call;

use super::Submit;
use super::decisions::{Decider, authority};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::{Authority, Change, IdempotencyKey};
use crate::drive::effects::EffectCall;
use crate::log::{demands, needs, needs_for, recorded};
use crate::policy;

/// Something that is to happen to a hold without deciding it.
#[derive(Debug, Clone)]
pub struct HoldAdjustment {
    /// Which hold.
    pub hold: HoldId,
    /// What.
    pub what: Adjustment,
    /// Makes a repeat safe.
    pub once: Option<IdempotencyKey>,
}

/// What can happen to a hold without deciding it.
#[derive(Debug, Clone)]
pub enum Adjustment {
    /// Somebody in particular is asked.
    Assign {
        /// Who; none means nobody in particular.
        to: Option<UserId>,
        /// Until when; none means until somebody says otherwise.
        until: Option<Timestamp>,
    },
    /// Somebody else decides in the caller's place for a while.
    Delegate {
        /// Who.
        to: UserId,
        /// Until when.
        until: Timestamp,
    },
    /// A hold that expired and was kept gets a new deadline.
    Reopen {
        /// Until when; none means without limit.
        expires_at: Option<Timestamp>,
    },
    /// The arguments are changed; the vote restarts.
    Edit {
        /// All arguments.
        arguments: RawJson,
        /// The digest that was shown, if the editor repeats it.
        digest: Option<Digest>,
        /// The revision that was shown, if the editor repeats it.
        revision: Option<u32>,
    },
    /// It is judged and looked at anew, with the arguments that it has; the vote restarts.
    AskAgain {
        /// The digest that was shown, if the caller repeats it.
        digest: Option<Digest>,
        /// The revision that was shown, if the caller repeats it.
        revision: Option<u32>,
    },
}

impl Adjustment {
    /// The command, and the arguments that it is judged with. `stored` are those that the call has.
    fn command(self, id: HoldId, stored: Option<RawJson>) -> Option<(Command, Option<RawJson>)> {
        let hold = id.key;
        let edit = |arguments: RawJson, digest, revision| {
            let decide = Decide { hold, digest, revision };
            (Command::Edit(Edit { decide, arguments: arguments.clone() }), Some(arguments))
        };
        Some(match self {
            Adjustment::Assign { to, until } => (Command::Assign { hold, to, until }, None),
            Adjustment::Delegate { to, until } => (Command::Delegate { hold, to, until }, None),
            Adjustment::Reopen { expires_at } => (Command::Reopen { hold, expires_at }, None),
            Adjustment::Edit { arguments, digest, revision } => edit(arguments, digest, revision),
            Adjustment::AskAgain { digest, revision } => edit(stored?, digest, revision),
        })
    }
}

impl Submit {
    /// Changes who is asked about a hold, until when, or about what.
    pub async fn adjust(&self, who: &Principal, wanted: HoldAdjustment) -> Result<Answer, EngineError> {
        let hold = wanted.hold;
        let adjusted = self.adjust_hold(who, wanted).await;
        if let Err(error) = &adjusted {
            self.refused.record(&self.log, who, vec![hold], error).await;
        }
        adjusted
    }

    pub(super) async fn adjust_hold(
        &self,
        who: &Principal,
        wanted: HoldAdjustment,
    ) -> Result<Answer, EngineError> {
        needs(who, Scope::HoldsDecide)?;
        let HoldAdjustment { hold: id, what, once } = wanted;
        let snapshot = self.log.whole_snapshot(who, id.run).await?;
        let row = &snapshot.stored().row;
        let facts = &row.run.facts;
        needs_for(who, Scope::HoldsDecide, &facts.agent)?;
        let hold = snapshot.hold(id.key).await?.ok_or(EngineError::NotFound)?;
        if self.commit.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        let by = Decider::Person(who.clone());
        let now = self.host.clock.now();
        let (recorded, log) = match &hold.closed {
            Some(closed) => (recorded(closed.seq, snapshot.log().await?), snapshot.log().await?),
            None => (None, &[] as &[Envelope]),
        };
        let demanding = [(&hold, demands(&hold, &row.run, log))];
        let approvers = self.host.approvers(&facts.agent);
        let (role, counts_for) = match authority(&by, &row.run, &demanding, &approvers, now) {
            Some(standing) => (Some(standing.role), standing.counts_for),
            None => (None, Vec::new()),
        };
        let definition = self.log.definition(&facts.agent, row.run.state.definition).await?;
        let is_open = role.is_some() && hold.closed.is_none();
        let stored = match &what {
            Adjustment::AskAgain { .. } => stored_call(snapshot.log().await?, id.key.call),
            Adjustment::Assign { .. }
            | Adjustment::Delegate { .. }
            | Adjustment::Reopen { .. }
            | Adjustment::Edit { .. } => None,
        };
        let stored = stored.and_then(|call| RawJson::parse(&call.arguments).ok());
        let Some((command, edited)) = what.command(id, stored) else {
            // Only a call has something that could be asked again.
            let refusal = Refusal::WrongKind { hold: id, kind: hold.kind };
            return Err(if role.is_some() { refusal.into() } else { EngineError::NotFound });
        };
        if let Some(arguments) = edited.as_ref().filter(|_| is_open) {
            let edited = Choice::ApproveEdited { arguments: arguments.clone() };
            self.refuse_misfit(&hold, &edited, &definition, &snapshot).await?;
        }
        let verdicts = match &edited {
            Some(edited) => {
                let log = snapshot.log().await?;
                let arguments = |call: CallNo| {
                    if call == id.key.call {
                        Some(edited.text().to_owned())
                    } else {
                        Some(stored_call(log, call)?.arguments)
                    }
                };
                let agent = self.host.agent(&facts.agent).ok();
                let mut verdicts = policy::of_run(agent.as_deref(), &definition, (&row.run, now), arguments);
                if let (Some(agent), Some(tool)) = (&agent, hold.tool.clone()) {
                    if is_open {
                        let call = (id.key.call, tool.clone(), edited.text().to_owned());
                        self.drives.look_at_preconditions(&row.run, agent, vec![call], &mut verdicts).await;
                    }
                    let call = EffectCall { no: id.key.call, tool, arguments: edited.text().to_owned() };
                    self.drives.see_to_effects(&row.run.facts, agent, [call], &mut verdicts).await?;
                }
                verdicts
            }
            None => Verdicts::default(),
        };
        let change = Change {
            actor: Actor::Person(who.user.clone()),
            authority: Authority { role, counts_for, verdicts, recorded },
            commands: vec![command],
            writes: self.commit.mark(who, once.as_ref()),
        };
        self.commit.commit_once(who, once.as_ref(), row.clone(), change).await
    }
}
