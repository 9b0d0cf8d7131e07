//! The world of a simulation: nodes, time, chance, and what everybody did.
//!
//! One thread, one seed. Time is moved only when no task can run, to the next instant at which somebody wants to do
//! something, so that the same seed gives the same history to the last detail. A node that is paused is not polled; one
//! that crashed is dropped with everything it had in memory. The store, `wire.rs`, is what they share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::Entry;
use standfast_engine::Engine;
use standfast_engine::clock::{Clock, ManualClock};
use standfast_store::conformance::random::Random;
use standfast_store::conformance::registry::Registry;
use standfast_store::{Heartbeat, ShardSet, Store};
use tokio::sync::{Notify, broadcast};

use crate::agents;
use crate::backend::{Disk, Ground};
use crate::people::{self, Acked};
use crate::requests::Requests;
use crate::wire::Wire;

/// When simulations begin: 2026-01-01T09:00:00Z.
const BEGIN: Timestamp = Timestamp(1_767_258_000_000);
/// How far the clock of a node may be off; less than half of what is waited for before a call counts as lost.
pub(crate) const SKEW: i64 = 400;
/// Instants at which the power may be cut, for each at which it is.
const POWER_CUTS: u64 = 150;
/// How long things go wrong.
const TROUBLE: Millis = Millis::seconds(40);
/// How long after that everything must be over.
const PATIENCE: Millis = Millis::seconds(900);
/// Hints that a node may be behind; then anything may have changed.
const HINTS_BEHIND: usize = 8;
/// Polls at one instant after which a simulation is taken to run in circles.
const RESTLESS: u64 = 200_000;

/// How a world is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct How {
    /// Whether its history is told as it happens.
    pub(crate) aloud: bool,
    /// What is switched off.
    pub(crate) blind: Blind,
    /// Where runs are kept.
    pub(crate) ground: Ground,
    /// Whether nodes learn of each other.
    pub(crate) hints: Hints,
}

impl How {
    /// As in most tests: in memory, silently, with every rule on.
    pub(crate) const USUAL: How =
        How { aloud: false, blind: Blind::Nothing, ground: Ground::Memory, hints: Hints::Some };
}

/// What is switched off, to see whether the oracle notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blind {
    /// Nothing.
    Nothing,
    /// A node that was paused does not know that time went by, so that comparing with `start_by` does not help.
    ToPauses,
    /// Nobody notices that a node went silent: its shards stay its own.
    ToSilence,
    /// Nodes look for work only when another one tells them to, never by themselves.
    ToTime,
}

/// What becomes of hints between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hints {
    /// Some come late, some twice, some never.
    Some,
    /// None ever comes.
    None,
}

/// A place for nodes: one after the other lives there.
#[derive(Default)]
pub(crate) struct Seat {
    life: u64,
    live: Option<Live>,
    /// It crashed, and is to be buried.
    is_dying: bool,
    starts_at: Option<Timestamp>,
    goes_on_at: Option<Timestamp>,
}

/// A node.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    time: Arc<ManualClock>,
    /// How far its clock is ahead.
    skew: i64,
    /// What other nodes tell it.
    hints: broadcast::Sender<ShardSet>,
    /// Tells whoever waits for an answer that it is gone.
    pub(crate) gone: Arc<Notify>,
}

/// A start of a tool, by the tool's own account.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) token: String,
    pub(crate) arguments: String,
    /// When it began, by the world's time.
    pub(crate) at: Timestamp,
}

/// How often what goes wrong, in this world: one in so many; 0 means never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) lost: u64,
    pub(crate) crash: u64,
    pub(crate) pause: u64,
    pub(crate) slow: u64,
}

/// Everything that the parts of a world share.
pub(crate) struct Sim {
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    disk: Mutex<Disk>,
    pub(crate) rates: Rates,
    time: Arc<ManualClock>,
    pub(crate) blind: Blind,
    hints: Hints,
    /// Which nodes are there, and which shards are whose.
    pub(crate) registry: Mutex<Registry>,
    is_trouble: AtomicBool,
    is_over: AtomicBool,
    random: Mutex<Random>,
    seats: Vec<Mutex<Seat>>,
    trace: Mutex<Trace>,
    pub(crate) effects: Mutex<Vec<Effect>>,
    pub(crate) acked: Mutex<Vec<Acked>>,
    pub(crate) requests: Mutex<Requests>,
}

