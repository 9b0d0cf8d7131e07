//! Random commands against the rules: mostly what a sensible sender would do next, sometimes nonsense.
//!
//! After every command the invariants of `support/invariants.rs` must hold. `PROPTEST_CASES` makes the run longer.
//! The steps are plain numbers that are read against the state they meet, so that a failing case shrinks well.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use standfast_core::actor::Actor;
use standfast_core::approver::Approver;
use standfast_core::body::Body;
use standfast_core::command::{
    AskedCall, Choice, ClaimRun, Command, Decide, Edit, FailKind, FailRun, OnHold, RecordFailure, Reject,
    Resolve, SuspendFor,
};
use standfast_core::decide::{Answer, Transition};
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Event, OrphanCause, Parent};
use standfast_core::hold::{AfterGrace, Hold, HoldKind, HoldPolicy, OnDeny, OnTimeout};
use standfast_core::id::{CallNo, HoldKey, Secret, Seq};
use standfast_core::json::RawJson;
use standfast_core::link::{Contents, FIRST_PREVIOUS};
use standfast_core::message::ToolResult;
use standfast_core::name::{GrantId, RuleId, ToolName};
use standfast_core::next;
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};
use standfast_core::project::{self, HoldRow};
use standfast_core::refusal::Refusal;
use standfast_core::run::{Call, CallOutcome, CallState, Stage};
use standfast_core::time::Millis;
use support::chain::{broken_links, check_chain, sealed};
use support::decisions::check_decision;
use support::invariants::{Definitions, check_cap, check_invariants, hold_rows};
use support::{
    LOOKUP, NODE, OTHER_NODE, SHELL, Scene, an_agent, asked, person, run_id, say, suspend, suspend_for_child,
    the_worker_proposes, user, with_another_schema, worker,
};

/// Some ten seconds in a debug build.
const USUAL_CASES: u32 = 1500;
/// Below this many cases a rare kind of event may be missed by chance.
const ENOUGH_CASES: u32 = 1000;

#[test]
fn whatever_is_sent_the_invariants_hold_and_every_kind_of_event_is_reached() {
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default().cases,
        None => USUAL_CASES,
    };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4000, ..Config::default() };
    let seen: RefCell<BTreeMap<&str, u32>> = RefCell::default();
    let strategy = (setups(), proptest::collection::vec(steps(), 1..60));
    let outcome = TestRunner::new(config).run(&strategy, |(setup, steps)| {
        let reached = play(&setup, &steps).map_err(TestCaseError::fail)?;
        reached.iter().for_each(|what| *seen.borrow_mut().entry(what).or_default() += 1);
        Ok(())
    });
    eprintln!("reached: {:?}", seen.borrow());
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    let wanted = Event::KINDS.into_iter().chain([TAMPERED, SCHEMA_CHANGED, TOOL_GONE, CHILD_ENDED]);
    let missed: Vec<&str> = wanted.filter(|what| !seen.borrow().contains_key(what)).collect();
    assert!(missed.is_empty() || cases < ENOUGH_CASES, "never reached: {missed:?}");
}

/// The invariants would notice each rule of the core that is switched off.
#[cfg(feature = "mutants")]
#[test]
fn a_rule_that_is_switched_off_is_noticed() {
    use standfast_core::mutant::Mutant;
    for mutant in Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::SequenceUnchecked) {
        let config = Config {
            cases: USUAL_CASES,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..Config::default()
        };
        let strategy = (setups(), proptest::collection::vec(steps(), 1..60));
        let is_noticed = mutant.with(|| {
            let mut runner = TestRunner::new(config);
            let outcome = runner
                .run(&strategy, |(setup, steps)| play(&setup, &steps).map(drop).map_err(TestCaseError::fail));
            outcome.is_err()
        });
        assert!(is_noticed, "{mutant:?} was not noticed");
    }
}

/// How a run and its agent are set up.
#[derive(Debug, Clone)]
struct Setup {
    driver: Driver,
    hold_batch: bool,
    holds: HoldPolicy,
    depth: u32,
    quorum: u32,
    open_holds: usize,
}

