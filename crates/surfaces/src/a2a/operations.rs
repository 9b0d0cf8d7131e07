//! What can be asked of an agent, whichever binding it comes by: one typed request, one typed answer or error.
//!
//! `send.rs` has messages, `list.rs` lists, `stream.rs` what goes on; the rest is here. Rules live in the core, authority
//! in `auth`.

use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::event::Outcome;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::AgentName;
use standfast_core::refusal::Refusal;
use standfast_core::run::{Run, status};
use standfast_core::time::Millis;
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::{
    EngineError, HoldView, LookedUpRun, ShownHold, ShownHolds, Snapshot, StoreError, Views,
};

use super::answer_slip::AnswerSlip;
use super::error::{A2aError, Kind};
use super::map::{self, TaskIds};
use super::modes::AcceptedModes;
use super::stream::{Frames, StreamEnd, StreamStart};
use super::{card, intercept, list, negotiate, push, send, wire};
use crate::http::{App, Pass};

/// Messages of a task that are shown, unless the client wants another number.
pub(super) const HISTORY: usize = 100;

/// Who asks what of which agent, and how they reached it.
#[derive(Clone)]
pub(super) struct OperationContext {
    pub(super) app: App,
    pub(super) who: Principal,
    /// What they were let in with.
    pub(super) pass: Pass,
    pub(super) agent: AgentName,
    /// The version of the protocol that the client speaks: what it registers is sent in it.
    pub(super) version: &'static str,
    /// The address that the server was called by.
    pub(super) site: String,
    /// Makes a repeat safe, if the client chose to send one.
    pub(super) key: Option<String>,
    /// Digest of the request's members, to know a repeat by.
    pub(super) digest: Digest,
    /// What the client got last, when it comes back to a stream.
    pub(super) last_event: Option<String>,
    /// The media types that the client accepts.
    pub(super) accepts: AcceptedModes,
    /// How long somebody who does not want to wait waits all the same: not at all in 1.0 (C33).
    pub(super) lingers: Millis,
    /// What the answer shows.
    pub(super) shows: AnswerSlip,
    /// Whether the message has no id of its own: it is known by the bytes of its request.
    pub(super) is_unnamed: bool,
    /// How much of what a task asks is shown at once.
    pub(super) asks: QuestionPaging,
}

/// How much of what a task asks is shown at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionPaging {
    /// All of it.
    Everything,
    /// One hold after the other: the loops of the older dialect know no ids (C26).
    OneByOne,
}

/// One operation with its members.
#[derive(Debug)]
pub(super) enum Operation {
    Send(Box<wire::SendMessageRequest>),
    Stream(Box<wire::SendMessageRequest>),
    Get(wire::GetTaskRequest),
    List(wire::ListTasksRequest),
    Cancel(wire::TaskRequest),
    Subscribe(wire::TaskRequest),
    ExtendedCard(wire::RoutedRequest),
    CreatePush(Box<wire::TaskPushNotificationConfig>),
    GetPush(wire::PushRequest),
    ListPush(wire::ListPushRequest),
    DeletePush(wire::PushRequest),
}

/// The result of an operation.
pub(super) enum OperationResult {
    Sent(Box<wire::SendMessageResponse>),
    Task(Box<wire::Task>),
    Tasks(wire::ListTasksResponse),
    Card(Box<wire::AgentCard>),
    PushConfig(Box<wire::TaskPushNotificationConfig>),
    PushConfigs(wire::PushConfigs),
    /// It was done, and there is nothing to say about it.
    Nothing,
    Frames(Box<Frames>),
    /// A stream of one event.
    Once(Box<wire::StreamResponse>),
}

