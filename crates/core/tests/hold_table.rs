//! The hold table of the architecture (section 4), row by row and column by column.
//!
//! Each row is a kind of hold on the only call of a run; each test is a column. What a kind takes as a decision is
//! the last table. Rules that belong to no column are in `rules.rs`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use standfast_core::apply::after_resolution;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Command, OnHold, SuspendFor};
use standfast_core::decide::Answer;
use standfast_core::digest::Digest;
use standfast_core::event::{Event, Outcome};
use standfast_core::hold::{
    AfterGrace, EditedArguments, HoldKind, HoldPolicy, OnDeny, OnTimeout, Resolution,
};
use standfast_core::id::{CallNo, HoldKey};
use standfast_core::message::ToolResult;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallOutcome, CallState, Stage};
use standfast_core::time::Millis;
use support::{Scene, answer, cancel, deny, fail, finish, say};

const MINUTE: Millis = Millis::seconds(60);

/// A run whose only call waits in this way under this policy.
fn waiting(kind: HoldKind, policy: HoldPolicy) -> (Scene, HoldKey) {
    match kind {
        HoldKind::Approval => Scene::waiting_for_approval(policy),
        HoldKind::Input => Scene::suspended(SuspendFor::Input, policy),
        HoldKind::External => Scene::suspended(SuspendFor::External, policy),
        HoldKind::Auth => Scene::suspended(SuspendFor::Auth, policy),
        HoldKind::Recovery => Scene::with_unknown_outcome(),
    }
}

/// The decision that this kind of hold is for.
fn usual(kind: HoldKind) -> Choice {
    match kind {
        HoldKind::Approval | HoldKind::Recovery => Choice::Approve,
        HoldKind::Input | HoldKind::External | HoldKind::Auth => answer(),
    }
}

fn state_of_call(scene: &Scene) -> CallState {
    scene.run.call(CallNo(1)).unwrap().state
}

#[test]
fn column_superseded_by_a_message() {
    for kind in HoldKind::ALL {
        let (mut scene, hold) = waiting(kind, HoldPolicy::default());
        let before = scene.log.len();
        let said = scene.send(say(OnHold::Supersede));
        match kind {
            HoldKind::Approval | HoldKind::Input => {
                assert_eq!(said, Ok(Answer::Done));
                assert_eq!(scene.resolution(hold), Some(Resolution::Supersede));
                assert_eq!(state_of_call(&scene), CallState::Done(CallOutcome::NotExecuted));
                assert_eq!(scene.run.state.stage, Stage::Thinking { failures: 0, retry_at: None });
            }
            HoldKind::External | HoldKind::Auth => {
                assert_eq!(said, Ok(Answer::Done));
                assert_eq!(scene.kinds_after(before), ["message.queued"]);
                assert_eq!(scene.hold(), hold);
            }
            HoldKind::Recovery => {
                assert_eq!(said, Err(Refusal::Held { open: vec![scene.run.hold_id(hold)] }));
                assert_eq!(scene.log.len(), before);
            }
        }
    }
}

/// Rule 6: a message supersedes only when it asks to.
#[test]
fn column_superseded_only_when_the_message_asks_to() {
    for kind in HoldKind::ALL {
        let (mut scene, hold) = waiting(kind, HoldPolicy::default());
        let said = scene.send(say(OnHold::Refuse));
        let expected = match kind {
            HoldKind::Approval | HoldKind::Input | HoldKind::Recovery => {
                Err(Refusal::Held { open: vec![scene.run.hold_id(hold)] })
            }
            HoldKind::External | HoldKind::Auth => Ok(Answer::Done),
        };
        assert_eq!((said, scene.hold()), (expected, hold));
    }
}

#[test]
fn column_cancel() {
    for kind in HoldKind::ALL {
        let (mut scene, hold) = waiting(kind, HoldPolicy::default());
        scene.send(cancel()).unwrap();
        assert_eq!(scene.run.outcome(), Some(Outcome::Canceled));
        assert_eq!(scene.resolution(hold), Some(Resolution::Withdraw));
        let settled = match kind {
            HoldKind::Approval | HoldKind::Input | HoldKind::External | HoldKind::Auth => {
                CallOutcome::NotExecuted
            }
            HoldKind::Recovery => CallOutcome::Unknown,
        };
        assert_eq!(state_of_call(&scene), CallState::Done(settled));
    }
}

