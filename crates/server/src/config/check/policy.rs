//! The policy of a file: the rules of the file, of its agents and of its tools, as one policy that can be asked.
//!
//! The crate `standfast-policy` finds the mistakes; here they get their lines. Nothing here knows what a rule means.

use serde_json::{Map, Value as Json, json};
use standfast_core::name::{AgentName, ToolName};
use standfast_policy::matcher::Globs;
use standfast_policy::matching::CheckedRule;
use standfast_policy::policy::{Policy, ScopedRules, compile};
use standfast_policy::problem::{Problem, RulePath, Severity, Step};
use standfast_policy::read;

use crate::config::check::CheckResult;
use crate::config::file::{File, Parameters, ToolType};
use crate::config::nearest::nearest;
use crate::config::path::Path;
use crate::config::plan::{self, ToolPlan};
use crate::config::tree::Node;

/// The policy of a file; none if it has mistakes, which are reported.
pub(super) fn check(file: &File, tree: &Node, found: &mut CheckResult) {
    let (section, mut problems) = read::read(&section(file));
    let mut scoped = Vec::new();
    let top = RulePath::default();
    for (name, agent) in &file.agents {
        let Some(policy) = &agent.policy else { continue };
        let place = top.key("agents").key(name).key("policy").key("rules");
        let rules = read::read_rules(&written(&policy.rules), &place, &mut problems);
        scoped.push(ScopedRules { place, agent: AgentName::new(name).ok(), tool: None, rules });
    }
    for (name, tool) in &file.tools {
        let Some(policy) = &tool.common.policy else { continue };
        let place = top.key("tools").key(name).key("policy").key("rules");
        let mut rules = written(&policy.rules);
        // An entry for a server stands for the tools of that server: its rules call them as the server does.
        let is_server = tool.tool_type() == Some(ToolType::Mcp);
        if is_server {
            within(name, &mut rules);
        }
        let rules = read::read_rules(&rules, &place, &mut problems);
        let tool = ToolName::new(name).ok().filter(|_| !is_server);
        scoped.push(ScopedRules { place, agent: None, tool, rules });
    }
    let compiled = compile(&section, &scoped);
    problems.extend(compiled.problems);
    found.policy = compiled.policy.filter(|_| problems.iter().all(|one| one.severity == Severity::Warning));
    for problem in problems {
        tell(problem, tree, found);
    }
    if let Some(policy) = &found.policy {
        let (notices, wrong) = (unused(policy, file), bad_looks(policy, file));
        for (place, what) in notices.into_iter().chain(no_sign_in(policy, file)) {
            found.notice(tree, &path(&place), what);
        }
        for (place, what) in wrong {
            let help = "name a tool of type read_file, list_dir or search_files, or one that its MCP server calls read-only";
            found.problem(tree, &path(&place), what, help);
        }
    }
}

/// Pre-conditions that name a tool which is not there, or which may change something.
fn bad_looks(policy: &Policy, file: &File) -> Vec<(RulePath, String)> {
    let plans: Vec<ToolPlan> = file.agents.values().flat_map(|agent| plan::tools(agent, file)).collect();
    let mut wrong = Vec::new();
    for rule in policy.rules() {
        let Some(wanted) = &rule.rule.precondition else { continue };
        let what = match plans.iter().find(|plan| plan.name == wanted.tool) {
            None if wanted.tool.contains("__") => continue,
            None => format!("no agent has a tool `{}`", wanted.tool),
            Some(plan) if plan.kind.needs_approval() => {
                format!("`{}` may change something, and a pre-condition must not", wanted.tool)
            }
            Some(_) => continue,
        };
        wrong.push((rule.place.key("precondition").key("tool"), what));
    }
    wrong
}

