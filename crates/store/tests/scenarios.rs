//! Every `*.scenario` file under `tests/scenarios`, on memory and on SQLite: two named tests each.
//!
//! Both must pass, and leave the very same chains behind. What the sentences mean is `tests/scenarios/README.md`; how
//! they are played is `scenario_runner`.

mod scenario_runner;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use standfast_store::Store;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};

use scenario_runner::backends::{Backend, MemoryBackend};
use scenario_runner::script::{self, Scenario};
use scenario_runner::world::World;
use scenario_runner::{folder, play, steps};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = match script::read_all(&folder()) {
        Ok(scenarios) => scenarios,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let numbers = Trial::test("shows_lines_name_what_exists", {
        let scenarios = scenarios.clone();
        move || shows_lines_name_what_exists(&scenarios)
    });
    let readme = Trial::test("the_readme_is_understood", the_readme_is_understood);
    let trials = scenarios.into_iter().flat_map(on_both).chain([numbers, readme]).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn on_both(scenario: Scenario) -> [Trial; 2] {
    let (a, b) = (scenario.clone(), scenario);
    [
        Trial::test(format!("memory::{}", a.name), move || {
            play(&a, Box::new(MemoryBackend)).map(drop).map_err(Failed::from)
        }),
        Trial::test(format!("sqlite::{}", b.name), move || {
            let on_disk = play(&b, Box::new(SqliteBackend::new()?))?;
            let in_memory = play(&b, Box::new(MemoryBackend))?;
            if on_disk == in_memory {
                Ok(())
            } else {
                Err(format!("the chains differ: {on_disk:?} on disk, {in_memory:?} in memory").into())
            }
        }),
    ]
}

/// Keeps runs in a file that each restart closes and opens.
struct SqliteBackend {
    folder: tempfile::TempDir,
}

impl SqliteBackend {
    fn new() -> Result<SqliteBackend, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(SqliteBackend { folder })
    }
}

impl Backend for SqliteBackend {
    fn open(&mut self) -> Result<Arc<dyn Store>, String> {
        let options = SqliteOptions::at(self.folder.path().join("runs.db"));
        let store = SqliteStore::open(&options).map_err(|error| error.to_string())?;
        Ok(Arc::new(store))
    }

    fn reopen(&mut self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>, String> {
        drop(store);
        self.open()
    }
}

/// A number that does not exist shows nothing.
fn shows_lines_name_what_exists(scenarios: &[Scenario]) -> Result<(), Failed> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/requirements.md");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let cell = |line: &str| line.strip_prefix("| ").and_then(|row| row.split(' ').next()).map(str::to_owned);
    let mut known: BTreeSet<String> = text.lines().filter_map(cell).collect();
    known.extend((1..=11).map(|no| format!("rule {no}")));
    known.extend(
        ["approval", "input", "external", "auth", "recovery"].map(|kind| format!("hold table: {kind}")),
    );
    for scenario in scenarios {
        if let Some(unknown) = scenario.shows.iter().find(|number| !known.contains(*number)) {
            return Err(format!("{}.scenario shows {unknown}, which does not exist", scenario.name).into());
        }
    }
    Ok(())
}

/// The README's example is played, and each of its sentences means something.
fn the_readme_is_understood() -> Result<(), Failed> {
    let text = std::fs::read_to_string(folder().join("README.md")).map_err(|error| error.to_string())?;
    let mut blocks = text.split("```").skip(1).step_by(2);
    let example = blocks.next().and_then(|block| block.strip_prefix("scenario\n"));
    let example = script::read("README", example.ok_or("the README begins with an example")?)?;
    play(&example, Box::new(MemoryBackend))?;
    for block in blocks {
        let sentences =
            block.strip_prefix("sentences\n").ok_or("a block of the README is no list of sentences")?;
        sentences.lines().try_for_each(understands)?;
    }
    Ok(())
}

/// Whether a sentence of the README means something, tried on a run whose first call waits for approval.
fn understands(sentence: &str) -> Result<(), String> {
    let mut world = World::new(Box::new(MemoryBackend))?;
    let prelude =
        ["given tool delete_file needs approval", "client says \"go\"", "model calls delete_file {}"];
    for line in prelude {
        steps::take(&mut world, &script::pieces(line)?)?;
    }
    match steps::take(&mut world, &script::pieces(sentence)?) {
        Err(why) if why.starts_with("not understood") => Err(format!("{sentence}\n    {why}")),
        Ok(()) | Err(_) => Ok(()),
    }
}
