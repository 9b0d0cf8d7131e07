//! Single rules of the architecture (section 4) that are easy to get wrong: each was once broken, or nearly.
//!
//! The hold table has its own file, `hold_table.rs`; what must hold at any time is in `fuzz.rs`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use standfast_core::body::Body;
use standfast_core::command::{
    Choice, ClaimRun, Command, Decide, FailKind, FailRun, OnHold, RecordFailure, Resolve, Suspend, SuspendFor,
};
use standfast_core::decide::{self, Answer};
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Event, OrphanCause, Outcome};
use standfast_core::hold::{Demand, Finding, HoldKind, HoldPolicy, OnDeny, OnTimeout, Resolution};
use standfast_core::id::{CallNo, HoldId, RequestId};
use standfast_core::message::FileDigest;
use standfast_core::name::{RuleId, ToolName};
use standfast_core::next::{self, NextStep};
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};
use standfast_core::project;
use standfast_core::receipt::{CallEffect, receipt_of_call};
use standfast_core::reconcile::{EffectAnswer, Reconciliation};
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallOutcome, CallState};
use standfast_core::time::Millis;
use support::{
    LOOKUP, NODE, SHELL, Scene, an_agent, answer, cancel, deny, finish, person, resolve, say, suspend,
    suspend_for_child, the_policy_says, the_rule_says, the_worker_claims, the_worker_proposes,
    with_another_schema, worker,
};

/// Rule 5: what became of a started call may follow the end, also that it came to nothing; there is no second try.
#[test]
fn a_call_given_back_after_the_end_was_not_executed() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    scene.send(cancel()).unwrap();
    let before = scene.log.len();
    scene.send(Command::Return { call: CallNo(1), attempt: 1 }).unwrap();
    assert_eq!(scene.kinds_after(before), ["call.returned"]);
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::NotExecuted));
    assert_eq!(next::next(&scene.run, scene.now), NextStep::Nothing);
    let stale = Refusal::StaleAttempt { call: CallNo(1), attempt: 1, current: 1 };
    assert_eq!(scene.finishes(1, 1), Err(stale), "it says that it never ran");
}

/// S0-54, rule 5: a run that has worked for as long as it may ends as failed, also while a call runs that changes the
/// world; what became of that call may still be told.
#[test]
fn a_run_that_is_out_of_time_ends_while_its_call_runs() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    let fail = FailRun {
        worker: None,
        error: "too long".into(),
        detail: None,
        kind: FailKind::OutOfTime,
        heard: None,
    };
    scene.send(Command::Fail(fail)).unwrap();
    assert_eq!(scene.run.outcome(), Some(Outcome::Failed));
    let before = scene.log.len();
    scene
        .send(Command::Orphan {
            call: CallNo(1),
            attempt: 1,
            node: NODE,
            why: OrphanCause::ServerLost,
            reconciled: None,
        })
        .unwrap();
    assert_eq!(scene.kinds_after(before), ["call.orphaned"]);
}

/// Rule 6, and no refused command leaves a trace: what cannot supersede everything supersedes nothing.
#[test]
fn a_message_that_cannot_supersede_an_unknown_outcome_supersedes_nothing() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.begins(1).unwrap();
    scene
        .send(Command::Orphan {
            call: CallNo(1),
            attempt: 1,
            node: NODE,
            why: OrphanCause::ServerLost,
            reconciled: None,
        })
        .unwrap();
    scene.verdicts = the_rule_says("new", Effect::Hold, 1);
    scene.begins(2).unwrap();
    let before = scene.clone();
    let open = scene.run.state.holds.iter().map(|hold| scene.run.hold_id(hold.key)).collect();
    assert_eq!(scene.send(say(OnHold::Supersede)), Err(Refusal::Held { open }));
    assert_eq!((scene.run, scene.log), (before.run, before.log));
}

/// A tool that finds out by itself may look again: the server says so, of holds that a tool left something with and of no
/// others. The call is started again, and nobody's answer is its result.
#[test]
fn the_server_lets_a_tool_look_again_and_says_nothing_else() {
    let waits = |resume: Option<Box<Body>>| {
        let mut scene = Scene::of_loop();
        scene.the_model_asks(&[SHELL]);
        let mut wanted = suspend(1, 1, SuspendFor::External);
        wanted.ask.resume = resume;
        scene.begins_and_suspends(wanted).unwrap();
        scene.authority = Some(Role::System);
        scene
    };
    let mut scene = waits(Some(Box::new(Body::text("where it was"))));
    let hold = scene.hold();
    assert_eq!(scene.resolves(hold, answer()), Ok(Answer::Done));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Ready);
    let mut others = waits(None);
    let hold = others.hold();
    let refused = Err(Refusal::WrongKind { hold: others.run.hold_id(hold), kind: HoldKind::External });
    assert_eq!(others.resolves(hold, answer()), refused);
}

