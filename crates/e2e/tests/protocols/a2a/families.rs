//! A task whose agent handed work to another agent shows what that one waits for, and takes the decision.
//!
//! Both agents follow scripts; the helper's tool writes a file, so that everyone sees what ran.

use serde_json::json;

use crate::a2a::push::{story, whole};
use crate::a2a::server::{Server, asked, configured, decides, replies, says, state};
use crate::a2a::streams::{Reader, told};
use standfast_testkit::receiver::{Mood, Receiver};

fn boss_and_helper(folder: &std::path::Path) -> Server {
    let boss =
        "replies:\n- calls: [{tool: research, arguments: {message: write it down}}]\n- text: all done\n";
    let helper =
        "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: x}}]\n- text: written\n";
    std::fs::write(folder.join("boss.yaml"), boss).unwrap();
    std::fs::write(folder.join("helper.yaml"), helper).unwrap();
    let config = "server: {webhooks: {allowed_hosts: ['127.0.0.1'], retries: [200ms, 200ms, 200ms, 1s, 1s]}}\n\
                  llms: {b: {type: scripted, script: boss.yaml}, h: {type: scripted, script: helper.yaml}}\n\
                  tools: {research: {type: agent, agent: helper, requires_approval: false}}\n\
                  agents:\n  boss: {llm: b, tools: [research], task: {}}\n  helper: {llm: h, tools: [write_file], task: {}}\n";
    configured(folder, config)
}

/// Architecture, section 5: the parent is shown by its descendants' open holds; C26 counts for them as well.
#[tokio::test]
async fn what_a_sub_run_asks_is_asked_by_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let server = boss_and_helper(folder.path());
    let task = server.send("boss", &says("go")).await;
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "a blocking send waits for the sub-run too");
    let holds = asked(&task);
    assert_eq!((holds.len(), &holds[0]["tool_name"]), (1, &json!("write_file")));
    let count = async |state: &str| {
        server.get(&format!("/v1/agents/boss/tasks?status={state}")).await.body["totalSize"].clone()
    };
    assert_eq!(count("TASK_STATE_INPUT_REQUIRED").await, 1);
    assert_eq!(count("TASK_STATE_WORKING").await, 0);
    let done = server.send("boss", &replies(&task, json!([{"text": "approve"}]))).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "all done");
    assert!(folder.path().join("workspace/a.txt").exists());
}

/// A stream tells of it too, and a decision that names the hold is taken by the parent's task.
#[tokio::test]
async fn a_stream_tells_what_a_sub_run_asks() {
    let folder = tempfile::tempdir().unwrap();
    let server = boss_and_helper(folder.path());
    let body = json!({"message": says("go")});
    let events =
        Reader::open(&server, "POST", "/v1/agents/boss/message:stream", &[], Some(&body)).await.rest().await;
    let last = events.last().unwrap();
    assert_eq!(
        (told(last).as_str(), &last.id),
        ("INPUT_REQUIRED", &None),
        "it stands in another log: {events:?}"
    );
    let update = &last.data["statusUpdate"];
    let task = json!({"id": update["taskId"], "contextId": update["contextId"], "status": update["status"]});
    let path = format!("/v1/agents/boss/tasks/{}:subscribe", task["id"].as_str().unwrap());
    let mut reader = Reader::open(&server, "GET", &path, &[], None).await;
    assert_eq!(told(&reader.next().await.unwrap()), "task INPUT_REQUIRED");
    let decision = decides(&task, json!({"decision": "deny", "hold_id": asked(&task)[0]["hold_id"]}));
    assert_eq!(state(&server.send("boss", &decision).await), "TASK_STATE_COMPLETED");
    let rest: Vec<String> = reader.rest().await.iter().map(told).collect();
    assert_eq!(rest[rest.len() - 2..], ["artifact", "COMPLETED"], "{rest:?}");
    assert!(!folder.path().join("workspace/a.txt").exists());
}

/// A receiver of the task above gets what a sub-run asks, in the words in which a caller is asked; what comes of it is
/// told by the task's own events.
#[tokio::test]
async fn a_receiver_is_told_what_a_sub_run_asks() {
    let folder = tempfile::tempdir().unwrap();
    let server = boss_and_helper(folder.path());
    let receiver = Receiver::new(Mood::Takes).await;
    let config = json!({"url": receiver.url(), "token": "the-token"});
    let request = json!({"message": says("go"), "configuration": {"taskPushNotificationConfig": config}});
    let task = server.post("/v1/agents/boss/message:send", &request).await.body["task"].clone();
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
    let is_asked = |got: &standfast_testkit::receiver::Got| got.text.contains("TASK_STATE_INPUT_REQUIRED");
    let all = receiver.until("the question", |all| all.iter().any(is_asked)).await;
    let question = all.iter().find(|got| is_asked(got)).unwrap();
    let update = &question.body()["statusUpdate"];
    assert_eq!((&update["taskId"], &update["contextId"]), (&task["id"], &task["contextId"]));
    assert_eq!(asked(update), asked(&task), "a receiver is asked what a caller is asked");
    assert_eq!(question.headers["x-a2a-notification-token"], "the-token");
    assert!(!question.headers.contains_key("x-a2a-notification-sequence"));
    server.send("boss", &replies(&task, json!([{"text": "approve"}]))).await;
    let told = story(&whole(&receiver).await);
    let questions = told.iter().filter(|one| one.ends_with("INPUT_REQUIRED")).count();
    assert_eq!(
        (questions, told.last().unwrap().as_str()),
        (1, "statusUpdate TASK_STATE_COMPLETED"),
        "{told:?}"
    );
}
