//! Keys of a tool that go together, and keys that are for certain types only.
//!
//! What a single value may be is `file/tool.rs`.

use standfast_engine::outbound::guard::Blocked;

use crate::config::build::tools::guard;
use crate::config::check::Checked;
use crate::config::check::rules::{grace_needs_keep, secret_in_file};
use crate::config::file::{Agent, File, Parameters, Sandbox, Tool, ToolType};
use crate::config::path::Path;
use crate::config::plan::sub_agent_tool;
use crate::config::tree::Node;

const FILES: &[ToolType] = &[
    ToolType::Command,
    ToolType::ReadFile,
    ToolType::WriteFile,
    ToolType::DeleteFile,
    ToolType::ListDir,
    ToolType::SearchFiles,
    ToolType::EditFile,
    ToolType::Mcp,
];

const COMMAND: &[ToolType] = &[ToolType::Command];

const PROGRAMS: &[ToolType] = &[ToolType::Command, ToolType::Mcp];

const MCP: &[ToolType] = &[ToolType::Mcp];

const EXTERNAL: &[ToolType] = &[ToolType::External];

const HTTP: &[ToolType] = &[ToolType::External, ToolType::HttpRequest, ToolType::A2a];

const HOSTS: &[ToolType] = &[ToolType::External, ToolType::HttpRequest, ToolType::A2a, ToolType::Mcp];

/// Keys of a tool that are for certain types only.
const FOR_TYPES: &[(&str, &[ToolType])] = &[
    ("allowed_commands", COMMAND),
    ("denied_commands", COMMAND),
    ("deny_by_default", COMMAND),
    ("working_directory", FILES),
    ("readable", PROGRAMS),
    ("max_execution_time", COMMAND),
    ("max_processes", COMMAND),
    ("max_memory", COMMAND),
    ("max_file_size", COMMAND),
    ("sandbox", PROGRAMS),
    ("network", PROGRAMS),
    ("max_output", &[ToolType::Command, ToolType::HttpRequest, ToolType::Mcp, ToolType::A2a]),
    ("timeout", &[ToolType::External, ToolType::HttpRequest, ToolType::Mcp, ToolType::A2a]),
    ("url", &[ToolType::External, ToolType::Mcp, ToolType::A2a]),
    ("webhook_secret", EXTERNAL),
    ("previous_webhook_secret", EXTERNAL),
    ("webhook_url", EXTERNAL),
    ("validate_result", EXTERNAL),
    ("async", EXTERNAL),
    ("parameters", EXTERNAL),
    ("allowed_hosts", HOSTS),
    ("only_allowed_hosts", HTTP),
    ("agent", &[ToolType::Agent]),
    ("command", MCP),
    ("args", MCP),
    ("env", MCP),
    ("headers", &[ToolType::Mcp, ToolType::A2a]),
    ("idempotent", &[ToolType::A2a]),
    ("oauth", MCP),
    ("allow", MCP),
    ("deny", MCP),
    ("trust_hints", MCP),
    ("overrides", MCP),
];

/// Checks a tool.
pub(super) fn tool(name: &str, tool: &Tool, tree: &Node, found: &mut Checked) {
    let path = Path::of(&["tools", name]);
    secret_in_file(&path.key("webhook_secret"), tree, found);
    let grace = tool.expiry_grace.is_some() || tool.after_grace.is_some();
    grace_needs_keep(&path, tool.on_timeout, grace, tree, found);
    secret_in_file(&path.key("previous_webhook_secret"), tree, found);
    let Some(kind) = tool.kind_as(name) else { return };
    for (key, types) in FOR_TYPES {
        if !types.contains(&kind) && tree.find(&path.key(key)).is_some() {
            misplaced(&path, key, types, kind, tree, found);
        }
    }
    needs(&path, kind, ToolType::External, ("url", "the address that starts the job"), tree, found);
    needs(&path, kind, ToolType::A2a, ("url", "the address of the remote agent"), tree, found);
    needs(&path, kind, ToolType::Agent, ("agent", "the agent that does the work"), tree, found);
    commands(&path, tool, tree, found);
    hosts(&path, tool, tree, found);
    if kind == ToolType::External {
        address(&path, tool, ("job", "started"), tree, found);
        external(&path, tool, tree, found);
    }
    if kind == ToolType::A2a {
        address(&path, tool, ("agent", "called"), tree, found);
    }
    if kind == ToolType::Mcp {
        mcp(&path, tree, found);
        confined(&path, tool, tree, found);
    }
    for name in tree.keys(&path.key("headers")) {
        secret_in_file(&path.key("headers").key(name), tree, found);
    }
    if let Some(parameters) = &tool.parameters {
        is_schema(&path.key("parameters"), parameters, tree, found);
    }
}