/// Hold table: a message to a run that waits for an outside system queues, also when the whole run waits.
#[test]
fn a_message_to_a_run_that_waits_for_a_login_is_queued() {
    let mut scene = Scene::of_worker();
    scene.send(Command::Suspend(suspend(0, 0, SuspendFor::Auth))).unwrap();
    let before = scene.log.len();
    scene.send(say(OnHold::Refuse)).unwrap();
    assert_eq!(scene.kinds_after(before), ["message.queued"]);
}

/// Rule 4: `deny` on expiry is a deny, and what a deny does is the hold's policy.
#[test]
fn an_expiry_that_denies_ends_the_run_where_a_deny_would() {
    let timeout = Some(Millis::seconds(60));
    let policy =
        HoldPolicy { on_timeout: OnTimeout::Deny, on_deny: OnDeny::Cancel, timeout, ..HoldPolicy::default() };
    let (mut scene, hold) = Scene::waiting_for_approval(policy);
    scene.later(Millis::seconds(60));
    scene.send(Command::Tick).unwrap();
    assert_eq!(scene.run.outcome(), Some(Outcome::Canceled));
    assert_eq!(scene.resolution(hold), Some(Resolution::Expire));
}

/// Rule 4: a slow sweeper changes nothing that anyone can see. The later deadline belongs to the earlier hold.
#[test]
fn deadlines_take_effect_in_their_own_order_however_late_they_are_noticed() {
    let mut definition = an_agent();
    for (tool, seconds, on_timeout) in [(SHELL, 200, OnTimeout::Cancel), (LOOKUP, 100, OnTimeout::Fail)] {
        let policy =
            HoldPolicy { on_timeout, timeout: Some(Millis::seconds(seconds)), ..HoldPolicy::default() };
        definition.tools.get_mut(&ToolName::new(tool).unwrap()).expect("a tool").holds = Some(policy);
    }
    let mut scene = Scene::start(definition, Driver::Loop);
    scene.verdicts = the_policy_says(Effect::Hold);
    scene.the_model_asks(&[SHELL, LOOKUP]);
    let mut prompt = scene.clone();
    for sweep in [&mut scene, &mut prompt].into_iter().zip([vec![300], vec![100, 200]]) {
        let (scene, instants) = sweep;
        let begin = scene.now;
        for seconds in instants {
            scene.now = begin.plus(Millis::seconds(seconds));
            let _ = scene.send(Command::Tick);
        }
    }
    assert_eq!(scene.run.outcome(), Some(Outcome::Failed));
    assert_eq!(scene.run.outcome(), prompt.run.outcome());
}

/// Rule 4, for the claim of an outside worker: it lapsed before the hold expired.
#[test]
fn a_claim_that_lapsed_first_ends_the_run_first() {
    let timeout = Some(Millis::seconds(100));
    let holds = HoldPolicy { on_timeout: OnTimeout::Cancel, timeout, ..HoldPolicy::default() };
    let mut scene = Scene::start(Definition { holds, ..an_agent() }, Driver::Outside);
    for _ in 0..2 {
        scene.send(the_worker_claims()).unwrap();
        scene.later(Millis::seconds(60));
    }
    scene.send(the_worker_claims()).unwrap();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    scene.verdicts = the_policy_says(Effect::Hold);
    scene.send(the_worker_proposes(SHELL)).unwrap();
    scene.later(Millis::seconds(100));
    scene.send(Command::Tick).unwrap();
    assert_eq!(scene.run.outcome(), Some(Outcome::Failed));
}

/// S2-38, T9: each hold has its own 128 bits, also when one append opens several.
#[test]
fn holds_opened_by_one_append_share_no_secret() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.verdicts = the_rule_says("new", Effect::Hold, 1);
    let ctx = scene.context(None);
    let first = decide::decide(&scene.run, &scene.begin(1), &ctx);
    let both = decide::decide_more(first, &scene.begin(2), &ctx);
    let secrets: Vec<_> = both.run.state.holds.iter().map(|hold| hold.key.secret).collect();
    assert_eq!(secrets.len(), 2);
    assert_ne!(secrets[0], secrets[1]);
}

/// Rule 7: the hold of a sub-run has no deadline; the sub-run ends by itself.
#[test]
fn a_sub_run_is_waited_for_without_limit() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let timeout = Some(Millis::seconds(5));
    scene.begins_and_suspends(Suspend { timeout, ..suspend_for_child(1, 1) }).unwrap();
    assert_eq!(scene.hold_of(1).expires_at, None);
}

