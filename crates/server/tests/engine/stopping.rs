//! Stopping in good order: nothing new begins, what is at work finishes, every run is given back.
//!
//! The next server goes on at once; it need not wait for leases to run out, and nobody is asked about an outcome.

use std::sync::Arc;

use standfast_core::command::Choice;
use standfast_core::hold::HoldKind;
use standfast_core::run::status;
use standfast_core::time::Millis;
use standfast_store::Store;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::Notify;

use crate::{COMPLETED, HELD, Site, at_work, decision, hold_of, start, until, who};

/// F21: a tool that is at work when the server is asked to stop may finish; the run completes on the next server.
#[tokio::test]
async fn a_tool_at_work_finishes_before_the_server_stops() {
    let mut site = Site::new();
    let gate = Arc::new(Notify::new());
    site.gate = Some(gate.clone());
    let first = site.server();
    let run = at_work(&site, &first).await.run;
    let stopping = tokio::spawn({
        let first = first.clone();
        async move { first.drain(Millis::seconds(20)).await }
    });
    // The server has begun to stop; a run that comes now is written down and left for later.
    while !first.is_stopping() {
        tokio::task::yield_now().await;
    }
    let late = start(&first).await;
    gate.notify_one();
    stopping.await.unwrap();
    assert!(first.reads().load(run).await.unwrap().lease.is_none(), "the run is given back");
    assert!(standfast_core::run::Status::Queued == status(&first.reads().load(late).await.unwrap().row.run));
    drop(first);

    site.gate = None;
    let second = site.server();
    until(&second, run, COMPLETED).await;
    until(&second, late, HELD).await;
    assert_eq!(site.effects().len(), 1);
}

/// A tool that does not end in time is cut off, and a person is asked: the same as after a crash.
#[tokio::test]
async fn a_tool_that_does_not_end_in_time_is_asked_about() {
    let mut site = Site::new();
    site.hangs = true;
    let first = site.server();
    let run = at_work(&site, &first).await.run;
    first.drain(Millis(50)).await;
    drop(first);
    site.hangs = false;
    let second = site.server();
    until(&second, run, HELD).await;
    hold_of(&second, run, HoldKind::Recovery).await;
    assert_eq!(site.effects().len(), 1);
}

/// Whoever waits for a run is answered with how it stands when the server stops.
#[tokio::test]
async fn a_caller_who_waits_is_answered_when_the_server_stops() {
    let mut site = Site::new();
    site.hangs = true;
    let store = Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap());
    let engine = site.server_on(store.clone() as Arc<dyn Store>, standfast_engine::clock::Clock::system());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.reads().settled_run(&who("alice"), run, Millis::seconds(300)).await }
    });
    tokio::task::yield_now().await;
    engine.drain(Millis(50)).await;
    let view = waiting.await.unwrap().unwrap();
    assert_eq!(view.run.facts.id, run);
}
