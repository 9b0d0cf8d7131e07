//! Which commands run without a person (T22, T23): corpora of commands that got past allow-lists elsewhere, and the
//! ordinary ones that must not be held up.
//!
//! Nothing is run here: what is asked is the tool's judgement, which the policy combines with the agent's settings.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::path::PathBuf;

use serde_json::{Value, json};
use standfast_engine::tool::{HoldReason, Judgement, Tool};
use standfast_tools::command::{CommandOptions, CommandTool, authority, rules};
use standfast_tools::sandbox::Confinement;

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
        // Where no repository is: what is in one is judged by itself.
        working_directory: Some(std::env::temp_dir()),
        ..CommandOptions::default()
    })
}

fn rule(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Allow => "allowed",
        Judgement::Ask(HoldReason { rule, .. }) | Judgement::Forbid(HoldReason { rule, .. }) => rule,
    }
}

/// T22: at least 150 ways past a list, none of which runs without a person, as one line or split into words.
#[test]
fn t22_no_known_bypass_runs_without_a_person() {
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
        let asked =
            [rules::ADDS_AUTHORITY, rules::RUNS_OTHERS, rules::UNKNOWN_PROGRAM, rules::LEAVES_DIRECTORY];
        assert!(asked.contains(&rule(judged.clone())), "{argv}: {judged:?}");
        assert!(matches!(judged, Judgement::Ask(_)), "{argv}: {judged:?}");
    }
    println!("{} argument lists, none allowed", corpus.len());
}

/// A list that asks about everything would be ignored soon: the ordinary commands run.
#[test]
fn ordinary_commands_of_the_list_run_without_a_person() {
    let tool = listing(&[
        "ls",
        "pwd",
        "git",
        "npm",
        "grep",
        "find",
        "cat",
        "tar",
        "sed",
        "sort",
        "date",
        "mytool status",
    ]);
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
        "mytool status",
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
    assert!(matches!(open, Judgement::Ask(HoldReason { rule: rules::NOT_LISTED, .. })), "{open:?}");
}

