//! What the SQL backends write into their columns: numbers of kinds, small JSON documents, leases.
//!
//! One place, so that a row means the same in every database. Reading is strict: what is not exactly what is written
//! here is corrupt, which quarantines its run and nothing else.

use serde::{Deserialize, Serialize};
use standfast_core::actor::Actor;
use standfast_core::digest::Digest;
use standfast_core::event::Driver;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, Incarnation, MessageId, RequestId, RequestKey, RunId, Seq};
use standfast_core::name::{AgentName, BadName, InboxName, SessionId, ToolName, UserId};
use standfast_core::project::{HoldClosure, HoldRow, ResolutionKind};
use standfast_core::run::InboxEntry;
use standfast_core::time::Timestamp;

use crate::batch::LeaseChange;
use crate::error::StoreError;
use crate::query::Lease;

/// What a row says that cannot be.
#[derive(Debug)]
pub(crate) struct CorruptRow(pub(crate) String);

impl CorruptRow {
    pub(crate) fn of(self, run: RunId) -> StoreError {
        StoreError::Corrupt { run, why: self.0 }
    }
}

impl From<BadName> for CorruptRow {
    fn from(error: BadName) -> CorruptRow {
        CorruptRow(error.to_string())
    }
}

/// Inbox facts that no query looks at.
#[derive(Serialize, Deserialize)]
struct InboxFacts {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_agent: Option<AgentName>,
    max_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

/// The JSON of a run's inbox facts.
pub(crate) fn inbox_facts(place: &InboxEntry) -> String {
    let facts = InboxFacts {
        kind: place.kind.clone(),
        target_agent: place.target_agent.clone(),
        max_attempts: place.max_attempts,
        expires_at: place.expires_at,
    };
    json(&facts)
}

/// Bytes of most rows' JSON: room for it is made once.
const ROW_USUAL: usize = 512;

/// A serialised value; our types have only string keys, so this cannot fail.
pub(crate) fn json(value: &impl Serialize) -> String {
    let mut text = Vec::with_capacity(ROW_USUAL);
    let written = serde_json::to_writer(&mut text, value).map_err(|error| error.to_string());
    match written.and_then(|()| String::from_utf8(text).map_err(|error| error.to_string())) {
        Ok(text) => text,
        Err(error) => unreachable!("rows serialise: {error}"),
    }
}

/// A place in an inbox, from its columns.
pub(crate) fn inbox_place(
    inbox: &str,
    priority: Option<u8>,
    facts: Option<&str>,
) -> Result<InboxEntry, CorruptRow> {
    let facts: InboxFacts = parse(facts.unwrap_or_default())?;
    Ok(InboxEntry {
        inbox: InboxName::new(inbox)?,
        kind: facts.kind,
        priority: priority.unwrap_or_default(),
        target_agent: facts.target_agent,
        max_attempts: facts.max_attempts,
        expires_at: facts.expires_at,
    })
}

/// A run's lease, and when it is due with it.
pub(crate) struct LeaseColumns {
    pub(crate) node: Option<Incarnation>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) due_at: Option<Timestamp>,
}

impl LeaseColumns {
    /// A leased run is due when the lease runs out; otherwise when its row, or a wake, says.
    pub(crate) fn after(
        change: LeaseChange,
        before: Option<Lease>,
        wake_at: Option<Timestamp>,
        row_due_at: Option<Timestamp>,
    ) -> LeaseColumns {
        let (lease, wake_at) = match change {
            LeaseChange::Keep => (before, wake_at),
            // Whoever takes the run looks at it; who has it already only goes on.
            LeaseChange::Take { node, until } => {
                let wake_at = wake_at.filter(|_| before.is_some_and(|lease| lease.node == node));
                (Some(Lease { node, until }), wake_at)
            }
            LeaseChange::Release => (None, wake_at),
        };
        let due_at = match lease {
            Some(lease) => Some(lease.until),
            None => [row_due_at, wake_at].into_iter().flatten().min(),
        };
        LeaseColumns { node: lease.map(|l| l.node), until: lease.map(|l| l.until), wake_at, due_at }
    }
}

/// The number of a driver.
pub(crate) fn driver_number(driver: Driver) -> i64 {
    match driver {
        Driver::Loop => 0,
        Driver::Outside => 1,
        Driver::Gate => 2,
    }
}

