//! Editing the arguments of a held call, as with `git commit`: a file, `$VISUAL` or `$EDITOR`, and what is left in it.
//!
//! Lines that begin with `#` above the arguments are for whoever edits. What a person wrote is never thrown away: when
//! it is not taken, its file stays.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use tempfile::NamedTempFile;

use super::client::Failure;
use super::plain::plain;

/// A file with what a person wrote; it goes when it is dropped.
#[derive(Debug)]
pub(super) struct Draft(NamedTempFile);

impl Draft {
    /// Leaves the file where it is; says where.
    pub(super) fn keep(self) -> String {
        match self.0.keep() {
            Ok((_, path)) => format!("what you wrote is kept in {}", plain(&path.display().to_string())),
            Err(error) => format!("what you wrote could not be kept: {error}"),
        }
    }
}

/// Lets a person edit arguments; what they wrote, and the file with it.
pub(super) fn in_editor(tool: &str, hold: &str, arguments: &str) -> Result<(String, Draft), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::CouldNotAsk(format!("{what}: {error}"));
    let file = tempfile::Builder::new().prefix("standfast-").suffix(".json").tempfile();
    let mut file = file.map_err(|error| failed("cannot create a temporary file", error))?;
    let head = format!(
        "# Arguments of {tool}, {hold}.\n\
         # Save other arguments to approve the call with them. Leave them as they are, or empty, to decide nothing.\n"
    );
    writeln!(file, "{head}{arguments}").map_err(|error| failed("cannot create a temporary file", error))?;
    // One that is set to nothing does not hide the other.
    let named = |name| std::env::var(name).ok().filter(|editor: &String| !editor.trim().is_empty());
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(named).unwrap_or_else(|| "vi".into());
    let words = shell_words::split(&editor).map_err(|error| {
        Failure::CouldNotAsk(format!("cannot parse the editor command {}: {error}", plain(&editor)))
    })?;
    let Some((program, options)) = words.split_first() else {
        return Err(Failure::CouldNotAsk("no editor is configured; set VISUAL or EDITOR".into()));
    };
    let status = Command::new(program).args(options).arg(file.path()).status();
    let status =
        status.map_err(|error| failed(&format!("the editor {} did not start", plain(&editor)), error))?;
    if !status.success() {
        return Err(Failure::CouldNotAsk(format!("the editor {} ended with {status}", plain(&editor))));
    }
    // Read by its path: editors put another file in its place.
    let text =
        std::fs::read_to_string(file.path()).map_err(|error| failed("cannot read the edited file", error))?;
    let written = without_head(&text);
    let nothing = |why: &str| Failure::Refused { said: why.to_owned(), body: String::new() };
    if written.trim().is_empty() {
        return Err(nothing("the file is empty, so nothing was decided"));
    }
    if written.trim() == arguments.trim() {
        return Err(nothing(
            "the arguments are unchanged, so nothing was decided; `holds approve` approves them",
        ));
    }
    Ok((written.to_owned(), Draft(file)))
}

/// Arguments from a file, or from standard input.
pub(super) fn from_file(path: &Path) -> Result<String, Failure> {
    let read = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        _ => std::fs::read_to_string(path),
    };
    read.map_err(|error| Failure::CouldNotAsk(format!("{}: {error}", plain(&path.display().to_string()))))
}

/// What stands below the lines for whoever edits.
fn without_head(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, below)| below);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_above_the_arguments_are_dropped() {
        assert_eq!(without_head("# a\n# b\n{\"x\":\n\"# c\"}\n"), "{\"x\":\n\"# c\"}\n");
        assert_eq!(without_head("# a"), "");
        assert_eq!(without_head("{}"), "{}");
    }
}
