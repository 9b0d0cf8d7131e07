//! One gate from beginning to end: held or not, approved, edited, denied, started once, reported, lost, withdrawn.

use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::{Server, text, until_found};

use super::{Gates, plain, refund, serve};

/// A gate waits over `kill -9`, is decided by a person, starts once, and what came of it is its caller's word; the list of what
/// is pending, its page, its receipt and the audit know it like any other call.
#[tokio::test]
async fn a_gate_is_held_approved_started_and_reported_once() {
    let (folder, server) = plain();
    let opened = server.http.post("/api/v1/gates", &refund("c-1")).await;
    assert_eq!(opened.status, 202, "{opened:?}");
    let gate = opened.body;
    assert_eq!((&gate["state"], &gate["revision"]), (&json!("held"), &json!(0)));
    assert!(
        opened.text.contains(r#"{"amount":40.1,"order":"A-7"}"#) || opened.text.contains("40.1"),
        "{gate}"
    );
    assert!(text(&gate["model_text"]).contains("waits for approval"), "{gate}");
    assert!(text(&gate["url"]).ends_with(&format!("/approve/{}", text(&gate["hold"]))), "{gate}");
    let early = server.start(&gate).await;
    assert_eq!((early.status, &early.body["type"]), (409, &json!("urn:standfast:problem:wrong-state")));
    drop(server);
    let server = serve(folder.path(), "data");
    assert_eq!(server.gate(&gate).await, with_site(&gate, &server.http.base), "after a crash");
    let again = server.open(&refund("c-1")).await;
    assert_eq!(again["gate"], gate["gate"], "a repeat attaches");
    let pending = server.open_holds().await;
    assert_eq!((pending.len(), &pending[0]["id"], &pending[0]["agent"]), (1, &gate["hold"], &json!("gate")));
    let page = server.http.get(&format!("/approve/{}", text(&gate["hold"]))).await;
    assert_eq!(page.status, 200);
    for shown in ["send_refund", "A-7", "the customer sent it back", "billing", "money leaves the company"] {
        assert!(page.text.contains(shown), "{shown} is not on the page");
    }
    // Whoever waits learns of the decision; whoever gives up changes nothing.
    let short = server.http.get(&format!("/api/v1/gates/{}?wait_ms=50", text(&gate["gate"]))).await;
    assert_eq!(short.body["state"], "held");
    let path = format!("/api/v1/gates/{}?wait_ms=50000", text(&gate["gate"]));
    let (decided, resolved) = tokio::join!(server.http.get(&path), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await
    });
    assert_eq!(resolved.status, 200, "{resolved:?}");
    assert_eq!(decided.body["state"], "allowed", "{decided:?}");
    let decision = &decided.body["decision"];
    assert_eq!((&decision["allowed"], &decision["by"]), (&json!(true), &json!("person:local")), "{decision}");
    assert!(server.open_holds().await.is_empty());
    let started = server.verb(&gate, "start", &json!({"digest": gate["digest"], "lease_ms": 600_000})).await;
    assert_eq!((started.status, &started.body["attempt"]), (200, &json!(1)), "{started:?}");
    let twice = server.start(&gate).await;
    assert_eq!((twice.status, &twice.body["type"]), (409, &json!("urn:standfast:problem:already-started")));
    drop(server);
    let server = serve(folder.path(), "data");
    assert_eq!(server.start(&gate).await.status, 409, "nor after a crash");
    assert_eq!(server.gate(&gate).await["state"], "started");
    let report = json!({"attempt": 1, "status": "succeeded", "result": {"paid": 40.10}});
    let done = server.verb(&gate, "outcome", &report).await;
    assert_eq!((done.status, &done.body["state"]), (200, &json!("done")), "{done:?}");
    assert_eq!(done.body["outcome"], json!({"ok": true, "value": {"paid": 40.10}}));
    assert_eq!(server.verb(&gate, "outcome", &report).await.status, 409, "once");
    assert_eq!(server.start(&gate).await.body["type"], "urn:standfast:problem:already-started");
    assert_eq!(server.open(&refund("c-1")).await["state"], "done", "what it came to answers every repeat");
    let receipt = server.http.get(&format!("/api/v1/holds/{}/receipt", text(&gate["hold"]))).await;
    assert!(receipt.text.contains("\"executed\"") && receipt.text.contains("gate#1@local"), "{receipt:?}");
    let run = server.http.get(&format!("/api/v1/runs/{}", text(&gate["gate"]))).await.body;
    assert_eq!((&run["status"], &run["agent"]), (&json!("completed"), &json!("gate")), "{run}");
    drop(server);
    let audit = standfast_testkit::standfast()
        .args(["audit", "verify", "--json", "--config"])
        .arg(folder.path().join("standfast.yaml"))
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&audit.stdout).unwrap();
    assert_eq!(report["ok"], true, "{report}");
}

