//! F5 to F8: who decides first. Two engines share one store, each behind its own address.
//!
//! Whatever arrives at the same moment: one decision counts, everybody else gets that one, a call runs once, and no
//! answer is a server's error.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use standfast_core::time::Millis;
use standfast_store::conformance::random::Random;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::agents::{Behaviour, EDITED};
use crate::child::Options;
use crate::commands::ended;
use crate::report::Row;
use crate::server::{Http, now, pause};
use crate::site::{Field, Kept};
use crate::story::{Acked, lines};

/// What somebody does to a held run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Approve,
    Deny,
    Edit,
    Cancel,
    Message,
    /// Nothing: its time runs out.
    Expiry,
}

const RACERS: [Act; 16] = [
    Act::Approve,
    Act::Deny,
    Act::Edit,
    Act::Cancel,
    Act::Message,
    Act::Approve,
    Act::Approve,
    Act::Deny,
    Act::Edit,
    Act::Approve,
    Act::Message,
    Act::Approve,
    Act::Deny,
    Act::Edit,
    Act::Approve,
    Act::Approve,
];

const PAIRS: [[Act; 2]; 7] = [
    [Act::Approve, Act::Expiry],
    [Act::Deny, Act::Expiry],
    [Act::Cancel, Act::Expiry],
    [Act::Message, Act::Expiry],
    [Act::Approve, Act::Cancel],
    [Act::Approve, Act::Message],
    [Act::Cancel, Act::Message],
];

/// Runs that race at the same time.
const AT_ONCE: usize = 16;

fn expiring(expiry: Millis) -> Options {
    let behaviour = Behaviour { expiry, ..Options::default().behaviour };
    Options { behaviour, ..Options::default() }
}

/// F5: sixteen clients on two nodes decide one hold.
pub(crate) fn on_one_hold(count: usize, kept: Kept) -> Row {
    let races = (0..count).map(|n| {
        let mut random = Random::new(n as u64);
        let mut acts = RACERS.to_vec();
        // Who comes first is up to the order as well.
        (0..acts.len()).for_each(|at| acts.swap(at, random.index(RACERS.len())));
        ("ops", acts)
    });
    let (violations, note) = race(races.collect(), Millis(300), kept);
    Row::new(kept.row("F5", "F5-PG"), "16 clients on 2 nodes decide one hold", count, violations).with(note)
}

/// F6: a decision, expiry, cancel and a message at the same instant, two at a time.
pub(crate) fn at_the_same_instant(count: usize, kept: Kept) -> Row {
    let expiry = match kept {
        Kept::File | Kept::Folder => Millis(150),
        Kept::Postgres => Millis(400),
    };
    let races = PAIRS.iter().cycle().take(count * PAIRS.len()).map(|pair| {
        let agent = if pair.contains(&Act::Expiry) { "expires" } else { "ops" };
        (agent, pair.to_vec())
    });
    let (violations, note) = race(races.collect(), expiry, kept);
    let id = kept.row("F6", "F6-PG");
    Row::new(id, "decision, expiry, cancel, message at once", count * PAIRS.len(), violations).with(note)
}

fn race(races: Vec<(&'static str, Vec<Act>)>, expiry: Millis, kept: Kept) -> (Vec<String>, String) {
    let runtime = crate::runtime();
    let field = Field::new(kept);
    let (servers, nodes) = field.start_two(&expiring(expiry));
    let (mut violations, mut acked) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        for some in races.chunks(AT_ONCE) {
            let races: JoinSet<_> = some
                .iter()
                .map(|(agent, acts)| one_race(nodes.clone(), agent, acts.clone(), expiry))
                .collect();
            for (wrong, told) in races.join_all().await {
                violations.extend(wrong);
                acked.extend(told);
            }
        }
    });
    drop(servers);
    violations.extend(field.check(&acked));
    let decided = acked.iter().filter(|acked| matches!(acked, Acked::Decided { .. })).count();
    (violations, format!("{decided} won by a decision, {} effects", lines(field.data()).len()))
}

/// A held run: its id and its hold.
pub(crate) async fn held(http: &Http, agent: &str) -> (String, String) {
    let body = r#"{"input": "Go", "wait": "settled"}"#;
    let (_, run) = http.post(&format!("/api/v1/agents/{agent}/runs"), body, None).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&run["id"]), text(&run["holds"][0]["id"]))
}

