//! What goes together in an entry of `llms`: keys, addresses, fallbacks, scripts.
//!
//! Whatever a model cannot be asked without is refused here, with its line: a server that starts can ask.

use std::path::Path as FilePath;

use serde_json::{Map, Value as Json};
use standfast_core::command::Limits;
use standfast_models::script_file;

use super::rules::secret_in_file;
use crate::config::build::host_of;
use crate::config::check::CheckResult;
use crate::config::file::{File, Llm, LlmType};
use crate::config::path::Path;
use crate::config::stores::absolute;
use crate::config::tree::{Form, Node, Value};

/// Keys that a script has no use for.
const NOT_FOR_SCRIPTS: &[&str] =
    &["headers", "max_retries", "fallback", "max_concurrent", "price", "parameters", "base_url"];

/// Members of a request that are this server's own business.
const RESERVED: &[&str] = &[
    "model",
    "messages",
    "input",
    "contents",
    "tools",
    "stream",
    "system",
    "instructions",
    "systemInstruction",
    "store",
    "temperature",
    "max_tokens",
    "n",
];

pub(super) fn check(file: &File, tree: &Node, folder: &FilePath, found: &mut CheckResult) {
    for (name, llm) in &file.llms {
        let path = Path::of(&["llms", name]);
        match llm.kind {
            LlmType::Scripted => scripted(llm, &path, tree, folder, found),
            LlmType::Openai
            | LlmType::OpenaiResponses
            | LlmType::Anthropic
            | LlmType::Gemini
            | LlmType::Ollama => {
                remote(llm, &path, tree, found);
                key(llm, &path, tree, found);
                fallback(name, llm, file, tree, found);
                parameters(llm, &path, tree, found);
            }
        }
        secret_in_file(&path.key("api_key"), tree, found);
    }
}

fn remote(llm: &Llm, path: &Path, tree: &Node, found: &mut CheckResult) {
    if tree.find(&path.key("model")).is_none() {
        let what = format!("`{path}` has no `model`");
        found.problem(tree, path, what, "add `model: …` below it, the provider's name of the model");
    }
    if tree.find(&path.key("script")).is_some() {
        let what = format!("`{path}.script` is for `type: scripted` only");
        found.problem(tree, &path.key("script"), what, "remove it, or write `type: scripted`");
    }
    for (name, value) in &llm.headers {
        let here = path.key("headers").key(name);
        let is_name = reqwest::header::HeaderName::try_from(name.as_str()).is_ok();
        if !is_name || reqwest::header::HeaderValue::try_from(value.expose()).is_err() {
            let what = format!("`{here}` cannot be sent as a header");
            // Where the value stands is not shown.
            found.problem(
                tree,
                path,
                what,
                "letters, digits and `-` in its name, no line breaks in its value",
            );
        }
        secret_in_file(&here, tree, found);
    }
}

/// A provider that wants a key is not asked without one.
fn key(llm: &Llm, path: &Path, tree: &Node, found: &mut CheckResult) {
    let here = path.key("api_key");
    let variable = match llm.kind {
        LlmType::Openai | LlmType::OpenaiResponses => "OPENAI_API_KEY",
        LlmType::Anthropic => "ANTHROPIC_API_KEY",
        LlmType::Gemini => "GEMINI_API_KEY",
        LlmType::Ollama | LlmType::Scripted => "",
    };
    let is_unknown =
        |node: &Node| matches!(&node.value, Value::Scalar(scalar) if scalar.form == Form::Unknown);
    let node = tree.find(&here);
    if node.is_some_and(is_unknown) {
        return;
    }
    let may_lack = variable.is_empty() || llm.base_url.is_some();
    match llm.api_key.as_ref().map(|key| key.expose().trim().is_empty()) {
        Some(true) => {
            let what = format!("`{here}` is empty");
            found.problem(tree, &here, what, "give the variable a value, or remove the key");
        }
        None if !may_lack => {
            let what = format!("`{path}` has no `api_key`, and its provider requires one");
            let help = format!(
                "add `api_key: ${{{variable}}}` below it and set the variable, or name another `base_url`"
            );
            found.problem(tree, path, what, help);
        }
        Some(false) | None => {}
    }
    let is_here = |host: &str| host == "localhost" || host.starts_with("127.") || host == "[::1]";
    let is_far =
        |url: &String| url.starts_with("http://") && !host_of(url).is_some_and(|host| is_here(&host));
    if llm.api_key.is_some() && llm.base_url.as_ref().is_some_and(is_far) {
        let what = format!("`{path}.base_url` begins with http://, so the key is sent unencrypted");
        found.notice(tree, &path.key("base_url"), what);
    }
}

