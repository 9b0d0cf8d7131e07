//! F5 through one node: several decide one hold at the same moment on the product itself; whatever the model is asked
//! with is what was recorded.
//!
//! The model and the job's system live here, outside the server: the model calls a tool, then quotes what it got of
//! it, and every request to it is kept. The lease lasts half an hour, so a run that nobody works on any more after a
//! lost race is never over in time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path as Route, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use standfast_store::conformance::cluster;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::report::Row;
use crate::server::{Http, Server, now, pause};
use crate::site::IN_FILES;

/// Where the product keeps its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Memory,
    Sqlite,
    Files,
    Postgres,
}

/// What is decided, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A person answers the model's question.
    Answer,
    /// A person denies a call.
    Denial,
    /// A job reports its result, signed.
    Report,
}

const KINDS: [Kind; 3] = [Kind::Answer, Kind::Denial, Kind::Report];

/// Holds that are raced for at the same time.
const AT_ONCE: usize = 4;

/// How long a run may take to its end. A run that stalls waits for half an hour.
const PATIENCE: Duration = Duration::from_secs(60);

impl Kind {
    fn agent(self) -> &'static str {
        match self {
            Kind::Answer => "asks",
            Kind::Denial => "deletes",
            Kind::Report => "deploys",
        }
    }

    /// What its model calls first.
    fn call(agent: &str, round: &str) -> (&'static str, Value) {
        match agent {
            "asks" => ("suspend-for-input", json!({"reason": round, "question": "Which one?"})),
            "deletes" => ("delete_file", json!({"path": round})),
            _ => ("deploy", json!({"branch": round})),
        }
    }
}

impl Database {
    fn id(self) -> &'static str {
        match self {
            Database::Memory => "F5-NODE-MEM",
            Database::Sqlite => "F5-NODE",
            Database::Files => "F5-NODE-FILES",
            Database::Postgres => "F5-NODE-PG",
        }
    }

    /// How many decide at once.
    fn racers(self) -> usize {
        match self {
            Database::Memory | Database::Sqlite | Database::Files => 8,
            Database::Postgres => 2,
        }
    }
}

/// The model and the job's system.
#[derive(Clone, Default)]
struct Outside {
    /// What the model was asked with, by round.
    requests: Arc<Mutex<HashMap<String, Vec<String>>>>,
    /// The id and the secret of each job, by round.
    jobs: Arc<Mutex<HashMap<String, (String, String)>>>,
}

/// F5: decisions of one hold, all through one node.
pub(crate) fn on_one_hold(count: usize, database: Database) -> Row {
    let runtime = crate::runtime();
    let data = tempfile::tempdir().unwrap();
    let url = (database == Database::Postgres).then(|| cluster::shared().database());
    let outside = Outside::default();
    let port = runtime.block_on(outside.listen());
    let server = start(data.path(), database, url.as_deref(), port);
    let violations = runtime.block_on(play(&server.http(), &outside, count, database.racers()));
    drop(server);
    url.iter().for_each(|url| cluster::shared().remove(url));
    let what = "answers, denials, reports at once on a node";
    Row::new(database.id(), what, count * KINDS.len(), violations)
        .with(format!("{} at once for each hold", database.racers()))
}

fn start(data: &Path, database: Database, url: Option<&str>, port: u16) -> Server {
    let (stores, agents) = match database {
        Database::Memory => (String::new(), ""),
        Database::Sqlite => (
            "session_stores: {main: {backend: sql, sql: {driver: sqlite, database: runs.db}}}".into(),
            "session_store: main, ",
        ),
        Database::Files => (format!("session_stores: {{main: {{{IN_FILES}}}}}"), "session_store: main, "),
        Database::Postgres => (
            format!(
                "session_stores: {{main: {{backend: sql, sql: {{driver: postgres, url: \"{}\"}}}}}}",
                url.unwrap_or_default()
            ),
            "session_store: main, ",
        ),
    };
    let llm = |agent: &str| {
        format!(
            "  {agent}: {{type: openai, model: m, api_key: k, base_url: 'http://127.0.0.1:{port}/{agent}'}}\n"
        )
    };
    let agent = |agent: &str, tool: &str| {
        format!("  {agent}: {{llm: {agent}, {agents}tools: [{tool}], task: {{worker_pool: 32}}}}\n")
    };
    let configuration = format!(
        "llms:\n{}{}{}tools:
  deploy:
    async: true
    description: Deploys a branch.
    url: http://127.0.0.1:{port}/jobs
    allowed_hosts: ['127.0.0.1']
    requires_approval: false
    parameters: {{type: object, properties: {{branch: {{type: string}}}}, required: [branch]}}
{stores}
server: {{nodes: {{take_over_after: 30m}}, async_tools: {{per_caller: 1000000}}}}
agents:\n{}{}{}",
        llm("asks"),
        llm("deletes"),
        llm("deploys"),
        agent("asks", "suspend-for-input"),
        agent("deletes", "delete_file"),
        agent("deploys", "deploy"),
    );
    Server::configured(data, &configuration)
}

