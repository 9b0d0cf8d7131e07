//! Hints between nodes: in which shards something changed.
//!
//! One connection of its own listens and tells, never inside a transaction that writes: a NOTIFY there would make every
//! commit wait for the one before. What changes while a hint is under way goes with the next one. Nothing depends on
//! hints; a node that hears none looks at its next turn.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use standfast_core::id::Shard;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_postgres::Notification;

use super::connect::{Connection, Connector};
use super::failure::Failure;
use super::sql;
use crate::query::ShardSet;

/// Hints that a listener may be behind; then it has to look at everything.
const BEHIND_MAX: usize = 256;

/// How long to wait before the connection is made again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Hints {
    running: Mutex<Option<HintTask>>,
}

#[derive(Debug)]
struct HintTask {
    changed: Arc<ChangedShards>,
    heard: broadcast::Sender<ShardSet>,
}

/// Where something changed that the others were not notified of yet. A set of shards, so that it does not grow while they
/// cannot be told.
#[derive(Debug, Default)]
struct ChangedShards {
    shards: Mutex<ShardSet>,
    news: Notify,
}

impl ChangedShards {
    fn shards(&self) -> MutexGuard<'_, ShardSet> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, more: &ShardSet) {
        self.shards().add(more);
        self.news.notify_one();
    }

    fn take(&self) -> ShardSet {
        std::mem::take(&mut *self.shards())
    }
}

impl Hints {
    /// Tells the other nodes, soon. Does nothing until this node subscribes to them: a tool beside the nodes does
    /// not need to.
    pub(super) fn tell(&self, shards: &[Shard]) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref().filter(|_| !shards.is_empty()) {
            running.changed.add(&ShardSet::of(shards.iter().copied()));
        }
    }

    /// What the other nodes tell from now on.
    pub(super) fn hear(&self, connector: &Arc<Connector>, handle: &Handle) -> broadcast::Receiver<ShardSet> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref() {
            return running.heard.subscribe();
        }
        let changed = Arc::new(ChangedShards::default());
        let (heard, first) = broadcast::channel(BEHIND_MAX);
        handle.spawn(run(connector.clone(), changed.clone(), heard.clone()));
        *running = Some(HintTask { changed, heard });
        first
    }
}

/// Until the store is closed, which ends the task.
async fn run(connector: Arc<Connector>, changed: Arc<ChangedShards>, heard: broadcast::Sender<ShardSet>) {
    loop {
        let (said, hearing) = mpsc::unbounded_channel();
        if let Ok(connection) = connector.connect(Some(said)).await {
            // Why it ended does not matter: whatever it is, another connection is tried.
            let _ = pass_on(&connection, &changed, hearing, &heard).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Listens and tells until the connection is lost; says how.
async fn pass_on(
    connection: &Connection,
    changed: &ChangedShards,
    mut hearing: mpsc::UnboundedReceiver<Notification>,
    heard: &broadcast::Sender<ShardSet>,
) -> Result<Infallible, Failure> {
    let own = connection.query(sql::OWN_PROCESS, &[]).await?;
    let own: i32 = own.first().map_or(0, |row| row.get(0));
    connection.client.batch_execute(sql::LISTEN).await?;
    // Whatever was said before could not be heard.
    let _ = heard.send(ShardSet::all());
    loop {
        tokio::select! {
            notification = hearing.recv() => match notification {
                // What this node changed it knows.
                Some(notification) if notification.process_id() == own => {}
                // Nobody needs to hear it when nobody listens.
                Some(notification) => drop(heard.send(from_text(notification.payload()))),
                None => return Err(Failure::Lost("the connection for hints ended".into())),
            },
            () = changed.news.notified() => {
                let shards = changed.take();
                if shards.is_empty() {
                    continue;
                }
                if let Err(error) = connection.query(sql::NOTIFY, &[&to_text(&shards)]).await {
                    // The next connection tells it.
                    changed.add(&shards);
                    return Err(error.into());
                }
            }
        }
    }
}

/// Numbers with commas between them.
fn to_text(shards: &ShardSet) -> String {
    shards.iter().map(|shard| shard.0.to_string()).collect::<Vec<_>>().join(",")
}

/// What cannot be read stands for everything: a newer node may say it otherwise.
fn from_text(text: &str) -> ShardSet {
    let shards: Result<Vec<Shard>, _> = text.split(',').map(|number| number.parse().map(Shard)).collect();
    shards.map_or_else(|_| ShardSet::all(), ShardSet::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hints that could not be sent are kept, once for each shard however often it changed, and told when it can be.
    #[test]
    fn what_was_not_told_yet_does_not_grow() {
        let changed = ChangedShards::default();
        for n in 0..100_000u32 {
            changed.add(&ShardSet::of([Shard(u8::try_from(n % 3).unwrap())]));
        }
        assert_eq!(changed.take(), ShardSet::of([0, 1, 2].map(Shard)));
        assert!(changed.take().is_empty());
    }

    #[test]
    fn shards_survive_being_told() {
        let some = ShardSet::of([0, 7, 63, 64, 255].map(Shard));
        assert_eq!(from_text(&to_text(&some)), some);
        assert_eq!(from_text(&to_text(&ShardSet::all())), ShardSet::all());
        assert!(to_text(&ShardSet::all()).len() < 8000, "more does not fit into a NOTIFY");
        assert_eq!(from_text("something newer"), ShardSet::all());
    }
}
