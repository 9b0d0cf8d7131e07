//! Messages: they begin a task, say something to one, or decide what it waits for.
//!
//! What a message means is `decisions.rs`; whether it may be is the engine's. A message to a task is carried out once, by
//! its id; one that was meant to decide and decides nothing leaves the task as it is, and the answer says so in one more
//! text part (C26).

use std::collections::HashSet;

use standfast_core::command::{OnHold, Say};
use standfast_core::decide::Answer;
use standfast_core::digest;
use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::SessionId;
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_core::trace::TraceContext;
use standfast_engine::settings;
use standfast_engine::traces::Traces;
use standfast_engine::{
    Decision, Decisions, EngineError, HoldView, IdempotencyKey, ImpliedHold, NewRun, ShownHold, Snapshot,
};

use super::decisions::{self, ImpliedMeaning, MessageMeaning, PendingHold, PendingTask, ReadDecision};
use super::error::{A2aError, Kind};
use super::operations::{HISTORY, OperationContext, QuestionPaging, asks_in, history_length, task_id};
use super::stream::{Frames, StreamEnd, StreamStart};
use super::{intercept, map, modes, push, wire};
use crate::http::rfc3339;

/// The result of a message.
struct SendResult {
    run: RunId,
    /// Whether the message began the task.
    is_new: bool,
    did: SendEffect,
}

/// What a message did.
enum SendEffect {
    /// What it says.
    Everything,
    /// What it says, and there is something to know about it.
    WithNotice(String),
    /// Nothing more: it was carried out before.
    Repeat,
    /// Nothing, although it was meant to decide; why.
    Nothing(String),
}

impl SendEffect {
    fn of(answer: Answer) -> SendEffect {
        match answer {
            Answer::Repeated => SendEffect::Repeat,
            Answer::Voted { votes, needed } => SendEffect::WithNotice(format!(
                "Your vote counts: {votes} of {needed} have agreed, and the call waits for the others"
            )),
            Answer::Edited => SendEffect::WithNotice(
                "The arguments were changed. Votes so far are void; the call waits for a decision on the new arguments"
                    .to_owned(),
            ),
            Answer::Done | Answer::Held | Answer::Refused | Answer::Contradicted => SendEffect::Everything,
        }
    }

    /// The same of a decision on a hold whose deadline has passed.
    fn of_late(answer: Answer, expired_at: Option<Timestamp>) -> SendEffect {
        match (SendEffect::of(answer), expired_at) {
            (SendEffect::Everything, Some(at)) => SendEffect::WithNotice(format!(
                "Late: the hold had expired at {}, and the decision was taken all the same",
                rfc3339(at)
            )),
            (did, _) => did,
        }
    }

    /// What is said beside the task, which is in this state and shows these holds.
    fn notice(&self, asks: QuestionPaging, state: wire::TaskState, shown: &[HoldId]) -> Option<String> {
        match self {
            SendEffect::Nothing(why) => Some(nothing(why, asks, shown)),
            SendEffect::WithNotice(notice) => Some(notice.clone()),
            SendEffect::Repeat
                if matches!(state, wire::TaskState::InputRequired | wire::TaskState::AuthRequired) =>
            {
                Some(REPEAT.to_owned())
            }
            SendEffect::Everything | SendEffect::Repeat => None,
        }
    }
}

/// The answer to a client that sends a message again to a task that waits.
const REPEAT: &str = "Nothing was decided: this message was already processed. Answer the current request with a new \
                      message and a new messageId";

/// `SendMessage`: answers when somebody is needed or the task has ended, or at once where that is wanted.
pub(super) async fn send(
    asked: &OperationContext,
    request: &wire::SendMessageRequest,
) -> Result<wire::Task, A2aError> {
    let configuration = request.configuration.as_ref();
    let history = history_length(configuration.and_then(|wanted| wanted.history_length))?;
    let sent = deliver(asked, request).await?;
    let at_most = if configuration.and_then(|wanted| wanted.return_immediately).unwrap_or(false) {
        asked.lingers
    } else {
        asked.app.engine.settings().max_wait
    };
    let mut task = asked.settled_task(sent.run, at_most, history.unwrap_or(HISTORY)).await?;
    if let Some(notice) = sent.did.notice(asked.asks, task.status.state, &asked.shows.holds(sent.run)) {
        map::add_notice(&mut task, &notice);
    }
    // A loop that was shown the end decides nothing more; whoever else looks at the task does not see it for the loop.
    if asked.asks == QuestionPaging::OneByOne && task.status.state.is_terminal() {
        asked.shows.show_end(sent.run);
    }
    asked.accepts.tailor(&mut task);
    Ok(task)
}