async fn play(http: &Http, outside: &Outside, count: usize, racers: usize) -> Vec<String> {
    let rounds: Vec<(Kind, String)> =
        (0..count).flat_map(|n| KINDS.map(|kind| (kind, format!("round-{n}-of-{}", kind.agent())))).collect();
    let mut violations = Vec::new();
    for some in rounds.chunks(AT_ONCE) {
        let races: JoinSet<_> = some
            .iter()
            .map(|(kind, round)| {
                let (http, outside, kind, round) = (http.clone(), outside.clone(), *kind, round.clone());
                async move {
                    let raced = race(&http, &outside, kind, &round, racers).await;
                    raced.err().map(|why| format!("{round}: {why}"))
                }
            })
            .collect();
        violations.extend(races.join_all().await.into_iter().flatten());
    }
    violations
}

/// One hold and those who decide it.
async fn race(http: &Http, outside: &Outside, kind: Kind, round: &str, racers: usize) -> Result<(), String> {
    let gone = |_| "I6: no answer".to_owned();
    let body = json!({"input": round, "wait": "settled"}).to_string();
    let (_, run) =
        http.post(&format!("/api/v1/agents/{}/runs", kind.agent()), &body, None).await.map_err(gone)?;
    let (id, hold) = (run["id"].as_str().unwrap_or_default(), run["holds"][0]["id"].as_str());
    let Some(hold) = hold else { return Err(format!("I6: it does not wait: {run}")) };
    let barrier = Arc::new(Barrier::new(racers));
    let mut deciding = JoinSet::new();
    for racer in 0..racers {
        let (http, outside, barrier) = (http.clone(), outside.clone(), barrier.clone());
        let (hold, round, word) = (hold.to_owned(), round.to_owned(), word(racer));
        deciding.spawn(async move {
            barrier.wait().await;
            (racer, decide(&http, &outside, kind, &round, &hold, &word).await)
        });
    }
    let answers = deciding.join_all().await;
    let mut winners = Vec::new();
    for (racer, answer) in answers {
        match answer.map_err(gone)? {
            (200, _) => winners.push(racer),
            (409, _) => {}
            (status, body) => return Err(format!("I2: racer {racer} was answered with {status} {body}")),
        }
    }
    let [winner] = winners[..] else { return Err(format!("I2: these were told yes: {winners:?}")) };
    over(http, id).await?;
    let (_, log) = http.get(&format!("/api/v1/runs/{id}/events")).await.map_err(gone)?;
    told_right(&log, outside, round, winner, racers)
}

/// What one who decides says.
fn word(racer: usize) -> String {
    format!("say-{racer}.")
}

/// Sends a decision; status and body of the answer.
async fn decide(
    http: &Http,
    outside: &Outside,
    kind: Kind,
    round: &str,
    hold: &str,
    word: &str,
) -> Result<(u16, Value), crate::server::Gone> {
    let resolve = format!("/api/v1/holds/{hold}/resolve");
    match kind {
        Kind::Answer => {
            http.post(&resolve, &json!({"resolution": "answer", "value": word}).to_string(), None).await
        }
        Kind::Denial => {
            http.post(&resolve, &json!({"resolution": "deny", "reason": word}).to_string(), None).await
        }
        Kind::Report => {
            let job = outside.jobs.lock().unwrap().get(round).cloned();
            let (pending, secret) = job.unwrap_or_default();
            let body =
                json!({"pendingID": pending, "result": {"title": "Deployed", "output": word}}).to_string();
            let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
            mac.update(body.as_bytes());
            let signature: String =
                mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            http.post_signed("/async-tool/webhook", &body, &signature).await
        }
    }
}

