//! API keys: `sf_<prefix>_<secret>`. What they look like, what is kept of them, whom they stand for.
//!
//! The prefix names a key and is not a secret. Of the secret only a digest is stored, and nothing here prints it. Unknown,
//! expired, revoked and malformed keys are one and the same to a caller: they open nothing.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::name::{GroupName, InboxName, RoleName, Tenant, UserId};
use standfast_core::time::Timestamp;
use standfast_store::Credential;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use super::principal::{Identification, Principal, Scope};
use super::scope_limits::ScopeLimits;

/// Random bytes that a key is made of.
pub const KEY_BYTES: usize = PREFIX_BYTES + SECRET_BYTES;

const PREFIX_BYTES: usize = 5;
/// 200 bits.
const SECRET_BYTES: usize = 25;
/// Enough to tell a typing mistake, or a key from a text that looks like one, without asking the store.
const CHECK_BYTES: usize = 5;
/// Characters of the secret's bytes; those of the check follow.
const SECRET_CHARS: usize = SECRET_BYTES * 8 / 5;

/// A key as its holder has it.
#[derive(Clone)]
pub struct ApiKey {
    prefix: String,
    secret: [u8; SECRET_BYTES],
}

/// Whom a key stands for and what it is for; kept with its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFacts {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user.
    pub user: UserId,
    /// Their groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<GroupName>,
    /// Their roles.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<RoleName>,
    /// What it may be used for.
    pub scopes: BTreeSet<Scope>,
    /// The inboxes that `inbox:work` is for, as keys were kept before other scopes could be narrowed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inboxes: BTreeSet<InboxName>,
    /// What its scopes are narrowed to.
    #[serde(default, skip_serializing_if = "ScopeLimits::is_empty")]
    pub limits: ScopeLimits,
    /// When it was made.
    pub created_at: Timestamp,
}

impl KeyFacts {
    /// What its scopes are narrowed to, whenever it was made.
    #[must_use]
    pub fn all_limits(&self) -> ScopeLimits {
        let mut limits = self.limits.clone();
        self.inboxes.iter().for_each(|inbox| limits.narrow(Scope::InboxWork, inbox.as_str()));
        limits
    }
}

impl ApiKey {
    /// A key made of these random bytes.
    #[must_use]
    pub fn new(random: [u8; KEY_BYTES]) -> ApiKey {
        let (prefix, rest) = random.split_at(PREFIX_BYTES);
        let mut secret = [0; SECRET_BYTES];
        secret.copy_from_slice(rest);
        ApiKey { prefix: base32::encode(prefix), secret }
    }

    /// Reads a key; none when it cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<ApiKey> {
        let (prefix, secret) = text.strip_prefix("sf_")?.split_once('_')?;
        base32::decode::<PREFIX_BYTES>(prefix)?;
        let (secret, check) = secret.split_at_checked(SECRET_CHARS)?;
        let key = ApiKey { prefix: prefix.to_owned(), secret: base32::decode(secret)? };
        (base32::decode(check)? == key.check()).then_some(key)
    }

    /// The whole key. It is shown once, to whoever makes it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("sf_{}_{}{}", self.prefix, base32::encode(&self.secret), base32::encode(&self.check()))
    }

    /// The part that names it and is not a secret.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What is kept of it.
    pub fn credential(
        &self,
        tenant: Tenant,
        facts: &KeyFacts,
        expires_at: Option<Timestamp>,
    ) -> serde_json::Result<Credential> {
        let (prefix, facts) = (self.prefix.clone(), serde_json::to_string(facts)?);
        Ok(Credential { tenant, prefix, hash: self.hash(), facts, expires_at, revoked_at: None })
    }

    /// Whom it stands for at this instant, by what is kept; none when it opens nothing (any more).
    #[must_use]
    pub fn opens(&self, kept: &Credential, now: Timestamp) -> Option<Principal> {
        if !is_same(self.hash(), kept.hash) || kept.prefix != self.prefix {
            return None;
        }
        stands_for(kept, now).ok()
    }

    /// A plain digest, without the slowness that passwords need: nobody can try out 200 random bits, so there is
    /// nothing to slow down, and every request pays for it.
    fn hash(&self) -> Digest {
        digest::of_parts("standfast.api-key.1", &[self.prefix.as_bytes(), &self.secret])
    }

    fn check(&self) -> [u8; CHECK_BYTES] {
        let Digest([a, b, c, d, e, ..]) =
            digest::of_parts("standfast.api-key-check.1", &[self.prefix.as_bytes(), &self.secret]);
        [a, b, c, d, e]
    }
}

/// Why a key that is kept opens nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyEnd {
    /// Somebody ended it.
    #[error("was revoked")]
    Revoked,
    /// It ended by itself.
    #[error("has expired")]
    Expired,
    /// What is kept of it cannot be read.
    #[error("cannot be read")]
    Unreadable,
}

/// Whom a key stands for at this instant, by what is kept of it: for whoever has seen the key before.
pub fn stands_for(kept: &Credential, now: Timestamp) -> Result<Principal, KeyEnd> {
    if kept.revoked_at.is_some() {
        return Err(KeyEnd::Revoked);
    }
    if kept.expires_at.is_some_and(|at| at <= now) {
        return Err(KeyEnd::Expired);
    }
    let facts: KeyFacts = serde_json::from_str(&kept.facts).map_err(|error| {
        tracing::warn!(prefix = kept.prefix, %error, "auth: a stored API key is unreadable and is ignored");
        KeyEnd::Unreadable
    })?;
    let limits = facts.all_limits();
    let KeyFacts { user, groups, roles, scopes, .. } = facts;
    let by = Identification::ApiKey { prefix: kept.prefix.clone() };
    Ok(Principal { tenant: kept.tenant.clone(), user, groups, roles, scopes, limits, by })
}

