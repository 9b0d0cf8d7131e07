//! Finding a task by the id of one request: in every store, on every node, after a restart.

use serde_json::json;
use standfast_store::conformance::cluster::shared;

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, Server, text};

/// S1-4, S1-5, S1-6, S1-15, S1-29, C13: the request's id alone finds its task, in memory, in files, in SQLite and in Postgres, while
/// many others wait and begin at the same moment, and still when it is decided; when its session is deleted it finds nothing any more and
/// the others are found as before, also after `kill -9`. An id that was altered finds nothing.
#[tokio::test]
async fn a_request_is_found_in_every_store() {
    let elsewhere = Elsewhere::quick().await;
    let database = format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", shared().database());
    for store in [
        "backend: memory",
        "backend: file, file: {directory: ./kept}",
        "backend: sql, sql: {driver: sqlite, database: kept.db}",
        &database,
    ] {
        let lines = [Line::Asks(&["/a"]), Line::Says("done")];
        let folder = Folder::stored(store, &elsewhere, &[("ops", &lines)], "");
        let server = folder.serve();
        let all = futures_util::future::join_all((0..6).map(|_| server.paused("ops"))).await;
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
        let gone = format!("/api/v1/sessions/{}?agent=ops&force=true", text(&all[5]["session_id"]));
        let deleted = server.send("DELETE", &gone, &[], "").await;
        assert_eq!(deleted.status, 200, "{store}: {deleted:?}");
        let is_found = async |server: &Server| {
            for (no, paused) in all.iter().enumerate() {
                let found = server.get(&format!("{BASE}/resume/{}", text(&paused["request_id"]))).await;
                let status = match no {
                    2 => json!("Completed"),
                    5 => json!(null),
                    _ => json!("Paused"),
                };
                assert_eq!(found.body["status"], status, "{store}: {no}: {found:?}");
                assert_eq!(found.status == 404, no == 5, "{store}: {no}: {found:?}");
            }
        };
        is_found(&server).await;
        drop(server);
        if store != "backend: memory" {
            is_found(&folder.serve()).await;
        }
    }
}
