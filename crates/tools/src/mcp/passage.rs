//! MCP servers as a gateway reaches them: messages pass as they are written, and nobody reads them here.
//!
//! What is sent along is what the configuration says and the login that the user has at the server; nothing of what the client
//! showed to this server. The tools of agents take another way (`server.rs`), where messages are understood.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use standfast_core::name::UserId;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::upstream::{
    ProgramLines, Upstream, UpstreamAddress, UpstreamError, UpstreamProgram, UpstreamRequest,
    UpstreamResponse,
};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::http;
use super::login::Desk;
use super::server::{Transport, sendable};
use super::wire::MESSAGE_BYTES;
use crate::child::own_program;
use crate::child::relay::{Relay, RelayOrder};

/// Lines on their way at most, in each direction.
const LINES: usize = 64;

/// How a gateway reaches the server at this place; in words why it cannot.
pub fn passage(name: &str, place: Transport) -> Result<Upstream, String> {
    match place {
        Transport::Program(order) => {
            Ok(Upstream::Program(Arc::new(ProgramPassage { name: name.to_owned(), order })))
        }
        Transport::Address { url, headers, desk } => {
            let url = Url::parse(&url).map_err(|error| format!("`{url}` is no address: {error}"))?;
            let secrets = Secrets::of_headers(headers.iter());
            let headers: HeaderMap = sendable(&headers)?.into_iter().collect();
            let client = http::client().build().map_err(|error| error.to_string())?;
            let name = name.to_owned();
            Ok(Upstream::Address(Arc::new(AddressPassage { name, client, url, headers, secrets, desk })))
        }
    }
}

/// A server at an address.
struct AddressPassage {
    name: String,
    client: Client,
    url: Url,
    /// What is sent with every request. Never listed or logged.
    headers: HeaderMap,
    /// What of them is secret.
    secrets: Secrets,
    desk: Option<Arc<Desk>>,
}

impl AddressPassage {
    async fn sent(&self, request: &UpstreamRequest, token: Option<&str>) -> Result<Response, UpstreamError> {
        let mut headers = request.headers.clone();
        if let Some(mut bearer) =
            token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok())
        {
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let sending = self.client.request(request.method.clone(), self.url.clone());
        let sending = sending.headers(headers).headers(self.headers.clone()).body(request.body.clone());
        sending.send().await.map_err(|error| {
            let is_connect = error.is_connect();
            let why = format!("the MCP server `{}`: {}", self.name, in_full(&error.without_url()));
            if is_connect { UpstreamError::NotSent(why) } else { UpstreamError::Lost(why) }
        })
    }

    /// The token of an account there, or another one for one that was not taken.
    async fn token(&self, account: &UserId, refused: Option<&str>) -> Result<Option<String>, UpstreamError> {
        let Some(desk) = &self.desk else { return Ok(None) };
        let token = match refused {
            Some(refused) => desk.renewed(account, refused).await,
            None => desk.token(account).await,
        };
        token.map_err(|error| {
            tracing::warn!(server = self.name, %error, "mcp: could not refresh a login");
            self.login_required("")
        })
    }

    fn login_required(&self, challenge: &str) -> UpstreamError {
        let said = if challenge.is_empty() { String::new() } else { format!(" ({challenge})") };
        UpstreamError::LoginRequired(format!("the MCP server `{}` requires a login{said}", self.name))
    }
}

