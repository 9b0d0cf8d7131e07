//! Grants: bounded standing approvals, as pure data.
//!
//! An approver sees the exact rule before it is saved, and what was not shown is not covered: same tool, agent, owner and
//! schema, the same members in the arguments, and each value as it was or within the bound that was shown. A grant answers
//! the hold rules that it names, as they were; it never answers a deny. Counting uses is the store's.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use standfast_core::digest::{self, Digest};
use standfast_core::name::{AgentName, GrantId, RuleId, SessionId, ToolName, UserId};
use standfast_core::policy::Effect;
use standfast_core::time::Timestamp;

use crate::argv::Argv;
use crate::call::Call;
use crate::decimal::Decimal;
use crate::decision::Decision;
use crate::glob::{Glob, is_roundabout};
use crate::matcher::{Globs, Matcher, Tests};
use crate::policy::Policy;
use crate::rule::GrantRule;
use crate::shell::simple;
use crate::truth::Truth;
use crate::value::{ArgumentPath, Value};

/// What an approver asks for, beside this call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrantRequest {
    /// How many further calls; as many as the file allows if it does not say.
    pub uses: Option<u32>,
    /// Until when; as long as the file allows if it does not say.
    pub until: Option<Timestamp>,
    /// In what the calls may differ from this one; in nothing if it does not say.
    pub like: Vec<Freedom>,
    /// Whether only calls of the same session are meant.
    pub reach: GrantReach,
}

/// Which runs a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrantReach {
    /// All runs of the same owner with the same agent.
    #[default]
    Owner,
    /// Those of the same session.
    Session,
}

/// In what a call may differ from the one that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freedom {
    /// A number from zero up to the one that was shown.
    UpTo(ArgumentPath),
    /// A command that begins with as many words of the one that was shown.
    Command(ArgumentPath, usize),
    /// A file in the same folder.
    SameFolder(ArgumentPath),
    /// Any text.
    AnyText(ArgumentPath),
}

impl Freedom {
    fn path(&self) -> &ArgumentPath {
        match self {
            Freedom::UpTo(path)
            | Freedom::Command(path, _)
            | Freedom::SameFolder(path)
            | Freedom::AnyText(path) => path,
        }
    }
}

/// What is asked of one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantCondition {
    /// It is this one, as JSON.
    Exactly(String),
    /// It fits.
    Fits(Matcher),
}

/// The rule of a grant: what an approver is shown before it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantProposal {
    /// The tool.
    pub tool: ToolName,
    /// Its schema as it was.
    pub schema: Digest,
    /// The agent.
    pub agent: AgentName,
    /// Whose runs.
    pub owner: UserId,
    /// The session, if only that one is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The members of the arguments, without their values.
    pub shape: String,
    /// What is asked of each value.
    pub conditions: Vec<(ArgumentPath, GrantCondition)>,
    /// The hold rules that it answers, as they were.
    pub rules: BTreeMap<RuleId, Digest>,
    /// How many calls.
    pub uses: u32,
    /// Until when.
    pub until: Timestamp,
}

/// A bounded standing approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// What was shown and approved.
    pub proposal: GrantProposal,
    /// Who approved it.
    pub approved_by: Vec<UserId>,
    /// When.
    pub made_at: Timestamp,
}

/// Why there is no grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantRefusal {
    /// The call is not held.
    NotHeld,
    /// The file has none for this.
    NotAllowed,
    /// More calls than the file allows.
    TooManyUses {
        /// What it allows.
        most: u32,
    },
    /// Longer than the file allows, or over already.
    BadEnd {
        /// The latest end.
        latest: Timestamp,
    },
    /// The arguments cannot be read, or cannot be compared.
    Arguments,
    /// A freedom that does not fit the value; which, and why.
    BadFreedom(ArgumentPath, &'static str),
    /// What was approved is not what was shown.
    NotAsShown,
}

impl fmt::Display for GrantRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrantRefusal::NotHeld => f.write_str("this call is not held"),
            GrantRefusal::NotAllowed => {
                f.write_str("the policy allows no standing approval for calls like this")
            }
            GrantRefusal::TooManyUses { most } => write!(f, "the policy allows {}", at_most(*most)),
            GrantRefusal::BadEnd { latest } => {
                write!(f, "the end must be later than now and not after {}", latest.0)
            }
            GrantRefusal::Arguments => f.write_str("the arguments of this call cannot be compared"),
            GrantRefusal::BadFreedom(path, why) => write!(f, "argument {path}: {why}"),
            GrantRefusal::NotAsShown => f.write_str("the rule is no longer the one that was shown"),
        }
    }
}

impl std::error::Error for GrantRefusal {}