impl Operation {
    /// The opaque routing value that clients repeat from a card.
    pub(super) fn tenant(&self) -> Option<&str> {
        let tenant = match self {
            Operation::Send(request) | Operation::Stream(request) => &request.tenant,
            Operation::Get(request) => &request.tenant,
            Operation::List(request) => &request.tenant,
            Operation::Cancel(request) | Operation::Subscribe(request) => &request.tenant,
            Operation::ExtendedCard(routed) => &routed.tenant,
            Operation::CreatePush(config) => &config.tenant,
            Operation::GetPush(request) | Operation::DeletePush(request) => &request.tenant,
            Operation::ListPush(request) => &request.tenant,
        };
        tenant.as_deref().filter(|tenant| !tenant.is_empty())
    }
}

/// Does what is asked.
pub(super) async fn perform(
    asked: OperationContext,
    operation: Operation,
) -> Result<OperationResult, A2aError> {
    match operation {
        Operation::Send(request) => {
            send::check(&asked, &request)?;
            if let Some(message) = intercept::reply(&asked, &request.message) {
                return Ok(OperationResult::Sent(Box::new(wire::SendMessageResponse::Message(Box::new(
                    message,
                )))));
            }
            let task = send::send(&asked, &request).await?;
            Ok(OperationResult::Sent(Box::new(wire::SendMessageResponse::Task(Box::new(task)))))
        }
        Operation::Stream(request) => {
            asked.may_stream()?;
            send::check(&asked, &request)?;
            if let Some(message) = intercept::reply(&asked, &request.message) {
                return Ok(OperationResult::Once(Box::new(wire::StreamResponse::Message(Box::new(message)))));
            }
            let frames = send::stream(&asked, &request).await?;
            Ok(OperationResult::Frames(Box::new(frames)))
        }
        Operation::Get(request) => {
            asked.may_read()?;
            let shown = history_length(request.history_length)?.unwrap_or(HISTORY);
            let task = asked.task(task_id(&request.id)?, shown).await?;
            Ok(OperationResult::Task(Box::new(task)))
        }
        Operation::List(request) => {
            asked.may_read()?;
            list::list(&asked, &request).await.map(OperationResult::Tasks)
        }
        Operation::Cancel(request) => {
            let run = task_id(&request.id)?;
            let found = asked.find(run).await?;
            let reason = request.metadata.as_ref().and_then(|metadata| metadata.get("reason"));
            let reason = reason.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
            match asked.app.engine.submit().cancel_on(&asked.who, &found, reason, None).await {
                Ok(_) => {}
                // Cancelling what is cancelled changes nothing, and is not an error; in 0.3 it is one.
                Err(EngineError::Refused(Refusal::Ended(Outcome::Canceled)))
                    if asked.version != negotiate::V03 => {}
                Err(EngineError::Refused(Refusal::Ended(_))) => {
                    let message = format!("task {run} has ended and cannot be cancelled");
                    return Err(A2aError::new(Kind::TaskNotCancelable, message));
                }
                Err(error) => return Err(A2aError::of(Some(run), &error)),
            }
            let task = asked.task(run, HISTORY).await?;
            if asked.asks == QuestionPaging::OneByOne {
                asked.shows.show_end(run);
            }
            Ok(OperationResult::Task(Box::new(task)))
        }
        Operation::Subscribe(request) => {
            asked.may_read()?;
            asked.may_stream()?;
            let run = task_id(&request.id)?;
            asked.find(run).await?;
            let from = match &asked.last_event {
                Some(id) => StreamStart::parse(id)?,
                None => StreamStart::Now,
            };
            let frames = Frames::open(&asked, run, from, StreamEnd::AtTheEnd).await?;
            Ok(OperationResult::Frames(Box::new(frames)))
        }
        Operation::ExtendedCard(_) => {
            asked.may_read()?;
            card::extended(&asked).map(|card| OperationResult::Card(Box::new(card)))
        }
        Operation::CreatePush(config) => {
            push::create(&asked, &config).await.map(|config| OperationResult::PushConfig(Box::new(config)))
        }
        Operation::GetPush(request) => {
            push::get(&asked, &request).await.map(|config| OperationResult::PushConfig(Box::new(config)))
        }
        Operation::ListPush(request) => push::list(&asked, &request).await.map(OperationResult::PushConfigs),
        Operation::DeletePush(request) => {
            push::delete(&asked, &request).await.map(|()| OperationResult::Nothing)
        }
    }
}

