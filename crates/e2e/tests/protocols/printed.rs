//! Pages of the guide as their readers use them: blocks of a page, typed into a shell, and what a page shows below them.
//!
//! `…` in what is shown stands for anything within a text, and as the name of a member for any others. What a test puts in the place of what is printed (addresses, ids)
//! stands in that test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A page of the guide.
pub(crate) fn page(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(docs.join(name)).unwrap()
}

/// The blocks of a page in this language, in their order.
pub(crate) fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect()
}

/// Types a command as it is printed, in the folder of the repository, and gives what it prints.
pub(crate) fn types(command: &str, variables: &[(&str, &str)]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut shell = Command::new("sh");
    shell.args(["-c", command.trim_start_matches("$ ")]).current_dir(root).env("NO_PROXY", "*");
    let output = shell.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !command.contains('…'), "{command}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A command with the header that its page names for servers that want keys.
pub(crate) fn keyed(page: &str, command: &str) -> String {
    let (_, rest) = page.split_once("`-H \"").unwrap();
    let (header, _) = rest.split_once("\"`").unwrap();
    assert!(header.ends_with("Bearer $STANDFAST_KEY"), "{header}");
    command.replacen("curl ", &format!("curl -H \"{header}\" "), 1)
}

/// The same for a command that prints JSON.
pub(crate) fn answers(command: &str, variables: &[(&str, &str)]) -> Value {
    let printed = types(command, variables);
    serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{command}\n{printed}"))
}

/// Compares what came with what a page shows: the same members, the same values, anything in the place of each `…`.
pub(crate) fn is_as_shown(shown: &Value, came: &Value) {
    match (shown, came) {
        (Value::Object(shown), Value::Object(found)) => {
            let names = |one: &serde_json::Map<String, Value>| one.keys().cloned().collect::<BTreeSet<_>>();
            let (mut wanted, mut there) = (names(shown), names(found));
            if wanted.remove("…") {
                there.retain(|name| wanted.contains(name));
            }
            assert_eq!(wanted, there, "{came}");
            wanted.iter().for_each(|name| is_as_shown(&shown[name], &found[name]));
        }
        (Value::Array(shown), Value::Array(found)) => {
            assert_eq!(shown.len(), found.len(), "{came}");
            shown.iter().zip(found).for_each(|(one, other)| is_as_shown(one, other));
        }
        (Value::String(text), Value::String(found)) => assert!(fits(text, found), "{text} is not {found}"),
        (_, _) => assert_eq!(shown, came),
    }
}

/// Whether a text is as shown, with anything in the place of each `…`.
fn fits(shown: &str, came: &str) -> bool {
    let pieces: Vec<&str> = shown.split('…').collect();
    let [first, between @ .., last] = pieces.as_slice() else { return shown == came };
    let Some(mut rest) = came.strip_prefix(first) else { return false };
    for piece in between {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}
