//! Keys of a tool that go together, and keys that are for certain types only.
//!
//! What a single value may be is `file/tool.rs`.

use crate::config::build::tools::{guard, others};
use crate::config::check::CheckResult;
use crate::config::check::rules::{grace_needs_keep, secret_in_file};
use crate::config::file::{
    Agent, CommandKeys, ExternalKeys, File, Gateway, Parameters, Sandbox, Tool, ToolKind, ToolType,
};
use crate::config::path::Path;
use crate::config::plan::sub_agent_tool;
use crate::config::problem::Problem;
use crate::config::schema::foreign_keys;
use crate::config::tree::Node;
use standfast_engine::outbound::guard::BlockReason;

/// Checks a tool.
pub(super) fn tool(name: &str, tool: &Tool, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["tools", name]);
    secret_in_file(&path.key("webhook_secret"), tree, found);
    let grace = tool.common.expiry_grace.is_some() || tool.common.after_grace.is_some();
    grace_needs_keep(&path, tool.common.on_timeout, grace, tree, found);
    secret_in_file(&path.key("previous_webhook_secret"), tree, found);
    let Some(kind) = &tool.kind else { return };
    for (key, types) in foreign_keys(kind.tool_type()) {
        if tree.find(&path.key(key)).is_some() {
            misplaced(&path, key, &types, kind.tool_type(), tree, found);
        }
    }
    match kind {
        ToolKind::Command(keys) => {
            commands(&path, keys, tree, found);
            without_sandbox(&path, keys.sandbox, tree, found);
        }
        ToolKind::HttpRequest(keys) => {
            let rules = host_rules(keys.allowed_hosts.as_deref(), keys.only_allowed_hosts);
            hosts(&path, &rules, tree, found);
        }
        ToolKind::External(keys) => {
            needs(&path, "url", "the address that starts the job", tree, found);
            let rules = host_rules(keys.allowed_hosts.as_deref(), keys.only_allowed_hosts);
            hosts(&path, &rules, tree, found);
            let job = Callee { url: keys.url.as_deref(), what: "job", never: "started" };
            found.problems.extend(callee(&path, &rules, &job, tree));
            external(&path, keys, tree, found);
        }
        ToolKind::Agent(_) => needs(&path, "agent", "the agent that does the work", tree, found),
        ToolKind::A2a(keys) => {
            needs(&path, "url", "the address of the remote agent", tree, found);
            let rules = host_rules(keys.allowed_hosts.as_deref(), keys.only_allowed_hosts);
            hosts(&path, &rules, tree, found);
            let agent = Callee { url: keys.url.as_deref(), what: "agent", never: "called" };
            found.problems.extend(callee(&path, &rules, &agent, tree));
        }
        ToolKind::Mcp(keys) => {
            hosts(&path, &host_rules(keys.allowed_hosts.as_deref(), None), tree, found);
            mcp(&path, tree, found);
            if tool.common.effect_key.is_some() {
                let what =
                    format!("`{path}.effect_key` cannot be the name of an effect of every tool of a server");
                found.problem(
                    tree,
                    &path.key("effect_key"),
                    what,
                    "remove it; a policy rule can have one for a tool",
                );
            }
            without_sandbox(&path, keys.sandbox, tree, found);
            confined(&path, keys.sandbox, tree, found);
        }
        ToolKind::ReadFile(_)
        | ToolKind::WriteFile(_)
        | ToolKind::DeleteFile(_)
        | ToolKind::ListDir(_)
        | ToolKind::SearchFiles(_)
        | ToolKind::EditFile(_)
        | ToolKind::SuspendForInput => {}
    }
    for name in tree.keys(&path.key("headers")) {
        secret_in_file(&path.key("headers").key(name), tree, found);
    }
}

fn misplaced(path: &Path, key: &str, types: &[&str], kind: ToolType, tree: &Node, found: &mut CheckResult) {
    let types: Vec<String> = types.iter().map(|kind| format!("`type: {kind}`")).collect();
    let what = format!("`{path}.{key}` is for {} only, and this is `{}`", types.join(" or "), kind.as_str());
    let help = match (key, kind) {
        ("timeout", ToolType::Command) => "write `max_execution_time`",
        (_, _) => "remove it",
    };
    found.problem(tree, &path.key(key), what, help);
}

fn needs(path: &Path, key: &str, what_it_is: &str, tree: &Node, found: &mut CheckResult) {
    if tree.find(&path.key(key)).is_none() {
        let what = format!("`{path}` has no `{key}`");
        found.problem(tree, path, what, format!("add `{key}: …` below it, {what_it_is}"));
    }
}

