//! Links: the events of one append, the unit of storage and of the hash chain.
//!
//! `hash = SHA-256(previous hash ‖ header ‖ commitment)` and `commitment = SHA-256(salt ‖ payload)`. Erasure deletes
//! payload and salt and keeps the rest: the chain still verifies and says *erased*, and without the salt nobody can
//! guess short contents from the commitment.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;

use crate::actor::Actor;
use crate::digest::{self, Digest};
use crate::event::{Envelope, Event};
use crate::id::{RunId, Seq};
use crate::time::Timestamp;

/// The hash before the first link of a run.
pub const FIRST_PREVIOUS: Digest = Digest([0; 32]);

/// Bytes of the events of most appends: room for them is made once.
const PAYLOAD_USUAL: usize = 512;

/// The events of one append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Whose events.
    pub header: Header,
    /// What is left of them.
    pub contents: Contents,
    /// What the next link builds on.
    pub hash: Digest,
}

/// What a link says of itself, kept for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The run.
    pub run: RunId,
    /// Position of its first event.
    pub first: Seq,
    /// How many events it has.
    pub count: u32,
    /// When they happened.
    pub at: Timestamp,
    /// Who caused them.
    pub actor: Actor,
}

/// The events themselves, or what is left after erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// They are there.
    Whole {
        /// Random, so that the commitment tells nothing.
        salt: [u8; 16],
        /// A JSON array of events.
        payload: Vec<u8>,
    },
    /// They were deleted.
    Erased {
        /// Still ties the chain together.
        commitment: Digest,
    },
}

/// What is wrong with a stored link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadLink {
    /// Its hash does not follow from the link before it and its own contents.
    Hash {
        /// Where.
        first: Seq,
    },
    /// It does not continue where the link before it ended.
    Gap {
        /// Where it should begin.
        wanted: Seq,
        /// Where it begins.
        found: Seq,
    },
    /// Its payload cannot be read.
    Unreadable {
        /// Where.
        first: Seq,
        /// What the parser said.
        why: String,
    },
    /// It has another number of events than its header says.
    Count {
        /// Where.
        first: Seq,
    },
}

impl fmt::Display for BadLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadLink::Hash { first } => {
                write!(f, "the hash of the link at event {first} does not fit its contents")
            }
            BadLink::Gap { wanted, found } => {
                write!(f, "event {wanted} is missing: the next link begins at {found}")
            }
            BadLink::Unreadable { first, why } => {
                write!(f, "the link at event {first} cannot be read: {why}")
            }
            BadLink::Count { first } => {
                write!(f, "the link at event {first} has another number of events than it says")
            }
        }
    }
}

impl std::error::Error for BadLink {}

impl Link {
    /// Seals events into a link behind `previous`.
    #[must_use]
    pub fn seal<E: Borrow<Event> + Serialize>(
        run: RunId,
        first: Seq,
        at: Timestamp,
        actor: Actor,
        events: &[E],
        chain: Chain,
    ) -> Link {
        let mut payload = Vec::with_capacity(PAYLOAD_USUAL);
        if serde_json::to_writer(&mut payload, events).is_err() {
            unreachable!("events have only string keys");
        }
        let header = Header { run, first, count: u32::try_from(events.len()).unwrap_or(u32::MAX), at, actor };
        let contents = Contents::Whole { salt: chain.salt, payload };
        let hash = hash(chain.previous, &header, contents.commitment());
        Link { header, contents, hash }
    }

    /// The position after its last event.
    #[must_use]
    pub fn next(&self) -> Seq {
        self.header.first.plus(self.header.count as usize)
    }

    /// Checks that it continues the chain. Says whether its contents are still there.
    pub fn verify(&self, previous: Digest, wanted: Seq) -> Result<(), BadLink> {
        let first = self.header.first;
        if first != wanted {
            return Err(BadLink::Gap { wanted, found: first });
        }
        if hash(previous, &self.header, self.contents.commitment()) != self.hash {
            return Err(BadLink::Hash { first });
        }
        Ok(())
    }

    /// Its events in their places; none when they were erased.
    pub fn events(&self) -> Result<Vec<Envelope>, BadLink> {
        let first = self.header.first;
        let Contents::Whole { payload, .. } = &self.contents else { return Ok(Vec::new()) };
        let events: Vec<Event> = serde_json::from_slice(payload)
            .map_err(|error| BadLink::Unreadable { first, why: error.to_string() })?;
        if events.len() != self.header.count as usize {
            return Err(BadLink::Count { first });
        }
        let envelope = |(at, event)| Envelope {
            seq: first.plus(at),
            at: self.header.at,
            actor: self.header.actor.clone(),
            event,
        };
        Ok(events.into_iter().enumerate().map(envelope).collect())
    }

    /// Whether it says that what came before it was erased.
    #[must_use]
    pub fn says_erased(&self) -> bool {
        let is_said = |envelope: &Envelope| matches!(envelope.event, Event::RunErased(_));
        self.events().is_ok_and(|events| events.iter().any(is_said))
    }

    /// Deletes the contents and keeps what the chain needs.
    pub fn erase(&mut self) {
        self.contents = Contents::Erased { commitment: self.contents.commitment() };
    }
}

/// What a link is sealed onto.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// The hash of the link before it.
    pub previous: Digest,
    /// Random bytes.
    pub salt: [u8; 16],
}

impl Contents {
    /// What the hash covers in place of the contents.
    #[must_use]
    pub fn commitment(&self) -> Digest {
        match self {
            Contents::Whole { salt, payload } => digest::of_parts("standfast.payload.1", &[salt, payload]),
            Contents::Erased { commitment } => *commitment,
        }
    }
}

fn hash(previous: Digest, header: &Header, commitment: Digest) -> Digest {
    header.actor.with_text(|actor| {
        digest::of_parts(
            "standfast.link.1",
            &[
                &previous.0,
                header.run.bytes(),
                &header.first.0.to_be_bytes(),
                &header.count.to_be_bytes(),
                &header.at.0.to_be_bytes(),
                actor.as_bytes(),
                &commitment.0,
            ],
        )
    })
}
