//! Deliveries: subscriptions, notices, dead letters, as plain collections.
//!
//! Everything is searched from end to end; the other backends have indexes and are compared with this.

use std::collections::BTreeMap;

use standfast_core::id::{RunId, Seq, Shard};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;

use super::{ChangeMark, State};
use crate::batch::{Batch, Notice};
use crate::fairness::take_turns;
use crate::query::{DueNotice, Page, SettleNotice};
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Scope, Subscription, SubscriptionCount, SubscriptionQuery,
};

#[derive(Debug, Default)]
pub(super) struct Deliveries {
    pub(super) subscriptions: BTreeMap<(Tenant, String), Subscription>,
    pub(super) notices: BTreeMap<i64, NoticeEntry>,
    pub(super) dead: BTreeMap<i64, DeadEntry>,
    /// How often appends put notices since this process began.
    put: u64,
}

#[derive(Debug)]
pub(super) struct NoticeEntry {
    pub(super) tenant: Tenant,
    pub(super) shard: Shard,
    pub(super) run: RunId,
    pub(super) notice: Notice,
    /// The first event of the newest append that asked for it.
    pub(super) latest: Seq,
    pub(super) attempts: u32,
}

#[derive(Debug)]
pub(super) struct DeadEntry {
    pub(super) tenant: Tenant,
    pub(super) shard: Shard,
    pub(super) latest: Seq,
    pub(super) owner: String,
    pub(super) letter: DeadLetter,
}

impl State {
    /// The notices of a batch, one for each subscription to it.
    pub(super) fn wanted_notices(&self, batch: &Batch) -> Vec<Notice> {
        let scopes = Scope::of_batch(batch);
        let wants = |one: &&Subscription| {
            one.is_active
                && one.tenant == *batch.tenant()
                && one.wants & batch.tells != 0
                && scopes.contains(&one.scope)
        };
        let who = self.deliveries.subscriptions.values().filter(wants);
        who.map(|one| Notice::of_batch(batch, one.id.clone(), one.owner.clone())).collect()
    }

    pub(crate) fn notices_put(&self) -> u64 {
        self.deliveries.put
    }

    pub(super) fn put_notice(&mut self, run: RunId, tenant: &Tenant, notice: Notice, latest: Seq) {
        self.deliveries.put += 1;
        let same = |entry: &NoticeEntry| entry.run == run && entry.notice.subscription == notice.subscription;
        let found = self.deliveries.notices.iter_mut().find(|(_, entry)| same(entry));
        match found {
            Some((no, entry)) => {
                entry.latest = entry.latest.max(latest);
                let no = *no;
                self.touch(|| ChangeMark::Notice(no));
            }
            None => {
                let no = self.next_number();
                self.touch(|| ChangeMark::Notice(no));
                let (tenant, shard) = (tenant.clone(), run.shard(tenant));
                let entry = NoticeEntry { tenant, shard, run, notice, latest, attempts: 0 };
                self.deliveries.notices.insert(no, entry);
            }
        }
    }

    pub(crate) fn due_notices(&self, query: &NoticeQuery) -> Vec<DueNotice> {
        let is_due = |entry: &NoticeEntry| {
            entry.notice.due_at <= query.now
                && query.shards.contains(entry.shard)
                && !query.without.contains(&entry.notice.subscription)
                && !query.without_owners.contains(&entry.notice.owner)
        };
        let mut queues: BTreeMap<&str, Vec<(Timestamp, i64)>> = BTreeMap::new();
        for (no, entry) in self.deliveries.notices.iter().filter(|(_, entry)| is_due(entry)) {
            queues.entry(&entry.notice.owner).or_default().push((entry.notice.due_at, *no));
        }
        for queue in queues.values_mut() {
            queue.sort_unstable();
            queue.truncate(query.each);
        }
        let row = |no: i64| {
            let entry = self.deliveries.notices.get(&no)?;
            Some(DueNotice {
                no,
                subscription: entry.notice.subscription.clone(),
                owner: entry.notice.owner.clone(),
                run: entry.run,
                from: entry.notice.from,
                attempts: entry.attempts,
            })
        };
        let taken = take_turns(queues.into_values().collect(), query.limit);
        taken.into_iter().filter_map(row).collect()
    }

    pub(crate) fn count_subscriptions(&self, count: &SubscriptionCount) -> usize {
        self.deliveries.subscriptions.values().filter(|one| count.counts(one)).count()
    }

    pub(crate) fn settle_notice(&mut self, no: i64, settle: SettleNotice) {
        self.touch(|| ChangeMark::Notice(no));
        let Some(entry) = self.deliveries.notices.get_mut(&no) else { return };
        match settle {
            SettleNotice::Delivered { upto } if entry.latest > upto => {
                entry.notice.from = entry.notice.from.max(upto.plus(1));
                entry.attempts = 0;
            }
            SettleNotice::Delivered { .. } => {
                self.deliveries.notices.remove(&no);
            }
            SettleNotice::Retry { at, from } => {
                entry.failed(from);
                entry.notice.due_at = at;
            }
            SettleNotice::Dead { at, from, why } => {
                entry.failed(from);
                let letter = DeadLetter {
                    no,
                    subscription: entry.notice.subscription.clone(),
                    run: entry.run,
                    from: entry.notice.from,
                    attempts: entry.attempts,
                    at,
                    why,
                };
                let (tenant, shard, latest) = (entry.tenant.clone(), entry.shard, entry.latest);
                let owner = entry.notice.owner.clone();
                self.deliveries.notices.remove(&no);
                self.touch(|| ChangeMark::Letter(no));
                self.deliveries.dead.insert(no, DeadEntry { tenant, shard, latest, owner, letter });
            }
        }
    }

