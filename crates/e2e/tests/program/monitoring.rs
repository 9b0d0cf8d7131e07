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
use standfast_testkit::provider::{Answer, Fake};
use standfast_testkit::{Process, serve_command, standfast, start, text, until};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

const CONFIG: &str = "
tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: main-db, tools: [execute_command], task: {}}}
";

/// A stream of OpenAI that says one word, and what was counted.
const COUNTED: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"done\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":200}}\n\ndata: [DONE]\n\n";

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

/// What a server tells after one run was approved, with a receiver that takes the notice of its end at the second attempt, another one
/// had a model that costs something, and while a third one waits.
fn scrape_of_a_day() -> String {
    let provider = Fake::answering(vec![Answer::stream(COUNTED)]);
    let more = "server: {webhooks: {allowed_hosts: ['127.0.0.1'], retries: [200ms, 1s]}}\n";
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &format!("{CONFIG}{more}"));
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let price = "price: {input: 2.50, output: 10.00}";
    let paid =
        format!("llms:\n  paid: {{type: openai, model: m-1, base_url: '{}', {price}}}\n", provider.url);
    let config = config
        .replace("llms:\n", &paid)
        .replace("agents: {", "agents: {thrifty: {llm: paid, session_store: main-db}, ");
    std::fs::write(&file, config).unwrap();
    let server = start(&mut serve_command(folder.path()));
    let busy = Answer::error("503 Service Unavailable", "", "{}");
    let receiver = Fake::answering(vec![busy, Answer::stream("taken")]);
    server.ask(&["subscriptions", "create", &receiver.url, "--agent", "ops", "--event", "run.ended"]);
    server.run_once(text(&server.send("thrifty")["id"]), "completed");
    let held = server.send("ops");
    server.ask(&["holds", "approve", text(&held["holds"][0]["id"])]);
    server.run_once(text(&held["id"]), "completed");
    server.send("ops");
    let mut metrics = String::new();
    until("the counts are current", || {
        metrics = scrape(&server);
        metrics.contains("standfast_runs{state=\"completed\"} 2\n")
            && metrics.contains("standfast_deliveries_total{result=\"delivered\"} 1\n")
            && metrics.contains("standfast_queue_depth{queue=\"deliveries\"} 0\n")
    });
    metrics
}

/// S0-52: requests, models with their tokens and what they cost, tools, decisions by outcome and channel, leases, queues and deliveries
/// are counted, in a text that Prometheus has no complaint about.
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
        // Each reply of a script reads 100 tokens and writes 20, and costs nothing.
        "standfast_model_tokens_total{model=\"script\",direction=\"input\"} 300",
        "standfast_model_tokens_total{model=\"script\",direction=\"output\"} 60",
        "standfast_model_cost_micros_total{model=\"script\"} 0",
        // A thousand at 2.50 for a million, and 200 at 10.00.
        "standfast_model_tokens_total{model=\"m-1\",direction=\"input\"} 1000",
        "standfast_model_tokens_total{model=\"m-1\",direction=\"output\"} 200",
        "standfast_model_cost_micros_total{model=\"m-1\"} 4500",
        "standfast_deliveries_total{result=\"delivered\"} 1",
        "standfast_deliveries_total{result=\"failed\"} 1",
        "standfast_deliveries_total{result=\"dead\"} 0",
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

/// The guide's commands for Prometheus, as they stand but for folders, ports and how often it looks: a real one scrapes a server that
/// wants keys.
#[test]
fn prometheus_is_set_up_as_the_guide_says() {
    let page = standfast_testkit::binary::repository_root().join("docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let chapter = page.split("`packaging/monitoring` of the repository").nth(1).unwrap();
    let blocks: Vec<&str> =
        chapter.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    let [set_up, run, ask] = blocks[..] else { panic!("{blocks:?}") };

    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("etc")).unwrap();
    for name in ["prometheus.yaml", "alerts.yaml"] {
        let text = std::fs::read_to_string(monitoring(name)).unwrap();
        std::fs::write(at(name), text.replace("scrape_interval: 15s", "scrape_interval: 1s")).unwrap();
    }
    let server = start(serve_command(folder.path()).args(["--auth", "keys"]));
    let own = format!("127.0.0.1:{}", standfast_testkit::process::free_port());
    let meant = |text: &str| {
        let text = text.replace("/etc/prometheus", &at("etc")).replace("/var/lib/prometheus", &at("lib"));
        let text = text.replace("packaging/monitoring/", &format!("{}/", folder.path().display()));
        text.replace("127.0.0.1:8080", server.address()).replace("127.0.0.1:9090", &own)
    };
    let text = std::fs::read_to_string(at("prometheus.yaml")).unwrap();
    std::fs::write(at("prometheus.yaml"), meant(&text)).unwrap();
    let shell = |command: &str| {
        let standfast = standfast_testkit::binary::path();
        let command =
            format!("set -e\nstandfast() {{ '{}' \"$@\"; }}\n{}", standfast.display(), meant(command));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &command])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env_remove("XDG_DATA_HOME");
        shell
    };
    let done = shell(set_up).output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}{why}");
    let log = std::fs::File::create(at("log")).unwrap();
    let mut prometheus =
        shell(&format!("exec {run} --web.listen-address {own}")).stderr(log).spawn().unwrap();
    until("Prometheus has scraped the server", || {
        let answer = shell(ask).output().unwrap();
        let gone = prometheus.try_wait().unwrap();
        assert!(gone.is_none(), "{gone:?}: {}", std::fs::read_to_string(at("log")).unwrap());
        let Ok(answer) = serde_json::from_slice::<Value>(&answer.stdout) else { return false };
        answer["data"]["result"][0]["value"][1] == json!("1")
    });
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
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