async fn one_race(
    nodes: [Http; 2],
    agent: &str,
    acts: Vec<Act>,
    expiry: Millis,
) -> (Vec<String>, Vec<Acked>) {
    let (mut begin, (mut run, mut hold)) = (now(), held(&nodes[0], agent).await);
    // On a slow machine its time may have run out before anybody learned of it: then there is nothing to race for.
    while hold.is_empty() && acts.contains(&Act::Expiry) {
        (begin, (run, hold)) = (now(), held(&nodes[0], agent).await);
    }
    let (mut wrong, mut acked) = (Vec::new(), Vec::new());
    if acts.contains(&Act::Expiry) {
        // As near to the deadline as can be: the hold was opened a little after the start.
        let deadline = Duration::from_millis(u64::try_from(expiry.0).unwrap());
        tokio::time::sleep(deadline.saturating_sub(begin.elapsed())).await;
    }
    let racing: Vec<Act> = acts.into_iter().filter(|act| *act != Act::Expiry).collect();
    let barrier = Arc::new(Barrier::new(racing.len()));
    let mut racers = JoinSet::new();
    for (n, act) in racing.into_iter().enumerate() {
        let (http, barrier, run, hold) = (nodes[n % 2].clone(), barrier.clone(), run.clone(), hold.clone());
        racers.spawn(async move {
            barrier.wait().await;
            do_it(&http, act, &run, &hold, &format!("racer-{n}-{run}")).await
        });
    }
    for told in racers.join_all().await {
        match told {
            Ok(told) => acked.extend(told),
            Err(why) => wrong.push(why),
        }
    }
    let decided = acked.iter().filter(|acked| matches!(acked, Acked::Decided { .. })).count();
    if decided > 1 {
        wrong.push(format!("I2: {decided} decisions of {hold} were acknowledged"));
    }
    if let Err(why) = settled(&nodes[1], &run, &hold).await {
        wrong.push(why);
    }
    (wrong, acked)
}

/// Waits until the run has ended, or until it asks about something else because a message was heard after the decision.
async fn settled(http: &Http, run: &str, raced: &str) -> Result<(), String> {
    let begin = now();
    loop {
        let (_, body) =
            http.get(&format!("/api/v1/runs/{run}")).await.map_err(|_| "I6: no answer".to_owned())?;
        match (body["status"].as_str(), body["holds"][0]["id"].as_str()) {
            (Some("completed" | "failed" | "canceled"), _) => return Ok(()),
            (Some("held"), Some(hold)) if hold != raced => return Ok(()),
            _ if begin.elapsed() > Duration::from_secs(20) => {
                return Err(format!("I6: {run} is not over: {body}"));
            }
            _ => pause().await,
        }
    }
}

