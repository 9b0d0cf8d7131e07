//! What is true of every policy: nothing that tightens loosens, only allow rules loosen and only against the default, grants
//! cover no more than was shown. Votes are the core's (`crates/core/tests/votes.rs`).

use super::common::call;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use standfast_core::digest;
use standfast_core::hold::OnTimeout;
use standfast_core::name::{GrantId, RuleId, SessionId, UserId};
use standfast_core::policy::Effect;
use standfast_core::time::{Millis, Timestamp};
use standfast_policy::call::{Call, ToolDefault};
use standfast_policy::decision::{Decision, strictest, strictness};
use standfast_policy::diff::{LooseningKind, diff};
use standfast_policy::grant::{Freedom, Grant, GrantReach, GrantRequest, HeldCall, propose};
use standfast_policy::matching::RuleOutcome;
use standfast_policy::policy::{Policy, compile};
use standfast_policy::rule::PolicyFile;
use standfast_policy::value::{ArgumentPath, Arguments};
use standfast_policy::witness::Coverage;

fn tools() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("refund"), Just("pay"), Just("re*"), Just("*"), Just("*fund"), Just("r*nd")]
}

/// What a rule asks of the arguments. Boxed, as what follows: side by side they are more than a test's stack.
fn conditions() -> BoxedStrategy<Json> {
    let amount = prop_oneof![
        Just(None),
        (0_i64..6, 0_i64..6).prop_map(|(a, b)| Some(json!({ "ge": a.min(b), "le": a.max(b) }))),
        (0_i64..6).prop_map(|a| Some(json!({ "gt": a }))),
        (0_i64..6).prop_map(|a| Some(json!({ "not": { "lt": a } }))),
        (0_i64..6).prop_map(|a| Some(json!(a))),
    ];
    let currency = prop_oneof![
        Just(None),
        Just(Some(json!("EUR"))),
        Just(Some(json!(["EUR", "USD"]))),
        Just(Some(json!({ "glob": "E*" }))),
        Just(Some(json!({ "present": false }))),
    ];
    let command = prop_oneof![
        3 => Just(None),
        1 => Just(Some(json!({ "argv": ["git", ["log", "status"]] }))),
        1 => Just(Some(json!({ "not": { "argv": ["git", "push"] } }))),
    ];
    (amount, currency, command)
        .prop_map(|(amount, currency, command)| {
            asked([("amount", amount), ("currency", currency), ("command", command)])
        })
        .boxed()
}

