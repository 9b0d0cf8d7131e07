//! What core values become, as tables over every status, kind and decision.
//!
//! Refusals and failures of the store are here too: they are mapped in `error.rs` by the same rule.

use standfast_core::actor::Actor;
use standfast_core::digest::Digest;
use standfast_core::hold::{RecordedDecision, Resolution};
use standfast_core::id::{CallNo, Secret, StorageKind};
use standfast_core::name::{Tenant, UserId};
use standfast_core::refusal::{CapKind, Refusal};
use standfast_core::time::Timestamp;
use standfast_engine::StoreError;

use super::*;
use crate::http::refusal;

fn text(value: impl serde::Serialize) -> String {
    serde_json::to_string(&value).unwrap().trim_matches('"').to_owned()
}

fn run_id() -> RunId {
    RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [0; 5])
}

const KEY: HoldKey = HoldKey { call: CallNo(1), secret: Secret([7; 16]) };

#[test]
fn every_status_has_its_word() {
    for (status, word, waiting) in [
        (Status::Queued, "queued", None),
        (Status::Claimed, "claimed", None),
        (Status::Working, "working", None),
        (Status::Retrying(Timestamp(5)), "retrying", None),
        (Status::Held(WaitKind::Person), "held", Some(WaitingWord::Person)),
        (Status::Held(WaitKind::Auth), "held", Some(WaitingWord::Auth)),
        (Status::Held(WaitKind::External), "held", Some(WaitingWord::External)),
        (Status::Ended(Outcome::Completed), "completed", None),
        (Status::Ended(Outcome::Failed), "failed", None),
        (Status::Ended(Outcome::Canceled), "canceled", None),
        (Status::Ended(Outcome::Rejected), "rejected", None),
    ] {
        assert_eq!((text(run_status(status)).as_str(), waiting_for(status)), (word, waiting));
    }
}

#[test]
fn every_kind_of_hold_survives_its_word() {
    let words: Vec<String> = HoldKind::ALL.into_iter().map(|one| text(kind(one))).collect();
    assert_eq!(words, ["approval", "input", "external", "auth", "recovery"]);
    for one in HoldKind::ALL {
        assert_eq!(core_kind(kind(one)), one);
    }
}

#[test]
fn every_decision_on_record_has_its_word() {
    let words: Vec<String> = ResolutionKind::ALL.into_iter().map(|one| text(how(one))).collect();
    let expected =
        ["approved", "edited", "denied", "answered", "failed", "expired", "withdrawn", "superseded"];
    assert_eq!(words, expected);
}

fn read(body: &str) -> Result<Choice, u16> {
    let body: wire::ResolveHold = serde_json::from_str(body).map_err(|_| 400u16)?;
    wanted(&body).map_err(|problem| problem.status)
}

