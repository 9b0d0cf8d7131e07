//! Rules become verdicts here, before the core is asked.
//!
//! Taken when the model replies and again directly before a call starts. What nobody judged is held by the core. The rule
//! language is the crate `standfast-policy`; what of it an agent keeps is `settings/rules.rs`.

use std::sync::LazyLock;

use standfast_core::approver::Person;
use standfast_core::command::AskedCall;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::event::Driver;
use standfast_core::hold::{Demand, HoldTerms};
use standfast_core::id::CallNo;
use standfast_core::json::RawJson;
use standfast_core::message::{FileDigest, ObservedVerdict};
use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::{CallState, Facts, Run};
use standfast_core::time::Timestamp;
use standfast_policy::call::Call;
use standfast_policy::decision::DEFAULT;
use standfast_policy::value::Arguments;

use crate::schema;
use crate::settings::{Agent, CallTracking, Rules};
use crate::tool::{Judgement, Tool};

/// Characters of the reason why arguments do not fit: it quotes them.
const WHY_CHARS: usize = 1_000;

/// The rule of tools that a person is asked about.
pub const REQUIRES_APPROVAL: &str = "tool:requires_approval";

/// The rule of tools that run without asking.
pub const NEEDS_NO_APPROVAL: &str = "tool:needs_no_approval";

/// The rule of tools that a person would be asked about if the agent's runs were tracked (C29).
pub const NO_TRACKING: &str = "agent:no_task_tracking";

/// C29: the text for the model when such a tool is denied.
pub const NOT_TRACKED: &str = "Tool requires approval but task tracking not enabled";

/// S0-30, C29: the note for followers of the run then (the sign, two spaces).
pub const DENYING: &str = "⚠️  Tool requires approval but task tracking not enabled, denying\n";

/// The rule of calls that nobody can judge, because the policy cannot be read.
pub const UNREADABLE: &str = "policy:unreadable";

/// The rule of commands that nobody has listed. A rule that allows them lists them.
pub const NOT_LISTED: &str = "command:not_listed";

/// The rule of calls that an outside worker asks about before it runs them.
pub const WORKER_ASKS: &str = "worker:asks";

/// The rule of questions that an agent of somebody else asks a person.
pub const ASKS_A_PERSON: &str = "gate:asks_a_person";

/// The rule of calls that would take from a budget and are run where nobody counts them.
pub const NOT_COUNTED: &str = "budget:not_counted";

/// The rule of calls whose effect has a name and which are run where nobody claims it.
pub const NOT_CLAIMED: &str = "effect:not_claimed";

/// The rule of calls that an outside worker only tells of.
pub const WORKER_TELLS: &str = "worker:needs_no_approval";

/// The rule of calls whose arguments could not be read where a tool wants to judge them.
pub const ARGUMENTS_UNREAD: &str = "tool:arguments_unread";

/// The rule of calls whose arguments break the schema that the model was told.
pub const ARGUMENTS_BREAK_SCHEMA: &str = "tool:arguments_break_schema";

/// A rule by its name. Those that judge every call are made once.
fn known_rule(name: &str) -> Option<RuleId> {
    static USUAL: LazyLock<[Option<RuleId>; 2]> =
        LazyLock::new(|| [REQUIRES_APPROVAL, NEEDS_NO_APPROVAL].map(|name| RuleId::new(name).ok()));
    let usual = USUAL.iter().flatten().find(|rule| rule.as_str() == name).cloned();
    usual.or_else(|| RuleId::new(name).ok())
}

/// Verdicts on the calls of a reply, numbered as they will be.
#[must_use]
pub fn of_reply(
    agent: &Agent,
    definition: &Definition,
    (run, now): (&Run, Timestamp),
    calls: &[AskedCall],
) -> Verdicts {
    let mut verdicts = Verdicts { policy: agent.rules.digest(), ..Verdicts::default() };
    let judge = Judge { agent, definition, facts: &run.facts, now };
    for (no, call) in numbered(run, calls) {
        let Ok(tool) = ToolName::new(&call.tool) else { continue };
        judge.judge(no, &tool, Some(&call.arguments), &mut verdicts);
    }
    // One that holds may hold the whole turn. What nobody is asked about is shown to nobody.
    if verdicts.by_call.iter().any(|(_, verdict)| verdict.effect == Effect::Hold) {
        for (no, call) in numbered(run, calls) {
            let Ok(tool) = ToolName::new(&call.tool) else { continue };
            verdicts.files.extend(files(agent, &tool, &call.arguments).into_iter().map(|file| (no, file)));
            verdicts.warnings.extend(warning(agent, &tool, &call.arguments).map(|warning| (no, warning)));
            verdicts.targets.extend(target(agent, &tool, &call.arguments).map(|file| (no, file)));
        }
    }
    verdicts
}

