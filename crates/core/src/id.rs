//! Ids that Standfast makes, each with a prefixed text form.
//!
//! Ids route themselves: a run id carries a tag of its tenant and the kind of store it lives in, and the ids of its
//! calls, messages, holds and requests begin with the run. So a callback that knows only a hold id finds tenant,
//! shard and row without a search. See docs/adr/0003-ids-route-themselves.md.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base32;
pub use crate::base32::BadId;
use crate::base32::from_text;
use crate::digest::{self, Digest};
use crate::name::{SessionId, Tenant};
use crate::time::Timestamp;

/// Position of an event in its run: 1, 2, 3 … without gaps. 0 stands for "before the first".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position `n` events later.
    #[must_use]
    pub fn plus(self, n: usize) -> Seq {
        Seq(self.0.saturating_add(n as u64))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a call within its run, from 1. Number 0 is the run itself, for holds that concern no single call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallNo(pub u32);

impl CallNo {
    /// The run itself.
    pub const RUN: CallNo = CallNo(0);
}

impl fmt::Display for CallNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One of 256 parts of the work, fixed for ever by tenant and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u8);

/// Where a run's rows live. Ids say so, because a memory store loses them at a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StorageKind {
    /// The server's durable store.
    Durable,
    /// The memory store beside it; its ids begin with `m`.
    Memory,
}

/// 128 random bits that make an id unguessable.
#[derive(Clone, Copy, Hash)]
#[expect(clippy::derived_hash_with_manual_eq, reason = "equal secrets have equal bytes, and so equal hashes")]
pub struct Secret(pub [u8; 16]);

impl PartialEq for Secret {
    /// Looks at every byte whatever differs, so that the time taken tells nothing (T9).
    fn eq(&self, other: &Secret) -> bool {
        self.0.iter().zip(other.0).fold(0u8, |seen, (a, b)| seen | (a ^ b)) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(base32::Letters::of(&self.0).as_str())
    }
}

/// One piece of agent work. A UUID of version 8: time, flags, random bits, tenant tag, random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId([u8; 16]);

const MEMORY_FLAG: u8 = 0x01;

/// What the name of a run's own conversation begins with.
const OWN_SESSION: &str = "ses";

impl RunId {
    /// A new id, made of an instant and random bytes.
    #[must_use]
    pub fn new(tenant: &Tenant, place: StorageKind, at: Timestamp, random: [u8; 5]) -> RunId {
        let mut bytes = [0u8; 16];
        bytes[..6].copy_from_slice(&at.0.to_be_bytes()[2..]);
        let flag = match place {
            StorageKind::Durable => 0,
            StorageKind::Memory => MEMORY_FLAG,
        };
        bytes[6] = 0x80 | flag;
        bytes[7] = random[0];
        bytes[8] = 0x80 | (random[1] & 0x3f);
        bytes[9..13].copy_from_slice(&tenant_tag(tenant).to_be_bytes());
        bytes[13..].copy_from_slice(&random[2..]);
        RunId(bytes)
    }

    /// The run that `call` of this run starts as a sub-agent: the same for everyone who works it out, so that a
    /// repeated start after a crash is a conflict and not a second child.
    #[must_use]
    pub fn child(&self, call: CallNo, attempt: u32) -> RunId {
        let seed =
            digest::of_parts("standfast.child.1", &[&self.0, &call.0.to_be_bytes(), &attempt.to_be_bytes()]);
        let mut bytes = self.0;
        bytes[7] = seed.0[0];
        bytes[8] = 0x80 | (seed.0[1] & 0x3f);
        bytes[13..].copy_from_slice(&seed.0[2..5]);
        RunId(bytes)
    }

