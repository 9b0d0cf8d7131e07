//! One rule against one call: every condition with its outcome.
//!
//! A rule's conditions come to one truth value. An allow counts only if all of them hold beyond doubt; a hold or deny counts
//! unless one of them certainly does not. How rules combine is `decision.rs`.

use std::sync::Arc;

use standfast_core::approver::{Approver, Membership};
use standfast_core::digest::Digest;
use standfast_core::name::{AgentName, RuleId, ToolName};
use standfast_core::policy::Effect;

use crate::call::Call;
use crate::matcher::{Globs, Matcher};
use crate::problem::RulePath;
use crate::rule::Rule;
use crate::truth::Truth;
use crate::value::{ArgumentPath, Value};
use crate::when::Expression;

/// What a list of rules is about, by where it stands: the whole file, an agent, a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleScope {
    /// Only this agent.
    pub agent: Option<AgentName>,
    /// Only this tool.
    pub tool: Option<ToolName>,
}

/// A rule that was checked.
#[derive(Debug)]
pub struct CheckedRule {
    /// Its name in the log.
    pub id: RuleId,
    /// As it is written.
    pub rule: Rule,
    /// What it does.
    pub effect: Effect,
    /// Where it stands.
    pub place: RulePath,
    /// What it is about by that.
    pub scope: RuleScope,
    /// What it is known by: another digest is another rule.
    pub digest: Digest,
    pub(crate) tools: Globs,
    pub(crate) when: Option<Expression>,
}

/// The result of one condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionTrace {
    /// What is looked at: `tool`, `agent`, `caller`, `session`, an argument, `when`.
    pub subject: String,
    /// What is asked of it.
    pub wanted: String,
    /// What was found.
    pub found: String,
    /// The result.
    pub truth: Truth,
}

/// What a rule says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOutcome {
    /// It does not match.
    NoMatch,
    /// It matches, with this effect.
    Match(Effect),
}

impl RuleOutcome {
    /// What conditions that come to this mean for a rule with this effect.
    pub(crate) fn of(effect: Effect, truth: Truth) -> RuleOutcome {
        let counts = match effect {
            Effect::Allow => truth == Truth::Yes,
            Effect::Hold | Effect::Deny => truth != Truth::No,
        };
        if counts { RuleOutcome::Match(effect) } else { RuleOutcome::NoMatch }
    }
}

/// What most rules of a long list are: a name, an effect and a reason, side by side in memory.
#[derive(Debug)]
pub(crate) struct RuleHead {
    pub(crate) id: RuleId,
    pub(crate) effect: Effect,
    /// Why, as the file says it.
    pub(crate) because: Option<Arc<str>>,
    /// No terms, approvers, times, keys, budgets or calls before the call.
    pub(crate) says_nothing_else: bool,
}

impl RuleHead {
    pub(crate) fn of(rule: &CheckedRule) -> RuleHead {
        let written = &rule.rule;
        // What a rule matches, and what it is tried with, is not what it says.
        let bare = Rule {
            id: written.id.clone(),
            allow: written.allow.clone(),
            hold: written.hold.clone(),
            deny: written.deny.clone(),
            agent: written.agent.clone(),
            caller: written.caller.clone(),
            session: written.session.clone(),
            conditions: written.conditions.clone(),
            when: written.when.clone(),
            examples: written.examples.clone(),
            counterexamples: written.counterexamples.clone(),
            position: written.position,
            because: written.because.clone(),
            ..Rule::default()
        };
        RuleHead {
            id: rule.id.clone(),
            effect: rule.effect,
            because: written.because.as_deref().map(Arc::from),
            says_nothing_else: *written == bare,
        }
    }
}

impl CheckedRule {
    /// The tools that it names one by one.
    pub fn literal_tools(&self) -> impl Iterator<Item = &str> {
        let is_free = self.scope.tool.is_none();
        self.tools.0.iter().filter_map(|glob| glob.literal()).filter(move |_| is_free)
    }

    /// Whether it matches, and what it then does.
    #[must_use]
    pub fn test(&self, call: &Call) -> RuleOutcome {
        self.outcome(call, self.static_truth(call))
    }

    /// The same where it is known what its conditions come to, all but its expression.
    pub(crate) fn outcome(&self, call: &Call, truth: Truth) -> RuleOutcome {
        if RuleOutcome::of(self.effect, truth) == RuleOutcome::NoMatch {
            return RuleOutcome::NoMatch;
        }
        match self.when.as_ref().map(|when| when.evaluate(call)) {
            None | Some(Ok(true)) => RuleOutcome::Match(self.effect),
            Some(Ok(false)) => RuleOutcome::NoMatch,
            // An error holds: nobody knows whether the rule was meant.
            Some(Err(_)) => RuleOutcome::Match(Effect::Hold),
        }
    }

    /// What its conditions come to, all but its expression.
    pub(crate) fn static_truth(&self, call: &Call) -> Truth {
        let mut truth = self.names_truth(call);
        if truth != Truth::No {
            truth = truth.and(readable(call));
        }
        for (path, matcher) in &self.rule.conditions {
            if truth == Truth::No {
                break;
            }
            truth = truth.and(argument_truth(path, matcher, call));
        }
        truth
    }

