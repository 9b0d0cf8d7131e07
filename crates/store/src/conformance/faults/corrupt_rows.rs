//! F18: single columns of single rows are overwritten by SQL.
//!
//! The run that they belong to is intact, or said to be corrupt or newer, or fails its verification; every other run
//! goes on: it is listed, claimed, decided and told of as if nothing had happened.

use std::path::Path;

use rusqlite::Connection;
use standfast_core::command::{Choice, Command};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{HoldId, RunId};
use standfast_core::project::RunRow;
use standfast_core::time::Millis;

use super::super::support::{
    NODE, NewRun, Scribe, block_on, checked, holds_by, resolve, runs_by, the_hold, user,
};
use super::{Report, fresh_file, open};
use crate::sqlite::SqliteStore;
use crate::{
    Audience, AudienceMember, Batch, Claim, ClaimedRun, DeliveryStore, HoldFilter, HoldQuery, Notice,
    NoticeQuery, RunFilter, RunStore, ShardSet, SideWrite, StoreError, WorkStore,
};

/// What a column is overwritten with: each kind of damage, as SQL.
pub const GARBAGE: [&str; 10] = [
    "NULL",
    "'{'",
    r#"'{"stage":"nonsense"}'"#,
    r#"'{"stage":"acting","last_decider":"\ud800"}'"#,
    "CAST(x'ff' AS TEXT)",
    "x'00'",
    "zeroblob(16)",
    "zeroblob(32)",
    "-1",
    "4000000000000",
];

/// The columns that are overwritten, with the rows of the victim.
pub const COLUMNS: [(&str, &str, &str); 40] = [
    ("runs", "id", "no = 1"),
    ("runs", "tenant", "no = 1"),
    ("runs", "agent", "no = 1"),
    ("runs", "session", "no = 1"),
    ("runs", "owner", "no = 1"),
    ("runs", "driver", "no = 1"),
    ("runs", "started_at", "no = 1"),
    ("runs", "parent", "no = 1"),
    ("runs", "inbox", "no = 1"),
    ("runs", "inbox_facts", "no = 1"),
    ("runs", "priority", "no = 1"),
    ("runs", "seq", "no = 1"),
    ("runs", "at", "no = 1"),
    ("runs", "head", "no = 1"),
    ("runs", "definition", "no = 1"),
    ("runs", "phase", "no = 1"),
    ("runs", "claimable_at", "no = 1"),
    ("runs", "fold", "no = 1"),
    ("runs", "lease_node", "no = 1"),
    ("runs", "lease_until", "no = 1"),
    ("runs", "wake_at", "no = 1"),
    ("runs", "due_at", "no = 1"),
    ("runs", "state", "no = 1"),
    ("runs", "packed", "no = 1"),
    ("links", "count", "key >> 20 = 1"),
    ("links", "at", "key >> 20 = 1"),
    ("links", "actor", "key >> 20 = 1"),
    ("links", "hash", "key >> 20 = 1"),
    ("links", "salt", "key >> 20 = 1"),
    ("links", "payload", "key >> 20 = 1"),
    ("links", "commitment", "key >> 20 = 1"),
    ("holds", "run", "run = 1"),
    ("holds", "call", "run = 1"),
    ("holds", "secret", "run = 1"),
    ("holds", "tenant", "run = 1"),
    ("holds", "agent", "run = 1"),
    ("holds", "kind", "run = 1"),
    ("holds", "audience", "run = 1"),
    ("holds", "closed", "run = 1"),
    ("holds", "record", "run = 1"),
];

/// Overwrites so many columns, or all there are.
#[must_use]
pub fn corrupt_rows(count: usize) -> Report {
    let (_directory, file) = fresh_file();
    let scene = Scene::write(&file);
    let edits = possible_edits(&file);
    let copies = tempfile::tempdir().unwrap();
    let mut violations = Vec::new();
    let count = count.clamp(1, edits.len());
    for n in 0..count {
        // Spread over all of them.
        let edit = &edits[n * edits.len() / count];
        let copy = copies.path().join(format!("copy-{n}.db"));
        std::fs::copy(&file, &copy).unwrap();
        overwrite(&copy, edit).unwrap();
        if let Err(why) = scene.goes_on(&copy) {
            violations.push(format!("{edit}: {why}"));
        }
        std::fs::remove_file(&copy).unwrap();
    }
    Report { id: "F18", what: "corrupt rows", count, violations }
}

