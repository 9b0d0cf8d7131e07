//! What a call of an MCP client needs before it may run: a gate on a Standfast server, a decision, a start; and its outcome after it.
//!
//! Where the server cannot be asked nothing runs, and the model is told so. Giving up waiting leaves the gate open. How a call that
//! waits is shown is `standfast_surfaces::mcp::ladder`; what comes between the two ends is `link.rs`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_core::digest::{self, Digest};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::{Clock, random_bytes};
use standfast_surfaces::http::rfc3339;
use standfast_surfaces::mcp::ladder::{self, Reach, Rung, STRETCH};
use standfast_surfaces::mcp::message::{CallRequest, ListedTool, StateChange};
use standfast_surfaces::mcp::profile::ClientProfile;

use super::super::client::{Failure, Patience, Server, segment};
use super::in_words;
use super::waiting::WaitingCalls;

/// How long one look at a gate waits while the client's user is asked something.
const SHORT_STRETCH: Millis = Millis::seconds(2);

/// How long a server that is away is waited for: it may be restarting.
const AWAY: Millis = Millis::seconds(60);

/// How long a call may run before a person is asked what became of it: a proxy that was killed says nothing. An outcome that comes
/// later answers that question.
const LEASE: Millis = Millis::hours(1);

/// Asks a server about calls.
#[derive(Debug)]
pub(super) struct Keeper {
    server: Server,
    name: String,
    wait: Option<u64>,
    waiting: WaitingCalls,
    clock: Clock,
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It may run, with this line: nobody else may start it.
    Run { permit: Permit, line: String },
    /// The client gets a task: the text says where somebody decides.
    Task { gate: String, text: String },
    /// The client is asked to come back with the same call, once its user has seen this address.
    ComeBack { url: Option<String> },
    /// It does not run; the model is told why.
    Tell { text: String, gate: Option<String>, is_final: bool },
    /// Nobody waits for it any more.
    Nothing,
}

/// A start of a call, durably on the server.
#[derive(Debug, Clone)]
pub(super) struct Permit {
    gate: String,
    attempt: u32,
    key: Digest,
    /// The arguments that may run, where they are others than the client's.
    edited: Option<Box<RawValue>>,
}

/// What came of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome<'a> {
    Succeeded(&'a RawValue),
    Failed(&'a RawValue),
    Unknown(&'static str),
    NotExecuted,
}

/// A request for a gate; arguments stay as they were written.
#[derive(Serialize)]
struct NewGate<'a> {
    tool: &'a str,
    arguments: &'a RawValue,
    agent: &'a str,
    session: String,
    call: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hints: Option<Value>,
}

/// What came of a call, as it was written.
#[derive(Serialize)]
struct OutcomeReport<'a> {
    attempt: u32,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Allowed,
    Held,
    Denied,
    Expired,
    Withdrawn,
    Started,
    Done,
    OutcomeUnknown,
}

