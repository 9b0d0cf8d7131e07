//! Holds that have expired and are kept, and decisions that come late, as a room has them.

use super::*;

/// C7: below the message of a hold that has expired stands until when a late decision still counts; once it is decided, the message says
/// that it was late.
#[tokio::test]
async fn a_room_reads_what_is_late() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let task = "{input_timeout: 1, hitl: {on_timeout: keep, expiry_grace: 2d}}";
    let site = Site::new(folder, &slack_channel(&slack, ", on: [opened, expired, resolved]"), task);
    let started = json!({"input": "please", "wait": "settled"});
    let run = site.root.post("/api/v1/agents/ops/runs", &started).await.body;
    let hold = text(&run["holds"][0]["id"]).to_owned();
    let expired = slack.message(1, |one| one["thread_ts"].is_string()).await.to_string();
    assert!(expired.contains("It has expired, and a late decision still counts until "), "{expired}");
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let path = format!("/api/v1/holds/{hold}/resolve");
    let decided = alice.post(&path, &json!({"resolution": "approve"})).await;
    assert_eq!(decided.body["hold"]["late"], true, "{decided:?}");
    let is_decided = |one: &Value| one.to_string().contains("Approved by alice at ");
    let changed = slack.message(0, is_decided).await.to_string();
    assert!(changed.contains(" UTC (late)."), "{changed}");
}
