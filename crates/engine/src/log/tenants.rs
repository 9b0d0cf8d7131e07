//! Which tenants there are: made by their first run, never configured.
//!
//! Work that nobody asks for (erasing, looking out, serving inboxes) is done for all of them. An id of a run has a tag of its
//! tenant, so a run whose row is not at hand is identified by that.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use standfast_core::id::{RunId, tenant_tag};
use standfast_core::name::Tenant;
use standfast_store::StoreError;

use super::Log;

/// The tenants that this node knows, by their tags.
#[derive(Debug, Default)]
pub(crate) struct Tenants(RwLock<BTreeMap<u32, Tenant>>);

impl Log {
    /// All tenants: those that have runs, and the one of the server.
    pub(crate) async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let stored = self.store.tenants().await?;
        let mut known = self.tenants.0.write().unwrap_or_else(PoisonError::into_inner);
        for tenant in stored.into_iter().chain([self.host.fixed.tenant.clone()]) {
            known.insert(tenant_tag(&tenant), tenant);
        }
        Ok(known.values().cloned().collect())
    }

    /// The tenants that this node knows so far.
    pub(crate) fn known_tenants(&self) -> Vec<Tenant> {
        let known = self.tenants.0.read().unwrap_or_else(PoisonError::into_inner);
        let own = self.host.fixed.tenant.clone();
        let others = known.values().filter(|tenant| **tenant != own).cloned();
        std::iter::once(own.clone()).chain(others).collect()
    }

    /// Somebody of this tenant begins a run.
    pub(crate) fn heard_of(&self, tenant: &Tenant) {
        let tag = tenant_tag(tenant);
        let is_known = self.tenants.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&tag);
        if !is_known {
            self.tenants.0.write().unwrap_or_else(PoisonError::into_inner).insert(tag, tenant.clone());
        }
    }

    /// Finds out whose a run is, if this node does not know its tenant: other nodes may have begun it.
    pub(crate) async fn hear_of_tenant(&self, run: RunId) -> Result<(), StoreError> {
        let is_known = |known: &BTreeMap<u32, Tenant>| known.contains_key(&run.tenant_tag());
        if is_known(&self.tenants.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        if let Some(facts) = self.store.facts(run).await? {
            self.heard_of(&facts.tenant);
        }
        Ok(())
    }

    /// Whose a run is, by its id. The tenant of the server for one that is unknown here.
    pub(crate) fn tenant_of(&self, run: RunId) -> Tenant {
        let known = self.tenants.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&run.tenant_tag()).cloned().unwrap_or_else(|| self.host.fixed.tenant.clone())
    }
}
