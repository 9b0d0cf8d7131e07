//! The client loops that the guide prints, taken from its pages and run as they stand, in Python and TypeScript: in the
//! older dialect (`docs/hector.md`) and in A2A 1.0 (`docs/a2a-approvals.md`). Whatever happens meanwhile, they end.
//!
//! A loop is a real process that is typed to. Programs come from the pages, never from here; `cargo xtask test` installs
//! what they need.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::a2a::clients::{folder as clients, python};
use crate::a2a::server::{Server, authorization, configured};
use crate::printed::{answers, blocks, is_as_shown, keyed, page};

/// How long a loop may say nothing.
const PATIENCE: Duration = Duration::from_secs(90);

/// The loops that the guide prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrintedLoop {
    DialectPython,
    DialectTypescript,
    Python,
    Typescript,
}

impl PrintedLoop {
    fn page(self) -> &'static str {
        match self {
            PrintedLoop::DialectPython | PrintedLoop::DialectTypescript => "hector.md",
            PrintedLoop::Python | PrintedLoop::Typescript => "a2a-approvals.md",
        }
    }

    fn is_dialect(self) -> bool {
        matches!(self, PrintedLoop::DialectPython | PrintedLoop::DialectTypescript)
    }

    /// What it says when it wants a decision.
    fn asks(self) -> &'static str {
        if self.is_dialect() { "Your decision: " } else { "> " }
    }

    /// The program, as the page prints it, ready to run.
    fn program(self, folder: &Path) -> Command {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(self.page());
        let page = std::fs::read_to_string(page).unwrap();
        match self {
            PrintedLoop::DialectPython | PrintedLoop::Python => {
                let file = folder.join("loop.py");
                std::fs::write(&file, block(&page, "python")).unwrap();
                let mut command =
                    if self.is_dialect() { Command::new("python3") } else { python("a2a-clients") };
                command.arg(file);
                command
            }
            PrintedLoop::DialectTypescript | PrintedLoop::Typescript => {
                std::fs::write(folder.join("loop.ts"), block(&page, "typescript")).unwrap();
                let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/approval-loop");
                for file in ["tsconfig.json", "package.json"] {
                    std::fs::copy(examples.join(file), folder.join(file)).unwrap();
                }
                std::os::unix::fs::symlink(clients().join("node_modules"), folder.join("node_modules"))
                    .unwrap();
                let checked = Command::new("node_modules/.bin/tsc").current_dir(folder).output().unwrap();
                assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
                let mut command = Command::new("node");
                command.arg(folder.join("loop.js"));
                command
            }
        }
    }
}

/// The one block of this language on a page.
fn block(page: &str, language: &str) -> String {
    let begin = format!("\n```{language}\n");
    let blocks: Vec<&str> = page.split(&begin).skip(1).collect();
    let [one] = blocks.as_slice() else { panic!("{} blocks of {language}", blocks.len()) };
    let (code, _) = one.split_once("\n```").unwrap();
    format!("{code}\n")
}

