//! A receiver of webhooks: keeps what it got, and answers as the test wants, also badly.
//!
//! It outlives the server, so that nothing is lost when that is killed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mood {
    /// Takes it.
    Takes,
    /// Answers this status line.
    Says(String),
    /// Sends to another port.
    PointsTo(u16),
    /// Never answers.
    Hangs,
    /// Closes the connection.
    HangsUp,
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Got {
    /// Its headers, with lower-case names.
    pub headers: BTreeMap<String, String>,
    /// Its body as it came.
    pub text: String,
    /// Whether it was answered with 204.
    pub was_taken: bool,
}

impl Got {
    /// Its body.
    pub fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    /// What it is about: its `type`.
    pub fn kind(&self) -> String {
        self.body()["type"].as_str().unwrap().to_owned()
    }

    /// Its place in the log of its run.
    pub fn seq(&self) -> u64 {
        self.body()["data"]["event"]["seq"].as_u64().unwrap()
    }

    /// As Standard Webhooks says, written here once more.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let signed =
            format!("{}.{}.{}", self.headers["webhook-id"], self.headers["webhook-timestamp"], self.text);
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(signed.as_bytes());
        let wanted = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
        self.headers["webhook-signature"].split(' ').any(|one| one == wanted)
    }
}

/// A receiver of webhooks.
#[derive(Debug)]
pub struct Receiver {
    /// Its port on this machine.
    pub port: u16,
    got: Arc<Mutex<Vec<Got>>>,
    mood: Arc<Mutex<Mood>>,
}

impl Receiver {
    /// Listens, and answers like this.
    pub async fn new(mood: Mood) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (got, mood) = (Arc::new(Mutex::default()), Arc::new(Mutex::new(mood)));
        let receiver = Receiver { port, got: got.clone(), mood: mood.clone() };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, got.clone(), mood.clone()));
            }
        });
        receiver
    }

    /// Where webhooks are sent to.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// Answers like this from now on.
    pub fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Everything that came so far.
    pub fn all(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Waits until what came is as wanted.
    pub async fn until(&self, what: &str, is_wanted: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        let waiting = async {
            while !is_wanted(&self.all()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("waited for {what}; this came: {:#?}", self.all());
        }
        self.all()
    }

    /// Waits for the end of a run; everything that was taken of it, without repeats, in the order of arrival.
    pub async fn whole_story(&self, run: &str) -> Vec<Got> {
        let of_run = |got: &&Got| got.was_taken && got.body()["data"]["run"]["id"] == run;
        let is_over = |all: &[Got]| all.iter().filter(of_run).any(|got| got.kind() == "run.ended");
        let all = self.until("the end of the run", is_over).await;
        let mut story: Vec<Got> = Vec::new();
        for got in all.iter().filter(of_run) {
            if !story.iter().any(|known| known.headers["webhook-id"] == got.headers["webhook-id"]) {
                story.push(got.clone());
            }
        }
        story
    }
}

async fn answer(mut stream: TcpStream, got: Arc<Mutex<Vec<Got>>>, mood: Arc<Mutex<Mood>>) {
    let mut request = Vec::new();
    let (headers, text) = loop {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
            Ok(_) | Err(_) => return,
        }
        if let Some(whole) = whole(&request) {
            break whole;
        }
    };
    let mood = mood.lock().unwrap().clone();
    let was_taken = mood == Mood::Takes;
    got.lock().unwrap().push(Got { headers, text, was_taken });
    let (status, more) = match mood {
        Mood::Takes => ("204 No Content".to_owned(), String::new()),
        Mood::Says(status) => (status, String::new()),
        Mood::PointsTo(port) => {
            ("302 Found".to_owned(), format!("location: http://127.0.0.1:{port}/hook\r\n"))
        }
        Mood::Hangs => return std::future::pending().await,
        Mood::HangsUp => return,
    };
    let answer = format!("HTTP/1.1 {status}\r\n{more}content-length: 0\r\n\r\n");
    // Whoever was killed does not read it.
    let _ = stream.write_all(answer.as_bytes()).await;
}

fn whole(request: &[u8]) -> Option<(BTreeMap<String, String>, String)> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&request[..end]).ok()?, &request[end + 4..]);
    let headers: BTreeMap<String, String> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    // What is no text, such as protobuf, has signs in its place; the texts in it are there.
    (body.len() >= length).then(|| (headers, String::from_utf8_lossy(body).into_owned()))
}
