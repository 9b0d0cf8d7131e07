//! Repeats attach to the gate that is there, also a thousand at once and over two nodes; a turn is opened whole or not at all.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::text;

use super::{Gates, configure, plain, refund, serve};

/// The same caller, session, call and arguments are the same gate, whatever the key of the request; other arguments, another
/// call or session are a new decision.
#[tokio::test]
async fn what_is_the_same_attaches_and_what_is_not_is_asked_anew() {
    let (_folder, server) = plain();
    let first = server.open(&refund("c")).await;
    let (same, other) = (refund("c").to_string(), refund("d").to_string());
    for key in ["one", "two"] {
        let again = server.http.send("POST", "/api/v1/gates", &[("idempotency-key", key)], &same).await;
        assert_eq!(again.body["gate"], first["gate"]);
    }
    let reused = server.http.send("POST", "/api/v1/gates", &[("idempotency-key", "one")], &other).await;
    assert_eq!(reused.status, 202, "the key says nothing: another call is another gate");
    assert_ne!(reused.body["gate"], first["gate"]);
    let mut others = BTreeSet::from([text(&first["gate"]).to_owned()]);
    for (field, value) in [
        ("arguments", json!({"order": "A-7", "amount": 41})),
        ("call", json!("another")),
        ("session", json!("another")),
        ("tool", json!("another")),
    ] {
        let mut body = refund("c");
        body[field] = value;
        others.insert(text(&server.open(&body).await["gate"]).to_owned());
    }
    assert_eq!(others.len(), 5, "each is a gate of its own");
    server.resolve(text(&first["hold"]), &json!({"resolution": "approve"})).await;
    let mut other = refund("c");
    other["arguments"] = json!({"order": "A-7", "amount": 41});
    assert_eq!(
        server.open(&other).await["state"],
        "held",
        "an approval is for the arguments that were shown"
    );
}

/// 1,000 requests for 20 calls, a hundred of them at any time: each call has one gate.
#[tokio::test]
async fn a_thousand_at_once_attach_and_never_twice() {
    let (_folder, server) = plain();
    let opened: Vec<(usize, String)> = stream::iter(0..1000)
        .map(|n| {
            let (http, call) = (server.http.clone(), n % 20);
            async move {
                let opened = http.post("/api/v1/gates", &refund(&format!("call {call}"))).await;
                assert_eq!(opened.status, 202, "{opened:?}");
                (call, text(&opened.body["gate"]).to_owned())
            }
        })
        .buffer_unordered(100)
        .collect()
        .await;
    let pairs: BTreeSet<(usize, String)> = opened.into_iter().collect();
    let gates: BTreeSet<&String> = pairs.iter().map(|(_, gate)| gate).collect();
    assert_eq!((pairs.len(), gates.len()), (20, 20));
    assert_eq!(server.open_holds().await.len(), 20);
}

/// 1,000 calls opened at once, each of them twice: every request for all of its turn, all of them together, and nothing is opened twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_calls_are_opened_at_once_and_once_each() {
    const TURNS: usize = 20;
    const CALLS: usize = 50;
    let (_folder, server) = plain();
    let begin = std::sync::Arc::new(tokio::sync::Barrier::new(2 * TURNS));
    let asking: Vec<_> = (0..2 * TURNS)
        .map(|no| {
            let (http, begin, turn) = (server.http.clone(), begin.clone(), no % TURNS);
            tokio::spawn(async move {
                let gates: Vec<Value> = (0..CALLS).map(|call| refund(&format!("{turn}.{call}"))).collect();
                begin.wait().await;
                let opened = http.post("/api/v1/gates/batch", &json!({"gates": gates})).await;
                assert_eq!(opened.status, 202, "{opened:?}");
                let ids = opened.body["gates"].as_array().unwrap().iter();
                (turn, ids.map(|gate| text(&gate["gate"]).to_owned()).collect::<Vec<_>>())
            })
        })
        .collect();
    let mut turns = vec![BTreeSet::new(); TURNS];
    for asked in asking {
        let (turn, ids) = asked.await.unwrap();
        turns[turn].insert(ids);
    }
    assert!(turns.iter().all(|answers| answers.len() == 1), "both requests for a turn hear the same");
    let gates: BTreeSet<&String> = turns.iter().flatten().flatten().collect();
    assert_eq!(gates.len(), TURNS * CALLS);
}

