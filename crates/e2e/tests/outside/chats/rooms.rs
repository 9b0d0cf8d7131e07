//! Rooms that only take messages: Teams, whose cards Microsoft's own renderer reads, ntfy, and any address (T7, T19, T20, T29); and what
//! people want mail about, and when.

use serde_json::json;
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{standfast, text};

use super::*;

/// T7, T20: each room is told of the hold and of its decision, with the page where people sign in and nothing that decides; arguments only
/// where the configuration shows them. The addresses and tokens are in no log and no row.
#[tokio::test]
async fn t7_rooms_lead_to_the_page_and_decide_nothing() {
    let teams = Receiver::new(Mood::Takes).await;
    let ntfy = Receiver::new(Mood::Takes).await;
    let (plain, facts, guild) = (
        Receiver::new(Mood::Takes).await,
        Receiver::new(Mood::Takes).await,
        Receiver::new(Mood::Takes).await,
    );
    let address = |receiver: &Receiver| format!("http://127.0.0.1:{}/canary-address", receiver.port);
    let channels = format!(
        "
- {{type: teams, url: '{}', arguments: true}}
- {{type: ntfy, room: approvals, token: tk_canary, api_url: 'http://127.0.0.1:{}'}}
- {{type: webhook, url: '{}', text: 'Look: {{title}} {{call}} {{page}}'}}
- {{type: webhook, name: facts, url: '{}', format: json, arguments: true}}
- {{type: webhook, name: guild, url: '{}', format: discord}}
",
        address(&teams),
        ntfy.port,
        address(&plain),
        address(&facts),
        address(&guild)
    );
    let site = Site::new(Site::folder(SCRIPT), &channels, TASK);
    let (run, hold) = site.held().await;
    let page = format!("{}/approve/{hold}", site.base);
    let first =
        async |receiver: &Receiver| receiver.until("it is told", |all| !all.is_empty()).await[0].clone();
    let message = first(&teams).await.body();
    assert_eq!(message["attachments"][0]["contentType"], "application/vnd.microsoft.card.adaptive");
    let card = &message["attachments"][0]["content"];
    assert_eq!(card["actions"], json!([{"type": "Action.OpenUrl", "title": "Open", "url": page}]));
    assert!(
        card.to_string().contains("canary-argument") && !card.to_string().contains("\"TextBlock\""),
        "{card}"
    );
    let judged = judged(&json!({"what": "card", "card": card}));
    assert_eq!(judged["said"], json!([]), "{judged}");
    assert_eq!(judged["kept"]["body"].as_array().map(Vec::len), card["body"].as_array().map(Vec::len));
    let got = first(&ntfy).await;
    assert_eq!(got.headers["authorization"], "Bearer tk_canary");
    let body = got.body();
    assert_eq!((&body["topic"], &body["click"]), (&json!("approvals"), &json!(page)));
    assert_eq!(body["actions"][0]["action"], "view");
    assert!(!body.to_string().contains("canary-argument"), "{body}");
    let body = first(&plain).await.body();
    assert_eq!(body, json!({"text": format!("Look: Approve execute_command?  {page}")}));
    let body = first(&facts).await.body();
    assert_eq!((&body["type"], &body["hold"]), (&json!("hold.opened"), &json!(hold)), "{body}");
    assert!(text(&body["arguments"]).contains("<!channel> canary-argument"), "{body}");
    let body = first(&guild).await.body();
    assert_eq!(body["allowed_mentions"], json!({"parse": []}));
    assert!(text(&body["content"]).contains(&page) && !body.to_string().contains("canary"), "{body}");
    // None of it decided anything; a decision is told to all of them.
    assert_eq!(site.status(&run).await, "held");
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let done = alice.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve"})).await;
    assert!((200..300).contains(&done.status), "{done:?}");
    for receiver in [&teams, &ntfy, &plain, &facts, &guild] {
        let all = receiver.until("the decision is told", |all| all.len() >= 2).await;
        assert!(all[1].text.contains("Approved"), "{}", all[1].text);
    }
    assert_eq!(facts.all()[1].body()["decided"], true);
    for secret in ["canary-address", "tk_canary"] {
        assert!(!site.log().contains(secret) && !site.has_stored(secret), "{secret}");
    }
}

/// T29: the address of a room that is not there is in no error either.
#[tokio::test]
async fn t29_an_address_that_does_not_answer_is_in_no_dead_letter() {
    let gone = free_port();
    let channels = format!("[{{type: teams, url: 'http://127.0.0.1:{gone}/canary-address'}}]");
    let site = Site::new(Site::folder(SCRIPT), &channels, TASK);
    site.held().await;
    let listed = site.root.get("/api/v1/subscriptions?limit=100").await.body;
    let all = listed["subscriptions"].as_array().unwrap();
    let room = all.iter().find(|one| one["agent"] == "ops").unwrap_or_else(|| panic!("{listed}"));
    let path = format!("/api/v1/subscriptions/{}/dead-letters", text(&room["id"]));
    let dead = until_found("a dead letter", async || {
        let dead = site.root.get(&path).await;
        dead.body["dead_letters"].get(0).cloned()
    })
    .await;
    assert!(text(&dead["reason"]).contains("connection") && !dead.to_string().contains("canary"), "{dead}");
    assert!(!site.log().contains("canary-address"));
}

/// What does not go together is a mistake of the file, by name.
#[test]
fn channels_that_cannot_work_are_refused() {
    let url = "server: {public_url: 'http://127.0.0.1:8080'}\n";
    let secret = "signing_secret: aaaaaaaaaaaaaaaaaaaa";
    for (channel, wrong) in [
        ("{type: slack, room: C1}", "token"),
        ("{type: slack, token: x}", "room"),
        (&format!("{{type: slack, room: C1, token: x, {secret}}}"), "team"),
        ("{type: slack, room: C1, token: x, team: T1}", "signing_secret"),
        ("{type: slack, room: C1, token: x, decide_in_chat: always}", "decide_in_chat"),
        ("{type: slack, room: C1, token: x, signing_secret: short, team: T1}", "16 characters"),
        (
            "{type: slack, room: C1, token: x, from: a@example.com}",
            "does nothing in a channel of type `slack`",
        ),
        ("{type: slack, room: C1, token: x, api_url: 'ftp://x'}", "https://"),
        ("{type: slack, room: C1, token: x, team: T1, app_token: xoxb-1}", "begins with xapp-"),
        ("{type: slack, room: C1, token: x, app_token: xapp-1}", "team"),
        ("{type: discord, room: '1', token: x, app_token: xapp-1}", "does nothing"),
        ("{type: discord, room: '1', token: x, public_key: abc, team: '1'}", "64 letters"),
        ("{type: teams}", "url"),
        ("{type: teams, url: 'https://x.example', text: x}", "does nothing"),
        ("{type: webhook, url: 'https://x.example', format: json, text: x}", "this format is no text"),
        ("{type: webhook, url: 'https://x.example', text: '{secret}'}", "{secret}"),
        ("{type: ntfy}", "room"),
        ("{type: mail, from: a@example.com}", "host"),
        ("{type: mail, from: a@example.com, host: m.example.com, room: x}", "does nothing"),
        (
            "{type: mail, from: a@example.com, host: m.example.com, hours: {time_zone: UTC, days: {mon: ['09:00-17:00']}}}",
            "does nothing",
        ),
        ("{type: ntfy, room: x, hours: {time_zone: Nowhere, days: {}}}", "hours"),
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
