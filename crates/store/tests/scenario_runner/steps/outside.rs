//! What workers elsewhere do with runs that they drive: claim, propose, report, give up.
//!
//! Everything is said under the worker's name; only the one that holds the claim is listened to.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{AskedCall, ClaimRun, Command, FailKind, FailRun, FinishCall, Propose};
use standfast_core::id::CallNo;
use standfast_core::message::ToolResult;
use standfast_core::name::WorkerName;
use standfast_core::time::Millis;

use super::super::details::{Details, Target, not_understood};
use super::super::script::Tok;
use super::super::script::Tok::{Json, Word};
use super::super::world::{World, worker};
use super::nodes::suspension;

pub(super) fn take(world: &mut World, name: &str, toks: &[Tok<'_>]) -> Result<(), String> {
    let worker = worker(name)?;
    let command = match toks {
        [Word("claims"), rest @ ..] => {
            let period = Details::read(rest)?.span.unwrap_or(Millis::seconds(30 * 60));
            Command::Claim(ClaimRun::Worker { worker: worker.clone(), period })
        }
        [Word("proposes"), Word(tool), Json(arguments), rest @ ..] => {
            let context = Details::read(rest)?.reason.map(Body::text);
            let (tool, arguments) = ((*tool).to_owned(), (*arguments).to_owned());
            let call = AskedCall { id: String::new(), tool, arguments, problem: None };
            Command::Propose(Propose { worker: worker.clone(), call, context, schema: None })
        }
        [Word("starts"), Word("work")] => Command::StartWork { worker: worker.clone() },
        [Word("heartbeats")] => Command::Heartbeat { worker: worker.clone() },
        [Word("releases")] => Command::Release { worker: worker.clone() },
        [Word("reports"), Word("failure"), Word("of"), rest @ ..] => {
            let details = Details::read(rest)?;
            let result = ToolResult::Failed(details.value()?);
            let call = CallNo(details.call()?);
            Command::FinishCall(FinishCall { call, attempt: 0, result, worker: Some(worker.clone()) })
        }
        [Word("finishes"), rest @ ..] => {
            let details = Details::read(rest)?;
            match details.target {
                None | Some(Target::Run) => {
                    Command::Finish { worker: worker.clone(), result: details.value()? }
                }
                Some(Target::Call(_) | Target::Hold(_)) => {
                    let (call, result) = (CallNo(details.call()?), ToolResult::Ok(details.value()?));
                    Command::FinishCall(FinishCall { call, attempt: 0, result, worker: Some(worker.clone()) })
                }
            }
        }
        [Word("rejects"), Word("the"), Word("work"), rest @ ..] => {
            fail(&worker, FailKind::Rejected, &Details::read(rest)?)?
        }
        [Word("fails"), rest @ ..] => {
            let details = Details::read(rest)?;
            let kind = match details.retry_in {
                Some(span) => FailKind::Transient { retry_at: world.now.plus(span) },
                None => FailKind::Final,
            };
            fail(&worker, kind, &details)?
        }
        [Word("suspends"), rest @ ..] => {
            let details = Details::read(rest)?;
            let details = Details { target: details.target.or(Some(Target::Run)), ..details };
            Command::Suspend(suspension(world, &details, Some(worker.clone()))?)
        }
        other => return Err(not_understood(other)),
    };
    world.submit(Actor::Outside(worker), command).map(drop)
}

fn fail(worker: &WorkerName, kind: FailKind, details: &Details) -> Result<Command, String> {
    let error = details.reason.clone().ok_or("say why: `because \"text\"`")?;
    Ok(Command::Fail(FailRun { worker: Some(worker.clone()), error, detail: None, kind, heard: None }))
}
