//! `${NAME}` in values: `${NAME}`, `${NAME:-default}`, `${NAME:?message}`, also inside quotes; and what is kept elsewhere,
//! `${file:PATH}` and `${command:PROGRAM}` (`secret_source.rs`).
//!
//! Done after the YAML is read, so the value of a variable can never become a key or a list. Keys are not expanded, and
//! what a variable says is not expanded again. `$${` stands for the text `${`.

use super::path::Path;
use super::problem::Problem;
use super::secret_source::{Keeper, NoValue, SecretSources};
use super::tree::{Form, Node, Scalar, Value};

/// What to do with a variable that is not set and has no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unset {
    /// It is an error.
    Refuse,
    /// The value is taken to be right: for checking a file where its secrets are not at hand. No program is asked for one.
    Allow,
    /// The same, for whoever needs a few of the values: programs are asked for theirs.
    Ask,
}

/// Where variables come from.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Why a text cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    Unset(String),
    Demanded { name: String, message: String },
    Elsewhere(NoValue),
    Malformed,
}

/// Where values come from.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) variables: Lookup<'a>,
    pub(super) secrets: &'a SecretSources,
}

/// Fills in the variables of a whole file.
pub(super) fn expand(node: &mut Node, sources: Sources<'_>, unset: Unset, path: &Path) -> Vec<Problem> {
    let at = node.at;
    match &mut node.value {
        Value::Nothing => Vec::new(),
        Value::Scalar(scalar) => {
            let faults = expand_scalar(scalar, sources);
            let is_error = |fault: &Fault| unset == Unset::Refuse || *fault == Fault::Malformed;
            if !faults.is_empty() {
                // Nothing more is said about a value that is not known.
                scalar.form = Form::Unknown;
            }
            let told = faults.into_iter().filter(is_error);
            told.map(|fault| {
                let (what, help) = fault.words();
                Problem { at, path: path.clone(), what, help }
            })
            .collect()
        }
        Value::List(items) => {
            let items = items.iter_mut().enumerate();
            items.flat_map(|(no, item)| expand(item, sources, unset, &path.item(no))).collect()
        }
        Value::Map(entries) => {
            let entries = entries.iter_mut();
            entries.flat_map(|entry| expand(&mut entry.node, sources, unset, &path.key(&entry.key))).collect()
        }
    }
}

fn expand_scalar(scalar: &mut Scalar, sources: Sources<'_>) -> Vec<Fault> {
    if !scalar.text.contains("${") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let text = expand_text(&scalar.text, sources, &mut faults);
    if text != scalar.text {
        scalar.form = Form::Expanded;
    }
    scalar.text = text;
    faults
}

/// The text with its variables filled in.
fn expand_text(text: &str, sources: Sources<'_>, faults: &mut Vec<Fault>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("${") {
        if let Some(before) = rest[..start].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        out.push_str(&rest[..start]);
        let Some(length) = closing(&rest[start + 2..]) else {
            faults.push(Fault::Malformed);
            return out;
        };
        let inside = &rest[start + 2..start + 2 + length];
        match value(inside, sources, faults) {
            Ok(value) => out.push_str(&value),
            Err(fault) => faults.push(fault),
        }
        rest = &rest[start + 2 + length + 1..];
    }
    out.push_str(rest);
    out
}

/// Where the brace closes that was opened before this text; defaults may contain variables.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with("${") {
            depth += 1;
            at += 1;
        } else if c == '}' {
            match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some(at),
            }
        }
        at += c.len_utf8();
    }
    None
}

fn value(inside: &str, sources: Sources<'_>, faults: &mut Vec<Fault>) -> Result<String, Fault> {
    if let Some((keeper, named)) = Keeper::of(inside) {
        let before = faults.len();
        let named = expand_text(named, sources, faults);
        // What the name is made of has been told already.
        if faults.len() > before {
            return Ok(String::new());
        }
        return sources.secrets.value(keeper, &named).map_err(Fault::Elsewhere);
    }
    let length = inside.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let (name, rest) = inside.split_at(length);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Fault::Malformed);
    }
    let set = (sources.variables)(name);
    // As in a shell, the forms with a colon take an empty value for none.
    let filled = set.clone().filter(|value| !value.is_empty());
    if rest.is_empty() {
        set.ok_or_else(|| Fault::Unset(name.to_owned()))
    } else if let Some(default) = rest.strip_prefix(":-") {
        Ok(filled.unwrap_or_else(|| expand_text(default, sources, faults)))
    } else if let Some(message) = rest.strip_prefix(":?") {
        filled.ok_or_else(|| Fault::Demanded { name: name.to_owned(), message: message.to_owned() })
    } else {
        Err(Fault::Malformed)
    }
}