/// Fallbacks lead somewhere, and not in a circle.
fn fallback(name: &str, llm: &Llm, file: &File, tree: &Node, found: &mut CheckResult) {
    let here = Path::of(&["llms", name, "fallback"]);
    let Some(next) = &llm.fallback else { return };
    let Some(target) = file.llms.get(next) else { return };
    if target.kind == LlmType::Scripted {
        let what =
            format!("`{here}` is a scripted model, which cannot be a fallback: it ignores the conversation");
        found.problem(tree, &here, what, "name a model of another type");
    }
    let mut seen = vec![name];
    let mut at = Some(next.as_str());
    while let Some(current) = at {
        if seen.contains(&current) {
            seen.push(current);
            let what = format!("`{here}` is a cycle: {}", seen.join(" → "));
            found.problem(tree, &here, what, "remove one of these fallbacks");
            break;
        }
        seen.push(current);
        at = file.llms.get(current).and_then(|llm| llm.fallback.as_deref());
    }
    let attempts = file.server.limits.model_attempts.unwrap_or(Limits::default().model_attempts);
    if llm.max_retries.is_some_and(|retries| retries >= attempts) {
        let what = format!("`{here}` would never be asked: the run fails after {attempts} tries");
        let help = format!("write a `max_retries` below {attempts}, or raise `server.limits.model_attempts`");
        found.problem(tree, &Path::of(&["llms", name, "max_retries"]), what, help);
    }
}

fn parameters(llm: &Llm, path: &Path, tree: &Node, found: &mut CheckResult) {
    let here = path.key("parameters");
    let Some(text) = &llm.parameters else { return };
    match serde_json::from_str::<Map<String, Json>>(text) {
        Err(error) => {
            let what = format!("`{here}` is not a JSON object: {error}");
            found.problem(tree, &here, what, "write for example '{\"reasoning_effort\": \"high\"}'");
        }
        Ok(members) => {
            for name in members.keys().filter(|name| RESERVED.contains(&name.as_str())) {
                let what = format!("`{here}` cannot set `{name}`: it has a key of its own");
                found.problem(
                    tree,
                    &here,
                    what,
                    "remove it; temperature and max_tokens have keys of their own",
                );
            }
        }
    }
}

fn scripted(llm: &Llm, path: &Path, tree: &Node, folder: &FilePath, found: &mut CheckResult) {
    let here = path.key("script");
    for key in NOT_FOR_SCRIPTS.iter().filter(|key| tree.find(&path.key(key)).is_some()) {
        let what = format!("`{path}.{key}` has no meaning with `type: scripted`");
        found.problem(tree, &path.key(key), what, "remove it");
    }
    let Some(script) = &llm.script else {
        if tree.find(&here).is_none() {
            let what = format!("`{path}` has no `script`");
            let help = "add `script: FILE` below it; docs/scripted-model.md says what the file looks like";
            found.problem(tree, path, what, help);
        }
        return;
    };
    let file = absolute(folder, script);
    match std::fs::read_to_string(&file) {
        Err(error) => {
            let help = "the path is relative to this configuration file";
            found.problem(tree, &here, format!("cannot read the script {}: {error}", file.display()), help);
        }
        Ok(text) => {
            if let Err(error) = script_file::parse(&text) {
                let help = format!(
                    "repair line {} of {}; docs/scripted-model.md says how",
                    error.line,
                    file.display()
                );
                found.problem(tree, &here, format!("invalid script: {error}"), help);
            }
        }
    }
}
