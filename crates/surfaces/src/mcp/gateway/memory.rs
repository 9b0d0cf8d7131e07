//! What a gateway remembers while requests are under way, on this node alone: who waits for what, and what tools say of themselves.
//!
//! Nothing here is needed to be right: decisions, starts, outcomes and who has them are rows of the engine. What is lost with the
//! process costs a client a repeat of its request.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use standfast_core::id::RunId;
use standfast_engine::tool::secrets::Secrets;
use tokio::sync::{Notify, oneshot, watch};

use super::super::message::{self, ListedTool, ServerMessage};
use super::given_sessions::GivenSessions;
use super::keeper::{Keeper, Permit};
use super::program::Programs;

/// Tools of all servers that are remembered, results that somebody has, calls that go on elsewhere.
const REMEMBERED: usize = 4_096;

/// What a client has said in a session that its server has no word for: it goes along with each request.
#[derive(Default, Clone)]
pub(super) struct SpokenSession {
    /// From which level on it wants to hear what the server logs.
    pub(super) level: Option<String>,
    /// The resources whose changes it wants to hear of.
    pub(super) resources: BTreeSet<String>,
    /// These have changed.
    pub(super) changed: Arc<watch::Sender<()>>,
}

/// A request of a client: its session, and its id as a text.
pub(super) type RequestKey = (String, String);

/// The key of a request.
pub(super) fn request_key(session: &str, id: &Value) -> RequestKey {
    (session.to_owned(), id.to_string())
}

/// What a gateway remembers.
#[derive(Default)]
pub(super) struct Memory {
    tools: Mutex<BoundedMap<(String, String), ListedTool>>,
    open: Mutex<HashMap<RequestKey, Arc<OpenRequest>>>,
    asked: Mutex<HashMap<String, oneshot::Sender<String>>>,
    spoken: Mutex<BoundedMap<String, SpokenSession>>,
    taken: Mutex<BoundedMap<RunId, ()>>,
    moved: Mutex<BoundedMap<RequestKey, MovedCall>>,
    /// Programs that run.
    pub(super) programs: Programs,
    /// Sessions of ours, for clients that have none.
    pub(super) given: GivenSessions,
}

/// A call whose request is open.
#[derive(Default)]
pub(super) struct OpenRequest {
    /// The client takes it back.
    pub(super) cancelled: Notify,
    is_running: Mutex<bool>,
}

/// A call that runs, whose answer comes by another stream.
#[derive(Clone)]
pub(super) struct MovedCall {
    pub(super) keeper: Keeper,
    pub(super) permit: Permit,
    /// What must not be kept of the answer.
    pub(super) secrets: Secrets,
}

/// How far a request had come that a client takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelPhase {
    /// The server does not know it yet.
    Waiting,
    /// The server works on it, or nobody here knows it.
    Elsewhere,
}

