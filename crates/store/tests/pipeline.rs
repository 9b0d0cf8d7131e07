//! The pipeline: what is pushed ahead leaves exactly the log that the same commands leave one by one,
//! whatever the store does meanwhile.
//!
//! Appends fail before and after writing, reads are lost, other writers sneak in. Nothing is lost, doubled, reported
//! twice or told before it is durable.

#![expect(clippy::unwrap_used, reason = "helpers of tests; clippy allows it only inside test functions")]

#[path = "scenario_runner/block_on.rs"]
mod block_on;
mod pipeline_support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use standfast_core::actor::Actor;
use standfast_core::command::{AskedCall, Choice, Command, Decide, OnHold, RecordReply, Resolve, Say};
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{RunId, Seq};
use standfast_core::link::{FIRST_PREVIOUS, Link};
use standfast_core::message::{Message, ToolResult, Usage};
use standfast_core::run::Run;
use standfast_store::memory::MemoryStore;
use standfast_store::pipeline::{Order, Pipeline, SettledOrder, Settlement, Writes};
use standfast_store::{Guard, RunStore, SideWrite, StoreError};

use block_on::block_on;
use pipeline_support::faulty::{Fault, Faulty, Pace, Plan, Sneak};
use pipeline_support::script::{
    BEGINNING, NODE, People, Script, events, first_order, links, next_order, order, user,
};

/// A pipeline that begins the script's run on this store.
fn begin(script: &Script, store: &Arc<Faulty>) -> Pipeline {
    Pipeline::start(store.clone(), script.start.clone(), first_order()).unwrap()
}

/// Settles until nothing is left, however often the store fails.
fn settle_all(pipeline: &mut Pipeline, done: &mut Vec<SettledOrder>) {
    for _ in 0..500 {
        let settlement = block_on(pipeline.settle());
        done.extend(settlement.done);
        if settlement.failed.is_none() {
            return;
        }
    }
    panic!("it never settles");
}

/// Polls a settling so many times and then lets go of it; its outcome if it ended before.
fn settle_for(pipeline: &mut Pipeline, polls: usize) -> Option<Settlement> {
    let mut settling = pin!(pipeline.settle());
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match settling.as_mut().poll(&mut context) {
        Poll::Ready(settlement) => Some(settlement),
        Poll::Pending => None,
    })
}

/// Pushes all orders ahead in groups, with one attempt to settle after each, and settles the rest in the end.
fn play_ahead(script: &Script, groups: &[u8], store: &Arc<Faulty>) -> Vec<SettledOrder> {
    let mut pipeline = begin(script, store);
    let mut done = Vec::new();
    let mut sizes = groups.iter().cycle();
    let mut left = 0;
    for order in &script.orders {
        if left == 0 {
            left = 1 + sizes.next().map_or(0, |size| size % 6);
            done.extend(block_on(pipeline.settle()).done);
        }
        pipeline.push(order.clone());
        left -= 1;
    }
    settle_all(&mut pipeline, &mut done);
    done
}

fn hashes(links: &[Link]) -> Vec<Digest> {
    links.iter().map(|link| link.hash).collect()
}

