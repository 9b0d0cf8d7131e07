//! Whether a rule makes sense, before it is used: what it may not say, what can never happen, what people should know.
//!
//! Every mistake is found at once, each with its place and what to do. Examples are checked in `examples.rs`.

use standfast_core::hold::OnTimeout;
use standfast_core::name::RuleId;
use standfast_core::policy::Effect;
use standfast_core::time::Millis;

use crate::budget::Dimension;
use crate::matching::{CheckedRule, RuleScope};
use crate::problem::{Problem, RulePath, nearest};
use crate::rule::{PolicyFile, Rule};
use crate::when::Expression;
use standfast_core::approver::Approver;

/// What the names of rules begin with in the log, so that none can pretend to be one of the server's own.
pub(crate) const RULE_PREFIX: &str = "rule:";

/// Bytes that the name of a budget may have.
const MAX_NAME_BYTES: usize = 64;

/// The shortest time in which somebody can sign in and decide.
const SIGN_IN_MIN: Millis = Millis::seconds(10);

/// Checks one rule, and makes it ready if nothing is wrong.
pub(crate) fn check(
    file: &PolicyFile,
    rule: &Rule,
    (place, scope): (&RulePath, &RuleScope),
    problems: &mut Vec<Problem>,
) -> Option<CheckedRule> {
    let before = errors(problems);
    let id = id(rule, place, problems);
    let effect = effect(rule, place, problems);
    conditions(rule, place, problems);
    budgets(rule, place, problems);
    let mut expression = None;
    if let Some((effect, _)) = effect {
        if effect != Effect::Hold {
            only_on_holds(rule, effect, place, problems);
        }
        if effect == Effect::Allow {
            loosening(rule, place, problems);
        } else {
            expression = when(rule, place, problems);
        }
        hold(file, rule, place, problems);
    }
    let (id, (effect, tools)) = (id?, effect?);
    (errors(problems) == before).then(|| CheckedRule {
        id,
        effect,
        tools: tools.clone(),
        place: place.clone(),
        scope: scope.clone(),
        digest: rule.digest(),
        when: expression,
        rule: rule.clone(),
    })
}

fn errors(problems: &[Problem]) -> usize {
    problems.iter().filter(|problem| problem.severity == crate::problem::Severity::Error).count()
}

fn id(rule: &Rule, place: &RulePath, problems: &mut Vec<Problem>) -> Option<RuleId> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if rule.id.is_empty() {
        problems.push(Problem::error(
            place.clone(),
            "the rule has no `id`",
            "give it a short name of its own, such as `id: small-refunds`; the log and people know it by that",
        ));
    } else if !rule.id.chars().all(is_plain) || rule.id.len() > 100 {
        let plain: String = rule.id.chars().map(|c| if is_plain(c) { c } else { '-' }).take(100).collect();
        let what = format!("{:?} is not a rule id: it may have letters, digits, `.`, `_` and `-`", rule.id);
        problems.push(Problem::error(place.key("id"), what, format!("write `id: {plain}`")));
    } else {
        return RuleId::new(format!("{RULE_PREFIX}{}", rule.id)).ok();
    }
    None
}

fn effect<'a>(
    rule: &'a Rule,
    place: &RulePath,
    problems: &mut Vec<Problem>,
) -> Option<(Effect, &'a crate::matcher::Globs)> {
    let said = rule.effect();
    if said.is_none() {
        let given = [rule.allow.is_some(), rule.hold.is_some(), rule.deny.is_some()]
            .into_iter()
            .filter(|one| *one)
            .count();
        let what = if given == 0 { "the rule has no effect" } else { "the rule has more than one effect" };
        problems.push(Problem::error(
            place.clone(),
            what,
            "write one of `allow: TOOL`, `hold: TOOL`, `deny: TOOL`",
        ));
    } else if said.is_some_and(|(_, tools)| tools.0.is_empty()) {
        problems.push(Problem::error(
            place.clone(),
            "the rule is about no tool",
            "name a tool, or `*` for all of them",
        ));
    }
    said
}

