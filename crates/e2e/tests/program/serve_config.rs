//! The real binary with configuration files: what they say is what is served.
//!
//! Asked through the command line, as people would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use standfast_testkit::process::listens_on;
use standfast_testkit::{Process as Server, serve, serve_command as command, text};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

/// The events of a run, as `show` has them.
fn events(server: &Server, run: &str) -> Vec<Value> {
    server.try_ask(&["show", run]).unwrap()["events"].as_array().unwrap().clone()
}

/// A server that was started, once it says where it listens.
fn listening(mut child: Child) -> Server {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let base = listens_on(&line).unwrap().to_owned();
    Server { child, base }
}

/// A folder with a script and a configuration whose agents ask it.
fn folder(rest: &str) -> TempDir {
    standfast_testkit::folder(&[("script", SCRIPT)], rest)
}

const TWO_AGENTS: &str = "
tools:
  execute_command: {approval_prompt: 'Run {input}?', allowed_commands: [echo]}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept/sessions.db}}}
agents:
  durable: {llm: script, session_store: main-db, tools: [execute_command], task: {input_timeout: 2h}}
  quick: {llm: script, tools: [execute_command], task: {}}
";

/// S0-13, S0-61, S0-64, S0-66, S0-69, C10, C28: both modes are served side by side, one in memory and one in a database,
/// with the same answers and the same question to people; only the durable run is there after `kill -9`.
#[test]
fn blocking_and_async_side_by_side() {
    let folder = folder(TWO_AGENTS);
    let first = serve(folder.path());
    let (durable, quick) = (first.send("durable"), first.send("quick"));
    assert_eq!((&durable["status"], &quick["status"]), (&"held".into(), &"held".into()));
    assert!(folder.path().join("kept/sessions.db").exists());
    let holds = first.try_ask(&["holds"]).unwrap();
    assert_eq!(holds["holds"].as_array().unwrap().len(), 2, "both are listed: {holds}");
    let hold = first.try_ask(&["holds", "show", text(&quick["holds"][0]["id"])]).unwrap();
    assert_eq!(hold["question"], "Run echo hello?", "{hold}");
    assert!(hold["expires_at"].is_string(), "S3-14: ten minutes for a blocking agent: {hold}");
    let asked = |run: &Value| {
        let mut hold = first.try_ask(&["holds", "show", text(&run["holds"][0]["id"])]).unwrap();
        let its_own = ["id", "run", "agent", "session", "opened_at", "expires_at"];
        hold.as_object_mut().unwrap().retain(|key, _| !its_own.contains(&key.as_str()));
        hold
    };
    assert_eq!(asked(&durable), asked(&quick), "people are asked the same in both modes");
    first.try_ask(&["holds", "approve", text(&quick["holds"][0]["id"])]).unwrap();
    drop(first);
    let second = serve(folder.path());
    assert!(second.try_ask(&["show", text(&quick["id"])]).is_none(), "a restart loses what lives in memory");
    second.try_ask(&["holds", "approve", text(&durable["holds"][0]["id"])]).unwrap();
    second.run_once(text(&durable["id"]), "completed");
}

