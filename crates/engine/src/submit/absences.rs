//! Whoever is away has somebody stand in: the holds that they may decide are handed on for them, one by one, until they are back.
//!
//! The configuration says who, to whom and until when (`settings/people.rs`). Each is a delegation like one that they would have made
//! themselves, so log and receipts say in whose place somebody decided, and four eyes count. Several nodes may hand on the same
//! hold: once it has been, nothing is left to do.

use std::collections::HashSet;
use std::sync::Arc;

use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::time::Millis;
use standfast_store::{Audience, HoldFilter, HoldQuery, StoreError};

use super::Submit;
use super::people::{Adjustment, HoldAdjustment};
use crate::EngineError;
use crate::auth::Identification;
use crate::log::audience_member;
use crate::settings::{Absence, ConfiguredPerson};

/// How often it is looked for new holds while somebody is away.
const EVERY: Millis = Millis::seconds(2);

/// Holds that are read at once.
const AT_ONCE: usize = 200;

/// What people stand in for. Nobody can give somebody else's login, and jobs report for themselves.
const KINDS: [HoldKind; 3] = [HoldKind::Approval, HoldKind::Input, HoldKind::Recovery];

/// A version of a hold, and for whom it was handed on.
type HandedHolds = HashSet<(HoldId, u32, UserId)>;

impl Submit {
    /// Hands on what people who are away are asked, from now on, until the engine stops.
    pub(crate) fn keep_stand_ins(self: &Arc<Submit>) {
        let (mut stopping, mut reloads) = (self.host.stopping(), self.host.reloads());
        let shared = Arc::downgrade(self);
        self.host.spawn(async move {
            let mut handed = HandedHolds::new();
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.host.is_stopping()) {
                let again = shared.hand_on(&mut handed).await;
                let clock = shared.host.clock.clone();
                drop(shared);
                let next = async {
                    match again {
                        Some(span) => clock.sleep(span).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = stopping.wait_for(|stopping| *stopping) => return,
                    changed = reloads.changed() => match changed {
                        // Others may decide now, and others be away.
                        Ok(()) => handed.clear(),
                        Err(_) => return,
                    },
                    () = next => {}
                }
            }
        });
    }

    /// Hands on what is new; after how long to look again, if anybody is away or will be.
    async fn hand_on(&self, handed: &mut HandedHolds) -> Option<Millis> {
        let (settings, now) = (self.host.settings(), self.host.clock.now());
        let mut again: Option<Millis> = None;
        for (user, one) in &settings.people {
            let Some(away) = one.away.as_ref().filter(|away| now < away.until) else { continue };
            let wait = if now < away.from { Millis(away.from.since(now).0.max(1)) } else { EVERY };
            again = Some(again.map_or(wait, |other| other.min(wait)));
            if now >= away.from
                && let Err(error) = self.hand_on_of(user, one, away, handed).await
            {
                tracing::warn!(%user, %error, "absences: pending holds could not be listed; trying again");
            }
        }
        again
    }

    async fn hand_on_of(
        &self,
        user: &UserId,
        one: &ConfiguredPerson,
        away: &Absence,
        handed: &mut HandedHolds,
    ) -> Result<(), StoreError> {
        let who = one.principal(user, Identification::Configured);
        let (mut cursor, mut listed) = (None, HashSet::new());
        loop {
            let query = HoldQuery {
                tenant: who.tenant.clone(),
                audience: Audience::AnyOf(who.parties().map(|party| audience_member(&party)).collect()),
                filter: HoldFilter::All,
                kinds: KINDS.to_vec(),
                cursor,
                limit: AT_ONCE,
            };
            let page = self.log.store.list_holds(query).await?;
            for row in page.items {
                let version = (row.id, row.revision, user.clone());
                listed.insert(version.clone());
                if handed.contains(&version) {
                    continue;
                }
                let what = Adjustment::Delegate { to: away.stand_in.clone(), until: away.until };
                let wanted = HoldAdjustment { hold: row.id, what, once: None };
                match self.adjust_hold(&who, wanted).await {
                    Ok(_) => {
                        tracing::info!(hold = %row.id, %user, to = %away.stand_in, "absences: a hold was handed on");
                        handed.insert(version);
                    }
                    // It is not theirs to decide, or was decided meanwhile.
                    Err(EngineError::Refused(_) | EngineError::NotFound | EngineError::MissingScope(_)) => {
                        handed.insert(version);
                    }
                    Err(error) => {
                        tracing::warn!(hold = %row.id, %user, %error, "absences: a hold was not handed on; trying again");
                    }
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        // What is not listed any more was decided.
        handed.retain(|version| version.2 != *user || listed.contains(version));
        Ok(())
    }
}
