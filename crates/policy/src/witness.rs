//! Calls that show where policies differ: one for each corner of what their rules speak of.
//!
//! On each argument a policy is the same between two neighbouring values that its rules name. So a call at every such value
//! and one between each two shows every difference that ranges, sets and names make, as long as all of them together are
//! few enough to be tried; otherwise pairs of rules are. Globs and commands are tried by examples.

use std::collections::{BTreeMap, BTreeSet};

use standfast_core::name::{AgentName, SessionId, ToolName, UserId};

use crate::budget::Dimension;
use crate::call::Call;
use crate::decimal::Decimal;
use crate::matcher::{Globs, Matcher, Scalar, Tests};
use crate::matching::CheckedRule;
use crate::policy::Policy;
use crate::value::{ArgumentPath, Arguments, Value};
use standfast_core::approver::{Approver, Person};

/// Combinations that are tried for a tool with all its rules at once.
const MAX_FOR_TOOL: usize = 20_000;

/// Combinations for each pair of rules, where that is too much.
const MAX_FOR_PAIR: usize = 200;

/// Pairs of rules for each tool.
const MAX_PAIRS: usize = 5_000;

/// Whether every corner was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Of all that ranges, sets, equality and names can say.
    Complete,
    /// There were too many corners: pairs of rules were tried.
    Sampled,
}

/// Calls for the corners of some policies.
pub(crate) fn witnesses(policies: &[&Policy]) -> (Vec<Call>, Coverage) {
    let rules: Vec<&CheckedRule> = policies.iter().flat_map(|policy| policy.rules()).collect();
    let mut tools: BTreeSet<String> = rules.iter().flat_map(|rule| tools_of(rule)).collect();
    tools.extend(policies.iter().flat_map(|policy| policy.file().high_risk_tools.iter().cloned()));
    tools.insert("another_tool".into());
    let (mut calls, mut coverage) = (Vec::new(), Coverage::Complete);
    for tool in tools.iter().filter_map(|tool| ToolName::new(tool).ok()) {
        let about = |rule: &&&CheckedRule| {
            rule.scope.tool.as_ref().is_none_or(|only| *only == tool) && rule.tools.matches(tool.as_str())
        };
        let mine: Vec<&CheckedRule> = rules.iter().filter(about).copied().collect();
        let corners = Corners::of(&mine);
        if corners.count() <= MAX_FOR_TOOL {
            corners.calls(&tool, MAX_FOR_TOOL, &mut calls);
            continue;
        }
        coverage = Coverage::Sampled;
        let pairs = mine.iter().flat_map(|one| mine.iter().map(move |other| [*one, *other]));
        for pair in pairs.take(MAX_PAIRS) {
            Corners::of(&pair).calls(&tool, MAX_FOR_PAIR, &mut calls);
        }
    }
    (calls, coverage)
}

/// Calls that a policy has something to say of: the examples of its rules, and one at every corner of their conditions.
#[must_use]
pub fn example_calls(policy: &Policy) -> Vec<Call> {
    let written = policy.rules().iter().flat_map(|rule| {
        let examples = rule.rule.examples.iter();
        examples.filter_map(|example| crate::examples::call(rule, example).ok())
    });
    written.chain(witnesses(&[policy]).0).collect()
}

fn tools_of(rule: &CheckedRule) -> Vec<String> {
    match &rule.scope.tool {
        Some(tool) => vec![tool.to_string()],
        None => rule.tools.0.iter().map(crate::glob::Glob::example).collect(),
    }
}

/// The values of each dimension.
struct Corners {
    agents: Vec<AgentName>,
    callers: Vec<Person>,
    sessions: Vec<Option<SessionId>>,
    arguments: Vec<(ArgumentPath, Vec<Option<Value>>)>,
}

impl Corners {
    fn of(rules: &[&CheckedRule]) -> Corners {
        let examples = |globs: &Globs| globs.0.iter().map(crate::glob::Glob::example).collect::<Vec<_>>();
        let mut agents: BTreeSet<String> = BTreeSet::from(["another-agent".to_owned()]);
        let mut sessions: BTreeSet<String> = BTreeSet::new();
        let mut callers: Vec<Person> = UserId::new("somebody").ok().map(Person::of).into_iter().collect();
        let mut matchers: BTreeMap<&ArgumentPath, Vec<&Matcher>> = BTreeMap::new();
        let mut summed: BTreeSet<&ArgumentPath> = BTreeSet::new();
        for rule in rules {
            agents.extend(rule.scope.agent.iter().map(ToString::to_string));
            agents.extend(rule.rule.agent.iter().flat_map(examples));
            sessions.extend(rule.rule.session.iter().flat_map(examples));
            for caller in rule.rule.caller.iter().flatten() {
                let mut person = match UserId::new("member") {
                    Ok(user) => Person::of(user),
                    Err(_) => continue,
                };
                match caller {
                    Approver::Owner => continue,
                    Approver::User(user) => person.user = user.clone(),
                    Approver::Group(group) => person.groups = BTreeSet::from([group.clone()]),
                    Approver::Role(role) => person.roles = BTreeSet::from([role.clone()]),
                }
                if !callers.contains(&person) {
                    callers.push(person);
                }
            }
            for (path, matcher) in &rule.rule.conditions {
                matchers.entry(path).or_default().push(matcher);
            }
            for budget in &rule.rule.budgets {
                let apart = budget.per.iter().filter_map(|dimension| match dimension {
                    Dimension::Argument(path) => Some(path),
                    Dimension::Tool | Dimension::Agent | Dimension::Owner => None,
                });
                for path in apart.chain(&budget.sum) {
                    matchers.entry(path).or_default();
                }
                summed.extend(&budget.sum);
            }
        }
        let has_sessions = !sessions.is_empty();
        let mut sessions: Vec<Option<SessionId>> =
            sessions.into_iter().filter_map(|name| SessionId::new(name).ok()).map(Some).collect();
        sessions.extend(has_sessions.then(|| SessionId::new("another-session").ok()));
        sessions.push(None);
        Corners {
            agents: agents.iter().filter_map(|name| AgentName::new(name).ok()).collect(),
            callers,
            sessions,
            arguments: matchers
                .into_iter()
                .map(|(path, all)| {
                    let mut values = values(&all);
                    let is_number = |value: &Option<Value>| matches!(value, Some(Value::Number(Some(_))));
                    if summed.contains(path) && !values.iter().any(is_number) {
                        values.push(Some(Value::Number(Some(Decimal::from(1)))));
                    }
                    (path.clone(), values)
                })
                .collect(),
        }
    }

