//! Proving a folder right: every run of the files against what its chain folds into.
//!
//! Reads only, without the lock, so that it can look at the folder of a server that is at work: what the journal says of a
//! file counts before the file. A run that was changed while it was looked at is looked at again.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::run::{FOLD_VERSION, Run};

use super::documents::{AuditLine, KeyDocument, SealedDocument, SubscriptionDocument, TableLine};
use super::folder::{FileChange, Folder};
use super::journal::{ROW_AUDIT, SEALED_AUDIT};
use super::sessions::SessionFile;
use super::{OpenError, journal, log, paths};
use crate::audit::{
    AuditContext, Entries, Evidence, ExportedRun, Report, RunFindings, SignedCoverage, StoredColumns,
    StoredHold, look_and_export, look_at,
};
use crate::columns;
use crate::error::StoreError;
use crate::memory::state::RunDocument;
use crate::query::{AuditEntry, KeyRecord};
use crate::row_audit::{NO_METADATA, RowAudit, RowEntry, RowEvidence, RowKind, wrong_rows};

/// How often it is said how far it is.
const PROGRESS_EVERY: u64 = 500;

/// Looks at every run of a folder. `progress` hears now and then how many runs were looked at.
pub fn verify(path: &Path, progress: impl FnMut(u64)) -> Result<Report, OpenError> {
    verify_against(path, &SignedCoverage::default(), progress)
}

/// The same, and whether everything that was signed is still there.
pub fn verify_against(
    path: &Path,
    covered: &SignedCoverage,
    progress: impl FnMut(u64),
) -> Result<Report, OpenError> {
    let look = |files: &Snapshot, known: &AuditContext, run| Ok((look_at(files, known, run)?, ()));
    walk(path, covered, progress, look, |()| ControlFlow::Continue(()))
}

/// Looks at one run, or at every run, and hands over what its log says, as far as it verifies. Ends early when `take`
/// says so.
pub fn export(
    path: &Path,
    only: Option<RunId>,
    mut take: impl FnMut(ExportedRun) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let look = |files: &Snapshot, known: &AuditContext, run| look_and_export(files, known, only, run);
    let hand_on = |exported: Option<ExportedRun>| exported.map_or(ControlFlow::Continue(()), &mut take);
    let report = walk(path, &SignedCoverage::default(), |_| {}, look, hand_on)?;
    Ok(report.only(only))
}

/// Where the chain of each run ends: its last event and the hash of its last link.
pub fn heads(path: &Path, mut take: impl FnMut(RunId, Seq, Digest)) -> Result<(), OpenError> {
    let files = Snapshot::of(path)?;
    for run in files.runs()? {
        let document = files.document(run).map_err(|error| unusable(path, &error))?;
        take(run, document.seq, document.head);
    }
    Ok(())
}