/// Everything that happened, as a hash; on request also in words.
#[derive(Default)]
struct Trace {
    hash: DefaultHasher,
    lines: u64,
    aloud: bool,
}

/// The result of a simulation.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) trace: u64,
    pub(crate) lines: u64,
    pub(crate) violations: Vec<String>,
}

/// Plays the history of a seed.
pub(crate) fn play(seed: u64, how: How) -> Report {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let sim = Sim::new(seed, how);
    let finished = runtime.block_on(async {
        let finished = sim.live().await;
        sim.end().await;
        finished
    });
    let mut violations: Vec<String> = finished.err().into_iter().collect();
    violations.extend(crate::check::check(&sim));
    let trace = sim.trace.lock().unwrap();
    Report { trace: trace.hash.finish(), lines: trace.lines, violations }
}

impl Sim {
    fn new(seed: u64, how: How) -> Arc<Sim> {
        let mut random = Random::new(seed);
        let time = Arc::new(ManualClock::seeded(BEGIN, random.next_number()));
        let rates = Rates {
            lost: *random.pick(&[0, 40, 15, 8]),
            crash: *random.pick(&[0, 120, 50, 25]),
            pause: *random.pick(&[0, 80, 35, 20]),
            slow: *random.pick(&[0, 20, 6]),
        };
        // Now and then nothing goes wrong, and still nobody is left alone.
        let is_quiet = seed % 10 == 3;
        let rates = if is_quiet { Rates { lost: 0, crash: 0, pause: 0, slow: 0 } } else { rates };
        let seats = 2 + random.index(2);
        Arc::new(Sim {
            seed,
            disk: Mutex::new(Disk::new(how.ground)),
            clock: Clock::Virtual(time.clone()),
            rates,
            time,
            blind: how.blind,
            hints: how.hints,
            registry: Mutex::default(),
            is_trouble: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            random: Mutex::new(random),
            seats: (0..seats).map(|_| Mutex::default()).collect(),
            trace: Mutex::new(Trace { aloud: how.aloud, ..Trace::default() }),
            effects: Mutex::default(),
            acked: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock().unwrap()
    }

    /// A model was asked with this; the number of the request.
    pub(crate) fn asked(&self, with: Vec<Entry>) -> usize {
        let mut requests = self.requests.lock().unwrap();
        requests.push(with);
        requests.len() - 1
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.random().next_number()
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.random().below(end)
    }

    pub(crate) fn index(&self, end: usize) -> usize {
        self.random().index(end)
    }

    pub(crate) fn one_in(&self, times: u64) -> bool {
        self.random().one_in(times)
    }

    pub(crate) fn pick<T: Clone>(&self, all: &[T]) -> T {
        self.random().pick(all).clone()
    }

    /// Where runs are kept now.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.disk.lock().unwrap().store()
    }

    /// A span below this one.
    pub(crate) fn span(&self, below: i64) -> Millis {
        Millis(i64::try_from(self.below(below.unsigned_abs())).unwrap())
    }

    /// Whether something that happens one in so many times happens now; never when there is no more trouble.
    pub(crate) fn strikes(&self, one_in: u64) -> bool {
        one_in > 0 && self.is_trouble() && self.one_in(one_in)
    }

    /// Whether no node ever fails in this world.
    pub(crate) fn is_quiet(&self) -> bool {
        let Rates { lost, crash, pause, slow } = self.rates;
        let has_power = !self.disk.lock().unwrap().is_mortal();
        has_power && [lost, crash, pause, slow].iter().all(|rate| *rate == 0)
    }

    pub(crate) fn is_trouble(&self) -> bool {
        self.is_trouble.load(Ordering::SeqCst)
    }

    /// Everything has come to its end.
    pub(crate) fn is_over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Something happened.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        let (mut trace, line) = (self.trace.lock().unwrap(), what());
        let at = self.now().since(BEGIN).0;
        (at, &line).hash(&mut trace.hash);
        trace.lines += 1;
        if trace.aloud {
            println!("{at:8} {line}");
        }
    }

