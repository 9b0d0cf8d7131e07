//! What is appended ahead, and what a drive leaves for whoever waits: never more than is stored, never less than they asked for.
//!
//! A model in this process may reply while the start of its run, or what its tools reported, is still on its way; whoever made
//! a run go on is handed its outcome instead of reading it back. Both are raced here against stores that lose answers and
//! against people, other nodes and leases that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use standfast_core::command::{Choice, OnHold, Say};
use standfast_core::event::Event;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::{FIRST_PREVIOUS, Link};
use standfast_core::message::Message;
use standfast_core::run::{Status, status};
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, Model, ModelFuture, Prompt};
use standfast_engine::{Acceptance, Engine, EngineError, NewRun, Snapshot, StartedRun, StoreError};
use standfast_models::scripted::{Line, Script};
use standfast_store::conformance::flaky::{Flaky, Mishap};
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer,
    Store, StoredRun, WorkLayer,
};

use crate::corners::changed;
use crate::{ARGUMENTS, COMPLETED, HELD, Site, agent, decision, hold_of, until, who};

/// A model in this process that is looked at so many times before it replies.
struct Hesitant {
    script: Script,
    looks: usize,
}

impl Model for Hesitant {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move {
            for _ in 0..self.looks {
                tokio::task::yield_now().await;
            }
            self.script.ask(prompt, live).await
        })
    }

    fn is_in_process(&self) -> bool {
        true
    }
}

/// A store whose appends are answered at the second look, so that a reply can come at any moment before.
struct Slow(Arc<dyn Store>);

impl Layer for Slow {
    fn below(&self) -> &dyn Store {
        &*self.0
    }
}

impl RunLayer for Slow {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let answer = self.0.append(batches);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let answer = answer.await;
            tokio::task::yield_now().await;
            answer
        })
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        let answer = self.0.load(run);
        Box::pin(async move {
            tokio::task::yield_now().await;
            answer.await
        })
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        let answer = self.0.links(run, after, limit);
        Box::pin(async move {
            tokio::task::yield_now().await;
            answer.await
        })
    }
}

impl WorkLayer for Slow {}
impl DeliveryLayer for Slow {}
impl SessionLayer for Slow {}
impl IdempotencyLayer for Slow {}
impl SecretLayer for Slow {}
impl AuditLayer for Slow {}

fn new_run() -> NewRun {
    NewRun { agent: agent(), session: None, message: Message::text("Free some space"), once: None }
}

/// The chain as it is stored holds, and each thing happened once.
async fn check_log(engine: &Engine, store: &Arc<dyn Store>, run: RunId, what: &str) {
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    for link in store.links(run, Seq(0), usize::MAX).await.unwrap() {
        assert_eq!(link.verify(previous, next), Ok(()), "{what}");
        (previous, next) = (link.hash, link.next());
    }
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let count = |kind: &str| events.iter().filter(|envelope| envelope.event.kind() == kind).count();
    let counted: Vec<usize> =
        ["run.started", "model.replied", "hold.opened", "call.started", "call.finished", "run.ended"]
            .map(count)
            .into();
    assert_eq!(counted, [1, 2, 1, 1, 1, 1], "{what}: {events:?}");
}

