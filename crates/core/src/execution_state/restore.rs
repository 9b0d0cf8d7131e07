//! A run made of its execution state, for where the events themselves are not: the state of another server, a backup
//! that kept only the sessions (S0-18, S0-19).
//!
//! The log is rebuilt from the conversation. The outcome of a call is recorded by the events that carry it, and every call
//! that was open is held for a person, because a state does not say who had agreed to what. Every message keeps its place:
//! where the log of before had events of which the state says nothing, the new one says that the run was taken. Whatever
//! the new log does not say exactly as the state does is refused: nothing is restored by half.

use super::messages::{FileContent, Speaker, TurnCall, TurnMessage, TurnPart, TurnResult, body_of};
use super::{BadState, ExecutionState, execution_state};
use crate::actor::Actor;
use crate::apply;
use crate::body::Body;
use crate::command::Entropy;
use crate::decide::{Answer, Transition};
use crate::definition::{Definition, ToolSpec};
use crate::digest;
use crate::event::{
    AfterOrphan, CallFinished, CallOrphaned, CallStarted, Driver, Envelope, Event, HoldEdited, HoldOpened,
    HoldResolved, MessageReceived, ModelReplied, Outcome, RunClaimed, RunEnded, RunStarted,
};
use crate::hold::{Ask, EditedArguments, HoldKind, Resolution, Stakes};
use crate::id::{CallNo, HoldKey, Incarnation, MessageId, Seq};
use crate::json::RawJson;
use crate::message::{Message, Part, PolicyVerdict, Reply, ToolCall, ToolResult, Usage};
use crate::name::{RuleId, Tenant, UserId};
use crate::policy::{Effect, Role};
use crate::run::Run;
use crate::time::Timestamp;
use crate::transcript::ResultKind;

/// What a state does not say of its run.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// Whose run it is.
    pub tenant: Tenant,
    /// Who started it.
    pub owner: UserId,
    /// Who restores it.
    pub by: Actor,
    /// The agent that it is pinned to.
    pub definition: &'a Definition,
    /// When it is restored.
    pub at: Timestamp,
    /// Random bytes for the ids of its holds.
    pub entropy: Entropy,
}

/// Events of a restored log at most: it is one append.
const EVENTS_MAX: u64 = 65_536;

/// Why people are asked about a call of a restored run.
const WHY_ASKED: &str = "This run was restored from its execution state, which does not say what was decided of this call, nor \
whether it has run before. Look before you approve it.";

/// A run that was made of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredRun {
    /// The run: held, unless it had its last word.
    pub run: Run,
    /// Its log, rebuilt.
    pub events: Vec<Envelope>,
}

impl RestoredRun {
    /// What is appended for it, as the first link of the run.
    #[must_use]
    pub fn transition(&self) -> Transition {
        Transition {
            events: self.events.clone(),
            run: self.run.clone(),
            outcome: Ok(Answer::Done),
            cancel_children: Vec::new(),
        }
    }
}

impl ExecutionState {
    /// A run with this state.
    pub fn restore(&self, setting: &Setting<'_>) -> Result<RestoredRun, BadState> {
        let mut log = Log { state: self, setting, events: Vec::new(), heard: 0, replies: 0, drawn: 0 };
        log.write()?;
        let events = log.events;
        let folded = apply::fold(self.task_id, &events);
        let run = folded.ok_or_else(|| BadState::CannotBeRestored("it has no beginning".into()))?;
        let again = execution_state(&run, setting.definition, &events);
        match difference(self, &again) {
            Some(field) => {
                let why = format!("the run would have another {field}");
                Err(BadState::CannotBeRestored(why))
            }
            None => Ok(RestoredRun { run, events }),
        }
    }
}

/// The first field in which two states differ.
fn difference(wanted: &ExecutionState, made: &ExecutionState) -> Option<&'static str> {
    let (w, m) = (&wanted.reasoning_state, &made.reasoning_state);
    let pairs = [
        ("task_id", wanted.task_id == made.task_id),
        ("context_id", wanted.context_id == made.context_id),
        ("query", wanted.query == made.query),
        ("agent_name", w.agent_name == m.agent_name),
        ("sub_agents", w.sub_agents == m.sub_agents),
        ("show_thinking", w.show_thinking == m.show_thinking),
        ("history", wanted.history == made.history),
        ("current_turn", wanted.current_turn == made.current_turn),
        ("iteration", wanted.iteration == made.iteration),
        ("total_tokens", wanted.total_tokens == made.total_tokens),
        ("assistant_response", wanted.assistant_response == made.assistant_response),
        ("pending_tool_calls", wanted.pending_tool_calls == made.pending_tool_calls),
        ("first_iteration_tool_calls", w.first_iteration_tool_calls == m.first_iteration_tool_calls),
        ("final_response_added", w.final_response_added == m.final_response_added),
        ("reasoning_state", w == m),
        ("pending_tool_call", wanted == made),
    ];
    pairs.into_iter().find(|(_, is_equal)| !is_equal).map(|(field, _)| field)
}

