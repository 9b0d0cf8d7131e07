//! The life of a hold by a clock that the test moves: reminders, escalation and expiry in working hours, over the night in which
//! clocks change, and over a restart of the server.
//!
//! How hours are counted is tested in `crates/policy/src/hours.rs`; what a step means in the scenarios of the store.

use std::time::Duration;

use serde_json::json;
use standfast_core::decide::Answer;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::settings::Settings;
use standfast_engine::{Adjustment, Engine, HoldAdjustment};

use crate::corners::changed;
use crate::rules::judged_by;
use crate::{COMPLETED, HELD, Site, hold_of, start, until, who};

/// Friday, 27 March 2026, 16:00 in Berlin, an hour before work ends. Summer time begins on the Sunday after.
const FRIDAY: Timestamp = Timestamp(1_774_623_600_000);
/// Monday in Berlin, in summer time: 10:00, 11:00, 12:00 and 17:00.
const REMINDED: Timestamp = Timestamp(1_774_857_600_000);
const ESCALATED: Timestamp = Timestamp(1_774_861_200_000);
const REMINDED_AGAIN: Timestamp = Timestamp(1_774_864_800_000);
const EXPIRED: Timestamp = Timestamp(1_774_882_800_000);

fn settings(site: &Site) -> Settings {
    let shift = json!(["09:00-17:00"]);
    let section = json!({
        "business_hours": {"berlin": {"time_zone": "Europe/Berlin", "days":
            {"mon": shift, "tue": shift, "wed": shift, "thu": shift, "fri": shift}}},
        "rules": [{"id": "hours", "hold": "delete_file", "business_hours": "berlin", "remind_after": "2h", "escalate_after": "3h",
            "escalate_to": ["role:cfo"], "expire_after": "9h", "on_timeout": "keep"}],
    });
    changed(site, |agent| judged_by(agent, &section))
}

fn server(site: &Site, at: Timestamp) -> Engine {
    let engine = Engine::new(site.store(), Clock::standing_at(at), crate::fixed(), settings(site));
    engine.work();
    engine
}

/// Moves the clock to an instant.
fn wait_for(engine: &Engine, at: Timestamp) {
    engine.clock().advance(at.since(engine.clock().now()));
}

async fn open(engine: &Engine, hold: HoldId) -> Hold {
    engine.reads().hold(&who("alice"), hold).await.unwrap().open.unwrap()
}

/// Whether a step was at its instant: a node looks at what is due twice a second.
fn is_at(found: Option<Timestamp>, wanted: Timestamp) -> bool {
    found.is_some_and(|found| found >= wanted && found <= wanted.plus(Millis::seconds(60)))
}

/// The events of this kind, once there are so many. Time goes on meanwhile, as nodes sleep by this clock between two looks, and one
/// that slept through days first says that it is still there.
async fn told(engine: &Engine, run: RunId, kind: &str, count: usize) -> Vec<Envelope> {
    let found = async {
        loop {
            let events = engine.reads().events(run, Seq(0)).await.unwrap();
            let of: Vec<Envelope> =
                events.into_iter().filter(|envelope| envelope.event.kind() == kind).collect();
            if of.len() >= count {
                return of;
            }
            engine.clock().advance(Millis(10));
            engine.look();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(30), found).await;
    found.unwrap_or_else(|_| panic!("{kind} is not there {count} times"))
}

/// S0-49, S0-52, C7: nine working hours from a Friday afternoon end on Monday afternoon, an hour earlier by the sun than they would
/// have before the clocks changed. Each step is one event at its instant, also the second reminder and what came due while no
/// server ran; what expired is kept, shown as expired, reopened, and decided.
#[tokio::test]
async fn a_hold_lives_by_working_hours_over_the_change_of_clocks() {
    let site = Site::new();
    let engine = server(&site, FRIDAY);
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let view = engine.reads().hold(&who("alice"), hold).await.unwrap();
    let asked = view.open.unwrap();
    assert_eq!((asked.remind_at, view.row.expires_at), (Some(REMINDED), Some(EXPIRED)));
    assert_eq!(asked.escalations[0].at, ESCALATED);

    wait_for(&engine, REMINDED);
    let reminded = told(&engine, run, "hold.reminded", 1).await;
    assert!(
        matches!(&reminded[0].event, Event::HoldReminded(one) if is_at(one.next_at, REMINDED_AGAIN)),
        "{reminded:?}"
    );
    let next = open(&engine, hold).await.remind_at;
    assert!(is_at(next, REMINDED_AGAIN), "two working hours, not a weekend: {next:?}");
    engine.die().await;
    drop(engine);

    // Both came due while no server ran.
    let engine = server(&site, REMINDED_AGAIN.plus(Millis::seconds(60)));
    assert_eq!(told(&engine, run, "hold.escalated", 1).await.len(), 1);
    assert_eq!(told(&engine, run, "hold.reminded", 2).await.len(), 2);
    let now = open(&engine, hold).await;
    assert_eq!((now.escalated.len(), now.escalations.len(), now.expired_at), (1, 0, None));

    wait_for(&engine, EXPIRED);
    told(&engine, run, "hold.expired", 1).await;
    let view = engine.reads().hold(&who("alice"), hold).await.unwrap();
    assert!(is_at(view.row.expired_at, EXPIRED), "kept, and shown as expired: {:?}", view.row.expired_at);
    let reopen = Adjustment::Reopen { expires_at: None };
    let reopened = HoldAdjustment { hold, what: reopen, once: None };
    assert_eq!(engine.submit().adjust(&who("alice"), reopened).await, Ok(Answer::Done));
    let approve = crate::decision(hold, standfast_core::command::Choice::Approve);
    assert_eq!(engine.submit().decide(&who("alice"), approve).await, Ok(Answer::Done));
    until(&engine, run, COMPLETED).await;
    assert!(!engine.reads().hold(&who("alice"), hold).await.unwrap().late, "it was reopened before");
    for kind in ["hold.escalated", "hold.expired", "hold.reopened"] {
        assert_eq!(told(&engine, run, kind, 1).await.len(), 1, "{kind}: each step is done once");
    }
    engine.die().await;
}
