//! What is shown of a gate: where it stands, what may run, who decided and what came of it.
//!
//! Pure: made of the run and its log alone, so that every node shows the same.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Envelope, Event, HoldResolved};
use standfast_core::hold::{Hold, HoldKind, Resolution};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::message::ToolResult;
use standfast_core::name::{GrantId, RuleId, SessionId, ToolName};
use standfast_core::run::{CallOutcome, CallState, Run};
use standfast_core::time::Timestamp;

use super::CALL;

/// Where a gate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// Its call may start.
    Allowed,
    /// Somebody has to decide.
    Held,
    /// It must not run: a person or a rule says so.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// Nobody wants it any more.
    Withdrawn,
    /// It runs.
    Started,
    /// It has its outcome.
    Done,
    /// It may have run, and nobody knows what it did.
    OutcomeUnknown,
}

/// What is shown of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateView {
    /// Its id.
    pub gate: RunId,
    /// The last event that it is made of.
    pub seq: Seq,
    /// Where it stands.
    pub state: GateState,
    /// The hold that waits, or that was decided last.
    pub hold: Option<HoldId>,
    /// The agent's conversation.
    pub session: SessionId,
    /// What the agent calls the call.
    pub call: String,
    /// The tool.
    pub tool: ToolName,
    /// The arguments that may run, or that were decided on last.
    pub arguments: Body,
    /// Digest of the call with these arguments.
    pub digest: Option<Digest>,
    /// How often its arguments were edited.
    pub revision: u32,
    /// When it expired, while a late decision still counts.
    pub expired_at: Option<Timestamp>,
    /// Until when one does; none means without limit.
    pub grace_ends_at: Option<Timestamp>,
    /// Who or what decided.
    pub decision: Option<GateDecision>,
    /// Which start, once there is one.
    pub attempt: Option<u32>,
    /// Until when its outcome is awaited, while it runs.
    pub start_by: Option<Timestamp>,
    /// What came of it: for a question, the answer.
    pub result: Option<ToolResult>,
    /// When that was known.
    pub finished_at: Option<Timestamp>,
    /// Whether a person is asked for an answer or a login, and nothing runs.
    pub is_question: bool,
}

/// Who or what decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateDecision {
    /// Whether it may run.
    pub is_allowed: bool,
    /// Who; none when rules alone decided.
    pub by: Option<Actor>,
    /// When.
    pub at: Timestamp,
    /// In words, where some were given.
    pub reason: Option<String>,
    /// The rules that said so, or that asked.
    pub rules: Vec<RuleId>,
    /// The grant that let it through, if one did.
    pub grant: Option<GrantId>,
    /// Whether the arguments are others than those that were asked about.
    pub is_edited: bool,
    /// Whether it came after the deadline.
    pub is_late: bool,
}

impl GateView {
    /// A gate as its log tells; none when the run is not a gate.
    #[must_use]
    pub fn of(run: &Run, log: &[Envelope]) -> Option<GateView> {
        let call = run.call(CALL).filter(|_| run.facts.driver == Driver::Gate)?;
        let proposal = log.iter().find_map(|envelope| match &envelope.event {
            Event::CallProposed(proposed) => Some((envelope.at, &proposed.call)),
            _ => None,
        });
        let (asked_at, asked) = proposal?;
        let by_rules = asked.judged.as_ref().map(|judged| GateDecision {
            is_allowed: asked.refused.is_none(),
            by: None,
            at: asked_at,
            reason: asked.refused.clone(),
            rules: judged.rules.clone(),
            grant: judged.grant.clone(),
            is_edited: false,
            is_late: false,
        });
        let refused = || GateDecision {
            is_allowed: false,
            by: None,
            at: asked_at,
            reason: asked.refused.clone(),
            rules: Vec::new(),
            grant: None,
            is_edited: false,
            is_late: false,
        };
        let decision = by_rules.or_else(|| asked.refused.is_some().then(refused));
        let kept = run.state.holds.iter().find(|hold| hold.call() == CALL && hold.expired_at.is_some());
        let mut view = GateView {
            gate: run.facts.id,
            seq: run.state.seq,
            state: state(run, call.state, call.attempt),
            hold: None,
            session: run.facts.session.clone(),
            call: asked.id.clone(),
            tool: asked.tool.clone(),
            arguments: asked.arguments.clone(),
            digest: call.digest,
            revision: call.revision,
            expired_at: kept.and_then(|hold| hold.expired_at),
            grace_ends_at: kept.and_then(Hold::grace_ends_at),
            decision,
            attempt: (call.attempt > 0).then_some(call.attempt),
            start_by: match call.state {
                CallState::Started { start_by, .. } => Some(start_by),
                CallState::Ready | CallState::Held | CallState::Done(_) => None,
            },
            result: None,
            finished_at: None,
            is_question: false,
        };
        let mut kind = HoldKind::Approval;
        let mut rules = Vec::new();
        for envelope in log {
            view.see(envelope, &mut kind, &mut rules);
        }
        Some(view)
    }

