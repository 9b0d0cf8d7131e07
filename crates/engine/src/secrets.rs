//! The server's own key, and what is made from it: signatures of webhooks (`sign.rs`), sealed texts (`seal.rs`); and
//! the keys of approval links (`link.rs`) and of links to accounts in chats (`account_link.rs`), which are others.
//!
//! Below the engine and the vault, which both use it. Knows no receiver, no store and no configuration.

mod account_link;
mod link;
mod seal;
mod sign;

pub use account_link::{AccountLink, AccountLinkKey, channel_of};
pub use link::{ApprovalLink, LinkKeys};
pub use sign::{SigningKey, SigningSecret, seconds, signature};