/// Verdicts on a call that an outside worker proposes: what it says itself, and what the agent says that it works for, where
/// that is one of this server. The strictest wins.
#[must_use]
pub fn of_proposal(
    agent: Option<&Agent>,
    definition: &Definition,
    (run, now): (&Run, Timestamp),
    (call, asks): (&AskedCall, Effect),
) -> Verdicts {
    let calls = std::slice::from_ref(call);
    let mut verdicts = agent.map(|agent| of_reply(agent, definition, (run, now), calls)).unwrap_or_default();
    let rule = match asks {
        Effect::Hold | Effect::Deny => WORKER_ASKS,
        Effect::Allow => WORKER_TELLS,
    };
    let said = known_rule(rule).map(|rule| Verdict::new(asks, rule));
    let no = CallNo(run.state.calls_made + 1);
    verdicts.by_call.extend(said.map(|verdict| (no, verdict)));
    if let (Some(agent), Ok(tool)) = (agent, ToolName::new(&call.tool)) {
        let uncounted = counted_at_start(agent, &run.facts, &tool, &call.arguments);
        let judge = Judge { agent, definition, facts: &run.facts, now };
        let held = uncounted
            .into_iter()
            .filter_map(|(rule, why)| judge.tracked(verdict(Effect::Hold, rule, Some(why.to_owned()))?));
        verdicts.by_call.extend(held.map(|verdict| (no, verdict)));
    }
    verdicts
}

/// Verdicts on the call of a gate that is not there yet: what the policy says, and that somebody is to be asked where the
/// caller wants that.
#[must_use]
pub fn of_gate(
    agent: &Agent,
    definition: &Definition,
    (facts, now): (&Facts, Timestamp),
    (call, asks): (&AskedCall, Effect),
) -> Verdicts {
    let mut verdicts = Verdicts { policy: agent.rules.digest(), ..Verdicts::default() };
    let no = CallNo(1);
    if let Ok(tool) = ToolName::new(&call.tool) {
        let judge = Judge { agent, definition, facts, now };
        judge.judge(no, &tool, Some(&call.arguments), &mut verdicts);
    }
    let asked = (asks == Effect::Hold).then(|| verdict(Effect::Hold, WORKER_ASKS, None)).flatten();
    verdicts.by_call.extend(asked.map(|verdict| (no, verdict)));
    verdicts
}

/// The verdict on a question of a gate: nothing runs, and a person answers it.
#[must_use]
pub fn of_question(agent: &Agent) -> Verdicts {
    let asked = known_rule(ASKS_A_PERSON).map(|rule| (CallNo(1), Verdict::new(Effect::Allow, rule)));
    Verdicts { policy: agent.rules.digest(), by_call: asked.into_iter().collect(), ..Verdicts::default() }
}

/// Whether a rule forbids what a gate asks.
#[must_use]
pub fn denies(agent: &Agent, facts: &Facts, tool: &ToolName, call: &AskedCall) -> bool {
    by_a_rule(agent, facts, tool, &call.arguments) == Some(Effect::Deny)
}

/// What the rules of the policy say of a call; none where it would only fall back on its default.
#[must_use]
pub fn by_a_rule(agent: &Agent, facts: &Facts, tool: &ToolName, arguments: &str) -> Option<Effect> {
    match &agent.rules {
        Rules::Readable(policy) if policy.is_silent_about(tool) => None,
        Rules::Readable(policy) => {
            let decision = policy.decide(&call_of(facts, tool, Some(arguments)), agent.tool_default(tool));
            (!decision.is_by_default()).then_some(decision.effect)
        }
        Rules::Unreadable(_) => Some(Effect::Hold),
    }
}