    /// The bytes as stored.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id behind stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> RunId {
        RunId(bytes)
    }

    /// The conversation of a run that was begun without naming one: it has the run's own name.
    #[must_use]
    pub fn own_session(&self) -> SessionId {
        match SessionId::new(IdText::of(OWN_SESSION, self.storage(), &self.0).as_str()) {
            Ok(session) => session,
            Err(bad) => unreachable!("the text of an id is a name: {bad}"),
        }
    }

    /// The run whose own conversation has this name, if it is such a name. The run need not exist.
    #[must_use]
    pub fn of_own_session(session: &SessionId) -> Option<RunId> {
        untext(OWN_SESSION, session.as_str()).map(RunId)
    }

    /// Which store the run lives in.
    #[must_use]
    pub fn storage(&self) -> StorageKind {
        if self.0[6] & MEMORY_FLAG == 0 { StorageKind::Durable } else { StorageKind::Memory }
    }

    /// The tag of the run's tenant; `tenants` maps it to the name.
    #[must_use]
    pub fn tenant_tag(&self) -> u32 {
        u32::from_be_bytes([self.0[9], self.0[10], self.0[11], self.0[12]])
    }

    /// The shard of work that the run belongs to, for ever.
    #[must_use]
    pub fn shard(&self, tenant: &Tenant) -> Shard {
        Shard(digest::of_parts("standfast.shard.1", &[tenant.as_str().as_bytes(), &self.0]).0[0])
    }
}

/// The tag of a tenant in the ids of its runs.
#[must_use]
pub fn tenant_tag(tenant: &Tenant) -> u32 {
    let Digest(d) = digest::of_parts("standfast.tenant.1", &[tenant.as_str().as_bytes()]);
    u32::from_be_bytes([d[0], d[1], d[2], d[3]])
}

/// A call as the world outside its run names it: fencing token and idempotency key begin with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The run.
    pub run: RunId,
    /// Which call of it.
    pub no: CallNo,
}

/// A message: the run and the event that carried it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The run.
    pub run: RunId,
    /// The event.
    pub seq: Seq,
}

/// A hold within its run, as events name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldKey {
    /// What is pending; [`CallNo::RUN`] when it is the whole run.
    pub call: CallNo,
    /// What makes the id unguessable.
    pub secret: Secret,
}

/// A hold as the world names it (`pendingID`, approval link).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldId {
    /// The run.
    pub run: RunId,
    /// The hold within it.
    pub key: HoldKey,
}

/// The holds of one turn within their run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// The turn that opened them.
    pub turn: u32,
    /// What makes the id unguessable.
    pub secret: Secret,
}

impl RequestKey {
    /// The request of the turn whose first hold has this secret. Derived, so that nothing needs to store it; one way,
    /// so that whoever knows the request cannot work out the hold.
    #[must_use]
    pub fn of_first_hold(turn: u32, Secret(first): Secret) -> RequestKey {
        let seed = digest::of_parts("standfast.request.1", &[&first]);
        let mut secret = [0u8; 16];
        secret.copy_from_slice(&seed.0[..16]);
        RequestKey { turn, secret: Secret(secret) }
    }
}

/// The holds of one turn as the world names them (Teal's `request_id`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// The run.
    pub run: RunId,
    /// The request within it.
    pub key: RequestKey,
}

/// A node since it was started; a restart makes another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(pub [u8; 16]);

/// Writes and reads `prefix + base32(bytes)`, with an `m` in front for runs of a memory store.
struct IdText {
    letters: [u8; ID_MAX],
    length: usize,
}

/// More than any prefix and the letters behind it.
const ID_MAX: usize = 80;

impl IdText {
    fn of(prefix: &str, place: StorageKind, bytes: &[u8]) -> IdText {
        let m = match place {
            StorageKind::Durable => "",
            StorageKind::Memory => "m",
        };
        let mut text = IdText { letters: [0; ID_MAX], length: 0 };
        let letters = base32::Letters::of(bytes);
        let all = [m, prefix, "_", letters.as_str()].into_iter().flat_map(str::bytes);
        for (to, letter) in text.letters.iter_mut().zip(all) {
            *to = letter;
            text.length += 1;
        }
        text
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.letters.get(..self.length).unwrap_or_default()).unwrap_or_default()
    }
}