/// Without a configured timeout people are waited for without limit, an outside job for 24 hours (C7).
#[test]
fn column_expiry_default() {
    for kind in HoldKind::ALL {
        let (scene, _) = waiting(kind, HoldPolicy::default());
        let expires_at = match kind {
            HoldKind::External => Some(scene.now.plus(Millis::hours(24))),
            HoldKind::Approval | HoldKind::Input | HoldKind::Auth | HoldKind::Recovery => None,
        };
        assert_eq!(scene.hold_of(1).expires_at, expires_at);
    }
}

#[test]
fn column_expiry_default_an_outside_job_that_is_late_is_an_error_for_the_model() {
    let (mut scene, hold) = waiting(HoldKind::External, HoldPolicy::default());
    scene.later(Millis::hours(24));
    scene.send(Command::Tick).unwrap();
    assert_eq!(scene.resolution(hold), Some(Resolution::Expire));
    assert_eq!(state_of_call(&scene), CallState::Done(CallOutcome::Expired));
    assert_eq!(scene.run.state.stage, Stage::Thinking { failures: 0, retry_at: None });
}

/// What silence does is the hold's policy for approvals, questions and logins; never for an unknown outcome.
#[test]
fn column_expiry_by_policy() {
    let kinds = [HoldKind::Approval, HoldKind::Input, HoldKind::Auth];
    let rows = [
        (OnTimeout::Fail, Some(Outcome::Failed), vec!["hold.expired", "hold.resolved", "run.ended"]),
        (OnTimeout::Cancel, Some(Outcome::Canceled), vec!["hold.expired", "hold.resolved", "run.ended"]),
        (OnTimeout::Deny, None, vec!["hold.expired", "hold.resolved"]),
        (OnTimeout::ResumeWithError, None, vec!["hold.expired", "hold.resolved"]),
        (OnTimeout::Keep, None, vec!["hold.expired"]),
    ];
    for (kind, (on_timeout, outcome, kinds)) in
        kinds.into_iter().flat_map(|kind| rows.clone().map(|row| (kind, row)))
    {
        let policy = HoldPolicy { on_timeout, timeout: Some(MINUTE), ..HoldPolicy::default() };
        let (mut scene, _) = waiting(kind, policy);
        let before = scene.log.len();
        scene.later(MINUTE);
        scene.send(Command::Tick).unwrap();
        assert_eq!(
            (scene.kinds_after(before), scene.run.outcome()),
            (kinds, outcome),
            "{kind:?} {on_timeout:?}"
        );
    }
}

#[test]
fn column_expiry_never_ends_an_unknown_outcome() {
    let (mut scene, hold) = Scene::with_unknown_outcome();
    scene.definition.holds = HoldPolicy { timeout: Some(MINUTE), ..HoldPolicy::default() };
    scene.later(Millis::hours(24 * 365));
    assert_eq!(scene.send(Command::Tick), Ok(Answer::Repeated));
    assert_eq!(scene.hold(), hold);
}

/// A decision after the deadline is refused although nobody had swept yet (rule 4).
#[test]
fn column_late_answer_is_refused() {
    for kind in [HoldKind::Approval, HoldKind::Input, HoldKind::External, HoldKind::Auth] {
        let policy = HoldPolicy { timeout: Some(MINUTE), ..HoldPolicy::default() };
        let (mut scene, hold) = waiting(kind, policy);
        scene.later(Millis::hours(24));
        assert_eq!(
            scene.resolves(hold, usual(kind)),
            Err(Refusal::Expired(scene.run.hold_id(hold))),
            "{kind:?}"
        );
        let recorded = support::recorded(&scene.log, hold).unwrap();
        assert_eq!(recorded.resolution, Resolution::Expire);
        assert_eq!(scene.resolves(hold, usual(kind)), Err(Refusal::AlreadyDecided(Box::new(recorded))));
    }
}

