//! The collections behind the memory store: what an append does to them, and point reads. Lists are in
//! `lists.rs`, subscriptions and notices in `deliveries.rs`. The file store keeps the same collections as its rows:
//! what changes is marked for it ([`ChangeMark`]), and `documents.rs` turns an entry into what stands in a file, and back.
//!
//! Nothing here is clever: every other backend is compared with it, so it must be easy to believe.

mod deliveries;
mod documents;
mod lists;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::mutant::Mutant;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldChange, HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;

use crate::audit::entry_hash;
use crate::batch::{AudienceMember, Batch, Guard, LeaseChange, SideWrite};
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::query::{
    AuditEntry, Credential, KeyNote, KeyRecord, Lease, SealedChange, SessionChange, SessionKey, SessionRow,
    StoredRun,
};
use deliveries::Deliveries;
pub(crate) use documents::{HoldDocument, LetterDocument, NoticeDocument, RunDocument, SessionDocument};

/// What is kept of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateContents {
    /// Its rows, its log, its large values.
    #[default]
    Everything,
    /// Its rows; somebody else keeps the rest.
    RowsOnly,
}

/// What an operation changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeMark {
    Run(RunId),
    Session(SessionKey),
    Key(Tenant, String),
    Counter(Tenant, String),
    Notice(i64),
    Letter(i64),
    Subscription(Tenant, String),
    Credential(String),
    Sealed(Tenant, String),
    Audit(Tenant),
}

#[derive(Debug, Default)]
pub(crate) struct State {
    kept: StateContents,
    /// What has changed since somebody last asked; none when nobody asks.
    touched: Option<BTreeSet<ChangeMark>>,
    runs: BTreeMap<i64, RunEntry>,
    run_numbers: HashMap<RunId, i64>,
    holds: BTreeMap<i64, HoldEntry>,
    hold_numbers: HashMap<HoldId, i64>,
    blobs: HashMap<(RunId, Digest), String>,
    definitions: HashMap<(Tenant, Digest), Vec<u8>>,
    keys: BTreeMap<(Tenant, String), KeyRecord>,
    counters: HashMap<(Tenant, String), i64>,
    sessions: BTreeMap<SessionKey, SessionEntry>,
    deliveries: Deliveries,
    credentials: BTreeMap<String, Credential>,
    audit: HashMap<Tenant, Vec<AuditEntry>>,
    sealed: HashMap<(Tenant, String), String>,
    last_number: i64,
}

#[derive(Debug)]
struct RunEntry {
    row: RunRow,
    lease: Option<Lease>,
    /// When a node should look at it: the end of a lease, or what the row or a wake says.
    due_at: Option<Timestamp>,
    /// When another run's end wants it looked at; remembered until a node takes it.
    wake_at: Option<Timestamp>,
    links: Vec<Link>,
    /// The numbers of its holds.
    holds: Vec<i64>,
    /// Why it was quarantined, if it was.
    quarantined: Option<String>,
    /// Whether its contents are gone.
    is_erased: bool,
}

#[derive(Debug)]
struct SessionEntry {
    no: i64,
    row: SessionRow,
}

#[derive(Debug)]
struct HoldEntry {
    row: HoldRow,
    audience: Vec<AudienceMember>,
}

impl State {
    pub(crate) fn append(&mut self, batches: Vec<Batch>) -> Result<(), StoreError> {
        for (at, batch) in batches.iter().enumerate() {
            self.check_expected(batch)?;
            // Of two batches of one run the second was decided on a state that the first one changes.
            if batches.iter().take(at).any(|earlier| earlier.run() == batch.run()) {
                return Err(StoreError::Conflict { run: batch.run() });
            }
        }
        let mut counted = HashMap::new();
        let guards = batches.iter().flat_map(|batch| batch.guards.iter().map(move |guard| (batch, guard)));
        for (which, (batch, guard)) in guards.enumerate() {
            let checked = self.check_guard(batch, guard, &mut counted);
            checked.map_err(|why| StoreError::Guard { which, why })?;
        }
        for (tenant, name) in counted.keys() {
            self.touch(|| ChangeMark::Counter(tenant.clone(), name.clone()));
        }
        self.counters.extend(counted);
        batches.into_iter().for_each(|batch| self.write(batch));
        Ok(())
    }

