//! The tables of this protocol: every way in which a job can stand, and every status of a conversation.
//!
//! C1, S2-3, S2-4, S2-28 … S2-31.

use serde_json::{Value, json};
use standfast_core::event::Driver;
use standfast_core::hold::Ask;
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, Seq, StorageKind};
use standfast_core::job::Job;
use standfast_core::name::{AgentName, SessionId, Tenant, ToolName, UserId};
use standfast_core::run::Facts;

use super::*;

fn view(stands: JobProgress) -> JobView {
    let tenant = Tenant::default_tenant();
    let run = Facts {
        id: RunId::new(&tenant, StorageKind::Durable, Timestamp(1), [1; 5]),
        tenant,
        agent: AgentName::new("ops").unwrap(),
        session: SessionId::new("s-1").unwrap(),
        owner: UserId::new("ann").unwrap(),
        driver: Driver::Loop,
        started_at: Timestamp(1),
        parent: None,
        inbox: None,
    };
    let job = Job {
        key: HoldKey { call: CallNo(1), secret: Secret([7; 16]) },
        call_id: "toolu_1".into(),
        tool: ToolName::new("deploy").unwrap(),
        arguments: Some(r#"{"branch":"main"}"#.into()),
        message: Seq(3),
        ask: Ask::default(),
        created_at: Timestamp(10),
        expires_at: None,
        started_at: None,
        heard_at: None,
        note: None,
        stands,
        at: Seq(5),
    };
    JobView { run, job }
}

fn over(end: JobEnd) -> JobProgress {
    JobProgress::Over { at: Timestamp(30), end }
}

fn every_stand() -> Vec<(JobProgress, CallStatus, Option<&'static str>)> {
    let text = |text: &str| Body::text(text);
    vec![
        (JobProgress::Starting, CallStatus::Waiting, None),
        (JobProgress::Waiting { processing: false }, CallStatus::Waiting, None),
        (JobProgress::Waiting { processing: true }, CallStatus::Processing, None),
        (JobProgress::Unknown { attempt: 1 }, CallStatus::Waiting, None),
        (over(JobEnd::Result(text("done"))), CallStatus::Completed, None),
        (over(JobEnd::Failed(text("broke"))), CallStatus::Failed, Some("broke")),
        (over(JobEnd::Withdrawn), CallStatus::Failed, Some("Cancelled")),
        (over(JobEnd::RunEnded), CallStatus::Failed, Some("Cancelled: the run ended first")),
        (over(JobEnd::Expired), CallStatus::Expired, Some("Tool execution timed out")),
        (over(JobEnd::Abandoned("started again")), CallStatus::Failed, Some("started again")),
    ]
}

/// S2-4, S2-33, C37: each status with its text, and a part that agrees with it.
#[test]
fn every_job_has_its_status_and_its_part() {
    for (stands, status, error) in every_stand() {
        let view = view(stands.clone());
        let (record, part) = (json(&record(&view)), json(&part(&view)));
        assert_eq!(record["status"], json(&status), "{stands:?}");
        assert_eq!(record["error"].as_str(), error, "{stands:?}");
        assert_eq!(record["time"].get("completed").is_some(), matches!(stands, JobProgress::Over { .. }));
        let expected = match status {
            CallStatus::Waiting | CallStatus::Processing => "waiting_async",
            CallStatus::Completed => "completed",
            CallStatus::Failed | CallStatus::Expired => "error",
        };
        assert_eq!(part["state"]["status"], expected, "{stands:?}");
        assert_eq!(part["id"], CallId { run: view.run.id, no: CallNo(1) }.to_string());
    }
}

/// S2-3, S2-5: exactly these fields, and none that could be a secret.
#[test]
fn a_record_has_exactly_the_fields_of_the_protocol() {
    let mut full = view(over(JobEnd::Result(Body::Json(RawJson::parse(DONE).unwrap()))));
    full.job.ask.external_ref = Some("job-7".into());
    full.job.ask.data = Some(Body::Json(RawJson::parse(r#"{"webhookURL":"https://ci.example"}"#).unwrap()));
    full.job.expires_at = Some(Timestamp(99));
    full.job.started_at = Some(Timestamp(20));
    let id = full.id().to_string();
    assert_eq!(
        json(&record(&full)),
        json!({
            "id": id, "sessionID": "s-1", "messageID": message_id(&full), "callID": "toolu_1", "tool": "deploy",
            "input": {"branch": "main"}, "status": "completed", "webhookURL": "https://ci.example",
            "externalRef": "job-7", "timeout": 99, "time": {"created": 10, "started": 20, "completed": 30},
            "result": {"title": "Deployment Complete", "output": "Preview deployed", "metadata": {"url": "u"}},
        })
    );
    assert_eq!(
        json(&record(&view(JobProgress::Waiting { processing: false }))),
        json!({
            "id": id, "sessionID": "s-1", "messageID": message_id(&full), "callID": "toolu_1", "tool": "deploy",
            "input": {"branch": "main"}, "status": "waiting", "time": {"created": 10},
        })
    );
    assert_eq!(
        json(&part(&full))["state"],
        json!({
            "status": "completed", "input": {"branch": "main"}, "output": "Preview deployed",
            "title": "Deployment Complete", "metadata": {"url": "u"}, "time": {"start": 20, "end": 30},
        })
    );
    assert_eq!(
        json(&part(&view(JobProgress::Waiting { processing: false }))),
        json!({
            "id": CallId { run: full.run.id, no: CallNo(1) }.to_string(), "messageID": message_id(&full),
            "sessionID": "s-1", "type": "tool", "callID": "toolu_1", "tool": "deploy",
            "state": {"status": "waiting_async", "input": {"branch": "main"}, "pendingID": id, "time": {"start": 10}},
        })
    );
}

const DONE: &str = r#"{"title":"Deployment Complete","output":"Preview deployed","metadata":{"url":"u"}}"#;

/// S2-30, S2-31, C1: the four words, and `since` always.
#[test]
fn every_status_of_a_conversation() {
    let hold = HoldId { run: view(JobProgress::Starting).run.id, key: view(JobProgress::Starting).job.key };
    for (now, expected) in [
        (SessionNow::Idle, json!({"type": "idle"})),
        (SessionNow::Busy, json!({"type": "busy"})),
        (
            SessionNow::Retry { attempt: 2, message: "overloaded".into(), next: Timestamp(7) },
            json!({"type": "retry", "attempt": 2, "message": "overloaded", "next": 7}),
        ),
        (
            SessionNow::Waiting {
                hold,
                tool: Some("deploy".into()),
                since: Timestamp(3),
                until: Some(Timestamp(9)),
            },
            json!({
                "type": "waiting_async", "pendingID": hold.to_string(), "tool": "deploy", "since": 3, "timeout": 9,
            }),
        ),
        (
            SessionNow::Waiting { hold, tool: None, since: Timestamp(3), until: None },
            json!({"type": "waiting_async", "pendingID": hold.to_string(), "tool": "", "since": 3}),
        ),
    ] {
        assert_eq!(json(&session(now)), expected);
    }
}

fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}
