//! What one request reads of one run: its row, its log and its holds, all of one moment.
//!
//! Whoever handles a request takes one before it decides, hands it on, and takes another one after the run rests. The log
//! is read when somebody asks for it, once.

use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::id::{HoldId, HoldKey, RunId, Seq};
use standfast_core::project::{HoldRow, RunRow, hold_row};
use standfast_core::run::Run;
use standfast_store::{StoreError, StoredRun};
use tokio::sync::OnceCell;

use super::Log;
use crate::EngineError;
use crate::auth::Principal;

/// A run as it was stored at one moment.
pub struct Snapshot {
    source: Arc<Log>,
    stored: StoredRun,
    log: OnceCell<Events>,
}

/// The events of a run, and where each append ends among them.
struct Events {
    all: Vec<Envelope>,
    ends: Vec<usize>,
}

impl Snapshot {
    /// The run that was loaded.
    pub(crate) fn new(source: Arc<Log>, stored: StoredRun) -> Snapshot {
        Snapshot { source, stored, log: OnceCell::new() }
    }

    /// A run whose row a list had; nothing is known of its lease.
    pub(crate) fn of_row(source: Arc<Log>, row: RunRow) -> Snapshot {
        Snapshot::new(source, StoredRun { row, lease: None })
    }

    /// The fold of its events.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.stored.row.run
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.run().facts.id
    }

    /// Its row, with its lease.
    pub(crate) fn stored(&self) -> &StoredRun {
        &self.stored
    }

    /// Its events up to this moment, with large values in their places.
    pub async fn log(&self) -> Result<&[Envelope], StoreError> {
        Ok(&self.read().await?.all)
    }

    /// The same, those of one append together: between them the run was never seen.
    pub async fn appends(&self) -> Result<Vec<Vec<Envelope>>, StoreError> {
        let Events { all, ends } = self.read().await?;
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let append = |(begin, end): (usize, &usize)| all.get(begin..*end).unwrap_or_default().to_vec();
        Ok(begins.zip(ends).map(append).collect())
    }

    async fn read(&self) -> Result<&Events, StoreError> {
        let upto = self.run().state.seq;
        let read = async {
            let mut events = Events { all: Vec::new(), ends: Vec::new() };
            // What was appended since the row was loaded belongs to a later moment.
            let appends = self.source.appends(self.id(), Seq(0)).await?.into_iter();
            for append in appends.filter(|append| append.last().is_some_and(|last| last.seq <= upto)) {
                events.all.extend(append);
                events.ends.push(events.all.len());
            }
            Ok(events)
        };
        self.log.get_or_try_init(|| read).await
    }

    /// One of its holds: an open one as it was at this moment, a decided one as it is recorded.
    pub(crate) async fn hold(&self, key: HoldKey) -> Result<Option<HoldRow>, StoreError> {
        match self.run().hold(key) {
            Some(open) => Ok(Some(hold_row(self.run(), open))),
            None => self.source.store.find_hold(HoldId { run: self.id(), key }).await,
        }
    }
}

impl Log {
    /// What is stored of a run now, if the caller may see it.
    pub(crate) async fn snapshot(
        self: &Arc<Log>,
        who: &Principal,
        run: RunId,
    ) -> Result<Snapshot, EngineError> {
        Ok(Snapshot::new(self.clone(), self.visible(who, run).await?))
    }

    /// What is stored of a run now, whoever asks: for those who then say why they may.
    pub(crate) async fn any_snapshot(self: &Arc<Log>, run: RunId) -> Result<Snapshot, EngineError> {
        Ok(Snapshot::new(self.clone(), self.load(run).await?))
    }
}
