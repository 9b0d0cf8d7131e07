//! Standing approvals as they are stored: one sealed document for each agent, and keys for uses and revocations.
//!
//! The document is sealed with the server's own key, so that nobody who can write the database can write themselves a grant.
//! Uses are keys that the appends which start calls claim, so of two starts that take the last one, one is refused, on any
//! node; a revocation is a key that must not be there. What a grant covers is the policy's, who may make one `submit/grants.rs`.

use serde::{Deserialize, Serialize};
use standfast_core::digest;
use standfast_core::grant::{GrantUse, revoked_key};
use standfast_core::id::HoldId;
use standfast_core::name::{AgentName, GrantId, Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_policy::grant::Grant;
use standfast_store::{KeyNote, KeyRecord, StoreError};

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
        Ok(kept.map(|kept| read(&kept.text).grants).unwrap_or_default())
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

    /// Keeps a grant, once.
    pub(crate) async fn keep(
        &self,
        tenant: &Tenant,
        new: &KeptGrant,
        now: Timestamp,
    ) -> Result<(), EngineError> {
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

fn book(agent: &AgentName) -> String {
    format!("grants {agent}")
}

/// A document that cannot be read has no grants: calls are held.
fn read(text: &str) -> GrantBook {
    serde_json::from_str(text).unwrap_or_default()
}
