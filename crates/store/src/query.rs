//! What is asked of a store, and what comes back.
//!
//! Plain values without behaviour. Filters are an index or a bounded scan, and a cursor says where a page stopped.

mod ended_runs;

use std::collections::BTreeMap;

use standfast_core::digest::Digest;
use standfast_core::event::Driver;
use standfast_core::hold::HoldKind;
use standfast_core::id::{Incarnation, RunId, Seq, Shard};
use standfast_core::name::{AgentName, InboxName, SessionId, Tenant, ToolName, UserId};
use standfast_core::project::{HoldRow, Phase, ResolutionKind, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;

pub use ended_runs::EndedQuery;
pub(crate) use ended_runs::{EndedRun, ScannedRun};

/// A page looks at this many rows at most; its cursor says where it stopped.
pub const SCAN_MAX: usize = 2000;

/// A run as loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// The row.
    pub row: RunRow,
    /// Who works on it, if anyone.
    pub lease: Option<Lease>,
}

/// A node's temporary claim on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The node.
    pub node: Incarnation,
    /// Until when.
    pub until: Timestamp,
}

/// A node asks for runs to work on.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The node.
    pub node: Incarnation,
    /// The instant of asking.
    pub now: Timestamp,
    /// Until when it wants them.
    pub until: Timestamp,
    /// The shards it may take from.
    pub shards: ShardSet,
    /// How many at most.
    pub limit: usize,
    /// Agents that are at their limit, with how many more of each may be taken; others are not limited.
    pub room: Vec<(Tenant, AgentName, usize)>,
}

/// A run that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedRun {
    /// Now leased to the node that asked.
    Run {
        /// The run.
        stored: Box<StoredRun>,
        /// The lease that ran out, if somebody had one: whoever had it has died, or lost touch.
        from: Option<Lease>,
    },
    /// Its rows cannot be read: it is quarantined and no longer due.
    Corrupt {
        /// Which run.
        run: RunId,
        /// What is wrong.
        why: String,
    },
}

/// A set of shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardSet([u64; 4]);

impl ShardSet {
    /// All 256.
    #[must_use]
    pub fn all() -> ShardSet {
        ShardSet([u64::MAX; 4])
    }

    /// These.
    #[must_use]
    pub fn of(shards: impl IntoIterator<Item = Shard>) -> ShardSet {
        let mut set = ShardSet([0; 4]);
        for Shard(shard) in shards {
            set.0[usize::from(shard >> 6)] |= 1 << (shard & 63);
        }
        set
    }

    /// These as well.
    pub fn add(&mut self, more: &ShardSet) {
        for (own, more) in self.0.iter_mut().zip(more.0) {
            *own |= more;
        }
    }

    /// Whether this one belongs to it.
    #[must_use]
    pub fn contains(&self, Shard(shard): Shard) -> bool {
        self.0[usize::from(shard >> 6)] & (1 << (shard & 63)) != 0
    }

    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Shard> {
        (0..=255).map(Shard).filter(|shard| self.contains(*shard))
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

/// A node says that it is there, and asks which shards are its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The node.
    pub node: Incarnation,
    /// A JSON object: what others may want to know of it, such as its version.
    pub facts: String,
    /// The instant of asking.
    pub now: Timestamp,
    /// Until when it is to be believed without another word.
    pub until: Timestamp,
}

/// A node that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The node.
    pub node: Incarnation,
    /// What it said of itself.
    pub facts: String,
    /// Until when it is believed.
    pub seen_until: Timestamp,
    /// The shards it has.
    pub shards: ShardSet,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// What was found and cannot be read; empty for anything but runs.
    pub unreadable: Vec<UnreadableRun>,
    /// Where to continue; none when there is no more.
    pub next: Option<u64>,
}

impl<T> Page<T> {
    /// A page on which everything can be read.
    #[must_use]
    pub fn of(items: Vec<T>, next: Option<u64>) -> Page<T> {
        Page { items, unreadable: Vec::new(), next }
    }
}

/// A run whose rows cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRun {
    /// Which run.
    pub run: RunId,
    /// What its columns still say of it, if they do.
    pub facts: Option<Facts>,
    /// What is wrong.
    pub why: String,
}

