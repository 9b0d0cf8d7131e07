//! Tools of MCP servers: what a server offers, under names of our own, run and judged like any other tool.
//!
//! Directly before a call starts its server is asked what it offers now. A tool that is no longer described as the model
//! was told is held for a person, who is shown the difference (T3). An answer that is lost is an unknown outcome unless
//! the call may be repeated.

mod asks;
mod http;
pub mod login;
pub mod offer;
mod open;
pub mod passage;
mod result;
pub mod server;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::ToolSpec;
use standfast_core::hold::Ask;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::name::UserId;
use standfast_engine::tool::preview::Risk;
use standfast_engine::tool::{
    Invocation, LookupFuture, Nature, Outcome, SecretsFuture, Suspension, Tool, ToolChange, ToolFuture,
};

use self::offer::{Terms, difference};
use self::server::{Call, CallReply, McpServer, Trouble};

/// The rule of tools that are no longer described as the model was told; what they are described as now follows it.
pub const CHANGED_RULE: &str = "mcp:definition_changed";

/// The rule of tools whose server no longer says that they are harmless.
pub const ASKS_NOW_RULE: &str = "mcp:no_longer_harmless";

/// How often a server may ask to be called again without a person in between.
const ROUNDS: usize = 10;

/// How far calls of a tool may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpLimits {
    /// How long an answer may take.
    pub time: Duration,
    /// How many bytes of its text are kept.
    pub answer_bytes: usize,
    /// How long a call stays open for a person whom its server asks something, where it cannot be made again.
    pub question: Duration,
}

impl Default for McpLimits {
    fn default() -> McpLimits {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        McpLimits { time: minutes(2), answer_bytes: 1024 * 1024, question: minutes(10) }
    }
}

/// One tool of an MCP server.
pub struct McpTool {
    /// Its server.
    pub server: Arc<McpServer>,
    /// What the server calls it.
    pub tool: String,
    /// What the configuration says of it.
    pub terms: Terms,
    /// Whether the agent asks about it, by what its server said when the agent was made.
    pub asks: bool,
    /// How far calls go.
    pub limits: McpLimits,
}

impl Tool for McpTool {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (server, tool, limits) = (self.server.clone(), self.tool.clone(), self.limits);
        let terms = self.terms.clone();
        Box::pin(async move {
            let server = server.of_user(&invocation.owner).await;
            let Some(offer) = server.offer(&tool) else {
                let why = format!("not executed: the MCP server `{}` no longer offers {tool}", server.name());
                return failed(why);
            };
            let may_repeat = offer.spec(&terms).replay == Replay::Idempotent;
            let mut answers = match asks::answers(invocation.resumed.as_ref()) {
                Ok(answers) => answers,
                Err(why) => return failed(format!("not executed: the answer cannot be read: {why}")),
            };
            for _ in 0..ROUNDS {
                let call = Call {
                    id: invocation.call,
                    tool: &tool,
                    arguments: &invocation.arguments,
                    token: invocation.token(),
                    patience: limits.time,
                    waits: (!may_repeat).then_some(limits.question),
                    answers,
                };
                answers = match server.call(call).await {
                    Ok(CallReply::Answer(answer)) => {
                        return Outcome::Done(result::read(answer, limits.answer_bytes));
                    }
                    Ok(CallReply::Asks(pending)) => return Outcome::Pending(pending),
                    Ok(CallReply::Again(answers)) => answers,
                    Err(Trouble::NotSent(why)) => return failed(format!("not executed: {why}")),
                    Err(Trouble::Refused(why)) => return failed(why),
                    Err(Trouble::Login(challenge)) => {
                        let Some(desk) = server.desk() else { return login(server.name(), &challenge) };
                        let pending = desk.asks(invocation.pending, &invocation.owner).await;
                        return Outcome::Pending(Box::new(pending));
                    }
                    Err(Trouble::Lost(why)) if may_repeat => return failed(format!("no answer: {why}")),
                    Err(Trouble::Lost(why)) => return Outcome::Unknown(why),
                };
            }
            failed(format!("the MCP server `{}` asks for too many retries", server.name()))
        })
    }

    fn secrets(&self, invocation: &Invocation) -> Option<SecretsFuture> {
        let (server, owner) = (self.server.clone(), invocation.owner.clone());
        Some(Box::pin(async move { server.handed(Some(&owner)).await }))
    }

    fn look(&self, owner: &UserId) -> Option<LookupFuture> {
        let (server, owner) = (self.server.clone(), owner.clone());
        Some(Box::pin(async move {
            let server = server.of_user(&owner).await;
            if let Err(trouble) = server.look().await {
                tracing::warn!(
                    server = server.name(),
                    ?trouble,
                    "mcp: could not list the tools of the server"
                );
            }
        }))
    }

    /// What its server said of it when it was last asked; hints are not promises, and none is not a hint.
    fn risk(&self, _arguments: &str) -> Option<Risk> {
        self.server.offer(&self.tool)?.risk(&self.terms)
    }

    fn nature(&self) -> Nature<'_> {
        self.server.desk().map_or(Nature::Plain, |desk| Nature::Login(desk))
    }

    fn changed(&self, shown: &ToolSpec, owner: &UserId) -> Option<ToolChange> {
        let offer = self.server.known_of_user(owner).offer(&self.tool)?;
        let now = offer.spec(&self.terms);
        let server = self.server.name();
        if let Some(difference) = difference(shown, &now) {
            let digest = now.schema_digest().to_string();
            let rule = format!("{CHANGED_RULE}:{digest}:{:?}", now.replay).to_lowercase();
            let reason = format!(
                "the MCP server `{server}` has changed {} since the run started: {difference}",
                self.tool
            );
            return Some(ToolChange { rule, reason });
        }
        if offer.asks(&self.terms) && !self.asks {
            let reason =
                format!("the MCP server `{server}` no longer says that {} changes nothing", self.tool);
            return Some(ToolChange { rule: ASKS_NOW_RULE.to_owned(), reason });
        }
        None
    }
}

fn failed(why: String) -> Outcome {
    Outcome::Done(ToolResult::Failed(Body::text(why)))
}

/// The server did nothing and asks for a login; once there is one, the call is made again.
fn login(server: &str, challenge: &str) -> Outcome {
    let reason = match challenge {
        "" => format!("the MCP server `{server}` requires a login"),
        challenge => format!("the MCP server `{server}` requires a login: {challenge}"),
    };
    let question = "Give the server's entry below `tools` a header that it takes (or renew the one it has), then \
                    answer: the call is made again.";
    let ask = Ask { reason: Some(reason), question: Some(Body::text(question)), ..Ask::default() };
    Outcome::Pending(Box::new(Suspension { kind: SuspendFor::Auth, ask, timeout: None, secret: None }))
}
