//! What core values become in A2A, as tables over every status, every error and every refusal.
//!
//! The tables of errors are those of the protocol's version 1.0.1.

use serde_json::{Value, json};
use standfast_core::actor::Actor;
use standfast_core::hold::RecordedDecision;
use standfast_core::id::{CallNo, HoldId, HoldKey, Secret, StorageKind as Lives};
use standfast_core::name::{Tenant, UserId};
use standfast_core::refusal::{CapKind, Refusal};
use standfast_core::time::Timestamp;
use standfast_engine::auth::Scope;
use standfast_engine::schema::SchemaMismatch;
use standfast_engine::{EngineError, StoreError};

use super::super::error::Kind;
use super::*;

fn text(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap().trim_matches('"').to_owned()
}

fn value(of: impl Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

fn run_id() -> RunId {
    RunId::new(&Tenant::default_tenant(), Lives::Durable, Timestamp(0), [0; 5])
}

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

/// S3-2, S3-9, C2: every status of the core in A2A's words; those of sub-runs show through.
#[test]
fn every_status_has_its_state() {
    let words = |below: &[HoldKind]| STATUSES.map(|status| text(state(status, below)));
    let plain = [
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_WORKING",
        "TASK_STATE_WORKING",
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_AUTH_REQUIRED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_REJECTED",
    ];
    assert_eq!(words(&[]), plain);
    assert_eq!(words(&[HoldKind::External]), plain);
    for (below, while_auth, while_external) in [
        (HoldKind::Approval, "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED"),
        (HoldKind::Input, "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED"),
        (HoldKind::Recovery, "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED"),
        (HoldKind::Auth, "TASK_STATE_AUTH_REQUIRED", "TASK_STATE_AUTH_REQUIRED"),
    ] {
        let mut expected = plain;
        (expected[5], expected[6]) = (while_auth, while_external);
        assert_eq!(words(&[below]), expected, "{below:?}");
    }
}

/// Whoever asks for tasks in a state finds all that are in it, and the store is asked for few others.
#[test]
fn every_state_is_looked_for_in_the_phases_that_it_can_have() {
    for status in STATUSES {
        for below in [&[][..], &[HoldKind::Approval], &[HoldKind::Auth], &[HoldKind::External]] {
            let phases = phases(state(status, below));
            assert!(phases.contains(&Phase::from(status)), "{status:?} {below:?}: {phases:?}");
        }
    }
}

/// C2: both spellings are read, one is written.
#[test]
fn states_are_read_in_either_spelling() {
    let read = |word: &str| serde_json::from_str::<TaskState>(&format!("\"{word}\""));
    assert_eq!(read("TASK_STATE_CANCELLED").unwrap(), TaskState::Canceled);
    assert_eq!(read("TASK_STATE_CANCELED").unwrap(), TaskState::Canceled);
    for word in ["TASK_STATE_UNSPECIFIED", "working", "COMPLETED", ""] {
        assert!(read(word).is_err(), "{word}");
    }
}

/// Every error in both bindings, with its `ErrorInfo`.
#[test]
fn every_error_has_its_names_in_every_binding() {
    let names = Kind::ALL.map(|kind| {
        let names = kind.names();
        (names.code, names.http.as_u16(), names.status, names.reason)
    });
    let failed = "FAILED_PRECONDITION";
    let expected = [
        (-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        (-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        (-32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
        (-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
        (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (-32002, 400, failed, "TASK_NOT_CANCELABLE"),
        (-32003, 400, failed, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (-32004, 400, failed, "UNSUPPORTED_OPERATION"),
        (-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
        (-32007, 400, failed, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
        (-32008, 400, failed, "EXTENSION_SUPPORT_REQUIRED"),
        (-32009, 400, failed, "VERSION_NOT_SUPPORTED"),
        (-31401, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        (-31403, 403, "PERMISSION_DENIED", "PERMISSION_DENIED"),
        (-31413, 413, "RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE"),
        (-31503, 503, "UNAVAILABLE", "UNAVAILABLE"),
    ];
    assert_eq!(names, expected);
    for (kind, (code, http, status, reason)) in Kind::ALL.into_iter().zip(expected) {
        let error = A2aError::new(kind, "why");
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"
        });
        assert_eq!(value(error.rpc()), json!({"code": code, "message": "why", "data": [info]}));
        let rest = json!({"error": {"code": http, "status": status, "message": "why", "details": [info]}});
        assert_eq!(value(error.rest()), rest);
    }
}

#[test]
fn what_is_wrong_with_a_member_is_said_of_it() {
    let error = value(A2aError::invalid("message.parts[0]", "is empty").rpc());
    let violations = json!({
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts[0]", "description": "is empty"}]
    });
    assert_eq!(error["data"][1], violations);
    let unread = serde_json::from_str::<wire::SendMessageRequest>("{}").unwrap_err();
    assert_eq!(A2aError::unreadable(&unread).violations[0].field, "message");
}

const KEY: HoldKey = HoldKey { call: CallNo(1), secret: Secret([7; 16]) };

/// Every refusal of the core.
#[test]
fn every_refusal_has_its_error() {
    let recorded = RecordedDecision {
        resolution: Resolution::Approve { edited: None },
        by: Actor::Person(UserId::new("ann").unwrap()),
        at: Timestamp(0),
        idempotency_key: None,
    };
    let digest = standfast_core::digest::of_bytes(b"x");
    let (unsupported, invalid) = (Kind::UnsupportedOperation, Kind::InvalidParams);
    let hold = HoldId { run: run_id(), key: KEY };
    for (refusal, kind) in [
        (Refusal::Ended(Outcome::Completed), unsupported),
        (Refusal::NotEnded, unsupported),
        (Refusal::Held { open: vec![hold] }, unsupported),
        (Refusal::NoSuchHold(hold), invalid),
        (Refusal::AlreadyDecided(Box::new(recorded)), unsupported),
        (Refusal::Expired(hold), unsupported),
        (Refusal::NotAllowed(Some(hold)), Kind::PermissionDenied),
        (Refusal::WrongKind { hold, kind: HoldKind::Input }, invalid),
        (Refusal::Stale { hold, digest: Some(digest), revision: 1 }, invalid),
        (Refusal::MustRepeatDigest { hold, digest: None, revision: 1 }, invalid),
        (Refusal::Forbidden { hold, reason: "no".into() }, invalid),
        (Refusal::NotExpired(hold), unsupported),
        (Refusal::PastEnd(hold), unsupported),
        (Refusal::NoSuchCall(CallNo(1)), invalid),
        (Refusal::CallNotReady(CallNo(1)), unsupported),
        (Refusal::StaleAttempt { call: CallNo(1), attempt: 1, current: 2 }, unsupported),
        (Refusal::Tampered { call: CallNo(1), decided: None, stored: digest }, Kind::Internal),
        (Refusal::TooLate(CallNo(1)), unsupported),
        (Refusal::NotOrphanedYet { call: CallNo(1), from: Timestamp(0) }, unsupported),
        (Refusal::NotThinking, unsupported),
        (Refusal::CallStarted(CallNo(1)), unsupported),
        (Refusal::WrongDriver, unsupported),
        (Refusal::ClaimedByOther { holder: None }, unsupported),
        (Refusal::NotClaimable, unsupported),
        (Refusal::Cap { what: CapKind::OpenHolds, max: 1 }, unsupported),
        (Refusal::Erased, unsupported),
    ] {
        let error = A2aError::of(Some(run_id()), &EngineError::Refused(refusal.clone()));
        assert_eq!(error.kind, kind, "{refusal:?}");
        assert!(!error.message.is_empty());
    }
}

/// Every other no of the engine, and every failure of the store (C35).
#[test]
fn every_failure_has_its_error() {
    let (run, why) = (run_id(), || "why".to_owned());
    let agent = standfast_core::name::AgentName::new("a").unwrap();
    let session = SessionId::new("s").unwrap();
    for (error, kind) in [
        (EngineError::NotFound, Kind::TaskNotFound),
        (EngineError::NoSuchAgent { agent: agent.clone(), known: String::new() }, Kind::MethodNotFound),
        (EngineError::BreaksSchema(SchemaMismatch { pointer: "/a".into(), why: why() }), Kind::InvalidParams),
        (EngineError::KeyReused { key: "k".into() }, Kind::InvalidParams),
        (EngineError::SessionClosed { agent, session }, Kind::UnsupportedOperation),
        (EngineError::MissingScope(Scope::RunsWrite.into()), Kind::PermissionDenied),
        (StoreError::NotFound { run }.into(), Kind::TaskNotFound),
        (StoreError::Unavailable { why: why() }.into(), Kind::Unavailable),
        (StoreError::Unknown { why: why() }.into(), Kind::Unavailable),
        (StoreError::Corrupt { run, why: why() }.into(), Kind::Internal),
    ] {
        assert_eq!(A2aError::of(Some(run), &error).kind, kind, "{error:?}");
    }
    let corrupt = EngineError::from(StoreError::Corrupt { run, why: why() });
    assert_eq!(A2aError::of(Some(run), &corrupt).message, "failed to load execution state: why");
}

fn part(json: &str) -> Result<Part, String> {
    let part: wire::Part = serde_json::from_str(json).map_err(|error| error.to_string())?;
    part_in(0, &part).map_err(|error| error.message)
}

/// Parts survive: integers of any size, `null`, and how numbers are written.
#[test]
fn parts_go_out_as_they_came_in() {
    for text in [
        r#"{"text":"hello"}"#,
        r#"{"text":""}"#,
        r#"{"data":null}"#,
        r#"{"data":{"n": 9223372036854775808, "f": 1.0, "e": 1e400}}"#,
        r#"{"data":[18446744073709551616]}"#,
        r#"{"data":"words"}"#,
        r#"{"raw":"aGVsbG8=","filename":"a.txt","mediaType":"text/plain"}"#,
        r#"{"url":"https://example.com/a","mediaType":"text/plain"}"#,
    ] {
        let read = part(text).unwrap();
        assert_eq!(serde_json::to_string(&part_out(&read)).unwrap(), text);
    }
}

#[test]
fn a_part_is_exactly_one_thing() {
    for text in [
        "{}",
        r#"{"text":"a","data":1}"#,
        r#"{"text":"a","url":"https://example.com"}"#,
        r#"{"metadata":{}}"#,
        r#"{"raw":"not base 64!"}"#,
        r#"{"url":"relative"}"#,
        r#"{"data":{"a":1,"a":2}}"#,
        r#"{"data":"\ud800"}"#,
        r#"{"text":1}"#,
    ] {
        assert!(part(text).is_err(), "{text}");
    }
}
