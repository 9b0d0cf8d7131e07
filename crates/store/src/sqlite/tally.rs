//! How much there is of what: counted once, when somebody first asks, and kept up to date by the writer.
//!
//! No index and no row is written for it: an append adds a few numbers in memory. The one count looks at every run on a
//! connection of its own, in a thread of its own, on a snapshot; what the writer commits meanwhile is added after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::{OptionalExtension, params};
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, tenant_tag};
use standfast_core::name::{AgentName, Tenant};
use standfast_core::project::Phase;
use standfast_core::time::Timestamp;
use tokio::sync::oneshot;

use super::read::{ReadSession, Readers, lists, unreadable};
use super::rows::{PHASE_COLUMN, RunColumns};
use super::{names, sql};
use crate::columns::kind_number;
use crate::contract::Answer;
use crate::error::StoreError;
use crate::query::{Counts, OpenHolds};

/// Rows read at once while everything is counted.
const CHUNK: i64 = 1000;

/// Tenant, agent and kind of open holds, by their numbers.
type Lane = (i64, i64, i64);

/// Numbers of runs by tenant and phase and of open holds by lane; or what changed of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    runs: BTreeMap<(i64, i64), i64>,
    holds: BTreeMap<Lane, i64>,
}

impl Tally {
    /// A run went from one phase to another; none stands for not being there, or not being counted.
    pub(super) fn moved(&mut self, tenant: i64, from: Option<i64>, to: Option<i64>) {
        if from != to {
            from.into_iter().for_each(|phase| *self.runs.entry((tenant, phase)).or_default() -= 1);
            to.into_iter().for_each(|phase| *self.runs.entry((tenant, phase)).or_default() += 1);
        }
    }

    /// This many more holds are open; fewer, when it is negative.
    pub(super) fn holds(&mut self, tenant: i64, agent: i64, kind: i64, more: i64) {
        *self.holds.entry((tenant, agent, kind)).or_default() += more;
    }

    /// Adds another one, which is not needed any more.
    pub(super) fn take_in(&mut self, other: &mut Tally) {
        if self.runs.is_empty() && self.holds.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.add(other, 1);
        }
    }

    /// Adds another one, or takes it off.
    pub(super) fn add(&mut self, other: &Tally, times: i64) {
        for (key, n) in &other.runs {
            *self.runs.entry(*key).or_default() += n * times;
        }
        for (key, n) in &other.holds {
            *self.holds.entry(*key).or_default() += n * times;
        }
    }
}

/// What is known of the numbers.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    known: Mutex<KnownCounts>,
    counted: Condvar,
}

#[derive(Debug, Default)]
struct KnownCounts {
    /// What the writer committed since the store was opened.
    since_open: Tally,
    /// What there was when it was opened.
    at_open: OpeningCount,
    /// The oldest open hold of each lane that was seen so far: the oldest now is that one or a later one.
    oldest: BTreeMap<Lane, i64>,
    /// Runs that could not be read.
    quarantined: BTreeSet<RunId>,
}

#[derive(Debug, Default)]
enum OpeningCount {
    #[default]
    NotYet,
    UnderWay,
    Done(Tally),
}

impl Tallies {
    fn known(&self) -> MutexGuard<'_, KnownCounts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits, and remembers what changed. Both at once, so that a snapshot has all of it or nothing.
    pub(super) fn commit<T, E>(
        &self,
        changed: &Tally,
        commit: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut known = self.known();
        let committed = commit()?;
        known.since_open.add(changed, 1);
        Ok(committed)
    }

    /// A run cannot be read.
    pub(super) fn quarantined(&self, run: RunId) {
        self.known().quarantined.insert(run);
    }