/// How much there is of what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Open holds, by kind and agent; each pair once, none with zero.
    pub holds: Vec<OpenHolds>,
    /// Runs by phase; none with zero. Without those that were found to be unreadable before they were counted.
    pub runs: BTreeMap<Phase, u64>,
    /// Runs that cannot be read, as far as somebody has tried. Those that are not over were all tried once.
    pub quarantined: u64,
}

/// The open holds of one kind and one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenHolds {
    /// What they wait for.
    pub kind: HoldKind,
    /// The agent of their runs.
    pub agent: AgentName,
    /// How many.
    pub count: u64,
    /// When the oldest of them opened; none when that cannot be read.
    pub oldest: Option<Timestamp>,
}

/// How many runs an inbox has in which phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxCounts {
    /// The inbox.
    pub inbox: InboxName,
    /// Runs by phase; none with zero. A quarantined run counts as failed.
    pub runs: BTreeMap<Phase, u64>,
}

impl InboxCounts {
    /// Counts by inbox from counts by inbox and phase, in the order of their names.
    pub(crate) fn gathered(counted: impl IntoIterator<Item = (InboxName, Phase, u64)>) -> Vec<InboxCounts> {
        let mut all: BTreeMap<InboxName, BTreeMap<Phase, u64>> = BTreeMap::new();
        for (inbox, phase, count) in counted {
            *all.entry(inbox).or_default().entry(phase).or_default() += count;
        }
        all.into_iter().map(|(inbox, runs)| InboxCounts { inbox, runs }).collect()
    }
}

/// Which conversations are asked for. Newest first.
#[derive(Debug, Clone)]
pub struct SessionQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Of which user; none means any.
    pub owner: Option<UserId>,
    /// With which agent; none means any.
    pub agent: Option<AgentName>,
    /// With which name; none means any.
    pub session: Option<SessionId>,
    /// Where to continue.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// Which runs are asked for. Newest first.
#[derive(Debug, Clone)]
pub struct RunQuery {
    /// Whose.
    pub tenant: Tenant,
    /// By what.
    pub filter: RunFilter,
    /// Only those in one of these phases; empty means any.
    pub phases: Vec<Phase>,
    /// Only those that changed at this instant or later; none means any.
    pub since: Option<Timestamp>,
    /// Where to continue.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// What a list of runs is narrowed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunFilter {
    /// Nothing.
    All,
    /// One agent.
    Agent(AgentName),
    /// The conversations of this name with an agent, whoever has them.
    Session(AgentName, SessionId),
    /// One conversation: a user's with an agent.
    SessionOf(UserId, AgentName, SessionId),
    /// Those that one user started.
    Owner(UserId),
    /// One inbox.
    Inbox(InboxName),
    /// Those that have, or had, holds of kind `external`: what outside systems were asked to do.
    WithJobs,
    /// What somebody may claim from an inbox at this instant: highest priority first, then oldest.
    Claimable(InboxName, Timestamp, Claimant),
}

/// Who asks for work from an inbox. What is not for them does not count, however much of it lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimant {
    /// Whoever.
    Anybody,
    /// An agent of this server: what it drives itself.
    Agent(AgentName),
    /// A worker elsewhere.
    Worker {
        /// The agent that it works for: work that is meant for another is not for it.
        agent: AgentName,
        /// The kinds of work that it takes; empty means any.
        kinds: Vec<String>,
    },
}

impl Claimant {
    /// Whether a run is for them.
    #[must_use]
    pub fn suits(&self, facts: &Facts) -> bool {
        let place = facts.inbox.as_ref();
        match self {
            Claimant::Anybody => true,
            Claimant::Agent(agent) => facts.driver == Driver::Loop && facts.agent == *agent,
            Claimant::Worker { agent, kinds } => place.is_some_and(|place| {
                facts.driver == Driver::Outside
                    && place.target_agent.as_ref().is_none_or(|target| target == agent)
                    && (kinds.is_empty() || kinds.contains(&place.kind))
            }),
        }
    }
}

/// Which open holds are asked for. Oldest first.
#[derive(Debug, Clone)]
pub struct HoldQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Who asks.
    pub audience: Audience,
    /// By what.
    pub filter: HoldFilter,
    /// Only of one of these kinds; empty means any.
    pub kinds: Vec<HoldKind>,
    /// Where to continue.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// A user, group or role that may see and decide holds, such as `user:alice`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AudienceMember(pub String);