    pub(crate) fn subscription(&self, tenant: Tenant, id: String) -> Option<Subscription> {
        self.deliveries.subscriptions.get(&(tenant, id)).cloned()
    }

    pub(crate) fn list_subscriptions(&self, query: &SubscriptionQuery) -> Vec<Subscription> {
        let is_wanted = |one: &&Subscription| {
            one.tenant == query.tenant
                && query.owner.as_ref().is_none_or(|owner| one.owner == *owner)
                && query.after.as_ref().is_none_or(|after| one.id > *after)
        };
        self.deliveries.subscriptions.values().filter(is_wanted).take(query.limit).cloned().collect()
    }

    pub(crate) fn put_subscription(&mut self, new: Subscription) -> bool {
        let key = (new.tenant.clone(), new.id.clone());
        let is_new = !self.deliveries.subscriptions.contains_key(&key);
        if is_new {
            self.touch(|| ChangeMark::Subscription(key.0.clone(), key.1.clone()));
            self.deliveries.subscriptions.insert(key, new);
        }
        is_new
    }

    pub(crate) fn change_subscription(&mut self, before: &str, after: Subscription) -> bool {
        let key = (after.tenant.clone(), after.id.clone());
        let found = self.deliveries.subscriptions.get_mut(&key).filter(|found| found.facts == before);
        let Some(found) = found else { return false };
        *found = Subscription { scope: found.scope.clone(), owner: found.owner.clone(), ..after };
        self.touch(|| ChangeMark::Subscription(key.0, key.1));
        true
    }

    pub(crate) fn delete_subscription(&mut self, tenant: Tenant, id: String) -> bool {
        self.forget_letters_that(|dead| dead.tenant == tenant && dead.letter.subscription == id);
        self.touch(|| ChangeMark::Subscription(tenant.clone(), id.clone()));
        self.deliveries.subscriptions.remove(&(tenant, id)).is_some()
    }

    pub(crate) fn dead_letters(&self, query: &DeadQuery) -> Page<DeadLetter> {
        let is_wanted = |dead: &&DeadEntry| {
            dead.tenant == query.tenant
                && dead.letter.subscription == query.subscription
                && query.cursor.is_none_or(|cursor| dead.letter.no.cast_unsigned() > cursor)
        };
        let found = self.deliveries.dead.values().filter(is_wanted).map(|dead| dead.letter.clone());
        DeadLetter::page(found.take(query.limit.saturating_add(1)).collect(), query.limit)
    }

    /// Whether something of a run still waits to be told.
    pub(super) fn is_to_be_told(&self, run: RunId) -> bool {
        self.deliveries.notices.values().any(|entry| entry.run == run)
    }

    /// Deletes the dead letters of a run.
    pub(super) fn forget_letters(&mut self, run: RunId) {
        self.forget_letters_that(|dead| dead.letter.run == run);
    }

    fn forget_letters_that(&mut self, is_meant: impl Fn(&DeadEntry) -> bool) {
        let meant = self.deliveries.dead.iter().filter(|(_, dead)| is_meant(dead)).map(|(no, _)| *no);
        for no in meant.collect::<Vec<i64>>() {
            self.touch(|| ChangeMark::Letter(no));
            self.deliveries.dead.remove(&no);
        }
    }

    pub(crate) fn resend(&mut self, tenant: &Tenant, no: i64, at: Timestamp) -> bool {
        if self.deliveries.dead.get(&no).is_none_or(|dead| dead.tenant != *tenant) {
            return false;
        }
        let Some(DeadEntry { tenant, shard, latest, owner, letter }) = self.deliveries.dead.remove(&no)
        else {
            return false;
        };
        self.touch(|| ChangeMark::Letter(no));
        let same =
            |entry: &NoticeEntry| entry.run == letter.run && entry.notice.subscription == letter.subscription;
        match self.deliveries.notices.iter_mut().find(|(_, entry)| same(entry)) {
            Some((no, entry)) => {
                entry.notice.from = entry.notice.from.min(letter.from);
                entry.notice.due_at = at;
                entry.latest = entry.latest.max(latest);
                entry.attempts = 0;
                let no = *no;
                self.touch(|| ChangeMark::Notice(no));
            }
            None => {
                let run = letter.run;
                let subscription = letter.subscription;
                let notice = Notice { subscription, owner, from: letter.from, due_at: at };
                let no = self.next_number();
                self.touch(|| ChangeMark::Notice(no));
                let entry = NoticeEntry { tenant, shard, run, notice, latest, attempts: 0 };
                self.deliveries.notices.insert(no, entry);
            }
        }
        true
    }
}

impl NoticeEntry {
    /// Tries count for the event that they begin with.
    fn failed(&mut self, from: Seq) {
        self.attempts = if from > self.notice.from { 1 } else { self.attempts + 1 };
        self.notice.from = self.notice.from.max(from);
    }
}
