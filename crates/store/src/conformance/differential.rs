//! The backend against the memory store: random operations, every answer the same.
//!
//! Both stores get the same batches, made by the real rules from a seed. Cursors and numbers of notices may differ;
//! what they lead to may not. `STANDFAST_SEEDS` and `STANDFAST_OPERATIONS` make the run longer.

mod commands;
mod questions;

use std::collections::HashMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::Command;
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::hold::{HoldPolicy, OnDeny, OnTimeout};
use standfast_core::id::{HoldId, Incarnation, RunId};
use standfast_core::project::{HoldChange, RunRow};
use standfast_core::time::Millis;

use super::Factory;
use super::random::Random;
use super::support::{NODE, NewRun, OTHER_NODE, World, block_on, session_of};
use crate::memory::MemoryStore;
use crate::{Answer, AudienceMember, Batch, Guard, LeaseChange, Notice, SideWrite, Store, StoreError};

const TENANTS: [&str; 2] = ["default", "acme"];
const AGENTS: [&str; 3] = ["a", "b", "c"];
const SESSIONS: [&str; 3] = ["s-1", "s-2", "s-3"];
const INBOXES: [&str; 2] = ["tickets", "mail"];
const PEOPLE: [&str; 3] = ["user:alice", "user:bob", "role:ops"];
const KEYS: [&str; 4] = ["k-1", "k-2", "k-3", "k-4"];
const NODES: [Incarnation; 2] = [NODE, OTHER_NODE];

pub fn every_answer_is_that_of_the_memory_store(factory: &Factory) {
    let number =
        |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let operations = number("STANDFAST_OPERATIONS", 300);
    for seed in 0..number("STANDFAST_SEEDS", 20) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| compare(factory, seed, operations))) {
            eprintln!("seed {seed} of the differential run failed");
            resume_unwind(panic);
        }
    }
}

/// Runs so many operations of one seed on both stores.
pub fn compare(factory: &Factory, seed: u64, operations: u64) {
    let mut twins = Twins {
        world: World::new(factory),
        memory: Arc::new(MemoryStore::new()),
        random: Random::new(seed),
        rows: Vec::new(),
        stale: Vec::new(),
        logs: HashMap::new(),
        holds: Vec::new(),
    };
    for _ in 0..operations {
        twins.step();
    }
    twins.compare_everything();
}

/// The same world in two stores.
struct Twins {
    world: World,
    memory: Arc<MemoryStore>,
    random: Random,
    /// Every run as it is.
    rows: Vec<RunRow>,
    /// Runs as they were.
    stale: Vec<RunRow>,
    logs: HashMap<RunId, Vec<Envelope>>,
    holds: Vec<HoldId>,
}

impl Twins {
    fn step(&mut self) {
        let wait = [0, 0, 1, 1000, 20_000, 90_000][self.random.index(6)];
        self.world.later(Millis(wait));
        match self.random.below(100) {
            0..12 => self.creates(),
            12..50 => self.appends(),
            50..54 => self.appends_stale(),
            54..58 => self.appends_several(),
            58..66 => self.claims(),
            66..69 => self.renews(),
            69..72 => self.releases(),
            72..77 => self.settles_notices(),
            77..82 => self.lists_runs(),
            82..88 => self.lists_holds(),
            88..93 => self.looks_up(),
            93..95 => self.changes_a_session(),
            95..96 => self.changes_a_credential(),
            96..98 => self.erases(),
            98..99 => self.reads_links(),
            _ => self.world.reopen(),
        }
    }

    /// Asks both stores; the answers must be equal.
    #[track_caller]
    fn same<T: PartialEq + Debug>(&self, ask: impl Fn(&dyn Store) -> Answer<T>) -> Result<T, StoreError> {
        let wanted = block_on(ask(&*self.memory));
        let found = block_on(ask(&*self.world.store()));
        assert_eq!(found, wanted);
        found
    }

    fn creates(&mut self) {
        let batch = self.new_run();
        let batch = self.with_extras(batch);
        self.writes(vec![batch]);
    }

    fn new_run(&mut self) -> Batch {
        let random = &mut self.random;
        let mut new = NewRun::of(random.name(&AGENTS)).in_session(random.name(&SESSIONS));
        if random.one_in(4) {
            new = new.of_tenant(random.name(&TENANTS));
        }
        if random.one_in(4) {
            let priority = u8::try_from(random.below(4)).unwrap();
            new = new.in_inbox(random.name(&INBOXES), priority);
        }
        let on_timeout = [
            OnTimeout::Fail,
            OnTimeout::Deny,
            OnTimeout::ResumeWithError,
            OnTimeout::Cancel,
            OnTimeout::Keep,
        ];
        let policy = HoldPolicy {
            on_deny: *random.pick(&[OnDeny::Continue, OnDeny::Cancel]),
            on_timeout: *random.pick(&on_timeout),
            timeout: random.one_in(2).then_some(Millis::seconds(40)),
            grace: random.one_in(2).then_some(Millis::seconds(60)),
            remind_after: random.one_in(3).then_some(Millis::seconds(10)),
            ..HoldPolicy::default()
        };
        if random.one_in(8) {
            new = new.saying("long ".repeat(4000));
        }
        self.world.scribe.start(&new.holding(policy))
    }

