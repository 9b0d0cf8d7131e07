//! Socket Mode: clicks that the server fetches from Slack, against a library for WebSocket and what Slack's own packages make of the same
//! envelopes (T5, T13).

use serde_json::{Value, json};
use standfast_testkit::text;

use super::*;

const TOKEN: &str = "xapp-canary-token";

/// A channel whose clicks are fetched; nobody signs any.
fn socket_channel(slack: &Service, token: &str, rest: &str) -> String {
    format!(
        "{{type: slack, room: C0APPROVALS, token: xoxb-canary-token, app_token: {token}, team: {TEAM}, api_url: '{}', decide_in_chat: always{rest}}}",
        slack.api()
    )
}

impl Service {
    async fn control(&self, what: &str, said: &Value) -> Value {
        Http::new(&format!("http://127.0.0.1:{}", self.port))
            .post(&format!("/control/{what}"), said)
            .await
            .body
    }

    /// Hands a click to the newest connection; the name of its envelope.
    async fn hand(&self, payload: &Value) -> String {
        text(&self.control("envelope", &json!({"payload": payload})).await["envelope_id"]).to_owned()
    }

    async fn until_acknowledged(&self, envelope: &str) -> Value {
        let is_it = |state: &Value| {
            let all = state["acknowledged"].as_array()?;
            all.iter().find(|one| one["envelope_id"] == envelope).cloned()
        };
        self.until(&format!("{envelope} is acknowledged"), is_it).await
    }

    /// The newest of so many connections is open.
    async fn until_connected(&self, count: u64) {
        let is_so = |state: &Value| (state["sockets"] == count && state["open"] != 0).then_some(());
        self.until(&format!("connection {count} is open"), is_so).await;
    }

    async fn whisper(&self, no: usize) -> String {
        let find = |state: &Value| Some(text(&state["whispers"].get(no)?["text"]).to_owned());
        self.until(&format!("whisper {no}"), find).await
    }
}

/// Links the account of Alice by a click that decides nothing: whisper `no` leads to the page.
async fn link_alice(site: &Site, slack: &Service, payload: &Value, no: usize) {
    let envelope = slack.hand(payload).await;
    let page = address_in(&slack.whisper(no).await);
    slack.until_acknowledged(&envelope).await;
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    assert_eq!(link(&alice, &page).await.status, 200);
}

/// T5, T13: without an address that Slack could reach, a click over the socket decides for whoever linked their account, once, and for
/// nobody else; each envelope is acknowledged, in the form that Slack's own client uses, and Bolt hears the same click from it. Signed clicks
/// are not taken where nobody signs, and neither token nor ticket is in the log or stored.
#[tokio::test]
async fn t13_a_click_over_a_socket_decides_for_whoever_linked_their_account() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let other =
        socket_channel(&slack, TOKEN, ", name: other, on: [expired]").replace("C0APPROVALS", "C0OTHER");
    let channels = format!("[{}, {other}]", socket_channel(&slack, TOKEN, ""));
    let site = Site::new(folder, &channels, TASK);
    slack.until_connected(1).await;
    let (run, _) = site.held().await;
    let approve = button(&slack.message(0, |_| true).await, "standfast_approve");
    assert_eq!(send_signed(&site.base, &click(TEAM, "U0ALICE", &approve, "1.1")).await.status, 404);
    // A stranger: Bolt hears the same from the same service.
    let strangers = click_payload(TEAM, "U0STRANGER", &approve, "1.1");
    let later = slack.control("envelope", &json!({"payload": strangers, "later": true})).await;
    let names = json!(["standfast_approve", "standfast_deny"]);
    let asked = json!({"what": "socket", "api": slack.api(), "token": TOKEN, "actions": names});
    let bolt = tokio::task::spawn_blocking(move || judged(&asked)).await.unwrap();
    assert_eq!((&bolt["user"], &bolt["value"]), (&json!("U0STRANGER"), &approve["value"]), "{bolt}");
    let theirs = slack.until_acknowledged(text(&later["envelope_id"])).await;
    assert_eq!(theirs, json!({"envelope_id": later["envelope_id"], "payload": {}}));
    slack.until("Bolt is gone", |state| (state["open"] == 1).then_some(())).await;
    let envelope = slack.hand(&strangers).await;
    assert!(slack.whisper(0).await.contains("not linked to anybody"));
    assert_eq!(slack.until_acknowledged(&envelope).await, json!({"envelope_id": envelope}));
    // Another workspace, a room that is no channel, and what is no click.
    let envelope = slack.hand(&click_payload("T0FOREIGN", "U0ALICE", &approve, "1.2")).await;
    assert!(slack.whisper(1).await.contains("this workspace is not the one"));
    slack.until_acknowledged(&envelope).await;
    let mut elsewhere = click_payload(TEAM, "U0ALICE", &approve, "1.3");
    elsewhere["channel"]["id"] = json!("C0NOWHERE");
    for payload in [elsewhere, json!({"type": "view_submission", "view": {}}), json!({})] {
        slack.until_acknowledged(&slack.hand(&payload).await).await;
    }
    assert!(site.log().contains("a click from a room that no channel names"), "{}", site.log().len());
    assert_eq!((site.status(&run).await.as_str(), site.starts(&run).await), ("held", 0));
    // Alice.
    let alices = click_payload(TEAM, "U0ALICE", &approve, "1.4");
    link_alice(&site, &slack, &alices, 2).await;
    let envelope = slack.hand(&alices).await;
    site.until_status(&run, "completed").await;
    slack.until_acknowledged(&envelope).await;
    let message = slack.message(0, |one| one["changes"] == 1).await;
    assert!(message.to_string().contains("Approved by alice"), "{message}");
    // The same click in another envelope.
    slack.until_acknowledged(&slack.hand(&alices).await).await;
    assert!(slack.whisper(3).await.contains("already has its decision"));
    assert_eq!(site.starts(&run).await, 1);
    // Two channels of one app share a connection; Bolt had the other one.
    assert_eq!(slack.state().await["sockets"], 2);
    for secret in [TOKEN, "ticket="] {
        assert!(!site.log().contains(secret), "{secret} is in the log");
        assert!(!site.has_stored(secret), "{secret} is in the database");
    }
}

