//! A policy that can be asked: a file with all its rules, checked and indexed.
//!
//! Made once when a configuration is loaded. Mistakes come out as data, all of them; a policy with a mistake is not made.
//! What it says of a call is `decision.rs`.

use standfast_core::digest::{self, Digest};
use standfast_core::name::{AgentName, ToolName};

use crate::call::Call;
use crate::check;
use crate::examples;
use crate::index::{Candidate, Index};
use crate::matching::{CheckedRule, RuleHead, RuleScope};
use crate::prepared_policy::{CallReading, PreparedPolicy};
use crate::problem::{Problem, RulePath, Severity};
use crate::rule::{PolicyFile, Rule};

/// Rules that stand somewhere else than at the top of the file: with an agent or with a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScopedRules {
    /// Where the list stands.
    pub place: RulePath,
    /// The agent that it stands with.
    pub agent: Option<AgentName>,
    /// The tool that it stands with.
    pub tool: Option<ToolName>,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// A policy that can be asked.
#[derive(Debug)]
pub struct Policy {
    file: PolicyFile,
    rules: Vec<CheckedRule>,
    /// Of each rule what a decision always needs.
    heads: Vec<RuleHead>,
    /// What its rules ask for beside an effect.
    wishes: Wishes,
    index: Index,
    /// Their conditions, ready to be asked of many rules at once.
    prepared: PreparedPolicy,
    digest: Digest,
}

/// What some rule asks for beside an effect; looked up once, for it is asked for every call.
#[derive(Debug, Default)]
struct Wishes {
    preconditions: bool,
    effect_keys: bool,
    budgets: bool,
}

impl Wishes {
    fn of(rules: &[CheckedRule]) -> Wishes {
        let any = |asks: fn(&Rule) -> bool| rules.iter().any(|rule| asks(&rule.rule));
        Wishes {
            preconditions: any(|rule| rule.precondition.is_some()),
            effect_keys: any(|rule| rule.effect_key.is_some()),
            budgets: any(|rule| !rule.budgets.is_empty()),
        }
    }
}

/// A policy, or why there is none; warnings either way.
#[derive(Debug)]
pub struct Compilation {
    /// None if there is a mistake.
    pub policy: Option<Policy>,
    /// Mistakes and warnings, in the order of the file.
    pub problems: Vec<Problem>,
}

/// Checks a file and the rules of agents and tools, and makes a policy of them.
#[must_use]
pub fn compile(file: &PolicyFile, scoped: &[ScopedRules]) -> Compilation {
    let mut problems = Vec::new();
    let section = RulePath::default().key("policy");
    for (name, hours) in &file.business_hours {
        if let Some(why) = hours.misfit() {
            let at = section.key("business_hours").key(name);
            problems.push(Problem::error(
                at,
                format!("business hours `{name}`: {why}"),
                "correct the shifts",
            ));
        }
    }
    for (no, tool) in file.high_risk_tools.iter().enumerate().filter(|(_, tool)| ToolName::new(tool).is_err())
    {
        let at = section.key("high_risk_tools").item(no);
        problems.push(Problem::error(
            at,
            format!("{tool:?} is not the name of a tool"),
            "name a tool, or remove it",
        ));
    }
    if file.default == standfast_core::policy::Effect::Allow {
        problems.push(Problem::warning(
            section.key("default"),
            "calls that no rule matches run without a person, also those that change something",
            "leave `default: hold`, and allow what is harmless by rules",
        ));
    }
    if file.grants.max_duration.0.0 <= 0 || file.grants.max_uses == 0 {
        let help = "write `grants: never` on the rules that are meant";
        problems.push(Problem::error(
            section.key("grants"),
            "limits of nothing leave no grant possible",
            help,
        ));
    }
    let top =
        ScopedRules { place: section.key("rules"), rules: file.rules.clone(), ..ScopedRules::default() };
    let mut rules: Vec<CheckedRule> = Vec::new();
    for list in std::iter::once(&top).chain(scoped) {
        let scope = RuleScope { agent: list.agent.clone(), tool: list.tool.clone() };
        for (no, rule) in list.rules.iter().enumerate() {
            let place = list.place.item(rule.position.unwrap_or(no));
            let Some(checked) = check::check(file, rule, (&place, &scope), &mut problems) else { continue };
            examples::check(&checked, &mut problems);
            rules.push(checked);
        }
    }
    let mut seen = std::collections::HashMap::new();
    for rule in &rules {
        if let Some(first) = seen.insert(rule.id.clone(), &rule.place) {
            let what = format!("two rules are called `{}`; the other one is {first}", rule.rule.id);
            problems.push(Problem::error(rule.place.key("id"), what, "give each rule an id of its own"));
        }
    }
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Compilation { policy: None, problems };
    }
    let (index, prepared) = (Index::of(&rules), PreparedPolicy::of(&rules));
    let digest = digest_of(file, &rules);
    let (heads, wishes) = (rules.iter().map(RuleHead::of).collect(), Wishes::of(&rules));
    let policy = Policy { file: file.clone(), rules, heads, wishes, index, prepared, digest };
    Compilation { policy: Some(policy), problems }
}

