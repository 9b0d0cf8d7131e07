//! From a message in Discord to a decision, signed as Discord signs and judged by its own package (T5, T10, T13, T20).

use serde_json::{Value, json};
use standfast_testkit::{Http, text};

use super::*;

const GUILD: &str = "5550001";

fn discord_click(guild: &str, user: &str, button: &Value, id: &str) -> String {
    json!({
        "type": 3,
        "id": id,
        "application_id": "9990001",
        "guild_id": guild,
        "channel_id": "7770001",
        "member": {"user": {"id": user, "username": "alice"}},
        "message": {"id": "1000"},
        "data": {"custom_id": button["custom_id"], "component_type": 2},
    })
    .to_string()
}

/// An application of Discord, with its key.
struct Application {
    key: String,
    seed: Value,
}

impl Application {
    fn new() -> Application {
        let made = judged(&json!({"what": "discord", "bodies": ["{}"], "at": "1"}));
        Application { key: text(&made["key"]).to_owned(), seed: made["seed"].clone() }
    }

    /// Sends an interaction as Discord does, once Discord's own package took it.
    async fn send(&self, base: &str, body: &str) -> Value {
        let at = now().to_string();
        let made = judged(&json!({"what": "discord", "bodies": [body], "at": at, "seed": self.seed}));
        assert_eq!(made["signed"][0]["is_taken"], true, "{made}");
        let signature = text(&made["signed"][0]["signature"]);
        let headers = [("x-signature-timestamp", at.as_str()), ("x-signature-ed25519", signature)];
        let answer = Http::new(base).send("POST", "/chat/discord/discord", &headers, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }
}

fn component(message: &Value, label: &str) -> Value {
    let all = message["components"][0]["components"].as_array().unwrap();
    all.iter().find(|one| one["label"] == label).unwrap_or_else(|| panic!("{message}")).clone()
}

/// T5, T10, T13: the message has the call whole, in a block of code; a stranger's click, one from another server and one again decide
/// nothing, and only whoever clicked is told so; whoever linked their account decides, and the message says what was decided.
#[tokio::test]
async fn t13_a_click_in_discord_decides_for_whoever_linked_their_account() {
    let application = Application::new();
    let folder = Site::folder(SCRIPT);
    let discord = Service::start("discord.py", folder.path());
    let channel = format!(
        "[{{type: discord, room: '7770001', token: canary-token, public_key: '{}', team: '{GUILD}', api_url: '{}', decide_in_chat: always}}]",
        application.key,
        discord.api()
    );
    let site = Site::new(folder, &channel, TASK);
    let (run, _) = site.held().await;
    let message = discord.message(0, |_| true).await;
    let description = text(&message["embeds"][0]["description"]).to_owned();
    assert!(
        description.contains("```\n{\"command\": \"echo <!channel> canary-argument\"}\n```"),
        "{message}"
    );
    let approve = component(&message, "Approve");
    assert_eq!(application.send(&site.base, "{\"type\":1}").await, json!({"type": 1}));
    let told = application.send(&site.base, &discord_click(GUILD, "666", &approve, "1")).await;
    assert_eq!((&told["type"], &told["data"]["flags"]), (&json!(4), &json!(64)), "{told}");
    assert!(text(&told["data"]["content"]).contains("not linked to anybody"), "{told}");
    let told = application.send(&site.base, &discord_click("1", "111", &approve, "2")).await;
    assert!(text(&told["data"]["content"]).contains("not the server"), "{told}");
    let told = application.send(&site.base, &discord_click(GUILD, "111", &approve, "3")).await;
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let page = address_in(text(&told["data"]["content"]));
    assert_eq!(link(&alice, &page).await.status, 200);
    assert_eq!((site.status(&run).await.as_str(), site.starts(&run).await), ("held", 0));
    let click = discord_click(GUILD, "111", &approve, "4");
    assert_eq!(application.send(&site.base, &click).await, json!({"type": 6}));
    site.until_status(&run, "completed").await;
    let message = discord.message(0, |one| one["changes"] == 1).await;
    assert!(message.to_string().contains("Approved by alice"), "{message}");
    assert_eq!(message["components"][0]["components"].as_array().unwrap().len(), 1, "{message}");
    let told = application.send(&site.base, &click).await;
    assert!(text(&told["data"]["content"]).contains("already has its decision"), "{told}");
    assert_eq!(site.starts(&run).await, 1);
    assert!(!site.log().contains("canary-token") && !site.has_stored("canary-token"));
}

/// T19, T20: what would end the block of code is not shown, and has no button.
#[tokio::test]
async fn t20_what_would_end_the_quotation_has_no_button() {
    let script = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo ``` **hidden** @everyone\"}'\n- text: done\n";
    let folder = Site::folder(script);
    let discord = Service::start("discord.py", folder.path());
    let channel = format!(
        "[{{type: discord, room: '7770001', token: canary-token, public_key: '{}', team: '{GUILD}', api_url: '{}', decide_in_chat: always}}]",
        Application::new().key,
        discord.api()
    );
    let site = Site::new(folder, &channel, TASK);
    site.held().await;
    let message = discord.message(0, |_| true).await;
    assert!(!message.to_string().contains("hidden"), "{message}");
    assert_eq!(message["components"][0]["components"].as_array().unwrap().len(), 1, "{message}");
}