/// Rule 7: the outcome of a sub-run is the sub-run's to say, and no person's or callback's.
#[test]
fn only_the_server_itself_says_what_a_sub_run_came_to() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins_and_suspends(suspend_for_child(1, 1)).unwrap();
    let (hold, kind, before) = (scene.hold(), HoldKind::External, scene.log.len());
    for role in [Role::Owner, Role::Approver, Role::Admin, Role::Callback] {
        scene.authority = Some(role);
        for wanted in [answer(), support::fail(), Choice::Withdraw] {
            assert_eq!(
                scene.resolves(hold, wanted),
                Err(Refusal::WrongKind { hold: scene.run.hold_id(hold), kind }),
                "{role:?}"
            );
        }
    }
    scene.authority = Some(Role::System);
    assert_eq!(
        scene.resolves(hold, Choice::Withdraw),
        Err(Refusal::WrongKind { hold: scene.run.hold_id(hold), kind })
    );
    assert_eq!(scene.log.len(), before);
    assert_eq!(scene.resolves(hold, answer()), Ok(Answer::Done));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::Ok));
}

/// Rule 3: policy is asked directly before a call leaves our hands, whoever then does it.
#[test]
fn a_node_begins_a_call_before_it_suspends_it() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let early = Command::Suspend(suspend(1, 0, SuspendFor::External));
    assert_eq!(scene.send(early), Err(Refusal::CallNotReady(CallNo(1))));
    let mut forbidden = scene.clone();
    let before = scene.log.len();
    assert_eq!(scene.begins_and_suspends(suspend(1, 1, SuspendFor::External)), Ok(Answer::Done));
    assert_eq!(scene.kinds_after(before), ["call.started", "hold.opened"]);
    forbidden.verdicts = the_policy_says(Effect::Deny);
    let refused = forbidden.begins_and_suspends(suspend(1, 1, SuspendFor::External));
    assert_eq!((refused, forbidden.kinds_after(before)), (Ok(Answer::Refused), vec!["call.finished"]));
}

/// An outside worker starts by itself what it was allowed to; it may hand it on instead.
#[test]
fn a_worker_suspends_a_call_that_it_was_allowed_to_run() {
    let mut scene = Scene::of_worker();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    assert_eq!(scene.send(Command::Suspend(suspend(1, 0, SuspendFor::External))), Ok(Answer::Done));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Held);
}

/// Rule 7: whatever withdraws the hold of a sub-run cancels the sub-run.
#[test]
fn a_worker_that_gives_up_for_now_cancels_its_sub_runs() {
    let mut scene = Scene::of_worker();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    let wanted = suspend_for_child(1, 0);
    let child = wanted.ask.child.unwrap();
    scene.send(Command::Suspend(wanted)).unwrap();
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
    assert_eq!(scene.canceled_children, [child]);
}

/// Only the worker that has the claim speaks for the run, also for one of its calls.
#[test]
fn nobody_else_suspends_a_call_of_a_claimed_run() {
    let mut scene = Scene::of_worker();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    let mut wanted = suspend(1, 0, SuspendFor::Input);
    wanted.worker = Some(worker("w-2"));
    let refused = Err(Refusal::ClaimedByOther { holder: Some(worker("w-1")) });
    assert_eq!(scene.send(Command::Suspend(wanted)), refused);
}

/// What an outside worker was allowed to run and never reported may have run, however the run ends.
#[test]
fn a_worker_may_still_report_what_it_ran_when_the_run_was_canceled_meanwhile() {
    let mut scene = Scene::of_worker();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    scene.send(cancel()).unwrap();
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::Unknown));
    let mut report = finish(1, 0);
    report.worker = Some(worker("w-1"));
    assert_eq!(scene.send(Command::FinishCall(report)), Ok(Answer::Done));
}

/// The same when it hands the run to a person: the next worker must not take the call for one it may run.
#[test]
fn what_a_worker_did_not_report_before_it_asked_a_person_is_unknown() {
    let mut scene = Scene::of_worker();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    scene.send(Command::Suspend(suspend(0, 0, SuspendFor::Input))).unwrap();
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::Unknown));
}

/// Rule 8 answers only the hold that said something pinned is gone, never a worker's question.
#[test]
fn moving_a_run_to_another_definition_answers_no_workers_question() {
    let mut scene = Scene::of_worker();
    scene.send(Command::Suspend(suspend(0, 0, SuspendFor::Input))).unwrap();
    let question = scene.hold();
    scene.send(Command::Repin { definition: Digest([3; 32]) }).unwrap();
    assert_eq!(scene.hold(), question);
}

/// Rule 8: repinning answers the hold that said something pinned is gone.
#[test]
fn moving_a_run_to_another_definition_lets_a_blocked_loop_go_on() {
    let mut scene = Scene::of_loop();
    scene.send(Command::Suspend(suspend(0, 0, SuspendFor::Input))).unwrap();
    assert_eq!(next::next(&scene.run, scene.now), NextStep::Wait(None));
    scene.send(Command::Repin { definition: Digest([3; 32]) }).unwrap();
    assert_eq!(next::next(&scene.run, scene.now), NextStep::Think);
}

