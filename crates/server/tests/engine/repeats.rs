//! Requests that are sent again: the same key with the same body does it once, whoever was faster.
//!
//! And what a decision writes: the node that takes it starts the call in the same append.

use standfast_core::command::{Choice, OnHold, Say};
use standfast_core::decide::Answer;
use standfast_core::digest::Digest;
use standfast_core::event::Event;
use standfast_core::hold::HoldKind;
use standfast_core::id::Seq;
use standfast_core::message::Message;
use standfast_core::name::SessionId;
use standfast_engine::{Decision, EngineError, IdempotencyKey, NewRun};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{RunStore, SessionChange, SessionKey, SessionStore};

use crate::{COMPLETED, HELD, Site, agent, decision, hold_of, start, until, who};

fn once(route: &str, key: &str, body: u8) -> Option<IdempotencyKey> {
    Some(IdempotencyKey::new(route, key, Digest([body; 32])))
}

fn new(once: Option<IdempotencyKey>) -> NewRun {
    NewRun { agent: agent(), session: None, message: Message::text("Free some space"), once }
}

/// A client that lost the answer sends the start again; also after a restart there is one run.
#[tokio::test]
async fn a_start_that_is_sent_again_is_the_same_run() {
    let site = Site::new();
    let first = site.server();
    let run = first.submit().start(&who("alice"), new(once("runs", "k", 1))).await.unwrap();
    first.die().await;
    drop(first);
    let second = site.server();
    assert_eq!(second.submit().start(&who("alice"), new(once("runs", "k", 1))).await, Ok(run));
    let reused = EngineError::KeyReused { key: "k".into() };
    assert_eq!(second.submit().start(&who("alice"), new(once("runs", "k", 2))).await, Err(reused));
    // Another person's key, another key, another route: all are other requests.
    for (user, again) in
        [("bob", once("runs", "k", 1)), ("alice", once("runs", "l", 1)), ("alice", once("other", "k", 1))]
    {
        assert_ne!(second.submit().start(&who(user), new(again)).await, Ok(run));
    }
}

/// Twenty at the same instant: one is written, all get its answer.
#[tokio::test]
async fn starts_with_one_key_at_the_same_moment_are_one_run() {
    let site = Site::new();
    let engine = site.server();
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let engine = engine.clone();
        starts.spawn(async move {
            engine.submit().start(&who("alice"), new(once("runs", "k", 1))).await.unwrap()
        });
    }
    let runs: std::collections::BTreeSet<_> = starts.join_all().await.into_iter().collect();
    assert_eq!(runs.len(), 1);
}

/// Each hold has one decision: the same one again with its key is a repeat, the same key with another body is refused.
#[tokio::test]
async fn a_decision_that_is_sent_again_is_the_same_decision() {
    let site = Site::new();
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let approve = |body| Decision { once: once("resolve", "k", body), ..decision(hold, Choice::Approve) };
    assert_eq!(engine.submit().decide(&who("alice"), approve(1)).await, Ok(Answer::Done));
    assert_eq!(engine.submit().decide(&who("alice"), approve(1)).await, Ok(Answer::Repeated));
    let reused = EngineError::KeyReused { key: "k".into() };
    assert_eq!(engine.submit().decide(&who("alice"), approve(2)).await, Err(reused));
    until(&engine, run, COMPLETED).await;
    assert_eq!(engine.submit().decide(&who("alice"), approve(1)).await, Ok(Answer::Repeated));
    assert_eq!(site.effects().len(), 1);
}

/// A message that is sent again is said once; a cancel that is sent again is not an error.
#[tokio::test]
async fn messages_and_cancels_are_carried_out_once() {
    let site = Site::new();
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let say = || Say { message: Message::text("Leave it"), on_hold: OnHold::Supersede };
    for expected in [Answer::Done, Answer::Repeated] {
        assert_eq!(engine.submit().say(&who("alice"), run, say(), once("say", "k", 1)).await, Ok(expected));
    }
    let heard = |events: &[standfast_core::event::Envelope]| {
        events.iter().filter(|envelope| matches!(envelope.event, Event::MessageReceived(_))).count()
    };
    until(&engine, run, COMPLETED).await;
    assert_eq!(heard(&engine.reads().events(run, Seq(0)).await.unwrap()), 1);

    let other = start(&engine).await;
    until(&engine, other, HELD).await;
    for expected in [Answer::Done, Answer::Repeated] {
        assert_eq!(
            engine.submit().cancel(&who("alice"), other, None, once("cancel", "k", 1)).await,
            Ok(expected)
        );
    }
}

/// The commit budget of a cycle: decision and start of the call are one link, claimed by the node that decided.
#[tokio::test]
async fn the_node_that_takes_a_decision_starts_the_call_with_it() {
    let site = Site::new();
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    // The hold is seen as soon as it is stored, a moment before the drive that stored it lets the run go. Another process
    // has no such drive: there it is the decision that takes the run.
    engine.die().await;
    drop(engine);
    let engine = site.server();
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    until(&engine, run, COMPLETED).await;
    engine.die().await;
    drop(engine);
    let store = SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap();
    let links = store.links(run, Seq(0), usize::MAX).await.unwrap();
    let kinds: Vec<Vec<&str>> = links
        .iter()
        .map(|link| link.events().unwrap().iter().map(|envelope| envelope.event.kind()).collect())
        .collect();
    let expected: [&[&str]; 5] = [
        &["run.started", "message.received"],
        &["model.replied", "hold.opened"],
        &["hold.resolved", "call.started"],
        &["call.finished"],
        &["model.replied", "run.ended"],
    ];
    assert_eq!(kinds, expected);
}

/// S0-39: whoever decides may hang up at once: what they began goes on in the background, and nothing is left to a
/// take-over.
#[tokio::test]
async fn a_decider_who_hangs_up_does_not_stop_what_they_decided() {
    let site = Site::new();
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let alice = who("alice");
    let mut deciding = Box::pin(engine.submit().decide(&alice, decision(hold, Choice::Approve)));
    tokio::select! {
        biased;
        _ = &mut deciding => panic!("the disk cannot be that fast"),
        () = std::future::ready(()) => {}
    }
    drop(deciding);
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
}

/// A closed conversation takes no more runs.
#[tokio::test]
async fn a_closed_session_refuses_new_runs() {
    let site = Site::new();
    let store =
        std::sync::Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap());
    let engine = site.server_on(store.clone(), standfast_engine::clock::Clock::system());
    let session = SessionId::new("disk").unwrap();
    let new = || NewRun { session: Some(session.clone()), ..new(None) };
    let run = engine.submit().start(&who("alice"), new()).await.unwrap();
    let facts = engine.reads().load(run).await.unwrap().row.run.facts.clone();
    let key = SessionKey::of(&facts);
    assert_eq!(store.change_session(key, SessionChange::Close, engine.clock().now()).await, Ok(true));
    let closed = EngineError::SessionClosed { agent: agent(), session: session.clone() };
    assert_eq!(engine.submit().start(&who("alice"), new()).await, Err(closed));
}
