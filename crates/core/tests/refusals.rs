//! Every refusal, from a real command on a real run, and what it says: what happened, to which id, what to do.
//!
//! A new variant does not compile before it has its line in [`every_refusal`], and fails before it has its row.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::collections::BTreeSet;

use standfast_core::command::{
    Choice, ClaimRun, Command, Decide, Edit, FailKind, FailRun, OnHold, Resolve, SuspendFor,
};
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, OrphanCause, Parent};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{CallNo, HoldKey, Secret};
use standfast_core::json::RawJson;
use standfast_core::policy::Effect;
use standfast_core::refusal::Refusal;
use standfast_core::time::Millis;
use support::{
    NODE, OTHER_NODE, SHELL, Scene, an_agent, answer, as_seen, cancel, deny, finish, person, resolve, run_id,
    say, suspend, suspend_for_child, the_policy_says, the_worker_claims, worker,
};

/// What was refused, and how its text should read.
type RefusalRow = (Refusal, String);

macro_rules! every_refusal {
    ($($name:literal => $pattern:pat),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];

        fn name(refusal: &Refusal) -> &'static str {
            match refusal { $($pattern => $name),* }
        }
    };
}

every_refusal! {
    "ended" => Refusal::Ended(_),
    "not ended" => Refusal::NotEnded,
    "held" => Refusal::Held { .. },
    "no such hold" => Refusal::NoSuchHold(_),
    "already decided" => Refusal::AlreadyDecided(_),
    "expired" => Refusal::Expired(_),
    "not allowed" => Refusal::NotAllowed(_),
    "wrong kind" => Refusal::WrongKind { .. },
    "stale" => Refusal::Stale { .. },
    "must repeat digest" => Refusal::MustRepeatDigest { .. },
    "forbidden" => Refusal::Forbidden { .. },
    "not expired" => Refusal::NotExpired(_),
    "past end" => Refusal::PastEnd(_),
    "no such call" => Refusal::NoSuchCall(_),
    "call not ready" => Refusal::CallNotReady(_),
    "stale attempt" => Refusal::StaleAttempt { .. },
    "tampered" => Refusal::Tampered { .. },
    "too late" => Refusal::TooLate(_),
    "not orphaned yet" => Refusal::NotOrphanedYet { .. },
    "not thinking" => Refusal::NotThinking,
    "call started" => Refusal::CallStarted(_),
    "wrong driver" => Refusal::WrongDriver,
    "claimed by other" => Refusal::ClaimedByOther { .. },
    "not claimable" => Refusal::NotClaimable,
    "cap" => Refusal::Cap { .. },
    "erased" => Refusal::Erased,
}

const ROWS: &[fn() -> RefusalRow] = &[
    a_message_to_a_run_that_is_over,
    erasing_a_run_that_is_not_over,
    a_message_that_decides_nothing,
    a_decision_on_a_hold_that_never_was,
    a_second_decision,
    a_decision_after_the_deadline,
    a_decision_by_someone_else,
    moving_a_run_of_someone_else,
    an_answer_to_an_approval,
    an_approval_of_a_question,
    an_approval_of_an_outside_job,
    a_persons_result_of_a_sub_run,
    an_approval_of_a_login,
    a_failure_of_an_unknown_outcome,
    a_decision_on_what_was_shown_before_an_edit,
    a_decision_after_an_edit_that_repeats_nothing,
    an_edit_into_what_a_rule_forbids,
    reopening_a_hold_that_has_not_expired,
    an_assignment_that_ended_before_it_began,
    a_result_of_a_call_that_never_was,
    beginning_a_call_that_waits,
    suspending_a_call_that_no_node_began,
    a_result_of_an_earlier_start,
    a_result_that_is_there_already,
    arguments_changed_in_the_store,
    beginning_after_the_lease,
    orphaning_a_call_that_may_still_run,
    a_reply_that_nobody_waits_for,
    failing_a_run_whose_call_has_started,
    a_model_reply_for_an_outside_run,
    speaking_for_a_run_that_another_worker_has,
    speaking_for_a_run_that_nobody_has,
    claiming_a_run_before_it_is_due_again,
    one_hold_too_many,
    one_sub_run_too_many,
    one_sub_run_too_deep,
    starting_too_deep,
    a_result_after_erasure,
];