/// S0-62, S0-67: the way back to blocking loses nothing that is stored. A run of before is decided while its agent lives
/// in memory, as docs/moving.md says.
#[test]
fn back_to_blocking_keeps_what_waits() {
    let folder = folder(TWO_AGENTS);
    let first = serve(folder.path());
    let stored = first.send("durable");
    drop(first);
    let moved = TWO_AGENTS
        .replace("durable: {llm: script, session_store: main-db,", "durable: {llm: script,")
        .replace("quick: {llm: script,", "quick: {llm: script, session_store: main-db,");
    let file = folder.path().join("standfast.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, before.replace(TWO_AGENTS, &moved)).unwrap();
    let second = serve(folder.path());
    assert!(text(&second.send("durable")["id"]).starts_with("mrun_"), "new runs live in memory");
    assert!(text(&second.send("quick")["id"]).starts_with("run_"), "the other one is async now, by one line");
    second.try_ask(&["holds", "approve", text(&stored["holds"][0]["id"])]).unwrap();
    second.run_once(text(&stored["id"]), "completed");
}

/// S0-11, S0-14, C8, C28: sessions, runs and holds are in one database, in tables of its own that are there from the
/// start. What is pending changes no table; several names of stores are one database, in which agents stay apart; the
/// session's metadata shows what is pending, and goes with it when the session is deleted.
#[tokio::test]
async fn several_stores_are_one_database_and_a_hold_needs_no_other_schema() {
    let folder = folder(
        "tools: {execute_command: {allowed_commands: [echo]}}
session_stores:
  one: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}
  two: {backend: sql, sql: {driver: sqlite, database: kept.db}}
agents:
  ann: {llm: script, session_store: one, tools: [execute_command], task: {}}
  bob: {llm: script, session_store: two, tools: [execute_command], task: {}}
",
    );
    let tables = || {
        let database = rusqlite::Connection::open(folder.path().join("kept.db")).unwrap();
        let mut asked =
            database.prepare("SELECT name || ': ' || COALESCE(sql, '') FROM sqlite_master").unwrap();
        let rows = asked.query_map([], |row| row.get::<_, String>(0)).unwrap();
        rows.collect::<Result<Vec<String>, _>>().unwrap()
    };
    drop(serve(folder.path()));
    let before = tables();
    let server = serve(folder.path());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |method: reqwest::Method, path: &str, body: Value| {
        let request = client.request(method, format!("{}/api/v1/{path}", server.base)).json(&body);
        request.send().await.unwrap().json::<Value>().await.unwrap_or_default()
    };
    let start = serde_json::json!({"input": "please", "session": "same", "wait": "settled"});
    let ann = ask(reqwest::Method::POST, "agents/ann/runs", start.clone()).await;
    let bob = ask(reqwest::Method::POST, "agents/bob/runs", start).await;
    assert_eq!((&ann["status"], &bob["status"]), (&"held".into(), &"held".into()));
    let waiting = async |agent: &str| {
        let session = ask(reqwest::Method::GET, &format!("sessions/same?agent={agent}"), Value::Null).await;
        let pending = session["metadata"]["pending_executions"].as_object().cloned().unwrap_or_default();
        pending.keys().cloned().collect::<Vec<String>>()
    };
    assert_eq!(waiting("ann").await, [text(&ann["id"])]);
    assert_eq!(waiting("bob").await, [text(&bob["id"])]);
    ask(reqwest::Method::DELETE, "sessions/same?agent=ann", Value::Null).await;
    server.run_once(text(&ann["id"]), "canceled");
    assert_eq!(waiting("ann").await, Vec::<String>::new());
    assert_eq!(
        waiting("bob").await,
        [text(&bob["id"])],
        "the other agent's session of this name is another one"
    );
    drop(server);
    assert_eq!(tables(), before);
    assert!(!folder.path().join("data/standfast.db").exists(), "there is no second database");
}

/// S3-14: with `enable_streaming: false` a client gets whole replies only.
#[tokio::test]
async fn words_come_as_they_are_said_unless_the_file_says_no() {
    let script = "replies:\n- calls:\n  - tool: execute_command\n    arguments: {command: echo hello}\n- deltas: [All, ' is ', done]\n";
    let folder = standfast_testkit::folder(
        &[("script", script)],
        "tools: {execute_command: {allowed_commands: [echo]}}
agents:
  lively: {llm: script, tools: [execute_command], task: {}}
  quiet: {llm: script, tools: [execute_command], task: {}, reasoning: {enable_streaming: false}}
",
    );
    let server = serve(folder.path());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (agent, hears) in [("lively", true), ("quiet", false)] {
        let run = server.send(agent);
        let address = format!("{}/api/v1/runs/{}/events", server.base, text(&run["id"]));
        let mut stream = client.get(address).header("accept", "text/event-stream").send().await.unwrap();
        server.try_ask(&["holds", "approve", text(&run["holds"][0]["id"])]).unwrap();
        let mut heard = String::new();
        while !heard.contains("run.ended") {
            heard.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
        }
        assert_eq!(heard.contains("event: delta"), hears, "{agent}: {heard}");
        assert!(heard.contains("All is done"), "{agent}: {heard}");
    }
}