/// The log as it grows.
struct Log<'a> {
    state: &'a ExecutionState,
    setting: &'a Setting<'a>,
    events: Vec<Envelope>,
    /// Messages of clients so far.
    heard: u32,
    /// Replies so far.
    replies: u32,
    drawn: u32,
}

impl Log<'_> {
    fn write(&mut self) -> Result<(), BadState> {
        let (state, setting) = (self.state, self.setting);
        self.push(Event::RunStarted(RunStarted {
            tenant: setting.tenant.clone(),
            agent: state.reasoning_state.agent_name.clone(),
            session: state.context_id.clone(),
            owner: setting.owner.clone(),
            driver: Driver::Loop,
            definition: setting.definition.digest(),
            parent: None,
            inbox: None,
            taken: true,
            history: None,
            origin: None,
        }));
        for message in state.history.iter().chain(&state.current_turn) {
            match (message.role, message.parts.as_slice()) {
                (Speaker::User, _) => self.heard(message)?,
                (Speaker::Agent, [TurnPart::Result(result)]) => self.came_to(result)?,
                (Speaker::Agent, _) => self.replied(message)?,
            }
        }
        for pending in &state.pending_tool_calls {
            self.waits(pending.id.no, &pending.arguments);
        }
        if state.reasoning_state.final_response_added {
            let ended = RunEnded { outcome: Outcome::Completed, reason: None, result: None };
            self.push(Event::RunEnded(ended));
        }
        Ok(())
    }

    fn push(&mut self, event: Event) {
        let seq = self.next();
        self.events.push(Envelope { seq, at: self.setting.at, actor: self.setting.by.clone(), event });
    }

    /// The place of the next event: there are no gaps in a log.
    fn next(&self) -> Seq {
        self.events.last().map_or(Seq(1), |last| last.seq.plus(1))
    }

    /// An event of a message, at the place that the message had.
    fn push_at(&mut self, seq: Seq, event: Event) -> Result<(), BadState> {
        if seq < self.next() || seq.0 > EVENTS_MAX {
            let why = format!("a message cannot stand at {seq} again; the next place is {}", self.next());
            return Err(BadState::CannotBeRestored(why));
        }
        while self.next() < seq {
            self.push(Event::RunClaimed(RunClaimed { claim: None, started: false }));
        }
        self.push(event);
        Ok(())
    }

    fn heard(&mut self, message: &TurnMessage) -> Result<(), BadState> {
        let seq = place(message)?;
        let ours = MessageId { run: self.state.task_id, seq }.to_string();
        let client_id = (message.message_id != ours).then(|| message.message_id.clone());
        let parts: Result<Vec<Part>, BadState> = message.parts.iter().map(said).collect();
        let message = Message { client_id, ..Message::of(parts?) };
        self.heard += 1;
        self.push_at(seq, Event::MessageReceived(MessageReceived { message }))
    }

    fn replied(&mut self, message: &TurnMessage) -> Result<(), BadState> {
        let seq = place(message)?;
        let mut reply = Reply {
            text: None,
            parts: Vec::new(),
            calls: Vec::new(),
            opaque: None,
            usage: self.usage(),
            model: None,
        };
        reply.model = message.metadata.as_ref().and_then(|place| place.model.clone());
        for part in &message.parts {
            match part {
                TurnPart::Text(text) => reply.text = Some(Body::text(text)),
                TurnPart::Opaque(json) => reply.opaque = Some(Body::Json(json.clone())),
                TurnPart::Call(call) => reply.calls.push(self.asked(call)),
                TurnPart::Data(_) | TurnPart::File { .. } | TurnPart::Result(_) => {
                    return Err(BadState::CannotBeRestored(format!(
                        "the reply {} has a part that no model says",
                        message.message_id
                    )));
                }
            }
        }
        self.replies += 1;
        self.push_at(seq, Event::ModelReplied(ModelReplied { reply, heard: self.heard, asked_with: None }))
    }

    /// A state has the sum only; the first reply gets it.
    fn usage(&self) -> Usage {
        let input = if self.replies == 0 { self.state.total_tokens } else { 0 };
        Usage { input, ..Usage::default() }
    }

    fn asked(&self, call: &TurnCall) -> ToolCall {
        let spec = self.setting.definition.tools.get(&call.name);
        let arguments = body_of(&call.arguments);
        let digest = match (&arguments, spec) {
            (Body::Json(json), Some(spec)) => {
                Some(digest::of_call(&call.name, json.text(), ToolSpec::schema_digest(spec)))
            }
            (Body::Json(_) | Body::Text(_) | Body::Blob(_), _) => None,
        };
        ToolCall {
            no: call.id.no,
            id: call.provider_id.clone(),
            tool: call.name.clone(),
            arguments,
            digest,
            replay: spec.map(|spec| spec.replay).unwrap_or_default(),
            judged: None,
            refused: self.refusal(call.id.no),
            files: Vec::new(),
        }
    }

    /// Why a call was answered without running, if its result says so.
    fn refusal(&self, no: CallNo) -> Option<String> {
        let messages = self.state.history.iter().chain(&self.state.current_turn);
        let mut results = messages.filter_map(|message| match message.parts.as_slice() {
            [TurnPart::Result(result)] if result.id.no == no => Some(result),
            _ => None,
        });
        let is_at_once =
            |result: &&TurnResult| result.status == ResultKind::Refused && !has_untold_start(&result.content);
        let result = results.next().filter(is_at_once)?;
        Some(reason(&result.content).unwrap_or_default())
    }

    /// The events that record the outcome of a call.
    fn came_to(&mut self, result: &TurnResult) -> Result<(), BadState> {
        let no = result.id.no;
        if let Some(arguments) = &result.ran_with {
            self.decided(no, HoldKind::Approval, self.approval(no, arguments), Some(Role::Owner));
        }
        if has_untold_start(&result.content) {
            self.started(no);
            let then = AfterOrphan::Retry;
            self.push(Event::CallOrphaned(CallOrphaned {
                call: no,
                attempt: 1,
                then,
                why: None,
                reconciled: None,
            }));
        }
        let why = reason(&result.content);
        let person = Some(Role::Owner);
        match result.status {
            ResultKind::Refused if has_untold_start(&result.content) => {
                let result = ToolResult::Failed(Body::text(why.unwrap_or_default()));
                let refused = Some(judged());
                self.push(Event::CallFinished(CallFinished { call: no, attempt: 0, result, refused }));
            }
            // The reply itself says so.
            ResultKind::Refused => {}
            ResultKind::Ok => self.finished(no, ToolResult::Ok(body_of(&result.content))),
            ResultKind::Failed => self.finished(no, ToolResult::Failed(body_of(&result.content))),
            ResultKind::Denied => {
                self.decided(no, HoldKind::Approval, Resolution::Deny { reason: why }, person);
            }
            ResultKind::DidNotHappen => {
                self.decided(no, HoldKind::Recovery, Resolution::Deny { reason: why }, person);
            }
            ResultKind::Expired => {
                let is_job = why.as_deref() == Some("Tool execution timed out");
                let kind = if is_job { HoldKind::External } else { HoldKind::Approval };
                self.decided(no, kind, Resolution::Expire, None);
            }
            ResultKind::Superseded => self.decided(no, HoldKind::Approval, Resolution::Supersede, None),
            ResultKind::Withdrawn => self.decided(no, HoldKind::External, Resolution::Withdraw, person),
            ResultKind::Canceled => self.decided(no, HoldKind::Approval, Resolution::Withdraw, None),
            ResultKind::Unknown => {
                self.started(no);
                let then = AfterOrphan::Unknown;
                self.push(Event::CallOrphaned(CallOrphaned {
                    call: no,
                    attempt: 1,
                    then,
                    why: None,
                    reconciled: None,
                }));
            }
        }
        Ok(())
    }

    fn started(&mut self, call: CallNo) {
        self.push(Event::CallStarted(CallStarted {
            call,
            attempt: 1,
            node: Incarnation([0; 16]),
            start_by: self.setting.at,
            judged: judged(),
            pending: None,
            effects: Vec::new(),
            takes: Vec::new(),
            grant_use: None,
        }));
    }

    fn finished(&mut self, call: CallNo, result: ToolResult) {
        self.started(call);
        self.push(Event::CallFinished(CallFinished { call, attempt: 1, result, refused: None }));
    }

    fn approval(&self, call: CallNo, arguments: &RawJson) -> Resolution {
        Resolution::Approve { edited: Some(self.edited(call, arguments)) }
    }

    fn edited(&self, call: CallNo, arguments: &RawJson) -> EditedArguments {
        let tool = self.call(call).map(|call| &call.tool);
        let digest = tool.and_then(|tool| {
            let schema = self.setting.definition.tools.get(tool)?.schema_digest();
            Some(digest::of_call(tool, arguments.text(), schema))
        });
        EditedArguments {
            arguments: body_of(arguments),
            digest: digest.unwrap_or_default(),
            revision: 1,
            files: Vec::new(),
        }
    }

    fn call(&self, no: CallNo) -> Option<&ToolCall> {
        self.events.iter().find_map(|envelope| {
            let Event::ModelReplied(replied) = &envelope.event else { return None };
            replied.reply.calls.iter().find(|call| call.no == no)
        })
    }

    /// A hold that was opened and closed.
    fn decided(&mut self, call: CallNo, kind: HoldKind, resolution: Resolution, role: Option<Role>) {
        let hold = self.open(call, kind);
        self.push(Event::HoldResolved(Box::new(HoldResolved {
            hold,
            resolution,
            role,
            in_place_of: None,
            idempotency_key: None,
            late: false,
            judged: None,
            digest: None,
            message: None,
            grant: None,
            origin: None,
        })));
    }

    /// An open call: a person is asked, with the arguments that would run.
    fn waits(&mut self, call: CallNo, arguments: &RawJson) {
        let is_edited = self.call(call).is_some_and(|call| call.arguments != body_of(arguments));
        let hold = self.open(call, HoldKind::Approval);
        if is_edited {
            let edited = self.edited(call, arguments);
            let edited = HoldEdited {
                hold,
                edited,
                judged: judged(),
                votes_needed: 0,
                demands: Vec::new(),
                stakes: Stakes::default(),
                reason: None,
                asked_again: false,
                role: Role::Owner,
                message: None,
            };
            self.push(Event::HoldEdited(edited));
        }
    }

    fn open(&mut self, call: CallNo, kind: HoldKind) -> HoldKey {
        self.drawn += 1;
        let hold = HoldKey { call, secret: self.setting.entropy.draw("restored", self.drawn) };
        let policy = self.call(call).map(|call| self.setting.definition.policy_for(&call.tool));
        let policy = policy.unwrap_or_default();
        let message =
            self.events.iter().rev().find_map(|envelope| {
                matches!(envelope.event, Event::ModelReplied(_)).then_some(envelope.seq)
            });
        self.push(Event::HoldOpened(Box::new(HoldOpened {
            hold,
            kind,
            message: message.unwrap_or_default(),
            digest: None,
            judged: (kind == HoldKind::Approval).then(judged),
            votes_needed: 0,
            demands: Vec::new(),
            expires_at: policy.timeout.filter(|_| kind.can_expire()).map(|span| self.setting.at.plus(span)),
            remind_at: None,
            escalations: Vec::new(),
            policy,
            muted: false,
            attempt: 0,
            revision: 0,
            files: Vec::new(),
            ask: Ask { reason: Some(WHY_ASKED.to_owned()), ..Ask::default() },
        })));
        hold
    }
}

