//! The two ends of a proxied MCP server and the calls between them: who waits for what.
//!
//! Each call is attended to by a thread of its own, so that a call that waits for a person keeps nothing else up. Whether it may run
//! is `keeper.rs`'s to find out.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ChildStdin;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use standfast_engine::clock::random_bytes;
use standfast_surfaces::mcp::ladder::{self, OUR_ID, WaitReason};
use standfast_surfaces::mcp::message::{
    self, CallEnd, CallRequest, ClientMessage, ListedTool, ServerMessage, Unpassable,
};
use standfast_surfaces::mcp::profile::ClientProfile;
use standfast_surfaces::mcp::tasks::{TaskFacts, is_ours};

use super::keeper::{Keeper, Outcome, Patient, Permit, Verdict};
use super::tasks;

/// Both ends.
pub(super) struct Link {
    pub(super) keeper: Keeper,
    /// None once it was closed.
    upstream: Mutex<Option<ChildStdin>>,
    state: Mutex<State>,
    /// Kept by every call that is attended to.
    alive: Mutex<Option<Sender<()>>>,
}

#[derive(Default)]
struct State {
    /// Who the client says it is, and what it can do.
    client: ClientProfile,
    /// What is known of the server's tools.
    tools: BTreeMap<String, ListedTool>,
    /// Requests that wait for a decision: the server does not know them yet.
    waiting: Vec<Value>,
    /// Requests that the server works on, and who gets the answer.
    running: Vec<(Value, Sender<String>)>,
    /// What the client answered to questions of ours; none yet.
    asked: BTreeMap<String, Option<Value>>,
    /// Calls that go on once the client brings what their server asked for.
    continued: Vec<(ContinuedCall, Permit)>,
    /// Whether an end has closed.
    is_over: bool,
}

/// What a call is known by whose server asked for something first.
#[derive(PartialEq, Eq)]
struct ContinuedCall {
    tool: String,
    arguments: String,
    /// The server's own state.
    state: Option<String>,
}