/// Why a grant does not cover a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCovered {
    /// It has expired.
    Expired,
    /// All its uses are taken.
    UsedUp,
    /// Another tool, agent, owner or session.
    Elsewhere,
    /// The tool's schema is another one: the grant is dead.
    SchemaChanged,
    /// A hold rule is not among those that it answers, or is no longer the same.
    RuleChanged,
    /// The call is not held, or the policy allows no grants for it.
    NotForGrants,
    /// Other arguments.
    Arguments,
}

/// A call that is held, and what is known of it now.
#[derive(Debug, Clone, Copy)]
pub struct HeldCall<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The call.
    pub call: &'a Call,
    /// What the policy says of it.
    pub decision: &'a Decision,
    /// The tool's schema.
    pub schema: Digest,
    /// What holds it beside the policy, by name: what the tool itself asks about, what was found before people were asked.
    pub also: &'a [RuleId],
}

/// The members of a value, without its leaves: what a call has more or less makes it another one.
fn shape(value: &Value) -> String {
    match value {
        Value::List(items) if !items.is_empty() => {
            format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(","))
        }
        Value::Map(members) if !members.is_empty() => {
            let member =
                |(name, value): (&String, &Value)| format!("{}:{}", crate::value::quoted(name), shape(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            "…".into()
        }
    }
}

/// The rule of a grant for a held call, to be shown before it is saved.
pub fn propose(
    held: HeldCall<'_>,
    request: &GrantRequest,
    now: Timestamp,
) -> Result<GrantProposal, GrantRefusal> {
    let HeldCall { policy, call, decision, schema, also } = held;
    if decision.effect != Effect::Hold {
        return Err(GrantRefusal::NotHeld);
    }
    if decision.grants == GrantRule::Never || decision.is_untold() {
        return Err(GrantRefusal::NotAllowed);
    }
    let limits = &policy.file().grants;
    let uses = request.uses.unwrap_or(limits.max_uses);
    if uses == 0 || uses > limits.max_uses {
        return Err(GrantRefusal::TooManyUses { most: limits.max_uses });
    }
    let latest = now.plus(limits.max_duration.0);
    let until = request.until.unwrap_or(latest);
    if until <= now || until > latest {
        return Err(GrantRefusal::BadEnd { latest });
    }
    let arguments = call.arguments.value().ok_or(GrantRefusal::Arguments)?;
    let leaves = arguments.leaves();
    if let Some(stray) =
        request.like.iter().find(|freedom| !leaves.iter().any(|(path, _)| path == freedom.path()))
    {
        return Err(GrantRefusal::BadFreedom(stray.path().clone(), "there is no such value in this call"));
    }
    let mut conditions = Vec::new();
    for (path, value) in leaves {
        let condition = match request.like.iter().find(|freedom| *freedom.path() == path) {
            Some(freedom) => GrantCondition::Fits(
                free(freedom, value).map_err(|why| GrantRefusal::BadFreedom(path.clone(), why))?,
            ),
            None if *value == Value::Number(None) => return Err(GrantRefusal::Arguments),
            None => GrantCondition::Exactly(value.to_string()),
        };
        conditions.push((path, condition));
    }
    let session = match request.reach {
        GrantReach::Owner => None,
        GrantReach::Session => Some(call.session.clone().ok_or(GrantRefusal::NotAllowed)?),
    };
    Ok(GrantProposal {
        tool: call.tool.clone(),
        schema,
        agent: call.agent.clone(),
        owner: call.caller.user.clone(),
        session,
        shape: shape(arguments),
        conditions,
        rules: answered(policy, decision, also),
        uses,
        until,
    })
}

/// The hold rules of a decision, as they are now. The server's own are known by their names.
fn answered(policy: &Policy, decision: &Decision, also: &[RuleId]) -> BTreeMap<RuleId, Digest> {
    let digest = |id: &RuleId| {
        let own = || digest::of_parts("standfast.own-rule.1", &[id.as_str().as_bytes()]);
        policy.rule(id).map_or_else(own, |rule| rule.digest)
    };
    let holds = decision.matched.iter().filter(|rule| rule.effect == Effect::Hold).map(|rule| &rule.rule);
    holds.chain(&decision.decided_by).chain(also).map(|id| (id.clone(), digest(id))).collect()
}

/// A freedom as a test; why not, where the value is of another kind.
fn free(freedom: &Freedom, value: &Value) -> Result<Matcher, &'static str> {
    let text = || match value {
        Value::Text(text) => Ok(text.as_str()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
            Err("it is not text")
        }
    };
    let tests = match freedom {
        Freedom::UpTo(_) => match value {
            // Both ends are bound: a refund below zero is a charge.
            Value::Number(Some(number)) if !number.is_negative() => {
                Tests { ge: Some(Decimal::zero()), le: Some(number.clone()), ..Tests::default() }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_) => {
                return Err("it is not a number of zero or more");
            }
        },
        Freedom::Command(_, words) => {
            let command = simple(text()?).ok_or("it is not one simple command")?;
            let first: Vec<String> = command
                .iter()
                .take(*words)
                .filter(|word| word.is_plain)
                .map(|word| word.text.clone())
                .collect();
            if first.is_empty() || first.len() != *words {
                return Err("it has not as many plain words");
            }
            let argv = Argv::of(first);
            if argv.opens_everything().is_some() {
                return Err("its program can run any other program");
            }
            Tests { argv: Some(argv), ..Tests::default() }
        }
        Freedom::SameFolder(_) => {
            let path = text()?;
            if is_roundabout(path) || path.contains(['*', '?']) {
                return Err("it is not a plain path");
            }
            let (folder, _) = path.rsplit_once('/').ok_or("it names no folder")?;
            let glob = Glob::parse(&format!("{folder}/*")).map_err(|_| "it is not a plain path")?;
            Tests { glob: Some(Globs(vec![glob])), ..Tests::default() }
        }
        Freedom::AnyText(_) => {
            if is_roundabout(text()?) {
                return Err("it is not plain text");
            }
            let any = Glob::parse("**").map_err(|_| "it is not text")?;
            Tests { glob: Some(Globs(vec![any])), ..Tests::default() }
        }
    };
    Ok(Matcher::Tests(Box::new(tests)))
}