/// What was acknowledged, nothing when somebody else was faster, or why the answer is wrong.
async fn do_it(http: &Http, act: Act, run: &str, hold: &str, key: &str) -> Result<Option<Acked>, String> {
    let resolve = format!("/api/v1/holds/{hold}/resolve");
    let (path, body, word) = match act {
        Act::Approve => (resolve, r#"{"resolution": "approve"}"#.to_owned(), "approve"),
        Act::Deny => (resolve, r#"{"resolution": "deny"}"#.to_owned(), "deny"),
        Act::Edit => (resolve, format!(r#"{{"resolution": "approve", "arguments": {EDITED}}}"#), "approve"),
        Act::Cancel => (format!("/api/v1/runs/{run}/cancel"), "{}".to_owned(), "cancel"),
        Act::Message | Act::Expiry => (
            format!("/api/v1/runs/{run}/messages"),
            r#"{"input": "Never mind", "on_hold": "supersede"}"#.to_owned(),
            "message",
        ),
    };
    let key = (word != "cancel" && word != "message").then_some(key);
    let (status, answer) =
        http.post(&path, &body, key).await.map_err(|_| format!("I6: {act:?} got no answer"))?;
    let run = run.to_owned();
    match (status, word) {
        (200, "cancel") => Ok(Some(Acked::Canceled { run })),
        // A message may also come after the decision; then it supersedes nothing and is simply heard.
        (200, "message") => Ok(None),
        (200, _) => {
            let key = key.unwrap_or_default().to_owned();
            Ok(Some(Acked::Decided { run, hold: hold.to_owned(), key, word }))
        }
        (409, "approve" | "deny") if answer["recorded"].is_null() && !says_why(&answer) => {
            Err(format!("I2: {act:?} lost and is not told to what: {answer}"))
        }
        (409, _) => Ok(None),
        _ => Err(format!("I2: {act:?} was answered with {status} {answer}")),
    }
}

/// A decision that came too late may also hear that the run has ended or that its time had run out.
fn says_why(answer: &Value) -> bool {
    ["urn:standfast:problem:ended", "urn:standfast:problem:expired"]
        .iter()
        .any(|kind| answer["type"] == *kind)
}

/// F7: approved on one node, both look for it: the call runs once.
pub(crate) fn both_nodes_claim(count: usize, kept: Kept) -> Row {
    let runtime = crate::runtime();
    let field = Field::new(kept);
    let (servers, nodes) = field.start_two(&expiring(Millis(300)));
    let mut violations = Vec::new();
    runtime.block_on(async {
        for first in (0..count).step_by(AT_ONCE) {
            let claims: JoinSet<_> =
                (first..count.min(first + AT_ONCE)).map(|n| one_claim(nodes.clone(), n)).collect();
            violations.extend(claims.join_all().await.into_iter().flatten());
        }
    });
    drop(servers);
    let effects = lines(field.data()).len();
    if effects != count {
        violations.push(format!("I3: {effects} effects of {count} approvals"));
    }
    violations.extend(field.check(&[]));
    Row::new(kept.row("F7", "F7-PG"), "2 nodes claim one resumed run", count, violations)
}

async fn one_claim(nodes: [Http; 2], n: usize) -> Option<String> {
    let (run, hold) = held(&nodes[n % 2], "ops").await;
    let path = format!("/api/v1/holds/{hold}/resolve");
    let (status, body) = nodes[(n + 1) % 2].post(&path, r#"{"resolution": "approve"}"#, None).await.ok()?;
    if status != 200 {
        return Some(format!("I2: {status} {body}"));
    }
    match ended(&nodes[n % 2], &run).await {
        Ok((_, body)) if body["status"] == "completed" => None,
        other => Some(format!("I6: {run} is not completed: {other:?}")),
    }
}

/// F8: a result that comes before the node has heard that the hold is stored; results for holds that are unknown,
/// settled or withdrawn.
pub(crate) fn early_and_late_results(count: usize, kept: Kept) -> Row {
    let runtime = crate::runtime();
    let field = Field::new(kept);
    let late = Some(("hold.opened".to_owned(), Duration::from_millis(60)));
    let (servers, nodes) = field.start_two(&Options { late, ..Options::default() });
    let (mut violations, mut acked) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        for first in (0..count).step_by(AT_ONCE) {
            let cases: JoinSet<_> =
                (first..count.min(first + AT_ONCE)).map(|n| one_result(nodes.clone(), n)).collect();
            for case in cases.join_all().await {
                match case {
                    Ok(told) => acked.push(told),
                    Err(why) => violations.push(why),
                }
            }
        }
    });
    drop(servers);
    violations.extend(field.check(&acked));
    Row::new(kept.row("F8", "F8-PG"), "results for early, unknown, settled holds", count, violations)
}

async fn one_result([starts, http]: [Http; 2], n: usize) -> Result<Acked, String> {
    let gone = |_| "I6: no answer".to_owned();
    let (_, run) =
        starts.post("/api/v1/agents/outside/runs", r#"{"input": "Go"}"#, None).await.map_err(gone)?;
    let run = run["id"].as_str().unwrap_or_default().to_owned();
    let begin = now();
    let hold = loop {
        let (_, body) = http.get(&format!("/api/v1/runs/{run}")).await.map_err(gone)?;
        if let Some(hold) = body["holds"][0]["id"].as_str() {
            break hold.to_owned();
        }
        if begin.elapsed() > Duration::from_secs(10) {
            return Err(format!("I6: {run} does not wait: {body}"));
        }
        tokio::task::yield_now().await;
    };
    let unknown = changed(&hold);
    let answer = r#"{"resolution": "answer", "value": "done"}"#;
    let (status, body) =
        http.post(&format!("/api/v1/holds/{unknown}/resolve"), answer, None).await.map_err(gone)?;
    if status != 404 {
        return Err(format!("I2: a hold that does not exist answers {status} {body}"));
    }
    let path = format!("/api/v1/holds/{hold}/resolve");
    if n.is_multiple_of(4) {
        let (status, _) = http.post(&format!("/api/v1/runs/{run}/cancel"), "{}", None).await.map_err(gone)?;
        let (late, body) = http.post(&path, answer, None).await.map_err(gone)?;
        return match (status, late, body["recorded"]["how"].as_str()) {
            (200, 409, Some("withdrawn")) => Ok(Acked::Canceled { run }),
            _ => Err(format!("I2: canceled with {status}, then {late} {body}")),
        };
    }
    let key = format!("result-{n}");
    let (status, body) = http.post(&path, answer, Some(&key)).await.map_err(gone)?;
    if status != 200 {
        return Err(format!("I1: the result was answered with {status} {body}"));
    }
    let (again, _) = http.post(&path, answer, Some(&key)).await.map_err(gone)?;
    let (other, body) =
        http.post(&path, r#"{"resolution": "fail", "reason": "no"}"#, None).await.map_err(gone)?;
    if (again, other) != (200, 409) || body["recorded"]["how"] != "answered" {
        return Err(format!("I2: repeated: {again}; another: {other} {body}"));
    }
    match ended(&http, &run).await.map_err(gone)? {
        (_, body) if body["status"] == "completed" => Ok(Acked::Decided { run, hold, key, word: "answer" }),
        (_, body) => Err(format!("I6: {run} is not completed: {body}")),
    }
}

/// Another id of the same form: one character near the end differs.
fn changed(hold: &str) -> String {
    let mut bytes = hold.as_bytes().to_vec();
    let at = bytes.len() - 2;
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    String::from_utf8(bytes).unwrap()
}
