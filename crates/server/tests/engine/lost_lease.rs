//! A node that loses its lease still writes what it has in hand, with everything that belongs beside it.
//!
//! Only the lease is another node's: the cancellation of a remote task, the notices to receivers of runs above and the
//! definition of a repin are written with the events that they belong to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::Definition;
use standfast_core::event::Event;
use standfast_core::hold::Ask;
use standfast_core::id::HoldId;
use standfast_core::message::Message;
use standfast_core::name::{ToolName, UserId};
use standfast_core::run::{Status, WaitKind};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{Agent, Settings, Webhooks};
use standfast_engine::tool::login::{AuthorizationResponse, LoginDesk, NoLogin, StartedLogin};
use standfast_engine::tool::{
    AbandonFuture, Invocation, Nature, Outcome, RemoteWork, Suspension, Tool, ToolFuture, WatchFuture,
};
use standfast_engine::{Callback, Delivery, DeliveryRequest, Engine, NewRun, ReceiverKind};
use standfast_models::scripted::Line;
use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, Guard, IdempotencyLayer, Layer, LeaseChange, RunLayer,
    SecretLayer, SessionLayer, SideWrite, Store, StoreError, WorkLayer,
};

use crate::{Site, agent, start, until, who};

/// A store that refuses one append of a node because another node has the run, and keeps what is written after that.
struct Taken {
    inner: Arc<dyn Store>,
    is_meant: fn(&Batch) -> bool,
    is_over: AtomicBool,
    written: Mutex<Vec<Batch>>,
}

impl Taken {
    fn new(is_meant: fn(&Batch) -> bool) -> Arc<Taken> {
        let (is_over, written) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Taken { inner: Arc::new(MemoryStore::new()), is_meant, is_over, written })
    }

    /// The append that was refused, as it was written in the end.
    fn found(&self) -> Option<Batch> {
        let written = self.written.lock().unwrap();
        written.iter().find(|batch| self.is_over.load(Ordering::SeqCst) && (self.is_meant)(batch)).cloned()
    }

    async fn finds(&self) -> Batch {
        let found = async {
            loop {
                match self.found() {
                    Some(batch) => return batch,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.unwrap()
    }
}

impl Layer for Taken {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Taken {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let takes = |batch: &Batch| matches!(batch.guards.first(), Some(Guard::NotLeased { .. }));
        let is_refused = batches.iter().any(|batch| takes(batch) && (self.is_meant)(batch));
        if is_refused && !self.is_over.swap(true, Ordering::SeqCst) {
            let why = "another node works on it".to_owned();
            return Box::pin(std::future::ready(Err(StoreError::Guard { which: 0, why })));
        }
        self.written.lock().unwrap().extend(batches.iter().cloned());
        self.inner.append(batches)
    }
}

impl WorkLayer for Taken {}
impl DeliveryLayer for Taken {}
impl SessionLayer for Taken {}
impl IdempotencyLayer for Taken {}
impl SecretLayer for Taken {}
impl AuditLayer for Taken {}

fn has(batch: &Batch, is_wanted: fn(&Event) -> bool) -> bool {
    batch.link.events().unwrap().iter().any(|envelope| is_wanted(&envelope.event))
}

fn resolves(batch: &Batch) -> bool {
    has(batch, |event| matches!(event, Event::HoldResolved(_)))
}

fn asks_below(batch: &Batch) -> bool {
    batch.row.run.facts.parent.is_some() && has(batch, |event| matches!(event, Event::HoldOpened(_)))
}

fn repins(batch: &Batch) -> bool {
    has(batch, |event| matches!(event, Event::RunRepinned(_)))
}

/// Starts a task elsewhere and waits for it; counts how often that task is canceled.
struct Remote {
    canceled: Arc<AtomicUsize>,
}

impl Tool for Remote {
    fn run(&self, _: Invocation) -> ToolFuture {
        let ask = Ask { resume: Some(Box::new(Body::text("task-7"))), ..Ask::default() };
        let timeout = Some(Millis::seconds(600));
        let pending = Suspension { kind: SuspendFor::External, ask, timeout, secret: None };
        Box::pin(std::future::ready(Outcome::Pending(Box::new(pending))))
    }

    fn nature(&self) -> Nature<'_> {
        Nature::RemoteWork(self)
    }
}

impl RemoteWork for Remote {
    fn watch(&self, _: &Body) -> Option<WatchFuture> {
        None
    }

    fn abandon(&self, state: &Body) -> Option<AbandonFuture> {
        assert_eq!(state, &Body::text("task-7"));
        let canceled = self.canceled.clone();
        Some(Box::pin(async move {
            canceled.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }))
    }
}

/// The node that lets a hold expire loses its lease with that very append: the remote task is canceled all the same.
#[tokio::test]
async fn a_remote_task_is_canceled_although_the_lease_was_lost() {
    let mut site = Site::new();
    site.asks = Line::calls(&[("delete_file", "{}")]);
    let (store, canceled) = (Taken::new(resolves), Arc::new(AtomicUsize::new(0)));
    let mut settings = site.settings();
    let mut ops = (*settings.agents[&agent()]).clone();
    ops.needs_approval.clear();
    let tool: Arc<dyn Tool> = Arc::new(Remote { canceled: canceled.clone() });
    ops.tools = BTreeMap::from([(ToolName::new("delete_file").unwrap(), tool)]);
    settings.agents.insert(agent(), Arc::new(ops));
    let engine = Engine::new(
        store.clone(),
        Clock::standing_at(Timestamp(1_762_000_000_000)),
        crate::fixed(),
        settings,
    );
    engine.work();
    engine.deliver(Vec::new());
    let run = start(&engine).await;
    until(&engine, run, Status::Held(WaitKind::External)).await;
    engine.clock().advance(Millis::seconds(601));
    let expired = store.finds().await;
    assert_eq!(expired.lease, LeaseChange::Keep, "the lease is another node's");
    let heard = async {
        while canceled.load(Ordering::SeqCst) == 0 {
            engine.clock().advance(Millis::seconds(1));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), heard).await.unwrap();
    engine.die().await;
}

/// A kind of receiver that hears what sub-runs ask.
struct HearsBelow;

impl ReceiverKind for HearsBelow {
    fn name(&self) -> &'static str {
        "below"
    }

    fn request(&self, _: &Delivery<'_>) -> Option<DeliveryRequest> {
        None
    }

    fn hears_below(&self) -> bool {
        true
    }
}

