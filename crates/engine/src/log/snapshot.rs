//! What one request reads of one run: its row, its log and its holds, all of one moment.
//!
//! Whoever handles a request takes one before it decides, hands it on, and takes another one after the run rests. The log
//! is read when somebody asks for it, once.

use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Seq};
use standfast_core::project::{HoldRow, RunRow, hold_row};
use standfast_core::receipt::{Receipt, receipt_of_call};
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
    log: OnceCell<Arc<Vec<Envelope>>>,
    /// Where each append ends among the events.
    ends: OnceCell<Vec<usize>>,
    /// Holds that are known to be decided; the store has the others.
    decided: Vec<HoldRow>,
}

impl Snapshot {
    /// The run that was loaded.
    pub(crate) fn new(source: Arc<Log>, stored: StoredRun) -> Snapshot {
        let (log, ends) = (OnceCell::new(), OnceCell::new());
        Snapshot { source, stored, log, ends, decided: Vec::new() }
    }

    /// The same with all its events, and with those of its holds that are known to be decided.
    pub(crate) fn whole(
        source: Arc<Log>,
        stored: StoredRun,
        log: Arc<Vec<Envelope>>,
        decided: Vec<HoldRow>,
    ) -> Snapshot {
        Snapshot { log: OnceCell::new_with(Some(log)), decided, ..Snapshot::new(source, stored) }
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
        Ok(self.shared_log().await?)
    }

    /// The receipt of a call, whether or not somebody was asked about it.
    pub async fn call_receipt(&self, call: CallNo) -> Result<Receipt, EngineError> {
        receipt_of_call(call, self.log().await?).ok_or(EngineError::NotFound)
    }

    /// The hash of the last link: where its chain ends.
    #[must_use]
    pub fn head(&self) -> Digest {
        self.stored.row.head
    }

    /// Its events, for whoever keeps them.
    pub(crate) async fn shared_log(&self) -> Result<&Arc<Vec<Envelope>>, StoreError> {
        let read = async {
            let (all, ends) = self.read().await?;
            // Somebody else may have asked for the ends at the same time, which are the same.
            let _ = self.ends.set(ends);
            Ok(Arc::new(all))
        };
        self.log.get_or_try_init(|| read).await
    }

    /// The same, those of one append together: between them the run was never seen.
    pub async fn appends(&self) -> Result<Vec<Vec<Envelope>>, StoreError> {
        let all = self.shared_log().await?;
        // Whoever left the events did not say where appends end.
        let ends = self.ends.get_or_try_init(|| async { self.read().await.map(|(_, ends)| ends) }).await?;
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let append = |(begin, end): (usize, &usize)| all.get(begin..*end).unwrap_or_default().to_vec();
        Ok(begins.zip(ends).map(append).collect())
    }

    async fn read(&self) -> Result<(Vec<Envelope>, Vec<usize>), StoreError> {
        let upto = self.run().state.seq;
        let (mut all, mut ends) = (Vec::new(), Vec::new());
        // What was appended since the row was loaded belongs to a later moment.
        let appends = self.source.appends(self.id(), Seq(0)).await?.into_iter();
        for append in appends.filter(|append| append.last().is_some_and(|last| last.seq <= upto)) {
            all.extend(append);
            ends.push(all.len());
        }
        Ok((all, ends))
    }

    /// One of its holds: an open one as it was at this moment, a decided one as it is recorded.
    pub(crate) async fn hold(&self, key: HoldKey) -> Result<Option<HoldRow>, StoreError> {
        match self.run().hold(key) {
            Some(open) => Ok(Some(hold_row(self.run(), open))),
            None => match self.decided.iter().find(|row| row.id.key == key) {
                Some(decided) => Ok(Some(decided.clone())),
                None => self.source.store.find_hold(HoldId { run: self.id(), key }).await,
            },
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

    /// The same with its events, read at the same moment: for those who go on with it.
    pub(crate) async fn whole_snapshot(
        self: &Arc<Log>,
        who: &Principal,
        run: RunId,
    ) -> Result<Snapshot, EngineError> {
        self.seen_by(who, run).await?;
        let (stored, links) = match self.store.load_with_links(run).await {
            Err(StoreError::NotFound { .. }) => return Err(EngineError::NotFound),
            // Whether it is the row or the log that cannot be read is found out by whoever needs them.
            Err(StoreError::Corrupt { .. }) => return self.any_snapshot(run).await,
            other => other?,
        };
        let snapshot = Snapshot::new(self.clone(), stored);
        if let Ok(appends) = self.opened(run, Seq(0), links).await {
            let mut ends = Vec::new();
            let mut all = Vec::new();
            for append in appends {
                all.extend(append);
                ends.push(all.len());
            }
            // What does not belong to the row is read again by whoever needs it.
            if all.last().is_some_and(|last: &Envelope| last.seq == snapshot.run().state.seq) {
                let _ = (snapshot.log.set(Arc::new(all)), snapshot.ends.set(ends));
            }
        }
        Ok(snapshot)
    }

    /// What is stored of a run now, whoever asks: for those who then say why they may.
    pub(crate) async fn any_snapshot(self: &Arc<Log>, run: RunId) -> Result<Snapshot, EngineError> {
        Ok(Snapshot::new(self.clone(), self.load(run).await?))
    }
}
