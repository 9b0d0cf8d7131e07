//! Asking a server over its native API: one request, one answer, one exit code.
//!
//! Knows addresses, statuses and pages, not what is asked. Whom https is spoken with is `trust.rs`, the server that is
//! asked when nobody names one `profile.rs`. A command makes the text that is printed; printing and exit codes are here.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use ureq::tls::TlsConfig;
use zeroize::Zeroize as _;

use super::plain::{Text, plain};
use super::{profile, trust};

/// How long to try to reach a server.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take that need not wait for anybody.
const SOON: Duration = Duration::from_secs(60);
/// The server that is asked when nobody names one.
const USUAL_SERVER: &str = "http://127.0.0.1:8080";
/// Items asked for at once; the server's largest page.
const PAGE: &str = "200";

/// What every command that asks a server takes.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Print the server's JSON response instead of text.
    #[arg(long)]
    json: bool,
    /// The URL of the server. Default: that of `standfast login`, else http://127.0.0.1:8080.
    #[arg(long, value_name = "URL", env = "STANDFAST_SERVER")]
    server: Option<String>,
    /// The API key. Prefer the environment variable: other users can read arguments.
    #[arg(long, value_name = "KEY", env = "STANDFAST_KEY", hide_env_values = true)]
    key: Option<Key>,
    /// A PEM file with authorities that the server's certificate may be from, beside those that this machine trusts.
    #[arg(long, value_name = "FILE", env = "STANDFAST_AUTHORITY")]
    authority: Option<PathBuf>,
}

impl ServerArgs {
    /// Whether the answer is for a person.
    pub(super) fn wants_text(&self) -> bool {
        !self.json
    }

    /// This server and no other.
    pub(super) fn for_server(server: String, key: Option<Key>, authority: Option<PathBuf>) -> ServerArgs {
        ServerArgs { json: true, server: Some(server), key, authority }
    }
}

/// An API key; not for the screen.
#[derive(Clone)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(text: String) -> Key {
        Key(text)
    }
}

impl std::str::FromStr for Key {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Key, Self::Err> {
        Ok(Key(text.trim().to_owned()))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why there is nothing to print.
#[derive(Debug)]
pub(super) enum Failure {
    /// The answer is no.
    Refused { said: String, body: String },
    /// The question could not be asked, or the answer not be read.
    CouldNotAsk(String),
}

/// How long an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    /// As long as a busy server may need.
    Usual,
    /// As long as the server wants.
    Any,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
}

/// A server that can be asked.
#[derive(Debug)]
pub(super) struct Server {
    base: String,
    key: Option<Key>,
    /// How https is spoken; none for a server that is asked without.
    tls: Option<TlsConfig>,
    pub(super) form: Form,
}

/// Asks, prints what came, and says how it went.
pub(super) fn ask(asking: &ServerArgs, command: impl FnOnce(&Server) -> Result<String, Failure>) -> ExitCode {
    let form = if asking.json { Form::Json } else { Form::Text };
    match Server::at(asking, form).and_then(|server| command(&server)) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(Failure::Refused { said, body }) => {
            eprintln!("standfast: {said}");
            match form {
                Form::Json => print(&body, ExitCode::FAILURE),
                Form::Text => ExitCode::FAILURE,
            }
        }
        Err(Failure::CouldNotAsk(why)) => {
            eprintln!("standfast: {why}");
            ExitCode::from(2)
        }
    }
}

/// Reads what a server said.
pub(super) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| {
        let why = plain(&error.to_string());
        Failure::CouldNotAsk(format!("the response is not from a Standfast server of this version: {why}"))
    })
}

/// The items of a list as one page, each as it came.
pub(super) fn joined(name: &str, items: &[Box<RawValue>]) -> String {
    let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
    format!(r#"{{"{name}":[{}],"next_cursor":null}}"#, items.join(","))
}

/// A part of a path or a query, as URLs write it.
pub(super) fn segment(text: &str) -> String {
    let mut written = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => written.push(byte.into()),
            other => written.push_str(&format!("%{other:02X}")),
        }
    }
    written
}

