//! Races: each has one winner, whoever loses gets the error, and nothing is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use standfast_testkit::clock_race::{Edge, Ends, First, lanes};
use standfast_testkit::rounds;
use standfast_testkit::wait::now_ms;

use crate::inbox::server::{Answer, Server, plain, text};

/// A task of which a worker has asked something.
async fn asked(server: &Server) -> String {
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    server.report(&claimed, "suspend", json!({"reason": "r"})).await;
    text(&claimed["id"]).to_owned()
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    let mut all: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    all.sort_unstable();
    all
}

/// S4-29: many workers, each task has one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_claimed_once() {
    let (_folder, server) = plain();
    let server = Arc::new(server);
    let many = rounds(40);
    let tasks: Vec<Value> = (0..many).map(|n| json!({"type": "t", "payload": n})).collect();
    for batch in tasks.chunks(100) {
        let added = server.post("/support/tasks/batch", &json!({"tasks": batch})).await;
        assert_eq!(added.status, 201, "{added:?}");
    }
    let workers = (0..8).map(|n| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let task = server.claim(&json!({"agentId": format!("w-{n}")})).await;
                if task.is_null() {
                    return got;
                }
                got.push(text(&task["id"]).to_owned());
            }
        })
    });
    let mut all = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        all.extend(worker.await.unwrap());
    }
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (many, many));
    assert_eq!(server.get("/support/stats").await.body["claimed"], many);
}

/// C36, I2: two answers at once: one counts, the other gets a conflict.
#[tokio::test]
async fn a_task_is_resumed_once() {
    let (_folder, server) = plain();
    for _ in 0..rounds(40) {
        let id = asked(&server).await;
        let answers = futures_util::future::join_all((0..4).map(|n| server.resume(&id, json!(n)))).await;
        assert_eq!(statuses(&answers), [200, 409, 409, 409], "{answers:?}");
        let winner = answers.iter().position(|answer| answer.status == 200).unwrap();
        assert_eq!(server.task(&id).await["resumePayload"], winner);
    }
}

/// I2: an answer and a cancel at once: whoever is first, the other learns of it, and a cancelled task stays cancelled.
#[tokio::test]
async fn resume_races_with_cancel() {
    let (_folder, server) = plain();
    for _ in 0..rounds(40) {
        let id = asked(&server).await;
        let path = format!("/support/tasks/{id}/cancel");
        let nothing = json!({});
        let (resumed, cancelled) = tokio::join!(server.resume(&id, json!("x")), server.post(&path, &nothing));
        assert_eq!(cancelled.status, 200, "{cancelled:?}");
        assert!([200, 409].contains(&resumed.status), "{resumed:?}");
        assert_eq!(server.task(&id).await["status"], "cancelled");
    }
}

/// How many tasks whose lease ends are raced for side by side.
const LANES: usize = 50;

/// S4-29: the end of a lease and a result at once: the result counts, or the task is claimed again; never both. Another worker
/// waits for the task all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_lease_races_with_the_result() {
    let (_folder, server) = plain();
    let all = lanes(rounds(6), LANES).map(async |rounds| {
        let (mut edge, mut ends) = (Edge::new(), Ends::default());
        for round in rounds {
            let first = a_lease_ends(&server, round, &edge).await;
            ends.add(if first == First::Act { IN_TIME } else { TOO_LATE });
            edge.was(first);
        }
        ends
    });
    let all = Ends::of(futures_util::future::join_all(all).await);
    all.assert_raced(&[IN_TIME, TOO_LATE]);
}

const IN_TIME: &str = "the result counted";
const TOO_LATE: &str = "the task was claimed again";

/// One round, with a type of work of its own, so that nobody else is handed its task.
async fn a_lease_ends(server: &Server, round: usize, edge: &Edge) -> First {
    let kind = format!("ticket-{round}");
    server.add(&json!({"type": kind, "payload": {"subject": "Refund"}})).await;
    let claimed = server.claim(&json!({"agentId": "w", "types": [kind], "leaseMs": 1000})).await;
    let end_of_lease = now_ms() + 1000;
    let result = async {
        edge.reached(end_of_lease).await;
        server.report(&claimed, "complete", json!({"result": "in time"})).await
    };
    let wanted = json!({"agentId": "v", "types": [kind], "waitMs": 3000});
    let (done, taken) = tokio::join!(result, server.claim(&wanted));
    let id = text(&claimed["id"]);
    if done.status == 200 {
        assert!(taken.is_null(), "{taken}");
        let task = server.task(id).await;
        assert_eq!((&task["result"], &task["attempts"]), (&json!("in time"), &json!(1)), "{task}");
        return First::Act;
    }
    assert_eq!(done.status, 409, "{done:?}");
    let taken = if taken.is_null() {
        server.claim(&json!({"agentId": "v", "types": [kind], "waitMs": 40_000})).await
    } else {
        taken
    };
    assert_eq!((&taken["id"], &taken["attempts"]), (&claimed["id"], &json!(2)));
    assert_eq!(server.report(&taken, "complete", json!({"result": "later"})).await.status, 200);
    assert_eq!(server.task(id).await["result"], "later");
    First::Clock
}
