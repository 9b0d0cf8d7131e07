//! Messages of Slack when Slack is away, slow to answer, or the server dies: each is there once, and what cannot be sent is kept.

use serde_json::Value;
use standfast_testkit::text;

use super::*;

fn trouble(site: &Site, what: &str) {
    std::fs::write(site.folder.path().join("trouble"), what).unwrap();
}

fn posts(state: &Value) -> usize {
    state["messages"].as_array().unwrap().len()
}

/// A message that Slack did not take is sent again; one that it took without answering, or just before the server died, is found again
/// and not posted twice. Whoever decides and wherever, it is changed; reminders are replies below it.
#[tokio::test]
async fn a_message_is_there_once_and_changed_whoever_decides() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let task = "{input_timeout: 2h, hitl: {remind_before: 7195s}}";
    let channel = slack_channel(&slack, ", decide_in_chat: always");
    std::fs::write(folder.path().join("trouble"), "503 1").unwrap();
    let mut site = Site::new(folder, &channel, task);
    let (first, hold) = site.held().await;
    slack.message(0, |_| true).await;
    assert!(site.log().contains("the chat answered 503"), "{}", site.log().len());
    // Five seconds later its end is near.
    let reminder = slack.message(1, |one| one["thread_ts"] == "1900000000.000100").await;
    assert!(reminder.to_string().contains("still pending") && reminder.to_string().contains("Deadline"));
    // Decided on a page.
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let decide = serde_json::json!({"resolution": "deny", "reason": "no"});
    let done = alice.post(&format!("/api/v1/holds/{hold}/resolve"), &decide).await;
    assert!((200..300).contains(&done.status), "{done:?}");
    let message = slack.message(0, |one| one["changes"] == 1).await;
    assert!(message.to_string().contains("Denied by alice") && buttons(&message).len() == 1, "{message}");
    assert_ne!(site.status(&first).await, "held");
    // Taken without an answer: found by what it is called.
    trouble(&site, "lost 1");
    site.held().await;
    slack.message(2, |_| true).await;
    let found = |state: &Value| {
        let calls = state["calls"].as_array().unwrap();
        calls.iter().any(|one| one["method"] == "conversations.history").then_some(())
    };
    slack.until("it is looked for", found).await;
    // Taken, and the server dies before it hears so.
    trouble(&site, "lost 1");
    site.held().await;
    slack
        .until("it was taken", |state| {
            state["messages"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one.get("thread_ts").is_none())
                .nth(2)
                .map(drop)
        })
        .await;
    site.again();
    let (last, _) = site.held().await;
    let own = |state: &Value| {
        let all = state["messages"].as_array().unwrap().iter().filter(|one| one.get("thread_ts").is_none());
        all.cloned().collect::<Vec<_>>()
    };
    let all =
        slack.until("the last one is there", |state| Some(own(state)).filter(|all| all.len() >= 4)).await;
    assert_eq!(all.len(), 4, "{all:?}");
    let mut values: Vec<Value> = all.iter().flat_map(buttons).map(|one| one["value"].clone()).collect();
    values.retain(|value| value.is_string());
    let count = values.len();
    values.sort_by_key(Value::to_string);
    values.dedup();
    assert_eq!(values.len(), count, "each hold has one message");
    assert_eq!(site.status(&last).await, "held");
    assert!(posts(&slack.state().await) >= 4);
}

/// What Slack never takes is a dead letter that says why; sent again, it is there. A test of the channel says whether it is reached.
#[tokio::test]
async fn what_is_never_taken_is_a_dead_letter() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &slack_channel(&slack, ", on: [opened, resolved]"), TASK);
    let listed = site.root.get("/api/v1/subscriptions?limit=100").await;
    let all = listed.body["subscriptions"].as_array().unwrap().clone();
    let of_agent = all.iter().find(|one| one["agent"] == "ops").unwrap_or_else(|| panic!("{listed:?}"));
    let id = text(&of_agent["id"]).to_owned();
    assert_eq!(of_agent["url"], "channel:slack");
    let tested = site.root.post(&format!("/api/v1/subscriptions/{id}/test"), &Value::Null).await;
    assert!((200..300).contains(&tested.status), "{tested:?}");
    let test = slack.message(0, |_| true).await;
    assert!(test.to_string().contains("Nothing is asked"), "{test}");
    trouble(&site, "503 1000");
    site.held().await;
    let path = format!("/api/v1/subscriptions/{id}/dead-letters");
    let dead = until_found("a dead letter", async || {
        let dead = site.root.get(&path).await;
        dead.text.contains("the chat answered 503").then_some(dead)
    })
    .await;
    // The command line lists those of all channels, with why.
    let said = command_line(&site, &["dead-letters"]);
    for what in [id.as_str(), "channel:slack", "the chat answered 503"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let listed: Value = serde_json::from_str(&command_line(&site, &["dead-letters", "--json"])).unwrap();
    assert_eq!(listed["dead_letters"][0]["url"], "channel:slack", "{listed}");
    trouble(&site, "503 0");
    let letters = dead.body["dead_letters"].as_array().unwrap().clone();
    let letter = text(&letters[0]["id"]).to_owned();
    let resent = site.root.post(&format!("{path}/{letter}/resend"), &Value::Null).await;
    assert!((200..300).contains(&resent.status), "{resent:?}");
    let message = slack.message(1, |_| true).await;
    assert!(message.to_string().contains("canary-argument"), "{message}");
    // And another one, as all of its subscription are.
    trouble(&site, "503 1000");
    site.held().await;
    until_found("another dead letter", async || {
        let dead = site.root.get(&path).await;
        dead.text.contains("the chat answered 503").then_some(())
    })
    .await;
    trouble(&site, "503 0");
    assert_eq!(command_line(&site, &["resend", &id]), "queued for delivery: 1");
    slack.message(2, |_| true).await;
    until_found("nothing is left", async || {
        (command_line(&site, &["dead-letters"]) == "no dead letters").then_some(())
    })
    .await;
}

/// What `standfast subscriptions` prints.
fn command_line(site: &Site, arguments: &[&str]) -> String {
    let mut command = standfast();
    command.arg("subscriptions").args(arguments).args(["--server", &site.base]);
    let done = command.env("STANDFAST_KEY", site.root.key.as_deref().unwrap()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}
