//! Standing approvals as they are stored: in the event of the decision that saved them, with a key beside it by which they are
//! found; in one sealed document for each agent, for reading; and keys for uses and revocations.
//!
//! The key beside the decision is written by the same append, so a grant is there if and only if its decision is. It carries a
//! code of the grant that only the server's own key makes, and the document is sealed with that key: nobody who can write the
//! database can write themselves a grant. What only the key knows of is put into the document when it is first looked for.
//! Uses are keys that the appends which start calls claim, so of two starts that take the last one, one is refused, on any
//! node; a revocation is a key that must not be there. What a grant covers is the policy's, who may make one `submit/grants.rs`.

use serde::{Deserialize, Serialize};
use standfast_core::digest;
use standfast_core::event::Event;
use standfast_core::grant::{GrantUse, SavedGrant, revoked_key};
use standfast_core::id::{HoldId, Seq};
use standfast_core::name::{AgentName, GrantId, Tenant, UserId};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_policy::grant::{Grant, GrantProposal};
use standfast_store::{KeyNote, KeyQuery, KeyRecord, SideWrite, StoreError};

use super::Log;
use crate::EngineError;
use crate::vault::Vault;

/// Grants of one agent that have not ended.
const LIVE_MAX: usize = 200;

/// How long a grant that has ended is still listed.
const LISTED: Millis = Millis::hours(30 * 24);

/// How often a document that others change at the same time is read again.
const RETRIES: u32 = 20;

/// A grant as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptGrant {
    /// The hold whose approval saved it.
    pub hold: HoldId,
    /// The grant.
    pub grant: Grant,
    /// Who ended it before its time, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
}

/// The end of a grant before its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Who.
    pub by: UserId,
    /// When.
    pub at: Timestamp,
}

/// The document of an agent.
#[derive(Debug, Default, Serialize, Deserialize)]
struct GrantBook {
    grants: Vec<KeptGrant>,
}

impl Log {
    /// Standing approvals.
    pub(crate) fn grants(&self) -> GrantLedger<'_> {
        GrantLedger { log: self }
    }
}

/// The standing approvals of all agents.
#[derive(Clone, Copy)]
pub(crate) struct GrantLedger<'a> {
    log: &'a Log,
}

