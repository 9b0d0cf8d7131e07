//! Who decides what, on every surface: role × relation × way of deciding, against one table (T12, T13, T15).
//!
//! One person, one run, one hold, asked in nine ways; what happened is looked up by an administrator, who decides nothing. That every route
//! hides what is another tenant's is `crates/e2e/tests/program/tenants.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{self, part};
use serde_json::{Value, json};
use standfast_testkit::damage::Draw;
use standfast_testkit::{Http, Process, text, until_found};
use tempfile::TempDir;

const SCRIPT: &str =
    "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: A}}]\n- text: done\n";

/// Three agents, each with people of its own who decide.
const CONFIG: &str = "session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
server: {auth: {api_keys: true}, a2a: {push_notifications: false}}
tools: {write_file: {requires_approval: true}}
agents:
  owned: {llm: s, tools: [write_file], session_store: db, inboxes: [owned], task: {}}
  listed: {llm: s, tools: [write_file], session_store: db, inboxes: [listed], approvers: ['user:ann', 'group:finance', 'role:lead'], task: {}}
  four: {llm: s, tools: [write_file], session_store: db, inboxes: [four], approvers: ['user:ann', 'group:finance', owner], self_approval: forbid, task: {}}
  nobody: {llm: s, tools: [write_file], session_store: db, inboxes: [nobody], approvers: [], task: {}}
";

const AGENTS: [&str; 4] = ["owned", "listed", "four", "nobody"];

/// A way to approve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Api,
    Rest,
    JsonRpc,
    Older,
    Grpc,
    Page,
    Review,
    Teal,
    Inbox,
}

const WAYS: [Way; 9] =
    [Way::Api, Way::Rest, Way::JsonRpc, Way::Older, Way::Grpc, Way::Page, Way::Review, Way::Teal, Way::Inbox];

/// Whoever tries: a name for the table, what their key is made with, and which agents' holds of olga's they decide.
const PEOPLE: [(&str, &[&str], &[&str]); 22] = [
    ("the owner, in finance", &["--user", "olga", "--group", "finance"], &["owned", "listed"]),
    ("the owner", &["--user", "olga"], &["owned"]),
    ("an approver by name", &["--user", "ann"], &["listed", "four"]),
    ("an approver by group", &["--user", "bob", "--group", "finance"], &["listed", "four"]),
    ("an approver by role", &["--user", "cid", "--role", "lead"], &["listed"]),
    ("somebody", &["--user", "dan"], &[]),
    ("somebody of a group that is called like a person", &["--user", "dan", "--group", "ann"], &[]),
    ("an administrator by role", &["--user", "rita", "--role", "admin"], &[]),
    ("an administrator by scope", &["--user", "root", "--scope", "admin"], &[]),
    ("an auditor", &["--user", "eve", "--role", "auditor"], &[]),
    ("an auditor who is an approver", &["--user", "ann", "--role", "auditor"], &[]),
    ("an operator who is an approver", &["--user", "ann", "--role", "operator"], &[]),
    (
        "an operator who is an administrator",
        &["--user", "ann", "--role", "operator", "--role", "admin", "--scope", "admin"],
        &[],
    ),
    (
        "an approver's key for one agent",
        &["--user", "ann", "--scope", "runs:read", "--scope", "runs:write", "--scope", "holds:decide:listed"],
        &["listed"],
    ),
    (
        "an approver's key for another agent",
        &["--user", "ann", "--scope", "runs:read", "--scope", "runs:write", "--scope", "holds:decide:owned"],
        &[],
    ),
    (
        "an approver's key that shows one agent",
        &["--user", "ann", "--scope", "runs:read:four", "--scope", "runs:write", "--scope", "holds:decide"],
        &["four"],
    ),
    ("a service", &["--user", "jobs", "--role", "service"], &[]),
    ("an approver's key for reading", &["--user", "ann", "--scope", "runs:read"], &[]),
    (
        "an approver's key for gates",
        &["--user", "ann", "--scope", "gates:open", "--scope", "holds:decide"],
        &[],
    ),
    ("an approver's key for inboxes", &["--user", "ann", "--scope", "inbox:work"], &[]),
    ("the approver of another tenant", &["--user", "ann", "--tenant", "acme"], &[]),
    ("the owner in another tenant", &["--user", "olga", "--group", "finance", "--tenant", "acme"], &[]),
];

const TOKEN: &str = "0000000000000000000000000000000000000000000000000000";

struct Site {
    folder: TempDir,
    server: Process,
    root: Http,
    olga: Http,
}

/// A hold, and how each surface names it.
#[derive(Debug, Clone)]
struct Pending {
    agent: &'static str,
    hold: String,
    run: String,
    /// Of the page: what its form has.
    digest: String,
    /// Of Teal Agents: the request; of inboxes: the task.
    named: String,
}