fn asked<const N: usize>(all: [(&str, Option<Json>); N]) -> Json {
    all.into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The same with every kind of test, alone and together with others, and a path to several values.
fn wide_conditions() -> BoxedStrategy<Json> {
    let amount = prop_oneof![
        2 => Just(None),
        1 => (0_i64..6, 0_i64..6).prop_map(|(a, b)| Some(json!([a, b]))),
        1 => (0_i64..6, 0_i64..6).prop_map(|(a, b)| Some(json!({ "in": [a, 3, b], "ge": 1 }))),
        1 => (0_i64..6).prop_map(|a| Some(json!({ "eq": a }))),
        1 => (0_i64..6).prop_map(|a| Some(json!({ "present": true, "gt": a, "not": { "eq": 4 } }))),
        1 => (0_i64..6).prop_map(|a| Some(json!({ "any": [{ "lt": a }, { "eq": 5 }] }))),
        1 => (0_i64..6).prop_map(|a| Some(json!({ "ge": a, "lt": 7 }))),
        1 => Just(Some(json!([3, "3"]))),
    ];
    let currency = prop_oneof![
        2 => Just(None),
        1 => Just(Some(json!({ "in": ["EUR", "GBP"], "glob": ["*R", "?B*"] }))),
        1 => Just(Some(json!({ "not": { "in": ["USD"] } }))),
        1 => Just(Some(json!({ "glob": "**/*D" }))),
        1 => Just(Some(json!({ "glob": "*EUR*" }))),
        1 => Just(Some(json!({ "glob": ["**/EUR/*", "US*USD"] }))),
        1 => Just(Some(json!({ "not": { "glob": "*USD" }, "glob": "**EUR**" }))),
        1 => Just(Some(json!({ "glob": ["**", "E?"] }))),
        1 => Just(Some(json!({ "eq": "USD", "present": true }))),
        1 => Just(Some(json!(["EUR", "CHF"]))),
        1 => Just(Some(json!(7))),
        1 => Just(Some(json!(true))),
        1 => Just(Some(json!([true, "EUR", 7]))),
        1 => Just(Some(json!({ "not": { "glob": "E*" } }))),
        1 => Just(Some(json!({ "any": [{ "not": { "any": ["EUR", true] } }, { "present": true, "glob": "?S*" }] }))),
        1 => Just(Some(json!({ "not": { "not": { "in": ["EUR", "USD"] } } }))),
    ];
    let command = prop_oneof![
        3 => Just(None),
        1 => Just(Some(json!({ "argv": [["git", "hg"], "push"] }))),
        1 => Just(Some(json!({ "argv": ["git", ["log", "status"]] }))),
        1 => Just(Some(json!({ "argv_exact": ["git", "status"] }))),
        1 => Just(Some(json!({ "any": [{ "argv": ["git", "push"] }, "x"] }))),
    ];
    let price = prop_oneof![
        6 => Just(None),
        1 => Just(Some(json!({ "ge": 1 }))),
        1 => Just(Some(json!([2, 3]))),
        1 => Just(Some(json!({ "not": { "lt": 2 } }))),
        1 => Just(Some(json!({ "any": [{ "present": false }, { "ge": 2, "le": 3 }] }))),
        1 => Just(Some(json!({ "glob": "x*" }))),
        1 => Just(Some(json!({ "present": true }))),
    ];
    (amount, currency, command, price)
        .prop_map(|(amount, currency, command, price)| {
            asked([
                ("amount", amount),
                ("currency", currency),
                ("command", command),
                ("/items/*/price", price),
            ])
        })
        .boxed()
}

/// A rule with these, for some agents, callers or sessions.
fn wide_rule(effect: &'static str) -> BoxedStrategy<Json> {
    let names = prop_oneof![
        6 => Just(json!({})),
        1 => Just(json!({ "agent": "h*" })),
        1 => Just(json!({ "agent": "other" })),
        1 => Just(json!({ "agent": ["*per", "other"] })),
        1 => Just(json!({ "session": "s*" })),
        1 => Just(json!({ "session": ["*day", "to*"] })),
        1 => Just(json!({ "session": "to?ay", "agent": "h?lper" })),
        1 => Just(json!({ "caller": ["user:ann", "group:ops"] })),
        1 => Just(json!({ "caller": ["user:ann", "user:olga"], "session": "other" })),
        1 => Just(json!({ "caller": ["user:olga"] })),
        1 => Just(json!({ "caller": ["user:ann"] })),
    ];
    (rule(effect), wide_conditions(), any::<bool>(), names)
        .prop_map(|(mut rule, conditions, is_wide, names)| {
            if is_wide {
                rule["where"] = conditions;
            }
            for (key, value) in names.as_object().into_iter().flatten() {
                rule[key] = value.clone();
            }
            rule
        })
        .boxed()
}

fn any_wide_rule() -> BoxedStrategy<Json> {
    prop_oneof![wide_rule("allow"), wide_rule("hold"), wide_rule("deny")].boxed()
}

fn rule(effect: &'static str) -> BoxedStrategy<Json> {
    let hold = (
        proptest::option::of(prop_oneof![
            Just(json!(["group:ops"])),
            Just(json!(["owner", "user:ann"])),
            Just(json!(["role:cfo"]))
        ]),
        proptest::option::of(1_u32..3),
        proptest::option::of(1_u64..100),
        proptest::option::of(prop_oneof![
            Just("fail"),
            Just("deny"),
            Just("resume_with_error"),
            Just("cancel")
        ]),
    );
    (tools(), conditions(), proptest::bool::weighted(0.2), hold)
        .prop_map(move |(tool, conditions, only, (approvers, quorum, expire, on_timeout))| {
            let mut rule = json!({ effect: tool, "where": conditions });
            if only {
                rule["agent"] = json!("helper");
            }
            if effect == "hold" {
                let keys = [
                    ("quorum", quorum.filter(|_| approvers.is_some()).map(|quorum| json!(quorum))),
                    ("approvers", approvers),
                    ("expire_after", expire.map(|hours| json!(format!("{hours}h")))),
                    ("on_timeout", on_timeout.map(|word| json!(word))),
                ];
                keys.into_iter().for_each(|(key, value)| {
                    if let Some(value) = value {
                        rule[key] = value;
                    }
                });
            }
            rule
        })
        .boxed()
}

fn any_rule() -> BoxedStrategy<Json> {
    prop_oneof![rule("allow"), rule("hold"), rule("deny")].boxed()
}

fn policy(default: &str, rules: &[Json]) -> Policy {
    let rules: Vec<Json> = rules
        .iter()
        .enumerate()
        .map(|(no, rule)| {
            let mut rule = rule.clone();
            rule["id"] = json!(format!("r{no}"));
            rule
        })
        .collect();
    let file: PolicyFile = serde_json::from_value(json!({ "default": default, "rules": rules })).unwrap();
    let compiled = compile(&file, &[]);
    compiled.policy.unwrap_or_else(|| panic!("{:#?}", compiled.problems))
}

fn any_call() -> impl Strategy<Value = Call> {
    let tool = prop_oneof![Just("refund"), Just("pay"), Just("other"), Just("ShellCommand")];
    let amount = prop_oneof![
        Just(None),
        Just(Some("\"3\"".to_owned())),
        Just(Some("null".to_owned())),
        (-2_i64..14).prop_map(|half| Some(format!("{}{}", half / 2, if half % 2 == 0 { "" } else { ".5" }))),
        Just(Some("5.00000000000000000001".to_owned())),
    ];
    let currency = prop_oneof![
        Just(None),
        Just(Some("\"EUR\"")),
        Just(Some("\"USD\"")),
        Just(Some("\"../E\"")),
        Just(Some("\"../EUR/x\"")),
        Just(Some("\"home/EUR/x\"")),
        Just(Some("\"US and USD\"")),
        Just(Some("7")),
        Just(Some("true")),
        Just(Some("false")),
        Just(Some("null"))
    ];
    let command = prop_oneof![
        Just(None),
        Just(Some("\"git log -3\"")),
        Just(Some("\"git push\"")),
        Just(Some("\"git log; git push\"")),
        Just(Some("\"sudo git log\"")),
        Just(Some("[\"git\",\"status\"]")),
        Just(Some("\"$x push\"")),
    ];
    let items = prop_oneof![
        3 => Just(None),
        1 => Just(Some("[]")),
        1 => Just(Some("[{\"price\":2},{\"price\":3}]")),
        1 => Just(Some("[{\"price\":0},{}]")),
        1 => Just(Some("[{\"price\":2},{\"price\":2.5},{\"price\":\"xy\"}]")),
        1 => Just(Some("[{\"price\":2.25},{\"price\":2.75}]")),
    ];
    let odd = (proptest::bool::weighted(0.05), proptest::bool::weighted(0.7));
    (tool, amount, currency, command, items, odd).prop_map(
        |(tool, amount, currency, command, items, (broken, has_session))| {
            let members = [
                amount.map(|value| format!("\"amount\":{value}")),
                currency.map(|value| format!("\"currency\":{value}")),
                command.map(|value| format!("\"command\":{value}")),
                items.map(|value| format!("\"items\":{value}")),
            ];
            let members: Vec<String> = members.into_iter().flatten().collect();
            let text = format!("{{{}{}", members.join(","), if broken { "" } else { "}" });
            let session = has_session.then(|| SessionId::new("today").unwrap());
            Call { session, ..call(tool, &text) }
        },
    )
}

fn tool_default() -> impl Strategy<Value = ToolDefault> {
    prop_oneof![
        Just(ToolDefault::RequiresApproval),
        Just(ToolDefault::NeedsNoApproval),
        Just(ToolDefault::ReadOnly),
        Just(ToolDefault::ChangesWorld),
    ]
}

fn default() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("hold"), Just("allow"), Just("deny")]
}

