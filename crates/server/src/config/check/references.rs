//! Names that point to something: each must be there, or the nearest one is named.
//!
//! Taken from the tree, not from the types: an entry with a mistake in it has its name all the same.

use crate::config::check::CheckResult;
use crate::config::file::{File, ToolType};
use crate::config::nearest::advice;
use crate::config::path::Path;
use crate::config::tree::{Form, Node, Value};

/// Checks every name of an agent.
pub(super) fn check(file: &File, tree: &Node, found: &mut CheckResult) {
    let names = |section: &str| tree.keys(&Path::of(&[section]));
    let built_in = ToolType::BUILT_IN.iter().map(|(name, _)| *name);
    let tools: Vec<&str> = names("tools").into_iter().chain(built_in).collect();
    for agent in names("agents") {
        let path = Path::of(&["agents", agent]);
        one(&path.key("llm"), "llm", "llms", &names("llms"), tree, found);
        one(
            &path.key("session_store"),
            "session store",
            "session_stores",
            &names("session_stores"),
            tree,
            found,
        );
        many(&path.key("tools"), "tool", "tools", &tools, tree, found);
        many(&path.key("sub_agents"), "agent", "agents", &names("agents"), tree, found);
    }
    one(&Path::of(&["server", "default_agent"]), "agent", "agents", &names("agents"), tree, found);
    for llm in names("llms") {
        one(&Path::of(&["llms", llm, "fallback"]), "llm", "llms", &names("llms"), tree, found);
    }
    for name in names("agents") {
        good_name(name, "agent", &Path::of(&["agents", name]), tree, found);
    }
    for name in names("tools") {
        let path = Path::of(&["tools", name]);
        good_name(name, "tool", &path, tree, found);
        one(&path.key("agent"), "agent", "agents", &names("agents"), tree, found);
    }
    // The type of a tool without one is its name.
    for (name, tool) in &file.tools {
        let path = Path::of(&["tools", name]);
        if tool.kind.is_none() && tree.find(&path.key("type")).is_none() {
            let what = format!("`{path}` has no `type`, and no built-in tool has this name");
            found.problem(tree, &path, what, "add `type: …` below it, such as `type: command`");
        }
    }
}

fn one(path: &Path, what: &str, section: &str, known: &[&str], tree: &Node, found: &mut CheckResult) {
    let Some(Value::Scalar(scalar)) = tree.find(path).map(|node| &node.value) else { return };
    if scalar.form != Form::Unknown && !known.contains(&scalar.text.as_str()) {
        let help = advice(&scalar.text, known.iter().copied());
        let help = help.unwrap_or_else(|| format!("there is none yet; add it below `{section}:`"));
        found.problem(tree, path, format!("there is no {what} `{}`", scalar.written), help);
    }
}

fn many(path: &Path, what: &str, section: &str, known: &[&str], tree: &Node, found: &mut CheckResult) {
    let Some(Value::List(items)) = tree.find(path).map(|node| &node.value) else { return };
    let mut seen: Vec<&str> = Vec::new();
    for (no, item) in items.iter().enumerate() {
        let Value::Scalar(scalar) = &item.value else { continue };
        let here = path.item(no);
        if seen.contains(&scalar.text.as_str()) {
            let problem = format!("`{path}` names `{}` twice", scalar.written);
            found.problem(tree, &here, problem, "remove one of the two");
        }
        seen.push(&scalar.text);
        one(&here, what, section, known, tree, found);
    }
}

/// Names are part of addresses and of what models see, so they are plain.
fn good_name(name: &str, what: &str, path: &Path, tree: &Node, found: &mut CheckResult) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        let problem =
            format!("`{name}` cannot be the name of {} {what}", if what == "agent" { "an" } else { "a" });
        found.problem(tree, path, problem, "use 1 to 64 letters, digits, `-`, `_` and `.`");
    } else if what == "agent" && name == "resume" {
        let problem = "an agent cannot be called `resume`".to_owned();
        found.problem(
            tree,
            path,
            problem,
            "choose another name; this one is part of an address of the Teal routes",
        );
    }
}
