//! The page docs/chat.md as its reader follows it: its configuration, and the three steps by which an account becomes somebody's.

use standfast_testkit::{standfast, text};

use super::*;
use crate::pages::{block, page, table, with};

/// What the page leaves to its reader: an agent, and the class of risk of what it does.
const REST: &str = "tools: {execute_command: {sandbox: off}}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
policy: {rules: [{id: small, hold: execute_command, risk: low}]}
agents: {ops: {llm: script, session_store: db, approvers: ['group:ops'], tools: [execute_command], task: {input_timeout: 2h}}}
";

/// The room of the page has buttons for what is of low risk. A click of an account that is nobody's decides nothing; whoever signed in and
/// confirmed it decides with the next one, and the account is listed as the page shows.
#[tokio::test]
async fn the_page_of_chats_lets_whoever_linked_an_account_decide() {
    let page = page("chat.md");
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let port = free_port();
    let room = format!("room: C0APPROVALS\n  api_url: {}", slack.api());
    let printed = with(
        block(&page, "yaml", 0),
        &[
            ("room: C0123456789", &room),
            ("T0123456789", TEAM),
            ("https://approve.example.com", &format!("http://127.0.0.1:{port}")),
        ],
    );
    let secrets = format!("SLACK_BOT_TOKEN=xoxb-canary-token\nSLACK_SIGNING_SECRET={SECRET}\n");
    std::fs::write(folder.path().join(".env"), secrets).unwrap();
    let site = Site::configured(folder, port, &format!("{printed}\n{REST}"));
    let (run, _) = site.held().await;
    let message = slack.message(0, |_| true).await;
    let slack_row = table(&page, "# Slack, Discord, Teams, ntfy").remove(0);
    let labels: Vec<String> =
        buttons(&message).iter().map(|one| text(&one["text"]["text"]).to_owned()).collect();
    assert_eq!(labels.join(", "), slack_row[2], "{message}");

    let clicked = click(TEAM, "U0ALICE", &button(&message, "standfast_approve"), "1.1");
    assert_eq!(send_signed(&site.base, &clicked).await.status, 200);
    let whispered = slack.until("a whisper", |state| state["whispers"].get(0).cloned()).await;
    assert_eq!(site.status(&run).await, "held");
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    assert_eq!(link(&alice, &address_in(text(&whispered["text"]))).await.status, 200);
    assert_eq!(site.status(&run).await, "held", "the page decides nothing");
    assert_eq!(send_signed(&site.base, &clicked).await.status, 200);
    site.until_status(&run, "completed").await;
    assert_eq!(site.starts(&run).await, 1);

    let listed = site.root.get("/api/v1/subscriptions?limit=100").await;
    assert!(page.contains("`slack:T…/U…`"));
    assert!(listed.text.contains(&format!("slack:{TEAM}/U0ALICE")), "{}", listed.text);
}

/// Each class of risk that the page names is one that `decide_in_chat` takes, and each type of its first table is one of a channel.
#[test]
fn the_words_of_the_page_of_chats_are_those_of_the_file() {
    let page = page("chat.md");
    let (_, rest) =
        page.split_once("`decide_in_chat` says which risk classes are decided in the room: ").unwrap();
    let classes = crate::pages::quoted(rest.split(". ").next().unwrap());
    assert_eq!(classes, ["never", "low", "medium", "high", "always"]);
    let printed = block(&page, "yaml", 0);
    for class in classes {
        let changed = with(printed, &[("decide_in_chat: low", &format!("decide_in_chat: {class}"))]);
        let folder = standfast_testkit::folder(&[("script", SCRIPT)], &format!("{changed}\n{REST}"));
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        let secrets = format!("SLACK_BOT_TOKEN=x\nSLACK_SIGNING_SECRET={SECRET}\n");
        std::fs::write(folder.path().join(".env"), secrets).unwrap();
        let checked = standfast().arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
        assert!(checked.status.success(), "{class}: {}", String::from_utf8_lossy(&checked.stdout));
    }
    let types: Vec<String> =
        table(&page, "# Slack, Discord, Teams, ntfy").iter().map(|row| row[0].replace('`', "")).collect();
    assert_eq!(types, ["slack", "discord", "teams", "ntfy", "webhook"]);
}
