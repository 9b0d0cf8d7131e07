//! Several people and a server at the same moment, and rows that somebody altered.
//!
//! A run is driven once at a time: nobody takes a call for lost that is at work.

use std::sync::Arc;
use std::time::Duration;

use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::digest::Digest;
use standfast_core::event::{Event, Outcome};
use standfast_core::hold::{HoldKind, HoldPolicy, OnTimeout};
use standfast_core::id::{HoldId, Seq};
use standfast_core::refusal::Refusal;
use standfast_core::run::Status;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::{Decision, EngineError, IdempotencyKey};
use standfast_models::scripted::Line;
use tokio::sync::Notify;

use crate::{COMPLETED, HELD, Site, at_work, decision, hold_of, start, until, until_effects, who};

/// Two calls of a turn approved at the same moment: both run, and neither is asked about again.
#[tokio::test]
async fn two_holds_of_a_run_are_approved_at_the_same_moment() {
    let mut site = Site::new();
    let gate = Arc::new(Notify::new());
    site.gate = Some(gate.clone());
    site.asks = Line::calls(&[("delete_file", r#"{"path": "/a"}"#), ("delete_file", r#"{"path": "/b"}"#)]);
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let holds = engine.reads().load(run).await.unwrap().row.run.state.holds.clone();
    let mut deciding = tokio::task::JoinSet::new();
    for hold in holds {
        let (engine, hold) = (engine.clone(), HoldId { run, key: hold.key });
        deciding.spawn(async move {
            engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await
        });
    }
    assert_eq!(deciding.join_all().await, [Ok(Answer::Done), Ok(Answer::Done)]);
    until_effects(&site, 2).await;
    gate.notify_waiters();
    until(&engine, run, COMPLETED).await;
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    assert!(events.iter().all(|envelope| !matches!(envelope.event, Event::CallOrphaned(_))));
    assert_eq!(site.effects().len(), 2);
}

/// S0-80: one run that is approved several times, with a restart between; every cycle works and each call runs once.
#[tokio::test]
async fn a_run_is_approved_again_and_again_across_restarts() {
    let mut site = Site::new();
    let call = |path: &str| Line::calls(&[("delete_file", &format!(r#"{{"path": "{path}"}}"#))]);
    (site.asks, site.asks_then) = (call("/a"), vec![call("/b"), call("/c")]);
    let mut engine = site.server();
    let run = start(&engine).await;
    for approved in 1..=3 {
        until(&engine, run, HELD).await;
        engine.die().await;
        drop(engine);
        engine = site.server();
        let hold = hold_of(&engine, run, HoldKind::Approval).await;
        assert_eq!(
            engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
            Ok(Answer::Done)
        );
        until_effects(&site, approved).await;
    }
    until(&engine, run, COMPLETED).await;
    let paths: Vec<String> = site.effects().iter().map(|line| line.split(' ').skip(1).collect()).collect();
    assert_eq!(paths, [r#"{"path":"/a"}"#, r#"{"path":"/b"}"#, r#"{"path":"/c"}"#]);
}

/// F5: one hold, many deciders at the same moment: one decision counts, everyone else gets that one.
#[tokio::test]
async fn one_hold_is_decided_by_many_at_the_same_moment() {
    let mut site = Site::new();
    let gate = Arc::new(Notify::new());
    site.gate = Some(gate.clone());
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let mut deciding = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let engine = engine.clone();
        deciding.spawn(async move {
            engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await
        });
    }
    let answers = deciding.join_all().await;
    let is_told =
        |answer: &&Result<_, _>| matches!(answer, Err(EngineError::Refused(Refusal::AlreadyDecided(_))));
    assert_eq!(answers.iter().filter(|answer| **answer == Ok(Answer::Done)).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(is_told).count(), 7, "{answers:?}");
    until_effects(&site, 1).await;
    gate.notify_waiters();
    until(&engine, run, COMPLETED).await;
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    assert!(events.iter().all(|envelope| !matches!(envelope.event, Event::CallOrphaned(_))));
    assert_eq!(site.effects().len(), 1);
}

/// A decision that came too late is refused, and refused again when it is sent again: it was not done.
#[tokio::test]
async fn a_refused_request_that_is_sent_again_is_refused_again() {
    let mut site = Site::new();
    site.holds =
        HoldPolicy { timeout: Some(Millis::hours(1)), on_timeout: OnTimeout::Fail, ..HoldPolicy::default() };
    let engine = site.server_with(Clock::standing_at(Timestamp(1_000_000)));
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    engine.clock().advance(Millis::hours(2));
    for _ in 0..2 {
        let once = IdempotencyKey::new("resolve", "k", Digest([1; 32]));
        let late = Decision { once: Some(once), ..decision(hold, Choice::Approve) };
        let answer = engine.submit().decide(&who("alice"), late).await;
        assert!(matches!(answer, Err(EngineError::Refused(_))), "{answer:?}");
    }
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// A client that hangs up while it cancels has canceled: the tool is stopped.
#[tokio::test]
async fn a_cancel_of_somebody_who_hung_up_stops_the_tool() {
    let mut site = Site::new();
    site.hangs = true;
    let engine = site.server();
    let run = at_work(&site, &engine).await.run;
    let alice = who("alice");
    let mut canceling = Box::pin(engine.submit().cancel(&alice, run, None, None));
    tokio::select! {
        biased;
        _ = &mut canceling => panic!("the disk cannot be that fast"),
        () = std::future::ready(()) => {}
    }
    drop(canceling);
    until(&engine, run, Status::Ended(Outcome::Canceled)).await;
    let orphaned = async {
        loop {
            let events = engine.reads().events(run, Seq(0)).await.unwrap();
            if events.iter().any(|envelope| matches!(envelope.event, Event::CallOrphaned(_))) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), orphaned).await.unwrap();
}

/// T2, F18, C35: arguments that were altered where they are stored never run; the run ends and says why, and the
/// server goes on with everything else.
#[tokio::test]
async fn t2_altered_arguments_never_run_and_do_not_stop_the_server() {
    let site = Site::new();
    let first = site.server();
    let (run, other) = (start(&first).await, start(&first).await);
    until(&first, run, HELD).await;
    until(&first, other, HELD).await;
    let hold = hold_of(&first, run, HoldKind::Approval).await;
    first.die().await;
    drop(first);
    let database = rusqlite::Connection::open(site.path("standfast.db")).unwrap();
    let first_run = "(SELECT min(no) FROM runs)";
    let sql = format!(
        "UPDATE links SET payload = replace(payload, '/var/cache/old', '/var/lib/data') \
         WHERE key >> 20 = {first_run} AND payload LIKE '%/var/cache/old%'"
    );
    let altered = database.execute(&sql, []).unwrap();
    assert_eq!(altered, 1, "the reply with the call");
    drop(database);

    let second = site.server();
    let _ = second.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await;
    until(&second, run, Status::Ended(Outcome::Failed)).await;
    let reason = second.reads().run(&who("alice"), run).await.unwrap().reason.unwrap();
    assert!(reason.starts_with("failed to load execution state: "), "{reason}");
    let hold = hold_of(&second, other, HoldKind::Approval).await;
    second.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    until(&second, other, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
}
