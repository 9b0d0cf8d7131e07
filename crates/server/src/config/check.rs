//! What only shows between keys: names that nothing has, keys that do not go together, modes, stores.
//!
//! One function for each rule. Whatever is wrong in itself has been left out before this (`shape.rs`).

mod channels;
mod encryption;
mod llms;
mod people;
mod policy;
mod reconcile;
mod references;
mod rules;
mod tools;

use std::path::Path as FilePath;

use super::file::File;
use super::path::Path;
use super::problem::{Notice, Problem};
use super::stores;
use super::tree::Node;

pub(in crate::config) use reconcile::overrides as reconcile_overrides;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct CheckResult {
    pub(super) problems: Vec<Problem>,
    pub(super) notices: Vec<Notice>,
    /// What the rules come to, if they are right.
    pub(super) policy: Option<standfast_policy::policy::Policy>,
}

impl CheckResult {
    pub(super) fn problem(&mut self, tree: &Node, path: &Path, what: String, help: impl Into<String>) {
        self.problems.push(Problem { at: tree.spot(path), path: path.clone(), what, help: help.into() });
    }

    pub(super) fn notice(&mut self, tree: &Node, path: &Path, what: String) {
        self.notices.push(Notice { at: tree.spot(path), path: path.clone(), what });
    }
}

/// Checks a file whose parts are right.
pub(super) fn check(file: &File, tree: &Node, folder: &FilePath) -> CheckResult {
    let mut found = CheckResult::default();
    references::check(file, tree, &mut found);
    stores::check(file, tree, folder, &mut found);
    llms::check(file, tree, folder, &mut found);
    for (name, tool) in &file.tools {
        tools::tool(name, tool, tree, &mut found);
    }
    for (name, gateway) in &file.gateways {
        tools::gateway(name, gateway, tree, &mut found);
    }
    for (name, agent) in &file.agents {
        rules::agent(name, agent, file, tree, &mut found);
        tools::sub_agents(name, agent, file, tree, &mut found);
    }
    rules::server(&file.server, tree, &mut found);
    encryption::check(file, tree, folder, &mut found);
    people::check(file, tree, &mut found);
    channels::check(file, tree, &mut found);
    policy::check(file, tree, &mut found);
    reconcile::check(file, tree, &mut found);
    let has_agents = !tree.keys(&Path::of(&["agents"])).is_empty();
    // Rules without an agent are for gates and hooks.
    let has_rules = found.policy.as_ref().is_some_and(|policy| !policy.rules().is_empty());
    if file.agents.is_empty() && !has_agents && file.gateways.is_empty() && !has_rules {
        let what = "the file has no agents and no rules, so a server with it only asks people about calls of agents elsewhere";
        found.notice(tree, &Path::top(), what.into());
    }
    found
}
