//! Who is calling, and what they may see and decide.
//!
//! A principal comes from a credential, never from what a message claims: `principal.rs` says what it is, `api_key.rs`
//! how a key becomes one, `identity_provider.rs` who says it of a token, `approvers.rs` whom an agent lets decide,
//! `may_decide.rs` what a principal may see and decide, `as_well.rs`
//! who is asked later on. Every surface asks the same functions.

mod api_key;
mod approvers;
mod as_well;
mod identity_provider;
mod may_decide;
mod principal;

pub use api_key::{ApiKey, KEY_BYTES, KeyEnd, KeyFacts, stands_for};
pub use approvers::{Approvers, RuleApprovers, RuleElectorate, SelfApproval};
pub use as_well::{is_let_in, may_decide_as_well, person};
pub use identity_provider::{IdentityProvider, NotLetIn};
pub use may_decide::{Standing, ToDecide, WhyNot, may_decide, may_log_in, may_see, who_decides};
pub use principal::{BadParty, Identification, Party, Principal, Scope};
