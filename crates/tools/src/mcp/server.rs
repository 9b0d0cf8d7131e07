//! One MCP server: connected when it is needed, connected again when it has died, asked what it offers before calls.
//!
//! Nothing here decides what a lost answer means; it only tells what was never sent from what was. A server that runs
//! as a program ends with this process, however this process ends (`child/relay.rs`).

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ClientRequest,
    ContentBlock, ElicitationCapability, FormElicitationCapability, Implementation, JsonObject,
    ListToolsRequest, PaginatedRequestParams, ProtocolVersion, RequestMetaObject, ServerResult,
    UrlElicitationCapability,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use rmcp::{RoleClient, ServiceError};
use standfast_core::id::CallId;
use standfast_core::json::RawJson;
use standfast_core::name::UserId;
use standfast_engine::request_context;
use standfast_engine::tool::Suspension;
use standfast_engine::tool::login::NoLogin;
use standfast_engine::tool::secrets::Secrets;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::asks::{Answers, NextStep, next, pending_open};
use super::http::BoundedSender;
use super::login::Desk;
use super::offer::Offer;
use super::open::{CallProgress, OpenCall, ParkedCalls, Side, Talk};
use super::wire::{Allowance, ProcessPipes, RawArguments};
use crate::child::own_program;
use crate::child::relay::{Relay, RelayOrder};

/// How long a server may take until it can be asked something.
const CONNECT: Duration = Duration::from_secs(45);

/// How long it may take to say what it offers.
const LIST: Duration = Duration::from_secs(15);

/// How many tools a server may offer, and in how many pages.
const TOOLS: usize = 512;
const PAGES: usize = 64;

/// Users of a server whose connections are kept.
const USERS: usize = 256;

/// The member of a request's `_meta` that names this one start of a call, for servers that want to fence by it.
const TOKEN_KEY: &str = "standfast/call";

/// How a server is reached.
#[derive(Clone)]
pub enum Transport {
    /// A program on this machine.
    Program(RelayOrder),
    /// An address.
    Address {
        /// The address.
        url: String,
        /// What is sent with every request. Never stored, listed or logged.
        headers: BTreeMap<String, String>,
        /// Where people log in there; none where the headers have to do.
        desk: Option<Arc<Desk>>,
    },
}

/// One call.
pub(super) struct Call<'a> {
    /// Which.
    pub(super) id: CallId,
    /// What the server calls the tool.
    pub(super) tool: &'a str,
    /// The argument text.
    pub(super) arguments: &'a str,
    /// Names this one start.
    pub(super) token: String,
    /// How long it may take.
    pub(super) patience: Duration,
    /// How long it stays open when its server asks a person something; none for a call that may be made twice.
    pub(super) waits: Option<Duration>,
    /// What people answered before.
    pub(super) answers: Answers,
}

/// What a server says to a call.
#[derive(Debug)]
pub(super) enum CallReply {
    /// It is done.
    Answer(CallToolResult),
    /// It needs something of a person first.
    Asks(Box<Suspension>),
    /// It wants to be called again with this.
    Again(Answers),
}

/// Why a server did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing was sent.
    NotSent(String),
    /// It asks for a login first, and did nothing; with what it said of that.
    Login(String),
    /// It answered that it cannot.
    Refused(String),
    /// It was asked, and may have done anything.
    Lost(String),
}

/// One MCP server.
pub struct McpServer {
    name: String,
    place: Transport,
    connection: Mutex<Option<Arc<Connection>>>,
    offers: RwLock<Offers>,
    parked: ParkedCalls,
    /// Whose login its requests carry; none: nobody's.
    user: Option<UserId>,
    /// The same server for users who are logged in.
    users: RwLock<HashMap<UserId, Arc<McpServer>>>,
}

/// What a server offers, by its own names, and why some of that cannot be taken.
type Offers = BTreeMap<String, Result<Offer, String>>;

fn offers_of(tools: &[rmcp::model::Tool]) -> Offers {
    tools.iter().map(|tool| (tool.name.to_string(), Offer::read(tool))).collect()
}

/// Tools without secrets that their server was given and repeats.
fn without(tools: Vec<rmcp::model::Tool>, secrets: &Secrets) -> Vec<rmcp::model::Tool> {
    let cut = |tool: rmcp::model::Tool| {
        let said = serde_json::to_string(&tool).ok().and_then(|text| RawJson::parse(&text).ok());
        let clean =
            said.clone().map(|said| secrets.cut_json(said)).filter(|clean| said.as_ref() != Some(clean));
        clean.and_then(|clean| serde_json::from_str(clean.text()).ok()).unwrap_or(tool)
    };
    tools.into_iter().map(cut).collect()
}

