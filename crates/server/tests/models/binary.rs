//! The real binary with a provider on this machine: the complete example, restarts, budgets, secrets, `llm check`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::KEY;
use standfast_testkit::provider::{Answer, Fake, Pieces, Signal};
use standfast_testkit::{Process as Server, text};

const EXAMPLE: &str = include_str!("../../../../examples/complete.yaml");
const WORDS: &[u8] = include_bytes!("streams/words_openai_chat.sse");

fn standfast(folder: &Path) -> Command {
    let mut command = standfast_testkit::standfast();
    command.current_dir(folder).env("OPENAI_API_KEY", KEY).env("RUST_LOG", "debug");
    command
}

pub(super) fn serve(folder: &Path) -> Server {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = standfast(folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config", "standfast.yaml", "--data", "data"]);
    standfast_testkit::start(command.stderr(log))
}

/// A folder with this configuration.
fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

/// An agent with the tools of the recorded streams, whose runs survive a restart.
pub(super) fn durable(llm: &str, more: &str) -> TempDir {
    folder(&format!(
        "llms:\n  the-llm: {llm}\n\
         session_stores: {{main-db: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents:\n  assistant: {{llm: the-llm, session_store: main-db, tools: [execute_command, suspend-for-input], task: {{}}}}\n{more}"
    ))
}

fn call(arguments: &str) -> String {
    let delta = serde_json::json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "execute_command", "arguments": arguments}}]});
    calls(&delta)
}

fn calls(delta: &Value) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n\
         data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"tool_calls\"}}]}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":100,\"completion_tokens\":10}}}}\n\ndata: [DONE]\n\n"
    )
}

/// Nothing that the server wrote has a secret in it: not its log, not its database, not its answers.
fn keeps_the_key(folder: &Path, answers: &[&Value]) {
    for answer in answers {
        assert!(!answer.to_string().contains(KEY));
    }
    for file in std::fs::read_dir(folder).unwrap().chain(std::fs::read_dir(folder.join("data")).unwrap()) {
        let path = file.unwrap().path();
        if path.is_file() && path.file_name().is_some_and(|name| name != "standfast.yaml") {
            let bytes = std::fs::read(&path).unwrap();
            let has_key = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!has_key, "the key is in {}", path.display());
        }
    }
}