/// Whenever the reply comes, and whatever becomes of the appends below it, the run has one start, one reply a turn and one
/// effect. Settling is dropped wherever it waits: for each append, for the look after a lost answer, for the run to be loaded.
#[tokio::test]
async fn a_reply_may_come_at_any_moment_of_settling() {
    use Mishap::{After, Before, Conflict, Lost, None as Fine};
    let mishaps: [&[Mishap]; 6] = [
        &[],
        &[After, Fine, Fine, After, After],
        &[Fine, After, Fine, Fine, Lost],
        &[Fine, Lost, Fine, After, Conflict],
        &[Fine, Conflict, Fine, Lost, After],
        &[Fine, Before, Fine, Fine, Before, Before],
    ];
    for (number, script) in mishaps.iter().enumerate() {
        for looks in 0..8 {
            let site = Site::new();
            let below = site.store();
            let store: Arc<dyn Store> =
                Arc::new(Slow(Arc::new(Flaky::scripted(below.clone(), script.iter().copied()))));
            let lines = vec![Line::calls(&[("delete_file", ARGUMENTS)]), Line::says("Done.")];
            let model = Arc::new(Hesitant { script: Script { lines }, looks });
            let engine = Engine::new(
                store,
                Clock::system(),
                crate::fixed(),
                changed(&site, |agent| agent.model = model),
            );
            engine.work();
            let what = format!("mishaps {number}, the reply at look {looks}");
            let run = match engine.submit().start(&who("alice"), new_run()).await {
                Ok(run) => run,
                // Nobody knows whether it was written: it is looked for.
                Err(EngineError::Store(StoreError::Unknown { .. })) => {
                    let runs =
                        standfast_engine::RunList { agent: None, session: None, cursor: None, limit: 2 };
                    let page = engine.reads().runs(&who("alice"), runs).await.unwrap();
                    page.items.first().unwrap_or_else(|| panic!("{what}")).run.facts.id
                }
                Err(other) => panic!("{what}: {other}"),
            };
            until(&engine, run, HELD).await;
            let hold = hold_of(&engine, run, HoldKind::Approval).await;
            for _ in 0..5 {
                match engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await {
                    Ok(_) => break,
                    Err(EngineError::Store(_)) => {}
                    Err(error) if error.refusal().is_some() => break,
                    Err(other) => panic!("{what}: {other}"),
                }
            }
            until(&engine, run, COMPLETED).await;
            assert_eq!(site.effects().len(), 1, "{what}");
            check_log(&engine, &below, run, &what).await;
            engine.die().await;
        }
    }
}

/// Counts what is read of runs.
struct CountingReads {
    inner: Arc<dyn Store>,
    reads: AtomicUsize,
}

impl Layer for CountingReads {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for CountingReads {
    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.load(run)
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.links(run, after, limit)
    }

    fn find_hold(
        &self,
        hold: standfast_core::id::HoldId,
    ) -> Answer<Option<standfast_core::project::HoldRow>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.find_hold(hold)
    }
}

impl WorkLayer for CountingReads {}
impl DeliveryLayer for CountingReads {}
impl SessionLayer for CountingReads {}
impl IdempotencyLayer for CountingReads {}
impl SecretLayer for CountingReads {}
impl AuditLayer for CountingReads {}

const SOON: Millis = Millis::seconds(30);

/// What is shown of a run is what is stored of it up to some event.
async fn is_a_moment_of(engine: &Engine, snapshot: &Snapshot) {
    let events = engine.reads().events(snapshot.id(), Seq(0)).await.unwrap();
    let upto = snapshot.run().state.seq.0 as usize;
    assert_eq!(snapshot.log().await.unwrap(), &events[..upto]);
    let folded = standfast_core::apply::fold(snapshot.id(), &events[..upto]).unwrap();
    assert_eq!(*snapshot.run(), folded);
    assert_eq!(snapshot.appends().await.unwrap().concat(), events[..upto]);
}

/// Whoever starts or decides and waits reads nothing back: the outcome of the run, its log and its decided hold are handed over.
#[tokio::test]
async fn whoever_waits_for_their_own_run_reads_nothing_back() {
    let site = Site::new();
    let counting = Arc::new(CountingReads { inner: site.store(), reads: AtomicUsize::new(0) });
    let engine = site.server_on(counting.clone(), Clock::system());
    let (alice, reads) = (who("alice"), engine.reads());
    let StartedRun { id, rest } = engine.submit().start_run(&alice, new_run()).await.unwrap();
    let held = reads.settled(&alice, id, rest, SOON).await.unwrap();
    let view = reads.run_view(&held).await.unwrap();
    assert_eq!((status(&view.run), counting.reads.load(Ordering::SeqCst)), (HELD, 0));
    is_a_moment_of(&engine, &held).await;

    let hold = standfast_core::id::HoldId { run: id, key: view.run.state.holds[0].key };
    let before = counting.reads.load(Ordering::SeqCst);
    let accepted = engine.submit().decide_all(&alice, decision(hold, Choice::Approve).into()).await;
    let Acceptance { rest, .. } = accepted.unwrap();
    // The row and the log that it was decided on.
    assert_eq!(counting.reads.load(Ordering::SeqCst) - before, 2);
    let ended = reads.settled(&alice, id, rest, SOON).await.unwrap();
    let view = reads.hold_view(&alice, &ended, hold).await.unwrap();
    assert_eq!(counting.reads.load(Ordering::SeqCst) - before, 2);
    assert_eq!(status(ended.run()), COMPLETED);
    assert_eq!(Ok(view), reads.hold(&alice, hold).await, "a decided hold is what the store has of it");
    is_a_moment_of(&engine, &ended).await;
}