struct Connection {
    service: RunningService<RoleClient, Side>,
    program: Option<(Relay, Allowance)>,
}

impl Connection {
    /// Before it is asked something.
    fn peer(&self) -> &Peer<RoleClient> {
        if let Some((_, allowance)) = &self.program {
            allowance.renew();
        }
        self.service.peer()
    }

    fn is_over(&self) -> bool {
        self.service.is_closed()
            || self.service.peer().is_transport_closed()
            || self.program.as_ref().is_some_and(|(_, allowance)| allowance.is_used_up())
    }

    /// Why it has ended, as far as its program said so.
    fn last_words(&self) -> String {
        let Some((relay, allowance)) = &self.program else { return String::new() };
        match (allowance.is_used_up(), relay.last_words()) {
            (true, _) => ": it sent too much and was ended".to_owned(),
            (false, said) if said.is_empty() => String::new(),
            (false, said) => format!("; its last words: {said}"),
        }
    }
}

impl McpServer {
    /// A server that is not connected yet.
    #[must_use]
    pub fn new(name: &str, place: Transport) -> McpServer {
        McpServer {
            name: name.to_owned(),
            place,
            connection: Mutex::default(),
            offers: RwLock::default(),
            parked: ParkedCalls::default(),
            user: None,
            users: RwLock::default(),
        }
    }

    /// What the configuration calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where people log in there.
    #[must_use]
    pub fn desk(&self) -> Option<Arc<Desk>> {
        match &self.place {
            Transport::Program(_) => None,
            Transport::Address { desk, .. } => desk.clone(),
        }
    }

    /// What it gets with every request, and in its environment.
    pub(super) async fn handed(&self, user: Option<&UserId>) -> Secrets {
        match &self.place {
            Transport::Program(order) => Secrets::of_variables(order.env.iter()),
            Transport::Address { headers, desk, .. } => {
                let secrets = Secrets::of_headers(headers.iter());
                match (desk, user) {
                    (Some(desk), Some(user)) => secrets.and(Secrets::of(desk.known_secrets(user).await)),
                    (_, _) => secrets,
                }
            }
        }
    }

    /// This server with the login of a user, if they have one.
    pub async fn of_user(self: &Arc<McpServer>, user: &UserId) -> Arc<McpServer> {
        let Some(desk) = self.desk() else { return self.clone() };
        match desk.token(user).await {
            Ok(Some(_)) => {}
            Ok(None) => return self.clone(),
            // Asking there says what is wrong.
            Err(error) => {
                tracing::warn!(server = self.name, %user, %error, "mcp: could not use a stored login")
            }
        }
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= USERS && !users.contains_key(user) {
            users.clear();
        }
        users.entry(user.clone()).or_insert_with(|| Arc::new(self.for_user(user))).clone()
    }

    fn for_user(&self, user: &UserId) -> McpServer {
        let offers = RwLock::new(self.offers());
        McpServer { offers, user: Some(user.clone()), ..McpServer::new(&self.name, self.place.clone()) }
    }

