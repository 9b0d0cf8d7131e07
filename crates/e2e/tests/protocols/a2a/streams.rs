//! Streams: what they tell, when they close, and that a reader who comes back, also after `kill -9`, gets exactly the
//! rest.

use std::time::Duration;

use serde_json::{Value, json};

use crate::a2a::server::{Server, asked, decides, demo, replies, says};

/// One event of a stream: its id, its name and what it says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: Value,
}

/// A stream that is being read.
pub(crate) struct Reader {
    response: reqwest::Response,
    rest: String,
}

impl Reader {
    pub(crate) async fn open(
        server: &Server,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Reader {
        let url = format!("{}{path}", server.program.base);
        let mut request = server.client.request(method.parse().unwrap(), url);
        // Without it a request that has no body is one of an older client.
        if !headers.iter().any(|(name, _)| *name == "a2a-version") {
            request = request.header("a2a-version", "1.0");
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let media = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(media.starts_with("text/event-stream"), "{media}");
        Reader { response, rest: String::new() }
    }

    /// The next event; none when the stream closes.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) =
                self.rest.split_once("\n\n").map(|(a, b)| (a.to_owned(), b.to_owned()))
            {
                self.rest = rest;
                let field = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                        .map(str::to_owned)
                };
                let Some(data) = field("data") else { continue };
                let data = serde_json::from_str(&data).unwrap();
                return Some(Event { id: field("id"), name: field("event"), data });
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.response.chunk()).await.unwrap();
            let chunk = chunk.unwrap_or_default()?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// What an event tells, in short.
pub(crate) fn told(event: &Event) -> String {
    let state =
        |status: &Value| status["state"].as_str().unwrap().trim_start_matches("TASK_STATE_").to_owned();
    let data = event.data.get("result").unwrap_or(&event.data);
    if let Some(task) = data.get("task") {
        format!("task {}", state(&task["status"]))
    } else if let Some(update) = data.get("statusUpdate") {
        state(&update["status"])
    } else if data.get("artifactUpdate").is_some() {
        "artifact".to_owned()
    } else {
        data.to_string()
    }
}

/// What a stream tells to its end, but for the tokens that the model is streaming: their number differs each time, and has no id.
pub(crate) async fn kept(reader: Reader) -> Vec<Event> {
    let mut events = reader.rest().await;
    events.retain(|event| event.id.is_some());
    events
}

fn all_told(events: &[Event]) -> Vec<String> {
    events.iter().map(told).collect()
}

/// S3-9, S3-25, trap 5: a stream that begins a task closes where a person is needed; one that decides goes to the end.
#[tokio::test]
async fn a_stream_tells_every_change_and_closes() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let body = json!({"message": says("go")});
    let stream = Reader::open(&server, "POST", "/v1/agents/ops/message:stream", &[], Some(&body)).await;
    let events = stream.rest().await;
    assert_eq!(all_told(&events), ["task WORKING", "INPUT_REQUIRED"]);
    let update = &events[1].data["statusUpdate"];
    let task = json!({"id": update["taskId"], "contextId": update["contextId"], "status": update["status"]});
    assert_eq!(asked(&task)[0]["interaction_type"], "tool_approval");

    let message = decides(&task, json!({"decision": "approve"}));
    let body = json!({"jsonrpc": "2.0", "id": "s", "method": "SendStreamingMessage", "params": {"message": message}});
    let stream = Reader::open(&server, "POST", "/v1/agents/ops", &[], Some(&body)).await;
    let events = stream.rest().await;
    assert!(events.iter().all(|event| event.data["id"] == "s" && event.data["jsonrpc"] == "2.0"));
    let told = all_told(&events);
    assert!(told[0].starts_with("task "), "{told:?}");
    let last = &events.last().unwrap().data["result"];
    assert!(told.last().unwrap().ends_with("COMPLETED"), "{told:?}");
    assert!(last.get("task").is_some() || told.contains(&"artifact".to_owned()), "{told:?}");
}

/// Trap 5, S3-25: a subscription, by GET and by POST, stays open across questions and ends with the task.
#[tokio::test]
async fn a_subscription_goes_on_to_the_end() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let task = server.send("travel", &says("Book it")).await;
    let path = format!("/v1/agents/travel/tasks/{}:subscribe", task["id"].as_str().unwrap());
    let mut readers = Vec::new();
    for method in ["GET", "POST"] {
        let mut reader = Reader::open(&server, method, &path, &[], None).await;
        assert_eq!(told(&reader.next().await.unwrap()), "task INPUT_REQUIRED");
        readers.push(reader);
    }
    server.send("travel", &replies(&task, json!([{"text": "08:12, direct, 89 EUR"}]))).await;
    server.send("travel", &replies(&task, json!([{"text": "nothing"}]))).await;
    let expected = ["WORKING", "INPUT_REQUIRED", "WORKING", "artifact", "COMPLETED"];
    let mut heard = Vec::new();
    for reader in readers {
        let events = reader.rest().await;
        assert_eq!(all_told(&events), expected);
        heard.push(events);
    }
    assert_eq!(heard[0], heard[1], "every stream tells the same");
}