fn conditions(rule: &Rule, place: &RulePath, problems: &mut Vec<Problem>) {
    for (path, matcher) in &rule.conditions {
        if let Some(why) = matcher.misfit() {
            let at = place.key("where").key(&path.to_string());
            problems.push(Problem::error(
                at,
                format!("the condition on `{path}` can never match: {why}"),
                "correct it, or remove it",
            ));
        }
    }
    let lists = [("agent", &rule.agent), ("session", &rule.session)];
    for (key, _) in lists.iter().filter(|(_, globs)| globs.as_ref().is_some_and(|globs| globs.0.is_empty())) {
        problems.push(Problem::error(
            place.key(key),
            format!("`{key}` names none"),
            "name one, or remove the key",
        ));
    }
    if let Some(callers) = &rule.caller {
        if callers.is_empty() {
            problems.push(Problem::error(
                place.key("caller"),
                "`caller` names nobody",
                "name somebody, or remove the key",
            ));
        }
        if let Some(no) = callers.iter().position(|one| *one == Approver::Owner) {
            let help = "write user:NAME, group:NAME or role:NAME, or remove the key";
            problems.push(Problem::error(
                place.key("caller").item(no),
                "every caller is the owner of their runs",
                help,
            ));
        }
    }
}

fn only_on_holds(rule: &Rule, effect: Effect, place: &RulePath, problems: &mut Vec<Problem>) {
    let given = [
        ("approvers", rule.approvers.is_some()),
        ("quorum", rule.quorum.is_some()),
        ("self_approval", rule.self_approval.is_some()),
        ("sign_in_max_age", rule.sign_in_max_age.is_some()),
        ("remind_after", rule.remind_after.is_some()),
        ("escalate_after", rule.escalate_after.is_some()),
        ("escalate_to", rule.escalate_to.is_some()),
        ("expire_after", rule.expire_after.is_some()),
        ("expiry_grace", rule.expiry_grace.is_some()),
        ("business_hours", rule.business_hours.is_some()),
        ("on_timeout", rule.on_timeout.is_some()),
        ("grants", rule.grants.is_some()),
        ("precondition", rule.precondition.is_some()),
        ("on_deny", rule.on_deny.is_some() && effect == Effect::Allow),
    ];
    for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        let what = format!("`{key}` is for rules that hold");
        problems.push(Problem::error(place.key(key), what, "remove it, or make the rule `hold: TOOL`"));
    }
}

/// What would open more than it says.
fn loosening(rule: &Rule, place: &RulePath, problems: &mut Vec<Problem>) {
    if rule.when.is_some() {
        problems.push(Problem::error(
            place.key("when"),
            "an allow rule may not have `when`: an expression can tighten, never loosen",
            "say it with `where`, or write a hold or deny rule with the contrary",
        ));
    }
    for (path, matcher) in &rule.conditions {
        if let Some(why) = matcher.commands().into_iter().find_map(crate::argv::Argv::opens_everything) {
            let at = place.key("where").key(&path.to_string());
            let help = "name the program that it should run; for wrappers and shells let a person decide";
            problems.push(Problem::error(
                at,
                format!("an allow rule may not begin with this program: {why}"),
                help,
            ));
        }
    }
    let is_wide = rule.allow.iter().flat_map(|tools| &tools.0).any(|glob| glob.prefix().is_empty());
    if is_wide
        && rule.conditions.is_empty()
        && rule.agent.is_none()
        && rule.caller.is_none()
        && rule.session.is_none()
    {
        problems.push(Problem::warning(
            place.clone(),
            "this rule allows every call that no hold or deny rule matches",
            "name the tools that it is for",
        ));
    }
}

fn when(rule: &Rule, place: &RulePath, problems: &mut Vec<Problem>) -> Option<Expression> {
    let text = rule.when.as_ref()?;
    match Expression::parse(text) {
        Ok(expression) => Some(expression),
        Err(why) => {
            let what = format!("the expression cannot be used: {why}");
            let help = "it is CEL over tool, agent, user, groups, roles, session and args, such as `args.amount > args.paid`";
            problems.push(Problem::error(place.key("when"), what, help));
            None
        }
    }
}

