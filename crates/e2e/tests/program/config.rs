//! Configuration files through the real binary: each file in `tests/config` with the exact text that people see.
//!
//! `NAME.yaml` has its `NAME.expected`. After a deliberate change write them again and read the difference:
//! `STANDFAST_WRITE_EXPECTED=1 cargo nextest run -p standfast-e2e config::`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Output;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

/// The program with nothing in its environment but these variables.
fn standfast(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = standfast_testkit::standfast();
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("OPENAI_API_KEY", "sk-canary-in-the-environment")
        .env("ANTHROPIC_API_KEY", "sk-ant-canary-in-the-environment")
        .env("EMPTY", "");
    command.output().unwrap()
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = standfast(folder, arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    format!("{out}{err}exit code {}\n", output.status.code().unwrap())
}

fn check(names: &[&str]) {
    for name in names {
        let said = said(&folder(), &["validate", &format!("{name}.yaml")]);
        assert!(!said.contains("sk-"), "a secret is shown:\n{said}");
        let path = folder().join(format!("{name}.expected"));
        if std::env::var_os("STANDFAST_WRITE_EXPECTED").is_some() {
            std::fs::write(&path, &said).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(said == expected, "{name}.yaml\n--- expected\n{expected}\n--- said\n{said}");
    }
}

/// S3-10 … S3-16, S0-54: the complete example passes as it stands.
#[test]
fn the_complete_example() {
    check(&["complete"]);
}

/// Rules for tools of agents elsewhere, who open gates, are no slips of the pen, and a server with them has something to do.
#[test]
fn a_file_for_gates_alone() {
    check(&["gates_only"]);
}

/// A call that is to say what became of another one must be readable and change nothing.
#[test]
fn reconcile_names_a_call_that_changes_nothing() {
    check(&["reconcile_mistakes"]);
}

/// S0-16: a key that would promise to show thinking is refused with a sentence.
#[test]
fn thinking_that_is_not_shown_is_not_promised() {
    check(&["show_thinking"]);
}

/// What asks only sometimes is reported as that, not as "nothing".
#[test]
fn tools_that_may_ask() {
    check(&["may_ask"]);
}

/// S0-55 … S0-60, S0-64, S0-68, S0-69, C10, C38: both modes are there, from the first release on: the six rows, a file without a word about it, and a mode that there is not. S0-62, S0-67:
/// what makes a blocking agent async.
#[test]
fn the_mode_matrix() {
    check(&["mode_unsaid_without_store", "mode_auto_without_store", "mode_blocking_without_store"]);
    check(&[
        "mode_unsaid_with_store",
        "mode_auto_with_store",
        "mode_blocking_with_store",
        "mode_async_with_store",
    ]);
    check(&["mode_async_without_store", "mode_sometimes_without_store"]);
    let text = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let bad_row = text("mode_async_without_store.expected");
    assert!(bad_row.starts_with("error: async HITL requires session_store to be configured\n"), "{bad_row}");
    let unknown = text("mode_sometimes_without_store.expected");
    let exact = "error: invalid hitl.mode: sometimes (must be 'auto', 'blocking', or 'async')\n";
    assert!(unknown.starts_with(exact), "{unknown}");
}

/// C28: a Postgres that several servers share, with what can be said of it and what cannot.
#[test]
fn a_postgres_store() {
    check(&["postgres", "postgres_mistakes"]);
}

/// S0-63: ten different mistakes are ten errors, each with its line and what to do.
#[test]
fn ten_mistakes_are_ten_errors() {
    check(&["ten_mistakes", "more_mistakes", "agent_mistakes"]);
    let text = std::fs::read_to_string(folder().join("ten_mistakes.expected")).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("error: ")).count(), 10, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" = help: ")).count(), 10, "{text}");
}

#[test]
fn what_is_not_yaml() {
    check(&["broken", "tabs", "empty", "two_documents", "list"]);
}

/// C17: other names of `requires_approval` are taken, with a notice.
#[test]
fn other_names_are_taken_with_a_notice() {
    check(&["aliases", "aliases_twice"]);
}

/// S3-15, F26: a model that could not be asked is refused before the server starts, with file, line and reason.
#[test]
fn models_that_could_not_be_asked() {
    check(&["llm_mistakes"]);
}

/// S4-12, S4-30, C36: keys of inboxes that do nothing, and a tool that would be lost.
#[test]
fn inboxes_that_cannot_be_served() {
    check(&["inbox_mistakes"]);
}

