//! Lines of MCP, damaged: what is passed on is what was judged (T1, T31).
//!
//! Both sides of a gateway and of the proxy read these: a client's, and those of the server behind.

use rmcp::model::CallToolRequestParams;
use serde_json::Value;
use standfast_core::json::RawJson;
use standfast_testkit::damage::each_text;

use super::message::{ClientMessage, ServerMessage};
use super::tools::ToolRequest;

const CALL: &str = r#"{"jsonrpc":"2.0","id":"c-1","method":"tools/call","params":{"name":"echo","arguments":{"a":[1,2.50,"\u00e9"]},"_meta":{"progressToken":7},"requestState":"s","inputResponses":{"q":{"action":"accept"}}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"x"}}"#;
const BATCH: &str = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}},{"jsonrpc":"2.0","method":"notifications/x"}]"#;
const RESULT: &str =
    r#"{"jsonrpc":"2.0","id":"c-1","result":{"content":[{"type":"text","text":"x"}],"isError":false}}"#;
const ERROR: &str = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"no"}}"#;

/// T1, T31: whatever line a client sends, a reader of JSON who looks at it alone never finds a call in what is passed on unjudged, and
/// finds the same tool and arguments in what is judged.
#[test]
fn t1_no_line_is_a_call_to_one_reader_and_not_to_another() {
    let (mut calls, mut others) = (0, 0);
    each_text(&[CALL, LIST, BATCH], 60_000, |line| {
        let plain = serde_json::from_str::<Value>(line).ok();
        match ClientMessage::read(line) {
            Ok(ClientMessage::Call(call)) => {
                calls += 1;
                // Half a character is in no text of Rust, but in one of JavaScript: whoever cannot read the line finds nothing in it.
                let Some(plain) = plain else { return assert!(line.contains("\\ud"), "{line}") };
                assert_eq!(
                    (&plain["method"], &plain["params"]["name"]),
                    (&"tools/call".into(), &call.tool.clone().into())
                );
                let arguments: Value = serde_json::from_str(call.arguments.get()).unwrap();
                let same =
                    plain["params"].get("arguments").is_none_or(|said| said.is_null() || *said == arguments);
                assert!(same, "{line}");
            }
            Ok(_) => {
                others += 1;
                let is_call = |one: &Value| one["method"] == "tools/call";
                let hides = plain.as_ref().is_some_and(|plain| {
                    is_call(plain) || plain.as_array().is_some_and(|all| all.iter().any(is_call))
                });
                assert!(!hides, "{line}");
            }
            Err(_) => {}
        }
    });
    assert!(calls > 50 && others > 50, "{calls} calls, {others} others");
}

/// T31: whatever arguments a client gives the desk, they are a request or a no, and those of a call that somebody is asked about are JSON.
#[test]
fn t31_any_call_of_the_desk_is_read_or_refused() {
    let good = [
        r#"{"name":"request_approval","arguments":{"tool":"deploy","arguments":{"to":"prod","n":1},"reason":"r","session":"s"}}"#,
        r#"{"name":"ask_human","arguments":{"question":"which?","options":["a","b"],"answer_schema":{"type":"string"}}}"#,
        r#"{"name":"standfast_result","arguments":{"gate":"run_0","status":"succeeded","result":{"a":1}}}"#,
        r#"{"name":"check","arguments":{"tool":"deploy","arguments":{}}}"#,
    ];
    let (mut taken, mut refused) = (0, 0);
    each_text(&good, 60_000, |text| {
        let Ok(call) = serde_json::from_str::<CallToolRequestParams>(text) else { return };
        match ToolRequest::read(&call) {
            Ok(ToolRequest::Ask(asked) | ToolRequest::Check(asked)) => {
                taken += 1;
                assert!(RawJson::parse(asked.arguments.text()).is_ok(), "{text}");
            }
            Ok(ToolRequest::Look(_) | ToolRequest::Report(..)) => taken += 1,
            Err(_) => refused += 1,
        }
    });
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}

/// T31: whatever a server says is an answer, or nothing.
#[test]
fn t31_any_line_of_a_server_is_a_message_or_none() {
    let ids = [Value::from("c-1"), Value::from(2)];
    let mut answers = 0;
    each_text(&[RESULT, ERROR, LIST], 60_000, |line| {
        let Some(message) = ServerMessage::read(line) else { return };
        if ids.iter().any(|id| message.answers(id)) {
            answers += 1;
            let _ = message.outcome();
        }
    });
    assert!(answers > 50, "{answers}");
}