/// What is not an id at all is answered like the id of nothing.
pub(super) fn task_id(text: &str) -> Result<RunId, A2aError> {
    match text {
        "" => Err(A2aError::invalid("id", "is empty; name the task")),
        text => text.parse().map_err(|_| A2aError::task_not_found()),
    }
}

/// How many messages the client wants; none when it does not say.
pub(super) fn history_length(wanted: Option<i32>) -> Result<Option<usize>, A2aError> {
    let wrong = |_| A2aError::invalid("historyLength", "must not be negative");
    wanted.map(usize::try_from).transpose().map_err(wrong)
}

impl OperationContext {
    /// Reads that come as POST are not refused at the door.
    pub(super) fn may_read(&self) -> Result<(), A2aError> {
        if self.who.has(Scope::RunsRead) {
            Ok(())
        } else {
            Err(A2aError::of(None, &EngineError::MissingScope(Scope::RunsRead.into())))
        }
    }

    /// A message is answered with its task, also one that decides nothing: whoever may neither look nor do anything gets none.
    pub(super) fn may_answer(&self) -> Result<(), A2aError> {
        let scopes = [Scope::RunsRead, Scope::RunsWrite, Scope::HoldsDecide];
        if scopes.into_iter().any(|scope| self.who.has(scope)) {
            Ok(())
        } else {
            Err(A2aError::of(None, &EngineError::MissingScope(Scope::RunsWrite.into())))
        }
    }

    /// Streams are for servers that have them.
    fn may_stream(&self) -> Result<(), A2aError> {
        if self.app.engine.settings().a2a.streaming {
            Ok(())
        } else {
            Err(A2aError::new(
                Kind::UnsupportedOperation,
                "this agent does not support streaming; send the message, then poll the task",
            ))
        }
    }

    /// A run of this agent, if the caller may see it.
    pub(super) async fn find(&self, run: RunId) -> Result<Arc<Snapshot>, A2aError> {
        match self.seen(run).await? {
            LookedUpRun::Run(snapshot) => Ok(snapshot),
            LookedUpRun::Quarantined(found) => {
                let message = format!("failed to load execution state: {}", found.why);
                Err(A2aError::new(Kind::Internal, message))
            }
        }
    }

    async fn seen(&self, run: RunId) -> Result<LookedUpRun, A2aError> {
        let about = |error| A2aError::of(Some(run), &error);
        self.of_agent(self.app.engine.reads().look_up(&self.who, run).await.map_err(about)?)
    }

    /// What was found of a task, if it is one of the agent that was asked.
    fn of_agent(&self, found: LookedUpRun) -> Result<LookedUpRun, A2aError> {
        let agent = found.facts().map(|facts| &facts.agent);
        if agent == Some(&self.agent) { Ok(found) } else { Err(A2aError::task_not_found()) }
    }

    /// A task as it is now.
    pub(super) async fn task(&self, run: RunId, history: usize) -> Result<wire::Task, A2aError> {
        self.shown_task(self.seen(run).await?, history).await
    }

    /// A task as soon as it needs somebody or ends, or when this long has passed.
    pub(super) async fn settled_task(
        &self,
        run: RunId,
        at_most: Millis,
        history: usize,
    ) -> Result<wire::Task, A2aError> {
        let found = self.app.engine.reads().needs_somebody(&self.who, run, None, at_most).await;
        let found = found.map_err(|error| A2aError::of(Some(run), &error))?;
        self.shown_task(self.of_agent(found)?, history).await
    }

