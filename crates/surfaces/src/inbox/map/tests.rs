//! Tables over every state of the core, and over what answers mean.
//!
//! The first is the inbox column of the map of states (architecture, section 5).

use standfast_core::event::Outcome;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldKey, RunId, Secret, StorageKind};
use standfast_core::name::Tenant;
use standfast_core::run::{Status, WaitKind};
use standfast_core::time::Timestamp;

use super::*;

/// C1, S4-2, S4-19: every status of a run is one of a task, and every status of a task is found by its phases.
#[test]
fn every_core_state_has_its_word() {
    let run = RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(1), [1; 5]);
    let hold = HoldId { run, key: HoldKey { call: CallNo(1), secret: Secret([0; 16]) } };
    let below = |kind| vec![(hold, kind)];
    let table = [
        (Status::Queued, vec![], TaskStatus::Pending),
        (Status::Claimed, vec![], TaskStatus::Claimed),
        (Status::Working, vec![], TaskStatus::InProgress),
        (Status::Retrying(Timestamp(9)), vec![], TaskStatus::InProgress),
        (Status::Held(WaitKind::Person), vec![], TaskStatus::WaitingForInput),
        (Status::Held(WaitKind::Auth), vec![], TaskStatus::WaitingForInput),
        (Status::Held(WaitKind::External), vec![], TaskStatus::InProgress),
        (Status::Held(WaitKind::External), below(HoldKind::Approval), TaskStatus::WaitingForInput),
        (Status::Held(WaitKind::External), below(HoldKind::Input), TaskStatus::WaitingForInput),
        (Status::Held(WaitKind::External), below(HoldKind::Recovery), TaskStatus::WaitingForInput),
        (Status::Held(WaitKind::External), below(HoldKind::Auth), TaskStatus::WaitingForInput),
        (Status::Held(WaitKind::External), below(HoldKind::External), TaskStatus::InProgress),
        (Status::Ended(Outcome::Completed), vec![], TaskStatus::Completed),
        (Status::Ended(Outcome::Failed), vec![], TaskStatus::Failed),
        (Status::Ended(Outcome::Canceled), vec![], TaskStatus::Cancelled),
        (Status::Ended(Outcome::Rejected), vec![], TaskStatus::Failed),
    ];
    for (core, below, expected) in table {
        assert_eq!(status(core, &below), expected, "{core:?} {below:?}");
        assert!(phases(expected).contains(&Phase::from(core)), "{core:?} is not listed as {expected:?}");
    }
}

/// C2: the word on these routes has two l; others are understood.
#[test]
fn cancelled_has_two_l() {
    assert_eq!(serde_json::to_string(&TaskStatus::Cancelled).unwrap(), r#""cancelled""#);
    for text in [r#""cancelled""#, r#""canceled""#, r#""CANCELLED""#] {
        assert_eq!(serde_json::from_str::<TaskStatus>(text).unwrap(), TaskStatus::Cancelled, "{text}");
    }
}

/// S4-4, C36: what a worker asks is shown beside the reason, and its question and options are shown as such.
#[test]
fn a_workers_payload_stands_beside_its_reason() {
    let body: wire::Suspend = serde_json::from_str(
        r#"{"claimId": "w#1@local", "reason": "two invoices",
            "payload": {"question": "Which?", "options": ["A", "B"], "total": 9007199254740993},
            "resumeSchema": {"type": "string"}}"#,
    )
    .unwrap();
    let asked = ask(&body).unwrap();
    assert_eq!(asked.question, Some(Body::text("Which?")));
    assert_eq!(asked.options, ["A", "B"]);
    let shown = serde_json::to_string(&answers::asked_by_worker(&asked, true)).unwrap();
    let expected =
        r#"{"options":["A", "B"],"question":"Which?","reason":"two invoices","total":9007199254740993}"#;
    assert_eq!(shown, expected);
    let broken: wire::Suspend = serde_json::from_str(
        r#"{"claimId": "w#1@local", "reason": "r", "resumeSchema": {"type": "no such type"}}"#,
    )
    .unwrap();
    assert_eq!(ask(&broken).unwrap_err().status, 422);
}
