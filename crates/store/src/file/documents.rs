//! What stands in the small files: subscriptions, sealed secrets, credentials, entries of audits, and tables that are
//! logs of changes.
//!
//! Runs, sessions, notices and letters have their shapes beside the collections that they come from
//! (`memory/state/documents.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;

use crate::columns::json;
use crate::query::{AuditEntry, Credential, KeyRecord};
use crate::subscription::{Scope, Subscription};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SubscriptionDocument {
    tenant: Tenant,
    id: String,
    scope: String,
    owner: String,
    wants: u64,
    is_active: bool,
    facts: String,
}

impl SubscriptionDocument {
    pub(super) fn of(one: Subscription) -> SubscriptionDocument {
        let Subscription { tenant, id, scope, owner, wants, is_active, facts } = one;
        SubscriptionDocument { tenant, id, scope: scope.topic(), owner, wants, is_active, facts }
    }

    pub(super) fn subscription(self) -> Result<Subscription, String> {
        let scope = Scope::of_topic(&self.scope);
        let scope = scope.ok_or_else(|| format!("`{}` names no runs", self.scope))?;
        let SubscriptionDocument { tenant, id, owner, wants, is_active, facts, .. } = self;
        Ok(Subscription { tenant, id, scope, owner, wants, is_active, facts })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SealedDocument {
    pub(super) tenant: Tenant,
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CredentialDocument {
    tenant: Tenant,
    prefix: String,
    hash: Digest,
    facts: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
}

impl CredentialDocument {
    pub(super) fn of(one: Credential) -> CredentialDocument {
        let Credential { tenant, prefix, hash, facts, expires_at, revoked_at } = one;
        CredentialDocument { tenant, prefix, hash, facts, expires_at, revoked_at }
    }

    pub(super) fn credential(self) -> Credential {
        let CredentialDocument { tenant, prefix, hash, facts, expires_at, revoked_at } = self;
        Credential { tenant, prefix, hash, facts, expires_at, revoked_at }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AuditLine {
    tenant: Tenant,
    no: u64,
    at: Timestamp,
    hash: Digest,
    entry: String,
}

impl AuditLine {
    pub(super) fn text(tenant: &Tenant, entry: &AuditEntry) -> String {
        let AuditEntry { no, at, entry, hash } = entry.clone();
        json(&AuditLine { tenant: tenant.clone(), no, at, hash, entry }) + "\n"
    }

    /// The entries of a file, and whose they are.
    pub(super) fn entries(bytes: &[u8]) -> Result<Vec<(Tenant, AuditEntry)>, String> {
        let entry = |line: AuditLine| {
            let AuditLine { tenant, no, at, hash, entry } = line;
            (tenant, AuditEntry { no, at, entry, hash })
        };
        Ok(lines::<AuditLine>(bytes)?.into_iter().map(entry).collect())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeyDocument {
    request: Digest,
    run: RunId,
    seq: Seq,
    expires_at: Timestamp,
}

impl KeyDocument {
    pub(super) fn of(record: KeyRecord) -> KeyDocument {
        let KeyRecord { request, run, seq, expires_at } = record;
        KeyDocument { request, run, seq, expires_at }
    }

    pub(super) fn record(self) -> KeyRecord {
        let KeyDocument { request, run, seq, expires_at } = self;
        KeyRecord { request, run, seq, expires_at }
    }
}

/// A change of a table: what of it is what from now on; nothing means that it is gone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TableLine {
    pub(super) of: Vec<String>,
    pub(super) is: Option<Value>,
}

impl TableLine {
    pub(super) fn text(of: &[&str], is: Option<&impl Serialize>) -> String {
        let of = of.iter().map(|one| (*one).to_owned()).collect();
        json(&TableLine { of, is: is.map(|value| serde_json::to_value(value).unwrap_or_default()) }) + "\n"
    }

    /// What a table comes to: the last word on each of its entries.
    pub(super) fn table(bytes: &[u8]) -> Result<BTreeMap<Vec<String>, Value>, String> {
        let mut table = BTreeMap::new();
        for line in lines::<TableLine>(bytes)? {
            match line.is {
                Some(value) => drop(table.insert(line.of, value)),
                None => drop(table.remove(&line.of)),
            }
        }
        Ok(table)
    }

    /// The same table without what is over.
    pub(super) fn compacted(bytes: &[u8]) -> Result<String, String> {
        let line = |(of, is)| json(&TableLine { of, is: Some(is) }) + "\n";
        Ok(TableLine::table(bytes)?.into_iter().map(line).collect())
    }
}

/// The lines of a file; a sentence about the first that cannot be read.
fn lines<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<Vec<T>, String> {
    let parse = |(no, line): (usize, &[u8])| {
        if line.ends_with(b"\n") {
            serde_json::from_slice(line).map_err(|error| format!("line {}: {error}", no + 1))
        } else {
            Err(format!("line {} is cut", no + 1))
        }
    };
    bytes.split_inclusive(|byte| *byte == b'\n').enumerate().map(parse).collect()
}

/// A document for people's eyes too: over several lines.
pub(super) fn pretty(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_else(|_| json(document));
    text.push('\n');
    text
}
