//! The library without the binary: the example of the guide is compiled and run as it stands.
//!
//! What the engine does with runs is tested where the server is; this shows that a program of one's own needs nothing else.

#[path = "../examples/embedded.rs"]
#[expect(dead_code, reason = "its main function is the example's own")]
mod embedded;

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_store::conformance::cluster::shared;
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};

/// A tool and a model of one's own, a held call that is approved, and the result; in a file that a second start goes on with.
#[tokio::test]
async fn the_example_of_the_guide_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteOptions::at(folder.path().join("runs.db"));
    for _ in 0..2 {
        let store = Arc::new(SqliteStore::open(&file).unwrap());
        assert_eq!(embedded::refund(store).await.unwrap(), Some(Body::text("p-7 is paid back.")));
    }
}

/// The same on Postgres: the store is all that is another one.
#[tokio::test]
async fn it_runs_on_postgres() {
    let url = shared().database();
    for _ in 0..2 {
        let store = Arc::new(PostgresStore::open(&PostgresOptions::at(&url)).unwrap());
        assert_eq!(embedded::refund(store).await.unwrap(), Some(Body::text("p-7 is paid back.")));
    }
    shared().remove(&url);
}

/// The guide says under 60 lines, and means it.
#[test]
fn the_example_is_short() {
    let text = include_str!("../examples/embedded.rs");
    let code = text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//"));
    assert!(code.count() < 60);
}
