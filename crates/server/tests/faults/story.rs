//! One run as a client lives through it: start, decide, look, and again after each crash, until it has ended.
//!
//! Keeps what was acknowledged. A request without an answer is repeated with the same key or looked up, as a client
//! would do it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agents::{EDITED, EFFECTS, OTHER_ARGUMENTS};
use crate::server::{Gone, Http, now, pause};

/// What the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wish {
    Approve,
    Deny,
    Edit,
    Pair,
    Answer,
    Result,
    Failure,
    Cancel,
    Expire,
    Message,
}

impl Wish {
    pub(crate) const ALL: [Wish; 10] = [
        Wish::Approve,
        Wish::Deny,
        Wish::Edit,
        Wish::Pair,
        Wish::Answer,
        Wish::Result,
        Wish::Failure,
        Wish::Cancel,
        Wish::Expire,
        Wish::Message,
    ];

    fn agent(self) -> &'static str {
        match self {
            Wish::Approve | Wish::Deny | Wish::Edit | Wish::Cancel | Wish::Message => "ops",
            Wish::Pair => "pair",
            Wish::Answer => "asks",
            Wish::Result | Wish::Failure => "outside",
            Wish::Expire => "resumes",
        }
    }

    /// How often the tool should have started in the end, when every unknown outcome was cleared up by its line.
    pub(crate) fn effects(self) -> usize {
        match self {
            Wish::Approve | Wish::Edit | Wish::Pair | Wish::Result | Wish::Failure => 1,
            Wish::Deny | Wish::Answer | Wish::Cancel | Wish::Expire | Wish::Message => 0,
        }
    }

    fn last_status(self) -> &'static str {
        match self {
            Wish::Cancel => "canceled",
            Wish::Approve
            | Wish::Deny
            | Wish::Edit
            | Wish::Pair
            | Wish::Answer
            | Wish::Result
            | Wish::Failure
            | Wish::Expire
            | Wish::Message => "completed",
        }
    }
}

/// How an unknown outcome is cleared up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClearUp {
    /// By looking at the line that the tool leaves.
    ByLooking,
    Again,
    DidNotHappen,
    Happened,
}

/// What was acknowledged with 2xx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acked {
    Started { run: String },
    Decided { run: String, hold: String, key: String, word: &'static str },
    Canceled { run: String },
    Superseded { run: String },
}

/// One run as a client lives through it.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    pub(crate) name: String,
    pub(crate) wish: Wish,
    pub(crate) clear_up: ClearUp,
    pub(crate) run: Option<String>,
    pub(crate) acked: Vec<Acked>,
    pub(crate) violations: Vec<String>,
    pub(crate) recoveries: usize,
    pub(crate) is_over: bool,
    /// How long it may take to go on with a server that answers.
    pub(crate) patience: Duration,
    /// After this long with one server the client goes to another, between two requests.
    pub(crate) stays: Duration,
}

impl Story {
    pub(crate) fn new(name: impl Into<String>, wish: Wish, clear_up: ClearUp) -> Story {
        Story {
            name: name.into(),
            wish,
            clear_up,
            run: None,
            acked: Vec::new(),
            violations: Vec::new(),
            recoveries: 0,
            is_over: false,
            patience: Duration::from_secs(20),
            stays: Duration::MAX,
        }
    }

    /// Goes on until the run has ended or the server is gone. A run that has not ended after all that time is stuck.
    pub(crate) async fn live(&mut self, http: &Http, data: &Path) -> Result<(), Gone> {
        let begin = now();
        while !self.is_over && begin.elapsed() < self.stays {
            self.step(http, data).await?;
            if !self.is_over && begin.elapsed() > self.patience {
                let run = self.run.clone().unwrap_or_default();
                let (_, body) = http.get(&format!("/api/v1/runs/{run}")).await?;
                self.violations.push(format!("I6: {} ({:?}) is stuck: {body}", self.name, self.wish));
                self.is_over = true;
            }
        }
        Ok(())
    }

    async fn step(&mut self, http: &Http, data: &Path) -> Result<(), Gone> {
        let Some(run) = self.run.clone() else { return self.begin(http).await };
        let (status, body) = http.get(&format!("/api/v1/runs/{run}")).await?;
        if status == 503 {
            // Its store is away; it said so.
            pause().await;
            return Ok(());
        }
        if status != 200 {
            self.violations.push(format!("I1: run {run} answers {status} {body}"));
            self.is_over = true;
            return Ok(());
        }
        match body["status"].as_str().unwrap_or_default() {
            "held" => self.decide(http, &run, &body, data).await,
            "completed" | "failed" | "canceled" | "rejected" => {
                self.is_over = true;
                if body["status"] != self.wish.last_status() {
                    self.violations.push(format!("I6: {run} ({:?}) ended so: {body}", self.wish));
                }
                Ok(())
            }
            _ => {
                pause().await;
                Ok(())
            }
        }
    }

    /// Starts the run, unless an earlier try whose answer was lost did so. The session is what it is found by.
    pub(crate) async fn begin(&mut self, http: &Http) -> Result<(), Gone> {
        let (status, list) = http.get(&format!("/api/v1/runs?session={}", self.name)).await?;
        if status == 503 {
            pause().await;
            return Ok(());
        }
        if let Some(run) = list["runs"][0]["id"].as_str() {
            self.run = Some(run.to_owned());
            return Ok(());
        }
        let path = format!("/api/v1/agents/{}/runs", self.wish.agent());
        let body = json!({"input": "Free some space", "session": self.name}).to_string();
        let (status, body) = http.post(&path, &body, None).await?;
        match (status, body["id"].as_str()) {
            (201, Some(run)) => {
                self.acked.push(Acked::Started { run: run.to_owned() });
                self.run = Some(run.to_owned());
            }
            (503, _) => pause().await,
            _ => self.violations.push(format!("a start was answered with {status} {body}")),
        }
        Ok(())
    }

