//! Messages: they begin a task, say something to one, or decide what it waits for.
//!
//! What a message means is `decisions.rs`; whether it may be is the engine's. A message that was meant to decide and
//! decides nothing leaves the task as it is, and the answer says so in one more text part.

use holdpoint_core::command::{OnHold, Say};
use holdpoint_core::event::Outcome;
use holdpoint_core::id::{HoldId, RunId};
use holdpoint_core::name::SessionId;
use holdpoint_core::refusal::Refusal;
use holdpoint_core::run::Run;
use holdpoint_core::time::Millis;
use holdpoint_core::words::implied_hold;

use super::decisions::{self, Decided, Open, Reading, Waiting};
use super::error::{A2aError, Kind};
use super::operations::{Asked, HISTORY, history_length, task_id};
use super::stream::{Closes, Frames, From};
use super::{conformance, map, modes, push, wire};
use crate::engine::{Decision, EngineError, NewRun, Once, RunView};

/// What a message came to.
struct Sent {
    run: RunId,
    /// Whether the message began the task.
    is_new: bool,
    /// Why nothing was decided, when that was meant.
    notice: Option<String>,
}

/// `SendMessage`: answers when somebody is needed or the task is over, or at once where that is wanted.
pub(super) async fn send(asked: &Asked, request: &wire::SendMessageRequest) -> Result<wire::Task, A2aError> {
    let configuration = request.configuration.as_ref();
    let history = history_length(configuration.and_then(|wanted| wanted.history_length))?;
    let sent = deliver(asked, request).await?;
    let at_most = match configuration.and_then(|wanted| wanted.return_immediately).unwrap_or(false) {
        true => asked.lingers,
        false => asked.app.engine.settings().max_wait,
    };
    if at_most > Millis(0) && sent.notice.is_none() {
        let about = |error| A2aError::of(Some(sent.run), &error);
        asked.app.engine.needs_somebody(sent.run, at_most).await.map_err(about)?;
    }
    let mut task = asked.task(sent.run, history.unwrap_or(HISTORY)).await?;
    if let (Some(notice), Some(message)) = (sent.notice, &mut task.status.message) {
        message.parts.push(wire::Part::text(notice));
    }
    asked.accepts.tailor(&mut task);
    Ok(task)
}

/// `SendStreamingMessage`: the task first, then what changes, until somebody is needed or it is over.
pub(super) async fn stream(asked: &Asked, request: &wire::SendMessageRequest) -> Result<Frames, A2aError> {
    history_length(request.configuration.as_ref().and_then(|wanted| wanted.history_length))?;
    let sent = deliver(asked, request).await?;
    let from = match sent.is_new {
        true => From::Beginning,
        false => From::Now,
    };
    let mut frames = Frames::open(asked, sent.run, from, Closes::AtAQuestion).await?;
    if let Some(notice) = sent.notice {
        frames.add_notice(&notice);
    }
    Ok(frames)
}

async fn deliver(asked: &Asked, request: &wire::SendMessageRequest) -> Result<Sent, A2aError> {
    let said = &request.message;
    let message = map::message(said)?;
    let configuration = request.configuration.as_ref();
    let wanted = configuration.and_then(|wanted| wanted.task_push_notification_config.as_ref());
    let callback = wanted.map(|config| push::callback(asked, config)).transpose()?;
    let about = |error: EngineError| A2aError::of(None, &error);
    let engine = &asked.app.engine;
    let Some(task) = said.task_id.as_deref().filter(|id| !id.is_empty()) else {
        let session = match said.context_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => {
                let wrong = |bad: holdpoint_core::name::BadName| {
                    A2aError::invalid("message.contextId", bad.to_string())
                };
                Some(SessionId::new(id).map_err(wrong)?)
            }
            None => None,
        };
        let once = asked.once(&format!("begin {}", asked.agent));
        let new = NewRun { agent: asked.agent.clone(), session, message, once };
        let run = match callback {
            Some(callback) => {
                let started = engine.start_with_callback(&asked.who, new, callback).await;
                started.map_err(|error| push::refused(None, &error))?
            }
            None => engine.start(&asked.who, new).await.map_err(about)?,
        };
        return Ok(Sent { run, is_new: true, notice: None });
    };
    let run = task_id(task)?;
    let view = asked.find(run).await?;
    fits(said, &view.run)?;
    if let Some(callback) = callback {
        let kept = engine.call_back(&asked.who, run, callback).await;
        kept.map_err(|error| push::refused(Some(run), &error))?;
    }
    let sent = |notice| Sent { run, is_new: false, notice };
    let waiting = waiting(asked, &view).await?;
    let (reading, on_hold) = match conformance::supersedes(asked, said) {
        true => (Reading::Says, OnHold::Supersede),
        false => (decisions::read(said, &waiting)?, OnHold::Refuse),
    };
    match reading {
        Reading::Decides(decided) => {
            let notice = decide(asked, &waiting, decided).await?;
            Ok(sent(notice))
        }
        Reading::Nothing(why) => Ok(sent(Some(nothing(&why, &waiting)))),
        Reading::Says => {
            let say = Say { message, on_hold };
            match engine.say(&asked.who, run, say, asked.once(&format!("say {run}"))).await {
                Ok(_) => Ok(sent(None)),
                Err(EngineError::Refused(Refusal::Held { .. })) => {
                    Ok(sent(Some(nothing("this is no decision on what the task waits for", &waiting))))
                }
                Err(error) => Err(A2aError::of(Some(run), &error)),
            }
        }
    }
}

