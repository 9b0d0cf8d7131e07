//! That an approval link was issued: an entry of the tenant's audit, for whom and by whom, without the link.
//!
//! Written before anybody is handed the link, so that there is none of which the audit does not know.

use serde::Serialize;
use standfast_core::digest::Digest;
use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::time::Timestamp;
use standfast_store::StoreError;

use super::Log;
use crate::secrets::ApprovalLink;

/// The entry.
#[derive(Debug, Serialize)]
struct LinkRecord<'a> {
    kind: &'static str,
    hold: HoldId,
    revision: u32,
    digest: Option<Digest>,
    #[serde(rename = "for")]
    audience: &'a UserId,
    expires_at: Timestamp,
    /// Who had it issued, or the channel that sends it.
    by: &'a str,
}

impl Log {
    /// Records that a link is about to be handed out.
    pub(crate) async fn record_link(&self, link: &ApprovalLink, by: &str) -> Result<(), StoreError> {
        let record = LinkRecord {
            kind: "link.issued",
            hold: link.hold,
            revision: link.revision,
            digest: link.digest,
            audience: &link.audience,
            expires_at: link.expires_at,
            by,
        };
        let entry = serde_json::to_string(&record).unwrap_or_default();
        self.store.put_audit(link.tenant.clone(), self.host.clock.now(), entry).await
    }
}
