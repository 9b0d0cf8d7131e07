//! A memory store beside a durable one (C28): ids say where a run lives, so everything about a run goes there.
//!
//! For servers of which some agents have no durable store. Lists show what lives in memory first. Nothing here knows
//! which agent lives where; a run and its sub-runs live in one place.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq, StorageKind};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;

use crate::batch::Batch;
use crate::contract::{Answer, IdempotencyStore, RunStore, SessionStore, Store};
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::layer::{AuditLayer, DeliveryLayer, Layer, SecretLayer, WorkLayer};
use crate::query::{
    Claim, ClaimedRun, Counts, DecidedQuery, DueNotice, EndedQuery, HoldQuery, InboxCounts, KeyNote,
    KeyRecord, OpenHolds, Page, RunQuery, SCAN_MAX, SessionChange, SessionKey, SessionQuery, SessionRow,
    SettleNotice, ShardSet, StoredRun,
};
use crate::subscription::{DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionQuery};

/// Marks a cursor that stands in the memory store.
const IN_MEMORY: u64 = 1 << 63;

/// The cursor between the two: nothing of the durable store has been listed yet.
const BETWEEN: u64 = IN_MEMORY - 1;

/// A durable store and a memory store, as one.
#[derive(Clone)]
pub struct SplitStore {
    durable: Arc<dyn Store>,
    memory: Arc<dyn Store>,
    mirrored: Arc<Mutex<MirroredTenants>>,
}

/// Whose subscriptions the memory store has a copy of.
#[derive(Default)]
struct MirroredTenants {
    tenants: BTreeSet<Tenant>,
    /// How often they were asked for: every so often the copy is made again, because other nodes change them too.
    asked: u64,
}

/// After so many looks for notices the copy of the subscriptions is made again.
const MIRROR_EVERY: u64 = 16;

impl SplitStore {
    /// Puts them side by side.
    #[must_use]
    pub fn new(durable: Arc<dyn Store>, memory: Arc<dyn Store>) -> SplitStore {
        SplitStore { durable, memory, mirrored: Arc::default() }
    }

    fn heard_of(&self, tenant: &Tenant) {
        let mut mirrored = self.mirrored.lock().unwrap_or_else(PoisonError::into_inner);
        if mirrored.tenants.insert(tenant.clone()) {
            mirrored.asked = 0;
        }
    }

    /// Copies the subscriptions, which are kept in the durable store, to where appends of the memory store see them.
    async fn mirror(&self) -> Result<(), StoreError> {
        let tenants = {
            let mut mirrored = self.mirrored.lock().unwrap_or_else(PoisonError::into_inner);
            let is_time = mirrored.asked.is_multiple_of(MIRROR_EVERY);
            mirrored.asked += 1;
            if is_time { mirrored.tenants.clone() } else { BTreeSet::new() }
        };
        for tenant in tenants {
            let query = SubscriptionQuery { tenant, owner: None, after: None, limit: SCAN_MAX };
            for subscription in self.durable.list_subscriptions(query).await? {
                self.copy(subscription).await?;
            }
        }
        Ok(())
    }

    /// Makes the memory store's copy of a subscription what it should be.
    async fn copy(&self, subscription: Subscription) -> Result<(), StoreError> {
        let (tenant, id) = (subscription.tenant.clone(), subscription.id.clone());
        match self.memory.subscription(tenant, id).await? {
            Some(known) if known == subscription => {}
            Some(known) => {
                self.memory.change_subscription(known.facts, subscription).await?;
            }
            None => {
                self.memory.put_subscription(subscription).await?;
            }
        }
        Ok(())
    }

    fn of(&self, run: RunId) -> &Arc<dyn Store> {
        self.at(run.storage())
    }

    fn at(&self, place: StorageKind) -> &Arc<dyn Store> {
        match place {
            StorageKind::Durable => &self.durable,
            StorageKind::Memory => &self.memory,
        }
    }
}

/// Where a list continues.
enum Cursor {
    Memory(Option<u64>),
    Durable(Option<u64>),
}

