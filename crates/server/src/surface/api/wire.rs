//! The bodies of the native API, as clients write and read them.
//!
//! Nothing else uses these types. JSON that people decide on stays raw text; instants are RFC 3339.

use holdpoint_core::receipt::Receipt;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// What begins a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartRun {
    pub(super) input: Input,
    pub(super) session: Option<String>,
    #[serde(default)]
    pub(super) wait: Wait,
}

/// What a client says.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "input must be a text or {\"parts\": [{\"text\": \"…\"}]}")]
pub(super) enum Input {
    Text(String),
    Parts(InputParts),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputParts {
    pub(super) parts: Vec<InputPart>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputPart {
    pub(super) text: String,
}

/// How long the answer waits.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wait {
    /// Until the run is durable.
    #[default]
    Accepted,
    /// Until it waits for somebody or is over.
    Settled,
}

/// A further message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendMessage {
    pub(super) input: Input,
    pub(super) on_hold: Option<OnHold>,
}

/// What a message does to a run that waits for a person.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnHold {
    Supersede,
}

/// What stops a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelRun {
    pub(super) reason: Option<String>,
}

/// A decision.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveHold {
    pub(super) resolution: ResolutionWord,
    pub(super) reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) arguments: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "given")]
    pub(super) value: Option<Box<RawValue>>,
    pub(super) digest: Option<String>,
    pub(super) revision: Option<u32>,
    #[serde(default)]
    pub(super) wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResolutionWord {
    Approve,
    Deny,
    Answer,
    Fail,
}

/// Which runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunsArgs {
    pub(super) agent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// Which holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldsArgs {
    #[expect(dead_code, reason = "only open holds are listed; naming anything else is an error")]
    pub(super) state: Option<ListedState>,
    pub(super) kind: Option<HoldKindWord>,
    pub(super) agent: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) session: Option<String>,
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListedState {
    Open,
}

/// From where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsArgs {
    pub(super) after: Option<u64>,
}

/// The agents.
#[derive(Debug, Serialize)]
pub(super) struct Agents {
    pub(super) agents: Vec<AgentBody>,
}

#[derive(Debug, Serialize)]
pub(super) struct AgentBody {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) definition: String,
    pub(super) tools: Vec<ToolBody>,
}

#[derive(Debug, Serialize)]
pub(super) struct ToolBody {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) needs_approval: bool,
    pub(super) reversible: bool,
}

/// A page of runs.
#[derive(Debug, Serialize)]
pub(super) struct Runs {
    pub(super) runs: Vec<RunBody>,
    pub(super) next_cursor: Option<String>,
}

/// A run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct RunBody {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) owner: String,
    pub(super) status: RunStatus,
    /// What a held run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting_for: Option<WaitingWord>,
    /// When a model that failed is asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_at: Option<String>,
    pub(super) started_at: String,
    pub(super) updated_at: String,
    /// The last event.
    pub(super) seq: u64,
    pub(super) turns: u32,
    pub(super) usage: UsageBody,
    /// What is waited for.
    pub(super) holds: Vec<OpenHold>,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawText>>,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunStatus {
    Queued,
    Claimed,
    Working,
    Retrying,
    Held,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WaitingWord {
    Person,
    Auth,
    External,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct UsageBody {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cost_micros: u64,
}

/// A hold as its run lists it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct OpenHold {
    pub(super) id: String,
    pub(super) kind: HoldKindWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HoldKindWord {
    Approval,
    Input,
    External,
    Auth,
    Recovery,
}

/// A page of holds.
#[derive(Debug, Serialize)]
pub(super) struct Holds {
    pub(super) holds: Vec<HoldBody>,
    pub(super) next_cursor: Option<String>,
}

/// A hold as lists show it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct HoldBody {
    pub(super) id: String,
    pub(super) run: String,
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) kind: HoldKindWord,
    pub(super) state: HoldState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
    pub(super) revision: u32,
    pub(super) opened_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
    /// When it expired, if it was kept open all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expired_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assignee: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decided: Option<Decided>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HoldState {
    Open,
    Decided,
}

/// A decision on record.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Decided {
    pub(super) by: String,
    pub(super) at: String,
    pub(super) how: HowWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HowWord {
    Approved,
    Edited,
    Denied,
    Answered,
    Failed,
    Expired,
    Withdrawn,
    Superseded,
}

/// A hold with what people need to decide it.
#[derive(Debug, Serialize)]
pub(super) struct HoldDetail {
    #[serde(flatten)]
    pub(super) hold: HoldBody,
    /// The arguments, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<Box<RawText>>,
    /// The same as a text, for clients whose JSON loses digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) options: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer_schema: Option<Box<RawText>>,
}

/// What a decision came to.
#[derive(Debug, Serialize)]
pub(super) struct Resolved {
    pub(super) outcome: OutcomeWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) votes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) votes_needed: Option<u32>,
    pub(super) hold: HoldDetail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutcomeWord {
    /// It is decided.
    Decided,
    /// It had been decided so already, with the same key.
    Repeated,
    /// The vote counts, and more are needed.
    Voted,
    /// The arguments were changed and must be decided on again.
    Edited,
}

/// The receipt of a hold.
#[derive(Debug, Serialize)]
pub(super) struct ReceiptBody {
    pub(super) id: String,
    pub(super) run: String,
    pub(super) receipt: Receipt,
}

/// Events of a run.
#[derive(Debug, Serialize)]
pub(super) struct Events {
    pub(super) events: Vec<EventBody>,
}

/// An event.
#[derive(Debug, Serialize)]
pub(super) struct EventBody {
    pub(super) seq: u64,
    pub(super) at: String,
    pub(super) actor: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The hold that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<String>,
    /// What it says, as it is stored.
    pub(super) data: Box<RawText>,
}

/// JSON text that goes out as it is.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct RawText(pub(super) Box<RawValue>);

impl PartialEq for RawText {
    fn eq(&self, other: &RawText) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A member that is there counts as given, also when it is `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
