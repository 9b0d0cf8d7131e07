//! Hints between nodes: in which shards something changed.
//!
//! One connection of its own listens and tells, never inside a transaction that writes: a NOTIFY there would make every
//! commit wait for the one before. What changes while a hint is under way goes with the next one. Nothing depends on
//! hints; a node that hears none looks at its next turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_core::id::Shard;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};
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
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    changed: mpsc::UnboundedSender<Vec<Shard>>,
    heard: broadcast::Sender<ShardSet>,
}

impl Hints {
    /// Tells the other nodes, soon. Does nothing until this node wants to hear of them: a tool beside the nodes does
    /// not need to.
    pub(super) fn tell(&self, shards: &[Shard]) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref().filter(|_| !shards.is_empty()) {
            // Fails only when the store is being closed.
            let _ = running.changed.send(shards.to_vec());
        }
    }

    /// What the other nodes tell from now on.
    pub(super) fn hear(&self, connector: &Arc<Connector>, handle: &Handle) -> broadcast::Receiver<ShardSet> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref() {
            return running.heard.subscribe();
        }
        let (changed, changes) = mpsc::unbounded_channel();
        let (heard, first) = broadcast::channel(BEHIND_MAX);
        handle.spawn(run(connector.clone(), changes, heard.clone()));
        *running = Some(Running { changed, heard });
        first
    }
}

async fn run(
    connector: Arc<Connector>,
    mut changes: mpsc::UnboundedReceiver<Vec<Shard>>,
    heard: broadcast::Sender<ShardSet>,
) {
    loop {
        let (said, hearing) = mpsc::unbounded_channel();
        if let Ok(connection) = connector.connect(Some(said)).await
            && pass_on(&connection, &mut changes, hearing, &heard).await.is_ok()
        {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Listens and tells until the store is closed (Ok) or the connection is lost.
async fn pass_on(
    connection: &Connection,
    changes: &mut mpsc::UnboundedReceiver<Vec<Shard>>,
    mut hearing: mpsc::UnboundedReceiver<Notification>,
    heard: &broadcast::Sender<ShardSet>,
) -> Result<(), Failure> {
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
            change = changes.recv() => {
                let Some(mut shards) = change else { return Ok(()) };
                while let Ok(more) = changes.try_recv() {
                    shards.extend(more);
                }
                connection.query(sql::NOTIFY, &[&to_text(&ShardSet::of(shards))]).await?;
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

    #[test]
    fn shards_survive_being_told() {
        let some = ShardSet::of([0, 7, 63, 64, 255].map(Shard));
        assert_eq!(from_text(&to_text(&some)), some);
        assert_eq!(from_text(&to_text(&ShardSet::all())), ShardSet::all());
        assert!(to_text(&ShardSet::all()).len() < 8000, "more does not fit into a NOTIFY");
        assert_eq!(from_text("something newer"), ShardSet::all());
    }
}
