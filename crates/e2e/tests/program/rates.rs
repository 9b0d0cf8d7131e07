//! How often somebody may ask the real program: whoever asks too much is told when to come back, everybody else notices nothing.
//!
//! T37. What counts is what was let in and what was not, whatever the machine is busy with; how long it took is printed.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and this one measures"
)]

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use standfast_testkit::{Process, standfast, start, text};
use tempfile::TempDir;

const ASKS: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

struct Site {
    folder: TempDir,
    server: Process,
    client: reqwest::Client,
}

struct Said {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Said {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Site {
    fn new(rates: &str) -> Site {
        let config = format!(
            "tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main-db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: asks, session_store: main-db, tools: [execute_command], task: {{}}}}}}
server: {{auth: {{api_keys: true}}, limits: {{rates: {{{rates}}}}}}}
"
        );
        let folder = standfast_testkit::folder(&[("asks", ASKS)], &config);
        let server = start(&mut standfast_testkit::serve_command(folder.path()));
        Site { folder, server, client: standfast_testkit::http::client() }
    }

    fn key(&self, arguments: &[&str]) -> String {
        let mut command = standfast();
        command.args(["keys", "create"]).args(arguments).arg("--config");
        let made = command.arg(self.folder.path().join("standfast.yaml")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    /// Asks until nothing is left: a busy machine may let something come back meanwhile.
    async fn use_up(&self, key: &str) {
        for _ in 0..50 {
            let said = self.ask(key, "/api/v1/runs", None).await;
            if said.status == 429 {
                assert!(said.header("retry-after").is_some(), "{:?}", said.headers);
                return;
            }
        }
        panic!("nothing was ever refused");
    }

    async fn ask(&self, key: &str, path: &str, body: Option<Value>) -> Said {
        let url = format!("{}{path}", self.server.base);
        let request = match body {
            Some(body) => self.client.post(url).json(&body),
            None => self.client.get(url),
        };
        let response = request.bearer_auth(key).timeout(Duration::from_secs(60)).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = serde_json::from_str(&response.text().await.unwrap()).unwrap_or(Value::Null);
        Said { status, headers, body }
    }
}

/// T37: what is left is said with every answer, and whoever has nothing left is told when there is something again. Who has
/// used up everything else can still decide.
#[tokio::test]
async fn t37_limits_are_said_and_decisions_have_their_own() {
    let site = Site::new("per_principal: 5, decisions: 3, routes: {'POST /api/v1/agents/{id}/runs': 2}");
    let (ann, bob) = (site.key(&["--user", "ann"]), site.key(&["--user", "bob"]));
    let run = json!({"input": "go", "wait": "settled"});
    let begun = site.ask(&ann, "/api/v1/agents/ops/runs", Some(run.clone())).await;
    assert_eq!(begun.status, 201, "{}", begun.body);
    assert_eq!(begun.header("ratelimit-policy"), Some("\"principal\";q=5;w=60, \"route\";q=2;w=60"));
    let left = begun.header("ratelimit").unwrap();
    assert!(left.starts_with("\"principal\";r=4;t=") && left.contains("\"route\";r=1;t="), "{left}");
    assert_eq!(site.ask(&ann, "/api/v1/agents/ops/runs", Some(run.clone())).await.status, 201);
    let refused = site.ask(&ann, "/api/v1/agents/ops/runs", Some(run.clone())).await;
    assert_eq!((refused.status, refused.header("ratelimit-policy")), (429, Some("\"route\";q=2;w=60")));
    let wait: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    assert_eq!(refused.body["type"], "urn:standfast:problem:rate-limited");
    // The rest of what ann may ask.
    assert_eq!(site.ask(&ann, "/api/v1/runs", None).await.status, 200);
    site.use_up(&ann).await;
    let resolve = format!("/api/v1/holds/{}/resolve", text(&begun.body["holds"][0]["id"]));
    let decided = site.ask(&ann, &resolve, Some(json!({"resolution": "approve"}))).await;
    assert_eq!(decided.status, 200, "{}", decided.body);
    assert_eq!(decided.header("ratelimit-policy"), Some("\"decisions\";q=3;w=60"));
    // Nobody else has less for it.
    let other = site.ask(&bob, "/api/v1/runs", None).await;
    assert_eq!(other.status, 200);
    assert!(other.header("ratelimit").unwrap().starts_with("\"principal\";r=4;t="), "{:?}", other.headers);
    // Whoever watches the server is not limited.
    site.use_up(&ann).await;
    assert_eq!(site.ask("", "/readyz", None).await.status, 200);
}

/// T37: one tenant asks with all its might, with many people at once; another one is let in every time. The figures are printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t37_a_noisy_tenant_starves_nobody() {
    const LIMIT: u32 = 240;
    let site = std::sync::Arc::new(Site::new(&format!("per_tenant: {LIMIT}")));
    let mut noisy = Vec::new();
    for n in 0..8 {
        noisy.push(site.key(&["--tenant", "noisy", "--user", &format!("u{n}")]));
    }
    let quiet = site.key(&["--tenant", "quiet", "--user", "ann"]);
    let begun = Instant::now();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let floods = noisy.into_iter().flat_map(|key| [key.clone(), key]).map(|key| {
        let (site, stopped) = (site.clone(), stopped.clone());
        tokio::spawn(async move {
            let (mut let_in, mut refused) = (0u32, 0u32);
            while !*stopped.borrow() {
                match site.ask(&key, "/api/v1/runs?limit=1", None).await.status {
                    200 => let_in += 1,
                    429 => refused += 1,
                    other => panic!("{other}"),
                }
            }
            (let_in, refused)
        })
    });
    let floods: Vec<_> = floods.collect();
    let mut times = Vec::new();
    for n in 0..60 {
        let asked = Instant::now();
        let said = site.ask(&quiet, "/api/v1/agents/ops/runs", Some(json!({"input": "go"}))).await;
        assert!(
            (200..300).contains(&said.status),
            "request {n} of the quiet tenant: {} {}",
            said.status,
            said.body
        );
        times.push(asked.elapsed());
    }
    stop.send(true).unwrap();
    let (mut let_in, mut refused) = (0, 0);
    for flood in floods {
        let (one, other) = flood.await.unwrap();
        (let_in, refused) = (let_in + one, refused + other);
    }
    let took = begun.elapsed();
    // A bucket that is full at first, and what it filled by since then.
    let most = LIMIT + LIMIT * u32::try_from(took.as_secs() + 1).unwrap() / 60 + 1;
    times.sort();
    println!(
        "noisy: {let_in} let in (at most {most}), {refused} refused in {took:?}; quiet: 60 of 60, median {:?}, longest {:?}",
        times[30], times[59]
    );
    assert!(let_in <= most && refused > 0, "{let_in} let in, {refused} refused, at most {most}");
    assert_eq!(site.ask(&quiet, "/api/v1/runs?limit=1", None).await.status, 200);
}

/// T37: an address is limited before anybody is known, and only trusted proxies say whose it is.
#[tokio::test]
async fn t37_addresses_are_limited_before_anybody_is_known() {
    let site = Site::new("per_address: 4");
    let ask = |forwarded: &'static str, path: &'static str| {
        let request = site.client.get(format!("{}{path}", site.server.base));
        async move { request.header("x-forwarded-for", forwarded).send().await.unwrap().status().as_u16() }
    };
    let mut seen = Vec::new();
    for from in ["198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5"] {
        seen.push(ask(from, "/api/v1/runs").await);
    }
    assert_eq!(seen, [401, 401, 401, 401, 429], "nobody said that this header is to be believed");
    assert_eq!(ask("198.51.100.1", "/readyz").await, 200);
}