/// `SendStreamingMessage`: the task first, then what changes, until somebody is needed or it ends.
pub(super) async fn stream(
    asked: &OperationContext,
    request: &wire::SendMessageRequest,
) -> Result<Frames, A2aError> {
    history_length(request.configuration.as_ref().and_then(|wanted| wanted.history_length))?;
    let sent = deliver(asked, request).await?;
    let from = if sent.is_new { StreamStart::Beginning } else { StreamStart::Now };
    let mut frames = Frames::open(asked, sent.run, from, StreamEnd::AtAQuestion).await?;
    let first = frames.first();
    if let Some(notice) = first.and_then(|(state, shown)| sent.did.notice(asked.asks, state, &shown)) {
        frames.add_notice(&notice);
    }
    Ok(frames)
}

/// The trace that a message names beside its transport; in the request first, then in the message.
fn named_trace(request: &wire::SendMessageRequest) -> Option<TraceContext> {
    let named = [request.metadata.as_ref(), request.message.metadata.as_ref()];
    named.into_iter().flatten().find_map(|metadata| {
        let text: String = serde_json::from_str(metadata.get("traceparent")?.get()).ok()?;
        text.parse().ok()
    })
}

async fn deliver(
    asked: &OperationContext,
    request: &wire::SendMessageRequest,
) -> Result<SendResult, A2aError> {
    let (traces, delivering) = (asked.app.engine.fixed().traces.as_ref(), delivered(asked, request));
    Traces::continued(traces, "message/send", named_trace(request), delivering).await
}

async fn delivered(
    asked: &OperationContext,
    request: &wire::SendMessageRequest,
) -> Result<SendResult, A2aError> {
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
                let wrong = |bad: standfast_core::name::BadName| {
                    A2aError::invalid("message.contextId", bad.to_string())
                };
                Some(SessionId::new(id).map_err(wrong)?)
            }
            None => None,
        };
        let once = asked.chosen_key(&format!("begin {}", asked.agent));
        let new = NewRun { agent: asked.agent.clone(), session, message, once };
        let run = match callback {
            Some(callback) => {
                let started = engine.submit().start_with_callback(&asked.who, new, callback).await;
                started.map_err(|error| push::refused(None, &error))?
            }
            None => engine.submit().start(&asked.who, new).await.map_err(about)?,
        };
        return Ok(SendResult { run, is_new: true, did: SendEffect::Everything });
    };
    asked.may_answer()?;
    let run = task_id(task)?;
    let found = asked.find(run).await?;
    belongs(said, found.run())?;
    let supersedes = intercept::supersedes(asked, said);
    let once = if supersedes {
        // Every such message counts, also one with an id that was sent before.
        asked.chosen_key(&format!("message {run}"))
    } else {
        Some(asked.once(said, run).await)
    };
    let sent = |did| SendResult { run, is_new: false, did };
    if let Some(outcome) = found.run().outcome() {
        // What was carried out before the task ended is not refused when it is sent again.
        return match engine.submit().was_done(&asked.who, once.as_ref()).await {
            Ok(true) => Ok(sent(SendEffect::Repeat)),
            Ok(false) if asked.is_late(said, run).await? => {
                Ok(sent(SendEffect::Nothing(Refusal::Ended(outcome).to_string())))
            }
            Ok(false) => Err(over(run, outcome)),
            Err(error) => Err(A2aError::of(Some(run), &error)),
        };
    }
    if let Some(callback) = callback {
        let kept = engine.callbacks().call_back(&asked.who, run, callback).await;
        kept.map_err(|error| push::refused(Some(run), &error))?;
    }
    let waiting = waiting(asked, &found, said).await?;
    let (reading, on_hold) = if supersedes {
        (MessageMeaning::Says, OnHold::Supersede)
    } else {
        match decisions::read(said, &waiting) {
            Ok(reading) => (reading, OnHold::Refuse),
            Err(mistake) if asked.asks == QuestionPaging::OneByOne => {
                (MessageMeaning::Nothing(mistake.message), OnHold::Refuse)
            }
            Err(mistake) => return Err(mistake),
        }
    };
    match reading {
        MessageMeaning::Decides(decided) => {
            Ok(sent(decide(asked, said, (&found, &waiting), decided, once.as_ref()).await?))
        }
        MessageMeaning::Nothing(why) => {
            // What it decided may be why it decides nothing now.
            let was_done = engine.submit().was_done(&asked.who, once.as_ref()).await;
            if was_done.map_err(|error| A2aError::of(Some(run), &error))? {
                return Ok(sent(SendEffect::Repeat));
            }
            asked.remember_meaning(run, said, None);
            Ok(sent(SendEffect::Nothing(why)))
        }
        MessageMeaning::Says => {
            let say = Say { message, on_hold };
            match engine.submit().say_on(&asked.who, &found, say, once).await {
                Ok(answer) => Ok(sent(SendEffect::of(answer))),
                Err(EngineError::Refused(Refusal::Held { .. })) => {
                    asked.remember_words(run, said);
                    Ok(sent(SendEffect::Nothing(
                        "the message is not a decision about the open hold".to_owned(),
                    )))
                }
                Err(error) => Err(A2aError::of(Some(run), &error)),
            }
        }
    }
}

