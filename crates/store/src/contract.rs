//! The contract between the engine and whatever keeps the rows: one trait for each seam, and [`Store`] for all of them.
//!
//! Whoever needs one seam asks for its trait; the engine has an `Arc<dyn Store>`, on which the methods of all seams can
//! be called. A backend implements the seams. A store that changes some calls of another is a layer (`layer.rs`).
//!
//! **The expected sequence and the guards are the only locks on state.** Every method may be called from any number
//! of tasks at once. An append is handed over when the method is called, not when its future is polled: appends of
//! one run are written in the order of the calls.

use std::future::Future;
use std::pin::Pin;

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use tokio::sync::broadcast;

use crate::batch::Batch;
use crate::call_query::CallQuery;
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::query::{
    AuditEntry, Claim, ClaimedRun, Counts, Credential, DecidedQuery, DueNotice, EndedQuery, Heartbeat,
    HoldQuery, InboxCounts, KeyNote, KeyRecord, NodeRow, Page, RunQuery, SealedChange, SessionChange,
    SessionKey, SessionQuery, SessionRow, SettleNotice, ShardSet, StoredRun,
};
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};

/// What a store answers with; boxed, so that `Arc<dyn Store>` works everywhere.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Everything that a server keeps. Whatever implements all seams is one.
pub trait Store:
    RunStore + WorkStore + DeliveryStore + SessionStore + IdempotencyStore + SecretStore + AuditStore
{
}

impl<T> Store for T where
    T: RunStore + WorkStore + DeliveryStore + SessionStore + IdempotencyStore + SecretStore + AuditStore
{
}

/// Runs: their logs, their rows, and the lists of them.
pub trait RunStore: Send + Sync + 'static {
    /// Writes one to eight runs of one tenant, all or none. `Ok` means durable. With a conflict or a failed guard
    /// nothing was written. A run's first append creates its session if there is none.
    fn append(&self, batches: Vec<Batch>) -> Answer<()>;

    /// The row of a run. A row of an older fold comes back rebuilt from its events; of a newer one: `Newer`.
    fn load(&self, run: RunId) -> Answer<StoredRun>;

    /// The links that hold the events after `after`, in order, at most `limit`.
    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>>;

    /// The row of a run and all its links, of one moment. A layer over a store that reads both at once may be short of the
    /// last links: whoever goes on with them compares them with the row.
    fn load_with_links(&self, run: RunId) -> Answer<(StoredRun, Vec<Link>)> {
        // In this order: links that came after the row are left out.
        let (load, links) = (self.load(run), self.links(run, Seq(0), usize::MAX));
        Box::pin(async move {
            let stored = load.await?;
            let last = stored.row.run.state.seq;
            let mut links = links.await?;
            links.retain(|link| link.next() <= last.plus(1));
            Ok((stored, links))
        })
    }

    /// A large value of a run.
    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>>;

    /// A definition that runs are pinned to.
    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>>;

    /// What never changes of a run, from its columns alone: also for a run that cannot be loaded. None when there is
    /// no such run, or when not even that can be read.
    fn facts(&self, run: RunId) -> Answer<Option<Facts>>;

    /// One hold, open or decided.
    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>>;

    /// Runs of a tenant, newest first, in pages.
    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>>;

    /// Open holds of a tenant, oldest first, in pages.
    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>>;

    /// Decided holds of a tenant, the latest decision first, in pages. A page looks at a bounded number of them, so one may
    /// be empty and not the last.
    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>>;

    /// Ids of outside jobs, by conversation or by how they stand, if the store has an index of them; none means that it has
    /// none, and whoever asks looks through runs and holds. What it names may have changed since.
    fn find_calls(&self, query: CallQuery) -> Answer<Option<Vec<HoldId>>> {
        let _ = query;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The tenants that have runs, by name.
    fn tenants(&self) -> Answer<Vec<Tenant>>;

    /// Runs of a tenant that have ended, whose last event is older than an instant, and that were not erased: oldest first,
    /// in pages. Also those that say they are erased and still have their contents, however long ago they said it. A page
    /// looks at a bounded number of runs, so one may be empty and not the last. Quarantined runs are not among
    /// them, and neither are those of which something still waits to be told.
    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>>;

    /// Deletes the contents of a run that says it is erased: payloads, salts, large values and dead
    /// letters. Headers, commitments and hashes stay, so that the chain still verifies.
    fn erase(&self, run: RunId) -> Answer<()>;

    /// Takes a run whose log cannot be read off the work list and marks it: from now on it loads as `Corrupt`, is never
    /// due and takes no appends. Its events and its row stay as they are.
    fn quarantine(&self, run: RunId, why: String) -> Answer<()>;
}