/// `keep`: taken with a warning until the grace ends, then the run ends.
#[test]
fn column_late_answer_to_a_kept_hold() {
    for kind in [HoldKind::Approval, HoldKind::Input, HoldKind::Auth] {
        for (after_grace, outcome) in
            [(AfterGrace::Fail, Outcome::Failed), (AfterGrace::Cancel, Outcome::Canceled)]
        {
            let (timeout, grace) = (Some(MINUTE), Some(MINUTE));
            let on_timeout = OnTimeout::Keep;
            let policy = HoldPolicy { on_timeout, timeout, grace, after_grace, ..HoldPolicy::default() };
            let (mut scene, hold) = waiting(kind, policy);
            scene.later(Millis::seconds(119));
            let mut late = scene.clone();
            assert_eq!(late.resolves(hold, usual(kind)), Ok(Answer::Done));
            let last = late.log.last().map(|envelope| envelope.event.clone());
            assert!(matches!(last, Some(Event::HoldResolved(resolved)) if resolved.late), "{kind:?}");
            scene.later(Millis::seconds(1));
            assert_eq!(scene.resolves(hold, usual(kind)), Err(Refusal::Expired(scene.run.hold_id(hold))));
            assert_eq!(scene.run.outcome(), Some(outcome));
        }
    }
}

/// A kept hold may be given a new deadline, and then keeps it.
#[test]
fn column_late_answer_after_reopening_is_not_late() {
    let policy = HoldPolicy { on_timeout: OnTimeout::Keep, timeout: Some(MINUTE), ..HoldPolicy::default() };
    let (mut scene, hold) = waiting(HoldKind::Approval, policy);
    scene.later(MINUTE);
    scene.send(Command::Tick).unwrap();
    let expires_at = Some(scene.now.plus(MINUTE));
    scene.send(Command::Reopen { hold, expires_at }).unwrap();
    assert_eq!((scene.hold_of(1).expired_at, scene.hold_of(1).expires_at), (None, expires_at));
    scene.resolves(hold, Choice::Approve).unwrap();
    let last = scene.log.last().map(|envelope| envelope.event.clone());
    assert!(matches!(last, Some(Event::HoldResolved(resolved)) if !resolved.late));
}

#[test]
fn column_late_answer_a_true_result_closes_an_unknown_outcome() {
    let results = [
        (
            ToolResult::Ok(Body::text("sent")),
            Resolution::Answer { value: Body::text("sent") },
            CallOutcome::Ok,
        ),
        (
            ToolResult::Failed(Body::text("full")),
            Resolution::Fail { error: Body::text("full") },
            CallOutcome::Failed,
        ),
    ];
    for (result, resolution, settled) in results {
        let (mut scene, hold) = Scene::with_unknown_outcome();
        scene.later(Millis::hours(1));
        let mut report = finish(1, 1);
        report.result = result;
        assert_eq!(scene.send(Command::FinishCall(report)), Ok(Answer::Done));
        assert_eq!(scene.resolution(hold), Some(resolution));
        assert_eq!(state_of_call(&scene), CallState::Done(settled));
    }
}

/// The engine works out in which role someone may decide; without one nobody decides any kind.
#[test]
fn column_who() {
    for kind in HoldKind::ALL {
        let (mut scene, hold) = waiting(kind, HoldPolicy::default());
        scene.authority = None;
        let before = scene.log.len();
        for wanted in [usual(kind), deny(), fail(), Choice::Withdraw] {
            assert_eq!(
                scene.resolves(hold, wanted),
                Err(Refusal::NotAllowed(Some(scene.run.hold_id(hold)))),
                "{kind:?}"
            );
        }
        assert_eq!(scene.log.len(), before);
    }
}

/// Rule 4: a deny tells the model or ends the run, as the hold's policy says; of an unknown outcome it is a fact.
#[test]
fn column_deny() {
    for kind in HoldKind::ALL {
        for (on_deny, outcome) in [(OnDeny::Continue, None), (OnDeny::Cancel, Some(Outcome::Canceled))] {
            let (mut scene, hold) = waiting(kind, HoldPolicy { on_deny, ..HoldPolicy::default() });
            let decided = scene.resolves(hold, deny());
            let (answer, outcome, state) = match kind {
                HoldKind::Approval | HoldKind::Input | HoldKind::Auth => {
                    (Ok(Answer::Done), outcome, CallState::Done(CallOutcome::Denied))
                }
                HoldKind::Recovery => (Ok(Answer::Done), None, CallState::Done(CallOutcome::NotExecuted)),
                HoldKind::External => {
                    (Err(Refusal::WrongKind { hold: scene.run.hold_id(hold), kind }), None, CallState::Held)
                }
            };
            assert_eq!(
                (decided, scene.run.outcome(), state_of_call(&scene)),
                (answer, outcome, state),
                "{kind:?}"
            );
        }
    }
}

