//! Whatever strangers send, at every parser that meets it: a server that is asked a few thousand damaged requests answers each or
//! hangs up, never with an error of its own, and is as well afterwards as before.
//!
//! Each request begins as a good one: keys, cookies, signatures, JSON, A2A, MCP, ids of events, cursors, links, forms, gRPC. Then
//! bytes of it are flipped, cut, repeated and mixed with others (`standfast_testkit::damage`). The same requests in every run;
//! `STANDFAST_FUZZ_CASES` asks more of them, `STANDFAST_FUZZ_SEED` others. T31, T37: most parsers themselves are shown many more, in
//! the files `strangers.rs` of the surfaces and beside page tokens and signatures of chats. No engine looks which code a case reaches.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::time::Duration;

use serde_json::json;
use standfast_testkit::damage::{Draw, TOKENS, cases};
use standfast_testkit::{Process, standfast, start, text};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

const ASKS: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

const CONFIG: &str = "tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: asks, session_store: main-db, tools: [execute_command], task: {}, inboxes: [support]}}
people: {ann: {}}
server:
  public_url: http://127.0.0.1:9
  auth: {api_keys: true}
  links: {key: a key of links that is long enough to be one, sign_in: none, issue_by_admin: true}
  webhooks: {key: a key of webhooks that is long enough to be one}
";

/// Requests over HTTP that every run sends, and how many over gRPC.
const CASES: usize = 2400;
const GRPC_CASES: usize = 300;

/// A good request; what is damaged is one of its parts.
struct Good {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Good {
    fn damaged(&self, draw: &mut Draw, other: &Good) -> Vec<u8> {
        let (mut path, mut body) = (self.path.clone().into_bytes(), self.body.clone().into_bytes());
        let mut headers: Vec<(&str, Vec<u8>)> =
            self.headers.iter().map(|(name, value)| (*name, value.clone().into_bytes())).collect();
        match draw.below(3) {
            0 if !body.is_empty() => body = draw.damage(&body, other.body.as_bytes()),
            1 if !headers.is_empty() => {
                let at = draw.below(headers.len());
                let from = other
                    .headers
                    .get(draw.below(other.headers.len()))
                    .map_or("", |(_, value)| value.as_str());
                headers[at].1 = draw.damage(&headers[at].1, from.as_bytes());
            }
            _ => path = draw.damage(&path, other.path.as_bytes()),
        }
        // A line break ends a header: what follows would be another request.
        let line =
            |bytes: &[u8]| bytes.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect::<Vec<u8>>();
        let mut request = [
            self.method.as_bytes(),
            b" ",
            &line(&path),
            b" HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n",
        ]
        .concat();
        for (name, value) in headers {
            request.extend([name.as_bytes(), b": ", &line(&value), b"\r\n"].concat());
        }
        request.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
        request.extend(body);
        request
    }
}

struct Site {
    folder: TempDir,
    server: Process,
    key: String,
}

impl Site {
    fn new() -> Site {
        let folder = standfast_testkit::folder(&[("asks", ASKS)], CONFIG);
        let log = File::create(folder.path().join("log")).unwrap();
        let server = start(standfast_testkit::serve_command(folder.path()).stderr(log));
        let mut keys = standfast();
        keys.args(["keys", "create", "--user", "ann", "--scope", "admin", "--config"]);
        let made = keys.arg(folder.path().join("standfast.yaml")).output().unwrap();
        let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        Site { folder, server, key }
    }

