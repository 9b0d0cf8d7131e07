//! What an audit of a store finds, and what an export hands over.
//!
//! What is proven of one run, and of a tenant's audit, is the same for every backend and stands here; how rows are found
//! and read is the backend's ([`crate::sqlite::verify`], [`crate::postgres::verify`]). Everything that a page or an API
//! shows of a run is folded from its chain again and compared with what is stored. A chain that was resealed by
//! whoever can write the database follows from itself; only what signed heads say of it ([`SignedCoverage`]) tells.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use standfast_core::apply;
use standfast_core::digest::{self, Digest};
use standfast_core::event::Envelope;
use standfast_core::id::{HoldId, HoldKey, RunId, Seq};
use standfast_core::link::{Contents, FIRST_PREVIOUS, Link};
use standfast_core::name::Tenant;
use standfast_core::project::{self, HoldRow, Phase};
use standfast_core::run::{FOLD_VERSION, Run, status};
use standfast_core::time::Timestamp;

use crate::columns::{self, Record};
use crate::error::StoreError;
use crate::pipeline::{counted_takes, taken_for_good};
use crate::query::{AuditEntry, KeyRecord};

/// What was looked at and what was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Runs looked at.
    pub runs: u64,
    /// Links whose hashes were checked.
    pub links: u64,
    /// Events in them.
    pub events: u64,
    /// Runs whose contents were erased; their chains were checked all the same.
    pub erased: u64,
    /// Runs whose contents are sealed and for which nobody gave the keys: their chains were checked, and nothing else.
    pub locked: u64,
    /// Entries of tenants' audits.
    pub entries: u64,
    /// What is wrong, at most one for each run.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The same, with the findings of one run alone: whoever asks for one run gets that one.
    pub(crate) fn only(mut self, run: Option<RunId>) -> Report {
        if let Some(run) = run {
            self.findings.retain(|finding| finding.run == run.to_string());
        }
        self
    }
}

/// Something that is wrong with a run, or with something beside the runs. Others are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The run's id; otherwise what it is.
    pub run: String,
    /// What is wrong with it.
    pub what: String,
}

/// What signed heads say was there: it still has to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SignedCoverage {
    /// Of each run its last event and the hash of the link that it stands in.
    pub runs: HashMap<RunId, (Seq, Digest)>,
    /// Of each tenant's audit the last entry and its hash.
    pub entries: HashMap<String, (u64, Digest)>,
    /// When this is asked. What starts took from rolling budgets has to be there as long as it counts, and is forgotten an hour
    /// later; without the time it is not looked for.
    pub asked_at: Option<Timestamp>,
}

/// The log of a run, as far as it verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedRun {
    /// The run.
    pub run: RunId,
    /// Its links up to the first that does not verify.
    pub links: Vec<ExportedLink>,
    /// The large values that their events name, each once.
    pub values: BTreeMap<Digest, String>,
    /// What is wrong with it.
    pub wrong: Option<String>,
    /// Its contents are sealed, and nobody gave the keys.
    pub is_locked: bool,
}

/// A link with its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedLink {
    /// The link as it is stored.
    pub link: Link,
    /// Its events with large values in place; none when they were erased.
    pub events: Vec<Envelope>,
}

/// The hash of an entry of a tenant's audit, which ties it to the one before. The first one has none before it.
#[must_use]
pub fn entry_hash(previous: Option<Digest>, tenant: &str, no: u64, at: Timestamp, entry: &str) -> Digest {
    digest::of_parts(
        "standfast.audit.1",
        &[
            &previous.unwrap_or(FIRST_PREVIOUS).0,
            tenant.as_bytes(),
            &no.to_be_bytes(),
            &at.0.to_be_bytes(),
            entry.as_bytes(),
        ],
    )
}

