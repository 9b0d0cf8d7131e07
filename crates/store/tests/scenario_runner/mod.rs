//! Runs scenario files: sentences that people can read, against the pure core and real stores.
//!
//! `script.rs` reads the files, `steps.rs` and `expect.rs` say what a sentence does, `world.rs` is the server in
//! miniature, `invariants.rs` what is checked after every step. The sentences are listed in
//! `tests/scenarios/README.md`; adding a case is adding a file.

pub(crate) mod backends;
pub(crate) mod block_on;
mod details;
mod expect;
mod invariants;
pub(crate) mod script;
mod setting;
pub(crate) mod steps;
mod sub_runs;
pub(crate) mod world;

use std::path::PathBuf;

use standfast_core::digest::Digest;

use self::backends::Backend;
use self::script::Scenario;
use self::world::World;

/// Where the files are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Plays a scenario; what it leaves behind is the hash of the last link of each run.
pub(crate) fn play(scenario: &Scenario, backend: Box<dyn Backend>) -> Result<Vec<Digest>, String> {
    let mut world = World::new(backend)?;
    for line in &scenario.lines {
        let step = script::pieces(&line.text)
            .and_then(|toks| steps::take(&mut world, &toks))
            .and_then(|()| invariants::check(&world));
        step.map_err(|why| format!("{}.scenario:{}: {}\n    {why}", scenario.name, line.number, line.text))?;
    }
    if let Some(Err(refusal)) = world.outcome {
        return Err(format!("{}.scenario: the last step was refused: {refusal}", scenario.name));
    }
    let head = |run: &world::NamedRun| world.view_of(run.id).map(|view| view.row.head);
    world.runs.iter().map(head).collect()
}