#[test]
fn a_decision_says_what_its_word_takes_and_nothing_else() {
    let json = |text: &str| RawJson::parse(text).unwrap();
    let edited = r#"{ "n":9007199254740993 ,"b": 1.0}"#;
    let approve_edited = format!(r#"{{"resolution":"approve","arguments":{edited}}}"#);
    for (body, expected) in [
        (r#"{"resolution":"approve"}"#, Ok(Choice::Approve)),
        (&approve_edited, Ok(Choice::ApproveEdited { arguments: json(edited) })),
        (r#"{"resolution":"approve","arguments":{"a":1,"a":2}}"#, Err(422)),
        (r#"{"resolution":"approve","value":1}"#, Err(422)),
        (r#"{"resolution":"approve","reason":"x"}"#, Err(422)),
        (r#"{"resolution":"deny"}"#, Ok(Choice::Deny { reason: None })),
        (r#"{"resolution":"deny","reason":"no"}"#, Ok(Choice::Deny { reason: Some("no".into()) })),
        (r#"{"resolution":"deny","arguments":{}}"#, Err(422)),
        (r#"{"resolution":"answer","value":"blue"}"#, Ok(Choice::Answer { value: Body::text("blue") })),
        (r#"{"resolution":"answer","value":null}"#, Ok(Choice::Answer { value: Body::Json(json("null")) })),
        (r#"{"resolution":"answer"}"#, Err(422)),
        (r#"{"resolution":"fail","reason":"down"}"#, Ok(Choice::Fail { error: Body::text("down") })),
        (r#"{"resolution":"fail"}"#, Err(422)),
        (r#"{"resolution":"maybe"}"#, Err(400)),
        (r#"{"resolution":"approve","remember":true}"#, Err(400)),
    ] {
        assert_eq!(read(body), expected, "{body}");
    }
}

#[test]
fn every_answer_to_a_decision_has_its_word() {
    let word = |answer: Answer| {
        let detail = wire::HoldDetail {
            hold: wire::HoldBody {
                id: String::new(),
                run: String::new(),
                agent: String::new(),
                session: String::new(),
                kind: HoldKindWord::Approval,
                state: wire::HoldState::Open,
                tool: None,
                digest: None,
                revision: 0,
                opened_at: String::new(),
                expires_at: None,
                expired_at: None,
                assignee: None,
                muted: false,
                decided: None,
            },
            arguments: None,
            arguments_text: None,
            reason: None,
            because: Vec::new(),
            risk: None,
            reversible: None,
            findings: Vec::new(),
            reconciled: None,
            deciders: String::new(),
            may_decide: true,
            why_not: None,
            needs_sign_in: None,
            demands: Vec::new(),
            drift: Vec::new(),
            question: None,
            options: Vec::new(),
            answer_schema: None,
            interim: None,
            external_ref: None,
            expected_at: None,
            data: None,
            path: Vec::new(),
            votes: None,
            assigned_until: None,
            remind_at: None,
            escalations: Vec::new(),
            delegations: Vec::new(),
            grace_ends_at: None,
            late: false,
        };
        let resolved = resolved(&answer, detail);
        (resolved.outcome, resolved.votes, resolved.votes_needed)
    };
    assert_eq!(word(Answer::Done), (OutcomeWord::Decided, None, None));
    assert_eq!(word(Answer::Repeated), (OutcomeWord::Repeated, None, None));
    assert_eq!(word(Answer::Voted { votes: 1, needed: 2 }), (OutcomeWord::Voted, Some(1), Some(2)));
    assert_eq!(word(Answer::Edited), (OutcomeWord::Edited, None, None));
}

#[test]
fn every_refusal_has_its_status() {
    let (hold, digest) = (HoldId { run: run_id(), key: KEY }, Some(Digest([1; 32])));
    let by = Actor::Person(UserId::new("bob").unwrap());
    let resolution = Resolution::Deny { reason: None };
    let recorded = RecordedDecision { resolution, by, at: Timestamp(0), idempotency_key: None };
    for (refusal, status) in [
        (Refusal::Ended(Outcome::Completed), 409),
        (Refusal::NotEnded, 409),
        (Refusal::Held { open: vec![hold] }, 409),
        (Refusal::NoSuchHold(hold), 404),
        (Refusal::AlreadyDecided(Box::new(recorded)), 409),
        (Refusal::Expired(hold), 409),
        (Refusal::NotAllowed(Some(hold)), 403),
        (Refusal::WrongKind { hold, kind: HoldKind::Input }, 422),
        (Refusal::Stale { hold, digest, revision: 2 }, 409),
        (Refusal::MustRepeatDigest { hold, digest, revision: 2 }, 409),
        (Refusal::Forbidden { hold, reason: "no".into() }, 422),
        (Refusal::NotExpired(hold), 409),
        (Refusal::PastEnd(hold), 409),
        (Refusal::NoSuchCall(CallNo(1)), 404),
        (Refusal::CallNotReady(CallNo(1)), 409),
        (Refusal::StaleAttempt { call: CallNo(1), attempt: 1, current: 2 }, 409),
        (Refusal::Tampered { call: CallNo(1), decided: digest, stored: Digest([2; 32]) }, 500),
        (Refusal::TooLate(CallNo(1)), 409),
        (Refusal::NotOrphanedYet { call: CallNo(1), from: Timestamp(0) }, 409),
        (Refusal::NotThinking, 409),
        (Refusal::CallStarted(CallNo(1)), 409),
        (Refusal::WrongDriver, 409),
        (Refusal::ClaimedByOther { holder: None }, 409),
        (Refusal::NotClaimable, 409),
        (Refusal::Cap { what: CapKind::OpenHolds, max: 64 }, 409),
        (Refusal::Erased, 410),
    ] {
        let problem = refusal::refused(Some(run_id()), &refusal);
        assert_eq!(problem.status, status, "{refusal}");
        let body: serde_json::Value = serde_json::to_value(&problem).unwrap();
        if matches!(refusal, Refusal::AlreadyDecided(_)) {
            let at = "1970-01-01T00:00:00.000Z";
            assert_eq!(body["recorded"], serde_json::json!({"by": "person:bob", "at": at, "how": "denied"}));
        } else if matches!(refusal, Refusal::Stale { .. } | Refusal::MustRepeatDigest { .. }) {
            assert_eq!((&body["revision"], body["digest"].is_string()), (&2.into(), true));
        } else if matches!(refusal, Refusal::Held { .. }) {
            assert_eq!(body["holds"][0], hold_id(run_id(), KEY));
        } else {
            assert_eq!(body.as_object().unwrap().len(), 4, "{refusal}");
        }
    }
}

#[test]
fn every_failure_of_the_store_has_its_status() {
    let (run, why) = (run_id(), String::from("x"));
    for (failure, status, retry_after) in [
        (StoreError::Conflict { run }, 503, Some(1)),
        (StoreError::Guard { which: 0, why: why.clone() }, 409, None),
        (StoreError::NotFound { run }, 404, None),
        (StoreError::Unavailable { why: why.clone() }, 503, Some(1)),
        (StoreError::Unknown { why: why.clone() }, 503, Some(1)),
        (StoreError::Corrupt { run, why }, 500, None),
        (StoreError::Newer { run, found: 9 }, 503, Some(30)),
    ] {
        let problem = refusal::failed(&failure);
        assert_eq!((problem.status, problem.more.retry_after), (status, retry_after), "{failure}");
    }
}

#[test]
fn the_contents_of_an_event_keep_their_bytes() {
    let arguments = r#"{ "n": 9007199254740993, "a": 1.0 }"#;
    let edited = standfast_core::hold::EditedArguments {
        arguments: Body::Json(RawJson::parse(arguments).unwrap()),
        digest: Digest([1; 32]),
        revision: 1,
        files: Vec::new(),
    };
    let resolved = standfast_core::event::HoldResolved {
        hold: KEY,
        resolution: Resolution::Approve { edited: Some(edited) },
        role: None,
        in_place_of: None,
        idempotency_key: None,
        late: false,
        judged: None,
        digest: None,
        message: None,
        grant: None,
        origin: None,
    };
    let envelope = Envelope {
        seq: standfast_core::id::Seq(3),
        at: Timestamp(0),
        actor: Actor::Clock,
        event: Event::HoldResolved(Box::new(resolved)),
    };
    let sent = serde_json::to_string(&event(run_id(), &envelope)).unwrap();
    assert!(sent.contains(arguments), "{sent}");
    assert!(
        sent.starts_with(
            r#"{"seq":3,"at":"1970-01-01T00:00:00.000Z","actor":"clock","type":"hold.resolved""#
        )
    );
}