/// T5: the server dies after a click came and before Slack heard that it did. Slack sends it again; it decides once, whenever it died.
#[tokio::test]
async fn t5_a_click_without_its_acknowledgement_comes_again_and_decides_once() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let mut site = Site::new(folder, &format!("[{}]", socket_channel(&slack, TOKEN, "")), TASK);
    slack.until_connected(1).await;
    let (first, _) = site.held().await;
    let approve = button(&slack.message(0, |_| true).await, "standfast_approve");
    link_alice(&site, &slack, &click_payload(TEAM, "U0ALICE", &approve, "1.1"), 0).await;
    // At once: nobody knows how far it came.
    let alices = click_payload(TEAM, "U0ALICE", &approve, "1.2");
    let envelope = slack.hand(&alices).await;
    site.again();
    slack.until_connected(2).await;
    slack.until_acknowledged(&envelope).await;
    site.until_status(&first, "completed").await;
    assert_eq!(site.starts(&first).await, 1);
    // After it was decided.
    let (second, _) = site.held().await;
    let is_second = |state: &Value| {
        let all = state["messages"].as_array()?;
        all.iter().find(|one| buttons(one).iter().any(|one| one["action_id"] == "standfast_approve")).cloned()
    };
    let message = slack.until("the message of the second", is_second).await;
    let deaf = site.folder.path().join("deaf");
    std::fs::write(&deaf, "").unwrap();
    let deny = button(&message, "standfast_deny");
    let envelope = slack.hand(&click_payload(TEAM, "U0ALICE", &deny, "1.3")).await;
    site.until_status(&second, "completed").await;
    slack.until_acknowledged(&envelope).await;
    site.again();
    let twice = |state: &Value| {
        let all = state["acknowledged"].as_array()?.iter().filter(|one| one["envelope_id"] == envelope);
        (all.count() >= 2).then_some(())
    };
    slack.until("the same click is acknowledged again", twice).await;
    assert_eq!(site.starts(&second).await, 0);
    let events = site.root.get(&format!("/api/v1/runs/{second}/events")).await.text;
    assert_eq!(events.matches("hold.resolved").count(), 1, "{events}");
}

/// When Slack asks for another connection it gets one, and clicks are decided there; when Socket Mode was switched off, the log says so.
#[tokio::test]
async fn a_socket_is_opened_again_when_slack_says_so() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &format!("[{}]", socket_channel(&slack, TOKEN, "")), TASK);
    slack.until_connected(1).await;
    let (run, _) = site.held().await;
    let approve = button(&slack.message(0, |_| true).await, "standfast_approve");
    for (count, reason) in [(2, "warning"), (3, "refresh_requested")] {
        let said = json!({"type": "disconnect", "reason": reason, "debug_info": {"host": "wss-1"}});
        slack.control("frame", &said).await;
        slack.until_connected(count).await;
    }
    link_alice(&site, &slack, &click_payload(TEAM, "U0ALICE", &approve, "1.1"), 0).await;
    slack.hand(&click_payload(TEAM, "U0ALICE", &approve, "1.2")).await;
    site.until_status(&run, "completed").await;
    slack.control("frame", &json!({"type": "disconnect", "reason": "link_disabled"})).await;
    until_found("the log says what to do", async || {
        site.log().contains("Socket Mode is off for this app").then_some(())
    })
    .await;
}

/// A token that Slack does not know is a line in the log that says what to do, and so is what the doctor finds; messages are posted all
/// the same.
#[tokio::test]
async fn a_wrong_token_is_named_by_log_and_doctor() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &format!("[{}]", socket_channel(&slack, "xapp-canary-wrong", "")), TASK);
    until_found("the log says what to do", async || {
        let log = site.log();
        let is_named = log.contains("Slack answered invalid_auth")
            && log.contains("create an app-level token with the scope connections:write");
        is_named.then_some(())
    })
    .await;
    site.held().await;
    slack.message(0, |_| true).await;
    assert!(!site.log().contains("canary-wrong"));
    let wrong = doctors(&site);
    assert!(
        wrong.contains("channel slack: Slack answered invalid_auth; create an app-level token"),
        "{wrong}"
    );
    let config = site.folder.path().join("standfast.yaml");
    let repaired = std::fs::read_to_string(&config).unwrap().replace("xapp-canary-wrong", TOKEN);
    std::fs::write(&config, repaired).unwrap();
    assert!(doctors(&site).contains("channel slack: Slack opens a socket"));
    // The running server takes the new file, too.
    slack.until_connected(1).await;
}

/// What the doctor says of a site.
fn doctors(site: &Site) -> String {
    let mut command = standfast();
    command.args(["doctor", "--config"]).arg(site.folder.path().join("standfast.yaml"));
    command.arg("--data").arg(site.folder.path().join("data"));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}
