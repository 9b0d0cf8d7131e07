//! What the tests of this crate share: policies from YAML, and calls.
//!
//! Reads YAML as the configuration does: into a tree of JSON, and that with places.

use standfast_core::approver::Person;
use standfast_core::name::{AgentName, ToolName, UserId};
use standfast_policy::call::Call;
use standfast_policy::policy::{Compilation, Policy, compile};
use standfast_policy::problem::Severity;
use standfast_policy::read::read;
use standfast_policy::value::Arguments;

/// What comes of the section `policy`, with every problem of reading and checking.
pub(crate) fn compiled(yaml: &str) -> Compilation {
    let section = read_yaml(yaml);
    let (file, mut problems) = read(&section);
    let mut compiled = compile(&file, &[]);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        compiled.policy = None;
    }
    problems.append(&mut compiled.problems);
    Compilation { problems, ..compiled }
}

/// YAML as the configuration reads it: `y` is a text.
pub(crate) fn read_yaml(text: &str) -> serde_json::Value {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).unwrap()
}

/// A policy without mistakes.
pub(crate) fn policy(yaml: &str) -> Policy {
    let Compilation { policy, problems } = compiled(yaml);
    policy.unwrap_or_else(|| panic!("{problems:#?}"))
}

/// A call of agent `helper` in a run of `olga`.
pub(crate) fn call(tool: &str, arguments: &str) -> Call {
    Call {
        tool: ToolName::new(tool).unwrap(),
        agent: AgentName::new("helper").unwrap(),
        caller: Person::of(UserId::new("olga").unwrap()),
        session: None,
        arguments: Arguments::parse(arguments),
    }
}
