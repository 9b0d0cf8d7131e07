//! The reference of the rule language says what is true: every block of rules on the page is loaded, and every call below it
//! is decided as the page says.

use super::common::{call, compiled, read_yaml};
use serde_json::Value as Json;
use standfast_core::policy::Effect;
use standfast_core::time::Timestamp;
use standfast_policy::call::ToolDefault;
use standfast_policy::policy::Policy;
use standfast_policy::problem::Severity;

const PAGE: &str = include_str!("../../../../docs/policy.md");

/// The YAML blocks with the words behind their fence.
fn blocks() -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut current: Option<(String, String)> = None;
    for line in PAGE.lines() {
        match (&mut current, line.strip_prefix("```")) {
            (None, Some(info)) => current = Some((info.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(current.take().filter(|(info, _)| info.starts_with("yaml"))),
            (Some((_, text)), None) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

fn effect(word: &Json) -> Effect {
    serde_json::from_value(word.clone()).unwrap()
}

fn instant(text: &Json) -> Timestamp {
    Timestamp(text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn check(policy: &Policy, row: &Json) {
    let arguments = row["arguments"].to_string();
    let tool = match row["tool_says"].as_str() {
        None => ToolDefault::ChangesWorld,
        Some("read_only") => ToolDefault::ReadOnly,
        Some("needs_no_approval") => ToolDefault::NeedsNoApproval,
        Some(other) => panic!("{other}"),
    };
    let decision = policy.decide(&call(row["tool"].as_str().unwrap(), &arguments), tool);
    assert_eq!(decision.effect, effect(&row["effect"]), "{row}");
    if let Some(by) = row["by"].as_array() {
        let by: Vec<&str> = by.iter().filter_map(Json::as_str).collect();
        let decided: Vec<&str> =
            decision.decided_by.iter().map(|rule| rule.as_str().split_once(':').unwrap().1).collect();
        assert_eq!(decided, by, "{row}");
    }
    if !row["observed"].is_null() {
        assert_eq!(decision.observed, Some(effect(&row["observed"])), "{row}");
    }
    if !row["expires"].is_null() {
        let deadlines = decision.terms.deadlines(instant(&row["opened"]));
        assert_eq!(deadlines.expires_at, Some(instant(&row["expires"])), "{row}");
    }
    if let Some(key) = row["effect_key"].as_str() {
        assert_eq!(decision.effect_keys.iter().map(ToString::to_string).collect::<Vec<_>>(), [key], "{row}");
    }
}

/// S3-11 … S3-13, C7, C24, C32: what the page says of rules is what they do.
#[test]
fn the_page_says_what_is_true() {
    let (mut policy, mut rows) = (None, 0);
    for (info, text) in blocks() {
        let block = read_yaml(&text);
        if let Some(section) = block.get("policy") {
            let is_off = info.contains("cel") && !cfg!(feature = "cel");
            policy = if is_off {
                None
            } else {
                let compiled = compiled(&section.to_string());
                let errors: Vec<_> =
                    compiled.problems.iter().filter(|one| one.severity == Severity::Error).collect();
                assert!(errors.is_empty(), "{errors:#?}\n{text}");
                compiled.policy
            };
        }
        for row in block.get("calls").and_then(Json::as_array).into_iter().flatten() {
            if let Some(policy) = &policy {
                check(policy, row);
                rows += 1;
            }
        }
    }
    assert!(rows >= 25, "{rows} calls on the page");
}

/// Every key that a rule may have is on the page.
#[test]
fn the_page_names_every_key() {
    for key in standfast_policy::read::RULE_KEYS {
        assert!(PAGE.contains(&format!("`{key}`")), "{key}");
    }
}
