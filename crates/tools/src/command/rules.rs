//! Which commands run by themselves, which need a person and which never run: rules about the words that would run.
//!
//! There is no shell, so a command is exactly its words. What is not on the list, adds authority (`authority.rs`) or
//! would look otherwise to a person than it is never runs without one (T22, T23). The strictest rule wins.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use standfast_engine::tool::{HoldReason, Judgement};

use super::authority::{self, Lookup};
use super::{BadCommand, CommandOptions, argv, command_text, git};
use crate::sandbox::{Confinement, real_or_planned};

/// Arguments that cannot be read as a command.
pub const UNREADABLE: &str = "command:unreadable";
/// A program or command of `denied_commands`.
pub const DENIED: &str = "command:denied";
/// Not in `allowed_commands`.
pub use standfast_engine::policy::NOT_LISTED;
/// A program that runs whatever its arguments say.
pub const RUNS_OTHERS: &str = "command:runs_others";
/// An argument that lets a listed program do more than it usually does.
pub const ADDS_AUTHORITY: &str = "command:adds_authority";
/// A program of which nobody has said what its arguments do.
pub const UNKNOWN_PROGRAM: &str = "command:unknown_program";
/// Text for a shell, which there is not.
pub const SHELL_TEXT: &str = "command:shell_text";
/// Characters that a person would not see.
pub const HIDDEN_CHARACTERS: &str = "command:hidden_characters";
/// A path that leads out of the working directory, by a link too, where no sandbox is in the way or where the program would
/// change what is there.
pub const LEAVES_DIRECTORY: &str = "command:leaves_directory";

/// What the options say of a call with these arguments.
pub(super) fn judge(options: &CommandOptions, arguments: &str) -> Judgement {
    judge_as(options, arguments, |words| listed(options, words))
}

/// The same for a command whose first words a rule of the policy lists: what its arguments may do is looked at all the same.
pub(super) fn judge_listed(options: &CommandOptions, arguments: &str) -> Judgement {
    judge_as(options, arguments, |_| ListMatch::Begins)
}

fn judge_as(options: &CommandOptions, arguments: &str, listed: impl Fn(&[String]) -> ListMatch) -> Judgement {
    let words = match argv(arguments) {
        Ok(words) => words,
        Err(bad) => return forbid(UNREADABLE, format!("not executed: {bad}")),
    };
    if let Err(bad) = forbidden(options, &words) {
        let rule = match bad {
            BadCommand::Denied { .. } => DENIED,
            BadCommand::NotAllowed { .. } => NOT_LISTED,
            BadCommand::Input(_)
            | BadCommand::OpenQuote
            | BadCommand::Comment
            | BadCommand::Empty
            | BadCommand::Nul
            | BadCommand::NotFound { .. } => UNREADABLE,
        };
        return forbid(rule, format!("not executed: {bad}"));
    }
    let Some((program, rest)) = words.split_first() else {
        return forbid(UNREADABLE, format!("not executed: {}", BadCommand::Empty));
    };
    if let Some(word) = words.iter().find(|word| word.chars().any(is_hidden)) {
        return ask(
            HIDDEN_CHARACTERS,
            format!("\"{}\" has characters that are not shown as they are", marked(word)),
        );
    }
    if let Some(sign) = command_text(arguments).as_deref().and_then(shell_sign) {
        return ask(
            SHELL_TEXT,
            format!("{sign:?} means something to a shell; here it is an ordinary character"),
        );
    }
    let directory = options.working_directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let known = authority::known(&words);
    let in_repository = matches!(&known, Lookup::Usual { program, .. } if program.repository);
    let suspicious = if in_repository { git::suspicious(&directory, options.confinement) } else { None };
    match listed(&words) {
        // Whoever listed it meant these words, not what somebody has made of the repository since.
        ListMatch::Exactly if suspicious.is_none() => return Judgement::Allow,
        ListMatch::Exactly | ListMatch::Begins => {}
        ListMatch::No => {
            return ask(
                NOT_LISTED,
                format!("{program:?} is not among the commands that run without a person"),
            );
        }
    }
    if authority::runs_anything(program) {
        return ask(RUNS_OTHERS, format!("{program:?} runs whatever its arguments or files say"));
    }
    let (known, given) = match known {
        Lookup::Usual { program, given } => (program, given),
        Lookup::Odd(word) => {
            return ask(
                ADDS_AUTHORITY,
                format!("`{program}` with {word:?} can do more than it usually does, so it needs approval"),
            );
        }
        Lookup::Unknown => {
            return ask(
                UNKNOWN_PROGRAM,
                format!("it is not known what the arguments of {program:?} do, so it needs approval"),
            );
        }
    };
    if let Some(why) = suspicious {
        return ask(ADDS_AUTHORITY, format!("`{program}` may start a program that files name: {why}"));
    }
    // Without a sandbox nothing keeps a program in its directory. With one, what it changes there is still nobody's
    // business but a person's: the mode and the times of a file are no contents.
    let looked_at = match (options.confinement, known.changes) {
        (Confinement::Off, _) => rest.iter().map(String::as_str).chain(given.iter().copied()).collect(),
        (Confinement::On, true) => given,
        (Confinement::On, false) => Vec::new(),
    };
    let roots = options.changeable();
    match looked_at.into_iter().find(|word| leaves_directory(word, &directory, &roots)) {
        Some(word) => ask(LEAVES_DIRECTORY, format!("{word:?} leads out of the working directory")),
        None => Judgement::Allow,
    }
}

