//! How a request reaches the server behind a gateway, and how its answers come back: over HTTP, or to a program.
//!
//! What is sent is decided elsewhere. Headers of the protocol go along with a request; credentials and whatever else belongs to the
//! client's connection do not.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;
use standfast_core::name::UserId;
use standfast_engine::auth::Principal;
use standfast_engine::tool::login::account;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::upstream::{UpstreamAddress, UpstreamError, UpstreamRequest, UpstreamResponse};
use tokio::sync::mpsc::{Receiver, channel};

use super::super::generation::NEWEST;
use super::frame::{Frame, FrameReader, MESSAGE_BYTES};
use super::given_sessions::SessionRoute;
use super::program::{Program, Replies};
use super::translate::TranslatedRoute;

/// Headers of a client that are the protocol's, beside those that begin with `mcp-`.
const ASKED: [HeaderName; 5] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Headers of a server that are the protocol's, beside those.
const ANSWERED: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CACHE_CONTROL, header::RETRY_AFTER, header::ALLOW];

/// The header that names a session.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What headers of arguments begin with.
pub(super) const PARAM: &str = "mcp-param-";

/// Messages on their way from a server that answers with a stream.
const FRAMES: usize = 16;

/// Where requests go.
#[derive(Clone)]
pub(super) enum UpstreamRoute {
    /// To an address, with these headers.
    Address(AddressRoute),
    /// To a program.
    Program(Arc<Program>),
    /// To a server without sessions, for a client that has one.
    Translated(TranslatedRoute),
    /// To a server with sessions, for a client that has none.
    Given(SessionRoute),
}

/// Requests to an address.
#[derive(Clone)]
pub(super) struct AddressRoute {
    pub(super) address: Arc<dyn UpstreamAddress>,
    /// Whose login goes with them.
    pub(super) account: UserId,
    pub(super) headers: HeaderMap,
}

/// What comes back.
pub(super) enum Reply {
    /// One body.
    Whole(WholeReply),
    /// Messages one by one.
    Frames(Frames),
}

/// One body, with its status.
#[derive(Debug)]
pub(super) struct WholeReply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

/// Messages one by one. Letting go of them ends the request.
pub(super) enum Frames {
    Stream(Receiver<Result<Frame, BrokenStream>>),
    Replies(Replies),
}

/// A stream that ended in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BrokenStream;

impl Frames {
    /// The next message; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, BrokenStream> {
        match self {
            Frames::Stream(frames) => frames.recv().await.transpose(),
            Frames::Replies(replies) => Ok(replies.next().await),
        }
    }
}

impl UpstreamRoute {
    /// Sends a request, and comes back when there is an answer to be read.
    pub(super) async fn ask(
        &self,
        line: &str,
        id: &RawValue,
        token: Option<&RawValue>,
    ) -> Result<Reply, UpstreamError> {
        match self {
            UpstreamRoute::Program(program) => {
                Ok(Reply::Frames(Frames::Replies(program.ask(line, id, token).await?)))
            }
            UpstreamRoute::Address(route) => route.ask(line).await,
            // It takes one of the other ways.
            UpstreamRoute::Translated(route) => route.ask(line, id).await,
            UpstreamRoute::Given(route) => route.ask(line, id, token).await,
        }
    }

    /// What the server was given that must not be kept of what it says.
    pub(super) async fn secrets(&self) -> Secrets {
        match self {
            UpstreamRoute::Program(program) => program.secrets.clone(),
            UpstreamRoute::Address(route) => route.known_secrets().await,
            UpstreamRoute::Translated(route) => route.secrets().await,
            UpstreamRoute::Given(route) => route.secrets().await,
        }
    }

    /// Whether arguments stand in headers as well, which would be others after an edit.
    pub(super) fn has_argument_headers(&self) -> bool {
        match self {
            // Whoever translates writes them anew.
            UpstreamRoute::Program(_) | UpstreamRoute::Translated(_) | UpstreamRoute::Given(_) => false,
            UpstreamRoute::Address(route) => {
                route.headers.keys().any(|name| name.as_str().starts_with(PARAM))
            }
        }
    }
}

impl AddressRoute {
    /// A request of a client, with what of its headers is the protocol's.
    pub(super) fn of(address: Arc<dyn UpstreamAddress>, who: &Principal, asked: &HeaderMap) -> AddressRoute {
        let account = account(&who.tenant, &who.user);
        AddressRoute { address, account, headers: protocol_headers(asked, &ASKED) }
    }

    /// The session at the server; none where it has none.
    pub(super) fn in_session(mut self, session: Option<&str>) -> AddressRoute {
        self.headers.remove(SESSION);
        if let Some(session) = session.and_then(|session| HeaderValue::try_from(session).ok()) {
            self.headers.insert(SESSION, session);
        }
        self
    }

    /// The headers of a request that this server makes by itself.
    pub(super) fn for_call(mut self, tool: &str) -> AddressRoute {
        let params: Vec<HeaderName> =
            self.headers.keys().filter(|name| name.as_str().starts_with(PARAM)).cloned().collect();
        params.into_iter().for_each(|name| drop(self.headers.remove(name)));
        self.headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
        self.headers.remove("mcp-name");
        if let Ok(name) = HeaderValue::try_from(tool) {
            self.headers.insert("mcp-name", name);
        }
        self
    }

