//! What people and outside systems decide.
//!
//! A sentence names the hold by its call; without one it means the only open hold, or the last one when none is
//! open. Words of a message are read as the surfaces read them.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Command, Decide, Edit, OnHold, Reject, Resolve, Say};
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, Event, HoldOpened};
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldKey};
use standfast_core::message::Message;
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_core::text_decisions::{TextMeaning, read_text};
use standfast_store::StoreError;

use super::super::block_on::block_on;
use super::super::details::{Details, SeenDigest, Target, not_understood};
use super::super::script::Tok;
use super::super::script::Tok::{Text, Word};
use super::super::sub_runs::{decided, sealed};
use super::super::world::{View, World, user};

/// A person's sentence; `NAME … while NAME …` are two at the same moment.
pub(super) fn take(world: &mut World, name: &str, toks: &[Tok<'_>]) -> Result<(), String> {
    if let Some(at) = toks.iter().position(|tok| *tok == Word("while")) {
        return race(world, (name, &toks[..at]), &toks[at + 1..]);
    }
    let actor = Actor::Person(user(name)?);
    match toks {
        [Word("writes"), Text(text)] => writes(world, name, text),
        toks => {
            let command = command(world, toks)?;
            world.submit(actor, command).map(drop)
        }
    }
}

/// An outside system reports back, with the id and the signature of its job.
pub(super) fn callback(world: &mut World, toks: &[Tok<'_>]) -> Result<(), String> {
    let actor = Actor::Callback(user("outside-system")?);
    let command = match toks {
        [Word("reports"), Word("progress"), Word("of"), rest @ ..] => {
            let details = Details::read(rest)?;
            let (call, processing) = (CallNo(details.call()?), details.processing);
            Command::Progress { call, note: details.value()?, processing }
        }
        toks => command(world, toks)?,
    };
    world.submit(actor, command).map(drop)
}

fn command(world: &World, toks: &[Tok<'_>]) -> Result<Command, String> {
    let [Word(verb), rest @ ..] = toks else { return Err("say what is done".into()) };
    if *verb == "repins" {
        return Ok(Command::Repin { definition: world.setting.definition.digest() });
    }
    if let ("approves", [Word("everything")]) | ("rejects", _) = (*verb, rest) {
        return everything(&world.view()?, verb, rest);
    }
    let details = Details::read(rest)?;
    let view = world.view()?;
    let decide = seen(&view, &details)?;
    let hold = decide.hold;
    let resolution = match *verb {
        "votes" => return Ok(Command::Vote(decide)),
        "edits" => return Ok(Command::Edit(Edit { decide, arguments: details.arguments()? })),
        "assigns" => {
            let to = details.to.as_deref().ok_or("say to whom")?;
            let to = if to == "nobody" { None } else { Some(user(to)?) };
            return Ok(Command::Assign { hold, to, until: None });
        }
        "reopens" => {
            let expires_at = details.span.map(|span| world.now.plus(span));
            return Ok(Command::Reopen { hold, expires_at });
        }
        "approves" if details.arguments.is_some() => {
            Choice::ApproveEdited { arguments: details.arguments()? }
        }
        "approves" => Choice::Approve,
        "denies" => Choice::Deny { reason: details.reason.clone() },
        "answers" => Choice::Answer { value: details.value()? },
        "fails" => Choice::Fail { error: details.value()? },
        "withdraws" => Choice::Withdraw,
        other => return Err(not_understood(&[Word(other)])),
    };
    Ok(Command::Resolve(Resolve { decide, resolution, idempotency_key: details.key, message: None }))
}

/// All that a run asks people at once: approved together, or refused together with the run (S1-30).
fn everything(view: &View, verb: &str, rest: &[Tok<'_>]) -> Result<Command, String> {
    let open = view.row.run.state.holds.iter().map(|hold| hold.key);
    // What was asked last, where nothing is asked any more.
    let mut holds: Vec<HoldKey> = open.collect();
    if holds.is_empty() {
        holds.extend(opened(view).last().map(|hold| hold.hold));
    }
    if verb == "rejects" {
        let details = Details::read(rest)?;
        let (reason, idempotency_key) = (details.reason, details.key);
        return Ok(Command::Reject(Reject { holds, reason, idempotency_key }));
    }
    let approve = |hold| Resolve {
        decide: Decide { hold, digest: None, revision: None },
        resolution: Choice::Approve,
        idempotency_key: None,
        message: None,
    };
    Ok(Command::ResolveAll(holds.into_iter().map(approve).collect()))
}

/// The hold that a sentence means, and what its decider saw.
fn seen(view: &View, details: &Details) -> Result<Decide, String> {
    let holds = opened(view);
    let is_open = |hold: &&&HoldOpened| view.row.run.hold(hold.hold).is_some();
    let of_call = |no: u32| holds.iter().rev().find(|hold| hold.hold.call == CallNo(no));
    let found = match details.target {
        Some(Target::Call(no)) => of_call(no),
        Some(Target::Run) => of_call(0),
        Some(Target::Hold(at)) => holds.get(at.wrapping_sub(1)),
        None => match holds.iter().filter(is_open).count() {
            0 => holds.last(),
            1 => holds.iter().find(is_open),
            _ => return Err("several holds are open; say which call".into()),
        },
    };
    let hold = found.ok_or("there is no such hold")?.hold;
    let digest = details.digest.map(|which| match which {
        SeenDigest::First => first_digest(view, hold),
        SeenDigest::Current => view.row.run.call(hold.call).and_then(|call| call.digest),
        SeenDigest::Another => Some(Digest([9; 32])),
    });
    Ok(Decide { hold, digest: digest.flatten(), revision: details.revision })
}

/// Every hold of the run, in the order of opening.
fn opened(view: &View) -> Vec<&HoldOpened> {
    view.events.iter().filter_map(opening).collect()
}

fn opening(envelope: &Envelope) -> Option<&HoldOpened> {
    let Event::HoldOpened(opened) = &envelope.event else { return None };
    Some(opened)
}

fn first_digest(view: &View, hold: HoldKey) -> Option<Digest> {
    let receipt = standfast_core::receipt::receipt(hold, &view.events)?;
    receipt.shown.first().and_then(|shown| shown.digest)
}

/// A message of somebody who was just shown the run is read as the surfaces read it: it decides the only open hold, or the
/// run stays held and the reply says so (C20, C23).
fn writes(world: &mut World, name: &str, text: &str) -> Result<(), String> {
    let view = world.view()?;
    let person = user(name)?;
    let hold = match view.row.run.state.holds.as_slice() {
        [only] => only.key,
        several => {
            let open = several.iter().map(|hold| view.row.run.hold_id(hold.key)).collect();
            world.outcome = Some(Err(Refusal::Held { open }));
            return Ok(());
        }
    };
    let ask =
        opened(&view).into_iter().find(|opened| opened.hold == hold).ok_or("the hold was never opened")?;
    let kind: HoldKind = ask.kind;
    let resolution = match read_text(kind, &ask.ask, text) {
        TextMeaning::Decide(wanted) => wanted,
        TextMeaning::CheckAnswer(json) => Choice::Answer { value: Body::Json(json) },
        TextMeaning::NotADecision => {
            let say = Say { message: Message::text(text), on_hold: OnHold::Refuse };
            return world.submit(Actor::Client(person), Command::Say(say)).map(drop);
        }
    };
    let decide = Decide { hold, digest: None, revision: None };
    let resolve = Resolve { decide, resolution, idempotency_key: None, message: None };
    world.submit(Actor::Person(person), Command::Resolve(resolve)).map(drop)
}

/// Two people act on the same state of the run: the second one's append is decided before the first one's is
/// written, must lose, and is decided again.
/// The run as a decision would leave it that is never stored.
pub(super) fn ahead(world: &mut World, name: &str, toks: &[Tok<'_>]) -> Result<Run, String> {
    let row = world.view()?.row;
    let command = command(world, toks)?;
    let order = world.order(world.current, Actor::Person(user(name)?), command)?;
    let decided = decided(&row, &order);
    decided.outcome.map_err(|refusal| refusal.to_string())?;
    Ok(decided.run)
}

fn race(world: &mut World, first: (&str, &[Tok<'_>]), second: &[Tok<'_>]) -> Result<(), String> {
    let [Word(name), rest @ ..] = second else { return Err("say who, after `while`".into()) };
    let actor = Actor::Person(user(name)?);
    let row = world.view()?.row;
    let command = command(world, rest)?;
    let order = world.order(world.current, actor.clone(), command.clone())?;
    let late =
        sealed(Some(&row), &decided(&row, &order), &order.given).ok_or("the second decides nothing")?;
    take(world, first.0, first.1)?;
    if let Some(Err(refusal)) = world.outcome.take() {
        return Err(format!("the first was refused: {refusal}"));
    }
    match block_on(world.store.append(vec![late])) {
        Err(StoreError::Conflict { .. }) => world.submit(actor, command).map(drop),
        Ok(()) => Err("both appends were written: the second did not see the first".into()),
        Err(other) => Err(other.to_string()),
    }
}
