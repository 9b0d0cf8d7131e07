//! Secrets that others gave to this server, kept in the database so that the database alone does not give them away.
//!
//! AES-256 in GCM under a key that is made from the key of webhooks. What a text belongs to is bound to it: a sealed text
//! that is moved to another row, tenant or column does not open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use standfast_core::digest;

use super::SigningKey;
use crate::clock;

impl SigningKey {
    /// Seals a text for this column and owner.
    pub(crate) fn seal(&self, column: &str, owner: &[&str], text: &str) -> String {
        let nonce = clock::random_bytes::<NONCE_LEN>();
        let mut bytes = text.as_bytes().to_vec();
        let sealed = self.sealing_key().seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            bound_to(Some(column), owner),
            &mut bytes,
        );
        if sealed.is_err() {
            unreachable!("a text of this size can be sealed");
        }
        BASE64_STANDARD_NO_PAD.encode([nonce.as_slice(), &bytes].concat())
    }

    /// Opens what was sealed for this column and owner under this key or one before it; none for anything else.
    pub(crate) fn open(&self, column: &str, owner: &[&str], sealed: &str) -> Option<String> {
        self.each().find_map(|key| key.open_alone(column, owner, sealed))
    }

    fn open_alone(&self, column: &str, owner: &[&str], sealed: &str) -> Option<String> {
        let bytes = BASE64_STANDARD_NO_PAD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        // Older versions sealed for the owner alone.
        [Some(column), None].into_iter().find_map(|column| {
            let mut rest = rest.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let text = self.sealing_key().open_in_place(nonce, bound_to(column, owner), &mut rest).ok()?;
            String::from_utf8(text.to_vec()).ok()
        })
    }

    fn sealing_key(&self) -> LessSafeKey {
        match UnboundKey::new(&AES_256_GCM, &self.derived("standfast.seal.1")) {
            Ok(key) => LessSafeKey::new(key),
            Err(_) => unreachable!("the key has 32 bytes"),
        }
    }
}

fn bound_to(column: Option<&str>, owner: &[&str]) -> Aad<[u8; 32]> {
    let what = if column.is_some() { "standfast.sealed.2" } else { "standfast.sealed.1" };
    let parts: Vec<&[u8]> = column.iter().chain(owner).map(|part| part.as_bytes()).collect();
    Aad::from(digest::of_parts(what, &parts).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T30: under another key, for another owner, or changed, it does not open.
    #[test]
    fn only_its_owner_opens_it() {
        let key = SigningKey::new([7; 32]);
        let sealed = key.seal("column", &["tenant", "config"], "a secret");
        assert!(!sealed.contains("secret"));
        assert_eq!(key.open("column", &["tenant", "config"], &sealed).as_deref(), Some("a secret"));
        assert_ne!(sealed, key.seal("column", &["tenant", "config"], "a secret"), "each seal is another one");
        assert_eq!(key.open("column", &["tenant", "another"], &sealed), None);
        assert_eq!(key.open("column", &["tenantconfig"], &sealed), None);
        let other = SigningKey::new([8; 32]);
        assert_eq!(other.open("column", &["tenant", "config"], &sealed), None);
        // T30: after a rotation the new key opens it too, and what it seals the old one does not open.
        let rotated = other.after([key.clone()]);
        assert_eq!(rotated.open("column", &["tenant", "config"], &sealed).as_deref(), Some("a secret"));
        let resealed = rotated.seal("column", &["tenant", "config"], "a secret");
        assert_eq!(key.open("column", &["tenant", "config"], &resealed), None);
        for changed in [sealed.to_uppercase(), String::new(), "short".into(), format!("{sealed}AAAA")] {
            assert_eq!(key.open("column", &["tenant", "config"], &changed), None, "{changed}");
        }
    }
}
