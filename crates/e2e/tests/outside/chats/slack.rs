//! From a message in Slack to a decision: who counts, who does not, and what everybody sees afterwards (T5, T8, T10, T13, T19, T29).

use serde_json::{Value, json};
use standfast_testkit::{Http, text};

use super::*;

async fn whispers(slack: &Service, count: usize) -> Vec<Value> {
    let find = |state: &Value| state["whispers"].as_array().filter(|all| all.len() >= count).cloned();
    slack.until(&format!("{count} whispers"), find).await
}

/// T5, T8, T10, T13: a hold opens and its message has the call whole. A stranger's click decides nothing and leads to our page; so do clicks
/// of another workspace, of somebody who is not asked, forged ones and late ones. Whoever linked their account by a sign-in decides with a
/// click that Slack's own package signed and Bolt takes; the message says so; the same request again decides nothing.
#[tokio::test]
async fn t13_a_click_decides_for_whoever_linked_their_account_and_for_nobody_else() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &slack_channel(&slack, ", decide_in_chat: always"), TASK);
    let base = site.base.clone();
    let (run, hold) = site.held().await;
    let message = slack.message(0, |_| true).await;
    assert_eq!((&message["channel"], &message["changes"]), (&json!("C0APPROVALS"), &json!(0)), "{message}");
    let shown = message.to_string();
    assert!(shown.contains("echo <!channel> canary-argument"), "byte for byte: {shown}");
    assert!(text(&message["text"]).starts_with("Approve execute_command?"), "{message}");
    let approve = button(&message, "standfast_approve");
    assert!(text(&approve["value"]).contains(&hold), "{approve}");
    // A stranger: heard by Bolt just the same, and told where to say who they are.
    let at = now().to_string();
    let strangers = click(TEAM, "U0STRANGER", &approve, "1.1");
    let signature = signed(SECRET, &at, &strangers);
    let names = json!(["standfast_approve", "standfast_deny"]);
    let bolt = judged(
        &json!({"what": "click", "secret": SECRET, "at": at, "body": strangers, "signature": signature, "actions": names}),
    );
    assert_eq!(bolt["status"], 200, "{bolt}");
    assert_eq!(bolt["heard"][0]["value"], approve["value"], "{bolt}");
    assert_eq!(send_click(&base, &strangers, &at, &signature).await.status, 200);
    let told = whispers(&slack, 1).await[0].clone();
    assert_eq!((&told["user"], &told["channel"]), (&json!("U0STRANGER"), &json!("C0APPROVALS")));
    assert!(text(&told["text"]).contains("not linked to anybody"), "{told}");
    assert_eq!(site.status(&run).await, "held");
    // Another workspace, in a shared channel.
    assert_eq!(send_signed(&base, &click("T0FOREIGN", "U0ALICE", &approve, "1.2")).await.status, 200);
    let told = whispers(&slack, 2).await[1].clone();
    assert!(text(&told["text"]).contains("this workspace is not the one"), "{told}");
    // Forged, late, and with no signature at all.
    let alices = click(TEAM, "U0ALICE", &approve, "1.3");
    let early = (now() - 301).to_string();
    for (at, secret) in [(&at, "another secret of somebody"), (&early, SECRET)] {
        assert_eq!(send_click(&base, &alices, at, &signed(secret, at, &alices)).await.status, 401);
    }
    assert_eq!(Http::new(&base).send("POST", "/chat/slack/slack", &[FORM], &alices).await.status, 401);
    assert_eq!(Http::new(&base).send("POST", "/chat/slack/other", &[FORM], &alices).await.status, 404);
    // Alice is told where to say that the account is hers; looking at that page changes nothing.
    assert_eq!(send_signed(&base, &alices).await.status, 200);
    let page = address_in(text(&whispers(&slack, 3).await[2]["text"]));
    let nobody = Http::new(&base).send("GET", &page, &[HTML], "").await;
    assert!(nobody.status == 401 && !nobody.text.contains("U0ALICE"), "{}", nobody.text);
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let shown = alice.send("GET", &page, &[HTML], "").await;
    assert!(shown.text.contains("U0ALICE") && shown.text.contains(TEAM), "{}", shown.text);
    assert_eq!(alice.send("POST", &page, &[FORM, HTML], "csrf=x").await.status, 403);
    assert_eq!(alice.send("GET", &page.replace("U", "V"), &[HTML], "").await.status, 404);
    assert_eq!(site.http(&["--user", "carol"]).send("GET", &page, &[HTML], "").await.status, 403);
    assert_eq!(link(&alice, &page).await.status, 200);
    let bob = site.http(&["--user", "bob"]);
    assert_eq!(link(&bob, &page).await.status, 409, "it is Alice's");
    // Bob links his own account, and is not asked all the same.
    let bobs = click(TEAM, "U0BOB", &approve, "1.4");
    assert_eq!(send_signed(&base, &bobs).await.status, 200);
    let page = address_in(text(&whispers(&slack, 4).await[3]["text"]));
    assert_eq!(link(&bob, &page).await.status, 200);
    assert_eq!(send_signed(&base, &bobs).await.status, 200);
    let told = whispers(&slack, 5).await[4].clone();
    assert!(text(&told["text"]).contains("You are not asked about this (bob)"), "{told}");
    assert_eq!((site.status(&run).await.as_str(), site.starts(&run).await), ("held", 0));
    // Alice.
    let at = now().to_string();
    let signature = signed(SECRET, &at, &alices);
    assert_eq!(send_click(&base, &alices, &at, &signature).await.status, 200);
    site.until_status(&run, "completed").await;
    let message = slack.message(0, |one| one["changes"] == 1).await;
    assert!(message.to_string().contains("Approved by alice"), "{message}");
    assert!(buttons(&message).iter().all(|one| one["action_id"] == "standfast_open"), "{message}");
    // The same request again, and another click.
    for body in [&alices, &click(TEAM, "U0ALICE", &approve, "1.5")] {
        assert_eq!(send_signed(&base, body).await.status, 200);
    }
    let told = whispers(&slack, 7).await;
    assert!(told[5..].iter().all(|one| text(&one["text"]).contains("already has its decision")), "{told:?}");
    assert_eq!(site.starts(&run).await, 1);
    let state = slack.state().await;
    assert_eq!(state["messages"].as_array().unwrap().len(), 1, "{state}");
    for kind in ["chat.linked", "chat.refused", "chat.decided"] {
        assert!(site.has_stored(kind), "{kind}");
    }
    // Accounts are listed, and end with their row.
    let listed = site.root.get("/api/v1/subscriptions?limit=100").await;
    let all = listed.body["subscriptions"].as_array().unwrap().clone();
    let account = all.iter().find(|one| text(&one["url"]) == format!("slack:{TEAM}/U0ALICE")).unwrap();
    let deleted =
        alice.send("DELETE", &format!("/api/v1/subscriptions/{}", text(&account["id"])), &[], "").await;
    assert!((200..300).contains(&deleted.status), "{deleted:?}");
    let (second, _) = site.held().await;
    let message = slack.message(1, |_| true).await;
    let again = click(TEAM, "U0ALICE", &button(&message, "standfast_approve"), "1.6");
    assert_eq!(send_signed(&base, &again).await.status, 200);
    let told = whispers(&slack, 8).await[7].clone();
    assert!(text(&told["text"]).contains("not linked to anybody"), "{told}");
    assert_eq!(site.status(&second).await, "held");
    for secret in ["xoxb-canary-token", SECRET] {
        assert!(!site.log().contains(secret), "it is in the log");
        assert!(!site.has_stored(secret), "it is in the database");
    }
}

