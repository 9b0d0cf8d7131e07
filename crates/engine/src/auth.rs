//! Who is calling, and what they may see and decide.
//!
//! A principal comes from a credential, never from what a message claims: `principal.rs` says what it is, `scope_limits.rs` what its scopes are narrowed to, `api_key.rs`
//! how a key becomes one, `identity_provider.rs` who says it of a token, `sign_in_provider.rs` where people sign in, `approvers.rs` whom an agent lets decide,
//! `may_decide.rs` what a principal may see and decide, `further_approvers.rs`
//! who is asked later on, `fresh_sign_in.rs` who must sign in again before they approve. Every surface asks the same functions.

mod api_key;
mod approvers;
mod fresh_sign_in;
mod further_approvers;
mod identity_provider;
mod may_decide;
mod principal;
mod scope_limits;
mod sign_in_provider;

pub use api_key::{ApiKey, KEY_BYTES, KeyEnd, KeyFacts, stands_for};
pub use approvers::{Approvers, RuleApprovers, RuleElectorate, SelfApproval};
pub use fresh_sign_in::{approves, needs_sign_in};
pub use further_approvers::{is_let_in, may_decide_as_well, person};
pub use identity_provider::{IdentityProvider, NotLetIn};
pub use may_decide::{DecisionRight, ToDecide, WhyNot, may_decide, may_log_in, may_see, who_decides};
pub use principal::{BadParty, Identification, Party, Principal, Scope};
pub use scope_limits::{NamedScope, ScopeLimits};
pub use sign_in_provider::{
    AuthorizationCode, AuthorizationRequest, LogoutNotice, ProvenSignIn, SessionClient, SignInError,
    SignInProvider, SignInTerms,
};
