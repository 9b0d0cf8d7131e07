//! Media types, skills and notes: what agents take and give, what their cards say of it, and what clients accept.

use serde_json::{Value, json};

use crate::a2a::server::{Server, configured, says, state};
use crate::a2a::streams::{Reader, told};

const SCRIPT: &str = "replies:
- text: Here is the picture.
  data: {pages: 2}
  files:
  - {name: a.png, media_type: image/png, base64: iVBORw0KGgo=}
  - {name: a.csv, media_type: text/csv, url: 'https://example.com/a.csv'}
";

/// An agent that answers with words, data and files; its card says so.
fn draws(folder: &std::path::Path, a2a: &str) -> Server {
    std::fs::write(folder.join("script.yaml"), SCRIPT).unwrap();
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{draws: {{llm: script, session_store: db, description: It draws., task: {{}}, a2a: {a2a}}}}}
"
    );
    configured(folder, &config)
}

async fn sends(server: &Server, modes: Value) -> crate::a2a::server::Answer {
    let body = json!({"message": says("draw"), "configuration": {"acceptedOutputModes": modes}});
    server.post("/v1/agents/draws/message:send", &body).await
}

fn parts(task: &Value) -> Vec<String> {
    let parts = task["artifacts"][0]["parts"].as_array().cloned().unwrap_or_default();
    let name = |part: &Value| match part.get("data") {
        Some(_) => "data".to_owned(),
        None => part.get("filename").unwrap_or(&part["text"]).as_str().unwrap().to_owned(),
    };
    parts.iter().map(name).collect()
}

/// Files, data and words are parts of one artifact, everywhere; a client gets what it accepts, and the task keeps all of it.
#[tokio::test]
async fn clients_get_what_they_accept() {
    let folder = tempfile::tempdir().unwrap();
    let server = draws(folder.path(), "{output_modes: [text/plain, application/json, 'image/*', text/csv]}");
    let words = "Here is the picture.";
    for (modes, expected) in [
        (json!([]), vec![words, "data", "a.png", "a.csv"]),
        (json!(["*/*"]), vec![words, "data", "a.png", "a.csv"]),
        (json!(["text/plain"]), vec![words]),
        (json!(["text"]), vec![words, "a.csv"]),
        (json!(["image/png", "application/json"]), vec![words, "data", "a.png"]),
    ] {
        let answer = sends(&server, modes.clone()).await;
        let task = &answer.body["task"];
        assert_eq!((answer.status, state(task)), (200, "TASK_STATE_COMPLETED"), "{modes}");
        assert_eq!(parts(task), expected, "{modes}");
        assert_eq!(task["status"]["message"]["parts"][0]["text"], words);
        let id = task["id"].as_str().unwrap();
        let whole = server.get(&format!("/v1/agents/draws/tasks/{id}")).await.body;
        assert_eq!(parts(&whole), [words, "data", "a.png", "a.csv"], "the task keeps all of it");
        assert_eq!(whole["artifacts"][0]["parts"][2]["raw"], "iVBORw0KGgo=");
        assert_eq!(whole["artifacts"][0]["parts"][3]["url"], "https://example.com/a.csv");
    }
    let refused = sends(&server, json!(["audio/wav"])).await;
    assert_eq!((refused.status, refused.reason()), (400, "CONTENT_TYPE_NOT_SUPPORTED"));
    let body =
        json!({"message": says("draw"), "configuration": {"acceptedOutputModes": ["application/json"]}});
    let stream = Reader::open(&server, "POST", "/v1/agents/draws/message:stream", &[], Some(&body)).await;
    let events = stream.rest().await;
    let made = events.iter().filter_map(|event| event.data.get("artifactUpdate")).next_back().unwrap();
    let kept = json!({"artifacts": [made["artifact"]]});
    assert_eq!(parts(&kept), [words, "data"], "{events:?}");
    assert_eq!(told(events.last().unwrap()), "COMPLETED");
}

/// CORE-SEND-003: a part of a type that the agent does not take is refused, and nothing has begun.
#[tokio::test]
async fn other_types_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = draws(folder.path(), "{}");
    let with = |part: Value| json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [part]}});
    let file = |media: &str| with(json!({"raw": "dGNr", "mediaType": media}));
    for (body, is_taken) in [
        (file("image/png"), true),
        (file("text/csv; charset=utf-8"), true),
        (file("application/zip"), false),
        (with(json!({"raw": "dGNr"})), true),
        (with(json!({"data": {}, "mediaType": "application/vnd.api+json"})), true),
        (with(json!({"text": "x", "mediaType": "text/markdown"})), true),
        (with(json!({"data": {}, "mediaType": "application/x-unsupported"})), false),
    ] {
        let answer = server.post("/v1/agents/draws/message:send", &body).await;
        if is_taken {
            assert_eq!(answer.status, 200, "{body}: {answer:?}")
        } else {
            assert_eq!((answer.status, answer.reason()), (400, "CONTENT_TYPE_NOT_SUPPORTED"), "{body}")
        }
    }
    let only = tempfile::tempdir().unwrap();
    let server = draws(only.path(), "{input_modes: [text/plain, application/zip]}");
    for (media, status) in [("application/zip", 200), ("image/png", 400)] {
        let answer = server.post("/v1/agents/draws/message:send", &file(media)).await;
        assert_eq!(answer.status, status, "{media}: {answer:?}");
    }
}

/// Skills and media types of a card come from the configuration.
#[tokio::test]
async fn cards_say_what_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    let skill = "{id: draw, name: Drawing, description: Draws what you describe., tags: [picture], examples: [Draw a cat]}";
    let a2a = format!(
        "{{skills: [{skill}, {{id: plan, description: Plans.}}], input_modes: [text/plain], output_modes: [image/png]}}"
    );
    let server = draws(folder.path(), &a2a);
    let card = server.get("/v1/agents/draws/.well-known/agent-card.json").await.body;
    let expected = json!([
        {"id": "draw", "name": "Drawing", "description": "Draws what you describe.", "tags": ["picture"],
         "examples": ["Draw a cat"]},
        {"id": "plan", "name": "plan", "description": "Plans.", "tags": []}
    ]);
    assert_eq!(card["skills"], expected);
    assert_eq!(card["defaultInputModes"], json!(["text/plain"]));
    assert_eq!(card["defaultOutputModes"], json!(["image/png"]));
    let usual = tempfile::tempdir().unwrap();
    let server = draws(usual.path(), "{}");
    let card = server.get("/v1/agents/draws/.well-known/agent-card.json").await.body;
    assert_eq!(
        card["skills"],
        json!([{"id": "draws", "name": "draws", "description": "It draws.", "tags": ["agent"]}])
    );
}

/// The notes of a client stay with its message, byte for byte.
#[tokio::test]
async fn notes_stay_with_their_message() {
    let folder = tempfile::tempdir().unwrap();
    let server = draws(folder.path(), "{}");
    let notes = json!({"trace": "t-1", "deep": {"n": 9007199254740993u64, "none": null}});
    let said = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "draw"}], "metadata": notes,
        "referenceTaskIds": ["run_1"], "extensions": ["urn:x"]});
    let task = server.send("draws", &said).await;
    let id = task["id"].as_str().unwrap();
    let got = server.get(&format!("/v1/agents/draws/tasks/{id}")).await.body;
    assert_eq!(got["history"][0]["metadata"], notes);
    assert_eq!(got["history"][0]["referenceTaskIds"], json!(["run_1"]));
    assert_eq!(got["history"][0]["extensions"], json!(["urn:x"]));
    assert!(got["history"][1].get("metadata").is_none(), "{got}");
}
