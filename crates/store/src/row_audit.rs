//! Rows beside the runs in the tenant's audit: API keys, webhook subscriptions, metadata of sessions, sealed documents.
//!
//! Whoever changes such a row adds an entry with its digest to the audit, in the same transaction; an audit compares each
//! row with its last entry. The contents themselves stay out of it: they can be erased, and some are secret. How rows are
//! found and read is the backend's.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use standfast_core::digest::{self, Digest};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;

use crate::audit::Finding;
use crate::columns;
use crate::query::{AuditEntry, Credential, SessionKey};
use crate::subscription::Subscription;

/// How often rows are read before something is said of them: they may change between two reads.
const LOOKS: u32 = 3;

/// Metadata that nobody has written.
pub(crate) const NO_METADATA: &str = "{}";

/// What kind of row an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum RowKind {
    #[serde(rename = "row.key")]
    Key,
    #[serde(rename = "row.subscription")]
    Subscription,
    #[serde(rename = "row.session")]
    Session,
    #[serde(rename = "row.sealed")]
    Sealed,
}

/// Which rows the audit of a store speaks of: one that was not opened since an upgrade says less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowAudit {
    /// Of none.
    None,
    /// Of all but sealed documents.
    AllButSealed,
    /// Of all.
    All,
}

/// Which rows of an older version are taken into the audit: later kinds came to it later, and what was in it already is
/// not to be changed by an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// Those of every kind: the audit said nothing of any.
    Everything,
    /// Sealed documents alone.
    Sealed,
}

impl Adoption {
    fn concerns(self, kind: RowKind) -> bool {
        match self {
            Adoption::Everything => true,
            Adoption::Sealed => kind == RowKind::Sealed,
        }
    }
}

/// What a row is from now on, as it stands in the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowEntry {
    kind: RowKind,
    id: String,
    /// None when the row was deleted.
    digest: Option<Digest>,
    /// Whether a program found it so at an upgrade, instead of changing it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    adopted: bool,
}

impl RowEntry {
    fn of(kind: RowKind, id: String, fields: &[&[u8]]) -> RowEntry {
        let name = columns::json(&kind);
        let parts: Vec<&[u8]> =
            [name.as_bytes(), id.as_bytes()].into_iter().chain(fields.iter().copied()).collect();
        let digest = Some(digest::of_parts("standfast.row.1", &parts));
        RowEntry { kind, id, digest, adopted: false }
    }

    /// An API key as it is now.
    pub(crate) fn key(key: &Credential) -> RowEntry {
        let instant = |at: Option<Timestamp>| at.map(|at| at.0.to_be_bytes().to_vec()).unwrap_or_default();
        let (expires, revoked) = (instant(key.expires_at), instant(key.revoked_at));
        let fields: [&[u8]; 4] = [&key.hash.0, key.facts.as_bytes(), &expires, &revoked];
        RowEntry::of(RowKind::Key, key.prefix.clone(), &fields)
    }

    /// A subscription as it is now.
    pub(crate) fn subscription(one: &Subscription) -> RowEntry {
        let (topic, wants) = (one.scope.topic(), one.wants.to_be_bytes());
        let fields: [&[u8]; 5] = [
            topic.as_bytes(),
            one.owner.as_bytes(),
            &wants,
            &[u8::from(one.is_active)],
            one.facts.as_bytes(),
        ];
        RowEntry::of(RowKind::Subscription, one.id.clone(), &fields)
    }

    /// A subscription that was deleted.
    pub(crate) fn no_subscription(id: String) -> RowEntry {
        RowEntry { kind: RowKind::Subscription, id, digest: None, adopted: false }
    }

    /// A session: its metadata, and whether it takes runs.
    pub(crate) fn session(key: &SessionKey, metadata: &str, is_closed: bool) -> RowEntry {
        let names = [key.agent.as_str(), key.owner.as_str(), key.session.as_str()];
        RowEntry::session_of(names, metadata, is_closed)
    }

    /// The same by the names of agent, owner and session.
    pub(crate) fn session_of(names: [&str; 3], metadata: &str, is_closed: bool) -> RowEntry {
        let fields = [metadata.as_bytes(), &[u8::from(is_closed)]];
        RowEntry::of(RowKind::Session, columns::json(&names), &fields)
    }

    /// A document that the server sealed, as it is now: standing approvals, logins, browser sessions, rights of tokens. None
    /// when it was deleted.
    pub(crate) fn sealed(name: &str, value: Option<&str>) -> RowEntry {
        let entry = RowEntry::of(RowKind::Sealed, name.to_owned(), &[value.unwrap_or_default().as_bytes()]);
        RowEntry { digest: entry.digest.filter(|_| value.is_some()), ..entry }
    }

    /// The entry as text.
    pub(crate) fn text(&self) -> String {
        columns::json(self)
    }

    /// What an entry of the audit says of a row; none when it is about something else.
    pub(crate) fn read(entry: &str) -> Option<RowEntry> {
        serde_json::from_str(entry).ok()
    }
}

/// A row by its tenant, kind and id.
type RowName = (String, RowKind, String);