impl GrantLedger<'_> {
    /// Whether grants can be kept: they are sealed with the server's key.
    pub(crate) fn can_keep(&self) -> bool {
        self.log.host.settings().webhooks.key.is_some()
    }

    fn vault(&self, tenant: &Tenant) -> Option<Vault> {
        let key = self.log.host.settings().webhooks.key.clone()?;
        Some(Vault::new(self.log.store.clone(), tenant.clone(), key))
    }

    /// The grants of an agent, the oldest first, also those that have ended lately.
    pub(crate) async fn of_agent(
        &self,
        tenant: &Tenant,
        agent: &AgentName,
    ) -> Result<Vec<KeptGrant>, EngineError> {
        let Some(vault) = self.vault(tenant) else { return Ok(Vec::new()) };
        let kept = vault.get(&book(agent)).await?;
        let mut grants = kept.map(|kept| read(&kept.text).grants).unwrap_or_default();
        let prefix = marker_prefix(agent);
        let mut before = None;
        loop {
            let query = KeyQuery { tenant: tenant.clone(), prefix: prefix.clone(), before, limit: PAGE };
            let page = self.log.store.keys_under(query).await?;
            for (key, record) in &page {
                let id = key.strip_prefix(&prefix).and_then(|id| GrantId::new(id).ok());
                let Some(id) = id.filter(|id| grants.iter().all(|kept| kept.grant.id != *id)) else {
                    continue;
                };
                if let Some(found) = self.saved(tenant, agent, &id, record).await? {
                    // Only so that it need not be looked for again.
                    if let Err(error) = self.keep(tenant, &found, self.log.host.clock.now()).await {
                        tracing::warn!(grant = %id, %error, "grants: not put into the document yet; trying again later");
                    }
                    grants.push(found);
                }
            }
            if page.len() < PAGE {
                grants.sort_by_key(|kept| kept.grant.made_at);
                return Ok(grants);
            }
            before = page.last().map(|(key, _)| key.clone());
        }
    }

    /// What the append of a decision writes beside it, so that the grant which it saves is found.
    pub(crate) fn marker(&self, facts: &Facts, hold: HoldId, saved: &SavedGrant) -> Option<SideWrite> {
        let key = self.log.host.settings().webhooks.key.clone()?;
        let hold = hold.to_string();
        let request = key.code(MARKER, &marked(&facts.tenant, &facts.agent, &hold, saved));
        let key = format!("{}{}", marker_prefix(&facts.agent), saved.id);
        Some(SideWrite::Key { key, request, expires_at: saved.until })
    }

    /// The grant that a key stands for, as its decision saved it; none unless this server made the key for exactly that.
    async fn saved(
        &self,
        tenant: &Tenant,
        agent: &AgentName,
        id: &GrantId,
        record: &KeyRecord,
    ) -> Result<Option<KeptGrant>, EngineError> {
        let Some(server_key) = self.log.host.settings().webhooks.key.clone() else { return Ok(None) };
        let events = match self.log.events(record.run, Seq(0)).await {
            Ok(events) => events,
            Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let decided = events.iter().find_map(|envelope| {
            let Event::HoldResolved(resolved) = &envelope.event else { return None };
            let saved = resolved.grant.as_deref().filter(|saved| saved.id == *id)?;
            Some((saved, resolved.hold, envelope.actor.user()?.clone(), envelope.at))
        });
        let Some((saved, key, by, at)) = decided else { return Ok(None) };
        let hold = HoldId { run: record.run, key };
        if !server_key.made(record.request, MARKER, &marked(tenant, agent, &hold.to_string(), saved)) {
            tracing::warn!(grant = %id, %hold, "grants: the key beside the decision was not made by this server; ignored");
            return Ok(None);
        }
        let Ok(proposal) = serde_json::from_str::<GrantProposal>(saved.rule.text()) else { return Ok(None) };
        if proposal.agent != *agent {
            return Ok(None);
        }
        let accepted = proposal.accept(saved.id.clone(), saved.digest, vec![by], at);
        Ok(accepted.ok().map(|grant| KeptGrant { hold, grant, revoked: None }))
    }

    /// Whether an agent has as many live grants as it may have. Asked before one is approved: what was approved is kept.
    pub(crate) async fn are_full(
        &self,
        tenant: &Tenant,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<bool, EngineError> {
        let is_live = |kept: &&KeptGrant| kept.revoked.is_none() && kept.grant.proposal.until > now;
        Ok(self.of_agent(tenant, agent).await?.iter().filter(is_live).count() >= LIVE_MAX)
    }

    /// Puts a grant into the document, once.
    async fn keep(&self, tenant: &Tenant, new: &KeptGrant, now: Timestamp) -> Result<(), EngineError> {
        self.change(tenant, &new.grant.proposal.agent, |grants| {
            if grants.iter().any(|kept| kept.grant.id == new.grant.id) {
                return false;
            }
            grants.retain(|kept| kept.grant.proposal.until.plus(LISTED) > now);
            grants.push(new.clone());
            true
        })
        .await
    }

    /// Ends a grant: from here on no start by it is written, on any node.
    pub(crate) async fn end(
        &self,
        tenant: &Tenant,
        kept: &KeptGrant,
        revocation: &Revocation,
    ) -> Result<(), EngineError> {
        let id = &kept.grant.id;
        let expires_at = kept.grant.proposal.until.plus(LISTED).max(revocation.at.plus(LISTED));
        let note = KeyNote {
            tenant: tenant.clone(),
            key: revoked_key(id),
            run: kept.hold.run,
            kept: Some((digest::of_parts("standfast.revoked.1", &[id.as_str().as_bytes()]), expires_at)),
        };
        self.log.store.note_keys(vec![note]).await?;
        self.change(tenant, &kept.grant.proposal.agent, |grants| {
            let found = grants.iter_mut().find(|one| one.grant.id == *id && one.revoked.is_none());
            found.map(|found| found.revoked = Some(revocation.clone())).is_some()
        })
        .await
    }

    /// Whether somebody has revoked a grant, also if only the key says so yet.
    pub(crate) async fn is_revoked(&self, tenant: &Tenant, kept: &KeptGrant) -> Result<bool, EngineError> {
        let key = || self.log.store.find_key(tenant.clone(), revoked_key(&kept.grant.id));
        Ok(kept.revoked.is_some() || key().await?.is_some())
    }

    /// How many uses of a grant are taken. They are taken in order, so the first free one is looked for by halves.
    pub(crate) async fn count_uses(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        most: u32,
    ) -> Result<u32, EngineError> {
        let (mut taken, mut free) = (0, most.saturating_add(1));
        while free - taken > 1 {
            let middle = taken + (free - taken) / 2;
            match self.find_use(tenant, id, middle).await? {
                Some(_) => taken = middle,
                None => free = middle,
            }
        }
        Ok(taken)
    }

    /// Who took a use of a grant.
    pub(crate) async fn find_use(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        no: u32,
    ) -> Result<Option<KeyRecord>, EngineError> {
        let key = GrantUse { grant: id.clone(), no }.stored();
        Ok(self.log.store.find_key(tenant.clone(), key).await?)
    }

    /// Changes the document of an agent; the change says whether there is something to write.
    async fn change(
        &self,
        tenant: &Tenant,
        agent: &AgentName,
        mut change: impl FnMut(&mut Vec<KeptGrant>) -> bool,
    ) -> Result<(), EngineError> {
        let unavailable = |why: &str| EngineError::Store(StoreError::Unavailable { why: why.to_owned() });
        let Some(vault) = self.vault(tenant) else { return Err(unavailable(NO_KEY)) };
        let name = book(agent);
        for _ in 0..RETRIES {
            let before = vault.get(&name).await?;
            let mut book = before.as_ref().map(|kept| read(&kept.text)).unwrap_or_default();
            if !change(&mut book.grants) {
                return Ok(());
            }
            let text = serde_json::to_string(&book).unwrap_or_default();
            if vault.change(&name, before.as_ref(), Some(&text)).await? {
                return Ok(());
            }
        }
        Err(unavailable(
            "the standing approvals of this agent are being changed by others, or sealed with another key",
        ))
    }
}

/// Why there is no document.
const NO_KEY: &str = "standing approvals need `server.webhooks.key`: they are sealed with it";

/// What the code of a key beside a decision is for.
const MARKER: &str = "standfast.grant-saved.1";

/// Keys that are read at once.
const PAGE: usize = 1000;

/// What the keys beside decisions begin with that saved grants for an agent.
fn marker_prefix(agent: &AgentName) -> String {
    format!("grant saved {agent} ")
}

/// What the code of such a key is made of: the grant as it was saved, and where.
fn marked<'a>(
    tenant: &'a Tenant,
    agent: &'a AgentName,
    hold: &'a str,
    saved: &'a SavedGrant,
) -> [&'a [u8]; 6] {
    [
        tenant.as_str().as_bytes(),
        agent.as_str().as_bytes(),
        hold.as_bytes(),
        saved.id.as_str().as_bytes(),
        &saved.digest.0,
        saved.rule.text().as_bytes(),
    ]
}

fn book(agent: &AgentName) -> String {
    format!("grants {agent}")
}

/// A document that cannot be read has no grants: calls are held.
fn read(text: &str) -> GrantBook {
    serde_json::from_str(text).unwrap_or_default()
}
