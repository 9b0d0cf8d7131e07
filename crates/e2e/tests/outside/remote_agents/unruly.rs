//! A remote agent that does as a test wants: it serves a card, takes messages, and answers with whatever it is told to.
//!
//! It keeps every message that it got, so that a test can say how often something was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// How a message is answered.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answers {
    /// As an agent should: with a task that asks something.
    Well,
    /// It takes the message, and the connection breaks before the answer.
    BreaksOff,
    /// As if it did not know the sender.
    AsksForLogin,
    /// Well, with the headers that it got in its words.
    Echoes,
}

struct Inside {
    card: Value,
    answers: Answers,
    /// The messages that it got, with the header that names each.
    sent: Vec<Value>,
    canceled: usize,
    task: Option<Value>,
    lists: bool,
}

pub(crate) struct Unruly {
    port: u16,
    inside: Arc<Mutex<Inside>>,
}

/// A card that offers JSON-RPC at this address.
pub(crate) fn card(url: &str) -> Value {
    let interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    json!({"name": "Unruly", "description": "Pays.", "version": "1", "supportedInterfaces": [interface]})
}

impl Unruly {
    pub(crate) fn start(card: impl Fn(&str) -> Value) -> Unruly {
        Unruly::on(TcpListener::bind("127.0.0.1:0").unwrap(), card)
    }

    pub(crate) fn at(port: u16, card: impl Fn(&str) -> Value) -> Unruly {
        Unruly::on(TcpListener::bind(("127.0.0.1", port)).unwrap(), card)
    }

    fn on(listener: TcpListener, card: impl Fn(&str) -> Value) -> Unruly {
        let port = listener.local_addr().unwrap().port();
        let inside = Inside {
            card: card(&format!("http://127.0.0.1:{port}/agent")),
            answers: Answers::Well,
            sent: Vec::new(),
            canceled: 0,
            task: None,
            lists: true,
        };
        let inside = Arc::new(Mutex::new(inside));
        let theirs = inside.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, inside) = (stream.unwrap(), theirs.clone());
                std::thread::spawn(move || serve(stream, &inside));
            }
        });
        Unruly { port, inside }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/agent", self.port)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.inside.lock().unwrap().card);
    }

    pub(crate) fn answers(&self, answers: Answers) {
        self.inside.lock().unwrap().answers = answers;
    }

    /// From now on it lists no tasks, as agents that do not have that operation.
    pub(crate) fn lists_nothing(&self) {
        self.inside.lock().unwrap().lists = false;
    }

    /// The task is in another state now.
    pub(crate) fn now(&self, status: Value) {
        if let Some(task) = &mut self.inside.lock().unwrap().task {
            task["status"] = status;
        }
    }

    pub(crate) fn sent(&self) -> Vec<Value> {
        self.inside.lock().unwrap().sent.clone()
    }

    pub(crate) fn canceled(&self) -> usize {
        self.inside.lock().unwrap().canceled
    }
}

/// One request on one connection; then it is closed.
fn serve(mut stream: TcpStream, inside: &Mutex<Inside>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut length, mut authorization) = (String::new(), 0, Value::Null);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let lower = line.trim().to_ascii_lowercase();
        if lower.is_empty() {
            break;
        }
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if lower.starts_with("authorization:") {
            authorization = json!(line.trim().split_once(' ')?.1);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut inside = inside.lock().unwrap();
    if first.contains("agent-card.json") {
        let status = if inside.card.is_null() { "404 Not Found" } else { "200 OK" };
        return answer(&mut stream, status, &inside.card);
    }
    let asked: Value = serde_json::from_slice(&body).ok()?;
    let params = &asked["params"];
    let result = match asked["method"].as_str()? {
        "SendMessage" => {
            if inside.answers == Answers::AsksForLogin {
                return answer(&mut stream, "401 Unauthorized", &json!("who are you?"));
            }
            let mut message = params["message"].clone();
            message["authorization"] = authorization;
            inside.sent.push(message.clone());
            let words = match inside.answers {
                Answers::Echoes => format!("I got {}", message["authorization"]),
                Answers::Well | Answers::BreaksOff | Answers::AsksForLogin => {
                    "approved\u{202e} — which account?".to_owned()
                }
            };
            let asks = json!({"messageId": format!("q-{}", inside.sent.len()), "role": "ROLE_AGENT",
                "parts": [{"text": words}]});
            let state = if params["message"]["taskId"].is_null() { "INPUT_REQUIRED" } else { "COMPLETED" };
            let status = json!({"state": format!("TASK_STATE_{state}"), "message": asks});
            let id = format!("task-{}", inside.sent.len());
            let task = json!({"id": id, "contextId": message["contextId"], "status": status});
            inside.task = Some(task.clone());
            if inside.answers == Answers::BreaksOff {
                return None;
            }
            json!({"task": task})
        }
        "GetTask" => inside.task.clone()?,
        "ListTasks" if inside.lists => {
            let tasks: Vec<Value> = inside.task.iter().cloned().collect();
            json!({"tasks": tasks, "nextPageToken": "", "pageSize": 2, "totalSize": tasks.len()})
        }
        "CancelTask" => {
            inside.canceled += 1;
            inside.task.clone()?
        }
        _ => {
            let error = json!({"code": -32601, "message": "there is no such method"});
            return answer(
                &mut stream,
                "200 OK",
                &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}),
            );
        }
    };
    answer(&mut stream, "200 OK", &json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
}

fn answer(stream: &mut TcpStream, status: &str, body: &Value) -> Option<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}