/// What each kind of hold takes, and where its call stands afterwards (C25: an answer never settles an approval).
#[test]
fn table_of_decisions() {
    use CallOutcome::{Denied, Expired, Failed, NotExecuted, Ok as Answered, Unknown};
    use CallState::{Done, Ready};
    // Rows: approval, input, external, auth, recovery.
    let rows: [(Resolution, [bool; 5], [CallState; 5]); 8] = [
        (Resolution::Approve { edited: None }, [true, false, false, false, true], [Ready; 5]),
        (Resolution::Approve { edited: Some(an_edit()) }, [true, false, false, false, false], [Ready; 5]),
        (
            Resolution::Deny { reason: None },
            [true, true, false, true, true],
            [Done(Denied), Done(Denied), Done(Denied), Done(Denied), Done(NotExecuted)],
        ),
        (
            Resolution::Answer { value: Body::text("x") },
            [false, true, true, true, true],
            [Done(Answered), Done(Answered), Done(Answered), Ready, Done(Answered)],
        ),
        (Resolution::Fail { error: Body::text("x") }, [false, false, true, true, false], [Done(Failed); 5]),
        (Resolution::Expire, [false; 5], [Done(Expired); 5]),
        (
            Resolution::Withdraw,
            [false; 5],
            [Done(NotExecuted), Done(NotExecuted), Done(NotExecuted), Done(NotExecuted), Done(Unknown)],
        ),
        (
            Resolution::Supersede,
            [false; 5],
            [Done(NotExecuted), Done(NotExecuted), Done(NotExecuted), Done(NotExecuted), Done(Unknown)],
        ),
    ];
    for (resolution, takes, states) in rows {
        for (at, kind) in HoldKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.takes(&resolution), takes[at], "{kind:?} takes {resolution:?}");
            assert_eq!(after_resolution(kind, &resolution), states[at], "{kind:?} after {resolution:?}");
        }
    }
}

/// The same table through `decide`: what a kind does not take is refused and changes nothing.
#[test]
fn table_of_decisions_as_commands() {
    for kind in HoldKind::ALL {
        let offers = [Choice::Approve, support::edited(), deny(), answer(), fail(), Choice::Withdraw];
        let takes = match kind {
            HoldKind::Approval => [true, true, true, false, false, false],
            HoldKind::Input => [false, false, true, true, false, false],
            HoldKind::External => [false, false, false, true, true, true],
            HoldKind::Auth => [false, false, true, true, true, false],
            HoldKind::Recovery => [true, false, true, true, false, false],
        };
        for (wanted, takes) in offers.into_iter().zip(takes) {
            let (mut scene, hold) = waiting(kind, HoldPolicy::default());
            let before = scene.log.len();
            let decided = scene.resolves(hold, wanted.clone());
            let expected = if takes {
                Ok(Answer::Done)
            } else {
                Err(Refusal::WrongKind { hold: scene.run.hold_id(hold), kind })
            };
            assert_eq!(decided, expected, "{kind:?} {wanted:?}");
            assert_eq!(scene.log.len() > before, takes);
        }
    }
}

#[test]
fn table_of_properties() {
    let rows =
        HoldKind::ALL.map(|kind| (kind.can_be_superseded(), kind.can_expire(), kind.queues_messages()));
    let expected = [
        (true, true, false),
        (true, true, false),
        (false, true, true),
        (false, true, true),
        (false, false, false),
    ];
    assert_eq!(rows, expected);
}

fn an_edit() -> EditedArguments {
    EditedArguments { arguments: Body::text("{}"), digest: Digest([1; 32]), revision: 1, files: Vec::new() }
}
