//! Which file has what.
//!
//! What belongs to the tenant `default` stands at the top, as the async-tool design names it; what belongs to another
//! tenant stands below `tenant/{name}`. Runs and calls have ids of their own and need no tenant.

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::Tenant;

use super::folder::{bounded, file_name};
use crate::query::SessionKey;

/// Where the files of runs are.
pub(super) const RUNS: &str = "run";
/// Where the files of tenants other than `default` are.
pub(super) const TENANTS: &str = "tenant";
/// Idempotency keys, one change a line.
pub(super) const KEYS: &str = "keys.jsonl";
/// Counters, one change a line.
pub(super) const COUNTERS: &str = "counters.jsonl";
/// Notices and dead letters, one change a line.
pub(super) const NOTICES: &str = "notices.jsonl";

/// The row of a run.
pub(super) fn row(run: RunId) -> String {
    format!("{RUNS}/{run}.json")
}

/// The log of a run.
pub(super) fn log(run: RunId) -> String {
    format!("{RUNS}/{run}.jsonl")
}

/// The large values of a run.
pub(super) fn blobs(run: RunId) -> String {
    format!("blob/{run}")
}

/// A large value.
pub(super) fn blob(run: RunId, digest: Digest) -> String {
    format!("{}/{digest}.txt", blobs(run))
}

/// What stands before the files of a tenant.
pub(super) fn base(tenant: &Tenant) -> String {
    if *tenant == Tenant::default_tenant() {
        String::new()
    } else {
        format!("{TENANTS}/{}/", file_name(tenant.as_str()))
    }
}

/// A definition; in hex digits when it is not text.
pub(super) fn definition(tenant: &Tenant, digest: Digest, ending: &str) -> String {
    format!("{}definition/{digest}.{ending}", base(tenant))
}

/// A call of an outside job.
pub(super) fn call(tenant: &Tenant, hold: HoldId) -> String {
    format!("{}pending_tool/{hold}.json", base(tenant))
}

/// Where calls are found by what.
pub(super) fn call_index(tenant: &Tenant) -> String {
    format!("{}pending_tool/index.json", base(tenant))
}

/// The conversation of whoever used its name first.
pub(super) fn session(key: &SessionKey) -> String {
    let (agent, session) = (file_name(key.agent.as_str()), file_name(key.session.as_str()));
    format!("{}session/{agent}/{session}.json", base(&key.tenant))
}

/// The conversation of a later user of the same name.
pub(super) fn session_of(key: &SessionKey) -> String {
    let (agent, session) = (file_name(key.agent.as_str()), file_name(key.session.as_str()));
    let name = bounded(format!("{session}~{}", file_name(key.owner.as_str())));
    format!("{}session/{agent}/{name}.json", base(&key.tenant))
}

/// A subscription.
pub(super) fn subscription(tenant: &Tenant, id: &str) -> String {
    format!("{}subscription/{}.json", base(tenant), file_name(id))
}

/// A sealed secret.
pub(super) fn sealed(tenant: &Tenant, name: &str) -> String {
    format!("{}sealed/{}.json", base(tenant), file_name(name))
}

/// The audit of a tenant.
pub(super) fn audit(tenant: &Tenant) -> String {
    format!("{}audit.jsonl", base(tenant))
}

/// A credential.
pub(super) fn credential(prefix: &str) -> String {
    format!("credential/{}.json", file_name(prefix))
}