impl Site {
    fn new() -> Site {
        let folder = standfast_testkit::folder(&[("s", SCRIPT)], CONFIG);
        let server = standfast_testkit::serve(folder.path());
        let key = |arguments: &[&str]| made(&folder, arguments);
        let root = Http::new(&server.base).with_key(&key(&["--user", "auditing", "--role", "auditor"]));
        let olga = Http::new(&server.base).with_key(&key(&["--user", "olga"]));
        Site { folder, server, root, olga }
    }

    /// Something of olga's that waits, begun where this way can decide it.
    async fn pending(&self, agent: &'static str, way: Way) -> Pending {
        let (run, named) = match way {
            Way::Teal => {
                let said = json!({"items": [{"content_type": "text", "content": "please"}]});
                let asked = self.olga.post(&format!("/tealagents/v1alpha1/{agent}"), &said).await;
                (text(&asked.body["task_id"]).to_owned(), text(&asked.body["request_id"]).to_owned())
            }
            Way::Inbox => {
                let task = json!({"type": "t", "payload": 1});
                let added = self.olga.post(&format!("/api/inboxes/{agent}/tasks"), &task).await;
                assert_eq!(added.status, 201, "{added:?}");
                (String::new(), text(&added.body["id"]).to_owned())
            }
            Way::Api | Way::Rest | Way::JsonRpc | Way::Older | Way::Grpc | Way::Page | Way::Review => {
                let body = json!({"input": "please", "wait": "settled"});
                let run = self.olga.post(&format!("/api/v1/agents/{agent}/runs"), &body).await;
                (text(&run.body["id"]).to_owned(), String::new())
            }
        };
        let hold = until_found("it waits", async || {
            let listed = self.root.get("/api/v1/holds?limit=200").await;
            let holds = listed.body["holds"].as_array().cloned().unwrap_or_else(|| panic!("{listed:?}"));
            let is_it =
                |hold: &&Value| hold["agent"] == agent && (way == Way::Inbox || hold["run"] == run.as_str());
            holds.iter().find(is_it).map(|hold| (text(&hold["id"]).to_owned(), text(&hold["run"]).to_owned()))
        })
        .await;
        let shown = self.root.get(&format!("/api/v1/holds/{}", hold.0)).await;
        Pending { agent, digest: text(&shown.body["digest"]).to_owned(), hold: hold.0, run: hold.1, named }
    }

    /// Who is named as having approved it; none while it is open.
    async fn decided_by(&self, pending: &Pending) -> Option<String> {
        let shown = self.root.get(&format!("/api/v1/holds/{}", pending.hold)).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        match text(&shown.body["state"]) {
            "open" => None,
            other => Some(format!("{other}: {}", shown.body["resolution"])),
        }
    }

    /// Lets somebody approve this way; what they hear.
    async fn approves(&self, who: &Http, way: Way, pending: &Pending, id: &str) -> String {
        let Pending { agent, hold, run, digest, named } = pending;
        let data = json!({"decision": "approve", "hold_id": hold});
        let message = json!({"messageId": id, "role": "ROLE_USER", "taskId": run, "parts": [{"data": data}]});
        let form = [("content-type", "application/x-www-form-urlencoded"), ("accept", "text/html")];
        let cookie = format!("standfast_csrf={TOKEN}");
        let form = [form[0], form[1], ("cookie", cookie.as_str())];
        let answer = match way {
            Way::Api => {
                who.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve"})).await
            }
            Way::Rest => {
                let path = format!("/v1/agents/{agent}/message:send");
                who.send("POST", &path, &[("a2a-version", "1.0")], &json!({"message": message}).to_string())
                    .await
            }
            Way::JsonRpc => {
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
                who.send("POST", &format!("/v1/agents/{agent}"), &[("a2a-version", "1.0")], &body.to_string())
                    .await
            }
            Way::Older => {
                let parts = json!([{"kind": "data", "data": data}]);
                let message = json!({"kind": "message", "messageId": id, "role": "user", "taskId": run, "parts": parts});
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
                who.post(&format!("/v1/agents/{agent}"), &body).await
            }
            Way::Grpc => return self.approves_over_grpc(who, pending, id).await,
            Way::Page => {
                let fields = format!("csrf={TOKEN}&decision=approve&digest={digest}&revision=0&once={id}");
                who.send("POST", &format!("/approve/{hold}"), &form, &fields).await
            }
            Way::Review => {
                let fields = format!("csrf={TOKEN}&decision=approve&digest={digest}&revision=0&once={id}");
                who.send("POST", &format!("/review/{hold}"), &form, &fields).await
            }
            Way::Teal => {
                who.post(&format!("/tealagents/v1alpha1/resume/{named}"), &json!({"action": "approve"})).await
            }
            Way::Inbox => {
                let body = json!({"payload": "approve", "holdId": hold});
                who.post(&format!("/api/inboxes/{agent}/tasks/{named}/resume"), &body).await
            }
        };
        format!("{} {}", answer.status, answer.text)
    }