/// Rule 16 of the style: messages say what happened, to which id, and what the caller can do.
#[test]
fn every_refusal_says_what_happened_and_what_to_do() {
    for row in ROWS {
        let (refusal, text) = row();
        assert_eq!(refusal.to_string(), text, "{refusal:?}");
    }
}

#[test]
fn every_refusal_can_happen() {
    let happened: BTreeSet<&str> = ROWS.iter().map(|row| name(&row().0)).collect();
    assert_eq!(happened, NAMES.iter().copied().collect());
}

fn a_message_to_a_run_that_is_over() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.send(cancel()).unwrap();
    let text = "the run has ended (canceled); start a new one in the same session";
    (scene.send(say(OnHold::Refuse)).unwrap_err(), text.into())
}

fn erasing_a_run_that_is_not_over() -> RefusalRow {
    let erase = Command::Erase { reason: None };
    (Scene::of_loop().send(erase).unwrap_err(), "the run has not ended; cancel it first".into())
}

fn a_message_that_decides_nothing() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    let text = format!("the run is held, and this message decides nothing; open holds: {id}");
    (scene.send(say(OnHold::Refuse)).unwrap_err(), text)
}

fn a_decision_on_a_hold_that_never_was() -> RefusalRow {
    let mut scene = Scene::of_loop();
    let hold = HoldKey { call: CallNo(1), secret: Secret([9; 16]) };
    let text = format!("there is no hold {} in this run; reload the run", scene.run.hold_id(hold));
    (scene.resolves(hold, deny()).unwrap_err(), text)
}

fn a_second_decision() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    scene.resolves(hold, Choice::Approve).unwrap();
    scene.actor = person("bob");
    let text = format!("this hold was already decided: approved by person:alice at {}", scene.now.0);
    (scene.resolves(hold, deny()).unwrap_err(), text)
}

fn a_decision_after_the_deadline() -> RefusalRow {
    let policy = HoldPolicy { timeout: Some(Millis::seconds(60)), ..HoldPolicy::default() };
    let (mut scene, hold) = Scene::waiting_for_approval(policy);
    let id = scene.run.hold_id(hold);
    scene.later(Millis::seconds(60));
    let text = format!("hold {id} expired; its deadline had passed before this decision");
    (scene.resolves(hold, Choice::Approve).unwrap_err(), text)
}

fn a_decision_by_someone_else() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    scene.authority = None;
    let text = format!("you may not decide hold {id}; ask one of its approvers");
    (scene.resolves(hold, Choice::Approve).unwrap_err(), text)
}

fn moving_a_run_of_someone_else() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.authority = None;
    let repin = Command::Repin { definition: Digest([3; 32]) };
    let text = "you may not change this run; ask its owner or an administrator";
    (scene.send(repin).unwrap_err(), text.into())
}

fn an_answer_to_an_approval() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    let takes = "an approval takes approve (also with edited arguments) or deny";
    (scene.resolves(hold, answer()).unwrap_err(), format!("hold {id} does not take this decision; {takes}"))
}

fn an_approval_of_a_question() -> RefusalRow {
    wrong_for(SuspendFor::Input, "a question takes an answer or deny")
}

fn an_approval_of_an_outside_job() -> RefusalRow {
    wrong_for(SuspendFor::External, "an outside job takes its result or fail; a sub-run only its own result")
}

fn a_persons_result_of_a_sub_run() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins_and_suspends(suspend_for_child(1, 1)).unwrap();
    let hold = scene.hold();
    let id = scene.run.hold_id(hold);
    let text = format!(
        "hold {id} does not take this decision; an outside job takes its result or fail; a sub-run only its own result"
    );
    (scene.resolves(hold, answer()).unwrap_err(), text)
}

