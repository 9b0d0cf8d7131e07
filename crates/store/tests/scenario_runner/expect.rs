//! What must follow: answers, status, calls, events, effects.
//!
//! Read from the store, never from what the runner remembers, except for effects, which happen outside it. What
//! holds, receipts and the conversation say is in `expect/records.rs`.

mod records;

use standfast_core::decide::Answer;
use standfast_core::event::{Event, Outcome};
use standfast_core::id::CallNo;
use standfast_core::next::{NextStep, next};
use standfast_core::project::RunRow;
use standfast_core::run::{CallOutcome, CallState, Status, WaitKind, status};

use super::details::{not_understood, number, span};
use super::script::Tok;
use super::script::Tok::{Json, Text, Word};
use super::world::{View, World};

/// Checks one sentence after `expect`.
pub(crate) fn check(world: &mut World, toks: &[Tok<'_>]) -> Result<(), String> {
    if let [Word("refused"), texts @ ..] = toks {
        return refused(world, texts);
    }
    if let Some(Err(refusal)) = &world.outcome {
        return Err(format!("the step before was refused: {refusal}"));
    }
    match toks {
        [Word("answer"), words @ ..] => answer(world, words),
        [Word("nothing"), Word("started"), Word("twice")] => never_twice(world),
        [Word("call"), Word(no), Word("started"), Word(times), Word("times" | "time")] => {
            started(world, number(no)?, number(times)?)
        }
        [Word("call"), Word(no), Word("never"), Word("started")] => started(world, number(no)?, 0),
        [Word("call"), Word(no), Word("ran"), Word("with"), Json(arguments)] => {
            ran_with(world, number(no)?, arguments)
        }
        [Word("call"), Word(no), state @ ..] => call(world, number(no)?, state),
        [Word("no"), Word("open"), Word("hold")] => open_holds(world, 0),
        [Word(count), Word("open"), Word("hold" | "holds")] => open_holds(world, number(count)?),
        [Word("events"), kinds @ ..] => events(world, kinds, Reach::All),
        [Word("last"), Word("events" | "event"), kinds @ ..] => events(world, kinds, Reach::Last),
        [Word("no"), Word("event"), Word(kind)] => no_event(world, kind),
        [Word("actor"), Word(actor)] => {
            let view = world.view()?;
            let last = view.events.last().map(|envelope| envelope.actor.to_string()).unwrap_or_default();
            same("the last actor", last.as_str(), *actor)
        }
        [Word("the"), Word("model"), Word("is"), Word("due")] => due(world, "the model"),
        [Word("nobody"), Word("needs"), Word("to"), Word("look"), Word("at"), Word("it")] => {
            looks(world, None)
        }
        [Word("somebody"), Word("looks"), Word("at"), Word("it"), Word("in"), Word(count), Word(unit)] => {
            looks(world, Some(world.now.plus(span(count, unit)?)))
        }
        [Word("claimable"), Word("runs"), names @ ..] => records::claimable(world, names),
        toks => {
            if records::check(world, toks)? {
                return Ok(());
            }
            stands(&world.view()?, toks)
        }
    }
}

fn refused(world: &mut World, texts: &[Tok<'_>]) -> Result<(), String> {
    let refusal = match world.outcome.take() {
        Some(Err(refusal)) => refusal.to_string(),
        Some(Ok(answer)) => return Err(format!("it was not refused: {answer:?}")),
        None => return Err("there is no step before this".into()),
    };
    for text in texts {
        match text {
            Text(text) if refusal.contains(*text) => {}
            Text(_) | Word(_) | Json(_) => return Err(format!("the refusal says: {refusal}")),
        }
    }
    Ok(())
}

fn answer(world: &mut World, words: &[Tok<'_>]) -> Result<(), String> {
    let Some(Ok(answer)) = world.outcome else { return Err("there is no answer".into()) };
    let wanted = match words {
        [Word("done")] => Answer::Done,
        [Word("repeated")] => Answer::Repeated,
        [Word("edited")] => Answer::Edited,
        [Word("held")] => Answer::Held,
        [Word("forbidden")] => Answer::Refused,
        [Word("contradicted")] => Answer::Contradicted,
        [Word("voted"), Word(votes), Word("of"), Word(needed)] => {
            Answer::Voted { votes: number(votes)?, needed: number(needed)? }
        }
        other => return Err(not_understood(other)),
    };
    same("the answer", answer, wanted)
}

/// The run in the words of the core.
fn stands(view: &View, toks: &[Tok<'_>]) -> Result<(), String> {
    let (words, reason) = match toks {
        [words @ .., Word("because"), Text(reason)] => (words, Some(*reason)),
        words => (words, None),
    };
    let words: Vec<&str> = words.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
    let wanted = words.join(" ");
    one_of(&wanted, &STATUSES)?;
    same("the run", status_words(&view.row), wanted.as_str())?;
    let Some(reason) = reason else { return Ok(()) };
    let ended = view.events.iter().find_map(|envelope| {
        let Event::RunEnded(ended) = &envelope.event else { return None };
        ended.reason.clone()
    });
    match ended {
        Some(said) if said.contains(reason) => Ok(()),
        said => Err(format!("the run ended because {said:?}")),
    }
}

const STATUSES: [&str; 11] = [
    "queued",
    "claimed",
    "working",
    "retrying",
    "held for a person",
    "held for a login",
    "held for an outside system",
    "completed",
    "failed",
    "canceled",
    "rejected",
];

fn status_words(row: &RunRow) -> &'static str {
    match status(&row.run) {
        Status::Queued => "queued",
        Status::Claimed => "claimed",
        Status::Working => "working",
        Status::Retrying(_) => "retrying",
        Status::Held(WaitKind::Person) => "held for a person",
        Status::Held(WaitKind::Auth) => "held for a login",
        Status::Held(WaitKind::External) => "held for an outside system",
        Status::Ended(Outcome::Completed) => "completed",
        Status::Ended(Outcome::Failed) => "failed",
        Status::Ended(Outcome::Canceled) => "canceled",
        Status::Ended(Outcome::Rejected) => "rejected",
    }
}

const CALL_STATES: [&str; 11] = [
    "gone",
    "ready",
    "started",
    "held",
    "done",
    "failed",
    "refused",
    "denied",
    "expired",
    "not executed",
    "unknown",
];

fn call(world: &World, no: u32, state: &[Tok<'_>]) -> Result<(), String> {
    let words: Vec<&str> = state.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
    let view = world.view()?;
    let found = view.row.run.call(CallNo(no));
    let is = match found.map(|call| call.state) {
        None => "gone",
        Some(CallState::Ready) => "ready",
        Some(CallState::Started { .. }) => "started",
        Some(CallState::Held) => "held",
        Some(CallState::Done(CallOutcome::Ok)) => "done",
        Some(CallState::Done(CallOutcome::Failed)) => "failed",
        Some(CallState::Done(CallOutcome::Refused)) => "refused",
        Some(CallState::Done(CallOutcome::Denied)) => "denied",
        Some(CallState::Done(CallOutcome::Expired)) => "expired",
        Some(CallState::Done(CallOutcome::NotExecuted)) => "not executed",
        Some(CallState::Done(CallOutcome::Unknown)) => "unknown",
    };
    let wanted = words.join(" ");
    one_of(&wanted, &CALL_STATES)?;
    same(&format!("call {no}"), is, wanted.as_str())
}

fn open_holds(world: &World, count: u32) -> Result<(), String> {
    same("open holds", world.view()?.row.run.state.holds.len(), count as usize)
}

#[derive(PartialEq)]
enum Reach {
    All,
    Last,
}

fn events(world: &World, kinds: &[Tok<'_>], reach: Reach) -> Result<(), String> {
    let wanted: Vec<&str> = kinds.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
    wanted.iter().try_for_each(|kind| one_of(kind, &Event::KINDS))?;
    let view = world.view()?;
    let all: Vec<&str> = view.events.iter().map(|envelope| envelope.event.kind()).collect();
    let from = if reach == Reach::Last { all.len().saturating_sub(wanted.len()) } else { 0 };
    same("events", &all[from..], &wanted[..])
}

fn no_event(world: &World, kind: &str) -> Result<(), String> {
    if !Event::KINDS.contains(&kind) {
        return Err(not_understood(&[Word(kind)]));
    }
    match world.view()?.events.iter().find(|envelope| envelope.event.kind() == kind) {
        Some(envelope) => Err(format!("event {} is {kind}", envelope.seq)),
        None => Ok(()),
    }
}

fn due(world: &World, what: &str) -> Result<(), String> {
    match next(&world.view()?.row.run, world.now) {
        NextStep::Think => Ok(()),
        other @ (NextStep::Tick | NextStep::Act { .. } | NextStep::Wait(_) | NextStep::Nothing) => {
            Err(format!("{what} is not due: {other:?}"))
        }
    }
}

/// When somebody looks at the run by itself: none means that it is rows and nothing else.
fn looks(world: &World, at: Option<standfast_core::time::Timestamp>) -> Result<(), String> {
    let view = world.view()?;
    same("due", view.row.due_at, at)?;
    match next(&view.row.run, world.now) {
        NextStep::Wait(until) => same("next", until, at),
        NextStep::Nothing => same("next", None, at),
        other @ (NextStep::Think | NextStep::Tick | NextStep::Act { .. }) => {
            Err(format!("there is something to do: {other:?}"))
        }
    }
}

fn never_twice(world: &World) -> Result<(), String> {
    for (at, effect) in world.effects.iter().enumerate() {
        let again = world.effects[..at].iter().find(|e| e.run == effect.run && e.call == effect.call);
        if again.is_some() {
            return Err(format!("call {} was started twice", effect.call));
        }
    }
    Ok(())
}

fn started(world: &World, no: u32, times: u32) -> Result<(), String> {
    let run = world.current()?.id;
    let starts = world.effects.iter().filter(|effect| effect.run == run && effect.call == CallNo(no)).count();
    same(&format!("starts of call {no}"), starts, times as usize)
}

fn ran_with(world: &World, no: u32, arguments: &str) -> Result<(), String> {
    let run = world.current()?.id;
    let last = world.effects.iter().rev().find(|effect| effect.run == run && effect.call == CallNo(no));
    same("the arguments that ran", last.map(|effect| effect.arguments.as_str()), Some(arguments))
}

/// A word of a sentence.
fn word<'a>(tok: &Tok<'a>) -> Result<&'a str, String> {
    match tok {
        Word(word) => Ok(word),
        Text(_) | Json(_) => Err(not_understood(&[*tok])),
    }
}

/// A misspelt word is never merely a different one.
fn one_of(word: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&word) { Ok(()) } else { Err(not_understood(&[Word(word)])) }
}

/// Both, when they differ.
fn same<A: PartialEq<B> + std::fmt::Debug, B: std::fmt::Debug>(
    what: &str,
    is: A,
    wanted: B,
) -> Result<(), String> {
    if is == wanted { Ok(()) } else { Err(format!("{what}: {is:?}, expected {wanted:?}")) }
}
