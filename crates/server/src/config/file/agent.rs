//! The section `agents`: who asks which model, with which tools, and what happens while a person decides.
//!
//! The effective mode and why is `mode.rs`.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use standfast_core::approver::Approver;
use standfast_engine::settings::HISTORY_TOKENS;

use super::policy::ScopedPolicy;
use super::server::a_second_or_more;
use super::store::Sql;
use super::values::{AfterGrace, OnDeny, OnTimeout, SelfApproval, Span, more_than_nothing};

/// An agent.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Agent {
    /// The name of a model below `llms`.
    pub llm: String,
    /// What the agent is for, in a sentence; shown to people and to other agents.
    #[garde(inner(length(min = 1)))]
    pub description: Option<String>,
    /// The system prompt. It is stored with each run, so keep secrets out of it.
    #[serde(default)]
    pub instructions: String,
    /// The tools it may call: names below `tools`, or built-in ones.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Agents that it may delegate work to: for each, the model is offered a tool `ask_NAME` of type `agent`, unless
    /// one of `tools` already does.
    #[serde(default)]
    pub sub_agents: Vec<String>,
    /// Where its sessions, runs and holds are stored: a name below `session_stores`. With it the agent is async by
    /// default.
    pub session_store: Option<String>,
    /// How its runs are tracked. Without this block no call can be held: a tool that requires approval is denied.
    #[garde(dive)]
    pub task: Option<Task>,
    /// Maximum number of model replies of a run; beyond it the run fails. The smaller of this and `server.limits.turns`
    /// applies.
    #[garde(inner(range(min = 1)))]
    pub max_turns: Option<u32>,
    /// About how many tokens of a session's earlier runs the model is sent with each new run of that session; 0 sends
    /// none. The newest come whole, older ones without tool calls, and what does not fit is left out.
    #[garde(inner(range(max = 1_000_000)))]
    #[schemars(extend("default" = HISTORY_TOKENS))]
    pub history_tokens: Option<u32>,
    /// Limits of one run; beyond them the run fails.
    #[garde(dive)]
    #[serde(default)]
    pub budget: Budget,
    /// The agent loop.
    #[garde(dive)]
    #[serde(default)]
    pub reasoning: Reasoning,
    /// When the contents of its ended runs are erased, instead of `server.retention.ended_runs`: earlier or later.
    #[garde(inner(custom(a_second_or_more)))]
    pub retention: Option<Span>,
    /// Who may decide: exactly those named, as `user:NAME` (or just the name), `group:NAME`, `role:NAME` or `owner`, the
    /// user who started the run. Without it the owner decides; an empty list means nobody.
    pub approvers: Option<Vec<String>>,
    /// Whether the user who started a run may decide its holds. The strictest of server, agent and tool wins.
    pub self_approval: Option<SelfApproval>,
    /// Rules for calls of this agent, in addition to those of the section `policy`.
    #[garde(dive)]
    pub policy: Option<ScopedPolicy>,
    /// The agent's A2A card.
    #[garde(dive)]
    #[serde(default)]
    pub a2a: A2a,
    /// Inboxes that it takes work from, by priority and age. In such runs the model can ask people with the tool `suspend`.
    #[serde(default)]
    pub inboxes: Vec<String>,
    /// The task types that it takes from its inboxes. Default: all.
    #[serde(default)]
    pub inbox_types: Vec<String>,
    /// Maximum number of concurrent inbox tasks on each node. A task that waits for a person does not count.
    #[garde(inner(range(min = 1, max = 10_000)))]
    #[schemars(extend("default" = Agent::MAX_CONCURRENT))]
    pub max_concurrent: Option<u32>,
}

impl Agent {
    /// How many tasks of inboxes an agent works on at once, unless it says otherwise (S4-30).
    pub const MAX_CONCURRENT: u32 = 1;
}

/// How an agent shows itself to A2A clients.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct A2a {
    /// Whether its card can also be read by clients of version 0.3. It then has members that strict readers of 1.0 do not
    /// know. The agent answers such clients in any case.
    #[schemars(extend("default" = false))]
    pub v03_card: Option<bool>,
    /// The skills on its card. Default: one skill, from the agent's name and `description`.
    #[garde(dive)]
    pub skills: Vec<Skill>,
    /// The media types that clients may send, such as `text/plain` or `image/*`. A part of another type is refused.
    /// Default: text, JSON and images.
    #[garde(inner(inner(custom(media_type))))]
    pub input_modes: Option<Vec<String>>,
    /// The media types of its responses. A client that accepts none of them is refused. Default: `text/plain` and
    /// `application/json`.
    #[garde(inner(inner(custom(media_type))))]
    pub output_modes: Option<Vec<String>>,
}

/// Something that an agent is good at, as its card says it.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Skill {
    /// Its id.
    #[garde(length(min = 1))]
    pub id: String,
    /// Its display name. Default: the id.
    pub name: Option<String>,
    /// What the skill is, in a sentence.
    #[garde(length(min = 1))]
    pub description: String,
    /// Tags for search.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Example requests.
    #[serde(default)]
    pub examples: Vec<String>,
}

fn media_type(text: &str, (): &()) -> garde::Result {
    let is_name = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
    match text.split_once('/') {
        Some((kind, rest)) if is_name(kind) && is_name(rest) => Ok(()),
        Some(_) | None => Err(garde::Error::new("must be a media type, such as text/plain or image/*")),
    }
}

/// What one run may use. The smaller of this and `server.limits` counts.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Budget {
    /// Tokens, input and output together.
    #[garde(inner(range(min = 1)))]
    pub tokens: Option<u64>,
    /// Cost, in the units of `llms.<name>.price`.
    #[garde(inner(range(min = 0.000001)))]
    pub cost: Option<f64>,
}