    /// What the server was given that must not be kept of what it says.
    pub(super) async fn known_secrets(&self) -> Secrets {
        self.address.secrets(&self.account).await
    }

    /// The headers of requests in a session, in this version of the protocol where it is known.
    pub(super) fn for_session(mut self, version: Option<&str>) -> AddressRoute {
        let said = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", version.unwrap_or_default()),
        ];
        for (header, value) in said.into_iter().filter(|(_, value)| !value.is_empty()) {
            if let Ok(value) = HeaderValue::try_from(value) {
                self.headers.insert(header, value);
            }
        }
        self
    }

    /// The headers of a request to a server without sessions.
    pub(super) fn for_newest(
        mut self,
        method: &str,
        name: Option<&str>,
        arguments: &[(String, String)],
    ) -> AddressRoute {
        let is_other = |name: &HeaderName| name.as_str().starts_with("mcp-") || name == "last-event-id";
        let others: Vec<HeaderName> = self.headers.keys().filter(|name| is_other(name)).cloned().collect();
        others.into_iter().for_each(|name| drop(self.headers.remove(name)));
        let mut say = |header: &str, value: &str| {
            if let (Ok(header), Some(value)) = (HeaderName::try_from(header), encoded(value)) {
                self.headers.insert(header, value);
            }
        };
        say("accept", "application/json, text/event-stream");
        say("content-type", "application/json");
        say("mcp-protocol-version", NEWEST);
        say("mcp-method", method);
        if let Some(name) = name {
            say("mcp-name", name);
        }
        for (header, value) in arguments {
            say(&format!("{PARAM}{header}"), value);
        }
        self
    }

    /// Sends something, and hands back what comes as it is.
    pub(super) async fn send(
        &self,
        method: Method,
        body: Vec<u8>,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let request = UpstreamRequest { method, headers: self.headers.clone(), body };
        let mut response = self.address.send(&self.account, request).await?;
        response.headers = protocol_headers(&response.headers, &ANSWERED);
        Ok(response)
    }

    async fn ask(&self, line: &str) -> Result<Reply, UpstreamError> {
        let response = self.send(Method::POST, line.as_bytes().to_vec()).await?;
        if response.status.is_success() && is_stream(&response.headers) {
            return Ok(Reply::Frames(Frames::Stream(frames_of(response.body))));
        }
        Ok(Reply::Whole(whole(response).await?))
    }
}

/// A text as a header of the protocol: as it is, or in base64 where it is no plain text.
fn encoded(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        return HeaderValue::try_from(text).ok();
    }
    HeaderValue::try_from(format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
}

/// Whether an answer is a stream of events.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let form = headers.get(header::CONTENT_TYPE).and_then(|form| form.to_str().ok());
    form.is_some_and(|form| form.starts_with("text/event-stream"))
}

fn protocol_headers(all: &HeaderMap, named: &[HeaderName]) -> HeaderMap {
    let is_ours = |name: &HeaderName| name.as_str().starts_with("mcp-") || named.contains(name);
    all.iter().filter(|(name, _)| is_ours(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The whole of an answer, as long as it is not too long.
pub(super) async fn whole(response: UpstreamResponse) -> Result<WholeReply, UpstreamError> {
    let UpstreamResponse { status, headers, mut body } = response;
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        bytes.extend(chunk?);
        if bytes.len() > MESSAGE_BYTES {
            return Err(UpstreamError::Lost(format!("the answer has more than {MESSAGE_BYTES} bytes")));
        }
    }
    let text =
        String::from_utf8(bytes).map_err(|_| UpstreamError::Lost("the answer is not a text".to_owned()))?;
    Ok(WholeReply { status, headers, text })
}

/// The messages of a stream, until it ends or nobody reads them any more.
pub(super) fn frames_of(
    mut body: BoxStream<'static, Result<Vec<u8>, UpstreamError>>,
) -> Receiver<Result<Frame, BrokenStream>> {
    let (tell, frames) = channel(FRAMES);
    tokio::spawn(async move {
        let mut reader = FrameReader::default();
        loop {
            let chunk = tokio::select! {
                chunk = body.next() => chunk,
                () = tell.closed() => return,
            };
            let read = match chunk {
                None => return,
                Some(Ok(chunk)) => reader.read(&chunk).map_err(|_| BrokenStream),
                Some(Err(_)) => Err(BrokenStream),
            };
            let (read, is_over) = match read {
                Ok(read) => (read.into_iter().map(Ok).collect::<Vec<_>>(), false),
                Err(broken) => (vec![Err(broken)], true),
            };
            for frame in read {
                if tell.send(frame).await.is_err() {
                    return;
                }
            }
            if is_over {
                return;
            }
        }
    });
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_protocol_goes_along() {
        let all = [
            ("authorization", "Bearer secret"),
            ("cookie", "a=b"),
            ("host", "x"),
            ("x-forwarded-for", "1.2.3.4"),
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-param-region", "eu"),
            ("accept", "application/json"),
            ("last-event-id", "7"),
        ];
        let all: HeaderMap = all
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let kept = protocol_headers(&all, &ASKED);
        let mut names: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "last-event-id", "mcp-param-region", "mcp-protocol-version"]);
    }
}
