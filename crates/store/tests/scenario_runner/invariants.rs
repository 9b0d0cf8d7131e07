//! What must hold after every step, whatever the scenario is about.
//!
//! Read from the store with eyes of its own: the chain verifies, the events fold into the row, hold rows follow from
//! the events, each hold has one resolution, nothing that changes the world starts twice without a person's word, and
//! in a run that has ended every call has exactly one result.

use std::collections::BTreeMap;

use standfast_core::apply;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Seq};
use standfast_core::link::{Contents, FIRST_PREVIOUS};
use standfast_core::message::{Replay, ToolCall};
use standfast_core::project::{self, HoldChange, HoldRow};
use standfast_core::run::Run;
use standfast_core::transcript::{Entry, transcript};
use standfast_store::{Audience, HoldFilter, HoldQuery};

use super::block_on::block_on;
use super::world::World;

/// Checks every run.
pub(crate) fn check(world: &World) -> Result<(), String> {
    for run in &world.runs {
        check_run(world, run.id).map_err(|why| format!("run {}: {why}", run.name))?;
    }
    effects_are_recorded(world)
}

fn check_run(world: &World, id: RunId) -> Result<(), String> {
    let stored = block_on(world.store.load(id)).map_err(|error| error.to_string())?;
    let links = block_on(world.store.links(id, Seq(0), 10_000)).map_err(|error| error.to_string())?;
    let (mut previous, mut wanted, mut whole) = (FIRST_PREVIOUS, Seq(1), true);
    let mut events = Vec::new();
    for link in &links {
        link.verify(previous, wanted).map_err(|bad| format!("the chain does not verify: {bad:?}"))?;
        (previous, wanted) = (link.hash, link.next());
        whole &= matches!(link.contents, Contents::Whole { .. });
        events.extend(link.events().map_err(|bad| format!("{bad:?}"))?);
    }
    ensure(stored.row.head == previous, || "the row does not name the last link".into())?;
    if !whole {
        return ensure(stored.row.run.state.erased, || "contents are missing".into());
    }
    let folded = apply::fold(id, &events).ok_or("the log does not begin with run.started")?;
    ensure(project::run_row(folded.clone(), previous) == stored.row, || {
        "the events do not fold into the row".into()
    })?;
    let log = Log::read(&events)?;
    log.check_end(&folded, &events)?;
    hold_rows_follow(world, &events, &folded)
}

/// What is remembered on the way through a log.
#[derive(Default)]
struct Log {
    holds: Vec<(HoldKey, HoldKind, bool)>,
    calls: BTreeMap<CallNo, SeenCall>,
    ended: bool,
}

struct SeenCall {
    replay: Replay,
    /// A start after which nothing allows another one.
    spent: bool,
}

impl Log {
    fn read(events: &[Envelope]) -> Result<Log, String> {
        let mut log = Log::default();
        for envelope in events {
            log.see(&envelope.event).map_err(|why| format!("event {}: {why}", envelope.seq))?;
        }
        Ok(log)
    }

    fn see(&mut self, event: &Event) -> Result<(), String> {
        if self.ended && !may_follow_the_end(event) {
            return Err(format!("{} may not follow run.ended", event.kind()));
        }
        if let Event::ModelReplied(replied) = event {
            replied.reply.calls.iter().for_each(|call| self.add(call));
        } else if let Event::CallProposed(proposed) = event {
            self.add(&proposed.call);
        } else if let Event::CallStarted(started) = event {
            let call = self.calls.get_mut(&started.call).ok_or("a call starts that nobody asked for")?;
            let is_second = call.spent && call.replay == Replay::Never;
            ensure(!is_second, || format!("call {} starts again without a person's word", started.call))?;
            call.spent = true;
        } else if let Event::CallReturned(returned) = event {
            self.allow_again(returned.call);
        } else if let Event::HoldOpened(opened) = event {
            self.holds.push((opened.hold, opened.kind, true));
            // Whoever started it says that nothing has happened yet.
            if matches!(opened.kind, HoldKind::Auth) {
                self.allow_again(opened.hold.call);
            }
        } else if let Event::HoldResolved(resolved) = event {
            let open = self.holds.iter_mut().find(|(key, _, is_open)| *key == resolved.hold && *is_open);
            let (key, kind, is_open) = open.ok_or("a hold is resolved that is not open")?;
            *is_open = false;
            let runs_again = *kind == HoldKind::Recovery
                && resolved.role.is_some()
                && matches!(resolved.resolution, Resolution::Approve { .. });
            if runs_again {
                let call = key.call;
                self.allow_again(call);
            }
        } else if let Event::RunEnded(_) = event {
            self.ended = true;
        }
        Ok(())
    }