/// What every message must be, whatever it says.
pub(super) fn check(asked: &OperationContext, request: &wire::SendMessageRequest) -> Result<(), A2aError> {
    let (said, settings) = (&request.message, asked.app.engine.settings());
    if said.message_id.is_empty() {
        return Err(A2aError::invalid("message.messageId", "is empty; every message needs a unique id"));
    }
    if said.role != wire::Role::User {
        return Err(A2aError::invalid("message.role", "must be ROLE_USER"));
    }
    if said.parts.is_empty() {
        return Err(A2aError::invalid("message.parts", "is empty; send at least one part"));
    }
    modes::check(&settings, asked.agent.as_str(), said)?;
    asked.accepts.check(&settings, asked.agent.as_str())?;
    intercept::refuse_context(asked, said)
}

/// A message to a task must belong to its conversation (C34, S0-36).
fn belongs(said: &wire::Message, run: &Run) -> Result<(), A2aError> {
    let context = said.context_id.as_deref().filter(|id| !id.is_empty());
    if context.is_some_and(|id| id != run.facts.session.as_str()) {
        let wrong = A2aError::invalid("message.contextId", "context ID mismatch");
        Err(A2aError { message: "context ID mismatch".into(), ..wrong })
    } else {
        Ok(())
    }
}

fn over(run: RunId, outcome: Outcome) -> A2aError {
    let refusal = Refusal::Ended(outcome);
    A2aError::new(Kind::UnsupportedOperation, format!("task {run}: {refusal}"))
}

/// What a task waits for, and which of it a message without an id means.
async fn waiting(
    asked: &OperationContext,
    found: &Snapshot,
    said: &wire::Message,
) -> Result<PendingTask, A2aError> {
    let engine = &asked.app.engine;
    let task = found.id();
    let about = |error| A2aError::of(Some(task), &error);
    let below = engine.reads().holds_below(found.run()).await.map_err(about)?;
    let views =
        asks_in(engine.reads().views(), &asked.who, Some(found), found.run(), &below).await.map_err(about)?;
    let again =
        if decisions::names_calls(said) { asked_again(asked, found, &views).await? } else { HashSet::new() };
    let depends = !again.is_empty() || decisions::names_none(said, !views.is_empty());
    let implied = match (depends, engine.settings().a2a.decisions) {
        (false, _) => ImpliedMeaning::of(ImpliedHold::NotShown),
        (true, settings::ImpliedDecisions::Strict) => ImpliedMeaning::STRICT,
        (true, settings::ImpliedDecisions::Shown) => {
            let open: Vec<ShownHold> = views.iter().map(ShownHold::from).collect();
            let implied = engine.shown().implied_hold(&asked.who, task, &asked.names(said), &open).await;
            ImpliedMeaning::of(implied.map_err(|error| A2aError::of(Some(task), &error))?)
        }
    };
    let open = views.into_iter().map(|view| {
        let id = view.row.id;
        let (kind, expired_at) = (view.row.kind, view.row.expired_at);
        PendingHold { id, kind, ask: view.ask, expired_at, is_asked_again: again.contains(&id) }
    });
    Ok(PendingTask { task, open: open.collect(), implied, asks: asked.asks })
}