    /// The same without asking whether they have one by now.
    #[must_use]
    pub fn known_of_user(self: &Arc<McpServer>, user: &UserId) -> Arc<McpServer> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.get(user).unwrap_or(self).clone()
    }

    /// Takes what it offered the last time that anybody could ask it. False when nobody ever could.
    pub async fn recalls_offers(&self) -> bool {
        let Some(desk) = self.desk() else { return false };
        let Some(tools) = desk.remembered().await else { return false };
        *self.offers.write().unwrap_or_else(PoisonError::into_inner) = offers_of(&tools);
        true
    }

    /// What it offered when it was last asked, and why some of that cannot be taken.
    #[must_use]
    pub fn offers(&self) -> Offers {
        self.offers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of its tools, as it was when it was last asked.
    #[must_use]
    pub fn offer(&self, tool: &str) -> Option<Offer> {
        let offers = self.offers.read().unwrap_or_else(PoisonError::into_inner);
        offers.get(tool).and_then(|offer| offer.clone().ok())
    }

    /// Asks what it offers now; connects if need be, also again when the connection turns out to be dead.
    pub async fn look(&self) -> Result<(), Trouble> {
        let is_new = self.connection.lock().await.as_ref().is_none_or(|known| known.is_over());
        let connection = self.connected().await?;
        let tools = match self.list(&connection).await {
            Ok(tools) => tools,
            Err(trouble @ (Trouble::Login(_) | Trouble::Refused(_))) => return Err(trouble),
            Err(trouble) if is_new => return Err(trouble),
            Err(_) => {
                self.give_up(&connection).await;
                self.list(&*self.connected().await?).await?
            }
        };
        // What tools say of themselves is stored with the agents that have them.
        let tools = without(tools, &self.handed(self.user.as_ref()).await);
        if let (Some(desk), Some(_)) = (self.desk(), &self.user) {
            desk.remember(&tools).await;
        }
        *self.offers.write().unwrap_or_else(PoisonError::into_inner) = offers_of(&tools);
        Ok(())
    }

    async fn list(&self, connection: &Connection) -> Result<Vec<rmcp::model::Tool>, Trouble> {
        let not_sent = |why: String| Trouble::NotSent(format!("{}{why}", self.unreachable()));
        let listing = async {
            let (mut offers, mut cursor) = (Vec::new(), None);
            for _ in 0..PAGES {
                let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
                let request = ListToolsRequest { params, ..ListToolsRequest::default() };
                // Not through the cache of the client: what counts is what the server says now.
                let answer = connection.peer().send_request(ClientRequest::ListToolsRequest(request)).await;
                let ServerResult::ListToolsResult(page) = answer? else {
                    return Err(ServiceError::UnexpectedResponse);
                };
                offers.extend(page.tools);
                cursor = page.next_cursor;
                if cursor.is_none() || offers.len() > TOOLS {
                    break;
                }
            }
            Ok(offers)
        };
        match timeout(LIST, listing).await {
            Ok(Ok(offers)) if offers.len() > TOOLS => {
                Err(Trouble::Refused(format!("{} offers more than {TOOLS} tools", self.told())))
            }
            Ok(Ok(offers)) => Ok(offers),
            Ok(Err(error)) => Err(match self.trouble(connection, error) {
                Trouble::Lost(why) => Trouble::NotSent(why),
                other @ (Trouble::NotSent(_) | Trouble::Login(_) | Trouble::Refused(_)) => other,
            }),
            Err(_) => Err(not_sent(format!(": it did not say within {} s what it offers", LIST.as_secs()))),
        }
    }

    /// Calls a tool and waits for its answer. Dropping the future tells the server that the call was canceled.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<CallReply, Trouble> {
        let (id, patience, waits) = (call.id, call.patience, call.waits);
        let mut is_late = false;
        let mut talk = if call.answers.is_awaited {
            let gone = "it waited for the answer in a call that is no longer open: this server was started again \
                            meanwhile, or another one has the call";
            let gone = || Trouble::Lost(format!("{}: {gone}", self.told()));
            let mut talk = self.parked.take(id).ok_or_else(gone)?;
            let answer = call.answers.answered.last().map(|last| last.value.clone());
            is_late = !talk.answer(answer.unwrap_or_default());
            talk
        } else {
            self.begin(call).await?
        };
        let answer = match talk.next().await {
            Some(CallProgress::Over(answer)) => *answer,
            Some(CallProgress::Asks(mut asked)) => {
                let waits = waits.filter(|_| asked.is_awaited());
                let (question, answered) = (asked.question.clone(), talk.call.answered());
                if waits.is_some() {
                    self.parked.put(id, talk, &mut asked);
                }
                return Ok(CallReply::Asks(Box::new(pending_open(&self.name, question, answered, waits))));
            }
            Some(CallProgress::TooLong) => {
                let why = format!("{}: no answer within {} s", self.told(), patience.as_secs_f32());
                return Err(Trouble::Lost(why));
            }
            None => return Err(Trouble::Lost(format!("{}: the call was abandoned", self.told()))),
        };
        let connection = self.connection.lock().await.clone();
        let trouble = |error| match &connection {
            Some(connection) => self.trouble(connection, error),
            None => Trouble::Lost(format!("{}: {error}", self.told())),
        };
        let answer = answer.map_err(trouble);
        if let Some(connection) = connection.filter(|connection| connection.is_over()) {
            self.give_up(&connection).await;
        }
        let cannot = |why| Trouble::Refused(format!("{} cannot go on: {why}", self.told()));
        let answer = answer?;
        if let ServerResult::CallToolResult(answer) = answer {
            return Ok(CallReply::Answer(if is_late { without_the_answer(answer) } else { answer }));
        }
        let ServerResult::InputRequiredResult(required) = answer else {
            return Err(Trouble::Lost(format!("{} answered with something else than a result", self.told())));
        };
        Ok(match next(&self.name, required).map_err(cannot)? {
            NextStep::Ask(pending) => CallReply::Asks(pending),
            NextStep::Again(answers) => CallReply::Again(answers),
        })
    }

    /// Sends a call.
    async fn begin(&self, call: Call<'_>) -> Result<Talk, Trouble> {
        let values: JsonObject = serde_json::from_str(call.arguments)
            .map_err(|error| Trouble::Refused(format!("the arguments must be a JSON object: {error}")))?;
        let connection = self.connected().await?;
        let Answers { responses, state, answered, .. } = call.answers;
        let mut params = CallToolRequestParams::new(call.tool.to_owned()).with_arguments(values);
        params.input_responses = responses;
        params.request_state = state;
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(RawArguments(call.arguments.to_owned()));
        let mut meta = RequestMetaObject::new();
        meta.0.0.insert(TOKEN_KEY.to_owned(), call.token.into());
        // As the protocol names it; where traces are off there is none.
        if let Some(span) = request_context::span() {
            meta.0.0.insert("traceparent".to_owned(), span.to_string().into());
        }
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let open = Arc::new(OpenCall::new(answered, call.waits));
        let listed = connection.service.service().list(open.clone());
        let sent = connection
            .peer()
            .send_cancellable_request(ClientRequest::CallToolRequest(request), options)
            .await;
        let handle = sent.map_err(|error| self.trouble(&connection, error))?;
        Ok(Talk::follow(open, handle, call.patience, (listed, connection)))
    }

    async fn connected(&self) -> Result<Arc<Connection>, Trouble> {
        let mut slot = self.connection.lock().await;
        if let Some(known) = slot.as_ref().filter(|known| !known.is_over()) {
            return Ok(known.clone());
        }
        *slot = None;
        let connection = Arc::new(self.connect().await?);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// A connection that is of no use any more. Calls that are still under way on it end when the last of them does.
    async fn give_up(&self, connection: &Arc<Connection>) {
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_some_and(|known| Arc::ptr_eq(known, connection)) {
            *slot = None;
        }
    }

    /// First in the newest protocol; a server that cannot make anything of that is asked in the older one.
    async fn connect(&self) -> Result<Connection, Trouble> {
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        match self.connect_in(newest).await {
            Err(Trouble::NotSent(_)) if matches!(self.place, Transport::Program(_)) => {
                self.connect_in(ClientLifecycleMode::Initialize).await
            }
            other => other,
        }
    }

    async fn connect_in(&self, mode: ClientLifecycleMode) -> Result<Connection, Trouble> {
        let not_sent = |why: String| Trouble::NotSent(format!("{}: {why}", self.unreachable()));
        let mut capabilities = ClientCapabilities::default();
        let forms = ElicitationCapability::new().with_form(FormElicitationCapability::new());
        capabilities.elicitation = Some(forms.with_url(UrlElicitationCapability::new()));
        let us = Implementation::new("standfast", env!("CARGO_PKG_VERSION"));
        let client = Side { config: ClientConfig::new(capabilities, us), open: Arc::default() };
        match &self.place {
            Transport::Program(order) => {
                let shim = own_program().map_err(|error| not_sent(error.to_string()))?;
                let (relay, pipes) =
                    Relay::start(&shim, order).map_err(|error| not_sent(error.to_string()))?;
                let allowance = Allowance::new();
                let piped = ProcessPipes::new(pipes.stdin, pipes.stdout, allowance.clone());
                let serving = timeout(CONNECT, client.serve_with_lifecycle(piped, mode)).await;
                let why = match serving {
                    Ok(Ok(service)) => {
                        return Ok(Connection { service, program: Some((relay, allowance)) });
                    }
                    Ok(Err(error)) => why_not(&error),
                    Err(_) => format!("it said nothing within {} s", CONNECT.as_secs()),
                };
                // What it has to say of its end may come after its end.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let said = relay.last_words();
                let refused = order.plan.as_ref().and_then(|plan| plan.explain(&said, [], &order.directory));
                let refused = refused.map(|refused| format!("; {refused}")).unwrap_or_default();
                match said {
                    said if said.is_empty() => Err(not_sent(why)),
                    said => Err(not_sent(format!("{why}; it said: {said}{refused}"))),
                }
            }
            Transport::Address { url, headers, desk } => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                config.custom_headers = sendable(headers).map_err(not_sent)?;
                let login = desk.clone().zip(self.user.clone());
                let sender = BoundedSender::new(login).map_err(|error| not_sent(error.to_string()))?;
                let transport = StreamableHttpClientTransport::with_client(sender, config);
                match timeout(CONNECT, client.serve_with_lifecycle(transport, mode)).await {
                    Ok(Ok(service)) => Ok(Connection { service, program: None }),
                    Ok(Err(error)) => Err(match login_of(&error) {
                        Some(challenge) => self.wants_login(challenge),
                        None => not_sent(why_not(&error)),
                    }),
                    Err(_) => Err(not_sent(format!("no answer within {} s", CONNECT.as_secs()))),
                }
            }
        }
    }

    fn trouble(&self, connection: &Connection, error: ServiceError) -> Trouble {
        if let ServiceError::McpError(error) = &error {
            return Trouble::Refused(format!("{} says: {}", self.told(), error.message));
        }
        if let ServiceError::TransportSend(sending) = &error {
            // What is above it names types of the client, and nobody needs those.
            let sending: &(dyn Error + 'static) = sending.error.as_ref();
            if let Some(challenge) = login_of(sending) {
                return self.wants_login(challenge);
            }
            let is_connect = causes(sending)
                .any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect));
            return if is_connect {
                Trouble::NotSent(format!("{}: {}", self.unreachable(), in_full(sending)))
            } else {
                Trouble::Lost(format!("{}: {}{}", self.told(), in_full(sending), connection.last_words()))
            };
        }
        Trouble::Lost(format!("{}: {}{}", self.told(), in_full(&error), connection.last_words()))
    }

    fn wants_login(&self, challenge: String) -> Trouble {
        if let Some(desk) = self.desk() {
            desk.was_told(&challenge);
        }
        Trouble::Login(challenge)
    }

    fn told(&self) -> String {
        format!("the MCP server `{}`", self.name)
    }

    fn unreachable(&self) -> String {
        let place = match &self.place {
            Transport::Program(order) => order.argv.join(" "),
            // Without what may be a secret in its query.
            Transport::Address { url, .. } => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
        };
        format!("{} ({place}) cannot be reached", self.told())
    }
}

