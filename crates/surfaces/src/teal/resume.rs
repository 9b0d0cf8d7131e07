//! Deciding a request: who may, what they say, and which task goes on with it.
//!
//! Mistakes are reported in the order of C30: 401 at the door, then 404, 403, 422, 409. All open holds of the request are
//! decided in one, or none (S1-30); rules and authority are the engine's.

use axum::http::StatusCode;
use serde_json::value::RawValue;
use standfast_core::command::Choice;
use standfast_core::event::Envelope;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RequestId, RequestKey, RunId, Seq};
use standfast_core::project::{HoldClosure, ResolutionKind};
use standfast_core::refusal::Refusal;
use standfast_engine::{
    DecisionSet, Decisions, HoldDecision, HoldView, IdempotencyKey, ImpliedHold, RequestView, ShownHold,
};

use super::error::problem;
use super::map;
use super::reply::Asker;
use super::wire::{Action, ResumeArgs, ResumeBody};
use crate::http::Problem;

/// What a decider wants.
#[derive(Debug)]
pub(super) struct ResumeRequest {
    pub(super) action: Action,
    pub(super) payload: Option<Box<RawValue>>,
    pub(super) reason: Option<String>,
    /// What was shown of each hold, where the decider repeats it; what is none of these was not seen.
    pub(super) seen: Option<Vec<HoldDecision>>,
    pub(super) once: Option<IdempotencyKey>,
}

/// The task that goes on, and the point behind which its answer is.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResumedTask {
    pub(super) task: RunId,
    pub(super) since: LogPoint,
}

/// Behind every event.
pub(super) const NOW: Seq = Seq(u64::MAX);

/// A point of a task's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogPoint {
    /// Behind this event.
    Event(Seq),
    /// Behind the decision of this request; while it is open, behind everything.
    Decided(RequestKey),
    /// Behind what was last said or decided.
    Invoked,
    /// Behind everything: what is true now.
    Now,
}

impl LogPoint {
    /// The event that it means in this log.
    pub(super) fn seq(self, log: &[Envelope]) -> Seq {
        match self {
            LogPoint::Event(seq) => seq,
            LogPoint::Now => NOW,
            LogPoint::Invoked => map::invoked_at(log).unwrap_or(NOW),
            LogPoint::Decided(request) => map::decided_at(log, request).unwrap_or(NOW),
        }
    }
}

impl ResumeRequest {
    /// What body and query say together.
    pub(super) fn of(
        body: ResumeBody,
        args: &ResumeArgs,
        once: Option<IdempotencyKey>,
    ) -> Result<ResumeRequest, Problem> {
        let action = match (body.action.as_deref(), args.action.as_deref()) {
            (Some(said), Some(asked)) if said != asked => {
                let detail = format!("the body names {said} and the path names {asked}; nothing was decided");
                return Err(Problem::invalid(detail));
            }
            (Some(said), _) | (None, Some(said)) => match said {
                "approve" => Action::Approve,
                "reject" => Action::Reject,
                other => {
                    let detail =
                        format!("action must be approve or reject, not {other}; nothing was decided");
                    return Err(Problem::invalid(detail));
                }
            },
            (None, None) => {
                let detail = r#"say {"action": "approve"} or {"action": "reject"}"#;
                return Err(Problem::invalid(detail));
            }
        };
        Ok(ResumeRequest { action, payload: body.payload, reason: body.reason, seen: None, once })
    }
}

impl Asker {
    /// The request with this id, for whoever may see it.
    pub(super) async fn request(&self, id: &str) -> Result<RequestView, Problem> {
        let id: RequestId = id.parse().map_err(|_| Problem::not_found())?;
        self.app.engine.reads().request(&self.who, id).await.map_err(|error| problem(&error))
    }

    /// Decides a request. What is wanted is read only once it is clear that the caller may.
    pub(super) async fn resume(
        &self,
        id: &str,
        wish: impl FnOnce() -> Result<ResumeRequest, Problem>,
    ) -> Result<ResumedTask, Problem> {
        self.decide(id, self.request(id).await?, wish).await
    }