fn hold(file: &PolicyFile, rule: &Rule, place: &RulePath, problems: &mut Vec<Problem>) {
    if rule.hold.is_some()
        && file.default == Effect::Deny
        && !file.rules.iter().any(|other| other.allow.is_some())
    {
        problems.push(Problem::warning(
            place.clone(),
            "the default denies what this rule would hold, and no allow rule answers the default",
            "add an allow rule for the same calls: the strictest rule wins, so they are held",
        ));
    }
    if rule.quorum == Some(0) {
        problems.push(Problem::error(
            place.key("quorum"),
            "a quorum of 0 would approve without anybody",
            "write 1 or more",
        ));
    }
    if rule.sign_in_max_age.is_some_and(|span| span.0 < SIGN_IN_MIN) {
        problems.push(Problem::error(
            place.key("sign_in_max_age"),
            "nobody can sign in and decide that quickly",
            "write 10s or more; `0s` is a sign-in that is always too old",
        ));
    }
    if let Some(approvers) = &rule.approvers {
        let is_one = |one: &Approver| matches!(one, Approver::Owner | Approver::User(_));
        let people = approvers.len();
        let quorum = usize::try_from(rule.quorum.unwrap_or(1)).unwrap_or(usize::MAX);
        if approvers.is_empty() {
            let help = "name who may decide, or use `deny`";
            problems.push(Problem::warning(
                place.key("approvers"),
                "nobody may decide what this rule holds",
                help,
            ));
        } else if approvers.iter().all(is_one) && quorum > people {
            let what = format!("{quorum} must agree, and only {people} may");
            problems.push(Problem::error(
                place.key("quorum"),
                what,
                format!("write `quorum: {people}`, or name more approvers"),
            ));
        }
    }
    if rule.escalate_after.is_some() != rule.escalate_to.is_some() {
        let help = "give both `escalate_after` and `escalate_to`, or none";
        problems.push(Problem::error(place.clone(), "an escalation needs a time and people", help));
    }
    if let Some(expire) = rule.expire_after {
        if expire.0.0 <= 0 {
            problems.push(Problem::error(
                place.key("expire_after"),
                "a hold that expires at once asks nobody",
                "write a longer time",
            ));
        }
        for (key, span) in [("remind_after", rule.remind_after), ("escalate_after", rule.escalate_after)] {
            if span.is_some_and(|span| span >= expire) {
                let what = format!("`{key}` is not before the hold expires, so it never happens");
                problems.push(Problem::error(place.key(key), what, format!("write less than {expire}")));
            }
        }
    }
    if rule.expiry_grace.is_some() && rule.on_timeout != Some(OnTimeout::Keep) {
        let help = "add `on_timeout: keep`, or remove it";
        problems.push(Problem::error(place.key("expiry_grace"), "a grace is for holds that are kept", help));
    }
    if let Some(name) = &rule.business_hours
        && !file.business_hours.contains_key(name)
    {
        let known: Vec<&str> = file.business_hours.keys().map(String::as_str).collect();
        let help = nearest(name, &known).map_or_else(
            || format!("add `{name}:` below `policy.business_hours`"),
            |meant| format!("did you mean `{meant}`?"),
        );
        problems.push(Problem::error(
            place.key("business_hours"),
            format!("there are no business hours called `{name}`"),
            help,
        ));
    }
}

fn budgets(rule: &Rule, place: &RulePath, problems: &mut Vec<Problem>) {
    for (no, budget) in rule.budgets.iter().enumerate() {
        let at = place.key("budgets").item(no);
        if rule.budgets.iter().take(no).any(|other| other.name == budget.name) || budget.name.is_empty() {
            let help = "give each budget of a rule a name of its own";
            problems.push(Problem::error(
                at.key("name"),
                format!("{:?} is not a name of its own", budget.name),
                help,
            ));
        }
        let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "._-".contains(sign);
        if budget.name.len() > MAX_NAME_BYTES || !budget.name.chars().all(is_plain) {
            problems.push(Problem::error(
                at.key("name"),
                format!("{:?} is not a name: it is in the log, and counted by", budget.name),
                "write at most 64 letters, digits, `.`, `_` and `-`",
            ));
        }
        if budget.per.iter().any(|one| matches!(one, Dimension::Argument(path) if path.is_plural())) {
            problems.push(Problem::error(at.key("per"), "`*` leads to many values", "name one argument"));
        }
        if budget.limit.is_negative() {
            problems.push(Problem::error(
                at.key("limit"),
                "a limit below zero holds everything",
                "write 0 or more",
            ));
        }
        if budget.window.0.0 <= 0 {
            problems.push(Problem::error(
                at.key("window"),
                "a window needs a length",
                "write for example `window: 1d`",
            ));
        }
        if budget.over == Effect::Allow {
            problems.push(Problem::error(
                at.key("over"),
                "a budget that allows too much is none",
                "write hold or deny",
            ));
        }
        if budget.sum.as_ref().is_some_and(crate::value::ArgumentPath::is_plural) {
            problems.push(Problem::error(at.key("sum"), "`*` leads to many values", "name one argument"));
        }
    }
}
