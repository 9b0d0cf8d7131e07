//! What the model's replies and failures lead to.
//!
//! A stored reply is never replaced (rule 1). The calls in it are looked at in `judge.rs`; who asks the model and
//! when is the engine's business.

use super::judge::{self, Judgement};
use super::{Answer, Draft};
use crate::body::Body;
use crate::command::{RecordFailure, RecordReply};
use crate::event::{CallProgressed, Driver, Event, ModelFailed, ModelReplied, Outcome};
use crate::id::CallNo;
use crate::message::Reply;
use crate::mutant::Mutant;
use crate::refusal::Refusal;
use crate::run::{PromptBasis, Stage};

pub(super) fn reply(draft: &mut Draft<'_>, reply: &RecordReply) -> Result<Answer, Refusal> {
    refuse_unless_thinking(draft)?;
    refuse_if_outdated(draft, Some(reply.heard))?;
    let mut judgements: Vec<Judgement> = Vec::with_capacity(reply.calls.len());
    for (no, asked) in (draft.run.state.calls_made + 1..).zip(&reply.calls) {
        judgements.push(judge::judge(draft, CallNo(no), asked));
    }
    if draft.ctx.definition.hold_batch {
        judge::hold_whole_batch(&mut judgements);
    }
    judge::refuse_over_cap(draft, &mut judgements);
    draft.emit(Event::ModelReplied(ModelReplied {
        reply: Reply {
            text: reply.text.as_ref().map(Body::text),
            parts: reply.parts.clone(),
            calls: judgements.iter().map(|judgement| judgement.call.clone()).collect(),
            opaque: reply.opaque.clone().map(Body::Json),
            usage: reply.usage,
            model: reply.model.clone(),
        },
        heard: reply.heard.messages,
        asked_with: reply.heard.results,
    }));
    for judgement in &judgements {
        let is_denied = judgement.call.refused.is_some() && judgement.call.judged.is_some();
        let note = draft.ctx.verdicts.note(judgement.call.no).filter(|_| is_denied);
        if let Some(note) = note.map(Body::text) {
            let call = judgement.call.no;
            draft.emit(Event::CallProgressed(CallProgressed { call, note, processing: None }));
        }
    }
    if let Some(reason) = over_budget(draft, reply) {
        draft.end(Outcome::Failed, Some(reason), None);
        return Ok(Answer::Done);
    }
    if reply.calls.is_empty() && draft.run.state.messages <= reply.heard.messages {
        draft.end(Outcome::Completed, None, None);
        return Ok(Answer::Done);
    }
    for judgement in judgements {
        if let Some(combined) = judgement.hold {
            judge::open_approval(draft, &judgement.call, combined);
        }
    }
    Ok(Answer::Done)
}

/// A retry is counted before it happens, and the count ends the run (S0-47).
pub(super) fn failure(draft: &mut Draft<'_>, failure: &RecordFailure) -> Result<Answer, Refusal> {
    let failures = refuse_unless_thinking(draft)? + 1;
    refuse_if_outdated(draft, failure.heard)?;
    let may_retry = failures < draft.ctx.limits.model_attempts;
    let retry_at = failure.retry_at.filter(|_| may_retry);
    draft.emit(Event::ModelFailed(ModelFailed { failures, error: failure.error.clone(), retry_at }));
    if retry_at.is_none() {
        let said = failure.error.inline().unwrap_or("a long error");
        let tries = if failures == 1 { "try" } else { "tries" };
        let reason = format!("the model could not be asked ({failures} {tries}): {said}");
        draft.end(Outcome::Failed, Some(reason), None);
    }
    Ok(Answer::Done)
}

/// What the model says counts only if it was asked with what is stored. A stored reply is never replaced, so one that was
/// thought of before it is late (rule 1); and one that was asked with a decision or a result that lost its race is about
/// something that never was. Either is thrown away, and the model is asked again.
pub(super) fn refuse_if_outdated(draft: &Draft<'_>, heard: Option<PromptBasis>) -> Result<(), Refusal> {
    let is_asked_with = |heard: PromptBasis| {
        if Mutant::TranscriptUnchecked.is_on() {
            heard.turn == draft.run.state.turn
        } else {
            draft.run.is_asked_with(heard)
        }
    };
    if heard.is_none_or(is_asked_with) { Ok(()) } else { Err(Refusal::NotThinking) }
}

fn refuse_unless_thinking(draft: &Draft<'_>) -> Result<u32, Refusal> {
    draft.refuse_if_ended()?;
    match (draft.run.facts.driver, draft.run.state.stage) {
        (Driver::Loop, Stage::Thinking { failures, .. }) if !draft.run.is_blocked() => Ok(failures),
        (Driver::Outside | Driver::Gate, _) => Err(Refusal::WrongDriver),
        (Driver::Loop, Stage::Thinking { .. } | Stage::Acting | Stage::Ended(_)) => Err(Refusal::NotThinking),
    }
}

/// An endless loop of tool calls ends here (F26).
fn over_budget(draft: &Draft<'_>, reply: &RecordReply) -> Option<String> {
    let limits = draft.ctx.limits;
    if reply.calls.is_empty() {
        return None;
    }
    if draft.run.state.turn >= limits.turns {
        return Some(format!("the run reached its limit of {} model replies", limits.turns));
    }
    let usage = draft.run.state.usage;
    if let Some(tokens) = limits.tokens.filter(|max| usage.tokens() >= *max) {
        return Some(format!("the run reached its limit of {tokens} tokens"));
    }
    let cost = limits.cost_micros.filter(|max| usage.cost_micros >= *max)?;
    Some(format!("the run reached its limit of cost: {}.{:06}", cost / 1_000_000, cost % 1_000_000))
}
