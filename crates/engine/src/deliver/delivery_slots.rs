//! How many deliveries are under way at once: for one subscription, one owner, one host, and altogether.
//!
//! One owner's hanging receivers take that owner's places and nobody else's. The host of a receiver is known once its
//! subscription was read: a delivery that finds its host full goes away again, and is not begun before there is room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Url;
use standfast_store::DueNotice;
use tokio::task::JoinSet;

use super::Deliveries;

/// Deliveries at once.
const AT_ONCE: usize = 256;

/// Deliveries for one owner at once.
pub(super) const OF_OWNER: usize = 32;

/// Deliveries to one host at once: more than one owner has, so that no owner alone keeps others from a host.
const TO_HOST: usize = 64;

/// Deliveries to one subscription at once, each of another run.
const TO_SUBSCRIPTION: usize = 4;

/// Subscriptions whose hosts are remembered.
const KNOWN_MAX: usize = 10_000;

/// What is being told.
#[derive(Default)]
pub(super) struct UnderWay {
    tasks: JoinSet<()>,
    notices: HashMap<tokio::task::Id, DueNotice>,
}

impl UnderWay {
    pub(super) fn is_full(&self) -> bool {
        self.tasks.len() >= AT_ONCE
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether a notice is not under way yet, and subscription, owner and host have a place for it.
    pub(super) fn has_place_for(&self, deliveries: &Deliveries, notice: &DueNotice) -> bool {
        let is_known = self.notices.values().any(|one| one.no == notice.no);
        let count =
            |is_same: &dyn Fn(&DueNotice) -> bool| self.notices.values().filter(|one| is_same(one)).count();
        !is_known
            && !self.is_full()
            && count(&|one| one.subscription == notice.subscription) < TO_SUBSCRIPTION
            && count(&|one| one.owner == notice.owner) < OF_OWNER
            && deliveries.hosts.has_place_for(&notice.subscription)
    }

    pub(super) fn begin(&mut self, notice: &DueNotice, telling: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(telling);
        self.notices.insert(task.id(), notice.clone());
    }

    /// Waits until one of them ends; for ever when there is none.
    pub(super) async fn ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "deliveries: a delivery broke off; trying again");
                error.id()
            }
            None => return std::future::pending().await,
        };
        self.notices.remove(&id);
    }

    /// Subscriptions that have all their places.
    pub(super) fn busy_subscriptions(&self) -> Vec<String> {
        busy(self.notices.values().map(|one| one.subscription.as_str()), TO_SUBSCRIPTION)
    }

    /// Owners that have all their places.
    pub(super) fn busy_owners(&self) -> Vec<String> {
        busy(self.notices.values().map(|one| one.owner.as_str()), OF_OWNER)
    }

    pub(super) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Those that are there so often or more.
fn busy<'a>(all: impl Iterator<Item = &'a str>, most: usize) -> Vec<String> {
    let mut counted: HashMap<&str, usize> = HashMap::new();
    all.for_each(|one| *counted.entry(one).or_default() += 1);
    let mut busy: Vec<String> =
        counted.into_iter().filter(|(_, count)| *count >= most).map(|(one, _)| one.to_owned()).collect();
    busy.sort_unstable();
    busy
}

/// The hosts that deliveries are under way to.
#[derive(Debug, Clone, Default)]
pub(super) struct Hosts(Arc<Mutex<Visits>>);

#[derive(Debug, Default)]
struct Visits {
    under_way: HashMap<String, usize>,
    /// By subscription.
    known: HashMap<String, String>,
}

/// A place at a host, until it is dropped.
#[derive(Debug)]
pub(super) struct HostSlot {
    hosts: Hosts,
    host: String,
}

impl Hosts {
    /// Takes a place at the host of a receiver; none when there is none.
    pub(super) fn enter(&self, subscription: &str, url: &str) -> Option<HostSlot> {
        let url = Url::parse(url).ok();
        let host = url.and_then(|url| url.host_str().map(str::to_ascii_lowercase)).unwrap_or_default();
        let mut visits = self.visits();
        if visits.known.len() >= KNOWN_MAX {
            visits.known.clear();
        }
        visits.known.insert(subscription.to_owned(), host.clone());
        let count = visits.under_way.entry(host.clone()).or_default();
        if *count >= TO_HOST {
            return None;
        }
        *count += 1;
        Some(HostSlot { hosts: self.clone(), host })
    }

    /// Whether the host of a subscription has a place, as far as it is known.
    fn has_place_for(&self, subscription: &str) -> bool {
        let visits = self.visits();
        let host = visits.known.get(subscription);
        host.and_then(|host| visits.under_way.get(host)).is_none_or(|count| *count < TO_HOST)
    }

    fn visits(&self) -> MutexGuard<'_, Visits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HostSlot {
    fn drop(&mut self) {
        let mut visits = self.hosts.visits();
        if let Some(count) = visits.under_way.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                visits.under_way.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F25: a host takes so many deliveries at once and no more; others are not concerned, and a place is free again.
    #[test]
    fn a_host_that_is_full_is_left_alone() {
        let hosts = Hosts::default();
        let url = |host: &str| format!("https://{host}/hook");
        let mut places: Vec<HostSlot> =
            (0..TO_HOST).map(|n| hosts.enter(&format!("sub_{n}"), &url("Slow.example")).unwrap()).collect();
        assert!(hosts.has_place_for("new"), "its host is not known yet");
        assert!(hosts.enter("new", &url("slow.example")).is_none());
        assert!(!hosts.has_place_for("new"));
        assert!(hosts.enter("other", &url("quick.example")).is_some());
        assert!(hosts.has_place_for("other"));
        places.pop();
        assert!(hosts.has_place_for("new"));
        assert!(hosts.enter("new", &url("slow.example")).is_some());
    }
}