/// C10, C28: whatever lives in memory says at the start that a restart loses it.
#[test]
fn what_lives_in_memory_is_said_at_the_start() {
    let folder = folder(
        "session_stores:
  short: {backend: memory}
  long: {backend: sql, sql: {driver: sqlite, database: a.db}}
agents:
  lost: {llm: script, session_store: short, task: {}}
  plain: {llm: script, task: {}}
  kept: {llm: script, session_store: long, task: {}}
",
    );
    let log = folder.path().join("log");
    let mut child = command(folder.path());
    let mut child = child.stdout(Stdio::piped()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let said = std::fs::read_to_string(log).unwrap();
    let warned: Vec<&str> = said.lines().filter(|line| line.contains("a restart loses them")).collect();
    assert_eq!(warned.len(), 2, "{said}");
    assert!(warned[0].contains("lost") && warned[1].contains("plain"), "{said}");
}

/// C29, S0-30, S3-27: without a `task` block the call is not held but denied, with the exact text, and the run goes on.
#[test]
fn without_a_task_block_the_call_is_denied() {
    let folder = folder("agents: {plain: {llm: script, tools: [execute_command]}}\n");
    let server = serve(folder.path());
    let run = server.send("plain");
    assert_eq!(run["status"], "completed", "{run}");
    let shown = server.try_ask(&["show", text(&run["id"])]).unwrap().to_string();
    assert!(shown.contains("Tool requires approval but task tracking not enabled"), "{shown}");
    assert!(!shown.contains("call.started"), "{shown}");
    let events = events(&server, text(&run["id"]));
    let note = events.iter().find(|event| event["type"] == "call.progressed").unwrap();
    let warning = "⚠️  Tool requires approval but task tracking not enabled, denying\n";
    assert_eq!(note["data"]["note"]["text"], warning, "what whoever follows the run is told");
    let reply = events.iter().find(|event| event["type"] == "model.replied").unwrap();
    let refused = &reply["data"]["reply"]["calls"][0]["refused"];
    assert_eq!(refused, "Tool requires approval but task tracking not enabled", "what the model is told");
}

/// C29: the same with a `session_store`; and `validate` names the agent.
#[test]
fn without_a_task_block_a_store_changes_nothing() {
    let folder = folder(
        "session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept/sessions.db}}}\n\
         agents: {plain: {llm: script, session_store: main-db, tools: [execute_command]}}\n",
    );
    let mut validate = standfast_testkit::standfast();
    let validated = validate.arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
    let said = String::from_utf8(validated.stdout).unwrap() + &String::from_utf8(validated.stderr).unwrap();
    assert!(validated.status.success() && said.contains("plain"), "{said}");
    assert!(said.contains("task"), "{said}");
    let server = serve(folder.path());
    let run = server.send("plain");
    assert_eq!(run["status"], "completed", "{run}");
    let events = events(&server, text(&run["id"]));
    assert!(events.iter().any(|event| event["type"] == "call.progressed"));
    assert!(events.iter().all(|event| event["type"] != "hold.opened"));
}

const FIVE_MODES: &str = "
tools:
  execute_command: {approval_prompt: 'Run {input}?', allowed_commands: [echo]}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept/sessions.db}}}
agents:
  a1: {llm: script, tools: [execute_command], task: {worker_pool: 1}}
  a2: {llm: script, tools: [execute_command], task: {worker_pool: 1, hitl: {mode: blocking}}}
  a3: {llm: script, session_store: main-db, tools: [execute_command], task: {worker_pool: 1, hitl: {mode: blocking}}}
  a4: {llm: script, session_store: main-db, tools: [execute_command], task: {worker_pool: 1}}
  a5: {llm: script, session_store: main-db, tools: [execute_command], task: {worker_pool: 1, hitl: {mode: async}}}
";

