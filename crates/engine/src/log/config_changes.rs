//! That the server goes by another configuration: an entry of the audit of every tenant, with digests of the file before and after it.
//!
//! What stands in the file is not in the entry, as it may have secrets in it. When the file changed is the program's to notice.

use serde::Serialize;
use standfast_core::digest::Digest;
use standfast_core::name::AgentName;
use standfast_store::StoreError;

use super::Log;

/// The entry.
#[derive(Debug, Serialize)]
struct ConfigurationChange<'a> {
    kind: &'static str,
    before: Digest,
    after: Digest,
    /// Those that there are now.
    agents: Vec<&'a AgentName>,
}

/// Records that the server goes by another configuration than before.
pub(crate) async fn record_change(log: &Log, before: Digest, after: Digest) -> Result<(), StoreError> {
    let settings = log.host.settings();
    let agents = settings.agents.keys().collect();
    let change = ConfigurationChange { kind: "config.changed", before, after, agents };
    let entry = serde_json::to_string(&change).unwrap_or_default();
    let now = log.host.clock.now();
    for tenant in log.tenants().await? {
        log.store.put_audit(tenant, now, entry.clone()).await?;
    }
    Ok(())
}