impl Cursor {
    fn read(cursor: Option<u64>) -> Cursor {
        match cursor {
            None => Cursor::Memory(None),
            Some(BETWEEN) => Cursor::Durable(None),
            Some(cursor) if cursor & IN_MEMORY != 0 => Cursor::Memory(Some(cursor & !IN_MEMORY)),
            Some(cursor) => Cursor::Durable(Some(cursor)),
        }
    }
}

/// One page over both: `list` asks one of them from a cursor.
async fn page<T>(
    cursor: Option<u64>,
    limit: usize,
    list: impl Fn(StorageKind, Option<u64>, usize) -> Answer<Page<T>>,
) -> Result<Page<T>, StoreError> {
    let mut first = match Cursor::read(cursor) {
        Cursor::Durable(cursor) => return list(StorageKind::Durable, cursor, limit).await,
        Cursor::Memory(cursor) => list(StorageKind::Memory, cursor, limit).await?,
    };
    if let Some(next) = first.next {
        return Ok(Page { next: Some(next | IN_MEMORY), ..first });
    }
    let left = limit.saturating_sub(first.items.len());
    if left == 0 {
        return Ok(Page { next: Some(BETWEEN), ..first });
    }
    let second = list(StorageKind::Durable, None, left).await?;
    first.items.extend(second.items);
    first.unreadable.extend(second.unreadable);
    Ok(Page { next: second.next, ..first })
}

/// Both counts together.
fn sum(mut all: Counts, more: Counts) -> Counts {
    for (phase, count) in more.runs {
        *all.runs.entry(phase).or_default() += count;
    }
    for holds in more.holds {
        let is_same = |known: &&mut OpenHolds| known.kind == holds.kind && known.agent == holds.agent;
        match all.holds.iter_mut().find(is_same) {
            Some(known) => {
                known.count += holds.count;
                known.oldest = [known.oldest, holds.oldest].into_iter().flatten().min();
            }
            None => all.holds.push(holds),
        }
    }
    all.quarantined += more.quarantined;
    all
}

/// What the first of them has, or else the second.
async fn either<T>(first: Answer<Option<T>>, second: Answer<Option<T>>) -> Result<Option<T>, StoreError> {
    match first.await? {
        Some(found) => Ok(Some(found)),
        None => second.await,
    }
}

impl Layer for SplitStore {
    fn below(&self) -> &dyn Store {
        &*self.durable
    }
}

impl RunStore for SplitStore {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let mut places = batches.iter().map(|batch| batch.run().storage());
        match places.next() {
            Some(first) if places.any(|place| place != first) => {
                let why = "an append touches runs in memory and durable ones";
                Box::pin(std::future::ready(Err(StoreError::unavailable(why))))
            }
            Some(StorageKind::Memory) => {
                batches.iter().for_each(|batch| self.heard_of(batch.tenant()));
                self.memory.append(batches)
            }
            Some(StorageKind::Durable) | None => self.durable.append(batches),
        }
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.of(run).load(run)
    }

    fn load_with_links(&self, run: RunId) -> Answer<(StoredRun, Vec<Link>)> {
        self.of(run).load_with_links(run)
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.of(run).links(run, after, limit)
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.of(run).blob(run, digest)
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        let durable = self.durable.definition(tenant.clone(), digest);
        Box::pin(either(durable, self.memory.definition(tenant, digest)))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.of(run).facts(run)
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.of(hold.run).find_hold(hold)
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        let this = self.clone();
        Box::pin(async move {
            let list = |place, cursor, limit| {
                let query = RunQuery { cursor, limit, ..query.clone() };
                this.at(place).list_runs(query)
            };
            page(query.cursor, query.limit, list).await
        })
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        let this = self.clone();
        Box::pin(async move {
            let list = |place, cursor, limit| {
                let query = HoldQuery { cursor, limit, ..query.clone() };
                this.at(place).list_holds(query)
            };
            page(query.cursor, query.limit, list).await
        })
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        let this = self.clone();
        Box::pin(async move {
            let list = |place, cursor, limit| {
                let query = DecidedQuery { cursor, limit, ..query.clone() };
                this.at(place).decided_holds(query)
            };
            page(query.cursor, query.limit, list).await
        })
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        let (durable, memory) = (self.durable.tenants(), self.memory.tenants());
        Box::pin(async move {
            let all: BTreeSet<Tenant> = durable.await?.into_iter().chain(memory.await?).collect();
            Ok(all.into_iter().collect())
        })
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        let this = self.clone();
        Box::pin(async move {
            let list = |place, cursor, limit| {
                let query = EndedQuery { cursor, limit, ..query.clone() };
                this.at(place).ended_runs(query)
            };
            page(query.cursor, query.limit, list).await
        })
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        self.of(run).erase(run)
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        self.of(run).quarantine(run, why)
    }
}