    async fn approves_over_grpc(&self, who: &Http, pending: &Pending, id: &str) -> String {
        let request = |message: proto::Message| {
            let sent = proto::SendMessageRequest {
                tenant: pending.agent.into(),
                message: Some(message),
                ..Default::default()
            };
            let mut request = tonic::Request::new(sent);
            if let Some(key) = &who.key {
                request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
            }
            request
        };
        let part = |content| proto::Part { content: Some(content), ..Default::default() };
        let message = |id: &str, word: &str| proto::Message {
            message_id: id.into(),
            task_id: pending.run.clone(),
            role: proto::Role::User.into(),
            parts: vec![part(part::Content::Text(word.into()))],
            ..Default::default()
        };
        let mut client = A2aServiceClient::connect(self.server.base.clone()).await.unwrap();
        // A word counts for what its sender was shown: they look first.
        let _ = client.send_message(request(message(&format!("{id}-look"), "what is it?"))).await;
        let approved = client.send_message(request(message(id, "approve"))).await;
        format!("{:?}", approved.map(tonic::Response::into_inner))
    }
}

fn made(folder: &TempDir, arguments: &[&str]) -> String {
    let mut command = standfast_testkit::standfast();
    command
        .args(["keys", "create"])
        .args(arguments)
        .arg("--config")
        .arg(folder.path().join("standfast.yaml"));
    let made = command.arg("--data").arg(folder.path().join("data")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// T12, T13, T15: of twenty-two kinds of people, with those who have no key and those whose key was revoked, each approves in nine ways
/// exactly what the table says, and nothing else.
#[tokio::test]
async fn t12_t13_everybody_decides_what_is_theirs_on_every_surface() {
    let site = Site::new();
    let mut everybody: Vec<(&str, Http, &[&str])> = Vec::new();
    for (name, arguments, decides) in PEOPLE {
        let key = made(&site.folder, arguments);
        everybody.push((name, Http::new(&site.server.base).with_key(&key), decides));
    }
    let revoked = made(&site.folder, &["--user", "ann"]);
    let mut revoke = standfast_testkit::standfast();
    revoke.args(["keys", "revoke", &revoked, "--config"]).arg(site.folder.path().join("standfast.yaml"));
    assert!(revoke.output().unwrap().status.success());
    everybody.push((
        "an approver whose key was revoked",
        Http::new(&site.server.base).with_key(&revoked),
        &[],
    ));
    everybody.push(("nobody", Http::new(&site.server.base), &[]));
    let (mut wrong, mut tried) = (Vec::new(), 0);
    // In another order for each hold, and the same in every run.
    let mut draw = Draw::new(0x1234_5678_9abc_def1);
    for way in WAYS {
        for agent in AGENTS {
            let mut pending = site.pending(agent, way).await;
            let (mays, may_nots): (Vec<_>, Vec<_>) =
                everybody.iter().partition(|(_, _, decides)| decides.contains(&agent));
            let mut order: Vec<_> = may_nots.iter().collect();
            while !order.is_empty() {
                let (name, who, _) = order.swap_remove(draw.below(order.len()));
                tried += 1;
                let heard = site.approves(who, way, &pending, &format!("m-{tried}")).await;
                if let Some(decided) = site.decided_by(&pending).await {
                    wrong.push(format!("{way:?}, {agent}: {name} decided: {decided}; {heard}"));
                    pending = site.pending(agent, way).await;
                }
            }
            for (name, who, _) in mays {
                tried += 1;
                let heard = site.approves(who, way, &pending, &format!("m-{tried}")).await;
                match site.decided_by(&pending).await {
                    Some(_) => pending = site.pending(agent, way).await,
                    None => wrong.push(format!("{way:?}, {agent}: {name} did not decide: {heard}")),
                }
            }
            // What is left of it is nobody's business any more.
            site.olga.post(&format!("/api/v1/runs/{}/cancel", pending.run), &json!({})).await;
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 600, "{tried}");
    // Whoever may see what they may not decide stands in the audit, with the way.
    let mut export = standfast_testkit::standfast();
    export.args(["audit", "export", "--config"]).arg(site.folder.path().join("standfast.yaml"));
    let exported = String::from_utf8(export.output().unwrap().stdout).unwrap();
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for line in exported.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["data"]["kind"] == "decision.refused" {
            *refused.entry(text(&line["data"]["user"]).to_owned()).or_default() += 1;
        }
    }
    for user in ["olga", "ann", "rita", "root", "eve"] {
        assert!(refused.contains_key(user), "{user}: {refused:?}");
    }
}