impl Desk {
    /// Asks the server what it offers with the login of this user, and remembers it.
    pub async fn learn(self: &Arc<Desk>, user: &UserId) -> Result<(), NoLogin> {
        let (url, headers) = self.address();
        let place = Transport::Address { url, headers, desk: Some(self.clone()) };
        let server = McpServer::new(self.server(), place).for_user(user);
        server.look().await.map_err(|trouble| match trouble {
            Trouble::NotSent(why) | Trouble::Refused(why) | Trouble::Lost(why) => NoLogin(why),
            Trouble::Login(_) => NoLogin("the server does not take the login that it asked for".into()),
        })
    }
}

/// An answer that the server gave after it had been told that nobody answers its question.
fn without_the_answer(mut answer: CallToolResult) -> CallToolResult {
    let words =
        "The person's answer came after the server had stopped waiting for it. Without it, the server said:";
    answer.content.insert(0, ContentBlock::text(words));
    answer.is_error = Some(true);
    answer
}

pub(super) fn sendable(
    headers: &BTreeMap<String, String>,
) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let one = |(name, value): (&String, &String)| {
        let bad = |_| format!("the header {name:?} cannot be sent");
        let key = HeaderName::try_from(name.as_str()).map_err(|_| bad(()))?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| bad(()))?;
        value.set_sensitive(true);
        Ok((key, value))
    };
    headers.iter().map(one).collect()
}

