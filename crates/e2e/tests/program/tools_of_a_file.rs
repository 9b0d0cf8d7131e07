//! Every type of tool that a configuration file can name, with the real binary: held, approved, run.
//!
//! Another server of the test's own stands for what tools call.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use seccompiler::{SeccompAction, SeccompFilter};
use serde_json::{Value, json};
use standfast_testkit::other_server::{OtherServer, answer};
use standfast_testkit::process::listens_on;
use standfast_testkit::{Process as Server, folder, serve, serve_command as command, text};
use tempfile::TempDir;

/// A script: one call of a tool, then a word.
fn calls(tool: &str, arguments: &Value) -> String {
    let reply = json!({"calls": [{"tool": tool, "arguments": arguments.to_string()}]});
    json!({"replies": [reply, {"text": "done"}]}).to_string()
}

/// The only hold of a run, which must wait for this kind of thing.
fn hold_of(run: &Value, kind: &str) -> String {
    let holds = run["holds"].as_array().unwrap();
    assert_eq!((holds.len(), &holds[0]["kind"]), (1, &kind.into()), "{run}");
    text(&holds[0]["id"]).to_owned()
}

fn approve(server: &Server, hold: &str) {
    server.try_ask(&["holds", "approve", hold]).unwrap();
}

/// All that a run's log says, as text.
fn log(server: &Server, run: &Value) -> String {
    server.try_ask(&["show", text(&run["id"])]).unwrap().to_string()
}

/// A server with one agent that calls one tool, which a person has approved; the run has ended.
fn approved(entry: &str, tool: &str, arguments: &Value) -> (TempDir, Server, Value) {
    let rest =
        format!("tools: {{{tool}: {entry}}}\nagents: {{a: {{llm: s, tools: [{tool}], task: {{}}}}}}\n");
    let folder = folder(&[("s", &calls(tool, arguments))], &rest);
    let server = serve(folder.path());
    let run = server.send("a");
    approve(&server, &hold_of(&run, "approval"));
    let run = server.run_once(text(&run["id"]), "completed");
    (folder, server, run)
}

/// C32: `edit_file` needs no entry, asks by default, and changes the file only when it may.
#[test]
fn a_file_is_edited_after_approval() {
    let script = calls("edit_file", &json!({"path": "a.txt", "old": "two", "new": "2"}));
    let folder = folder(&[("s", &script)], "agents: {a: {llm: s, tools: [edit_file], task: {}}}\n");
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let file = folder.path().join("workspace/a.txt");
    std::fs::write(&file, "one two three").unwrap();
    let server = serve(folder.path());
    let run = server.send("a");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one two three");
    approve(&server, &hold_of(&run, "approval"));
    server.run_once(text(&run["id"]), "completed");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one 2 three");
}

/// T26: file tools in the folder of the configuration reach neither it nor the store with its files, and cannot make the
/// `.env` that is not there yet.
#[test]
fn file_tools_do_not_reach_what_belongs_to_the_server() {
    let asked = [
        ("env", "write_file", json!({"path": ".env", "content": "OPEN=true"})),
        ("config", "edit_file", json!({"path": "standfast.yaml", "old": "llms", "new": "x"})),
        ("store", "read_file", json!({"path": "kept.db"})),
        ("wal", "read_file", json!({"path": "kept.db-wal"})),
        ("key", "read_file", json!({"path": "data/callback.key"})),
    ];
    let scripts: Vec<(&str, String)> =
        asked.iter().map(|(name, tool, arguments)| (*name, calls(tool, arguments))).collect();
    let scripts: Vec<(&str, &str)> = scripts.iter().map(|(name, script)| (*name, script.as_str())).collect();
    let mut rest = "session_stores: {main: {backend: sql, sql: {driver: sqlite, database: kept.db}}}
tools:
  read_file: {working_directory: .}
  write_file: {working_directory: ., requires_approval: false}
  edit_file: {working_directory: ., requires_approval: false}
agents:
"
    .to_owned();
    for (name, tool, _) in &asked {
        rest.push_str(&format!(
            "  {name}: {{llm: {name}, session_store: main, tools: [{tool}], task: {{}}}}\n"
        ));
    }
    let folder = folder(&scripts, &rest);
    let server = serve(folder.path());
    for (name, _, _) in &asked {
        let run = server.send(name);
        let log = log(&server, &run);
        assert!(log.contains("it belongs to this server") && !log.contains("call.started"), "{name}: {log}");
    }
    assert!(!folder.path().join(".env").exists());
}