fn digest_of(file: &PolicyFile, rules: &[CheckedRule]) -> Digest {
    let head = PolicyFile { rules: Vec::new(), ..file.clone() };
    let head = match serde_json::to_vec(&head) {
        Ok(bytes) => bytes,
        Err(_) => unreachable!("a policy has only string keys"),
    };
    // The order of rules means nothing.
    let mut digests: Vec<[u8; 32]> = rules.iter().map(|rule| scoped_digest(rule).0).collect();
    digests.sort_unstable();
    let parts: Vec<&[u8]> =
        std::iter::once(head.as_slice()).chain(digests.iter().map(<[u8; 32]>::as_slice)).collect();
    digest::of_parts("standfast.policy.1", &parts)
}

fn scoped_digest(rule: &CheckedRule) -> Digest {
    let agent = rule.scope.agent.as_ref().map_or("", AgentName::as_str);
    let tool = rule.scope.tool.as_ref().map_or("", ToolName::as_str);
    digest::of_parts("standfast.scoped-rule.1", &[&rule.digest.0, agent.as_bytes(), tool.as_bytes()])
}

impl Policy {
    /// A policy without rules: tools and the default decide.
    #[must_use]
    pub fn without_rules() -> Policy {
        let file = PolicyFile::default();
        let digest = digest_of(&file, &[]);
        Policy::of_file(file, digest)
    }

    /// A policy that says nothing at all: tools decide.
    #[must_use]
    pub fn silent() -> Policy {
        let file = PolicyFile { high_risk_tools: Vec::new(), ..PolicyFile::default() };
        let digest = digest_of(&file, &[]);
        Policy::of_file(file, digest)
    }

    fn of_file(file: PolicyFile, digest: Digest) -> Policy {
        let (heads, wishes, index) = (Vec::new(), Wishes::default(), Index::default());
        Policy { file, rules: Vec::new(), heads, wishes, index, prepared: PreparedPolicy::default(), digest }
    }

    /// Whether only what a tool says of itself counts for its calls.
    #[must_use]
    pub fn is_silent_about(&self, tool: &ToolName) -> bool {
        let is_high_risk = self.file.high_risk_tools.iter().any(|name| name == tool.as_str());
        self.rules.is_empty() && !is_high_risk && self.file.default == standfast_core::policy::Effect::Hold
    }

    /// The same policy, with each of its rules as this function leaves it; none if that makes a mistake of one. Examples are
    /// left out: they are about the rules as they were.
    #[must_use]
    pub fn with_rules(&self, change: impl Fn(&mut Rule)) -> Option<Policy> {
        let file = PolicyFile { rules: Vec::new(), ..self.file.clone() };
        let changed = |checked: &CheckedRule| {
            let mut rule = Rule {
                examples: Vec::new(),
                counterexamples: Vec::new(),
                position: None,
                ..checked.rule.clone()
            };
            change(&mut rule);
            let RuleScope { agent, tool } = checked.scope.clone();
            ScopedRules { place: checked.place.clone(), agent, tool, rules: vec![rule] }
        };
        let rules: Vec<ScopedRules> = self.rules.iter().map(changed).collect();
        compile(&file, &rules).policy
    }

    /// The file, without the rules of agents and tools.
    #[must_use]
    pub fn file(&self) -> &PolicyFile {
        &self.file
    }

    /// All rules.
    #[must_use]
    pub fn rules(&self) -> &[CheckedRule] {
        &self.rules
    }

    /// The rule with this name in the log.
    #[must_use]
    pub fn rule(&self, id: &standfast_core::name::RuleId) -> Option<&CheckedRule> {
        self.rules.iter().find(|rule| rule.id == *id)
    }

    /// Whether a rule wants something looked at before people are asked.
    #[must_use]
    pub fn has_preconditions(&self) -> bool {
        self.wishes.preconditions
    }

    /// Whether a rule names what calls do in the world.
    #[must_use]
    pub fn names_effects(&self) -> bool {
        self.wishes.effect_keys
    }

    /// Whether a rule has a budget.
    #[must_use]
    pub fn has_budgets(&self) -> bool {
        self.wishes.budgets
    }

    /// Whether there may be standing approvals at all: a file without rules that says nothing of them has none.
    #[must_use]
    pub fn takes_grants(&self) -> bool {
        !self.rules.is_empty() || self.file.names_grants
    }

    /// What the log knows it by.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The rules that can be about a call, in the order of the file.
    pub(crate) fn candidates(&self, call: &Call) -> Vec<Candidate> {
        self.index.candidates(call)
    }

    /// A call as the rules see it.
    pub(crate) fn read<'a>(&'a self, call: &'a Call) -> CallReading<'a> {
        self.prepared.read(call)
    }

    /// What a decision always needs of a rule.
    pub(crate) fn head(&self, no: usize) -> Option<&RuleHead> {
        self.heads.get(no)
    }
}