    /// The same, on what was read of the request.
    pub(super) async fn decide(
        &self,
        id: &str,
        view: RequestView,
        wish: impl FnOnce() -> Result<ResumeRequest, Problem>,
    ) -> Result<ResumedTask, Problem> {
        let asked: Vec<&HoldView> = view.holds.iter().filter(|hold| map::is_asked(hold.row.kind)).collect();
        if let Some(theirs) = asked.iter().find(|hold| !hold.may_decide) {
            return Err(problem(&Refusal::NotAllowed(Some(theirs.row.id)).into()));
        }
        let wish = wish()?;
        let open: Vec<&HoldView> = asked.iter().copied().filter(|hold| hold.row.closed.is_none()).collect();
        let is_open = !open.is_empty();
        let meant = if is_open { open } else { asked };
        if meant.is_empty() {
            let detail = "this request waits for an external system, which reports the result itself";
            return Err(Problem::new(StatusCode::CONFLICT, "not-asked", "Nothing to answer", detail));
        }
        let run = view.snapshot.id();
        let task = self.root(view.snapshot.run()).await;
        // Whoever has logged in says so: there is nothing left to decide, and the answer is what came of it.
        if !is_open && wish.action == Action::Approve && meant.iter().all(|hold| is_logged_in(hold)) {
            let since = if task == run { since_decided(id) } else { LogPoint::Now };
            return Ok(ResumedTask { task, since });
        }
        // Under the same id something more is asked by now: whoever means it was shown it (C26).
        let shown = if is_open && wish.seen.is_none() && came_later(&view.holds, &meant) {
            self.were_shown(run, &meant).await?
        } else {
            Vec::new()
        };
        let what = match wish.action {
            Action::Reject => DecisionSet::Reject {
                holds: meant.iter().map(|hold| hold.row.id.key).collect(),
                reason: wish.reason.clone(),
                above: Vec::new(),
            },
            // There is nothing to answer any more: whatever is said, the recorded decision is the answer.
            Action::Approve if !is_open => {
                DecisionSet::Each(meant.iter().map(|hold| approved(hold)).collect())
            }
            Action::Approve => {
                let mut each = map::resolutions(&meant, wish.payload.as_deref()).map_err(Problem::invalid)?;
                match &wish.seen {
                    Some(seen) => repeat(&mut each, seen)?,
                    None => repeat_shown(&mut each, &shown),
                }
                DecisionSet::Each(each)
            }
        };
        let decisions = Decisions::new(run, what, None, wish.once);
        let (submit, snapshot) = (self.app.engine.submit(), &view.snapshot);
        let decided = if task != run && wish.action == Action::Reject {
            submit.decide_and_cancel(&self.who, decisions, snapshot, task).await
        } else {
            submit.decide_on(&self.who, decisions, snapshot).await
        };
        decided.map_err(|error| problem(&error))?;
        if task != run {
            return Ok(ResumedTask { task, since: LogPoint::Now });
        }
        Ok(ResumedTask { task, since: since_decided(id) })
    }

    /// These holds, if they are what the caller was last shown.
    async fn were_shown(&self, run: RunId, meant: &[&HoldView]) -> Result<Vec<ShownHold>, Problem> {
        let open: Vec<ShownHold> = meant.iter().map(|hold| ShownHold::from(*hold)).collect();
        let implied = self.app.engine.shown().implied_hold(&self.who, run, &[], &open).await;
        let are_all_shown = match implied.map_err(|error| problem(&error))? {
            ImpliedHold::Hold(_) => open.len() == 1,
            ImpliedHold::Several => true,
            ImpliedHold::NotShown | ImpliedHold::Outdated | ImpliedHold::Answered => false,
        };
        are_all_shown.then_some(open).ok_or_else(not_shown)
    }
}

/// Behind the decision of a request.
fn since_decided(id: &str) -> LogPoint {
    id.parse::<RequestId>().map_or(LogPoint::Now, |id| LogPoint::Decided(id.key))
}

/// Whether a login was asked for and is done.
fn is_logged_in(hold: &HoldView) -> bool {
    let is_done = |closed: &HoldClosure| match closed.how {
        ResolutionKind::Approved | ResolutionKind::Edited | ResolutionKind::Answered => true,
        ResolutionKind::Denied
        | ResolutionKind::Failed
        | ResolutionKind::Expired
        | ResolutionKind::Withdrawn
        | ResolutionKind::Superseded => false,
    };
    hold.row.kind == HoldKind::Auth && hold.row.closed.as_ref().is_some_and(is_done)
}

/// Whether any of these opened only after something of the request had been decided.
fn came_later(all: &[HoldView], open: &[&HoldView]) -> bool {
    let first = all.iter().filter_map(|hold| hold.row.closed.as_ref()).map(|closed| closed.seq).min();
    first.is_some_and(|first| open.iter().any(|hold| hold.row.at > first))
}

fn not_shown() -> Problem {
    let detail = "the request has changed since you saw it; nothing was decided. Review it again";
    Problem::new(StatusCode::CONFLICT, "stale", "Changed since you saw it", detail)
}

fn approved(hold: &HoldView) -> HoldDecision {
    HoldDecision { hold: hold.row.id.key, wanted: Choice::Approve, digest: None, revision: None }
}

/// Decides what was shown, as it was shown.
fn repeat_shown(each: &mut [HoldDecision], shown: &[ShownHold]) {
    for one in each {
        if let Some(shown) = shown.iter().find(|shown| shown.id.key == one.hold) {
            (one.digest, one.revision) = (shown.digest, Some(shown.revision));
        }
    }
}

/// Decides what was seen, and nothing else.
fn repeat(each: &mut [HoldDecision], seen: &[HoldDecision]) -> Result<(), Problem> {
    for one in each {
        let shown = seen.iter().find(|shown| shown.hold == one.hold).ok_or_else(not_shown)?;
        (one.digest, one.revision) = (shown.digest, shown.revision);
    }
    Ok(())
}