impl Link {
    pub(super) fn new(keeper: Keeper, upstream: ChildStdin, alive: Sender<()>) -> Link {
        let (upstream, alive) = (Mutex::new(Some(upstream)), Mutex::new(Some(alive)));
        Link { keeper, upstream, state: Mutex::default(), alive }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a line to the server; what it does not take any more is lost, and its end says so.
    fn send(&self, line: &str) {
        let mut upstream = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = upstream.as_mut()
            && writeln!(pipe, "{}", message::unbroken(line)).and_then(|()| pipe.flush()).is_err()
        {
            *upstream = None;
        }
    }

    /// Hands a line to the client.
    pub(super) fn answer(line: &str) {
        let mut client = std::io::stdout().lock();
        // A client that is gone is noticed where it is read from.
        drop(writeln!(client, "{line}").and_then(|()| client.flush()));
    }

    /// A line of the client.
    pub(super) fn hear_client(link: &Arc<Link>, line: &str) {
        match ClientMessage::read(line) {
            Ok(ClientMessage::Call(call)) => Link::attend(link, *call),
            Ok(ClientMessage::Cancel(id)) => {
                let mut state = link.state();
                let count = state.waiting.len();
                state.waiting.retain(|waiting| *waiting != id);
                let was_waiting = state.waiting.len() < count;
                drop(state);
                // What the server does not know yet it need not cancel.
                if !was_waiting {
                    link.send(line);
                }
            }
            Ok(ClientMessage::Hello(client)) => {
                link.state().client = client;
                link.send(line);
            }
            Ok(ClientMessage::Answer(Value::String(id))) if id.starts_with(OUR_ID) => {
                let answer: Value = serde_json::from_str(line).unwrap_or_default();
                if let Some(asked) = link.state().asked.get_mut(&id) {
                    *asked = Some(answer["result"].clone());
                }
            }
            Ok(ClientMessage::Request(request)) if is_ours(&request) => tasks::attend(link, request),
            Ok(ClientMessage::Answer(_) | ClientMessage::Request(_) | ClientMessage::Other) => {
                link.send(line)
            }
            Err(Unpassable::Ambiguous(_)) if line.trim().is_empty() => {}
            Err(Unpassable::Ambiguous(why)) => {
                Link::answer(&refusal(-32700, &format!("not passed on: this is not one message ({why})")));
            }
            Err(Unpassable::Batch) => {
                Link::answer(&refusal(
                    -32600,
                    "not passed on: tools are not called in batches; send each call by itself",
                ));
            }
            Err(Unpassable::Unanswerable) => {
                eprintln!(
                    "standfast: a tool call without an id was not passed on: its result could not be returned; send an id"
                );
            }
        }
    }

    /// A line of the server.
    pub(super) fn hear_upstream(&self, line: &str) {
        if let Some(response) = ServerMessage::read(line)
            && response.method.is_none()
        {
            let mut state = self.state();
            if let Some(result) = response.result {
                let tools = message::listed(result).into_iter().map(|tool| (tool.name.clone(), tool));
                state.tools.extend(tools);
            }
            if let Some(at) = state.running.iter().position(|(id, _)| *id == response.id) {
                let (_, whose) = state.running.swap_remove(at);
                if whose.send(line.to_owned()).is_ok() {
                    return;
                }
            }
        }
        Link::answer(line);
    }

    /// Nothing more goes to the server.
    pub(super) fn close(&self) {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Nothing more comes from it: whoever waits for it learns that.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.running.clear();
        state.waiting.clear();
        drop(state);
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// What whoever is at work keeps until they are done.
    pub(super) fn kept_alive(&self) -> Option<Sender<()>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sees to a call until it has its answer, while everything else goes on.
    fn attend(link: &Arc<Link>, call: CallRequest) {
        let alive = link.kept_alive();
        let link = link.clone();
        link.state().waiting.push(call.id_value());
        std::thread::spawn(move || {
            link.see_through(&call);
            drop(alive);
        });
    }

    fn see_through(&self, call: &CallRequest) {
        let (client, listed, permit) = {
            let mut state = self.state();
            let permit = state.goes_on(call);
            let client = call.profile.clone().unwrap_or_else(|| state.client.clone());
            (client, state.tools.get(&call.tool).cloned(), permit)
        };
        let id = call.id_value();
        if let Some(permit) = permit {
            return match Keeper::goes_on(call, &permit) {
                Ok(line) => self.run(call, &permit, &line),
                Err(why) => {
                    self.keeper.report(&permit, Outcome::NotExecuted);
                    self.state().waiting.retain(|waiting| *waiting != id);
                    Link::answer(&call.not_run(&format!("Not executed: {why}"), None, true));
                }
            };
        }
        let question = format!("{OUR_ID}{:032x}", u128::from_be_bytes(random_bytes()));
        let patience = WaitingClient { link: self, call, id: &id, client: &client, question };
        let verdict = self.keeper.judge(call, listed.as_ref(), &client, &patience);
        match verdict {
            Verdict::Run { permit, line } => self.run(call, &permit, &line),
            Verdict::Task { gate, text } => {
                let was_waiting = patience.still_waits();
                self.state().waiting.retain(|waiting| *waiting != id);
                if was_waiting {
                    let now = self.keeper.now();
                    Link::answer(&TaskFacts { gate: &gate, since: &now, now: &now }.created(call, &text));
                }
            }
            Verdict::ComeBack { url } => {
                let was_waiting = patience.still_waits();
                self.state().waiting.retain(|waiting| *waiting != id);
                if was_waiting {
                    Link::answer(&ladder::come_back(call, &client, url.as_deref()));
                }
            }
            Verdict::Tell { text, gate, is_final } => {
                let was_waiting = patience.still_waits();
                self.state().waiting.retain(|waiting| *waiting != id);
                // A success without what its schema promises is an error for many clients.
                let has_schema = listed.is_none_or(|tool| tool.output_schema.is_some());
                if was_waiting {
                    Link::answer(&call.not_run(&text, gate.as_deref(), is_final || has_schema));
                }
            }
            Verdict::Nothing => {}
        }
    }

    /// Lets the server run a call, and says what came of it.
    fn run(&self, call: &CallRequest, permit: &Permit, line: &str) {
        if let Some(answer) = self.passed(call, permit, line) {
            Link::answer(&answer);
        }
    }

    /// The same for a call whose client asks for its result later: the server keeps it with its gate.
    pub(super) fn run_for_task(&self, call: &CallRequest, permit: &Permit, line: &str) {
        self.state().waiting.push(call.id_value());
        self.passed(call, permit, line);
    }

    /// Lets the server run a call and reports what came of it; the answer, where somebody may want it.
    fn passed(&self, call: &CallRequest, permit: &Permit, line: &str) -> Option<String> {
        let (answered, answer) = mpsc::channel();
        if !self.begin(call.id_value(), answered) {
            // Nothing runs that nobody waits for.
            self.keeper.report(permit, Outcome::NotExecuted);
            return None;
        }
        self.send(line);
        match answer.recv() {
            Ok(line) => {
                self.report(call, permit, &line);
                Some(line)
            }
            Err(_) => {
                self.keeper.report(permit, Outcome::Unknown("the MCP server ended while the call ran"));
                let text = "Outcome unknown: the MCP server ended while the call ran. Do not run it again; a person looks at it.";
                Some(call.not_run(text, None, true))
            }
        }
    }

    /// From now on the server works on it; false when nobody waits for it any more.
    fn begin(&self, id: Value, answered: Sender<String>) -> bool {
        let mut state = self.state();
        let count = state.waiting.len();
        state.waiting.retain(|waiting| *waiting != id);
        let may_begin = state.waiting.len() < count && !state.is_over;
        if may_begin {
            state.running.push((id, answered));
        }
        may_begin
    }

    fn report(&self, call: &CallRequest, permit: &Permit, line: &str) {
        let outcome = match ServerMessage::read(line).map(|answer| answer.outcome()) {
            Some(CallEnd::Succeeded(result)) => Outcome::Succeeded(result),
            Some(CallEnd::Failed(error)) => Outcome::Failed(error),
            Some(CallEnd::AsksFirst(result)) => {
                let asked: Value = serde_json::from_str(result.get()).unwrap_or_default();
                let state = asked["requestState"].as_str().map(str::to_owned);
                let known = ContinuedCall { state, ..ContinuedCall::of(call) };
                return self.state().continued.push((known, permit.clone()));
            }
            Some(CallEnd::Silent) | None => {
                Outcome::Unknown("the MCP server answered with neither a result nor an error")
            }
        };
        self.keeper.report(permit, outcome);
    }
}

impl State {
    /// The start that a call belongs to whose server asked for something first. Each answer is used once.
    fn goes_on(&mut self, call: &CallRequest) -> Option<Permit> {
        if call.request_state.is_none() && call.input_responses.is_empty() {
            return None;
        }
        let known = ContinuedCall::of(call);
        let at = self.continued.iter().position(|(continued, _)| *continued == known)?;
        Some(self.continued.swap_remove(at).1)
    }
}

impl ContinuedCall {
    fn of(call: &CallRequest) -> ContinuedCall {
        let (tool, arguments) = (call.tool.clone(), call.arguments.get().to_owned());
        ContinuedCall { tool, arguments, state: call.request_state.clone() }
    }
}

/// An error that belongs to no request.
fn refusal(code: i32, text: &str) -> String {
    let text = Value::from(text);
    format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":{text}}}}}"#)
}

/// The client of one call.
struct WaitingClient<'a> {
    link: &'a Link,
    call: &'a CallRequest,
    id: &'a Value,
    client: &'a ClientProfile,
    /// The id of what its user is asked.
    question: String,
}

impl Patient for WaitingClient<'_> {
    fn still_waits(&self) -> bool {
        self.link.state().waiting.contains(self.id)
    }

    fn tell_progress(&self, step: u32, text: &str) {
        if let Some(line) = self.call.still_waits(step, text) {
            Link::answer(&line);
        }
    }

    fn ask(&self, url: Option<&str>) {
        self.link.state().asked.insert(self.question.clone(), None);
        let asked = WaitReason::Approval(&self.call.tool);
        Link::answer(&ladder::elicitation(&self.question, &asked, self.client, url));
    }

    fn is_declined(&self) -> bool {
        let state = self.link.state();
        state.asked.get(&self.question).is_some_and(|answer| answer.as_ref().is_some_and(ladder::is_refusal))
    }

    fn ask_no_more(&self, is_decided: bool) {
        let Some(answer) = self.link.state().asked.remove(&self.question) else { return };
        for line in ladder::elicitation_ends(&self.question, self.client, is_decided, answer.is_none()) {
            Link::answer(&line);
        }
    }
}