/// Waits until the run has ended.
async fn over(http: &Http, run: &str) -> Result<(), String> {
    let begin = now();
    loop {
        let (_, body) =
            http.get(&format!("/api/v1/runs/{run}")).await.map_err(|_| "I6: no answer".to_owned())?;
        match body["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "canceled") => return Err(format!("I6: {body}")),
            _ if begin.elapsed() > PATIENCE => return Err(format!("I6: {run} stalls: {body}")),
            _ => pause().await,
        }
    }
}

/// What was acknowledged is what was recorded, what the model was asked with, and what it quotes; and nothing failed on
/// the way.
fn told_right(
    log: &Value,
    outside: &Outside,
    round: &str,
    winner: usize,
    racers: usize,
) -> Result<(), String> {
    let events = log["events"].as_array().cloned().unwrap_or_default();
    let texts: Vec<String> = events.iter().map(Value::to_string).collect();
    let of = |kind: &str| -> Vec<&String> {
        events.iter().zip(&texts).filter(|(event, _)| event["type"] == kind).map(|(_, text)| text).collect()
    };
    let says = |text: &str| (0..racers).filter(|racer| text.contains(&word(*racer))).collect::<Vec<_>>();
    let recorded: Vec<Vec<usize>> = of("hold.resolved").into_iter().map(|text| says(text)).collect();
    if recorded != [vec![winner]] {
        return Err(format!("I2: {winner} was told yes, recorded is {recorded:?}"));
    }
    let quoted: Vec<Vec<usize>> = of("model.replied").into_iter().map(|text| says(text)).collect();
    if quoted != [vec![], vec![winner]] {
        return Err(format!("I2: {winner} was recorded, the model quotes {quoted:?}"));
    }
    if let Some(failed) = of("model.failed").first() {
        return Err(format!("I6: a model call is said to have failed: {failed}"));
    }
    let requests = outside.requests.lock().unwrap().remove(round).unwrap_or_default();
    let told: Vec<Vec<usize>> = requests.iter().map(|request| says(request)).collect();
    if told.iter().all(|told| told.is_empty() || *told == [winner]) {
        Ok(())
    } else {
        Err(format!("I2: {winner} was recorded, the model was asked with {told:?}"))
    }
}

impl Outside {
    async fn listen(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let routes = Router::new()
            .route("/jobs", post(begin_job))
            .route("/{agent}/chat/completions", post(reply))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        port
    }
}

async fn begin_job(State(outside): State<Outside>, Json(body): Json<Value>) -> Json<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let job = (text(&body["pendingID"]), text(&body["callbackSecret"]));
    outside.jobs.lock().unwrap().insert(text(&body["input"]["branch"]), job);
    Json(json!({"async": true}))
}

/// Calls the tool of the agent, then quotes what it got of the call.
async fn reply(
    State(outside): State<Outside>,
    Route(agent): Route<String>,
    Json(body): Json<Value>,
) -> impl IntoResponse {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let of = |role: &str| messages.iter().rfind(|message| message["role"] == role).cloned();
    let round = of("user").map(|message| plain(&message["content"])).unwrap_or_default();
    outside.requests.lock().unwrap().entry(round.clone()).or_default().push(body["messages"].to_string());
    let (delta, reason) = match of("tool") {
        Some(told) => (json!({"content": format!("I was told: {}", plain(&told["content"]))}), "stop"),
        None => {
            let (tool, arguments) = Kind::call(&agent, &round);
            let function = json!({"name": tool, "arguments": arguments.to_string()});
            let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
            (json!({"tool_calls": [call]}), "tool_calls")
        }
    };
    let chunks = [
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
    ];
    let mut stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    stream.push_str("data: [DONE]\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], stream)
}

/// The text of a message, however it is written.
fn plain(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
