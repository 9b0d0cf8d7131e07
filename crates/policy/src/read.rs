//! A policy from a tree of JSON, with the place of every mistake.
//!
//! Serde stops at the first mistake and does not say where; so each key is read by itself. What is wrong is left out, so that
//! the rest can still be checked.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::problem::{Problem, RulePath, nearest};
use crate::rule::{PolicyFile, Rule};

/// The keys of the section.
const SECTION: &[&str] = &["default", "mode", "high_risk_tools", "rules", "grants", "business_hours"];

/// The keys of a rule.
pub const RULE_KEYS: &[&str] = &[
    "id",
    "allow",
    "hold",
    "deny",
    "agent",
    "caller",
    "session",
    "where",
    "when",
    "because",
    "risk",
    "reversible",
    "approvers",
    "quorum",
    "self_approval",
    "sign_in_max_age",
    "remind_after",
    "escalate_after",
    "escalate_to",
    "expire_after",
    "expiry_grace",
    "business_hours",
    "on_deny",
    "on_timeout",
    "grants",
    "effect_key",
    "budgets",
    "precondition",
    "match",
    "no_match",
];

/// Keys whose members are read one by one, so that a mistake in one has its own place.
const BY_MEMBER: &[&str] = &["where", "business_hours"];

/// Keys whose items are read one by one.
const BY_ITEM: &[&str] =
    &["approvers", "escalate_to", "caller", "budgets", "match", "no_match", "high_risk_tools"];

/// Reads the section `policy`.
#[must_use]
pub fn read(section: &Json) -> (PolicyFile, Vec<Problem>) {
    let mut problems = Vec::new();
    let place = RulePath::default().key("policy");
    let Json::Object(section) = section else {
        let help = "write keys below it, such as `rules:`";
        problems.push(Problem::error(place, "`policy` must be a mapping of keys to values", help));
        return (PolicyFile::default(), problems);
    };
    let mut rest = section.clone();
    let rules = rest.remove("rules");
    let fits = keys(&rest, (SECTION, &place), &mut problems, whole::<PolicyFile>);
    let mut file: PolicyFile = serde_json::from_value(Json::Object(fits)).unwrap_or_default();
    file.names_grants = section.contains_key("grants");
    if let Some(rules) = rules {
        file.rules = read_rules(&rules, &place.key("rules"), &mut problems);
    }
    (file, problems)
}

/// Reads a list of rules, of the file or of an agent or tool.
#[must_use]
pub fn read_rules(list: &Json, place: &RulePath, problems: &mut Vec<Problem>) -> Vec<Rule> {
    let Json::Array(items) = list else {
        let help = "write it as a list: `- {id: …, hold: TOOL}`";
        problems.push(Problem::error(place.clone(), format!("`{place}` must be a list"), help));
        return Vec::new();
    };
    let mut rules = Vec::new();
    for (no, item) in items.iter().enumerate() {
        let at = place.item(no);
        let Json::Object(rule) = item else {
            let help = "write keys, such as `{id: small, allow: refund}`";
            problems.push(Problem::error(at, "a rule must be a mapping of keys to values", help));
            continue;
        };
        let before = problems.len();
        let fits = keys(rule, (RULE_KEYS, &at), problems, whole::<Rule>);
        // A rule without one of its conditions would be another rule.
        if problems.len() > before {
            continue;
        }
        let conditions = rule.get("where").and_then(Json::as_object).map_or(0, Map::len);
        match serde_json::from_value::<Rule>(Json::Object(fits)) {
            Ok(read) if read.conditions.len() < conditions => {
                let help = "`name` and `/name` are the same; put both conditions into one";
                problems.push(Problem::error(at.key("where"), "two conditions are about one argument", help));
            }
            Ok(read) => rules.push(Rule { position: Some(no), ..read }),
            Err(error) => problems.push(wrong(at, &error.to_string())),
        }
    }
    rules
}

/// What of an object can be read, key by key.
fn keys(
    object: &Map<String, Json>,
    (known, place): (&[&str], &RulePath),
    problems: &mut Vec<Problem>,
    read: fn(&str, &Json) -> Option<String>,
) -> Map<String, Json> {
    let mut fits = Map::new();
    for (key, value) in object {
        let at = place.key(key);
        if !known.contains(&key.as_str()) {
            let help = nearest(key, known).map_or_else(
                || format!("the keys are {}", known.join(", ")),
                |meant| format!("did you mean `{meant}`?"),
            );
            problems.push(Problem::error(at, format!("unknown key `{key}` in `{place}`"), help));
            continue;
        }
        let before = problems.len();
        match value {
            Json::Object(members) if BY_MEMBER.contains(&key.as_str()) => {
                for (name, member) in members {
                    let alone = Json::Object(Map::from_iter([(name.clone(), member.clone())]));
                    problems.extend(read(key, &alone).map(|why| wrong(at.key(name), &why)));
                }
            }
            Json::Array(items) if BY_ITEM.contains(&key.as_str()) => {
                for (no, item) in items.iter().enumerate() {
                    let alone = Json::Array(vec![item.clone()]);
                    problems.extend(read(key, &alone).map(|why| wrong(at.item(no), &why)));
                }
            }
            Json::Object(_)
            | Json::Array(_)
            | Json::Null
            | Json::Bool(_)
            | Json::Number(_)
            | Json::String(_) => {
                problems.extend(read(key, value).map(|why| wrong(at, &why)));
            }
        }
        if problems.len() == before {
            fits.insert(key.clone(), value.clone());
        }
    }
    fits
}

/// What is wrong with a key that stands alone; every key of these types can.
fn whole<T: DeserializeOwned>(key: &str, value: &Json) -> Option<String> {
    let alone = Json::Object(Map::from_iter([(key.to_owned(), value.clone())]));
    serde_json::from_value::<T>(alone).err().map(|error| error.to_string())
}

/// Serde's words, with what they propose as the help.
fn wrong(place: RulePath, why: &str) -> Problem {
    let (what, help) = match why.split_once("; ") {
        Some((what, help)) => (what.to_owned(), help.to_owned()),
        None => match why.split_once(", expected ") {
            Some((what, expected)) => (what.to_owned(), format!("write {expected}")),
            None => (why.to_owned(), "see docs/policy.md for what may stand here".to_owned()),
        },
    };
    Problem::error(place, what, help)
}
