//! Why something is held: one sentence for the page of a hold, for mail and for chats.
//!
//! Read from the hold: the rules of this server that give no reason themselves, and the words of whoever asks. Nothing is guessed.

use standfast_core::event::Driver;
use standfast_core::hold::HoldKind;
use standfast_core::name::RuleId;
use standfast_engine::HoldView;
use standfast_engine::policy::{ARGUMENTS_UNREAD, REQUIRES_APPROVAL, WORKER_ASKS};

/// Why it is held: by which rules of this server where those say nothing themselves, and in the words of whoever asks.
pub(crate) fn why(view: &HoldView) -> Option<String> {
    let said = view.ask.reason.as_deref();
    let by_rules = match view.row.kind {
        HoldKind::Approval => by_rules(&view.rules, view.driver, said),
        HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery => Vec::new(),
    };
    let all: Vec<String> = by_rules.into_iter().chain(said.map(ended)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// With a period, where a text ends in a word.
fn ended(text: &str) -> String {
    let is_open = text.ends_with(|last: char| last.is_alphanumeric());
    if is_open { format!("{text}.") } else { text.to_owned() }
}

/// What the rules of this server say that give no reason of their own. A rule of a policy is named where nothing is said.
fn by_rules(rules: &[RuleId], driver: Driver, said: Option<&str>) -> Vec<String> {
    let mut texts = Vec::new();
    let mut named = Vec::new();
    for rule in rules {
        match own_words(rule, driver) {
            Some(words) => texts.push(words.to_owned()),
            None => named.push(format!("`{}`", rule.as_str().strip_prefix("rule:").unwrap_or(rule.as_str()))),
        }
    }
    if said.is_none() && texts.is_empty() {
        match named.as_slice() {
            [] => {}
            [rule] => texts.push(format!("The rule {rule} asks for approval.")),
            rules => texts.push(format!("The rules {} ask for approval.", rules.join(", "))),
        }
    }
    texts
}

/// A rule of this server in words; none of one that a policy has, or that gives its reason itself.
fn own_words(rule: &RuleId, driver: Driver) -> Option<&'static str> {
    let is = |known: &RuleId| rule == known;
    match rule.as_str() {
        // Of the tools that a gate is opened for, nothing is configured here.
        REQUIRES_APPROVAL if driver == Driver::Gate => Some("No rule allows this call, so a person decides."),
        REQUIRES_APPROVAL => Some("Its tool asks before every call."),
        WORKER_ASKS => Some("Whoever makes this call asks for approval first."),
        ARGUMENTS_UNREAD => Some("Its arguments could not be read, so no rule could judge them."),
        _ if is(&RuleId::no_verdict()) => Some("No rule decides about this call, so a person does."),
        _ if is(&RuleId::batch()) => {
            Some("Another call of the same reply needs approval, and its agent holds them together.")
        }
        _ if is(&RuleId::schema_changed()) => {
            Some("The schema of its tool has changed since it was approved.")
        }
        _ => None,
    }
}

/// Where the text about why it is held comes from.
pub(crate) fn label(view: &HoldView) -> &'static str {
    match view.row.kind {
        HoldKind::Approval if view.row.closed.is_some() => "Why it was held, by the rules of this server",
        HoldKind::Approval => "Why it is held, by the rules of this server",
        HoldKind::Input if view.is_asked_by_server => "The server says why",
        HoldKind::Input => "The agent says why",
        HoldKind::External | HoldKind::Auth => "The tool says why",
        HoldKind::Recovery if view.row.closed.is_some() => "Why it was held",
        HoldKind::Recovery => "Why it is held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rules: &[&str], said: Option<&str>) -> String {
        let rules: Vec<RuleId> = rules.iter().map(|rule| RuleId::new(rule).unwrap()).collect();
        by_rules(&rules, Driver::Loop, said).join(" ")
    }

    #[test]
    fn every_approval_says_why_it_is_held() {
        let by_tool = "Its tool asks before every call.";
        assert_eq!(told(&[REQUIRES_APPROVAL], None), by_tool);
        assert_eq!(told(&[REQUIRES_APPROVAL], Some("Warning: hidden characters")), by_tool);
        assert_eq!(
            told(&[WORKER_ASKS, REQUIRES_APPROVAL], None),
            format!("Whoever makes this call asks for approval first. {by_tool}")
        );
        assert_eq!(told(&["nights"], None), "The rule `nights` asks for approval.");
        assert_eq!(told(&["rule:nights"], None), "The rule `nights` asks for approval.");
        assert_eq!(told(&["nights", "money"], None), "The rules `nights`, `money` ask for approval.");
        assert_eq!(told(&["nights"], Some("It is late.")), "", "the rule has said it itself");
        assert_eq!(
            told(&["standfast:no-verdict"], None),
            "No rule decides about this call, so a person does."
        );
        assert_eq!(told(&[], None), "");
        assert_eq!([ended("It is late"), ended("Why?"), ended("")], ["It is late.", "Why?", ""]);
        let gate = by_rules(&[RuleId::new(REQUIRES_APPROVAL).unwrap()], Driver::Gate, None);
        assert_eq!(gate, ["No rule allows this call, so a person decides."]);
    }
}