/// The digest of what stays of a run when its contents are erased: whose it was, how it ended, who decided its holds. The
/// proof of its deletion has it, because there is nothing left to fold it from.
#[must_use]
pub fn remains_digest(run: &Run, holds: &[HoldRow]) -> Digest {
    let facts = &run.facts;
    let (driver, phase) = (columns::driver_number(facts.driver), Phase::from(status(run)) as u8);
    let inbox = facts.inbox.as_ref();
    let mut parts: Vec<Vec<u8>> = vec![
        facts.id.bytes().to_vec(),
        facts.tenant.as_str().into(),
        facts.agent.as_str().into(),
        facts.session.as_str().into(),
        facts.owner.as_str().into(),
        driver.to_be_bytes().to_vec(),
        facts.started_at.0.to_be_bytes().to_vec(),
        facts.parent.as_ref().map(columns::json).unwrap_or_default().into(),
        inbox.map(|place| place.inbox.to_string()).unwrap_or_default().into(),
        inbox.map(columns::inbox_facts).unwrap_or_default().into(),
        vec![phase],
    ];
    let mut decided: Vec<&HoldRow> = holds.iter().filter(|row| row.closed.is_some()).collect();
    decided.sort_by_key(|row| row.at);
    for row in decided {
        parts.push(row.id.to_string().into());
        parts.push(columns::json(&Record::of(row)).into());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    digest::of_parts("standfast.remains.1", &parts)
}

/// What a backend shows of its runs. For one run all of it is of one moment.
pub(crate) trait Evidence {
    /// Whether the contents of a run are sealed and cannot be opened here; its links show nothing but their commitments then.
    fn is_locked(&self, run: RunId) -> Result<bool, StoreError> {
        let _ = run;
        Ok(false)
    }
    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError>;
    fn run(&self, run: RunId) -> Result<Run, StoreError>;
    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError>;
    fn columns(&self, run: RunId) -> Result<StoredColumns, StoreError>;
    fn holds(&self, run: RunId) -> Result<Vec<StoredHold>, StoreError>;
    fn key(&self, tenant: &Tenant, key: &str) -> Result<Option<KeyRecord>, StoreError>;
}

/// Columns of a run that are made from its fold, and by which it is listed.
#[derive(Debug)]
pub(crate) struct StoredColumns {
    pub(crate) phase: i64,
    /// Which fold they were made by.
    pub(crate) fold: i64,
}

/// A hold as its columns say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredHold {
    pub(crate) key: HoldKey,
    pub(crate) tenant: String,
    pub(crate) agent: String,
    pub(crate) tool: Option<String>,
    pub(crate) kind: i64,
    /// Only of one that is open.
    pub(crate) inbox: Option<String>,
    pub(crate) is_closed: bool,
    pub(crate) record: Option<HoldRow>,
}

impl StoredHold {
    /// The columns that belong to a row.
    fn of(row: &HoldRow, tenant: &str) -> StoredHold {
        let is_closed = row.closed.is_some();
        StoredHold {
            key: row.id.key,
            tenant: tenant.to_owned(),
            agent: row.agent.to_string(),
            tool: row.tool.as_ref().map(ToString::to_string),
            kind: columns::kind_number(row.kind),
            inbox: row.inbox.as_ref().filter(|_| !is_closed).map(ToString::to_string),
            is_closed,
            record: is_closed.then(|| row.clone()),
        }
    }
}

/// What is known of the rest of the database when a run is looked at.
#[derive(Debug, Default)]
pub(crate) struct AuditContext {
    covered: SignedCoverage,
    proofs: HashMap<RunId, Proof>,
    definitions: HashSet<(String, Digest)>,
    seen: HashSet<RunId>,
}

/// The proof of a deletion, as it stands in a tenant's audit.
#[derive(Debug, Clone, Deserialize)]
struct Proof {
    run: RunId,
    seq: Seq,
    hash: Digest,
    /// Older versions did not say it.
    #[serde(default)]
    remains: Option<Digest>,
}

#[derive(Deserialize)]
struct Proofs {
    #[serde(default)]
    erased: Vec<Proof>,
}

/// Looks at tenants' audits, entry by entry in their order.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    last: Option<(String, u64, Digest)>,
    heads: HashMap<String, (u64, Digest)>,
    wrong: HashSet<String>,
}

