//! Several decisions at once: one counts, everybody is told the same, and nothing runs twice.

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::clock_race::{Edge, Ends, First, lanes};
use standfast_testkit::rounds;
use standfast_testkit::wait::now_ms;

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, Server, text, trail};

/// Sends these decisions at the same moment, to these servers in turn.
async fn at_once(servers: &[&Server], request: &Value, actions: &[&str]) -> Vec<(u16, Value)> {
    let path = format!("{BASE}/resume/{}", text(request));
    let asked = actions.iter().enumerate().map(|(at, action)| {
        let (server, path) = (servers[at % servers.len()], path.clone());
        async move {
            let answer = server.post(&path, &json!({"action": action})).await;
            (answer.status, answer.body)
        }
    });
    futures_util::future::join_all(asked).await
}

fn statuses(answers: &[(u16, Value)]) -> Vec<u16> {
    let mut statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    statuses
}

/// S1-26, S1-33, S1-34, F5, F6: of eight approvals at once one counts; the others are answered with it.
#[tokio::test]
async fn of_many_approvals_one_counts() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a", "/b"]), Line::Says("done")])], "");
    let server = folder.serve();
    for round in 1..=rounds(40) {
        let paused = server.paused("ops").await;
        let answers = at_once(&[&server], &paused["request_id"], &["approve"; 8]).await;
        assert_eq!(statuses(&answers), [200, 409, 409, 409, 409, 409, 409, 409], "{answers:?}");
        assert_eq!(elsewhere.got().len(), 2 * round, "{answers:?}");
    }
}

/// S1-26, S1-30: approve and reject at once: one of them, for all calls of the request, and the trail has that one.
#[tokio::test]
async fn an_approval_and_a_rejection_do_not_mix() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a", "/b"]), Line::Says("done")])], "");
    let server = folder.serve();
    let mut ran = 0;
    for _ in 0..rounds(40) {
        let paused = server.paused("ops").await;
        let actions = ["approve", "reject", "reject", "approve"];
        let answers = at_once(&[&server], &paused["request_id"], &actions).await;
        assert_eq!(statuses(&answers), [200, 409, 409, 409], "{answers:?}");
        let (_, won) = answers.iter().find(|(status, _)| *status == 200).unwrap();
        let is_approved = won["output"] == "done";
        ran += if is_approved { 2 } else { 0 };
        assert_eq!(elsewhere.got().len(), ran, "{won}");
        let task = server.task("ops", &paused["task_id"]).await;
        let decisions: Vec<String> =
            trail(&task).into_iter().filter(|line| line.contains("\"action\"")).collect();
        let word = if is_approved { "approve" } else { "reject" };
        assert!(decisions.len() == 1 && decisions[0].contains(word), "{decisions:?}");
    }
}

/// How long a decision may take where the clock is raced with, and how many requests are decided about side by side.
const TIMEOUT: i64 = 5_000;
const LANES: usize = 50;

const TAKEN: &str = "the approval was taken";
const LATE: &str = "it came too late";

/// S1-26, C7: an approval that comes too late is refused, and what expired never runs; one in time always does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_against_expiry() {
    let elsewhere = Elsewhere::quick().await;
    let lines = [Line::Asks(&["/a"]), Line::Says("done")];
    let folder = Folder::new(&elsewhere, &[("ops", &lines)], "");
    let config = std::fs::read_to_string(folder.config()).unwrap();
    let config = config.replace("task: {", &format!("task: {{input_timeout: {TIMEOUT}ms, "));
    std::fs::write(folder.config(), config).unwrap();
    let server = folder.serve();
    let at_once = an_approval(&server, async |_| {}).await;
    let later = an_approval(&server, async |deadline| until_passed(deadline + 1_000).await).await;
    assert_eq!((at_once, later), (First::Act, First::Clock));
    let all = lanes(rounds(4), LANES).map(async |rounds| {
        let (mut edge, mut ends) = (Edge::new(), Ends::default());
        for _ in rounds {
            let first = an_approval(&server, async |deadline| edge.reached(deadline).await).await;
            ends.add(if first == First::Act { TAKEN } else { LATE });
            edge.was(first);
        }
        ends
    });
    let all = Ends::of(futures_util::future::join_all(all).await);
    assert_eq!(elsewhere.got().len(), 1 + all.count(TAKEN));
    all.assert_raced(&[TAKEN, LATE]);
}

async fn until_passed(time: i64) {
    let wait = u64::try_from(time - now_ms()).unwrap_or(0);
    tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
}

/// One approval, which is sent when the wait for its deadline is over; who was first.
async fn an_approval(server: &Server, wait: impl AsyncFnOnce(i64)) -> First {
    let paused = server.paused("ops").await;
    wait(now_ms() + TIMEOUT).await;
    let answer = server.approve(&paused["request_id"]).await;
    let is_late = match answer.status {
        200 if answer.body["output"] == "done" => false,
        409 => true,
        _ => panic!("{answer:?}"),
    };
    let task = server.task("ops", &paused["task_id"]).await;
    assert_eq!(task["status"], if is_late { "Failed" } else { "Completed" }, "{task}");
    let told = trail(&task).into_iter().filter(|line| line.contains("Expired: nobody decided about"));
    assert_eq!(told.count(), usize::from(is_late), "{task}");
    if is_late { First::Clock } else { First::Act }
}

/// S1-33, S1-34: two nodes on one Postgres: whoever is asked, one decision counts, and either answers with the output.
#[tokio::test]
async fn two_nodes_decide_once() {
    let elsewhere = Elsewhere::quick().await;
    let database = format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", shared().database());
    let lines = [Line::Asks(&["/a", "/b"]), Line::Says("done")];
    let folder = Folder::stored(&database, &elsewhere, &[("ops", &lines)], "");
    let (one, two) = (folder.serve(), folder.serve());
    for round in 1..=rounds(20) {
        let paused = one.paused("ops").await;
        let answers = at_once(&[&two, &one], &paused["request_id"], &["approve"; 4]).await;
        assert_eq!(statuses(&answers), [200, 409, 409, 409], "{answers:?}");
        assert_eq!(elsewhere.got().len(), 2 * round);
        let tasks = [one.task("ops", &paused["task_id"]).await, two.task("ops", &paused["task_id"]).await];
        assert_eq!(tasks[0], tasks[1], "both tell the same");
        assert_eq!(tasks[0]["status"], "Completed");
    }
}
