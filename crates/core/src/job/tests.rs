//! Jobs as the log tells them: from the start on, through every way in which one can end.
//!
//! Runs come from `testing.rs`.

use super::*;
use crate::actor::Actor;
use crate::command::{Begin, Choice, Command, Suspend, SuspendFor};
use crate::id::Secret;
use crate::testing::{NODE, Story, suspension, user};
use crate::time::Millis;

const SECRET: Secret = Secret([7; 16]);

fn key() -> HoldKey {
    HoldKey { call: CallNo(1), secret: SECRET }
}

/// A run whose call is approved and started, with the id on record.
fn starting() -> Story {
    let mut story = Story::new();
    story.replies("", &[("write", r#"{"n":1}"#)]);
    story.decides(1, Choice::Approve);
    begins(&mut story, SECRET);
    story
}

fn begins(story: &mut Story, secret: Secret) {
    let stored = stored_call(&story.events, CallNo(1)).unwrap();
    let start_by = story.now.plus(Millis::seconds(10));
    let begin = Begin { call: CallNo(1), node: NODE, start_by, stored, pending: Some(secret) };
    story.by(Actor::Node(NODE), Command::Begin(begin));
}

fn waiting() -> Story {
    let mut story = starting();
    let ask = Ask { external_ref: Some("job-7".into()), ..Ask::default() };
    let suspend =
        Suspend { attempt: 1, ask, secret: Some(SECRET), ..suspension(CallNo(1), SuspendFor::External) };
    story.by(Actor::Node(NODE), Command::Suspend(suspend));
    story
}

fn job(story: &Story) -> Job {
    let mut jobs = jobs(&story.events);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.remove(0)
}

fn end(story: &Story) -> JobEnd {
    match job(story).stands {
        JobProgress::Over { end, .. } => end,
        open @ (JobProgress::Starting | JobProgress::Waiting { .. } | JobProgress::Unknown { .. }) => {
            panic!("{open:?}")
        }
    }
}

/// S2-9, S2-36, S2-28: the id is on record before it is sent outside, and the hold has the same one.
#[test]
fn a_job_is_there_before_anybody_hears_of_it() {
    let started = job(&starting());
    assert_eq!((started.key, &started.stands), (key(), &JobProgress::Starting));
    assert_eq!(started.arguments.as_deref(), Some(r#"{"n":1}"#));
    let now = job(&waiting());
    assert_eq!((now.key, &now.stands), (key(), &JobProgress::Waiting { processing: false }));
    assert_eq!(now.ask.external_ref.as_deref(), Some("job-7"));
    assert_eq!(now.created_at, started.created_at);
    assert_eq!(now.expires_at.map(|at| at.since(now.created_at).0 > 86_000_000), Some(true));
}

/// S2-4: waiting, processing, and back.
#[test]
fn the_outside_says_that_it_works_on_it() {
    let mut story = waiting();
    for processing in [true, false] {
        let note = Body::text("half way");
        let progress = Command::Progress { call: CallNo(1), note, processing: Some(processing) };
        story.by(Actor::Callback(user("ci")), progress);
        let job = job(&story);
        assert_eq!(job.stands, JobProgress::Waiting { processing });
        assert!(job.started_at.is_some() && job.heard_at >= job.started_at);
    }
}

/// S2-4, C37: each way to end.
#[test]
fn a_job_ends() {
    let (value, error) = (Body::text("done"), Body::text("broke"));
    for (wanted, expected) in [
        (Choice::Answer { value: value.clone() }, JobEnd::Result(value.clone())),
        (Choice::Fail { error: error.clone() }, JobEnd::Failed(error.clone())),
        (Choice::Withdraw, JobEnd::Withdrawn),
    ] {
        let mut story = waiting();
        story.decides(1, wanted);
        assert_eq!(end(&story), expected);
    }
    let mut story = waiting();
    story.now = story.now.plus(Millis::hours(25));
    story.by(Actor::Clock, Command::Tick);
    assert_eq!(end(&story), JobEnd::Expired);
    let mut story = waiting();
    story.is_canceled();
    assert_eq!(end(&story), JobEnd::RunEnded);
}

/// F8: whoever started it died before the hold was there. Its result is still welcome, until a person has decided.
#[test]
fn a_job_of_which_nobody_knows_whether_it_began() {
    let mut lost = starting();
    lost.loses(1);
    assert_eq!(job(&lost).stands, JobProgress::Unknown { attempt: 1 });

    let mut reported = lost.clone();
    reported.finishes(1, ToolResult::Ok(Body::text("done")));
    assert_eq!(end(&reported), JobEnd::Result(Body::text("done")));

    let mut denied = lost.clone();
    denied.decides(1, Choice::Deny { reason: None });
    assert!(matches!(end(&denied), JobEnd::Abandoned(_)));

    let mut again = lost.clone();
    again.decides(1, Choice::Approve);
    begins(&mut again, Secret([8; 16]));
    let jobs = jobs(&again.events);
    assert!(!jobs[0].is_open() && jobs[1].stands == JobProgress::Starting);

    lost.is_canceled();
    assert_eq!(end(&lost), JobEnd::RunEnded);
}

/// A start that was given back told nobody, and a job that finished at once needs no hold.
#[test]
fn a_job_that_never_waited() {
    let mut story = starting();
    story.gives_back(1);
    assert!(jobs(&story.events).is_empty());
    let mut story = starting();
    story.finishes(1, ToolResult::Failed(Body::text("no")));
    assert_eq!(end(&story), JobEnd::Failed(Body::text("no")));
}