/// One command, told in numbers; what they mean depends on the state they meet.
#[derive(Debug, Clone)]
struct Step {
    choice: u16,
    is_noise: bool,
    wait: u8,
    verdicts: [u8; 4],
    who: u8,
    detail: u16,
}

fn setups() -> impl Strategy<Value = Setup> {
    let on_timeout = prop_oneof![
        1 => Just(OnTimeout::Fail),
        1 => Just(OnTimeout::Deny),
        1 => Just(OnTimeout::ResumeWithError),
        1 => Just(OnTimeout::Cancel),
        4 => Just(OnTimeout::Keep),
    ];
    let on_deny = prop_oneof![4 => Just(OnDeny::Continue), 1 => Just(OnDeny::Cancel)];
    let after_grace = prop_oneof![Just(AfterGrace::Fail), Just(AfterGrace::Cancel)];
    let span = |seconds: std::ops::Range<i64>| proptest::option::of(seconds.prop_map(Millis::seconds));
    let spans = (span(1..600), span(1..600), span(1..100), span(1..200));
    let holds = (on_deny, on_timeout, after_grace, spans).prop_map(
        |(on_deny, on_timeout, after_grace, (timeout, grace, remind_after, escalate_after))| HoldPolicy {
            on_deny,
            on_timeout,
            timeout,
            grace,
            after_grace,
            remind_after,
            escalate_after,
            escalate_to: escalate_after.map(|_| Approver::parse("group:ops").unwrap()).into_iter().collect(),
        },
    );
    let driver = prop_oneof![4 => Just(Driver::Loop), 2 => Just(Driver::Outside), 1 => Just(Driver::Gate)];
    let quorum = prop_oneof![3 => Just(1u32), 1 => 2u32..4];
    (driver, proptest::bool::weighted(0.2), holds, 0u32..10, quorum, 1usize..5).prop_map(
        |(driver, hold_batch, holds, depth, quorum, open_holds)| Setup {
            driver,
            hold_batch,
            holds,
            depth: depth.saturating_sub(1),
            quorum,
            open_holds,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    (any::<u16>(), proptest::bool::weighted(0.1), any::<u8>(), any::<[u8; 4]>(), any::<u8>(), any::<u16>())
        .prop_map(|(choice, is_noise, wait, verdicts, who, detail)| Step {
            choice,
            is_noise,
            wait,
            verdicts,
            who,
            detail,
        })
}

/// Plays a case to its end. Says what it reached, or what went wrong.
fn play(setup: &Setup, steps: &[Step]) -> Result<Vec<&'static str>, String> {
    let mut scene = begin(setup);
    let definitions: Definitions = versions(&scene.definition).map(|known| (known.digest(), known)).collect();
    let mut appends = vec![scene.log.clone()];
    let mut rows: Vec<HoldRow> = Vec::new();
    let mut reached = Vec::new();
    check_invariants(&scene.log, &scene.run, &definitions)?;
    for (at, step) in steps.iter().enumerate() {
        scene.definition = definitions[&scene.run.state.definition].clone();
        prepare(&mut scene, setup, step);
        let command = if step.is_noise { noise(&scene, step) } else { sensible(&scene, step) };
        if waits_for_a_child(&scene, &command) && !step.detail.is_multiple_of(4) {
            scene.authority = Some(Role::System);
        }
        let told = |why: String| format!("step {at}: {command:?} at {}: {why}", scene.now.0);
        let decided = scene.decided(&command);
        check_decision(&scene, &command, &decided).map_err(told)?;
        let changes = project::hold_changes(Some(&scene.run), &decided.events, &decided.run);
        hold_rows(&mut rows, changes).map_err(told)?;
        let mut after = scene.clone();
        let _ = after.take(decided.clone());
        check_invariants(&after.log, &after.run, &definitions).map_err(told)?;
        check_cap(&after.run, setup.open_holds).map_err(told)?;
        let open: Vec<HoldRow> = rows.iter().filter(|row| row.closed.is_none()).cloned().collect();
        let wanted: Vec<HoldRow> =
            after.run.state.holds.iter().map(|hold| project::hold_row(&after.run, hold)).collect();
        if open != wanted {
            return Err(told(format!("stored rows {open:?}, open holds {wanted:?}")));
        }
        reached.extend(notable(&scene, &command, &decided));
        if !decided.events.is_empty() {
            appends.push(decided.events);
        }
        scene = after;
    }
    check_chain(&appends, usize::from(steps[0].detail))?;
    reached.extend(scene.log.iter().map(|envelope| envelope.event.kind()));
    Ok(reached)
}

const TAMPERED: &str = "refused: the stored arguments are others";
const SCHEMA_CHANGED: &str = "asked again: the tool changed";
const TOOL_GONE: &str = "refused: the tool is gone";
const CHILD_ENDED: &str = "a sub-run said what it came to";

/// What a case should reach beside every kind of event.
fn notable(scene: &Scene, command: &Command, decided: &Transition) -> Option<&'static str> {
    match (command, &decided.outcome) {
        (Command::Begin(_), Err(Refusal::Tampered { .. })) => Some(TAMPERED),
        (Command::Begin(begin), Ok(Answer::Refused))
            if !scene.definition.tools.contains_key(&begin.stored.tool) =>
        {
            Some(TOOL_GONE)
        }
        (Command::Begin(_), Ok(Answer::Held)) => {
            let rules = &decided.run.state.holds.last()?.rules;
            rules.contains(&RuleId::schema_changed()).then_some(SCHEMA_CHANGED)
        }
        (Command::Resolve(_), Ok(Answer::Done)) if waits_for_a_child(scene, command) => Some(CHILD_ENDED),
        (_, _) => None,
    }
}