/// A map that forgets the oldest.
struct BoundedMap<K, V> {
    values: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        BoundedMap { values: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone, V> BoundedMap<K, V> {
    /// Whether it is new.
    fn put(&mut self, key: K, value: V) -> bool {
        let is_new = self.values.insert(key.clone(), value).is_none();
        if is_new {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
        is_new
    }

    fn take(&mut self, key: &K) -> Option<V> {
        let value = self.values.remove(key)?;
        self.order.retain(|known| known != key);
        Some(value)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// What a tool of a gateway says of itself, if somebody listed it.
    pub(super) fn tool(&self, gateway: &str, tool: &str) -> Option<ListedTool> {
        locked(&self.tools).values.get(&(gateway.to_owned(), tool.to_owned())).cloned()
    }

    /// A message of a server passes by: tools that it lists, and the answer to a call that was asked for on another stream.
    pub(super) fn see(&self, gateway: &str, session: &str, text: &str) {
        let Some(message) = ServerMessage::read(text).filter(|message| message.method.is_none()) else {
            return;
        };
        if let Some(result) = message.result {
            let mut tools = locked(&self.tools);
            for tool in message::listed(result) {
                tools.put((gateway.to_owned(), tool.name.clone()), tool);
            }
        }
        let moved = locked(&self.moved).take(&request_key(session, &message.id));
        if let Some(MovedCall { keeper, permit, secrets }) = moved {
            let clean = secrets.cut_message(text.to_owned());
            let outcome = ServerMessage::read(&clean).and_then(|message| super::call::outcome(&message));
            tokio::spawn(async move {
                if let Some(outcome) = outcome {
                    keeper.report(permit, outcome).await;
                    keeper.handed_out(permit).await;
                }
            });
        }
    }

    /// The answer to a call comes by another stream from now on.
    pub(super) fn moves(&self, key: RequestKey, call: MovedCall) {
        locked(&self.moved).put(key, call);
    }

    /// A call is open until what comes back is dropped.
    pub(super) fn opens(self: &Arc<Memory>, key: RequestKey) -> OpenGuard {
        let request = Arc::<OpenRequest>::default();
        locked(&self.open).insert(key.clone(), request.clone());
        OpenGuard { memory: self.clone(), key, request }
    }

    /// A client takes a request back.
    pub(super) fn cancel(&self, key: &RequestKey) -> CancelPhase {
        let Some(request) = locked(&self.open).get(key).cloned() else { return CancelPhase::Elsewhere };
        request.cancelled.notify_one();
        if *locked(&request.is_running) { CancelPhase::Elsewhere } else { CancelPhase::Waiting }
    }

    /// Where the answer to a question of ours is to be heard.
    pub(super) fn ask(&self, id: &str) -> oneshot::Receiver<String> {
        let (answer, answered) = oneshot::channel();
        locked(&self.asked).insert(id.to_owned(), answer);
        answered
    }

    /// Nobody listens for it any more.
    pub(super) fn ask_no_more(&self, id: &str) {
        locked(&self.asked).remove(id);
    }

    /// A client answers a question of ours. One that nobody asked here is for another node, which goes on without it.
    pub(super) fn answer(&self, id: &str, answer: String) {
        if let Some(asked) = locked(&self.asked).remove(id) {
            // Whoever asked may just have stopped waiting.
            let _ = asked.send(answer);
        }
    }

    /// What a client has said in its session.
    pub(super) fn spoken(&self, session: &str) -> SpokenSession {
        locked(&self.spoken).values.get(session).cloned().unwrap_or_default()
    }

    /// A client says something more in its session.
    pub(super) fn speaks(&self, session: &str, says: impl FnOnce(&mut SpokenSession)) {
        let mut all = locked(&self.spoken);
        if !all.values.contains_key(session) {
            all.put(session.to_owned(), SpokenSession::default());
        }
        if let Some(spoken) = all.values.get_mut(session) {
            says(spoken);
        }
    }

    /// A client ends its session.
    pub(super) fn forget(&self, session: &str) {
        locked(&self.spoken).take(&session.to_owned());
    }

    /// Somebody has the result of a call; the mark that says so to every node is still being written.
    pub(super) fn is_handed_out(&self, gate: RunId) -> bool {
        locked(&self.taken).values.contains_key(&gate)
    }

    /// Somebody has it.
    pub(super) fn hand_out(&self, gate: RunId) {
        locked(&self.taken).put(gate, ());
    }
}

/// A request that is open, until this is dropped.
pub(super) struct OpenGuard {
    memory: Arc<Memory>,
    key: RequestKey,
    pub(super) request: Arc<OpenRequest>,
}

impl OpenGuard {
    /// The server works on it now.
    pub(super) fn runs(&self) {
        *locked(&self.request.is_running) = true;
    }

    pub(super) fn key(&self) -> RequestKey {
        self.key.clone()
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let mut open = locked(&self.memory.open);
        // The same id may be in use again.
        if open.get(&self.key).is_some_and(|known| Arc::ptr_eq(known, &self.request)) {
            open.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut kept = BoundedMap::default();
        for no in 0..=REMEMBERED {
            assert!(kept.put(no, no));
        }
        assert!(!kept.put(7, 0), "it is known");
        assert_eq!((kept.take(&0), kept.take(&1), kept.take(&1)), (None, Some(1), None));
        assert_eq!(kept.values.len(), kept.order.len());
    }
}