/// (a) Everything in the air at once leaves the same links as one by one.
#[test]
fn commands_pushed_ahead_leave_the_same_links() {
    let choices: Vec<u8> = (0..120u8).map(|n| n.wrapping_mul(37).wrapping_add(n / 7)).collect();
    let script = Script::new(&choices, People::Decide);
    let store = Arc::new(Faulty::new(Plan::default()));
    let mut pipeline = begin(&script, &store);
    script.orders.iter().for_each(|order| pipeline.push(order.clone()));
    let settlement = block_on(pipeline.settle());
    assert_eq!(settlement.failed, None);
    assert_eq!(settlement.done, script.settled);
    assert_eq!(hashes(&links(&*store.inner, script.start.id)), hashes(&script.links));
    let kinds: Vec<&str> = settlement.done.iter().flat_map(|s| &s.events).map(|e| e.event.kind()).collect();
    for kind in
        ["model.replied", "call.started", "call.finished", "hold.opened", "hold.resolved", "message.queued"]
    {
        assert!(kinds.contains(&kind), "the script has no {kind}");
    }
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        3 => Just(Fault::None),
        1 => Just(Fault::Unavailable),
        1 => Just(Fault::AnswerLost),
        1 => Just(Fault::NeverArrived),
    ];
    prop::collection::vec(fault, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// (b) Whatever fails, the log is the one that the same commands leave one by one, and every outcome is told
    /// once and in order.
    #[test]
    fn faults_change_nothing(
        choices in prop::collection::vec(any::<u8>(), 1..40),
        groups in prop::collection::vec(any::<u8>(), 1..8),
        appends in faults(),
        reads_lost in prop::collection::vec(prop::bool::weighted(0.4), 0..40),
    ) {
        let script = Script::new(&choices, People::Decide);
        let plan = Plan { appends: appends.into(), reads_lost: reads_lost.into(), ..Plan::default() };
        let store = Arc::new(Faulty::new(plan));
        let done = play_ahead(&script, &groups, &store);
        prop_assert_eq!(done, script.settled);
        prop_assert_eq!(hashes(&links(&*store.inner, script.start.id)), hashes(&script.links));
    }

    /// (f) The same with clients that go away again and again, wherever they wait.
    #[test]
    fn clients_that_go_away_change_nothing(
        choices in prop::collection::vec(any::<u8>(), 1..30),
        appends in faults(),
        reads_lost in prop::collection::vec(prop::bool::weighted(0.3), 0..20),
        drops in prop::collection::vec(1usize..6, 1..12),
    ) {
        let script = Script::new(&choices, People::Decide);
        let plan = Plan {
            appends: appends.into(),
            reads_lost: reads_lost.into(),
            pace: Pace::WhenAskedAgain,
            ..Plan::default()
        };
        let store = Arc::new(Faulty::new(plan));
        let mut pipeline = begin(&script, &store);
        let mut done = Vec::new();
        for (order, polls) in script.orders.iter().zip(drops.iter().cycle()) {
            pipeline.push(order.clone());
            done.extend(settle_for(&mut pipeline, *polls).into_iter().flat_map(|settlement| settlement.done));
        }
        settle_all(&mut pipeline, &mut done);
        prop_assert_eq!(done, script.settled);
        prop_assert_eq!(hashes(&links(&*store.inner, script.start.id)), hashes(&script.links));
    }

    /// (c) Others write in between: what lost a race is decided again, and no reply and no result is lost or doubled
    /// unless the run ended.
    #[test]
    fn foreign_writers_cost_nothing(
        choices in prop::collection::vec(any::<u8>(), 1..40),
        group in 1usize..6,
        appends in faults(),
        sneaks in prop::collection::vec(0u8..8, 0..40),
    ) {
        let script = Script::new(&[], People::Approve);
        let run = script.start.id;
        let sneaks = sneaks.into_iter().enumerate().map(|(at, kind)| foreign(run, at, kind)).collect();
        let store = Arc::new(Faulty::new(Plan { appends: appends.into(), sneaks, ..Plan::default() }));
        let mut pipeline = begin(&script, &store);
        let (mut done, mut pushed) = (Vec::new(), Vec::new());
        settle_all(&mut pipeline, &mut done);
        for (at, choice) in choices.iter().enumerate() {
            let mut order = next_order(pipeline.tip().unwrap(), at, *choice, People::Approve);
            if matches!(order.commands[..], [Command::RecordReply(_)]) || at % group == 0 {
                settle_all(&mut pipeline, &mut done);
                order = next_order(pipeline.tip().unwrap(), at, *choice, People::Approve);
            }
            pushed.push(PushRecord { at, is_due: is_due(pipeline.tip().unwrap(), &order) });
            pipeline.push(order);
        }
        settle_all(&mut pipeline, &mut done);
        check_log(&store.inner, run, &done, &pushed)?;
    }
}

