//! An entry of the collections as a document, and back: what the file store writes into its files.
//!
//! Plain shapes with the names that people read in the files. What can be made from the fold is not repeated: open
//! holds, phases, when a run is due. Reading is strict: what does not fit together is said in a sentence, and the file
//! store decides what that means.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Parent};
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::name::{AgentName, InboxName, SessionId, Tenant, UserId};
use standfast_core::project::{self, RunRow};
use standfast_core::run::{FOLD_VERSION, Facts, InboxEntry};
use standfast_core::time::Timestamp;

use super::deliveries::{DeadEntry, NoticeEntry};
use super::{ChangeMark, HoldEntry, RunEntry, SessionEntry, State, StateContents};
use crate::batch::{AudienceMember, LeaseChange, Notice};
use crate::columns::{self, Record};
use crate::query::{AuditEntry, KeyRecord, Lease, SessionKey, SessionRow};
use crate::subscription::DeadLetter;

/// Everything of a run but its log and its large values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunDocument {
    pub(crate) id: RunId,
    pub(crate) tenant: Tenant,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    pub(crate) owner: UserId,
    driver: Driver,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Parent>,
    started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inbox: Option<InboxDocument>,
    /// Its place among all.
    pub(crate) no: i64,
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) definition: Digest,
    pub(crate) head: Digest,
    /// As one word, for people; it follows from the state.
    pub(crate) phase: u8,
    /// Which fold made the state.
    pub(crate) fold: u32,
    pub(crate) state: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quarantined: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) erased: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) holds: Vec<HoldDocument>,
    /// How long its log is; the file store says it.
    #[serde(default)]
    pub(crate) log_bytes: u64,
    /// How many calls of it have a file; the file store says it.
    #[serde(default)]
    pub(crate) calls: u32,
    /// The transaction that wrote it; the file store says it.
    #[serde(default)]
    pub(crate) written: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LeaseDocument {
    node: Incarnation,
    until: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct InboxDocument {
    inbox: InboxName,
    kind: String,
    priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_agent: Option<AgentName>,
    max_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

/// A hold beside what the fold says of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HoldDocument {
    pub(crate) no: i64,
    pub(crate) id: HoldId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    audience: Vec<String>,
    /// What it was, once it is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decided: Option<Record>,
}

/// A conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionDocument {
    pub(crate) tenant: Tenant,
    pub(crate) agent: AgentName,
    pub(crate) owner: UserId,
    pub(crate) session: SessionId,
    pub(crate) no: i64,
    /// As text, because it is compared as text.
    pub(crate) metadata: String,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) closed: bool,
}

/// A notice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NoticeDocument {
    tenant: Tenant,
    run: RunId,
    subscription: String,
    owner: String,
    from: Seq,
    latest: Seq,
    due_at: Timestamp,
    attempts: u32,
}

/// A notice that was given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LetterDocument {
    tenant: Tenant,
    run: RunId,
    subscription: String,
    owner: String,
    from: Seq,
    latest: Seq,
    attempts: u32,
    at: Timestamp,
    why: String,
}

impl RunDocument {
    /// What never changes of the run.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            id: self.id,
            tenant: self.tenant.clone(),
            agent: self.agent.clone(),
            session: self.session.clone(),
            owner: self.owner.clone(),
            driver: self.driver,
            parent: self.parent,
            started_at: self.started_at,
            inbox: self.inbox.clone().map(|place| InboxEntry {
                inbox: place.inbox,
                kind: place.kind,
                priority: place.priority,
                target_agent: place.target_agent,
                max_attempts: place.max_attempts,
                expires_at: place.expires_at,
            }),
        }
    }

    /// The row, from the state that it says.
    pub(crate) fn row(&self) -> Result<RunRow, String> {
        let mut state: standfast_core::run::State =
            serde_json::from_str(self.state.get()).map_err(|error| format!("its state: {error}"))?;
        (state.seq, state.at, state.definition) = (self.seq, self.at, self.definition);
        let run = standfast_core::run::Run { facts: self.facts(), state };
        Ok(project::run_row(run, self.head))
    }
}

