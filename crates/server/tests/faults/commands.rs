//! Killed while an approved command runs: afterwards a person is asked, nothing ran twice, and no process is left.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::child::Options;
use crate::report::Row;
use crate::server::{Gone, Http, Server, now, pause};

/// What the agent `shell` wants to run: it leaves its own number and that of its child, and would take very long.
pub(crate) const ARGUMENTS: &str =
    r#"{"argv": ["sh", "-c", "sleep 1000 & echo $$ $! >> \"$HOME/started\"; sleep 1000"]}"#;

/// Kills servers in the middle of a command, so many at once.
pub(crate) fn commands(count: usize) -> Row {
    let violations = crate::runtime().block_on(async {
        let cases: tokio::task::JoinSet<_> = (0..count).map(|_| one()).collect();
        cases.join_all().await.concat()
    });
    Row::new("F27", "kill -9 while a command runs", count, violations)
}

async fn one() -> Vec<String> {
    let data = tempfile::tempdir().unwrap();
    match story(data.path()).await {
        Ok(violations) => violations,
        Err(Gone) => vec!["I6: the server was gone when it should not be".into()],
    }
}

async fn story(data: &Path) -> Result<Vec<String>, Gone> {
    let mut wrong = Vec::new();
    // The command finds its place by HOME, one of the few variables that it keeps.
    let mut server = Server::start_at_home(data, &Options::default());
    let http = server.http();
    let body = r#"{"input": "Go", "wait": "settled"}"#;
    let (_, run) = http.post("/api/v1/agents/shell/runs", body, None).await?;
    let (run, hold) =
        (run["id"].as_str().unwrap().to_owned(), run["holds"][0]["id"].as_str().unwrap().to_owned());
    let (status, _) =
        http.post(&format!("/api/v1/holds/{hold}/resolve"), r#"{"resolution": "approve"}"#, None).await?;
    assert_eq!(status, 200);
    let started = || std::fs::read_to_string(data.join("started")).unwrap_or_default();
    let numbers = waited_for(|| Some(started()).filter(|text| text.ends_with('\n'))).await.unwrap();
    let alive = |numbers: &str| numbers.split_whitespace().filter(|pid| is_alive(pid)).count();
    if alive(&numbers) != 2 {
        wrong.push(format!("the command and its child do not run: {numbers}"));
    }
    server.kill();
    if waited_for(|| (alive(&numbers) == 0).then_some(())).await.is_none() {
        wrong.push(format!("I3: processes outlived the server: {numbers}"));
    }
    let server = Server::start_at_home(data, &Options::default());
    let http = server.http();
    let recovery = asked(&http, &run).await?;
    match recovery {
        None => wrong.push("I3: nobody is asked about the unknown outcome".into()),
        Some(hold) => {
            let body = json!({"resolution": "answer", "value": "it happened"}).to_string();
            http.post(&format!("/api/v1/holds/{hold}/resolve"), &body, None).await?;
            let (_, body) = ended(&http, &run).await?;
            if body["status"] != "completed" {
                wrong.push(format!("I6: it ended so: {body}"));
            }
        }
    }
    if started() != numbers {
        wrong.push(format!("I3: it ran again: {}", started()));
    }
    Ok(wrong)
}

/// Whether a process is there and not only waits to be reaped.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

async fn waited_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = now();
    while begin.elapsed() < Duration::from_secs(15) {
        if let Some(found) = look() {
            return Some(found);
        }
        pause().await;
    }
    None
}

async fn asked(http: &Http, run: &str) -> Result<Option<String>, Gone> {
    let begin = now();
    while begin.elapsed() < Duration::from_secs(15) {
        let (_, body) = http.get(&format!("/api/v1/runs/{run}")).await?;
        if body["holds"][0]["kind"] == "recovery" {
            return Ok(body["holds"][0]["id"].as_str().map(str::to_owned));
        }
        pause().await;
    }
    Ok(None)
}

/// A run once it has ended, or as it is after a while.
pub(crate) async fn ended(http: &Http, run: &str) -> Result<(u16, serde_json::Value), Gone> {
    let begin = now();
    loop {
        let answer = http.get(&format!("/api/v1/runs/{run}")).await?;
        let is_over = matches!(answer.1["status"].as_str(), Some("completed" | "failed" | "canceled"));
        if is_over || begin.elapsed() > Duration::from_secs(20) {
            return Ok(answer);
        }
        pause().await;
    }
}