/// The calls of one turn: all of them or none, answered in order; the same call twice is one gate.
#[tokio::test]
async fn a_turn_is_opened_whole_or_not_at_all() {
    let (folder, server) = plain();
    let bad = json!({"gates": [refund("1"), {"tool": "", "arguments": {}, "agent": "a", "session": "s", "call": "c"}]});
    let refused = server.http.post("/api/v1/gates/batch", &bad).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(text(&refused.body["detail"]).starts_with("gates[1]: tool:"), "{refused:?}");
    assert!(server.open_holds().await.is_empty(), "none");
    let look = json!({"tool": "look_up", "arguments": {}, "agent": "a", "session": "case-7", "call": "2"});
    let turn = json!({"gates": [refund("1"), look, refund("3"), refund("1")]});
    let opened = server.http.post("/api/v1/gates/batch", &turn).await;
    assert_eq!(opened.status, 202, "{opened:?}");
    let states: Vec<&Value> =
        opened.body["gates"].as_array().unwrap().iter().map(|gate| &gate["state"]).collect();
    assert_eq!(states, ["held", "allowed", "held", "held"]);
    assert_eq!(opened.body["gates"][0]["gate"], opened.body["gates"][3]["gate"]);
    assert_eq!(server.open_holds().await.len(), 2);
    drop(server);
    let server = serve(folder.path(), "data");
    let again = server.http.post("/api/v1/gates/batch", &turn).await;
    let ids = |body: &Value| -> Vec<Value> {
        body["gates"].as_array().unwrap().iter().map(|gate| gate["gate"].clone()).collect()
    };
    assert_eq!(ids(&again.body), ids(&opened.body), "after a crash it attaches");
    for gates in [json!([]), json!((0..65).map(|n| refund(&n.to_string())).collect::<Vec<_>>())] {
        assert_eq!(server.http.post("/api/v1/gates/batch", &json!({"gates": gates})).await.status, 422);
    }
}

/// Two nodes on one Postgres: one gate for a call whichever node is asked, a decision at one is heard at the other, one of all
/// starts counts, and when a node is killed the other one goes on.
#[tokio::test]
async fn any_node_goes_on_with_any_gate() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &shared().database());
    let [one, two] = ["one", "two"].map(|data| serve(folder.path(), data));
    let opened: Vec<String> = stream::iter(0..40)
        .map(|n| {
            let http = if n % 2 == 0 { one.http.clone() } else { two.http.clone() };
            async move { text(&http.post("/api/v1/gates", &refund("c")).await.body["gate"]).to_owned() }
        })
        .buffer_unordered(20)
        .collect()
        .await;
    assert_eq!(opened.iter().collect::<BTreeSet<_>>().len(), 1, "{opened:?}");
    let gate = one.open(&refund("c")).await;
    let path = format!("/api/v1/gates/{}?wait_ms=50000", text(&gate["gate"]));
    let (decided, resolved) = tokio::join!(two.http.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        one.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await
    });
    assert_eq!((resolved.status, &decided.body["state"]), (200, &json!("allowed")), "{decided:?}");
    let starts: Vec<u16> = stream::iter(0..16)
        .map(|n| {
            let (server, gate) = (if n % 2 == 0 { &one } else { &two }, &gate);
            async move { server.start(gate).await.status }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    assert_eq!(starts.iter().filter(|status| **status == 200).count(), 1, "{starts:?}");
    assert!(starts.iter().all(|status| [200, 409].contains(status)), "{starts:?}");
    drop(one);
    assert_eq!(two.start(&gate).await.status, 409);
    let done =
        two.verb(&gate, "outcome", &json!({"attempt": 1, "status": "succeeded", "result": "paid"})).await;
    assert_eq!((done.status, &done.body["state"]), (200, &json!("done")), "{done:?}");
}
