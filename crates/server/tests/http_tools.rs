//! Tools that call other servers: which addresses they call (T11), what they send, and what they make of the answer.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod tooling;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::message::ToolResult;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::outbound::guard::{BlockReason, Guard, UnnamedHosts, is_public};
use standfast_engine::outbound::http::HttpLimits;
use standfast_engine::tool::{HoldReason, Judgement, Outcome, Tool};
use standfast_tools::external::{CallbackSecret, External, ExternalOptions, USUAL_TIMEOUT};
use standfast_tools::http_request::{ADDRESS_RULE, HttpRequest, HttpRequestOptions};

use standfast_testkit::other_server::{OtherServer, answer};
use tooling::invocation;

fn naming(hosts: &[String]) -> Guard {
    Guard { allowed_hosts: hosts.iter().cloned().collect(), others: UnnamedHosts::Public }
}

fn requests_to(port: u16) -> HttpRequest {
    let guard = naming(&[format!("127.0.0.1:{port}")]);
    let limits = HttpLimits { answer_bytes: 100, ..HttpLimits::default() };
    HttpRequest::new(HttpRequestOptions { guard, limits })
}

async fn result(tool: &impl Tool, arguments: Value) -> Value {
    match tool.run(invocation(&arguments)).await {
        Outcome::Done(ToolResult::Ok(Body::Json(json))) => serde_json::from_str(json.text()).unwrap(),
        other @ (Outcome::Done(_) | Outcome::Pending(_) | Outcome::Unknown(_)) => panic!("{other:?}"),
    }
}

async fn failure(tool: &impl Tool, arguments: Value) -> String {
    match tool.run(invocation(&arguments)).await {
        Outcome::Done(ToolResult::Failed(Body::Text(why))) => why,
        other @ (Outcome::Done(_) | Outcome::Pending(_) | Outcome::Unknown(_)) => panic!("{other:?}"),
    }
}

/// T11: at least 60 addresses that are this machine, a private network, or no address at all, in every spelling.
#[tokio::test]
async fn addresses_that_are_not_public_are_not_called() {
    let urls = [
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.255.255.254/",
        "http://0.0.0.0/",
        "http://0/",
        "http://0.1.2.3/",
        "http://[::1]/",
        "http://[::]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::169.254.169.254]/",
        "http://[64:ff9b:1::1]/",
        "http://10.0.0.1/",
        "http://10.255.255.255/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.0.1/",
        "http://192.168.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://169.254.0.1/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fd00:ec2::254]/",
        "http://100.64.0.1/",
        "http://100.127.255.255/",
        "http://192.0.0.1/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://198.19.255.255/",
        "http://198.51.100.7/",
        "http://203.0.113.9/",
        "http://224.0.0.1/",
        "http://239.255.255.255/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://[fe80::1]/",
        "http://[febf::1]/",
        "http://[fec0::1]/",
        "http://[fc00::1]/",
        "http://[fdff::1]/",
        "http://[ff02::1]/",
        "http://[2001:db8::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001::1]/",
        "http://[3fff::1]/",
        "http://[100::1]/",
        "http://192.88.99.1/",
        "http://localhost/",
        "http://LOCALHOST/",
        "http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/",
        "http://user@example.com/",
        "http://example.com:pass@127.0.0.1/",
        "http://127.0.0.1#@example.com/",
        "http://127.0.0.1?@example.com/",
        "http:/\\127.0.0.1/",
        "http:127.0.0.1/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://127.0.0.1/",
        "data:text/plain,x",
        "javascript:1",
        "//127.0.0.1/",
        "http://",
        "http:///",
        "http://[::1",
        "not a url",
        "http://exa mple.com/",
        "http://127.0.0.1\n.example.com/",
        "",
    ];
    assert!(urls.len() >= 60, "{}", urls.len());
    let guard = Guard::default();
    for url in urls {
        let checked = guard.check(url).await;
        let why = checked.err().unwrap_or_else(|| panic!("{url} would be called"));
        assert!(!matches!(why, BlockReason::NoAddress { .. }), "{url} was looked up and not refused: {why}");
    }
    println!("{} addresses, none called", urls.len());
}

