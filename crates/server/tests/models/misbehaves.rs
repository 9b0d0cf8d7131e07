//! A provider that misbehaves in every way: each has an end that can be told from the others.
//!
//! What the loop makes of malformed arguments, unknown tools and endless loops is tested with whole runs in `binary.rs`.

use std::sync::Arc;

use standfast_core::time::Millis;
use standfast_engine::model::{Model, ModelFailure, Prompt};
use standfast_models::chain::Chain;
use standfast_models::provider::{Dialect, Provider};

use crate::{KEY, after, listener, prompt, provider, settings};
use standfast_testkit::provider::{Answer, Fake, Pieces};

const WORDS: &[u8] = include_bytes!("streams/words_openai_chat.sse");

fn chunk(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n")
}

fn finished(pieces: &[&str], reason: &str) -> String {
    let mut stream: String = pieces.iter().map(|delta| chunk(delta)).collect();
    stream.push_str(&format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
    ));
    stream
}

/// F26: every answer that is not a reply has a word of its own, says whether asking again can help, and never the key.
#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_its_own_end() {
    let error = |status, body| Answer::error(status, "", body);
    let echo = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY} for blue-secret"}}}}"#);
    let html =
        Answer { headers: "content-type: text/html\r\n".into(), ..Answer::stream("<html>Sign in</html>") };
    let json = Answer {
        headers: "content-type: application/json\r\n".into(),
        ..Answer::stream(r#"{"choices":[]}"#)
    };
    let in_stream = r#"data: {"error":{"message":"Overloaded","type":"server_error","code":503}}"#;
    // vLLM tells errors in a stream without a member `error`, as older and newer versions of it do.
    let vllm = |code: &str, kind: &str, said: &str| {
        let error =
            format!(r#"{{"object":"error","message":"{said}","type":"{kind}","param":null,"code":{code}}}"#);
        Answer::stream(format!("{}data: {error}\n\ndata: [DONE]\n\n", chunk(r#"{"content":"Once"}"#)))
    };
    let long = "This model's maximum context length is 10 tokens";
    let cases: Vec<(Answer, &str, bool)> = vec![
        (vllm("500", "InternalServerError", "CUDA out of memory"), "busy", true),
        (vllm("null", "InternalServerError", "the engine died"), "busy", true),
        (vllm("400", "BadRequestError", "unknown parameter"), "refused", false),
        (vllm("null", "BadRequestError", "unknown parameter"), "refused", false),
        (vllm("400", "BadRequestError", long), "too_long", false),
        (
            Answer::error(
                "429 Too Many Requests",
                "retry-after: 7\r\n",
                r#"{"error":{"message":"slow down"}}"#,
            ),
            "rate_limited",
            true,
        ),
        (Answer::error("429 Too Many Requests", "retry-after: 999999\r\n", "{}"), "rate_limited", false),
        (
            error("429 Too Many Requests", r#"{"error":{"code":"insufficient_quota"}}"#),
            "out_of_credit",
            false,
        ),
        (error("500 Internal Server Error", "oops"), "busy", true),
        (error("503 Service Unavailable", "<html>"), "busy", true),
        (error("529 Overloaded", r#"{"error":{"message":"Overloaded"}}"#), "busy", true),
        (error("401 Unauthorized", &echo), "bad_key", false),
        (error("403 Forbidden", "{}"), "forbidden", false),
        (
            error("404 Not Found", r#"{"error":{"message":"The model `x` does not exist"}}"#),
            "not_found",
            false,
        ),
        (error("400 Bad Request", r#"{"error":{"message":"temperature must be 1"}}"#), "refused", false),
        (error("400 Bad Request", r#"{"error":{"code":"context_length_exceeded"}}"#), "too_long", false),
        (
            Answer::error("302 Found", "location: https://elsewhere.example/login?token=x\r\n", ""),
            "redirects",
            false,
        ),
        (html, "not_a_stream", true),
        (json, "not_a_stream", true),
        (Answer::stream(format!("{in_stream}\n\n")), "busy", true),
        (Answer::stream("data: {\"choices\": nonsense}\n\n"), "garbled", true),
        (Answer::stream(""), "cut", true),
        (Answer::stream(chunk(r#"{"content":"Half a"}"#)), "cut", true),
        (Answer::stream(finished(&[], "length")), "out_of_tokens", false),
        (Answer::stream(finished(&[r#"{"content":"I"}"#], "content_filter")), "filtered", false),
        (Answer::stream(vec![b'x'; 9 * 1024 * 1024]), "too_large", false),
    ];
    for (answer, word, may_pass) in cases {
        let fake = Fake::answering(vec![answer.clone()]);
        let (live, _) = listener();
        let trouble = provider(Dialect::OpenaiChat, &fake.url).ask(&prompt(), &live).await.unwrap_err();
        assert_eq!((trouble.word(), trouble.may_pass()), (word, may_pass), "{}: {trouble}", answer.status);
        assert!(
            !trouble.to_string().contains(KEY) && !trouble.to_string().contains("blue-secret"),
            "{trouble}"
        );
        assert!(!trouble.to_string().contains("token=x"), "{trouble}");
        assert!(!trouble.advice().is_empty());
    }
}

/// F26: nobody there, no such name, no answer in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_not_there() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (live, _) = listener();
    let ask = async |provider: Provider| provider.ask(&prompt(), &live).await.unwrap_err().word();
    assert_eq!(ask(provider(Dialect::OpenaiChat, &format!("http://{closed}"))).await, "unreachable");
    assert_eq!(ask(provider(Dialect::OpenaiChat, "http://no-such-host.invalid")).await, "unknown_host");
    let fake = Fake::answering(vec![Answer::stream("").in_pieces(Pieces::Silence)]);
    let impatient =
        crate::ProviderSettings { timeout: Millis(200), ..settings(Dialect::OpenaiChat, &fake.url) };
    assert_eq!(ask(Provider::new(impatient).unwrap()).await, "slow");
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in plain.incoming() {
            let _ = std::io::Write::write_all(&mut stream.unwrap(), b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert_eq!(ask(provider(Dialect::OpenaiChat, &url)).await, "untrusted");
}

/// What is odd, the pieces of the stream, and the calls in it: id, tool, arguments.
type Accent<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str, &'a str)]);

/// F26: duplicate ids, late names, missing indexes, arguments that are no text: calls that can be told apart.
#[tokio::test(flavor = "multi_thread")]
async fn calls_with_an_accent() {
    let cases: &[Accent<'_>] = &[
        (
            "the same id twice, told apart by the index",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"execute_command","arguments":"{\"n\":1}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"execute_command","arguments":"{\"n\":2}"}}]}"#,
            ],
            &[("a", "execute_command", r#"{"n":1}"#), ("a", "execute_command", r#"{"n":2}"#)],
        ),
        (
            "a name that comes late",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"n\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"name":"execute_command","arguments":":1}"}}]}"#,
            ],
            &[("a", "execute_command", r#"{"n":1}"#)],
        ),
        (
            "a name that never comes",
            &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}"#],
            &[("a", "", "{}")],
        ),
        (
            "no index, ids tell them apart",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"read_file","arguments":"{\"n\""}}]}"#,
                r#"{"tool_calls":[{"id":"a","function":{"arguments":":1}"}},{"id":"b","function":{"name":"read_file","arguments":"{}"}}]}"#,
            ],
            &[("a", "read_file", r#"{"n":1}"#), ("b", "read_file", "{}")],
        ),
        (
            "no index and no id, names begin calls",
            &[
                r#"{"tool_calls":[{"function":{"name":"read_file","arguments":"{\"n\""}}]}"#,
                r#"{"tool_calls":[{"function":{"arguments":":1}"}}]}"#,
                r#"{"tool_calls":[{"function":{"name":"read_file","arguments":"{\"n\":2}"}}]}"#,
            ],
            &[("", "read_file", r#"{"n":1}"#), ("", "read_file", r#"{"n":2}"#)],
        ),
        (
            "every call at the same index",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"n\":1}"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"read_file","arguments":"{\"n\":2}"}}]}"#,
            ],
            &[("a", "read_file", r#"{"n":1}"#), ("b", "read_file", r#"{"n":2}"#)],
        ),
        (
            "name and id with every piece, arguments as an object, nothing at all",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"n\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_file","arguments":":1}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"read_file","arguments":{"n":2.0}}}]}"#,
                r#"{"tool_calls":[{"index":2,"id":"c","function":{"name":"read_file","arguments":null}}]}"#,
            ],
            &[("a", "read_file", r#"{"n":1}"#), ("b", "read_file", r#"{"n":2.0}"#), ("c", "read_file", "{}")],
        ),
    ];
    for (what, pieces, expected) in cases {
        let fake = Fake::answering(vec![Answer::stream(finished(pieces, "tool_calls"))]);
        let provider = provider(Dialect::OpenaiChat, &fake.url);
        let (live, _) = listener();
        let reply = provider.ask(&prompt(), &live).await.unwrap();
        let calls: Vec<_> =
            reply.calls.iter().map(|c| (c.id.as_str(), c.tool.as_str(), c.arguments.as_str())).collect();
        assert_eq!(calls, *expected, "{what}");
        if reply.calls.iter().all(|call| !call.tool.is_empty()) {
            fake.request().unwrap();
            provider.ask(&after(&prompt(), &reply), &live).await.unwrap();
            let body: serde_json::Value = serde_json::from_str(&fake.request().unwrap().body).unwrap();
            let messages = body["messages"].as_array().unwrap();
            let mut ids: Vec<&str> =
                messages.iter().filter_map(|message| message["tool_call_id"].as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), expected.len(), "{what}: each result has an id of its own: {body}");
        }
    }
}

fn chain(urls: &[(&str, u32)]) -> Chain {
    let one = |(url, max_retries): &(&str, u32)| {
        let no = urls.iter().position(|(known, _)| known == url).unwrap();
        let settings = settings(Dialect::OpenaiChat, url);
        let model = if no == 0 { settings.model.clone() } else { format!("fallback-{no}") };
        let name = format!("llm-{no}");
        Arc::new(
            Provider::new(crate::ProviderSettings { max_retries: *max_retries, model, name, ..settings })
                .unwrap(),
        )
    };
    Chain::new(urls.iter().map(one).collect(), Vec::new())
}

async fn ask(chain: &Chain, failures: u32) -> Result<standfast_engine::model::ModelReply, ModelFailure> {
    let (live, _) = listener();
    chain.ask(Prompt { failures, ..prompt() }, &live).await
}

/// F26: a failure that may pass is tried again, later each time, and not for ever; `Retry-After` is kept to.
#[tokio::test(flavor = "multi_thread")]
async fn tries_are_bounded() {
    let fake = Fake::answering(vec![Answer::error("500 Oops", "", "{}")]);
    let alone = chain(&[(&fake.url, 2)]);
    let waits: Vec<Option<i64>> = {
        let mut waits = Vec::new();
        for failures in 0..3 {
            waits.push(ask(&alone, failures).await.unwrap_err().retry_after.map(|wait| wait.0));
        }
        waits
    };
    assert!(matches!(waits[..], [Some(5..=7), Some(10..=13), None]), "{waits:?}");
    let last = ask(&alone, 2).await.unwrap_err().error;
    assert!(last.starts_with(&format!("llm `llm-0` (openai, model the-model) at {}: ", fake.url)), "{last}");

    let limited = Fake::answering(vec![Answer::error("429 Slow", "retry-after: 3600\r\n", "{}")]);
    let alone = chain(&[(&limited.url, 2)]);
    let first = ask(&alone, 0).await.unwrap_err();
    assert_eq!(first.retry_after, Some(Millis::seconds(3600)), "{first:?}");
    let second = ask(&alone, 0).await.unwrap_err();
    assert!(second.retry_after.unwrap() > Millis::seconds(3500), "{second:?}");
    assert_eq!(limited.requests().len(), 1, "it is left alone for as long as it asked, by everyone");
}

/// F26: who is asked follows from the number of failures; whoever cannot help is passed over; the log says who answered.
#[tokio::test(flavor = "multi_thread")]
async fn fallbacks_are_asked_in_turn() {
    let (broken, works) = (
        Fake::answering(vec![Answer::error("500 Oops", "", "{}")]),
        Fake::answering(vec![Answer::stream(WORDS)]),
    );
    let both = chain(&[(&broken.url, 1), (&works.url, 1)]);
    assert!(ask(&both, 0).await.unwrap_err().retry_after.is_some(), "tried again first");
    assert!(works.requests().is_empty());
    let reply = ask(&both, 1).await.unwrap();
    assert_eq!((reply.text.as_deref(), reply.model.as_deref()), (Some("Fertig."), Some("fallback-1")));
    let asked = broken.requests().len();
    assert!(ask(&both, 2).await.is_ok());
    assert_eq!(broken.requests().len(), 0, "its tries are used up ({asked} before)");

    let locked = Fake::answering(vec![Answer::error("401 Unauthorized", "", "{}")]);
    let both = chain(&[(&locked.url, 5), (&works.url, 1)]);
    assert!(ask(&both, 0).await.is_ok(), "a wrong key does not become right by waiting");
    let neither = chain(&[(&locked.url, 5), (&broken.url, 0)]);
    let said = ask(&neither, 0).await.unwrap_err();
    assert!(said.retry_after.is_none() && said.error.contains("(401)"), "{said:?}");
    assert!(said.error.contains("; then llm `llm-1`") && said.error.contains("(500)"), "{said:?}");
}
