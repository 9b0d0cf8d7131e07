//! Who is calling, and what they may see and decide.
//!
//! A principal comes from a credential, never from what a message claims: `principal.rs` says what it is, `api_key.rs`
//! how a key becomes one, `jwt.rs` how a token of an identity provider does (`jwks.rs` its keys, `issuer.rs` when they are
//! fetched), `may_decide.rs` what it may see and decide. Every surface asks the same functions.

mod api_key;
mod approvers;
mod issuer;
mod jwks;
mod jwt;
mod may_decide;
mod principal;

pub use api_key::{ApiKey, KEY_BYTES, KeyEnd, KeyFacts, stands_for};
pub use approvers::{Approvers, SelfApproval};
pub use issuer::{BadIssuer, Issuer, IssuerSettings, NotLetIn, TRY_AGAIN};
pub use jwks::{BadAddress, keys_address};
pub use jwt::{MAX_TOKEN, Refused, TokenRules};
pub use may_decide::{ToDecide, may_decide, may_log_in, may_see};
pub use principal::{BadParty, Identification, Party, Principal, Scope};
