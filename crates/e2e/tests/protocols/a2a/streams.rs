//! Streams: what they tell, when they close, and that a reader who comes back, also after `kill -9`, gets exactly the
//! rest.

use std::time::Duration;

use serde_json::{Value, json};

use crate::a2a::server::{Server, asked, configured, decides, demo, replies, says, state};

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

/// How a hold ends without its call going on.
#[derive(Debug, Clone, Copy)]
enum HoldEnd {
    Denied(&'static str),
    Expired,
    TaskCanceled,
    Superseded,
}

impl HoldEnd {
    async fn happens(self, server: &Server, task: &str, events: &[Event]) {
        let question = &events.last().unwrap().data["statusUpdate"];
        let (path, body) = match self {
            HoldEnd::Denied(reason) => {
                let hold = asked(question)[0]["hold_id"].as_str().unwrap().to_owned();
                let denial =
                    json!({"resolution": "deny", "reason": Some(reason).filter(|reason| !reason.is_empty())});
                (format!("/api/v1/holds/{hold}/resolve"), denial)
            }
            HoldEnd::Expired => return,
            HoldEnd::TaskCanceled => (format!("/v1/agents/kept/tasks/{task}:cancel"), json!({})),
            HoldEnd::Superseded => {
                let message = json!({"input": {"parts": [{"text": "Never mind"}]}, "on_hold": "supersede"});
                (format!("/api/v1/runs/{task}/messages"), message)
            }
        };
        let answer = server.post(&path, &body).await;
        assert_eq!(answer.status, 200, "{self:?}: {answer:?}");
    }
}

/// S0-30, S3-27, C7: what was denied, expired, was withdrawn or superseded is said as what it is, also where the task ends with it:
/// on the streams of 1.0, of the dialect and of 0.3, and in the history; never as the result.
#[tokio::test]
async fn how_a_hold_ended_is_always_told() {
    const DENIED: &str = "Denied: the call of write_file was not executed";
    const EXPIRED: &str = "Expired: nobody decided about the call of write_file in time";
    const WITHDRAWN: &str = "Withdrawn: the call of write_file is no longer waited for";
    const SUPERSEDED: &str = "Superseded: a newer message took the place of the call of write_file";
    let folder = tempfile::tempdir().unwrap();
    let script =
        "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: x}}]\n- text: All done.\n";
    std::fs::write(folder.path().join("s.yaml"), script).unwrap();
    let agent = |name: &str, task: &str| {
        format!("  {name}: {{llm: s, tools: [write_file], a2a: {{v03_card: true}}, task: {task}}}\n")
    };
    let agents = [
        agent("kept", "{}"),
        agent("strict", "{hitl: {on_deny: cancel}}"),
        agent("hasty-deny", "{input_timeout: 1, hitl: {on_timeout: deny}}"),
        agent("hasty-fail", "{input_timeout: 1, hitl: {on_timeout: fail}}"),
        agent("hasty-cancel", "{input_timeout: 1, hitl: {on_timeout: cancel}}"),
    ];
    let config = format!("llms: {{s: {{type: scripted, script: s.yaml}}}}\nagents:\n{}", agents.concat());
    let server = configured(folder.path(), &config);
    for (agent, end, comes_to, text) in [
        ("kept", HoldEnd::Denied("not now"), "COMPLETED", DENIED),
        ("strict", HoldEnd::Denied(""), "CANCELLED", DENIED),
        ("strict", HoldEnd::Denied("not now"), "CANCELLED", DENIED),
        ("hasty-deny", HoldEnd::Expired, "COMPLETED", EXPIRED),
        ("hasty-fail", HoldEnd::Expired, "FAILED", EXPIRED),
        ("hasty-cancel", HoldEnd::Expired, "CANCELLED", EXPIRED),
        ("kept", HoldEnd::TaskCanceled, "CANCELLED", WITHDRAWN),
        ("kept", HoldEnd::Superseded, "COMPLETED", SUPERSEDED),
    ] {
        let path = format!("/v1/agents/{agent}");
        let body = json!({"message": says("go")});
        let stream = Reader::open(&server, "POST", &format!("{path}/message:stream"), &[], Some(&body)).await;
        let events = stream.rest().await;
        let (task, cursor) =
            (events[0].data["task"]["id"].as_str().unwrap(), events[0].id.as_deref().unwrap());
        end.happens(&server, task, &events).await;
        for (path, version) in [
            (format!("{path}/tasks/{task}:subscribe"), "1.0"),
            (format!("{path}/tasks/{task}:subscribe"), ""),
            (format!("{path}/v1/tasks/{task}:subscribe"), ""),
        ] {
            let headers = [("a2a-version", version), ("last-event-id", cursor)];
            let events = Reader::open(&server, "GET", &path, &headers, None).await.rest().await;
            let said = |event: &&Event| event.data.to_string().contains(text);
            let telling: Vec<&Event> = events.iter().skip(1).filter(said).collect();
            assert_eq!(telling.len(), 1, "{agent}, {end:?}, version {version:?}: {events:#?}");
            assert!(telling[0].data.to_string().contains("TASK_STATE_"), "not as the result: {telling:?}");
            // The only member of the wire that says what a task came to.
            if comes_to != "COMPLETED" {
                assert_eq!(telling[0], events.last().unwrap(), "{agent}, {end:?}, version {version:?}");
            }
        }
        let task = server.until(agent, task, &format!("TASK_STATE_{comes_to}")).await;
        let history = task["history"].to_string();
        match end {
            HoldEnd::Denied(reason) => {
                assert!(history.contains(r#""decision":"deny""#) && history.contains(reason), "{history}");
            }
            HoldEnd::Expired | HoldEnd::TaskCanceled | HoldEnd::Superseded => {
                assert!(history.contains(text), "{agent}, {end:?}: {history}");
            }
        }
        assert!(!task["artifacts"].to_string().contains(text), "{}", state(&task));
    }
}
