//! What hooks are called with, damaged: whatever a client sends is an event or a no in words, and its arguments are what was sent (T31).
//!
//! Damaged ones, the same in every run (`standfast_testkit::damage`). What each client really sends is in `golden`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use standfast_core::json::RawJson;
use standfast_testkit::damage::each_text;

use super::event::{Client, read};

const CLAUDE: &str = r#"{"hook_event_name":"PreToolUse","session_id":"s-1","tool_name":"Bash","tool_input":{"command":"rm -rf \u00e9","n":[1,2.50]},"tool_use_id":"c-1","cwd":"/work","description":"why"}"#;
const COPILOT: &str = r#"{"sessionId":"s-1","toolName":"bash","toolArgs":"{\"command\":\"ls\"}","toolResult":{"resultType":"success","textResultForLlm":"x"}}"#;
const CURSOR: &str = r#"{"hook_event_name":"beforeShellExecution","conversation_id":"s-1","command":"git push","cwd":"/work"}"#;
const AFTER: &str = r#"{"hook_event_name":"AfterTool","session_id":"s-1","tool_name":"write_file","tool_input":{"path":"a"},"tool_response":{"llmContent":"done","error":null}}"#;
const OPENCODE: &str = r#"{"event":"tool.execute.before","sessionID":"s-1","callID":"c-1","tool":"edit","args":{"old":"a","new":"b"}}"#;

/// T31: what is taken is the same when it is read again, and its arguments are JSON as one reader reads it.
#[test]
fn t31_any_event_of_a_hook_is_read_or_refused() {
    let (mut taken, mut refused) = (0, 0);
    each_text(&[CLAUDE, COPILOT, CURSOR, AFTER, OPENCODE], 30_000, |text| {
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text) else { return };
        for client in Client::ALL {
            match read(client, &fields) {
                Ok(event) => {
                    taken += 1;
                    assert!(RawJson::parse(event.arguments.text()).is_ok(), "{text}");
                    assert_eq!(read(client, &fields).as_ref(), Ok(&event), "{text}");
                }
                Err(why) => {
                    refused += 1;
                    assert!(!why.is_empty(), "{text}");
                }
            }
        }
    });
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}
