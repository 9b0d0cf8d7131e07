//! A random command for a run: mostly something that its state invites, sometimes anything.
//!
//! What the rules refuse makes no batch, so most choices lean towards what will be taken.

use standfast_core::body::Body;
use standfast_core::command::{
    Choice, ClaimRun, Command, Decide, Edit, FailKind, FailRun, FinishCall, OnHold, Propose, RecordFailure,
    Resolve, Say, SuspendFor,
};
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Envelope, OrphanCause};
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::CallNo;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, ToolResult};
use standfast_core::run::{Call, CallState, Run, Stage};
use standfast_core::time::{Millis, Timestamp};

use super::super::random::Random;
use super::super::support::{
    LOOKUP, NODE, OTHER_NODE, SHELL, asked, begin, stored_call, suspend, user, worker,
};
use crate::conformance::support::model_reply;

/// A random command for this run, whose log is given.
pub(super) fn some_command(random: &mut Random, run: &Run, events: &[Envelope], now: Timestamp) -> Command {
    if run.outcome().is_some() {
        return match random.below(3) {
            0 => Command::Erase { reason: None },
            1 => some_call(random, run).map_or(Command::Tick, |call| finish(random, &call)),
            _ => Command::Cancel { reason: None },
        };
    }
    if random.one_in(6) {
        return by_anyone(random, run);
    }
    if let (Some(hold), true) = (some_hold(random, run), random.one_in(2)) {
        return about_hold(random, run, &hold, now);
    }
    match run.state.stage {
        Stage::Thinking { .. } => while_thinking(random, run, now),
        Stage::Acting if run.facts.driver == Driver::Outside => by_the_worker(random, run, now),
        Stage::Acting => match some_call(random, run) {
            Some(call) => about_call(random, &call, events, now),
            None => Command::Tick,
        },
        Stage::Ended(_) => Command::Tick,
    }
}

fn some_hold(random: &mut Random, run: &Run) -> Option<Hold> {
    let holds = &run.state.holds;
    (!holds.is_empty()).then(|| random.pick(holds).clone())
}

fn some_call(random: &mut Random, run: &Run) -> Option<Call> {
    let calls = &run.state.calls;
    (!calls.is_empty()).then(|| random.pick(calls).clone())
}

fn by_anyone(random: &mut Random, run: &Run) -> Command {
    let message = Message::text("wait");
    match random.below(12) {
        0 => Command::Cancel { reason: Some("enough".into()) },
        1 => Command::Repin { definition: Digest([5; 32]) },
        2 => suspend(0, 0, SuspendFor::Input),
        3 | 4 => Command::Say(Say { message, on_hold: OnHold::Supersede }),
        5 => Command::Fail(FailRun {
            worker: None,
            error: "panic".into(),
            detail: None,
            kind: FailKind::Final,
            heard: None,
        }),
        6 => Command::Repin { definition: run.state.definition },
        7..=9 => Command::Say(Say { message, on_hold: OnHold::Refuse }),
        _ => Command::Tick,
    }
}