fn an_approval_of_a_login() -> RefusalRow {
    wrong_for(SuspendFor::Auth, "a login takes an answer, deny or fail")
}

fn wrong_for(kind: SuspendFor, takes: &str) -> RefusalRow {
    let (mut scene, hold) = Scene::suspended(kind, HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    (
        scene.resolves(hold, Choice::Approve).unwrap_err(),
        format!("hold {id} does not take this decision; {takes}"),
    )
}

fn a_failure_of_an_unknown_outcome() -> RefusalRow {
    let (mut scene, hold) = Scene::with_unknown_outcome();
    let id = scene.run.hold_id(hold);
    let takes =
        "an unknown outcome takes approve (run again), an answer (it happened) or deny (it did not happen)";
    (
        scene.resolves(hold, support::fail()).unwrap_err(),
        format!("hold {id} does not take this decision; {takes}"),
    )
}

/// A hold whose arguments were edited once, and the digest of what would run now.
fn an_edited_hold() -> (Scene, HoldKey, Digest) {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let arguments = RawJson::parse(r#"{"n": 2}"#).unwrap();
    scene.send(Command::Edit(Edit { decide: as_seen(hold), arguments })).unwrap();
    let digest = scene.run.call(CallNo(1)).unwrap().digest.unwrap();
    (scene, hold, digest)
}

fn a_decision_on_what_was_shown_before_an_edit() -> RefusalRow {
    let (mut scene, hold, digest) = an_edited_hold();
    let id = scene.run.hold_id(hold);
    let decide = Decide { hold, digest: None, revision: Some(0) };
    let approve = Resolve { decide, resolution: Choice::Approve, idempotency_key: None, message: None };
    let text = format!("hold {id} has changed since you saw it: it is now revision 1 with digest {digest}");
    (scene.send(Command::Resolve(approve)).unwrap_err(), text)
}

fn a_decision_after_an_edit_that_repeats_nothing() -> RefusalRow {
    let (mut scene, hold, digest) = an_edited_hold();
    let id = scene.run.hold_id(hold);
    let text = format!(
        "what hold {id} shows was edited or has changed: repeat revision 1 or digest {digest} to decide"
    );
    (scene.resolves(hold, Choice::Approve).unwrap_err(), text)
}

fn an_edit_into_what_a_rule_forbids() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    scene.verdicts = the_policy_says(Effect::Deny);
    let text = format!(
        "hold {id} cannot be approved with these arguments: not executed: the policy forbids this call (r)"
    );
    (scene.resolves(hold, support::edited()).unwrap_err(), text)
}

fn reopening_a_hold_that_has_not_expired() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    let reopen = Command::Reopen { hold, expires_at: None };
    (scene.send(reopen).unwrap_err(), format!("hold {id} has not expired, so it cannot be reopened"))
}

fn an_assignment_that_ended_before_it_began() -> RefusalRow {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let id = scene.run.hold_id(hold);
    let (to, until) = (scene.actor.user().cloned(), Some(scene.now));
    let text = format!("the end that was given for hold {id} has passed; name a later instant");
    (scene.send(Command::Assign { hold, to, until }).unwrap_err(), text)
}

fn a_result_of_a_call_that_never_was() -> RefusalRow {
    (Scene::of_loop().finishes(7, 1).unwrap_err(), "there is no call 7 in the run's current turn".into())
}

fn beginning_a_call_that_waits() -> RefusalRow {
    let (mut scene, _) = Scene::waiting_for_approval(HoldPolicy::default());
    let text = "call 1 is not in a state that allows this; reload the run";
    (scene.begins(1).unwrap_err(), text.into())
}

fn suspending_a_call_that_no_node_began() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let text = "call 1 is not in a state that allows this; reload the run";
    (scene.send(Command::Suspend(suspend(1, 0, SuspendFor::External))).unwrap_err(), text.into())
}

fn a_result_of_an_earlier_start() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    scene.send(Command::Return { call: CallNo(1), attempt: 1 }).unwrap();
    scene.begins(1).unwrap();
    let text = "this reports attempt 1 of call 1, but attempt 2 is the current one";
    (scene.finishes(1, 1).unwrap_err(), text.into())
}