/// Settles with a client that goes away after so many looks, pushing the rest of the orders then; says whether it got that far.
fn play_with_one_who_leaves(
    script: &Script,
    plan: Plan,
    polls: usize,
) -> (Arc<Faulty>, Vec<SettledOrder>, bool) {
    let store = Arc::new(Faulty::new(Plan { pace: Pace::WhenAskedAgain, ..plan }));
    let mut pipeline = begin(script, &store);
    let half = script.orders.len() / 2;
    script.orders[..half].iter().for_each(|order| pipeline.push(order.clone()));
    let mut done = Vec::new();
    let left_early = match settle_for(&mut pipeline, polls) {
        Some(settlement) => {
            done.extend(settlement.done);
            false
        }
        None => true,
    };
    script.orders[half..].iter().for_each(|order| pipeline.push(order.clone()));
    settle_all(&mut pipeline, &mut done);
    (store, done, left_early)
}

/// (f) Whoever settles may go away wherever it waits: for an answer, for the look after one that was lost, for those behind
/// it, for the run to be loaded again. Nothing is lost, written twice or told twice, and more can be pushed meanwhile.
#[test]
fn settling_can_be_dropped_wherever_it_waits() {
    let script = Script::new(&(0..24u8).map(|n| n.wrapping_mul(37)).collect::<Vec<_>>(), People::Decide);
    use Fault::{AnswerLost, NeverArrived, None as Fine, Unavailable};
    let plans: [&[Fault]; 5] = [
        &[],
        &[Fine, AnswerLost, Fine, AnswerLost],
        &[Fine, Fine, NeverArrived, Fine, Fine, Fine, NeverArrived],
        &[Unavailable, Fine, Fine, Unavailable, AnswerLost, NeverArrived],
        &[AnswerLost, AnswerLost, AnswerLost, NeverArrived, AnswerLost],
    ];
    for (number, appends) in plans.iter().enumerate() {
        for reads_lost in [vec![], vec![true], vec![false, true, true]] {
            for polls in 1.. {
                let plan = Plan {
                    appends: appends.iter().copied().collect(),
                    reads_lost: reads_lost.clone().into(),
                    ..Plan::default()
                };
                let (store, done, left_early) = play_with_one_who_leaves(&script, plan, polls);
                let what = format!("plan {number}, lost reads {reads_lost:?}, dropped after {polls} polls");
                assert_eq!(done, script.settled, "{what}");
                assert_eq!(hashes(&links(&*store.inner, script.start.id)), hashes(&script.links), "{what}");
                if !left_early {
                    break;
                }
            }
        }
    }
}

/// (f) The same while others write in between, so that what was in the air is decided again.
#[test]
fn settling_that_lost_a_race_can_be_dropped_wherever_it_waits() {
    for polls in 1.. {
        let script = Script::new(&[], People::Approve);
        let run = script.start.id;
        let sneaks = [None, None, foreign(run, 2, 3), None, foreign(run, 4, 3)].into();
        let plan = Plan { sneaks, pace: Pace::WhenAskedAgain, ..Plan::default() };
        let store = Arc::new(Faulty::new(plan));
        let mut pipeline = begin(&script, &store);
        for at in 0..4 {
            pipeline.push(order(at, Actor::Client(user("client")), say(&format!("ours-{at}"))));
        }
        let settled = settle_for(&mut pipeline, polls);
        let left_early = settled.is_none();
        let mut done = settled.map(|settlement| settlement.done).unwrap_or_default();
        pipeline.push(order(4, Actor::Client(user("client")), say("ours-4")));
        settle_all(&mut pipeline, &mut done);
        assert_eq!(done.len(), 6, "dropped after {polls} polls: {done:?}");
        let said: Vec<String> = events(&*store.inner, run).iter().filter_map(heard).collect();
        let ours: Vec<&String> = said.iter().filter(|text| text.starts_with("ours")).collect();
        assert_eq!(ours, ["ours-0", "ours-1", "ours-2", "ours-3", "ours-4"], "dropped after {polls} polls");
        assert_eq!(said.iter().filter(|text| text.starts_with("foreign")).count(), 2, "{said:?}");
        if !left_early {
            break;
        }
    }
}

