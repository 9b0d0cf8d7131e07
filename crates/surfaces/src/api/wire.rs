//! The bodies of the native API, as clients write and read them.
//!
//! Nothing else uses these types. JSON that people decide on stays raw text; instants are RFC 3339.

mod hold_detail;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use standfast_core::execution_state::ExecutionState;
use standfast_core::receipt::{CallEffect, Report};
use utoipa::{IntoParams, ToSchema};

pub(super) use super::grants::GrantToSave;
pub(super) use hold_detail::{DemandBody, DriftBody, FindingBody, HoldDetail, ParentRun};

/// A new run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"input": "Free some space", "session": "night shift", "wait": "settled"}))]
pub(super) struct StartRun {
    pub(super) input: Input,
    pub(super) session: Option<String>,
    #[serde(default)]
    pub(super) wait: Wait,
}

/// A message of a client.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "input must be a text or {\"parts\": [{\"text\": \"…\"}]}")]
pub(super) enum Input {
    Text(String),
    Parts(InputParts),
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InputParts {
    pub(super) parts: Vec<InputPart>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InputPart {
    pub(super) text: String,
}

/// When the response is sent.
#[derive(Debug, Clone, Copy, Default, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum Wait {
    /// When the run is durable.
    #[default]
    Accepted,
    /// When the run is held or has ended.
    Settled,
}

/// A further message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"input": "Only the old cache", "on_hold": "supersede"}))]
pub(super) struct SendMessage {
    pub(super) input: Input,
    pub(super) on_hold: Option<OnHold>,
}

/// What a message does to a run that waits for a person.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnHold {
    Supersede,
}

/// A cancellation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "no longer needed"}))]
pub(super) struct CancelRun {
    pub(super) reason: Option<String>,
}

/// A decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"resolution": "deny", "reason": "still needed"}))]
pub(super) struct ResolveHold {
    pub(super) resolution: ResolutionWord,
    pub(super) reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) arguments: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) value: Option<Box<RawValue>>,
    pub(super) digest: Option<String>,
    pub(super) revision: Option<u32>,
    /// With an approval: also approve further calls, by the rule that was shown.
    pub(super) grant: Option<GrantToSave>,
    #[serde(default)]
    pub(super) wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum ResolutionWord {
    Approve,
    Deny,
    Answer,
    Fail,
}

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsArgs {
    pub(super) agent: Option<String>,
    pub(super) session: Option<String>,
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// Which holds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HoldsArgs {
    /// `open` (the default), `decided` for everything that is not open, or the outcome: `approved`, `edited`, `denied`,
    /// `answered`, `failed`, `expired`, `withdrawn`, `superseded`.
    #[param(inline)]
    pub(super) state: Option<ListedState>,
    pub(super) kind: Option<HoldKindWord>,
    pub(super) agent: Option<String>,
    pub(super) tool: Option<String>,
    /// Of open holds.
    pub(super) session: Option<String>,
    /// Of open holds: text in what is asked.
    pub(super) q: Option<String>,
    /// Of open holds: who started the run.
    pub(super) owner: Option<String>,
    /// Of open holds: `read_only`, `reversible`, `destructive` or `unknown`.
    pub(super) risk: Option<String>,
    /// Of open holds: `passed`, `1h`, `24h`, `7d` or `none`.
    pub(super) deadline: Option<String>,
    /// Of open holds: `1` for those that the caller may decide and that are not assigned to somebody else.
    pub(super) mine: Option<String>,
    /// Of open holds: `age` (the default) or `deadline`.
    pub(super) sort: Option<String>,
    /// Of decided holds: who decided.
    pub(super) by: Option<String>,
    /// Of decided holds: decided on this day or at this instant, or later.
    pub(super) since: Option<String>,
    /// Of decided holds: decided before this day or instant.
    pub(super) until: Option<String>,
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListedState {
    Open,
    Decided,
    Approved,
    Edited,
    Denied,
    Answered,
    Failed,
    Expired,
    Withdrawn,
    Superseded,
}

/// From where on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsArgs {
    /// Only events after this one.
    #[param(format = "uint64")]
    pub(super) after: Option<u64>,
    /// Maximum number of events, up to 1000. Default: all. For JSON only.
    pub(super) limit: Option<usize>,
}

