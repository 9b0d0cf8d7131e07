//! Callbacks of gates: whoever waits in another program is told what was decided, in the words of its own template, over `kill -9`.

use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{Http, text};

use super::{Gates, Server, configure, refund, serve};

/// A server whose callbacks reach this machine, and are tried again at once.
fn configured(folder: &Path, more: &str) -> Server {
    configure(folder, "");
    let file = folder.join("standfast.yaml");
    let retries = vec!["200ms"; 400].join(", ");
    let webhooks = format!(
        "server: {{webhooks: {{allowed_hosts: ['127.0.0.1'], timeout: 2s, retries: [{retries}]}}, nodes:"
    );
    let config = std::fs::read_to_string(&file).unwrap().replace("server: {nodes:", &webhooks);
    std::fs::write(&file, config.replace("take_over_after: 3s}}", &format!("take_over_after: 3s}}{more}}}")))
        .unwrap();
    serve(folder, "data")
}

/// A refund whose decision is told to this receiver.
fn told(call: &str, receiver: &Receiver, more: Value) -> Value {
    let mut body = refund(call);
    body["callback"] = json!({"url": receiver.url()});
    body["callback"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The decision is told in the client's own words, with its headers, though receiver and server were away when it was made: once,
/// and the same at each try. Numbers keep their digits.
#[tokio::test]
async fn a_decision_reaches_whoever_waits_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let server = configured(folder.path(), "");
    let receiver = Receiver::new(Mood::Says("503 Away".to_owned())).await;
    let template = json!({"input": [{"gate": "{{body}}", "words": "{{call}} is {{state}} by {{decision.by}}", "n": 1.5}], "args": "{{arguments}}", "none": "{{outcome.value}}"});
    let more =
        json!({"template": template, "headers": {"authorization": "Bearer of-the-workflow", "x-two": "2"}});
    let mut body = told("c", &receiver, more);
    body["arguments"] = serde_json::from_str(r#"{"order": "A-7", "amount": 40.10}"#).unwrap();
    let sent = body.to_string().replace("40.1", "9007199254740993.10");
    let opened =
        server.http.send("POST", "/api/v1/gates", &[("content-type", "application/json")], &sent).await;
    assert_eq!(opened.status, 202, "{opened:?}");
    let gate = opened.body;
    // The same again is the same gate, with one receiver.
    server.http.send("POST", "/api/v1/gates", &[("content-type", "application/json")], &sent).await;
    assert!(receiver.all().is_empty(), "nobody is told what nobody decided");
    server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
    receiver.until("a try", |all| !all.is_empty()).await;
    drop(server);
    let _server = serve(folder.path(), "data");
    receiver.becomes(Mood::Takes);
    let all = receiver.until("the decision", |all| all.iter().any(|got| got.was_taken)).await;
    let taken: Vec<_> = all.iter().filter(|got| got.was_taken).collect();
    assert_eq!(taken.len(), 1, "{all:#?}");
    assert!(
        all.iter()
            .all(|got| got.text == taken[0].text
                && got.headers["webhook-id"] == taken[0].headers["webhook-id"])
    );
    let got = taken[0];
    assert_eq!(
        (got.headers["authorization"].as_str(), got.headers["x-two"].as_str()),
        ("Bearer of-the-workflow", "2")
    );
    assert!(!got.headers.contains_key("webhook-signature"), "nobody was given a secret to check one with");
    let body = got.body();
    assert_eq!(body["input"][0]["words"], "c is allowed by person:local", "{body}");
    assert_eq!((&body["input"][0]["gate"]["gate"], &body["input"][0]["n"]), (&gate["gate"], &json!(1.5)));
    assert_eq!(body["none"], Value::Null);
    assert!(
        got.text.contains(r#""args":{"amount":9007199254740993.10,"#)
            || got.text.contains("9007199254740993.10"),
        "{}",
        got.text
    );
}

/// Without a template it is told the gate, as a request for it would be: denied, withdrawn, expired, answered, and what a rule decides at
/// once, in a turn too. What becomes of a call after its decision nobody is told.
#[tokio::test]
async fn every_way_to_decide_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = configured(folder.path(), "");
    let receiver = Receiver::new(Mood::Takes).await;
    let of = async |call: &str| {
        let is_it = |got: &standfast_testkit::receiver::Got| got.body()["call"] == call;
        let all = receiver.until(call, |all| all.iter().any(is_it)).await;
        all.iter().find(|got| is_it(got)).unwrap().body()
    };
    let denied = server.open(&told("denied", &receiver, json!({}))).await;
    server.resolve(text(&denied["hold"]), &json!({"resolution": "deny", "reason": "too much"})).await;
    let got = of("denied").await;
    assert_eq!((&got["state"], &got["decision"]["reason"]), (&json!("denied"), &json!("too much")), "{got}");
    assert_eq!((&got["gate"], &got["decision"]["allowed"]), (&denied["gate"], &json!(false)));

    let withdrawn = server.open(&told("withdrawn", &receiver, json!({}))).await;
    server.verb(&withdrawn, "withdraw", &json!({})).await;
    assert_eq!(of("withdrawn").await["state"], "withdrawn");

    let mut late = told("late", &receiver, json!({}));
    late["deadline"] = json!("2020-01-01T00:00:00Z");
    server.open(&late).await;
    assert_eq!(of("late").await["state"], "expired");

    let mut asks = told("asks", &receiver, json!({"template": "{{outcome.value}}: {{state}}"}));
    asks["ask"] = json!("answer");
    asks["arguments"] = json!({"question": "Which one?", "options": ["a", "b"]});
    let asked = server.open(&asks).await;
    server.resolve(text(&asked["hold"]), &json!({"resolution": "answer", "value": "b"})).await;
    receiver.until("the answer", |all| all.iter().any(|got| got.text == r#""b: done""#)).await;

    let mut allowed = told("allowed", &receiver, json!({}));
    allowed["tool"] = json!("look_up");
    let mut forbidden = told("forbidden", &receiver, json!({}));
    forbidden["tool"] = json!("drop_table");
    let turn = server.http.post("/api/v1/gates/batch", &json!({"gates": [allowed, forbidden]})).await;
    assert_eq!(turn.status, 200, "{turn:?}");
    assert_eq!(of("allowed").await["decision"]["rules"], json!(["rule:reads"]));
    assert_eq!(of("forbidden").await["state"], "denied");

    let gate = &turn.body["gates"][0];
    assert_eq!(server.start(gate).await.status, 200);
    let done = server.verb(gate, "outcome", &json!({"attempt": 1, "status": "succeeded", "result": 1})).await;
    assert_eq!(done.status, 200, "{done:?}");
    // The next one comes after whatever that would have told.
    let last = server.open(&told("last", &receiver, json!({}))).await;
    server.resolve(text(&last["hold"]), &json!({"resolution": "approve"})).await;
    of("last").await;
    let all = receiver.all();
    let mut ids: Vec<&String> = all.iter().map(|got| &got.headers["webhook-id"]).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7, "each decision once: {all:#?}");
}

/// What the table of docs/gates.md says for an engine: its template, if it has one.
fn documented(engine: &str) -> Option<Value> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gates.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = page.lines().find(|line| line.starts_with(&format!("| {engine} |"))).unwrap().to_owned();
    let template = row.trim_end_matches(" |").rsplit(" | ").next().unwrap().to_owned();
    template.strip_prefix('`').map(|json| serde_json::from_str(json.trim_end_matches('`')).unwrap())
}

/// Trigger.dev and Inngest by the shapes that they document. A token of Trigger.dev takes the whole body as its output. An event of
/// Inngest has a name, its data as an object, and an id: events with the same one count once, so each try has the same, and each
/// decision another one.
#[tokio::test]
async fn the_documented_shapes_of_durable_engines_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = configured(folder.path(), "");
    let receiver = Receiver::new(Mood::Says("503 Away".to_owned())).await;
    assert_eq!(documented("Trigger.dev"), None);
    let event = documented("Inngest").unwrap();
    let gates =
        [("token", json!({})), ("first", json!({"template": event})), ("second", json!({"template": event}))];
    for (call, more) in gates {
        let gate = server.open(&told(call, &receiver, more)).await;
        server.resolve(text(&gate["hold"]), &json!({"resolution": "approve"})).await;
    }
    let call_of = |got: &standfast_testkit::receiver::Got| {
        let body = got.body();
        let gate = if body["data"].is_object() { &body["data"] } else { &body };
        text(&gate["call"]).to_owned()
    };
    let of = |call: &'static str| move |got: &&standfast_testkit::receiver::Got| call_of(got) == call;
    receiver
        .until("two tries of each", |all| {
            ["token", "first", "second"].iter().all(|call| all.iter().filter(of(call)).count() > 1)
        })
        .await;
    receiver.becomes(Mood::Takes);
    let all = receiver.until("all taken", |all| all.iter().filter(|got| got.was_taken).count() == 3).await;
    let token = all.iter().find(of("token")).unwrap().body();
    assert_eq!(
        (&token["state"], &token["tool"]),
        (&json!("allowed"), &json!("send_refund")),
        "the gate: {token}"
    );
    let ids = |call| {
        let sent = all.iter().filter(of(call)).map(|got| got.body());
        sent.map(|sent| {
            assert_eq!(
                (&sent["name"], &sent["data"]["state"]),
                (&json!("standfast/decided"), &json!("allowed")),
                "{sent}"
            );
            assert_eq!(sent.as_object().unwrap().len(), 3, "{sent}");
            text(&sent["id"]).to_owned()
        })
        .collect::<std::collections::BTreeSet<_>>()
    };
    let (first, second) = (ids("first"), ids("second"));
    assert_eq!((first.len(), second.len()), (1, 1), "{first:?} {second:?}");
    assert_ne!(first, second);
}

/// A subscription to the agent `gate` hears of gates as of any run: held, decided, over.
#[tokio::test]
async fn a_subscription_hears_of_gates() {
    let folder = tempfile::tempdir().unwrap();
    let server = configured(folder.path(), "");
    let receiver = Receiver::new(Mood::Takes).await;
    let made =
        server.http.post("/api/v1/subscriptions", &json!({"url": receiver.url(), "agent": "gate"})).await;
    assert!([200, 201].contains(&made.status), "{made:?}");
    let gate = server.open(&refund("c")).await;
    let heard = |kind: &'static str| {
        move |all: &[standfast_testkit::receiver::Got]| all.iter().any(|got| got.kind() == kind)
    };
    let all = receiver.until("the hold", heard("hold.opened")).await;
    let opened = all.iter().find(|got| got.kind() == "hold.opened").unwrap().body();
    assert_eq!(
        (&opened["data"]["run"]["id"], &opened["data"]["hold"]["tool"]),
        (&gate["gate"], &json!("send_refund"))
    );
    server.resolve(text(&gate["hold"]), &json!({"resolution": "deny"})).await;
    receiver.until("the decision", heard("hold.resolved")).await;
    receiver.until("the end", heard("run.ended")).await;
}