/// Every kind of garbage in every column, except what the schema itself refuses.
fn possible_edits(file: &Path) -> Vec<String> {
    let connection = Connection::open(file).unwrap();
    let all = COLUMNS.iter().flat_map(|column| GARBAGE.iter().map(move |garbage| (column, garbage)));
    let edits = all.map(|((table, column, rows), garbage)| {
        format!("UPDATE {table} SET {column} = {garbage} WHERE {rows}")
    });
    let is_possible = |edit: &String| {
        connection.execute_batch("BEGIN").unwrap();
        let changed = connection.execute(edit, []);
        connection.execute_batch("ROLLBACK").unwrap();
        changed.is_ok_and(|changed| changed > 0)
    };
    edits.filter(is_possible).collect()
}

/// Runs SQL on a file that no store has open.
pub fn overwrite(file: &Path, sql: &str) -> rusqlite::Result<()> {
    Connection::open(file)?.execute_batch(sql)
}

/// A victim and two bystanders, each with an open hold whose deadline has passed, and somebody to be told.
pub struct Scene {
    /// The run whose rows are overwritten; run number 1.
    pub victim: RunRow,
    /// Its hold.
    pub hold: HoldId,
    /// The others.
    pub bystanders: Vec<RunRow>,
    scribe: Scribe,
}

impl Scene {
    /// Writes it into a fresh file.
    #[must_use]
    pub fn write(file: &Path) -> Scene {
        let store = open(file).unwrap();
        let mut scribe = Scribe::new(18);
        let mut rows: Vec<RunRow> = (0..3).map(|_| held(&mut scribe, &store)).collect();
        drop(store);
        scribe.now = scribe.now.plus(Millis::seconds(31));
        let victim = rows.remove(0);
        Scene { hold: the_hold(&victim), victim, bystanders: rows, scribe }
    }

    /// The damaged run is not mistaken for a healthy one, and the others go on.
    pub fn goes_on(&self, file: &Path) -> Result<(), String> {
        let store = open(file).map_err(|error| format!("the file is refused: {error}"))?;
        let run = self.victim.run.facts.id;
        let loaded = block_on(store.load(run));
        match &loaded {
            Ok(stored) if stored.row == self.victim => {}
            // Valid, but not what its events say: an audit finds it.
            Ok(_) if checked(&*store, run).is_err() => {}
            Ok(stored) => return Err(format!("it loads as something else: {stored:?}")),
            Err(StoreError::Corrupt { why, .. }) if why.is_empty() => {
                return Err("corrupt without a reason".into());
            }
            Err(StoreError::Corrupt { .. } | StoreError::Newer { .. } | StoreError::NotFound { .. }) => {}
            Err(other) => return Err(format!("loading it says: {other}")),
        }
        match block_on(store.find_hold(self.hold)) {
            Ok(_) | Err(StoreError::Corrupt { .. } | StoreError::Newer { .. }) => {}
            Err(other) => return Err(format!("looking for its hold says: {other}")),
        }
        self.is_claimed_once(&store, loaded.as_ref().err())?;
        self.others_go_on(&store)?;
        self.can_be_decided(&store)
    }

    /// The others are handed out by one claim, the damaged one is reported at most once, and nothing spins.
    fn is_claimed_once(&self, store: &SqliteStore, error: Option<&StoreError>) -> Result<(), String> {
        let (first, second) = (self.claim(store)?, self.claim(store)?);
        let handed_out: Vec<RunId> = first.iter().filter_map(claimed_run).collect();
        for row in &self.bystanders {
            if !handed_out.contains(&row.run.facts.id) {
                return Err(format!("a bystander is not claimed: {first:?}"));
            }
        }
        let is_reported = first.iter().any(|claimed| matches!(claimed, ClaimedRun::Corrupt { .. }));
        if matches!(error, Some(StoreError::Corrupt { .. })) && !is_reported {
            return Err(format!("it is due and corrupt, and the claim does not say so: {first:?}"));
        }
        if second.is_empty() { Ok(()) } else { Err(format!("a second claim comes up with {second:?}")) }
    }

    fn claim(&self, store: &SqliteStore) -> Result<Vec<ClaimedRun>, String> {
        let now = self.scribe.now;
        let (until, shards) = (now.plus(Millis::seconds(60)), ShardSet::all());
        let claim = Claim { node: NODE, now, until, shards, limit: 10, room: Vec::new() };
        block_on(store.claim_due(claim)).map_err(|error| format!("claiming says: {error}"))
    }

