//! Calls that are open, for servers of older protocols that ask back meanwhile.
//!
//! A call that may be made twice is ended, and made again with the answer. Any other stays open for a bounded time: an
//! answer that comes within it goes to the server, and whoever starts the call again hears how it goes on. After that the
//! server gets the reply that nobody answers. When this process ends in between, nobody knows what became of the call.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CancelledNotificationParam, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    RequestId, ServerResult,
};
use rmcp::service::{Peer, RequestContext, RequestHandle, RoleClient};
use rmcp::{ErrorData, ServiceError};
use serde_json::Value;
use standfast_core::id::CallId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::asks::{AnsweredQuestion, Question};

/// How long what became of a call is remembered that nobody asks about any more.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// A call that is open.
pub(super) struct OpenCall {
    answered: Vec<AnsweredQuestion>,
    /// How long it stays open for an answer; none ends it.
    waits: Option<Duration>,
    asked: Mutex<Option<ServerQuestion>>,
    news: Notify,
}

/// What a server asked while a call was open.
pub(super) struct ServerQuestion {
    pub(super) question: Question,
    /// Where the answer goes, while the call is open.
    answer: Option<oneshot::Sender<Value>>,
}

impl OpenCall {
    pub(super) fn new(answered: Vec<AnsweredQuestion>, waits: Option<Duration>) -> OpenCall {
        OpenCall { answered, waits, asked: Mutex::default(), news: Notify::new() }
    }

    /// What was answered before.
    pub(super) fn answered(&self) -> Vec<AnsweredQuestion> {
        self.answered.clone()
    }

    fn question(&self) -> Option<ServerQuestion> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How a call goes on.
pub(super) enum CallProgress {
    /// The server asks something that only a person knows.
    Asks(ServerQuestion),
    /// It has ended.
    Over(Box<Result<ServerResult, ServiceError>>),
    /// It took too long, and was ended.
    TooLong,
}

/// A call under way. Letting go of it tells the server that the call was canceled.
pub(super) struct Talk {
    pub(super) call: Arc<OpenCall>,
    heard: UnboundedReceiver<CallProgress>,
    answer: Option<oneshot::Sender<Value>>,
    since: Instant,
}

impl Talk {
    /// Follows a request that was sent. `keeps` is what must stay for as long as it is open.
    pub(super) fn follow<K: Send + 'static>(
        call: Arc<OpenCall>,
        handle: RequestHandle<RoleClient>,
        patience: Duration,
        keeps: K,
    ) -> Talk {
        let (tell, heard) = unbounded_channel();
        let followed = call.clone();
        tokio::spawn(async move {
            follow(&followed, handle, patience, &tell).await;
            drop(keeps);
        });
        Talk { call, heard, answer: None, since: Instant::now() }
    }

    /// How it goes on; none when there is nothing more to hear.
    pub(super) async fn next(&mut self) -> Option<CallProgress> {
        self.heard.recv().await
    }

    /// Tells the server what a person answered. False when it no longer waits for that.
    pub(super) fn answer(&mut self, value: Value) -> bool {
        self.answer.take().is_some_and(|waits| waits.send(value).is_ok())
    }
}

async fn follow(
    call: &OpenCall,
    handle: RequestHandle<RoleClient>,
    patience: Duration,
    tell: &UnboundedSender<CallProgress>,
) {
    let mut waiting = AnswerWaiter { peer: handle.peer.clone(), request: Some(handle.id.clone()) };
    let mut response = pin!(handle.await_response());
    let mut time = pin!(sleep(patience));
    loop {
        tokio::select! {
            answer = &mut response => {
                waiting.request = None;
                // What it asked just before, and answered without.
                let heard = match call.question().filter(|asked| asked.answer.is_none()) {
                    Some(asked) => CallProgress::Asks(asked),
                    None => CallProgress::Over(Box::new(answer)),
                };
                let _ = tell.send(heard);
                return;
            }
            () = call.news.notified() => {
                let Some(asked) = call.question() else { continue };
                let is_over = asked.answer.is_none();
                let _ = tell.send(CallProgress::Asks(asked));
                if is_over {
                    return;
                }
                // What a person takes is not the server's time.
                time.as_mut().reset(Instant::now() + patience + call.waits.unwrap_or_default());
            }
            () = &mut time => {
                let _ = tell.send(CallProgress::TooLong);
                return;
            }
            () = tell.closed() => return,
        }
    }
}

/// Somebody waits for an answer.
struct AnswerWaiter {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for AnswerWaiter {
    fn drop(&mut self) {
        let (Some(request), Ok(runtime)) = (self.request.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let params = CancelledNotificationParam::new(Some(request), Some("not wanted any more".into()));
            let _ = peer.notify_cancelled(params).await;
        });
    }
}

/// Calls that are open while people think.
#[derive(Default)]
pub(super) struct ParkedCalls(Mutex<HashMap<CallId, Talk>>);

impl ParkedCalls {
    /// Keeps a call until its answer is there.
    pub(super) fn put(&self, id: CallId, mut talk: Talk, asked: &mut ServerQuestion) {
        talk.answer = asked.answer.take();
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|_, talk| talk.since.elapsed() < REMEMBERED);
        parked.insert(id, talk);
    }

    /// The call again, if it is still here.
    pub(super) fn take(&self, id: CallId) -> Option<Talk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

impl ServerQuestion {
    /// Whether the call stays open.
    pub(super) fn is_awaited(&self) -> bool {
        self.answer.is_some()
    }
}

/// The client's side of a connection: who we are, and which calls are open.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) config: ClientConfig,
    pub(super) open: Arc<Mutex<Vec<Arc<OpenCall>>>>,
}

/// An open call, until this is dropped.
pub(super) struct OpenCallGuard {
    open: Arc<Mutex<Vec<Arc<OpenCall>>>>,
    call: Arc<OpenCall>,
}

impl Side {
    pub(super) fn list(&self, call: Arc<OpenCall>) -> OpenCallGuard {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        OpenCallGuard { open: self.open.clone(), call }
    }

    /// The one call that a question can belong to: an older server does not say which it means.
    fn only_call(&self) -> Option<Arc<OpenCall>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.as_slice() {
            [one] => Some(one.clone()),
            [] | [_, _, ..] => None,
        }
    }
}

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}

impl ClientHandler for Side {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let cancel = Ok(ElicitResult::new(ElicitationAction::Cancel));
        let (Some(call), Ok(question)) = (self.only_call(), Question::of(&request)) else { return cancel };
        let is_form = question.schema.is_some();
        let accept = |value: Value| {
            let accepted = ElicitResult::new(ElicitationAction::Accept);
            Ok(if is_form { accepted.with_content(value) } else { accepted })
        };
        if let Some(known) = call.answered.iter().find(|known| known.question == question.text) {
            return accept(known.value.clone());
        }
        let (answer, answered) = oneshot::channel();
        let asked = ServerQuestion { question, answer: call.waits.map(|_| answer) };
        *call.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        call.news.notify_one();
        match timeout(call.waits.unwrap_or_default(), answered).await {
            Ok(Ok(value)) => accept(value),
            Ok(Err(_)) | Err(_) => cancel,
        }
    }
}