#[tokio::test]
async fn public_addresses_and_named_hosts_are_called() {
    for address in ["93.184.216.34", "1.1.1.1", "2606:2800:220:1::1", "172.32.0.1", "100.128.0.1", "11.0.0.1"]
    {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
    assert!(Guard::default().check("https://93.184.216.34/").await.is_ok());
    let guard = naming(&["127.0.0.1:81".into(), "localhost".into()]);
    assert!(guard.check("http://127.0.0.1:81/x").await.is_ok());
    assert!(matches!(guard.check("http://127.0.0.1/x").await, Err(BlockReason::NotPublic { .. })));
    assert!(guard.check("http://localhost:5/x").await.is_ok());
    let only = Guard { allowed_hosts: BTreeSet::from(["localhost".into()]), others: UnnamedHosts::Never };
    let refused = only.check("https://93.184.216.34/").await.unwrap_err();
    assert_eq!(refused, BlockReason::NotNamed("93.184.216.34".into()));
}

/// What is never called is refused before a person is asked.
#[test]
fn bad_requests_are_refused_before_anybody_is_asked() {
    let tool = HttpRequest::new(HttpRequestOptions::default());
    let bad = [
        json!({"url": "http://127.0.0.1/"}),
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "https://example.com/", "method": "TRACE"}),
        json!({"url": "https://example.com/", "proxy": "x"}),
        json!({}),
    ];
    for arguments in bad {
        let judged = tool.judge(&arguments.to_string());
        assert!(
            matches!(judged, Judgement::Forbid(HoldReason { rule: ADDRESS_RULE, .. })),
            "{arguments}: {judged:?}"
        );
    }
    assert_eq!(tool.judge(r#"{"url": "https://example.com/"}"#), Judgement::Allow);
}

/// The request carries the token of this start; an answer is a result whatever its status; redirects are not followed.
#[tokio::test]
async fn a_request_is_sent_once_and_its_answer_is_bounded() {
    let moved =
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_owned();
    let answers = vec![answer("404 Not Found", "{\"no\": 1}"), moved, answer("200 OK", &"x".repeat(1_000))];
    let mut server = OtherServer::answering(answers).await;
    let (tool, url) = (requests_to(server.port), format!("http://127.0.0.1:{}/a?b=c", server.port));
    let arguments = json!({"method": "POST", "url": url, "headers": {"X-One": "1"}, "body": "hello"});
    let first = result(&tool, arguments.clone()).await;
    assert_eq!(first, json!({"status": 404, "content_type": "application/json", "body": "{\"no\": 1}"}));
    let sent = server.request().await;
    assert!(sent.starts_with("POST /a?b=c HTTP/1.1\r\n") && sent.ends_with("\r\n\r\nhello"), "{sent}");
    let key = format!("idempotency-key: {}\r\n", invocation(&arguments).token());
    assert!(sent.contains(&key) && sent.contains("x-one: 1\r\n"), "{sent}");
    let second = result(&tool, json!({ "url": url })).await;
    assert_eq!(second, json!({"status": 302, "location": "http://169.254.169.254/", "body": ""}));
    let third = result(&tool, json!({ "url": url })).await;
    assert_eq!((&third["truncated"], third["body"].as_str().unwrap().len()), (&json!(true), 100));
    let header = json!({"url": url, "headers": {"Host": "example.com"}});
    assert!(failure(&tool, header).await.contains("it is set by this server"));
}

/// C35: what was never sent has failed; what was sent and not answered is unknown, unless repeating it changes nothing.
#[tokio::test]
async fn a_broken_connection_is_an_unknown_outcome() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_owned();
    let server = OtherServer::answering(vec![String::new(), half, String::new()]).await;
    let (tool, url) = (requests_to(server.port), format!("http://127.0.0.1:{}/", server.port));
    for _ in 0..2 {
        let outcome = tool.run(invocation(&json!({"method": "POST", "url": url, "body": "x"}))).await;
        assert!(matches!(&outcome, Outcome::Unknown(why) if why.contains("was sent")), "{outcome:?}");
    }
    assert!(failure(&tool, json!({ "url": url })).await.contains("the response is incomplete"));
    // The port is closed by now: nobody answers any more.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{gone}/");
    let why = failure(&requests_to(gone), json!({"method": "POST", "url": url, "body": "x"})).await;
    assert!(why.starts_with("nothing was sent: no connection"), "{why}");
}