/// What the start of a call would take from budgets or claim in the world: of each the rule that holds the call where it is
/// run without a word of when it starts, so that nobody could do it, and why.
#[must_use]
pub fn counted_at_start(
    agent: &Agent,
    facts: &Facts,
    tool: &ToolName,
    arguments: &str,
) -> Vec<(&'static str, &'static str)> {
    let (mut takes, mut claims) = (false, agent.effect_keys.contains_key(tool));
    if let Rules::Readable(policy) = &agent.rules
        && (policy.has_budgets() || policy.names_effects())
    {
        let decision = policy.decide(&call_of(facts, tool, Some(arguments)), agent.tool_default(tool));
        takes = !decision.budgets.is_empty();
        claims |= !decision.effect_keys.is_empty();
    }
    let budget = "a rule with a budget matches, and a call that a worker runs elsewhere cannot be counted";
    let effect = "its effect is to happen once, and a call that a worker runs elsewhere claims nothing";
    let taken = takes.then_some((NOT_COUNTED, budget));
    taken.into_iter().chain(claims.then_some((NOT_CLAIMED, effect))).collect()
}

/// The calls of a reply, numbered as they will be.
pub fn numbered<'a>(run: &Run, calls: &'a [AskedCall]) -> impl Iterator<Item = (CallNo, &'a AskedCall)> {
    (run.state.calls_made + 1..).map(CallNo).zip(calls)
}

/// The files that a call names, as they are now.
fn files(agent: &Agent, tool: &ToolName, arguments: &str) -> Vec<FileDigest> {
    agent.tools.get(tool).map(|tool| tool.files(arguments)).unwrap_or_default()
}

/// What people should know of a call.
fn warning(agent: &Agent, tool: &ToolName, arguments: &str) -> Option<String> {
    agent.tools.get(tool)?.warning(arguments)
}

/// The file that a call would change, as it is now.
fn target(agent: &Agent, tool: &ToolName, arguments: &str) -> Option<FileDigest> {
    agent.tools.get(tool)?.target(arguments)
}

/// Verdicts on the calls of the current turn, as of now, with the arguments that they would run with. Of an agent that
/// is no longer configured nobody judges anything.
#[must_use]
pub fn of_run(
    agent: Option<&Agent>,
    definition: &Definition,
    (run, now): (&Run, Timestamp),
    arguments: impl Fn(CallNo) -> Option<String>,
) -> Verdicts {
    let mut verdicts = Verdicts::default();
    if run.facts.driver == Driver::Outside && definition.tools.is_empty() {
        // Of its own tools a worker has said that somebody is to be asked; what they change is theirs to decide.
        let rule = known_rule(WORKER_ASKS);
        let asks = rule.map(|rule| Verdict::new(Effect::Hold, rule));
        verdicts.by_call.extend(run.state.calls.iter().filter_map(|call| Some((call.no, asks.clone()?))));
    }
    let Some(agent) = agent else { return verdicts };
    verdicts.policy = agent.rules.digest();
    let judge = Judge { agent, definition, facts: &run.facts, now };
    for call in &run.state.calls {
        let arguments = arguments(call.no);
        judge.judge(call.no, &call.tool, arguments.as_deref(), &mut verdicts);
        let is_approved = call.state == CallState::Ready && !call.satisfied.is_empty();
        if let Some(arguments) = arguments.filter(|_| is_approved || call.state == CallState::Held) {
            let files = files(agent, &call.tool, &arguments);
            verdicts.files.extend(files.into_iter().map(|file| (call.no, file)));
            let warning = warning(agent, &call.tool, &arguments);
            verdicts.warnings.extend(warning.map(|warning| (call.no, warning)));
            verdicts.targets.extend(target(agent, &call.tool, &arguments).map(|file| (call.no, file)));
        }
    }
    verdicts
}

/// Judges the calls of one run.
struct Judge<'a> {
    agent: &'a Agent,
    definition: &'a Definition,
    facts: &'a Facts,
    now: Timestamp,
}

