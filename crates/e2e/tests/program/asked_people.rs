//! Who is asked about a hold, by commands alone: taken, given back, assigned, delegated, and decided in somebody's place.
//!
//! The same on pages is `form_pages.rs`; what ends by itself in `crates/server/tests/engine/asked_people.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use standfast_testkit::{serve, text};

use crate::form_pages::{Browser, key, writer_held_by};

/// An instant that is this far away, as people write it.
fn instant(from_now: &str) -> String {
    let printed =
        std::process::Command::new("date").args(["-u", "-d", from_now, "+%FT%TZ"]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

/// Bob takes a hold and gives it back, assigns it to cy until an instant, and lets dee decide in his place until another one: she
/// approves, and the receipt says in whose place.
#[test]
fn a_hold_is_handed_around_by_commands() {
    let folder = writer_held_by("{id: ops, hold: write_file, approvers: [\"group:ops\"]}");
    let at = folder.path();
    std::fs::create_dir(at.join("workspace")).unwrap();
    let server = serve(at);
    let (ann, bob, dee) = (key(at, "ann", "dev"), key(at, "bob", "ops"), key(at, "dee", "dev"));
    let by = |who: &str, arguments: &[&str]| server.ask_anyway(&[arguments, &["--key", who]].concat());
    let held = by(&ann, &["send", "a", "go", "--wait"]);
    let id = text(&held["holds"][0]["id"]);
    let shown = || by(&bob, &["holds", "show", id]);
    let page = || {
        let shown = server.output(&["holds", "show", id, "--key", &bob]);
        String::from_utf8(shown.stdout).unwrap()
    };
    assert!(!page().contains("assignee:"), "{}", page());
    by(&bob, &["holds", "take", id]);
    assert_eq!(shown()["assignee"], "bob");
    assert!(page().contains("assignee: bob"), "{}", page());
    by(&bob, &["holds", "release", id]);
    assert_eq!(shown()["assignee"], Value::Null);
    let (soon, tomorrow) = (instant("+2 hours"), instant("+1 day"));
    by(&bob, &["holds", "assign", id, "cy", "--until", &soon]);
    let assigned = shown();
    assert_eq!(assigned["assignee"], "cy", "{assigned}");
    assert!(text(&assigned["assigned_until"]).starts_with(soon.trim_end_matches('Z')), "{assigned}");
    let refused = server.output(&["holds", "approve", id, "--key", &dee]);
    assert!(!refused.status.success(), "nobody has asked dee yet");
    by(&bob, &["holds", "delegate", id, "dee", "--until", &tomorrow]);
    let delegated = &shown()["delegations"][0];
    assert_eq!((&delegated["by"], &delegated["to"]), (&json!("bob"), &json!("dee")), "{delegated}");
    assert!(text(&delegated["until"]).starts_with(tomorrow.trim_end_matches('Z')), "{delegated}");
    let decided = by(&dee, &["holds", "approve", id]);
    assert_eq!(decided["outcome"], "decided", "{decided}");
    let (status, receipt) = Browser::with_key(&server, &bob).get(&format!("/api/v1/holds/{id}/receipt"));
    assert_eq!(status, 200, "{receipt}");
    let receipt: Value = serde_json::from_str(&receipt).unwrap();
    let decision = &receipt["receipt"]["decision"];
    assert_eq!(
        (&decision["by"], &decision["in_place_of"]),
        (&json!("person:dee"), &json!("bob")),
        "{receipt}"
    );
}