/// Rule 11: over the hard cap a call is refused and the model gets the reason, also directly before its start.
#[test]
fn a_call_that_would_need_one_hold_too_many_is_refused_and_not_tried_for_ever() {
    let mut scene = Scene::of_loop();
    scene.limits.open_holds = 1;
    scene.the_model_asks(&[SHELL, SHELL]);
    scene.verdicts = the_rule_says("new", Effect::Hold, 1);
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    assert_eq!(scene.begins(2), Ok(Answer::Refused));
    assert_eq!(scene.run.call(CallNo(2)).unwrap().state, CallState::Done(CallOutcome::Refused));
}

/// Rule 11: over a soft cap nobody is notified of the hold, so nobody is reminded of it either.
#[test]
fn nobody_is_reminded_of_a_muted_hold() {
    let mut scene = Scene::of_loop();
    scene.definition.holds.remind_after = Some(Millis::seconds(30));
    scene.verdicts = the_policy_says(Effect::Hold);
    scene.verdicts.mutes = true;
    scene.the_model_asks(&[SHELL]);
    scene.later(Millis::seconds(60));
    assert_eq!(scene.send(Command::Tick), Ok(Answer::Repeated));
}

/// A span of nothing is no span: nobody is reminded all the time.
#[test]
fn without_a_positive_span_nobody_is_reminded() {
    for (span, reminders) in [(-1, 0), (0, 0), (1, 1)] {
        let remind_after = Some(Millis(span));
        let (scene, _) = Scene::waiting_for_approval(HoldPolicy { remind_after, ..HoldPolicy::default() });
        assert_eq!(scene.hold_of(1).remind_at.iter().count(), reminders, "{span} ms");
    }
}

/// The open holds of a run share a request, also when an outside worker proposes one call after the other.
#[test]
fn open_holds_share_a_request() {
    let mut scene = Scene::of_worker();
    scene.verdicts = the_policy_says(Effect::Hold);
    scene.send(the_worker_proposes(SHELL)).unwrap();
    let first = scene.run.request().unwrap();
    scene.send(the_worker_proposes(SHELL)).unwrap();
    let rows = scene.run.state.holds.iter().map(|hold| project::hold_row(&scene.run, hold));
    let requests: Vec<_> = rows.map(|row| row.request).collect();
    assert_eq!(requests, [Some(RequestId { run: scene.run.facts.id, key: first }); 2]);
    for call in [1, 2] {
        scene.resolves(scene.hold_of(call).key, deny()).unwrap();
    }
    scene.send(the_worker_proposes(SHELL)).unwrap();
    assert_ne!(scene.run.request().unwrap(), first, "nothing was open any more");
}

/// Every held run keeps its row for as long as it waits: the usual ones are a few hundred bytes.
#[test]
fn a_run_that_waits_has_a_small_row() {
    let timeout = Some(Millis::hours(72));
    let policies =
        [HoldPolicy::default(), HoldPolicy { timeout, on_timeout: OnTimeout::Deny, ..HoldPolicy::default() }];
    for (calls, limits) in [(1, [384, 480]), (2, [640, 832])] {
        for (holds, limit) in policies.clone().into_iter().zip(limits) {
            let mut scene = Scene::start(Definition { holds, ..an_agent() }, Driver::Loop);
            scene.verdicts = the_rule_says("tools-that-write", Effect::Hold, 1);
            scene.the_model_asks(&vec![SHELL; calls]);
            let row = serde_json::to_string(&scene.run.state).unwrap();
            assert!(row.len() < limit, "{} bytes: {row}", row.len());
        }
    }
}

/// Whether somebody took a run is remembered until its first turn; later that goes without saying.
#[test]
fn a_run_stays_claimed() {
    let mut scene = Scene::of_loop();
    assert!(!scene.run.was_claimed());
    assert_eq!(scene.send(Command::Claim(ClaimRun::Node)), Ok(Answer::Done));
    assert!(scene.run.was_claimed() && scene.run.state.claimed);
    scene.the_model_asks(&[SHELL]);
    assert!(scene.run.was_claimed() && !scene.run.state.claimed);
    assert_eq!(scene.send(Command::Claim(ClaimRun::Node)), Ok(Answer::Repeated));
    scene.begins(1).unwrap();
    scene.finishes(1, 1).unwrap();
    let retry_at = Some(scene.now.plus(Millis::seconds(1)));
    scene
        .send(Command::RecordFailure(RecordFailure { error: Body::text("busy"), retry_at, heard: None }))
        .unwrap();
    assert!(scene.run.was_claimed() && !scene.run.state.claimed);
}

