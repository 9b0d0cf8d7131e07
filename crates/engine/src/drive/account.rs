//! Under what name the logins of a run's owner are kept.
//!
//! Users of the same name in two tenants are two people; the name says so.

use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::name::{Tenant, UserId};
use standfast_core::run::Facts;

/// Under what name the logins of a run's owner are kept: users of the same name in two tenants are two people.
pub(crate) fn account(facts: &Facts) -> UserId {
    let (tenant, owner) = (&facts.tenant, &facts.owner);
    if *tenant == Tenant::default_tenant() {
        return owner.clone();
    }
    let parts = [tenant.as_str().as_bytes(), owner.as_str().as_bytes()];
    let Digest(bytes) = digest::of_parts("standfast.account.1", &parts);
    let tag = base32::encode(bytes.get(..15).unwrap_or_default());
    // A name that would be too long is told by its tag alone.
    UserId::new(format!("{owner} of {tenant} ({tag})")).unwrap_or_else(|_| match UserId::new(tag) {
        Ok(account) => account,
        Err(bad) => unreachable!("24 letters and digits are a name: {bad}"),
    })
}