/// The driver behind a number.
pub(crate) fn driver(number: i64) -> Result<Driver, CorruptRow> {
    match number {
        0 => Ok(Driver::Loop),
        1 => Ok(Driver::Outside),
        2 => Ok(Driver::Gate),
        other => Err(CorruptRow(format!("there is no driver {other}"))),
    }
}

/// The number of a hold's kind.
pub(crate) fn kind_number(kind: HoldKind) -> i64 {
    match kind {
        HoldKind::Approval => 1,
        HoldKind::Input => 2,
        HoldKind::External => 3,
        HoldKind::Auth => 4,
        HoldKind::Recovery => 5,
    }
}

/// What its column says of the deadline of an open hold: 0 is none.
pub(crate) fn deadline(row: &HoldRow) -> i64 {
    row.expires_at.map_or(0, |at| at.0)
}

/// How a hold that waits for an outside system stands, in the words of the view `pending_tool_calls` (S2-4, S2-27).
pub(crate) fn external_status(row: &HoldRow) -> &'static str {
    match row.closed.as_ref().map(|closed| closed.how) {
        None if row.processing => "processing",
        None => "waiting",
        Some(ResolutionKind::Answered) => "completed",
        Some(ResolutionKind::Expired) => "expired",
        Some(
            ResolutionKind::Approved
            | ResolutionKind::Edited
            | ResolutionKind::Denied
            | ResolutionKind::Failed
            | ResolutionKind::Withdrawn
            | ResolutionKind::Superseded,
        ) => "failed",
    }
}

/// Reads JSON that this store wrote.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, CorruptRow> {
    serde_json::from_str(text).map_err(|error| CorruptRow(format!("a row cannot be read: {error}")))
}

/// What a decided hold was, kept with its row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    kind: HoldKind,
    agent: AgentName,
    session: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<ToolName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inbox: Option<InboxName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Seq>,
    at: Seq,
    opened_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expired_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    #[serde(default)]
    revision: u32,
    #[serde(default)]
    muted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assignee: Option<UserId>,
    #[serde(default)]
    processing: bool,
    closed_seq: Seq,
    closed_at: Timestamp,
    closed_by: Actor,
    how: u8,
}

impl Record {
    pub(crate) fn of(row: &HoldRow) -> Option<Record> {
        let closed = row.closed.as_ref()?;
        Some(Record {
            kind: row.kind,
            agent: row.agent.clone(),
            session: row.session.clone(),
            tool: row.tool.clone(),
            inbox: row.inbox.clone(),
            request: row.request.map(|request| request.key),
            message: row.message.map(|message| message.seq),
            at: row.at,
            opened_at: row.opened_at,
            expires_at: row.expires_at,
            expired_at: row.expired_at,
            digest: row.digest,
            revision: row.revision,
            muted: row.muted,
            assignee: row.assignee.clone(),
            processing: row.processing,
            closed_seq: closed.seq,
            closed_at: closed.at,
            closed_by: closed.by.clone(),
            how: closed.how as u8,
        })
    }

    pub(crate) fn row(self, id: HoldId) -> HoldRow {
        HoldRow {
            id,
            kind: self.kind,
            agent: self.agent,
            session: self.session,
            tool: self.tool,
            inbox: self.inbox,
            request: self.request.map(|key| RequestId { run: id.run, key }),
            message: self.message.map(|seq| MessageId { run: id.run, seq }),
            at: self.at,
            opened_at: self.opened_at,
            expires_at: self.expires_at,
            expired_at: self.expired_at,
            digest: self.digest,
            revision: self.revision,
            muted: self.muted,
            assignee: self.assignee,
            processing: self.processing,
            closed: ResolutionKind::from_number(self.how).map(|how| HoldClosure {
                seq: self.closed_seq,
                at: self.closed_at,
                by: self.closed_by,
                how,
            }),
        }
    }
}

/// Kinds are stored as numbers; every kind has one.
#[cfg(test)]
#[test]
fn every_kind_has_its_number() {
    let mut numbers: Vec<i64> = standfast_core::hold::HoldKind::ALL.into_iter().map(kind_number).collect();
    numbers.dedup();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}
