//! What the holder of a run should do now. Derived from state, never stored: a crash between commit and action loses
//! nothing.

use crate::event::Driver;
use crate::id::{CallNo, Incarnation};
use crate::run::{CallState, Run, Stage};
use crate::time::Timestamp;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Ask the model.
    Think,
    /// Something is due: let time pass.
    Tick,
    /// See to the calls.
    Act {
        /// May start.
        ready: Vec<CallNo>,
        /// Were started; those by another node are orphans once their `start_by` has passed.
        started: Vec<StartedCall>,
    },
    /// Nothing until this instant, or until something outside happens.
    Wait(Option<Timestamp>),
    /// Nothing ever again.
    Nothing,
}

/// A call that somebody started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCall {
    /// Which call.
    pub call: CallNo,
    /// Which start of it.
    pub attempt: u32,
    /// By whom.
    pub node: Incarnation,
    /// Latest instant at which the effect may begin; after it the call is returned.
    pub start_by: Timestamp,
}

/// What the holder of the run should do now.
#[must_use]
pub fn next(run: &Run, now: Timestamp) -> NextStep {
    if deadline(run).is_some_and(|at| at <= now) {
        return NextStep::Tick;
    }
    let started = started(run);
    match run.state.stage {
        Stage::Ended(_) if started.is_empty() => NextStep::Nothing,
        Stage::Ended(_) => NextStep::Act { ready: Vec::new(), started },
        Stage::Thinking { retry_at: Some(at), .. } if at > now && !run.is_blocked() => {
            NextStep::Wait(due_at(run))
        }
        Stage::Thinking { .. } if run.waits_in_inbox() => NextStep::Wait(due_at(run)),
        Stage::Thinking { .. } if !run.is_blocked() => NextStep::Think,
        Stage::Thinking { .. } => NextStep::Wait(due_at(run)),
        Stage::Acting => {
            let ready = ready(run);
            if ready.is_empty() && started.is_empty() {
                NextStep::Wait(due_at(run))
            } else {
                NextStep::Act { ready, started }
            }
        }
    }
}

/// When somebody should look at the run again by itself; none when only something outside can move it.
#[must_use]
pub fn due_at(run: &Run) -> Option<Timestamp> {
    let work = match run.state.stage {
        // Whoever serves the inbox finds it there.
        Stage::Thinking { .. } if run.waits_in_inbox() => None,
        Stage::Thinking { retry_at, .. } if !run.is_blocked() => Some(retry_at.unwrap_or(run.state.at)),
        Stage::Thinking { .. } => None,
        Stage::Acting | Stage::Ended(_) => {
            let has_work = !ready(run).is_empty() || !started(run).is_empty();
            has_work.then_some(run.state.at)
        }
    };
    [work, deadline(run)].into_iter().flatten().min()
}

/// When time itself next changes the run.
#[must_use]
pub fn deadline(run: &Run) -> Option<Timestamp> {
    if run.outcome().is_some() {
        return None;
    }
    let holds = run.state.holds.iter().filter_map(|hold| hold.due_at());
    let claim = run.state.claim.as_ref().filter(|_| !run.is_held()).map(|claim| claim.until);
    holds.chain(claim).chain(run.must_be_taken_by()).min()
}

/// Calls that a node may start: an outside worker starts its own.
fn ready(run: &Run) -> Vec<CallNo> {
    let is_ours = run.facts.driver == Driver::Loop && run.outcome().is_none() && !run.is_blocked();
    let ready = run.state.calls.iter().filter(|call| call.state == CallState::Ready);
    ready.filter(|_| is_ours).map(|call| call.no).collect()
}

fn started(run: &Run) -> Vec<StartedCall> {
    let running = |call: &crate::run::Call| match call.state {
        CallState::Started { node, start_by } => {
            Some(StartedCall { call: call.no, attempt: call.attempt, node, start_by })
        }
        CallState::Ready | CallState::Held | CallState::Done(_) => None,
    };
    run.state.calls.iter().filter_map(running).collect()
}