/// Those holds whose call had another hold before.
async fn asked_again(
    asked: &OperationContext,
    found: &Snapshot,
    views: &[HoldView],
) -> Result<HashSet<HoldId>, A2aError> {
    let mut again = HashSet::new();
    for view in views {
        let id = view.row.id;
        let log = if id.run == found.id() {
            found.log().await.map(<[Envelope]>::to_vec).map_err(EngineError::from)
        } else {
            asked.app.engine.reads().log(&asked.who, id.run, Seq(0)).await
        };
        let log = log.map_err(|error| A2aError::of(Some(id.run), &error))?;
        let of_call = |envelope: &&Envelope| matches!(&envelope.event, Event::HoldOpened(opened) if opened.hold.call == id.key.call);
        if log.iter().filter(of_call).count() > 1 {
            again.insert(id);
        }
    }
    Ok(again)
}

/// Carries out what a message decides. It is carried out as a whole with its last decision; those before it are known by
/// their own names until then.
async fn decide(
    asked: &OperationContext,
    said: &wire::Message,
    (found, waiting): (&Snapshot, &PendingTask),
    decided: Vec<ReadDecision>,
    once: Option<&IdempotencyKey>,
) -> Result<SendEffect, A2aError> {
    let (count, mut did) = (decided.len(), SendEffect::Everything);
    let message = map::message(said)?;
    for (at, ReadDecision { hold, wanted, digest, shown, field }) in decided.into_iter().enumerate() {
        let is_last = at + 1 == count;
        let once = if is_last { once.cloned() } else { once.map(|once| once.part(&hold.to_string())) };
        let (repeated, revision) =
            (digest.or(shown.and_then(|shown| shown.digest)), shown.map(|shown| shown.revision));
        let mut decision = Decisions::from(Decision { hold, wanted, digest: repeated, revision, once });
        decision.message = is_last.then(|| message.clone());
        // What was read counts for the first decision; the next ones are about what that made of the run.
        let submit = asked.app.engine.submit();
        let expired_at = waiting.expired_at(hold);
        let done = if at == 0 && hold.run == found.id() {
            submit.decide_on(&asked.who, decision, found).await
        } else {
            submit.decide_all(&asked.who, decision).await
        };
        let refused = match done {
            Ok(accepted) => {
                did = SendEffect::of_late(accepted.answer, expired_at);
                continue;
            }
            Err(error) => error,
        };
        if let (Some(shown), EngineError::BreaksSchema(_) | EngineError::Refused(_)) = (shown, &refused) {
            asked.remember_meaning(waiting.task, said, Some(shown));
        }
        if let EngineError::BreaksSchema(broken) = &refused {
            let place = format!("{field}{}", broken.pointer);
            let why = format!("does not match the schema: {}", broken.why);
            let mistake = A2aError::invalid(place, why);
            return match asked.asks {
                QuestionPaging::Everything => Err(mistake),
                QuestionPaging::OneByOne => Ok(SendEffect::Nothing(mistake.message)),
            };
        }
        if refused == EngineError::NotFound {
            return Ok(SendEffect::Nothing(format!("{hold} is not a hold of this task")));
        }
        if let EngineError::Refused(refusal) = &refused
            && shown.is_some()
            && digest.is_none()
            && has_moved_on(refusal)
        {
            let why =
                format!("it names no hold, and {hold}, which you were last shown, has changed: {refusal}");
            return Ok(SendEffect::Nothing(why));
        }
        // The loops of the dialect know no errors: they are shown the task as it is now.
        if let EngineError::Refused(refusal) = &refused
            && asked.asks == QuestionPaging::OneByOne
            && !matches!(refusal, Refusal::NotAllowed(_))
        {
            return Ok(SendEffect::Nothing(
                A2aError::of(Some(hold.run), &EngineError::Refused(refusal.clone())).message,
            ));
        }
        return Err(A2aError::of(Some(hold.run), &refused));
    }
    Ok(did)
}

