//! What each kind of room is told of a hold from its opening to its end, whoever or whatever ends it.

use std::collections::BTreeMap;

use standfast_testkit::receiver::{Mood, Receiver};

use super::*;

/// Every kind of room, and what was said in each.
struct Rooms {
    slack: Service,
    discord: Service,
    told: BTreeMap<&'static str, Receiver>,
}

impl Rooms {
    async fn start(folder: &Path) -> Rooms {
        let mut told = BTreeMap::new();
        for kind in ["teams", "ntfy", "text", "json"] {
            told.insert(kind, Receiver::new(Mood::Takes).await);
        }
        let (slack, discord) = (Service::start("slack.py", folder), Service::start("discord.py", folder));
        Rooms { slack, discord, told }
    }

    fn channels(&self) -> String {
        let port = |kind: &str| self.told[kind].port;
        format!(
            "
- {{type: slack, room: C0APPROVALS, token: xoxb-canary-token, api_url: '{}'}}
- {{type: discord, room: '7770001', token: canary-token, api_url: '{}'}}
- {{type: teams, url: 'http://127.0.0.1:{}/x'}}
- {{type: ntfy, room: approvals, api_url: 'http://127.0.0.1:{}', text: '{{title}} {{news}} {{reason}}'}}
- {{type: webhook, name: text, url: 'http://127.0.0.1:{}/x', text: '{{title}} {{news}} {{reason}}'}}
- {{type: webhook, name: json, url: 'http://127.0.0.1:{}/x', format: json}}
",
            self.slack.api(),
            self.discord.api(),
            port("teams"),
            port("ntfy"),
            port("text"),
            port("json")
        )
    }

    /// Each room has said this in a message of its own.
    async fn until_told(&self, what: &str) {
        for service in [&self.slack, &self.discord] {
            let is_said = |state: &Value| {
                let all = state["messages"].as_array()?;
                all.iter().find(|one| one.to_string().contains(what)).map(drop)
            };
            service.until(&format!("{what:?} is said"), is_said).await;
        }
        for (kind, receiver) in &self.told {
            receiver
                .until(&format!("{kind} hears {what:?}"), |all| all.iter().any(|one| one.text.contains(what)))
                .await;
        }
    }

    /// The message about a hold in Slack and in Discord says this.
    async fn until_changed(&self, hold: &str, what: &str) {
        for service in [&self.slack, &self.discord] {
            let is_so = |state: &Value| {
                let all = state["messages"].as_array()?;
                let is_its = |one: &&Value| {
                    let one = one.to_string();
                    one.contains(&format!("/approve/{hold}")) && one.contains(what)
                };
                all.iter().find(is_its).map(drop)
            };
            service.until(&format!("the message of {hold} says {what:?}"), is_so).await;
        }
    }
}

/// Whether this is said, whatever is escaped how.
fn says(text: &str, what: &str) -> bool {
    let letters = |text: &str| {
        let plain = ["&lt;", "&gt;", "&amp;", "&quot;", "&#x27;", "&#x2f;"].iter();
        let plain = plain.fold(text.to_owned(), |text, entity| text.replace(entity, ""));
        plain.chars().filter(|c| c.is_alphanumeric()).collect::<String>()
    };
    letters(text).contains(&letters(what))
}

async fn started(site: &Site) -> (String, String) {
    let run =
        site.root.post("/api/v1/agents/ops/runs", &json!({"input": "please", "wait": "settled"})).await.body;
    (text(&run["id"]).to_owned(), text(&run["holds"][0]["id"]).to_owned())
}

/// A hold opens, is reminded of, escalates, nears its end and ends by itself: every room is told of each, the messages of Slack and Discord
/// say who may decide now, and how it ended. All say why it is held, in the words of its page.
#[tokio::test]
async fn every_room_is_told_from_the_opening_to_the_end() {
    let folder = Site::folder(&SCRIPT.replace("echo <!channel> canary-argument", "touch canary"));
    let rooms = Rooms::start(folder.path()).await;
    let task = "{input_timeout: 9s, hitl: {remind_after: 2s, remind_before: 1s, escalate_after: 3s, escalate_to: ['user:bob'], on_timeout: deny}}";
    let site = Site::new(folder, &rooms.channels(), task);
    let (run, hold) = started(&site).await;
    rooms.until_told("Your decision is needed.").await;
    let page = site.http(&["--user", "alice", "--group", "ops"]);
    let page = page.send("GET", &format!("/approve/{hold}"), &[HTML], "").await;
    let said = rooms.told["json"].all()[0].body();
    let reason = text(&said["reason"]).to_owned();
    assert!(!reason.is_empty() && says(&page.text, &reason), "{reason:?}: {}", page.text);
    for (kind, receiver) in &rooms.told {
        assert!(says(&receiver.all()[0].text, &reason), "{kind}: {reason:?}");
    }
    for service in [&rooms.slack, &rooms.discord] {
        let message = service.message(0, |_| true).await.to_string();
        assert!(says(&message, &reason), "{reason:?}: {message}");
    }
    rooms.until_told("This is still pending.").await;
    rooms.until_told("Nobody has decided this in time").await;
    rooms.until_changed(&hold, "bob").await;
    site.until_status(&run, "completed").await;
    rooms.until_told("nobody decided in time").await;
    rooms.until_changed(&hold, "nobody decided in time").await;
    assert_eq!(site.starts(&run).await, 0);
}

/// However a hold ends (approved, denied, withdrawn with its run), each room hears so, and the messages in
/// Slack and Discord have no button that decides any more.
#[tokio::test]
async fn every_room_hears_how_a_hold_ended() {
    let folder = Site::folder(SCRIPT);
    let rooms = Rooms::start(folder.path()).await;
    let site = Site::new(folder, &rooms.channels(), TASK);
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    for (resolution, says) in [("approve", "Approved by alice"), ("deny", "Denied by alice")] {
        let (_, hold) = started(&site).await;
        rooms.until_changed(&hold, "Your decision is needed.").await;
        let path = format!("/api/v1/holds/{hold}/resolve");
        let done = alice.post(&path, &json!({"resolution": resolution})).await;
        assert!((200..300).contains(&done.status), "{done:?}");
        rooms.until_told(says).await;
    }
    let (run, hold) = started(&site).await;
    rooms.until_changed(&hold, "Your decision is needed.").await;
    let canceled = site.root.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).await;
    assert!((200..300).contains(&canceled.status), "{canceled:?}");
    rooms.until_told("the run ended first").await;
    rooms.until_changed(&hold, "the run ended first").await;
}
