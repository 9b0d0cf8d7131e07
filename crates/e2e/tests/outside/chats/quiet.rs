//! Rooms have hours in which they can be disturbed.

use standfast_testkit::receiver::{Mood, Receiver};

use super::*;

/// Hours that begin twelve hours from now, on every day.
pub(super) fn far_hours() -> String {
    let hour = (now_ms() / 3_600_000 + 12) % 24;
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let days: Vec<String> = days.iter().map(|day| format!("{day}: ['{hour:02}:00-{hour:02}:30']")).collect();
    format!("hours: {{time_zone: UTC, days: {{{}}}}}", days.join(", "))
}

/// The server takes another file.
async fn rewrite(site: &Site, change: impl Fn(&str) -> String) {
    let config: &Path = &site.folder.path().join("standfast.yaml");
    let before = site.log().matches("configuration reloaded").count();
    std::fs::write(config, change(&std::fs::read_to_string(config).unwrap())).unwrap();
    until_found("it is reloaded", async || {
        (site.log().matches("configuration reloaded").count() > before).then_some(())
    })
    .await;
}

async fn approve(site: &Site, hold: &str) {
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let path = format!("/api/v1/holds/{hold}/resolve");
    let done = alice.post(&path, &json!({"resolution": "approve"})).await;
    assert!((200..300).contains(&done.status), "{done:?}");
}

/// Outside of its hours nothing new is said in a room; a message that is there is changed all the same, as that disturbs nobody. A room
/// without hours hears all of it.
#[tokio::test]
async fn a_room_is_left_alone_outside_of_its_hours() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let (quiet, open) = (Receiver::new(Mood::Takes).await, Receiver::new(Mood::Takes).await);
    let channels = format!(
        "
- {{type: slack, room: C0APPROVALS, token: xoxb-canary-token, api_url: '{}'}}
- {{type: webhook, name: quiet, url: 'http://127.0.0.1:{}/x', {}}}
- {{type: webhook, name: open, url: 'http://127.0.0.1:{}/x'}}
",
        slack.api(),
        quiet.port,
        far_hours(),
        open.port
    );
    let site = Site::new(folder, &channels, TASK);
    let (_, first) = site.held().await;
    slack.message(0, |_| true).await;
    open.until("it is told", |all| all.len() == 1).await;
    rewrite(&site, |file| {
        file.replace("token: xoxb-canary-token", &format!("token: xoxb-canary-token, {}", far_hours()))
    })
    .await;
    let (_, second) = site.held().await;
    open.until("it is told of both", |all| all.len() == 2).await;
    approve(&site, &second).await;
    approve(&site, &first).await;
    open.until("it is told of both decisions", |all| all.len() == 4).await;
    let message = slack.message(0, |one| one["changes"] == 1).await;
    assert!(message.to_string().contains("Approved by alice"), "{message}");
    assert_eq!(slack.state().await["messages"].as_array().unwrap().len(), 1);
    assert_eq!(quiet.all().len(), 0);
}