fn untext<const N: usize>(prefix: &'static str, text: &str) -> Option<[u8; N]> {
    let (place, rest) = match text.strip_prefix('m').filter(|rest| rest.starts_with(prefix)) {
        Some(rest) => (StorageKind::Memory, rest),
        None => (StorageKind::Durable, text),
    };
    let bytes = base32::decode::<N>(rest.strip_prefix(prefix)?.strip_prefix('_')?)?;
    let run = RunId(bytes.get(..16)?.try_into().ok()?);
    (run.storage() == place).then_some(bytes)
}

fn join<const N: usize>(run: RunId, number: &[u8], secret: &[u8]) -> [u8; N] {
    let mut bytes = [0u8; N];
    bytes[..16].copy_from_slice(&run.0);
    bytes[16..16 + number.len()].copy_from_slice(number);
    bytes[16 + number.len()..].copy_from_slice(secret);
    bytes
}

fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut out = [0u8; N];
    out.copy_from_slice(&bytes[from..from + N]);
    out
}

macro_rules! id_text {
    ($id:ty, $prefix:literal, $len:literal, $to:expr, $from:expr) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let to: fn(&$id) -> (RunId, [u8; $len]) = $to;
                let (run, bytes) = to(self);
                f.write_str(IdText::of($prefix, run.storage(), &bytes).as_str())
            }
        }
        impl FromStr for $id {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let from: fn([u8; $len]) -> $id = $from;
                untext::<$len>($prefix, text).map(from).ok_or(BadId { wanted: $prefix })
            }
        }
        id_text!($id);
    };
    ($id:ty) => {
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl Serialize for $id {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer)
            }
        }
    };
}

id_text!(RunId, "run", 16, |id| (*id, id.0), RunId);
id_text!(CallId, "call", 20, |id| (id.run, join(id.run, &id.no.0.to_be_bytes(), &[])), |b| CallId {
    run: RunId(part(&b, 0)),
    no: CallNo(u32::from_be_bytes(part(&b, 16)))
});
id_text!(MessageId, "msg", 24, |id| (id.run, join(id.run, &id.seq.0.to_be_bytes(), &[])), |b| MessageId {
    run: RunId(part(&b, 0)),
    seq: Seq(u64::from_be_bytes(part(&b, 16)))
});
id_text!(
    HoldId,
    "hold",
    36,
    |id| (id.run, join(id.run, &id.key.call.0.to_be_bytes(), &id.key.secret.0)),
    |b| HoldId {
        run: RunId(part(&b, 0)),
        key: HoldKey { call: CallNo(u32::from_be_bytes(part(&b, 16))), secret: Secret(part(&b, 20)) }
    }
);
id_text!(
    RequestId,
    "req",
    36,
    |id| (id.run, join(id.run, &id.key.turn.to_be_bytes(), &id.key.secret.0)),
    |b| RequestId {
        run: RunId(part(&b, 0)),
        key: RequestKey { turn: u32::from_be_bytes(part(&b, 16)), secret: Secret(part(&b, 20)) }
    }
);

/// Within a run's log the run is known, so the short forms are `number-secret`.
macro_rules! key_text {
    ($key:ty, $what:literal, $number:expr, $make:expr) => {
        impl fmt::Display for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let number: fn(&$key) -> u32 = $number;
                write!(f, "{}-{:?}", number(self), self.secret)
            }
        }
        impl FromStr for $key {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let make: fn(u32, Secret) -> $key = $make;
                let read = |text: &str| {
                    let (number, secret) = text.split_once('-')?;
                    Some(make(number.parse().ok()?, Secret(base32::decode(secret)?)))
                };
                read(text).ok_or(BadId { wanted: $what })
            }
        }
        id_text!($key);
    };
}

key_text!(HoldKey, "hold", |k| k.call.0, |n, secret| HoldKey { call: CallNo(n), secret });
key_text!(RequestKey, "request", |k| k.turn, |turn, secret| RequestKey { turn, secret });

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(base32::Letters::of(&self.0).as_str())
    }
}

