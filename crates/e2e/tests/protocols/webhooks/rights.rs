//! A subscription is worth what its owner's rights are worth: they are looked at again for each delivery.
//!
//! What ends them: a key that is revoked, and being taken off the list of approvers. Owner and administrators see why.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::text;
use super::who::{Site, site};
use standfast_testkit::receiver::{Mood, Receiver};

impl Site {
    fn keys(&self, arguments: &[&str]) -> String {
        let mut command = standfast_testkit::standfast();
        command.arg("keys").args(arguments).arg("--config").arg(self.folder.path().join("standfast.yaml"));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    fn revoke(&self, key: &str) {
        self.keys(&["revoke", key.split('_').nth(1).unwrap()]);
    }

    /// Waits until a subscription is disabled; as somebody sees it then.
    async fn disabled(&self, key: &str, id: &str) -> Value {
        for _ in 0..1200 {
            let (status, shown, _) = self.ask(key, "GET", &format!("/subscriptions/{id}"), None).await;
            assert_eq!(status, 200, "{shown}");
            if shown["state"] == "disabled" {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{id} is never disabled");
    }

    async fn cancel(&self, key: &str, run: &str) {
        let canceled = self.ask(key, "POST", &format!("/runs/{run}/cancel"), Some(json!({}))).await;
        assert_eq!(canceled.0, 200, "{canceled:?}");
    }
}

/// After a key is revoked nothing more is delivered to what was subscribed with it: not to broad subscriptions, not to
/// those of a run, not to receivers of A2A push notifications. The reason is there for the owner, by another key of theirs,
/// and for administrators. Enabled again with that key it goes on, from where it stopped on demand.
#[tokio::test]
async fn a_revoked_key_hears_no_more() {
    let site = site();
    let [broad, single, push] = [
        Receiver::new(Mood::Takes).await,
        Receiver::new(Mood::Takes).await,
        Receiver::new(Mood::Takes).await,
    ];
    let (lost, kept) = (site.keys(&["create", "--user", "bob"]), site.bob.clone());
    let (run, _) = site.held().await;
    let mut ids = Vec::new();
    for (receiver, more) in [(&broad, json!({"agent": "ops"})), (&single, json!({"run": run}))] {
        let (status, made, _) = site.subscribe(&lost, receiver, more).await;
        assert_eq!(status, 201, "{made}");
        ids.push(text(&made["id"]));
    }
    let config = json!({"taskId": run, "url": push.url()});
    let url = format!("{}/v1/agents/ops/tasks/{run}/pushNotificationConfigs", site.server.program.base);
    let request = site.server.http.client.post(url).bearer_auth(&lost).header("a2a-version", "1.0");
    let made =
        request.header("content-type", "application/json").body(config.to_string()).send().await.unwrap();
    assert!(made.status().is_success(), "{}", made.text().await.unwrap());
    let (before, _) = site.held().await;
    broad
        .until("the run before", |got| got.iter().any(|one| one.body()["data"]["run"]["id"] == json!(before)))
        .await;
    site.revoke(&lost);
    let (known, pushed) = (single.all().len(), push.all().len());
    site.cancel(&site.ann, &run).await;
    for id in &ids {
        for key in [&kept, &site.admin] {
            let shown = site.disabled(key, id).await;
            assert!(shown.to_string().contains("was revoked"), "{shown}");
        }
    }
    // Something later was told to somebody else, so these would have been told by now.
    let witness = Receiver::new(Mood::Takes).await;
    assert_eq!(site.subscribe(&site.admin, &witness, json!({})).await.0, 201);
    let (later, _) = site.held().await;
    site.cancel(&site.ann, &later).await;
    witness.whole_story(&later).await;
    assert_eq!((single.all().len(), push.all().len()), (known, pushed), "told after its key was revoked");
    let ended = |got: &standfast_testkit::receiver::Got| got.kind() == "run.ended";
    assert!(!broad.all().iter().any(ended), "told after its key was revoked");
    // An administrator cannot make it speak for somebody who has no rights; its owner can, with another key.
    let enable = format!("/subscriptions/{}/enable", ids[0]);
    let refused = site.ask(&site.admin, "POST", &enable, None).await;
    assert!(refused.0 == 422 || refused.0 == 400, "{refused:?}");
    assert_eq!(site.ask(&kept, "POST", &enable, None).await.0, 200);
    let (last, _) = site.held().await;
    site.cancel(&site.ann, &last).await;
    broad
        .until("what comes after", |got| got.iter().any(|one| one.body()["data"]["run"]["id"] == json!(last)))
        .await;
}

/// Whoever is taken off the list of approvers hears no more of what they subscribed as one, although their key is valid.
#[tokio::test]
async fn whoever_is_no_approver_any_more_hears_no_more() {
    let site = site();
    let [broad, single] = [Receiver::new(Mood::Takes).await, Receiver::new(Mood::Takes).await];
    let (run, _) = site.held().await;
    let mut ids = Vec::new();
    for (receiver, more) in [(&broad, json!({"agent": "ops"})), (&single, json!({"run": run}))] {
        let (status, made, _) = site.subscribe(&site.bob, receiver, more).await;
        assert_eq!(status, 201, "{made}");
        ids.push(text(&made["id"]));
    }
    let config = site.folder.path().join("standfast.yaml");
    let file = std::fs::read_to_string(&config)
        .unwrap()
        .replace("approvers: ['user:bob']", "approvers: ['user:zoe']");
    std::fs::write(&config, file).unwrap();
    let id = site.server.program.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    for _ in 0..1200 {
        if site.ask(&site.bob, "GET", &format!("/runs/{run}"), None).await.0 == 404 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let known = (broad.all().len(), single.all().len());
    site.cancel(&site.ann, &run).await;
    for id in &ids {
        let shown = site.disabled(&site.bob, id).await;
        assert!(shown.to_string().contains("no longer"), "{shown}");
    }
    assert_eq!((broad.all().len(), single.all().len()), known);
}
