//! Recorded streams of every dialect: whatever pieces they come in, they mean the same; what has to go back goes back
//! byte for byte.

use serde_json::Value;
use standfast_core::command::AskedCall;
use standfast_core::message::Usage;
use standfast_engine::model::ModelReply;
use standfast_models::provider::Dialect;

use crate::{ARGUMENTS, KEY, after, listener, prompt, provider};
use standfast_testkit::provider::{Answer, Fake, Pieces};

/// Everything that a stream must come to.
struct Recorded {
    dialect: Dialect,
    stream: &'static [u8],
    text: Option<&'static str>,
    ids: &'static [&'static str],
    usage: Usage,
    /// What must be in the next request, byte for byte.
    goes_back: &'static [&'static str],
    path: &'static str,
    key: &'static str,
}

const WORDS: Option<&str> = Some("Ich schaue nach: ä");

fn recorded() -> Vec<Recorded> {
    let usage = |input, cached: u64, output| Usage {
        input,
        output,
        cost_micros: (input - cached) * 2 + cached + output * 10,
    };
    vec![
        Recorded {
            dialect: Dialect::OpenaiChat,
            stream: include_bytes!("streams/openai_chat.sse"),
            text: WORDS,
            ids: &["call_9bq", "call_Xy2"],
            usage: usage(120, 20, 34),
            goes_back: &[
                r#""tool_calls":[{"id":"call_9bq","type":"function","function":{"arguments":"{\"command\": \"ls -la é\", \"n\":9007199254740993}","name":"execute_command"}},"#,
                r#"{"content":"result 1","role":"tool","tool_call_id":"call_9bq"}"#,
                r#"{"content":"result 2","role":"tool","tool_call_id":"call_Xy2"}"#,
                r#""content":"Ich schaue nach: ä""#,
            ],
            path: "POST /chat/completions ",
            key: "authorization: Bearer",
        },
        Recorded {
            dialect: Dialect::OpenaiChat,
            stream: include_bytes!("streams/openrouter.sse"),
            text: None,
            ids: &["toolu_vrtx_01"],
            usage: usage(50, 0, 12),
            goes_back: &[
                r#""reasoning":"Look first.""#,
                r#""signature":"EqQBCgIYAhIM+sig/1==","text":"Look first.","type":"reasoning.text""#,
                r#"{"type":"reasoning.encrypted","data":"b3BhcXVl","format":"anthropic-claude-v1","index":1}"#,
            ],
            path: "POST /chat/completions ",
            key: "authorization: Bearer",
        },
        Recorded {
            dialect: Dialect::OpenaiChat,
            stream: include_bytes!("streams/vllm.sse"),
            text: None,
            ids: &["chatcmpl-tool-7"],
            usage: usage(30, 0, 10),
            goes_back: &[r#""reasoning_content":"Hm, \"ls\".""#],
            path: "POST /chat/completions ",
            key: "authorization: Bearer",
        },
        Recorded {
            dialect: Dialect::OpenaiResponses,
            stream: include_bytes!("streams/openai_responses.sse"),
            text: WORDS,
            ids: &["call_Qp1"],
            usage: usage(75, 5, 48),
            goes_back: &[
                r#"{"id":"rs_68aa","type":"reasoning","encrypted_content":"gAAAAABo+encrypted/reasoning==","summary":[]},{"id":"msg_68ab","type":"message","#,
                r#"{"id":"fc_68ac","type":"function_call","status":"completed","arguments":"{\"command\": \"ls -la é\", \"n\":9007199254740993}","call_id":"call_Qp1","name":"execute_command"},{"call_id":"call_Qp1","output":"result 1","type":"function_call_output"}"#,
                r#""store":false"#,
            ],
            path: "POST /responses ",
            key: "authorization: Bearer",
        },
        Recorded {
            dialect: Dialect::Anthropic,
            stream: include_bytes!("streams/anthropic.sse"),
            text: WORDS,
            ids: &["toolu_01T1x1fJ34qAmk2tNTrN7Up6"],
            usage: usage(150, 40, 89),
            goes_back: &[
                r#""signature":"EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk/xYZ==","thinking":"They want a listing. ü","#,
                r#"{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"}"#,
                r#""name":"execute_command","input":{"command": "ls -la é", "n":9007199254740993}}]"#,
                r#""tool_use_id":"toolu_01T1x1fJ34qAmk2tNTrN7Up6""#,
                r#""max_tokens":300"#,
            ],
            path: "POST /v1/messages ",
            key: "x-api-key:",
        },
        Recorded {
            dialect: Dialect::Gemini,
            stream: include_bytes!("streams/gemini.sse"),
            text: WORDS,
            ids: &[""],
            usage: usage(60, 8, 32),
            goes_back: &[
                r#"{"role":"model","parts":[{"text":"**Listing** first.","thought":true},{"text":"Ich schaue"},{"text":" nach: ä"},{"functionCall":{"name":"execute_command","args":{"command": "ls -la é", "n":9007199254740993}},"thoughtSignature":"CpIBAcu98PDn+sig/=="}]}"#,
                r#"{"functionResponse":{"name":"execute_command","response":{"result":"result 1"}}}"#,
            ],
            path: "POST /v1beta/models/the-model:streamGenerateContent?alt=sse ",
            key: "x-goog-api-key:",
        },
        Recorded {
            dialect: Dialect::Ollama,
            stream: include_bytes!("streams/ollama.ndjson"),
            text: WORDS,
            ids: &[""],
            usage: usage(26, 0, 14),
            goes_back: &[
                r#""thinking":"Listing first.""#,
                r#"{"function":{"name":"execute_command","arguments":{"command": "ls -la é", "n":9007199254740993}}}"#,
                r#"{"content":"result 1","role":"tool","tool_name":"execute_command"}"#,
            ],
            path: "POST /api/chat ",
            key: "authorization: Bearer",
        },
    ]
}

impl Recorded {
    /// What the reply must be.
    fn check(&self, reply: &ModelReply, how: &str) {
        let mut calls = vec![AskedCall {
            id: self.ids[0].into(),
            tool: "execute_command".into(),
            arguments: ARGUMENTS.into(),
            problem: None,
        }];
        calls.extend(self.ids.get(1).map(|id| AskedCall {
            id: (*id).into(),
            tool: "read_file".into(),
            arguments: r#"{"path":"a.txt"}"#.into(),
            problem: None,
        }));
        assert_eq!(reply.calls, calls, "{:?} {how}", self.dialect);
        assert_eq!((reply.text.as_deref(), reply.usage), (self.text, self.usage), "{:?} {how}", self.dialect);
        assert_eq!(reply.model, None);
    }
}

/// F26, T1: a stream means the same whole and byte by byte; arguments keep their bytes; words are heard as they come;
/// tokens and their price are counted. What the provider wants back goes back byte for byte with the next request.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_streams_in_pieces_of_every_size() {
    for recorded in recorded() {
        for pieces in [Pieces::Whole, Pieces::Bytes] {
            let how = format!("{pieces:?}");
            let fake = Fake::answering(vec![Answer::stream(recorded.stream).in_pieces(pieces.clone())]);
            let provider = provider(recorded.dialect, &fake.url);
            let (live, heard) = listener();
            let reply = provider.ask(&prompt(), &live).await.unwrap_or_else(|no| panic!("{how}: {no}"));
            recorded.check(&reply, &how);
            assert_eq!(*heard.lock().unwrap(), recorded.text.unwrap_or_default(), "{how}");

            let request = fake.request().unwrap();
            let head = request.head.to_ascii_lowercase();
            assert!(request.head.starts_with(recorded.path), "{}", request.head);
            assert!(
                head.contains(&format!("{} {KEY}", recorded.key).to_ascii_lowercase()),
                "{}",
                recorded.key
            );
            assert!(head.contains("x-team: blue-secret"));
            let body: Value = serde_json::from_str(&request.body).unwrap();
            assert_eq!(body["seed"], 7, "what the definition adds is sent: {body}");
            assert!(request.body.contains("Be brief."), "{body}");

            let (live, _) = listener();
            provider.ask(&after(&prompt(), &reply), &live).await.unwrap();
            let again = fake.request().unwrap().body;
            for part in recorded.goes_back {
                assert!(again.contains(part), "{:?}: {part}\nis not in\n{again}", recorded.dialect);
            }
            let is_official =
                recorded.dialect == Dialect::OpenaiChat && again.contains("max_completion_tokens");
            assert!(!is_official, "servers that speak like OpenAI know the older name");
        }
    }
}

/// F26: wherever a stream is cut, there is a failure or a whole reply, and never half of one.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_cut_anywhere() {
    for recorded in recorded() {
        // Every border that a frame could have, and the ends of the stream.
        let stream = recorded.stream;
        let cuts = (0..stream.len()).filter(|at| at % 97 == 0 || stream.len() - at < 4);
        for after in cuts.chain([stream.len()]) {
            let fake = Fake::answering(vec![Answer::stream(stream).in_pieces(Pieces::Cut(after))]);
            let (live, _) = listener();
            match provider(recorded.dialect, &fake.url).ask(&prompt(), &live).await {
                Ok(reply) => assert_eq!(reply.calls[0].arguments, ARGUMENTS, "cut after {after}"),
                Err(trouble) => {
                    assert_eq!(trouble.word(), "cut", "{:?} after {after}: {trouble}", recorded.dialect);
                    assert!(trouble.may_pass());
                }
            }
        }
    }
}