/// Rules that want a fresh sign-in where nobody signs in at an identity provider: what they hold nobody can approve.
fn no_sign_in(policy: &Policy, file: &File) -> Vec<(RulePath, String)> {
    if file.server.auth.as_ref().is_some_and(|auth| auth.jwt.is_some()) {
        return Vec::new();
    }
    let wanting = policy.rules().iter().filter(|rule| rule.rule.sign_in_max_age.is_some());
    let notice = |rule: &CheckedRule| {
        let what = format!(
            "nobody can approve what rule `{}` holds: it asks for a sign-in at an identity provider, and `server.auth` has none",
            rule.rule.id
        );
        (rule.place.key("sign_in_max_age"), what)
    };
    wanting.map(notice).collect()
}

/// The section as the crate reads it.
fn section(file: &File) -> Json {
    let policy = &file.policy;
    let mut section = Map::new();
    let mut put = |key: &str, value: Json| drop(section.insert(key.to_owned(), value));
    if let Some(default) = policy.default {
        put("default", json!(default));
    }
    if let Some(mode) = policy.mode {
        put("mode", json!(mode));
    }
    put("high_risk_tools", json!(policy.high_risk_tools));
    put("rules", written(&policy.rules));
    let mut grants = Map::new();
    if let Some(span) = policy.grants.max_duration {
        grants.insert("max_duration".to_owned(), json!(span.to_string()));
    }
    if let Some(uses) = policy.grants.max_uses {
        grants.insert("max_uses".to_owned(), json!(uses));
    }
    if let Some(destructive) = policy.grants.destructive {
        grants.insert("destructive".to_owned(), json!(destructive));
    }
    if !grants.is_empty() {
        put("grants", Json::Object(grants));
    }
    let hours = policy.business_hours.iter();
    put("business_hours", hours.map(|(name, hours)| (name.clone(), Json::Object(hours.0.clone()))).collect());
    Json::Object(section)
}

fn written(rules: &[Parameters]) -> Json {
    rules.iter().map(|rule| Json::Object(rule.0.clone())).collect()
}

/// Puts the name of a server in front of the tools that rules are about, as the model knows them.
fn within(server: &str, rules: &mut Json) {
    let named = |tool: &mut Json| {
        if let Json::String(tool) = tool {
            *tool = format!("{server}__{tool}");
        }
    };
    for rule in rules.as_array_mut().into_iter().flatten() {
        for effect in ["allow", "hold", "deny"] {
            match rule.get_mut(effect) {
                Some(Json::Array(tools)) => tools.iter_mut().for_each(named),
                Some(tool) => named(tool),
                None => {}
            }
        }
    }
}

fn tell(problem: Problem, tree: &Node, found: &mut CheckResult) {
    let path = path(&problem.place);
    match problem.severity {
        Severity::Error => found.problem(tree, &path, problem.what, problem.help),
        Severity::Warning => found.notice(tree, &path, format!("{}; {}", problem.what, problem.help)),
    }
}

fn path(place: &RulePath) -> Path {
    place.0.iter().fold(Path::top(), |path, step| match step {
        Step::Key(key) => path.key(key),
        Step::Item(index) => path.item(*index),
    })
}

/// Rules that name a tool which no agent of the file has: a slip of the pen holds nothing. Tools of agents elsewhere, who open gates, nobody
/// knows here.
fn unused(policy: &Policy, file: &File) -> Vec<(RulePath, String)> {
    let is_for_gates = |agents: Option<&Globs>| match agents {
        Some(agents) => !file.agents.keys().any(|agent| agents.matches(agent)),
        None => file.agents.is_empty(),
    };
    let plans = file.agents.values().flat_map(|agent| plan::tools(agent, file));
    let known: Vec<String> = plans.map(|tool| tool.name).collect();
    let is_known = |name: &str| {
        // What a server offers is known when it is asked.
        name.contains("__") || known.iter().any(|tool| tool == name)
    };
    let mut notices = Vec::new();
    for rule in policy.rules() {
        for name in rule.literal_tools() {
            if is_known(name) || is_for_gates(rule.rule.agent.as_ref()) {
                continue;
            }
            let meant = nearest(name, known.iter().map(String::as_str));
            let help = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            let what = format!(
                "rule `{}` is about `{name}`, and no agent has a tool of that name{help}",
                rule.rule.id
            );
            notices.push((rule.place.clone(), what));
        }
    }
    notices
}