/// What the run was withdrawn for is said, not that a deadline passed which had not.
#[test]
fn a_decision_on_a_hold_that_ended_with_its_run_is_told_so() {
    let timeout = Some(Millis::seconds(100));
    let mut definition = an_agent();
    let brief = HoldPolicy { timeout, ..HoldPolicy::default() };
    definition.tools.get_mut(&ToolName::new(SHELL).unwrap()).expect("a tool").holds = Some(brief);
    let mut scene = Scene::start(definition, Driver::Loop);
    scene.verdicts = the_policy_says(Effect::Hold);
    scene.the_model_asks(&[SHELL, LOOKUP]);
    let (expires, withdrawn) = (scene.hold_of(1).key, scene.hold_of(2).key);
    scene.later(Millis::seconds(100));
    assert_eq!(
        scene.decided(&resolve(expires, deny())).outcome,
        Err(Refusal::Expired(scene.run.hold_id(expires)))
    );
    assert_eq!(scene.decided(&resolve(withdrawn, deny())).outcome, Err(Refusal::Ended(Outcome::Failed)));
}

/// Expiry is decided, not swept: whoever comes first after the deadline is told, also who wants to reopen.
#[test]
fn a_hold_that_expires_this_instant_is_not_said_to_be_unknown() {
    let policy = HoldPolicy { timeout: Some(Millis::seconds(60)), ..HoldPolicy::default() };
    let (mut scene, hold) = Scene::waiting_for_approval(policy);
    scene.later(Millis::seconds(60));
    assert_eq!(
        scene.send(Command::Reopen { hold, expires_at: None }),
        Err(Refusal::Expired(scene.run.hold_id(hold)))
    );
}

/// A result must not bring contents back that were deleted; that its outcome stays unknown can still be noted.
#[test]
fn a_result_after_erasure_is_not_kept() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    scene.send(cancel()).unwrap();
    scene.send(Command::Erase { reason: None }).unwrap();
    assert_eq!(scene.finishes(1, 1), Err(Refusal::Erased));
    assert_eq!(
        scene.send(Command::Orphan {
            call: CallNo(1),
            attempt: 1,
            node: NODE,
            why: OrphanCause::ServerLost,
            reconciled: None
        }),
        Ok(Answer::Done)
    );
    assert_eq!(next::next(&scene.run, scene.now), NextStep::Nothing);
}

/// Rule 3: with a quorum an edit drops the votes, and the hold stays open for the new arguments.
#[test]
fn an_edit_drops_the_votes() {
    let mut scene = Scene::of_loop();
    scene.verdicts = the_rule_says("two", Effect::Hold, 2);
    scene.the_model_asks(&[SHELL]);
    let hold = scene.hold();
    assert_eq!(scene.send(Command::Vote(support::as_seen(hold))), Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(scene.resolves(hold, support::edited()), Ok(Answer::Edited));
    assert!(scene.hold_of(1).votes.is_empty());
    assert_eq!(scene.hold_of(1).revision, 1);
}

/// C24: where several rules hold a call, each one's people must agree; one person counts for every rule that they may
/// decide, and nobody for a rule that they may not.
#[test]
fn each_rule_needs_its_own_people() {
    let (ops, finance) = (RuleId::new("ops").unwrap(), RuleId::new("finance").unwrap());
    let demand = |rule: &RuleId, quorum| Demand { quorum, ..Demand::of(rule.clone()) };
    let holds = |demand: Demand| {
        let verdict = Verdict::new(Effect::Hold, demand.rule.clone());
        (CallNo(1), Verdict { votes: demand.quorum.max(1), demand: Some(demand), ..verdict })
    };
    let mut scene = Scene::of_loop();
    scene.verdicts.by_call = vec![holds(demand(&ops, 2)), holds(demand(&finance, 0))];
    scene.the_model_asks(&[SHELL]);
    let hold = scene.hold();
    let mut says = |who: &str, counts_for: &[&RuleId], choice: Choice| {
        scene.actor = person(who);
        scene.counts_for = counts_for.iter().map(|rule| (*rule).clone()).collect();
        scene.resolves(hold, choice)
    };
    let not_allowed = Err(Refusal::NotAllowed(Some(HoldId { run: support::run_id(), key: hold })));
    assert_eq!(says("alice", &[], Choice::Approve), not_allowed);
    assert_eq!(says("alice", &[], deny()), not_allowed);
    assert_eq!(says("bob", &[&ops], Choice::Approve), Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(says("bob", &[&ops], Choice::Approve), Ok(Answer::Repeated));
    // Two have agreed, and nobody for finance.
    assert_eq!(says("carol", &[&ops], Choice::Approve), Ok(Answer::Voted { votes: 2, needed: 3 }));
    assert_eq!(says("fay", &[&finance], Choice::Approve), Ok(Answer::Done));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Ready);
    assert!(scene.run.call(CallNo(1)).unwrap().satisfied.contains(&finance));
}

/// C16, C24: an edit restarts the vote, and what the old arguments demanded stays.
#[test]
fn an_edit_is_no_way_around_a_demand() {
    let ops = RuleId::new("ops").unwrap();
    let demand = Demand { quorum: 2, ..Demand::of(ops.clone()) };
    let verdict = Verdict { votes: 2, demand: Some(demand), ..Verdict::new(Effect::Hold, ops.clone()) };
    let mut scene = Scene::of_loop();
    scene.verdicts.by_call = vec![(CallNo(1), verdict)];
    scene.counts_for = vec![ops];
    scene.the_model_asks(&[SHELL]);
    let hold = scene.hold();
    assert_eq!(scene.send(Command::Vote(support::as_seen(hold))), Ok(Answer::Voted { votes: 1, needed: 2 }));
    scene.verdicts = the_policy_says(Effect::Allow);
    assert_eq!(scene.resolves(hold, support::edited()), Ok(Answer::Edited));
    let open = scene.hold_of(1);
    assert_eq!((open.votes_missing(), open.demands.len()), (2, 1));
    assert!(open.demands[0].agreed.is_empty());
}

/// Rule 2: a late true result answers the recovery hold; one that a person declared void is shown as contradicting.
#[test]
fn a_late_result_is_the_truth_or_a_contradiction() {
    let (mut scene, _) = Scene::with_unknown_outcome();
    assert_eq!(scene.finishes(1, 1), Ok(Answer::Done));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::Ok));
    let (mut scene, hold) = Scene::with_unknown_outcome();
    scene.resolves(hold, deny()).unwrap();
    assert_eq!(scene.finishes(1, 1), Ok(Answer::Contradicted));
    assert!(matches!(scene.log.last().map(|last| &last.event), Some(Event::CallContradicted(_))));
}