/// Nobody is handed the run as somebody else has left it since: whoever cancels or says something, here or on another node, is
/// answered first, and the run is read.
#[tokio::test]
async fn what_a_drive_left_is_discarded_when_somebody_else_was_there() {
    let site = Site::new();
    let engine = site.server();
    let (alice, reads) = (who("alice"), engine.reads());
    for others in 0..2 {
        let StartedRun { id, rest } = engine.submit().start_run(&alice, new_run()).await.unwrap();
        until(&engine, id, HELD).await;
        if others == 0 {
            engine.submit().cancel(&alice, id, None, None).await.unwrap();
            let snapshot = reads.settled(&alice, id, rest, SOON).await.unwrap();
            assert!(matches!(status(snapshot.run()), Status::Ended(_)), "{:?}", status(snapshot.run()));
            is_a_moment_of(&engine, &snapshot).await;
        } else {
            let say = Say { message: Message::text("not that one"), on_hold: OnHold::Supersede };
            engine.submit().say(&alice, id, say, None).await.unwrap();
            let snapshot = reads.settled(&alice, id, rest, SOON).await.unwrap();
            let log = snapshot.log().await.unwrap();
            assert!(log.iter().any(|envelope| matches!(envelope.event, Event::HoldResolved(_))), "{log:?}");
            is_a_moment_of(&engine, &snapshot).await;
        }
    }
}

/// The same at the same moment, many times: what is handed over always has its caller's own append, and is the run as it was
/// stored at some moment, whoever was faster; other nodes and lost leases included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_drive_leaves_is_raced_by_others() {
    let site = Site::new();
    let store = site.store();
    let engine = site.server_on(store.clone(), Clock::system());
    let other = Engine::new(store.clone(), Clock::system(), crate::fixed(), site.settings());
    let alice = who("alice");
    for round in 0..60u64 {
        let StartedRun { id, rest } = engine.submit().start_run(&alice, new_run()).await.unwrap();
        let held = engine.reads().settled(&alice, id, rest, SOON).await.unwrap();
        is_a_moment_of(&engine, &held).await;
        let hold = hold_of(&engine, id, HoldKind::Approval).await;
        let racer = tokio::spawn({
            let (engine, other, store, alice) = (engine.clone(), other.clone(), store.clone(), alice.clone());
            async move {
                tokio::time::sleep(Duration::from_micros(round * 37 % 1_500)).await;
                let say = || Say { message: Message::text("and then?"), on_hold: OnHold::Supersede };
                match round % 4 {
                    0 => drop(engine.submit().cancel(&alice, id, None, None).await),
                    1 => drop(engine.submit().say(&alice, id, say(), None).await),
                    2 => drop(other.submit().cancel(&alice, id, None, None).await),
                    _ => {
                        // Another node takes the run from under the drive.
                        let thief = standfast_core::id::Incarnation([9; 16]);
                        let until = other.clock().now().plus(Millis(1));
                        drop(store.renew(vec![id], thief, until).await);
                        drop(other.submit().say(&alice, id, say(), None).await);
                    }
                }
            }
        });
        match engine.submit().decide_all(&alice, decision(hold, Choice::Approve).into()).await {
            Ok(Acceptance { rest, .. }) => {
                let snapshot = engine.reads().settled(&alice, id, rest, SOON).await.unwrap();
                is_a_moment_of(&engine, &snapshot).await;
                let log = snapshot.log().await.unwrap();
                let decided = |event: &Event| matches!(event, Event::HoldResolved(_));
                assert!(log.iter().any(|envelope| decided(&envelope.event)), "round {round}: {log:?}");
            }
            // Whoever cancelled was first.
            Err(error) => assert!(error.refusal().is_some(), "round {round}: {error}"),
        }
        racer.await.unwrap();
    }
    assert!(site.effects().len() <= 60);
}
