//! Receivers of a run above hear what a sub-run asks: the append that asks puts a notice for each of them.
//!
//! Which they are is looked up when the sub-run is driven; what they get is for their kind to say.

use standfast_core::event::Parent;
use standfast_core::name::Tenant;
use standfast_store::pipeline::{NoticeRule, NoticeTrigger};
use standfast_store::{Recipient, StoreError, SubscriptionQuery};

use super::callbacks::{Callbacks, ids_of_run};

/// Receivers of one run above that are notified.
const RECEIVERS_MAX: usize = 100;

impl Callbacks {
    /// The notices to receivers of all runs above a sub-run whose kinds want to hear what is asked below.
    pub(crate) async fn receivers_above(
        &self,
        tenant: &Tenant,
        parent: Option<Parent>,
    ) -> Result<Vec<NoticeRule>, StoreError> {
        let names = self.ancestor_kinds.get().map_or(&[][..], Vec::as_slice);
        let (mut found, mut above) = (Vec::new(), parent);
        while let Some(parent) = above.filter(|_| !names.is_empty()) {
            for kind in names {
                let begins = ids_of_run(parent.run, kind);
                let query = SubscriptionQuery {
                    tenant: tenant.clone(),
                    owner: None,
                    after: Some(begins.clone()),
                    limit: RECEIVERS_MAX,
                };
                let rows = self.log.store.list_subscriptions(query).await?;
                let theirs = rows.into_iter().filter(|row| row.is_active && row.id.starts_with(&begins));
                found.extend(theirs.map(|row| NoticeRule {
                    trigger: NoticeTrigger::QuestionAsked,
                    recipient: Recipient::Subscription(row.id),
                    owner: row.owner,
                }));
            }
            above = self.log.store.facts(parent.run).await?.and_then(|facts| facts.parent);
        }
        Ok(found)
    }
}
