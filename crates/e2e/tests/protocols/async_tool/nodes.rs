//! Two servers on one Postgres: reports that come several times, to both; races with cancelling and with time.
//!
//! Whatever wins, each call has one end, everybody is told the same, and the run goes on once.

use futures_util::future::join_all;
use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::clock_race::{Edge, Ends, First, lanes};
use standfast_testkit::rounds;

use crate::async_tool::records::says_the_same;
use crate::async_tool::reports::{seconds_now, standard};
use crate::async_tool::world::{Answered, Outside, Server, Setup, result, serve, text, until};

/// What the client of Postgres prints for these statements.
fn said_by_psql(database: &str, statements: &[&str]) -> String {
    let mut psql = std::process::Command::new("psql");
    psql.args(["-qAt", database]).args(statements.iter().flat_map(|statement| ["-c", statement]));
    let output = psql.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The rows of the view in a Postgres, as its own client prints them.
fn rows(database: &str, condition: &str) -> Vec<Value> {
    let query = format!("SELECT row_to_json(calls) FROM pending_tool_calls AS calls {condition} ORDER BY id");
    let lines = said_by_psql(database, &[&query]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// S2-27, C8: the view of a Postgres says what the API says, and finds calls by session, by status and by timeout in an index.
#[tokio::test(flavor = "multi_thread")]
async fn the_view_of_a_postgres_says_what_the_api_says() {
    let outside = Outside::answering(json!({"externalRef": "deploy-1"})).await;
    let database = shared().database();
    let sql = format!("driver: postgres, url: \"{database}\"");
    let branches = ["one", "two", "three", "four"];
    let folder = Setup { branches: &branches, sql: &sql, ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(4).await;
    server.run_is(&run, "held").await;
    let id = |no: usize| text(&jobs[no]["pendingID"]);
    server.post("/async-tool/result", &json!({"pendingID": id(0), "result": result()})).await;
    server.post("/async-tool/progress", &json!({"pendingID": id(1), "output": "half way"})).await;
    server.post("/async-tool/error", &json!({"pendingID": id(2), "error": "broke"})).await;
    let found = rows(&database, "");
    assert_eq!(found.len(), 4);
    for row in &found {
        let record = server.get(&format!("/async-tool/pending/{}", text(&row["id"]))).await;
        says_the_same(row, &record);
    }
    for (condition, index, many) in [
        ("session_id = 's-1'", "external_holds_by_session", 4),
        ("session_id = 's-2'", "external_holds_by_session", 0),
        ("status = 'completed'", "external_holds_by_status", 1),
        ("status = 'processing'", "external_holds_by_status", 1),
        ("status = 'failed'", "external_holds_by_status", 1),
        ("status = 'waiting'", "external_holds_by_status", 1),
        ("timeout < 1000", "external_holds_by_timeout", 0),
        ("timeout > 1000", "external_holds_by_timeout", 4),
    ] {
        assert_eq!(rows(&database, &format!("WHERE {condition}")).len(), many, "{condition}");
        let explain = format!("EXPLAIN SELECT * FROM pending_tool_calls WHERE {condition}");
        // A small table is read as a whole wherever that is allowed.
        let plan = said_by_psql(&database, &["SET enable_seqscan = off", &explain]);
        assert!(plan.contains(index) && !plan.contains("Seq Scan"), "{condition}: {plan}");
    }
}

/// Calls that are raced for in each test.
const CALLS: usize = 10;

async fn two_nodes(outside: &Outside, tool: &str) -> (tempfile::TempDir, tempfile::TempDir, [Server; 2]) {
    let branches: Vec<String> = (0..CALLS).map(|no| format!("branch-{no}")).collect();
    let branches: Vec<&str> = branches.iter().map(String::as_str).collect();
    let sql = format!("driver: postgres, url: \"{}\"", shared().database());
    // All reports come from one address.
    let server = ", async_tools: {per_caller: 1000000}";
    let setup = Setup { branches: &branches, tool, sql: &sql, server, ..Setup::default() };
    let folders = [setup.folder(outside), setup.folder(outside)];
    let servers = [serve(folders[0].path()), serve(folders[1].path())];
    let [first, second] = folders;
    (first, second, servers)
}

/// How often an event of this kind stands in the log.
fn count(log: &str, kind: &str) -> usize {
    log.matches(&format!("\"type\":\"{kind}\"")).count()
}

/// F22, F5, S2-29: each report is sent 1 to 10 times, to both nodes at once. One of each counts; the others hear that it
/// is settled, and the run goes on once. Each node checks what was signed for the other's jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_comes_often_counts_once() {
    let outside = Outside::answering(json!({})).await;
    let (_first, _second, nodes) = two_nodes(&outside, "requires_approval: false").await;
    let run = nodes[0].begin("s-1").await;
    let jobs = outside.jobs(CALLS).await;
    nodes[0].run_is(&run, "held").await;
    let mut sent = Vec::new();
    for (no, job) in jobs.iter().enumerate() {
        let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
        let body = json!({"pendingID": id, "result": {"output": format!("result {no}")}});
        for copy in 0..=no {
            let (node, body) = (&nodes[copy % 2], body.clone());
            sent.push(async move { (id, node.webhook(&body, secret).await) });
        }
    }
    let answers: Vec<(&str, Answered)> = join_all(sent).await;
    for job in &jobs {
        let of_this =
            answers.iter().filter(|(id, _)| *id == text(&job["pendingID"])).map(|(_, answer)| answer);
        let (done, not): (Vec<&Answered>, Vec<&Answered>) = of_this.partition(|answer| answer.status == 200);
        assert_eq!(done.len(), 1, "{done:?} {not:?}");
        assert!(not.iter().all(|no| no.no() == (409, "Not waiting")), "{not:?}");
    }
    nodes[1].run_is(&run, "completed").await;
    let log = nodes[1].log(&run).await;
    assert_eq!(count(&log, "hold.resolved"), CALLS);
    assert_eq!(count(&log, "model.replied"), 2, "the model was asked once more");
    assert_eq!(nodes[0].log(&run).await, log, "both tell the same");
}

/// T5: reports of jobs. What was signed once is taken once: the same bytes again, at the node that took them, at the other one and after
/// `kill -9`, are refused or, with the id of a message, answered as before; a report about a cancelled job comes too late everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn t5_jobs_a_report_that_comes_again_counts_once() {
    let outside = Outside::answering(json!({})).await;
    let sql = format!("driver: postgres, url: \"{}\"", shared().database());
    let server = ", nodes: {take_over_after: 3s}";
    let setup = Setup { branches: &["one", "two", "three"], sql: &sql, server, ..Setup::default() };
    let folders = [setup.folder(&outside), setup.folder(&outside)];
    let mut nodes = [serve(folders[0].path()), serve(folders[1].path())];
    let run = nodes[0].begin("s-1").await;
    let jobs = outside.jobs(3).await;
    nodes[0].run_is(&run, "held").await;
    let of = |no: usize| (text(&jobs[no]["pendingID"]), text(&jobs[no]["callbackSecret"]));
    let body = |no: usize| json!({"pendingID": of(no).0, "result": result()});
    // By the signature of its body alone; by the id of a message; cancelled before it is reported.
    let by_id = standard(of(1).1, "msg-1", seconds_now(), &body(1).to_string());
    let signed = async |node: &Server| node.webhook(&body(0), of(0).1).await;
    let named = async |node: &Server| node.report("/async-tool/webhook", &by_id, body(1).to_string()).await;
    assert_eq!((signed(&nodes[0]).await.status, named(&nodes[0]).await.status), (200, 200));
    for again in ["here", "there", "after a crash"] {
        if again == "after a crash" {
            nodes[0].started.child.kill().unwrap();
            nodes[0].started.child.wait().unwrap();
            nodes[0] = serve(folders[0].path());
        }
        let node = &nodes[usize::from(again == "there")];
        let twice = signed(node).await;
        assert_eq!(twice.no(), (409, "Not waiting"), "{again}: {twice:?}");
        let same = named(node).await;
        assert_eq!((same.status, &same.body["status"]), (200, &"completed".into()), "{again}: {same:?}");
        let error = json!({"pendingID": of(0).0, "error": "no, it broke"});
        assert_eq!(node.webhook(&error, of(0).1).await.no(), (409, "Not waiting"), "{again}");
        assert_eq!(count(&node.log(&run).await, "hold.resolved"), 2, "{again}");
    }
    assert_eq!(nodes[1].delete(&format!("/async-tool/pending/{}", of(2).0)).await.status, 200);
    for node in &nodes {
        let late = node.webhook(&body(2), of(2).1).await;
        assert_eq!(late.no(), (409, "Not waiting"), "{late:?}");
    }
    nodes[1].run_is(&run, "completed").await;
    let log = nodes[0].log(&run).await;
    assert_eq!((count(&log, "hold.resolved"), count(&log, "model.replied")), (3, 2), "{log}");
}

/// How many runs are raced for side by side.
const LANES: usize = 25;

/// How long a call may take where the clock is raced with. All calls of all lanes must have begun by then.
const TIMEOUT: &str = "12s";

/// F5, F6: results, errors, cancelling and time itself race for the same calls on two nodes. Each call has one end, and
/// whoever was told 200 was right.
#[tokio::test(flavor = "multi_thread")]
async fn results_cancelling_and_time_race() {
    let outside = Outside::answering(json!({})).await;
    let tool = format!("requires_approval: false\ntimeout: {TIMEOUT}");
    let (_first, _second, nodes) = two_nodes(&outside, &tool).await;
    let all = lanes(rounds(2), LANES).map(async |rounds| {
        let (mut edge, mut ends) = (Edge::new(), Ends::default());
        for round in rounds {
            for end in each_call_has_one_end(&nodes, &outside, round, &mut edge).await {
                ends.add(end);
            }
        }
        ends
    });
    let all = Ends::of(join_all(all).await);
    all.assert_raced(&["a result", "an error", "a cancellation", "time", "somebody in time"]);
}

/// One run with its calls. Every other call is raced for around its deadline, by which the next round acts; the others at once. How the
/// calls ended.
async fn each_call_has_one_end(
    nodes: &[Server; 2],
    outside: &Outside,
    round: usize,
    edge: &mut Edge,
) -> Vec<&'static str> {
    let session = format!("s-{round}");
    let run = nodes[round % 2].begin(&session).await;
    let jobs = until("the jobs of the run were started", async || {
        let of_run = outside.of_session(&session);
        (of_run.len() == CALLS).then_some(of_run)
    })
    .await;
    until("the jobs are waited for", async || {
        let now = nodes[round % 2].get(&format!("/api/v1/runs/{run}")).await;
        // On a machine that is very busy all of them may have expired by now.
        ["held", "completed"].contains(&text(&now["status"])).then_some(())
    })
    .await;
    let record = nodes[0].get(&format!("/async-tool/pending/{}", text(&jobs[0]["pendingID"]))).await;
    let deadline = record["timeout"].as_i64().unwrap();
    let raced = jobs.iter().enumerate().map(async |(no, job)| {
        let is_raced_with_time = no % 2 == 1;
        if is_raced_with_time {
            edge.reached(deadline).await;
        }
        (is_raced_with_time, race(nodes, job).await)
    });
    let told = join_all(raced).await;
    nodes[1].run_is(&run, "completed").await;
    let mut ends = Vec::new();
    let mut in_time = 0;
    for (is_raced_with_time, (id, answers)) in told {
        let record: Value = nodes[1].get(&format!("/async-tool/pending/{id}")).await;
        let end = one_end(&record, &answers);
        in_time += usize::from(is_raced_with_time && end != "time");
        ends.push(end);
    }
    let log = nodes[0].log(&run).await;
    assert_eq!((count(&log, "hold.resolved"), count(&log, "model.replied")), (CALLS, 2));
    edge.was(if 4 * in_time > CALLS { First::Act } else { First::Clock });
    ends.extend((0..in_time).map(|_| "somebody in time"));
    ends
}

/// Whoever ended a call, once it is sure that nobody else was told so.
fn one_end(record: &Value, answers: &[Answered; 3]) -> &'static str {
    let status = text(&record["status"]);
    assert!(["completed", "failed", "expired"].contains(&status), "{record}");
    let not = |answer: &Answered| answer.no() == (409, "Not waiting");
    assert!(answers.iter().all(|answer| answer.status == 200 || not(answer)), "{answers:?}");
    let done: Vec<usize> = (0..answers.len()).filter(|no| answers[*no].status == 200).collect();
    assert!(done.len() <= 1, "{answers:?}");
    assert_eq!(done.is_empty(), status == "expired", "{answers:?} {record}");
    let Some(&done) = done.first() else { return "time" };
    assert_eq!(answers[done].body["status"], status, "{answers:?} {record}");
    ["a result", "an error", "a cancellation"][done]
}

/// A result, an error and a cancellation of one call, at the same moment, to both nodes.
async fn race(nodes: &[Server; 2], job: &Value) -> (String, [Answered; 3]) {
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    let (done, failed) =
        (json!({"pendingID": id, "result": result()}), json!({"pendingID": id, "error": "broke"}));
    let path = format!("/async-tool/pending/{id}");
    let (one, two, three) = tokio::join!(
        nodes[0].webhook(&done, secret),
        nodes[1].webhook(&failed, secret),
        nodes[1].delete(&path)
    );
    (id.to_owned(), [one, two, three])
}
