//! That somebody's session began or ended: entries of the tenant's audit, without anything that one could sign in with.
//!
//! The start is written before anybody is handed the session, so that there is none of which the audit does not know.

use serde::Serialize;
use standfast_core::name::{Tenant, UserId};
use standfast_store::StoreError;

use super::Log;

/// The entry of a start.
#[derive(Debug, Serialize)]
struct SessionStart<'a> {
    kind: &'static str,
    /// The session's id as its holder is shown it.
    sign_in: &'a str,
    user: &'a UserId,
    /// What they showed: `api_key`, `token`, `sign_in`.
    by: &'a str,
}

/// The entry of an end.
#[derive(Debug, Serialize)]
struct SessionEnd<'a> {
    kind: &'static str,
    sign_in: &'a str,
    why: &'a str,
}

/// Records that a session is about to be handed out.
pub(crate) async fn record_start(
    log: &Log,
    tenant: &Tenant,
    user: &UserId,
    session: &str,
    by: &str,
) -> Result<(), StoreError> {
    let start = SessionStart { kind: "sign_in.began", sign_in: session, user, by };
    let entry = serde_json::to_string(&start).unwrap_or_default();
    log.store.put_audit(tenant.clone(), log.host.clock.now(), entry).await
}

/// Records that a session was ended before its time.
pub(crate) async fn record_end(
    log: &Log,
    tenant: &Tenant,
    session: &str,
    why: &str,
) -> Result<(), StoreError> {
    let end = SessionEnd { kind: "sign_in.ended", sign_in: session, why };
    let entry = serde_json::to_string(&end).unwrap_or_default();
    log.store.put_audit(tenant.clone(), log.host.clock.now(), entry).await
}
