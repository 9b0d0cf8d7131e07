//! A model provider on this machine: it answers one request after the other with prepared bytes, in pieces of any size, and
//! keeps what it got.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How an answer is sent.
#[derive(Debug, Clone)]
pub enum Pieces {
    /// At once.
    Whole,
    /// Byte by byte, each a piece of its own.
    Bytes,
    /// Cut off after so many bytes, without an end.
    Cut(usize),
    /// So many bytes, and the rest when somebody says so.
    Halts(usize, Signal),
    /// The headers, and then nothing for as long as anyone waits.
    Silence,
}

/// Something to wait for.
#[derive(Debug, Clone, Default)]
pub struct Signal(Arc<(Mutex<bool>, Condvar)>);

impl Signal {
    /// Lets whoever waits go on.
    pub fn give(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let given = self.0.0.lock().unwrap();
        let limit = Duration::from_secs(60);
        drop(self.0.1.wait_timeout_while(given, limit, |given| !*given).unwrap());
    }
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status line, without the version.
    pub status: &'static str,
    /// Its headers, each with its line end.
    pub headers: String,
    /// Its bytes.
    pub body: Vec<u8>,
    /// How they are sent.
    pub pieces: Pieces,
}

impl Answer {
    /// A stream of events.
    pub fn stream(body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            status: "200 OK",
            headers: "content-type: text/event-stream; charset=utf-8\r\n".into(),
            body: body.into(),
            pieces: Pieces::Whole,
        }
    }

    /// A refusal.
    pub fn error(status: &'static str, headers: &str, body: &str) -> Answer {
        let headers = format!("content-type: application/json\r\n{headers}");
        Answer { status, headers, body: body.as_bytes().to_vec(), pieces: Pieces::Whole }
    }

    /// The same, sent in another way.
    pub fn in_pieces(self, pieces: Pieces) -> Answer {
        Answer { pieces, ..self }
    }
}

/// Where it is, and what it got.
pub struct Fake {
    /// Where it listens.
    pub url: String,
    requests: Receiver<Request>,
}

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    /// Its first line and its headers.
    pub head: String,
    /// Its body.
    pub body: String,
}

impl Fake {
    /// Answers with these in turn; the last one again and again.
    pub fn answering(answers: Vec<Answer>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, requests) = channel();
        std::thread::spawn(move || {
            let last = answers.last().cloned();
            let mut answers = answers.into_iter();
            for stream in listener.incoming() {
                let Some(answer) = answers.next().or_else(|| last.clone()) else { return };
                let mut stream = stream.unwrap();
                let Some(request) = request(&mut stream) else { continue };
                if tell.send(request).is_err() {
                    return;
                }
                // Whoever has heard enough hangs up.
                std::thread::spawn(move || drop(send(&mut stream, &answer)));
            }
        });
        Fake { url, requests }
    }

    /// The next request; none when there is none for a while.
    pub fn request(&self) -> Option<Request> {
        self.requests.recv_timeout(Duration::from_secs(60)).ok()
    }

    /// The requests that are there by now.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

fn request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 8192];
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(Request { head, body: body.to_owned() });
        }
    }
}

fn send(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    write!(
        stream,
        "HTTP/1.1 {}\r\n{}transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        answer.status, answer.headers
    )?;
    let mut chunk = |bytes: &[u8]| {
        let mut text = format!("{:x}\r\n", bytes.len()).into_bytes();
        text.extend_from_slice(bytes);
        text.extend_from_slice(b"\r\n");
        stream.write_all(&text)
    };
    match &answer.pieces {
        Pieces::Whole => chunk(&answer.body)?,
        Pieces::Bytes => {
            for byte in &answer.body {
                chunk(std::slice::from_ref(byte))?;
            }
        }
        Pieces::Cut(after) => return chunk(&answer.body[..(*after).min(answer.body.len())]),
        Pieces::Halts(after, signal) => {
            chunk(&answer.body[..*after])?;
            signal.wait();
            chunk(&answer.body[*after..])?;
        }
        Pieces::Silence => {
            // Until the other side hangs up.
            let _ = stream.read(&mut [0]);
            return Ok(());
        }
    }
    stream.write_all(b"0\r\n\r\n")
}