/// A loop that runs.
struct Loop {
    child: Child,
    typed: ChildStdin,
    heard: Receiver<Vec<u8>>,
    printed: String,
    /// Up to where what it printed was read.
    read: usize,
    asks: &'static str,
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Loop {
    fn start(
        printed: PrintedLoop,
        folder: &Path,
        (server, key): (&Server, Option<&str>),
        agent: &str,
    ) -> Loop {
        let mut command = printed.program(folder);
        let base = &server.program.base;
        if printed.is_dialect() {
            command.args([base.as_str(), agent]);
        } else {
            command.arg(format!("{base}/v1/agents/{agent}"));
        }
        command.arg("Please do it").env("NO_PROXY", "*").env("no_proxy", "*").env_remove("STANDFAST_KEY");
        command.envs(key.map(|key| ("STANDFAST_KEY", key)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (typed, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = out.read(&mut bytes) {
                if count == 0 || tell.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Loop { child, typed, heard, printed: String::new(), read: 0, asks: printed.asks() }
    }

    /// What it prints until it wants a decision.
    fn question(&mut self) -> String {
        let asks = self.asks;
        self.until(asks)
    }

    fn until(&mut self, what: &str) -> String {
        loop {
            if let Some(at) = self.printed[self.read..].find(what) {
                let said = self.printed[self.read..self.read + at].to_owned();
                self.read += at + what.len();
                return said;
            }
            match self.heard.recv_timeout(PATIENCE) {
                Ok(bytes) => self.printed.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what:?} does not come: {}", self.printed)
                }
            }
        }
    }

    fn types(&mut self, line: &str) {
        writeln!(self.typed, "{line}").unwrap();
    }

    /// What it prints last; it has to end well.
    fn end(mut self) -> String {
        loop {
            match self.heard.recv_timeout(PATIENCE) {
                Ok(bytes) => self.printed.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {}", self.printed),
            }
        }
        assert!(self.child.wait().unwrap().success(), "{}", self.printed);
        self.printed[self.read..].to_owned()
    }
}

/// Agents that write files: `one` at a time, `two` in one reply, `hasty` who waits five seconds for decisions, `mixed` who does so
/// for one of two, and `asking`, who asks a question.
struct World {
    folder: TempDir,
    server: Server,
}

fn world() -> World {
    world_with("")
}

/// The same with more of its configuration.
fn world_with(more: &str) -> World {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let write = |name: &str| {
        format!(r#"{{tool: write_file, arguments: '{{"path": "{name}.txt", "content": "x"}}'}}"#)
    };
    let done = "- text: All done.\n";
    let scripts = [
        ("one", format!("replies:\n- calls: [{}]\n- calls: [{}]\n{done}", write("a"), write("b"))),
        ("two", format!("replies:\n- calls: [{}, {}]\n{done}", write("a"), write("b"))),
        (
            "mixed",
            format!(
                "replies:\n- calls: [{}, {}]\n{done}",
                write("a").replace("write_file", "write_soon"),
                write("b")
            ),
        ),
        (
            "asking",
            format!(
                "replies:\n- calls: [{{tool: suspend-for-input, arguments: '{{\"reason\": \"colour\", \"question\": \"Which colour?\"}}'}}]\n{done}"
            ),
        ),
    ];
    for (name, script) in scripts {
        std::fs::write(folder.path().join(format!("{name}.yaml")), script).unwrap();
    }
    let agent = |name: &str, llm: &str, task: &str| {
        format!(
            "  {name}: {{llm: {llm}, tools: [write_file, write_soon, suspend-for-input], session_store: db, task: {task}}}\n"
        )
    };
    let config = format!(
        "llms: {{one: {{type: scripted, script: one.yaml}}, two: {{type: scripted, script: two.yaml}}, asking: {{type: scripted, script: asking.yaml}}, mixed: {{type: scripted, script: mixed.yaml}}}}\n\
         tools: {{write_soon: {{type: write_file, input_timeout: 5, on_timeout: deny}}}}\n\
         session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./runs.db}}}}}}\n\
         {more}agents:\n{}{}{}{}{}{}",
        agent("one", "one", "{}"),
        agent("two", "two", "{}"),
        agent("asking", "asking", "{}"),
        agent("hasty", "two", "{input_timeout: 5, hitl: {on_timeout: deny}}"),
        agent("strict", "one", "{input_timeout: 5}"),
        agent("mixed", "mixed", "{}"),
    );
    let server = configured(folder.path(), &config);
    World { folder, server }
}

impl World {
    fn program(&self, printed: PrintedLoop) -> PathBuf {
        tempfile::Builder::new()
            .prefix(&format!("{printed:?}"))
            .tempdir_in(self.folder.path())
            .unwrap()
            .keep()
    }

    fn start(&self, printed: PrintedLoop, agent: &str) -> Loop {
        Loop::start(printed, &self.program(printed), (&self.server, None), agent)
    }

    /// Which files were written; they are forgotten with it.
    fn written(&self) -> String {
        let path = |name: &str| self.folder.path().join("workspace").join(format!("{name}.txt"));
        ["a", "b", "c"].into_iter().filter(|name| std::fs::remove_file(path(name)).is_ok()).collect()
    }

    /// The open holds, each with its input.
    async fn holds(&self) -> Vec<(String, String)> {
        let listed = self.server.get("/api/v1/holds").await.body;
        let mut found = Vec::new();
        for hold in listed["holds"].as_array().into_iter().flatten() {
            let id = hold["id"].as_str().unwrap().to_owned();
            let whole = self.server.get(&format!("/api/v1/holds/{id}")).await.body;
            found.push((id, whole.to_string()));
        }
        found
    }

    /// Approves the hold about this file, as somebody else, on another surface.
    async fn approve_elsewhere(&self, name: &str) {
        let holds = self.holds().await;
        let (id, _) = holds.iter().find(|(_, whole)| whole.contains(&format!("{name}.txt"))).unwrap();
        let answer =
            self.server.post(&format!("/api/v1/holds/{id}/resolve"), &json!({"resolution": "approve"})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Waits until there are so many open holds.
    async fn until_holds(&self, count: usize) {
        standfast_testkit::until_found("the open holds", async || {
            (self.holds().await.len() == count).then_some(())
        })
        .await;
    }
}

/// What every printed loop must get through, in the words of the page it is on: one call after the other, several in a reply,
/// words that are no decision, other arguments, a question.
async fn gets_through(printed: PrintedLoop) {
    let world = world();
    // One call after the other; what is not a decision is asked again.
    let mut run = world.start(printed, "one");
    assert!(run.question().contains("a.txt"), "{printed:?}");
    run.types("hm");
    let again = run.question();
    assert!(again.contains("Nothing was decided") && again.contains("a.txt"), "{printed:?}: {again}");
    run.types("approve");
    assert!(run.question().contains("b.txt"), "{printed:?}");
    run.types("deny");
    let end = run.end();
    assert_eq!(end, "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "a", "{printed:?}");

    // Several calls in one reply: the dialect asks them one by one, 1.0 together.
    let mut run = world.start(printed, "two");
    let first = run.question();
    assert_eq!(first.contains("b.txt"), !printed.is_dialect(), "{printed:?}: {first}");
    run.types("approve");
    run.question();
    run.types("approve");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "ab", "{printed:?}");

    // Other arguments, after some that cannot be read.
    let mut run = world.start(printed, "one");
    run.question();
    for arguments in ["{not json", r#"{"path": 7}"#] {
        run.types("modify");
        run.types(arguments);
        let again = run.question_after_modify(printed);
        assert!(again.contains("a.txt"), "{printed:?}: {again}");
        assert_eq!(world.written(), "", "{printed:?}: nothing ran");
    }
    run.types("modify");
    run.types(r#"{"path": "c.txt", "content": "y"}"#);
    let next = run.question_after_modify(printed);
    assert!(next.contains("b.txt"), "{printed:?}: {next}");
    run.types("approve");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "bc", "{printed:?}");

    // A question takes what is typed as its answer.
    let mut run = world.start(printed, "asking");
    assert!(run.question().contains("Which colour?"), "{printed:?}");
    run.types("blue");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
}

impl Loop {
    /// The next question, behind the prompt for arguments.
    fn question_after_modify(&mut self, printed: PrintedLoop) -> String {
        let prompt = if printed.is_dialect() { "All arguments, as JSON: " } else { "arguments, as JSON> " };
        self.until(prompt);
        self.question()
    }
}

/// A hold that timed out, alone or with all others, and one that somebody else decided, never leave a loop stuck: it is shown the
/// task as it is now, and decides nothing that it was not shown.
async fn is_never_stuck(printed: PrintedLoop) {
    let world = world();
    // Somebody else decides what it was shown; the next question is another one.
    let mut run = world.start(printed, "one");
    run.question();
    world.approve_elsewhere("a").await;
    world.until_holds(1).await;
    run.types("deny");
    let next = run.question();
    assert!(next.contains("b.txt"), "{printed:?}: {next}");
    assert_eq!(world.written(), "a", "{printed:?}");
    run.types("approve");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "b", "{printed:?}");

    // Somebody else decides everything: the task has ended when the decision comes.
    let mut run = world.start(printed, "one");
    run.question();
    for name in ["a", "b"] {
        world.until_holds(1).await;
        world.approve_elsewhere(name).await;
    }
    world.until_holds(0).await;
    world.until_ended("one").await;
    run.types("deny");
    let end = run.end();
    assert!(end.contains("TASK_STATE_COMPLETED\nAll done.\n"), "{printed:?}: {end}");
    assert_eq!(world.written(), "ab", "{printed:?}");

    // One of two holds is decided elsewhere while both are asked.
    let mut run = world.start(printed, "two");
    run.question();
    world.approve_elsewhere("a").await;
    world.until_holds(1).await;
    run.types("approve");
    if !printed.is_dialect() {
        run.question();
        run.types("approve");
    }
    let next = run.question();
    assert!(next.contains("b.txt"), "{printed:?}: {next}");
    run.types("approve");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "ab", "{printed:?}");

    // One of two times out while both are asked, and the other is asked about still.
    let mut run = world.start(printed, "mixed");
    run.question();
    world.until_holds(1).await;
    run.types("approve");
    if !printed.is_dialect() {
        run.question();
        run.types("approve");
    }
    let next = run.question();
    assert!(next.contains("b.txt") && !next.contains("a.txt"), "{printed:?}: {next}");
    run.types("approve");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "b", "{printed:?}: what timed out never runs");

    // Both time out, and the task goes on without them.
    let mut run = world.start(printed, "hasty");
    run.question();
    world.until_ended("hasty").await;
    run.types("approve");
    if !printed.is_dialect() {
        run.question();
        run.types("approve");
    }
    let end = run.end();
    assert!(end.contains("TASK_STATE_COMPLETED\nAll done.\n"), "{printed:?}: {end}");
    assert_eq!(world.written(), "", "{printed:?}: what timed out never runs");

    // The time-out ends the task.
    let mut run = world.start(printed, "strict");
    run.question();
    world.until_ended("strict").await;
    run.types("approve");
    let end = run.end();
    let expected = "TASK_STATE_FAILED\n";
    assert!(end.contains(expected) && end.contains("timeout waiting for user input"), "{printed:?}: {end}");
    assert_eq!(world.written(), "", "{printed:?}");
}

impl World {
    /// Waits until every task of an agent has ended.
    async fn until_ended(&self, agent: &str) {
        let path = format!("/v1/agents/{agent}/tasks");
        standfast_testkit::until_found("the end of the tasks", async || {
            let listed = self.server.get(&path).await.body;
            let tasks = listed["tasks"].as_array()?.clone();
            let is_over = |task: &Value| {
                ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED"]
                    .contains(&task["status"]["state"].as_str().unwrap())
            };
            tasks.iter().all(is_over).then_some(())
        })
        .await;
    }
}

/// The word alone is not a modification: the task still waits, and the answer says so.
async fn modify_alone_is_asked_again(printed: PrintedLoop) {
    let world = world();
    let mut run = world.start(printed, "one");
    run.question();
    run.types("modify");
    run.types("");
    let again = run.question_after_modify(printed);
    assert!(again.contains("a.txt") && again.contains("Nothing was decided"), "{printed:?}: {again}");
    assert!(again.contains("modified_input"), "{printed:?}: {again}");
    run.types("approve");
    run.question();
    run.types("approve");
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "ab", "{printed:?}");
}

/// S3-18, S3-20, S3-21, S3-22, S3-23: the loop of docs/hector.md in Python, as it is printed, ends with one call after the other, with several in a
/// reply, after words that are no decision and after arguments that cannot be read; what was approved is on disk, what was not is not.
#[tokio::test]
async fn the_printed_python_loop_of_the_dialect_gets_through() {
    gets_through(PrintedLoop::DialectPython).await;
}

/// S3-18, S3-20, S3-23, S3-26, S3-28, C7, C26: the loop of docs/hector.md in Python, as it is printed, ends when a hold times out, alone or with all others,
/// when somebody else decides, and after `modify` without arguments, and never decides what it was not shown. A task that the time-out ends
/// is FAILED with `timeout waiting for user input`.
#[tokio::test]
async fn the_printed_python_loop_of_the_dialect_is_never_stuck() {
    is_never_stuck(PrintedLoop::DialectPython).await;
    modify_alone_is_asked_again(PrintedLoop::DialectPython).await;
}

/// S3-18, S3-20, S3-21, S3-22, S3-23: the loop of docs/hector.md in TypeScript, as it is printed, ends with one call after the other, with several in a
/// reply, after words that are no decision and after arguments that cannot be read; what was approved is on disk, what was not is not.
#[tokio::test]
async fn the_printed_typescript_loop_of_the_dialect_gets_through() {
    gets_through(PrintedLoop::DialectTypescript).await;
}

/// S3-18, S3-20, S3-23, S3-26, S3-28, C7, C26: the loop of docs/hector.md in TypeScript, as it is printed, ends when a hold times out, alone or with all others,
/// when somebody else decides, and after `modify` without arguments, and never decides what it was not shown. A task that the time-out ends
/// is FAILED with `timeout waiting for user input`.
#[tokio::test]
async fn the_printed_typescript_loop_of_the_dialect_is_never_stuck() {
    is_never_stuck(PrintedLoop::DialectTypescript).await;
    modify_alone_is_asked_again(PrintedLoop::DialectTypescript).await;
}

/// S3-20, S3-21, S3-22, S3-23: the same with the loop of docs/a2a-approvals.md in Python, which is shown several calls together.
#[tokio::test]
async fn the_printed_python_loop_gets_through() {
    gets_through(PrintedLoop::Python).await;
}

/// S3-20, S3-23, C7, C26: the loop of docs/a2a-approvals.md in Python ends too when holds time out or somebody else decides, and is asked
/// again after `modify` without arguments.
#[tokio::test]
async fn the_printed_python_loop_is_never_stuck() {
    is_never_stuck(PrintedLoop::Python).await;
    modify_alone_is_asked_again(PrintedLoop::Python).await;
}

/// S3-20, S3-21, S3-22, S3-23: the same with the loop of docs/a2a-approvals.md in TypeScript, which is shown several calls together.
#[tokio::test]
async fn the_printed_typescript_loop_gets_through() {
    gets_through(PrintedLoop::Typescript).await;
}

/// S3-20, S3-23, C7, C26: the loop of docs/a2a-approvals.md in TypeScript ends too when holds time out or somebody else decides, and is
/// asked again after `modify` without arguments.
#[tokio::test]
async fn the_printed_typescript_loop_is_never_stuck() {
    is_never_stuck(PrintedLoop::Typescript).await;
    modify_alone_is_asked_again(PrintedLoop::Typescript).await;
}

/// Where the server wants keys, a printed loop works with one as it works without, and is turned away without one.
fn brings_its_key(printed: PrintedLoop) {
    let world = world_with("server: {auth: {api_keys: true}}\n");
    let key = authorization(world.folder.path());
    let key = key.strip_prefix("Bearer ");
    let mut run = Loop::start(printed, &world.program(printed), (&world.server, key), "one");
    for name in ["a.txt", "b.txt"] {
        let asked = run.question();
        assert!(asked.contains(name), "{printed:?}: {asked}");
        run.types("approve");
    }
    assert_eq!(run.end(), "TASK_STATE_COMPLETED\nAll done.\n", "{printed:?}");
    assert_eq!(world.written(), "ab", "{printed:?}");
    let mut stranger = Loop::start(printed, &world.program(printed), (&world.server, None), "one");
    assert!(!stranger.child.wait().unwrap().success(), "{printed:?}");
    assert_eq!(world.written(), "", "{printed:?}");
}

/// S3-18, S3-20: the printed loops in Python work with keys on.
#[test]
fn the_printed_python_loops_bring_their_key() {
    brings_its_key(PrintedLoop::DialectPython);
    brings_its_key(PrintedLoop::Python);
}

/// S3-18, S3-20: the printed loops in TypeScript work with keys on.
#[test]
fn the_printed_typescript_loops_bring_their_key() {
    brings_its_key(PrintedLoop::DialectTypescript);
    brings_its_key(PrintedLoop::Typescript);
}

/// S3-16, S3-18, S3-24: so do the requests of docs/hector.md, by the header that the page names.
#[test]
fn the_printed_requests_bring_their_key() {
    let world = world_with("server: {auth: {api_keys: true}}\n");
    let key = authorization(world.folder.path());
    let variables = [("STANDFAST_KEY", key.strip_prefix("Bearer ").unwrap())];
    let page = page("hector.md").replace("localhost:8080", world.server.program.address());
    let page = page.replace("/agents/assistant/", "/agents/one/");
    let requests = blocks(&page, "sh");
    let [begin, approve, cancel, ..] = requests.as_slice() else { panic!("{requests:?}") };
    let began = answers(&keyed(&page, begin), &variables);
    assert_eq!(began["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{began}");
    let of_task = |request: &str| request.replace("run_…", began["task"]["id"].as_str().unwrap());
    let next = answers(&keyed(&page, &of_task(approve)), &variables);
    assert_eq!(next["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{next}");
    assert_eq!(world.written(), "a", "the first was approved");
    let stranger = answers(&of_task(cancel), &[]);
    assert_eq!(stranger["error"]["code"], 401, "{stranger}");
    let cancelled = answers(&keyed(&page, &of_task(cancel)), &variables);
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELLED", "{cancelled}");
}

/// A printed request, for this server and task, as a shell would run it.
fn shell(block: &str, server: &Server, task: &str) -> Command {
    let address = server.program.base.strip_prefix("http://").unwrap();
    let mut command = Command::new("bash");
    let text = block.replace("curl ", "curl -sS --noproxy '*' ").replace("localhost:8080", address);
    command.arg("-c").arg(text.replace("run_…", task)).stdout(Stdio::piped());
    command
}

/// S3-10, S3-16, S3-17, S3-18, S3-21, S3-24, S3-25, S3-30: the page's configuration, with a scripted model in the place of OpenAI's, and
/// its requests, as they are printed: begin, subscribe, decide, cancel; the first answer has the members and values that the page shows
/// below it, the stream its events, and the command that is approved has its effect on disk, without a warning.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_the_page_work_as_they_are_printed() {
    // The server lives outside of what the page lets commands change.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let temporary = tempfile::Builder::new().prefix("standfast-page-").tempdir_in("/tmp").unwrap();
    let old = temporary.path().join("old-files");
    std::fs::create_dir(&old).unwrap();
    let page = page("hector.md").replace("/tmp/old-files", old.to_str().unwrap());
    let requests = blocks(&page, "sh");
    let [begin, approve, cancel, subscribe, _example] = requests.as_slice() else { panic!("{requests:?}") };
    let command = page.lines().find_map(|line| line.strip_prefix("Input: ")).unwrap();
    let script = json!({"replies": [
        {"calls": [{"tool": "execute_command", "arguments": json!({"command": command}).to_string()}]}, {"text": "All done."}]});
    std::fs::write(folder.path().join("script.yaml"), script.to_string()).unwrap();
    let config = block(&page, "yaml");
    let model = r#"{type: openai, model: gpt-4o, api_key: "${OPENAI_API_KEY}"}"#;
    assert!(config.contains(model), "{config}");
    let server = configured(folder.path(), &config.replace(model, "{type: scripted, script: script.yaml}"));
    let answer = |block: &str, task: &str| -> Value {
        serde_json::from_slice(&shell(block, &server, task).output().unwrap().stdout).unwrap()
    };
    let began = answer(begin, "");
    let shown = blocks(&page, "json");
    let [shown] = shown.as_slice() else { panic!("{shown:?}") };
    // Ids in memory, where this agent's runs are, have an `m` in front.
    let shown = ["run_…", "ses_…", "hold_…"]
        .iter()
        .fold((*shown).to_owned(), |shown, id| shown.replace(id, &format!("m{id}")));
    is_as_shown(&serde_json::from_str(&shown).unwrap(), &began);
    assert!(old.exists(), "nothing happens before the approval");
    let id = began["task"]["id"].as_str().unwrap();
    let following = shell(subscribe, &server, id).spawn().unwrap();
    let done = answer(approve, id);
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(done["task"]["status"]["message"]["parts"][0]["text"], "All done.");
    assert!(!old.exists(), "the printed command has its effect");
    let heard = String::from_utf8(following.wait_with_output().unwrap().stdout).unwrap();
    for frame in heard.split("\n\n").filter(|frame| frame.contains("data:")) {
        assert!(frame.starts_with("event: status_update\ndata: {\"taskId\":\""), "{heard}");
    }
    assert!(heard.contains("TASK_STATE_COMPLETED"), "{heard}");
    let began = answer(begin, "");
    let cancelled = answer(cancel, began["task"]["id"].as_str().unwrap());
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELLED", "{cancelled}");
    std::fs::write(folder.path().join("printed.yaml"), &config).unwrap();
    let mut validate = standfast_testkit::standfast();
    validate.arg("validate").arg(folder.path().join("printed.yaml")).env("OPENAI_API_KEY", "sk-none");
    assert!(validate.output().unwrap().status.success(), "the configuration loads as it stands");
}

/// S3-18, S3-30: the complete example of the page that needs no key: its two commands as they are printed, from a server to the end of a task.
#[tokio::test(flavor = "multi_thread")]
async fn the_complete_example_of_the_page_comes_to_its_end() {
    let page = page("hector.md");
    let commands: Vec<&str> = blocks(&page, "sh").pop().unwrap().lines().collect();
    let [serve, talk] = commands.as_slice() else { panic!("{commands:?}") };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::create_dir(folder.path().join("examples")).unwrap();
    for file in ["examples/scripted.yaml", "examples/scripted.script.yaml"] {
        let printed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        std::fs::copy(printed, folder.path().join(file)).unwrap();
    }
    std::fs::write(folder.path().join("loop.py"), block(&page, "python")).unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(serve.strip_prefix("standfast ").unwrap().split(' ')).args(["--listen", "127.0.0.1:0"]);
    command.current_dir(folder.path()).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    let server = standfast_testkit::start(&mut command);
    let talk = talk.replace("localhost:8080", server.address()).replacen("python ", "python3 ", 1);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("echo approve | {talk}")]).current_dir(folder.path());
    let talked = shell.env("NO_PROXY", "*").env_remove("STANDFAST_KEY").output().unwrap();
    let said = String::from_utf8_lossy(&talked.stdout);
    assert!(talked.status.success(), "{said}{}", String::from_utf8_lossy(&talked.stderr));
    assert!(said.contains("Run this on the server? echo freed some space"), "{said}");
    assert!(said.ends_with("TASK_STATE_COMPLETED\nThere is room again.\n"), "{said}");
}