    /// What it says of tool, agent, caller and session.
    pub(crate) fn names_truth(&self, call: &Call) -> Truth {
        let names = self.tool_truth(call).and(self.agent_truth(call));
        if names == Truth::No {
            return Truth::No;
        }
        names.and(self.caller_truth(call)).and(self.session_truth(call))
    }

    fn tool_truth(&self, call: &Call) -> Truth {
        let in_scope = self.scope.tool.as_ref().is_none_or(|tool| *tool == call.tool);
        Truth::of(in_scope && self.tools.matches(call.tool.as_str()))
    }

    fn agent_truth(&self, call: &Call) -> Truth {
        let in_scope = self.scope.agent.as_ref().is_none_or(|agent| *agent == call.agent);
        Truth::of(
            in_scope && self.rule.agent.as_ref().is_none_or(|agents| agents.matches(call.agent.as_str())),
        )
    }

    fn caller_truth(&self, call: &Call) -> Truth {
        let Some(callers) = &self.rule.caller else { return Truth::Yes };
        if callers.iter().any(|one| one.means(&call.caller, &call.caller.user)) {
            return Truth::Yes;
        }
        let asks_for_groups = callers.iter().any(|one| match one {
            Approver::Owner | Approver::User(_) => false,
            Approver::Group(_) | Approver::Role(_) => true,
        });
        match call.caller.membership {
            Membership::Unknown if asks_for_groups => Truth::Unknown,
            Membership::Unknown | Membership::Known => Truth::No,
        }
    }

    fn session_truth(&self, call: &Call) -> Truth {
        match (&self.rule.session, &call.session) {
            (None, _) => Truth::Yes,
            (Some(_), None) => Truth::Unknown,
            (Some(globs), Some(session)) => Truth::of(globs.matches(session.as_str())),
        }
    }

    /// Every condition with its outcome, for people.
    #[must_use]
    pub fn trace(&self, call: &Call) -> Vec<ConditionTrace> {
        let globs = |globs: &Globs| globs.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        let trace = |subject: &str, wanted: String, found: String, truth: Truth| ConditionTrace {
            subject: subject.to_owned(),
            wanted,
            found,
            truth,
        };
        let scoped = |wanted: String, only: Option<String>| match only {
            Some(only) => format!("{wanted}, within {only}"),
            None => wanted,
        };
        let mut all = vec![trace(
            "tool",
            scoped(globs(&self.tools), self.scope.tool.as_ref().map(ToString::to_string)),
            call.tool.to_string(),
            self.tool_truth(call),
        )];
        if self.rule.agent.is_some() || self.scope.agent.is_some() {
            let wanted = self.rule.agent.as_ref().map_or_else(|| "*".to_owned(), globs);
            let wanted = scoped(wanted, self.scope.agent.as_ref().map(ToString::to_string));
            all.push(trace("agent", wanted, call.agent.to_string(), self.agent_truth(call)));
        }
        if let Some(callers) = &self.rule.caller {
            let wanted = callers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            all.push(trace("caller", wanted, format!("user:{}", call.caller.user), self.caller_truth(call)));
        }
        if let Some(sessions) = &self.rule.session {
            let found = call.session.as_ref().map_or_else(|| "no session".to_owned(), ToString::to_string);
            all.push(trace("session", globs(sessions), found, self.session_truth(call)));
        }
        if readable(call) != Truth::Yes {
            all.push(trace(
                "arguments",
                "JSON".into(),
                "arguments that cannot be read".into(),
                readable(call),
            ));
        }
        for (path, matcher) in &self.rule.conditions {
            let found = call.arguments.value().map_or_else(Vec::new, |arguments| path.find(arguments));
            let found = found.into_iter().map(shown).collect::<Vec<_>>().join(", ");
            all.push(trace(
                &path.to_string(),
                matcher.to_string(),
                found,
                argument_truth(path, matcher, call),
            ));
        }
        if let (Some(text), Some(when)) = (&self.rule.when, &self.when) {
            let (found, truth) = match when.evaluate(call) {
                Ok(truth) => (truth.to_string(), Truth::of(truth)),
                Err(why) => (format!("an error: {why}"), Truth::Unknown),
            };
            all.push(trace("when", text.clone(), found, truth));
        }
        all
    }
}

/// Characters of a value that people are shown.
const SHOWN_CHARS: usize = 200;

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= SHOWN_CHARS {
        return text;
    }
    text.chars().take(SHOWN_CHARS).chain(['…']).collect()
}

/// What cannot be read can be told nothing of.
pub(crate) fn readable(call: &Call) -> Truth {
    if call.arguments.value().is_some() { Truth::Yes } else { Truth::Unknown }
}

/// Of several values all must say the same; otherwise it cannot be told.
pub(crate) fn argument_truth(path: &ArgumentPath, matcher: &Matcher, call: &Call) -> Truth {
    call.arguments.value().map_or(Truth::Unknown, |arguments| all_say(path, matcher, arguments))
}

/// The same of any value.
pub(crate) fn all_say(path: &ArgumentPath, matcher: &Matcher, root: &Value) -> Truth {
    if !path.is_plural() {
        return matcher.test(path.find_one(root));
    }
    let mut said = path.find(root).into_iter().map(|value| matcher.test(value));
    let first = said.next().unwrap_or(Truth::Unknown);
    if said.all(|truth| truth == first) { first } else { Truth::Unknown }
}