impl Judge<'_> {
    /// What the rules say, and what the tool itself says of the arguments and of its definition as the run has it; the core lets
    /// the strictest win. A tool that the agent does not have any more is judged by nobody: the core holds or refuses it.
    fn judge(&self, no: CallNo, name: &ToolName, arguments: Option<&str>, verdicts: &mut Verdicts) {
        let Some(tool) = self.agent.tool(name) else {
            self.judge_brought(no, name, arguments, verdicts);
            return;
        };
        let decided = self.by_rules(name, arguments);
        let own = self.by_tool(tool.as_ref(), arguments, decided.lists);
        let shown = self.definition.tools.get(name);
        let by_schema = shown.zip(arguments).and_then(|(shown, arguments)| misfit(shown, arguments));
        let by_schema = by_schema.and_then(|why| verdict(Effect::Deny, ARGUMENTS_BREAK_SCHEMA, Some(why)));
        let changed = shown.and_then(|shown| tool.changed(shown, &self.facts.owner));
        let by_change =
            changed.and_then(|changed| verdict(Effect::Hold, &changed.rule, Some(changed.reason)));
        let all = decided.verdicts.into_iter().chain(own).chain(by_schema).chain(by_change);
        let all = all.map(|verdict| with_quorum(self.agent, name, verdict));
        let tracked = all.filter_map(|verdict| self.tracked(verdict));
        verdicts.by_call.extend(tracked.map(|verdict| (no, verdict)));
        verdicts.terms.extend(decided.terms.map(|terms| (no, terms)));
        verdicts.observed.extend(decided.observed.map(|observed| (no, observed)));
    }

    /// The same of a tool that a worker elsewhere brings: rules that are about it count as for any other. Where none is, the worker
    /// has said whether somebody is to be asked.
    fn judge_brought(&self, no: CallNo, name: &ToolName, arguments: Option<&str>, verdicts: &mut Verdicts) {
        if self.facts.driver != Driver::Outside {
            return;
        }
        let decided = self.by_rules(name, arguments);
        let by_default = [DEFAULT, REQUIRES_APPROVAL, NEEDS_NO_APPROVAL];
        let by_rules = |verdict: &Verdict| !by_default.contains(&verdict.rule.as_str());
        let tracked =
            decided.verdicts.into_iter().filter(by_rules).filter_map(|verdict| self.tracked(verdict));
        verdicts.by_call.extend(tracked.map(|verdict| (no, verdict)));
        verdicts.terms.extend(decided.terms.map(|terms| (no, terms)));
        verdicts.observed.extend(decided.observed.map(|observed| (no, observed)));
    }

    /// A verdict of an agent whose runs are tracked; without, nobody can be asked (C29).
    fn tracked(&self, verdict: Verdict) -> Option<Verdict> {
        match (verdict.effect, self.agent.tracking) {
            (Effect::Hold, CallTracking::Off) => not_tracked(),
            (Effect::Hold | Effect::Allow | Effect::Deny, CallTracking::On | CallTracking::Off) => {
                Some(verdict)
            }
        }
    }

    /// What the policy says. Where it says nothing of a tool, the arguments are not even read.
    fn by_rules(&self, name: &ToolName, arguments: Option<&str>) -> RuleVerdicts {
        let policy = match &self.agent.rules {
            Rules::Readable(policy) => policy,
            Rules::Unreadable(why) => {
                let why = format!("the policy cannot be read, so every call needs approval: {why}");
                let verdicts = verdict(Effect::Hold, UNREADABLE, Some(why)).into_iter().collect();
                return RuleVerdicts { verdicts, ..RuleVerdicts::default() };
            }
        };
        let default = self.agent.tool_default(name);
        if policy.is_silent_about(name) {
            let said = by_default(default.effect(Effect::Hold));
            return RuleVerdicts { verdicts: said.into_iter().collect(), ..RuleVerdicts::default() };
        }
        let call = call_of(self.facts, name, arguments);
        let decision = policy.decide(&call, default);
        let verdicts = if decision.is_by_default() {
            by_default(decision.effect).into_iter().collect()
        } else {
            decision.verdicts().into_iter().map(in_words).collect()
        };
        let observed = decision.observed.filter(|effect| *effect != decision.effect);
        RuleVerdicts {
            verdicts,
            lists: if decision.is_allowed_by_rule() { Listing::Listed } else { Listing::Unlisted },
            terms: (decision.effect == Effect::Hold && !decision.is_by_default())
                .then(|| decision.hold_terms(self.now)),
            observed: observed.map(|effect| ObservedVerdict { effect, rules: decision.observed_rules() }),
        }
    }

    /// What a tool says of arguments. What it asks about only because nobody has listed it, a rule that allows it has listed.
    fn by_tool(&self, tool: &dyn Tool, arguments: Option<&str>, listing: Listing) -> Option<Verdict> {
        let Some(arguments) = arguments else { return verdict(Effect::Hold, ARGUMENTS_UNREAD, None) };
        let judged = match (tool.judge(arguments), listing) {
            (Judgement::Ask(why), Listing::Listed) if why.rule == NOT_LISTED => tool.judge_listed(arguments),
            (judged, Listing::Listed | Listing::Unlisted) => judged,
        };
        match judged {
            Judgement::Allow => None,
            Judgement::Ask(why) => verdict(Effect::Hold, why.rule, Some(why.reason)),
            Judgement::Forbid(why) => verdict(Effect::Deny, why.rule, Some(why.reason)),
        }
    }
}