    fn others_go_on(&self, store: &SqliteStore) -> Result<(), String> {
        let all: Vec<RunId> = self.bystanders.iter().map(|row| row.run.facts.id).collect();
        let listed =
            block_on(store.list_runs(runs_by(RunFilter::All))).map_err(|error| format!("runs: {error}"))?;
        let everyone = HoldQuery { ..holds_by(HoldFilter::All) };
        let alice = Audience::AnyOf(vec![AudienceMember("user:alice".into())]);
        let of_alice = HoldQuery { audience: alice, ..holds_by(HoldFilter::All) };
        let of_agent = holds_by(HoldFilter::Agent(self.victim.run.facts.agent.clone()));
        let mut seen = vec![listed.items.iter().map(|row| row.run.facts.id).collect::<Vec<_>>()];
        for query in [everyone, of_alice, of_agent] {
            let holds = block_on(store.list_holds(query)).map_err(|error| format!("holds: {error}"))?;
            seen.push(holds.items.iter().map(|row| row.id.run).collect());
        }
        let due = block_on(store.due_notices(NoticeQuery::all(self.scribe.now, 10)));
        seen.push(due.map_err(|error| format!("notices: {error}"))?.iter().map(|due| due.run).collect());
        let lacks = |seen: &&Vec<RunId>| !all.iter().all(|run| seen.contains(run));
        if let Some(seen) = seen.iter().find(lacks) {
            return Err(format!("a bystander is missing in {seen:?}"));
        }
        let leases = block_on(store.renew(self.all_runs(), NODE, self.scribe.now.plus(Millis::hours(1))));
        let leases = leases.map_err(|error| format!("renewing says: {error}"))?;
        if all.iter().all(|run| leases.contains(run)) {
            Ok(())
        } else {
            Err("a bystander's lease was lost".into())
        }
    }

    fn all_runs(&self) -> Vec<RunId> {
        std::iter::once(&self.victim).chain(&self.bystanders).map(|row| row.run.facts.id).collect()
    }

    /// The others can be decided, also by an append that wakes the damaged run.
    fn can_be_decided(&self, store: &SqliteStore) -> Result<(), String> {
        let mut scribe = self.scribe.clone();
        scribe.now = super::super::support::BEGIN;
        for row in &self.bystanders {
            let mut batch = scribe.batch(row, &resolve(the_hold(row).key, Choice::Approve));
            batch.puts.push(SideWrite::Wake { run: self.victim.run.facts.id, at: scribe.now });
            let after = batch.row.clone();
            block_on(store.append(vec![batch])).map_err(|error| format!("deciding a bystander: {error}"))?;
            if checked(store, row.run.facts.id)? != after {
                return Err("a bystander was not written as decided".into());
            }
        }
        let assign = Command::Assign { hold: self.hold.key, to: Some(user("bob")), until: None };
        let batch = scribe.batch(&self.victim, &assign);
        match block_on(store.append(vec![batch])) {
            Ok(()) => Ok(()),
            Err(StoreError::Corrupt { .. } | StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {
                Ok(())
            }
            Err(other) => Err(format!("appending to it says: {other}")),
        }
    }
}

fn claimed_run(claimed: &ClaimedRun) -> Option<RunId> {
    match claimed {
        ClaimedRun::Run { stored, .. } => Some(stored.row.run.facts.id),
        ClaimedRun::Corrupt { .. } => None,
    }
}

fn held(scribe: &mut Scribe, store: &SqliteStore) -> RunRow {
    let policy = HoldPolicy { timeout: Some(Millis::seconds(30)), ..HoldPolicy::default() };
    let write = |batch: Batch| {
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        row
    };
    let row = write(scribe.start(&NewRun::of("helper").holding(policy)));
    let mut batch = scribe.reply(&row, &[super::SHELL]);
    let (from, due_at) = (batch.link.header.first, scribe.now);
    let (hold, who) = (the_hold(&batch.row), vec![AudienceMember("user:alice".into())]);
    batch.puts.push(SideWrite::Audience { hold, who });
    batch.puts.push(SideWrite::Notice(Notice {
        subscription: "hook".into(),
        owner: String::new(),
        from,
        due_at,
    }));
    write(batch)
}
