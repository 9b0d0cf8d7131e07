//! What bad input gets: every mistake with its place, what is wrong and what to do. And examples, checked at load.
//!
//! Each row is a section as people write it.

use super::common::{call, compiled, policy};
use standfast_core::policy::Effect;
use standfast_policy::call::ToolDefault;
use standfast_policy::problem::Severity;

fn refused(yaml: &str, place: &str, what: &str, help: &str) {
    let compiled = compiled(yaml);
    assert!(compiled.policy.is_none(), "{yaml} is taken");
    let found = compiled.problems.iter().find(|problem| problem.place.to_string() == place);
    let found = found.unwrap_or_else(|| panic!("{yaml}: nothing at {place}: {:#?}", compiled.problems));
    assert!(found.what.contains(what), "{yaml}: {found}");
    assert!(found.help.contains(help), "{yaml}: {found}");
}

#[test]
fn each_mistake_has_its_place_and_a_proposal() {
    for (yaml, place, what, help) in [
        ("{ruls: []}", "policy.ruls", "unknown key `ruls`", "did you mean `rules`?"),
        ("{default: ask}", "policy.default", "unknown variant `ask`", "write"),
        ("{rules: {id: a}}", "policy.rules", "must be a list", "list"),
        ("{rules: [refund]}", "policy.rules[0]", "must be a mapping", "write keys"),
        ("{rules: [{hold: x}]}", "policy.rules[0]", "no `id`", "give it a short name"),
        ("{rules: [{id: 'a b', hold: x}]}", "policy.rules[0].id", "is not a rule id", "`id: a-b`"),
        ("{rules: [{id: a}]}", "policy.rules[0]", "no effect", "`hold: TOOL`"),
        ("{rules: [{id: a, hold: x, deny: y}]}", "policy.rules[0]", "more than one effect", "write one of"),
        (
            "{rules: [{id: a, hold: x}, {id: a, deny: y}]}",
            "policy.rules[1].id",
            "two rules are called `a`",
            "an id of its own",
        ),
        (
            "{rules: [{id: a, hold: x, aprovers: []}]}",
            "policy.rules[0].aprovers",
            "unknown key",
            "did you mean `approvers`?",
        ),
        (
            "{rules: [{id: a, hold: x, approvers: ['group:ops', 'users:bob']}]}",
            "policy.rules[0].approvers[1]",
            "names nobody",
            "did you mean `user:bob`?",
        ),
        (
            "{rules: [{id: a, hold: x, approvers: [bob]}]}",
            "policy.rules[0].approvers[0]",
            "names nobody",
            "user:NAME",
        ),
        (
            "{rules: [{id: a, hold: x, approvers: ['user:a'], quorum: 2}]}",
            "policy.rules[0].quorum",
            "2 must agree, and only 1 may",
            "quorum: 1",
        ),
        ("{rules: [{id: a, hold: x, quorum: 0}]}", "policy.rules[0].quorum", "without anybody", "1 or more"),
        (
            "{rules: [{id: a, allow: x, quorum: 2}]}",
            "policy.rules[0].quorum",
            "for rules that hold",
            "remove it",
        ),
        ("{rules: [{id: a, allow: x, when: 'true'}]}", "policy.rules[0].when", "never loosen", "`where`"),
        (
            "{rules: [{id: a, allow: x, where: {command: {argv: [sudo, ls]}}}]}",
            "policy.rules[0].where.command",
            "`sudo` runs whatever",
            "let a person decide",
        ),
        (
            "{rules: [{id: a, allow: x, where: {command: {argv: [python3]}}}]}",
            "policy.rules[0].where.command",
            "any program text",
            "name the program",
        ),
        (
            "{rules: [{id: a, hold: x, where: {amount: {gte: 1}}}]}",
            "policy.rules[0].where.amount",
            "unknown field `gte`",
            "write",
        ),
        (
            "{rules: [{id: a, hold: x, where: {amount: {ge: 5, le: 1}}}]}",
            "policy.rules[0].where.amount",
            "no number is in this range",
            "correct it",
        ),
        (
            "{rules: [{id: a, hold: x, where: {amount: {ge: five}}}]}",
            "policy.rules[0].where.amount",
            "is not a decimal number",
            "",
        ),
        (
            "{rules: [{id: a, hold: x, where: {/a~: 1}}]}",
            "policy.rules[0].where./a~",
            "not a JSON Pointer",
            "",
        ),
        (
            "{rules: [{id: a, hold: x, expire_after: soon}]}",
            "policy.rules[0].expire_after",
            "is not a duration",
            "10m",
        ),
        (
            "{rules: [{id: a, hold: x, expire_after: 1h, remind_after: 2h}]}",
            "policy.rules[0].remind_after",
            "never happens",
            "less than 1h",
        ),
        (
            "{rules: [{id: a, hold: x, escalate_after: 1h}]}",
            "policy.rules[0]",
            "needs a time and people",
            "`escalate_to`",
        ),
        (
            "{rules: [{id: a, hold: x, expiry_grace: 1h}]}",
            "policy.rules[0].expiry_grace",
            "kept",
            "on_timeout: keep",
        ),
        (
            "{business_hours: {berlin: {time_zone: Europe/Berlin, days: {mon: ['09:00-17:00']}}}, rules: [{id: a, hold: x, business_hours: berlni}]}",
            "policy.rules[0].business_hours",
            "no business hours called `berlni`",
            "did you mean `berlin`?",
        ),
        (
            "{business_hours: {x: {time_zone: Berlin, days: {}}}}",
            "policy.business_hours.x",
            "is not a time zone",
            "Europe/Berlin",
        ),
        (
            "{business_hours: {x: {time_zone: UTC, days: {}}}}",
            "policy.business_hours.x",
            "no working hour",
            "shifts",
        ),
        (
            "{rules: [{id: a, allow: x, effect_key: fixed}]}",
            "policy.rules[0].effect_key",
            "names no argument",
            "",
        ),
        (
            "{rules: [{id: a, allow: x, budgets: [{name: b, limit: -1, window: 1d}]}]}",
            "policy.rules[0].budgets[0].limit",
            "below zero",
            "0 or more",
        ),
        (
            "{rules: [{id: a, allow: x, budgets: [{name: 'b c', limit: 1, window: 1d}]}]}",
            "policy.rules[0].budgets[0].name",
            "is not a name",
            "letters, digits",
        ),
        (
            "{rules: [{id: a, allow: x, budgets: [{name: b, limit: 1, window: 1d, per: [/a/*]}]}]}",
            "policy.rules[0].budgets[0].per",
            "many values",
            "one argument",
        ),
        (
            "{rules: [{id: a, allow: x, budgets: [{name: b, limit: 1, window: 1d, over: allow}]}]}",
            "policy.rules[0].budgets[0].over",
            "is none",
            "hold or deny",
        ),
        (
            "{rules: [{id: a, hold: x, caller: [owner]}]}",
            "policy.rules[0].caller[0]",
            "every caller",
            "user:NAME",
        ),
        (
            "{rules: [{id: a, allow: refund, where: {amount: {le: 100}}, match: [{amount: 200}]}]}",
            "policy.rules[0].match[0]",
            "does not match its example",
            "amount is 200, not ≤ 100",
        ),
        (
            "{rules: [{id: a, allow: Bash, where: {command: {argv: [git, log]}}, no_match: ['git log -3']}]}",
            "policy.rules[0].no_match[0]",
            "matches",
            "narrower",
        ),
        (
            "{rules: [{id: a, allow: x, where: {a: 1, b: 2}, match: ['text']}]}",
            "policy.rules[0].match[0]",
            "only condition",
            "",
        ),
        (
            "{rules: [{id: a, allow: x, where: {env: dev, /env: test}}]}",
            "policy.rules[0].where",
            "about one argument",
            "the same",
        ),
        ("{grants: {max_uses: 0}}", "policy.grants", "no grant possible", "never"),
        ("{grants: {max_duration: forever}}", "policy.grants", "is not a duration", "7d"),
        ("{high_risk_tools: ['']}", "policy.high_risk_tools[0]", "is not the name of a tool", "remove it"),
    ] {
        refused(yaml, place, what, help);
    }
}

