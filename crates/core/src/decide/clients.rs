//! What clients may do: start, say, cancel, erase.
//!
//! Knows nothing of what a message means: words that decide a hold arrive as `Resolve` (`words.rs`, `holds.rs`).

use super::{Answer, Draft, Transition};
use crate::apply;
use crate::command::{Admission, Context, OnHold, Say, Start};
use crate::event::{Envelope, Event, MessageReceived, Outcome, RunErased, RunStarted};
use crate::hold::Resolution;
use crate::id::Seq;
use crate::refusal::{CapKind, Refusal};
use crate::run::{CallState, Stage};

pub(super) fn start(start: &Start, ctx: &Context<'_>) -> Result<Transition, Refusal> {
    if start.parent.is_some_and(|parent| parent.depth > ctx.limits.depth) {
        return Err(Refusal::Cap { what: CapKind::Depth, max: ctx.limits.depth });
    }
    let event = Event::RunStarted(RunStarted {
        tenant: start.tenant.clone(),
        agent: start.agent.clone(),
        session: start.session.clone(),
        owner: start.owner.clone(),
        driver: start.driver,
        definition: start.definition,
        parent: start.parent,
        inbox: start.inbox.clone(),
        taken: start.taken == Admission::AtOnce,
        history: start.history.clone(),
        origin: ctx.origin.cloned().map(Box::new),
    });
    let started = Envelope { seq: Seq(1), at: ctx.now, actor: ctx.actor.clone(), event };
    let Some(run) = apply::begin(start.id, &started) else { unreachable!("the event is run.started") };
    let mut draft = Draft {
        run,
        events: vec![started],
        cancel_children: Vec::new(),
        ctx,
        now: ctx.now,
        actor: ctx.actor.clone(),
        drawn: 0,
    };
    draft.emit(Event::MessageReceived(MessageReceived { message: start.message.clone() }));
    Ok(Transition {
        events: draft.events,
        run: draft.run,
        outcome: Ok(Answer::Done),
        cancel_children: Vec::new(),
    })
}

/// A message never decides by accident: words that decide arrive as `Resolve` (rule 6).
pub(super) fn say(draft: &mut Draft<'_>, say: &Say) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    let before = (say.on_hold == OnHold::Supersede).then(|| (draft.run.clone(), draft.events.len()));
    if before.is_some() {
        let overtaken: Vec<_> =
            draft.run.state.holds.iter().filter(|hold| hold.kind.can_be_superseded()).collect();
        for key in overtaken.iter().map(|hold| hold.key).collect::<Vec<_>>() {
            draft.close(key, Resolution::Supersede);
        }
    }
    let waits_for_a_person = draft.run.state.holds.iter().any(|hold| !hold.kind.queues_messages());
    if draft.run.is_held() && waits_for_a_person {
        // What cannot supersede everything supersedes nothing: a refused command leaves no trace.
        if let Some((run, events)) = before {
            draft.run = run;
            draft.events.truncate(events);
        }
        return Err(Refusal::Held {
            open: draft.run.state.holds.iter().map(|hold| draft.run.hold_id(hold.key)).collect(),
        });
    }
    let received = MessageReceived { message: say.message.clone() };
    let is_busy = match draft.run.state.stage {
        // It waits for an outside system or a login.
        Stage::Thinking { .. } | Stage::Acting if draft.run.is_held() => true,
        // The model may be thinking about an older state of things at this moment.
        Stage::Thinking { retry_at, .. } => draft.run.was_claimed() && retry_at.is_none(),
        Stage::Acting => draft.run.state.calls.iter().any(|call| !matches!(call.state, CallState::Done(_))),
        Stage::Ended(_) => false,
    };
    draft.emit(if is_busy { Event::MessageQueued(received) } else { Event::MessageReceived(received) });
    Ok(Answer::Done)
}

/// Immediate: holds are withdrawn, the run ends. A call that had started may still report what it did (rule 5).
pub(super) fn cancel(draft: &mut Draft<'_>, reason: Option<&str>) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    draft.end(Outcome::Canceled, reason.map(str::to_owned), None);
    Ok(Answer::Done)
}

pub(super) fn erase(draft: &mut Draft<'_>, reason: Option<&str>) -> Result<Answer, Refusal> {
    if draft.run.outcome().is_none() {
        return Err(Refusal::NotEnded);
    }
    if draft.run.state.erased {
        return Ok(Answer::Repeated);
    }
    draft.emit(Event::RunErased(RunErased { reason: reason.map(str::to_owned) }));
    Ok(Answer::Done)
}
