//! MCP servers behind a gateway: what the gateway asks of whoever reaches them, and the values that pass between them.
//!
//! Messages are texts here, as they were written: what they mean is the surface's business, how a server is reached and who is
//! logged in there that of the tools. A request of a client never brings its own credentials along.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use standfast_core::name::UserId;
use standfast_core::time::Millis;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::tool::login::LoginDesk;
use crate::tool::secrets::Secrets;

/// A gateway: the MCP server behind it, and how long calls wait there.
#[derive(Clone)]
pub struct Gateway {
    /// Its name: in its address, and in the names that rules know its tools by.
    pub name: String,
    /// The server behind it.
    pub upstream: Upstream,
    /// Where its users log in at the server, if it has such a place.
    pub desk: Option<Arc<dyn LoginDesk>>,
    /// How long a call waits for a decision, whatever the client can; none: as long as the client can.
    pub wait: Option<Millis>,
    /// Whether clients that know no sessions have one of ours at the server.
    pub gives_sessions: bool,
}

/// Where the server behind a gateway is.
#[derive(Clone)]
pub enum Upstream {
    /// At an address, over streamable HTTP.
    Address(Arc<dyn UpstreamAddress>),
    /// A program that is started, over its standard input and output.
    Program(Arc<dyn UpstreamProgram>),
}

/// A server at an address.
pub trait UpstreamAddress: Send + Sync {
    /// Sends a request, with the credentials that are configured and the login that is kept under this account.
    fn send<'a>(
        &'a self,
        account: &'a UserId,
        request: UpstreamRequest,
    ) -> BoxFuture<'a, Result<UpstreamResponse, UpstreamError>>;

    /// What it is given of ours and of this account's, and so must not be kept of what it says (T29).
    fn secrets<'a>(&'a self, account: &'a UserId) -> BoxFuture<'a, Secrets>;
}

/// A server that is a program.
pub trait UpstreamProgram: Send + Sync {
    /// Starts it once more.
    fn start(&self) -> Result<ProgramLines, UpstreamError>;

    /// What it is given of ours, and so must not be kept of what it says (T29).
    fn secrets(&self) -> Secrets;
}

/// A request to a server at an address.
#[derive(Debug, Clone)]
pub struct UpstreamRequest {
    /// The method.
    pub method: Method,
    /// The headers of the protocol; those of the connection and credentials are not among them.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

/// What a server at an address answers.
pub struct UpstreamResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it comes. Letting go of it ends the request.
    pub body: BoxStream<'static, Result<Vec<u8>, UpstreamError>>,
}

/// The two ends of a program. Letting go of them ends it.
pub struct ProgramLines {
    /// Lines for it.
    pub to: Sender<String>,
    /// Lines of it; none once it has ended.
    pub from: Receiver<String>,
    /// What must stay for as long as it runs.
    pub keeps: Box<dyn Any + Send + Sync>,
}

/// Why a server did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Nothing was sent.
    #[error("{0}")]
    NotSent(String),
    /// It asks for a login first, and did nothing.
    #[error("{0}")]
    LoginRequired(String),
    /// It was asked, and may have done anything.
    #[error("{0}")]
    Lost(String),
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gateway({})", self.name)
    }
}