fn misplaced(path: &Path, key: &str, types: &[ToolType], kind: ToolType, tree: &Node, found: &mut Checked) {
    let types: Vec<String> = types.iter().map(|kind| format!("`type: {}`", kind.as_str())).collect();
    let what = format!("`{path}.{key}` is for {} only, and this is `{}`", types.join(" or "), kind.as_str());
    let help = match (key, kind) {
        ("timeout", ToolType::Command) => "write `max_execution_time`",
        (_, _) => "remove it",
    };
    found.problem(tree, &path.key(key), what, help);
}

fn needs(
    path: &Path,
    kind: ToolType,
    of: ToolType,
    (key, what_it_is): (&str, &str),
    tree: &Node,
    found: &mut Checked,
) {
    if kind == of && tree.find(&path.key(key)).is_none() {
        let what = format!("`{path}` has no `{key}`");
        found.problem(tree, path, what, format!("add `{key}: …` below it, {what_it_is}"));
    }
}

fn commands(path: &Path, tool: &Tool, tree: &Node, found: &mut Checked) {
    for (key, list) in
        [("allowed_commands", &tool.allowed_commands), ("denied_commands", &tool.denied_commands)]
    {
        for (no, entry) in list.iter().flatten().enumerate() {
            let is_command = shell_words::split(entry).is_ok_and(|words| !words.is_empty());
            if !is_command {
                let what = format!("`{entry}` of `{path}.{key}` is no command");
                let help = "write a program, or the first words of a command, with quotes closed";
                found.problem(tree, &path.key(key).item(no), what, help);
            }
        }
    }
    if tool.deny_by_default == Some(true) && tool.allowed_commands.is_none() {
        let what = format!("`{path}` refuses what is not listed, and lists nothing, so no command runs");
        found.notice(tree, &path.key("deny_by_default"), what);
    }
    if tool.sandbox == Some(Sandbox::Off) {
        let key = path.key("sandbox");
        if tool.network.is_some() || tool.readable.is_some() {
            let what = format!("`{path}` has no sandbox, so `network` and `readable` have no effect");
            found.problem(tree, &key, what, "remove them, or write `sandbox: on`");
        }
        let what = format!("commands of `{path}` can do whatever the server's user can do");
        found.notice(tree, &key, what);
    }
}

fn hosts(path: &Path, tool: &Tool, tree: &Node, found: &mut Checked) {
    for (no, host) in tool.allowed_hosts.iter().flatten().enumerate() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) {
            let what = format!("`{host}` of `{path}.allowed_hosts` is no host");
            let help = "write the name or address alone, or with its port: `jobs.internal`, `10.0.0.7:8443`";
            found.problem(tree, &path.key("allowed_hosts").item(no), what, help);
        }
    }
    let names_none = tool.allowed_hosts.as_ref().is_none_or(Vec::is_empty);
    if tool.only_allowed_hosts == Some(true) && names_none {
        let what = format!("`{path}` may call only `allowed_hosts`, and there are none");
        found.problem(
            tree,
            &path.key("only_allowed_hosts"),
            what,
            "add `allowed_hosts: [HOST]`, or remove it",
        );
    }
}