/// What never runs, whoever agrees: checked again directly before the start.
pub(super) fn forbidden(options: &CommandOptions, words: &[String]) -> Result<(), BadCommand> {
    let program = words.first().filter(|program| !program.is_empty()).ok_or(BadCommand::Empty)?;
    if words.iter().any(|word| word.contains('\0')) {
        return Err(BadCommand::Nul);
    }
    if let Some(denied) = options.denied_commands.iter().find(|denied| is_denied(denied, words)) {
        return Err(BadCommand::Denied { program: program.clone(), denied: denied.clone() });
    }
    if options.denies_by_default() && listed(options, words) == ListMatch::No {
        let allowed = options.allowed_commands.clone().unwrap_or_default();
        return Err(BadCommand::NotAllowed { program: program.clone(), allowed });
    }
    Ok(())
}

/// Whether a command is on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListMatch {
    /// Word for word, with all its arguments.
    Exactly,
    /// An entry is its program, or its first words.
    Begins,
    No,
}

/// Programs are compared as they are written: `ls` is not `./ls` and not `/tmp/ls`.
fn listed(options: &CommandOptions, words: &[String]) -> ListMatch {
    let mut found = ListMatch::No;
    for entry in options.allowed_commands.iter().flatten() {
        // An entry that cannot be read lists nothing.
        let Ok(entry) = shell_words::split(entry) else { continue };
        if entry.is_empty() || !words.starts_with(&entry) {
            continue;
        }
        if entry.len() > 1 && entry.len() == words.len() {
            return ListMatch::Exactly;
        }
        found = ListMatch::Begins;
    }
    found
}

/// A denied program is denied under every path and in every spelling, and also as a word of a program that runs what
/// its arguments say.
fn is_denied(denied: &str, words: &[String]) -> bool {
    // An entry that cannot be read denies everything.
    let Ok(entry) = shell_words::split(denied) else { return true };
    let Some((entry_program, entry_rest)) = entry.split_first() else { return false };
    let Some((program, rest)) = words.split_first() else { return false };
    let entry_name = name_of(entry_program);
    if name_of(program) == entry_name && rest.starts_with(entry_rest) {
        return true;
    }
    let in_words = |word: &String| {
        word.split(|c: char| c.is_whitespace() || ";|&()<>`'\"=,:!".contains(c))
            .any(|part| name_of(part) == entry_name)
    };
    authority::runs_anything(program) && rest.iter().any(in_words)
}

fn name_of(program: &str) -> String {
    program.trim_end_matches('/').rsplit('/').next().unwrap_or(program).to_lowercase()
}

/// Control characters, and those that change the order of text or have no width.
fn is_hidden(c: char) -> bool {
    let other_space = c.is_whitespace() && c != ' ';
    let no_width = matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    c.is_control() || other_space || no_width
}

/// With each hidden character as its number, the same wherever the text is shown.
fn marked(word: &str) -> String {
    let mut marked = String::new();
    for c in word.chars() {
        if is_hidden(c) {
            let _ = write!(marked, "⟨U+{:04X}⟩", u32::from(c));
        } else {
            marked.push(c);
        }
    }
    marked
}

/// The first sign of a shell's language that stands outside of quotes, or that double quotes do not hide from a shell.
fn shell_sign(command: &str) -> Option<char> {
    let (mut quote, mut escaped, mut word_begins) = (None, false, true);
    for c in command.chars() {
        // A line that a shell would join or end is never what it looks like.
        if c == '\n' || c == '\r' {
            return Some(c);
        }
        if escaped {
            (escaped, word_begins) = (false, false);
            continue;
        }
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => escaped = true,
            (_, '$' | '`') => return Some(c),
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, ';' | '|' | '&' | '<' | '>' | '(' | ')' | '{' | '}' | '!') => return Some(c),
            (None, '~') if word_begins => return Some(c),
            (None, _) => {}
        }
        word_begins = c == ' ' || c == '\t';
    }
    None
}

/// Whether a word is a path out of a directory, and into none of these: by what it says, or by the links on its way.
fn leaves_directory(word: &str, directory: &Path, roots: &[PathBuf]) -> bool {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    let value = value.strip_prefix('-').map_or(value, |letters| letters.get(1..).unwrap_or_default());
    let path = Path::new(value);
    let says_so = path.is_absolute()
        || value.starts_with('~')
        || path.components().any(|part| part == Component::ParentDir);
    let inside = real_or_planned(directory);
    let whole = inside.join(path);
    // A link to nowhere leads to what would be made there.
    let is_dangling = |step: &Path| step.is_symlink() && step.canonicalize().is_err();
    let is_in = |root: &PathBuf| {
        real_or_planned(&whole).starts_with(root)
            && !whole.ancestors().take_while(|step| step.starts_with(root)).any(is_dangling)
    };
    // The operator has named the other directories; a path that says where it leads may lead there.
    let (others, is_plain) = (roots.iter().filter(|root| **root != inside), !says_so);
    let is_reached = is_plain && is_in(&inside) || path.is_absolute() && others.into_iter().any(is_in);
    !is_reached
}

fn ask(rule: &'static str, reason: String) -> Judgement {
    Judgement::Ask(HoldReason { rule, reason })
}

fn forbid(rule: &'static str, reason: String) -> Judgement {
    Judgement::Forbid(HoldReason { rule, reason })
}
