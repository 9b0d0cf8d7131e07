//! Direct messages of Slack: people get what they may decide by themselves, as they wish.

use super::quiet::far_hours;
use super::*;

/// T13: who may decide gets a direct message with buttons, and decides once their account is theirs by a sign-in: that the configuration
/// names where they are reached is not enough. Who wants a digest gets one message about what is pending, who wants
/// decisions only that one, who is not to be disturbed none, and who may not decide none.
#[tokio::test]
async fn t13_people_get_direct_messages_as_they_wish() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let port = free_port();
    let rest = format!(
        "server:
  public_url: http://127.0.0.1:{port}
  auth: {{api_keys: true}}
people:
  alice: {{groups: [ops], slack: U0ALICE}}
  bob: {{slack: U0BOB}}
  dora: {{groups: [ops], slack: U0DORA, notify: {{digest: 2s}}}}
  erin: {{groups: [ops], slack: U0ERIN, notify: {{{}}}}}
  fred: {{groups: [ops], slack: U0FRED, notify: {{on: [resolved], channels: [slack]}}}}
channels:
- {{type: slack, direct: true, token: xoxb-canary-token, signing_secret: {SECRET}, team: {TEAM}, api_url: '{}', decide_in_chat: always}}
tools: {{execute_command: {{sandbox: off}}}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: script, session_store: db, approvers: ['group:ops'], tools: [execute_command], task: {TASK}}}}}
",
        far_hours(),
        slack.api()
    );
    let site = Site::configured(folder, port, &rest);
    let (run, _) = site.held().await;
    let of = |state: &Value, user: &str| -> Vec<Value> {
        state["messages"].as_array().unwrap().iter().filter(|one| one["channel"] == user).cloned().collect()
    };
    let first = |user: &'static str| move |state: &Value| of(state, user).first().cloned();
    let message = slack.until("alice is told", first("U0ALICE")).await;
    assert!(message.to_string().contains("canary-argument"), "{message}");
    let digest = slack.until("dora is told", first("U0DORA")).await.to_string();
    assert!(digest.contains("1 decision is pending") && digest.contains("/approve/hold_"), "{digest}");
    assert!(!digest.contains("canary-argument"), "{digest}");
    let approve = click(TEAM, "U0ALICE", &button(&message, "standfast_approve"), "1.1");
    assert_eq!(send_signed(&site.base, &approve).await.status, 200);
    let whispered = slack.until("a whisper", |state| state["whispers"].get(0).cloned()).await;
    assert!(text(&whispered["text"]).contains("not linked to anybody"), "{whispered}");
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    assert_eq!(link(&alice, &address_in(text(&whispered["text"]))).await.status, 200);
    assert_eq!((site.status(&run).await.as_str(), site.starts(&run).await), ("held", 0));
    assert_eq!(send_signed(&site.base, &approve).await.status, 200);
    site.until_status(&run, "completed").await;
    let is_decided = |state: &Value| of(state, "U0ALICE").into_iter().find(|one| one["changes"] == 1);
    let message = slack.until("alice's message says so", is_decided).await;
    assert!(message.to_string().contains("Approved by alice"), "{message}");
    let freds = slack.until("fred is told", first("U0FRED")).await;
    assert!(freds.to_string().contains("Approved by alice"), "{freds}");
    let state = slack.state().await;
    for user in ["U0BOB", "U0ERIN"] {
        assert_eq!(of(&state, user), Vec::<Value>::new(), "{user}");
    }
}

/// A room or people, and not both; and hours are people's own.
#[test]
fn a_channel_is_a_room_or_direct() {
    let url = "server: {public_url: 'http://127.0.0.1:8080'}\n";
    for (channel, wrong) in [
        ("{type: slack, token: x, direct: true, room: C1}", "either a `room`, or `direct: true`"),
        ("{type: slack, token: x, direct: false}", "either a `room`, or `direct: true`"),
        (
            "{type: slack, token: x, direct: true, hours: {time_zone: UTC, days: {mon: ['09:00-17:00']}}}",
            "people have hours of their own",
        ),
        ("{type: discord, room: '1', token: x, direct: true}", "does nothing"),
    ] {
        let rest = format!("{url}channels: [{channel}]\nagents: {{ops: {{llm: script}}}}\n");
        let folder = standfast_testkit::folder(&[("script", SCRIPT)], &rest);
        let checked = standfast().arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
        assert!(checked.status.code() == Some(1) && said.contains(wrong), "{channel}: {said}");
    }
}
