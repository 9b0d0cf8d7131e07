//! The parsers of A2A and whatever strangers send: none panics, and what one takes means what it says (T31).
//!
//! Damaged requests, the same in every run (`standfast_testkit::damage`). The program as a whole is shown such requests in
//! `crates/e2e/tests/protocols/strangers_bytes.rs`.

use axum::http::{Method, Uri};
use standfast_core::id::Seq;
use standfast_testkit::damage::{each, each_text};

use super::jsonrpc;
use super::rest::{self, PathTarget};
use super::stream::StreamStart;

const SEND: &str = r#"{"jsonrpc":"2.0","id":"a-1","method":"SendMessage","params":{"message":{"messageId":"m-1","taskId":"run_1","role":"ROLE_USER","parts":[{"text":"hello"},{"data":{"decision":"approve","hold_id":"hold_1"}},{"raw":"aGVsbG8=","mediaType":"image/png","filename":"a.png"}]},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"returnImmediately":true},"metadata":{"a":[1,2.5e3,null,"\u00e9"]}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":{"pageSize":50,"pageToken":"41","status":"TASK_STATE_INPUT_REQUIRED","includeArtifacts":true}}"#;
const PUSH: &str = r#"{"jsonrpc":"2.0","id":null,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"run_1","url":"https://example.com/hook","token":"t","authentication":{"scheme":"Bearer","credentials":"c"}}}"#;

/// T31: whatever the body is, a no goes to the id of the request, and reading it twice comes to the same.
#[test]
fn t31_any_body_of_json_rpc_is_read_or_refused() {
    let good = [SEND.as_bytes(), LIST.as_bytes(), PUSH.as_bytes()];
    let (mut read, mut refused) = (0, 0);
    each(&good, 60_000, |bytes| {
        let id = jsonrpc::id(bytes);
        match jsonrpc::read(bytes) {
            Ok(request) => {
                read += 1;
                assert_eq!(request.id.get(), id.get());
                let again = jsonrpc::read(bytes).map(|again| again.digest).ok();
                assert_eq!(again, Some(request.digest));
            }
            Err(unread) => {
                refused += 1;
                assert_eq!(unread.id.get(), id.get());
            }
        }
    });
    assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
}

/// T31: whatever path, query and body are, they lead to an operation or to a no.
#[test]
fn t31_any_request_over_http_and_json_is_read_or_refused() {
    let good = [
        "/v1/agents/ops/message:send",
        "/v1/agents/ops/tasks/run_1:cancel?tenant=ops",
        "/acme/tasks/run_1?historyLength=3",
        "/tasks?pageSize=2&pageToken=abc&status=TASK_STATE_WORKING",
        "/v1/agents/%6Fps/tasks/run_1/pushNotificationConfigs/one",
        "/v1/agents/ops/extendedAgentCard",
    ];
    let bodies =
        [SEND, "{}", "", r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#];
    let (mut no, mut operations, mut nowhere) = (0_usize, 0, 0);
    each_text(&good, 60_000, |path| {
        let Ok(uri) = path.parse::<Uri>() else { return };
        no += 1;
        let target = rest::target(uri.path());
        assert_eq!(rest::target(uri.path()), target);
        let PathTarget::Operation(path) = target.what else {
            nowhere += 1;
            return;
        };
        operations += 1;
        let method = [Method::GET, Method::POST, Method::DELETE, Method::PUT][no % 4].clone();
        let _ = rest::read(path, &method, &uri, bodies[no % bodies.len()].as_bytes());
    });
    assert!(operations > 50 && nowhere > 50, "{operations} operations, {nowhere} nowhere");
}

/// T31: an id of an event is a number, or two; what is taken is what it says.
#[test]
fn t31_any_id_of_an_event_is_one_or_none() {
    let mut taken = 0;
    each_text(&["3", "18446744073709551615", "12.4", "0.0"], 60_000, |id| {
        let Ok(start) = StreamStart::parse(id) else { return };
        taken += 1;
        let StreamStart::After { seq: Seq(seq), frames } = start else { panic!("{id}: {start:?}") };
        let plain = |text: &str| text.trim_start_matches('+').trim_start_matches('0').to_owned();
        let said: Vec<String> = id.splitn(2, '.').map(plain).collect();
        let meant: Vec<String> =
            [Some(seq.to_string()), frames.map(|frames| frames.to_string())].into_iter().flatten().collect();
        assert_eq!(said, meant.iter().map(|text| plain(text)).collect::<Vec<_>>(), "{id}");
    });
    assert!(taken > 50, "{taken}");
}
