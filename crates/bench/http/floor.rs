//! The floor: the same HTTP stack, three group-committed commits a cycle with one 4 KiB row each, no logic.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use rusqlite::{Connection as Sqlite, params};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::client::{Connection, text_of};
use crate::counting::count_floor_commit;
use crate::measure::{Lap, now};
use crate::usage::WRITER;

type Queue = SyncSender<oneshot::Sender<()>>;

pub(crate) fn router(directory: &Path) -> Router {
    let connection = Sqlite::open(directory.join("floor.db")).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;
             PRAGMA wal_autocheckpoint = 4000;
             CREATE TABLE rows (no INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;",
        )
        .unwrap();
    let (queue, jobs) = sync_channel::<oneshot::Sender<()>>(4096);
    let writer = move || {
        let row = vec![7u8; 4096];
        while let Ok(first) = jobs.recv() {
            let mut group = vec![first];
            group.extend(jobs.try_iter().take(511));
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            for _ in &group {
                let mut insert = connection.prepare_cached("INSERT INTO rows (value) VALUES (?1)").unwrap();
                insert.execute(params![row]).unwrap();
            }
            connection.execute_batch("COMMIT").unwrap();
            count_floor_commit(group.len());
            for reply in group {
                let _ = reply.send(());
            }
        }
    };
    std::thread::Builder::new().name(WRITER.into()).spawn(writer).unwrap();
    Router::new().route("/start", post(start)).route("/approve", post(approve)).with_state(Arc::new(queue))
}

async fn start(State(queue): State<Arc<Queue>>, Json(_): Json<Value>) -> Json<Value> {
    commit(&queue).await;
    Json(json!({"run": "run_1", "holds": [{"id": "hold_1", "kind": "approval"}], "status": "held"}))
}

async fn approve(State(queue): State<Arc<Queue>>, Json(_): Json<Value>) -> Json<Value> {
    commit(&queue).await;
    commit(&queue).await;
    Json(json!({"outcome": "decided"}))
}

async fn commit(queue: &Queue) {
    let (reply, answer) = oneshot::channel();
    queue.try_send(reply).unwrap();
    answer.await.unwrap();
}

/// One cycle as a client lives it, of the floor as of the statements.
pub(crate) async fn cycle(connection: &mut Connection) -> Option<Lap> {
    let start = now();
    let held = connection.post("/start", r#"{"input": "Free some space", "wait": "settled"}"#).await;
    let run = text_of(&held, "run").to_owned();
    if run.is_empty() {
        // The recorded statements have run out.
        return None;
    }
    let approve = now();
    connection.post("/approve", &format!(r#"{{"id": "{run}"}}"#)).await;
    Some(Lap { cycle: start.elapsed(), approve: approve.elapsed() })
}
