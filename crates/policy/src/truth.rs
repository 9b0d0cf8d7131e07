//! Three truth values: a condition holds, does not, or cannot be told.
//!
//! What cannot be told never loosens and always tightens: an allow counts only `Yes`, a hold or deny everything but `No`.
//! Knows nothing else.

/// The result of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Truth {
    /// It does not hold.
    No,
    /// The value is missing, of another type, or cannot be read without doubt.
    Unknown,
    /// It holds.
    Yes,
}

impl Truth {
    /// Yes or no.
    #[must_use]
    pub fn of(holds: bool) -> Truth {
        if holds { Truth::Yes } else { Truth::No }
    }

    /// Both hold.
    #[must_use]
    pub fn and(self, other: Truth) -> Truth {
        self.min(other)
    }

    /// One of them holds.
    #[must_use]
    pub fn or(self, other: Truth) -> Truth {
        self.max(other)
    }

    /// The contrary; what cannot be told stays so.
    #[must_use]
    pub fn negated(self) -> Truth {
        match self {
            Truth::No => Truth::Yes,
            Truth::Unknown => Truth::Unknown,
            Truth::Yes => Truth::No,
        }
    }
}
