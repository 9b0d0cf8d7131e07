//! The oracle: what the tools did and what people were told, against what is stored.
//!
//! The same rules as for real servers (`faults/facts.rs`), and those that only a world with one clock can check.

use std::collections::{BTreeMap, HashMap};

use standfast_core::actor::Actor;
use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::hold::Resolution;
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::run::{Status, status};
use standfast_core::time::Timestamp;
use standfast_store::conformance::support::{all_pages, block_on, checked, events_of, runs_by};
use standfast_store::{RunFilter, RunQuery};

use crate::facts::{Facts, text, wrong_effects};
use crate::people::{Acked, word};
use crate::requests::wrong_requests;
use crate::world::{SKEW, Sim};

type StartBy = BTreeMap<(RunId, CallNo, u32), Timestamp>;

/// Every run, also those that cannot be read.
fn runs(sim: &Sim) -> Vec<(RunId, Option<Status>)> {
    let all = all_pages(|cursor| {
        let query = RunQuery { cursor, limit: 100, ..runs_by(RunFilter::All) };
        let page = block_on(sim.store().list_runs(query)).unwrap();
        let readable = page.items.iter().map(|row| (row.run.facts.id, Some(status(&row.run))));
        let unreadable = page.unreadable.iter().map(|unreadable| (unreadable.run, None));
        standfast_store::Page::of(readable.chain(unreadable).collect(), page.next)
    });
    all.into_iter().collect()
}

/// Whether every run has come to its end.
pub(crate) fn all_is_over(sim: &Sim) -> bool {
    runs(sim).iter().all(|(_, status)| matches!(status, Some(Status::Ended(_)) | None))
}

/// Everything that is wrong with the outcome of a simulation.
pub(crate) fn check(sim: &Sim) -> Vec<String> {
    let (mut wrong, mut logs, mut start_by) = (Vec::new(), HashMap::new(), StartBy::new());
    let mut events = Vec::new();
    for (run, status) in runs(sim) {
        match status {
            Some(Status::Ended(_)) => {}
            other @ (Some(_) | None) => wrong.push(format!("I6: {run} is {other:?} in the end")),
        }
        if let Err(why) = checked(&*sim.store(), run) {
            wrong.push(format!("I8: {why}"));
        }
        let links = block_on(sim.store().links(run, Seq(0), usize::MAX)).unwrap_or_default();
        let log = events_of(&links);
        note_starts(run, &log, &mut start_by);
        if sim.is_quiet() {
            wrong.extend(taken_for_lost(&log).map(|why| format!("{why} in {run}")));
        }
        let facts = Facts::of(&log);
        wrong.extend(facts.wrong.iter().map(|why| format!("{why} in {run}")));
        logs.insert(run, facts);
        events.push((run, log));
    }
    wrong.extend(wrong_requests(&sim.requests.lock().unwrap(), &events));
    wrong.extend(lost(&sim.acked.lock().unwrap(), &logs));
    let effects = sim.effects.lock().unwrap();
    let lines = effects.iter().map(|effect| (effect.token.clone(), effect.arguments.clone()));
    wrong.extend(wrong_effects(lines, &logs));
    for effect in effects.iter() {
        let started = start_by
            .iter()
            .find(|((run, call, attempt), _)| effect.token == format!("{run}/{call}/{attempt}"));
        if let Some((_, start_by)) = started.filter(|(_, start_by)| effect.at.0 > start_by.0 + SKEW) {
            let late = effect.at.0 - start_by.0;
            wrong.push(format!("I3: {} began {late} ms after its start_by", effect.token));
        }
    }
    wrong
}

/// Calls of nodes that were there all the time, and that others gave up.
fn taken_for_lost(log: &[Envelope]) -> impl Iterator<Item = String> {
    let starter = |call, attempt| {
        log.iter().find_map(|envelope| {
            let Event::CallStarted(started) = &envelope.event else { return None };
            let is_it = (started.call, started.attempt) == (call, attempt);
            is_it.then_some(Actor::Node(started.node))
        })
    };
    log.iter().filter_map(move |envelope| {
        let Event::CallOrphaned(orphaned) = &envelope.event else { return None };
        let by_another = starter(orphaned.call, orphaned.attempt) != Some(envelope.actor.clone());
        by_another.then(|| format!("I3: call {} is taken for lost while its node works on it", orphaned.call))
    })
}

fn note_starts(run: RunId, log: &[Envelope], start_by: &mut StartBy) {
    for envelope in log {
        if let Event::CallStarted(started) = &envelope.event {
            start_by.insert((run, started.call, started.attempt), started.start_by);
        }
    }
}

/// What was acknowledged and is not there, or not so.
fn lost(acked: &[Acked], logs: &HashMap<RunId, Facts>) -> Vec<String> {
    let mut by_key: BTreeMap<&str, RunId> = BTreeMap::new();
    let mut wrong = Vec::new();
    for acked in acked {
        let is_there = match acked {
            Acked::Started { run, key } => {
                *by_key.entry(key).or_insert(*run) == *run && logs.contains_key(run)
            }
            Acked::Canceled { run } => {
                logs.get(run).is_some_and(|facts| facts.outcome == Some(Outcome::Canceled))
            }
            Acked::Decided { hold, word: wished, key, arguments } => {
                let decided = logs.get(&hold.run).and_then(|facts| facts.resolved.get(&hold.key));
                decided.is_some_and(|(resolution, with)| {
                    word(resolution) == *wished
                        && (key.is_none() || key == with)
                        && arguments
                            .as_ref()
                            .is_none_or(|arguments| edited(resolution).as_ref() == Some(arguments))
                })
            }
            Acked::Told { hold, word: told } => {
                let decided = logs.get(&hold.run).and_then(|facts| facts.resolved.get(&hold.key));
                decided.is_some_and(|(resolution, _)| word(resolution) == *told)
            }
        };
        if !is_there {
            wrong.push(format!("I1: acknowledged and not there, or not so: {acked:?}"));
        }
    }
    wrong
}

/// The arguments that a decision put in the place of others.
fn edited(resolution: &Resolution) -> Option<String> {
    match resolution {
        Resolution::Approve { edited } => edited.as_ref().map(|edited| text(&edited.arguments)),
        Resolution::Deny { .. }
        | Resolution::Answer { .. }
        | Resolution::Fail { .. }
        | Resolution::Expire
        | Resolution::Withdraw
        | Resolution::Supersede => None,
    }
}