impl Server {
    pub(super) fn at(asking: &ServerArgs, form: Form) -> Result<Server, Failure> {
        let profile = profile::load().map_err(Failure::CouldNotAsk)?;
        let named = asking.server.clone().or_else(|| Some(profile.as_ref()?.server.clone()));
        let url = named.unwrap_or_else(|| USUAL_SERVER.to_owned());
        let base = url.trim_end_matches('/').to_owned();
        // What the profile says is for its own server only.
        let profile = profile.filter(|profile| profile.server == base);
        let key = asking.key.clone().or_else(|| profile.as_ref()?.key.clone().map(Key));
        let authority = asking.authority.clone().or_else(|| profile?.authority);
        let tls = match url.split_once("://") {
            Some(("http", rest)) if !rest.is_empty() => None,
            Some(("https", rest)) if !rest.is_empty() => {
                Some(trust::config(authority.as_deref()).map_err(Failure::CouldNotAsk)?)
            }
            Some(_) | None => {
                let why =
                    "not a server URL; write it like http://127.0.0.1:8080 or https://standfast.example.org";
                return Err(Failure::CouldNotAsk(format!("{}: {why}", plain(&url))));
            }
        };
        Ok(Server { base, key, tls, form })
    }

    /// The same without anything that says who asks: for whoever is about to sign in.
    pub(super) fn without_key(asking: &ServerArgs) -> Result<Server, Failure> {
        Ok(Server { key: None, ..Server::at(asking, Form::Json)? })
    }

    fn agent(&self, patience: Patience) -> ureq::Agent {
        agent(patience, self.tls.as_ref())
    }

    pub(super) fn get(&self, path: &str) -> Result<String, Failure> {
        let request = self.identified(self.agent(Patience::Usual).get(self.url(path)));
        self.answer(request.call(), "")
    }

    pub(super) fn post(&self, path: &str, body: &str, patience: Patience) -> Result<String, Failure> {
        let request = self.identified(self.agent(patience).post(self.url(path)));
        let request = request.header("content-type", "application/json");
        self.answer(request.send(body), "; the request may still have been processed, check before you retry")
    }

    pub(super) fn put(&self, path: &str, body: &str) -> Result<String, Failure> {
        let request = self.identified(self.agent(Patience::Usual).put(self.url(path)));
        let request = request.header("content-type", "application/json");
        self.answer(request.send(body), "; sending it again changes nothing twice")
    }

    pub(super) fn delete(&self, path: &str) -> Result<String, Failure> {
        let request = self.identified(self.agent(Patience::Usual).delete(self.url(path)));
        self.answer(request.call(), "")
    }

    /// Events as they come, from behind the one with this number.
    pub(super) fn stream(&self, path: &str, after: u64) -> Result<impl BufRead + use<>, Failure> {
        let request = self.agent(Patience::Any).get(self.url(path)).header("accept", "text/event-stream");
        let asked = self.identified(request).header("last-event-id", after.to_string()).call();
        match asked {
            Ok(response) if response.status().is_success() => {
                Ok(BufReader::new(response.into_body().into_reader()))
            }
            other => Err(match self.answer(other, "") {
                Err(failure) => failure,
                Ok(_) => Failure::CouldNotAsk(format!("{} does not stream", plain(&self.base))),
            }),
        }
    }

    /// Sends a message of the Model Context Protocol; what comes back, line by line, and whether that is a stream of events.
    pub(super) fn converse(
        &self,
        message: &str,
        headers: &[(&str, String)],
    ) -> Result<(bool, impl BufRead + use<>), Failure> {
        let mut request = self.identified(self.agent(Patience::Any).post(self.url("/mcp")));
        request = request.header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        match request.send(message) {
            Ok(response) if response.status().is_success() || is_rpc(&response) => {
                let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
                let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
                Ok((is_stream, BufReader::new(response.into_body().into_reader())))
            }
            other => Err(match self.answer(other, "") {
                Err(failure) => failure,
                Ok(_) => Failure::CouldNotAsk(format!("{} does not speak MCP", plain(&self.base))),
            }),
        }
    }