/// The agent as it is configured now and then. A run sees another version only when it is moved to it.
fn versions(definition: &Definition) -> impl Iterator<Item = Definition> {
    let plain = Definition { tools: an_agent().tools, ..definition.clone() };
    let (mut described, mut without) = (plain.clone(), plain.clone());
    described.tools.get_mut(&tool(LOOKUP)).unwrap().description = "looks elsewhere".into();
    without.tools.remove(&tool(SHELL));
    [plain.clone(), with_another_schema(plain), described, without].into_iter()
}

/// Mostly the version with the changed tool or the plain one, so that there is something to move from and to.
fn a_version(scene: &Scene, step: &Step) -> Digest {
    let at = [0, 1, 0, 1, 1, 0, 2, 3][usize::from(step.choice % 8)];
    versions(&scene.definition).nth(at).unwrap().digest()
}

fn tool(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

fn waits_for_a_child(scene: &Scene, command: &Command) -> bool {
    let Command::Resolve(resolve) = command else { return false };
    scene.run.hold(resolve.decide.hold).is_some_and(|hold| hold.child.is_some())
}

fn begin(setup: &Setup) -> Scene {
    let definition = Definition { hold_batch: setup.hold_batch, holds: setup.holds.clone(), ..an_agent() };
    let parent = (setup.depth > 0).then_some(Parent {
        run: run_id(),
        call: CallNo(1),
        hold: HoldKey { call: CallNo(1), secret: Secret([1; 16]) },
        depth: setup.depth,
    });
    let mut scene = Scene::start_below(definition, setup.driver, parent).unwrap();
    scene.limits.open_holds = setup.open_holds;
    scene.limits.children = 2;
    scene.limits.turns = 12;
    scene
}

/// What the engine would work out before it asks the rules: time, verdicts, who asks and what they may.
fn prepare(scene: &mut Scene, setup: &Setup, step: &Step) {
    scene.now = match step.wait {
        0..150 => scene.now,
        150..225 => scene.now.plus(Millis(i64::from(step.wait) * 10)),
        225..245 => next::deadline(&scene.run).unwrap_or(scene.now).max(scene.now),
        245..254 => scene.now.plus(Millis::seconds(70)),
        254..=255 => scene.now.plus(Millis::hours(25)),
    };
    let next_call = scene.run.state.calls_made + 1;
    let current = scene.run.state.calls.iter().map(|call| call.no.0);
    let numbers: Vec<u32> = current.chain(next_call..next_call + 4).collect();
    let verdicts = numbers.iter().flat_map(|no| verdict(step.verdicts[*no as usize % 4], *no, setup.quorum));
    scene.verdicts =
        Verdicts { policy: Some(Digest([4; 32])), by_call: verdicts.collect(), ..Verdicts::default() };
    scene.actor = match step.who % 16 {
        0..6 => person("alice"),
        6..10 => person("bob"),
        10..13 => person("carol"),
        13 => Actor::Callback(user("jobs")),
        14 => Actor::Node(NODE),
        _ => Actor::Clock,
    };
    scene.authority = match step.who / 16 {
        0..6 => Some(Role::Approver),
        6..9 => Some(Role::Owner),
        9..12 => Some(Role::Admin),
        12 | 13 => Some(Role::Callback),
        _ => None,
    };
    scene.verdicts.mutes = step.detail.is_multiple_of(11);
}

/// What rules and grants say of one call: mostly allow or hold, sometimes more, sometimes nothing.
fn verdict(number: u8, call: u32, quorum: u32) -> Vec<(CallNo, Verdict)> {
    let rule =
        |name: &str, effect| Verdict { votes: quorum, ..Verdict::new(effect, RuleId::new(name).unwrap()) };
    let said = match number {
        0..90 => vec![rule("a", Effect::Allow)],
        90..210 => vec![rule("h", Effect::Hold), rule("a", Effect::Allow)],
        210..225 => vec![rule("new", Effect::Hold), rule("h", Effect::Hold)],
        225..235 => vec![Verdict { grant: Some(GrantId::new("g").unwrap()), ..rule("h", Effect::Allow) }],
        235..243 => vec![rule("ban", Effect::Deny), rule("h", Effect::Hold)],
        243..=255 => vec![],
    };
    said.into_iter().map(|verdict| (CallNo(call), verdict)).collect()
}

/// What someone who knows the run might do next.
fn sensible(scene: &Scene, step: &Step) -> Command {
    let mut options = Vec::new();
    let state = &scene.run.state;
    for call in &state.calls {
        options.extend(about_call(scene, step, call));
    }
    for hold in &state.holds {
        options.extend(about_hold(scene, step, hold));
    }
    for attempt in &state.disowned {
        options.extend([1, 2].map(|_| finish_call(attempt.call, attempt.attempt, step)));
    }
    match (state.stage, scene.run.facts.driver) {
        (Stage::Thinking { .. }, _) => options.extend(while_thinking(scene, step)),
        (Stage::Acting, Driver::Outside | Driver::Gate) => options.extend(by_the_worker(scene, step)),
        (Stage::Acting, Driver::Loop) => {}
        (Stage::Ended(_), _) => options.push(Command::Erase { reason: None }),
    }
    options.extend(by_anyone(scene, step));
    options.swap_remove(usize::from(step.choice) % options.len())
}

fn about_call(scene: &Scene, step: &Step, call: &Call) -> Vec<Command> {
    let (no, attempt) = (call.no, call.attempt);
    let for_child = Command::Suspend(suspend_for_child(no.0, attempt));
    match call.state {
        CallState::Ready => vec![
            begin_call(scene, step, no),
            begin_call(scene, step, no),
            begin_call(scene, step, no),
            begin_call(scene, step, no),
            finish_call(no, attempt, step),
            for_child,
        ],
        CallState::Started { .. } => vec![
            finish_call(no, attempt, step),
            finish_call(no, attempt, step),
            finish_call(no, attempt, step),
            Command::Return { call: no, attempt },
            progress(no, step),
            Command::Suspend(suspend(no.0, attempt, kind_of_wait(step.detail))),
            for_child,
            Command::Orphan { call: no, attempt, node: NODE, why: OrphanCause::ServerLost, reconciled: None },
            Command::Orphan {
                call: no,
                attempt,
                node: OTHER_NODE,
                why: OrphanCause::ServerLost,
                reconciled: None,
            },
        ],
        CallState::Held => vec![progress(no, step), finish_call(no, attempt, step)],
        CallState::Done(CallOutcome::Unknown) => vec![finish_call(no, attempt, step)],
        CallState::Done(_) => vec![],
    }
}

fn about_hold(scene: &Scene, step: &Step, hold: &Hold) -> Vec<Command> {
    let digest = scene.run.call(hold.call()).and_then(|call| call.digest);
    let seen = Decide { hold: hold.key, digest, revision: Some(hold.revision) };
    let decide = |resolution| {
        let idempotency_key = step.detail.is_multiple_of(3).then(|| "k".to_owned());
        Command::Resolve(Resolve { decide: seen.clone(), resolution, idempotency_key, message: None })
    };
    let mut options = match hold.kind {
        HoldKind::Approval => vec![
            decide(Choice::Approve),
            decide(Choice::Approve),
            decide(Choice::Approve),
            decide(Choice::ApproveEdited { arguments: arguments(step) }),
            decide(support::deny()),
            Command::Vote(seen.clone()),
            Command::Edit(Edit { decide: seen.clone(), arguments: arguments(step) }),
        ],
        HoldKind::Input => vec![decide(support::answer()), decide(support::deny())],
        HoldKind::External => {
            vec![decide(support::answer()), decide(support::fail()), decide(Choice::Withdraw)]
        }
        HoldKind::Auth => vec![decide(support::answer()), decide(support::deny()), decide(support::fail())],
        HoldKind::Recovery => {
            vec![
                decide(Choice::Approve),
                decide(Choice::Approve),
                decide(support::answer()),
                decide(support::deny()),
            ]
        }
    };
    if step.detail.is_multiple_of(3) {
        let to = step.detail.is_multiple_of(2).then(|| user("dora"));
        let until = step.detail.is_multiple_of(4).then(|| scene.now.plus(Millis::seconds(40)));
        options.push(Command::Assign { hold: hold.key, to, until });
        let until = scene.now.plus(Millis::seconds(30));
        options.push(Command::Delegate { hold: hold.key, to: user("eve"), until });
    }
    if hold.expired_at.is_some() {
        let expires_at = step.detail.is_multiple_of(2).then(|| scene.now.plus(Millis::seconds(90)));
        options.extend([
            Command::Reopen { hold: hold.key, expires_at },
            Command::Reopen { hold: hold.key, expires_at },
        ]);
    }
    options
}

fn while_thinking(scene: &Scene, step: &Step) -> Vec<Command> {
    let calls = (0..[1, 2, 3, 2, 1, 4, 0][usize::from(step.detail % 7)])
        .map(|n| a_call(step.detail.wrapping_add(n * 7)))
        .collect();
    let retry_at = (!step.detail.is_multiple_of(32)).then(|| scene.now.plus(Millis::seconds(3)));
    let reply = scene.reply(calls);
    vec![
        reply.clone(),
        reply.clone(),
        reply,
        Command::RecordFailure(RecordFailure { error: Body::text("overloaded"), retry_at, heard: None }),
        Command::Claim(ClaimRun::Node),
    ]
}

fn by_the_worker(scene: &Scene, step: &Step) -> Vec<Command> {
    let worker = worker("w-1");
    if scene.run.state.claim.is_none() {
        let claim = ClaimRun::Worker { worker, period: Millis::seconds(60) };
        return vec![Command::Claim(claim.clone()), Command::Claim(claim.clone()), Command::Claim(claim)];
    }
    let retry_at = scene.now.plus(Millis::seconds(1));
    let kind = match step.detail % 8 {
        0 => FailKind::Final,
        1 => FailKind::Rejected,
        _ => FailKind::Transient { retry_at },
    };
    let mut options = vec![
        the_worker_proposes(SHELL),
        the_worker_proposes(SHELL),
        the_worker_proposes(LOOKUP),
        the_worker_proposes(SHELL),
        Command::Heartbeat { worker: worker.clone() },
        Command::Suspend(suspend(0, 0, kind_of_wait(step.detail))),
    ];
    if step.detail.is_multiple_of(3) {
        options.push(Command::Release { worker: worker.clone() });
        options.push(Command::Fail(FailRun {
            worker: Some(worker.clone()),
            error: "oops".into(),
            detail: None,
            kind,
            heard: None,
        }));
    }
    if step.detail.is_multiple_of(9) {
        options.push(Command::Finish { worker, result: Body::text("done") });
    }
    options
}

fn by_anyone(scene: &Scene, step: &Step) -> Vec<Command> {
    let mut options = vec![Command::Tick, say(OnHold::Refuse)];
    match step.detail % 32 {
        0 => options.push(Command::Cancel { reason: Some("enough".into()) }),
        1 | 7..12 => options.push(Command::Repin { definition: a_version(scene, step) }),
        2 => options.push(Command::Suspend(suspend(0, 0, SuspendFor::Input))),
        3 | 4 => options.push(say(OnHold::Supersede)),
        5 => options.push(Command::Fail(FailRun {
            worker: None,
            error: "panic".into(),
            detail: None,
            kind: FailKind::Final,
            heard: None,
        })),
        6 => options.push(Command::Repin { definition: scene.run.state.definition }),
        _ => {}
    }
    options
}

/// What nobody in their senses would do: any command with any numbers.
fn noise(scene: &Scene, step: &Step) -> Command {
    let call = CallNo(u32::from(step.detail % 7));
    let attempt = u32::from(step.who % 3);
    let past = scene.log.iter().filter_map(|envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        Some(opened.hold)
    });
    let known: Vec<HoldKey> = past.collect();
    let hold = if known.is_empty() || step.detail.is_multiple_of(5) {
        HoldKey { call, secret: Secret([9; 16]) }
    } else {
        known[usize::from(step.detail) % known.len()]
    };
    let wanted = match step.detail % 6 {
        0 => Choice::Approve,
        1 => Choice::ApproveEdited { arguments: arguments(step) },
        2 => support::deny(),
        3 => support::answer(),
        4 => support::fail(),
        _ => Choice::Withdraw,
    };
    let digest = step.detail.is_multiple_of(3).then_some(Digest([step.who; 32]));
    let seen = Decide { hold, digest, revision: step.detail.is_multiple_of(4).then_some(attempt) };
    let someone = worker(if step.detail.is_multiple_of(2) { "w-1" } else { "w-2" });
    let resolve = Resolve {
        decide: seen.clone(),
        resolution: wanted,
        idempotency_key: Some("k".into()),
        message: None,
    };
    match step.choice % 24 {
        0 => Command::Resolve(resolve),
        1 => Command::Vote(seen),
        2 => Command::Edit(Edit { decide: seen, arguments: arguments(step) }),
        3 => Command::Assign { hold, to: None, until: None },
        4 => Command::Reopen { hold, expires_at: None },
        5 => Command::Repin { definition: a_version(scene, step) },
        6 => scene.reply(vec![
            a_call(step.detail),
            asked("no such tool", "{}"),
            asked(SHELL, "{\"a\":1,\"a\":2}"),
        ]),
        7 => Command::RecordFailure(RecordFailure { error: Body::text("?"), retry_at: None, heard: None })
            .only_if(step.who < 32),
        8 => Command::Return { call, attempt },
        9 => progress(call, step),
        10 => finish_call(call, attempt, step),
        11 => Command::Suspend(suspend(call.0, attempt, kind_of_wait(step.choice))),
        12 => Command::Orphan {
            call,
            attempt,
            node: OTHER_NODE,
            why: OrphanCause::ServerLost,
            reconciled: None,
        },
        13 => Command::Cancel { reason: None }.only_if(step.who < 32),
        14 => Command::Erase { reason: Some("law".into()) },
        15 => Command::Claim(ClaimRun::Worker { worker: someone, period: Millis::seconds(1) }),
        16 => Command::Claim(ClaimRun::Node),
        17 => Command::Finish { worker: worker("w-2"), result: Body::text("mine") },
        18 => Command::Heartbeat { worker: someone },
        19 => Command::Release { worker: someone },
        20 => stale_reply(scene, step),
        21 => {
            let open = scene.run.state.holds.iter().map(|hold| Resolve {
                decide: Decide { hold: hold.key, digest: None, revision: Some(hold.revision) },
                ..resolve.clone()
            });
            Command::ResolveAll(open.chain([resolve.clone()]).collect())
        }
        22 => Command::Reject(Reject { holds: vec![hold], reason: None, idempotency_key: Some("k".into()) })
            .only_if(step.who < 32),
        _ => say(OnHold::Supersede),
    }
}