impl WorkLayer for SplitStore {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        let memory = self.memory.clone();
        let durable = self.durable.claim_due(claim.clone());
        Box::pin(async move {
            let mut claimed = durable.await?;
            let limit = claim.limit.saturating_sub(claimed.len());
            if limit > 0 {
                // Nobody else has what lives here, whichever shards are whose.
                let shards = ShardSet::all();
                claimed.extend(memory.claim_due(Claim { limit, shards, ..claim }).await?);
            }
            Ok(claimed)
        })
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        let (durable, memory): (Vec<RunId>, Vec<RunId>) =
            runs.into_iter().partition(|run| run.storage() == StorageKind::Durable);
        let durable = self.durable.renew(durable, node, until);
        let memory = self.memory.renew(memory, node, until);
        Box::pin(async move {
            let mut renewed = durable.await?;
            renewed.extend(memory.await?);
            Ok(renewed)
        })
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.of(run).release(run, node, wake_at)
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        let durable = self.durable.inbox_counts(tenant.clone());
        let memory = self.memory.inbox_counts(tenant);
        Box::pin(async move {
            let all = durable.await?.into_iter().chain(memory.await?);
            let each = all.flat_map(|one| {
                one.runs.into_iter().map(move |(phase, count)| (one.inbox.clone(), phase, count))
            });
            Ok(InboxCounts::gathered(each.collect::<Vec<_>>()))
        })
    }

    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        let (durable, memory) = (self.durable.counts(tenant.clone()), self.memory.counts(tenant));
        Box::pin(async move { Ok(sum(durable.await?, memory.await?)) })
    }
}

impl DeliveryLayer for SplitStore {
    /// Those of the memory store have the numbers below zero.
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        let this = self.clone();
        Box::pin(async move {
            this.mirror().await?;
            let limit = query.limit;
            let memory = this.memory.due_notices(NoticeQuery { shards: ShardSet::all(), ..query.clone() });
            let durable = this.durable.due_notices(query);
            let mut durable = durable.await?.into_iter();
            let mut memory = memory.await?.into_iter().map(|notice| DueNotice { no: !notice.no, ..notice });
            // One from each in turn, so that the backlog of neither hides the other.
            let mut due = Vec::new();
            loop {
                let next = [durable.next(), memory.next()];
                if next.iter().all(Option::is_none) || due.len() >= limit {
                    due.truncate(limit);
                    return Ok(due);
                }
                due.extend(next.into_iter().flatten());
            }
        })
    }

    fn notices_put(&self) -> Option<u64> {
        // A tenant that the memory store has just seen for the first time: looking brings it the subscriptions.
        if self.mirrored.lock().unwrap_or_else(PoisonError::into_inner).asked == 0 {
            return None;
        }
        Some(self.durable.notices_put()? + self.memory.notices_put()?)
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        if no < 0 { self.memory.settle_notice(!no, settle) } else { self.durable.settle_notice(no, settle) }
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        let this = self.clone();
        Box::pin(async move {
            let is_new = this.durable.put_subscription(subscription.clone()).await?;
            if is_new {
                this.heard_of(&subscription.tenant);
                this.memory.put_subscription(subscription).await?;
            }
            Ok(is_new)
        })
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        let this = self.clone();
        Box::pin(async move {
            let is_changed = this.durable.change_subscription(before, after.clone()).await?;
            if is_changed {
                this.copy(after).await?;
            }
            Ok(is_changed)
        })
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        let memory = self.memory.delete_subscription(tenant.clone(), id.clone());
        let durable = self.durable.delete_subscription(tenant, id);
        Box::pin(async move {
            let is_gone = durable.await?;
            Ok(memory.await? | is_gone)
        })
    }

    /// Those of the memory store have the numbers below zero.
    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        let this = self.clone();
        Box::pin(async move {
            let list = |place, cursor, limit| {
                let query = DeadQuery { cursor, limit, ..query.clone() };
                this.at(place).dead_letters(query)
            };
            let mut found = page(query.cursor, query.limit, list).await?;
            for letter in &mut found.items {
                letter.no = match letter.run.storage() {
                    StorageKind::Durable => letter.no,
                    StorageKind::Memory => !letter.no,
                };
            }
            Ok(found)
        })
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        if no < 0 { self.memory.resend(tenant, !no, at) } else { self.durable.resend(tenant, no, at) }
    }
}