    fn check_expected(&self, batch: &Batch) -> Result<(), StoreError> {
        if Mutant::SequenceUnchecked.is_on() {
            return Ok(());
        }
        let conflict = StoreError::Conflict { run: batch.run() };
        match (self.entry(batch.run()), batch.expected.seq) {
            (None, Seq(0)) => Ok(()),
            (None, _) => Err(StoreError::NotFound { run: batch.run() }),
            (Some(entry), _) if entry.quarantined.is_some() => entry.readable(batch.run()),
            (Some(_), Seq(0)) => Err(conflict),
            (Some(entry), seq) => {
                let is_same = entry.row.run.state.seq == seq && entry.row.head == batch.expected.head;
                if is_same { Ok(()) } else { Err(conflict) }
            }
        }
    }

    /// Checks a guard. The sum is remembered, so that the guards of one append add up.
    fn check_guard(
        &self,
        batch: &Batch,
        guard: &Guard,
        counted: &mut HashMap<(Tenant, String), i64>,
    ) -> Result<(), String> {
        let tenant = batch.tenant();
        match guard {
            Guard::KeyUnused { key } => match self.keys.get(&(tenant.clone(), key.clone())) {
                Some(record) => Err(format!("the key was used for run {}", record.run)),
                None => Ok(()),
            },
            Guard::CounterWithin { counter, add, max } => {
                let name = (tenant.clone(), counter.clone());
                let now = counted.get(&name).or_else(|| self.counters.get(&name)).copied().unwrap_or(0);
                let after = now.saturating_add(*add);
                if after > *max {
                    return Err(format!("{counter} is at {now} of {max}"));
                }
                counted.insert(name, after);
                Ok(())
            }
            Guard::SessionOpen { session } => match self.sessions.get(session) {
                Some(entry) if entry.row.closed => Err(format!("session {} is closed", session.session)),
                Some(_) | None => Ok(()),
            },
            Guard::NotLeased { node, now } => {
                let lease = self.entry(batch.run()).and_then(|entry| entry.lease);
                Guard::leased(lease, *node, *now).map_or(Ok(()), Err)
            }
        }
    }

    fn write(&mut self, batch: Batch) {
        let run = batch.run();
        let tenant = batch.tenant().clone();
        let last_seq = batch.row.run.state.seq;
        let first_seq = batch.link.header.first;
        for notice in self.wanted_notices(&batch) {
            self.put_notice(run, &tenant, notice, first_seq);
        }
        self.write_row(batch.row, batch.link, batch.lease);
        batch.holds.into_iter().for_each(|change| self.write_hold(change));
        for put in batch.puts {
            self.put(run, &tenant, put, first_seq, last_seq);
        }
    }

    fn write_row(&mut self, row: RunRow, link: Link, lease: LeaseChange) {
        let run = row.run.facts.id;
        self.touch(|| ChangeMark::Run(run));
        let link = match self.kept {
            StateContents::Everything => Some(link),
            StateContents::RowsOnly => None,
        };
        match self.run_numbers.get(&run).and_then(|no| self.runs.get_mut(no)) {
            Some(entry) => {
                entry.row = row;
                entry.links.extend(link);
                entry.change_lease(lease);
            }
            None => {
                self.open_session(&row);
                let no = self.next_number();
                let mut entry = RunEntry {
                    row,
                    lease: None,
                    due_at: None,
                    wake_at: None,
                    links: link.into_iter().collect(),
                    holds: Vec::new(),
                    quarantined: None,
                    is_erased: false,
                };
                entry.change_lease(lease);
                self.run_numbers.insert(run, no);
                self.runs.insert(no, entry);
            }
        }
    }

    fn open_session(&mut self, row: &RunRow) {
        let facts = &row.run.facts;
        let key = SessionKey::of(facts);
        let at = facts.started_at;
        let fresh = SessionRow {
            key: key.clone(),
            metadata: "{}".into(),
            created_at: at,
            updated_at: at,
            closed: false,
        };
        let no = self.next_number();
        if !self.sessions.contains_key(&key) {
            self.touch(|| ChangeMark::Session(key.clone()));
            self.sessions.insert(key, SessionEntry { no, row: fresh });
        }
    }