/// The agents.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Agents {
    pub(super) agents: Vec<AgentBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentBody {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) definition: String,
    pub(super) tools: Vec<ToolBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolBody {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) needs_approval: bool,
    pub(super) reversible: bool,
}

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Runs {
    pub(super) runs: Vec<RunBody>,
    pub(super) next_cursor: Option<String>,
}

/// A run.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct RunBody {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) owner: String,
    pub(super) status: RunStatus,
    /// Its rows are unreadable; fields may be empty.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) quarantined: bool,
    /// What a held run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting_for: Option<WaitingWord>,
    /// When the failed model request is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_at: Option<String>,
    pub(super) started_at: String,
    pub(super) updated_at: String,
    /// The last event.
    pub(super) seq: u64,
    pub(super) turns: u32,
    pub(super) usage: UsageBody,
    /// The kind of hold.
    pub(super) holds: Vec<OpenHold>,
    /// Open holds of its sub-runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) holds_below: Vec<OpenHold>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) result: Option<Box<RawText>>,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WaitingWord {
    Person,
    Auth,
    External,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct UsageBody {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cost_micros: u64,
}

/// A hold as its run lists it.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct OpenHold {
    pub(super) id: String,
    pub(super) kind: HoldKindWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum HoldKindWord {
    Approval,
    Input,
    External,
    Auth,
    Recovery,
}

/// What the server found when it started.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct RecoveryBody {
    pub(super) began_at: String,
    /// When the scan finished; null while it is running.
    pub(super) ended_at: Option<String>,
    /// Runs that wait for a person: a decision, an answer, a login.
    pub(super) waiting_for_person: u64,
    /// Runs that wait for external systems only.
    pub(super) waiting_for_outside: u64,
    /// Runs whose deadline passed while no server was running.
    pub(super) expired: u64,
    /// Runs that a crashed server was executing.
    pub(super) taken_over: u64,
    /// Runs with unreadable rows.
    pub(super) quarantined: u64,
}

/// A page of holds.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Holds {
    pub(super) holds: Vec<HoldBody>,
    pub(super) next_cursor: Option<String>,
}

/// A hold as lists show it.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
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
    /// When it expired, if it is still open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expired_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assignee: Option<String>,
    /// Too many are open: nobody is notified of it.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) muted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decided: Option<DecisionRecord>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum HoldState {
    Open,
    Decided,
}

/// A decision on record.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct DecisionRecord {
    pub(super) by: String,
    pub(super) at: String,
    pub(super) how: HowWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
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

/// The result of a decision.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DecisionResult {
    pub(super) outcome: OutcomeWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) votes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) votes_needed: Option<u32>,
    pub(super) hold: HoldDetail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutcomeWord {
    /// It is decided.
    Decided,
    /// It had been decided so already, with the same key.
    Repeated,
    /// The vote counts, and more are needed.
    Voted,
    /// The arguments were edited and need a new decision; votes so far are void.
    Edited,
    /// Who is asked, or until when, has changed.
    Changed,
}

/// The receipt of a hold.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReceiptBody {
    pub(super) id: String,
    pub(super) run: String,
    pub(super) receipt: ReceiptDetail,
}

/// What was shown, who decided, and what ran.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReceiptDetail {
    pub(super) hold: String,
    pub(super) kind: HoldKindWord,
    /// The call as it was proposed. Absent when the whole run waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<TimedBody>,
    /// What was shown, revision by revision.
    pub(super) shown: Vec<ShownBody>,
    /// The votes, if several are needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) votes: Vec<TimedBody>,
    /// Absent while the hold is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decision: Option<TimedBody>,
    /// Absent when the whole run waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<CallBody>,
    /// The events that it is made of.
    pub(super) events: Vec<u64>,
}

