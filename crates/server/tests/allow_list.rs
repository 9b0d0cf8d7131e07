//! Which commands run without a person (T22, T23): corpora of commands that got past allow-lists elsewhere, and the
//! ordinary ones that must not be held up.
//!
//! Nothing is run here: what is asked is the tool's judgement, which the policy combines with the agent's settings.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::path::PathBuf;

use holdpoint::tool::command::{CommandOptions, CommandTool, rules};
use holdpoint::tool::sandbox::Confinement;
use holdpoint::tool::{Because, Judgement, Tool};
use serde_json::{Value, json};

const BYPASS: &str = include_str!("corpus/bypass.txt");
const AUTHORITY: &str = include_str!("corpus/authority.txt");

fn lines(corpus: &str) -> Vec<Value> {
    let lines = corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn with(options: CommandOptions) -> CommandTool {
    CommandTool::through(options, PathBuf::from("/no/shim")).unwrap()
}

/// A list of programs; what is not listed asks, so that a corpus is judged by its words and not only by the list. The
/// confinement is not what is tested here, and must not be what saves a case.
fn listing(allowed: &[&str]) -> CommandTool {
    with(CommandOptions {
        allowed_commands: Some(words(allowed)),
        deny_by_default: Some(false),
        confinement: Confinement::Off,
        ..CommandOptions::default()
    })
}

fn rule(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Allow => "allowed",
        Judgement::Ask(Because { rule, .. }) | Judgement::Forbid(Because { rule, .. }) => rule,
    }
}

/// T22: at least 150 ways past a list, none of which runs without a person, as one line or split into words.
#[test]
fn no_known_bypass_runs_without_a_person() {
    let allowed = ["ls", "pwd", "echo", "cat", "git", "npm", "find", "grep", "sort", "head", "wc", "date"];
    let tool = listing(&allowed);
    let corpus = lines(BYPASS);
    assert!(corpus.len() >= 150, "{}", corpus.len());
    for command in &corpus {
        let judged = tool.judge(&json!({ "command": command }).to_string());
        assert_ne!(judged, Judgement::Allow, "{command}");
    }
    println!("{} commands, none allowed", corpus.len());
}

/// The same words given one by one never make a shell: what is not harmless as it stands asks as well.
#[test]
fn the_whole_text_as_a_program_is_no_way_around() {
    let tool = listing(&["ls", "echo", "cat", "git"]);
    for command in lines(BYPASS) {
        let judged = tool.judge(&json!({ "argv": [command] }).to_string());
        assert_ne!(judged, Judgement::Allow, "{command}");
    }
}

/// T23: at least 60 argument lists that add authority to a listed program, none of which runs without a person, also
/// where the kernel confines it.
#[test]
fn arguments_that_add_authority_ask_a_person() {
    let corpus = lines(AUTHORITY);
    assert!(corpus.len() >= 60, "{}", corpus.len());
    for argv in &corpus {
        let program = argv[0].as_str().unwrap();
        let judged = listing(&[program]).judge(&json!({ "argv": argv }).to_string());
        let asked = [rules::ADDS_AUTHORITY, rules::RUNS_OTHERS];
        assert!(asked.contains(&rule(judged.clone())), "{argv}: {judged:?}");
        assert!(matches!(judged, Judgement::Ask(_)), "{argv}: {judged:?}");
    }
    println!("{} argument lists, none allowed", corpus.len());
}

/// A list that asks about everything would be ignored soon: the ordinary commands run.
#[test]
fn ordinary_commands_of_the_list_run_without_a_person() {
    let tool =
        listing(&["ls", "pwd", "git", "npm", "grep", "find", "cat", "tar", "sed", "sort", "date", "mytool"]);
    for command in [
        "ls",
        "ls -la",
        "ls -la src",
        "pwd",
        "git status",
        "git status --short",
        "git log --oneline -n 5",
        "git diff HEAD",
        "git show --stat HEAD",
        "git ls-files",
        "npm ls",
        "npm ls --depth=0",
        "npm --version",
        "grep -rn 'a|b' src",
        "grep -E \"foo(bar)?\" file.txt",
        "find . -name '*.rs' -type f",
        "cat file.txt",
        "tar -tf x.tar",
        "tar tf x.tar",
        "sed -n 1,20p file.txt",
        "sed s/a/b/g file.txt",
        "sort -n file.txt",
        "date +%F",
        "mytool status -v",
        "ls *.txt",
    ] {
        assert_eq!(tool.judge(&json!({ "command": command }).to_string()), Judgement::Allow, "{command}");
    }
}