/// Whoever agrees: under every path and spelling, by its first words, and inside of programs that run others.
#[test]
fn denied_commands_never_run() {
    let tool = with(CommandOptions {
        allowed_commands: Some(words(&["rm", "git", "env", "bash", "ls"])),
        denied_commands: words(&["rm", "git push"]),
        confinement: Confinement::Off,
        working_directory: Some(std::env::temp_dir()),
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
            matches!(judged, Judgement::Forbid(HoldReason { rule: rules::UNREADABLE, .. })),
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

/// T23: the table is data: each row says by examples what runs and what asks, and keeps to it.
#[test]
fn t23_every_row_of_the_table_does_what_its_examples_say() {
    for row in authority::programs() {
        let program = row.command.split(' ').next().unwrap();
        assert!(!row.runs.is_empty(), "{}", row.command);
        for (examples, runs) in [(&row.runs, true), (&row.asks, false)] {
            for example in examples {
                let argv = shell_words::split(example).unwrap();
                assert!(example.starts_with(program), "{example} in the row of {}", row.command);
                let judged = listing(&[program]).judge(&json!({ "argv": argv }).to_string());
                assert_eq!(judged == Judgement::Allow, runs, "{example}: {judged:?}");
            }
        }
    }
    println!("{} rows", authority::programs().len());
}

/// T23: what a program says of its own options agrees with the table, and an option that is not in it asks: alone, with a
/// value, behind listed ones, and abbreviated as far as `getopt` would take it.
#[test]
fn t23_the_programs_own_options_agree_with_the_table() {
    let (mut programs, mut tried, mut compared, mut wrong) = (0, 0, 0, Vec::new());
    for row in authority::programs() {
        let Some(help) = help_of(&row.command) else { continue };
        let own = options_in(&help);
        if own.is_empty() {
            continue;
        }
        programs += 1;
        let table = row.options();
        let first: Vec<&str> = row.command.split(' ').collect();
        let tool = listing(&[first[0]]);
        let judge = |rest: &[&str]| {
            let argv: Vec<&str> = first.iter().chain(rest).copied().collect();
            tool.judge(&json!({ "argv": argv }).to_string())
        };
        for (option, takes) in &own {
            if let Some((_, takes_here)) = table.iter().find(|(name, _)| name == option) {
                // Taking a value where there is none would hide an operand, and the other way round a script.
                if let (Some(takes), Some(takes_here)) = (takes, takes_here)
                    && takes != takes_here
                {
                    wrong.push(format!("{} {option}: takes a value: {takes}", row.command));
                }
                compared += 1;
                continue;
            }
            let behind = table.iter().find(|(_, takes)| *takes == Some(false)).map(|(name, _)| name.as_str());
            let mut forms = vec![vec![option.as_str()], vec![option.as_str(), "x"]];
            forms.extend(behind.map(|behind| vec![behind, option.as_str(), "x"]));
            forms.push(vec!["x", option.as_str()]);
            let attached = format!("{option}=x");
            if option.starts_with("--") {
                forms.push(vec![attached.as_str()]);
            }
            let shorter: Vec<&str> = (3..option.len()).filter_map(|end| option.get(..end)).collect();
            let is_listed = |name: &str| table.iter().any(|(known, _)| known == name);
            let abbreviated = shorter.iter().filter(|name| name.starts_with("--") && !is_listed(name));
            forms.extend(abbreviated.map(|name| vec![*name]));
            for form in forms {
                tried += 1;
                if judge(&form) == Judgement::Allow {
                    wrong.push(format!("{} {form:?} runs", row.command));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(programs >= 20, "only {programs} programs say which options they have");
    println!(
        "{compared} options of {programs} programs as the table says; {tried} forms of others, none allowed"
    );
}

/// What a program says of itself; none where it is not installed or has no options to speak of.
fn help_of(command: &str) -> Option<String> {
    let mut words = command.split(' ');
    let program = words.next()?;
    let file = ["/usr/bin", "/bin"]
        .iter()
        .map(|place| PathBuf::from(place).join(program))
        .find(|file| file.is_file())?;
    let flag = if program == "git" { "-h" } else { "--help" };
    if ["echo", "printf", "test", "true", "false", "npm", "find"].contains(&program) {
        return None;
    }
    let said = std::process::Command::new(file)
        .args(words.filter(|word| !word.starts_with('-')))
        .arg(flag)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(std::process::Stdio::null())
        .output()
        .ok()?;
    Some(format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr)))
}

/// The options at the beginnings of lines, as `-x, --long=VALUE`, and whether each takes a value, where that is plain.
fn options_in(help: &str) -> Vec<(String, Option<bool>)> {
    let mut found = Vec::new();
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let (names, rest) = line.split_once("  ").unwrap_or((line, ""));
        let names: Vec<(&str, &str)> = names
            .split(", ")
            .map(|name| {
                let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
                let end = if name.starts_with("--") { end } else { end.min(2) };
                name.split_at(end)
            })
            .collect();
        let is_value = |text: &str| text.starts_with(|c: char| c.is_ascii_uppercase() || c == '<');
        let takes = names.iter().try_fold(false, |takes, (_, after)| match after.strip_prefix(['=', ' ']) {
            // `--bytes=[-]NUM`: only the sign can be left out.
            Some(value) if is_value(value.trim_start_matches("[-]").trim_start_matches("[+]")) => Some(true),
            Some(_) => None,
            None if after.starts_with('<') => Some(true),
            None if after.is_empty() && !rest.trim_start().starts_with("--") => Some(takes),
            None => None,
        });
        for (name, _) in names {
            let is_short = name.len() == 2 && name.starts_with('-') && name != "--";
            if is_short || (name.starts_with("--") && name.len() > 3) {
                found.push((name.to_owned(), takes));
            }
        }
    }
    found
}

/// T23: an option's value is not a script, a script is not an option's value, and programs in no table ask.
#[test]
fn t23_listed_commands_that_ran_code_ask() {
    for argv in [
        json!(["sed", "-l", "p", "1e touch x", "f"]),
        json!(["sed", "-lp", "1e touch x", "f"]),
        json!(["sed", "--line-length", "p", "1e touch x"]),
        json!(["npm", "version", "1.2.3"]),
        json!(["npm", "version"]),
        json!(["npm", "version", "--git-tag-version=false", "patch"]),
        json!(["prove", "x.t"]),
        json!(["mytool"]),
        json!(["/opt/tool", "-v"]),
    ] {
        let judged = listing(&[argv[0].as_str().unwrap()]).judge(&json!({ "argv": argv }).to_string());
        assert!(matches!(judged, Judgement::Ask(_)), "{argv}: {judged:?}");
    }
    // Whoever lists all its words has looked at them.
    assert_eq!(listing(&["prove x.t"]).judge(r#"{"command": "prove x.t"}"#), Judgement::Allow);
}

/// T23: a repository whose settings, modules or links could start a program asks, whichever way it came to be there; a
/// plain one does not.
#[test]
fn t23_a_repository_that_names_programs_asks() {
    let place = tempfile::tempdir().unwrap();
    let tool = |allowed: &str| {
        with(CommandOptions {
            allowed_commands: Some(words(&[allowed])),
            working_directory: Some(place.path().join("inner")),
            confinement: Confinement::Off,
            ..CommandOptions::default()
        })
    };
    let judge = |allowed: &str| tool(allowed).judge(r#"{"command": "git status"}"#);
    std::fs::create_dir(place.path().join("inner")).unwrap();
    assert_eq!(judge("git"), Judgement::Allow, "there is no repository at all");
    for git in [place.path().join("inner/.git"), place.path().join(".git")] {
        std::fs::create_dir(&git).unwrap();
        std::fs::write(git.join("config"), "[core]\n\tbare = false\n").unwrap();
        assert_eq!(judge("git"), Judgement::Allow, "a plain repository");
        std::fs::write(git.join("config"), "[core]\n\tfsmonitor = ./x\n").unwrap();
        for allowed in ["git", "git status"] {
            assert_eq!(rule(judge(allowed)), rules::ADDS_AUTHORITY, "{allowed}");
        }
        std::fs::write(git.join("config"), "[filter \"x\"]\n\tclean = ./x\n").unwrap();
        assert_eq!(rule(judge("git")), rules::ADDS_AUTHORITY);
        std::fs::write(git.join("config"), "").unwrap();
        std::fs::create_dir(git.join("modules")).unwrap();
        assert_eq!(rule(judge("git")), rules::ADDS_AUTHORITY, "settings of submodules");
        std::fs::remove_dir_all(&git).unwrap();
    }
    std::fs::write(place.path().join("inner/.git"), "gitdir: ../elsewhere\n").unwrap();
    assert_eq!(rule(judge("git")), rules::ADDS_AUTHORITY, "a file that leads elsewhere");
}

/// T26: programs that change modes, times, owners or contents ask where a path leads out of the working directory, also
/// by a link, and also where the kernel would confine them.
#[test]
fn t26_changing_what_is_outside_asks_with_a_sandbox_too() {
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(place.path().join("outside.yaml"), "x").unwrap();
    std::fs::write(work.join("inside"), "x").unwrap();
    for (target, link) in [("../outside.yaml", "link"), ("..", "above"), ("../missing", "dangling")] {
        std::os::unix::fs::symlink(target, work.join(link)).unwrap();
    }
    for confinement in [Confinement::On, Confinement::Off] {
        if confinement == Confinement::On && standfast_tools::sandbox::probe().is_err() {
            println!("this kernel cannot confine; checked without");
            continue;
        }
        let programs = ["chmod", "touch", "chown", "cp", "mv", "rm", "ln", "mkdir", "tee", "tar", "cat"];
        let tool = with(CommandOptions {
            allowed_commands: Some(words(&programs)),
            working_directory: Some(work.clone()),
            confinement,
            ..CommandOptions::default()
        });
        let judge = |command: &str| rule(tool.judge(&json!({ "command": command }).to_string()));
        let outside = place.path().join("outside.yaml");
        for command in [
            format!("chmod 777 {}", outside.display()),
            format!("touch -d 2001-01-01 {}", outside.display()),
            format!("chown 1 {}", outside.display()),
            "touch -d 2001-01-01 ../outside.yaml".to_owned(),
            "chmod 777 link".to_owned(),
            "chmod 777 above/outside.yaml".to_owned(),
            "touch dangling".to_owned(),
            "touch -r inside link".to_owned(),
            "cp inside above/new".to_owned(),
            "mv inside ../x".to_owned(),
            "rm ../outside.yaml".to_owned(),
            "ln inside ../x".to_owned(),
            "mkdir ../x".to_owned(),
            "tee ../x".to_owned(),
            "tar cf ../x.tar inside".to_owned(),
            "tar --create --file=../x.tar inside".to_owned(),
        ] {
            assert_eq!(judge(&command), rules::LEAVES_DIRECTORY, "{command} {confinement:?}");
        }
        for command in ["chmod 644 inside", "touch -d 2001-01-01 inside", "cp inside other", "cat inside"] {
            assert_eq!(judge(command), "allowed", "{command} {confinement:?}");
        }
    }
}