/// S3-14, S3-15, S3-16, S3-8: the complete example as it stands, with `base_url` set to a server on this machine, runs
/// through hold, approval and completion. Tokens and cost are summed and shown; the key is nowhere.
#[test]
fn the_complete_example_runs() {
    let fake = Fake::answering(vec![
        Answer::stream(call(r#"{"command": "pwd"}"#)).in_pieces(Pieces::Bytes),
        Answer::stream(WORDS),
    ]);
    let priced = format!(
        "api_key: ${{OPENAI_API_KEY}}\n    base_url: {}/v1\n    price: {{input: 2.5, output: 10}}",
        fake.url
    );
    let config = EXAMPLE.replace("api_key: ${OPENAI_API_KEY}", &priced);
    assert_ne!(config, EXAMPLE);
    let folder = folder(&config);
    let server = serve(folder.path());
    let held = server.ask_anyway(&["send", "assistant", "Where are we?", "--wait"]);
    assert_eq!(held["status"], "held", "{held}");
    let hold = server.ask_anyway(&["holds", "show", text(&held["holds"][0]["id"])]);
    assert_eq!(hold["question"], "Execute command: pwd?", "{hold}");
    let first = fake.request().unwrap();
    assert!(first.head.starts_with("POST /v1/chat/completions "), "{}", first.head);
    let body: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!((&body["model"], &body["stream"]), (&"gpt-4o".into(), &true.into()));
    assert_eq!(body["tools"].as_array().unwrap().len(), 3, "{body}");

    server.ask_anyway(&["holds", "approve", text(&hold["id"])]);
    let done = server.run_once(text(&held["id"]), "completed");
    assert_eq!(done["result"], "Fertig.", "{done}");
    let usage = &done["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&300.into(), &15.into()), "{done}");
    assert_eq!(usage["cost_micros"], 300 * 5 / 2 + 150, "{done}");
    let second = fake.request().unwrap().body;
    assert!(second.contains(r#""arguments":"{\"command\": \"pwd\"}""#), "{second}");
    assert!(second.contains("workspace"), "the model is told what the command printed: {second}");
    keeps_the_key(folder.path(), &[&held, &hold, &done]);
}

/// The type of a model, the stream that asks, the stream that ends, and what must be in the request between them.
type Restarted<'a> = (&'a str, &'a [u8], &'a [u8], &'a [&'a str]);

/// The recorded call as one of the tool that asks a person: it takes any number.
pub(super) fn as_question(text: &str) -> String {
    let named = text.replace("execute_command", "suspend-for-input").replace("command", "reason");
    named.replace(r#"\"n\":"#, r#"\"data\":"#).replace(r#""n":"#, r#""data":"#)
}

/// T1, F26: what a provider wants back is stored as it came and goes back byte for byte after `kill -9`.
#[test]
fn thinking_and_its_signatures_survive_a_restart() {
    let cases: [Restarted<'_>; 3] = [
        (
            "anthropic",
            include_bytes!("streams/anthropic.sse"),
            include_bytes!("streams/words_anthropic.sse"),
            &[
                r#""signature":"EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk/xYZ==","thinking":"They want a listing. ü""#,
                r#"{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"}"#,
                r#""input":{"command": "ls -la é", "n":9007199254740993}"#,
            ],
        ),
        (
            "openai_responses",
            include_bytes!("streams/openai_responses.sse"),
            b"data: {\"type\":\"response.completed\",\"response\":{}}\n\n",
            &[
                r#"{"id":"rs_68aa","type":"reasoning","encrypted_content":"gAAAAABo+encrypted/reasoning==","summary":[]},{"id":"msg_68ab","#,
            ],
        ),
        (
            "gemini",
            include_bytes!("streams/gemini.sse"),
            b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Fertig.\"}]},\"finishReason\":\"STOP\"}]}\n\n",
            &[
                r#"{"functionCall":{"name":"execute_command","args":{"command": "ls -la é", "n":9007199254740993}},"thoughtSignature":"CpIBAcu98PDn+sig/=="}"#,
            ],
        ),
    ];
    for (kind, asks, ends, parts) in cases {
        let (asks, parts) =
            (as_question(&String::from_utf8_lossy(asks)), parts.iter().map(|part| as_question(part)));
        let fake = Fake::answering(vec![Answer::stream(asks), Answer::stream(ends)]);
        let llm =
            format!("{{type: {kind}, model: m-1, api_key: '${{OPENAI_API_KEY}}', base_url: '{}'}}", fake.url);
        let folder = durable(&llm, "");
        let first = serve(folder.path());
        let held = first.ask_anyway(&["send", "assistant", "please", "--wait"]);
        assert_eq!(held["status"], "held", "{kind}: {held}");
        fake.request().unwrap();
        drop(first);
        let second = serve(folder.path());
        let hold = text(&held["holds"][0]["id"]);
        second.ask_anyway(&["holds", "answer", hold, "not now"]);
        second.run_once(text(&held["id"]), "completed");
        let body = fake.request().unwrap().body;
        for part in parts {
            assert!(body.contains(&part), "{kind}: {part}\nis not in\n{body}");
        }
        assert!(body.contains("not now"), "{body}");
        keeps_the_key(folder.path(), &[&held]);
    }
}

/// F26: a provider that is busy is asked again, also by the next server; the log says who said what.
#[test]
fn a_try_waits_through_a_restart() {
    let limited =
        Answer::error("429 Too Many Requests", "retry-after: 2\r\n", r#"{"error":{"message":"slow down"}}"#);
    let fake = Fake::answering(vec![limited, Answer::stream(WORDS)]);
    let llm = format!("{{type: openai, model: m, base_url: '{}'}}", fake.url);
    let folder = durable(&llm, "");
    let first = serve(folder.path());
    let run = first.ask_anyway(&["send", "assistant", "please"]);
    fake.request().unwrap();
    for _ in 0..600 {
        if first.ask_anyway(&["show", text(&run["id"])]).to_string().contains("slow down") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(first);
    let second = serve(folder.path());
    let done = second.run_once(text(&run["id"]), "completed");
    let shown = second.ask_anyway(&["show", text(&done["id"])]).to_string();
    let said = format!(
        "llm `the-llm` (openai, model m) at {}: too many requests (429); retry after 2 s: slow down",
        fake.url
    );
    assert!(shown.contains(&said), "{shown}");
    assert_eq!(fake.requests().len(), 1, "asked once more, and no more");
}

/// F26: a provider that is not able to answer is passed over for the `fallback` of the file, which speaks another dialect.
/// The log says who answered, and what it costs is what the fallback costs.
#[test]
fn a_fallback_of_the_file_answers() {
    let broken =
        Fake::answering(vec![Answer::error("500 Oops", "", r#"{"error":{"message":"out of order"}}"#)]);
    let works = Fake::answering(vec![Answer::stream(include_bytes!("streams/words_anthropic.sse"))]);
    let folder = folder(&format!(
        "llms:\n  first: {{type: openai, model: one, base_url: '{}', max_retries: 1, price: {{input: 100, output: 100}}, fallback: second}}\n  \
         second: {{type: anthropic, model: two, api_key: k, base_url: '{}', price: {{input: 1, output: 1}}}}\n\
         agents:\n  assistant: {{llm: first}}\n",
        broken.url, works.url
    ));
    let server = serve(folder.path());
    let run = text(&server.ask_anyway(&["send", "assistant", "please"])["id"]).to_owned();
    let done = server.run_once(&run, "completed");
    let usage = &done["usage"];
    let tokens = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(usage["cost_micros"].as_u64(), Some(tokens), "{done}");
    let shown = server.ask_anyway(&["show", &run]).to_string();
    assert!(shown.contains("out of order") && shown.contains(r#""model":"two""#), "{shown}");
    assert!(works.request().unwrap().head.starts_with("POST /v1/messages "));
}

/// F26: an agent's own budgets end its runs, and only its own; the server's count where they are smaller.
#[test]
fn an_agent_has_budgets_of_its_own() {
    let unknown = serde_json::json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "nothing", "arguments": "{}"}}]});
    let fake = Fake::answering(vec![Answer::stream(calls(&unknown))]);
    let llm =
        format!("{{type: openai, model: m, base_url: \"{}\", price: {{input: 1, output: 1}}}}", fake.url);
    let folder = folder(&format!(
        "llms:\n  the-llm: {llm}\nserver: {{limits: {{turns: 6}}}}\nagents:\n  \
         few: {{llm: the-llm, max_turns: 3}}\n  many: {{llm: the-llm, max_turns: 50}}\n  \
         short: {{llm: the-llm, budget: {{tokens: 300}}}}\n  cheap: {{llm: the-llm, budget: {{cost: 0.0005}}}}\n"
    ));
    let server = serve(folder.path());
    for (agent, limit) in [
        ("few", "its limit of 3 model replies"),
        ("many", "its limit of 6 model replies"),
        ("short", "its limit of 300 tokens"),
        ("cheap", "its limit of cost: 0.000500"),
    ] {
        let run = text(&server.ask_anyway(&["send", agent, "go"])["id"]).to_owned();
        let ended = server.run_once(&run, "failed").to_string();
        assert!(ended.contains(limit), "{agent}: {ended}");
    }
}

/// F26: arguments that break the schema that the model was given reach no person and no tool. The model gets the place where they
/// break it, and repairs them; one that never does is ended by its budget.
#[test]
fn arguments_that_break_the_schema_are_repaired_by_the_model() {
    let asks = |arguments: &str| {
        let function = serde_json::json!({"name": "suspend-for-input", "arguments": arguments});
        calls(&serde_json::json!({"tool_calls": [{"index": 0, "id": "x", "function": function}]}))
    };
    let wrong = asks(r#"{"reason": "stuck", "options": "blue"}"#);
    let fake = Fake::answering(vec![
        Answer::stream(wrong.clone()),
        Answer::stream(asks(r#"{"reason": "stuck", "options": ["blue"]}"#)),
        Answer::stream(wrong),
    ]);
    let llm = format!("{{type: openai, model: m, base_url: \"{}\"}}", fake.url);
    let folder = durable(&llm, "server: {limits: {turns: 5}}\n");
    let server = serve(folder.path());
    let run = text(&server.ask_anyway(&["send", "assistant", "go"])["id"]).to_owned();
    let held = server.run_once(&run, "held");
    assert_eq!(held["holds"].as_array().unwrap().len(), 1, "{held:#}");
    let told = fake.requests().pop().unwrap().body;
    assert!(told.contains("do not match the tool's schema at /options"), "{told}");
    let hold = text(&held["holds"][0]["id"]).to_owned();
    server.ask_anyway(&["holds", "answer", &hold, "blue"]);
    let ended = server.run_once(&run, "failed").to_string();
    assert!(ended.contains("its limit of 5 model replies"), "{ended}");
}

/// F26: bad arguments, unknown tools and nameless calls are answered, the model goes on; an endless loop and a budget
/// end the run with their own sentences, and so does a conversation that is too long.
#[test]
fn runs_end_whatever_the_model_does() {
    let odd = serde_json::json!({"tool_calls": [
        {"index": 0, "id": "same", "function": {"name": "execute_command", "arguments": "{\"command\": "}},
        {"index": 1, "id": "same", "function": {"name": "no_such_tool", "arguments": "{}"}},
        {"index": 2, "id": "", "function": {"arguments": "{}"}},
    ]});
    let too_long =
        r#"{"error":{"message":"maximum context length is 10 tokens","code":"context_length_exceeded"}}"#;
    let unknown = calls(
        &serde_json::json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "nothing", "arguments": "{}"}}]}),
    );
    let price = "price: {input: 1, output: 1}, ";
    let cases: Vec<(Vec<Answer>, &str, &str, &str)> = vec![
        (
            vec![Answer::stream(calls(&odd)), Answer::stream(WORDS)],
            "",
            "completed",
            "there is no tool no_such_tool",
        ),
        (
            vec![Answer::stream(unknown.clone())],
            "server: {limits: {turns: 4}}\n",
            "failed",
            "its limit of 4 model replies",
        ),
        (
            vec![Answer::stream(unknown.clone())],
            "server: {limits: {tokens: 300}}\n",
            "failed",
            "its limit of 300 tokens",
        ),
        (
            vec![Answer::stream(unknown)],
            "server: {limits: {cost: 0.0005}}\n",
            "failed",
            "its limit of cost: 0.000500",
        ),
        (
            vec![Answer::error("400 Bad Request", "", too_long)],
            "",
            "failed",
            "the conversation exceeds the model's context window",
        ),
        (vec![Answer::error("401 Unauthorized", "", "{}")], "", "failed", "the API key was rejected (401)"),
    ];
    for (answers, more, status, reason) in cases {
        let fake = Fake::answering(answers);
        let llm = format!("{{type: openai, model: m, {price}base_url: '{}'}}", fake.url);
        let folder = durable(&llm, more);
        let server = serve(folder.path());
        let run = server.ask_anyway(&["send", "assistant", "please", "--wait"]);
        assert_eq!(run["status"], status, "{reason}: {run}");
        let shown = server.ask_anyway(&["show", text(&run["id"])]).to_string();
        assert!(shown.contains(reason), "{reason} is not in {shown}");
    }
}

/// S3-14: words are heard while they come, before there is a reply; `enable_streaming: false` lets nobody hear them before
/// that.
#[test]
fn words_are_heard_as_they_come() {
    for (is_heard, reasoning) in [(true, ""), (false, ", reasoning: {enable_streaming: false}")] {
        let before = Signal::default();
        let words = String::from_utf8(WORDS.to_vec()).unwrap();
        let halts = words.find("Fertig.").unwrap();
        let fake =
            Fake::answering(vec![Answer::stream(WORDS).in_pieces(Pieces::Halts(halts, before.clone()))]);
        let llm = format!("{{type: openai, model: m, base_url: '{}'}}", fake.url);
        let folder = durable(&llm, "");
        let path = folder.path().join("standfast.yaml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace("task: {}", &format!("task: {{}}{reasoning}"))).unwrap();
        let server = serve(folder.path());
        let run = server.ask_anyway(&["send", "assistant", "please"]);
        let mut watch = standfast_testkit::standfast();
        let watch = watch.args(["watch", text(&run["id"]), "--json", "--server", &server.base]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        before.give();
        let events: Vec<String> = std::iter::once(first).chain(lines).collect();
        watch.wait().unwrap();
        let heard: Vec<&String> = events.iter().filter(|line| line.contains("\"delta\"")).collect();
        assert_eq!(!heard.is_empty(), is_heard, "{events:?}");
        assert!(heard.iter().all(|line| line.contains("Fertig.")), "{heard:?}");
        assert!(
            events.iter().any(|line| line.contains("model.replied") && line.contains("Fertig.")),
            "{events:?}"
        );
        let stored = server.ask_anyway(&["show", text(&run["id"])]).to_string();
        assert!(!stored.contains("\"delta\""), "words on their way are stored nowhere: {stored}");
    }
}

fn check(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let output = standfast(folder).args(["llm", "check"]).args(arguments).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

/// `standfast llm check` asks for real: each failure has its own sentence and what to do, and the key is in none.
#[test]
fn a_provider_is_tried_for_real() {
    let works = Fake::answering(vec![
        Answer::stream(calls(
            &serde_json::json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "ping", "arguments": "{\"word\": \"ready\"}"}}]}),
        )),
        Answer::stream(WORDS),
    ]);
    let locked = Fake::answering(vec![Answer::error(
        "401 Unauthorized",
        "",
        &format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#),
    )]);
    let config = format!(
        "llms:\n  works: {{type: openai, model: m, api_key: '${{OPENAI_API_KEY}}', base_url: '{}'}}\n  \
         locked: {{type: anthropic, model: m, api_key: '${{OPENAI_API_KEY}}', base_url: '{}'}}\n  \
         away: {{type: ollama, model: m, base_url: 'http://no-such-host.invalid'}}\n  \
         script: {{type: scripted, script: s.yaml}}\n",
        works.url, locked.url
    );
    let folder = folder(&config);
    std::fs::write(folder.path().join("s.yaml"), "replies:\n- text: hi\n").unwrap();
    let (output, said) = check(folder.path(), &["works", "--config", "standfast.yaml"]);
    assert!(output.status.success() && said.contains("calls tools"), "{said}");
    let (output, said) = check(folder.path(), &["locked", "--config", "standfast.yaml", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&json["ok"], &json["problem"]), (&false.into(), &"bad_key".into()), "{json}");
    for (name, sentence) in [
        ("locked", "the API key was rejected (401)"),
        ("away", "its host name cannot be resolved"),
        ("script", "is scripted"),
        ("work", "did you mean `works`?"),
    ] {
        let (output, said) = check(folder.path(), &[name, "--config", "standfast.yaml"]);
        assert!(!output.status.success() && said.contains(sentence), "{name}: {said}");
        assert!(!said.contains(KEY), "{said}");
    }
}

/// `validate --connect` and `doctor` ask all that a file names, and say of each whether it answered; the key is in neither.
#[test]
fn whatever_a_file_names_is_asked_and_told() {
    let calls = || {
        let function = serde_json::json!({"name": "ping", "arguments": "{\"word\": \"ready\"}"});
        calls(&serde_json::json!({"tool_calls": [{"index": 0, "id": "c", "function": function}]}))
    };
    let answers = [Answer::stream(calls()), Answer::stream(WORDS)];
    let works = Fake::answering([answers.clone(), answers].concat());
    let refusal = format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#);
    let locked = Fake::answering(vec![Answer::error("401 Unauthorized", "", &refusal)]);
    let model =
        |url: &str| format!("{{type: openai, model: m, api_key: '${{OPENAI_API_KEY}}', base_url: '{url}'}}");
    let folder = folder(&format!(
        "llms:\n  works: {}\n  locked: {}\n\
         tools: {{gone: {{type: mcp, command: 'false'}}}}\n\
         agents: {{assistant: {{llm: works, tools: [gone], task: {{}}}}}}\n",
        model(&works.url),
        model(&locked.url)
    ));
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let said = |arguments: &[&str]| {
        let output = standfast(folder.path()).args(arguments).output().unwrap();
        let (out, log) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {out}{log}");
        assert!(!out.contains(KEY) && !log.contains(KEY), "{arguments:?}: {out}{log}");
        serde_json::from_str::<Value>(&out).unwrap_or_else(|_| panic!("{out}{log}"))
    };
    let validated = said(&["validate", "--connect", "--json"]);
    let examined = said(&["doctor", "--json", "--config", "standfast.yaml", "--data", "data"]);
    let tried = |what: &str| {
        let all = validated["connections"].as_array().unwrap();
        all.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what}: {validated:#}"))
    };
    let found = |what: &str| {
        let mut all = examined["checks"].as_array().unwrap().iter();
        let is_it = |one: &&Value| text(&one["message"]).starts_with(&format!("{what}: "));
        all.find(|one| one["check"] == "connections" && is_it(one))
            .unwrap_or_else(|| panic!("{what}: {examined:#}"))
    };
    for (what, is_good, words) in [
        ("llm works", true, "calls tools"),
        ("llm locked", false, "the API key was rejected (401)"),
        ("tools", false, "gone"),
    ] {
        let (one, other) = (tried(what), found(what));
        assert_eq!(one["ok"], is_good, "{one}");
        assert_eq!(other["result"], if is_good { "ok" } else { "failed" }, "{other}");
        for message in [&one["message"], &other["message"]] {
            assert!(text(message).contains(words), "{message}");
        }
    }
    assert_eq!((&validated["ok"], &examined["ok"]), (&Value::Null, &false.into()), "{validated:#}");
}

/// F30: a run goes on with the model it is pinned to as long as the file has it, also when no agent uses it any more.
/// When the file has it no longer, a person is asked; nothing is put in its place.
#[test]
fn a_run_keeps_its_model() {
    let fake = Fake::answering(vec![
        Answer::stream(call(r#"{"command": "pwd"}"#)),
        Answer::stream(call(r#"{"command": "id"}"#)),
        Answer::stream(WORDS),
    ]);
    let config = |llms: &[(&str, &str)], used: &str| {
        let entries: String = llms
            .iter()
            .map(|(name, model)| {
                format!("  {name}: {{type: openai, model: {model}, api_key: k, base_url: {}/v1}}\n", fake.url)
            })
            .collect();
        format!(
            "llms:\n{entries}\
             session_stores: {{main-db: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
             agents:\n  assistant: {{llm: {used}, session_store: main-db, tools: [execute_command], task: {{}}}}\n"
        )
    };
    let folder = folder(&config(&[("old", "one")], "old"));
    let changed = |text: String| {
        std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
        serve(folder.path())
    };
    let server = serve(folder.path());
    let held = server.ask_anyway(&["send", "assistant", "Where are we?", "--wait"]);
    let run = text(&held["id"]).to_owned();
    let approve = |server: &Server| {
        let hold = server.run_once(&run, "held")["holds"][0]["id"].clone();
        server.ask_anyway(&["holds", "approve", text(&hold)])
    };
    drop(server);

    // Another model for the agent; the old one is still set up.
    let server = changed(config(&[("old", "one"), ("new", "two")], "new"));
    approve(&server);
    server.run_once(&run, "held");
    for _ in 0..2 {
        let asked = fake.request().unwrap().body;
        assert!(asked.contains(r#""model":"one""#), "{asked}");
    }
    drop(server);

    // It is gone: the run says so, and waits.
    let server = changed(config(&[("new", "two")], "new"));
    approve(&server);
    let question = (0..1200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let holds = server.run(&run)["holds"].as_array().cloned().unwrap_or_default();
        holds.into_iter().find(|hold| hold["kind"] == "input")
    });
    let question = question.unwrap_or_else(|| panic!("nobody is asked: {}", server.run(&run)));
    let question = server.ask_anyway(&["holds", "show", text(&question["id"])]);
    assert!(question.to_string().contains("no longer has the model one"), "{question}");
    drop(server);

    // It is back, and so is the run.
    let server = changed(config(&[("old", "one"), ("new", "two")], "new"));
    server.ask_anyway(&["holds", "answer", text(&question["id"]), "go on"]);
    server.run_once(&run, "completed");
    let asked = fake.request().unwrap().body;
    assert!(asked.contains(r#""model":"one""#), "{asked}");
}
