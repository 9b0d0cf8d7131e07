//! What a newcomer meets first: `init`, a server that says what it does, keys that reach the right database, slips that get
//! the right word.
//!
//! Every command is typed in a folder of its own with an empty home, as on a machine that has never seen the program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use standfast_testkit::process::listens_on;
use standfast_testkit::{Process, until};
use tempfile::TempDir;

/// Somebody in a folder, with an empty home in it.
struct Newcomer(TempDir);

impl Newcomer {
    fn new() -> Newcomer {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        Newcomer(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = standfast_testkit::standfast();
        command.args(arguments).current_dir(self.0.path()).env("HOME", self.path("home"));
        for other in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "STANDFAST_KEY", "STANDFAST_SERVER", "RUST_LOG"] {
            command.env_remove(other);
        }
        command
    }

    fn types(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Serves, and what is said once it listens, up to the last line of the greeting.
    fn serves(&self, arguments: &[&str]) -> (Process, String) {
        let mut command = self.command(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
        let log = File::create(self.path("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut said, mut line) = (String::new(), String::new());
        while !line.starts_with("pending:") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended: {said}{}", self.log());
            said.push_str(&line);
        }
        let base = listens_on(said.lines().next().unwrap()).unwrap().to_owned();
        (Process { child, base }, said)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// From nothing to an approved call: `init` writes a file that is right, `serve` finds it and says so, and says which
/// database it made, who may call and where the pages are. Nothing is overwritten.
#[test]
fn a_first_configuration_is_written_found_and_served() {
    let me = Newcomer::new();
    let written = me.types(&["init"]);
    assert!(written.status.success(), "{}", said(&written));
    assert!(said(&written).contains("then: standfast serve\n"), "{}", said(&written));
    let again = me.types(&["init"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("standfast.yaml is there already"), "{}", said(&again));
    let validated = me.types(&["validate", "--connect"]);
    assert!(validated.status.success(), "{}", said(&validated));
    assert!(said(&validated).contains("  ok      tools: execute_command, list_dir"), "{}", said(&validated));

    let (server, greeting) = me.serves(&[]);
    let log = me.log();
    assert!(log.contains("using standfast.yaml of the current directory"), "{log}");
    let expected = [
        "config:   standfast.yaml\n",
        "data/standfast.db (new, created by this start)\n",
        "sign-in:  none; only this machine may call\n",
        &format!("page:     {}/ in a browser\n", server.base),
    ];
    for line in expected {
        assert!(greeting.contains(line), "{line:?} is missing: {greeting}");
    }
    let held = server.send("assistant");
    assert_eq!(held["status"], "held", "{held}");
    drop(server);
    let (_server, greeting) = me.serves(&[]);
    assert!(!greeting.contains("(new"), "the second start makes no database: {greeting}");
}

/// `--demo` serves the demo where there is a configuration file.
#[test]
fn the_demo_is_served_when_it_is_asked_for() {
    let me = Newcomer::new();
    assert!(me.types(&["init"]).status.success());
    let (_server, greeting) = me.serves(&["--demo"]);
    assert!(greeting.contains("try:      curl") && !greeting.contains("config:"), "{greeting}");
}

/// A mistyped path of a database, or of a data directory, is an error that names what is missing; only the last folder
/// is made.
#[test]
fn a_mistyped_store_path_is_no_new_database() {
    let me = Newcomer::new();
    let text = |database: &str| {
        format!(
            "llms: {{m: {{type: scripted, script: s.yaml}}}}\nsession_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: {database}}}}}}}\nagents: {{a: {{llm: m, session_store: main, task: {{}}}}}}\n"
        )
    };
    std::fs::write(me.path("s.yaml"), "replies:\n- text: done\n").unwrap();
    std::fs::write(me.path("standfast.yaml"), text("./vra/lib/standfast.db")).unwrap();
    let refused = me.types(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said(&refused).contains("vra does not exist, so ") && said(&refused).contains("mkdir -p"),
        "{}",
        said(&refused)
    );
    assert!(!me.path("vra").exists());
    let refused = me.types(&["serve", "--demo", "--listen", "127.0.0.1:0", "--data", "no/such/place"]);
    assert!(said(&refused).contains("no/such does not exist"), "{}", said(&refused));
    assert!(!me.path("no").exists());
    std::fs::write(me.path("standfast.yaml"), text("./lib/standfast.db")).unwrap();
    let (_server, greeting) = me.serves(&[]);
    assert!(greeting.contains("lib/standfast.db (new"), "{greeting}");
}

/// A key goes into the database of the running server or nowhere: `keys create` says which one it wrote to, and refuses
/// when the server that runs uses another.
#[test]
fn keys_are_not_written_where_no_server_looks() {
    let me = Newcomer::new();
    assert!(me.types(&["init", "conf.yaml"]).status.success());
    // Before the first start too: the folder of the database is made.
    let early = me.types(&["keys", "create", "--user", "ann", "--config", "conf.yaml"]);
    assert!(said(&early).contains("a new database that no server has used yet"), "{}", said(&early));
    let (server, greeting) = me.serves(&["--config", "conf.yaml", "--auth", "keys"]);
    assert!(
        greeting.contains("sign-in:  API key: export STANDFAST_KEY=$(standfast keys create"),
        "{greeting}"
    );
    let refused = me.types(&["keys", "create", "--user", "ann"]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("no key was created: this would write to"), "{}", said(&refused));
    assert!(said(&refused).contains("conf.yaml'"), "it names the configuration to pass: {}", said(&refused));
    assert!(!me.path("home/.local/share/standfast/standfast.db").exists());
    let made = me.types(&["keys", "create", "--user", "ann", "--config", "conf.yaml"]);
    assert!(made.status.success(), "{}", said(&made));
    assert!(
        said(&made).contains("written to ") && said(&made).contains("data/standfast.db\n"),
        "{}",
        said(&made)
    );
    let key = String::from_utf8(made.stdout).unwrap();
    let listed =
        me.command(&["holds", "--server", &server.base]).env("STANDFAST_KEY", key.trim()).output().unwrap();
    assert!(listed.status.success(), "{}", said(&listed));
    drop(server);
    // A server that was killed is not in the way.
    let made = me.types(&["keys", "create", "--user", "ann"]);
    assert!(said(&made).contains("a new database that no server has used yet"), "{}", said(&made));
}

/// Whichever command meets a mistake in the file shows it where it is, line by line.
#[test]
fn every_command_shows_a_mistake_of_the_file_in_its_lines() {
    let me = Newcomer::new();
    std::fs::write(me.path("standfast.yaml"), "agents: {}\nserver:\n  lissten: 127.0.0.1:8080\n").unwrap();
    for command in [
        &["serve"][..],
        &["keys", "create", "--user", "ann"],
        &["backup", "copy.backup"],
        &["restore", "copy.backup"],
        &["export"],
        &["audit", "verify", "--config", "standfast.yaml"],
        &["encryption", "status"],
    ] {
        let refused = me.types(command);
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", said(&refused));
        assert!(said(&refused).contains("\n --> standfast.yaml:3:3\n"), "{command:?}: {}", said(&refused));
    }
}

/// `"wait": true` and the like are answered with the words that there are.
#[tokio::test]
async fn slips_in_requests_get_the_right_word() {
    let me = Newcomer::new();
    let (server, _) = me.serves(&["--demo"]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (body, expected) in [
        (r#"{"input": "x", "wait": true}"#, r#"expected `wait` to be "settled""#),
        (r#"{"input": "x", "wait": "yes"}"#, r#"expected `wait` to be "settled""#),
        (r#"{"message": "x"}"#, "unknown field `message`, expected one of `input`"),
    ] {
        let request = client.post(format!("{}/api/v1/agents/ops/runs", server.base));
        let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{body}");
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{body}: {problem}");
    }
}

/// A reload says which changed keys it did not apply.
#[test]
fn a_reload_names_the_keys_that_need_a_restart() {
    let me = Newcomer::new();
    assert!(me.types(&["init"]).status.success());
    let (_server, _) = me.serves(&[]);
    let file = me.path("standfast.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let changed = text
        .replace("server:\n", "server:\n  limits: {max_body: 2000000, turns: 7}\n  log: {level: debug}\n");
    std::fs::write(&file, changed).unwrap();
    let log = || Some(me.log()).filter(|log| log.contains("need a restart"));
    until("the reload is told", || log().is_some());
    let line = log().unwrap().lines().find(|line| line.contains("need a restart")).unwrap().to_owned();
    assert!(line.contains("server.limits.max_body, server.log") && !line.contains("turns"), "{line}");
    assert!(me.log().contains("configuration reloaded"), "{}", me.log());
}

/// While an MCP server does not answer, the start says what it waits for.
#[test]
fn a_start_says_what_it_waits_for() {
    let me = Newcomer::new();
    std::fs::write(me.path("s.yaml"), "replies:\n- text: done\n").unwrap();
    let text = "llms: {m: {type: scripted, script: s.yaml}}\ntools: {silent: {type: mcp, command: sleep, args: ['600']}}\nagents: {a: {llm: m, tools: [silent], task: {}}}\n";
    std::fs::write(me.path("standfast.yaml"), text).unwrap();
    let log = File::create(me.path("log")).unwrap();
    let mut child =
        me.command(&["serve", "--listen", "127.0.0.1:0"]).stderr(log).stdout(Stdio::null()).spawn().unwrap();
    until("the start says what it waits for", || {
        me.log().contains("mcp: still waiting for the server to answer")
    });
    assert!(me.log().contains("mcp: connecting") && me.log().contains("silent"), "{}", me.log());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// `examples/production.yaml` works as it stands, but for the model, which here follows a script, and the folder of its
/// database: it starts with the variables that it names, a call is held, its owner may not approve it, an operator may,
/// and the command runs.
#[test]
fn the_production_example_works() {
    let me = Newcomer::new();
    let repository = standfast_testkit::binary::repository_root();
    let text = std::fs::read_to_string(repository.join("examples/production.yaml")).unwrap();
    let model = "type: anthropic\n    model: claude-sonnet-4-5\n    api_key: ${ANTHROPIC_API_KEY}\n";
    assert!(text.contains(model), "{text}");
    let script = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"git --version\"}'\n- text: done\n";
    std::fs::write(me.path("script.yaml"), script).unwrap();
    std::fs::write(
        me.path("standfast.yaml"),
        text.replace(model, "type: scripted\n    script: script.yaml\n"),
    )
    .unwrap();
    let store = me.path("store.db");
    let with_store = |mut command: Command| {
        command.env("STANDFAST_DB", &store);
        command
    };
    let checked = with_store(me.command(&["validate"])).output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
    let key = |user: &str, more: &[&str]| {
        let made =
            with_store(me.command(&[&["keys", "create", "--user", user], more].concat())).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (bob, ann) = (key("bob", &[]), key("ann", &["--group", "operations"]));
    let mut command = with_store(me.command(&["serve", "--listen", "127.0.0.1:0"]));
    let server = standfast_testkit::start(command.stderr(File::create(me.path("log")).unwrap()));
    let asks = |key: &str, arguments: &[&str]| {
        let mut command = me.command(&[arguments, &["--json", "--server", &server.base]].concat());
        command.env("STANDFAST_KEY", key).output().unwrap()
    };
    let sent = asks(&bob, &["send", "deployer", "Which git is it?", "--wait"]);
    let held: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(held["status"], "held", "{held}{}", me.log());
    let hold = held["holds"][0]["id"].as_str().unwrap();
    assert!(!asks(&bob, &["holds", "approve", hold]).status.success(), "four eyes");
    assert!(asks(&ann, &["holds", "approve", hold]).status.success());
    let run = held["id"].as_str().unwrap();
    until("the run is completed", || said(&asks(&bob, &["show", run])).contains("\"completed\""));
    let shown = said(&asks(&bob, &["show", run]));
    assert!(shown.contains("git version"), "{shown}");
}

/// Completions, man pages and the version are there.
#[test]
fn completions_man_pages_and_version() {
    let me = Newcomer::new();
    for shell in ["bash", "zsh", "fish"] {
        let printed = me.types(&["completions", shell]);
        assert!(printed.status.success() && said(&printed).contains("backup"), "{shell}: {}", said(&printed));
    }
    std::fs::create_dir(me.path("man")).unwrap();
    assert!(me.types(&["man", "man"]).status.success());
    let mut page = String::new();
    File::open(me.path("man/standfast-backup.1")).unwrap().read_to_string(&mut page).unwrap();
    assert!(page.contains(".TH") && me.path("man/standfast.1").exists(), "{page}");
    let version = said(&me.types(&["--version"]));
    assert!(version.starts_with("standfast 0."), "{version}");
}