impl Fault {
    /// What is wrong, and what to do.
    fn words(&self) -> (String, String) {
        match self {
            Fault::Unset(name) => (
                format!("the variable {name} is not set"),
                format!(
                    "set {name} in the environment or in a file `.env` beside this one, or give a default: \
                     ${{{name}:-…}}"
                ),
            ),
            Fault::Demanded { name, message } => (
                format!("the variable {name} is not set: {message}"),
                format!("set {name} in the environment or in a file `.env` beside this one"),
            ),
            Fault::Elsewhere(NoValue { what, help }) => (what.clone(), help.clone()),
            Fault::Malformed => (
                "a `${` is not the beginning of a variable".into(),
                "write ${NAME}, ${NAME:-default}, ${NAME:?message}, ${file:PATH} or ${command:PROGRAM}; `$${` stands for the text `${`".into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use proptest::prelude::*;

    use super::*;

    fn expanded(text: &str) -> Result<String, Vec<Fault>> {
        let lookup = |name: &str| match name {
            "HOST" => Some("example.org".to_owned()),
            "EMPTY" => Some(String::new()),
            "SLY" => Some("${HOST}".to_owned()),
            _ => None,
        };
        let (mut faults, secrets) = (Vec::new(), SecretSources::new(FilePath::new("/"), Unset::Allow));
        let sources = Sources { variables: &lookup, secrets: &secrets };
        let text = expand_text(text, sources, &mut faults);
        if faults.is_empty() { Ok(text) } else { Err(faults) }
    }

    /// S3-15: every form, and what each does with unset and empty.
    #[test]
    fn every_form() {
        for (text, expected) in [
            ("https://${HOST}/v1", "https://example.org/v1"),
            ("${HOST}${HOST}", "example.orgexample.org"),
            ("${EMPTY}", ""),
            ("${EMPTY:-full}", "full"),
            ("${NO:-}", ""),
            ("${NO:-a:-b}", "a:-b"),
            ("${NO:-${HOST}:80}", "example.org:80"),
            ("${NO:-${NO:-deep}}", "deep"),
            ("${HOST:?must be set}", "example.org"),
            ("$${HOST}", "${HOST}"),
            ("${SLY}", "${HOST}"),
            ("costs $5 and {braces}", "costs $5 and {braces}"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_fault() {
        let unset = |name: &str| Fault::Unset(name.into());
        assert_eq!(expanded("${A} ${B}"), Err(vec![unset("A"), unset("B")]));
        assert_eq!(expanded("${NO:-${A}}"), Err(vec![unset("A")]));
        let demanded = Fault::Demanded { name: "EMPTY".into(), message: "why".into() };
        assert_eq!(expanded("${EMPTY:?why}"), Err(vec![demanded]));
        for text in ["${", "${}", "${A", "${1}", "${a-b}", "${A:b}", "${ HOST }", "${NO:-${A}"] {
            assert!(expanded(text).unwrap_err().contains(&Fault::Malformed), "{text}");
        }
    }

    /// The name of a place can have variables in it, such as the folder in which systemd puts credentials.
    #[test]
    fn a_place_is_named_with_variables() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "canary\n").unwrap();
        let name = folder.path().display().to_string();
        let lookup = |asked: &str| (asked == "CREDENTIALS_DIRECTORY").then(|| name.clone());
        let secrets = SecretSources::new(FilePath::new("/"), Unset::Refuse);
        let sources = Sources { variables: &lookup, secrets: &secrets };
        let out = |text: &str| {
            let mut faults = Vec::new();
            (expand_text(text, sources, &mut faults), faults)
        };
        assert_eq!(out("Bearer ${file:${CREDENTIALS_DIRECTORY}/key}!"), ("Bearer canary!".into(), vec![]));
        assert_eq!(out("${command:cat ${CREDENTIALS_DIRECTORY}/key}").0, "canary");
        assert_eq!(out("${file:${NO}/key}").1, [Fault::Unset("NO".into())]);
        assert!(matches!(out("${file:${CREDENTIALS_DIRECTORY}/no}").1[..], [Fault::Elsewhere(_)]));
    }

    proptest! {
        /// No text makes it panic, and text without `${` comes out as it went in.
        #[test]
        fn any_text(text in r"[${}:?a-zA-Z_\-äöü ]{0,40}") {
            let out = expanded(&text);
            if !text.contains("${") {
                prop_assert_eq!(out, Ok(text));
            }
        }

        /// A variable's value comes out as it is, whatever it looks like, and with whatever around it.
        #[test]
        fn any_value(value in ".{0,40}", before in "[a-z: ]{0,8}", after in "[a-z} ]{0,8}") {
            let lookup = |_: &str| Some(value.clone());
            let (mut faults, secrets) = (Vec::new(), SecretSources::new(FilePath::new("/"), Unset::Allow));
            let sources = Sources { variables: &lookup, secrets: &secrets };
            let out = expand_text(&format!("{before}${{NAME}}{after}"), sources, &mut faults);
            prop_assert_eq!(out, format!("{before}{value}{after}"));
            prop_assert!(faults.is_empty());
        }
    }
}