/// A call as rules see it.
pub(crate) fn call_of(run: &Facts, tool: &ToolName, arguments: Option<&str>) -> Call {
    let unread = || Arguments::Unreadable("there are none".into());
    Call {
        tool: tool.clone(),
        agent: run.agent.clone(),
        caller: Person::by_name(run.owner.clone()),
        session: Some(run.session.clone()),
        arguments: arguments.map_or_else(unread, Arguments::parse),
    }
}

/// What the policy says of a call.
#[derive(Default)]
struct RuleVerdicts {
    verdicts: Vec<Verdict>,
    lists: Listing,
    terms: Option<HoldTerms>,
    observed: Option<ObservedVerdict>,
}

/// Whether a rule allows a call, not only a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Listing {
    #[default]
    Unlisted,
    Listed,
}

fn verdict(effect: Effect, rule: &str, reason: Option<String>) -> Option<Verdict> {
    Some(Verdict { reason, ..Verdict::new(effect, known_rule(rule)?) })
}

/// Where no rule has a say.
fn by_default(effect: Effect) -> Option<Verdict> {
    match effect {
        Effect::Allow => verdict(effect, NEEDS_NO_APPROVAL, None),
        Effect::Hold => verdict(effect, REQUIRES_APPROVAL, None),
        Effect::Deny => {
            let why = "not executed: the policy denies what no rule allows".to_owned();
            verdict(effect, DEFAULT, Some(why))
        }
    }
}

/// A denial in words for the model.
fn in_words(verdict: Verdict) -> Verdict {
    match (verdict.effect, &verdict.reason) {
        (Effect::Deny, Some(because)) => {
            let reason = format!("not executed: the policy forbids this call ({}): {because}", verdict.rule);
            Verdict { reason: Some(reason), ..verdict }
        }
        (Effect::Deny | Effect::Allow | Effect::Hold, _) => verdict,
    }
}

/// C29: nobody can be asked.
fn not_tracked() -> Option<Verdict> {
    let denied = verdict(Effect::Deny, NO_TRACKING, Some(NOT_TRACKED.to_owned()))?;
    Some(Verdict { note: Some(DENYING.to_owned()), ..denied })
}

/// Where several people must agree before a call of a tool runs, its approval says so.
fn with_quorum(agent: &Agent, tool: &ToolName, verdict: Verdict) -> Verdict {
    let quorum = agent.quorum.get(tool).copied().filter(|_| verdict.rule.as_str() == REQUIRES_APPROVAL);
    match quorum {
        Some(quorum) => {
            let demand = Demand { quorum, ..Demand::of(verdict.rule.clone()) };
            Verdict { votes: quorum, demand: Some(demand), ..verdict }
        }
        None => verdict,
    }
}

/// How arguments break the schema of their tool, for the model to repair; none when they keep to it. What is not JSON is
/// refused by the core, and a schema that cannot be used is its tool's own business.
fn misfit(shown: &ToolSpec, arguments: &str) -> Option<String> {
    let arguments = RawJson::parse(arguments).ok()?;
    let broken = schema::misfit(&shown.schema, &arguments)?;
    let place = if broken.pointer.is_empty() { String::new() } else { format!(" at {}", broken.pointer) };
    let why: String = broken.why.chars().take(WHY_CHARS).collect();
    Some(format!("not executed: the arguments do not match the tool's schema{place}: {why}"))
}