    fn write_hold(&mut self, change: HoldChange) {
        match change {
            HoldChange::Open(row) => {
                let no = self.next_number();
                self.hold_numbers.insert(row.id, no);
                if let Some(entry) = self.run_numbers.get(&row.id.run).and_then(|no| self.runs.get_mut(no)) {
                    entry.holds.push(no);
                }
                self.holds.insert(no, HoldEntry { row, audience: Vec::new() });
            }
            HoldChange::Update(row) => {
                if let Some(entry) = self.hold_entry(row.id) {
                    entry.row = row;
                }
            }
            HoldChange::Close(row) => {
                if let Some(entry) = self.hold_entry(row.id) {
                    entry.row = row;
                    entry.audience.clear();
                }
            }
        }
    }

    fn put(&mut self, run: RunId, tenant: &Tenant, put: SideWrite, first: Seq, last: Seq) {
        match put {
            SideWrite::Key { key, request, expires_at } => {
                let record = KeyRecord { request, run, seq: last, expires_at };
                self.touch(|| ChangeMark::Key(tenant.clone(), key.clone()));
                self.keys.insert((tenant.clone(), key), record);
            }
            SideWrite::Notice(notice) => self.put_notice(run, tenant, notice, first),
            SideWrite::Audience { hold, who } => {
                self.touch(|| ChangeMark::Run(hold.run));
                if let Some(entry) = self.hold_entry(hold).filter(|entry| entry.row.closed.is_none()) {
                    entry.audience.extend(who);
                }
            }
            SideWrite::Blob(_) | SideWrite::Definition { .. } if self.kept == StateContents::RowsOnly => {}
            SideWrite::Blob(blob) => {
                self.blobs.insert((run, blob.name.digest), blob.text);
            }
            SideWrite::Definition { digest, bytes } => {
                self.definitions.entry((tenant.clone(), digest)).or_insert_with(|| bytes.to_vec());
            }
            SideWrite::Wake { run, at } => {
                self.touch(|| ChangeMark::Run(run));
                let entry = self.run_numbers.get(&run).and_then(|no| self.runs.get_mut(no));
                if let Some(entry) = entry.filter(|entry| entry.quarantined.is_none()) {
                    entry.wake_at = Some(entry.wake_at.map_or(at, |wake| wake.min(at)));
                    entry.change_lease(LeaseChange::Keep);
                }
            }
        }
    }

    pub(crate) fn load(&self, run: RunId) -> Result<StoredRun, StoreError> {
        let entry = self.entry(run).ok_or(StoreError::NotFound { run })?;
        entry.readable(run)?;
        Ok(StoredRun { row: entry.row.clone(), lease: entry.lease })
    }

