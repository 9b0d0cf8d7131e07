//! An MCP server of our own under `/mcp`: agents ask people for approvals and answers with four tools.
//!
//! The protocol is the official library's, both generations of it and without sessions, so that any node answers any request;
//! `tools.rs` has the tools and what their arguments mean. Each request for approval is a gate, as under `/api/v1/gates`: a client
//! that gives up leaves it open, and an approval is handed out once.
//!
//! Below it, under `/mcp/{name}`, are MCP servers of others behind the policy (`gateway.rs`). `message.rs`, `profile.rs`, `ladder.rs` and
//! `tasks.rs` are what the gateway shares with the proxy of the command line; `generation.rs` is for the gateway alone.

mod gateway;
mod generation;
pub mod ladder;
pub mod message;
pub mod profile;
#[cfg(test)]
mod strangers;
pub mod tasks;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::any;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, InitializeResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use standfast_core::hold::OnTimeout;
use standfast_core::id::RunId;
use standfast_core::message::ToolResult;
use standfast_core::policy::Effect;
use standfast_core::time::Millis;
use standfast_core::trace::TraceContext;
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::request_context::{self, Channel};
use standfast_engine::traces::Traces;
use standfast_engine::{EngineError, GateError, GateState, GateView, LookedUpGate, NewGate, OpenedGate};

use self::tools::{PersonRequest, ToolRequest};
use crate::http::{App, gate_problem, gate_text, gate_url, gate_value, refusal, site};

/// Where it is; the door knows it too.
const PATH: &str = "/mcp";

/// How long a call waits for a person whose client does not follow progress, and whose client does.
const BUDGETS: [Millis; 2] = [Millis::seconds(45), Millis::seconds(240)];

/// How often a client that follows progress hears that the call still waits.
const STRETCH: Millis = Millis::seconds(10);

/// How long what was approved may take before a person is asked what became of it.
const LEASE: Millis = Millis::hours(24);

/// How often the same call may be approved in one conversation.
const REPEATS: u32 = 1_000;

/// The routes.
pub fn routes() -> Router<App> {
    Router::new().route(PATH, any(serve)).merge(gateway::routes())
}

