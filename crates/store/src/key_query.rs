//! Which keys are listed: those of a tenant that begin with a text, the last first, in pages.
//!
//! What keys are for is not its business: `batch.rs` writes them, `contract.rs` says what may be asked of them.

use standfast_core::name::Tenant;

/// Which keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyQuery {
    /// Whose.
    pub tenant: Tenant,
    /// What they begin with: at least one sign, and the last one of ASCII.
    pub prefix: String,
    /// Only those that come before this one: the last of the page before.
    pub before: Option<String>,
    /// How many at most.
    pub limit: usize,
}

impl KeyQuery {
    /// What all of them come before.
    #[must_use]
    pub(crate) fn end(&self) -> String {
        if let Some(before) = &self.before {
            return before.clone();
        }
        let mut end = self.prefix.clone();
        let last = end.pop().unwrap_or(' ');
        end.push(char::from_u32(u32::from(last) + 1).unwrap_or(char::MAX));
        end
    }
}
