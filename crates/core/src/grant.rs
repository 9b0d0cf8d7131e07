//! Standing approvals as the log keeps them: what an approval saved, and the uses that starts take of it.
//!
//! What a grant covers is the business of the rule language; here it is text that was shown. Each use has a number, and at
//! most one append has it: the guard is the store's, as for `effect.rs`.

use serde::{Deserialize, Serialize};

use crate::digest::{self, Digest};
use crate::id::HoldId;
use crate::json::RawJson;
use crate::name::GrantId;
use crate::time::Timestamp;

/// A standing approval that an approval saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGrant {
    /// Its id.
    pub id: GrantId,
    /// Digest of the rule, as it was shown before.
    pub digest: Digest,
    /// The rule.
    pub rule: RawJson,
    /// How many calls.
    pub uses: u32,
    /// Until when.
    pub until: Timestamp,
}

/// One use of a standing approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantUse {
    /// Which.
    pub grant: GrantId,
    /// Counts its uses, over all runs.
    pub no: u32,
}

impl GrantUse {
    /// The key under which stores keep it.
    #[must_use]
    pub fn stored(&self) -> String {
        format!("grant use {} {}", self.no, self.grant)
    }
}

/// The key that stores keep once a grant is revoked: no start by it is written from then on.
#[must_use]
pub fn revoked_key(grant: &GrantId) -> String {
    format!("grant revoked {grant}")
}

/// The id of the grant that an approval of this hold saves: a hold is decided once, so there is one.
#[must_use]
pub fn id_of(hold: HoldId) -> GrantId {
    let text = digest::of_parts("standfast.grant-id.1", &[hold.to_string().as_bytes()]).to_string();
    match GrantId::new(format!("grant_{}", text.get(..20).unwrap_or(&text))) {
        Ok(id) => id,
        Err(_) => unreachable!("letters and digits are a name"),
    }
}