    fn appends(&mut self) {
        let Some(batch) = self.some_batch() else { return };
        let batch = self.with_extras(batch);
        self.writes(vec![batch]);
    }

    fn appends_stale(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        let row = self.random.pick(&self.stale).clone();
        let command = self.command(&row);
        if let Some(batch) = self.world.scribe.try_batch(&row, &command) {
            let batch = self.with_extras(batch);
            self.writes(vec![batch]);
        }
    }

    /// Several runs of one tenant in one append, sometimes with one that is stale.
    fn appends_several(&mut self) {
        let mut batches = Vec::new();
        for _ in 0..self.random.below(4) + 1 {
            let batch = match self.random.below(6) {
                0 => Some(self.new_run()),
                1 if !self.stale.is_empty() => {
                    let row = self.random.pick(&self.stale).clone();
                    let say = super::appending::say("late");
                    self.world.scribe.try_batch(&row, &say)
                }
                _ => self.some_batch(),
            };
            batches.extend(batch);
        }
        let Some(tenant) = batches.first().map(|batch| batch.tenant().clone()) else { return };
        batches.retain(|batch| *batch.tenant() == tenant);
        let batches = batches.into_iter().map(|batch| self.with_extras(batch)).collect();
        self.writes(batches);
    }

    fn some_batch(&mut self) -> Option<Batch> {
        if self.rows.is_empty() {
            return None;
        }
        let row = self.random.pick(&self.rows).clone();
        let command = self.command(&row);
        self.world.scribe.try_batch(&row, &command)
    }

    fn command(&mut self, row: &RunRow) -> Command {
        let events = self.logs.get(&row.run.facts.id).map(Vec::as_slice).unwrap_or_default();
        commands::some_command(&mut self.random, &row.run, events, self.world.scribe.now)
    }

    /// Random guards, puts and a lease.
    fn with_extras(&mut self, mut batch: Batch) -> Batch {
        let now = self.world.now();
        let random = &mut self.random;
        let until = now.plus(Millis(1000 * i64::try_from(random.below(90)).unwrap()));
        batch.lease = match random.below(6) {
            0 => LeaseChange::Take { node: *random.pick(&NODES), until },
            1 => LeaseChange::Release,
            _ => LeaseChange::Keep,
        };
        let key = random.name(&KEYS).to_owned();
        if random.one_in(5) {
            batch.guards.push(Guard::KeyUnused { key: key.clone() });
        }
        if random.one_in(4) {
            let add = i64::try_from(random.below(5)).unwrap() - 2;
            batch.guards.push(Guard::CounterWithin { counter: random.name(&KEYS).into(), add, max: 2 });
        }
        if random.one_in(4) {
            batch.guards.push(Guard::SessionOpen { session: session_of(&batch.row) });
        }
        if random.one_in(6) {
            batch.puts.push(SideWrite::Key { key, request: batch.link.hash, expires_at: until });
        }
        if random.one_in(3) {
            let (subscription, from) = (format!("hook-{}", random.below(2)), batch.link.header.first);
            let owner = format!("of {subscription}");
            batch.puts.push(SideWrite::Notice(Notice { subscription, owner, from, due_at: until }));
        }
        if random.one_in(8) {
            let digest = Digest([u8::try_from(random.below(3)).unwrap(); 32]);
            batch.puts.push(SideWrite::Definition { digest, bytes: batch.link.hash.0.into() });
        }
        if random.one_in(8) && !self.rows.is_empty() {
            let run = random.pick(&self.rows).run.facts.id;
            batch.puts.push(SideWrite::Wake { run, at: until });
        }
        let some = |random: &mut Random| {
            let count = random.index(3);
            (0..count).map(|_| AudienceMember(random.name(&PEOPLE).to_owned())).collect::<Vec<_>>()
        };
        for change in batch.holds.clone() {
            let (HoldChange::Open(row) | HoldChange::Update(row) | HoldChange::Close(row)) = change;
            if !random.one_in(4) {
                let who = some(random);
                batch.puts.push(SideWrite::Audience { hold: row.id, who });
            }
        }
        batch
    }

    fn writes(&mut self, batches: Vec<Batch>) {
        if self.same(|store| store.append(batches.clone())).is_err() {
            return;
        }
        for batch in batches {
            let run = batch.run();
            self.logs.entry(run).or_default().extend(batch.link.events().unwrap());
            for change in batch.holds {
                if let HoldChange::Open(row) = change {
                    self.holds.push(row.id);
                }
            }
            match self.rows.iter_mut().find(|row| row.run.facts.id == run) {
                Some(row) => self.stale.push(std::mem::replace(row, batch.row)),
                None => self.rows.push(batch.row),
            }
        }
    }

    fn erases(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let row = self.random.pick(&self.rows).clone();
        let run = row.run.facts.id;
        // Most runs do not say so; those that do lose their log here too.
        if self.same(|store| store.erase(run)).is_ok() {
            self.logs.remove(&run);
        }
    }
}

/// A large result, so that blobs are compared too.
fn large() -> Body {
    Body::text("result ".repeat(3000))
}