/// Rule 3: a call that was approved under one schema is asked about again under another, when the run was moved.
#[test]
fn a_changed_tool_is_asked_about_again() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let before = scene.run.call(CallNo(1)).unwrap().digest;
    scene.moves_to(with_another_schema(an_agent()));
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    assert_eq!(scene.hold_of(1).rules, [RuleId::schema_changed()]);
    assert_eq!(scene.hold_of(1).revision, 0, "nobody has been shown anything before");
    assert_ne!(scene.run.call(CallNo(1)).unwrap().digest, before);
    let hold = scene.hold();
    scene.resolves(hold, Choice::Approve).unwrap();
    assert_eq!(scene.begins(1), Ok(Answer::Done));
}

/// Rule 3: what was approved under one schema is a new revision under another.
#[test]
fn a_tool_that_changed_after_the_approval_is_a_new_revision() {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    scene.resolves(hold, Choice::Approve).unwrap();
    scene.moves_to(with_another_schema(an_agent()));
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    assert_is_a_new_revision(&mut scene);
    assert_eq!(scene.begins(1), Ok(Answer::Done));
}

/// Rule 3: what was found is another thing than what people approved: a new revision. What a rule looks at for the first time
/// is not, nor is what another rule found.
#[test]
fn another_finding_is_a_new_revision() {
    let mut scene = Scene::of_loop();
    let found = |scene: &mut Scene, of: &str, digest: &str| {
        let finding = RuleId::finding(&RuleId::new(of).unwrap(), digest).unwrap();
        scene.verdicts.by_call = vec![(CallNo(1), Verdict::new(Effect::Hold, finding))];
    };
    found(&mut scene, "prod", "1");
    scene.the_model_asks(&[SHELL]);
    let hold = scene.hold();
    scene.resolves(hold, Choice::Approve).unwrap();
    found(&mut scene, "prod:db", "1");
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    assert_eq!(scene.hold_of(1).revision, 0);
    let hold = scene.hold();
    scene.resolves(hold, Choice::Approve).unwrap();
    found(&mut scene, "prod", "2");
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    assert_is_a_new_revision(&mut scene);
    assert_eq!(scene.begins(1), Ok(Answer::Done));
}

/// The hold is asked about again as revision 1: neither a blind decision counts nor one about what was shown before.
fn assert_is_a_new_revision(scene: &mut Scene) {
    assert_eq!(scene.hold_of(1).revision, 1);
    let hold = scene.hold();
    let blind = scene.resolves(hold, Choice::Approve);
    assert!(matches!(blind, Err(Refusal::MustRepeatDigest { revision: 1, .. })), "{blind:?}");
    let mut seen = |revision| {
        let decide = Decide { hold, digest: None, revision: Some(revision) };
        let (resolution, idempotency_key, message) = (Choice::Approve, None, None);
        scene.send(Command::Resolve(Resolve { decide, resolution, idempotency_key, message }))
    };
    let stale = seen(0);
    assert!(matches!(stale, Err(Refusal::Stale { revision: 1, .. })), "{stale:?}");
    assert_eq!(seen(1), Ok(Answer::Done));
}