/// An error and what is below it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        // This one shows what is below it and does not name it as its source.
        match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::Client(below)) => Some(below as &(dyn Error + 'static)),
            Some(_) | None => (*error).source(),
        }
    })
}

/// Why there is no connection, without the names of types.
fn why_not(error: &ClientInitializeError) -> String {
    if let ClientInitializeError::TransportError { error, .. } = error {
        return in_full(error.error.as_ref());
    }
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return why_not(fallback);
    }
    let is_closed = matches!(error, ClientInitializeError::ConnectionClosed(_));
    if is_closed { "it ended the connection".to_owned() } else { in_full(error) }
}

fn in_full(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

/// What a server said of the login that it asks for, if it does.
fn login_of(error: &(dyn Error + 'static)) -> Option<String> {
    causes(error).find_map(|cause| {
        let asked = cause.downcast_ref::<AuthRequiredError>();
        let asked = asked.or_else(|| match cause.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::AuthRequired(asked)) => Some(asked),
            Some(_) | None => None,
        });
        let asked = asked.or_else(|| match cause.downcast_ref::<ClientInitializeError>() {
            Some(ClientInitializeError::TransportError { error, .. }) => {
                causes(error.error.as_ref()).find_map(|cause| cause.downcast_ref::<AuthRequiredError>())
            }
            Some(_) | None => None,
        });
        asked.map(|asked| asked.www_authenticate_header.clone())
    })
}