/// The same gate as a server at another address shows it.
fn with_site(gate: &Value, base: &str) -> Value {
    let mut gate = gate.clone();
    gate["url"] = json!(format!("{base}/approve/{}", text(&gate["hold"])));
    gate["model_text"] = json!(format!(
        "Not executed. send_refund waits for approval at {}. Nobody has decided yet; do something else, or repeat exactly this \
         call later.",
        text(&gate["url"])
    ));
    gate
}

/// The policy of the file decides: a rule allows, a rule denies with its reason, and what no rule names is held.
#[tokio::test]
async fn the_policy_of_the_file_applies() {
    let (_folder, server) = plain();
    let asked =
        |tool: &str| json!({"tool": tool, "arguments": {"q": 1}, "agent": "a", "session": "s", "call": tool});
    let allowed = server.http.post("/api/v1/gates", &asked("look_up")).await;
    assert_eq!((allowed.status, &allowed.body["state"]), (200, &json!("allowed")), "{allowed:?}");
    let decision = &allowed.body["decision"];
    assert_eq!(
        (&decision["by"], &decision["rules"]),
        (&json!("policy"), &json!(["rule:reads"])),
        "{decision}"
    );
    let denied = server.http.post("/api/v1/gates", &asked("drop_table")).await;
    assert_eq!((denied.status, &denied.body["state"]), (200, &json!("denied")), "{denied:?}");
    assert!(text(&denied.body["model_text"]).contains("ask the owner of the data"), "{denied:?}");
    assert_eq!(server.start(&denied.body).await.status, 409);
    let held = server.http.post("/api/v1/gates", &asked("anything_else")).await;
    assert_eq!((held.status, &held.body["state"]), (202, &json!("held")));
    // What the caller did not start over the API, it may still report.
    let told = server.verb(&allowed.body, "outcome", &json!({"status": "failed", "error": "no route"})).await;
    assert_eq!((told.status, &told.body["outcome"]["value"]), (200, &json!("no route")), "{told:?}");
}

/// What a rule allowed when it was asked, and forbids when it starts, is denied: state, decision and words say the same.
#[tokio::test]
async fn a_rule_that_became_stricter_is_the_decision() {
    let (folder, server) = plain();
    let look_up = json!({"tool": "look_up", "arguments": {}, "agent": "a", "session": "s", "call": "1"});
    let gate = server.open(&look_up).await;
    assert_eq!(gate["state"], "allowed");
    drop(server);
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let stricter = "{id: reads, deny: look_up, because: the archive is closed}";
    std::fs::write(file, config.replace("{id: reads, allow: look_up}", stricter)).unwrap();
    let server = serve(folder.path(), "data");
    let refused = server.start(&gate).await;
    assert_eq!((refused.status, &refused.body["type"]), (409, &json!("urn:standfast:problem:wrong-state")));
    let denied = server.gate(&gate).await;
    assert_eq!(
        (&denied["state"], &denied["decision"]["allowed"]),
        (&json!("denied"), &json!(false)),
        "{denied}"
    );
    assert_eq!(
        (denied["outcome"].is_null(), &denied["decision"]["rules"]),
        (true, &json!(["rule:reads"])),
        "{denied}"
    );
    let words = text(&denied["model_text"]);
    assert!(words.contains("the archive is closed") && words.matches("ot executed").count() == 1, "{words}");
}

