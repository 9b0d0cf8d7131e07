//! Requests to an MCP server over streamable HTTP: no redirects, no proxies, answers bounded in size.
//!
//! What the protocol means is `rmcp`'s business; this sends one message and hands back what came.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use standfast_core::name::UserId;
use standfast_engine::tool::login::NoLogin;

use super::login::Desk;
use super::wire::{MESSAGE_BYTES, text_of};

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

type Trouble = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// How servers are called: no redirects, no proxies, nothing sent twice.
pub(super) fn client() -> ClientBuilder {
    Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT)
        .user_agent(concat!("standfast/", env!("CARGO_PKG_VERSION")))
}

/// Sends messages.
#[derive(Clone)]
pub(super) struct BoundedSender {
    client: Client,
    /// Whose login goes with them.
    login: Option<(Arc<Desk>, UserId)>,
}

impl BoundedSender {
    pub(super) fn new(login: Option<(Arc<Desk>, UserId)>) -> reqwest::Result<BoundedSender> {
        Ok(BoundedSender { client: client().build()?, login })
    }

    /// Sends a request with the user's token. One that is not taken is renewed once: whoever says 401 has done nothing.
    async fn sent(&self, request: RequestBuilder) -> Result<Response, Trouble> {
        let Some((desk, user)) = &self.login else { return sent(request).await };
        let again = request.try_clone();
        let Some(token) = known(desk, desk.token(user).await)? else { return sent(request).await };
        match (sent(request.bearer_auth(&token)).await, again) {
            (Err(StreamableHttpError::AuthRequired(asked)), Some(again)) => {
                match known(desk, desk.renewed(user, &token).await)? {
                    Some(token) => sent(again.bearer_auth(token)).await,
                    None => Err(StreamableHttpError::AuthRequired(asked)),
                }
            }
            (other, _) => other,
        }
    }
}

/// A token that cannot be renewed just now is as good as none: nothing is sent, and a person is asked.
fn known(desk: &Desk, token: Result<Option<String>, NoLogin>) -> Result<Option<String>, Trouble> {
    token.map_err(|error| {
        tracing::warn!(server = desk.server(), %error, "mcp: could not refresh a login");
        StreamableHttpError::AuthRequired(AuthRequiredError::new(String::new()))
    })
}

impl StreamableHttpClient for BoundedSender {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Trouble> {
        let in_session = session.is_some();
        let request = self.client.post(uri.as_ref()).header(CONTENT_TYPE, JSON_MIME_TYPE);
        let request = with(request, session, token, headers).body(text_of(&message)?);
        let response = self.sent(request).await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let expects_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        if status.is_success() && !expects_answer {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = header(&response, HEADER_SESSION_ID);
        let form = header(&response, CONTENT_TYPE.as_str()).unwrap_or_default();
        if status.is_success() && form.starts_with(EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(events(response), session));
        }
        let body = bounded(response).await?;
        if !status.is_success() {
            return refused(&message, status, in_session, &body);
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, session)),
            Err(error) => Err(unexpected(format!("the response is not an MCP message: {error}"))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Trouble> {
        self.sent(with(self.client.delete(uri.as_ref()), Some(session), token, headers)).await.map(|_| ())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Trouble> {
        let mut request = with(self.client.get(uri.as_ref()), session, token, headers);
        if let Some(last_event) = last_event {
            request = request.header(HEADER_LAST_EVENT_ID, last_event);
        }
        let response = self.sent(request).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let form = header(&response, CONTENT_TYPE.as_str());
        match form.as_deref() {
            Some(form) if response.status().is_success() && form.starts_with(EVENT_STREAM_MIME_TYPE) => {
                Ok(events(response))
            }
            Some(_) | None => Err(StreamableHttpError::UnexpectedContentType(form)),
        }
    }
}

fn with(
    request: RequestBuilder,
    session: Option<Arc<str>>,
    token: Option<String>,
    headers: Headers,
) -> RequestBuilder {
    let mut request = request.header(ACCEPT, format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    match session {
        Some(session) => request.header(HEADER_SESSION_ID, session.as_ref()),
        None => request,
    }
}

async fn sent(request: RequestBuilder) -> Result<Response, Trouble> {
    let response = request.send().await.map_err(|error| StreamableHttpError::Client(error.without_url()))?;
    let challenge = header(&response, WWW_AUTHENTICATE.as_str()).unwrap_or_default();
    let wants_more = response.status() == StatusCode::FORBIDDEN && challenge.contains("insufficient_scope");
    if response.status() == StatusCode::UNAUTHORIZED || wants_more {
        return Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)));
    }
    Ok(response)
}

/// A refusal that is a message of the protocol is handed on as one. One that is not, and that answers the first
/// question of the newer protocol, means that the server speaks an older one.
fn refused(
    message: &ClientJsonRpcMessage,
    status: StatusCode,
    in_session: bool,
    body: &[u8],
) -> Result<StreamableHttpPostResponse, Trouble> {
    let said = match serde_json::from_slice::<ServerJsonRpcMessage>(body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        Ok(_) | Err(_) => None,
    };
    if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && status.is_client_error()
        && status != StatusCode::FORBIDDEN
        && !in_session
    {
        let error = said
            .map_or_else(|| ErrorData::invalid_request(format!("HTTP {status}"), None), |said| said.error);
        let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
        return Ok(StreamableHttpPostResponse::Json(answer, None));
    }
    match said {
        Some(said) if status != StatusCode::FORBIDDEN => {
            Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(said), None))
        }
        Some(_) | None => {
            let start: String = String::from_utf8_lossy(body).chars().take(200).collect();
            Err(unexpected(format!("HTTP {status}: {start}")))
        }
    }
}

fn unexpected(why: String) -> Trouble {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(why))
}

fn header(response: &Response, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}

/// The body, as long as it is not too long.
async fn bounded(mut response: Response) -> Result<Vec<u8>, Trouble> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(StreamableHttpError::Client)? {
        if body.len() + chunk.len() > MESSAGE_BYTES {
            return Err(unexpected(format!("the answer has more than {MESSAGE_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The events of an answer, all of them together bounded.
fn events(response: Response) -> Events {
    let mut read = 0;
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(std::io::Error::other)?;
        read += chunk.len();
        if read > 2 * MESSAGE_BYTES {
            Err(std::io::Error::other("the server sends too much"))
        } else {
            Ok(chunk)
        }
    });
    SseStream::from_bytes_stream(bytes).boxed()
}
