//! Standing approvals of gates: each gate that one lets through takes a use with the append that opens it, so whoever never says
//! that a call starts is counted too.
//!
//! The rule of one, its pages and its end are in `tests/program/grants.rs`.

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{Server, text};

use super::{Gates, configure, plain, refund, serve};

/// Approves a held gate and its next calls, as the rule says that is shown before.
async fn grant(server: &Server, gate: &Value, uses: u32) {
    let hold = text(&gate["hold"]);
    let rule = server.http.post(&format!("/api/v1/holds/{hold}/grant-rule"), &json!({"uses": uses})).await;
    assert_eq!(rule.status, 200, "{rule:?}");
    let rule = rule.body;
    assert!(
        rule["rule"].to_string().contains("calls of send_refund by agent gate in runs of local"),
        "{rule}"
    );
    let grant = json!({"uses": uses, "until": rule["until"], "digest": rule["digest"]});
    let decided = server.resolve(hold, &json!({"resolution": "approve", "grant": grant})).await;
    assert_eq!(decided.status, 200, "{decided:?}");
}

async fn grants(server: &Server) -> Vec<Value> {
    server.http.get("/api/v1/grants").await.body["grants"].as_array().unwrap().clone()
}

/// "This and the next two": the gates that follow are allowed at once, each with its use in the log and on the receipt, over
/// `kill -9`; the third is held. Whoever starts takes no second use.
#[tokio::test]
async fn a_standing_approval_lets_as_many_gates_through_as_it_says() {
    let (folder, server) = plain();
    let first = server.open(&refund("c-1")).await;
    grant(&server, &first, 2).await;
    drop(server);
    let server = serve(folder.path(), "data");
    let granted = grants(&server).await;
    assert_eq!((&granted[0]["state"], &granted[0]["used"]), (&json!("live"), &json!(0)), "{granted:?}");
    let id = granted[0]["id"].clone();
    for (no, call) in [(1, "c-2"), (2, "c-3")] {
        let gate = server.open(&refund(call)).await;
        assert_eq!((&gate["state"], &gate["decision"]["grant"]), (&json!("allowed"), &id), "{gate}");
        let receipt = server.http.get(&format!("/api/v1/runs/{}/calls/1/receipt", text(&gate["gate"]))).await;
        assert_eq!(receipt.body["asked"]["grant_use"], json!({"grant": id, "no": no}), "{receipt:?}");
        assert_eq!(server.open(&refund(call)).await["gate"], gate["gate"], "a repeat takes no second use");
        assert_eq!(server.start(&gate).await.status, 200);
    }
    let used = grants(&server).await;
    assert_eq!((&used[0]["state"], &used[0]["used"]), (&json!("used_up"), &json!(2)), "{used:?}");
    assert_eq!(server.open(&refund("c-4")).await["state"], "held");
    // Other arguments were never covered.
    let other = json!({"tool": "send_refund", "arguments": {"order": "A-8", "amount": 40.10}, "agent": "billing",
        "session": "case-7", "call": "c-5"});
    assert_eq!(server.open(&other).await["state"], "held");
}

/// What was allowed and not started when the approval is revoked is asked about again; and a caller who says that something is
/// lost is not answered by one.
#[tokio::test]
async fn a_revoked_approval_starts_nothing_more() {
    let (_folder, server) = plain();
    let first = server.open(&refund("c-1")).await;
    grant(&server, &first, 5).await;
    let mut losing = refund("c-2");
    losing["hints"] = json!({"destructive": true});
    assert_eq!(server.open(&losing).await["state"], "held");
    let allowed = server.open(&refund("c-3")).await;
    assert_eq!(allowed["state"], "allowed", "{allowed}");
    let id = grants(&server).await[0]["id"].clone();
    let ended = server.http.post(&format!("/api/v1/grants/{}/revoke", text(&id)), &json!({})).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    let started = server.start(&allowed).await;
    assert_eq!(started.status, 409, "{started:?}");
    assert_eq!(server.gate(&allowed).await["state"], "held");
    assert_eq!(server.open(&refund("c-4")).await["state"], "held");
}

/// Two nodes that race for the uses of one approval let exactly as many gates through as it says.
#[tokio::test]
async fn two_nodes_never_let_more_gates_through() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &shared().database());
    // Both seal with the same key.
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config.replace(
        "server: {nodes: {take_over_after: 3s}}",
        "server: {nodes: {take_over_after: 3s}, webhooks: {key: a-key-for-tests-that-is-long-enough-0123}}",
    );
    std::fs::write(&file, config).unwrap();
    let nodes = [serve(folder.path(), "one"), serve(folder.path(), "two")];
    let first = nodes[0].open(&refund("c-1")).await;
    grant(&nodes[1], &first, 4).await;
    let opens = (0..12).map(|no| {
        let node = &nodes[no % 2];
        async move { node.open(&refund(&format!("race-{no}"))).await }
    });
    let opened = futures_util::future::join_all(opens).await;
    let with = |state: &str| opened.iter().filter(|gate| gate["state"] == state).count();
    assert_eq!((with("allowed"), with("held")), (4, 8), "{opened:#?}");
    let used = grants(&nodes[1]).await;
    assert_eq!((&used[0]["state"], &used[0]["used"]), (&json!("used_up"), &json!(4)), "{used:?}");
}