/// What an agent's card cannot say.
#[test]
fn cards() {
    check(&["card_mistakes"]);
}

/// C32: what needs approval when nobody says so.
#[test]
fn approval_by_default() {
    check(&["defaults_by_type"]);
}

/// S3-10: every type of tool with every key it can have, and what can be wrong with them.
#[test]
fn every_type_of_tool() {
    check(&["every_tool", "tool_mistakes", "unknown_tool"]);
}

/// T26: a folder that a tool can write to and that has the server's own files inside. `validate` and `serve` refuse it
/// with the same words.
#[test]
fn working_directories_that_expose_the_server() {
    check(&["exposed"]);
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let serve = ["serve", "--config", "exposed.yaml", "--listen", "127.0.0.1:0", "--data", data];
    let expected = std::fs::read_to_string(folder().join("exposed.expected")).unwrap();
    let first = expected.lines().next().unwrap();
    let served = said(&folder(), &serve);
    assert!(served.contains(first) && served.ends_with("exit code 2\n"), "{served}");
}

/// C29, S0-59: without a `task` block the file loads, and a notice names the agent.
#[test]
fn without_a_task_block() {
    check(&["no_task_block"]);
}

/// C28, C7: where runs live, and what silence does.
#[test]
fn stores_and_timeouts() {
    check(&["stores", "timeouts"]);
}

/// S3-15: variables come from the environment first, then from `.env`; one that nothing sets is named.
#[test]
fn variables_and_dotenv() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let agents = "agents: {a: {llm: m, task: {worker_pool: \"${POOL}\", input_timeout: \"${WAIT:-2m}\"}}}\n";
    write(
        "a.yaml",
        &format!("llms: {{m: {{type: openai, model: x, api_key: '${{OPENAI_API_KEY}}'}}}}\n{agents}"),
    );
    let unset = said(folder.path(), &["validate", "a.yaml"]);
    assert!(unset.starts_with("error: the variable POOL is not set\n --> a.yaml:2:42\n"), "{unset}");
    let allowed = said(folder.path(), &["validate", "--allow-unset", "a.yaml"]);
    assert!(allowed.contains("a decision may take 2m") && allowed.ends_with("exit code 0\n"), "{allowed}");
    write(".env", "# here\nPOOL=three\nWAIT='3h'\nOPENAI_API_KEY=sk-canary-in-the-file\n");
    let wrong = said(folder.path(), &["validate", "a.yaml"]);
    let expected = "error: `agents.a.task.worker_pool` must be a whole number, not `${POOL}`\n";
    assert!(wrong.starts_with(expected), "the value of a variable is not shown: {wrong}");
    write(".env", "POOL=3\nWAIT='3h'\n");
    let right = said(folder.path(), &["validate", "a.yaml"]);
    assert!(right.contains("a decision may take 3h") && !right.contains("sk-"), "{right}");
    write(".env", "POOL=3\nnonsense\n");
    let bad = said(folder.path(), &["validate", "a.yaml"]);
    assert!(bad.contains(".env:2: this is not NAME=value") && bad.ends_with("exit code 2\n"), "{bad}");
}