/// Whether a hold is not what it was when somebody was shown it.
fn has_moved_on(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AlreadyDecided(_)
            | Refusal::NoSuchHold(_)
            | Refusal::Stale { .. }
            | Refusal::Expired(_)
            | Refusal::MustRepeatDigest { .. }
    )
}

/// The answer to a client whose message decided nothing, beside a task that shows these holds.
fn nothing(why: &str, asks: QuestionPaging, shown: &[HoldId]) -> String {
    let ids: Vec<String> = shown.iter().map(ToString::to_string).collect();
    match (asks, ids.is_empty()) {
        (QuestionPaging::Everything | QuestionPaging::OneByOne, true) => {
            format!("Nothing was decided: {why}")
        }
        (QuestionPaging::Everything, false) => {
            format!("Nothing was decided: {why}. Open holds, to be named as hold_id: {}", ids.join(", "))
        }
        // There may be others behind it, which the client is asked about next.
        (QuestionPaging::OneByOne, false) => {
            format!("Nothing was decided: {why}. Please answer what is asked above")
        }
    }
}

impl OperationContext {
    /// Makes a repeat of this part of the request safe, where the client sent a key.
    fn chosen_key(&self, what: &str) -> Option<IdempotencyKey> {
        let key = self.key.clone()?;
        Some(IdempotencyKey::new(format!("a2a {what}"), key, self.digest))
    }

    /// What the sender calls its message, if it does.
    fn named<'a>(&self, said: &'a wire::Message) -> Option<&'a str> {
        (!self.is_unnamed).then_some(said.message_id.as_str())
    }

    /// What a message to a task is carried out once by: its id, or the bytes of its request until they are answered; and
    /// the key that came with it.
    async fn once(&self, said: &wire::Message, run: RunId) -> IdempotencyKey {
        let chosen = self.chosen_key(&format!("message {run}"));
        match self.named(said) {
            Some(id) => IdempotencyKey::message(run, id).and(chosen),
            None => {
                // What was answered may be said again, as soon as every node knows.
                self.app.engine.shown().notes_written(&self.who, run).await;
                let unanswered = IdempotencyKey::message(run, &format!("bytes {}", self.digest));
                self.shows.answer(run, unanswered.clone());
                unanswered.and(chosen)
            }
        }
    }

    /// Whether a message to a task that has ended decides what its sender was asked before, and nobody has told them that it
    /// has ended: the loops of the dialect end by being shown it.
    async fn is_late(&self, said: &wire::Message, run: RunId) -> Result<bool, A2aError> {
        if self.asks == QuestionPaging::Everything || !decisions::is_meant_to_decide(said) {
            return Ok(false);
        }
        let implied = self.app.engine.shown().implied_hold(&self.who, run, &[], &[]).await;
        match implied.map_err(|error| A2aError::of(Some(run), &error))? {
            ImpliedHold::Outdated => Ok(true),
            ImpliedHold::Hold(_) | ImpliedHold::NotShown | ImpliedHold::Several | ImpliedHold::Answered => {
                Ok(false)
            }
        }
    }

    /// The names by which a message is known that decided nothing: its id, and its id with its words.
    fn names(&self, said: &wire::Message) -> Vec<String> {
        let named = self.named(said).map(|id| vec![id.to_owned(), in_words(id, said)]);
        named.unwrap_or_default()
    }

    /// Remembers words that were no decision: said again under the same id they are no answer to what is asked next.
    fn remember_words(&self, run: RunId, said: &wire::Message) {
        if let Some(id) = self.named(said) {
            self.app.engine.shown().note_meant(&self.who, run, &in_words(id, said), None);
        }
    }

    /// Remembers which hold a message meant that decided nothing, so that it means no other when it comes again.
    fn remember_meaning(&self, run: RunId, said: &wire::Message, meant: Option<ShownHold>) {
        if let Some(id) = self.named(said) {
            self.app.engine.shown().note_meant(&self.who, run, id, meant);
        }
    }
}

/// A message by its id and what it says.
fn in_words(id: &str, said: &wire::Message) -> String {
    let parts = serde_json::to_vec(&said.parts).unwrap_or_default();
    format!("{} {id}", digest::of_bytes(&parts))
}
