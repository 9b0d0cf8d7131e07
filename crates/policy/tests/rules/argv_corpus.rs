//! Hundreds of commands against allow rules: none gets through, and none that hides a denied program gets past a deny.
//!
//! `argv_corpus.txt` is the data: one JSON string a line. Adding a case is adding a line.

use super::common::{call, policy};
use standfast_core::policy::Effect;
use standfast_policy::call::ToolDefault;

fn corpus() -> Vec<String> {
    let lines = include_str!("argv_corpus.txt").lines();
    lines.filter(|line| line.starts_with('"')).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn arguments(command: &str) -> String {
    serde_json::json!({ "command": command }).to_string()
}

/// C32, S3-13: an allow for three commands of git lets none of them through.
#[test]
fn no_command_of_the_corpus_gets_through_an_allow() {
    let commands = corpus();
    assert!(commands.len() >= 300, "{}", commands.len());
    let policy = policy(
        "{rules: [{id: git-read, allow: Bash, where: {command: {argv: [git, [status, log, diff]]}}, match: ['git log -3', 'git status', \"git log --format='%h %s'\"]}]}",
    );
    let through: Vec<&String> = commands
        .iter()
        .filter(|command| {
            policy.decide(&call("Bash", &arguments(command)), ToolDefault::ChangesWorld).effect
                == Effect::Allow
        })
        .collect();
    assert!(through.is_empty(), "{through:#?}");
}

/// The same with the words in a list: there no shell reads them, and still no wrapper gets through.
#[test]
fn no_wrapper_gets_through_as_a_list() {
    let policy = policy(
        "{rules: [{id: git-read, allow: Bash, where: {command: {argv: [git, [status, log, diff]]}}}]}",
    );
    for command in corpus() {
        let words: Vec<&str> = command.split(' ').collect();
        if words.first() == Some(&"git") {
            continue;
        }
        let arguments = serde_json::json!({ "command": words }).to_string();
        let effect = policy.decide(&call("Bash", &arguments), ToolDefault::ChangesWorld).effect;
        assert_eq!(effect, Effect::Hold, "{command:?}");
    }
}

/// Whatever stands around it, a denied program is found.
#[test]
fn a_denied_program_is_found_behind_every_wrapper() {
    let policy =
        policy("{default: allow, rules: [{id: no-git, deny: Bash, where: {command: {argv: [git]}}}]}");
    let lines = include_str!("argv_corpus.txt").lines();
    let wrapped = lines
        .skip_while(|line| !line.starts_with("# wrappers"))
        .skip(1)
        .take_while(|line| !line.starts_with('#'));
    for line in wrapped {
        let command: String = serde_json::from_str(line).unwrap();
        let effect = policy.decide(&call("Bash", &arguments(&command)), ToolDefault::ChangesWorld).effect;
        assert_eq!(effect, Effect::Deny, "{command:?}");
    }
}
