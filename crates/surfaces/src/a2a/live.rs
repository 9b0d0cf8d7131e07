//! The tokens that the model is streaming, as pieces of the task's one artifact.
//!
//! The first piece of a try takes the place of whatever was sent of the artifact before, further ones come behind it
//! (`append`), and none is the last one: the reply in the log is sent whole, in place of all of them, the same to every
//! reader. Until then nothing says whether a reply is the answer. One that is none, because it calls tools, failed, or was
//! cut off by the end of the task, is taken back: the artifact becomes an empty text. Its words, where there are any, are
//! in the task's messages. A reader that lost a piece, or came in the middle, hears nothing more of that try.

use standfast_engine::Delta;

/// What one reader has got of the reply that is being made.
#[derive(Debug, Default)]
pub(super) struct Live {
    turn: u32,
    /// The number of the next piece; 0 while no try is heard from its beginning.
    next: u32,
    /// Whether something of this try was told.
    has_begun: bool,
    /// Whether the reader has something that may be no answer.
    shows: bool,
}

/// Words that are sent now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    /// Whether they come behind those that were told before.
    pub(super) append: bool,
}

impl Live {
    /// Takes what the model said; `turn` is the one that the log has reached. Says what of it is sent.
    pub(super) fn hear(&mut self, delta: Delta, turn: u32) -> Option<Piece> {
        // Its reply was told already.
        if delta.turn < turn {
            return None;
        }
        if delta.no == 1 {
            *self = Live { turn: delta.turn, next: 1, has_begun: false, shows: self.shows };
        }
        if (delta.turn, delta.no) != (self.turn, self.next) {
            self.next = 0;
            return None;
        }
        self.next = self.next.saturating_add(1);
        if delta.text.is_empty() {
            return None;
        }
        self.shows = true;
        Some(Piece { text: delta.text, append: std::mem::replace(&mut self.has_begun, true) })
    }

    /// The try has ended. Says whether the reader has words of it.
    pub(super) fn end(&mut self) -> bool {
        let had = self.shows;
        *self = Live::default();
        had
    }
}

impl Piece {
    /// This one and the next, told in one.
    pub(super) fn and(before: Option<Piece>, next: Piece) -> Piece {
        match before {
            Some(before) if next.append => Piece { text: before.text + &next.text, ..before },
            Some(_) | None => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::Seq;

    use super::*;

    fn said(turn: u32, no: u32, text: &str) -> Delta {
        Delta { turn, no, after: Seq(1), text: text.to_owned() }
    }

    fn piece(text: &str, append: bool) -> Option<Piece> {
        Some(Piece { text: text.to_owned(), append })
    }

    /// The first piece of a try replaces, the next ones are added; an empty one changes nothing.
    #[test]
    fn pieces_of_a_try_follow_each_other() {
        let mut live = Live::default();
        assert_eq!(live.hear(said(0, 1, ""), 0), None);
        assert!(!Live::default().end(), "nothing was heard");
        assert_eq!(live.hear(said(0, 2, "a"), 0), piece("a", false));
        assert_eq!(live.hear(said(0, 3, "b"), 0), piece("b", true));
        assert_eq!(live.hear(said(0, 1, "c"), 0), piece("c", false), "a new try replaces the old one");
        assert_eq!(live.hear(said(0, 2, "d"), 0), piece("d", true));
        assert!(live.end());
        assert!(!live.end());
        assert_eq!(live.hear(said(1, 1, "e"), 1), piece("e", false));
    }

    /// A reader that lost a piece, came in the middle, or is late gets no half words.
    #[test]
    fn after_a_gap_nothing_is_told_until_the_next_try() {
        let mut live = Live::default();
        assert_eq!(live.hear(said(0, 7, "middle"), 0), None);
        assert_eq!(live.hear(said(0, 8, "still"), 0), None);
        assert!(!live.end());
        assert_eq!(live.hear(said(1, 1, "a"), 1), piece("a", false));
        assert_eq!(live.hear(said(1, 3, "c"), 1), None);
        assert_eq!(live.hear(said(1, 4, "d"), 1), None);
        assert!(live.end(), "what was sent of it is to be taken back");
        assert_eq!(live.hear(said(1, 1, "late"), 2), None);
        assert_eq!(live.hear(said(2, 1, "now"), 2), piece("now", false));
    }

    #[test]
    fn pieces_that_are_there_together_are_told_together() {
        let one = |text: &str, append| piece(text, append).unwrap();
        assert_eq!(Piece::and(None, one("a", true)), one("a", true));
        assert_eq!(Piece::and(piece("a", false), one("b", true)), one("ab", false));
        assert_eq!(Piece::and(piece("a", true), one("b", true)), one("ab", true));
        assert_eq!(Piece::and(piece("a", true), one("new", false)), one("new", false));
    }
}