/// The rule under which restored calls are held.
fn judged() -> PolicyVerdict {
    let rules = RuleId::new("restored").into_iter().collect();
    PolicyVerdict { effect: Effect::Hold, rules, policy: None, grant: None, observed: None }
}

fn place(message: &TurnMessage) -> Result<Seq, BadState> {
    let missing =
        || BadState::CannotBeRestored(format!("message {} does not say where it stood", message.message_id));
    message.metadata.as_ref().map(|place| place.seq).ok_or_else(missing)
}

fn said(part: &TurnPart) -> Result<Part, BadState> {
    match part {
        TurnPart::Text(text) => Ok(Part::Text(Body::text(text))),
        TurnPart::Data(json) => Ok(Part::Data(Body::Json(json.clone()))),
        TurnPart::File { content, filename, media_type } => {
            let (FileContent::Url(content) | FileContent::Raw(content)) = content;
            Ok(Part::File {
                name: filename.clone(),
                media_type: media_type.clone(),
                content: Body::text(content),
            })
        }
        TurnPart::Call(_) | TurnPart::Result(_) | TurnPart::Opaque(_) => {
            Err(BadState::CannotBeRestored("a client's message has a part that only the server makes".into()))
        }
    }
}

/// Members of a result that has no word of its own.
#[derive(serde::Deserialize, Default)]
struct StatusResult {
    reason: Option<String>,
    warning: Option<String>,
}

fn instead(content: &RawJson) -> StatusResult {
    serde_json::from_str(content.text()).unwrap_or_default()
}

fn reason(content: &RawJson) -> Option<String> {
    instead(content).reason
}

fn has_untold_start(content: &RawJson) -> bool {
    instead(content).warning.is_some()
}