impl SessionStore for SplitStore {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        Box::pin(either(self.durable.session(key.clone()), self.memory.session(key)))
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        let this = self.clone();
        Box::pin(async move {
            let list = |place, cursor, limit| {
                let query = SessionQuery { cursor, limit, ..query.clone() };
                this.at(place).list_sessions(query)
            };
            page(query.cursor, query.limit, list).await
        })
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        let this = self.clone();
        Box::pin(async move {
            let store = match this.durable.session(key.clone()).await? {
                Some(_) => &this.durable,
                None => &this.memory,
            };
            store.change_session(key, change, at).await
        })
    }
}

impl IdempotencyStore for SplitStore {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        let durable = self.durable.find_key(tenant.clone(), key.clone());
        Box::pin(either(durable, self.memory.find_key(tenant, key)))
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        let (durable, memory) =
            (self.durable.keys_under(query.clone()), self.memory.keys_under(query.clone()));
        Box::pin(async move {
            let mut found = durable.await?;
            found.extend(memory.await?);
            found.sort_by(|(one, _), (two, _)| two.cmp(one));
            found.dedup_by(|(one, _), (two, _)| one == two);
            found.truncate(query.limit);
            Ok(found)
        })
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        let (durable, memory): (Vec<KeyNote>, Vec<KeyNote>) =
            notes.into_iter().partition(|note| note.run.storage() == StorageKind::Durable);
        let is_empty = (durable.is_empty(), memory.is_empty());
        match is_empty {
            (_, true) => self.durable.note_keys(durable),
            (true, false) => self.memory.note_keys(memory),
            (false, false) => {
                let (durable, memory) = (self.durable.note_keys(durable), self.memory.note_keys(memory));
                Box::pin(async move { durable.await.and(memory.await) })
            }
        }
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        let memory = self.memory.clone();
        let durable = self.durable.forget_keys(until, limit);
        Box::pin(async move {
            let forgot = durable.await?;
            Ok(forgot + memory.forget_keys(until, limit - forgot).await?)
        })
    }
}

// Both are durable only: what happened to a conversation in memory is remembered longer than the conversation.
impl SecretLayer for SplitStore {}
impl AuditLayer for SplitStore {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of numbers in pages; the cursor is how many came before.
    fn numbers(all: &'static [u64], cursor: Option<u64>, limit: usize) -> Answer<Page<u64>> {
        let start = cursor.map_or(0, |n| usize::try_from(n).unwrap());
        let end = (start + limit).min(all.len());
        let next = (end < all.len()).then_some(end as u64);
        Box::pin(std::future::ready(Ok(Page::of(all[start..end].to_vec(), next))))
    }

    async fn pages(memory: &'static [u64], durable: &'static [u64], limit: usize) -> Vec<Vec<u64>> {
        let list = |place, cursor, limit| match place {
            StorageKind::Memory => numbers(memory, cursor, limit),
            StorageKind::Durable => numbers(durable, cursor, limit),
        };
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let page = page(cursor, limit, list).await.unwrap();
            pages.push(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return pages;
            }
        }
    }

    /// C28: a list over both stores shows everything once, in pages that a cursor continues, across the border too.
    #[test]
    fn pages_run_over_both() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pages = |memory, durable, limit| runtime.block_on(pages(memory, durable, limit));
        assert_eq!(pages(&[1, 2, 3], &[4, 5], 2), [vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!(pages(&[1, 2], &[4, 5], 2), [vec![1, 2], vec![4, 5]]);
        assert_eq!(pages(&[], &[4, 5], 9), [vec![4, 5]]);
        assert_eq!(pages(&[1], &[], 1), [vec![1], vec![]]);
    }
}