/// A no with its reason, and a yes to other arguments: what may start is what was decided, by its digest.
#[tokio::test]
async fn denied_and_edited() {
    let (_folder, server) = plain();
    let gate = server.open(&refund("no")).await;
    server.resolve(text(&gate["hold"]), &json!({"resolution": "deny", "reason": "too much"})).await;
    let denied = server.gate(&gate).await;
    assert_eq!((&denied["state"], &denied["decision"]["reason"]), (&json!("denied"), &json!("too much")));
    assert_eq!(denied["model_text"], "Not executed: send_refund was denied. Reason: too much");
    let gate = server.open(&refund("less")).await;
    let edit = json!({"resolution": "approve", "arguments": {"order": "A-7", "amount": 4}});
    assert_eq!(server.resolve(text(&gate["hold"]), &edit).await.status, 200);
    let edited = until_found("an allowed gate", async || {
        let now = server.gate(&gate).await;
        if now["state"] == "held" {
            let again =
                json!({"resolution": "approve", "digest": now["digest"], "revision": now["revision"]});
            server.resolve(text(&gate["hold"]), &again).await;
        }
        (now["state"] == "allowed").then_some(now)
    })
    .await;
    assert_eq!(
        (&edited["arguments"]["amount"], &edited["decision"]["edited"]),
        (&json!(4), &json!(true)),
        "{edited}"
    );
    assert!(text(&edited["model_text"]).contains(r#""amount":4"#), "{edited}");
    let stale = server.start(&gate).await;
    assert_eq!(
        (stale.status, &stale.body["digest"]),
        (409, &edited["digest"]),
        "what was asked for is not what may run"
    );
    assert_eq!(server.start(&edited).await.status, 200);
}

/// A start without an outcome asks a person, like any other unknown outcome: a late true report answers it, and after "run it
/// again" the call may start once more while the first start stays void.
#[tokio::test]
async fn a_start_without_an_outcome_becomes_a_recovery_hold() {
    let (folder, server) = plain();
    let lost = async |server: &Server, call: &str| {
        let gate = server.open(&refund(call)).await;
        server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
        let start = json!({"digest": gate["digest"], "lease_ms": 300});
        assert_eq!(server.verb(&gate, "start", &start).await.status, 200);
        gate
    };
    let is_lost = async |server: &Server, gate: &Value| {
        until_found("an unknown outcome", async || {
            let holds = server.open_holds().await;
            holds.into_iter().find(|hold| hold["kind"] == "recovery" && hold["run"] == gate["gate"])
        })
        .await
    };
    let late = lost(&server, "late").await;
    is_lost(&server, &late).await;
    let now = server.gate(&late).await;
    assert_eq!(now["state"], "outcome_unknown");
    assert!(text(&now["model_text"]).contains("Do not run it again"), "{now}");
    assert_eq!(server.start(&late).await.body["type"], "urn:standfast:problem:already-started");
    let told =
        server.verb(&late, "outcome", &json!({"attempt": 1, "status": "succeeded", "result": "paid"})).await;
    assert_eq!((told.status, &told.body["state"]), (200, &json!("done")), "{told:?}");
    let gate = lost(&server, "again").await;
    // Nobody but the clock of whoever serves next has to notice.
    drop(server);
    let server = serve(folder.path(), "data");
    let hold = is_lost(&server, &gate).await;
    assert_eq!(server.resolve(text(&hold["id"]), &json!({"resolution": "approve"})).await.status, 200);
    assert_eq!(server.gate(&gate).await["state"], "allowed");
    let second = server.start(&gate).await;
    assert_eq!((second.status, &second.body["attempt"]), (200, &json!(2)), "{second:?}");
    let void = server.verb(&gate, "outcome", &json!({"attempt": 1, "status": "succeeded"})).await;
    assert_eq!(void.body["state"], "started", "on record, and it counts for nothing: {void:?}");
    let done =
        server.verb(&gate, "outcome", &json!({"attempt": 2, "status": "failed", "error": "twice"})).await;
    assert_eq!((done.status, &done.body["outcome"]["ok"]), (200, &json!(false)), "{done:?}");
    // A caller that does not know says so, and need not wait until its time is over.
    let gate = server.open(&refund("unsure")).await;
    server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
    assert_eq!(server.start(&gate).await.status, 200);
    let unsure = server
        .verb(&gate, "outcome", &json!({"attempt": 1, "status": "unknown", "error": "it hung up"}))
        .await;
    assert_eq!((unsure.status, &unsure.body["state"]), (200, &json!("outcome_unknown")), "{unsure:?}");
    let gate = server.open(&refund("not")).await;
    server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
    assert_eq!(server.start(&gate).await.status, 200);
    let not = server.verb(&gate, "outcome", &json!({"attempt": 1, "status": "not_executed"})).await;
    assert_eq!(
        (not.status, &not.body["state"], not.body.get("outcome")),
        (200, &json!("done"), None),
        "{not:?}"
    );
    let receipt = server.http.get(&format!("/api/v1/holds/{}/receipt", text(&gate["hold"]))).await.text;
    assert!(receipt.contains("not_executed"), "{receipt}");
}

/// A gate that nobody wants any more leaves no button behind, and never counts as a denial; one that runs cannot be withdrawn.
#[tokio::test]
async fn a_withdrawn_gate_leaves_no_button_behind() {
    let (_folder, server) = plain();
    let gate = server.open(&refund("w")).await;
    let gone = server.verb(&gate, "withdraw", &json!({"reason": "decided_elsewhere"})).await;
    assert_eq!((gone.status, &gone.body["state"]), (200, &json!("withdrawn")), "{gone:?}");
    assert!(server.open_holds().await.is_empty());
    assert_eq!(server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await.status, 409);
    assert_eq!(server.verb(&gate, "withdraw", &json!({})).await.status, 200, "again changes nothing");
    assert_eq!(server.start(&gate).await.status, 409);
    let gate = server.open(&refund("allowed")).await;
    server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
    assert_eq!(server.verb(&gate, "withdraw", &json!({})).await.body["state"], "withdrawn");
    let receipt = server.http.get(&format!("/api/v1/holds/{}/receipt", text(&gate["hold"]))).await.text;
    assert!(receipt.contains("not_executed"), "what nobody started did not run: {receipt}");
    let gate = server.open(&refund("runs")).await;
    server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
    server.start(&gate).await;
    assert_eq!(server.verb(&gate, "withdraw", &json!({})).await.status, 409);
}

/// C7, S0-49: a deadline: the call must not run when nobody decided in time, unless the gate is kept open; then it says that its time has
/// passed, and that the decision was late.
#[tokio::test]
async fn a_gate_expires_or_is_kept() {
    let (_folder, server) = plain();
    let mut body = refund("soon");
    body["deadline"] = json!("2026-01-01T00:00:00Z");
    let gate = server.open(&body).await;
    let now = until_found("an expired gate", async || {
        let now = server.gate(&gate).await;
        (now["state"] == "expired").then_some(now)
    })
    .await;
    assert!(text(&now["model_text"]).contains("nobody decided"), "{now}");
    body["call"] = json!("kept");
    body["on_deadline"] = json!("keep");
    let gate = server.open(&body).await;
    let now = until_found("a gate that is kept after its time", async || {
        let now = server.gate(&gate).await;
        now["expired_at"].is_string().then_some(now)
    })
    .await;
    assert_eq!(now["state"], "held", "{now}");
    assert!(text(&now["model_text"]).contains("one that comes late still counts"), "{now}");
    assert_eq!(server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await.status, 200);
    let now = server.gate(&gate).await;
    assert_eq!((&now["state"], &now["decision"]["late"]), (&json!("allowed"), &json!(true)), "{now}");
    assert!(now.get("expired_at").is_none(), "{now}");
}

/// The stream of a gate tells its decision, and resumes behind the last event that was heard.
#[tokio::test]
async fn a_gate_has_a_stream() {
    let (_folder, server) = plain();
    let gate = server.open(&refund("s")).await;
    let path = format!("{}/api/v1/gates/{}/events", server.http.base, text(&gate["gate"]));
    let mut stream = server.http.client.get(&path).send().await.unwrap();
    server.resolve(text(&gate["hold"]), &json!({"resolution": "deny"})).await;
    let mut seen = String::new();
    while !seen.contains("run.ended") {
        seen.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
    }
    for kind in ["call.proposed", "hold.opened", "hold.resolved"] {
        assert!(seen.contains(kind), "{kind}: {seen}");
    }
    let later = server.http.client.get(&path).header("last-event-id", "5").send();
    let mut later = later.await.unwrap();
    let seen = String::from_utf8_lossy(&later.chunk().await.unwrap().unwrap()).into_owned();
    assert!(seen.starts_with("id: 6") || seen.contains("\nid: 6"), "{seen}");
}