fn commands(path: &Path, tool: &CommandKeys, tree: &Node, found: &mut CheckResult) {
    for (key, list) in
        [("allowed_commands", &tool.allowed_commands), ("denied_commands", &tool.denied_commands)]
    {
        for (no, entry) in list.iter().flatten().enumerate() {
            let is_command = shell_words::split(entry).is_ok_and(|words| !words.is_empty());
            if !is_command {
                let what = format!("`{entry}` of `{path}.{key}` is not a command");
                let help = "write a program, or the first words of a command, with quotes closed";
                found.problem(tree, &path.key(key).item(no), what, help);
            }
        }
    }
    if tool.deny_by_default == Some(true) && tool.allowed_commands.is_none() {
        let what = format!("`{path}` denies unlisted commands and lists none, so no command runs");
        found.notice(tree, &path.key("deny_by_default"), what);
    }
}

/// Without a sandbox nothing limits what programs reach.
fn without_sandbox(path: &Path, sandbox: Option<Sandbox>, tree: &Node, found: &mut CheckResult) {
    if sandbox != Some(Sandbox::Off) {
        return;
    }
    let key = path.key("sandbox");
    if ["network", "readable", "writable"].iter().any(|limit| tree.find(&path.key(limit)).is_some()) {
        let what = format!("`{path}` has no sandbox, so `network`, `readable` and `writable` have no effect");
        found.problem(tree, &key, what, "remove them, or write `sandbox: on`");
    }
    let what = format!("commands of `{path}` can do whatever the server's user can do");
    found.notice(tree, &key, what);
}

/// The hosts that a tool may call.
struct HostRules<'a> {
    allowed_hosts: Option<&'a [String]>,
    only_allowed_hosts: Option<bool>,
}

fn host_rules(allowed_hosts: Option<&[String]>, only_allowed_hosts: Option<bool>) -> HostRules<'_> {
    HostRules { allowed_hosts, only_allowed_hosts }
}

fn hosts(path: &Path, rules: &HostRules<'_>, tree: &Node, found: &mut CheckResult) {
    for (no, host) in rules.allowed_hosts.into_iter().flatten().enumerate() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) {
            let what = format!("`{host}` of `{path}.allowed_hosts` is not a host");
            let help = "write the name or address alone, or with its port: `jobs.internal`, `10.0.0.7:8443`";
            found.problem(tree, &path.key("allowed_hosts").item(no), what, help);
        }
    }
    if rules.only_allowed_hosts == Some(true) && rules.allowed_hosts.is_none_or(<[String]>::is_empty) {
        let what = format!("`{path}` may call only `allowed_hosts`, and there are none");
        let help = "add `allowed_hosts: [HOST]`, or remove it";
        found.problem(tree, &path.key("only_allowed_hosts"), what, help);
    }
}

/// What a tool calls, in words for a message.
struct Callee<'a> {
    url: Option<&'a str>,
    what: &'static str,
    never: &'static str,
}

/// What can be said of an address without a lookup: a call that could never be made is a mistake of the file.
fn callee(path: &Path, rules: &HostRules<'_>, callee: &Callee<'_>, tree: &Node) -> Option<Problem> {
    let Callee { url, what, never } = callee;
    match guard(rules.allowed_hosts, others(rules.only_allowed_hosts)).check_text((*url)?) {
        Err(blocked @ (BlockReason::NotNamed(_) | BlockReason::NotPublic { .. })) => {
            let what = format!("the {what} of `{path}` could never be {never}: {blocked}");
            let help = "add the host to `allowed_hosts` of this tool".to_owned();
            let path = path.key("url");
            Some(Problem { at: tree.spot(&path), path, what, help })
        }
        // A malformed address has already been reported.
        Err(BlockReason::Url { .. } | BlockReason::NoAddress { .. }) | Ok(_) => None,
    }
}

/// A server is a program or an address.
fn mcp(path: &Path, tree: &Node, found: &mut CheckResult) {
    let has = |key: &str| tree.find(&path.key(key)).is_some();
    match (has("command"), has("url")) {
        (true, false) | (false, true) => {}
        (false, false) => {
            let what = format!("`{path}` has neither `command` nor `url`");
            let help = "add `command: …`, the program that is the server, or `url: …`, where it is";
            found.problem(tree, path, what, help);
        }
        (true, true) => {
            let what = format!("`{path}` has both `command` and `url`");
            found.problem(tree, &path.key("url"), what, "remove one of the two");
        }
    }
    let of_program = ["args", "env", "sandbox", "network", "readable"].map(|key| (key, "command"));
    let of_address = ["headers", "oauth", "allowed_hosts"].map(|key| (key, "url"));
    for (key, needed) in of_program.into_iter().chain(of_address) {
        if has(key) && !has(needed) {
            let what = format!("`{path}.{key}` is for a server with `{needed}`");
            found.problem(tree, &path.key(key), what, "remove it");
        }
    }
    if has("description") {
        let what = format!("`{path}.description` would describe all tools of the server alike");
        let help = "write it below `overrides`, for the tool that is meant";
        found.problem(tree, &path.key("description"), what, help);
    }
    let oauth = path.key("oauth");
    secret_in_file(&oauth.key("client_secret"), tree, found);
    if tree.find(&oauth.key("client_secret")).is_some() && tree.find(&oauth.key("client_id")).is_none() {
        let what = format!("`{oauth}` has a `client_secret` and no `client_id`");
        found.problem(tree, &oauth, what, "add `client_id: …`, or remove the secret");
    }
}

