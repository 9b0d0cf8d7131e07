//! What the forms of the other pages read of their run: in a conversation, an inbox and a review, what cancels a run, a task or a
//! job, and what changes who is asked.

use serde_json::json;
use standfast_core::id::HoldId;

use super::{Call, Reads, Server, data};

impl Server {
    /// The page of the conversation that a hold's run belongs to.
    async fn conversation(&self, hold: HoldId) -> String {
        let facts = self.engine.reads().facts(hold.run).await.unwrap().unwrap();
        format!("/sessions/{}?agent={}&owner={}", facts.session, facts.agent, facts.owner)
    }

    /// Posts a form that stands on one page to where it leads.
    async fn send_form(
        &self,
        hold: HoldId,
        (page, to): (&str, &str),
        fields: &[&str],
        more: &[(&str, &str)],
    ) {
        self.store.begin(hold.run);
        let (status, text) = self.post_form_of(page, to, fields, more).await;
        assert!(status == 303 || status == 200, "{to}: {status} {text}");
        self.assert_few_reads(to);
    }
}

#[tokio::test]
async fn a_form_of_a_conversation_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let page = server.conversation(hold).await;
    let to = page.replace('?', &format!("/holds/{hold}?"));
    let fields = ["digest", "revision", "once"];
    server.send_form(hold, (&page, &to), &fields, &[("decision", "approve")]).await;

    let server = Server::new(Call::StartsAJob).await;
    let hold = server.held().await;
    let page = server.conversation(hold).await;
    let task = hold.run.to_string();
    server.send_form(hold, (&page, &page), &["once"], &[("task", &task), ("input", "Hurry")]).await;
}

#[tokio::test]
async fn a_form_of_an_inbox_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let task = server.task_that_asks("which?").await;
    let to = format!("/inboxes/support/holds/{task}");
    let fields = ["digest", "revision", "once"];
    let answer = [("decision", "answer"), ("value", "B")];
    server.send_form(task, ("/inboxes/support", &to), &fields, &answer).await;

    let server = Server::new(Call::NeedsApproval).await;
    let task = server.task_that_asks("which?").await;
    let to = format!("/inboxes/support/tasks/{}/cancel", task.run);
    server.send_form(task, ("/inboxes/support", &to), &[], &[]).await;
}

#[tokio::test]
async fn the_page_of_a_gate_reads_it_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let (_, opened) = server.gate("c-1").await;
    let hold: HoldId = opened["hold"].as_str().unwrap().parse().unwrap();
    let page = format!("/approve/{hold}");
    let fields = ["digest", "revision", "once"];
    server.send_form(hold, (&page, &page), &fields, &[("decision", "approve")]).await;
    // Whoever opened it starts it when they look again, and nobody waits for that.
    assert_eq!(server.store.counted.lock().unwrap().after, Reads::default());
}

#[tokio::test]
async fn a_review_reads_each_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let page = format!("/review?hold={hold}");
    let id = hold.to_string();
    let (digest, revision) = (format!("digest-{id}"), format!("revision-{id}"));
    let more = [("hold", id.as_str()), ("shown", id.as_str()), ("decision", "deny")];
    server.send_form(hold, (&page, "/review"), &[&digest, &revision], &more).await;
}

#[tokio::test]
async fn a_form_that_cancels_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let page = format!("/runs/{}", hold.run);
    server.send_form(hold, (&page, &format!("{page}/cancel")), &[], &[]).await;

    let server = Server::new(Call::StartsAJob).await;
    let hold = server.held().await;
    server.send_form(hold, ("/jobs", &format!("/jobs/{hold}/cancel")), &[], &[]).await;
}

#[tokio::test]
async fn changing_who_is_asked_reads_the_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let page = format!("/approve/{hold}");
    let assign = [("action", "assign"), ("to", "alice")];
    server.send_form(hold, (&page, &format!("{page}/people")), &["once"], &assign).await;
    let until = "2099-12-24T18:00:00Z";
    for (verb, body) in [
        ("release", json!({})),
        ("take", json!({})),
        ("delegate", json!({"to": "alice", "until": until})),
        ("edit", json!({"arguments": {"path": "/tmp/other"}})),
        ("ask-again", json!({"revision": 1})),
    ] {
        server.store.begin(hold.run);
        server.post(&format!("/api/v1/holds/{hold}/{verb}"), &body).await;
        server.assert_few_reads(verb);
    }
}

#[tokio::test]
async fn a_message_over_other_surfaces_reads_its_run_once() {
    let server = Server::new(Call::StartsAJob).await;
    let run = server.held().await.run;
    server.store.begin(run);
    let said = json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": run.to_string(), "parts": [{"text": "Hurry"}]});
    let body = json!({"message": said, "configuration": {"returnImmediately": true}});
    server.post("/v1/agents/ops/message:send", &body).await;
    server.assert_few_reads("a message over A2A");
    server.store.begin(run);
    let items = json!([{"content_type": "text", "content": "Hurry"}]);
    let body = json!({"task_id": run.to_string(), "items": items});
    server.post("/tealagents/v1alpha1/ops?wait=0", &body).await;
    server.assert_few_reads("a message over Teal Agents");
}

#[tokio::test]
async fn what_is_only_looked_at_is_read_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let run = hold.run;
    let view = server.engine.reads().hold(&standfast_engine::auth::Principal::local(), hold).await.unwrap();
    let request = view.row.request.unwrap();
    for path in [
        format!("/api/v1/runs/{run}"),
        format!("/api/v1/holds/{hold}"),
        format!("/v1/agents/ops/tasks/{run}"),
        format!("/tealagents/v1alpha1/ops/tasks/{run}"),
        format!("/tealagents/v1alpha1/resume/{request}"),
        format!("/runs/{run}"),
    ] {
        server.store.begin(run);
        let response = server.client.get(format!("{}{path}", server.base)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.bytes().await.unwrap();
        server.assert_one_read(&path);
    }
    let said = json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": run.to_string(), "parts": [{"data": data(hold)}]});
    server.post("/v1/agents/ops/message:send", &json!({"message": said})).await;
    server.store.begin(run);
    server.get(&format!("/approve/{hold}")).await;
    server.assert_one_read("the page of a decided hold");
}