fn has_rule_of(decision: &Decision, effect: Effect) -> bool {
    decision.matched.iter().any(|rule| rule.effect == effect)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// C32: no added hold or deny rule makes any call looser, whatever it says; and what other hold rules ask for stays.
    #[test]
    fn no_hold_or_deny_rule_loosens(
        rules in proptest::collection::vec(any_wide_rule(), 0..5),
        added in prop_oneof![wide_rule("hold"), wide_rule("deny")],
        call in any_call(), tool in tool_default(), default in default(),
    ) {
        let before = policy(default, &rules).decide(&call, tool);
        let after = policy(default, &[rules, vec![added]].concat()).decide(&call, tool);
        prop_assert!(after.effect >= before.effect);
        if before.effect == Effect::Hold && after.effect == Effect::Hold && has_rule_of(&before, Effect::Hold) {
            for requirement in &before.requirements {
                prop_assert!(after.requirements.contains(requirement));
            }
            let opened = Timestamp(0);
            let (was, is) = (before.terms.deadlines(opened).expires_at, after.terms.deadlines(opened).expires_at);
            prop_assert!(was.is_none_or(|was| is.is_some_and(|is| is <= was)));
            let (was, is) = (before.terms.on_timeout.map(strictness), after.terms.on_timeout.map(strictness));
            prop_assert!(is >= was);
        }
    }

    /// Allow rules loosen against the default and nothing else.
    #[test]
    fn allow_rules_loosen_only_the_default(
        rules in proptest::collection::vec(any_wide_rule(), 0..5), added in wide_rule("allow"),
        call in any_call(), tool in tool_default(), default in default(),
    ) {
        let before = policy(default, &rules).decide(&call, tool);
        let after = policy(default, &[rules, vec![added]].concat()).decide(&call, tool);
        if has_rule_of(&before, Effect::Hold) || has_rule_of(&before, Effect::Deny) {
            let strictest = before.matched.iter().map(|rule| rule.effect).max().unwrap();
            prop_assert!(after.effect == before.effect || after.effect == strictest);
            prop_assert!(after.effect >= strictest, "no hold or deny rule is undone");
        } else if after.effect != before.effect {
            prop_assert!(before.matched.is_empty() && after.effect == Effect::Allow);
        }
    }

    /// The index leaves out no rule that matches, what is prepared of conditions says what they say, and an explanation says
    /// what a decision does.
    #[test]
    fn the_index_changes_nothing(rules in proptest::collection::vec(any_wide_rule(), 0..8), call in any_call(), tool in tool_default()) {
        let explained = policy("hold", &rules).explain(&call, tool);
        let matched: Vec<(RuleId, Effect)> = explained.rules.iter().filter_map(|rule| match rule.outcome {
            RuleOutcome::Match(effect) => Some((rule.rule.clone(), effect)),
            RuleOutcome::NoMatch => None,
        }).collect();
        let ours = explained.decision.matched.iter().filter(|rule| rule.rule.as_str().starts_with("rule:"));
        prop_assert_eq!(ours.map(|rule| (rule.rule.clone(), rule.effect)).collect::<Vec<_>>(), matched);
        for rule in explained.rules.iter().filter(|rule| rule.outcome == RuleOutcome::NoMatch) {
            prop_assert!(rule.obstacle().is_some());
        }
    }

    /// A grant covers no call that its approver did not see covered.
    #[test]
    fn grants_are_never_wider_than_shown(shown in any_call(), other in any_call(), frees_amount in any::<bool>(), frees_command in 0_usize..3, frees_currency in any::<bool>()) {
        let policy = policy("hold", &[]);
        let path = |name: &str| ArgumentPath::parse(name).unwrap();
        let mut like = Vec::new();
        like.extend(frees_amount.then(|| Freedom::UpTo(path("amount"))));
        like.extend((frees_command > 0).then(|| Freedom::Command(path("command"), frees_command)));
        like.extend(frees_currency.then(|| Freedom::AnyText(path("currency"))));
        let request = GrantRequest { uses: Some(3), like, reach: GrantReach::Owner, until: None };
        let decision = policy.decide(&shown, ToolDefault::ChangesWorld);
        let schema = digest::of_bytes(b"schema");
        let Ok(proposal) = propose(HeldCall { policy: &policy, call: &shown, decision: &decision, schema, also: &[] }, &request, Timestamp(0)) else { return Ok(()) };
        let digest = proposal.digest();
        let grant = proposal.accept(GrantId::new("g").unwrap(), digest, vec![UserId::new("ann").unwrap()], Timestamp(0)).unwrap();
        let of = |call: &Call| {
            let decision = policy.decide(call, ToolDefault::ChangesWorld);
            grant.covers(HeldCall { policy: &policy, call, decision: &decision, schema, also: &[] }, 0, Timestamp(1))
        };
        prop_assert_eq!(of(&shown), Ok(()));
        if of(&other).is_ok() {
            prop_assert_eq!(&other.tool, &shown.tool);
            let leaves = |call: &Call| call.arguments.value().unwrap().leaves().into_iter().map(|(path, value)| (path.to_string(), value.to_string())).collect::<Vec<_>>();
            let (was, is) = (leaves(&shown), leaves(&other));
            prop_assert_eq!(was.len(), is.len());
            for ((path, was), (same, is)) in was.into_iter().zip(is) {
                prop_assert_eq!(&path, &same);
                let may_differ = (frees_amount && path == "amount") || (frees_command > 0 && path == "command") || (frees_currency && path == "currency");
                prop_assert!(may_differ || was == is, "{} {} {}", path, was, is);
                if path == "amount" && was != is {
                    let number = |text: &str| text.parse::<f64>().unwrap();
                    prop_assert!(number(&is) >= 0.0 && number(&is) <= number(&was));
                }
                if path == "command" && was != is {
                    let words = |text: &str| text.trim_matches('"').split(' ').take(frees_command).map(str::to_owned).collect::<Vec<_>>();
                    prop_assert_eq!(words(&was), words(&is));
                    prop_assert!(!is.contains(';') && !is.contains("sudo"));
                }
            }
        }
    }

    /// C7: of several ways to let time decide the strictest counts, in whatever order they stand.
    #[test]
    fn the_strictest_timeout_counts(all in proptest::collection::vec(prop_oneof![
        Just(OnTimeout::Keep), Just(OnTimeout::ResumeWithError), Just(OnTimeout::Deny), Just(OnTimeout::Cancel), Just(OnTimeout::Fail),
    ], 1..6)) {
        let found = strictest(all.clone()).unwrap();
        prop_assert!(all.contains(&found));
        prop_assert!(all.iter().all(|one| strictness(*one) <= strictness(found)));
    }
}