impl AudienceMember {
    /// A user.
    #[must_use]
    pub fn user(user: &UserId) -> AudienceMember {
        AudienceMember(["user:", user.as_str()].concat())
    }
}

/// Whose holds a list may show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// All of the tenant: for administrators.
    Everyone,
    /// Those that one of these may see.
    AnyOf(Vec<AudienceMember>),
}

/// What a list of holds is narrowed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldFilter {
    /// Nothing.
    All,
    /// One agent.
    Agent(AgentName),
    /// One tool.
    Tool(ToolName),
    /// The conversations of this name with an agent, whoever has them.
    Session(AgentName, SessionId),
    /// One run.
    Run(RunId),
    /// The runs of one inbox.
    Inbox(InboxName),
    /// Those with a deadline: the earliest first, and of one instant the oldest.
    Dated,
    /// Those without a deadline.
    Undated,
}

/// Which decided holds are asked for: those that were answered, expired or withdrawn. The latest decision first.
///
/// A cursor is an instant: decisions of one instant are on one page, which may therefore have more than `limit`. Who may see
/// a hold is kept only while it is open, so whoever asks looks at the run of each.
#[derive(Debug, Clone)]
pub struct DecidedQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Only those decided at this instant or later.
    pub since: Option<Timestamp>,
    /// Only those decided before this instant.
    pub before: Option<Timestamp>,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only of this tool.
    pub tool: Option<ToolName>,
    /// Only of one of these kinds; empty means any.
    pub kinds: Vec<HoldKind>,
    /// Only with one of these resolutions; empty means any.
    pub how: Vec<ResolutionKind>,
    /// Only those that this user decided.
    pub by: Option<UserId>,
    /// Where to continue.
    pub cursor: Option<u64>,
    /// How many at least, if there are so many.
    pub limit: usize,
}

impl DecidedQuery {
    /// How many rows a page looks at; one more says whether those of the last instant are all there.
    pub(crate) const LOOKS_AT: usize = SCAN_MAX + 1;

    /// Decided before this instant.
    pub(crate) fn until(&self) -> Timestamp {
        let cursor = self.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        Timestamp(cursor.min(self.before.map_or(i64::MAX, |before| before.0)))
    }

    fn wants(&self, row: &HoldRow) -> bool {
        let Some(closed) = &row.closed else { return false };
        let by = closed.by.user();
        self.agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && self.tool.as_ref().is_none_or(|tool| Some(tool) == row.tool.as_ref())
            && (self.kinds.is_empty() || self.kinds.contains(&row.kind))
            && (self.how.is_empty() || self.how.contains(&closed.how))
            && self.by.as_ref().is_none_or(|wanted| by == Some(wanted))
    }

    /// The page that these rows make: when each was decided, and what can be read of it.
    pub(crate) fn page(&self, looked_at: Vec<(i64, Option<HoldRow>)>) -> Page<HoldRow> {
        let is_cut = looked_at.len() >= DecidedQuery::LOOKS_AT;
        // Of this instant there may be more.
        let incomplete = looked_at.last().filter(|_| is_cut).map(|(at, _)| *at);
        let (mut items, mut last) = (Vec::new(), None);
        for (at, row) in looked_at {
            let is_next_instant = last.is_some_and(|last| last != at);
            if is_next_instant && (items.len() >= self.limit || incomplete == Some(at)) {
                return Page::of(items, last.and_then(|last: i64| u64::try_from(last).ok()));
            }
            last = Some(at);
            items.extend(row.filter(|row| self.wants(row)));
        }
        Page::of(items, last.filter(|_| is_cut).and_then(|last| u64::try_from(last).ok()))
    }
}

/// What an idempotency key was used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Digest of the request.
    pub request: Digest,
    /// The run it changed.
    pub run: RunId,
    /// The last event of that append.
    pub seq: Seq,
    /// Until when it is remembered.
    pub expires_at: Timestamp,
}

/// What becomes of an idempotency key apart from any append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyNote {
    /// Whose.
    pub tenant: Tenant,
    /// The key.
    pub key: String,
    /// The run that it is about.
    pub run: RunId,
    /// What it says from now on and until when it is remembered; none forgets it.
    pub kept: Option<(Digest, Timestamp)>,
}

