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
    let started = started(run, now);
    match run.state.stage {
        Stage::Ended(_) if started.is_empty() && due_at(run).is_none() => NextStep::Nothing,
        Stage::Ended(_) if started.is_empty() => NextStep::Wait(due_at(run)),
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
        // Before the end time does what follows.
        Stage::Acting if run.facts.driver == Driver::Gate => None,
        Stage::Ended(_) if run.facts.driver == Driver::Gate => reported_by(run),
        Stage::Acting | Stage::Ended(_) => {
            let has_work = !ready(run).is_empty() || reported_by(run).is_some();
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
    let overdue = reported_by(run).filter(|_| run.facts.driver == Driver::Gate);
    holds.chain(run.claim_lapses_at()).chain(run.must_be_taken_by()).chain(overdue).min()
}

/// Calls that a node may start: an outside worker starts its own.
fn ready(run: &Run) -> Vec<CallNo> {
    let is_ours = run.facts.driver == Driver::Loop && run.outcome().is_none() && !run.is_blocked();
    let ready = run.state.calls.iter().filter(|call| call.state == CallState::Ready);
    ready.filter(|_| is_ours).map(|call| call.no).collect()
}

/// When the first of the calls that run must have reported.
fn reported_by(run: &Run) -> Option<Timestamp> {
    let start_by = |call: &crate::run::Call| match call.state {
        CallState::Started { start_by, .. } => Some(start_by),
        CallState::Ready | CallState::Held | CallState::Done(_) => None,
    };
    run.state.calls.iter().filter_map(start_by).min()
}

/// Calls that were started and that a node has to see to: not what the owner of a gate runs, before it must have reported.
fn started(run: &Run, now: Timestamp) -> Vec<StartedCall> {
    let is_others =
        |start_by: Timestamp| run.facts.driver == Driver::Gate && (run.outcome().is_none() || now < start_by);
    let running = |call: &crate::run::Call| match call.state {
        CallState::Started { start_by, .. } if is_others(start_by) => None,
        CallState::Started { node, start_by } => {
            Some(StartedCall { call: call.no, attempt: call.attempt, node, start_by })
        }
        CallState::Ready | CallState::Held | CallState::Done(_) => None,
    };
    run.state.calls.iter().filter_map(running).collect()
}