#[derive(Debug, Deserialize)]
pub(super) struct Gate {
    pub(super) gate: String,
    pub(super) state: State,
    tool: String,
    pub(super) arguments: Box<RawValue>,
    digest: Option<String>,
    #[serde(default)]
    pub(super) decision: Option<GateDecision>,
    #[serde(default)]
    pub(super) outcome: Option<GateOutcome>,
    #[serde(default)]
    url: Option<String>,
    pub(super) model_text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct GateDecision {
    #[serde(default)]
    edited: bool,
    pub(super) at: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct GateOutcome {
    pub(super) value: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct Start {
    attempt: u32,
}

/// Who waits for a call, as the two ends of the connection know it.
pub(super) trait Patient {
    /// Whether the client still wants an answer.
    fn still_waits(&self) -> bool;
    /// Tells the client that the call waits.
    fn tell_progress(&self, step: u32, text: &str);
    /// Asks the client's user to look at it.
    fn ask(&self, url: Option<&str>);
    /// Whether the client's user does not want to wait.
    fn is_declined(&self) -> bool;
    /// Nobody has to answer any more.
    fn ask_no_more(&self, is_decided: bool);
}

impl Keeper {
    pub(super) fn new(server: Server, name: String, wait: Option<u64>, waiting: WaitingCalls) -> Keeper {
        Keeper { server, name, wait, waiting, clock: Clock::system() }
    }

    /// What rules know the tools of the server by.
    fn prefix(&self) -> String {
        format!("mcp__{}__", self.name)
    }

    /// A gate of this server, and its tool as the server knows it.
    pub(super) fn look(&self, gate: &str) -> Option<(Gate, String)> {
        let path = format!("/api/v1/gates/{}", segment(gate));
        let gate: Gate = read(&self.server.get(&path).ok()?).ok()?;
        let tool = gate.tool.strip_prefix(&self.prefix())?.to_owned();
        Some((gate, tool))
    }

    /// Nobody wants a gate any more.
    pub(super) fn withdraw(&self, gate: &str) {
        let path = format!("/api/v1/gates/{}/withdraw", segment(gate));
        // What has begun, or has ended, stays as it is.
        drop(self.server.post(&path, "{}", Patience::Usual));
    }

    /// What an approved gate means for the call of its task.
    pub(super) fn follow_task(&self, call: &CallRequest, gate: Gate) -> Verdict {
        let key = key_of(&gate.tool, &gate.arguments);
        self.follow(call, gate, key)
    }

    /// The instant that tasks say.
    pub(super) fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// How long this call may wait.
    fn budget(&self, call: &CallRequest, client: &ClientProfile, rung: Rung) -> Millis {
        let usual = ladder::budget(client, call, rung, Reach::Program);
        let said =
            self.wait.filter(|_| usual.0 > 0).map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
        said.map_or(usual, |seconds| Millis(seconds.saturating_mul(1_000)))
    }

    /// Asks whether a call may run, and waits for the answer for as long as the client can.
    pub(super) fn judge(
        &self,
        call: &CallRequest,
        listed: Option<&ListedTool>,
        client: &ClientProfile,
        patient: &impl Patient,
    ) -> Verdict {
        let rung = ladder::rung(client, call, true);
        let tool = format!("{}{}", self.prefix(), call.tool);
        let key = key_of(&tool, &call.arguments);
        let until = self.clock.now().plus(self.budget(call, client, rung));
        match self.decided(call, (&tool, key), listed, &client.name, (rung, until, patient)) {
            Ok(Some(gate)) if gate.state == State::Held && rung == Rung::Task => {
                Verdict::Task { gate: gate.gate, text: gate.model_text }
            }
            Ok(Some(gate)) if gate.state == State::Held && rung == Rung::ComeBack => {
                Verdict::ComeBack { url: gate.url }
            }
            Ok(Some(gate)) => self.follow(call, gate, key),
            Ok(None) => Verdict::Nothing,
            Err(why) => Verdict::Tell {
                text: format!(
                    "Not executed: Standfast could not be asked whether {tool} may run ({}).",
                    why.trim()
                ),
                gate: None,
                is_final: true,
            },
        }
    }

    /// The gate of a call once it is decided or there is no time left; none when nobody waits any more.
    fn decided(
        &self,
        call: &CallRequest,
        (tool, key): (&str, Digest),
        listed: Option<&ListedTool>,
        client: &str,
        (rung, until, patient): (Rung, Timestamp, &impl Patient),
    ) -> Result<Option<Gate>, String> {
        let found = self.waiting.find(key);
        let body = |name: &str| {
            in_json(&NewGate {
                tool,
                arguments: &call.arguments,
                agent: if client.is_empty() { "mcp" } else { client },
                session: format!("mcp/{}", self.name),
                call: name,
                hints: listed.map(|tool| tool.annotations.hints()),
            })
        };
        let fresh = || format!("{key}/{:032x}", u128::from_be_bytes(random_bytes()));
        let name = found.clone().unwrap_or_else(fresh);
        let mut gate = self.open(&body(&name)?, (until, patient))?;
        let is_over = matches!(gate.state, State::Done | State::Expired | State::Withdrawn);
        if found.is_some() && is_over {
            // Waiting for it has ended: this is a new request.
            let name = fresh();
            gate = self.open(&body(&name)?, (until, patient))?;
            self.note(&gate, key, &name);
        } else if found.is_none() {
            self.note(&gate, key, &name);
        }
        let mut step = 0;
        let asks = gate.state == State::Held && matches!(rung, Rung::Address | Rung::Form);
        if asks {
            patient.ask(gate.url.as_deref());
        }
        let stretch = if asks { SHORT_STRETCH } else { STRETCH };
        while gate.state == State::Held && rung != Rung::Task && !patient.is_declined() {
            let left = until.since(self.clock.now());
            if left.0 <= 0 {
                break;
            }
            if !patient.still_waits() {
                patient.ask_no_more(false);
                return Ok(None);
            }
            step += 1;
            patient.tell_progress(step, &format!("waiting for approval{}", at(gate.url.as_deref())));
            let path = format!("/api/v1/gates/{}?wait_ms={}", segment(&gate.gate), stretch.min(left).0);
            gate = match self.again((until, patient), || self.server.get(&path)) {
                Ok(gate) => gate,
                Err(why) => {
                    patient.ask_no_more(false);
                    return Err(why);
                }
            };
        }
        patient.ask_no_more(gate.state != State::Held);
        Ok(Some(gate))
    }

    /// Remembers the pending call, before anybody is asked to come back.
    fn note(&self, gate: &Gate, key: Digest, name: &str) {
        match gate.state {
            State::Held | State::Denied => self.waiting.remember(key, name),
            State::Allowed | State::Started | State::OutcomeUnknown => {}
            State::Expired | State::Withdrawn | State::Done => self.waiting.forget(key),
        }
    }

    fn open(&self, body: &str, until: (Timestamp, &impl Patient)) -> Result<Gate, String> {
        // A repeat attaches to the same gate, so trying again is safe.
        self.again(until, || self.server.post("/api/v1/gates", body, Patience::Usual))
    }

    /// Asks, also a server that is away for a while.
    fn again(
        &self,
        (until, patient): (Timestamp, &impl Patient),
        ask: impl Fn() -> Result<String, Failure>,
    ) -> Result<Gate, String> {
        let give_up = until.min(self.clock.now().plus(AWAY));
        loop {
            match ask() {
                Ok(text) => return read(&text),
                Err(Failure::CouldNotAsk(_)) if self.clock.now() < give_up && patient.still_waits() => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(failure) => return Err(in_words(failure)),
            }
        }
    }

    /// What a gate as it stands means for its call.
    fn follow(&self, call: &CallRequest, gate: Gate, key: Digest) -> Verdict {
        if gate.state != State::Allowed {
            let is_final = gate.state != State::Held;
            return Verdict::Tell { text: gate.model_text, gate: Some(gate.gate), is_final };
        }
        let edited = gate.decision.is_some_and(|decision| decision.edited).then_some(gate.arguments);
        let state = if ladder::is_return(call) { StateChange::Drop } else { StateChange::Keep };
        let line = match (&edited, state) {
            (None, StateChange::Keep) => Ok(call.as_asked()),
            (edited, state) => call.changed(edited.as_deref(), state),
        };
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                let text = format!("Not executed: the approved arguments cannot be sent ({error}).");
                return Verdict::Tell { text, gate: Some(gate.gate), is_final: true };
            }
        };
        let path = format!("/api/v1/gates/{}/start", segment(&gate.gate));
        let body = json!({"digest": gate.digest, "lease_ms": LEASE.0}).to_string();
        match self
            .server
            .post(&path, &body, Patience::Usual)
            .map_err(in_words)
            .and_then(|text| read::<Start>(&text))
        {
            Ok(Start { attempt }) => {
                self.waiting.forget(key);
                Verdict::Run { permit: Permit { gate: gate.gate, attempt, key, edited }, line }
            }
            // It may have been started nevertheless: then its outcome is unknown, and a person is asked. Here nothing runs.
            Err(why) => Verdict::Tell {
                text: format!("Not executed: the call could not be started ({}).", why.trim()),
                gate: Some(gate.gate),
                is_final: true,
            },
        }
    }

    /// The line of a call that goes on, because its server asked for something first.
    pub(super) fn goes_on(call: &CallRequest, permit: &Permit) -> Result<String, String> {
        match &permit.edited {
            Some(edited) => call.changed(Some(edited), StateChange::Keep).map_err(|error| error.to_string()),
            None => Ok(call.as_asked()),
        }
    }

    /// Says what came of a call; tries for a while, as nobody else knows.
    pub(super) fn report(&self, permit: &Permit, outcome: Outcome<'_>) {
        let why = |text: &str| serde_json::value::to_raw_value(text).ok();
        let doubt = if let Outcome::Unknown(text) = outcome { why(text) } else { None };
        let (status, result, error) = match outcome {
            Outcome::Succeeded(result) => ("succeeded", Some(result), None),
            Outcome::Failed(error) => ("failed", None, Some(error)),
            Outcome::Unknown(_) => ("unknown", None, doubt.as_deref()),
            Outcome::NotExecuted => ("not_executed", None, None),
        };
        let Ok(body) = in_json(&OutcomeReport { attempt: permit.attempt, status, result, error }) else {
            return;
        };
        let path = format!("/api/v1/gates/{}/outcome", segment(&permit.gate));
        let give_up = self.clock.now().plus(AWAY);
        loop {
            match self.server.post(&path, &body, Patience::Usual) {
                Ok(_) => return,
                Err(Failure::CouldNotAsk(_)) if self.clock.now() < give_up => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(failure) => {
                    let why = in_words(failure);
                    eprintln!(
                        "standfast: the outcome of {} ({}) was not taken: {why}",
                        permit.gate, permit.key
                    );
                    return;
                }
            }
        }
    }
}

/// What a call is known by.
fn key_of(tool: &str, arguments: &RawValue) -> Digest {
    digest::of_parts("standfast.mcp.1", &[tool.as_bytes(), arguments.get().as_bytes()])
}

fn in_json(body: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(body).map_err(|error| format!("the request cannot be written: {error}"))
}

fn at(url: Option<&str>) -> String {
    url.map(|url| format!(": {url}")).unwrap_or_default()
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("the server's answer cannot be read: {error}"))
}