/// T23, T26: a listed command whose words, or the files that it reads, would run a program or reach outside waits for a person; nothing
/// ran and nothing changed.
#[test]
fn t23_listed_commands_that_run_programs_wait_for_a_person() {
    let asked = [
        ("sed", vec!["sed -l p '1e touch ran' f"]),
        ("npm", vec!["npm version patch"]),
        ("prove", vec!["prove x.t"]),
        ("touch", vec!["touch -d 2001-01-01 ../outside"]),
        ("git", vec!["cp -r made .git", "git status"]),
    ];
    let script = |commands: &[&str]| {
        let call = |command: &&str| json!({"calls": [{"tool": "execute_command", "arguments": {"command": command}}]});
        let replies: Vec<Value> = commands.iter().map(call).chain([json!({"text": "done"})]).collect();
        json!({ "replies": replies }).to_string()
    };
    let scripts: Vec<(&str, String)> = asked.iter().map(|(name, all)| (*name, script(all))).collect();
    let scripts: Vec<(&str, &str)> = scripts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mut rest = "tools:
  execute_command: {requires_approval: false, allowed_commands: [sed, npm, prove, touch, cp, git]}
agents:
"
    .to_owned();
    for (name, _) in &asked {
        rest.push_str(&format!("  {name}: {{llm: {name}, tools: [execute_command], task: {{}}}}\n"));
    }
    let folder = folder(&scripts, &rest);
    let work = folder.path().join("workspace");
    std::fs::create_dir_all(work.join("made")).unwrap();
    let package =
        json!({"name": "p", "version": "1.0.0", "scripts": {"preversion": "touch ran"}}).to_string();
    for (path, text) in [
        ("f", "x\n"),
        ("package.json", package.as_str()),
        ("x.t", "system('touch ran'); print \"1..1\\nok 1\\n\";\n"),
        ("made/config", "[core]\n\tfsmonitor = touch ran\n"),
        ("made/HEAD", "ref: refs/heads/main\n"),
        ("../outside", "x"),
    ] {
        std::fs::write(work.join(path), text).unwrap();
    }
    for inner in ["objects", "refs"] {
        std::fs::create_dir(work.join("made").join(inner)).unwrap();
    }
    let touched = || std::fs::metadata(folder.path().join("outside")).unwrap().modified().unwrap();
    let before = touched();
    let server = serve(folder.path());
    for (name, commands) in &asked {
        let run = server.send(name);
        assert_eq!(run["status"], "held", "{name}: {run}");
        let hold = server.try_ask(&["holds", "show", &hold_of(&run, "approval")]).unwrap().to_string();
        let last = commands.last().unwrap();
        assert!(hold.contains(last), "{last} waits, and nothing before it: {hold}");
        assert!(!work.join("ran").exists(), "{last} ran something");
    }
    assert_eq!(touched(), before, "what is outside changed");
    assert!(work.join(".git/config").exists(), "the repository was made");
}

/// T11: a request goes to a host that is named, after approval; to one that is not it is refused, and nobody is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_to_a_named_host_only() {
    let mut other = OtherServer::answering(vec![answer("200 OK", "{\"free\": 7}")]).await;
    let port = other.port;
    let to = |host: &str| calls("http_request", &json!({"url": format!("http://{host}:{port}/disks")}));
    let rest = format!(
        "tools: {{http_request: {{allowed_hosts: ['127.0.0.1:{port}'], timeout: 30s, max_output: 1000}}}}
agents:
  named: {{llm: named, tools: [http_request], task: {{}}}}
  other: {{llm: other, tools: [http_request], task: {{}}}}
"
    );
    let folder = folder(&[("named", &to("127.0.0.1")), ("other", &to("127.0.0.2"))], &rest);
    let server = serve(folder.path());
    let refused = server.send("other");
    assert_eq!(refused["status"], "completed", "{refused}");
    let told = log(&server, &refused);
    assert!(told.contains("add it to allowed_hosts") && !told.contains("call.started"), "{told}");
    let run = server.send("named");
    approve(&server, &hold_of(&run, "approval"));
    let request = other.request().await;
    assert!(request.starts_with("GET /disks "), "{request}");
    server.run_once(text(&run["id"]), "completed");
    assert!(log(&server, &run).contains("free"), "{}", log(&server, &run));
}

