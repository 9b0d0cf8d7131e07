//! What the node that works on a run does with its calls.
//!
//! `worker starts call N` has its effect only when the core says that the start is durable; every effect is written
//! down beside the store, so that a second one is noticed whatever the log says.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Begin, Command, FailKind, FailRun, FinishCall, Suspend, SuspendFor};
use standfast_core::decide::Answer;
use standfast_core::event::{Envelope, Event, OrphanCause};
use standfast_core::hold::Ask;
use standfast_core::id::{CallNo, Secret};
use standfast_core::message::ToolResult;
use standfast_core::name::WorkerName;
use standfast_core::time::Millis;
use standfast_core::transcript::stored_call;

use super::super::details::{Details, Target, not_understood, number};
use super::super::script::Tok;
use super::super::script::Tok::{Text, Word};
use super::super::world::{Effect, World};

pub(super) fn take(world: &mut World, toks: &[Tok<'_>]) -> Result<(), String> {
    let node = Actor::Node(world.node);
    match toks {
        [Word("takes"), Word("the"), Word("run")] => {
            let claim = standfast_core::command::ClaimRun::Node;
            world.submit(node, Command::Claim(claim)).map(drop)
        }
        [
            Word("hands"),
            Word("call"),
            Word(no),
            Word("to"),
            Word("sub-run"),
            Word(name),
            Word("with"),
            Text(text),
        ] => world.hand_to_sub_run(CallNo(number(no)?), name, text),
        [Word("gives"), Word("the"), Word("run"), Word("up"), rest @ ..] => {
            let error = Details::read(rest)?.reason.ok_or("say why: `because \"text\"`")?;
            let fail = FailRun { worker: None, error, detail: None, kind: FailKind::Final, heard: None };
            world.submit(node, Command::Fail(fail)).map(drop)
        }
        [Word("starts"), rest @ ..] => starts(world, &Details::read(rest)?),
        [Word("finishes"), rest @ ..] => {
            let details = Details::read(rest)?;
            finishes(world, &details, ToolResult::Ok(details.value()?))
        }
        [Word("reports"), Word("failure"), Word("of"), rest @ ..] => {
            let details = Details::read(rest)?;
            finishes(world, &details, ToolResult::Failed(details.value()?))
        }
        [Word("returns"), rest @ ..] => {
            let (call, attempt) = which(world, &Details::read(rest)?)?;
            world.submit(node, Command::Return { call, attempt })?;
            if let Some(Ok(_)) = world.outcome {
                let run = world.current()?.id;
                world.effects.retain(|e| (e.run, e.call, e.attempt) != (run, call, attempt));
            }
            Ok(())
        }
        [Word("finds"), Word("call"), Word(no), Word("orphaned"), rest @ ..] => {
            let details = Details { target: Some(Target::Call(number(no)?)), ..Details::read(rest)? };
            let (call, attempt) = which(world, &details)?;
            world
                .submit(
                    node,
                    Command::Orphan {
                        call,
                        attempt,
                        node: world.node,
                        why: OrphanCause::ServerLost,
                        reconciled: None,
                    },
                )
                .map(drop)
        }
        [Word("reports"), Word("progress"), Word("of"), rest @ ..] => {
            let details = Details::read(rest)?;
            let (call, processing) = (CallNo(details.call()?), details.processing);
            world.submit(node, Command::Progress { call, note: details.value()?, processing }).map(drop)
        }
        [Word("suspends"), rest @ ..] => {
            let details = Details::read(rest)?;
            let suspend = suspension(world, &details, None)?;
            world.submit(node, Command::Suspend(suspend)).map(drop)
        }
        other => Err(not_understood(other)),
    }
}

/// The call and the start of it that a sentence means; the last one unless it says otherwise.
fn which(world: &World, details: &Details) -> Result<(CallNo, u32), String> {
    let call = CallNo(details.call()?);
    let current = world.view()?.row.run.call(call).map_or(0, |call| call.attempt);
    Ok((call, details.attempt.unwrap_or(current)))
}

fn starts(world: &mut World, details: &Details) -> Result<(), String> {
    let call = CallNo(details.call()?);
    let mut stored = stored_call(&world.view()?.events, call)
        .ok_or_else(|| format!("nothing is stored for call {call}"))?;
    if let Some(read) = &details.arguments {
        stored.arguments.clone_from(read);
    }
    let arguments = stored.arguments.clone();
    let lease = if details.too_late { Millis::seconds(0) } else { Millis::seconds(10) };
    let begin = Begin { call, node: world.node, start_by: world.now.plus(lease), stored, pending: None };
    let events = world.submit(Actor::Node(world.node), Command::Begin(begin))?;
    if world.outcome == Some(Ok(Answer::Done)) {
        let attempt = events.iter().find_map(|envelope| started(envelope, call));
        let attempt = attempt.ok_or("the start was taken, but there is no call.started")?;
        world.effects.push(Effect { run: world.current()?.id, call, attempt, arguments });
    }
    Ok(())
}

fn started(envelope: &Envelope, call: CallNo) -> Option<u32> {
    let Event::CallStarted(started) = &envelope.event else { return None };
    (started.call == call).then_some(started.attempt)
}

fn finishes(world: &mut World, details: &Details, result: ToolResult) -> Result<(), String> {
    let (call, attempt) = which(world, details)?;
    let finish = FinishCall { call, attempt, result, worker: None };
    world.submit(Actor::Node(world.node), Command::FinishCall(finish)).map(drop)
}

/// What a suspended call, or run, asks.
pub(super) fn suspension(
    world: &World,
    details: &Details,
    worker: Option<WorkerName>,
) -> Result<Suspend, String> {
    let (call, attempt) = which(world, details)?;
    let kind = details.suspend_for.ok_or("say for what: input, a login, an outside system")?;
    let ask = Ask {
        reason: details.reason.clone(),
        question: details.question.as_ref().map(Body::text),
        options: details.options.clone(),
        answer_schema: details.schema.clone(),
        interim: details.interim.as_ref().map(Body::text),
        external_ref: details.external_ref.clone(),
        ..Ask::default()
    };
    // An outside system gets the id before anything is stored (S2-9).
    let secret = (kind == SuspendFor::External).then(|| Secret([call.0 as u8 + 100; 16]));
    Ok(Suspend { call, attempt, kind, ask, timeout: details.span, secret, worker })
}
