//! Receivers of a run above hear what a sub-run asks: the append that asks puts a notice for each of them.
//!
//! Which they are is looked up when the sub-run is driven; what they are told is for their kind to say.

use std::sync::Arc;

use standfast_core::decide::Decided;
use standfast_core::event::{Envelope, Parent};
use standfast_core::name::Tenant;
use standfast_store::ahead::Beside;
use standfast_store::{Notice, Put, StoreError, SubscriptionQuery};

use super::Shared;
use super::callbacks::ids_of_run;

/// Receivers of one run above that are told.
const RECEIVERS_MAX: usize = 100;

type Besides = Arc<dyn Fn(&Decided) -> Beside + Send + Sync>;

/// A receiver of a run further up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReceiverAbove {
    subscription: String,
    owner: String,
}

impl Shared {
    /// The receivers of all runs above a sub-run whose kinds want to hear what is asked below.
    pub(super) async fn receivers_above(
        &self,
        tenant: &Tenant,
        parent: Option<Parent>,
    ) -> Result<Vec<ReceiverAbove>, StoreError> {
        let kinds = self.kinds.get().into_iter().flatten().filter(|kind| kind.hears_below());
        let names: Vec<&str> = kinds.map(|kind| kind.name()).collect();
        let (mut found, mut above) = (Vec::new(), parent);
        while let Some(parent) = above.filter(|_| !names.is_empty()) {
            for kind in &names {
                let begins = ids_of_run(parent.run, kind);
                let query = SubscriptionQuery {
                    tenant: tenant.clone(),
                    owner: None,
                    after: Some(begins.clone()),
                    limit: RECEIVERS_MAX,
                };
                let rows = self.store.list_subscriptions(query).await?;
                let theirs = rows.into_iter().filter(|row| row.is_active && row.id.starts_with(&begins));
                found.extend(theirs.map(|row| ReceiverAbove { subscription: row.id, owner: row.owner }));
            }
            above = self.store.facts(parent.run).await?.and_then(|facts| facts.parent);
        }
        Ok(found)
    }
}

/// Puts a notice for each of these where `asks` finds a question, beside what else is written.
pub(super) fn telling(receivers: &[ReceiverAbove], asks: fn(&Envelope) -> bool, beside: Besides) -> Besides {
    if receivers.is_empty() {
        return beside;
    }
    let receivers = receivers.to_vec();
    Arc::new(move |decided| {
        let mut all = beside(decided);
        if let Some(asked) = decided.events.iter().find(|envelope| asks(envelope)) {
            let (from, due_at) = (asked.seq, decided.run.state.at);
            let notice = |receiver: &ReceiverAbove| {
                let ReceiverAbove { subscription, owner } = receiver.clone();
                Put::Notice(Notice { subscription, owner, from, due_at })
            };
            all.puts.extend(receivers.iter().map(notice));
        }
        all
    })
}