/// Work: which runs are due, who leases them, which nodes share them, and how much of it there is.
pub trait WorkStore: Send + Sync + 'static {
    /// Leases due runs to a node: the longest due first, turn by turn for each agent, so that one backlog does not
    /// starve others. Runs under a live lease are not due; those of a newer fold are left alone.
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>>;

    /// Extends the node's leases. Answers which of the runs it still has. Without runs it changes nothing, and answers
    /// whether an append could be written now: it fails when the disk is full or the writer has stopped.
    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>>;

    /// Gives a lease back; the run is due when its row says, or at `wake_at` if that is earlier: for a node that has used up
    /// a wake without looking. Does nothing when the node no longer has it.
    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()>;

    /// The time of whatever the nodes share; none when there is nothing to agree with, and a node's own clock counts.
    fn time(&self) -> Answer<Option<Timestamp>>;

    /// A node says that it is there and hears which shards are its own until it says so again, or until the instant it
    /// named. Shards are spread evenly over the nodes that are there; those of a node that went silent are given to
    /// others. A node that is alone has all. Claiming outside one's shards does no harm, it only costs.
    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet>;

    /// A node goes: its shards are free at once.
    fn leave(&self, node: Incarnation) -> Answer<()>;

    /// The nodes that are there, in any order that stays the same.
    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>>;

    /// Shards in which other nodes changed something, as they tell it; none when there can be no other nodes. A hint
    /// carries no data and may be lost: whoever is notified looks, and whoever is not looks after a while. Falling
    /// behind means that anything may have changed.
    fn hints(&self) -> Option<broadcast::Receiver<ShardSet>>;

    /// How much a tenant has of what, as of an instant between the call and the answer. The first time after opening it
    /// may look at every run; after that it is cheap, however many there are.
    fn counts(&self, tenant: Tenant) -> Answer<Counts>;

    /// The inboxes of a tenant that have runs, by name, with how many in which phase. Looks at every run in an inbox.
    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>>;
}

/// Deliveries: notices, the subscriptions that they are for, and the dead letters.
pub trait DeliveryStore: Send + Sync + 'static {
    /// Notices whose time has come: turn by turn for each owner, in each round the longest due first, so that one backlog
    /// does not starve others. One for each subscription and run. Those of runs of a newer fold are left to whoever can
    /// read them.
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>>;

    /// How many commits of this process have put notices since it opened the store; counted before their appends are
    /// answered, so whoever finds the same count after an append need not look for notices of it. None where nobody counts. What
    /// other nodes put is not among them.
    fn notices_put(&self) -> Option<u64> {
        None
    }

    /// What became of a notice.
    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()>;

    /// A subscription.
    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>>;

    /// Subscriptions of a tenant, by id.
    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>>;

    /// How many active subscriptions there are of a kind.
    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize>;

    /// Keeps a new subscription. False when its id is taken. Once this answers, every append that is written afterwards,
    /// by whichever node, and every append under way that has not been written yet, puts a notice for it.
    fn put_subscription(&self, subscription: Subscription) -> Answer<bool>;

    /// Changes a subscription, if its facts still are what the caller read; its scope and its owner stay. False when they are not, or
    /// there is none. From then on appends do as it says, as with a new one.
    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool>;

    /// Deletes a subscription with its dead letters. False when there is none. A notice that waits stays until whoever
    /// delivers it finds nobody to tell.
    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool>;

    /// Dead letters of a subscription, oldest first, in pages.
    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>>;

    /// Makes a dead letter a notice again, due at this instant; a notice that is there already then begins as early as
    /// the letter did. False when the tenant has no such letter.
    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool>;
}

/// Sessions.
pub trait SessionStore: Send + Sync + 'static {
    /// A conversation.
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>>;

    /// Conversations of a tenant, newest first, in pages.
    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>>;

    /// Changes a conversation. False when its metadata are no longer what the caller read, or there is none.
    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool>;
}

/// Idempotency keys: what a request or a message was carried out as, and what its caller was last shown.
pub trait IdempotencyStore: Send + Sync + 'static {
    /// What an idempotency key was used for.
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>>;

    /// The keys that begin with a text, with what they were used for, the last ones in the order of their bytes first.
    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>>;

    /// Keeps or forgets idempotency keys apart from any append, all of these or none, at once for every node. Without a sync
    /// of its own: it is durable with the next append that is written after it. A crash of the machine may lose it, and
    /// then everything that was noted later too. Notes about a run that is not there are left out.
    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()>;

    /// Forgets idempotency keys that were to be remembered until this instant or earlier, at most `limit`. Answers how
    /// many those were.
    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize>;
}

/// Credentials of callers, and secrets that the server sealed.
pub trait SecretStore: Send + Sync + 'static {
    /// What is known of an API key, by the part of it that is not a secret. Also of one that expired or was revoked: the
    /// caller judges.
    fn credential(&self, prefix: String) -> Answer<Option<Credential>>;

    /// Keeps a new credential. False when its prefix is taken, in any tenant: nothing was written.
    fn put_credential(&self, credential: Credential) -> Answer<bool>;

    /// The credentials of a tenant, by prefix. People make them one by one, so there are few.
    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>>;

    /// Marks a credential as revoked; the first instant stays. False when the tenant has none with this prefix.
    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool>;

    /// Lets a credential expire at an instant, unless it does so before. False when the tenant has none with this prefix.
    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool>;

    /// A secret that the server sealed, by its name.
    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>>;

    /// Keeps, changes or removes a sealed secret, if it still is what the caller read. False when it is not.
    fn change_sealed(&self, change: SealedChange) -> Answer<bool>;
}

/// The audit log of each tenant.
pub trait AuditStore: Send + Sync + 'static {
    /// Adds an entry to a tenant's audit, with the next number and the hash that ties it to the one before. Nothing
    /// changes or removes one.
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()>;

    /// A tenant's audit after this number, oldest first, at most `limit`.
    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>>;
}
