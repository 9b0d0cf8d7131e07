//! `standfast mcp serve`: lines of a client on standard input become requests to the server's `/mcp`, and what comes back becomes
//! lines.
//!
//! Nothing is decided or remembered here. Requests are sent side by side, since one may wait for a person while others are made. What
//! HTTP says in headers is taken from the message itself and from what the server agreed to at the beginning.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::client::Server;
use super::{in_words, read_lines};

/// How long requests that were made may take to be answered once the client has left.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a message says of itself, as far as HTTP wants to know.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    id: Option<Box<RawValue>>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
struct Params {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, rename = "_meta")]
    meta: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

/// The two ends.
struct Bridge {
    server: Server,
    /// The version that was agreed to at the beginning, where the protocol has a beginning.
    agreed: Mutex<Option<String>>,
}

/// Serves a client until it leaves.
pub(super) fn serve(server: Server) -> ExitCode {
    let bridge = Arc::new(Bridge { server, agreed: Mutex::default() });
    let (alive, at_work) = mpsc::channel::<()>();
    read_lines(std::io::stdin().lock(), |line| {
        if line.trim().is_empty() {
            return;
        }
        let (bridge, line, alive) = (bridge.clone(), line.to_owned(), alive.clone());
        let is_first = bridge.is_beginning(&line);
        let passing = move || {
            bridge.pass(&line);
            drop(alive);
        };
        // What comes after the beginning depends on what is agreed there.
        if is_first {
            passing();
        } else {
            std::thread::spawn(passing);
        }
    });
    drop(alive);
    // Nobody sends anything here: it ends when everybody is done.
    let _ = at_work.recv_timeout(LAST_WORDS);
    ExitCode::SUCCESS
}

impl Bridge {
    fn is_beginning(&self, line: &str) -> bool {
        serde_json::from_str::<Envelope>(line)
            .is_ok_and(|message| message.method.as_deref() == Some("initialize"))
    }

    /// Sends one line, and writes down what comes back.
    fn pass(&self, line: &str) {
        let message: Envelope = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(why) => return answer(&failure(None, -32700, &format!("the line is not a message: {why}"))),
        };
        let params = message.params.as_ref().map_or("{}", |params| params.get());
        let params: Params = serde_json::from_str(params).unwrap_or_default();
        let is_beginning = message.method.as_deref() == Some("initialize");
        let agreed = || self.agreed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut headers = Vec::new();
        if let Some(version) = params.meta.version.clone().or_else(|| agreed().filter(|_| !is_beginning)) {
            headers.push(("mcp-protocol-version", version));
        }
        if let Some(method) = &message.method {
            headers.push(("mcp-method", method.clone()));
        }
        if let Some(name) = params.name {
            headers.push(("mcp-name", name));
        }
        match self.server.converse(line, &headers) {
            Ok((is_stream, lines)) => self.relay(is_stream, is_beginning, lines),
            Err(refused) if message.id.is_some() => {
                answer(&failure(message.id.as_deref(), -32603, &in_words(refused)));
            }
            Err(refused) => eprintln!("standfast: {}", in_words(refused).trim()),
        }
    }

    fn relay(&self, is_stream: bool, is_beginning: bool, mut from: impl BufRead) {
        if !is_stream {
            let mut text = String::new();
            if from.read_to_string(&mut text).is_ok() && !text.trim().is_empty() {
                self.hear(is_beginning, &text);
            }
            return;
        }
        let mut data = String::new();
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|read| read > 0) {
            let said = line.trim_end_matches(['\n', '\r']);
            if let Some(part) = said.strip_prefix("data:") {
                data.push_str(part.strip_prefix(' ').unwrap_or(part));
            } else if said.is_empty() && !data.is_empty() {
                self.hear(is_beginning, &std::mem::take(&mut data));
            }
            line.clear();
        }
        if !data.is_empty() {
            self.hear(is_beginning, &data);
        }
    }

    /// A message of the server: one line, whatever it looked like.
    fn hear(&self, is_beginning: bool, text: &str) {
        let Ok(message) = serde_json::from_str::<Box<RawValue>>(text) else { return };
        if is_beginning {
            let said: Value = serde_json::from_str(message.get()).unwrap_or_default();
            if let Some(version) = said["result"]["protocolVersion"].as_str() {
                *self.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(version.to_owned());
            }
        }
        answer(&message.get().replace(['\n', '\r'], " "));
    }
}

fn answer(line: &str) {
    let mut out = std::io::stdout().lock();
    // A client that has left hears nothing.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

fn failure(id: Option<&RawValue>, code: i32, why: &str) -> String {
    let id: Value = id.and_then(|id| serde_json::from_str(id.get()).ok()).unwrap_or_default();
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why.trim()}}).to_string()
}