/// Something that is wrong with a row: which one, what, and what was compared. What is found twice with other digests is
/// a row that somebody is changing.
type Difference = (RowName, &'static str, [Option<Digest>; 2]);

/// What an audit says of a tenant's rows, and the rows themselves.
#[derive(Debug, Default)]
pub(crate) struct RowEvidence {
    /// The last word of the audit on each.
    said: BTreeMap<RowName, Option<Digest>>,
    /// None is a row that cannot be read.
    found: BTreeMap<RowName, Option<Digest>>,
}

impl RowEvidence {
    /// An entry of a tenant's audit, in its order.
    pub(crate) fn take_entry(&mut self, tenant: &str, entry: &AuditEntry) {
        if let Some(RowEntry { kind, id, digest, .. }) = RowEntry::read(&entry.entry) {
            self.said.insert((tenant.to_owned(), kind, id), digest);
        }
    }

    /// A row as it is stored.
    pub(crate) fn take_row(&mut self, tenant: &str, row: RowEntry) {
        self.found.insert((tenant.to_owned(), row.kind, row.id), row.digest);
    }

    /// A row that cannot be read.
    pub(crate) fn take_unreadable(&mut self, tenant: &str, kind: RowKind, id: &str) {
        self.found.insert((tenant.to_owned(), kind, id.to_owned()), None);
    }

    /// The same without sealed documents, of which the audit of an older version says nothing.
    pub(crate) fn without_sealed(mut self) -> RowEvidence {
        let is_other = |(_, kind, _): &RowName| *kind != RowKind::Sealed;
        self.said.retain(|name, _| is_other(name));
        self.found.retain(|name, _| is_other(name));
        self
    }

    /// What has to be added to the audit so that it says of every row what is found: rows that an older version wrote.
    pub(crate) fn unsaid(&self, adoption: Adoption) -> Vec<(Tenant, RowEntry)> {
        let is_readable = |name: &RowName| self.found.get(name).is_none_or(Option::is_some);
        let row = |(name, ..): Difference| {
            let digest = self.now(&name);
            let (tenant, kind, id) = name;
            let row = RowEntry { kind, id, digest, adopted: true };
            Tenant::new(tenant.as_str()).ok().map(|tenant| (tenant, row))
        };
        let differences = self.differences().into_iter();
        let unsaid = differences.filter(|(name, ..)| adoption.concerns(name.1) && is_readable(name));
        unsaid.filter_map(row).collect()
    }

    fn differences(&self) -> BTreeSet<Difference> {
        let names: BTreeSet<&RowName> = self.said.keys().chain(self.found.keys()).collect();
        let difference = |name: &RowName| {
            let compared = [self.said.get(name).copied().flatten(), self.now(name)];
            Some((name.clone(), self.wrong(name)?, compared))
        };
        names.into_iter().filter_map(difference).collect()
    }

    /// The digest of a row as it is now; none when it is not there or cannot be read.
    fn now(&self, name: &RowName) -> Option<Digest> {
        match (self.found.get(name), name) {
            (Some(found), _) => *found,
            // Those without metadata that take runs are not among what was read.
            (None, (_, kind @ RowKind::Session, id)) => {
                RowEntry::of(*kind, id.clone(), &[NO_METADATA.as_bytes(), &[0]]).digest
            }
            (None, (_, RowKind::Key | RowKind::Subscription | RowKind::Sealed, _)) => None,
        }
    }

    fn wrong(&self, name: &RowName) -> Option<&'static str> {
        if self.found.get(name).is_some_and(Option::is_none) {
            return Some("it cannot be read");
        }
        match (self.said.get(name), self.now(name)) {
            (Some(said), now) if *said == now => None,
            (Some(Some(_)), None) => Some("it is gone, and the audit does not say that it was deleted"),
            (Some(None), Some(_)) => Some("it is there, and the audit says that it was deleted"),
            (Some(_), _) => Some("it is not what the audit says of it"),
            (None, Some(_)) => Some("nothing in the audit says that it was made or changed"),
            (None, None) => None,
        }
    }
}

fn title((tenant, kind, id): &RowName) -> String {
    let kind = match kind {
        RowKind::Key => "key",
        RowKind::Subscription => "subscription",
        RowKind::Session => "session",
        RowKind::Sealed => "sealed document",
    };
    format!("{kind} {id} of tenant {tenant}")
}

/// What is wrong with the rows: what is found in every one of a few looks, because a server may be changing them.
pub(crate) fn wrong_rows<E>(
    audit: RowAudit,
    read: impl Fn() -> Result<RowEvidence, E>,
) -> Result<Vec<Finding>, E> {
    let read = || -> Result<RowEvidence, E> {
        Ok(match audit {
            RowAudit::None => RowEvidence::default(),
            RowAudit::AllButSealed => read()?.without_sealed(),
            RowAudit::All => read()?,
        })
    };
    let mut wrong = read()?.differences();
    for _ in 1..LOOKS {
        if wrong.is_empty() {
            break;
        }
        let again = read()?.differences();
        wrong.retain(|difference| again.contains(difference));
    }
    Ok(wrong
        .into_iter()
        .map(|(name, what, ..)| Finding { run: title(&name), what: what.to_owned() })
        .collect())
}