/// T5: the same signed click again, here and after `kill -9`, decides nothing more: not the hold that has its decision, and not the call
/// that is asked about since.
#[tokio::test]
async fn t5_a_click_that_comes_again_after_a_crash_decides_nothing_more() {
    let call = |what: &str| {
        format!("- calls:\n  - tool: execute_command\n    arguments: '{{\"command\": \"echo {what}\"}}'\n")
    };
    let folder = Site::folder(&format!("replies:\n{}{}- text: done\n", call("one"), call("two")));
    let slack = Service::start("slack.py", folder.path());
    let mut site = Site::new(folder, &slack_channel(&slack, ", decide_in_chat: always"), TASK);
    let (run, _) = site.held().await;
    let approve =
        click(TEAM, "U0ALICE", &button(&slack.message(0, |_| true).await, "standfast_approve"), "1.1");
    assert_eq!(send_signed(&site.base, &approve).await.status, 200);
    let page = address_in(text(&whispers(&slack, 1).await[0]["text"]));
    assert_eq!(link(&site.http(&["--user", "alice", "--group", "ops"]), &page).await.status, 200);
    assert_eq!(send_signed(&site.base, &approve).await.status, 200);
    let second = slack.message(1, |_| true).await;
    assert!(second.to_string().contains("echo two"), "{second}");
    for (again, when) in ["here", "after a crash", "after another one"].into_iter().enumerate() {
        if again > 0 {
            site.again();
        }
        assert_eq!(send_signed(&site.base, &approve).await.status, 200, "{when}");
        let told = whispers(&slack, 2 + again).await[1 + again].clone();
        assert!(text(&told["text"]).contains("already has its decision"), "{when}: {told}");
        assert_eq!((site.status(&run).await.as_str(), site.starts(&run).await), ("held", 1), "{when}");
    }
    let now = button(&second, "standfast_approve");
    assert_eq!(send_signed(&site.base, &click(TEAM, "U0ALICE", &now, "1.2")).await.status, 200);
    site.until_status(&run, "completed").await;
    assert_eq!(site.starts(&run).await, 2);
}

