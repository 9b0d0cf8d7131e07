//! Log lines have a subject: whatever is logged while a run is driven names the run, and the request that began it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use standfast_core::name::ToolName;
use standfast_core::run::{Status, WaitKind};
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture};
use standfast_store::memory::MemoryStore;
use tracing::Instrument as _;

use crate::{Site, agent, start, until};

/// A tool that logs something, and does not know what it did.
struct Logs;

impl Tool for Logs {
    fn run(&self, _: Invocation) -> ToolFuture {
        Box::pin(async {
            tracing::warn!("delete_file: connection lost");
            Outcome::Unknown("the connection was lost".into())
        })
    }
}

/// The lines that were logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// The one that says this.
    fn with(&self, text: &str) -> String {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        all.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {all}")).to_owned()
    }
}

#[tokio::test]
async fn lines_of_a_drive_name_its_run_and_its_request() {
    let (lines, site) = (Lines::default(), Site::new());
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let mut settings = site.settings();
    let mut ops = (*settings.agents[&agent()]).clone();
    ops.needs_approval.clear();
    ops.tools = BTreeMap::from([(ToolName::new("delete_file").unwrap(), Arc::new(Logs) as Arc<dyn Tool>)]);
    settings.agents.insert(agent(), Arc::new(ops));
    let engine = Engine::new(Arc::new(MemoryStore::new()), Clock::system(), crate::fixed(), settings);
    engine.work();
    let run = start(&engine).instrument(tracing::error_span!("request", id = "r-1")).await;
    until(&engine, run, Status::Held(WaitKind::Person)).await;
    for text in ["delete_file: connection lost", "drive: outcome unknown"] {
        let line = lines.with(text);
        assert!(
            line.contains("request{id=\"r-1\"}") && line.contains(&format!("drive{{run={run}}}")),
            "{line}"
        );
    }
    engine.die().await;
}