/// The receipt of a call.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallReceiptBody {
    pub(super) run: String,
    pub(super) call: u32,
    /// The receipt of the hold on which people were asked; absent where nobody was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<String>,
    /// The call as it was proposed, and the verdict of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<TimedBody>,
    /// What was shown, revision by revision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) shown: Vec<ShownBody>,
    /// The votes, if several are needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) votes: Vec<TimedBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decision: Option<TimedBody>,
    /// What became of it: each start with the rules and the standing approval that it ran by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<CallBody>,
    /// The events that it is made of.
    pub(super) events: Vec<u64>,
}

/// What people were asked to decide on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShownBody {
    /// The arguments as people saw them, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments_text: Option<String>,
    #[serde(flatten)]
    pub(super) rest: TimedBody,
}

/// What became of the call.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallBody {
    pub(super) no: u32,
    /// `executed`, `failed`, `not_executed`, `outcome_unknown`, `running` or `waiting`.
    #[schema(value_type = String)]
    pub(super) effect: CallEffect,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) attempts: Vec<TimedBody>,
    /// Who reported the effect, if an external worker ran the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) report: Option<Report>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) contradictions: Vec<TimedBody>,
}

/// Something on record: where in the chain, when, and what it says.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TimedBody {
    pub(super) seq: u64,
    pub(super) at: String,
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub(super) rest: BTreeMap<String, Box<RawValue>>,
}

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionsArgs {
    pub(super) agent: Option<String>,
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// Of which agent.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionArgs {
    /// Required if several agents have a session of this name.
    pub(super) agent: Option<String>,
    /// The owner of the session. Default: you.
    pub(super) owner: Option<String>,
}

/// Whose run is restored.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RestoreArgs {
    /// The owner of the run. Default: you.
    pub(super) owner: Option<String>,
}

/// How to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteSessionArgs {
    /// Required if several agents have a session of this name.
    pub(super) agent: Option<String>,
    /// The owner of the session. Default: you.
    pub(super) owner: Option<String>,
    /// Delete even if a call with side effects is running.
    pub(super) force: Option<bool>,
}

/// Changes of a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"metadata": {"team": "night", "ticket": null}}))]
pub(super) struct ChangeSession {
    /// Merged into the metadata; null removes a key.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub(super) metadata: BTreeMap<String, Box<RawValue>>,
}

/// A page of sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Sessions {
    pub(super) sessions: Vec<SessionBody>,
    pub(super) next_cursor: Option<String>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionBody {
    pub(super) id: String,
    pub(super) agent: String,
    /// The user whose runs are in it: the same name of another user is another session.
    pub(super) owner: String,
    pub(super) created_at: String,
    /// When its metadata last changed.
    pub(super) updated_at: String,
    /// It was deleted: it accepts no more runs, and the contents of its runs are erased.
    pub(super) closed: bool,
    /// The user's own, for them and administrators, and under `pending_executions` the runs that wait; lists have only the
    /// user's own.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub(super) metadata: BTreeMap<String, Box<RawValue>>,
    /// Where its runs are listed.
    pub(super) runs_url: String,
}

/// The result of a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeletedSession {
    /// Runs whose contents were erased.
    pub(super) erased: Vec<String>,
    /// Runs that cannot be read, and so not be erased either.
    pub(super) left: Vec<String>,
}

/// The state of a held run.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct ExecutionBody(pub(super) ExecutionState);

/// Events of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Events {
    pub(super) events: Vec<EventBody>,
    /// The `after` of the next page; null when there is no more now.
    pub(super) next: Option<u64>,
}

/// An event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventBody {
    pub(super) seq: u64,
    pub(super) at: String,
    pub(super) actor: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The hold that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<String>,
    /// Its data, as it is stored.
    #[schema(value_type = serde_json::Value)]
    pub(super) data: Box<RawText>,
}

/// A token delta of a reply; never stored.
#[derive(Debug, Serialize)]
pub(super) struct DeltaBody {
    pub(super) turn: u32,
    /// Counts the deltas of one attempt from 1.
    pub(super) no: u32,
    pub(super) text: String,
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

pub(in crate::api) fn is_false(word: &bool) -> bool {
    !*word
}

/// A member that is there counts as given, also when it is `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