/// An order, and whether it brings a reply or a result that the run waits for.
struct PushRecord {
    at: usize,
    is_due: bool,
}

fn is_due(tip: &Run, order: &Order) -> bool {
    if tip.outcome().is_some() {
        return false;
    }
    match &order.commands[..] {
        [Command::RecordReply(_)] => true,
        [Command::FinishCall(finish)] => {
            tip.call(finish.call).is_some_and(|call| call.attempt == finish.attempt)
        }
        _ => false,
    }
}

/// Somebody else does something to the run, if it exists and takes it.
fn foreign(run: RunId, at: usize, kind: u8) -> Option<Sneak> {
    let sneak = move |store: Arc<MemoryStore>| {
        let Ok(stored) = block_on(store.load(run)) else { return };
        let holds = &stored.row.run.state.holds;
        let approval = holds.iter().find(|hold| hold.kind == HoldKind::Approval).map(|hold| hold.key);
        let (actor, command) = match (kind, approval) {
            (0, _) => (Actor::Client(user("boss")), Command::Cancel { reason: Some("enough".into()) }),
            (1 | 2, Some(hold)) => {
                let decide = Decide { hold, digest: None, revision: None };
                let resolve =
                    Resolve { decide, resolution: Choice::Approve, idempotency_key: None, message: None };
                (Actor::Person(user("bob")), Command::Resolve(resolve))
            }
            (_, _) => (Actor::Client(user("visitor")), say(&format!("foreign-{at}"))),
        };
        let mut pipeline = Pipeline::of(store, stored.row);
        pipeline.push(order(1000 + at, actor, command));
        assert_eq!(block_on(pipeline.settle()).failed, None);
    };
    // Most appends meet nobody, and few are canceled.
    let comes = kind < 4 && (kind != 0 || at.is_multiple_of(5));
    comes.then(|| Box::new(sneak) as Sneak)
}

fn say(text: &str) -> Command {
    Command::Say(Say { message: Message::text(text), on_hold: OnHold::Refuse })
}

fn check_log(
    store: &MemoryStore,
    run: RunId,
    done: &[SettledOrder],
    pushed: &[PushRecord],
) -> Result<(), TestCaseError> {
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    for link in links(store, run) {
        prop_assert_eq!(link.verify(previous, next), Ok(()));
        (previous, next) = (link.hash, link.next());
    }
    let log = events(store, run);
    prop_assert_eq!(done.len(), pushed.len() + 1, "each order is told once");
    let was_canceled = log.iter().any(|envelope| matches!(envelope.event, Event::RunEnded(_)));
    for (order, settled) in pushed.iter().zip(&done[1..]) {
        for told in &settled.events {
            let at = usize::try_from(told.seq.0).unwrap() - 1;
            prop_assert_eq!(log.get(at), Some(told), "what is told is what is written");
        }
        let brought = log.iter().filter(|envelope| brings(envelope, order.at)).count();
        prop_assert_eq!(brought, usize::from(settled.events.iter().any(|told| brings(told, order.at))));
        if order.is_due && !was_canceled {
            prop_assert!(settled.outcome.is_ok() && brought == 1, "order {} was lost: {settled:?}", order.at);
        }
    }
    Ok(())
}

/// Whether an event carries the reply or the result of this order.
fn brings(envelope: &Envelope, at: usize) -> bool {
    let is = |text: Option<&str>, what: &str| text == Some(format!("{what}-{at}").as_str());
    if let Event::ModelReplied(replied) = &envelope.event {
        is(replied.reply.text.as_ref().and_then(|text| text.inline()), "reply")
    } else if let Event::CallFinished(finished) = &envelope.event
        && let ToolResult::Ok(body) = &finished.result
    {
        is(body.inline(), "result")
    } else if let Event::HoldResolved(resolved) = &envelope.event
        && let Resolution::Answer { value } = &resolved.resolution
    {
        is(value.inline(), "result")
    } else {
        false
    }
}

