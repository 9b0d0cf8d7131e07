//! Under what name the logins of a run's owner are kept.
//!
//! How a name is made of tenant and user is `tool/login.rs`; a gateway has no run and asks there.

use standfast_core::name::UserId;
use standfast_core::run::Facts;

use crate::tool::login;

/// Under what name the logins of a run's owner are kept.
pub(crate) fn account(facts: &Facts) -> UserId {
    login::account(&facts.tenant, &facts.owner)
}