    fn count(&self) -> usize {
        let sizes = [self.agents.len(), self.callers.len(), self.sessions.len()];
        let arguments = self.arguments.iter().map(|(_, values)| values.len());
        sizes.into_iter().chain(arguments).fold(1, usize::saturating_mul)
    }

    fn calls(&self, tool: &ToolName, most: usize, calls: &mut Vec<Call>) {
        let count = self.count();
        // Where not all can be tried, those that are tried lie apart from each other.
        let step = (count / most.max(1)).max(1);
        let step = if step > 1 { step | 1 } else { step };
        for no in (0..count).step_by(step).take(most) {
            let mut rest = no;
            let mut pick = |size: usize| {
                let index = rest % size.max(1);
                rest /= size.max(1);
                index
            };
            let mut arguments = Value::Map(BTreeMap::new());
            for (path, values) in &self.arguments {
                if let Some(Some(value)) = values.get(pick(values.len())) {
                    path.put(&mut arguments, value.clone());
                }
            }
            let (agent, caller) =
                (self.agents.get(pick(self.agents.len())), self.callers.get(pick(self.callers.len())));
            let session = self.sessions.get(pick(self.sessions.len())).cloned().flatten();
            if let (Some(agent), Some(caller)) = (agent, caller) {
                let arguments = Arguments::Read(arguments);
                let (tool, agent, caller) = (tool.clone(), agent.clone(), caller.clone());
                calls.push(Call { tool, agent, caller, session, arguments });
            }
        }
    }
}

/// The values of an argument at which something may change; none stands for its absence.
fn values(matchers: &[&Matcher]) -> Vec<Option<Value>> {
    let mut found = NamedValues::default();
    for matcher in matchers {
        found.look_at(matcher);
    }
    let mut values = vec![None, Some(Value::Null)];
    let mut add = |value: Value| {
        if !values.contains(&Some(value.clone())) {
            values.push(Some(value));
        }
    };
    let numbers: Vec<&Decimal> = found.numbers.iter().collect();
    if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
        add(Value::Number(Some(first.minus(&Decimal::from(1)))));
        add(Value::Number(Some(last.plus(&Decimal::from(1)))));
    }
    for pair in numbers.windows(2) {
        if let [low, high] = pair {
            add(Value::Number(Some(low.midpoint(high))));
        }
    }
    numbers.into_iter().cloned().for_each(|number| add(Value::Number(Some(number))));
    found.texts.into_iter().for_each(|text| add(Value::Text(text)));
    found.truths.into_iter().for_each(|truth| add(Value::Bool(truth)));
    add(Value::Text("another text".into()));
    values
}

#[derive(Default)]
struct NamedValues {
    numbers: BTreeSet<Decimal>,
    texts: BTreeSet<String>,
    truths: BTreeSet<bool>,
}

impl NamedValues {
    fn look_at(&mut self, matcher: &Matcher) {
        match matcher {
            Matcher::Eq(scalar) => self.add(scalar),
            Matcher::In(scalars) => scalars.iter().for_each(|scalar| self.add(scalar)),
            Matcher::Tests(tests) => self.look_at_tests(tests),
        }
    }

    fn look_at_tests(&mut self, tests: &Tests) {
        tests.eq.iter().chain(tests.one_of.iter().flatten()).for_each(|scalar| self.add(scalar));
        self.numbers.extend([&tests.gt, &tests.ge, &tests.lt, &tests.le].into_iter().flatten().cloned());
        for glob in tests.glob.iter().flat_map(|globs| &globs.0) {
            self.texts.insert(glob.example());
            self.texts.insert(format!("../{}", glob.example()));
        }
        for argv in tests.argv.iter().chain(&tests.argv_exact) {
            for command in argv.spellings(8) {
                self.texts.insert(format!("{command} more"));
                self.texts.insert(format!("true; {command}"));
                self.texts.insert(command);
            }
        }
        tests.not.iter().chain(tests.any.iter().flatten()).for_each(|below| self.look_at(below));
    }

    fn add(&mut self, scalar: &Scalar) {
        match scalar {
            Scalar::Text(text) => self.texts.extend([text.clone()]),
            Scalar::Number(number) => self.numbers.extend([number.clone()]),
            Scalar::Bool(truth) => self.truths.extend([*truth, !*truth]),
        }
    }
}