    async fn shown_task(&self, found: LookedUpRun, history: usize) -> Result<wire::Task, A2aError> {
        // A task is made of what was said: where that cannot be read, neither can the task (C35).
        let snapshot = match found.whole().await {
            LookedUpRun::Run(snapshot) => snapshot,
            LookedUpRun::Quarantined(found) => {
                return map::unreadable(&found).ok_or_else(A2aError::task_not_found);
            }
        };
        let about = |error| A2aError::of(Some(snapshot.id()), &error);
        let reads = self.app.engine.reads();
        let (run, log) = (snapshot.run(), snapshot.log().await.map_err(|error| about(error.into()))?);
        let holds_below = reads.holds_below(run).await.map_err(about)?;
        let asked =
            asks_in(reads.views(), &self.who, Some(&snapshot), run, &holds_below).await.map_err(about)?;
        let (asked, showing) = self.one_answer(run, asked);
        let below: Vec<HoldKind> = holds_below.iter().map(|(_, kind)| *kind).collect();
        let question = map::prompt(TaskIds::of(run), &asked);
        self.shows.show(showing);
        let mut task = map::task(run, &below, log, question);
        map::shorten(&mut task, history);
        Ok(task)
    }

    /// What of it the client is asked in one answer.
    pub(super) async fn shown(
        &self,
        run: &Run,
        below: &[(HoldId, HoldKind)],
    ) -> Result<(Vec<HoldView>, ShownHolds), A2aError> {
        let asked = asks(self.app.engine.reads().views(), &self.who, run, below).await;
        let asked = asked.map_err(|error| A2aError::of(Some(run.facts.id), &error))?;
        Ok(self.one_answer(run, asked))
    }

    fn one_answer(&self, run: &Run, mut asked: Vec<HoldView>) -> (Vec<HoldView>, ShownHolds) {
        match self.asks {
            QuestionPaging::Everything => {}
            QuestionPaging::OneByOne => asked.truncate(1),
        }
        let showing = ShownHolds { run: run.facts.id, holds: asked.iter().map(ShownHold::from).collect() };
        (asked, showing)
    }
}

/// What a run and its sub-runs ask somebody, in the order of its calls.
pub(super) async fn asks(
    views: &Views,
    who: &Principal,
    run: &Run,
    below: &[(HoldId, HoldKind)],
) -> Result<Vec<HoldView>, EngineError> {
    let asks_itself = run.state.holds.iter().any(|hold| map::listed(hold.kind));
    let snapshot = if asks_itself && run.outcome().is_none() {
        match views.snapshot(who, run.facts.id).await {
            Ok(snapshot) => Some(snapshot),
            Err(EngineError::NotFound) => None,
            Err(error) => return Err(error),
        }
    } else {
        None
    };
    asks_in(views, who, snapshot.as_ref(), run, below).await
}

/// The same, by what was read of the run; none when the caller may not see it.
pub(super) async fn asks_in(
    views: &Views,
    who: &Principal,
    snapshot: Option<&Snapshot>,
    run: &Run,
    below: &[(HoldId, HoldKind)],
) -> Result<Vec<HoldView>, EngineError> {
    if let standfast_core::run::Status::Ended(_) = status(run) {
        return Ok(Vec::new());
    }
    let mut own: Vec<(HoldId, HoldKind)> =
        run.state.holds.iter().map(|hold| (HoldId { run: run.facts.id, key: hold.key }, hold.kind)).collect();
    own.sort_by_key(|(id, _)| id.key.call);
    let mut found = Vec::new();
    for (id, kind) in own.iter().chain(below) {
        if !map::listed(*kind) {
            continue;
        }
        let view = match snapshot {
            Some(snapshot) if snapshot.id() == id.run => views.hold_view(who, snapshot, *id).await,
            None if id.run == run.facts.id => continue,
            Some(_) | None => views.hold(who, *id).await,
        };
        match view {
            Ok(view) => found.push(view),
            // Decided or not theirs to see: then it asks them nothing.
            Err(EngineError::NotFound) => {}
            // A sub-run that cannot be read asks nothing either, and the task is shown without it (C35).
            Err(EngineError::Store(StoreError::Corrupt { run: below, .. })) if below != run.facts.id => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