impl KeyNote {
    /// A note that changes nothing but the time until which a key is remembered is left out while there is more than a
    /// day to go: whoever looks at the same thing again and again writes nothing.
    pub(crate) const REFRESHED_MILLIS: i64 = 24 * 60 * 60 * 1000;

    /// The notes with the last word on each key only, by key: those of one write must not get in each other's way.
    pub(crate) fn last_of_each(notes: Vec<KeyNote>) -> Vec<KeyNote> {
        let named = |note: KeyNote| ((note.tenant.clone(), note.key.clone()), note);
        let last: std::collections::BTreeMap<(Tenant, String), KeyNote> =
            notes.into_iter().map(named).collect();
        last.into_values().collect()
    }
}

/// How a sealed secret changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedChange {
    /// Whose.
    pub tenant: Tenant,
    /// Its name; without NUL.
    pub name: String,
    /// What the caller read; none: there was none.
    pub before: Option<String>,
    /// What it becomes; none removes it.
    pub after: Option<String>,
}

/// What is known of an API key: never the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Whose data it opens.
    pub tenant: Tenant,
    /// The part of the key that is not a secret and names it.
    pub prefix: String,
    /// Digest of the part that is.
    pub hash: Digest,
    /// A JSON object: who it stands for and what it is for.
    pub facts: String,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When somebody ended it.
    pub revoked_at: Option<Timestamp>,
}

impl Credential {
    /// Lets it expire at an instant, unless it does so before.
    pub(crate) fn expire_by(&mut self, at: Timestamp) {
        self.expires_at = Some(self.expires_at.map_or(at, |before| before.min(at)));
    }
}

/// A notice whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueNotice {
    /// Names it when it is settled.
    pub no: i64,
    /// The recipient.
    pub subscription: String,
    /// Whose turn it counts for.
    pub owner: String,
    /// Of which run.
    pub run: RunId,
    /// From which event on.
    pub from: Seq,
    /// Tries so far.
    pub attempts: u32,
}

/// What became of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettleNotice {
    /// Everything up to and including this event was delivered; what came after it is next.
    Delivered {
        /// The last event told.
        upto: Seq,
    },
    /// It failed and is tried again. Tries count for the event that they begin with.
    Retry {
        /// When.
        at: Timestamp,
        /// The first event that was not told.
        from: Seq,
    },
    /// It is given up and becomes a dead letter; somebody may send it again.
    Dead {
        /// When.
        at: Timestamp,
        /// The first event that was not told.
        from: Seq,
        /// What happened.
        why: String,
    },
}

/// Names a conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// Whose.
    pub tenant: Tenant,
    /// With which agent.
    pub agent: AgentName,
    /// Of which user: the same name of another user is another conversation.
    pub owner: UserId,
    /// Its name.
    pub session: SessionId,
}

impl SessionKey {
    /// The conversation that a run belongs to.
    #[must_use]
    pub fn of(facts: &Facts) -> SessionKey {
        SessionKey {
            tenant: facts.tenant.clone(),
            agent: facts.agent.clone(),
            owner: facts.owner.clone(),
            session: facts.session.clone(),
        }
    }
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name.
    pub key: SessionKey,
    /// A JSON object of the user's.
    pub metadata: String,
    /// When it began.
    pub created_at: Timestamp,
    /// When its metadata last changed.
    pub updated_at: Timestamp,
    /// Whether it takes no more runs.
    pub closed: bool,
}

/// What happened to a tenant beside its runs: a conversation was deleted, a caller was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Counts the entries of the tenant from 1.
    pub no: u64,
    /// When.
    pub at: Timestamp,
    /// What, as JSON; a store does not look into it.
    pub entry: String,
    /// Ties it to the entry before it: see [`crate::audit::entry_hash`].
    pub hash: Digest,
}

/// How a conversation changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// Other metadata, if they still are what the caller read.
    Metadata {
        /// As read.
        before: String,
        /// As they shall be.
        after: String,
    },
    /// No more runs.
    Close,
}

impl SessionChange {
    /// Whether the audit gets an entry of it: not of metadata that stay what they are.
    pub(crate) fn is_said(&self) -> bool {
        match self {
            SessionChange::Metadata { before, after } => before != after,
            SessionChange::Close => true,
        }
    }
}