fn a_result_that_is_there_already() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.begins(1).unwrap();
    scene.finishes(1, 1).unwrap();
    (
        scene.finishes(1, 1).unwrap_err(),
        "attempt 1 of call 1 has already ended and takes no more reports".into(),
    )
}

fn arguments_changed_in_the_store() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let decided = scene.run.call(CallNo(1)).unwrap().digest.unwrap();
    let Command::Begin(mut begin) = scene.begin(1) else { unreachable!("a begin") };
    begin.stored.arguments = r#"{"n":1}"#.into();
    let refusal = scene.send(Command::Begin(begin)).unwrap_err();
    let Refusal::Tampered { stored, .. } = &refusal else { panic!("{refusal:?}") };
    let text = format!(
        "the stored arguments of call 1 have digest {stored}, but {decided} was decided on; nothing was started"
    );
    (refusal, text)
}

fn beginning_after_the_lease() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let begin = scene.begin(1);
    scene.later(Millis::seconds(60));
    (
        scene.send(begin).unwrap_err(),
        "it is too late to start call 1 under this lease; renew the lease first".into(),
    )
}

fn orphaning_a_call_that_may_still_run() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    let until = scene.now.plus(Millis::seconds(62));
    let orphan = Command::Orphan {
        call: CallNo(1),
        attempt: 1,
        node: OTHER_NODE,
        why: OrphanCause::ServerLost,
        reconciled: None,
    };
    (
        scene.send(orphan).unwrap_err(),
        format!("call 1 may still be running on the node that started it until {}", until.0),
    )
}

fn a_reply_that_nobody_waits_for() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    (scene.send(scene.reply(vec![])).unwrap_err(), "this run is not waiting for a model reply".into())
}

fn failing_a_run_whose_call_has_started() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    let fail =
        FailRun { worker: None, error: "panic".into(), detail: None, kind: FailKind::Final, heard: None };
    let text = "call 1 has started and may have changed something; report it as orphaned instead";
    (scene.send(Command::Fail(fail)).unwrap_err(), text.into())
}

fn a_model_reply_for_an_outside_run() -> RefusalRow {
    let mut scene = Scene::of_worker();
    (scene.send(scene.reply(vec![])).unwrap_err(), "this run is driven by someone else".into())
}

fn speaking_for_a_run_that_another_worker_has() -> RefusalRow {
    let heartbeat = Command::Heartbeat { worker: worker("w-2") };
    (Scene::of_worker().send(heartbeat).unwrap_err(), "the run is claimed by w-1".into())
}

fn speaking_for_a_run_that_nobody_has() -> RefusalRow {
    let mut scene = Scene::start(an_agent(), Driver::Outside);
    let heartbeat = Command::Heartbeat { worker: worker("w-1") };
    (scene.send(heartbeat).unwrap_err(), "nobody has claimed the run; claim it first".into())
}

fn claiming_a_run_before_it_is_due_again() -> RefusalRow {
    let mut scene = Scene::of_worker();
    let kind = FailKind::Transient { retry_at: scene.now.plus(Millis::seconds(9)) };
    scene
        .send(Command::Fail(FailRun {
            worker: Some(worker("w-1")),
            error: "oops".into(),
            detail: None,
            kind,
            heard: None,
        }))
        .unwrap();
    let claim = ClaimRun::Worker { worker: worker("w-2"), period: Millis::seconds(60) };
    (scene.send(Command::Claim(claim)).unwrap_err(), "the run cannot be claimed now".into())
}

fn one_hold_too_many() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.limits.open_holds = 1;
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.begins(1).unwrap();
    scene.begins(2).unwrap();
    scene.send(Command::Suspend(suspend(1, 1, SuspendFor::Input))).unwrap();
    let second = Command::Suspend(suspend(2, 1, SuspendFor::Input));
    (scene.send(second).unwrap_err(), "the limit of 1 open holds of a run is reached".into())
}