impl Entries {
    pub(crate) fn take(
        &mut self,
        tenant: &str,
        entry: &AuditEntry,
        known: &mut AuditContext,
        report: &mut Report,
    ) {
        report.entries += 1;
        let before = self.last.take().filter(|(of, _, _)| of == tenant);
        let (next, previous) = before.map_or((1, None), |(_, no, hash)| (no + 1, Some(hash)));
        let hash = entry_hash(previous, tenant, entry.no, entry.at, &entry.entry);
        let wrong = match (entry.no == next, hash == entry.hash) {
            (false, _) => Some(format!("entry {next} is missing: the next one is {}", entry.no)),
            (true, false) => {
                Some(format!("the hash of entry {} does not fit it or the one before it", entry.no))
            }
            (true, true) => None,
        };
        let signed = known.covered.entries.get(tenant);
        let is_rewritten = signed.is_some_and(|(no, hash)| *no == entry.no && *hash != entry.hash);
        let rewritten = is_rewritten.then(|| format!("entry {} is not the one that was signed", entry.no));
        if let Some(what) = wrong.or(rewritten)
            && self.wrong.insert(tenant.to_owned())
        {
            report.findings.push(Finding { run: audit_of(tenant), what });
        }
        if let Ok(Proofs { erased }) = serde_json::from_str(&entry.entry) {
            known.proofs.extend(erased.into_iter().map(|proof| (proof.run, proof)));
        }
        self.heads.insert(tenant.to_owned(), (entry.no, entry.hash));
        self.last = Some((tenant.to_owned(), entry.no, entry.hash));
    }

    /// When there are no more.
    pub(crate) fn end(self, known: &AuditContext, report: &mut Report) {
        for (tenant, (no, _)) in &known.covered.entries {
            let last = self.heads.get(tenant).map_or(0, |(no, _)| *no);
            if last < *no && !self.wrong.contains(tenant) {
                let what = format!("it ends with entry {last}, but entry {no} was signed");
                report.findings.push(Finding { run: audit_of(tenant), what });
            }
        }
    }
}

fn audit_of(tenant: &str) -> String {
    format!("audit of tenant {tenant}")
}

impl AuditContext {
    pub(crate) fn of(covered: &SignedCoverage) -> AuditContext {
        AuditContext { covered: covered.clone(), ..AuditContext::default() }
    }

    /// A definition that is stored under this digest.
    pub(crate) fn take_definition(
        &mut self,
        tenant: &str,
        digest: Digest,
        bytes: &[u8],
        report: &mut Report,
    ) {
        if digest::of_bytes(bytes) == digest {
            self.definitions.insert((tenant.to_owned(), digest));
        } else {
            let what = "it was changed: its bytes do not have this digest".to_owned();
            report.findings.push(Finding { run: format!("definition {digest}"), what });
        }
    }

    /// When every run was looked at: those that were signed and are gone.
    pub(crate) fn end(&self, report: &mut Report) {
        let mut gone: Vec<(&RunId, &(Seq, Digest))> =
            self.covered.runs.iter().filter(|(run, _)| !self.seen.contains(run)).collect();
        gone.sort_by_key(|(run, _)| **run);
        for (run, (seq, _)) in gone {
            let what = format!("it is gone: its events up to {seq} were signed");
            report.findings.push(Finding { run: run.to_string(), what });
        }
    }

    /// What a signed head says otherwise than the chain of a run.
    fn unsigned(&self, run: RunId, links: &[Link]) -> Option<String> {
        let (seq, hash) = self.covered.runs.get(&run)?;
        let last = links.last().map_or(0, |link| link.next().0.saturating_sub(1));
        if last < seq.0 {
            return Some(format!(
                "it was rolled back: it ends with event {last}, but event {seq} was signed"
            ));
        }
        let is_signed = links.iter().any(|link| link.next() == seq.plus(1) && link.hash == *hash);
        (!is_signed).then(|| {
            format!("its chain was rewritten: its events up to {seq} are not those that were signed")
        })
    }
}

/// What was seen of one run.
#[derive(Debug, Default)]
pub(crate) struct RunFindings {
    /// Nobody wanted to look at it.
    pub(crate) is_skipped: bool,
    pub(crate) links: u64,
    pub(crate) events: u64,
    pub(crate) is_erased: bool,
    pub(crate) is_locked: bool,
    pub(crate) wrong: Option<String>,
}

impl Report {
    /// Counts a run that was looked at.
    pub(crate) fn add(&mut self, run: RunId, seen: RunFindings, known: &mut AuditContext) {
        known.seen.insert(run);
        self.links += seen.links;
        self.events += seen.events;
        self.erased += u64::from(seen.is_erased);
        self.locked += u64::from(seen.is_locked);
        self.findings.extend(seen.wrong.map(|what| Finding { run: run.to_string(), what }));
    }

    /// The runs that something is wrong with so far.
    pub(crate) fn suspects(&self) -> Vec<RunId> {
        self.findings.iter().filter_map(|finding| finding.run.parse().ok()).collect()
    }