impl Drop for ApiKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl ZeroizeOnDrop for ApiKey {}

/// Never the secret.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sf_{}_…", self.prefix)
    }
}

/// Looks at every byte whatever differs, so that the time taken tells nothing (T9).
fn is_same(Digest(a): Digest, Digest(b): Digest) -> bool {
    a.iter().zip(b).fold(0u8, |seen, (a, b)| seen | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> ApiKey {
        let mut next = byte;
        ApiKey::new([(); KEY_BYTES].map(|()| {
            next += 7;
            next
        }))
    }

    fn facts() -> KeyFacts {
        KeyFacts {
            name: Some("laptop".into()),
            user: UserId::new("ann").unwrap(),
            groups: BTreeSet::from([GroupName::new("finance").unwrap()]),
            roles: BTreeSet::from([RoleName::new("lead").unwrap()]),
            scopes: BTreeSet::from([Scope::RunsRead]),
            inboxes: BTreeSet::new(),
            limits: ScopeLimits::default(),
            created_at: Timestamp(1),
        }
    }

    fn kept() -> Credential {
        key(3).credential(Tenant::new("acme").unwrap(), &facts(), None).unwrap()
    }

    #[test]
    fn a_key_is_read_as_it_was_shown() {
        let text = key(3).reveal();
        assert_eq!(text.len(), "sf_12345678_".len() + 48);
        assert_eq!(ApiKey::parse(&text).unwrap().reveal(), text);
        assert_eq!(format!("{:?}", key(3)), format!("sf_{}_…", key(3).prefix()));
    }

    /// Also with every single character changed: the check says so before anyone is asked.
    #[test]
    fn what_is_no_key_is_told_at_once() {
        let text = key(3).reveal();
        for at in 0..text.len() {
            let other = if text.as_bytes()[at] == b'7' { "8" } else { "7" };
            let mut changed = text.clone();
            changed.replace_range(at..=at, other);
            assert!(ApiKey::parse(&changed).is_none(), "{changed}");
            assert!(ApiKey::parse(&text[..at]).is_none());
        }
        for text in
            ["", "sf_", "sf__", "sf_é_é", &format!("{text}0"), &text.to_uppercase(), &format!(" {text}")]
        {
            assert!(ApiKey::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_key_stands_for_whom_it_was_made() {
        let who = key(3).opens(&kept(), Timestamp(5)).unwrap();
        let KeyFacts { user, groups, roles, scopes, limits, .. } = facts();
        let by = Identification::ApiKey { prefix: key(3).prefix().to_owned() };
        assert_eq!(
            who,
            Principal { tenant: Tenant::new("acme").unwrap(), user, groups, roles, scopes, limits, by }
        );
    }

    #[test]
    fn what_is_kept_says_nothing_of_the_secret() {
        let kept = format!("{:?}", kept());
        let secret = base32::encode(&key(3).secret);
        assert!(!kept.contains(&secret[..8]), "{kept}");
    }

    #[test]
    fn a_key_that_is_over_unknown_or_unreadable_opens_nothing() {
        let at = |n| Some(Timestamp(n));
        for (case, kept) in [
            ("another secret", Credential { hash: key(4).hash(), ..kept() }),
            ("another prefix", Credential { prefix: "00000000".into(), ..kept() }),
            ("expired", Credential { expires_at: at(10), ..kept() }),
            ("revoked", Credential { revoked_at: at(10), ..kept() }),
            ("revoked later", Credential { revoked_at: at(99), ..kept() }),
            ("unreadable", Credential { facts: "{".into(), ..kept() }),
            ("nobody", Credential { facts: "{}".into(), ..kept() }),
            (
                "an unknown scope",
                Credential { facts: kept().facts.replace("runs:read", "runs:all"), ..kept() },
            ),
        ] {
            assert_eq!(key(3).opens(&kept, Timestamp(10)), None, "{case}");
        }
        assert!(key(3).opens(&Credential { expires_at: at(11), ..kept() }, Timestamp(10)).is_some());
    }

    /// Guesses as somebody would make them who knows what a key looks like and its prefix: the same for every run.
    fn guesses<const N: usize>(count: u64) -> impl Iterator<Item = [u8; N]> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..count).map(move |_| {
            let mut bytes = [0; N];
            for chunk in bytes.chunks_mut(8) {
                let word = next();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
            bytes
        })
    }

    /// T9: a million well-formed keys with the right prefix open nothing; the right one still does. Nobody can make them that
    /// fast: whoever fails often is answered 429.
    #[test]
    fn t9_a_million_guesses_open_nothing() {
        let kept = kept();
        let prefix = base32::decode::<PREFIX_BYTES>(key(3).prefix()).unwrap();
        for secret in guesses::<SECRET_BYTES>(1_000_000) {
            let mut random = [0; KEY_BYTES];
            random[..PREFIX_BYTES].copy_from_slice(&prefix);
            random[PREFIX_BYTES..].copy_from_slice(&secret);
            assert_eq!(ApiKey::new(random).opens(&kept, Timestamp(5)), None);
        }
        assert!(key(3).opens(&kept, Timestamp(5)).is_some());
    }

    /// T9: of a million random texts of the right length none is even a key.
    #[test]
    fn t9_a_million_texts_are_no_keys() {
        let prefix = key(3).prefix().to_owned();
        let are_keys = guesses::<30>(1_000_000)
            .filter(|bytes| ApiKey::parse(&format!("sf_{prefix}_{}", base32::encode(bytes))).is_some());
        assert_eq!(are_keys.count(), 0);
    }
}