/// A reader that comes back with the id of any event gets exactly what followed it: on a server that was killed and
/// started again, while the task goes on and after its end.
#[tokio::test]
async fn whoever_comes_back_gets_exactly_the_rest() {
    let data = tempfile::tempdir().unwrap();
    let mut server = demo(data.path());
    let task = server.send("travel", &says("Book it")).await;
    let path = format!("/v1/agents/travel/tasks/{}:subscribe", task["id"].as_str().unwrap());
    let mut events = Vec::new();
    let mut reader = Reader::open(&server, "GET", &path, &[], None).await;
    events.push(reader.next().await.unwrap());
    for answer in ["08:12, direct, 89 EUR", "nothing"] {
        server.send("travel", &replies(&task, json!([{"text": answer}]))).await;
        events.push(reader.next().await.unwrap());
        drop(reader);
        drop(server);
        server = demo(data.path());
        let last = events.last().unwrap().id.clone().unwrap();
        reader = Reader::open(&server, "POST", &path, &[("last-event-id", &last)], None).await;
        let first = reader.next().await.unwrap();
        assert_eq!(first.id.as_deref(), Some(last.as_str()), "the task as it was there");
        assert!(told(&first).starts_with("task "));
        events.push(reader.next().await.unwrap());
    }
    let mut rest = reader.rest().await;
    events.append(&mut rest);
    let expected = ["task INPUT_REQUIRED", "WORKING", "INPUT_REQUIRED", "WORKING", "artifact", "COMPLETED"];
    assert_eq!(all_told(&events), expected);

    for (at, event) in events.iter().enumerate() {
        let last = event.id.clone().unwrap();
        if at + 1 == events.len() {
            let over = server.ask("GET", &path, &[("last-event-id", &last)], b"").await;
            assert_eq!((over.status, over.reason()), (400, "UNSUPPORTED_OPERATION"), "nothing is missing");
            continue;
        }
        let again = Reader::open(&server, "GET", &path, &[("last-event-id", &last)], None).await.rest().await;
        assert_eq!(again[1..], events[at + 1..], "after {last}");
    }
    let over = server.get(&path).await;
    assert_eq!((over.status, over.reason()), (400, "UNSUPPORTED_OPERATION"));
    let wrong = server.ask("GET", &path, &[("last-event-id", "x")], b"").await;
    assert_eq!((wrong.status, wrong.reason()), (400, "INVALID_PARAMS"));
}

/// What decides nothing says so in the stream, and the stream closes.
#[tokio::test]
async fn a_stream_says_when_nothing_was_decided() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let task = server.send("ops", &says("go")).await;
    let body = json!({"message": replies(&task, json!([{"text": "hm"}]))});
    let events =
        Reader::open(&server, "POST", "/v1/agents/ops/message:stream", &[], Some(&body)).await.rest().await;
    assert_eq!(all_told(&events), ["task INPUT_REQUIRED"]);
    let parts = events[0].data["task"]["status"]["message"]["parts"].as_array().unwrap();
    assert!(parts.last().unwrap()["text"].as_str().unwrap().starts_with("Nothing was decided"));
}
