//! What an append consists of.
//!
//! A batch is everything that one run's change writes: the link, the new row, changed hold rows, the lease, and two
//! generic lists, guards and puts. A backend knows these by shape, not by meaning.

use std::borrow::Cow;
use std::sync::Arc;

use standfast_core::body::Blob;
use standfast_core::decide::Transition;
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::{Chain, FIRST_PREVIOUS, Link};
use standfast_core::name::Tenant;
use standfast_core::project::{self, HoldChange, RunRow};
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

pub use crate::query::AudienceMember;
use crate::query::{Lease, SessionKey};

/// Everything that one run's change writes, all or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What the run must look like for it to be written.
    pub expected: ExpectedHead,
    /// The events.
    pub link: Link,
    /// The run after them.
    pub row: RunRow,
    /// How the hold rows change, in order.
    pub holds: Vec<HoldChange>,
    /// What happens to the lease.
    pub lease: LeaseChange,
    /// What must hold for it to be written.
    pub guards: Vec<Guard>,
    /// What is written beside it.
    pub puts: Vec<SideWrite>,
    /// The kinds of its events, as bits: whoever has subscribed to one of them gets a notice.
    pub tells: u64,
}

/// What a run must look like for an append to be written. The hash is compared too: an append that was decided ahead
/// on a link which lost its race must lose as well, even when the winner has the same number of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedHead {
    /// Position of its last event; 0 when it must not exist.
    pub seq: Seq,
    /// Hash of its last link.
    pub head: Digest,
}

impl ExpectedHead {
    /// The run must not exist.
    pub const NEW: ExpectedHead = ExpectedHead { seq: Seq(0), head: FIRST_PREVIOUS };

    /// The run must look like this row.
    #[must_use]
    pub fn after(row: &RunRow) -> ExpectedHead {
        ExpectedHead { seq: row.run.state.seq, head: row.head }
    }
}

/// What happens to the lease of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    /// It stays as it is. Without one, the run is due when its row says.
    Keep,
    /// This node works on it until then.
    Take {
        /// The node.
        node: Incarnation,
        /// Until when, unless renewed.
        until: Timestamp,
    },
    /// Nobody works on it; it is due when its row says.
    Release,
}

/// What must hold for an append to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The idempotency key has not been used.
    KeyUnused {
        /// The key.
        key: String,
    },
    /// A counter stays within its limit; the amount is added if it does.
    CounterWithin {
        /// Which counter.
        counter: String,
        /// What is added; negative gives back.
        add: i64,
        /// The limit after adding.
        max: i64,
    },
    /// The session takes new runs.
    SessionOpen {
        /// Which session.
        session: SessionKey,
    },
    /// No other node works on the run of this append: none has a lease that is live at this instant.
    NotLeased {
        /// The node that may have one.
        node: Incarnation,
        /// The instant of asking.
        now: Timestamp,
    },
}

impl Guard {
    /// Whether a lease is another node's and live at this instant; then it says so in words.
    pub(crate) fn leased(lease: Option<Lease>, node: Incarnation, now: Timestamp) -> Option<String> {
        let other = lease.filter(|lease| lease.node != node && lease.until > now)?;
        Some(format!("the node {} works on it", other.node))
    }
}

/// What is written beside an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SideWrite {
    /// An idempotency key and what it was used for.
    Key {
        /// The key.
        key: String,
        /// Digest of the request it came with.
        request: Digest,
        /// Until when it is remembered.
        expires_at: Timestamp,
    },
    /// A receiver is to be notified of the run's events from this link on.
    Notice(Notice),
    /// Who may see and decide an open hold.
    Audience {
        /// Which hold.
        hold: HoldId,
        /// Who.
        who: Vec<AudienceMember>,
    },
    /// A large value of the run.
    Blob(Blob),
    /// A definition that runs are pinned to.
    Definition {
        /// Its name.
        digest: Digest,
        /// Its bytes, shared by all who write it.
        bytes: Arc<[u8]>,
    },
    /// Another run is to be looked at: a child whose parent ended.
    Wake {
        /// Which run.
        run: RunId,
        /// When.
        at: Timestamp,
    },
}

/// A receiver is to be notified of a run's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The recipient.
    pub subscription: String,
    /// Whose turn it counts for: the owner of the subscription.
    pub owner: String,
    /// From which event on.
    pub from: Seq,
    /// When.
    pub due_at: Timestamp,
}

/// What a decided change is sealed with.
#[derive(Debug, Clone)]
pub struct Seal {
    /// Random bytes of the link.
    pub salt: [u8; 16],
    /// What happens to the lease.
    pub lease: LeaseChange,
    /// What must hold.
    pub guards: Vec<Guard>,
    /// What is written beside it.
    pub puts: Vec<SideWrite>,
}

impl Batch {
    /// Seals decided events onto a run. None when there is nothing to write.
    #[must_use]
    pub fn seal(before: Option<&RunRow>, decided: &Transition, seal: Seal) -> Option<Batch> {
        Batch::of(before, &decided.events, decided.run.clone().into(), seal)
    }

    /// The same of the events and of what they make of the run.
    pub(crate) fn of(
        before: Option<&RunRow>,
        decided: &[Envelope],
        run: Arc<Run>,
        seal: Seal,
    ) -> Option<Batch> {
        let first = decided.first()?;
        let expected = before.map_or(ExpectedHead::NEW, ExpectedHead::after);
        let (events, blobs) = outsourced(decided);
        let link = Link::seal(
            run.facts.id,
            first.seq,
            first.at,
            first.actor.clone(),
            &events,
            Chain { previous: expected.head, salt: seal.salt },
        );
        let mut puts = seal.puts;
        puts.extend(blobs.into_iter().map(SideWrite::Blob));
        Some(Batch {
            expected,
            holds: project::hold_changes(before.map(|row| &*row.run), decided, &run),
            row: project::run_row(run, link.hash),
            link,
            lease: seal.lease,
            guards: seal.guards,
            puts,
            tells: decided
                .iter()
                .filter_map(|one| Event::bit(one.event.kind()))
                .fold(0, |all, bit| all | bit),
        })
    }

    /// The run it changes.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.row.run.facts.id
    }

    /// Whose run that is.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.row.run.facts.tenant
    }
}

/// The events as they are stored: large values moved out. One without any is stored as it is.
fn outsourced(envelopes: &[Envelope]) -> (Vec<Cow<'_, Event>>, Vec<Blob>) {
    let mut blobs = Vec::new();
    let mut events = Vec::with_capacity(envelopes.len());
    for Envelope { event, .. } in envelopes {
        let mut stored = Cow::Borrowed(event);
        if event.has_large_values() {
            blobs.extend(stored.to_mut().outsource());
        }
        events.push(stored);
    }
    (events, blobs)
}