    pub(crate) fn links(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Link>, StoreError> {
        let entry = self.entry(run).ok_or(StoreError::NotFound { run })?;
        Ok(entry.links.iter().filter(|link| link.next() > after.plus(1)).take(limit).cloned().collect())
    }

    pub(crate) fn blob(&self, run: RunId, digest: Digest) -> Option<String> {
        self.blobs.get(&(run, digest)).cloned()
    }

    pub(crate) fn definition(&self, tenant: &Tenant, digest: Digest) -> Option<Vec<u8>> {
        self.definitions.get(&(tenant.clone(), digest)).cloned()
    }

    pub(crate) fn find_hold(&self, hold: HoldId) -> Result<Option<HoldRow>, StoreError> {
        let found = self.hold_numbers.get(&hold).and_then(|no| self.holds.get(no));
        if let (Some(HoldEntry { row: HoldRow { closed: None, .. }, .. }), Some(run)) =
            (found, self.entry(hold.run))
        {
            run.readable(hold.run)?;
        }
        Ok(found.map(|entry| entry.row.clone()))
    }

    pub(crate) fn facts(&self, run: RunId) -> Option<Facts> {
        self.entry(run).map(|entry| entry.row.run.facts.clone())
    }

    pub(crate) fn quarantine(&mut self, run: RunId, why: String) -> Result<(), StoreError> {
        let no = self.run_numbers.get(&run).copied();
        let entry = no.and_then(|no| self.runs.get_mut(&no)).ok_or(StoreError::NotFound { run })?;
        // The first reason is the one that counts.
        if entry.quarantined.is_none() {
            entry.quarantined = Some(why);
            (entry.lease, entry.wake_at, entry.due_at) = (None, None, None);
            self.touch(|| ChangeMark::Run(run));
        }
        Ok(())
    }

    pub(crate) fn find_key(&self, tenant: Tenant, key: String) -> Option<KeyRecord> {
        self.keys.get(&(tenant, key)).cloned()
    }

    pub(crate) fn keys_under(&self, query: &KeyQuery) -> Vec<(String, KeyRecord)> {
        let key = |key: String| (query.tenant.clone(), key);
        // Whoever asks for what comes before the first one gets nothing.
        let (from, end) = (query.prefix.clone(), query.end().max(query.prefix.clone()));
        let found = self.keys.range(key(from)..key(end)).rev().take(query.limit);
        found.map(|((_, key), record)| (key.clone(), record.clone())).collect()
    }

    pub(crate) fn note_keys(&mut self, notes: Vec<KeyNote>) {
        for KeyNote { tenant, key, run, kept } in notes {
            match kept {
                Some((request, expires_at)) if self.run_numbers.contains_key(&run) => {
                    let record = KeyRecord { request, run, seq: Seq(0), expires_at };
                    self.touch(|| ChangeMark::Key(tenant.clone(), key.clone()));
                    self.keys.insert((tenant, key), record);
                }
                Some(_) => {}
                None => {
                    self.touch(|| ChangeMark::Key(tenant.clone(), key.clone()));
                    self.keys.remove(&(tenant, key));
                }
            }
        }
    }

    pub(crate) fn forget_keys(&mut self, until: Timestamp, limit: usize) -> usize {
        let past = self.keys.iter().filter(|(_, record)| record.expires_at <= until);
        let names: Vec<(Tenant, String)> = past.take(limit).map(|(name, _)| name.clone()).collect();
        for (tenant, key) in &names {
            self.touch(|| ChangeMark::Key(tenant.clone(), key.clone()));
            self.keys.remove(&(tenant.clone(), key.clone()));
        }
        names.len()
    }

    pub(crate) fn renew(&mut self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Vec<RunId> {
        let still_has = |run: &RunId| match self.leased_by(*run, node) {
            Some(entry) => {
                entry.change_lease(LeaseChange::Take { node, until });
                self.touch(|| ChangeMark::Run(*run));
                true
            }
            None => false,
        };
        runs.into_iter().filter(still_has).collect()
    }

    pub(crate) fn release(&mut self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) {
        if let Some(entry) = self.leased_by(run, node) {
            entry.wake_at = [entry.wake_at, wake_at].into_iter().flatten().min();
            entry.change_lease(LeaseChange::Release);
            self.touch(|| ChangeMark::Run(run));
        }
    }

    pub(crate) fn tenants(&self) -> Vec<Tenant> {
        let all: BTreeSet<&Tenant> = self.sessions.keys().map(|key| &key.tenant).collect();
        all.into_iter().cloned().collect()
    }

    pub(crate) fn session(&self, key: &SessionKey) -> Option<SessionRow> {
        self.sessions.get(key).map(|entry| entry.row.clone())
    }

    pub(crate) fn change_session(&mut self, key: &SessionKey, change: SessionChange, at: Timestamp) -> bool {
        let Some(SessionEntry { row, .. }) = self.sessions.get_mut(key) else { return false };
        match change {
            SessionChange::Metadata { before, after } => {
                if row.metadata != before {
                    return false;
                }
                row.metadata = after;
                row.updated_at = at;
            }
            SessionChange::Close => row.closed = true,
        }
        self.touch(|| ChangeMark::Session(key.clone()));
        true
    }

    pub(crate) fn put_audit(&mut self, tenant: Tenant, at: Timestamp, entry: String) {
        let entries = self.audit.entry(tenant.clone()).or_default();
        let no = entries.last().map_or(1, |last| last.no + 1);
        let previous = entries.last().map(|last| last.hash);
        let hash = entry_hash(previous, tenant.as_str(), no, at, &entry);
        if self.kept == StateContents::RowsOnly {
            entries.clear();
        }
        entries.push(AuditEntry { no, at, entry, hash });
        self.touch(|| ChangeMark::Audit(tenant));
    }

    pub(crate) fn audit_entries(&self, tenant: &Tenant, after: u64, limit: usize) -> Vec<AuditEntry> {
        let entries = self.audit.get(tenant).map(Vec::as_slice).unwrap_or_default();
        entries.iter().filter(|entry| entry.no > after).take(limit).cloned().collect()
    }

    pub(crate) fn sealed(&self, tenant: &Tenant, name: &str) -> Option<String> {
        self.sealed.get(&(tenant.clone(), name.to_owned())).cloned()
    }

    pub(crate) fn change_sealed(&mut self, change: SealedChange) -> bool {
        let key = (change.tenant, change.name);
        if self.sealed.get(&key) != change.before.as_ref() {
            return false;
        }
        self.touch(|| ChangeMark::Sealed(key.0.clone(), key.1.clone()));
        match change.after {
            Some(value) => drop(self.sealed.insert(key, value)),
            None => drop(self.sealed.remove(&key)),
        }
        true
    }

    pub(crate) fn credential(&self, prefix: &str) -> Option<Credential> {
        self.credentials.get(prefix).cloned()
    }

    pub(crate) fn put_credential(&mut self, credential: Credential) -> bool {
        if self.credentials.contains_key(&credential.prefix) {
            return false;
        }
        self.touch(|| ChangeMark::Credential(credential.prefix.clone()));
        self.credentials.insert(credential.prefix.clone(), credential);
        true
    }

    pub(crate) fn list_credentials(&self, tenant: &Tenant) -> Vec<Credential> {
        self.credentials.values().filter(|credential| credential.tenant == *tenant).cloned().collect()
    }

    pub(crate) fn revoke_credential(&mut self, tenant: &Tenant, prefix: &str, at: Timestamp) -> bool {
        let found = self.credentials.get_mut(prefix).filter(|credential| credential.tenant == *tenant);
        let Some(credential) = found else { return false };
        credential.revoked_at.get_or_insert(at);
        self.touch(|| ChangeMark::Credential(prefix.to_owned()));
        true
    }

    pub(crate) fn expire_credential(&mut self, tenant: &Tenant, prefix: &str, at: Timestamp) -> bool {
        let found = self.credentials.get_mut(prefix).filter(|credential| credential.tenant == *tenant);
        let Some(credential) = found else { return false };
        credential.expire_by(at);
        self.touch(|| ChangeMark::Credential(prefix.to_owned()));
        true
    }

    pub(crate) fn erase(&mut self, run: RunId) -> Result<(), StoreError> {
        let no = self.run_numbers.get(&run).copied();
        let entry = no.and_then(|no| self.runs.get_mut(&no)).ok_or(StoreError::NotFound { run })?;
        if !entry.row.run.state.erased {
            return Err(StoreError::unavailable(format!(
                "run {run} has no run.erased event yet; append it first"
            )));
        }
        // The event that says so stays readable, and so does what followed it.
        let said_at = entry.links.iter().position(Link::says_erased).unwrap_or(0);
        entry.links.iter_mut().take(said_at).for_each(Link::erase);
        entry.is_erased = true;
        self.touch(|| ChangeMark::Run(run));
        self.blobs.retain(|(owner, _), _| *owner != run);
        self.forget_letters(run);
        Ok(())
    }

    fn entry(&self, run: RunId) -> Option<&RunEntry> {
        self.runs.get(self.run_numbers.get(&run)?)
    }

    fn leased_by(&mut self, run: RunId, node: Incarnation) -> Option<&mut RunEntry> {
        let entry = self.runs.get_mut(self.run_numbers.get(&run)?)?;
        entry.lease.is_some_and(|lease| lease.node == node).then_some(entry)
    }

    fn hold_entry(&mut self, hold: HoldId) -> Option<&mut HoldEntry> {
        self.holds.get_mut(self.hold_numbers.get(&hold)?)
    }

    /// Marks something as changed, if somebody asks.
    fn touch(&mut self, what: impl FnOnce() -> ChangeMark) {
        if let Some(touched) = &mut self.touched {
            touched.insert(what());
        }
    }

    fn next_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }
}

impl RunEntry {
    fn readable(&self, run: RunId) -> Result<(), StoreError> {
        match &self.quarantined {
            Some(why) => Err(StoreError::Corrupt { run, why: why.clone() }),
            None => Ok(()),
        }
    }

    fn change_lease(&mut self, change: LeaseChange) {
        match change {
            LeaseChange::Take { node, until } => {
                // Whoever takes the run looks at it; who has it already only goes on.
                if self.lease.is_none_or(|lease| lease.node != node) {
                    self.wake_at = None;
                }
                self.lease = Some(Lease { node, until });
            }
            LeaseChange::Release => self.lease = None,
            LeaseChange::Keep => {}
        }
        self.due_at = match self.lease {
            Some(lease) => Some(lease.until),
            None => [self.row.due_at, self.wake_at].into_iter().flatten().min(),
        };
    }
}