impl State {
    /// Empty collections that keep rows only and mark what changes.
    pub(crate) fn rows_only() -> State {
        State { kept: StateContents::RowsOnly, touched: Some(Default::default()), ..State::default() }
    }

    /// What has changed since this was last asked.
    pub(crate) fn take_touched(&mut self) -> std::collections::BTreeSet<ChangeMark> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The number that was given last.
    pub(crate) fn last_number(&self) -> i64 {
        self.last_number
    }

    /// Numbers begin after this one.
    pub(crate) fn number_after(&mut self, last: i64) {
        self.last_number = self.last_number.max(last);
    }

    /// Every run, in the order of their numbers.
    pub(crate) fn run_ids(&self) -> impl Iterator<Item = RunId> + '_ {
        self.runs.values().map(|entry| entry.row.run.facts.id)
    }

    /// The row of a run, also of one that is quarantined.
    pub(crate) fn any_row(&self, run: RunId) -> Option<&RunRow> {
        self.entry(run).map(|entry| &entry.row)
    }

    pub(crate) fn run_document(&self, run: RunId) -> Option<RunDocument> {
        let no = *self.run_numbers.get(&run)?;
        let entry = self.runs.get(&no)?;
        let (facts, state) = (&entry.row.run.facts, &entry.row.run.state);
        let hold = |no: &i64| {
            let hold = self.holds.get(no)?;
            Some(HoldDocument {
                no: *no,
                id: hold.row.id,
                audience: hold.audience.iter().map(|one| one.0.clone()).collect(),
                decided: Record::of(&hold.row),
            })
        };
        Some(RunDocument {
            id: facts.id,
            tenant: facts.tenant.clone(),
            agent: facts.agent.clone(),
            session: facts.session.clone(),
            owner: facts.owner.clone(),
            driver: facts.driver,
            parent: facts.parent,
            started_at: facts.started_at,
            inbox: facts.inbox.as_ref().map(|place| InboxDocument {
                inbox: place.inbox.clone(),
                kind: place.kind.clone(),
                priority: place.priority,
                target_agent: place.target_agent.clone(),
                max_attempts: place.max_attempts,
                expires_at: place.expires_at,
            }),
            no,
            seq: state.seq,
            at: state.at,
            definition: state.definition,
            head: entry.row.head,
            phase: entry.row.phase as u8,
            fold: FOLD_VERSION,
            state: RawValue::from_string(columns::json(state)).ok()?,
            lease: entry.lease.map(|Lease { node, until }| LeaseDocument { node, until }),
            wake_at: entry.wake_at,
            quarantined: entry.quarantined.clone(),
            erased: entry.is_erased,
            holds: entry.holds.iter().filter_map(hold).collect(),
            log_bytes: 0,
            calls: 0,
            written: 0,
        })
    }

    /// Puts a run back. `row` is what its state, or its log, says.
    pub(crate) fn restore_run(&mut self, document: RunDocument, row: RunRow) -> Result<(), String> {
        let (run, no) = (document.id, document.no);
        if self.run_numbers.contains_key(&run) || self.runs.contains_key(&no) {
            return Err(format!("another file has its id or its number {no}"));
        }
        let mut holds = Vec::new();
        for hold in document.holds {
            let audience = hold.audience.into_iter().map(AudienceMember).collect();
            let row = match hold.decided {
                Some(record) => record.row(hold.id),
                None => {
                    let open = row.run.hold(hold.id.key);
                    let open = open.ok_or_else(|| format!("{} is neither open nor decided", hold.id))?;
                    project::hold_row(&row.run, open)
                }
            };
            if hold.id.run != run || self.holds.contains_key(&hold.no) {
                return Err(format!("{} is not its own, or its number {} is taken", hold.id, hold.no));
            }
            holds.push((hold.no, HoldEntry { row, audience }));
        }
        let mut entry = RunEntry {
            row,
            lease: document.lease.map(|LeaseDocument { node, until }| Lease { node, until }),
            due_at: None,
            wake_at: document.wake_at,
            links: Vec::new(),
            holds: holds.iter().map(|(no, _)| *no).collect(),
            quarantined: document.quarantined,
            is_erased: document.erased,
        };
        if entry.quarantined.is_none() {
            entry.change_lease(LeaseChange::Keep);
        }
        for (no, hold) in holds {
            self.number_after(no);
            self.hold_numbers.insert(hold.row.id, no);
            self.holds.insert(no, hold);
        }
        self.number_after(no);
        self.run_numbers.insert(run, no);
        self.runs.insert(no, entry);
        Ok(())
    }

    pub(crate) fn session_document(&self, key: &SessionKey) -> Option<SessionDocument> {
        let SessionEntry { no, row } = self.sessions.get(key)?;
        let SessionKey { tenant, agent, owner, session } = row.key.clone();
        let (metadata, created_at, updated_at) = (row.metadata.clone(), row.created_at, row.updated_at);
        let closed = row.closed;
        Some(SessionDocument {
            tenant,
            agent,
            owner,
            session,
            no: *no,
            metadata,
            created_at,
            updated_at,
            closed,
        })
    }

    pub(crate) fn restore_session(&mut self, document: SessionDocument) {
        let SessionDocument { tenant, agent, owner, session, no, metadata, created_at, updated_at, closed } =
            document;
        let key = SessionKey { tenant, agent, owner, session };
        self.number_after(no);
        let row = SessionRow { key: key.clone(), metadata, created_at, updated_at, closed };
        self.sessions.insert(key, SessionEntry { no, row });
    }

    pub(crate) fn counter(&self, tenant: &Tenant, name: &str) -> Option<i64> {
        self.counters.get(&(tenant.clone(), name.to_owned())).copied()
    }

    pub(crate) fn restore_counter(&mut self, tenant: Tenant, name: String, value: i64) {
        self.counters.insert((tenant, name), value);
    }

    pub(crate) fn restore_key(&mut self, tenant: Tenant, key: String, record: KeyRecord) {
        self.keys.insert((tenant, key), record);
    }

    pub(crate) fn restore_audit(&mut self, tenant: Tenant, last: AuditEntry) {
        self.audit.insert(tenant, vec![last]);
    }

    pub(crate) fn notice_document(&self, no: i64) -> Option<NoticeDocument> {
        let entry = self.deliveries.notices.get(&no)?;
        Some(NoticeDocument {
            tenant: entry.tenant.clone(),
            run: entry.run,
            subscription: entry.notice.subscription.clone(),
            owner: entry.notice.owner.clone(),
            from: entry.notice.from,
            latest: entry.latest,
            due_at: entry.notice.due_at,
            attempts: entry.attempts,
        })
    }

    pub(crate) fn restore_notice(&mut self, no: i64, document: NoticeDocument) {
        let NoticeDocument { tenant, run, subscription, owner, from, latest, due_at, attempts } = document;
        let shard = run.shard(&tenant);
        let notice = Notice { subscription, owner, from, due_at };
        self.number_after(no);
        self.deliveries.notices.insert(no, NoticeEntry { tenant, shard, run, notice, latest, attempts });
    }

    pub(crate) fn letter_document(&self, no: i64) -> Option<LetterDocument> {
        let entry = self.deliveries.dead.get(&no)?;
        Some(LetterDocument {
            tenant: entry.tenant.clone(),
            run: entry.letter.run,
            subscription: entry.letter.subscription.clone(),
            owner: entry.owner.clone(),
            from: entry.letter.from,
            latest: entry.latest,
            attempts: entry.letter.attempts,
            at: entry.letter.at,
            why: entry.letter.why.clone(),
        })
    }

    pub(crate) fn restore_letter(&mut self, no: i64, document: LetterDocument) {
        let LetterDocument { tenant, run, subscription, owner, from, latest, attempts, at, why } = document;
        let shard = run.shard(&tenant);
        let letter = DeadLetter { no, subscription, run, from, attempts, at, why };
        self.number_after(no);
        self.deliveries.dead.insert(no, DeadEntry { tenant, shard, latest, owner, letter });
    }
}
