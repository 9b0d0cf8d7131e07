//! Colours, for people at a terminal only: never into a pipe, a file or a `dumb` terminal, and not with `NO_COLOR`.
//!
//! Colours are ours alone; text of others has passed through `plain.rs` and has none.

use std::io::IsTerminal;

/// What can be said with a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
}

/// Whether to paint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Yes,
    No,
}

impl Paint {
    /// What suits the standard output.
    pub(super) fn for_stdout() -> Paint {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_some_and(|term| term == "dumb");
        if std::io::stdout().is_terminal() && variable("NO_COLOR").is_none() && !is_dumb {
            Paint::Yes
        } else {
            Paint::No
        }
    }

    /// A text of ours in a colour.
    pub(super) fn with(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Red => "31",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Dim => "2",
        };
        match self {
            Paint::Yes => format!("\x1b[{code}m{text}\x1b[0m"),
            Paint::No => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_is_asked_for() {
        assert_eq!(Paint::Yes.with(Colour::Red, "no"), "\x1b[31mno\x1b[0m");
        assert_eq!(Paint::No.with(Colour::Red, "no"), "no");
    }
}