    /// Every item of a list, from all its pages, as they came.
    pub(super) fn list(
        &self,
        path: &str,
        only: &[(&str, &Option<String>)],
    ) -> Result<Vec<Box<RawValue>>, Failure> {
        let mut query = format!("limit={PAGE}");
        for (name, value) in only {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", segment(value)));
            }
        }
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let text = self.get(&format!("{path}?{query}{next}"))?;
            let page: Page = read(&text)?;
            items.extend(page.items);
            match page.next_cursor {
                Some(cursor) => next = format!("&cursor={}", segment(&cursor)),
                None => return Ok(items),
            }
        }
    }

    /// A request that says who asks.
    fn identified<T>(&self, request: ureq::RequestBuilder<T>) -> ureq::RequestBuilder<T> {
        match &self.key {
            Some(Key(key)) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    fn url(&self, path: &str) -> String {
        // Beside the native API there is that of inboxes, hooks and MCP.
        let is_whole = path.starts_with("/api/") || path.starts_with("/hooks/") || path == "/mcp";
        let version = if is_whole { "" } else { "/api/v1" };
        format!("{}{version}{path}", self.base)
    }

    fn answer(
        &self,
        asked: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
        unsure: &str,
    ) -> Result<String, Failure> {
        let lost = |error: ureq::Error| {
            let (why, advice) = (plain(&error.to_string()), advice(&self.base, &error));
            Failure::CouldNotAsk(format!("no response from {}: {why}{unsure}{advice}", plain(&self.base)))
        };
        let mut response =
            asked.map_err(|error| if is_absent(&error) { self.absent(&error) } else { lost(error) })?;
        let status = response.status();
        let text = response.body_mut().with_config().read_to_string().map_err(lost)?;
        if status.is_success() {
            return Ok(text);
        }
        let Ok(problem) = serde_json::from_str::<Problem>(&text) else {
            let base = plain(&self.base);
            return Err(Failure::CouldNotAsk(format!(
                "{base} answered {status}, which is not a Standfast response"
            )));
        };
        let said = problem.to_string();
        if status.is_client_error() {
            Err(Failure::Refused { said, body: text })
        } else {
            Err(Failure::CouldNotAsk(said))
        }
    }

    fn absent(&self, error: &ureq::Error) -> Failure {
        let address = self.base.strip_prefix("http://").unwrap_or_default();
        let start = match address.parse::<SocketAddr>() {
            Ok(address) => format!("standfast serve --listen {address}"),
            Err(_) => "standfast serve".to_owned(),
        };
        Failure::CouldNotAsk(format!(
            "no server answers at {}: {}\nstart one with `{start}`, or name another with --server URL or \
             STANDFAST_SERVER",
            plain(&self.base),
            plain(&error.to_string())
        ))
    }
}

/// Whether a no is one of the protocol, and not one of the door's.
fn is_rpc(response: &ureq::http::Response<ureq::Body>) -> bool {
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// A page of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(
        alias = "runs",
        alias = "holds",
        alias = "subscriptions",
        alias = "dead_letters",
        alias = "tasks"
    )]
    items: Vec<Box<RawValue>>,
    #[serde(alias = "nextCursor")]
    next_cursor: Option<String>,
}

/// What a server says with a no (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    detail: Text,
    digest: Option<Text>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.detail)?;
        match &self.digest {
            Some(digest) => write!(f, "\nthe digest is now {digest}"),
            None => Ok(()),
        }
    }
}

pub(super) fn agent(patience: Patience, tls: Option<&TlsConfig>) -> ureq::Agent {
    let limit = match patience {
        Patience::Usual => Some(SOON),
        Patience::Any => None,
    };
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        // What is pending here is nobody else's business, and a proxy could not reach this machine anyway.
        .proxy(None)
        .timeout_connect(Some(CONNECT))
        .timeout_global(limit);
    let config = match tls {
        Some(tls) => config.tls_config(tls.clone()),
        None => config,
    };
    config.build().into()
}

/// What helps where somebody is there and no request came about.
fn advice(base: &str, error: &ureq::Error) -> &'static str {
    if let ureq::Error::Io(error) = error
        && let Some(error) = error.get_ref()
        && matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
    {
        // The one that tools make when nobody says otherwise; its name is all that is known of this reason.
        if error.to_string().contains("CaUsedAsEndEntity") {
            return "\nthe server shows the certificate of an authority (CA:TRUE) as its own; make one with \
                    basicConstraints=critical,CA:FALSE, as the guide does (Authentication and authorization, TLS)";
        }
        return "\nname the authority that its certificate is from with --authority FILE or STANDFAST_AUTHORITY, and the server by a name \
                that the certificate has";
    }
    if base.starts_with("http://") && matches!(error, ureq::Error::Protocol(_)) {
        return "\nif the server speaks https, its address begins with https://";
    }
    ""
}

/// Nothing was asked, because nobody is there.
fn is_absent(error: &ureq::Error) -> bool {
    if let ureq::Error::Io(error) = error {
        return error.kind() == ErrorKind::ConnectionRefused;
    }
    matches!(
        error,
        ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
    )
}

fn print(text: &str, done: ExitCode) -> ExitCode {
    let mut out = std::io::stdout().lock();
    // A command that has said everything already says nothing more.
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Ok(()) => done,
        // Whoever read it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => done,
        Err(error) => {
            eprintln!("standfast: cannot print the response: {error}");
            ExitCode::from(2)
        }
    }
}