/// A way to make a drastic command rarer.
trait OnlyIf {
    fn only_if(self, condition: bool) -> Command;
}

impl OnlyIf for Command {
    fn only_if(self, condition: bool) -> Command {
        if condition { self } else { Command::Tick }
    }
}

/// What a model says that was asked with another turn, or with a decision that lost its race.
fn stale_reply(scene: &Scene, step: &Step) -> Command {
    let Command::RecordReply(mut reply) = scene.reply(vec![]) else { unreachable!("a reply") };
    if step.who.is_multiple_of(2) {
        reply.heard.turn += 1
    } else {
        reply.heard.results = Some(Digest([step.who; 32]))
    }
    Command::RecordReply(reply)
}

fn a_call(number: u16) -> AskedCall {
    let tool = if number.is_multiple_of(3) { LOOKUP } else { SHELL };
    match number % 16 {
        0 => asked("nonsense", "{}"),
        1 => asked(tool, "not json"),
        _ => asked(
            tool,
            &format!(r#"{{"n": {}, "s":"é\u00e9"}}"#, 9_007_199_254_740_992 + u64::from(number % 2)),
        ),
    }
}

fn arguments(step: &Step) -> RawJson {
    RawJson::parse(&format!(r#"{{"edited":  {}}}"#, step.detail)).unwrap()
}

fn kind_of_wait(number: u16) -> SuspendFor {
    match number % 3 {
        0 => SuspendFor::Input,
        1 => SuspendFor::External,
        _ => SuspendFor::Auth,
    }
}

fn begin_call(scene: &Scene, step: &Step, no: CallNo) -> Command {
    let Command::Begin(mut begin) = scene.begin(no.0) else { unreachable!("a begin") };
    begin.start_by = scene.now.plus(Millis::seconds(i64::from(step.detail % 5)));
    if step.detail.is_multiple_of(23) {
        begin.stored.arguments.push(' ');
    }
    Command::Begin(begin)
}

fn finish_call(no: CallNo, attempt: u32, step: &Step) -> Command {
    let mut finish = support::finish(no.0, attempt);
    finish.worker = Some(worker("w-1"));
    if step.detail.is_multiple_of(4) {
        finish.result = ToolResult::Failed(Body::text("exit 1"));
    }
    Command::FinishCall(finish)
}

fn progress(call: CallNo, step: &Step) -> Command {
    let processing = [None, Some(true), Some(false)][usize::from(step.detail % 3)];
    Command::Progress { call, note: Body::text("half"), processing }
}

/// Not a sample: every bit of a short link.
#[test]
fn no_bit_of_a_link_can_be_flipped_unnoticed() {
    let scene = Scene::of_loop();
    let links = sealed(std::slice::from_ref(&scene.log));
    let Contents::Whole { payload, .. } = &links[0].contents else { unreachable!("just sealed") };
    for pick in 0..payload.len() * 8 {
        let mut broken = links[0].clone();
        let Contents::Whole { payload, .. } = &mut broken.contents else { unreachable!("just sealed") };
        payload[pick / 8] ^= 1 << (pick % 8);
        assert!(broken.verify(FIRST_PREVIOUS, Seq(1)).is_err(), "bit {pick}");
    }
    for pick in 0..256 {
        for broken in broken_links(&links[0], pick) {
            assert!(broken.verify(FIRST_PREVIOUS, Seq(1)).is_err(), "{broken:?}");
        }
    }
}