#[test]
fn without_a_list_everything_asks() {
    let tool = with(CommandOptions { confinement: Confinement::Off, ..CommandOptions::default() });
    for command in ["ls", "pwd", "rm -rf x", "sh -c id"] {
        let judged = tool.judge(&json!({ "command": command }).to_string());
        assert_eq!(rule(judged.clone()), rules::NOT_LISTED, "{command}");
        assert!(matches!(judged, Judgement::Ask(_)), "{command}");
    }
}

#[test]
fn a_list_refuses_what_is_not_on_it_unless_it_says_otherwise() {
    let (allowed_commands, confinement) = (Some(words(&["ls"])), Confinement::Off);
    let closed = with(CommandOptions { allowed_commands, confinement, ..CommandOptions::default() });
    let Judgement::Forbid(why) = closed.judge(r#"{"command": "cat x"}"#) else { panic!("not forbidden") };
    assert_eq!(why.rule, rules::NOT_LISTED);
    assert_eq!(why.reason, "not executed: the program \"cat\" is not allowed here; allowed: ls");
    let open = listing(&["ls"]).judge(r#"{"command": "cat x"}"#);
    assert!(matches!(open, Judgement::Ask(Because { rule: rules::NOT_LISTED, .. })), "{open:?}");
}

/// Whoever agrees: under every path and spelling, by its first words, and inside of programs that run others.
#[test]
fn denied_commands_never_run() {
    let tool = with(CommandOptions {
        allowed_commands: Some(words(&["rm", "git", "env", "bash", "ls"])),
        denied_commands: words(&["rm", "git push"]),
        confinement: Confinement::Off,
        ..CommandOptions::default()
    });
    for denied in [
        "rm x",
        "/bin/rm x",
        "RM x",
        "./rm x",
        "git push origin",
        "env rm x",
        "env -i /bin/rm x",
        "bash -c 'rm x'",
        "bash -c 'ls;rm x'",
        "bash -c \"ls|/usr/bin/rm\"",
    ] {
        let judged = tool.judge(&json!({ "command": denied }).to_string());
        let Judgement::Forbid(why) = judged else { panic!("{denied}: {judged:?}") };
        assert_eq!(why.rule, rules::DENIED, "{denied}");
        assert!(why.reason.starts_with("not executed: \""), "{}", why.reason);
    }
    assert_eq!(tool.judge(r#"{"command": "git status"}"#), Judgement::Allow);
    let unreadable = with(CommandOptions {
        allowed_commands: Some(words(&["ls"])),
        denied_commands: words(&["rm 'x"]),
        confinement: Confinement::Off,
        ..CommandOptions::default()
    });
    assert_eq!(rule(unreadable.judge(r#"{"command": "ls"}"#)), rules::DENIED);
}

#[test]
fn an_entry_with_arguments_allows_exactly_these_or_what_begins_so() {
    let tool = listing(&["npm test", "git log"]);
    let judge = |command: &str| rule(tool.judge(&json!({ "command": command }).to_string()));
    assert_eq!(judge("npm test"), "allowed");
    assert_eq!(judge("npm test --script-shell=x"), rules::ADDS_AUTHORITY);
    assert_eq!(judge("npm run x"), rules::NOT_LISTED);
    assert_eq!(judge("git log --oneline"), "allowed");
    assert_eq!(judge("git log --output=x"), rules::ADDS_AUTHORITY);
    assert_eq!(judge("git status"), rules::NOT_LISTED);
}

/// Arguments that cannot be read are refused with a reason for the model, and are never allowed.
#[test]
fn what_cannot_be_read_is_refused() {
    let tool = listing(&["ls"]);
    for arguments in [
        "",
        "null",
        "[]",
        "{",
        r#"{"command": 1}"#,
        r#"{"argv": "ls"}"#,
        r#"{"argv": []}"#,
        r#"{"argv": [""]}"#,
        r#"{"command": "ls", "argv": ["ls"]}"#,
        r#"{"command": "ls", "command": "rm -rf /"}"#,
        r#"{"command": "ls", "cwd": "/"}"#,
        r#"{"argv": ["ls", "a\u0000b"]}"#,
    ] {
        let judged = tool.judge(arguments);
        assert!(
            matches!(judged, Judgement::Forbid(Because { rule: rules::UNREADABLE, .. })),
            "{arguments}: {judged:?}"
        );
    }
}

/// Without a sandbox nothing else keeps a program in its directory.
#[test]
fn without_a_sandbox_paths_that_lead_out_ask() {
    let tool = listing(&["ls", "cat", "grep"]);
    for command in
        ["cat /etc/passwd", "ls ..", "cat a/../../b", "grep --file=/etc/passwd x", "grep -f/etc/x y"]
    {
        assert_eq!(
            rule(tool.judge(&json!({ "command": command }).to_string())),
            rules::LEAVES_DIRECTORY,
            "{command}"
        );
    }
}