impl FromStr for Incarnation {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        base32::decode(text).map(Incarnation).ok_or(BadId { wanted: "node" })
    }
}

id_text!(Incarnation);

#[cfg(test)]
mod tests {
    use super::*;

    fn run(place: StorageKind) -> RunId {
        RunId::new(&Tenant::default_tenant(), place, Timestamp(1_762_000_000_000), [1, 2, 3, 4, 5])
    }

    #[test]
    fn a_run_has_a_conversation_of_its_own_name() {
        for place in [StorageKind::Durable, StorageKind::Memory] {
            let run = run(place);
            let session = run.own_session();
            assert_eq!(session.as_str(), run.to_string().replace("run_", "ses_"));
            assert_eq!(RunId::of_own_session(&session), Some(run));
        }
        for other in ["s-1", "ses_", "ses_0000", "run_00000000000000000000000000"] {
            assert_eq!(RunId::of_own_session(&SessionId::new(other).unwrap()), None);
        }
    }

    /// Shows S2-38 (128 random bits in the id) and C13 (each lookup resolves from the id alone).
    #[test]
    fn every_id_survives_its_text_form() {
        let run = run(StorageKind::Durable);
        let secret = Secret([9; 16]);
        let hold = HoldId { run, key: HoldKey { call: CallNo(3), secret } };
        let request = RequestId { run, key: RequestKey { turn: 2, secret } };
        let call = CallId { run, no: CallNo(7) };
        let message = MessageId { run, seq: Seq(12) };
        assert_eq!(run.to_string().parse(), Ok(run));
        assert_eq!(hold.to_string().parse(), Ok(hold));
        assert_eq!(request.to_string().parse(), Ok(request));
        assert_eq!(call.to_string().parse(), Ok(call));
        assert_eq!(message.to_string().parse(), Ok(message));
        assert_eq!(hold.key.to_string().parse(), Ok(hold.key));
        assert_eq!(request.key.to_string().parse(), Ok(request.key));
        assert!(hold.to_string().starts_with("hold_"));
    }

    #[test]
    fn ids_of_the_memory_store_say_so_and_do_not_pass_for_durable_ones() {
        let run = run(StorageKind::Memory);
        let text = run.to_string();
        assert!(text.starts_with("mrun_"));
        assert_eq!(text.parse(), Ok(run));
        assert_eq!(text[1..].parse::<RunId>(), Err(BadId { wanted: "run" }));
    }

    #[test]
    fn a_run_id_names_its_tenant_and_a_fixed_shard() {
        let tenant = Tenant::default_tenant();
        let run = run(StorageKind::Durable);
        assert_eq!(run.tenant_tag(), tenant_tag(&tenant));
        // Stored work lists depend on these values: they may never change.
        assert_eq!(run.to_string(), "run_06d3yrjm020030jf7tv1a0r40m");
        assert_eq!(run.tenant_tag(), 0x4f3e_b615);
        assert_eq!(run.shard(&tenant), Shard(223));
    }

    #[test]
    fn a_child_is_the_same_for_everyone_and_differs_by_call_and_attempt() {
        let parent = run(StorageKind::Memory);
        let child = parent.child(CallNo(1), 1);
        assert_eq!(child, parent.child(CallNo(1), 1));
        assert_ne!(child, parent.child(CallNo(2), 1));
        assert_ne!(child, parent.child(CallNo(1), 2));
        assert_eq!(child.storage(), StorageKind::Memory);
        assert_eq!(child.tenant_tag(), parent.tenant_tag());
    }

    #[test]
    fn a_child_of_the_other_kind_of_id_is_refused() {
        let run = run(StorageKind::Durable);
        assert!(run.to_string().parse::<HoldId>().is_err());
        assert!("run_".parse::<RunId>().is_err());
        assert!("".parse::<HoldId>().is_err());
    }
}
