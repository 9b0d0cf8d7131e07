//! The floor: three durable, group-committed commits a cycle, one 4 KiB row in each, no logic.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::measure::{Lap, Measurement, load, now};

struct Floor {
    queue: SyncSender<oneshot::Sender<()>>,
}

pub(crate) async fn run(concurrency: usize, seconds: f64) -> Measurement {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::open(directory.path().join("floor.db")).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;
             PRAGMA wal_autocheckpoint = 4000;
             CREATE TABLE rows (no INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;",
        )
        .unwrap();
    let (queue, jobs) = sync_channel::<oneshot::Sender<()>>(4096);
    let writer = std::thread::spawn(move || {
        let row = vec![7u8; 4096];
        while let Ok(first) = jobs.recv() {
            let mut group = vec![first];
            group.extend(jobs.try_iter().take(511));
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            for _ in &group {
                connection
                    .prepare_cached("INSERT INTO rows (value) VALUES (?1)")
                    .unwrap()
                    .execute(params![row])
                    .unwrap();
            }
            connection.execute_batch("COMMIT").unwrap();
            for reply in group {
                let _ = reply.send(());
            }
        }
    });
    let floor = Arc::new(Floor { queue });
    let measured = load(concurrency, seconds, {
        let floor = floor.clone();
        move |_, _| cycle(floor.clone())
    })
    .await;
    drop(floor);
    writer.join().unwrap();
    measured
}

async fn cycle(floor: Arc<Floor>) -> Option<Lap> {
    let start = now();
    floor.commit().await;
    let approve = now();
    floor.commit().await;
    floor.commit().await;
    Some(Lap { cycle: start.elapsed(), approve: approve.elapsed() })
}

impl Floor {
    async fn commit(&self) {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(reply).unwrap();
        answer.await.unwrap();
    }
}