/// The node that lets a sub-run ask loses its lease with that very append: the receivers of the run above learn of it.
#[tokio::test]
async fn receivers_above_hear_a_question_although_the_lease_was_lost() {
    let site = Site::new();
    let store = Taken::new(asks_below);
    let mut settings = crate::family::settings(&site);
    settings.webhooks = Webhooks { key: Some(SigningKey::new([7; 32])), ..Webhooks::default() };
    let engine = Engine::new(store.clone(), Clock::system(), crate::fixed(), settings);
    engine.work();
    engine.deliver(vec![Arc::new(HearsBelow)]);
    let message = Message::text("See to the disks");
    let new = NewRun { agent: crate::family::lead(), session: None, message, once: None };
    let callback = Callback {
        kind: "below",
        name: "mine".into(),
        url: "https://93.184.216.34/hook".into(),
        details: String::new(),
        secrets: None,
    };
    engine.submit().start_with_callback(&who("alice"), new, callback).await.unwrap();
    let asked = store.finds().await;
    assert_eq!(asked.lease, LeaseChange::Keep, "the lease is another node's");
    let notices: Vec<&SideWrite> =
        asked.puts.iter().filter(|put| matches!(put, SideWrite::Notice(_))).collect();
    assert_eq!(notices.len(), 1, "{:?}", asked.puts);
    engine.die().await;
}

/// Where somebody has logged in, at another node: the configuration is read again, and has another agent then.
#[derive(Default)]
struct Desk {
    engine: OnceLock<Engine>,
    read_again: Mutex<Option<Settings>>,
}

impl LoginDesk for Desk {
    fn server(&self) -> &str {
        "crm"
    }

    fn asks<'a>(&'a self, _: HoldId, _: &'a UserId) -> BoxFuture<'a, Suspension> {
        unreachable!("somebody has logged in")
    }

    fn begin(&self, _: HoldId) -> BoxFuture<'_, Result<StartedLogin, NoLogin>> {
        unreachable!("somebody has logged in")
    }

    fn finish<'a>(
        &'a self,
        _: HoldId,
        _: &'a UserId,
        _: &'a str,
        _: &'a AuthorizationResponse,
    ) -> BoxFuture<'a, Result<(), NoLogin>> {
        unreachable!("somebody has logged in")
    }

    fn learn<'a>(self: Arc<Self>, _: &'a UserId) -> BoxFuture<'a, Result<(), NoLogin>> {
        unreachable!("somebody has logged in")
    }

    fn knows_offers(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    fn tell(&self) {
        if let (Some(engine), Some(settings)) = (self.engine.get(), self.read_again.lock().unwrap().take()) {
            engine.reload(settings);
        }
    }
}

/// The node that moves a run to its agent as it is now loses its lease with that very append: the definition is stored all
/// the same, so that every node can go on with the run.
#[tokio::test]
async fn the_definition_of_a_repin_is_stored_although_the_lease_was_lost() {
    let site = Site::new();
    let (store, desk) = (Taken::new(repins), Arc::new(Desk::default()));
    let (mut settings, mut later) = (site.settings(), site.settings());
    let ops = (*settings.agents[&agent()]).clone();
    let definition = Definition { prompt: "You look after two servers.".into(), ..(*ops.definition).clone() };
    let moved = Agent {
        tools: ops.tools.clone(),
        needs_approval: ops.needs_approval.clone(),
        worker_pool: ops.worker_pool,
        ..Agent::new(definition, ops.model.clone())
    };
    let wanted = moved.digest;
    later.agents.insert(agent(), Arc::new(moved));
    settings.agents.insert(agent(), Arc::new(Agent { logins: vec![desk.clone()], ..ops }));
    *desk.read_again.lock().unwrap() = Some(later);
    let engine = Engine::new(store.clone(), Clock::system(), crate::fixed(), settings);
    assert!(desk.engine.set(engine.clone()).is_ok());
    engine.work();
    start(&engine).await;
    let repinned = store.finds().await;
    assert_eq!(repinned.lease, LeaseChange::Keep, "the lease is another node's");
    let is_it = |put: &SideWrite| matches!(put, SideWrite::Definition { digest, .. } if *digest == wanted);
    assert!(repinned.puts.iter().any(is_it), "{:?}", repinned.puts);
    engine.die().await;
}