/// (c) A foreign link with as many events as ours is distinguished by its hash.
#[test]
fn a_foreign_link_of_the_same_length_is_a_conflict() {
    let script = Script::new(&[], People::Approve);
    let run = script.start.id;
    let sneaks = [None, foreign(run, 1, 3)].into();
    let store = Arc::new(Faulty::new(Plan { sneaks, ..Plan::default() }));
    let mut pipeline = begin(&script, &store);
    pipeline.push(order(0, Actor::Client(user("client")), say("ours")));
    pipeline.push(order(1, Actor::Client(user("client")), say("ours too")));
    let settlement = block_on(pipeline.settle());
    assert_eq!((settlement.failed, settlement.done.len()), (None, 3));
    let said: Vec<String> = events(&*store.inner, run).iter().filter_map(heard).collect();
    assert_eq!(said, ["go", "foreign-1", "ours", "ours too"]);
}

fn heard(envelope: &Envelope) -> Option<String> {
    let (Event::MessageReceived(received) | Event::MessageQueued(received)) = &envelope.event else {
        return None;
    };
    Some(received.message.words())
}

/// (b) An order that writes nothing between two whose answers were lost is told once, and nothing is written twice.
#[test]
fn a_refusal_between_two_lost_answers_is_told_once() {
    let script = Script::new(&[], People::Approve);
    let appends = [Fault::None, Fault::AnswerLost, Fault::AnswerLost].into();
    // Both appends are written, but neither the answers nor the first look come back.
    let store = Arc::new(Faulty::new(Plan { appends, reads_lost: [true].into(), ..Plan::default() }));
    let mut pipeline = begin(&script, &store);
    pipeline.push(order(0, Actor::Client(user("client")), say("one")));
    pipeline.push(order(1, Actor::Clock, Command::Tick));
    pipeline.push(order(2, Actor::Client(user("client")), say("two")));
    let first = block_on(pipeline.settle());
    assert_eq!(first.done.len(), 1);
    assert!(matches!(first.failed, Some(StoreError::Unknown { .. })), "{:?}", first.failed);
    let second = block_on(pipeline.settle());
    assert_eq!((second.failed, second.done.len()), (None, 3));
    let said: Vec<String> = events(&*store.inner, script.start.id).iter().filter_map(heard).collect();
    assert_eq!(said, ["go", "one", "two"]);
}

/// (c) A reply that was thought of while the reply before it was not durable yet is not lost to a message that sneaks
/// in below both, and the message is still to be heard.
#[test]
fn a_reply_on_top_of_a_reply_survives_a_foreign_message() {
    let script = Script::new(&[], People::Approve);
    let run = script.start.id;
    let sneaks = [None, foreign(run, 1, 3)].into();
    let store = Arc::new(Faulty::new(Plan { sneaks, ..Plan::default() }));
    let mut pipeline = begin(&script, &store);
    assert_eq!(block_on(pipeline.settle()).failed, None);
    for (at, tool) in ["no-such-tool", ""].into_iter().enumerate() {
        let call = |tool: &str| AskedCall {
            id: String::new(),
            tool: tool.into(),
            arguments: "{}".into(),
            problem: None,
        };
        let reply = RecordReply {
            text: Some(format!("reply-{at}")),
            parts: Vec::new(),
            calls: (!tool.is_empty()).then(|| call(tool)).into_iter().collect(),
            opaque: None,
            usage: Usage::default(),
            model: None,
            heard: pipeline.tip().unwrap().heard(),
        };
        pipeline.push(order(at, Actor::Node(NODE), Command::RecordReply(reply)));
    }
    let settlement = block_on(pipeline.settle());
    let log = events(&*store.inner, run);
    assert!(settlement.done.iter().all(|settled| settled.outcome.is_ok()), "{:?}", settlement.done);
    assert!((0..2).all(|at| log.iter().any(|envelope| brings(envelope, at))), "{log:?}");
    assert_eq!(pipeline.tip().unwrap().outcome(), None, "the message is still to be heard");
}