    /// A second look: nothing was wrong after all.
    pub(crate) fn look_again(&mut self, run: RunId, looked: Result<RunFindings, StoreError>) {
        if looked.is_ok_and(|seen| seen.wrong.is_none()) {
            self.findings.retain(|finding| finding.run != run.to_string());
        }
    }

    /// A run that could not be looked at.
    pub(crate) fn add_unreadable(&mut self, run: RunId, error: &StoreError, known: &mut AuditContext) {
        known.seen.insert(run);
        self.findings.push(Finding { run: run.to_string(), what: error.to_string() });
    }
}

/// Looks at one run: its chain, its fold, its rows, its large values.
pub(crate) fn look_at(
    evidence: &dyn Evidence,
    known: &AuditContext,
    run: RunId,
) -> Result<RunFindings, StoreError> {
    let links = evidence.links(run)?;
    let mut seen = RunFindings { links: links.len() as u64, ..RunFindings::default() };
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    let mut events: Vec<Envelope> = Vec::new();
    for link in &links {
        let checked = link.verify(previous, next).and_then(|()| link.events());
        match checked {
            Ok(more) => events.extend(more),
            Err(bad) => {
                seen.wrong = Some(bad.to_string());
                return Ok(seen);
            }
        }
        (previous, next) = (link.hash, link.next());
    }
    seen.events = next.0.saturating_sub(1);
    seen.is_locked = evidence.is_locked(run)?;
    seen.is_erased =
        !seen.is_locked && links.iter().any(|link| matches!(link.contents, Contents::Erased { .. }));
    seen.wrong = known.unsigned(run, &links);
    if seen.wrong.is_none() && !seen.is_locked {
        let stored = evidence.run(run)?;
        seen.wrong = match (links.is_empty(), seen.is_erased) {
            (true, _) => Some("it has no events".into()),
            (false, true) => wrong_with_remains(evidence, known, &links, &stored)?,
            (false, false) => wrong_with_rows(evidence, known, &events, &stored)?,
        };
    }
    Ok(seen)
}

/// Without contents there is nothing to fold: what is left is compared with the proof of the deletion.
fn wrong_with_remains(
    evidence: &dyn Evidence,
    known: &AuditContext,
    links: &[Link],
    stored: &Run,
) -> Result<Option<String>, StoreError> {
    let run = stored.facts.id;
    if !stored.state.erased || !links.iter().any(Link::says_erased) {
        return Ok(Some("contents are missing although the run was never erased".into()));
    }
    let Some(proof) = known.proofs.get(&run) else {
        return Ok(Some("its contents were erased, and its tenant's audit has no proof of that".into()));
    };
    let is_proven = |link: &Link| link.next() == proof.seq.plus(1) && link.hash == proof.hash;
    if !links.iter().any(is_proven) {
        return Ok(Some("its chain is not the one that the proof of its deletion names".into()));
    }
    let Some(remains) = proof.remains else { return Ok(None) };
    let holds = evidence.holds(run)?;
    let is_open = holds.iter().any(|hold| !hold.is_closed || hold.record.is_none());
    let records: Vec<HoldRow> = holds.into_iter().filter_map(|hold| hold.record).collect();
    if is_open || remains_digest(stored, &records) != remains {
        let what = "what is left of it was changed: it is not what the proof of its deletion says";
        return Ok(Some(what.into()));
    }
    Ok(wrong_phase(&evidence.columns(run)?, stored))
}

/// The first thing that rows or large values say otherwise than the events.
fn wrong_with_rows(
    evidence: &dyn Evidence,
    known: &AuditContext,
    events: &[Envelope],
    stored: &Run,
) -> Result<Option<String>, StoreError> {
    let run = stored.facts.id;
    if apply::fold(run, events).as_ref() != Some(stored) {
        return Ok(Some("its row is not what its events fold into".into()));
    }
    if let Some(wrong) = wrong_phase(&evidence.columns(run)?, stored) {
        return Ok(Some(wrong));
    }
    let tenant = stored.facts.tenant.as_str();
    if let Some(wrong) = wrong_holds(run, tenant, &project::hold_rows(run, events), &evidence.holds(run)?) {
        return Ok(Some(wrong));
    }
    let pinned = stored.state.definition;
    if !known.definitions.contains(&(tenant.to_owned(), pinned)) {
        return Ok(Some(format!("the definition {pinned} that it is pinned to is missing or was changed")));
    }
    let counted = known.covered.asked_at.map(|at| counted_takes(run, events, at));
    let taken = taken_for_good(run, events).chain(counted.into_iter().flatten());
    if let Some(wrong) = wrong_keys(evidence, &stored.facts.tenant, run, taken)? {
        return Ok(Some(wrong));
    }
    for name in events.iter().flat_map(|envelope| envelope.event.blobs()) {
        let value = evidence.blob(run, name.digest)?;
        if value.is_none_or(|value| digest::of_bytes(value.as_bytes()) != name.digest) {
            return Ok(Some(format!("the large value {} is missing or changed", name.digest)));
        }
    }
    Ok(None)
}