/// T2, T19: what has no risk class, or is too long, has no button; what was edited since is not decided by an older button, and the message
/// shows what is asked now.
#[tokio::test]
async fn t19_a_message_shows_all_of_it_or_has_no_button() {
    // Nobody has classed this command: `echo` would be known to change nothing.
    let folder = Site::folder(&SCRIPT.replace("echo <!channel> canary-argument", "touch canary-argument"));
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &slack_channel(&slack, ""), TASK);
    site.held().await;
    let message = slack.message(0, |_| true).await;
    assert!(message.to_string().contains("canary-argument"), "{message}");
    assert!(buttons(&message).iter().all(|one| one["action_id"] == "standfast_open"), "{message}");
    drop((site, slack));
    // Too long.
    let long = "x".repeat(5_000);
    let script = format!(
        "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{{\"command\": \"echo {long}\"}}'\n- text: done\n"
    );
    let folder = Site::folder(&script);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &slack_channel(&slack, ", decide_in_chat: always"), TASK);
    site.held().await;
    let message = slack.message(0, |_| true).await;
    assert!(!message.to_string().contains("xxxxx"), "{message}");
    assert!(message.to_string().contains("too long for a message"), "{message}");
    assert!(buttons(&message).iter().all(|one| one["action_id"] == "standfast_open"), "{message}");
    drop((site, slack));
    // Edited.
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &slack_channel(&slack, ", decide_in_chat: always"), TASK);
    let (run, hold) = site.held().await;
    let alice = site.http(&["--user", "alice", "--group", "ops"]);
    let before = slack.message(0, |_| true).await;
    let old = click(TEAM, "U0ALICE", &button(&before, "standfast_approve"), "1.1");
    assert_eq!(send_signed(&site.base, &old).await.status, 200);
    let page = address_in(text(&whispers(&slack, 1).await[0]["text"]));
    assert_eq!(link(&alice, &page).await.status, 200);
    let shown = alice.get(&format!("/api/v1/holds/{hold}")).await.body;
    let edit = json!({
        "arguments": {"command": "echo edited"},
        "digest": shown["digest"],
        "revision": shown["revision"],
    });
    let edited = alice.post(&format!("/api/v1/holds/{hold}/edit"), &edit).await;
    assert!((200..300).contains(&edited.status), "{edited:?}");
    let after = slack.message(0, |one| one["changes"] == 1).await;
    assert!(after.to_string().contains("echo edited") && !after.to_string().contains("canary"), "{after}");
    assert_eq!(send_signed(&site.base, &old).await.status, 200);
    let told = whispers(&slack, 2).await[1].clone();
    assert!(text(&told["text"]).contains("has changed since this message"), "{told}");
    assert_eq!(site.status(&run).await, "held");
    let new = click(TEAM, "U0ALICE", &button(&after, "standfast_deny"), "1.2");
    assert_eq!(send_signed(&site.base, &new).await.status, 200);
    let decided = slack.message(0, |one| one["changes"] == 2).await;
    assert!(decided.to_string().contains("Denied by alice"), "{decided}");
    assert_eq!(site.starts(&run).await, 0);
}
