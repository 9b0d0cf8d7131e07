//! Secrets that the server keeps for later: tokens of logins, sealed before they reach the database (T29, T30).
//!
//! The key never is in the database. Column, tenant and name are part of what is sealed, so a row that was moved to another
//! name, tenant or column cannot be opened. What cannot be opened, because the key is another one now, is as good as not there.

use std::fmt;
use std::sync::Arc;

use standfast_core::name::Tenant;
use standfast_store::{SealedChange, Store, StoreError};
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use crate::secrets::SigningKey;

/// The column that its secrets are sealed for.
const COLUMN: &str = "sealed";

/// Keeps secrets.
pub struct Vault {
    store: Arc<dyn Store>,
    tenant: Tenant,
    key: SigningKey,
}

/// A secret, and what it looks like in the store. It is overwritten when it is no longer needed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// The secret.
    pub text: String,
    sealed: String,
}

impl Vault {
    /// A vault in this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, tenant: Tenant, key: SigningKey) -> Vault {
        Vault { store, tenant, key }
    }

    /// Seals a secret under a name, for whoever carries it in between.
    #[must_use]
    pub fn seal(&self, name: &str, text: &str) -> String {
        self.key.seal(COLUMN, &[self.tenant.as_str(), name], text)
    }

    /// Opens what was sealed here under this name; none for anything else.
    #[must_use]
    pub fn open(&self, name: &str, sealed: &str) -> Option<String> {
        self.key.open(COLUMN, &[self.tenant.as_str(), name], sealed)
    }

    /// A secret that is kept.
    pub async fn get(&self, name: &str) -> Result<Option<StoredSecret>, StoreError> {
        let Some(sealed) = self.store.sealed(self.tenant.clone(), name.to_owned()).await? else {
            return Ok(None);
        };
        Ok(self.open(name, &sealed).map(|text| StoredSecret { text, sealed }))
    }

    /// Puts another secret in the place of one, or none. False when it is not what was read any more.
    pub async fn change(
        &self,
        name: &str,
        before: Option<&StoredSecret>,
        after: Option<&str>,
    ) -> Result<bool, StoreError> {
        let change = SealedChange {
            tenant: self.tenant.clone(),
            name: name.to_owned(),
            before: before.map(|kept| kept.sealed.clone()),
            after: after.map(|text| self.seal(name, text)),
        };
        self.store.change_sealed(change).await
    }

    /// Keeps a secret, whatever was there under its name.
    pub async fn put(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let sealed = self.seal(name, text);
        for _ in 0..5 {
            let before = self.store.sealed(self.tenant.clone(), name.to_owned()).await?;
            let (tenant, name) = (self.tenant.clone(), name.to_owned());
            let change = SealedChange { tenant, name, before, after: Some(sealed.clone()) };
            if self.store.change_sealed(change).await? {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable { why: "a secret is being changed by others".into() })
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(..)")
    }
}

impl Drop for StoredSecret {
    fn drop(&mut self) {
        self.text.zeroize();
    }
}

impl ZeroizeOnDrop for StoredSecret {}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept(..)")
    }
}

#[cfg(test)]
mod tests {
    use standfast_store::SecretStore;
    use standfast_store::memory::MemoryStore;

    use super::*;

    fn vault(store: &Arc<MemoryStore>, tenant: &str, key: u8) -> Vault {
        Vault::new(store.clone(), Tenant::new(tenant).unwrap(), SigningKey::new([key; 32]))
    }

    /// T30: under another name, for another tenant, with another key or with a byte changed, nothing is opened.
    #[test]
    fn what_was_sealed_is_opened_in_its_own_place_only() {
        let store = Arc::new(MemoryStore::new());
        let ours = vault(&store, "default", 1);
        let sealed = ours.seal("login", "geheim é");
        assert_eq!(ours.open("login", &sealed).as_deref(), Some("geheim é"));
        assert_ne!(ours.seal("login", "geheim é"), sealed);
        assert!(!sealed.contains("geheim"));
        assert_eq!(ours.open("other", &sealed), None);
        assert_eq!(vault(&store, "acme", 1).open("login", &sealed), None);
        assert_eq!(vault(&store, "default", 2).open("login", &sealed), None);
    }

    /// T30: a row that somebody who can write the database moves to another tenant, to another name or into another column does
    /// not open there, and opens again where it belongs.
    #[tokio::test]
    async fn t30_a_row_that_was_moved_does_not_open() {
        let store = Arc::new(MemoryStore::new());
        let (ours, theirs) = (vault(&store, "default", 1), vault(&store, "acme", 1));
        ours.put("login", "geheim").await.unwrap();
        let sealed = store.sealed(Tenant::new("default").unwrap(), "login".into()).await.unwrap().unwrap();
        for (tenant, name) in [("acme", "login"), ("default", "other")] {
            let (tenant, name) = (Tenant::new(tenant).unwrap(), name.to_owned());
            let change = SealedChange { tenant, name, before: None, after: Some(sealed.clone()) };
            assert!(store.change_sealed(change).await.unwrap());
        }
        assert_eq!(theirs.get("login").await.unwrap(), None);
        assert_eq!(ours.get("other").await.unwrap(), None);
        assert_eq!(ours.get("login").await.unwrap().unwrap().text, "geheim");
        // What a subscription keeps under the same name is sealed for that column.
        let key = SigningKey::new([1; 32]);
        let brought = key.seal("subscriptions", &["default", "login"], "a token");
        assert_eq!(ours.open("login", &brought), None);
        assert_eq!(key.open("subscriptions", &["default", "login"], &sealed), None);
        assert_eq!(key.open("subscriptions", &["default", "login"], &brought).as_deref(), Some("a token"));
    }

    #[tokio::test]
    async fn what_another_key_sealed_is_overwritten() {
        let store = Arc::new(MemoryStore::new());
        let (old, new) = (vault(&store, "default", 1), vault(&store, "default", 2));
        old.put("login", "one").await.unwrap();
        assert_eq!(new.get("login").await.unwrap(), None);
        new.put("login", "two").await.unwrap();
        let kept = new.get("login").await.unwrap().unwrap();
        assert_eq!((kept.text.as_str(), format!("{kept:?}").as_str()), ("two", "Kept(..)"));
        assert!(new.change("login", Some(&kept), Some("three")).await.unwrap());
        assert!(!new.change("login", Some(&kept), None).await.unwrap(), "somebody was faster");
    }
}