/// A job elsewhere: started after approval, with the id of the hold and an address of this server's public name; its
/// result comes through the native API, after a restart too.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_elsewhere_is_started_and_its_result_comes_back() {
    let started = answer("200 OK", "{\"externalRef\": \"job-7\", \"output\": \"building\"}");
    let mut other = OtherServer::answering(vec![started]).await;
    let rest = format!(
        "tools:
  deploy:
    type: external
    description: Deploys a branch.
    url: http://127.0.0.1:{}/jobs
    allowed_hosts: ['127.0.0.1']
    only_allowed_hosts: true
    timeout: 2h
    parameters: {{type: object, properties: {{branch: {{type: string, minLength: 1}}}}, required: [branch]}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: a.db}}}}}}
agents: {{a: {{llm: s, session_store: main, tools: [deploy], task: {{}}}}}}
server: {{public_url: 'http://localhost:8080/'}}
",
        other.port
    );
    let folder = folder(&[("s", &calls("deploy", &json!({"branch": "main"})))], &rest);
    let first = serve(folder.path());
    let run = first.send("a");
    let approval = hold_of(&run, "approval");
    assert!(first.try_ask(&["holds", "approve", &approval, "--arguments", "{\"branch\": 7}"]).is_none());
    approve(&first, &approval);
    let request = other.request().await;
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let pending = text(&body["pendingID"]);
    assert_eq!(body["callbackURL"], "http://localhost:8080/async-tool/webhook");
    assert_eq!((&body["tool"], &body["input"]), (&"deploy".into(), &json!({"branch": "main"})));
    let secret = text(&body["callbackSecret"]);
    assert_eq!(secret.len(), 64, "each call has its own");
    let held = first.run_once(text(&run["id"]), "held");
    assert_eq!(hold_of(&held, "external"), pending);
    let said = log(&first, &run);
    assert!(said.contains("job-7") && !said.contains(secret), "{said}");
    drop(first);
    let second = serve(folder.path());
    second.try_ask(&["holds", "answer", pending, "deployed to preview-123"]).unwrap();
    second.run_once(text(&run["id"]), "completed");
    assert!(log(&second, &run).contains("deployed to preview-123"));
    let key = std::fs::metadata(folder.path().join("data/callback.key")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777, 0o600);
}

/// Rule 7, S0-16, C28: an agent of `sub_agents` gets work through the tool `ask_NAME`. The sub-run lives in the store of
/// the run above, though its agent lives in memory otherwise; its hold is shown with the path from the root, and when it
/// is decided both runs end.
#[tokio::test(flavor = "multi_thread")]
async fn work_is_handed_to_another_agent_and_its_hold_shows_the_path() {
    let lead = calls("ask_helper", &json!({"message": "say hello"}));
    let helper = calls("execute_command", &json!({"command": "echo hello"}));
    let folder = folder(
        &[("lead", &lead), ("helper", &helper)],
        "session_stores: {main: {backend: sql, sql: {driver: sqlite, database: a.db}}}
agents:
  lead: {llm: lead, session_store: main, sub_agents: [helper], task: {}}
  helper: {llm: helper, tools: [execute_command], task: {}, description: Says things.}
",
    );
    let server = serve(folder.path());
    let run = server.send("lead");
    let id = text(&run["id"]);
    approve(&server, &hold_of(&run, "approval"));
    let below = (0..600).find_map(|_| {
        let holds = server.try_ask(&["holds", "--agent", "helper"]).unwrap();
        let hold = holds["holds"].get(0).map(|hold| text(&hold["id"]).to_owned());
        if hold.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        hold
    });
    let below = below.unwrap();
    let hold = server.try_ask(&["holds", "show", &below]).unwrap();
    assert_eq!(hold["path"], json!([{"run": id, "agent": "lead"}]), "{hold}");
    assert!(text(&hold["run"]).starts_with("run_"), "{hold}");
    assert_eq!(hold["arguments"], json!({"command": "echo hello"}));
    let mut show = standfast_testkit::standfast();
    let shown = show.args(["holds", "show", &below, "--server", &server.base]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("for:      lead, {id}\n")), "{shown}");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page =
        client.get(format!("{}/approve/{below}", server.base)).send().await.unwrap().text().await.unwrap();
    assert!(page.contains(&format!("<a href=\"/runs/{id}\">lead</a> › helper")), "{page}");
    approve(&server, &below);
    server.run_once(id, "completed");
    server.run_once(text(&hold["run"]), "completed");
}

