//! The server's own key, and what is made from it: signatures of webhooks (`sign.rs`), sealed texts (`seal.rs`); and
//! the keys of approval links (`link.rs`) and of links to accounts in chats (`account_link.rs`), which are others.
//!
//! Below the engine and the vault, which both use it. Knows no receiver, no store and no configuration.

mod account_link;
mod link;
mod seal;
mod sign;

use std::fmt;

use zeroize::{Zeroize as _, ZeroizeOnDrop};

pub use account_link::{AccountLink, AccountLinkKey, channel_of};
pub use link::{ApprovalLink, LinkKeys};
pub use sign::{SigningKey, SigningSecret, seconds, signature};

/// A text that nobody is shown, and that is overwritten when it is no longer needed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Keeps this.
    #[must_use]
    pub fn new(text: String) -> SecretText {
        SecretText(text)
    }

    /// The text, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for SecretText {}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ApiKey;
    use crate::settings::ChannelSecret;
    use crate::tool::secrets::Secrets;
    use crate::vault::StoredSecret;

    fn is_wiped<T: ZeroizeOnDrop>() -> &'static str {
        std::any::type_name::<T>()
    }

    /// T29: whatever keeps a secret for longer overwrites it at its end: that this compiles is the test. A new one belongs here.
    #[test]
    fn t29_whatever_keeps_a_secret_overwrites_it() {
        let all = [
            is_wiped::<SecretText>(),
            is_wiped::<SigningKey>(),
            is_wiped::<SigningSecret>(),
            is_wiped::<LinkKeys>(),
            is_wiped::<AccountLinkKey>(),
            is_wiped::<StoredSecret>(),
            is_wiped::<ChannelSecret>(),
            is_wiped::<ApiKey>(),
            is_wiped::<Secrets>(),
        ];
        assert!(all.iter().all(|name| std::mem::size_of_val(*name) > 0));
        assert_eq!(format!("{:?}", SecretText::new("geheim".into())), "SecretText(..)");
    }
}
