//! What a receipt says of shown, decided and run calls, whoever ran them.
//!
//! Runs come from `testing.rs`; the words for each result are tested in `transcript/tests.rs`.

use super::*;
use crate::command::{Choice, Command, Decide, Edit, FinishCall, Suspend, SuspendFor};
use crate::decide::Answer;
use crate::digest;
use crate::testing::{NODE, Story, body, json, suspension, tool, user, worker};
use crate::time::Millis;

fn held() -> (Story, HoldKey) {
    let mut story = Story::new();
    story.replies("", &[("write", r#"{"n":1}"#)]);
    let hold = story.hold(1);
    (story, hold)
}

fn started() -> (Story, HoldKey) {
    let (mut story, hold) = held();
    story.decides(1, Choice::Approve);
    story.begins(1);
    (story, hold)
}

fn ok(text: &str) -> ToolResult {
    ToolResult::Ok(Body::text(text))
}

fn call(story: &Story, hold: HoldKey) -> CallReceipt {
    receipt(hold, &story.events).unwrap().call.unwrap()
}

fn effect_of(story: &Story, hold: HoldKey) -> CallEffect {
    call(story, hold).effect
}

fn word_of(story: &Story, hold: HoldKey) -> (DecisionWord, Actor) {
    let decision = receipt(hold, &story.events).unwrap().decision.unwrap();
    (decision.word, decision.by)
}

fn person(name: &str) -> Actor {
    Actor::Person(user(name))
}

#[test]
fn a_receipt_ties_what_was_shown_to_who_decided_and_what_ran() {
    let (mut story, hold) = started();
    story.finishes(1, ok("written"));
    let at = |seq: u64| story.events[usize::try_from(seq).unwrap() - 1].at;
    let schema = story.definition.tools[&tool("write")].schema_digest();
    let digest = digest::of_call(&tool("write"), r#"{"n":1}"#, schema);
    let policy = digest::of_bytes(b"policy");
    let rules = vec![RuleId::new("about-write").unwrap()];
    let judged = PolicyVerdict {
        effect: Effect::Hold,
        rules: rules.clone(),
        policy: Some(policy),
        grant: None,
        observed: None,
    };
    let shown = ShownRevision {
        seq: Seq(4),
        at: at(4),
        by: Actor::Node(NODE),
        revision: 0,
        tool: Some(tool("write")),
        arguments: Some(body(r#"{"n":1}"#)),
        digest: Some(digest),
        verdict: Some(Effect::Hold),
        rules,
        policy: Some(policy),
        grant: None,
        demands: vec![],
        ask: Ask::default(),
    };
    let decision = Decision {
        seq: Seq(5),
        at: at(5),
        by: person("bob"),
        role: Some(Role::Approver),
        in_place_of: None,
        word: DecisionWord::Approved,
        resolution: Resolution::Approve { edited: None },
        idempotency_key: Some("key-bob".into()),
        late: false,
        judged: None,
        digest: Some(digest),
        grant: None,
    };
    let asked = AskedCall {
        seq: Seq(3),
        at: at(3),
        by: Actor::Node(NODE),
        tool: tool("write"),
        arguments: body(r#"{"n":1}"#),
        digest: Some(digest),
        judged: None,
        grant_use: None,
    };
    let (digest, effects) = (Some(digest), vec![]);
    let (node, grant_use, takes, reconciled) = (NODE, None, vec![], None);
    let (seq, at) = (Seq(6), at(6));
    let attempt =
        Attempt { seq, attempt: 1, at, node, digest, judged, effects, takes, grant_use, reconciled };
    let (report, contradictions) = (None, vec![]);
    let effect = CallEffect::Executed;
    let whole = Receipt {
        hold: Some(hold),
        kind: Some(HoldKind::Approval),
        asked: Some(asked),
        shown: vec![shown],
        votes: vec![],
        decision: Some(decision),
        call: Some(CallReceipt { no: CallNo(1), effect, attempts: vec![attempt], report, contradictions }),
        events: vec![Seq(3), Seq(4), Seq(5), Seq(6), Seq(7)],
    };
    assert_eq!(receipt(hold, &story.events), Some(whole));
}

#[test]
fn the_effect_follows_the_call() {
    let (mut story, hold) = held();
    assert_eq!(effect_of(&story, hold), CallEffect::Waiting);
    story.decides(1, Choice::Approve);
    assert_eq!(effect_of(&story, hold), CallEffect::Waiting);
    story.begins(1);
    assert_eq!(effect_of(&story, hold), CallEffect::Running);
    story.finishes(1, ToolResult::Failed(Body::text("disk full")));
    assert_eq!(effect_of(&story, hold), CallEffect::Failed);
}

#[test]
fn what_was_denied_or_left_behind_was_not_executed() {
    let (mut story, hold) = held();
    story.decides(1, Choice::Deny { reason: Some("no".into()) });
    assert_eq!(effect_of(&story, hold), CallEffect::NotExecuted);
    assert_eq!(word_of(&story, hold), (DecisionWord::Denied, person("bob")));

    let (mut story, hold) = held();
    story.decides(1, Choice::Approve);
    story.is_canceled();
    assert_eq!(effect_of(&story, hold), CallEffect::NotExecuted);
    let events = receipt(hold, &story.events).unwrap().events;
    assert_eq!(events, [Seq(3), Seq(4), Seq(5), Seq(6)], "with the end of the run");
}

#[test]
fn nobody_decided_what_expired() {
    let (mut story, hold) = held();
    story.now = story.now.plus(Millis::hours(101));
    let resolve = Decide { hold, digest: None, revision: None };
    let _ = story.tries(person("bob"), Command::Vote(resolve));
    assert_eq!(word_of(&story, hold), (DecisionWord::Expired, Actor::Clock));
    assert_eq!(effect_of(&story, hold), CallEffect::NotExecuted);
}

#[test]
fn what_an_outside_system_had_may_have_run() {
    let (mut story, _) = started();
    story.suspends(1, SuspendFor::External);
    let hold = story.hold(1);
    assert_eq!(effect_of(&story, hold), CallEffect::Waiting);
    story.decides(1, Choice::Withdraw);
    assert_eq!(effect_of(&story, hold), CallEffect::OutcomeUnknown);
    assert_eq!(word_of(&story, hold), (DecisionWord::Withdrawn, person("bob")));
}

#[test]
fn a_started_call_of_a_run_that_ended_runs_until_somebody_knows() {
    let (mut story, hold) = started();
    story.is_canceled();
    assert_eq!(effect_of(&story, hold), CallEffect::Running);
    story.loses(1);
    assert_eq!(effect_of(&story, hold), CallEffect::OutcomeUnknown);
    story.finishes(1, ok("late"));
    assert_eq!(effect_of(&story, hold), CallEffect::Executed);
}

/// Rule 5: a start without an effect is known to have had none, also after the end.
#[test]
fn a_call_given_back_after_the_end_was_not_executed() {
    let (mut story, hold) = started();
    story.is_canceled();
    story.gives_back(1);
    assert_eq!(effect_of(&story, hold), CallEffect::NotExecuted);
    let events = receipt(hold, &story.events).unwrap().events;
    assert_eq!(events, [Seq(3), Seq(4), Seq(5), Seq(6), Seq(7), Seq(8)], "with the end and the return");
}

/// Rule 3: a tool that changed is shown again, with a digest of its own, and the start names that one.
#[test]
fn a_tool_that_changed_is_shown_again_before_it_runs() {
    let (mut story, before) = held();
    story.decides(1, Choice::Approve);
    story.is_moved(|agent| {
        agent.tools.get_mut(&tool("write")).unwrap().description = "writes elsewhere".into()
    });
    assert_eq!(story.begins(1), Answer::Held);
    let again = story.hold(1);
    story.decides(1, Choice::Approve);
    assert_eq!(story.begins(1), Answer::Done);
    let schema = story.definition.tools[&tool("write")].schema_digest();
    let ran = digest::of_call(&tool("write"), r#"{"n":1}"#, schema);
    let shown = |hold| receipt(hold, &story.events).unwrap().shown;
    assert_ne!(shown(before)[0].digest, Some(ran));
    assert_eq!((shown(again)[0].digest, call(&story, again).attempts[0].digest), (Some(ran), Some(ran)));
    assert_eq!(
        shown(again)[0].rules,
        ["about-write", "standfast:schema-changed"].map(|id| RuleId::new(id).unwrap())
    );
}

/// C16: both versions of the arguments stay, each with its digest, and the start names the one that ran.
#[test]
fn an_edit_shows_both_versions() {
    let (mut story, hold) = held();
    let decide = Decide { hold, digest: None, revision: None };
    story.by(person("bob"), Command::Edit(Edit { decide, arguments: json(r#"{"n":2}"#) }));
    story.decides(1, Choice::ApproveEdited { arguments: json(r#"{"n":3}"#) });
    story.begins(1);
    let receipt = receipt(hold, &story.events).unwrap();
    let shown: Vec<_> = receipt.shown.iter().map(|shown| (shown.revision, shown.arguments.clone())).collect();
    assert_eq!(shown, [(0, Some(body(r#"{"n":1}"#))), (1, Some(body(r#"{"n":2}"#)))]);
    let decision = receipt.decision.unwrap();
    assert_eq!(decision.word, DecisionWord::Edited);
    let schema = story.definition.tools[&tool("write")].schema_digest();
    let ran = digest::of_call(&tool("write"), r#"{"n":3}"#, schema);
    assert_eq!((decision.digest, receipt.call.unwrap().attempts[0].digest), (Some(ran), Some(ran)));
}

#[test]
fn every_vote_is_there_with_the_revision_it_was_for() {
    let mut story = Story::new();
    story.votes = 2;
    story.replies("", &[("write", r#"{"n":1}"#)]);
    let hold = story.hold(1);
    story.decides_as("bob", 1, Choice::Approve);
    story.decides_as("carol", 1, Choice::ApproveEdited { arguments: json(r#"{"n":2}"#) });
    story.decides_as("bob", 1, Choice::Approve);
    assert_eq!(story.decides_as("carol", 1, Choice::Approve), Answer::Done);
    let receipt = receipt(hold, &story.events).unwrap();
    let votes: Vec<_> = receipt.votes.iter().map(|vote| (vote.by.as_str(), vote.revision)).collect();
    assert_eq!(votes, [("bob", 0), ("bob", 1), ("carol", 1)]);
    assert_eq!(receipt.decision.unwrap().word, DecisionWord::Approved);
}

#[test]
fn a_contradiction_is_listed_and_changes_nothing() {
    let (mut story, approval) = started();
    story.loses(1);
    let recovery = story.hold(1);
    story.decides(1, Choice::Deny { reason: None });
    story.finishes_attempt(1, 1, ok("it did"));
    let last = story.events.last().unwrap().clone();
    let (seq, at, by) = (last.seq, last.at, Actor::Node(NODE));
    let listed = vec![Contradiction { seq, at, by, attempt: 1, result: ok("it did") }];
    assert_eq!(word_of(&story, recovery), (DecisionWord::DidNotHappen, person("bob")));
    for hold in [approval, recovery] {
        let call = call(&story, hold);
        assert_eq!((call.effect, call.contradictions), (CallEffect::NotExecuted, listed.clone()));
    }
}

#[test]
fn what_an_outside_worker_ran_is_its_word() {
    let mut story = Story::outside();
    story.proposes("write", "{}");
    let hold = story.hold(1);
    story.decides(1, Choice::Approve);
    assert_eq!((call(&story, hold).effect, call(&story, hold).report), (CallEffect::Waiting, None));

    story.waits(Millis::hours(2));
    let silent = call(&story, hold);
    assert_eq!((silent.effect, silent.report), (CallEffect::OutcomeUnknown, Some(Report::NotReported)));

    story.reports(1, ok("written"));
    let told = call(&story, hold);
    let by = Actor::Outside(worker());
    assert_eq!((told.effect, told.report), (CallEffect::Executed, Some(Report::ReportedBy(by))));
}

#[test]
fn an_outside_run_that_ends_leaves_its_allowed_calls_unreported() {
    let mut story = Story::outside();
    story.proposes("write", "{}");
    let hold = story.hold(1);
    story.decides(1, Choice::Approve);
    story.is_canceled();
    let call = call(&story, hold);
    assert_eq!((call.effect, call.report), (CallEffect::OutcomeUnknown, Some(Report::NotReported)));
}

#[test]
fn a_run_that_waits_has_a_receipt_without_a_call() {
    let mut story = Story::new();
    let ask = Ask { reason: Some("the model is gone".into()), ..Ask::default() };
    let suspend = Suspend { ask: ask.clone(), ..suspension(CallNo::RUN, SuspendFor::Input) };
    story.by(Actor::Node(NODE), Command::Suspend(suspend));
    let hold = story.hold(0);
    story.decides(0, Choice::Answer { value: Body::text("go on") });
    let receipt = receipt(hold, &story.events).unwrap();
    assert_eq!((receipt.shown[0].ask.clone(), receipt.call), (ask, None));
    assert_eq!(receipt.events, [Seq(3), Seq(4)]);
}

#[test]
fn a_hold_that_never_was_has_no_receipt() {
    let (story, hold) = held();
    let other = HoldKey { call: CallNo(2), ..hold };
    assert_eq!(receipt(other, &story.events), None);
}

#[test]
fn a_receipt_can_be_written_down() {
    let mut story = Story::outside();
    story.proposes("write", "{}");
    let hold = story.hold(1);
    story.decides(1, Choice::Approve);
    let finish = FinishCall { call: CallNo(1), attempt: 0, result: ok("x"), worker: Some(worker()) };
    story.by(Actor::Outside(worker()), Command::FinishCall(finish));
    let written = serde_json::to_value(receipt(hold, &story.events).unwrap()).unwrap();
    let expected =
        serde_json::json!({ "no": 1, "effect": "executed", "report": { "reported_by": "outside:w1" } });
    assert_eq!(written["call"], expected);
    assert_eq!(written["decision"]["word"], "approved");
    assert_eq!(written["events"], serde_json::json!([4, 5, 6, 7]));
}
