//! Finding a task by the id of one request: in every store, on every node, after a restart.

use serde_json::json;
use standfast_store::conformance::cluster::shared;

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, text};

/// S1-4, S1-5, S1-6, S1-15, S1-29, C13: the request's id alone finds its task, in memory, in SQLite and in Postgres, while
/// many others wait, and still when it is decided; an id that was altered finds nothing.
#[tokio::test]
async fn a_request_is_found_in_every_store() {
    let elsewhere = Elsewhere::quick().await;
    let database = format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", shared().database());
    for store in ["backend: memory", "backend: sql, sql: {driver: sqlite, database: kept.db}", &database] {
        let lines = [Line::Asks(&["/a"]), Line::Says("done")];
        let folder = Folder::stored(store, &elsewhere, &[("ops", &lines)], "");
        let server = folder.serve();
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(server.paused("ops").await);
        }
        for paused in &all {
            let path = format!("{BASE}/resume/{}", text(&paused["request_id"]));
            let found = server.get(&path).await;
            assert_eq!(found.body["task_id"], paused["task_id"], "{store}: {found:?}");
            // The same run with another secret, and another run with this secret.
            let id = text(&paused["request_id"]);
            let (head, tail) = id.split_at(id.len() - 20);
            let other: String = tail.chars().rev().collect();
            let altered = server.get(&format!("{BASE}/resume/{head}{other}")).await;
            assert_eq!(altered.status, 404, "{store}: {altered:?}");
        }
        let decided = server.approve(&all[2]["request_id"]).await;
        assert_eq!(decided.body["output"], "done", "{store}: {decided:?}");
        let found = server.get(&format!("{BASE}/resume/{}", text(&all[2]["request_id"]))).await;
        assert_eq!(found.body["status"], json!("Completed"), "{store}: {found:?}");
        drop(server);
        if store.contains("sql") {
            let server = folder.serve();
            let found = server.get(&format!("{BASE}/resume/{}", text(&all[4]["request_id"]))).await;
            assert_eq!(found.body["status"], json!("Paused"), "{store}: {found:?}");
        }
    }
}