    /// How much a tenant has of what.
    pub(super) fn counts(self: &Arc<Tallies>, readers: &Arc<Readers>, tenant: Tenant) -> Answer<Counts> {
        let (reply, answer) = oneshot::channel();
        let (tallies, readers) = (self.clone(), readers.clone());
        // The first snapshot is taken here and now, not when the thread gets to it.
        let first = match self.begin(&readers) {
            Ok(first) => first,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let work = move || {
            let counts = match first {
                Some(snapshot) => tallies.count_everything(&readers, snapshot, &tenant),
                None => tallies.counts_now(&readers, &tenant),
            };
            // Whoever asked may have gone away.
            let _ = reply.send(counts);
        };
        match std::thread::Builder::new().name("standfast-counts".into()).spawn(work) {
            Ok(_) => Box::pin(async move {
                answer.await.unwrap_or_else(|_| Err(StoreError::unavailable("counting ended early")))
            }),
            Err(error) => {
                self.give_up();
                let why = format!("no thread to count in: {error}");
                Box::pin(std::future::ready(Err(StoreError::unavailable(why))))
            }
        }
    }

    /// Takes the snapshot that everything is counted on, if nobody has yet.
    fn begin(&self, readers: &Readers) -> Result<Option<Snapshot>, StoreError> {
        let mut known = self.known();
        if !matches!(known.at_open, OpeningCount::NotYet) {
            return Ok(None);
        }
        let connection = readers.snapshot()?;
        known.at_open = OpeningCount::UnderWay;
        Ok(Some(Snapshot { connection, before: known.since_open.clone() }))
    }

    fn give_up(&self) {
        self.known().at_open = OpeningCount::NotYet;
        self.counted.notify_all();
    }

    fn count_everything(
        &self,
        readers: &Readers,
        snapshot: Snapshot,
        tenant: &Tenant,
    ) -> Result<Counts, StoreError> {
        let reading = ReadSession { connection: &snapshot.connection, texts: readers.texts() };
        let scanned = scan(&reading).and_then(|scan| {
            let counts = described(&reading, &scan.tally, &scan.oldest, tenant)?;
            Ok((scan, counts))
        });
        let (scan, (counts, _)) = match scanned {
            Ok(scanned) => scanned,
            Err(error) => {
                self.give_up();
                return Err(error);
            }
        };
        let mut known = self.known();
        let mut at_open = scan.tally;
        at_open.add(&snapshot.before, -1);
        known.at_open = OpeningCount::Done(at_open);
        known.oldest = scan.oldest;
        known.quarantined.extend(scan.quarantined);
        let quarantined = known.quarantined_of(tenant);
        drop(known);
        self.counted.notify_all();
        readers.give_back(snapshot.connection);
        Ok(Counts { quarantined, ..counts })
    }

    fn counts_now(&self, readers: &Readers, tenant: &Tenant) -> Result<Counts, StoreError> {
        let mut known = self.known();
        while matches!(known.at_open, OpeningCount::UnderWay) {
            known = self.counted.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
        let OpeningCount::Done(at_open) = &known.at_open else {
            return Err(StoreError::unavailable("the runs could not be counted; try again"));
        };
        let mut tally = at_open.clone();
        tally.add(&known.since_open, 1);
        let (oldest, quarantined) = (known.oldest.clone(), known.quarantined_of(tenant));
        drop(known);
        let (counts, oldest) = readers.read(|reading| described(reading, &tally, &oldest, tenant))?;
        self.known().oldest.extend(oldest);
        Ok(Counts { quarantined, ..counts })
    }
}

impl KnownCounts {
    fn quarantined_of(&self, tenant: &Tenant) -> u64 {
        let tag = tenant_tag(tenant);
        self.quarantined.iter().filter(|run| run.tenant_tag() == tag).count() as u64
    }
}

/// A connection that sees one instant, and what the writer had committed by then.
struct Snapshot {
    connection: rusqlite::Connection,
    before: Tally,
}

#[derive(Default)]
struct Scan {
    tally: Tally,
    oldest: BTreeMap<Lane, i64>,
    quarantined: Vec<RunId>,
}

/// Looks at every run and every open hold. Runs that are not over are read as if to be worked on.
fn scan(reading: &ReadSession<'_>) -> Result<Scan, StoreError> {
    let mut scan = Scan::default();
    let mut last = 0;
    while let Some(next) = scan_runs(reading, last, &mut scan)? {
        last = next;
    }
    scan_holds(reading, &mut scan).map_err(unreadable)?;
    Ok(scan)
}

fn scan_runs(reading: &ReadSession<'_>, after: i64, scan: &mut Scan) -> Result<Option<i64>, StoreError> {
    let mut statement = reading.connection.prepare_cached(sql::RUNS_SCAN).map_err(unreadable)?;
    let mut rows = statement.query(params![after, CHUNK]).map_err(unreadable)?;
    let mut last = None;
    while let Some(row) = rows.next().map_err(unreadable)? {
        let read = || -> rusqlite::Result<(i64, i64, i64)> {
            Ok((row.get(0)?, row.get(2)?, row.get(PHASE_COLUMN)?))
        };
        let (no, tenant, phase) = read().map_err(unreadable)?;
        last = Some(no);
        let is_over = phase >= i64::from(Phase::Completed as u8);
        let broken = if is_over {
            None
        } else {
            let columns = RunColumns::read(row).map_err(unreadable)?;
            match columns.stored(reading.connection, reading.texts) {
                Err(StoreError::Corrupt { run, .. }) => Some(run),
                // A newer version's run is counted by its columns.
                Ok(_) | Err(_) => None,
            }
        };
        match broken {
            Some(run) => scan.quarantined.push(run),
            None => scan.tally.moved(tenant, None, Some(phase)),
        }
    }
    Ok(last)
}

fn scan_holds(reading: &ReadSession<'_>, scan: &mut Scan) -> rusqlite::Result<()> {
    let mut tenant = 0;
    while let Some(next) = next_number(reading, sql::HOLDS_NEXT_TENANT, params![tenant])? {
        tenant = next;
        let mut agent = 0;
        while let Some(next) = next_number(reading, sql::HOLDS_NEXT_AGENT, params![tenant, agent])? {
            agent = next;
            let mut statement = reading.connection.prepare_cached(sql::HOLD_KINDS_OF_AGENT)?;
            let mut rows = statement.query(params![tenant, agent])?;
            while let Some(row) = rows.next()? {
                let (no, kind): (i64, i64) = (row.get(0)?, row.get(1)?);
                scan.tally.holds(tenant, agent, kind, 1);
                scan.oldest.entry((tenant, agent, kind)).or_insert(no);
            }
        }
    }
    Ok(())
}

fn next_number(
    reading: &ReadSession<'_>,
    statement: &str,
    after: impl rusqlite::Params,
) -> rusqlite::Result<Option<i64>> {
    reading.connection.prepare_cached(statement)?.query_row(after, |row| row.get(0)).optional()
}

/// The numbers of a tenant in words; and the oldest hold of each of its lanes.
fn described(
    reading: &ReadSession<'_>,
    tally: &Tally,
    oldest: &BTreeMap<Lane, i64>,
    tenant: &Tenant,
) -> Result<(Counts, BTreeMap<Lane, i64>), StoreError> {
    let (mut counts, mut found) = (Counts::default(), BTreeMap::new());
    let Some(number) = names::find(reading.connection, tenant.as_str()).map_err(unreadable)? else {
        return Ok((counts, found));
    };
    for ((of, phase), n) in &tally.runs {
        let phase = u8::try_from(*phase).ok().and_then(Phase::from_number);
        if let (true, Some(phase), Ok(n @ 1..)) = (*of == number, phase, u64::try_from(*n)) {
            counts.runs.insert(phase, n);
        }
    }
    for ((of, agent, kind), n) in &tally.holds {
        let lane = (*of, *agent, *kind);
        let word = HoldKind::ALL.into_iter().find(|word| kind_number(*word) == *kind);
        let (true, Some(word), Ok(n @ 1..)) = (*of == number, word, u64::try_from(*n)) else { continue };
        let name = reading.texts.text(reading.connection, *agent).map_err(unreadable)?;
        let Ok(agent) = AgentName::new(name) else { continue };
        let first = first_of(reading, lane, oldest.get(&lane).copied().unwrap_or(0))?;
        found.extend(first.map(|(no, _)| (lane, no)));
        counts.holds.push(OpenHolds {
            kind: word,
            agent,
            count: n,
            oldest: first.map(|(_, opened_at)| opened_at),
        });
    }
    counts.holds.sort_by(|a, b| (&a.agent, a.kind).cmp(&(&b.agent, b.kind)));
    Ok((counts, found))
}

/// The oldest open hold of a lane that can be read, from this number on, and when it opened.
fn first_of(
    reading: &ReadSession<'_>,
    (tenant, agent, kind): Lane,
    from: i64,
) -> Result<Option<(i64, Timestamp)>, StoreError> {
    let mut after = from - 1;
    loop {
        let mut statement = reading.connection.prepare_cached(sql::HOLD_FIRST_OF_KIND).map_err(unreadable)?;
        let by = params![tenant, after, kind, agent];
        let hold = statement.query_row(by, lists::OpenHold::read).optional().map_err(unreadable)?;
        let Some(hold) = hold else { return Ok(None) };
        if let Some(row) = reading.hold_row(&hold)? {
            return Ok(Some((hold.no, row.opened_at)));
        }
        after = hold.no;
    }
}