    fn add(&mut self, call: &ToolCall) {
        self.calls.insert(call.no, SeenCall { replay: call.replay, spent: false });
    }

    fn allow_again(&mut self, no: CallNo) {
        if let Some(call) = self.calls.get_mut(&no) {
            call.spent = false;
        }
    }

    /// A run that has ended waits for nothing, and every call has exactly one result; before that, at most one.
    fn check_end(&self, run: &Run, events: &[Envelope]) -> Result<(), String> {
        let open: Vec<HoldKey> =
            self.holds.iter().filter(|(_, _, open)| *open).map(|(key, ..)| *key).collect();
        let kept: Vec<HoldKey> = run.state.holds.iter().map(|hold| hold.key).collect();
        ensure(open == kept, || format!("open by the log: {open:?}, by the row: {kept:?}"))?;
        ensure(!self.ended || open.is_empty(), || "it has ended and still waits".into())?;
        let mut results: BTreeMap<CallNo, usize> = self.calls.keys().map(|no| (*no, 0)).collect();
        for entry in transcript(events) {
            if let Entry::Tool(result) = entry {
                *results.entry(result.call).or_default() += 1;
            }
        }
        for (no, count) in results {
            let fits = if self.ended { count == 1 } else { count <= 1 };
            ensure(fits, || format!("call {no} has {count} results"))?;
        }
        Ok(())
    }
}

fn may_follow_the_end(event: &Event) -> bool {
    matches!(
        event,
        Event::CallReturned(_)
            | Event::CallFinished(_)
            | Event::CallOrphaned(_)
            | Event::CallContradicted(_)
            | Event::RunErased(_)
    )
}

/// The rows of all holds are those that the events make, and the list shows the open ones.
fn hold_rows_follow(world: &World, events: &[Envelope], run: &Run) -> Result<(), String> {
    let mut rows: Vec<HoldRow> = Vec::new();
    for change in project::hold_changes(None, events, run) {
        match change {
            HoldChange::Open(row) => rows.push(row),
            HoldChange::Update(row) | HoldChange::Close(row) => {
                let known = rows.iter_mut().find(|known| known.id == row.id);
                *known.ok_or("a hold changes before it opens")? = row;
            }
        }
    }
    for row in &rows {
        let found = block_on(world.store.find_hold(row.id)).map_err(|error| error.to_string())?;
        ensure(found.as_ref() == Some(row), || {
            format!("the row of hold {} is {found:?}, not {row:?}", row.id)
        })?;
    }
    let query = HoldQuery {
        tenant: run.facts.tenant.clone(),
        audience: Audience::Everyone,
        filter: HoldFilter::Run(run.facts.id),
        kinds: Vec::new(),
        cursor: None,
        limit: 100,
    };
    let listed = block_on(world.store.list_holds(query)).map_err(|error| error.to_string())?.items;
    let listed: Vec<HoldId> = listed.into_iter().map(|row| row.id).collect();
    let open: Vec<HoldId> = rows.into_iter().filter(|row| row.closed.is_none()).map(|row| row.id).collect();
    ensure(listed == open, || format!("the list shows {listed:?}, open are {open:?}"))
}

/// No start has its effect twice.
fn effects_are_recorded(world: &World) -> Result<(), String> {
    for (at, effect) in world.effects.iter().enumerate() {
        let token = |e: &super::world::Effect| (e.run, e.call, e.attempt);
        let is_again = world.effects[..at].iter().any(|earlier| token(earlier) == token(effect));
        ensure(!is_again, || {
            format!("start {} of call {} had its effect twice", effect.attempt, effect.call)
        })?;
    }
    Ok(())
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
