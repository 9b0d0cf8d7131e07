//! `reconcile` of tools: that it can be read, and that the call which it names changes nothing and is one of the agent's.
//!
//! What a server offers is known when it is asked; then `build/reconcile.rs` looks again.

use crate::config::check::CheckResult;
use crate::config::file::{BadReconcile, File, Reconcile, Tool, ToolKind, ToolType};
use crate::config::path::Path;
use crate::config::plan::{self, ToolPlan};
use crate::config::tree::Node;

/// Where to read about it.
const HELP: &str = "see \"Reconcile\" in docs/tools.md";

/// Checks those of all tools.
pub(super) fn check(file: &File, tree: &Node, found: &mut CheckResult) {
    for (name, tool) in &file.tools {
        let path = Path::of(&["tools", name]);
        let is_server = tool.tool_type() == Some(ToolType::Mcp);
        if let Some(own) = &tool.common.reconcile {
            let path = path.key("reconcile");
            if is_server {
                let what = format!("`{path}` cannot be about every tool of a server");
                found.problem(tree, &path, what, "write it below `overrides`, for the tool that is meant");
            } else {
                one((name, name), (own, None), &path, (file, tree), found);
            }
        }
        for (theirs, own) in overrides(tool) {
            let path = path.key("overrides").key(theirs).key("reconcile");
            one((&format!("{name}__{theirs}"), name), (own, Some(name)), &path, (file, tree), found);
        }
    }
}

/// Those of single tools of a server.
pub(in crate::config) fn overrides(tool: &Tool) -> impl Iterator<Item = (&String, &Reconcile)> {
    let keys = if let Some(ToolKind::Mcp(keys)) = &tool.kind { Some(keys) } else { None };
    let all = keys.into_iter().flat_map(|keys| &keys.overrides);
    all.filter_map(|(theirs, own)| Some((theirs, own.reconcile.as_ref()?)))
}

fn one(
    (tool, entry): (&str, &str),
    (own, server): (&Reconcile, Option<&String>),
    path: &Path,
    (file, tree): (&File, &Node),
    found: &mut CheckResult,
) {
    let wanted = match own.read(server.map(String::as_str)) {
        Ok(wanted) => wanted.tool,
        Err(BadReconcile { place, why }) => {
            let at = place.iter().fold(path.clone(), |path, key| path.key(key));
            return found.problem(tree, &at, format!("`{at}`: {why}"), HELP);
        }
    };
    let path = path.key("tool");
    for (agent, plan) in file.agents.iter().map(|(name, agent)| (name, plan::tools(agent, file))) {
        if !plan.iter().any(|one| one.name == entry) {
            continue;
        }
        if let Some(what) = misfit(&wanted, &plan, file) {
            let what = format!("agent `{agent}` cannot ask `{wanted}` what became of `{tool}`: {what}");
            let help = "name a tool of the agent of type read_file, list_dir or search_files, or one that its MCP server calls read-only";
            return found.problem(tree, &path, what, help);
        }
    }
}

/// Why a tool cannot be asked.
fn misfit(wanted: &str, plan: &[ToolPlan], file: &File) -> Option<String> {
    if let Some(found) = plan.iter().find(|one| one.name == wanted) {
        let entry = file.tools.get(wanted);
        return match found.kind {
            ToolType::ReadFile | ToolType::ListDir | ToolType::SearchFiles if found.asks => {
                Some("its calls need approval".into())
            }
            ToolType::ReadFile | ToolType::ListDir | ToolType::SearchFiles => {
                let says = entry.is_some_and(|entry| entry.common.requires_approval.is_some());
                says.then(|| "its entry says `requires_approval`, so it may change something".into())
            }
            ToolType::Command
            | ToolType::WriteFile
            | ToolType::DeleteFile
            | ToolType::EditFile
            | ToolType::SuspendForInput
            | ToolType::HttpRequest
            | ToolType::External
            | ToolType::Agent
            | ToolType::Mcp
            | ToolType::A2a => Some("it may change something, or asks somebody".into()),
        };
    }
    let server = wanted.split_once("__").map(|(server, _)| server);
    let is_offered = plan.iter().any(|one| one.kind == ToolType::Mcp && Some(one.name.as_str()) == server);
    (!is_offered).then(|| "the agent has no such tool".into())
}