    /// A good request to every parser that strangers reach.
    async fn good(&self) -> Vec<Good> {
        let client = standfast_testkit::http::client();
        let post = |path: String, body: serde_json::Value| {
            let request =
                client.post(format!("{}{path}", self.server.base)).bearer_auth(&self.key).json(&body);
            async move {
                let response = request.send().await.unwrap();
                let status = response.status();
                let body = response.text().await.unwrap();
                assert!(status.is_success(), "{path}: {status} {body}");
                serde_json::from_str::<serde_json::Value>(&body).unwrap()
            }
        };
        let run = post("/api/v1/agents/ops/runs".into(), json!({"input": "go", "wait": "settled"})).await;
        let (run, hold) = (text(&run["id"]).to_owned(), text(&run["holds"][0]["id"]).to_owned());
        let link = post(format!("/api/v1/holds/{hold}/link"), json!({"for": "ann"})).await;
        let token = text(&link["url"]).rsplit('/').next().unwrap().to_owned();
        let bearer = ("authorization", format!("Bearer {}", self.key));
        let is_json = ("content-type", "application/json".to_owned());
        let is_form = ("content-type", "application/x-www-form-urlencoded".to_owned());
        let good = |method, path: &str, headers: &[&(&'static str, String)], body: String| {
            let headers = headers.iter().map(|header| (*header).clone()).collect();
            Good { method, path: path.to_owned(), headers, body }
        };
        let message =
            json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}});
        let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message});
        let tool = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": {"question": "?"}}});
        let cookie = ("cookie", "standfast_csrf=0000; standfast_session=k.abcd1234.0c1g60r30c1g60r30c1g60r30c1g60r30c1g60r30c1g60r30c1g".to_owned());
        let text_events = ("accept", "text/event-stream".to_owned());
        let version = ("a2a-version", "1.0".to_owned());
        let cursor = "eyJhZnRlciI6InJ1bl8wNmQzeXJqbTAyMDAzMHFhNnFrdmcwcjQwbSJ9";
        vec![
            good(
                "POST",
                "/api/v1/agents/ops/runs",
                &[&bearer, &is_json, &("idempotency-key", "k-1".into())],
                json!({"input": "go", "session": "s", "metadata": {"a": [1, 2.5, "x"]}}).to_string(),
            ),
            good(
                "POST",
                &format!("/api/v1/holds/{hold}/resolve"),
                &[&bearer, &is_json],
                json!({"resolution": "approve", "arguments": {"command": "echo x"}, "revision": 7})
                    .to_string(),
            ),
            good(
                "GET",
                "/api/v1/runs?limit=2&status=held",
                &[&("authorization", format!("Basic {}", "YW5uOnNmX3g="))],
                String::new(),
            ),
            good("GET", &format!("/api/v1/runs?limit=1&cursor={cursor}"), &[&bearer], String::new()),
            good("GET", &format!("/api/v1/holds?cursor={cursor}&agent=ops"), &[&bearer], String::new()),
            good(
                "GET",
                &format!("/api/v1/runs/{run}/events?after=1"),
                &[&bearer, &text_events, &("last-event-id", "3".into())],
                String::new(),
            ),
            good(
                "GET",
                &format!("/runs/{run}"),
                &[
                    &cookie,
                    &("x-forwarded-for", "10.0.0.1, [::1]:80".into()),
                    &("forwarded", "for=\"[2001:db8::1]:80\";proto=https".into()),
                ],
                String::new(),
            ),
            good(
                "POST",
                &format!("/approve/{hold}"),
                &[&cookie, &bearer, &is_form],
                "csrf=0000&decision=more:x&digest=0c1g&revision=0&once=1&from=agent%3Dops".into(),
            ),
            good("GET", &format!("/link/{token}"), &[], String::new()),
            good(
                "POST",
                &format!("/link/{token}"),
                &[&is_form],
                "nonce=abc&form=AAAA&decision=approve".into(),
            ),
            good("POST", "/v1/agents/ops", &[&bearer, &is_json, &version], rpc.to_string()),
            good("POST", "/v1/agents/ops/message:send", &[&bearer, &is_json, &version], message.to_string()),
            good(
                "GET",
                &format!("/v1/agents/ops/tasks/{run}?historyLength=3"),
                &[&bearer, &version],
                String::new(),
            ),
            good("GET", "/v1/agents/ops/tasks?pageSize=2&pageToken=abc", &[&bearer, &version], String::new()),
            good(
                "POST",
                "/mcp",
                &[
                    &bearer,
                    &is_json,
                    &("accept", "application/json, text/event-stream".into()),
                    &("mcp-protocol-version", "2025-11-25".into()),
                ],
                tool.to_string(),
            ),
            good(
                "POST",
                "/async-tool/webhook",
                &[
                    &is_json,
                    &("webhook-id", "msg_1".into()),
                    &("webhook-timestamp", "1762000000".into()),
                    &("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".into()),
                ],
                json!({"call": hold, "result": {"a": 1}}).to_string(),
            ),
            good(
                "POST",
                "/async-tool/result",
                &[&is_json, &("x-webhook-signature", "sha256=00".into())],
                json!({"toolCallId": hold, "result": "x"}).to_string(),
            ),
            good(
                "POST",
                "/api/v1/sign-ins",
                &[&is_json],
                json!({"id_token": "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.AAAA", "nonce": "abc"})
                    .to_string(),
            ),
            good(
                "POST",
                "/sign-in/backchannel-logout",
                &[&is_form],
                "logout_token=eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.AAAA".into(),
            ),
            good("GET", "/sign-in/callback?state=abc&code=def&iss=x", &[&cookie], String::new()),
            good(
                "POST",
                "/tealagents/v1alpha1/ops",
                &[&bearer, &is_json],
                json!({"session_id": "s", "items": [{"content_type": "text", "content": "hi"}]}).to_string(),
            ),
            good(
                "POST",
                "/tealagents/v1alpha1/resume/abc",
                &[&bearer, &is_json],
                json!({"action": "approve"}).to_string(),
            ),
            good(
                "POST",
                "/api/inboxes/support/tasks",
                &[&bearer, &is_json],
                json!({"type": "ticket", "payload": {"n": 1}, "priority": 2}).to_string(),
            ),
            good(
                "POST",
                "/api/v1/subscriptions",
                &[&bearer, &is_json],
                json!({"url": "https://example.com/hook", "agent": "ops"}).to_string(),
            ),
            good(
                "GET",
                "/api/v1/agents",
                &[
                    &bearer,
                    &("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
                ],
                String::new(),
            ),
            good(
                "GET",
                "/api/v1/holds",
                &[&(
                    "authorization",
                    "Bearer sfs_u.ZGVmYXVsdAphbm4.0c1g60r30c1g60r30c1g60r30c1g60r30c1g60r30c1g60r30c1g"
                        .into(),
                )],
                String::new(),
            ),
        ]
    }

    /// What comes back at first; nothing when the server hangs up, or has to wait for more.
    async fn send(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        // It may hang up before it has read everything.
        let _ = stream.write_all(request).await;
        let mut answer = vec![0; 2048];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
        answer.truncate(read.map_or(0, |read| read.unwrap_or(0)));
        answer
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join("log")).unwrap()).into_owned()
    }

    async fn is_well(&self) {
        let ready = reqwest::get(format!("{}/readyz", self.server.base)).await.unwrap();
        assert_eq!(ready.status().as_u16(), 200, "{}", self.log());
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }
}