/// How runs are tracked.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Task {
    /// Where runs are stored when the agent has no `session_store`.
    #[schemars(extend("default" = "memory"))]
    pub backend: Option<TaskBackend>,
    /// For `backend: sql`: the database.
    #[garde(dive)]
    pub sql: Option<Sql>,
    /// Maximum number of concurrently executing runs. A held run takes no slot.
    #[garde(inner(range(min = 1, max = 10_000)))]
    #[schemars(extend("default" = Task::WORKER_POOL))]
    pub worker_pool: Option<u32>,
    /// How long a decision may take. Default: 600 seconds for a blocking agent, without limit for an async one.
    pub input_timeout: Option<Span>,
    /// Maximum execution time of a run: model requests and tool calls. Time on hold, on external jobs and in the queue
    /// does not count. Beyond it the run fails. Default: without limit.
    #[garde(inner(custom(more_than_nothing)))]
    pub timeout: Option<Span>,
    /// Human-in-the-loop settings.
    #[garde(dive)]
    pub hitl: Hitl,
}

impl Task {
    /// How many runs of an agent are worked on at once, unless it says otherwise.
    pub const WORKER_POOL: u32 = 5;
}

/// Where runs live without a `session_store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskBackend {
    /// In memory: a restart loses them.
    Memory,
    /// In the database of `task.sql`.
    Sql,
}

/// Human-in-the-loop settings.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Hitl {
    /// Whether held runs survive a restart.
    #[schemars(extend("default" = "auto"))]
    pub mode: Option<Mode>,
    /// What a denial does.
    #[schemars(extend("default" = "continue"))]
    pub on_deny: Option<OnDeny>,
    /// What happens when `input_timeout` passes without a decision.
    #[schemars(extend("default" = "fail"))]
    pub on_timeout: Option<OnTimeout>,
    /// With `on_timeout: keep`: how long a late decision is still accepted. Default: without limit.
    pub expiry_grace: Option<Span>,
    /// With `on_timeout: keep`: what happens when the grace period ends.
    #[schemars(extend("default" = "fail"))]
    pub after_grace: Option<AfterGrace>,
    /// After how long people are reminded of a hold, and again each time that long. Default: never.
    #[garde(inner(custom(more_than_nothing)))]
    pub remind_after: Option<Span>,
    /// How long before its deadline people are reminded of a hold once more. Default: never.
    #[garde(inner(custom(more_than_nothing)))]
    pub remind_before: Option<Span>,
    /// After how long those of `escalate_to` are asked as well; from then on they may decide too. Default: never.
    #[garde(inner(custom(more_than_nothing)))]
    pub escalate_after: Option<Span>,
    /// Who is asked as well after `escalate_after`: `user:NAME`, `group:NAME` or `role:NAME`.
    #[garde(inner(inner(custom(approver))))]
    pub escalate_to: Option<Vec<String>>,
    /// The hours in which `input_timeout`, `remind_after` and `escalate_after` are counted. Default: all hours.
    #[garde(inner(custom(some_hours)))]
    pub business_hours: Option<BusinessHours>,
    /// Whether one held call holds all calls of its reply. Otherwise the others run immediately. Default: true for runs
    /// that begin over Teal Agents, false for all others.
    pub hold_batch: Option<bool>,
}

/// When people work.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusinessHours {
    /// The time zone by its name, such as `Europe/Berlin`.
    pub time_zone: String,
    /// The hours of each day, from `mon` to `sun`, such as `["09:00-12:30", "13:00-17:00"]`. A day that is not named is free.
    pub days: BTreeMap<String, Vec<String>>,
    /// Days without work, such as `2026-12-25`.
    #[serde(default)]
    pub holidays: Vec<String>,
}

impl BusinessHours {
    /// The same as it is counted with; or what is wrong with it.
    pub fn counted(&self) -> Result<standfast_policy::hours::BusinessHours, String> {
        let value = serde_json::to_value(self).map_err(|error| error.to_string())?;
        let hours: standfast_policy::hours::BusinessHours =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        hours.misfit().map_or(Ok(hours), Err)
    }
}

pub(super) fn some_hours(hours: &BusinessHours, (): &()) -> garde::Result {
    hours.counted().map(drop).map_err(|why| garde::Error::new(format!("wrong: {why}")))
}

/// Whether a text names people who can be asked.
fn approver(text: &str, (): &()) -> garde::Result {
    match Approver::parse(text) {
        Ok(Approver::Owner) => {
            Err(garde::Error::new("wrong: the owner is asked already; name somebody else"))
        }
        Ok(Approver::User(_) | Approver::Group(_) | Approver::Role(_)) => Ok(()),
        Err(why) => Err(garde::Error::new(format!("wrong: {why}"))),
    }
}

/// Whether held runs survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Async with a `session_store`, blocking without one.
    #[default]
    Auto,
    /// For development: decisions within minutes, nothing that must survive a restart.
    Blocking,
    /// For production: a run waits for hours or weeks, through restarts. Needs a `session_store`.
    Async,
}

/// How an agent thinks.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Reasoning {
    /// The kind of loop.
    #[schemars(extend("default" = "chain_of_thought"))]
    pub engine: Option<Engine>,
    /// Whether clients get token streaming.
    #[schemars(extend("default" = true))]
    pub enable_streaming: Option<bool>,
    /// Whether the model's thinking is shown. It is neither stored nor shown, so `true` is refused.
    #[schemars(extend("default" = false))]
    pub show_thinking: Option<bool>,
}

/// The loop that an agent runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Model, tools, model, until the model calls no more tools.
    ChainOfThought,
}