/// T3, rule 3: a call whose file changed after its approval is asked about again, as a new revision whose digest has it
/// and which a decision has to name; one that nobody was asked about is not.
#[test]
fn a_changed_file_is_asked_about_again() {
    let with_file = |effect: Effect, sha256: &str| {
        let file = FileDigest { path: "deploy.sh".into(), sha256: sha256.into() };
        Verdicts { files: vec![(CallNo(1), file)], ..the_policy_says(effect) }
    };
    let mut scene = Scene::of_loop();
    scene.verdicts = with_file(Effect::Hold, "first");
    scene.the_model_asks(&[SHELL]);
    let digest = |scene: &Scene| scene.run.call(CallNo(1)).unwrap().digest;
    let (before, hold) = (digest(&scene), scene.hold());
    scene.resolves(hold, Choice::Approve).unwrap();
    scene.verdicts = with_file(Effect::Hold, "second");
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    assert!(scene.hold_of(1).rules.contains(&RuleId::files_changed()));
    assert_eq!(scene.hold_of(1).revision, 1);
    assert_ne!(digest(&scene), before);
    let hold = scene.hold();
    let blind = scene.resolves(hold, Choice::Approve);
    assert!(matches!(blind, Err(Refusal::MustRepeatDigest { .. })), "{blind:?}");
    let decide = Decide { hold, digest: digest(&scene), revision: None };
    let seen = Resolve { decide, resolution: Choice::Approve, idempotency_key: None, message: None };
    scene.send(Command::Resolve(seen)).unwrap();
    assert_eq!(scene.begins(1), Ok(Answer::Done));

    let mut scene = Scene::of_loop();
    scene.verdicts = with_file(Effect::Allow, "first");
    scene.the_model_asks(&[SHELL]);
    scene.verdicts = with_file(Effect::Allow, "second");
    assert_eq!(scene.begins(1), Ok(Answer::Done));
}

/// Rule 3: a run is pinned, so another schema without a move is no change of the tool but of what was shown.
#[test]
fn a_schema_that_changes_under_a_pinned_run_is_tampering() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.definition = with_another_schema(an_agent());
    assert!(matches!(scene.begins(1), Err(Refusal::Tampered { call: CallNo(1), .. })));
    // A policy that would forbid the call does not hide it.
    scene.verdicts = the_policy_says(Effect::Deny);
    assert!(matches!(scene.begins(1), Err(Refusal::Tampered { call: CallNo(1), .. })));
}

/// Rule 3: a move excuses what was shown before it, and nothing that was proposed or edited after it.
#[test]
fn what_was_asked_after_a_move_is_not_excused_by_it() {
    let mut scene = Scene::of_loop();
    scene.moves_to(with_another_schema(an_agent()));
    scene.the_model_asks(&[SHELL]);
    let Command::Begin(mut begin) = scene.begin(1) else { unreachable!("a begin") };
    begin.stored.arguments.push(' ');
    assert!(matches!(scene.send(Command::Begin(begin)), Err(Refusal::Tampered { .. })));
    assert_eq!(scene.begins(1), Ok(Answer::Done));

    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    scene.moves_to(with_another_schema(an_agent()));
    scene.resolves(hold, support::edited()).unwrap();
    let Command::Begin(mut begin) = scene.begin(1) else { unreachable!("a begin") };
    begin.stored.arguments.push(' ');
    assert!(matches!(scene.send(Command::Begin(begin)), Err(Refusal::Tampered { .. })));
    assert_eq!(scene.begins(1), Ok(Answer::Done), "the edit was looked at under the new schema");
}

/// Rule 3: no move makes another tool of a call.
#[test]
fn another_tool_is_tampering_also_after_a_move() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.moves_to(with_another_schema(an_agent()));
    let Command::Begin(mut begin) = scene.begin(1) else { unreachable!("a begin") };
    begin.stored.tool = ToolName::new(LOOKUP).unwrap();
    assert!(matches!(scene.send(Command::Begin(begin)), Err(Refusal::Tampered { .. })));
}

/// Rule 8: a tool that the new definition does not have cannot run any more, and the model gets the reason.
#[test]
fn a_tool_that_is_gone_after_a_move_is_refused() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    let mut without = an_agent();
    without.tools.remove(&ToolName::new(SHELL).unwrap());
    scene.moves_to(without);
    assert_eq!(scene.begins(1), Ok(Answer::Refused));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::Refused));
}