/// T31, T37: no damaged request is an error of the server, and none takes it down.
#[tokio::test]
async fn t31_damaged_requests_are_refused_and_nothing_breaks() {
    let site = Site::new();
    let good = site.good().await;
    let (mut draw, cases) = (Draw::new(0x9e37_79b9_7f4a_7c15), cases(CASES));
    let (mut answered, mut refused) = (0, 0);
    for case in 0..cases {
        let (one, other) = (&good[case % good.len()], &good[draw.below(good.len())]);
        let request = one.damaged(&mut draw, other);
        let answer = site.send(&request).await;
        let head = String::from_utf8_lossy(&answer).into_owned();
        let status: Option<u16> = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let is_error = status.is_some_and(|status| status >= 500);
        assert!(!is_error, "case {case}: {}\n{head}\n{}", String::from_utf8_lossy(&request), site.log());
        answered += usize::from(status.is_some());
        refused += usize::from(status.is_some_and(|status| (400..500).contains(&status)));
    }
    println!("{answered} of {cases} answered, {refused} of them refused");
    assert!(answered * 10 > cases * 9 && refused * 4 > cases, "{answered} answered, {refused} refused");
    site.is_well().await;
}

/// Bytes as they are, where a message should be.
#[derive(Debug, Default, Clone)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(into, &item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let all = prost::bytes::Buf::remaining(from);
        Ok(Some(prost::bytes::Buf::copy_to_bytes(from, all).to_vec()))
    }
}

/// T31: the same over gRPC, where messages are bytes of another kind.
#[tokio::test]
async fn t31_damaged_messages_over_grpc_are_refused_and_nothing_breaks() {
    use a2a_pb::proto::{Message, Part, SendMessageRequest, part};
    use prost::Message as _;
    let site = Site::new();
    let channel =
        tonic::transport::Endpoint::from_shared(site.server.base.clone()).unwrap().connect().await.unwrap();
    let part = Part { content: Some(part::Content::Text("hello".into())), ..Part::default() };
    let message = Message { message_id: "m-1".into(), role: 1, parts: vec![part], ..Message::default() };
    let good =
        SendMessageRequest { message: Some(message), tenant: "ops".into(), ..SendMessageRequest::default() };
    let good = good.encode_to_vec();
    let (mut draw, cases) = (Draw::new(0x2545_f491_4f6c_dd1d), cases(GRPC_CASES));
    let mut refused = 0;
    for case in 0..cases {
        let method = ["SendMessage", "GetTask", "ListTasks", "CancelTask"][case % 4];
        let bytes = draw.damage(&good, TOKENS[case % TOKENS.len()]);
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let mut request = Request::new(bytes.clone());
        request.metadata_mut().insert("authorization", format!("Bearer {}", site.key).parse().unwrap());
        request.set_timeout(Duration::from_secs(10));
        let path = format!("/lf.a2a.v1.A2AService/{method}").parse().unwrap();
        if let Err(status) = client.unary(request, path, Bytes).await {
            // What is no message of protocol buffers is an internal error in gRPC's own words, said by its library.
            let is_known = !matches!(status.code(), Code::Unknown | Code::DataLoss | Code::Unavailable);
            assert!(is_known, "case {case}: {status:?} {bytes:?}\n{}", site.log());
            refused += 1;
        }
    }
    assert!(refused * 2 > cases, "{refused} of {cases}");
    site.is_well().await;
}
