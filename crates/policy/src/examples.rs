//! The examples of a rule: calls that it must match, and calls that it must not.
//!
//! They are about this rule alone, not about what comes of all rules. What an example does not say is taken as the rule
//! wants it.

use std::collections::BTreeSet;

use standfast_core::name::{AgentName, GroupName, RoleName, SessionId, ToolName, UserId};

use crate::call::Call;
use crate::matching::{CheckedRule, RuleOutcome};
use crate::problem::Problem;
use crate::rule::Example;
use crate::value::{Arguments, Value};
use standfast_core::approver::{Approver, Person};

/// Checks the examples of a rule.
pub(crate) fn check(rule: &CheckedRule, problems: &mut Vec<Problem>) {
    let wanted = rule.rule.examples.iter().enumerate().map(|(no, example)| ("match", no, example, true));
    let unwanted =
        rule.rule.counterexamples.iter().enumerate().map(|(no, example)| ("no_match", no, example, false));
    for (key, no, example, is_wanted) in wanted.chain(unwanted) {
        let at = rule.place.key(key).item(no);
        let call = match call(rule, example) {
            Ok(call) => call,
            Err(why) => {
                let help = "write the arguments, or a text if the rule has one condition";
                problems.push(Problem::error(at, format!("the example cannot be read: {why}"), help));
                continue;
            }
        };
        let matches = rule.test(&call) != RuleOutcome::NoMatch;
        if matches == is_wanted {
            continue;
        }
        let id = &rule.rule.id;
        let shown = call.arguments.value().map(ToString::to_string).unwrap_or_default();
        let (what, help) = if is_wanted {
            let missed = rule.trace(&call).into_iter().find(|one| one.truth != crate::truth::Truth::Yes);
            let why = missed.map(|one| format!("{} is {}, not {}", one.subject, one.found, one.wanted));
            (format!("rule `{id}` does not match its example {shown}"), why.unwrap_or_default())
        } else {
            (
                format!("rule `{id}` matches {shown}, which it must not"),
                "make its conditions narrower".to_owned(),
            )
        };
        let help = if help.is_empty() { "correct the rule or the example".to_owned() } else { help };
        problems.push(Problem::error(at, what, help));
    }
}

/// The call that an example stands for.
pub(crate) fn call(rule: &CheckedRule, example: &Example) -> Result<Call, String> {
    let mut call = plain(rule)?;
    match example {
        Example::Text(text) => {
            let mut paths = rule.rule.conditions.keys();
            let (Some(path), None) = (paths.next(), paths.next()) else {
                return Err(
                    "a text stands for the value of the rule's only condition, and this rule has not one"
                        .into(),
                );
            };
            let mut arguments = Value::Map(std::collections::BTreeMap::new());
            path.put(&mut arguments, Value::Text(text.clone()));
            call.arguments = Arguments::Read(arguments);
        }
        Example::Object(object) => {
            let known = ["tool", "agent", "user", "groups", "roles", "session", "arguments"];
            let is_call =
                object.contains_key("arguments") && object.keys().all(|key| known.contains(&key.as_str()));
            if !is_call {
                call.arguments = Arguments::parse(&serde_json::Value::Object(object.clone()).to_string());
                return Ok(call);
            }
            let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str);
            let bad = |bad: standfast_core::name::BadName| bad.to_string();
            if let Some(tool) = text("tool") {
                call.tool = ToolName::new(tool).map_err(bad)?;
            }
            if let Some(agent) = text("agent") {
                call.agent = AgentName::new(agent).map_err(bad)?;
            }
            if let Some(session) = text("session") {
                call.session = Some(SessionId::new(session).map_err(bad)?);
            }
            let names = |key: &str| {
                object
                    .get(key)
                    .and_then(serde_json::Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(serde_json::Value::as_str)
            };
            if object.contains_key("user") || object.contains_key("groups") || object.contains_key("roles") {
                let groups: Result<BTreeSet<GroupName>, _> = names("groups").map(GroupName::new).collect();
                let roles: Result<BTreeSet<RoleName>, _> = names("roles").map(RoleName::new).collect();
                let user = UserId::new(text("user").unwrap_or("somebody")).map_err(bad)?;
                call.caller =
                    Person { groups: groups.map_err(bad)?, roles: roles.map_err(bad)?, ..Person::of(user) };
            }
            let arguments = object.get("arguments").map(ToString::to_string).unwrap_or_default();
            call.arguments = Arguments::parse(&arguments);
        }
    }
    Ok(call)
}

/// A call of a tool, agent, caller and session that the rule is about, without arguments.
pub(crate) fn plain(rule: &CheckedRule) -> Result<Call, String> {
    let bad = |bad: standfast_core::name::BadName| bad.to_string();
    let example = |globs: Option<&crate::matcher::Globs>| {
        globs.and_then(|globs| globs.0.first()).map(crate::glob::Glob::example)
    };
    let tool = match &rule.scope.tool {
        Some(tool) => tool.clone(),
        None => ToolName::new(example(Some(&rule.tools)).unwrap_or_else(|| "x".into())).map_err(bad)?,
    };
    let agent = match &rule.scope.agent {
        Some(agent) => agent.clone(),
        None => {
            AgentName::new(example(rule.rule.agent.as_ref()).unwrap_or_else(|| "x".into())).map_err(bad)?
        }
    };
    let mut caller = Person::of(UserId::new("x").map_err(bad)?);
    match rule.rule.caller.as_ref().and_then(|callers| callers.first()) {
        Some(Approver::User(user)) => caller.user = user.clone(),
        Some(Approver::Group(group)) => caller.groups = BTreeSet::from([group.clone()]),
        Some(Approver::Role(role)) => caller.roles = BTreeSet::from([role.clone()]),
        Some(Approver::Owner) | None => {}
    }
    let session = match example(rule.rule.session.as_ref()) {
        Some(session) => Some(SessionId::new(session).map_err(bad)?),
        None => None,
    };
    let arguments = Arguments::Read(Value::Map(std::collections::BTreeMap::new()));
    Ok(Call { tool, agent, caller, session, arguments })
}
