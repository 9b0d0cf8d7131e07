//! 10,000 rules against one call: how long a decision takes, by the kind of rules. Prints figures and asserts nothing.
//!
//! `cargo bench -p standfast-policy --bench rules`; with `--features cel` also expressions, which are bounded by number and not
//! by this goal. The worst rows are those in which every single rule must be looked at.

#![expect(clippy::unwrap_used, reason = "a bench stops where something is missing")]

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use standfast_core::approver::Person;
use standfast_core::name::{AgentName, SessionId, ToolName, UserId};
use standfast_policy::call::{Call, ToolDefault};
use standfast_policy::policy::{Policy, compile};
use standfast_policy::rule::PolicyFile;
use standfast_policy::value::Arguments;

const RULES: usize = 10_000;
const CALLS: usize = 300;

fn main() {
    println!("{RULES} rules, {CALLS} calls each; one decision takes");
    println!("{:<62} {:>10} {:>10} {:>12}", "rules", "median", "99 %", "to compile");
    let row = |name: &str, rule: fn(usize) -> Json, call: &Call| {
        let begun = now();
        let policy = policy(rule);
        let compiled = begun.elapsed();
        let (median, late) = measure(&policy, call);
        println!("{name:<62} {median:>10.1?} {late:>10.1?} {compiled:>12.1?}");
    };
    let refund = call("refund", r#"{"amount":50.25,"customer":"c77","currency":"EUR"}"#);
    row(
        "each for a tool of its own",
        |no| json!({ "hold": format!("tool{no}"), "where": { "amount": { "gt": no } } }),
        &call("tool77", r#"{"amount":78}"#),
    );
    row(
        "each for a prefix of its own",
        |no| json!({ "hold": format!("mcp__server{no}__*") }),
        &call("mcp__server77__x", "{}"),
    );
    row(
        "one tool, each for a customer of its own",
        |no| json!({ "hold": "refund", "where": { "customer": format!("c{no}") } }),
        &refund,
    );
    row(
        "one tool, each with a range of its own",
        |no| json!({ "deny": "refund", "where": { "amount": { "gt": 100 + no } } }),
        &refund,
    );
    row(
        "one tool, each with a range: all of them match",
        |no| json!({ "hold": "refund", "where": { "amount": { "le": 100 + no } } }),
        &refund,
    );
    row(
        "one tool, each with a range and two sets: none is sorted out",
        |no| json!({ "hold": "refund", "where": { "amount": { "le": 100 + no }, "currency": ["EUR", "GBP"], "customer": { "in": ["c1", "c2"] } } }),
        &refund,
    );
    row(
        "one tool, each with two ranges: half of them match",
        |no| json!({ "hold": "refund", "where": { "amount": { "le": 100 + no }, "weight": { "lt": no } } }),
        &call("refund", r#"{"amount":50.25,"weight":5000}"#),
    );
    row(
        "one tool, each with three ranges and a pattern: none matches",
        |no| json!({ "allow": "refund", "where": { "amount": { "ge": 0, "le": 100 + no }, "weight": { "ge": 0, "lt": 9_000 + no }, "rate": { "lt": 70 + no }, "note": { "glob": format!("*x{no}*") } } }),
        &call("refund", r#"{"amount":50.25,"weight":5000,"rate":3,"note":"for the customer of yesterday"}"#),
    );
    row(
        "one tool, each with a pattern of its own",
        |no| json!({ "deny": "write_file", "where": { "path": { "glob": format!("**/secret{no}/*.key") } } }),
        &call("write_file", r#"{"path":"home/ann/work/notes/today.txt"}"#),
    );
    row(
        "one tool, each but a set of its own",
        |no| json!({ "deny": "refund", "where": { "currency": { "not": { "in": ["EUR", format!("X{no}")] } } } }),
        &refund,
    );
    row(
        "one tool, each with one of two ranges",
        |no| json!({ "deny": "refund", "where": { "amount": { "any": [{ "lt": -100 - i64::try_from(no).unwrap() }, { "gt": 100 + no }] } } }),
        &refund,
    );
    row(
        "one tool, each with a range for the 20 items of a list",
        |no| json!({ "allow": "order", "where": { "/items/*/price": { "ge": 0, "le": 1_000 + no } } }),
        &call(
            "order",
            &json!({ "items": (0..20).map(|no| json!({ "price": 10 * no })).collect::<Vec<_>>() })
                .to_string(),
        ),
    );
    row(
        "every tool, each for a session of its own",
        |no| json!({ "hold": "*", "session": format!("s{no}-*") }),
        &refund,
    );
    row(
        "every tool, each for a caller of its own",
        |no| json!({ "hold": "*", "caller": [format!("user:u{no}")] }),
        &refund,
    );
    row(
        "each for tools that end in a word of its own",
        |no| json!({ "hold": format!("*__do{no}") }),
        &call("mcp__server77__x", "{}"),
    );
    row(
        "one tool, each with a reason: all of them match",
        |no| json!({ "hold": "refund", "where": { "amount": { "le": 100 + no } }, "because": format!("reason {no}") }),
        &refund,
    );
    row(
        "every tool, each for an agent of its own",
        |no| json!({ "hold": "*", "agent": format!("agent{no}") }),
        &refund,
    );
    row(
        "one tool, each with a subcommand of one program",
        |no| json!({ "hold": "Bash", "where": { "command": { "argv": ["git", format!("sub{no}")] } } }),
        &call("Bash", r#"{"command":"git log -3"}"#),
    );
    row(
        "every tool, each with a range and a set",
        |no| json!({ "deny": "*", "where": { "amount": { "gt": 100 + no }, "currency": ["USD", "GBP"] } }),
        &refund,
    );
    row(
        "one tool, each with a command",
        |no| json!({ "allow": "Bash", "where": { "command": { "argv": [format!("prog{no}"), ["a", "b"]] } } }),
        &call("Bash", r#"{"command":"git log -3"}"#),
    );
    #[cfg(feature = "cel")]
    row(
        "one tool, each with an expression",
        |no| json!({ "deny": "refund", "when": format!("args.amount > {}", 1000 + no) }),
        &refund,
    );
    row(
        "one tool, the argument is missing: all of them match",
        |no| json!({ "hold": "refund", "where": { "customer": format!("c{no}") } }),
        &call("refund", "{}"),
    );
}

fn policy(rule: fn(usize) -> Json) -> Policy {
    let rules: Vec<Json> = (0..RULES)
        .map(|no| {
            let mut rule = rule(no);
            rule["id"] = json!(format!("r{no}"));
            rule
        })
        .collect();
    let file: PolicyFile = serde_json::from_value(json!({ "rules": rules })).unwrap();
    compile(&file, &[]).policy.unwrap()
}

fn call(tool: &str, arguments: &str) -> Call {
    Call {
        tool: ToolName::new(tool).unwrap(),
        agent: AgentName::new("helper").unwrap(),
        caller: Person::of(UserId::new("olga").unwrap()),
        session: SessionId::new("today").ok(),
        arguments: Arguments::parse(arguments),
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

fn measure(policy: &Policy, call: &Call) -> (Duration, Duration) {
    let mut all: Vec<Duration> = (0..CALLS)
        .map(|_| {
            let begun = now();
            std::hint::black_box(policy.decide(std::hint::black_box(call), ToolDefault::ChangesWorld));
            begun.elapsed()
        })
        .collect();
    all.sort_unstable();
    (all[CALLS / 2], all[CALLS * 99 / 100])
}
