//! What Prometheus and Grafana are given: every metric that the program tells, and a dashboard and alerts over them that
//! Prometheus' own tool takes.
//!
//! Alerts are played by `promtool test rules`; expressions of the dashboard are parsed as rules, and every name in them is one
//! that a server tells after one run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use standfast_testkit::{Process, serve_command, standfast, start, text, until};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

const CONFIG: &str = "
tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: main-db, tools: [execute_command], task: {}}}
";

fn monitoring(path: &str) -> PathBuf {
    standfast_testkit::binary::repository_root().join("packaging/monitoring").join(path)
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {said}{why}");
}

fn scrape(server: &Process) -> String {
    let output = Command::new("curl").args(["-sf", &format!("{}/metrics", server.base)]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// What a server tells after one run was approved and while another one waits.
fn scrape_of_a_day() -> String {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let server = start(&mut serve_command(folder.path()));
    let held = server.send("ops");
    server.ask(&["holds", "approve", text(&held["holds"][0]["id"])]);
    server.run_once(text(&held["id"]), "completed");
    server.send("ops");
    let mut metrics = String::new();
    until("the counts are current", || {
        metrics = scrape(&server);
        metrics.contains("standfast_runs{state=\"completed\"} 1\n")
    });
    metrics
}

/// S0-52: requests, models, tools, decisions by outcome and channel, leases and queues are counted, in a text that
/// Prometheus has no complaint about.
#[test]
fn a_run_is_counted_wherever_it_went() {
    let metrics = scrape_of_a_day();
    for line in [
        "standfast_decisions_total{outcome=\"approved\",channel=\"api\"} 1",
        "standfast_decisions_total{outcome=\"denied\",channel=\"web\"} 0",
        "standfast_decisions_total{outcome=\"expired\",channel=\"clock\"} 0",
        "standfast_tool_calls_total{tool=\"execute_command\",result=\"ok\"} 1",
        "standfast_tool_call_seconds_count{tool=\"execute_command\"} 1",
        "standfast_model_requests_total{model=\"script\",result=\"replied\"} 3",
        "standfast_model_requests_total{model=\"script\",result=\"failed\"} 0",
        "standfast_leases_lost_total 0",
        "standfast_queue_depth{queue=\"writes\"} 0",
        "standfast_queue_depth{queue=\"deliveries\"} 0",
        "standfast_queue_depth{queue=\"runs\"} 0",
        // The scrape itself.
        "standfast_http_requests_in_flight 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in:\n{metrics}");
    }
    let answered = metrics.lines().find_map(|line| {
        line.strip_prefix("standfast_http_requests_total{channel=\"api\",status=\"2xx\"} ")?
            .parse::<u64>()
            .ok()
    });
    assert!(answered >= Some(3), "two runs and a decision: {metrics}");
    assert!(!metrics.contains("run_") && !metrics.contains("hold_0"), "no ids: {metrics}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics");
    std::fs::write(&file, &metrics).unwrap();
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap());
    let checked = check.output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// A key for scraping opens the metrics and nothing else.
#[test]
fn a_key_may_be_for_scraping_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let create =
        ["keys", "create", "--data", data, "--user", "prometheus", "--scope", "metrics:read", "--json"];
    let created = standfast().args(create).output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let key: Value = serde_json::from_slice(&created.stdout).unwrap();
    let mut command = standfast();
    command.args(["serve", "--demo", "--auth", "keys", "--listen", "127.0.0.1:0", "--data", data]);
    let server = start(&mut command);
    let status = |path: &str, key: Option<&str>| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &format!("{}{path}", server.base)]);
        curl.args(key.iter().flat_map(|key| ["-H".to_owned(), format!("authorization: Bearer {key}")]));
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };
    let key = text(&key["key"]);
    assert_eq!(status("/metrics", Some(key)), "200");
    assert_eq!(status("/metrics", None), "401");
    for path in ["/api/v1/holds", "/api/v1/runs", "/runs", "/openapi.json"] {
        assert_eq!(status(path, Some(key)), "403", "{path}");
    }
}

/// The alerts are rules that Prometheus takes, and each goes off when it should.
#[test]
fn alerts_go_off_when_they_should() {
    promtool(&["check", "rules"], &monitoring("alerts.yaml"));
    promtool(&["test", "rules"], &monitoring("alerts.test.yaml"));
    let rules = std::fs::read_to_string(monitoring("alerts.yaml")).unwrap();
    let played = std::fs::read_to_string(monitoring("alerts.test.yaml")).unwrap();
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(played.contains(&format!("alertname: {alert}\n")), "{alert} is not played");
    }
}

/// Every expression of the dashboard and of the alerts is one, over metrics that the program tells; and the guide names each
/// of those.
#[test]
fn dashboard_and_alerts_are_about_metrics_that_there_are() {
    let metrics = scrape_of_a_day();
    let told: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let guide =
        std::fs::read_to_string(standfast_testkit::binary::repository_root().join("docs/operations.md"))
            .unwrap();
    for name in &told {
        assert!(guide.contains(&format!("`{name}`")), "docs/operations.md does not name {name}");
    }
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(monitoring("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let shown: Vec<String> = targets.map(|target| as_shown(text(&target["expr"]))).collect();
    assert!(shown.len() > 20, "{shown:?}");
    let rules: Vec<Value> = shown
        .iter()
        .zip(1..)
        .map(|(expr, no)| json!({"record": format!("panel:{no}"), "expr": expr}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dashboard.rules.yaml");
    std::fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    promtool(&["check", "rules"], &file);

    let alerts = std::fs::read_to_string(monitoring("alerts.yaml")).unwrap();
    let used: BTreeSet<&str> = shown.iter().flat_map(|expr| names(expr)).chain(names(&alerts)).collect();
    for name in &used {
        let is_part = |part: &str| name.strip_suffix(part).is_some_and(|whole| told.contains(whole));
        let is_told = told.contains(name) || ["_bucket", "_sum", "_count"].into_iter().any(is_part);
        assert!(is_told, "{name} is used and no metric");
    }
}

/// An expression with what Grafana puts in the place of its variables.
fn as_shown(expr: &str) -> String {
    expr.replace("$__rate_interval", "5m").replace("$instance", ".*")
}

/// The metrics of ours in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("standfast_"))
}