/// For machines: the same as one JSON object, and the same exit codes.
#[test]
fn as_json() {
    let output = standfast(&folder(), &["validate", "--json", "mode_async_without_store.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({
        "line": 32, "column": 20, "path": "agents.assistant.task.hitl.mode",
        "message": "async HITL requires session_store to be configured",
        "help": "add `session_store: NAME` to `agents.assistant`, with that name below `session_stores:`, or remove `mode: async`",
    });
    assert_eq!((&value["valid"], &value["errors"][0]), (&false.into(), &expected));
    let output = standfast(&folder(), &["validate", "--json", "complete.yaml"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let agent = &value["agents"][0];
    assert_eq!((&agent["mode"], &agent["durable"]), (&"blocking".into(), &false.into()));
    assert_eq!(agent["to_async"].as_array().unwrap().len(), 2);
    assert_eq!(standfast(&folder(), &["validate", "no-such-file.yaml"]).status.code(), Some(2));
}

/// The schema is one that validators take, and it says of the fixtures what `validate` says.
#[test]
fn the_schema_agrees() {
    let output = standfast(&folder(), &["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        // As YAML 1.2 says: `off` is a text.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options::<serde_json::Value>(&text, options).unwrap()
    };
    for name in [
        "complete.yaml",
        "mode_async_with_store.yaml",
        "defaults_by_type.yaml",
        "every_tool.yaml",
        "stores.yaml",
        "timeouts.yaml",
    ] {
        let errors: Vec<String> = validator.iter_errors(&read(name)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
    assert!(!validator.is_valid(&read("mode_sometimes_without_store.yaml")));
    assert!(!validator.is_valid(&read("ten_mistakes.yaml")));
    nothing_undescribed(&schema);
}

/// Every key has a description: editors and the page show it.
fn nothing_undescribed(schema: &serde_json::Value) {
    let definitions = schema["$defs"].as_object().unwrap();
    for (name, definition) in definitions.iter().chain([(&"top".to_owned(), schema)]) {
        for (key, property) in definition["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{name}.{key} has no description");
        }
    }
}

/// docs/configuration.md is what the types say.
#[test]
fn the_page_is_up_to_date() {
    let output = standfast(&folder(), &["schema", "--markdown"]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read(&path).unwrap_or_default();
    let how = "out of date; write it with: standfast schema --markdown > docs/configuration.md";
    assert!(output.stdout == page, "docs/configuration.md is {how}");
}

/// S0-82: every cap that can be set is on the page of limits, with the default that the types say.
#[test]
fn the_limits_are_told_as_they_are() {
    let page = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let rows = |text: String| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.starts_with("| "));
        rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
    };
    let told = rows(page("limits.md"));
    let mut count = 0;
    for row in rows(page("configuration.md")) {
        let Some(key) = row[1].strip_prefix("`limits.").and_then(|key| key.strip_suffix('`')) else {
            continue;
        };
        // A section: its own keys have rows.
        if row[2] == "keys" {
            continue;
        }
        let names = [format!("`{key}`"), format!("`server.limits.{key}`")];
        let is_it = |row: &&Vec<String>| names.iter().any(|name| row[3].split(", ").any(|one| one == name));
        let told = told.iter().find(is_it).unwrap_or_else(|| panic!("{key} is not in docs/limits.md"));
        let written = told[2].replace([',', ' '], "").replace("1MiB", "1048576");
        let default = row[3].trim_matches('`');
        match default {
            "" => assert!(written.starts_with("withoutlimit"), "{key}: {written}"),
            _ => assert_eq!(written, default, "{key}"),
        }
        count += 1;
    }
    assert!(count >= 10, "only {count} limits were found");
}

/// Every file in `examples` is right.
#[test]
fn the_examples_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".yaml") && !name.ends_with(".script.yaml") {
            let said = said(&folder, &["validate", &name]);
            assert!(said.ends_with("exit code 0\n"), "{name}: {said}");
            count += 1;
        }
    }
    assert!(count >= 3, "{count} examples");
}

/// Every piece of configuration in the guide has keys that there are, with values of the right kind. What a piece leaves out, such as the
/// model of its agent, is not looked at.
#[test]
fn the_pieces_in_the_guide_are_right() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let schema: serde_json::Value =
        serde_json::from_slice(&standfast(&folder(), &["schema"]).stdout).unwrap();
    let sections = schema["properties"].as_object().unwrap();
    let own = tempfile::tempdir().unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(&guide).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        for piece in page.split("\n```yaml").skip(1) {
            let (_, piece) = piece.split_once('\n').unwrap();
            let (piece, _) = piece.split_once("\n```").unwrap();
            let tops =
                piece.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
            let mut tops = tops.filter_map(|line| line.split_once(':')).map(|(key, _)| key).peekable();
            // Scripts, scenarios and the like are no configuration.
            if tops.peek().is_none() || !tops.all(|key| sections.contains_key(key)) {
                continue;
            }
            std::fs::write(own.path().join("piece.yaml"), format!("{piece}\n")).unwrap();
            let said = said(own.path(), &["validate", "--allow-unset", "piece.yaml"]);
            for error in said.lines().filter_map(|line| line.strip_prefix("error: ")) {
                let wrong = ["unknown key", "this is not YAML", "invalid type"];
                let is_wrong =
                    wrong.iter().any(|word| error.starts_with(word)) || error.contains(" must be ");
                assert!(!is_wrong, "{}: {error}\n{piece}\n{said}", path.display());
            }
            count += 1;
        }
    }
    assert!(count >= 40, "{count} pieces");
}