fn about_hold(random: &mut Random, run: &Run, hold: &Hold, now: Timestamp) -> Command {
    let digest = run.call(hold.call()).and_then(|call| call.digest);
    let seen = Decide { hold: hold.key, digest, revision: Some(hold.revision) };
    let arguments = RawJson::parse(&format!(r#"{{"edited": {}}}"#, random.below(9))).unwrap();
    let value = if random.one_in(4) { super::large() } else { Body::text("yes") };
    let (deny, fail) =
        (Choice::Deny { reason: Some("no".into()) }, Choice::Fail { error: Body::text("exit 1") });
    let resolution = match (hold.kind, random.below(3)) {
        (HoldKind::Approval, 0) => Choice::ApproveEdited { arguments: arguments.clone() },
        (HoldKind::Approval | HoldKind::Recovery, 1) => Choice::Approve,
        (HoldKind::External | HoldKind::Auth, 1) => fail,
        (HoldKind::External, 2) => Choice::Withdraw,
        (HoldKind::Approval | HoldKind::Input | HoldKind::Auth | HoldKind::Recovery, 2) => deny,
        (
            HoldKind::Approval | HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery,
            _,
        ) => Choice::Answer { value },
    };
    let call = hold.call();
    match random.below(10) {
        0 => Command::Edit(Edit { decide: seen, arguments }),
        1 => Command::Assign { hold: hold.key, to: random.one_in(2).then(|| user("dora")), until: None },
        2 => Command::Reopen { hold: hold.key, expires_at: Some(now.plus(Millis::seconds(90))) },
        3 => Command::Vote(seen),
        4 => Command::Progress { call, note: Body::text("half"), processing: Some(random.one_in(2)) },
        _ => Command::Resolve(Resolve { decide: seen, resolution, idempotency_key: None, message: None }),
    }
}

fn while_thinking(random: &mut Random, run: &Run, now: Timestamp) -> Command {
    if random.one_in(6) {
        let retry_at = Some(now.plus(Millis::seconds(3)));
        return Command::RecordFailure(RecordFailure {
            error: Body::text("overloaded"),
            retry_at,
            heard: None,
        });
    }
    if random.one_in(8) {
        return Command::Claim(ClaimRun::Node);
    }
    let calls = (0..random.below(4)).map(|_| match random.below(8) {
        0 => asked("nonsense", "{}"),
        1 => asked(SHELL, "not json"),
        2..=4 => asked(SHELL, r#"{"n": 9007199254740993, "s":"é\u00e9"}"#),
        _ => asked(LOOKUP, "{}"),
    });
    model_reply(run, calls.collect())
}

fn about_call(random: &mut Random, call: &Call, events: &[Envelope], now: Timestamp) -> Command {
    let (no, attempt) = (call.no, call.attempt);
    match (call.state, random.below(6)) {
        (CallState::Ready, 0) => suspend(no.0, attempt, SuspendFor::External),
        (CallState::Ready, _) if stored_call(events, no).is_some() => begin(events, no, now),
        (CallState::Started { .. }, 0) => Command::Return { call: no, attempt },
        (CallState::Started { .. }, 1) => {
            let kinds = [SuspendFor::Input, SuspendFor::External, SuspendFor::Auth];
            suspend(no.0, attempt, *random.pick(&kinds))
        }
        (CallState::Started { .. }, 2) => Command::Orphan {
            call: no,
            attempt,
            node: *random.pick(&[NODE, OTHER_NODE]),
            why: OrphanCause::ServerLost,
            reconciled: None,
        },
        (CallState::Started { .. }, _) => finish(random, call),
        (CallState::Ready | CallState::Held | CallState::Done(_), _) => Command::Tick,
    }
}

fn finish(random: &mut Random, call: &Call) -> Command {
    let result = match random.below(4) {
        0 => ToolResult::Failed(Body::text("exit 1")),
        1 => ToolResult::Ok(super::large()),
        _ => ToolResult::Ok(Body::text("ok")),
    };
    let worker = Some(worker("w-1"));
    Command::FinishCall(FinishCall { call: call.no, attempt: call.attempt, result, worker })
}

fn by_the_worker(random: &mut Random, run: &Run, now: Timestamp) -> Command {
    let worker = worker("w-1");
    if run.state.claim.is_none() {
        return Command::Claim(ClaimRun::Worker { worker, period: Millis::seconds(60) });
    }
    if let (Some(call), true) = (some_call(random, run), random.one_in(2)) {
        return finish(random, &call);
    }
    let kind = match random.below(4) {
        0 => FailKind::Final,
        1 => FailKind::Rejected,
        _ => FailKind::Transient { retry_at: now.plus(Millis::seconds(1)) },
    };
    match random.below(12) {
        0 => Command::Release { worker },
        1 => Command::Fail(FailRun {
            worker: Some(worker),
            error: "oops".into(),
            detail: None,
            kind,
            heard: None,
        }),
        2 => Command::Finish { worker, result: super::large() },
        3 => Command::Heartbeat { worker },
        4 => suspend(CallNo::RUN.0, 0, SuspendFor::Input),
        5..=7 => Command::Propose(Propose { worker, call: asked(LOOKUP, "{}"), context: None, schema: None }),
        _ => Command::Propose(Propose { worker, call: asked(SHELL, "{}"), context: None, schema: None }),
    }
}