/// What can be said of an address without asking anybody: a call that could never be made is a mistake of the file.
fn address(path: &Path, tool: &Tool, (what, never): (&str, &str), tree: &Node, found: &mut Checked) {
    let Some(url) = &tool.url else { return };
    match guard(Some(tool)).check_text(url) {
        Err(blocked @ (Blocked::NotNamed(_) | Blocked::NotPublic { .. })) => {
            let what = format!("the {what} of `{path}` could never be {never}: {blocked}");
            found.problem(tree, &path.key("url"), what, "add the host to `allowed_hosts` of this tool");
        }
        // What is no address has been told.
        Err(Blocked::Url { .. } | Blocked::NoAddress { .. }) | Ok(_) => {}
    }
}

/// A server is a program or an address.
fn mcp(path: &Path, tree: &Node, found: &mut Checked) {
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

/// A program of an MCP server is confined only where the file says so: most of them need a network and a home.
fn confined(path: &Path, tool: &Tool, tree: &Node, found: &mut Checked) {
    for key in ["network", "readable"] {
        if tool.sandbox.is_none() && tree.find(&path.key(key)).is_some() {
            let what = format!("`{path}.{key}` has no effect without a sandbox");
            found.problem(tree, &path.key(key), what, "add `sandbox: on`, or remove it");
        }
    }
}

fn is_schema(path: &Path, parameters: &Parameters, tree: &Node, found: &mut Checked) {
    let schema = serde_json::Value::Object(parameters.0.clone());
    if let Err(error) = jsonschema::validator_for(&schema) {
        let help = "write a JSON Schema: `type: object`, and `properties:` with a schema for each argument";
        let place = error.instance_path().to_string().replace('/', ".");
        found.problem(tree, path, format!("`{path}{place}` is not right in a JSON Schema: {error}"), help);
    } else if schema["type"] != "object" {
        let help = "write `type: object` below it, and the arguments below `properties:`";
        found.problem(tree, path, format!("`{path}` must describe an object, as all arguments are"), help);
    }
}

/// A job elsewhere is always waited for, and what it must bring can be checked.
fn external(path: &Path, tool: &Tool, tree: &Node, found: &mut Checked) {
    if tool.is_async == Some(false) {
        let what = format!("`{path}.async` is false, and the result of a job elsewhere always comes later");
        let help = "remove it; for a tool that answers at once write `type: http_request`";
        found.problem(tree, &path.key("async"), what, help);
    }
    if tool.previous_webhook_secret.is_some() && tool.webhook_secret.is_none() {
        let what = format!("`{path}` has a `previous_webhook_secret` and no `webhook_secret`");
        found.problem(tree, &path.key("previous_webhook_secret"), what, "add `webhook_secret: …` below it");
    }
    if let Some(result) = &tool.validate_result {
        let schema = serde_json::Value::Object(result.0.clone());
        let path = path.key("validate_result");
        if let Err(error) = jsonschema::validator_for(&schema) {
            let place = error.instance_path().to_string().replace('/', ".");
            let what = format!("`{path}{place}` is not right in a JSON Schema: {error}");
            found.problem(tree, &path, what, "write a JSON Schema of `{title, output, metadata}`");
        }
    }
}

/// Tools that `sub_agents` brings have names that nothing else may have.
pub(super) fn sub_agents(name: &str, agent: &Agent, file: &File, tree: &Node, found: &mut Checked) {
    for (no, sub_agent) in agent.sub_agents.iter().enumerate() {
        let tool_name = sub_agent_tool(sub_agent);
        let Some(tool) = file.tools.get(&tool_name) else { continue };
        let is_it = tool.kind == Some(ToolType::Agent) && tool.agent.as_ref() == Some(sub_agent);
        if !is_it {
            let path = Path::of(&["agents", name, "sub_agents"]).item(no);
            let what =
                format!("`{sub_agent}` brings a tool `{tool_name}`, and `tools.{tool_name}` is another one");
            let help = format!("rename that tool, or make it `{{type: agent, agent: {sub_agent}}}`");
            found.problem(tree, &path, what, help);
        }
    }
}