impl UpstreamAddress for AddressPassage {
    fn send<'a>(
        &'a self,
        account: &'a UserId,
        request: UpstreamRequest,
    ) -> BoxFuture<'a, Result<UpstreamResponse, UpstreamError>> {
        Box::pin(async move {
            let token = self.token(account, None).await?;
            let mut response = self.sent(&request, token.as_deref()).await?;
            // Whoever says 401 has done nothing: a token that is not taken is renewed once.
            if response.status() == StatusCode::UNAUTHORIZED
                && let Some(refused) = token
                && let Some(renewed) = self.token(account, Some(&refused)).await?
            {
                response = self.sent(&request, Some(&renewed)).await?;
            }
            if response.status() == StatusCode::UNAUTHORIZED {
                let challenge = response.headers().get(WWW_AUTHENTICATE);
                let challenge = challenge.and_then(|said| said.to_str().ok()).unwrap_or_default().to_owned();
                if let Some(desk) = &self.desk {
                    desk.was_told(&challenge);
                }
                return Err(self.login_required(&challenge));
            }
            let (status, headers) = (response.status(), response.headers().clone());
            let name = self.name.clone();
            let body = response.bytes_stream().map(move |chunk| match chunk {
                Ok(chunk) => Ok(chunk.to_vec()),
                Err(error) => {
                    Err(UpstreamError::Lost(format!("the MCP server `{name}`: {}", error.without_url())))
                }
            });
            Ok(UpstreamResponse { status, headers, body: body.boxed() })
        })
    }

    fn secrets<'a>(&'a self, account: &'a UserId) -> BoxFuture<'a, Secrets> {
        Box::pin(async move {
            match &self.desk {
                Some(desk) => self.secrets.clone().and(Secrets::of(desk.known_secrets(account).await)),
                None => self.secrets.clone(),
            }
        })
    }
}

/// An error and what is below it.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A server that is a program.
struct ProgramPassage {
    name: String,
    order: RelayOrder,
}

impl UpstreamProgram for ProgramPassage {
    fn start(&self) -> Result<ProgramLines, UpstreamError> {
        let not_started = |error: std::io::Error| {
            let program = self.order.argv.first().map_or("", String::as_str);
            UpstreamError::NotSent(format!(
                "the MCP server `{}` ({program}) could not be started: {error}",
                self.name
            ))
        };
        let shim = own_program().map_err(not_started)?;
        let (relay, pipes) = Relay::start(&shim, &self.order).map_err(not_started)?;
        let (to, lines) = channel(LINES);
        let (said, from) = channel(LINES);
        // Both end with their pipes, which the relay closes when it is let go of.
        tokio::spawn(write_lines(pipes.stdin, lines));
        tokio::spawn(read_lines(pipes.stdout, said));
        Ok(ProgramLines { to, from, keeps: Box::new(relay) })
    }

    fn secrets(&self) -> Secrets {
        Secrets::of_variables(self.order.env.iter())
    }
}

async fn write_lines(mut stdin: ChildStdin, mut lines: Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        let written = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
}

async fn read_lines(stdout: ChildStdout, said: Sender<String>) {
    let mut source = BufReader::new(stdout);
    while let Some(line) = next_line(&mut source).await {
        if said.send(line).await.is_err() {
            return;
        }
    }
}

/// The next line; none at the end, and where one is too long or no text: then nothing more is believed.
async fn next_line(source: &mut BufReader<impl AsyncRead + Unpin>) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let chunk = source.fill_buf().await.ok()?;
        if chunk.is_empty() {
            return None;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
        let read = end.map_or(chunk.len(), |end| end + 1);
        source.consume(read);
        if line.len() > MESSAGE_BYTES {
            return None;
        }
        if end.is_some() {
            return String::from_utf8(line).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded_and_texts() {
        let mut source = BufReader::new("one\n\ntwo\nrest".as_bytes());
        assert_eq!(next_line(&mut source).await.as_deref(), Some("one"));
        assert_eq!(next_line(&mut source).await.as_deref(), Some(""));
        assert_eq!(next_line(&mut source).await.as_deref(), Some("two"));
        assert_eq!(next_line(&mut source).await, None, "a line that was cut off is none");
        let long = [vec![b'x'; MESSAGE_BYTES + 1], b"\nmore\n".to_vec()].concat();
        assert_eq!(next_line(&mut BufReader::new(long.as_slice())).await, None);
        assert_eq!(next_line(&mut BufReader::new(b"\xff\n".as_slice())).await, None);
    }
}