fn job(port: u16) -> External {
    let options = ExternalOptions {
        url: format!("http://127.0.0.1:{port}/jobs"),
        guard: naming(&["127.0.0.1".into()]),
        limits: HttpLimits::default(),
        timeout: USUAL_TIMEOUT,
        public_url: Some("https://agents.example.com/".into()),
        secrets: vec![CallbackSecret::Derived([1; 32])],
        webhook_url: None,
        result_schema: None,
    };
    External::new(options, Clock::standing_at(Timestamp(1_000)))
}

/// S2-1, S2-8: the start request has the id that the call waits under, and everything that the job needs to report.
#[tokio::test]
async fn a_job_is_started_with_the_id_that_it_is_waited_for_under() {
    let started = r#"{"externalRef": "deploy-123", "estimatedDuration": 5000, "output": "building", "webhookURL": "u"}"#;
    let mut server = OtherServer::answering(vec![answer("202 Accepted", started)]).await;
    let arguments = json!({"branch": "main"});
    let started = invocation(&arguments);
    let Outcome::Pending(pending) = job(server.port).run(started.clone()).await else {
        panic!("it does not wait")
    };
    assert_eq!(pending.kind, SuspendFor::External);
    assert_eq!(pending.secret, Some(started.pending.key.secret));
    assert_eq!(pending.timeout, Some(USUAL_TIMEOUT));
    assert_eq!(pending.ask.external_ref.as_deref(), Some("deploy-123"));
    assert_eq!(pending.ask.interim, Some(Body::text("building")));
    assert_eq!(pending.ask.expected_at, Some(Timestamp(6_000)));
    let sent = server.request().await;
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let id = started.pending.to_string();
    assert!(head.starts_with("POST /jobs ") && head.contains(&format!("idempotency-key: {id}")), "{head}");
    let mut body: Value = serde_json::from_str(body).unwrap();
    let secret = body["callbackSecret"].take();
    let expected = json!({
        "tool": "the_tool", "input": arguments, "pendingID": id, "sessionID": "ses_1",
        "messageID": started.message.to_string(), "callID": "toolu_1",
        "callbackURL": "https://agents.example.com/async-tool/webhook", "callbackID": id, "callbackSecret": null,
    });
    assert_eq!(body, expected);
    assert_eq!(secret.as_str().unwrap(), CallbackSecret::Derived([1; 32]).of(&id));
    assert_eq!(secret.as_str().unwrap().len(), 64);
    assert_ne!(secret.as_str().unwrap(), CallbackSecret::Derived([2; 32]).of(&id));
    assert_eq!(format!("{:?}", CallbackSecret::Shared("s3cret".into())), "CallbackSecret(..)");
}

#[tokio::test]
async fn the_answer_to_a_start_request_decides_what_the_call_does() {
    let answers = vec![
        answer("200 OK", r#"{"async": false, "result": {"output": "done"}}"#),
        answer("200 OK", ""),
        answer("200 OK", r#"{"estimatedDuration": 172800000}"#),
        answer("422 Unprocessable", "no such branch"),
        answer("200 OK", "<html>"),
        String::new(),
    ];
    let server = OtherServer::answering(answers).await;
    let job = job(server.port);
    assert_eq!(result(&job, json!({})).await, json!({"output": "done"}));
    let Outcome::Pending(empty) = job.run(invocation(&json!({}))).await else { panic!("it does not wait") };
    assert_eq!(empty.ask.external_ref, None);
    let Outcome::Pending(long) = job.run(invocation(&json!({}))).await else { panic!("it does not wait") };
    assert_eq!(long.timeout, Some(Millis(172_800_000)));
    let why = failure(&job, json!({})).await;
    assert_eq!(why, "the job was not started: the answer was 422: no such branch");
    for _ in 0..2 {
        let outcome = job.run(invocation(&json!({}))).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    }
}
