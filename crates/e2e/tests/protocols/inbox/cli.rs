//! `standfast inbox`, as people and scripts would call it.

use std::process::Output;

use serde_json::{Value, json};

use crate::inbox::server::{Server, plain, text};

fn inbox(server: &Server, arguments: &[&str]) -> Output {
    let mut command = standfast_testkit::standfast();
    command.arg("inbox").args(arguments).args(["--server", &server.program.base]).env_remove("STANDFAST_KEY");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn as_json(server: &Server, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(&inbox(server, &[arguments, &["--json"]].concat()))).unwrap()
}

/// S4-8: add, list, what is pending, answer, cancel; text for people, JSON for machines; a no is exit code 1.
#[tokio::test]
async fn tasks_are_handled_on_the_command_line() {
    let (_folder, server) = plain();
    assert!(said(&inbox(&server, &["list"])).contains("no inboxes"));
    let added = as_json(
        &server,
        &[
            "add",
            "support",
            r#"{"cents": 1250}"#,
            "--type",
            "refund",
            "--priority",
            "high",
            "--title",
            "Ann\u{1b}[31m",
        ],
    );
    assert_eq!((&added["priority"], &added["payload"]), (&json!(2), &json!({"cents": 1250})));
    let id = text(&added["id"]);
    let shown = said(&inbox(&server, &["tasks", "support", "--status", "pending"]));
    assert!(shown.contains(id) && !shown.contains('\u{1b}'), "no text drives the terminal: {shown:?}");
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    let ask = json!({"reason": "a lot", "payload": {"question": "All of it?", "options": ["yes", "no"]}});
    server.report(&claimed, "suspend", ask).await;
    for arguments in [&["waiting"][..], &["waiting", "support"], &[]] {
        assert!(said(&inbox(&server, arguments)).contains("a lot"), "{arguments:?}");
        assert_eq!(as_json(&server, arguments)["tasks"][0]["id"], id, "{arguments:?}");
    }
    let one = said(&inbox(&server, &["show", "support", id]));
    assert!(one.contains("question: All of it?") && one.contains("2. no"), "{one}");
    let refused = inbox(&server, &["resume", "support", id, "perhaps"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("must be one of: yes, no"));
    assert!(said(&inbox(&server, &["resume", "support", id, "no"])).contains("answered"));
    assert_eq!(as_json(&server, &["show", "support", id])["resumePayload"], "no");
    assert!(said(&inbox(&server, &["cancel", "support", id, "--reason", "enough"])).contains("cancelled"));
    assert!(said(&inbox(&server, &["list"])).contains("support"));
    assert_eq!(inbox(&server, &["show", "support", "run_none"]).status.code(), Some(1));
}
