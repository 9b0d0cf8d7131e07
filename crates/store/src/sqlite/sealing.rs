//! Sealing of payloads: AES-256 in GCM under a key of each run, which is wrapped by a key that is not in the database.
//!
//! What is sealed is bound to its place: tenant, column, run and row. Moved to another one it does not open, and neither does
//! what was changed. Knows bytes and keys; where the keys are kept is `payload_keys.rs`, which columns are sealed `append.rs`.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use standfast_core::digest;
use standfast_core::id::RunId;
use zeroize::Zeroizing;

/// Random bytes that nobody can guess.
pub type Random = fn() -> [u8; 32];

/// What sealed bytes begin with: how they are sealed.
const FORMAT: u8 = 1;

/// What a wrapping key seals to be known again.
const CHECK: &[u8] = b"standfast payload keys";

/// A key that wraps the keys of runs. It is in no database.
pub struct WrappingKey {
    id: String,
    key: LessSafeKey,
}

impl WrappingKey {
    /// A key under its id.
    #[must_use]
    pub fn new(id: impl Into<String>, bytes: &[u8; 32]) -> WrappingKey {
        WrappingKey { id: id.into(), key: key_of(bytes) }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key of a run, for the file of keys.
    pub(super) fn wrap(&self, run: RunId, secret: &RunSecret, random: Random) -> Vec<u8> {
        seal(&self.key, self.bound_to(run, &secret.tenant, secret.no), &secret.bytes[..], random)
    }

    /// The key of a run; none when this key did not wrap it for this run and tenant.
    pub(super) fn unwrap(&self, run: RunId, tenant: &str, no: KeyNo, wrapped: &[u8]) -> Option<RunSecret> {
        let opened = open(&self.key, self.bound_to(run, tenant, no), wrapped)?;
        let mut bytes = Zeroizing::new([0; 32]);
        if opened.len() != bytes.len() {
            return None;
        }
        bytes.copy_from_slice(&opened);
        Some(RunSecret { tenant: tenant.to_owned(), no, bytes })
    }

    fn bound_to(&self, run: RunId, tenant: &str, no: KeyNo) -> Aad<[u8; 32]> {
        let parts: [&[u8]; 4] = [self.id.as_bytes(), tenant.as_bytes(), run.bytes(), &no];
        Aad::from(digest::of_parts("standfast.payload-key.1", &parts).0)
    }

    /// Something by which the same key is known again.
    pub(super) fn check(&self, random: Random) -> Vec<u8> {
        seal(
            &self.key,
            Aad::from(digest::of_parts("standfast.wrapping-key.1", &[self.id.as_bytes()]).0),
            CHECK,
            random,
        )
    }

    /// Whether this is the key that made the check.
    pub(super) fn is_that_of(&self, check: &[u8]) -> bool {
        let bound = Aad::from(digest::of_parts("standfast.wrapping-key.1", &[self.id.as_bytes()]).0);
        open(&self.key, bound, check).is_some_and(|opened| *opened == CHECK)
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappingKey({})", self.id)
    }
}

/// What names the key of a run: in each of its sealed payloads.
pub(super) type KeyNo = [u8; 8];

/// The key of a run before anything is made of it.
pub(super) struct RunSecret {
    pub(super) tenant: String,
    pub(super) no: KeyNo,
    bytes: Zeroizing<[u8; 32]>,
}

impl RunSecret {
    pub(super) fn new(tenant: &str, random: Random) -> RunSecret {
        let mut no = KeyNo::default();
        no.iter_mut().zip(random()).for_each(|(to, from)| *to = from);
        RunSecret { tenant: tenant.to_owned(), no, bytes: Zeroizing::new(random()) }
    }
}

/// The key that the payloads of a run are sealed with.
pub(super) struct RunKey {
    tenant: String,
    no: KeyNo,
    key: LessSafeKey,
}

impl From<RunSecret> for RunKey {
    fn from(RunSecret { tenant, no, bytes }: RunSecret) -> RunKey {
        RunKey { key: key_of(&bytes), tenant, no }
    }
}

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunKey(..)")
    }
}

/// Where a payload is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) run: RunId,
    pub(super) column: &'static str,
    /// What names the row within the run.
    pub(super) row: &'a [&'a [u8]],
}