proptest! {
    // Each case tries thousands of calls.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What `diff` does not find at any corner is not there: no call of another kind became looser.
    #[test]
    fn a_complete_diff_misses_nothing(
        old in proptest::collection::vec(any_rule(), 0..4), new in proptest::collection::vec(any_rule(), 0..4),
        calls in proptest::collection::vec(any_call(), 1..20),
    ) {
        let (old, new) = (policy("hold", &old), policy("hold", &new));
        let found = diff(&old, &new, &[], &|_| ToolDefault::ChangesWorld);
        prop_assume!(found.coverage == Coverage::Complete);
        for call in calls.iter().filter(|call| call.arguments.value().is_some()) {
            let (was, is) = (old.decide(call, ToolDefault::ChangesWorld).effect, new.decide(call, ToolDefault::ChangesWorld).effect);
            if is < was {
                let is_found = found.looser.iter().any(|class| class.loosening == LooseningKind::Effect { from: was, to: is });
                prop_assert!(is_found, "{call:?} {was:?} {is:?}");
            }
        }
    }
}

/// Grants die with what they were made for, and with their bounds.
#[test]
fn grants_end() {
    use standfast_policy::grant::{GrantRefusal, NotCovered};
    let hold = json!({ "hold": "refund", "where": { "amount": { "gt": 1 } } });
    let policy_now = policy("hold", std::slice::from_ref(&hold));
    let shown = call("refund", r#"{"amount":5,"currency":"EUR"}"#);
    let decision = policy_now.decide(&shown, ToolDefault::ChangesWorld);
    let schema = digest::of_bytes(b"1");
    let week = Millis::hours(24 * 7);
    let ask = |uses, until| GrantRequest { uses, until, ..GrantRequest::default() };
    let proposed = |request: &GrantRequest| {
        propose(
            HeldCall { policy: &policy_now, call: &shown, decision: &decision, schema, also: &[] },
            request,
            Timestamp(0),
        )
    };
    assert_eq!(proposed(&ask(Some(101), None)), Err(GrantRefusal::TooManyUses { most: 100 }));
    let latest = Timestamp(0).plus(week);
    assert_eq!(proposed(&ask(None, Some(latest.plus(Millis(1))))), Err(GrantRefusal::BadEnd { latest }));
    let proposal = proposed(&ask(Some(2), None)).unwrap();
    assert_eq!(proposal.until, latest, "seven days unless the file says otherwise");
    assert_eq!(
        proposal.describe(),
        [
            "calls of refund by agent helper in runs of olga",
            "amount = 5",
            "currency = \"EUR\"",
            "no other arguments",
            &format!("covers only what these rules ask, as they are now: {}", decision.decided_by[0]),
            "at most 2 further calls"
        ]
    );
    let by = vec![UserId::new("ann").unwrap()];
    let stale =
        proposal.clone().accept(GrantId::new("g").unwrap(), digest::of_bytes(b"x"), by.clone(), Timestamp(0));
    assert_eq!(stale, Err(GrantRefusal::NotAsShown));
    let digest_shown = proposal.digest();
    let grant: Grant = proposal.accept(GrantId::new("g").unwrap(), digest_shown, by, Timestamp(0)).unwrap();
    let stored = serde_json::to_string(&grant).unwrap();
    assert_eq!(serde_json::from_str::<Grant>(&stored).unwrap(), grant);
    let covers = |policy: &Policy, call: &Call, schema, used, now| {
        let decision = policy.decide(call, ToolDefault::ChangesWorld);
        grant.covers(HeldCall { policy, call, decision: &decision, schema, also: &[] }, used, Timestamp(now))
    };
    assert_eq!(covers(&policy_now, &shown, schema, 1, 1), Ok(()));
    assert_eq!(covers(&policy_now, &shown, schema, 2, 1), Err(NotCovered::UsedUp));
    assert_eq!(covers(&policy_now, &shown, schema, 0, latest.0), Err(NotCovered::Expired));
    assert_eq!(covers(&policy_now, &shown, digest::of_bytes(b"2"), 0, 1), Err(NotCovered::SchemaChanged));
    let more = call("refund", r#"{"amount":5,"currency":"EUR","to":"x"}"#);
    assert_eq!(covers(&policy_now, &more, schema, 0, 1), Err(NotCovered::Arguments));
    let listed = Call { arguments: Arguments::parse(r#"{"amount":5,"currency":["EUR"]}"#), ..shown.clone() };
    assert_eq!(covers(&policy_now, &listed, schema, 0, 1), Err(NotCovered::Arguments));
    let changed = policy("hold", &[json!({ "hold": "refund", "where": { "amount": { "gt": 2 } } })]);
    assert_eq!(covers(&changed, &shown, schema, 0, 1), Err(NotCovered::RuleChanged));
    let added = policy("hold", &[hold.clone(), json!({ "hold": "refund", "approvers": ["group:cfo"] })]);
    assert_eq!(
        covers(&added, &shown, schema, 0, 1),
        Err(NotCovered::RuleChanged),
        "a grant does not answer a rule it did not know"
    );
    let denied = policy("hold", &[hold, json!({ "deny": "refund" })]);
    assert_eq!(covers(&denied, &shown, schema, 0, 1), Err(NotCovered::NotForGrants));
}

/// Nothing stands for destructive calls unless the file says so.
#[test]
fn no_grant_for_what_cannot_be_undone() {
    use standfast_policy::grant::GrantRefusal;
    let schema = digest::of_bytes(b"1");
    let try_with = |section: Json, tool: &str| {
        let file: PolicyFile = serde_json::from_value(section).unwrap();
        let policy = compile(&file, &[]).policy.unwrap();
        let shown = call(tool, "{}");
        let decision = policy.decide(&shown, ToolDefault::ChangesWorld);
        propose(
            HeldCall { policy: &policy, call: &shown, decision: &decision, schema, also: &[] },
            &GrantRequest::default(),
            Timestamp(0),
        )
        .map(|_| ())
    };
    let drop = |key: &str, value: Json| json!({ "rules": [{ "id": "d", "hold": "drop", key: value }] });
    assert_eq!(try_with(drop("risk", json!("destructive")), "drop"), Err(GrantRefusal::NotAllowed));
    assert_eq!(try_with(drop("reversible", json!(false)), "drop"), Err(GrantRefusal::NotAllowed));
    assert_eq!(try_with(drop("grants", json!("never")), "drop"), Err(GrantRefusal::NotAllowed));
    assert_eq!(try_with(drop("risk", json!("high")), "drop"), Ok(()));
    assert_eq!(try_with(json!({}), "ShellCommand"), Err(GrantRefusal::NotAllowed));
    let mut allowed = drop("risk", json!("destructive"));
    allowed["grants"] = json!({ "destructive": "allow" });
    assert_eq!(try_with(allowed, "drop"), Ok(()));
}