/// What every message must be, whatever it says.
pub(super) fn check(asked: &Asked, request: &wire::SendMessageRequest) -> Result<(), A2aError> {
    let (said, settings) = (&request.message, asked.app.engine.settings());
    if said.message_id.is_empty() {
        return Err(A2aError::invalid("message.messageId", "is empty; every message needs an id of its own"));
    }
    if said.role != wire::Role::User {
        return Err(A2aError::invalid(
            "message.role",
            "must be ROLE_USER: only the agent speaks as the agent",
        ));
    }
    if said.parts.is_empty() {
        return Err(A2aError::invalid("message.parts", "is empty; say what to do"));
    }
    modes::check(&settings, asked.agent.as_str(), said)?;
    asked.accepts.check(&settings, asked.agent.as_str())?;
    conformance::refuse_context(asked, said)
}

/// A message to a task must belong to its conversation, and the task must go on (C34, S0-36).
fn fits(said: &wire::Message, run: &Run) -> Result<(), A2aError> {
    let context = said.context_id.as_deref().filter(|id| !id.is_empty());
    if context.is_some_and(|id| id != run.facts.session.as_str()) {
        let wrong = A2aError::invalid("message.contextId", "context ID mismatch");
        return Err(A2aError { message: "context ID mismatch".into(), ..wrong });
    }
    match run.outcome() {
        Some(outcome) => Err(over(run.facts.id, outcome)),
        None => Ok(()),
    }
}

fn over(run: RunId, outcome: Outcome) -> A2aError {
    let refusal = Refusal::Ended(outcome);
    A2aError::new(Kind::UnsupportedOperation, format!("task {run}: {refusal}"))
}

/// What a task waits for, and which of it a decision without an id would mean.
async fn waiting(asked: &Asked, view: &RunView) -> Result<Waiting, A2aError> {
    let run = &view.run;
    let open = asked.asks(run, &view.holds_below).await?;
    let open = open.into_iter().map(|view| Open { id: view.row.id, kind: view.row.kind, ask: view.ask });
    let of = |run: &Run| {
        let key = implied_hold(run, Some(&asked.who.user)).ok();
        key.map(|key| HoldId { run: run.facts.id, key })
    };
    let implied = match (run.state.holds.as_slice(), view.holds_below.as_slice()) {
        // A run that waits for a sub-run, which waits for one thing.
        ([one], [(below, _)]) if one.child.is_some() => {
            let child = asked.app.engine.see(&asked.who, below.run).await;
            child.ok().and_then(|child| of(&child))
        }
        (_, _) => of(run),
    };
    Ok(Waiting { task: run.facts.id, open: open.collect(), implied })
}

async fn decide(asked: &Asked, waiting: &Waiting, decided: Vec<Decided>) -> Result<Option<String>, A2aError> {
    for Decided { hold, wanted, digest, field } in decided {
        let once = asked.once(&format!("decide {hold}"));
        let decision = Decision { hold, wanted, digest, revision: None, once };
        match asked.app.engine.decide(&asked.who, decision).await {
            Ok(_) => {}
            Err(EngineError::BreaksSchema(broken)) => {
                let place = format!("{field}{}", broken.pointer);
                let why = format!("does not fit the schema: {}", broken.why);
                return Err(A2aError::invalid(place, why));
            }
            Err(EngineError::NotFound) => {
                return Ok(Some(nothing(&format!("{hold} is no hold of this task"), waiting)));
            }
            Err(error) => return Err(A2aError::of(Some(hold.run), &error)),
        }
    }
    Ok(None)
}

/// What a client is told whose message decided nothing.
fn nothing(why: &str, waiting: &Waiting) -> String {
    let ids: Vec<String> = waiting.open.iter().map(|open| open.id.to_string()).collect();
    format!("Nothing was decided: {why}. Open holds, to be named as hold_id: {}", ids.join(", "))
}

impl Asked {
    /// Makes a repeat of this part of the request safe, where the client sent a key.
    fn once(&self, what: &str) -> Option<Once> {
        let key = self.key.clone()?;
        Some(Once { route: format!("a2a {what}"), key, request: self.digest })
    }
}