/// Rule 1: credentials that arrive let the call begin again; the run is held until then.
#[test]
fn a_login_lets_the_call_run() {
    let (mut scene, hold) = Scene::suspended(SuspendFor::Auth, HoldPolicy::default());
    assert!(scene.run.is_held());
    assert_eq!(scene.hold_of(1).kind, HoldKind::Auth);
    scene.resolves(hold, answer()).unwrap();
    assert_eq!(scene.begins(1), Ok(Answer::Done));
}

/// Rule 3: an approval of a changed tool is for the definition of that moment; a second move asks once more.
#[test]
fn an_approval_of_a_changed_tool_holds_for_one_move_only() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.moves_to(with_another_schema(an_agent()));
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    scene.moves_to(an_agent());
    let hold = scene.hold();
    scene.resolves(hold, Choice::Approve).unwrap();
    assert_eq!(scene.begins(1), Ok(Answer::Held), "what was approved was shown with the other schema");
    assert_is_a_new_revision(&mut scene);
    assert_eq!(scene.begins(1), Ok(Answer::Done));
}

/// The request of a turn follows from its first hold, stays the same while its holds come and go, and tells nothing
/// about any hold.
#[test]
fn the_request_of_a_turn_outlives_its_first_hold() {
    let mut scene = Scene::of_loop();
    scene.verdicts = the_policy_says(Effect::Hold);
    scene.the_model_asks(&[SHELL, SHELL]);
    let request = scene.run.request().unwrap();
    assert!(scene.run.state.holds.iter().all(|hold| hold.key.secret != request.secret));
    scene.resolves(scene.hold_of(1).key, Choice::Approve).unwrap();
    assert_eq!(scene.run.request(), Some(request));
}

fn reconciled(says: EffectAnswer) -> Option<Box<Reconciliation>> {
    let finding = Finding {
        tool: "find".into(),
        arguments: "{}".into(),
        result: r#"{"state":"paid"}"#.into(),
        fails: false,
        digest: Digest::default(),
    };
    Some(Box::new(Reconciliation { says, finding }))
}

fn lost(says: EffectAnswer) -> Command {
    let why = OrphanCause::ServerLost;
    Command::Orphan { call: CallNo(1), attempt: 1, node: NODE, why, reconciled: reconciled(says) }
}

/// What is known to have happened is settled without a person and never starts again; of anything else a person is asked, who sees
/// what was said.
#[test]
fn an_outcome_that_was_looked_up_needs_no_person_if_it_happened() {
    let mut scene = Scene::of_loop();
    scene.the_model_asks(&[SHELL]);
    scene.begins(1).unwrap();
    let before = scene.log.len();
    scene.send(lost(EffectAnswer::Happened)).unwrap();
    assert_eq!(scene.kinds_after(before), ["call.orphaned", "call.finished"]);
    assert!(scene.run.state.holds.is_empty() && scene.begins(1).is_err());
    let receipt = receipt_of_call(CallNo(1), &scene.log).unwrap().call.unwrap();
    assert_eq!(receipt.effect, CallEffect::Executed);
    assert_eq!(receipt.attempts[0].reconciled, reconciled(EffectAnswer::Happened));
    for says in [EffectAnswer::DidNotHappen, EffectAnswer::CannotTell] {
        let mut scene = Scene::of_loop();
        scene.the_model_asks(&[SHELL]);
        scene.begins(1).unwrap();
        let before = scene.log.len();
        scene.send(lost(says)).unwrap();
        assert_eq!(scene.kinds_after(before), ["call.orphaned", "hold.opened"]);
        assert!(scene.begins(1).is_err(), "not before a person has said so");
        scene.resolves(scene.hold(), Choice::Approve).unwrap();
        scene.begins(1).unwrap();
        let receipt = receipt_of_call(CallNo(1), &scene.log).unwrap().call.unwrap();
        assert_eq!(receipt.attempts[0].reconciled, reconciled(says));
        assert_eq!(receipt.attempts[1].reconciled, None);
    }
}

/// After the end of the run nobody is asked, and what happened is still on record.
#[test]
fn an_outcome_that_was_looked_up_after_the_end_is_on_record() {
    for (says, effect) in [
        (EffectAnswer::Happened, CallEffect::Executed),
        (EffectAnswer::DidNotHappen, CallEffect::OutcomeUnknown),
    ] {
        let mut scene = Scene::of_loop();
        scene.the_model_asks(&[SHELL]);
        scene.begins(1).unwrap();
        scene.send(cancel()).unwrap();
        scene.send(lost(says)).unwrap();
        let receipt = receipt_of_call(CallNo(1), &scene.log).unwrap().call.unwrap();
        assert_eq!(receipt.effect, effect);
    }
}