/// What a run looks like without what may differ: ids, instants, digests, the agent's name, and the deadline.
fn plain(value: &Value) -> Value {
    let is_id = |text: &str| {
        let text = text.strip_prefix('m').unwrap_or(text);
        ["run_", "hold_", "call_", "msg_", "ses_", "req_"].iter().any(|prefix| text.starts_with(prefix))
    };
    let is_instant = |text: &str| text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[4] == b'-';
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_agent = |text: &str| ["a1", "a2", "a3", "a4", "a5"].contains(&text);
    match value {
        Value::String(text) if is_id(text) => "an id".into(),
        Value::String(text) if is_instant(text) => "an instant".into(),
        Value::String(text) if is_digest(text) => "a digest".into(),
        Value::String(text) if is_agent(text) => "an agent".into(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            let varies = [
                "expires_at",
                "timeout",
                "start_by",
                "secret",
                "hold",
                "node",
                "durable",
                "actor",
                "definition",
                "asked_with",
            ];
            let kept = members.iter().filter(|(name, _)| !varies.contains(&name.as_str()));
            let kept = kept.filter(|(name, _)| !name.ends_with("_url"));
            // A policy that says nothing but its timeout is not written at all.
            let kept = kept.filter(|(name, _)| *name != "policy");
            kept.map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// C10, C28, S0-13, S0-55, S0-56, S0-61, S0-63, S0-64, S0-66, S0-68, S0-69: `auto`, `blocking` and `async` are one code
/// path. The same requests lead to the same states, answers and events whatever the mode and the store, and no worker
/// waits in any: with a pool of one, a second run of the agent stops as well. They differ in the deadline, and in what a
/// restart leaves.
#[test]
fn the_modes_differ_in_their_deadline_and_their_store_alone() {
    let folder = folder(FIVE_MODES);
    let server = serve(folder.path());
    let mut stories = Vec::new();
    for agent in ["a1", "a2", "a3", "a4", "a5"] {
        let (run, second) = (server.send(agent), server.send(agent));
        assert_eq!((&run["status"], &second["status"]), (&"held".into(), &"held".into()), "{agent}");
        let hold = server.try_ask(&["holds", "show", text(&run["holds"][0]["id"])]).unwrap();
        let is_blocking = ["a1", "a2", "a3"].contains(&agent);
        assert_eq!(hold["expires_at"].is_string(), is_blocking, "{agent}: {hold}");
        let lives_in_memory = text(&run["id"]).starts_with("mrun_");
        assert_eq!(lives_in_memory, ["a1", "a2"].contains(&agent), "{agent}");
        server.try_ask(&["holds", "approve", text(&run["holds"][0]["id"])]).unwrap();
        let ended = server.run_once(text(&run["id"]), "completed");
        let decided = server.try_ask(&["holds", "show", text(&run["holds"][0]["id"])]).unwrap();
        let events: Value = events(&server, text(&run["id"])).into();
        stories.push((agent, [run, hold, decided, ended, events].map(|part| plain(&part))));
    }
    let (_, first) = &stories[0];
    for (agent, story) in &stories {
        for (part, (this, that)) in story.iter().zip(first).enumerate() {
            assert_eq!(this, that, "{agent}, part {part}");
        }
    }
}

/// S0-62, S0-67: the two lines that `validate` prints for a blocking agent make it async, and nothing else is needed.
#[test]
fn the_lines_that_validate_prints_make_an_agent_async() {
    let folder = folder("agents:\n  quick:\n    llm: script\n    tools: [execute_command]\n    task: {}\n");
    let file = folder.path().join("standfast.yaml");
    let validate = || {
        let output = standfast_testkit::standfast().arg("validate").arg(&file).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = validate();
    assert!(said.contains("blocking"), "{said}");
    let line =
        |begin: &str| said.lines().map(str::trim).find(|line| line.starts_with(begin)).unwrap().to_owned();
    let (stores, store) = (line("session_stores:"), line("session_store:"));
    let before = std::fs::read_to_string(&file).unwrap();
    let after = before.replace("    llm: script\n", &format!("    llm: script\n    {store}\n"));
    std::fs::write(&file, format!("{after}{stores}\n")).unwrap();
    let said = validate();
    assert!(said.contains("async") && !said.contains("blocking"), "{said}");
}

/// S0-33, S0-46: a pause is reported as a pause, a second one of the same run as such, and after a restart how many wait.
#[test]
fn pauses_are_told_in_the_log() {
    let folder = folder(TWO_AGENTS);
    let script = "replies:\n- calls: [{tool: execute_command, arguments: '{\"command\": \"echo one\"}'}]\n\
                  - calls: [{tool: execute_command, arguments: '{\"command\": \"echo two\"}'}]\n- text: done\n";
    std::fs::write(folder.path().join("script.script.yaml"), script).unwrap();
    let said_in = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let serve_with_log = |name: &str| {
        let log = std::fs::File::create(folder.path().join(name)).unwrap();
        let mut command = command(folder.path());
        listening(command.env("RUST_LOG", "info").stderr(log).stdout(Stdio::piped()).spawn().unwrap())
    };
    let until_said = |name: &str, words: &str| {
        for _ in 0..400 {
            if said_in(name).contains(words) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{words}: {}", said_in(name));
    };
    let first = serve_with_log("first.log");
    let run = first.send("durable");
    let id = text(&run["id"]).to_owned();
    until_said("first.log", &format!("run {id} paused for user input"));
    first.try_ask(&["holds", "approve", text(&run["holds"][0]["id"])]).unwrap();
    until_said("first.log", &format!("run {id} paused again for user input"));
    assert!(!said_in("first.log").contains("failed"), "{}", said_in("first.log"));
    drop(first);
    let _second = serve_with_log("second.log");
    until_said("second.log", "Found 1 tasks waiting for input");
}

/// A file with mistakes is not served: every one is shown.
#[test]
fn a_wrong_file_is_not_served() {
    let folder = folder("agents: {a: {llm: scirpt, task: {hitl: {mode: async}}}}\n");
    let output = command(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("there is no llm `scirpt`") && said.contains("did you mean `script`?"), "{said}");
    assert!(said.contains("async HITL requires session_store to be configured"), "{said}");
}

/// S0-57, F30: a changed file is taken while runs wait, a bad one is not; what is pending keeps what it was started with.
#[test]
fn a_changed_file_is_taken_and_a_bad_one_is_not() {
    let folder = folder(TWO_AGENTS);
    let file = folder.path().join("standfast.yaml");
    let server = serve(folder.path());
    let held = server.send("durable");
    let before = std::fs::read_to_string(&file).unwrap();

    std::fs::write(&file, before.replace("llm: script", "llm: missing")).unwrap();
    let hangup = |server: &Server| {
        let pid = rustix::process::Pid::from_child(&server.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    hangup(&server);
    assert_eq!(server.send("durable")["status"], "held", "the old one stays");

    let with_more = before.replace("  quick:", "  third: {llm: script, task: {}}\n  quick:");
    let with_more =
        with_more.replace("approval_prompt: 'Run {input}?'", "approval_prompt: 'Really {input}?'");
    std::fs::write(&file, with_more).unwrap();
    hangup(&server);
    let mut new = None;
    for _ in 0..200 {
        new = server.try_ask(&["send", "third", "please"]);
        if new.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(new.is_some(), "the new agent is there");
    let question = |run: &Value| {
        let hold = server.try_ask(&["holds", "show", text(&run["holds"][0]["id"])]).unwrap();
        text(&hold["question"]).to_owned()
    };
    assert_eq!(question(&held), "Run echo hello?", "a pending run is as it was started");
    assert_eq!(question(&server.send("durable")), "Really echo hello?");
    server.try_ask(&["holds", "approve", text(&held["holds"][0]["id"])]).unwrap();
}

/// S0-39: no more runs of an agent work at once than `worker_pool` says; the others are queued and all of them end.
#[test]
fn a_worker_pool_bounds_the_runs_that_work() {
    let slow = "replies:\n- text: done\n  delay: 500ms\n";
    let rest = "
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept/sessions.db}}}
agents: {ops: {llm: slow, session_store: main-db, task: {worker_pool: 2}}}
";
    let folder = standfast_testkit::folder(&[("slow", slow)], rest);
    let server = serve(folder.path());
    let runs: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| server.send("ops"))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut ends = Vec::new();
    for run in &runs {
        assert_eq!(server.run_once(text(&run["id"]), "completed")["status"], "completed");
        let events = events(&server, text(&run["id"]));
        let ended = events.iter().find(|event| event["type"] == "run.ended").unwrap();
        let (_, time) = text(&ended["at"]).split_once('T').unwrap();
        let numbers = time.trim_end_matches('Z').split([':', '.']).map(|part| part.parse::<i64>().unwrap());
        ends.push(
            numbers.zip([3_600_000, 60_000, 1_000, 1]).map(|(number, unit)| number * unit).sum::<i64>(),
        );
    }
    // Each works for as long as its model takes, so the third of any three that end began after the first had ended. A
    // millisecond is what stamps are rounded by.
    ends.sort_unstable();
    for three in ends.windows(3) {
        assert!(three[2] - three[0] >= 499, "three worked at once: {ends:?}");
    }
}