    /// Does something beside the nodes: a client, or what is under way between a node and the store.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.clock.follows(task));
    }

    /// The node that lives at a seat now.
    pub(crate) fn node(&self, seat: usize) -> Option<Live> {
        self.seats[seat].lock().unwrap().live.clone()
    }

    /// A node stops for ever, in the middle of whatever it does.
    pub(crate) fn crash(&self, seat: usize, life: u64) {
        let mut seated = self.seats[seat].lock().unwrap();
        let Some(live) = seated.live.as_ref().filter(|_| life == seated.life && !seated.is_dying) else {
            return;
        };
        live.time.stop();
        seated.is_dying = true;
        drop(seated);
        self.tell(|| format!("node {seat} crashes"));
    }

    /// A node stops for a while: shortly, or until others have taken what it had.
    pub(crate) fn pause(&self, seat: usize, life: u64) {
        let long = self.one_in(2);
        let span = self.span(if long { 3 * agents::LEASE.0 } else { 500 });
        let mut seated = self.seats[seat].lock().unwrap();
        let Some(live) = seated.live.as_ref().filter(|_| life == seated.life && !seated.is_dying) else {
            return;
        };
        live.time.stop();
        seated.goes_on_at = seated.goes_on_at.max(Some(self.now().plus(span)));
        drop(seated);
        self.tell(|| format!("node {seat} is paused for {} ms", span.0));
    }

    /// A node says that it is there; the shards that are its own.
    pub(crate) fn beat(&self, seat: usize, beat: Heartbeat) -> ShardSet {
        // At the beginning of time everybody who ever said something is still there.
        let now = if self.blind == Blind::ToSilence { Timestamp(0) } else { beat.now };
        let mut registry = self.registry.lock().unwrap();
        let shards = registry.beat(Heartbeat { now, ..beat });
        let there = registry.nodes(now).len();
        drop(registry);
        self.tell(|| format!("node {seat} has {} shards beside {there} nodes", shards.len()));
        shards
    }

    /// A node changed something: the others are told at once, late, twice or never.
    pub(crate) fn hint(self: &Arc<Sim>, from: usize, shards: &ShardSet) {
        for seat in (0..self.seats()).filter(|seat| *seat != from) {
            let times = match self.hints {
                Hints::None => 0,
                Hints::Some if self.strikes(4) => 0,
                Hints::Some if self.strikes(4) => 2,
                Hints::Some => 1,
            };
            for _ in 0..times {
                let span = self.span(if self.strikes(4) { 4_000 } else { 20 });
                let (sim, shards, under_way) = (self.clone(), shards.clone(), self.clock.sleep(span));
                self.spawn(async move {
                    under_way.await;
                    if let Some(node) = sim.node(seat) {
                        sim.tell(|| format!("node {seat} hears from node {from}"));
                        // Nobody listens any more when it has just died.
                        let _ = node.hints.send(shards);
                    }
                });
            }
        }
    }

    /// Every node dies at once, and the store with them: what it left on the disk is opened again.
    async fn cut_power(self: &Arc<Sim>) {
        for seat in 0..self.seats() {
            let life = self.seats[seat].lock().unwrap().life;
            self.crash(seat, life);
        }
        self.bury().await;
        self.disk.lock().unwrap().reopen();
        self.tell(|| "the power was cut".into());
    }

    /// A place inside a tool at which its node may be stopped.
    pub(crate) async fn pass(&self, seat: usize, life: u64) {
        if self.strikes(self.rates.crash) {
            self.crash(seat, life);
        } else if self.strikes(self.rates.pause) {
            self.pause(seat, life);
        }
        // Whoever is stopped is so from here on.
        tokio::task::yield_now().await;
    }

    /// From the first instant until everything has ended.
    async fn live(self: &Arc<Sim>) -> Result<(), String> {
        for seat in 0..self.seats() {
            self.start(seat);
        }
        people::come(self);
        let trouble_ends = BEGIN.plus(TROUBLE);
        let deadline = trouble_ends.plus(PATIENCE);
        loop {
            self.no_task_can_run().await?;
            self.bury().await;
            if self.disk.lock().unwrap().is_mortal() && self.strikes(POWER_CUTS) {
                self.cut_power().await;
            }
            if self.is_over.load(Ordering::SeqCst) {
                return Ok(());
            }
            let now = self.now();
            if now >= deadline {
                return Err(format!(
                    "I6: not everything has ended {} s after the last fault",
                    PATIENCE.0 / 1000
                ));
            }
            if now >= trouble_ends && self.is_trouble() {
                self.is_trouble.store(false, Ordering::SeqCst);
                self.tell(|| "nothing goes wrong any more".into());
                people::clear_up(self);
            }
            let until = if self.is_trouble() { trouble_ends } else { deadline };
            let next = self.next_instant().map_or(until, |next| next.min(until));
            self.move_to(next.max(now));
        }
    }

    /// A node begins to live at a seat.
    fn start(self: &Arc<Sim>, seat: usize) {
        let skew = self.span(2 * SKEW).0 - SKEW;
        let seed = self.next_number();
        let time = Arc::new(ManualClock::seeded(self.now().plus(Millis(skew)), seed));
        let clock = Clock::Virtual(time.clone());
        let mut seated = self.seats[seat].lock().unwrap();
        seated.life += 1;
        let life = seated.life;
        let (hints, _) = broadcast::channel(HINTS_BEHIND);
        let wire = Wire::new(self.clone(), seat, life, hints.clone());
        let settings = agents::settings(self, seat, life, &clock);
        let engine = Engine::new(Arc::new(wire), clock.clone(), agents::fixed(self), settings);
        seated.live = Some(Live { engine: engine.clone(), clock, time, skew, hints, gone: Arc::default() });
        drop(seated);
        self.tell(|| format!("node {seat} starts, its clock is {skew} ms ahead"));
        engine.work();
    }

    /// Drops what crashed, with everything it had in memory.
    async fn bury(self: &Arc<Sim>) {
        for seat in 0..self.seats() {
            let dead = {
                let mut seated = self.seats[seat].lock().unwrap();
                if !std::mem::take(&mut seated.is_dying) {
                    continue;
                }
                seated.goes_on_at = None;
                seated.live.take()
            };
            if let Some(live) = dead {
                live.gone.notify_waiters();
                live.engine.die().await;
            }
            let down = self.span(3 * agents::LEASE.0);
            self.seats[seat].lock().unwrap().starts_at = Some(self.now().plus(down));
        }
    }

    async fn end(self: &Arc<Sim>) {
        for seat in 0..self.seats() {
            let live = self.seats[seat].lock().unwrap().live.take();
            if let Some(live) = live {
                live.engine.die().await;
            }
        }
    }

    fn polls(&self) -> u64 {
        let of = |seat: &Mutex<Seat>| seat.lock().unwrap().live.as_ref().map_or(0, |live| live.time.polls());
        self.time.polls() + self.seats.iter().map(of).sum::<u64>()
    }

    async fn no_task_can_run(&self) -> Result<(), String> {
        let began = self.polls();
        loop {
            let before = self.polls();
            tokio::task::yield_now().await;
            let after = self.polls();
            if before == after {
                return Ok(());
            }
            if after.saturating_sub(began) > RESTLESS {
                return Err("I9: somebody runs in circles at one instant".into());
            }
        }
    }

    /// The next instant at which somebody wants to do something.
    fn next_instant(&self) -> Option<Timestamp> {
        let mut instants: Vec<Timestamp> = self.time.next_wake().into_iter().collect();
        for seat in &self.seats {
            let seat = seat.lock().unwrap();
            instants.extend(seat.starts_at);
            instants.extend(seat.goes_on_at);
            if let Some(live) = seat.live.as_ref().filter(|_| seat.goes_on_at.is_none()) {
                instants.extend(live.time.next_wake().map(|at| Timestamp(at.0 - live.skew)));
            }
        }
        instants.into_iter().min()
    }

    fn move_to(self: &Arc<Sim>, at: Timestamp) {
        let moved = at.since(self.now()).0;
        self.time.move_to(at);
        for no in 0..self.seats() {
            let mut seat = self.seats[no].lock().unwrap();
            let goes_on = seat.goes_on_at.is_some_and(|goes_on_at| goes_on_at <= at || !self.is_trouble());
            if goes_on {
                seat.goes_on_at = None;
            }
            let is_paused = seat.goes_on_at.is_some();
            let Seat { live: Some(live), .. } = &mut *seat else {
                let starts = seat.starts_at.is_some_and(|starts_at| starts_at <= at || !self.is_trouble());
                if starts {
                    seat.starts_at = None;
                    drop(seat);
                    self.start(no);
                }
                continue;
            };
            if (is_paused || goes_on) && self.blind == Blind::ToPauses {
                live.skew -= moved;
            }
            if is_paused {
                continue;
            }
            live.time.move_to(at.plus(Millis(live.skew)));
            if goes_on {
                live.time.go_on();
                drop(seat);
                self.tell(|| format!("node {no} goes on"));
            }
        }
    }
}
