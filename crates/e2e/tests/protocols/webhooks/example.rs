//! The example of `docs/webhooks.md` that checks signatures, run by Python against what the server really sent.
//!
//! The text is taken from the page itself, so that what people copy is what was tested.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{patient, serve};
use standfast_testkit::receiver::{Mood, Receiver};

const PAGE: &str = include_str!("../../../../../docs/webhooks.md");

/// Reads one case for each line, and says for each whether the example believes it.
const CASES: &str = "
import json, sys
for line in sys.stdin:
    case = json.loads(line)
    print(is_genuine(case['secret'], case['headers'], case['body'].encode()))
";

fn python(cases: &[Value]) -> Vec<String> {
    let (_, rest) = PAGE.split_once("```python\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let mut child = Command::new("python3")
        .args(["-c", &format!("{example}{CASES}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// C21, T10: what the guide shows believes a real delivery, with either secret after a change of secrets, and nothing that
/// was changed on the way, is of another time, or has another's signature.
#[tokio::test]
async fn the_example_of_the_guide_believes_what_is_genuine_and_nothing_else() {
    let (folder, receiver) = (patient(), Receiver::new(Mood::Takes).await);
    let server = serve(folder.path());
    let (id, secret) = server.subscribed(&receiver, json!({"events": ["hold.opened"]})).await;
    let (_, stranger) = server.subscribed(&receiver, json!({"events": ["run.ended"]})).await;
    let rotated = server.post(&format!("/subscriptions/{id}/rotate"), json!({})).await;
    server.held().await;
    let got = receiver.until("the hold", |all| !all.is_empty()).await.remove(0);
    assert_eq!(got.kind(), "hold.opened");

    let genuine = json!({"secret": secret, "headers": got.headers, "body": got.text});
    let with = |pointer: &str, value: Value| {
        let mut case = genuine.clone();
        *case.pointer_mut(pointer).unwrap() = value;
        case
    };
    let at: i64 = got.headers["webhook-timestamp"].parse().unwrap();
    let cases = [
        genuine.clone(),
        with("/secret", rotated["secret"].clone()),
        with("/body", json!(got.text.replace("echo hello", "echo hellO"))),
        with("/body", json!(format!("{} ", got.text))),
        with("/headers/webhook-id", json!("sub_other-run-1")),
        with("/headers/webhook-timestamp", json!((at + 1).to_string())),
        with("/headers/webhook-timestamp", json!((at - 301).to_string())),
        with("/headers/webhook-signature", json!("v1,AAAA")),
        with("/headers/webhook-signature", json!("")),
        with("/secret", json!(stranger)),
    ];
    let mut wanted = vec!["False".to_owned(); cases.len()];
    wanted[..2].fill("True".to_owned());
    assert_eq!(python(&cases), wanted);
}