/// The first key that a start took and that is not there any more, or another's: what it counts would be taken again.
fn wrong_keys(
    evidence: &dyn Evidence,
    tenant: &Tenant,
    run: RunId,
    taken: impl Iterator<Item = (String, Digest)>,
) -> Result<Option<String>, StoreError> {
    for (key, owner) in taken {
        let found = evidence.key(tenant, &key)?;
        if found.is_none_or(|found| found.run != run || found.request != owner) {
            return Ok(Some(format!("it took `{key}`, and the row that says so is missing or changed")));
        }
    }
    Ok(None)
}

/// Columns of an older fold are rebuilt when somebody reads them.
fn wrong_phase(found: &StoredColumns, stored: &Run) -> Option<String> {
    let phase = Phase::from(status(stored));
    let is_wrong = found.fold == i64::from(FOLD_VERSION) && found.phase != i64::from(phase as u8);
    is_wrong.then(|| format!("it is listed under phase {}, but its events say {phase:?}", found.phase))
}

/// The first hold whose row is not what the events say.
fn wrong_holds(run: RunId, tenant: &str, wanted: &[HoldRow], found: &[StoredHold]) -> Option<String> {
    for row in wanted {
        let mut rows = found.iter().filter(|hold| hold.key == row.id.key);
        let (hold, right) = (row.id, StoredHold::of(row, tenant));
        match (rows.next(), rows.next()) {
            (None, _) => return Some(format!("the row of {hold} is missing")),
            (Some(_), Some(_)) => return Some(format!("there are several rows of {hold}")),
            (Some(found), None) if *found == right => {}
            (Some(found), None) => {
                return Some(match (right.is_closed, found.is_closed && found.record.is_some()) {
                    (true, false) => format!("{hold} was decided, and its row says that it is open"),
                    (false, true) => format!("{hold} is open, and its row says that it was decided"),
                    (_, _) => format!("the row of {hold} is not what its events say"),
                });
            }
        }
    }
    let is_wanted = |hold: &&StoredHold| wanted.iter().any(|row| row.id.key == hold.key);
    let other = found.iter().find(|hold| !is_wanted(hold))?;
    Some(format!("no event opened {}, and there is a row of it", HoldId { run, key: other.key }))
}

/// Looks at a run and takes what its log says, as far as it verifies; passes over it when only another one is wanted.
pub(crate) fn look_and_export(
    evidence: &dyn Evidence,
    known: &AuditContext,
    only: Option<RunId>,
    run: RunId,
) -> Result<(RunFindings, Option<ExportedRun>), StoreError> {
    if only.is_some_and(|only| only != run) {
        return Ok((RunFindings { is_skipped: true, ..RunFindings::default() }, None));
    }
    let seen = look_at(evidence, known, run)?;
    let (links, values) = exported(evidence, run)?;
    let exported = ExportedRun { run, links, values, wrong: seen.wrong.clone(), is_locked: seen.is_locked };
    Ok((seen, Some(exported)))
}

/// The links of a run that verify, with the large values of their events in place.
fn exported(
    evidence: &dyn Evidence,
    run: RunId,
) -> Result<(Vec<ExportedLink>, BTreeMap<Digest, String>), StoreError> {
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    let (mut exported, mut values) = (Vec::new(), BTreeMap::new());
    for link in evidence.links(run)? {
        let Ok(mut events) = link.verify(previous, next).and_then(|()| link.events()) else { break };
        for envelope in &mut events {
            for name in envelope.event.blobs() {
                // A value that is missing or changed stays a reference; the audit says so beside it.
                if let Some(value) = evidence.blob(run, name.digest)? {
                    let _ = envelope.event.fill(&name, &value);
                    values.insert(name.digest, value);
                }
            }
        }
        (previous, next) = (link.hash, link.next());
        exported.push(ExportedLink { link, events });
    }
    Ok((exported, values))
}