/// A refusal is told only of what is still true: what somebody else appended since is looked at first.
#[test]
fn a_refusal_on_stale_state_is_decided_again() {
    let script = Script::new(&[], People::Approve);
    let store = Arc::new(Faulty::new(Plan::default()));
    let mut pipeline = begin(&script, &store);
    assert_eq!(block_on(pipeline.settle()).failed, None);
    let mut other = Pipeline::of(store.clone(), pipeline.durable().unwrap().clone());
    other.push(order(1, Actor::Client(user("client")), Command::Cancel { reason: None }));
    assert_eq!(block_on(other.settle()).failed, None);
    pipeline.push(order(2, Actor::Client(user("client")), Command::Erase { reason: None }));
    let settlement = block_on(pipeline.settle());
    assert!(settlement.done[0].outcome.is_ok(), "the run had ended meanwhile: {:?}", settlement.done);
}

/// (d) When a guard does not hold, the orders from there on come back, and what was below them counts.
#[test]
fn orders_behind_a_guard_that_does_not_hold_come_back() {
    let script = Script::new(&[], People::Approve);
    let run = script.start.id;
    let store = Arc::new(Faulty::new(Plan::default()));
    let mut pipeline = begin(&script, &store);
    let with_key = |at: usize, text: &str| {
        let writes = Writes {
            guards: vec![Guard::KeyUnused { key: "once".into() }],
            puts: vec![SideWrite::Key {
                key: "once".into(),
                request: Digest::default(),
                expires_at: BEGINNING,
            }],
            ..Writes::default()
        };
        Order { writes, ..order(at, Actor::Client(user("client")), say(text)) }
    };
    pipeline.push(with_key(0, "first"));
    pipeline.push(with_key(1, "second"));
    pipeline.push(order(2, Actor::Client(user("client")), say("third")));
    let settlement = block_on(pipeline.settle());
    assert_eq!(settlement.done.len(), 2);
    assert!(matches!(settlement.failed, Some(StoreError::Guard { which: 0, .. })), "{:?}", settlement.failed);
    let back = pipeline.take_back();
    assert_eq!(back.len(), 2);
    assert_eq!(pipeline.take_back().len(), 0);
    pipeline.push(back[1].clone());
    let settlement = block_on(pipeline.settle());
    assert_eq!((settlement.failed, settlement.done.len()), (None, 1));
    let said: Vec<String> = events(&*store.inner, run).iter().filter_map(heard).collect();
    assert_eq!(said, ["go", "first", "third"]);
}

/// (e) Nothing is told before the store has acknowledged it: the tip is to plan by, the durable row stays behind.
#[test]
fn nothing_is_told_before_it_is_durable() {
    let script = Script::new(&[], People::Approve);
    let gate = Arc::new(AtomicBool::new(true));
    let store = Arc::new(Faulty::new(Plan { gate: Some(gate.clone()), ..Plan::default() }));
    let mut pipeline = begin(&script, &store);
    assert_eq!(block_on(pipeline.settle()).done.len(), 1);
    gate.store(false, Ordering::Release);
    pipeline.push(order(0, Actor::Client(user("client")), say("one")));
    // Refused on state that is not durable, so this is not told either.
    pipeline.push(order(1, Actor::Client(user("client")), Command::Erase { reason: None }));
    let seq = |pipeline: &Pipeline| pipeline.durable().map(|row| row.run.state.seq);
    let before = seq(&pipeline);
    assert_eq!(pipeline.tip().map(|run| run.state.seq.0), before.map(|seq| seq.0 + 1));
    {
        let mut settling = pin!(pipeline.settle());
        let mut context = Context::from_waker(Waker::noop());
        assert!(settling.as_mut().poll(&mut context).is_pending());
        assert!(settling.as_mut().poll(&mut context).is_pending());
        gate.store(true, Ordering::Release);
        let Poll::Ready(settlement) = settling.as_mut().poll(&mut context) else {
            panic!("the gate is open")
        };
        assert_eq!((settlement.failed, settlement.done.len()), (None, 2));
        assert!(settlement.done[1].outcome.is_err());
    }
    assert_eq!(seq(&pipeline).map(|seq| seq.0), before.map(|seq| seq.0 + 1));
}