/// A tool of type `agent` with a name and settings of its own takes the place of the one that `sub_agents` brings.
#[test]
fn a_tool_can_hand_work_over_without_asking() {
    let lead = calls("research", &json!({"message": "look"}));
    let helper = json!({"replies": [{"text": "found it"}]}).to_string();
    let folder = folder(
        &[("lead", &lead), ("helper", &helper)],
        "tools: {research: {type: agent, agent: helper, requires_approval: false}}
agents:
  lead: {llm: lead, tools: [research], sub_agents: [helper], task: {}}
  helper: {llm: helper, task: {}}
",
    );
    let server = serve(folder.path());
    let run = server.try_ask(&["send", "lead", "please"]).unwrap();
    let run = server.run_once(text(&run["id"]), "completed");
    assert!(log(&server, &run).contains("found it"));
    let said = standfast_testkit::standfast()
        .args(["validate", "standfast.yaml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("no approval:    research\n") && !said.contains("ask_helper"), "{said}");
}

/// T22: what is denied never runs, whoever agrees; what is not listed is asked about when the file says so.
#[test]
fn denied_commands_and_deny_by_default() {
    let tools = "tools:
  denied: {type: command, denied_commands: [rm], requires_approval: false}
  asking: {type: command, allowed_commands: [ls], deny_by_default: false, requires_approval: false}
  strict: {type: command, allowed_commands: [ls], requires_approval: false}
  plain: {type: command, deny_by_default: false, requires_approval: false}
agents:
  denied: {llm: denied, tools: [denied], task: {}}
  asking: {llm: asking, tools: [asking], task: {}}
  strict: {llm: strict, tools: [strict], task: {}}
  plain: {llm: plain, tools: [plain], task: {}}
";
    let echo = |tool: &str| calls(tool, &json!({"command": "echo hello"}));
    let scripts = [
        ("denied", calls("denied", &json!({"argv": ["/bin/rm", "-rf", "."]}))),
        ("asking", echo("asking")),
        ("strict", echo("strict")),
        ("plain", echo("plain")),
    ];
    let scripts: Vec<(&str, &str)> = scripts.iter().map(|(name, script)| (*name, script.as_str())).collect();
    let folder = folder(&scripts, tools);
    let server = serve(folder.path());
    for (agent, status, told) in [
        ("denied", "completed", Some("is denied here")),
        ("strict", "completed", Some("is not allowed here")),
        ("asking", "held", None),
        ("plain", "held", None),
    ] {
        let run = server.send(agent);
        assert_eq!(run["status"], status, "{agent}: {run}");
        let log = log(&server, &run);
        assert!(!log.contains("call.started"), "{agent}: {log}");
        assert!(told.is_none_or(|told| log.contains(told)), "{agent}: {log}");
    }
}

/// F27: a command that takes longer than it may is ended with what it started, and the model gets the reason.
#[test]
fn a_command_is_ended_when_its_time_is_over() {
    let command = json!({"command": "sleep 600"});
    let (_folder, server, run) = approved("{type: command, max_execution_time: 1s}", "slow", &command);
    assert!(log(&server, &run).contains("timed_out"), "{}", log(&server, &run));
}

fn bash(script: &str) -> Value {
    json!({"argv": ["bash", "-c", script]})
}

/// T24: a confined command reaches its own directory and what `readable` adds, and no other; without a sandbox it
/// reaches what the server's user reaches.
#[test]
fn the_sandbox_is_on_unless_the_file_says_off() {
    let outside = tempfile::Builder::new().prefix("out").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (seen, made) = (outside.path().join("seen"), outside.path().join("made"));
    std::fs::write(&seen, "what is outside").unwrap();
    let script = bash(&format!("cat '{}'; echo x > '{}'; echo y > inside", seen.display(), made.display()));
    let readable = format!("{{type: command, readable: ['{}']}}", outside.path().display());
    for (entry, sees, makes) in [
        ("{type: command}", false, false),
        (readable.as_str(), true, false),
        ("{type: command, sandbox: off}", true, true),
    ] {
        let (folder, server, run) = approved(entry, "shell", &script);
        let log = log(&server, &run);
        assert_eq!(log.contains("what is outside"), sees, "{entry}: {log}");
        assert_eq!(made.exists(), makes, "{entry}: {log}");
        assert!(folder.path().join("workspace/inside").exists(), "{entry}: {log}");
    }
}

/// T24: the network is out of reach unless the file says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn commands_reach_the_network_only_where_they_may() {
    let mut other = OtherServer::answering(vec![answer("200 OK", "{}")]).await;
    let script = bash(&format!(
        "exec 3<>/dev/tcp/127.0.0.1/{} && printf 'GET /reached HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3",
        other.port
    ));
    let (_folder, server, run) = approved("{type: command}", "shell", &script);
    assert!(!log(&server, &run).contains("HTTP/1.1 200"), "{}", log(&server, &run));
    let (_folder, server, run) = approved("{type: command, network: true}", "shell", &script);
    assert!(log(&server, &run).contains("HTTP/1.1 200"), "{}", log(&server, &run));
    assert!(other.request().await.starts_with("GET /reached "));
}

/// Starts a command on a machine without Landlock: a filter answers its system call as an older kernel would.
fn without_landlock(mut command: Command) -> Child {
    const LANDLOCK_CREATE_RULESET: i64 = 444;
    const ENOSYS: u32 = 38;
    std::thread::spawn(move || {
        let filter = SeccompFilter::new(
            BTreeMap::from([(LANDLOCK_CREATE_RULESET, Vec::new())]),
            SeccompAction::Allow,
            SeccompAction::Errno(ENOSYS),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    })
    .join()
    .unwrap()
}

/// T24: where the kernel cannot confine commands the server does not start, and says what to write; with that it does.
#[test]
fn without_a_kernel_that_confines_there_is_no_start() {
    let agents = "agents: {a: {llm: s, tools: [shell], task: {}}}\n";
    let script = json!({"replies": [{"text": "done"}]}).to_string();
    let on = folder(&[("s", &script)], &format!("tools: {{shell: {{type: command}}}}\n{agents}"));
    let output = without_landlock(command(on.path())).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("tools.shell: the sandbox is not available") && said.contains("`sandbox: off`"),
        "{said}"
    );
    assert!(!on.path().join("data/standfast.db").exists(), "nothing was opened");
    let off =
        folder(&[("s", &script)], &format!("tools: {{shell: {{type: command, sandbox: off}}}}\n{agents}"));
    let mut child = without_landlock(command(off.path()));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(listens_on(&line).is_some(), "{line}");
}

/// C24: a tool can ask for four eyes where its agent does not.
#[tokio::test(flavor = "multi_thread")]
async fn self_approval_can_be_forbidden_for_one_tool() {
    let script = |tool: &str| calls(tool, &json!({"command": "echo hello"}));
    let folder = folder(
        &[("free", &script("free")), ("strict", &script("strict"))],
        "tools:
  free: {type: command}
  strict: {type: command, self_approval: forbid}
agents:
  free: {llm: free, tools: [free, strict], task: {}, approvers: [owner, bob]}
  strict: {llm: strict, tools: [free, strict], task: {}, approvers: [owner, bob]}
server: {auth: {api_keys: true}}
",
    );
    let server = serve(folder.path());
    let key = |user: &str| {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user, "--data"]).arg(folder.path().join("data"));
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let (ann, bob) = (key("ann"), key("bob"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |key: &str, path: String, body: Value| {
        let request = client.post(format!("{}/api/v1/{path}", server.base)).bearer_auth(key).json(&body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    for (agent, own) in [("free", 200), ("strict", 403)] {
        let start = json!({"input": "please", "wait": "settled"});
        let (_, run) = post(&ann, format!("agents/{agent}/runs"), start).await;
        let resolve = format!("holds/{}/resolve", hold_of(&run, "approval"));
        let (status, said) = post(&ann, resolve.clone(), json!({"resolution": "approve"})).await;
        assert_eq!(status, own, "{agent}: {said}");
        if own == 403 {
            assert_eq!(post(&bob, resolve, json!({"resolution": "approve"})).await.0, 200);
        }
    }
}

/// S0-54: `task.timeout` counts work, not waiting: a run that was held for longer goes on; one that works for longer
/// fails, and what it had started is stopped.
#[test]
fn a_run_may_wait_for_longer_than_it_may_work() {
    let script = |command: &str| calls("shell", &json!({"command": command}));
    let folder = folder(
        &[("quick", &script("echo hello")), ("slow", &script("sleep 600"))],
        "tools: {shell: {type: command, max_execution_time: 1h}}
agents:
  quick: {llm: quick, tools: [shell], task: {timeout: 4s}}
  slow: {llm: slow, tools: [shell], task: {timeout: 4s}}
",
    );
    let server = serve(folder.path());
    let (quick, slow) = (server.send("quick"), server.send("slow"));
    std::thread::sleep(std::time::Duration::from_secs(6));
    approve(&server, &hold_of(&quick, "approval"));
    server.run_once(text(&quick["id"]), "completed");
    approve(&server, &hold_of(&slow, "approval"));
    let failed = server.run_once(text(&slow["id"]), "failed");
    let why = "the run has worked for longer than its task.timeout of 4s allows";
    assert!(log(&server, &failed).contains(why), "{failed}");
}