    async fn decide(&mut self, http: &Http, run: &str, body: &Value, data: &Path) -> Result<(), Gone> {
        let holds = body["holds"].as_array().cloned().unwrap_or_default();
        let Some(hold) = holds.first() else {
            pause().await;
            return Ok(());
        };
        let (id, kind) = (hold["id"].as_str().unwrap_or_default(), hold["kind"].as_str().unwrap_or_default());
        let (word, body) = match kind {
            "recovery" => self.cleared_up(run, data),
            "external" if self.wish == Wish::Failure => {
                ("fail", json!({"resolution": "fail", "reason": "no"}))
            }
            "external" | "input" => ("answer", json!({"resolution": "answer", "value": "the second"})),
            _ => match self.wish {
                Wish::Deny => ("deny", json!({"resolution": "deny", "reason": "still needed"})),
                Wish::Edit => ("approve", json!({"resolution": "approve", "arguments": "HERE"})),
                // Of two, one may run.
                Wish::Pair => {
                    let (_, shown) = http.get(&format!("/api/v1/holds/{id}")).await?;
                    if shown["arguments_text"] == OTHER_ARGUMENTS {
                        ("deny", json!({"resolution": "deny"}))
                    } else {
                        ("approve", json!({"resolution": "approve"}))
                    }
                }
                Wish::Cancel => return self.cancel(http, run).await,
                Wish::Message => return self.supersede(http, run).await,
                Wish::Expire => {
                    pause().await;
                    return Ok(());
                }
                Wish::Approve | Wish::Answer | Wish::Result | Wish::Failure => {
                    ("approve", json!({"resolution": "approve"}))
                }
            },
        };
        self.recoveries += usize::from(kind == "recovery");
        let key = format!("{}/{}", self.name, id.get(id.len().saturating_sub(12)..).unwrap_or_default());
        let body = body.to_string().replace(r#""HERE""#, EDITED);
        let (status, answer) = http.post(&format!("/api/v1/holds/{id}/resolve"), &body, Some(&key)).await?;
        match status {
            200 => {
                let (run, hold) = (run.to_owned(), id.to_owned());
                self.acked.push(Acked::Decided { run, hold, key, word });
            }
            // Not written, and said so.
            503 => pause().await,
            // The node that was taken for dead has told meanwhile what its tool did.
            409 if kind == "recovery" && is_by_a_node(&answer) => {}
            _ => {
                self.violations.push(format!("I2: nobody else decides {id}, and yet {status} {answer}"));
                pause().await;
            }
        }
        Ok(())
    }

    fn cleared_up(&self, run: &str, data: &Path) -> (&'static str, Value) {
        let again = ("approve", json!({"resolution": "approve"}));
        let happened = ("answer", json!({"resolution": "answer", "value": "it happened"}));
        match self.clear_up {
            ClearUp::ByLooking if lines_of(data, run).is_empty() => again,
            ClearUp::ByLooking | ClearUp::Happened => happened,
            ClearUp::Again => again,
            ClearUp::DidNotHappen => ("deny", json!({"resolution": "deny"})),
        }
    }

    async fn cancel(&mut self, http: &Http, run: &str) -> Result<(), Gone> {
        let key = format!("{}/cancel", self.name);
        let (status, body) = http.post(&format!("/api/v1/runs/{run}/cancel"), "{}", Some(&key)).await?;
        match status {
            200 => self.acked.push(Acked::Canceled { run: run.to_owned() }),
            503 => pause().await,
            _ => self.violations.push(format!("I1: cancel of {run}: {status} {body}")),
        }
        Ok(())
    }

    async fn supersede(&mut self, http: &Http, run: &str) -> Result<(), Gone> {
        let body = r#"{"input": "Never mind", "on_hold": "supersede"}"#;
        let key = format!("{}/supersede", self.name);
        let (status, body) = http.post(&format!("/api/v1/runs/{run}/messages"), body, Some(&key)).await?;
        match status {
            200 => self.acked.push(Acked::Superseded { run: run.to_owned() }),
            503 => pause().await,
            _ => self.violations.push(format!("I1: message to {run}: {status} {body}")),
        }
        Ok(())
    }
}

/// Whether a decision was recorded by a node itself.
fn is_by_a_node(answer: &Value) -> bool {
    answer["recorded"]["by"].as_str().is_some_and(|by| by.starts_with("node:"))
}

/// The lines that tools left, each the token of a start and its arguments.
pub(crate) fn lines(data: &Path) -> Vec<(String, String)> {
    let text = ["demo-effects.log", EFFECTS]
        .map(|file| std::fs::read_to_string(data.join(file)).unwrap_or_default());
    let split = |line: &str| line.split_once(' ').map(|(token, rest)| (token.to_owned(), rest.to_owned()));
    text.concat().lines().filter_map(split).collect()
}

pub(crate) fn lines_of(data: &Path, run: &str) -> Vec<(String, String)> {
    lines(data).into_iter().filter(|(token, _)| token.starts_with(&format!("{run}/"))).collect()
}
