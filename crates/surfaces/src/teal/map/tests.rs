//! What core values become in Teal's words, as tables over every status and every kind of hold.
//!
//! What a whole task looks like is shown with the real program, in `tests/teal`.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;

use super::*;
use crate::labels::example_hold::open_hold;

const STATUSES: [Status; 11] = [
    Status::Queued,
    Status::Claimed,
    Status::Working,
    Status::Retrying(Timestamp(5)),
    Status::Held(WaitKind::Person),
    Status::Held(WaitKind::Auth),
    Status::Held(WaitKind::External),
    Status::Ended(Outcome::Completed),
    Status::Ended(Outcome::Failed),
    Status::Ended(Outcome::Canceled),
    Status::Ended(Outcome::Rejected),
];

/// S1-2, S1-27, C1, C31: every status of the core in Teal's words; what sub-runs wait for shows through.
#[test]
fn every_status_has_its_word() {
    let words =
        |below: &[HoldKind]| STATUSES.map(|status| serde_json::to_value(task_status(status, below)).unwrap());
    let plain = [
        "Running",
        "Running",
        "Running",
        "Running",
        "Paused",
        "Paused",
        "Running",
        "Completed",
        "Failed",
        "Canceled",
        "Failed",
    ];
    assert_eq!(words(&[]), plain.map(Value::from));
    assert_eq!(words(&[HoldKind::External]), plain.map(Value::from));
    for below in [HoldKind::Approval, HoldKind::Input, HoldKind::Recovery, HoldKind::Auth] {
        let mut expected = plain;
        expected[6] = "Paused";
        assert_eq!(words(&[HoldKind::External, below]), expected.map(Value::from), "{below:?}");
    }
}

/// S1-28, C25, C31: what `approve` with a payload, or without, means for each kind of hold; nothing is guessed.
#[test]
fn approving_means_something_for_every_kind() {
    let text = |value: &str| standfast_core::command::Choice::Answer { value: Body::text(value) };
    let yes = standfast_core::command::Choice::Approve;
    let no = standfast_core::command::Choice::Deny { reason: None };
    let run_again = json!({"decision": "run_again"});
    let happened = json!({"decision": "happened", "result": "3 files"});
    let did_not = json!({"decision": "did_not_happen"});
    for (kind, payload, expected) in [
        (HoldKind::Approval, None, Some(yes.clone())),
        (HoldKind::Approval, Some(json!("x")), Some(yes.clone())),
        (HoldKind::Input, None, None),
        (HoldKind::Input, Some(json!("today")), Some(text("today"))),
        (HoldKind::Auth, None, Some(text("logged in"))),
        (HoldKind::Auth, Some(json!("code")), Some(text("code"))),
        (HoldKind::Recovery, None, None),
        (HoldKind::Recovery, Some(json!("yes")), None),
        (HoldKind::Recovery, Some(json!({"decision": "maybe"})), None),
        (HoldKind::Recovery, Some(json!({"decision": "happened"})), None),
        (HoldKind::Recovery, Some(json!({"decision": "run_again", "result": 1})), None),
        (HoldKind::Recovery, Some(run_again), Some(yes)),
        (HoldKind::Recovery, Some(happened), Some(text("3 files"))),
        (HoldKind::Recovery, Some(did_not), Some(no)),
    ] {
        let raw = payload.as_ref().map(|payload| RawValue::from_string(payload.to_string()).unwrap());
        let read = resolutions(&[&open_hold(kind, 1)], raw.as_deref());
        let wanted = read.as_ref().ok().and_then(|each| each.first()).map(|one| one.wanted.clone());
        assert_eq!(wanted, expected, "{kind:?} {payload:?}: {read:?}");
    }
    let external = resolutions(&[&open_hold(HoldKind::External, 1)], None).unwrap();
    assert!(external.is_empty(), "its result is not a person's to give");
}

/// C31: where several answers are needed, each stands under the id of its call.
#[test]
fn several_answers_have_names() {
    let holds =
        [open_hold(HoldKind::Approval, 1), open_hold(HoldKind::Input, 2), open_hold(HoldKind::Input, 3)];
    let holds: Vec<&HoldView> = holds.iter().collect();
    let id = |no: u32| CallId { run: holds[0].row.id.run, no: CallNo(no) }.to_string();
    let read = |payload: &Value| {
        let raw = RawValue::from_string(payload.to_string()).unwrap();
        resolutions(&holds, Some(&raw)).map(|each| each.len())
    };
    assert_eq!(read(&json!({id(2): "a", id(3): "b"})), Ok(3));
    assert!(read(&json!({id(2): "a"})).unwrap_err().contains(&id(3)));
    assert!(read(&json!("a")).is_err());
}

/// A login is shown as its tool wrote it down: one place, several, or only words.
#[test]
fn logins_are_told_as_they_were_written() {
    let challenge = json!({"server_name": "files", "auth_server": "https://login.example.com", "scopes": ["read"],
        "auth_url": "https://login.example.com/authorize?state=x"});
    let ask = |data: Option<Value>| Ask {
        reason: Some("the MCP server `files` asks for a login".into()),
        question: Some(Body::text("log in there")),
        data: data.map(|data| Body::Json(standfast_core::json::RawJson::parse(&data.to_string()).unwrap())),
        ..Ask::default()
    };
    let told = |data| serde_json::to_value(challenges(&ask(data))).unwrap();
    assert_eq!(told(Some(challenge.clone())), json!([challenge]));
    assert_eq!(told(Some(json!([challenge, challenge]))), json!([challenge, challenge]));
    let words = json!([{"server_name": "the MCP server `files` asks for a login", "auth_server": "", "scopes": [],
        "auth_url": "log in there"}]);
    assert_eq!(told(None), words);
}
