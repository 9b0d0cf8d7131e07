//! `argv`: token prefixes of commands, read strictly for what loosens and searched for what tightens.
//!
//! An allow matches one simple command whose first words, as they are written, are the tokens. A hold or deny looks inside
//! everything: compound commands, substitutions, quotes, wrappers. What is known of programs is `programs.rs`.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::glob::is_hidden_in_command;
use crate::programs::{is_interpreter, is_reserved, is_wrapper, name_of, runs_itself_only, runs_more};
use crate::shell::{Piece, pieces, simple};
use crate::truth::Truth;
use crate::value::Value;

/// The first words of commands, each with its alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Argv(Vec<Token>);

/// One word of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Token {
    Word(String),
    Either(Vec<String>),
}

impl Token {
    fn words(&self) -> &[String] {
        match self {
            Token::Word(word) => std::slice::from_ref(word),
            Token::Either(words) => words,
        }
    }
}

/// How much of a command a pattern speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Its first words.
    Prefix,
    /// All its words.
    Whole,
}

impl Argv {
    /// A pattern of these tokens, without alternatives.
    #[must_use]
    pub fn of(words: impl IntoIterator<Item = String>) -> Argv {
        Argv(words.into_iter().map(Token::Word).collect())
    }

    /// What is wrong with it as the pattern of any rule.
    pub(crate) fn misfit(&self) -> Option<&'static str> {
        if self.0.is_empty() || self.0.iter().any(|token| token.words().is_empty()) {
            return Some("an argv pattern needs at least one word, and each list of alternatives too");
        }
        let is_odd =
            |word: &String| word.is_empty() || word.chars().any(|c| c.is_whitespace() || c.is_control());
        let has_odd = self.0.iter().any(|token| token.words().iter().any(is_odd));
        has_odd.then_some("a word of an argv pattern is one word: without spaces, and not empty")
    }

    /// Why it may not stand in an allow rule: a program that can run other programs makes the rest of the words mean nothing.
    pub(crate) fn opens_everything(&self) -> Option<String> {
        let program = self.0.first()?.words();
        if let Some(wrapper) = program.iter().find(|program| is_wrapper(program) || is_reserved(program)) {
            return Some(format!("`{wrapper}` runs whatever its arguments say"));
        }
        let interpreter = program.iter().find(|program| is_interpreter(program))?;
        let names_file = self
            .0
            .get(1)
            .is_some_and(|next| next.words().iter().all(|word| !word.starts_with('-') && !runs_more(word)));
        (!names_file).then(|| {
            format!("`{interpreter}` runs any program text unless the pattern names a file or subcommand")
        })
    }

    /// A command that it matches.
    #[must_use]
    pub fn example(&self) -> String {
        let first = |token: &Token| token.words().first().cloned().unwrap_or_default();
        self.0.iter().map(first).collect::<Vec<_>>().join(" ")
    }

    /// The names of its programs, as [`program_names`] has them.
    pub(crate) fn programs(&self) -> Vec<String> {
        self.0
            .first()
            .map(|token| token.words().iter().map(|word| name_of(word)).collect())
            .unwrap_or_default()
    }

    /// Every combination of its alternatives, up to a number.
    pub(crate) fn spellings(&self, most: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        for token in &self.0 {
            let longer = |before: &String| {
                let join = |word: &String| format!("{before} {word}").trim_start().to_owned();
                token.words().iter().map(join).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).take(most).collect();
        }
        all
    }

    /// Yes for what an allow may go by, no for what holds nothing of the kind, unknown for everything between.
    #[must_use]
    pub fn test(&self, value: &Value, extent: Extent) -> Truth {
        if self.admits(value, extent) == Truth::Yes {
            return Truth::Yes;
        }
        let is_longer = extent == Extent::Whole && self.admits(value, Extent::Prefix) == Truth::Yes;
        if is_longer || self.is_within(value) == Truth::No { Truth::No } else { Truth::Unknown }
    }

    /// Whether a value is one simple command that begins with these words, as they are written. Unknown where it cannot be
    /// read as one.
    #[must_use]
    pub fn admits(&self, value: &Value, extent: Extent) -> Truth {
        let words: Vec<(String, bool)> = match value {
            Value::Text(text) => match simple(text) {
                Some(words) => words.into_iter().map(|word| (word.text, word.is_plain)).collect(),
                None => return Truth::Unknown,
            },
            Value::List(items) => match texts(items) {
                Some(words) => words.into_iter().map(|word| (word, true)).collect(),
                None => return Truth::Unknown,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => return Truth::Unknown,
        };
        let Some((program, _)) = words.first() else { return Truth::Unknown };
        if is_wrapper(program) || is_reserved(program) {
            return Truth::Unknown;
        }
        let fits =
            |(token, (word, is_plain)): (&Token, &(String, bool))| *is_plain && token.words().contains(word);
        let is_long_enough = match extent {
            Extent::Prefix => words.len() >= self.0.len(),
            Extent::Whole => words.len() == self.0.len(),
        };
        Truth::of(is_long_enough && self.0.iter().zip(&words).all(fits))
    }

    /// Whether a command that begins with these words is somewhere inside a value; unknown where what runs cannot be told.
    #[must_use]
    pub fn is_within(&self, value: &Value) -> Truth {
        match value {
            Value::Text(text) => self.is_within_text(text),
            Value::List(items) => match texts(items) {
                Some(words) => self.is_within_words(&words),
                None => Truth::Unknown,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => Truth::Unknown,
        }
    }

    fn is_within_words(&self, words: &[String]) -> Truth {
        if words.is_empty() {
            return Truth::Unknown;
        }
        if self.begins(words) {
            return Truth::Yes;
        }
        if runs_itself_only(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
            return Truth::No;
        }
        // What is handed to a shell or a wrapper is text again.
        let inside = words.get(1..).unwrap_or_default();
        let any = (0..inside.len()).any(|at| inside.get(at..).is_some_and(|rest| self.begins(rest)));
        let in_text = inside.iter().map(|word| self.is_within_text(word)).fold(Truth::No, Truth::or);
        Truth::of(any).or(in_text)
    }

    fn is_within_text(&self, text: &str) -> Truth {
        if text.trim().is_empty() {
            return Truth::Unknown;
        }
        let is_simple = simple(text);
        if let Some(words) = &is_simple
            && runs_itself_only(&words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>())
        {
            let words: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
            return Truth::of(self.begins(&words));
        }
        let all = pieces(text);
        let is_somewhere = all.iter().any(|piece| {
            (0..piece.words.len()).any(|at| piece.words.get(at..).is_some_and(|rest| self.begins(rest)))
        });
        if is_somewhere {
            return Truth::Yes;
        }
        let is_opaque =
            is_simple.is_none() && (all.iter().any(is_opaque) || text.chars().any(is_hidden_in_command));
        if is_opaque { Truth::Unknown } else { Truth::No }
    }

    /// Whether words begin with the tokens, under any path and spelling of the program, and with options of the program
    /// between them: `/usr/bin/git -C x push` begins with `git push`.
    fn begins(&self, words: &[String]) -> bool {
        let Some((program, tokens)) = self.0.split_first() else { return false };
        let Some((found, rest)) = words.split_first() else { return false };
        let is_named = |part: &str| program.words().iter().any(|word| name_of(word) == name_of(part));
        (is_named(found) || parts(found).any(is_named)) && follows(tokens, rest)
    }
}

/// A command as many patterns see it: what could be a program in it, and which words there are at all.
#[derive(Debug)]
pub(crate) struct CommandWords {
    programs: HashSet<String>,
    words: HashSet<String>,
    /// What a pattern comes to that is nowhere in it.
    otherwise: Truth,
}

impl CommandWords {
    pub(crate) fn of(value: &Value) -> CommandWords {
        let mut words = HashSet::new();
        let mut add_text = |text: &str| {
            words.extend(simple(text).into_iter().flatten().map(|word| word.text));
            words.extend(pieces(text).into_iter().flat_map(|piece| piece.words));
        };
        match value {
            Value::Text(text) => add_text(text),
            Value::List(items) => {
                let listed = texts(items).unwrap_or_default();
                listed.iter().for_each(|word| add_text(word));
                words.extend(listed);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => {}
        }
        let mut programs = HashSet::new();
        words.iter().for_each(|word| add_names(word, &mut programs));
        // A pattern without words begins nothing.
        CommandWords { programs, words, otherwise: Argv(Vec::new()).is_within(value) }
    }

    /// The same as the pattern's own test of the value that this was made of. `programs` are the pattern's.
    pub(crate) fn test(&self, value: &Value, (argv, programs): (&Argv, &[String]), extent: Extent) -> Truth {
        let is_there = |token: &Token| token.words().iter().any(|word| self.words.contains(word));
        let may_begin = programs.iter().any(|program| self.programs.contains(program))
            && argv.0.iter().skip(1).all(is_there);
        if may_begin { argv.test(value, extent) } else { self.otherwise }
    }
}

/// The names of all programs that could be meant somewhere inside a value; none where that cannot be told. A pattern whose
/// programs are not among them certainly does not match.
pub(crate) fn program_names(value: &Value) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    match value {
        Value::Text(text) => names_in_text(text, &mut names)?,
        Value::List(items) => {
            let words = texts(items)?;
            let program = words.first()?;
            add_names(program, &mut names);
            if !runs_itself_only(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
                for word in words.iter().skip(1) {
                    add_names(word, &mut names);
                    names_in_text(word, &mut names)?;
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => return None,
    }
    Some(names)
}

fn names_in_text(text: &str, names: &mut HashSet<String>) -> Option<()> {
    let words = simple(text);
    if let Some(words) = &words
        && runs_itself_only(&words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>())
    {
        words.first().into_iter().for_each(|program| add_names(&program.text, names));
        return Some(());
    }
    let all = pieces(text);
    let is_dark = words.is_none() && (all.iter().any(is_opaque) || text.chars().any(is_hidden_in_command));
    if all.is_empty() || is_dark {
        return None;
    }
    all.iter().flat_map(|piece| &piece.words).for_each(|word| add_names(word, names));
    Some(())
}

fn add_names(word: &str, names: &mut HashSet<String>) {
    names.insert(name_of(word));
    names.extend(parts(word).map(name_of));
}

/// What may be a program behind a sign: `-c alias.x=!rm`, `PATH=/x:rm`.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    word.split(['=', ',', ':', '!', '{', '}']).filter(|part| !part.is_empty())
}

/// Whether the tokens come next: each after options, and what may be their values.
fn follows(tokens: &[Token], words: &[String]) -> bool {
    let Some((token, tokens)) = tokens.split_first() else { return true };
    let mut may_be_value = false;
    for (at, word) in words.iter().enumerate() {
        if token.words().contains(word) && follows(tokens, words.get(at + 1..).unwrap_or_default()) {
            return true;
        }
        let is_option = word.starts_with('-');
        if !is_option && !may_be_value {
            return false;
        }
        may_be_value = is_option;
    }
    false
}

/// Whether nobody can tell what a piece runs: its program is a variable, a wildcard or a substitution, or a shell that reads
/// what it runs from elsewhere.
fn is_opaque(piece: &Piece) -> bool {
    let is_before = |word: &&String| {
        let is_assignment =
            word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.contains(['$', '-']));
        is_assignment || is_reserved(word)
    };
    let mut words = piece.words.iter().skip_while(is_before);
    let Some(program) = words.next() else { return false };
    let expands =
        |word: &String| word.contains(['$', '*', '?', '[', '{', '~']) && word != "[" && word != "[[";
    let is_runner = is_wrapper(program) || is_interpreter(program);
    expands(program)
        || (is_runner && (piece.reads_input || words.any(|word| word.contains('$') || word == "-s")))
}

fn texts(items: &[Value]) -> Option<Vec<String>> {
    let text = |item: &Value| match item {
        Value::Text(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
    };
    items.iter().map(text).collect()
}

impl fmt::Display for Argv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (no, token) in self.0.iter().enumerate() {
            f.write_str(if no == 0 { "" } else { " " })?;
            match token {
                Token::Word(word) => f.write_str(word)?,
                Token::Either(words) => write!(f, "({})", words.join("|"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(json: &str) -> Argv {
        serde_json::from_str(json).unwrap()
    }

    fn within(pattern: &str, command: &str) -> Truth {
        argv(pattern).is_within(&Value::Text(command.into()))
    }

    #[test]
    fn an_allow_matches_one_simple_command() {
        let git = argv(r#"["git",["status","log"]]"#);
        let admits = |command: &str| git.admits(&Value::Text(command.into()), Extent::Prefix);
        assert_eq!(admits("git log -3"), Truth::Yes);
        assert_eq!(admits("git push"), Truth::No);
        assert_eq!(admits("/tmp/git log"), Truth::No);
        assert_eq!(admits("'git' log"), Truth::No);
        assert_eq!(admits("git log; rm -rf /"), Truth::Unknown);
        assert_eq!(admits("sudo git log"), Truth::Unknown);
        let whole = git.admits(&Value::Text("git log -3".into()), Extent::Whole);
        assert_eq!(whole, Truth::No);
        let listed = Value::List(vec![Value::Text("git".into()), Value::Text("log; rm".into())]);
        assert_eq!(git.admits(&listed, Extent::Prefix), Truth::No);
    }

    #[test]
    fn a_deny_looks_inside() {
        for command in [
            "rm -rf /",
            "/bin/rm x",
            "RM x",
            "ls; rm x",
            "ls && \\rm x",
            "sudo -u root rm x",
            "env A=1 rm x",
            "timeout 5 rm x",
            "bash -c 'rm x'",
            "sh -c \"cd / && 'r'm x\"",
            "find . -exec rm {} +",
            "echo $(rm x)",
            "echo `rm x`",
            "cat <(rm x)",
            "mywrapper rm x",
            "A=1 rm x",
            "if true; then rm x; fi",
            "{ rm x; }",
            "git -c alias.x='!rm x' x",
            "xargs rm < list",
            "nohup rm x &",
            "git -c 'alias.x=!rm x' x",
            "git -c core.pager=rm log",
            "git bisect run rm x",
            "git push --receive-pack=rm",
            "echo 'a; rm b'",
            "a=rm; $a x",
            "$(which r''m) x",
        ] {
            assert_eq!(within(r#"["rm"]"#, command), Truth::Yes, "{command}");
        }
        for command in
            ["echo rm", "git commit -m rm", "ls | wc -l", "grep rm file", "cat $HOME/x", "echo $(date)"]
        {
            assert_eq!(within(r#"["rm"]"#, command), Truth::No, "{command}");
        }
        for command in ["$cmd x", "curl x | sh", "/bin/?m x", "eval $x", "", "a\u{200b}b"] {
            assert_eq!(within(r#"["rm"]"#, command), Truth::Unknown, "{command}");
        }
    }

    /// The index goes by names: where a pattern matches or cannot be told, its program is among them.
    #[test]
    fn names_leave_nothing_out() {
        for command in [
            "rm x",
            "ls; rm x",
            "sudo -u root rm x",
            "git -c alias.x='!rm x' x",
            "echo rm",
            "$x",
            "",
            "a=rm; $a",
            "bash -c 'rm x'",
            "ls",
        ] {
            let value = Value::Text(command.into());
            let is_named = program_names(&value).is_none_or(|names| names.contains("rm"));
            assert!(is_named || within(r#"["rm"]"#, command) == Truth::No, "{command}");
        }
        assert!(!program_names(&Value::Text("ls -l".into())).unwrap().contains("rm"));
    }

    /// What is known of all words of a command changes no answer of a pattern.
    #[test]
    fn reading_a_command_once_changes_nothing() {
        let corpus =
            include_str!("../tests/rules/argv_corpus.txt").lines().filter(|line| line.starts_with('"'));
        let patterns = [
            r#"["rm"]"#,
            r#"["git"]"#,
            r#"["git",["status","log","diff"]]"#,
            r#"["git","push"]"#,
            r#"["git","log","-3"]"#,
            r#"[["ls","GIT"],["log","x"]]"#,
        ];
        let patterns: Vec<Argv> = patterns.into_iter().map(argv).collect();
        let more = [
            "\"\"",
            "\"rm x\"",
            "\"ls; rm x\"",
            "\"$x\"",
            "\"git log -3\"",
            "\"GIT log\"",
            "\"git -c a=b push\"",
        ];
        for line in corpus.chain(more) {
            let command: String = serde_json::from_str(line).unwrap();
            let words = command.split(' ').map(|word| Value::Text(word.into())).collect();
            let odd = vec![Value::Text("git".into()), Value::Null];
            for value in [Value::Text(command.clone()), Value::List(words), Value::List(odd), Value::Null] {
                let read = CommandWords::of(&value);
                for pattern in &patterns {
                    let programs = pattern.programs();
                    for extent in [Extent::Prefix, Extent::Whole] {
                        let once = read.test(&value, (pattern, programs.as_slice()), extent);
                        assert_eq!(once, pattern.test(&value, extent), "{pattern} {extent:?} {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn options_may_stand_between_the_words() {
        let push = r#"["git","push"]"#;
        for command in ["git push", "git -C /x push", "git --no-pager push -f", "/usr/bin/git -c a=b push"] {
            assert_eq!(within(push, command), Truth::Yes, "{command}");
        }
        for command in ["git commit -m push", "git log --grep push", "git"] {
            assert_eq!(within(push, command), Truth::No, "{command}");
        }
    }

    #[test]
    fn what_opens_everything_is_refused_in_an_allow() {
        for pattern in [
            r#"["sudo","systemctl"]"#,
            r#"[["ls","bash"]]"#,
            r#"["python3"]"#,
            r#"["python3","-c"]"#,
            r#"["env"]"#,
        ] {
            assert!(argv(pattern).opens_everything().is_some(), "{pattern}");
        }
        for pattern in [r#"["git"]"#, r#"["python3","manage.py","check"]"#] {
            assert!(argv(pattern).opens_everything().is_none(), "{pattern}");
        }
        assert!(
            argv("[]").misfit().is_some()
                && argv(r#"["git log"]"#).misfit().is_some()
                && argv(r#"["git",[]]"#).misfit().is_some()
        );
    }
}
