//! The streaming siblings: held as the plain calls are, with pieces of the output on the way.

use serde_json::{Value, json};

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, Server, demo, says, text};

/// The events of a stream, each with its name.
async fn events(server: &Server, path: &str, body: &Value) -> Vec<(String, Value)> {
    let answer = server.post(path, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let frames = answer.text.split("\n\n").filter(|frame| frame.contains("data: "));
    let read = |frame: &str| {
        let line = |start: &str| frame.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
        (line("event: ").to_owned(), serde_json::from_str(line("data: ")).unwrap())
    };
    frames.map(read).collect()
}

/// S1-9, S1-8, S1-34: the stream checks every call before any runs, and ends with the very pause that the plain call
/// answers; resumed as a stream it tells the output in pieces and then whole.
#[tokio::test]
async fn the_stream_is_held_as_the_plain_call_is() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let plain = server.paused("ops").await;
    let streamed = events(&server, &format!("{BASE}/ops/sse"), &says("please")).await;
    let [(name, paused)] = streamed.as_slice() else { panic!("{streamed:?}") };
    assert_eq!(name, "hitl-response");
    let shape = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(shape(paused), shape(&plain));
    assert_eq!(paused["tool_calls"][0]["arguments"], plain["tool_calls"][0]["arguments"]);
    assert!(!data.path().join("demo-effects.log").exists(), "nothing has run");
    let path = format!("{BASE}/resume/{}/sse", text(&paused["request_id"]));
    let told = events(&server, &path, &json!({"action": "approve"})).await;
    let (last, pieces) = told.split_last().unwrap();
    assert_eq!(last.0, "final-response");
    let said: String = pieces
        .iter()
        .map(|(name, piece)| {
            assert_eq!(name, "partial-response");
            assert_eq!(piece["task_id"], paused["task_id"]);
            assert_eq!(piece["request_id"], paused["request_id"]);
            text(&piece["output_partial"])
        })
        .collect();
    assert_eq!(last.1["output"], said.as_str(), "the pieces are the whole");
    // Decided is decided, also here; and known mistakes are told before the stream begins.
    let again = server.post(&path, &json!({"action": "approve"})).await;
    assert_eq!(again.status, 409, "{again:?}");
}

/// S1-19, S1-26: a stream also ends with a rejection, with a failure, and with the next question.
#[tokio::test]
async fn every_end_of_a_stream_has_its_name() {
    let elsewhere = Elsewhere::quick().await;
    let twice = [Line::Asks(&["/a"]), Line::Asks(&["/b"]), Line::Asks(&["/c"])];
    let more = "server: {limits: {turns: 3}}\n";
    let folder = Folder::new(&elsewhere, &[("ops", &twice)], more);
    let server = folder.serve();
    let first = server.paused("ops").await;
    let path = |request: &Value| format!("{BASE}/resume/{}/sse", text(request));
    let told = events(&server, &path(&first["request_id"]), &json!({"action": "approve"})).await;
    let (name, second) = told.last().unwrap();
    assert_eq!(name, "hitl-response");
    assert_ne!(second["request_id"], first["request_id"]);
    let told = events(&server, &path(&second["request_id"]), &json!({"action": "approve"})).await;
    let (name, failed) = told.last().unwrap();
    assert_eq!(name, "error", "three turns are all it has");
    assert!(text(&failed["detail"]).contains("failed"), "{failed}");
    let third = server.paused("ops").await;
    let told = events(&server, &path(&third["request_id"]), &json!({"action": "reject"})).await;
    let [(name, stopped)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((name.as_str(), &stopped["status"]), ("state-response", &json!("Canceled")));
}

/// S1-34: a stream that has nothing to tell sends comments, over the wire, so that nobody on the way takes it for dead; the
/// answer still comes behind them.
#[tokio::test]
async fn streams_are_kept_alive_while_they_wait_for_longer() {
    let elsewhere = Elsewhere::slow().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let server = folder.serve();
    let paused = server.paused("ops").await;
    let url = format!("{}{BASE}/resume/{}/sse", server.program.base, text(&paused["request_id"]));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = client.post(url).header("content-type", "application/json").body(r#"{"action": "approve"}"#);
    let mut stream = sent.send().await.unwrap();
    let mut heard = String::new();
    while !heard.lines().any(|line| line.starts_with(':')) {
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(60), stream.chunk()).await;
        heard.push_str(std::str::from_utf8(&chunk.unwrap().unwrap().unwrap()).unwrap());
    }
    assert!(!heard.contains("data:"), "nothing has happened yet: {heard:?}");
    elsewhere.answer();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        heard.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(heard.contains("event: final-response"), "{heard}");
}