/// Letters of the name of a gateway at most: it is part of the names of its tools.
const GATEWAY_NAME: usize = 64;

/// A gateway is reached by its name, and its server as that of a tool.
pub(super) fn gateway(name: &str, gateway: &Gateway, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["gateways", name]);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if name.is_empty() || name.len() > GATEWAY_NAME || !name.chars().all(is_plain) {
        let what = format!("`{name}` cannot be the name of a gateway, which is part of its address");
        let help = format!("use letters, digits, `-` and `_`, {GATEWAY_NAME} at most");
        found.problem(tree, &path, what, help);
    }
    mcp(&path, tree, found);
    confined(&path, gateway.sandbox, tree, found);
}

/// A program of an MCP server is confined only where the file says so: most of them need a network and a home.
fn confined(path: &Path, sandbox: Option<Sandbox>, tree: &Node, found: &mut CheckResult) {
    for key in ["network", "readable"] {
        if sandbox.is_none() && tree.find(&path.key(key)).is_some() {
            let what = format!("`{path}.{key}` has no effect without a sandbox");
            found.problem(tree, &path.key(key), what, "add `sandbox: on`, or remove it");
        }
    }
}

fn is_schema(path: &Path, parameters: &Parameters, tree: &Node, found: &mut CheckResult) {
    let schema = serde_json::Value::Object(parameters.0.clone());
    if let Err(error) = jsonschema::validator_for(&schema) {
        let help = "write a JSON Schema: `type: object`, and `properties:` with a schema for each argument";
        let place = error.instance_path().to_string().replace('/', ".");
        found.problem(tree, path, format!("`{path}{place}` is not valid in a JSON Schema: {error}"), help);
    } else if schema["type"] != "object" {
        let help = "write `type: object` below it, and the arguments below `properties:`";
        found.problem(tree, path, format!("`{path}` must describe an object, as all arguments are"), help);
    }
}

/// A job elsewhere is always waited for, and what it must bring can be checked.
fn external(path: &Path, tool: &ExternalKeys, tree: &Node, found: &mut CheckResult) {
    if tool.is_async == Some(false) {
        let what = format!("`{path}.async` is false, and an external job is always asynchronous");
        let help = "remove it; for a tool that answers at once write `type: http_request`";
        found.problem(tree, &path.key("async"), what, help);
    }
    if tool.previous_webhook_secret.is_some() && tool.webhook_secret.is_none() {
        let what = format!("`{path}` has a `previous_webhook_secret` and no `webhook_secret`");
        found.problem(tree, &path.key("previous_webhook_secret"), what, "add `webhook_secret: …` below it");
    }
    if let Some(parameters) = &tool.parameters {
        is_schema(&path.key("parameters"), parameters, tree, found);
    }
    if let Some(result) = &tool.validate_result {
        let schema = serde_json::Value::Object(result.0.clone());
        let path = path.key("validate_result");
        if let Err(error) = jsonschema::validator_for(&schema) {
            let place = error.instance_path().to_string().replace('/', ".");
            let what = format!("`{path}{place}` is not valid in a JSON Schema: {error}");
            found.problem(tree, &path, what, "write a JSON Schema of `{title, output, metadata}`");
        }
    }
}

/// Tools that `sub_agents` brings have names that nothing else may have.
pub(super) fn sub_agents(name: &str, agent: &Agent, file: &File, tree: &Node, found: &mut CheckResult) {
    for (no, sub_agent) in agent.sub_agents.iter().enumerate() {
        let tool_name = sub_agent_tool(sub_agent);
        let Some(tool) = file.tools.get(&tool_name) else { continue };
        let is_it =
            matches!(&tool.kind, Some(ToolKind::Agent(keys)) if keys.agent.as_ref() == Some(sub_agent));
        if !is_it {
            let path = Path::of(&["agents", name, "sub_agents"]).item(no);
            let what = format!(
                "`{sub_agent}` adds a tool `{tool_name}`, and `tools.{tool_name}` is a different one"
            );
            let help = format!("rename that tool, or make it `{{type: agent, agent: {sub_agent}}}`");
            found.problem(tree, &path, what, help);
        }
    }
}