    fn see(&mut self, envelope: &Envelope, kind: &mut HoldKind, rules: &mut Vec<RuleId>) {
        match &envelope.event {
            Event::HoldOpened(opened) => {
                self.hold = Some(HoldId { run: self.gate, key: opened.hold });
                *kind = opened.kind;
                self.is_question |= matches!(opened.kind, HoldKind::Input | HoldKind::Auth);
                *rules = opened.judged.as_ref().map(|judged| judged.rules.clone()).unwrap_or_default();
            }
            Event::HoldEdited(edited) => {
                self.arguments = edited.edited.arguments.clone();
                self.revision = edited.edited.revision;
                self.decision = None;
            }
            Event::HoldResolved(resolved) => {
                self.resolve(envelope, resolved, *kind, rules);
            }
            Event::CallFinished(finished) => match &finished.refused {
                // Stricter rules stopped what had been allowed: that is the decision now, and nothing ran.
                Some(judged) => {
                    let (ToolResult::Ok(said) | ToolResult::Failed(said)) = &finished.result;
                    self.decision = Some(GateDecision {
                        is_allowed: false,
                        by: None,
                        at: envelope.at,
                        reason: said.inline().map(str::to_owned),
                        rules: judged.rules.clone(),
                        grant: None,
                        is_edited: self.revision > 0,
                        is_late: false,
                    });
                }
                None => {
                    self.result = Some(finished.result.clone());
                    self.finished_at = Some(envelope.at);
                }
            },
            _ => {}
        }
    }

    fn resolve(&mut self, envelope: &Envelope, resolved: &HoldResolved, kind: HoldKind, rules: &[RuleId]) {
        let HoldResolved { resolution, late, .. } = resolved;
        let before = self.decision.as_ref().is_some_and(|decision| decision.is_edited);
        if let Resolution::Approve { edited: Some(edited) } = resolution {
            self.arguments = edited.arguments.clone();
            self.revision = edited.revision;
        }
        match (kind, resolution) {
            (HoldKind::Recovery, Resolution::Answer { value }) => {
                self.result = Some(ToolResult::Ok(value.clone()));
                self.finished_at = Some(envelope.at);
            }
            (HoldKind::Recovery, Resolution::Fail { error }) => {
                self.result = Some(ToolResult::Failed(error.clone()));
                self.finished_at = Some(envelope.at);
            }
            (HoldKind::Recovery, _) => {}
            (kind, resolution) => {
                let (is_allowed, reason) = match resolution {
                    Resolution::Answer { value } if matches!(kind, HoldKind::Input | HoldKind::Auth) => {
                        self.result = Some(ToolResult::Ok(value.clone()));
                        self.finished_at = Some(envelope.at);
                        (true, None)
                    }
                    Resolution::Approve { .. } => (true, None),
                    Resolution::Deny { reason } => (false, reason.clone()),
                    Resolution::Answer { .. }
                    | Resolution::Fail { .. }
                    | Resolution::Expire
                    | Resolution::Withdraw
                    | Resolution::Supersede => (false, None),
                };
                let is_edited = before || self.revision > 0;
                let (by, at) = (Some(envelope.actor.clone()), envelope.at);
                let rules = rules.to_vec();
                let (grant, is_late) = (None, *late);
                self.decision =
                    Some(GateDecision { is_allowed, by, at, reason, rules, grant, is_edited, is_late });
            }
        }
    }
}

fn state(run: &Run, call: CallState, attempt: u32) -> GateState {
    match call {
        CallState::Ready if run.outcome().is_some() => GateState::OutcomeUnknown,
        CallState::Ready => GateState::Allowed,
        CallState::Started { .. } => GateState::Started,
        CallState::Held => {
            let is_lost = run.state.holds.iter().any(|hold| hold.kind == HoldKind::Recovery);
            if is_lost { GateState::OutcomeUnknown } else { GateState::Held }
        }
        CallState::Done(came_to) => match came_to {
            CallOutcome::Ok | CallOutcome::Failed => GateState::Done,
            CallOutcome::Refused | CallOutcome::Denied => GateState::Denied,
            CallOutcome::Expired => GateState::Expired,
            CallOutcome::NotExecuted if attempt > 0 => GateState::Done,
            CallOutcome::NotExecuted => GateState::Withdrawn,
            CallOutcome::Unknown => GateState::OutcomeUnknown,
        },
    }
}
