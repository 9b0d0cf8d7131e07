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

use super::keeper::{Keeper, Outcome, Patient, Verdict};
use super::message::{self, CallRequest, ClientMessage, ListedTool, Response, Unpassable};

/// Both ends.
pub(super) struct Link {
    keeper: Keeper,
    /// None once it was closed.
    upstream: Mutex<Option<ChildStdin>>,
    state: Mutex<State>,
    /// Kept by every call that is attended to.
    alive: Mutex<Option<Sender<()>>>,
}

#[derive(Default)]
struct State {
    /// Who the client says it is.
    client: String,
    /// What is known of the server's tools.
    tools: BTreeMap<String, ListedTool>,
    /// Requests that wait for a decision: the server does not know them yet.
    waiting: Vec<Value>,
    /// Requests that the server works on, and who gets the answer.
    running: Vec<(Value, Sender<String>)>,
    /// Whether an end has closed.
    is_over: bool,
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
    fn answer(line: &str) {
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
            Ok(ClientMessage::Other) => link.send(line),
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
                    "standfast: a tool call without an id was not passed on: nobody would hear what became of it"
                );
            }
        }
    }

    /// A line of the server.
    pub(super) fn hear_upstream(&self, line: &str) {
        if let Ok(response) = serde_json::from_str::<Response<'_>>(line)
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

    /// Sees to a call until it has its answer, while everything else goes on.
    fn attend(link: &Arc<Link>, call: CallRequest) {
        let alive = link.alive.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let link = link.clone();
        link.state().waiting.push(call.id_value());
        std::thread::spawn(move || {
            link.see_through(&call);
            drop(alive);
        });
    }

    fn see_through(&self, call: &CallRequest) {
        let (client, listed) = {
            let state = self.state();
            (state.client.clone(), state.tools.get(&call.tool).cloned())
        };
        let id = call.id_value();
        let patience = WaitingClient { link: self, call, id: &id };
        let verdict = self.keeper.judge(call, listed.as_ref(), &client, &patience);
        match verdict {
            Verdict::Run { permit, line } => {
                let (answered, answer) = mpsc::channel();
                if !self.begin(id, answered) {
                    // Nothing runs that nobody waits for.
                    return self.keeper.report(&permit, Outcome::NotExecuted);
                }
                self.send(&line);
                match answer.recv() {
                    Ok(line) => {
                        self.report(&permit, &line);
                        Link::answer(&line);
                    }
                    Err(_) => {
                        self.keeper
                            .report(&permit, Outcome::Unknown("the MCP server ended while the call ran"));
                        let text = "Outcome unknown: the MCP server ended while the call ran. Do not run it again; a person looks at it.";
                        Link::answer(&call.not_run(text, None, true));
                    }
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

    fn report(&self, permit: &super::keeper::Permit, line: &str) {
        let response = serde_json::from_str::<Response<'_>>(line);
        let outcome = match response.as_ref().map(|response| (response.result, response.error)) {
            Ok((Some(result), _)) if message::says_error(result) => Outcome::Failed(result),
            Ok((Some(result), _)) => Outcome::Succeeded(result),
            Ok((None, Some(error))) => Outcome::Failed(error),
            Ok((None, None)) | Err(_) => {
                Outcome::Unknown("the MCP server answered with neither a result nor an error")
            }
        };
        self.keeper.report(permit, outcome);
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
}