fn at_most(calls: u32) -> String {
    format!("at most {calls} further {}", if calls == 1 { "call" } else { "calls" })
}

impl GrantProposal {
    /// What an approval of it must name: another digest is another rule.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match serde_json::to_vec(self) {
            Ok(bytes) => digest::of_parts("standfast.grant.1", &[&bytes]),
            Err(_) => unreachable!("a proposal has only string keys"),
        }
    }

    /// The grant, if what was shown is this.
    pub fn accept(
        self,
        id: GrantId,
        shown: Digest,
        by: Vec<UserId>,
        now: Timestamp,
    ) -> Result<Grant, GrantRefusal> {
        if self.digest() != shown || by.is_empty() {
            return Err(GrantRefusal::NotAsShown);
        }
        Ok(Grant { id, proposal: self, approved_by: by, made_at: now })
    }

    /// The rule in words, a line for each part.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let mut lines =
            vec![format!("calls of {} by agent {} in runs of {}", self.tool, self.agent, self.owner)];
        lines.extend(self.session.as_ref().map(|session| format!("in session {session} only")));
        lines.extend(self.conditions.iter().map(|(path, condition)| match condition {
            GrantCondition::Exactly(value) => format!("{path} = {value}"),
            GrantCondition::Fits(matcher) => format!("{path} {matcher}"),
        }));
        lines.push("no other arguments".into());
        let rules: Vec<&str> = self.rules.keys().map(RuleId::as_str).collect();
        lines.push(format!("covers only what these rules ask, as they are now: {}", rules.join(", ")));
        lines.push(at_most(self.uses));
        lines
    }

    fn covers_arguments(&self, arguments: &Value) -> bool {
        let fits = |(path, condition): &(ArgumentPath, GrantCondition)| {
            let Some(value) = path.find_one(arguments) else { return false };
            match condition {
                GrantCondition::Exactly(wanted) => {
                    *value != Value::Number(None) && value.to_string() == *wanted
                }
                GrantCondition::Fits(matcher) => matcher.test(Some(value)) == Truth::Yes,
            }
        };
        // A call without arguments has one leaf, which is the whole.
        shape(arguments) == self.shape
            && (arguments.leaves().len() == self.conditions.len())
            && self.conditions.iter().all(fits)
    }
}

impl Grant {
    /// Whether it lets a held call run, after so many uses.
    pub fn covers(&self, held: HeldCall<'_>, used: u32, now: Timestamp) -> Result<(), NotCovered> {
        let (of, call) = (&self.proposal, held.call);
        if now >= of.until {
            return Err(NotCovered::Expired);
        }
        if used >= of.uses {
            return Err(NotCovered::UsedUp);
        }
        let in_session = of.session.is_none() || of.session == call.session;
        if of.tool != call.tool || of.agent != call.agent || of.owner != call.caller.user || !in_session {
            return Err(NotCovered::Elsewhere);
        }
        if of.schema != held.schema {
            return Err(NotCovered::SchemaChanged);
        }
        let decision = held.decision;
        if decision.effect != Effect::Hold || decision.grants == GrantRule::Never || decision.is_untold() {
            return Err(NotCovered::NotForGrants);
        }
        let rules = answered(held.policy, decision, held.also);
        if rules.is_empty() || rules.iter().any(|(id, digest)| of.rules.get(id) != Some(digest)) {
            return Err(NotCovered::RuleChanged);
        }
        let covers = call.arguments.value().is_some_and(|arguments| of.covers_arguments(arguments));
        if covers { Ok(()) } else { Err(NotCovered::Arguments) }
    }
}
