//! Two real servers: the run of one hands work to an agent of the other, which asks before it does it.
//!
//! Either is killed where it hurts, and the file that the work leaves behind says how often it was done.

use serde_json::json;
use tempfile::TempDir;

use crate::remote_agents::server::{Server, boss, free_port, of_run, serve, serve_at, text, worker};

/// The one that does the work, at a port that stays its own.
struct Remote {
    folder: TempDir,
    port: u16,
    server: Option<Server>,
}

impl Remote {
    fn start() -> Remote {
        let (folder, port) = (worker(), free_port());
        let server = Some(serve_at(folder.path(), port));
        Remote { folder, port, server }
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn again(&mut self) -> &Server {
        self.server = None;
        self.server.insert(serve_at(self.folder.path(), self.port))
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/agents/worker", self.port)
    }

    fn paid(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("workspace/paid.txt")).ok()
    }

    /// How many pieces of work were ever begun here.
    fn begun(&self) -> usize {
        let runs = self.server.as_ref().unwrap().ask(&["runs"]);
        runs["runs"].as_array().unwrap().len()
    }
}

/// What the other server asks about a tool is a hold here that shows the tool, its input and the digest. The answer goes
/// back with their ids, and the model hears what came of it. Between question and answer both servers are killed.
#[test]
fn an_approval_elsewhere_is_given_here_after_both_were_killed() {
    let mut remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "input");
    let data = &hold["data"];
    assert_eq!(
        (&data["interaction_type"], &data["tool_name"]),
        (&json!("tool_approval"), &json!("write_file"))
    );
    assert!(text(&data["tool_input"]).contains("paid.txt"), "{hold:#}");
    let there = remote.server.as_ref().unwrap().only_hold();
    assert_eq!((&data["hold_id"], &data["digest"]), (&there["id"], &there["digest"]), "{hold:#}");
    assert!(text(&hold["reason"]).contains("remote agent worker asks"), "{hold:#}");
    drop(here);
    remote.again();
    let here = serve(folder.path());
    here.ask(&["holds", "answer", text(&hold["id"]), r#"{"decision": "approve"}"#]);
    let ended = here.until_status(&run, "completed").to_string();
    assert!(ended.contains("written down"), "{ended}");
    assert_eq!((remote.paid().as_deref(), remote.begun()), (Some("once"), 1));
}

/// Denying and changing travel back too, with the words that were said.
#[test]
fn a_denial_and_a_change_travel_back() {
    let remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "input");
    here.ask(&["holds", "answer", text(&hold["id"]), r#"{"decision": "deny", "reason": "too dear"}"#]);
    here.until_status(&run, "completed");
    assert_eq!(remote.paid(), None);
    let there = remote.server.as_ref().unwrap().ask(&["runs"]);
    let timeline = remote.server.as_ref().unwrap().ask(&["show", text(&there["runs"][0]["id"])]);
    assert!(timeline.to_string().contains("too dear"), "{timeline:#}");

    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "input");
    let changed = json!({"path": "paid.txt", "content": "twice"}).to_string();
    let answer = json!({"decision": "modify", "modified_input": changed}).to_string();
    here.ask(&["holds", "answer", text(&hold["id"]), &answer]);
    here.until_status(&run, "completed");
    assert_eq!(remote.paid().as_deref(), Some("twice"));
}

/// A change that the other server does not take is asked about again, with what it said; nothing ran.
#[test]
fn an_answer_that_is_not_taken_is_asked_for_again() {
    let remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "input");
    let answer = json!({"decision": "modify", "modified_input": "{\"path\": 1}"}).to_string();
    here.ask(&["holds", "answer", text(&hold["id"]), &answer]);
    let is_other = |shown: &serde_json::Value| {
        let holds = of_run(shown)["holds"].as_array().cloned().unwrap_or_default();
        holds.iter().any(|one| one["kind"] == "input" && one["id"] != hold["id"])
    };
    here.until(&run, "asked again", is_other);
    let again = here.hold_of_kind(&run, "input");
    assert!(text(&again["reason"]).contains("did not take the answer"), "{again:#}");
    assert_eq!(remote.paid(), None);
    here.ask(&["holds", "answer", text(&again["id"]), r#"{"decision": "approve"}"#]);
    here.until_status(&run, "completed");
    assert_eq!(remote.paid().as_deref(), Some("once"));
}

/// An answer that is given while the other server is down arrives when it is up again, once.
#[test]
fn an_answer_waits_for_the_other_server() {
    let mut remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "input");
    remote.kill();
    here.ask(&["holds", "answer", text(&hold["id"]), r#"{"decision": "approve"}"#]);
    here.hold_of_kind(&run, "external");
    drop(here);
    let here = serve(folder.path());
    remote.again();
    here.until_status(&run, "completed");
    assert_eq!((remote.paid().as_deref(), remote.begun()), (Some("once"), 1));
}

/// Somebody decides over there: the question here is closed by itself, and the run goes on with the result.
#[test]
fn what_is_decided_elsewhere_closes_the_question_here() {
    let remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    here.hold_of_kind(&run, "input");
    let there = remote.server.as_ref().unwrap();
    there.ask(&["holds", "approve", text(&there.only_hold()["id"])]);
    let ended = here.until_status(&run, "completed").to_string();
    assert!(ended.contains("written down"), "{ended}");
    assert_eq!(remote.paid().as_deref(), Some("once"));
}

/// A run that is canceled here cancels what it began there.
#[test]
fn a_canceled_run_cancels_the_remote_task() {
    let remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    here.hold_of_kind(&run, "input");
    let there = remote.server.as_ref().unwrap();
    let task = text(&there.only_hold()["run"]).to_owned();
    here.ask(&["cancel", &run]);
    there.until_status(&task, "canceled");
    assert_eq!(remote.paid(), None);
}

/// It does so also when nothing can be told at once: the other server is down, and this one dies right after it has said
/// that the run is canceled.
#[test]
fn a_cancel_reaches_the_other_server_although_both_die() {
    let mut remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    here.hold_of_kind(&run, "input");
    let task = text(&remote.server.as_ref().unwrap().only_hold()["run"]).to_owned();
    remote.kill();
    here.ask(&["cancel", &run]);
    drop(here);
    let there = remote.again();
    let _here = serve(folder.path());
    there.until_status(&task, "canceled");
    assert_eq!(remote.paid(), None);
}

/// Whenever this server is killed, the other one is asked to begin at most once, and the run ends without
/// a person having to find out what happened: this remote agent's card promises that a repeat is none.
#[test]
fn killed_again_and_again_the_work_is_begun_once() {
    let remote = Remote::start();
    let folder = boss(&remote.url(), "");
    let mut here = serve(folder.path());
    let run = here.begin("boss");
    for pause in [0, 40, 150, 400] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        drop(here);
        here = serve(folder.path());
    }
    let hold = here.hold_of_kind(&run, "input");
    here.ask(&["holds", "answer", text(&hold["id"]), r#"{"decision": "approve"}"#]);
    for pause in [0, 60, 250] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        drop(here);
        here = serve(folder.path());
    }
    here.until_status(&run, "completed");
    assert_eq!((remote.paid().as_deref(), remote.begun()), (Some("once"), 1));
}