impl RunKey {
    /// Seals a payload for its place.
    pub(super) fn seal(&self, place: Place<'_>, payload: &[u8], random: Random) -> Vec<u8> {
        let mut sealed = vec![FORMAT];
        sealed.extend(self.no);
        sealed.extend(seal(&self.key, self.bound_to(place), payload, random));
        sealed
    }

    /// Opens a payload in its place; otherwise says why not.
    pub(super) fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let column = place.column;
        let Some((FORMAT, rest)) = sealed.split_first().map(|(format, rest)| (*format, rest)) else {
            return Err(format!("{column} is sealed in a way that this version does not know"));
        };
        let rest = match rest.split_first_chunk() {
            Some((no, rest)) if *no == self.no => rest,
            Some(_) | None => return Err(format!("{column} is sealed with a key of another run")),
        };
        open(&self.key, self.bound_to(place), rest)
            .ok_or_else(|| format!("{column} does not open: it was changed, or moved from another place"))
    }

    fn bound_to(&self, place: Place<'_>) -> Aad<[u8; 32]> {
        let fixed: [&[u8]; 3] = [self.tenant.as_bytes(), place.column.as_bytes(), place.run.bytes()];
        let parts: Vec<&[u8]> = fixed.into_iter().chain(place.row.iter().copied()).collect();
        Aad::from(digest::of_parts("standfast.payload.1", &parts).0)
    }

    /// Whose run it is.
    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }
}

fn key_of(bytes: &[u8; 32]) -> LessSafeKey {
    match UnboundKey::new(&AES_256_GCM, bytes) {
        Ok(key) => LessSafeKey::new(key),
        Err(_) => unreachable!("the key has 32 bytes"),
    }
}

fn seal(key: &LessSafeKey, bound: Aad<[u8; 32]>, plain: &[u8], random: Random) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    nonce.iter_mut().zip(random()).for_each(|(to, from)| *to = from);
    let mut bytes = plain.to_vec();
    let sealed = key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut bytes);
    if sealed.is_err() {
        unreachable!("a payload of this size can be sealed");
    }
    [nonce.as_slice(), &bytes].concat()
}

fn open(key: &LessSafeKey, bound: Aad<[u8; 32]>, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut bytes = Zeroizing::new(rest.to_vec());
    let length = key.open_in_place(Nonce::assume_unique_for_key(*nonce), bound, &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    fn random() -> [u8; 32] {
        static DRAWN: AtomicU8 = AtomicU8::new(0);
        [DRAWN.fetch_add(1, Ordering::Relaxed); 32]
    }

    fn run(no: u8) -> RunId {
        RunId::from_bytes([no; 16])
    }

    fn place<'a>(no: u8, column: &'static str, row: &'a [&'a [u8]]) -> Place<'a> {
        Place { run: run(no), column, row }
    }

    /// T30: in another column, row or run, under another key, or with a byte changed, a payload does not open.
    #[test]
    fn a_payload_opens_in_its_own_place_only() {
        let secret = RunSecret::new("acme", random);
        let wrapping = WrappingKey::new("k1", &[7; 32]);
        let wrapped = wrapping.wrap(run(1), &secret, random);
        let unwrapped = wrapping.unwrap(run(1), "acme", secret.no, &wrapped).unwrap();
        let (no, key, same) = (secret.no, RunKey::from(secret), RunKey::from(unwrapped));
        let sealed = key.seal(place(1, "payload", &[b"1"]), b"geheim", random);
        assert_eq!(**same.open(place(1, "payload", &[b"1"]), &sealed).unwrap(), *b"geheim");
        for elsewhere in
            [place(2, "payload", &[b"1"]), place(1, "value", &[b"1"]), place(1, "payload", &[b"2"])]
        {
            assert!(key.open(elsewhere, &sealed).is_err(), "{elsewhere:?}");
        }
        assert!(wrapping.unwrap(run(2), "acme", no, &wrapped).is_none(), "of another run");
        assert!(wrapping.unwrap(run(1), "other", no, &wrapped).is_none(), "of another tenant");
        let other = WrappingKey::new("k1", &[8; 32]);
        assert!(other.unwrap(run(1), "acme", no, &wrapped).is_none());
        assert!(wrapping.is_that_of(&wrapping.check(random)) && !other.is_that_of(&wrapping.check(random)));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open(place(1, "payload", &[b"1"]), &changed).is_err(), "byte {at}");
        }
        assert!(key.open(place(1, "payload", &[b"1"]), b"").is_err());
    }
}
