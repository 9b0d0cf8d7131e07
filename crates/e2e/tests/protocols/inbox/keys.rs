//! Who may do what with tasks, on a server with keys (C12, T15): senders, workers, strangers.

use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};

use crate::inbox::server::text;
use standfast_testkit::Process;

struct Guarded {
    program: Process,
    data: tempfile::TempDir,
    client: Client,
}

fn guarded() -> Guarded {
    let data = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--auth", "keys", "--data"]).arg(data.path());
    let client = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    Guarded { program: standfast_testkit::start(command.env("RUST_LOG", "warn")), data, client }
}

impl Guarded {
    fn key(&self, arguments: &[&str]) -> String {
        let mut command = standfast_testkit::standfast();
        let made =
            command.args(["keys", "create"]).args(arguments).arg("--data").arg(self.data.path()).output();
        String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned()
    }

    async fn post(&self, key: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/api/inboxes{path}", self.program.base);
        let answer = self.client.post(url).bearer_auth(key).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn get(&self, key: &str, path: &str) -> (u16, Value) {
        let url = format!("{}/api/inboxes{path}", self.program.base);
        let answer = self.client.get(url).bearer_auth(key).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

/// C12, T15, T16: a worker needs the scope for it and speaks for its own claims only; for strangers a task does not exist;
/// its sender answers it.
#[tokio::test]
async fn workers_have_a_scope_and_strangers_see_nothing() {
    let server = guarded();
    let ann = server.key(&["--user", "ann"]);
    let eve = server.key(&["--user", "eve"]);
    let usual = ["--scope", "runs:read", "--scope", "runs:write", "--scope", "inbox:work"];
    let bot = server.key(&[&["--user", "bot"][..], &usual].concat());
    let rival = server.key(&[&["--user", "rival"][..], &usual].concat());
    let (status, task) = server.post(&ann, "/support/tasks", &json!({"type": "t", "payload": 1})).await;
    assert_eq!(status, 201, "{task}");
    let path = format!("/support/tasks/{}", text(&task["id"]));
    let claim = json!({"agentId": "w"});
    for key in [&ann, &eve] {
        let (status, said) = server.post(key, "/support/claim", &claim).await;
        assert_eq!((status, &said["scope"]), (403, &json!("inbox:work")));
        assert_eq!(server.get(key, "").await.0, 403);
    }
    assert_eq!((server.get(&ann, &path).await.0, server.get(&eve, &path).await.0), (200, 404));
    assert_eq!(server.get(&eve, "/support/tasks").await.1["tasks"], json!([]));
    let (_, claimed) = server.post(&bot, "/support/claim", &claim).await;
    let claimed = &claimed["task"];
    assert_eq!(claimed["id"], task["id"]);
    let ask = json!({"claimId": claimed["claimId"], "reason": "which?"});
    for (key, expected) in [(&eve, 403), (&rival, 409), (&bot, 200)] {
        let (status, said) = server.post(key, &format!("{path}/suspend"), &ask).await;
        assert_eq!(status, expected, "{said}");
    }
    assert_eq!(server.get(&eve, "/support/tasks/waiting").await.1["tasks"], json!([]));
    assert_eq!(server.get(&ann, "/support/tasks/waiting").await.1["tasks"][0]["id"], task["id"]);
    let answer = json!({"payload": "this one"});
    for (key, expected) in [(&eve, 404), (&bot, 403), (&ann, 200)] {
        let (status, said) = server.post(key, &format!("{path}/resume"), &answer).await;
        assert_eq!(status, expected, "{said}");
    }
}

/// C12, S4-29: a key may be for some inboxes only: it lists, claims and reports there, and the others are not there for it.
#[tokio::test]
async fn a_key_works_in_its_own_inboxes_only() {
    let server = guarded();
    let ann = server.key(&["--user", "ann"]);
    let bot = server.key(&["--user", "bot", "--scope", "runs:read", "--inbox", "mail"]);
    let all = server.key(&["--user", "all", "--scope", "runs:read", "--scope", "inbox:work"]);
    for inbox in ["mail", "desk"] {
        let (status, _) =
            server.post(&ann, &format!("/{inbox}/tasks"), &json!({"type": "t", "payload": inbox})).await;
        assert_eq!(status, 201);
    }
    let listed = server.get(&bot, "").await.1;
    let names: Vec<&str> =
        listed["inboxes"].as_array().unwrap().iter().map(|one| text(&one["inboxId"])).collect();
    assert_eq!(names, ["mail"]);
    assert_eq!(server.get(&all, "").await.1["inboxes"].as_array().unwrap().len(), 2);
    let claim = json!({"agentId": "w"});
    let (status, _) = server.post(&bot, "/desk/claim", &claim).await;
    assert_eq!(status, 404, "it is not there");
    assert_eq!(server.get(&bot, "/desk/tasks").await.1["tasks"], json!([]));
    let (status, claimed) = server.post(&bot, "/mail/claim", &claim).await;
    assert_eq!((status, &claimed["task"]["payload"]), (200, &json!("mail")));
    let (_, other) = server.post(&all, "/desk/claim", &claim).await;
    let task = text(&other["task"]["id"]);
    assert_eq!(server.get(&bot, &format!("/desk/tasks/{task}")).await.0, 404);
    let stolen = json!({"claimId": other["task"]["claimId"], "result": 1});
    assert_eq!(server.post(&bot, &format!("/desk/tasks/{task}/complete"), &stolen).await.0, 404);
    let own = json!({"claimId": claimed["task"]["claimId"]});
    let path = format!("/mail/tasks/{}/start", text(&claimed["task"]["id"]));
    assert_eq!(server.post(&bot, &path, &own).await.1["status"], "in_progress");
}