/// A key that may open gates and nothing else has them told to its receivers, for as long as it is valid; what cannot be sent is
/// refused when it is asked for, with its place, and no gate is opened.
#[tokio::test]
async fn a_gates_key_is_enough_and_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = configured(folder.path(), ", auth: {api_keys: true}");
    let receiver = Receiver::new(Mood::Takes).await;
    let key = |scopes: &[&str]| {
        let mut command = standfast_testkit::standfast();
        command
            .args(["keys", "create", "--user", "ann", "--config"])
            .arg(folder.path().join("standfast.yaml"));
        command
            .args(scopes.iter().flat_map(|scope| ["--scope", scope]))
            .arg("--data")
            .arg(folder.path().join("data"));
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let key =
            said.lines().find(|line| line.starts_with("sf_")).unwrap_or_else(|| panic!("{said}")).to_owned();
        Http::new(&server.http.base).with_key(&key)
    };
    let (agent, ann) = (key(&["gates:open"]), key(&[]));
    for (more, status, why) in [
        (
            json!({"url": "http://127.0.0.1:1/x", "template": "{{key}}"}),
            422,
            "callback.template: there is no {{key}}",
        ),
        (json!({"url": "http://127.0.0.1:1/x", "headers": {"host": "x"}}), 422, "callback.headers: \"host\""),
        (json!({"url": "http://10.0.0.1/x"}), 422, "callback: "),
        (json!({"url": "ftp://127.0.0.1/x"}), 422, "callback: "),
        (json!({"url": "http://127.0.0.1:1/x", "body": 1}), 422, "body"),
    ] {
        let mut body = refund("c");
        body["callback"] = more;
        let refused = agent.post("/api/v1/gates", &body).await;
        assert_eq!(refused.status, status, "{refused:?}");
        assert!(text(&refused.body["detail"]).contains(why), "{why}: {refused:?}");
    }
    assert!(ann.get("/api/v1/holds").await.body["holds"].as_array().unwrap().is_empty());
    let opened = agent.post("/api/v1/gates", &told("c", &receiver, json!({}))).await;
    assert_eq!(opened.status, 202, "{opened:?}");
    let resolve = format!("/api/v1/holds/{}/resolve", text(&opened.body["hold"]));
    assert_eq!(ann.post(&resolve, &json!({"resolution": "approve"})).await.status, 200);
    let all = receiver.until("the decision", |all| !all.is_empty()).await;
    assert_eq!(all[0].body()["decision"]["by"], "person:ann");
    // It is a receiver of its gate, and no subscription that could be made another one's.
    let listed = ann.get("/api/v1/subscriptions").await;
    assert!(!listed.text.contains("of-the-workflow"), "{listed:?}");
}