#[test]
fn what_is_odd_and_not_wrong_is_a_warning() {
    for (yaml, what) in [
        ("{rules: [{id: a, hold: x, approvers: []}]}", "nobody may decide"),
        ("{default: allow}", "run without a person"),
        ("{rules: [{id: a, allow: '*'}]}", "allows every call"),
        ("{default: deny, rules: [{id: a, hold: x}]}", "the default denies what this rule would hold"),
    ] {
        let compiled = compiled(yaml);
        assert!(compiled.policy.is_some(), "{yaml}");
        assert!(
            compiled.problems.iter().any(|one| one.severity == Severity::Warning && one.what.contains(what)),
            "{yaml}"
        );
    }
}

/// C32: a missing or wrong-typed argument: allow does not match, hold and deny do.
#[test]
fn what_is_missing_never_loosens() {
    let decide = |section: &str, arguments: &str| {
        policy(section).decide(&call("refund", arguments), ToolDefault::ChangesWorld).effect
    };
    let allow = "{rules: [{id: a, allow: refund, where: {amount: {le: 100}}}]}";
    let hold = "{default: allow, rules: [{id: a, hold: refund, where: {amount: {gt: 100}}}]}";
    let deny = "{default: allow, rules: [{id: a, deny: refund, where: {amount: {gt: 100}}}]}";
    for arguments in ["{}", r#"{"amount":"50"}"#, r#"{"amount":null}"#, r#"{"amount":[50]}"#, "{", ""] {
        assert_eq!(decide(allow, arguments), Effect::Hold, "{arguments}");
        assert_eq!(decide(hold, arguments), Effect::Hold, "{arguments}");
        assert_eq!(decide(deny, arguments), Effect::Deny, "{arguments}");
    }
    assert_eq!(decide(allow, r#"{"amount":100.00}"#), Effect::Allow);
    assert_eq!(decide(hold, r#"{"amount":100}"#), Effect::Allow);
    assert_eq!(
        decide("{rules: [{id: a, allow: refund}]}", "{"),
        Effect::Hold,
        "arguments that cannot be read are not allowed"
    );
}

/// S1-7, C32: `high_risk_tools` is a hold rule; `requires_approval` is a default that an allow rule answers.
#[test]
fn defaults_and_high_risk_tools() {
    let policy_of = policy("{rules: [{id: a, allow: [ShellCommand, mail]}]}");
    let decide = |tool: &str, default| policy_of.decide(&call(tool, "{}"), default).effect;
    assert_eq!(decide("ShellCommand", ToolDefault::NeedsNoApproval), Effect::Hold);
    assert_eq!(decide("mail", ToolDefault::RequiresApproval), Effect::Allow);
    assert_eq!(decide("other", ToolDefault::RequiresApproval), Effect::Hold);
    assert_eq!(decide("other", ToolDefault::NeedsNoApproval), Effect::Allow);
    assert_eq!(decide("other", ToolDefault::ReadOnly), Effect::Allow);
    assert_eq!(decide("other", ToolDefault::ChangesWorld), Effect::Hold);
}

/// In observe mode rules change nothing, and say what they would have done.
#[test]
fn observing_changes_nothing() {
    let observed = policy(
        "{mode: observe, rules: [{id: a, hold: read, because: look}, {id: b, allow: mail}, {id: c, deny: drop}]}",
    );
    let decide = |tool: &str, default| {
        let decision = observed.decide(&call(tool, "{}"), default);
        (decision.effect, decision.observed.unwrap(), decision.matched.len())
    };
    assert_eq!(decide("read", ToolDefault::ReadOnly), (Effect::Allow, Effect::Hold, 1));
    assert_eq!(decide("mail", ToolDefault::RequiresApproval), (Effect::Hold, Effect::Allow, 1));
    assert_eq!(decide("drop", ToolDefault::NeedsNoApproval), (Effect::Allow, Effect::Deny, 1));
    assert_eq!(decide("ShellCommand", ToolDefault::NeedsNoApproval), (Effect::Hold, Effect::Hold, 1));
}

/// An expression tightens, and its error holds; without the feature it is refused.
#[test]
fn expressions_only_tighten() {
    let section = "{default: allow, rules: [{id: a, deny: refund, when: 'args.amount > args.paid'}]}";
    #[cfg(not(feature = "cel"))]
    refused(section, "policy.rules[0].when", "no support for `when`", "CEL");
    #[cfg(feature = "cel")]
    {
        let policy_of = policy(section);
        let decide =
            |arguments: &str| policy_of.decide(&call("refund", arguments), ToolDefault::ChangesWorld).effect;
        assert_eq!(decide(r#"{"amount":5,"paid":4}"#), Effect::Deny);
        assert_eq!(decide(r#"{"amount":4,"paid":4.5}"#), Effect::Allow);
        assert_eq!(decide(r#"{"amount":4}"#), Effect::Hold, "an error holds");
        assert_eq!(
            decide(r#"{"amount":0.12345678901234567890,"paid":1}"#),
            Effect::Hold,
            "a number that would be rounded holds"
        );
        let long: Vec<usize> = (0..2_000).collect();
        assert_eq!(
            decide(&serde_json::json!({ "amount": 1, "paid": 2, "x": long }).to_string()),
            Effect::Hold,
            "too large holds"
        );
        let all = policy(
            "{default: allow, rules: [{id: a, hold: mail, when: \"args.to.exists(t, !t.endsWith('@example.com')) || 'intern' in groups\"}]}",
        );
        let mail = |arguments: &str| all.decide(&call("mail", arguments), ToolDefault::ChangesWorld).effect;
        assert_eq!(mail(r#"{"to":["a@example.com","b@evil.example"]}"#), Effect::Hold);
        assert_eq!(mail(r#"{"to":["a@example.com"]}"#), Effect::Allow);
        for (when, what) in [
            ("args.amount >", "cannot be used"),
            ("arg.amount > 1", "`arg` is not known"),
            ("args.a.all(x, args.b.exists(y, x == y))", "stands inside another one"),
        ] {
            let section =
                serde_json::json!({ "rules": [{ "id": "a", "hold": "x", "when": when }] }).to_string();
            refused(&section, "policy.rules[0].when", what, "CEL");
        }
    }
}

/// Several hold rules: each one's people, the shortest times, the strictest ends; keys, budgets and risk of all of them.
#[test]
fn several_rules_add_up() {
    let policy_of = policy(
        "{rules: [
        {id: money, hold: refund, approvers: ['group:finance'], quorum: 2, expire_after: 24h, on_timeout: deny, risk: high, effect_key: 'refund:{payment}'},
        {id: prod, hold: '*', where: {env: prod}, approvers: ['group:ops'], expire_after: 8h, remind_after: 1h, on_timeout: fail, on_deny: cancel, reversible: false},
        {id: small, allow: refund, budgets: [{name: daily, sum: amount, limit: 1000, window: 1d}]}]}",
    );
    let decision = policy_of
        .decide(&call("refund", r#"{"env":"prod","payment":"p1","amount":5}"#), ToolDefault::ChangesWorld);
    assert_eq!(decision.effect, Effect::Hold);
    let asked: Vec<(String, u32)> =
        decision.requirements.iter().map(|one| (one.rule.to_string(), one.quorum)).collect();
    assert_eq!(asked, [("rule:money".to_owned(), 2), ("rule:prod".to_owned(), 1)]);
    let deadlines = decision.terms.deadlines(standfast_core::time::Timestamp(0));
    assert_eq!(deadlines.expires_at.unwrap().0, 8 * 3_600_000);
    assert_eq!(deadlines.remind_at.unwrap().0, 3_600_000);
    assert_eq!(decision.terms.on_timeout, Some(standfast_core::hold::OnTimeout::Fail));
    assert_eq!(decision.terms.on_deny, Some(standfast_core::hold::OnDeny::Cancel));
    assert_eq!((decision.risk, decision.reversible), (Some(standfast_core::hold::Risk::High), Some(false)));
    assert_eq!(decision.effect_keys[0].as_str(), "refund:p1");
    let claims: Vec<(&str, &str, String)> = decision
        .budgets
        .iter()
        .map(|one| (one.rule.as_str(), one.claim.account.as_str(), one.claim.amount.to_string()))
        .collect();
    assert_eq!(claims, [("rule:small", r#"["rule:small","daily"]"#, "5".to_owned())]);
    let verdicts = decision.verdicts();
    assert_eq!(verdicts.iter().map(|one| (one.rule.to_string(), one.votes)).collect::<Vec<_>>(), asked);
    let no_key = policy_of.decide(&call("refund", r#"{"env":"dev","amount":5}"#), ToolDefault::ChangesWorld);
    assert!(no_key.no_effect_key.is_some() && no_key.effect == Effect::Hold);
    let unclear = policy_of.decide(&call("refund", r#"{"payment":"p1"}"#), ToolDefault::ChangesWorld);
    assert!(unclear.no_budget_claim.unwrap().contains("argument amount is missing"));
    assert!(unclear.decided_by.iter().any(|rule| rule.as_str() == "policy:no_budget_claim"));
}

/// `diff` finds what became looser with an example, `explain` says why, a back-test counts by rule.
#[test]
fn diff_explain_and_back_test() {
    use standfast_policy::backtest::{RecordedCall, RecordedOutcome, backtest};
    use standfast_policy::diff::{LooseningKind, PolicyChange, diff};
    let old = policy(
        "{rules: [{id: small, allow: refund, where: {amount: {ge: 0, le: 100}}}, {id: big, deny: refund, where: {amount: {gt: 5000}}}]}",
    );
    let new = policy("{rules: [{id: small, allow: refund, where: {amount: {ge: 0, le: 100.01}}}]}");
    let found = diff(&old, &new, &[], &|_| ToolDefault::ChangesWorld);
    assert_eq!(found.changes.len(), 2);
    assert!(
        matches!(&found.changes[0], PolicyChange::Changed(rule, keys) if rule.as_str() == "rule:small" && keys == &["where"])
    );
    let effects: Vec<LooseningKind> = found.looser.iter().map(|class| class.loosening).collect();
    assert!(
        effects.contains(&LooseningKind::Effect { from: Effect::Hold, to: Effect::Allow }),
        "a cent more: {effects:?}"
    );
    assert!(effects.contains(&LooseningKind::Effect { from: Effect::Deny, to: Effect::Hold }), "{effects:?}");
    assert!(diff(&old, &old, &[], &|_| ToolDefault::ChangesWorld).looser.is_empty());
    let fewer = diff(
        &policy("{rules: [{id: a, hold: x, approvers: ['group:ops'], quorum: 2}]}"),
        &policy("{rules: [{id: a, hold: x, approvers: ['group:ops'], quorum: 1}]}"),
        &[],
        &|_| ToolDefault::ChangesWorld,
    );
    assert_eq!(
        fewer.looser.iter().map(|class| class.loosening).collect::<Vec<_>>(),
        [LooseningKind::Approval]
    );
    let budget = |more: &str| {
        policy(&format!("{{rules: [{{id: a, allow: refund, budgets: [{{name: b, sum: amount, {more}}}]}}]}}"))
    };
    let day = budget("limit: 100, window: 1d, per: [owner]");
    let looser = |new: &str| {
        let found = diff(&day, &budget(new), &[], &|_| ToolDefault::ChangesWorld).looser;
        found.iter().map(|class| class.loosening).collect::<Vec<_>>()
    };
    assert_eq!(looser("limit: 100, window: 2d"), []);
    for new in [
        "limit: 101, window: 1d, per: [owner]",
        "limit: 100, window: 23h",
        "limit: 9, window: 1d, per: [owner, tool]",
    ] {
        assert_eq!(looser(new), [LooseningKind::Budget], "{new}");
    }

    let explained = old.explain(&call("refund", r#"{"amount":150}"#), ToolDefault::ChangesWorld).to_string();
    assert!(explained.contains("hold: decided by policy:default"), "{explained}");
    assert!(
        explained.contains("rule:small (allow) did not match\n  amount: wants ≥ 0 and ≤ 100, found 150: no"),
        "{explained}"
    );
    let missing = old.explain(&call("refund", "{}"), ToolDefault::ChangesWorld).to_string();
    assert!(missing.contains("amount: wants > 5000, found nothing: unknown"), "{missing}");

    let recorded = |id: &str, amount: &str, outcome| RecordedCall {
        id: id.to_owned(),
        call: call("refund", &format!("{{\"amount\":{amount}}}")),
        tool: ToolDefault::ChangesWorld,
        outcome,
    };
    let calls = [
        recorded("a", "10", RecordedOutcome::Approved),
        recorded("b", "20", RecordedOutcome::Denied),
        recorded("c", "150", RecordedOutcome::Approved),
        recorded("d", "6000", RecordedOutcome::Approved),
    ];
    let summary = backtest(&old, &calls);
    assert_eq!(
        summary.by_effect.iter().map(|(effect, count)| (*effect, count.calls)).collect::<Vec<_>>(),
        [(Effect::Allow, 2), (Effect::Hold, 1), (Effect::Deny, 1)]
    );
    assert_eq!(
        (summary.denied_and_allowed.examples, summary.approved_and_denied.examples),
        (vec!["b".to_owned()], vec!["d".to_owned()])
    );
    let rule = |id: &str| {
        summary
            .by_rule
            .iter()
            .find(|(rule, _)| rule.as_str() == id)
            .map(|(_, count)| (count.matched.calls, count.decided.calls))
    };
    assert_eq!(
        (rule("rule:small"), rule("rule:big"), rule("policy:default")),
        (Some((2, 2)), Some((1, 1)), Some((0, 1)))
    );
    assert!(summary.unused.is_empty());
}

/// A policy is shared by everything that runs.
#[test]
fn a_policy_can_be_shared() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<standfast_policy::policy::Policy>();
}

/// A rule that cannot be read does not shift the places of those behind it.
#[test]
fn places_count_rules_that_are_left_out() {
    let problems = compiled("{rules: [{id: a, alow: x}, {id: b, allow: x, approvers: [owner]}]}").problems;
    let places: Vec<String> = problems.iter().map(|problem| problem.place.to_string()).collect();
    assert!(places.iter().any(|place| place == "policy.rules[0].alow"), "{places:?}");
    assert!(places.iter().any(|place| place.starts_with("policy.rules[1]")), "{places:?}");
}