fn one_sub_run_too_many() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.limits.children = 1;
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.begins_and_suspends(suspend_for_child(1, 1)).unwrap();
    let second = scene.begins_and_suspends(suspend_for_child(2, 1));
    (second.unwrap_err(), "the limit of 1 sub-runs of a run is reached".into())
}

/// Where a sub-run with so many runs above it comes from.
fn below(depth: u32) -> Option<Parent> {
    let hold = HoldKey { call: CallNo(1), secret: Secret([1; 16]) };
    Some(Parent { run: run_id(), call: CallNo(1), hold, depth })
}

fn one_sub_run_too_deep() -> RefusalRow {
    let mut scene = Scene::start_below(an_agent(), Driver::Loop, below(8)).unwrap();
    scene.the_model_asks(&[SHELL]);
    let deeper = scene.begins_and_suspends(suspend_for_child(1, 1));
    (deeper.unwrap_err(), "the limit of 8 nested sub-runs is reached".into())
}

fn starting_too_deep() -> RefusalRow {
    let Err(refusal) = Scene::start_below(an_agent(), Driver::Loop, below(9)) else { panic!("it started") };
    (refusal, "the limit of 8 nested sub-runs is reached".into())
}

fn a_result_after_erasure() -> RefusalRow {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    scene.send(cancel()).unwrap();
    scene.send(Command::Erase { reason: None }).unwrap();
    (scene.finishes(1, 1).unwrap_err(), "the contents of this run were deleted".into())
}

/// Architecture, rule 3: the same decision again with the same key is a success, and nothing is added.
#[test]
fn the_same_decision_with_the_same_key_is_a_repeat_and_another_one_is_refused() {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let with_key = |resolution, key: &str| {
        Command::Resolve(Resolve {
            decide: as_seen(hold),
            resolution,
            idempotency_key: Some(key.into()),
            message: None,
        })
    };
    scene.send(with_key(Choice::Approve, "k-1")).unwrap();
    let before = scene.log.len();
    assert_eq!(scene.send(with_key(Choice::Approve, "k-1")), Ok(standfast_core::decide::Answer::Repeated));
    assert!(matches!(scene.send(with_key(Choice::Approve, "k-2")), Err(Refusal::AlreadyDecided(_))));
    assert!(matches!(scene.send(with_key(deny(), "k-1")), Err(Refusal::AlreadyDecided(_))));
    assert!(matches!(scene.send(resolve(hold, Choice::Approve)), Err(Refusal::AlreadyDecided(_))));
    assert_eq!(scene.log.len(), before);
}

/// Who may not decide a hold learns nothing about it, not even that it is closed.
#[test]
fn a_stranger_is_not_told_who_decided() {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    scene.resolves(hold, Choice::Approve).unwrap();
    scene.authority = None;
    assert_eq!(scene.resolves(hold, deny()), Err(Refusal::NotAllowed(Some(scene.run.hold_id(hold)))));
}

/// A claim that somebody has is not given away, and a second node is told that the run is taken.
#[test]
fn a_run_has_one_worker() {
    let mut scene = Scene::of_worker();
    let refused = Err(Refusal::ClaimedByOther { holder: Some(worker("w-1")) });
    assert_eq!(scene.send(the_worker_claims()), refused);
    assert_eq!(scene.send(Command::Claim(ClaimRun::Node)), Err(Refusal::WrongDriver));
}

/// A node need not wait for its own call, and a repeat of the report changes nothing.
#[test]
fn a_result_counts_once() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.begins(1).unwrap();
    scene.finishes(1, 1).unwrap();
    let again = Err(Refusal::StaleAttempt { call: CallNo(1), attempt: 1, current: 1 });
    assert_eq!(scene.send(Command::FinishCall(finish(1, 1))), again);
    let orphan = Command::Orphan {
        call: CallNo(1),
        attempt: 1,
        node: NODE,
        why: OrphanCause::ServerLost,
        reconciled: None,
    };
    assert_eq!(scene.send(orphan), Err(Refusal::CallNotReady(CallNo(1))));
}