/// One request of the protocol. The door has looked at hosts, origins and who it is.
async fn serve(State(app): State<App>, request: Request) -> Response {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(Some(Duration::from_secs(15)))
        .with_max_request_body_bytes(app.engine.fixed().max_body);
    let desk = Desk { app };
    let service = StreamableHttpService::new(
        move || Ok(desk.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    service.handle(request).await.map(HttpBody::new)
}

/// Where agents ask.
#[derive(Clone)]
struct Desk {
    app: App,
}

/// Who asks, and where people reach this server.
struct Caller {
    who: Principal,
    site: String,
}

impl ServerHandler for Desk {
    fn get_info(&self) -> InitializeResult {
        let info = Implementation::new("standfast", env!("CARGO_PKG_VERSION")).with_title("Standfast");
        let mut about = InitializeResult::new(ServerCapabilities::builder().enable_tools().build());
        about.server_info = info;
        about.instructions = Some(tools::INSTRUCTIONS.to_owned());
        about
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let traces = self.app.engine.fixed().traces.as_ref();
        // The library answers in a task of its own, which knows nothing of the request around it.
        let span = context.extensions.get::<Parts>();
        let span = span.and_then(|parts| parts.extensions.get::<TraceContext>().copied());
        let around = request_context::RequestContext { channel: Channel::Mcp, span };
        let named = context.meta.0.0.get("traceparent").and_then(Value::as_str);
        let named = named.and_then(|text| text.parse().ok());
        let answering = self.answer(request, context);
        let answering = Traces::continued(traces, "tools/call", named, answering);
        request_context::within(around, answering).await
    }
}

impl Desk {
    async fn answer(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let wish = ToolRequest::read(&request).map_err(|why| ErrorData::invalid_params(why, None))?;
        let caller = self.caller(&context)?;
        let done = match wish {
            ToolRequest::Ask(asked) => self.ask(&caller, asked, &context).await,
            ToolRequest::Look(gate) => self.look(&caller, gate, &context).await,
            ToolRequest::Report(gate, outcome) => {
                let reported = self.app.engine.gates().report(&caller.who, gate, None, outcome, None).await;
                match reported {
                    Ok(()) => self.view(&caller, gate).await.map(Some),
                    Err(error) => Err(gate_problem(gate, &error).detail),
                }
            }
            ToolRequest::Check(asked) => return Ok(self.check(&caller, &asked).into()),
        };
        let result = match done {
            Ok(Some(view)) => shown(&view, &caller.site),
            // Nobody waits for the answer any more.
            Ok(None) => CallToolResult::error(vec![ContentBlock::text("cancelled; the request stays open")]),
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        };
        Ok(result.into())
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let who = parts.and_then(|parts| parts.extensions.get::<Principal>().cloned());
        // The door lets nobody in without saying who they are.
        let (Some(parts), Some(who)) = (parts, who) else {
            return Err(ErrorData::internal_error("the caller is not known", None));
        };
        Ok(Caller { who, site: site(&self.app.engine, &parts.headers) })
    }

    /// What the rules say of a call; nobody is asked.
    fn check(&self, caller: &Caller, asked: &PersonRequest) -> CallToolResult {
        let gates = self.app.engine.gates();
        if !caller.who.has(Scope::GatesOpen) {
            let why = words(&EngineError::MissingScope(Scope::GatesOpen.into()));
            return CallToolResult::error(vec![ContentBlock::text(why)]);
        }
        let effect = gates.by_a_rule(&caller.who, &asked.tool, asked.arguments.text(), &asked.session);
        let (word, text) = match effect {
            Some(Effect::Allow) => ("allow", "a rule allows it without asking"),
            Some(Effect::Deny) => ("deny", "a rule forbids it"),
            Some(Effect::Hold) => ("hold", "a person has to approve it: call request_approval"),
            None => ("hold", "no rule is about it, so a person has to approve it: call request_approval"),
        };
        let mut result =
            CallToolResult::success(vec![ContentBlock::text(format!("{}: {text}.", asked.tool))]);
        result.structured_content = Some(json!({"tool": asked.tool.as_str(), "effect": word}));
        result
    }

    /// Opens a gate for a call or a question, or attaches to the one that waits, and waits as long as the client can.
    async fn ask(
        &self,
        caller: &Caller,
        asked: PersonRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<LookedUpGate>, String> {
        let gates = self.app.engine.gates();
        for no in 1..=REPEATS {
            let new = NewGate {
                tool: asked.tool.clone(),
                arguments: asked.arguments.clone(),
                schema: None,
                session: asked.session.clone(),
                call: format!("mcp#{no}"),
                message: asked.message(),
                deadline: None,
                on_deadline: OnTimeout::Deny,
                asks: Effect::Allow,
                question: asked.question.clone(),
                is_destructive: false,
            };
            let opened = gates.open(&caller.who, vec![new], None).await.map_err(|error| words(&error))?;
            let OpenedGate { gate, is_new } =
                opened.first().copied().ok_or_else(|| words(&EngineError::NotFound))?;
            let view = self.view(caller, gate).await?;
            // What a standing approval lets run is counted for one call.
            let is_counted =
                !is_new && view.decision.as_ref().is_some_and(|decision| decision.grant.is_some());
            let is_used_up = match view.state {
                GateState::Allowed if is_counted => true,
                GateState::Held | GateState::Allowed | GateState::Denied => false,
                // The same question has the same answer.
                GateState::Done => !view.is_question,
                GateState::Started
                | GateState::Withdrawn
                | GateState::Expired
                | GateState::OutcomeUnknown => true,
            };
            if !is_used_up {
                return self.follow(caller, view, context).await;
            }
        }
        Err(format!("the same was asked {REPEATS} times in this conversation; name another `session`"))
    }

    async fn look(
        &self,
        caller: &Caller,
        gate: RunId,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<LookedUpGate>, String> {
        let view = self.view(caller, gate).await?;
        self.follow(caller, view, context).await
    }

    async fn view(&self, caller: &Caller, gate: RunId) -> Result<LookedUpGate, String> {
        self.app.engine.gates().look(&caller.who, gate).await.map_err(|error| words(&error))
    }

    /// Waits for a decision, as long as the client waits for it and can; what was approved is handed out, once.
    async fn follow(
        &self,
        caller: &Caller,
        mut view: LookedUpGate,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<LookedUpGate>, String> {
        let (gates, clock) = (self.app.engine.gates(), self.app.engine.clock());
        let progress = context.meta.get_progress_token();
        let [plain, with_progress] = BUDGETS;
        let until = clock.now().plus(if progress.is_some() { with_progress } else { plain });
        let mut step = 0.0;
        while view.state == GateState::Held {
            let left = until.since(clock.now());
            if left.0 <= 0 || self.app.engine.is_stopping() {
                break;
            }
            if let Some(token) = &progress {
                step += 1.0;
                let at = gate_url(&view, &caller.site).map(|url| format!(": {url}")).unwrap_or_default();
                let waits = ProgressNotificationParam::new(token.clone(), step);
                let told = waits.with_message(format!("waiting for a person{at}"));
                // Whoever hears nothing waits all the same.
                drop(context.peer.notify_progress(told).await);
            }
            let stretch = if progress.is_some() { STRETCH.min(left) } else { left };
            tokio::select! {
                () = context.ct.cancelled() => return Ok(None),
                now = gates.decided(&caller.who, view.gate, stretch) => {
                    view = now.map_err(|error| words(&error))?;
                }
            }
        }
        if view.state == GateState::Allowed {
            match gates.start_on(&caller.who, &view, LEASE).await {
                Ok(_) => {}
                Err(GateError::Engine(error)) => return Err(words(&error)),
                // Somebody else got it, or the rules have become stricter: that is what is shown.
                Err(_) => view = self.view(caller, view.gate).await?,
            }
        }
        Ok(Some(view))
    }
}

fn words(error: &EngineError) -> String {
    refusal::problem(None, error).detail
}

/// A gate as a tool's result.
fn shown(view: &GateView, site: &str) -> CallToolResult {
    let mut text = gate_text(view, site);
    if view.state == GateState::Allowed {
        text.push_str(&format!(
            " When it is done, say what came of it: standfast_result with gate {} and a status.",
            view.gate
        ));
    } else if view.state == GateState::Held {
        text.push_str(&format!(" Or ask for it later: standfast_result with gate {}.", view.gate));
    }
    let mut facts = json!({
        "gate": view.gate.to_string(),
        "state": tools::state(view.state),
        "tool": view.tool.as_str(),
        "arguments": value(gate_value(&view.arguments).get()),
    });
    if let Some(url) = gate_url(view, site) {
        facts["url"] = url.into();
    }
    if let Some(ToolResult::Ok(result)) = &view.result {
        facts[if view.is_question { "answer" } else { "result" }] = value(gate_value(result).get());
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(facts);
    result
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}