/// The audit of every tenant, oldest first: what happened beside the runs. Ends early when `take` says so.
pub fn audit_entries(
    path: &Path,
    mut take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    let files = Snapshot::of(path)?;
    for base in files.bases()? {
        let name = format!("{base}audit.jsonl");
        let bytes = files.bytes(&name).map_err(|error| unusable(path, &error))?.unwrap_or_default();
        let entries = AuditLine::entries(&bytes)
            .map_err(|why| OpenError::unusable(&files.folder.at(&name), format!("it is damaged ({why})")))?;
        for (tenant, entry) in entries {
            if take(tenant.as_str(), entry).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The files as of one moment: those that the journal has something about are as it says.
struct Snapshot {
    folder: Folder,
    /// The version of the files.
    format: u32,
    newer: HashMap<String, Vec<FileChange>>,
    /// The keys of each tenant, once somebody asked for one.
    keys: OnceCell<HashMap<[String; 2], KeyRecord>>,
}

impl Snapshot {
    fn of(path: &Path) -> Result<Snapshot, OpenError> {
        if !path.is_dir() {
            return Err(OpenError::unusable(path, "there is no folder of a file store"));
        }
        let folder = Folder::open(path)?;
        let found = journal::read(&folder)?
            .ok_or_else(|| OpenError::unusable(path, "there is no file store in it: it has no journal"))?;
        let mut newer: HashMap<String, Vec<FileChange>> = HashMap::new();
        for change in found.changes {
            newer.entry(change.path().to_owned()).or_default().push(change);
        }
        Ok(Snapshot { folder, format: found.format, newer, keys: OnceCell::new() })
    }

    /// Which rows beside the runs its audit speaks of.
    fn row_audit(&self) -> RowAudit {
        if self.format >= SEALED_AUDIT {
            RowAudit::All
        } else if self.format >= ROW_AUDIT {
            RowAudit::AllButSealed
        } else {
            RowAudit::None
        }
    }

    fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = self.folder.read(path).map_err(|error| {
            StoreError::unavailable(format!("{} cannot be read: {error}", self.folder.at(path).display()))
        })?;
        let newer = self.newer.get(path).into_iter().flatten();
        Ok(newer.fold(bytes, |bytes, change| change.made_of(bytes)))
    }

    fn read_keys(&self) -> Result<HashMap<[String; 2], KeyRecord>, StoreError> {
        let unreadable = |why: String| StoreError::unavailable(format!("{} is damaged: {why}", paths::KEYS));
        let rows = TableLine::table(&self.bytes(paths::KEYS)?.unwrap_or_default()).map_err(unreadable)?;
        let read = |(of, value): (Vec<String>, serde_json::Value)| {
            let of = <[String; 2]>::try_from(of).ok()?;
            Some((of, serde_json::from_value::<KeyDocument>(value).ok()?.record()))
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// The names in a folder below, also those that only the journal has.
    fn names(&self, path: &str) -> Result<BTreeSet<String>, OpenError> {
        let found =
            self.folder.names(path).map_err(|error| OpenError::unusable(&self.folder.at(path), error))?;
        let before = format!("{path}/");
        let coming = self.newer.keys().filter_map(|name| name.strip_prefix(&before));
        let coming = coming.filter_map(|rest| rest.split('/').next()).map(str::to_owned);
        Ok(found.into_iter().chain(coming).collect())
    }

    fn runs(&self) -> Result<BTreeSet<RunId>, OpenError> {
        let names = self.names(paths::RUNS)?;
        let id =
            |name: &String| name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json"))?.parse().ok();
        Ok(names.iter().filter_map(id).collect())
    }

    fn bases(&self) -> Result<Vec<String>, OpenError> {
        let tenants = self.names(paths::TENANTS)?.into_iter();
        let below = tenants.map(|name| format!("{}/{name}/", paths::TENANTS));
        Ok(std::iter::once(String::new()).chain(below).collect())
    }

    fn document(&self, run: RunId) -> Result<RunDocument, StoreError> {
        let path = paths::row(run);
        let corrupt = |why: String| StoreError::Corrupt {
            run,
            why: format!("{}: {why}", self.folder.at(&path).display()),
        };
        let bytes = self.bytes(&path)?.ok_or_else(|| corrupt("it is missing".into()))?;
        let document: RunDocument =
            serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
        if document.id == run { Ok(document) } else { Err(corrupt("it is about another run".into())) }
    }
}

fn unusable(path: &Path, error: &StoreError) -> OpenError {
    OpenError::unusable(path, error)
}

fn walk<T>(
    path: &Path,
    covered: &SignedCoverage,
    mut progress: impl FnMut(u64),
    look: impl Fn(&Snapshot, &AuditContext, RunId) -> Result<(RunFindings, T), StoreError>,
    mut hand_on: impl FnMut(T) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let files = Snapshot::of(path)?;
    let mut report = Report::default();
    let mut known = beside_runs(path, &files, covered, &mut report)?;
    for run in files.runs()? {
        report.runs += 1;
        // What changed since the journal was read is looked at again below.
        match look(&files, &known, run) {
            Ok((seen, _)) if seen.is_skipped => report.runs -= 1,
            Ok((seen, found)) => {
                report.add(run, seen, &mut known);
                if hand_on(found).is_break() {
                    return Ok(report);
                }
            }
            Err(error) => report.add_unreadable(run, &error, &mut known),
        }
        if report.runs.is_multiple_of(PROGRESS_EVERY) {
            progress(report.runs);
        }
    }
    progress(report.runs);
    let suspects = report.suspects();
    if !suspects.is_empty() {
        // What was stored while runs were looked at clears them.
        let later = Snapshot::of(path)?;
        let known = beside_runs(path, &later, covered, &mut Report::default())?;
        for run in suspects {
            report.look_again(run, look(&later, &known, run).map(|(seen, _)| seen));
        }
    }
    report.findings.extend(wrong_rows(Snapshot::of(path)?.row_audit(), || rows(path))?);
    known.end(&mut report);
    Ok(report)
}

/// Subscriptions, sessions and sealed documents, and what the audit says of them. Keys are files that other processes change, and are in no
/// audit.
pub(super) fn rows(path: &Path) -> Result<RowEvidence, OpenError> {
    let mut evidence = RowEvidence::default();
    let files = Snapshot::of(path)?;
    audit_entries(path, |tenant, entry| {
        evidence.take_entry(tenant, &entry);
        ControlFlow::Continue(())
    })?;
    let bytes = |name: &str| files.bytes(name).map_err(|error| unusable(path, &error));
    for base in files.bases()? {
        let below = base.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
        let tenant = below.unwrap_or(Tenant::default_tenant().as_str()).to_owned();
        let folder = format!("{base}subscription");
        for name in files.names(&folder)? {
            let Some(found) = bytes(&format!("{folder}/{name}"))? else { continue };
            let document = serde_json::from_slice::<SubscriptionDocument>(&found).ok();
            match document.map(SubscriptionDocument::subscription) {
                Some(Ok(one)) => evidence.take_row(one.tenant.as_str(), RowEntry::subscription(&one)),
                Some(Err(_)) | None => {
                    let id = name.strip_suffix(".json").unwrap_or(&name);
                    evidence.take_unreadable(&tenant, RowKind::Subscription, id);
                }
            }
        }
        let folder = format!("{base}sealed");
        for name in files.names(&folder)? {
            let Some(found) = bytes(&format!("{folder}/{name}"))? else { continue };
            match serde_json::from_slice::<SealedDocument>(&found) {
                Ok(one) => {
                    evidence.take_row(one.tenant.as_str(), RowEntry::sealed(&one.name, Some(&one.value)));
                }
                Err(_) => {
                    let name = name.strip_suffix(".json").unwrap_or(&name);
                    evidence.take_unreadable(&tenant, RowKind::Sealed, name);
                }
            }
        }
        let folder = format!("{base}session");
        for agent in files.names(&folder)? {
            for name in files.names(&format!("{folder}/{agent}"))? {
                let Some(found) = bytes(&format!("{folder}/{agent}/{name}"))? else { continue };
                let Ok(file) = SessionFile::parse(&found) else {
                    evidence.take_unreadable(&tenant, RowKind::Session, &format!("{agent}/{name}"));
                    continue;
                };
                let (key, row) = (file.key(), file.document());
                let metadata = if row.metadata.is_empty() { NO_METADATA } else { row.metadata.as_str() };
                if metadata != NO_METADATA || row.closed {
                    evidence.take_row(key.tenant.as_str(), RowEntry::session(&key, metadata, row.closed));
                }
            }
        }
    }
    Ok(evidence)
}

/// What is stored beside the runs, and what is wrong with it.
fn beside_runs(
    path: &Path,
    files: &Snapshot,
    covered: &SignedCoverage,
    report: &mut Report,
) -> Result<AuditContext, OpenError> {
    let (mut known, mut entries) = (AuditContext::of(covered), Entries::default());
    for base in files.bases()? {
        definitions(files, &base, &mut known, report).map_err(|error| unusable(path, &error))?;
    }
    audit_entries(path, |tenant, entry| {
        entries.take(tenant, &entry, &mut known, report);
        ControlFlow::Continue(())
    })?;
    entries.end(&known, report);
    Ok(known)
}

/// The definitions that runs are pinned to: whose, their digest, their bytes.
pub fn agent_definitions(path: &Path, mut take: impl FnMut(&str, Digest, &[u8])) -> Result<(), OpenError> {
    let files = Snapshot::of(path)?;
    for base in files.bases()? {
        each_definition(&files, &base, &mut take).map_err(|error| unusable(path, &error))?;
    }
    Ok(())
}

fn definitions(
    files: &Snapshot,
    base: &str,
    known: &mut AuditContext,
    report: &mut Report,
) -> Result<(), StoreError> {
    let mut take = |tenant: &str, digest, bytes: &[u8]| known.take_definition(tenant, digest, bytes, report);
    each_definition(files, base, &mut take)
}

fn each_definition(
    files: &Snapshot,
    base: &str,
    take: &mut dyn FnMut(&str, Digest, &[u8]),
) -> Result<(), StoreError> {
    let folder = format!("{base}definition");
    let names = files.names(&folder).map_err(|error| StoreError::unavailable(error.to_string()))?;
    if names.is_empty() {
        return Ok(());
    }
    // The folder of a tenant is named by a text that is safe as a file name; a file in it says the name itself.
    let tenants = tenants(files, base)?;
    for name in names {
        let Some(digest) = name.strip_suffix(".json").and_then(|name| name.parse::<Digest>().ok()) else {
            continue;
        };
        let bytes = files.bytes(&format!("{folder}/{name}"))?.unwrap_or_default();
        for tenant in &tenants {
            take(tenant.as_str(), digest, &bytes);
        }
    }
    Ok(())
}

/// Whose files stand below a folder, as its sessions say.
fn tenants(files: &Snapshot, base: &str) -> Result<BTreeSet<Tenant>, StoreError> {
    if base.is_empty() {
        return Ok([Tenant::default_tenant()].into());
    }
    let failed = |error: OpenError| StoreError::unavailable(error.to_string());
    let folder = format!("{base}session");
    for agent in files.names(&folder).map_err(failed)? {
        for name in files.names(&format!("{folder}/{agent}")).map_err(failed)? {
            let bytes = files.bytes(&format!("{folder}/{agent}/{name}"))?.unwrap_or_default();
            if let Ok(file) = super::sessions::SessionFile::parse(&bytes) {
                return Ok([file.key().tenant].into());
            }
        }
    }
    Ok(BTreeSet::new())
}

impl Evidence for Snapshot {
    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError> {
        let path = paths::log(run);
        let bytes = self.bytes(&path)?.unwrap_or_default();
        log::links(run, &bytes, Seq(0), usize::MAX).map_err(|why| StoreError::Corrupt {
            run,
            why: format!("{}: {why}", self.folder.at(&path).display()),
        })
    }

    fn run(&self, run: RunId) -> Result<Run, StoreError> {
        let document = self.document(run)?;
        if let Some(why) = document.quarantined {
            return Err(StoreError::Corrupt { run, why });
        }
        if document.fold > FOLD_VERSION {
            return Err(StoreError::Newer { run, found: document.fold });
        }
        let row = document.row().map_err(|why| StoreError::Corrupt { run, why })?;
        let last = self.links(run)?.last().map(|link| link.hash);
        if last == Some(row.head) {
            Ok(Arc::unwrap_or_clone(row.run))
        } else {
            let why = "its head is not the hash of its last link".to_owned();
            Err(StoreError::Corrupt { run, why })
        }
    }

    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        let bytes = self.bytes(&paths::blob(run, digest))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn columns(&self, run: RunId) -> Result<StoredColumns, StoreError> {
        let document = self.document(run)?;
        Ok(StoredColumns { phase: i64::from(document.phase), fold: i64::from(document.fold) })
    }

    fn holds(&self, run: RunId) -> Result<Vec<StoredHold>, StoreError> {
        let document = self.document(run)?;
        let row = document.row().map_err(|why| StoreError::Corrupt { run, why })?;
        let (tenant, agent) = (document.tenant.to_string(), document.agent.to_string());
        let hold = |hold: crate::memory::state::HoldDocument| {
            let record = hold.decided.map(|record| record.row(hold.id));
            let open = row.run.hold(hold.id.key).filter(|_| record.is_none());
            let of_row =
                record.clone().or_else(|| open.map(|open| standfast_core::project::hold_row(&row.run, open)));
            StoredHold {
                key: hold.id.key,
                tenant: tenant.clone(),
                agent: of_row.as_ref().map_or_else(|| agent.clone(), |row| row.agent.to_string()),
                tool: of_row.as_ref().and_then(|row| row.tool.as_ref()).map(ToString::to_string),
                kind: of_row.as_ref().map_or(0, |row| columns::kind_number(row.kind)),
                inbox: open.and_then(|_| of_row.as_ref()?.inbox.as_ref()).map(ToString::to_string),
                is_closed: record.is_some(),
                record,
            }
        };
        Ok(document.holds.into_iter().map(hold).collect())
    }

    fn key(&self, tenant: &Tenant, key: &str) -> Result<Option<KeyRecord>, StoreError> {
        let keys = match self.keys.get() {
            Some(keys) => keys,
            None => {
                let keys = self.read_keys()?;
                self.keys.get_or_init(|| keys)
            }
        };
        Ok(keys.get(&[tenant.as_str().to_owned(), key.to_owned()]).cloned())
    }
}
