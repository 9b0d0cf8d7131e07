//! Between the words of the core and those of Teal Agents: pure functions of a run and its log.
//!
//! Matches are exhaustive, so that a new status, kind or event forces a visit here. The trail of a task is
//! `map/items.rs`; what a decider's answer means for each kind of hold is `map/answers.rs`.

#![warn(clippy::wildcard_enum_match_arm)]

mod answers;
mod items;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use standfast_core::apply;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::hold::{Ask, Hold, HoldKind};
use standfast_core::id::{CallId, CallNo, HoldKey, MessageId, RequestId, RequestKey, RunId, Seq};
use standfast_core::message::{Message, Part, Usage};
use standfast_core::request::requests;
use standfast_core::run::{Run, Status, WaitKind, status};
use standfast_core::transcript::stored_call;

use super::error::PREFIX;
use super::wire::{
    AuthChallenge, AuthChallengeResponse, ContentType, FunctionCall, HitlResponse, MultiModalItem,
    StateResponse, TaskAnswer, TaskStatus, TealAgentsResponse, TokenUsage, UserMessage,
};
use crate::http::rfc3339;

pub(super) use answers::{Needs, needs, resolutions};
pub(super) use items::task;

/// What every pause says (S1-3).
const HITL: &str = "Human intervention required.";
/// What a pause for a login says.
const LOGIN: &str = "Authentication required for MCP servers.";

/// Where a run stands, in Teal's words. `below` are the open holds of its sub-runs: what it really waits for.
pub(super) fn task_status(status: Status, below: &[HoldKind]) -> TaskStatus {
    match status {
        Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => TaskStatus::Running,
        Status::Held(WaitKind::Person | WaitKind::Auth) => TaskStatus::Paused,
        // A job of an outside system comes back by itself.
        Status::Held(WaitKind::External) => {
            if below.iter().any(|kind| is_asked(*kind)) {
                TaskStatus::Paused
            } else {
                TaskStatus::Running
            }
        }
        Status::Ended(Outcome::Completed) => TaskStatus::Completed,
        Status::Ended(Outcome::Failed | Outcome::Rejected) => TaskStatus::Failed,
        Status::Ended(Outcome::Canceled) => TaskStatus::Canceled,
    }
}

/// Whether somebody is asked by such a hold; an outside system is not somebody.
pub(super) fn is_asked(kind: HoldKind) -> bool {
    match kind {
        HoldKind::Approval | HoldKind::Input | HoldKind::Auth | HoldKind::Recovery => true,
        HoldKind::External => false,
    }
}

/// What a client says, as the run keeps it.
pub(super) fn message(said: &UserMessage) -> Result<Message, String> {
    if said.items.is_empty() {
        return Err("items is empty; send at least one part".into());
    }
    let mut parts: Vec<Part> = Vec::new();
    for (at, item) in said.items.iter().enumerate() {
        parts.push(match item.content_type {
            ContentType::Text => Part::Text(Body::text(&item.content)),
            ContentType::Image if item.content.contains(':') => {
                Part::File { name: None, media_type: None, content: Body::text(&item.content) }
            }
            ContentType::Image => {
                return Err(format!("items[{at}].content must be an address: https:… or data:…"));
            }
        });
    }
    let context = said.user_context.iter().flatten().map(|(name, value)| format!("  {name}: {value}\n"));
    let context: String = context.collect();
    if !context.is_empty() {
        parts.push(Part::Text(Body::text(format!("The following user context was provided:\n{context}"))));
    }
    Ok(Message::of(parts))
}

/// Pieces of a message, as it is shown again.
fn shown(part: &Part) -> MultiModalItem {
    let (content_type, body) = match part {
        Part::Text(body) | Part::Data(body) => (ContentType::Text, body),
        Part::File { content, .. } => (ContentType::Image, content),
    };
    MultiModalItem { content_type, content: body.inline().unwrap_or_default().to_owned() }
}

/// The task that an answer is about: a run and its log, up to one point.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskLog<'a> {
    pub(super) run: &'a Run,
    pub(super) log: &'a [Envelope],
}

impl<'a> TaskLog<'a> {
    /// The id of the invocation that came last: the request that was resumed, or the message that was said.
    pub(super) fn request_id(self) -> String {
        let (run, asked) = (self.run.facts.id, requests(self.log));
        let mut id = String::new();
        for envelope in self.log {
            if let Event::MessageReceived(_) | Event::MessageQueued(_) = &envelope.event {
                id = MessageId { run, seq: envelope.seq }.to_string();
            } else if let Event::HoldResolved(resolved) = &envelope.event {
                let of = asked.iter().find(|one| one.holds.iter().any(|(hold, _)| *hold == resolved.hold));
                if let Some(request) = of {
                    id = RequestId { run, key: request.key }.to_string();
                }
            }
        }
        id
    }

    /// What the open holds of this run ask of somebody, the first ones first.
    fn asking(self) -> Vec<(&'a Hold, Ask)> {
        let ask = |hold: &Hold| {
            self.log.iter().find_map(|envelope| {
                let Event::HoldOpened(opened) = &envelope.event else { return None };
                (opened.hold == hold.key).then(|| opened.ask.clone())
            })
        };
        let asked = self.run.state.holds.iter().filter(|hold| is_asked(hold.kind));
        asked.map(|hold| (hold, ask(hold).unwrap_or_default())).collect()
    }
}

/// The first point behind `since` at which somebody is needed or the run has ended: how many appends that are, with those after it
/// that say nothing but that the time to decide is over.
pub(super) fn settled(run: RunId, appends: &[Vec<Envelope>], since: Seq) -> Option<usize> {
    let mut now: Option<Run> = None;
    for (index, append) in appends.iter().enumerate() {
        for envelope in append {
            match &mut now {
                Some(run) => apply::apply(run, envelope),
                None => now = apply::begin(run, envelope),
            }
        }
        let Some(now) = now.as_ref().filter(|now| now.state.seq > since) else { continue };
        match status(now) {
            Status::Held(WaitKind::Person | WaitKind::Auth) | Status::Ended(_) => {
                let expired = appends[index + 1..].iter().take_while(|append| only_expires(append));
                return Some(index + 1 + expired.count());
            }
            Status::Held(WaitKind::External)
            | Status::Queued
            | Status::Claimed
            | Status::Working
            | Status::Retrying(_) => {}
        }
    }
    None
}

/// Whether an append only marks holds as expired: they stay open, and what was asked is asked still.
fn only_expires(append: &[Envelope]) -> bool {
    append.iter().all(|envelope| matches!(&envelope.event, Event::HoldExpired(expired) if expired.kept))
}

/// The event that decided a request; none while something of it is open.
pub(super) fn decided_at(log: &[Envelope], request: RequestKey) -> Option<Seq> {
    let opened = |envelope: &Envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        is_asked(opened.kind).then_some(opened.hold)
    };
    let asked: Vec<HoldKey> = log.iter().filter_map(opened).collect();
    let found = requests(log).into_iter().find(|found| found.key == request)?;
    let meant = found.holds.iter().map(|(hold, _)| *hold).filter(|hold| asked.contains(hold));
    let resolved_at = |hold: HoldKey| {
        let is_its = |envelope: &&Envelope| matches!(&envelope.event, Event::HoldResolved(resolved) if resolved.hold == hold);
        log.iter().rev().find(is_its).map(|envelope| envelope.seq)
    };
    meant.map(resolved_at).collect::<Option<Vec<Seq>>>()?.into_iter().max()
}

/// What a task answers. `waiting` is the run that really waits: the task itself, or a sub-run of it.
pub(super) fn answer(
    task: TaskLog<'_>,
    waiting: Option<TaskLog<'_>>,
    site: &str,
) -> Result<TaskAnswer, String> {
    let facts = &task.run.facts;
    let asked = waiting.filter(|waiting| !waiting.asking().is_empty());
    let ended = task.run.outcome();
    if let (None, Some(waiting)) = (ended, asked) {
        return Ok(paused(task, waiting, site));
    }
    let task_url = |status| {
        let url = || format!("{site}{PREFIX}/{}/tasks/{}", facts.agent, facts.id);
        (status == TaskStatus::Running).then(url)
    };
    let state = |status, message: String| {
        TaskAnswer::State(StateResponse {
            session_id: facts.session.to_string(),
            task_id: facts.id.to_string(),
            request_id: task.request_id(),
            status,
            message,
            response_url: task_url(status).map(|url| format!("{url}/response")),
            stream_url: task_url(status).map(|url| format!("{url}/response/sse")),
            task_url: task_url(status),
        })
    };
    let (output, reason) = result(task.log);
    match ended {
        None => Ok(state(
            TaskStatus::Running,
            "The task is still at work. GET response_url for the answer, or stream_url to follow it; send nothing again"
                .to_owned(),
        )),
        Some(Outcome::Completed) => Ok(TaskAnswer::Output(TealAgentsResponse {
            session_id: facts.session.to_string(),
            task_id: facts.id.to_string(),
            request_id: task.request_id(),
            output: output.unwrap_or_default(),
            source: facts.agent.to_string(),
            token_usage: tokens(task.run.state.usage),
        })),
        Some(Outcome::Canceled) => {
            let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            Ok(state(TaskStatus::Canceled, format!("The task was canceled{why}")))
        }
        Some(Outcome::Failed | Outcome::Rejected) => {
            let why = reason.unwrap_or_else(|| "the log of the server says why".into());
            Err(format!("task {} failed: {why}", facts.id))
        }
    }
}

/// The event of the invocation that came last: what was said, or decided.
pub(super) fn invoked_at(log: &[Envelope]) -> Option<Seq> {
    let is_invocation = |event: &Event| {
        matches!(event, Event::MessageReceived(_) | Event::MessageQueued(_) | Event::HoldResolved(_))
    };
    log.iter().rev().find(|envelope| is_invocation(&envelope.event)).map(|envelope| envelope.seq)
}

fn tokens(usage: Usage) -> TokenUsage {
    TokenUsage { completion_tokens: usage.output, prompt_tokens: usage.input, total_tokens: usage.tokens() }
}

/// What came out, and why nothing did.
fn result(log: &[Envelope]) -> (Option<String>, Option<String>) {
    let (mut output, mut reason) = (None, None);
    for envelope in log {
        if let Event::ModelReplied(replied) = &envelope.event {
            output = replied.reply.text.clone().or(output);
        } else if let Event::RunEnded(ended) = &envelope.event {
            (output, reason) = (ended.result.clone().or(output), ended.reason.clone());
        }
    }
    (output.and_then(|body| body.inline().map(str::to_owned)), reason)
}

fn paused(task: TaskLog<'_>, waiting: TaskLog<'_>, site: &str) -> TaskAnswer {
    let asked = waiting.asking();
    let run = waiting.run.facts.id;
    let request_id = waiting.run.request().map(|key| RequestId { run, key }.to_string()).unwrap_or_default();
    let url = format!("{site}{PREFIX}/resume/{request_id}");
    let (task_id, session_id) = (task.run.facts.id.to_string(), task.run.facts.session.to_string());
    if asked.iter().all(|(hold, _)| hold.kind == HoldKind::Auth) {
        let auth_challenges = asked.iter().flat_map(|(_, ask)| challenges(ask)).collect();
        return TaskAnswer::Auth(AuthChallengeResponse {
            task_id,
            session_id,
            request_id,
            message: LOGIN,
            auth_challenges,
            resume_url: url,
        });
    }
    TaskAnswer::Hitl(HitlResponse {
        task_id,
        session_id,
        request_id,
        message: HITL,
        approval_url: format!("{url}?action=approve"),
        rejection_url: format!("{url}?action=reject"),
        tool_calls: asked.iter().map(|(hold, _)| asked_call(waiting, hold)).collect(),
    })
}

/// A call that waits. Where its time has passed, it says so, and until when a late answer is taken.
fn asked_call(waiting: TaskLog<'_>, hold: &Hold) -> FunctionCall {
    let mut call = function_call(waiting, hold.key.call);
    let said = [
        ("expired_at", hold.expired_at),
        ("grace_ends_at", hold.expired_at.and_then(|_| hold.grace_ends_at())),
    ];
    call.metadata.extend(said.into_iter().filter_map(|(name, at)| Some((name.to_owned(), rfc3339(at?)))));
    call
}

/// Where a login is asked for, as the tool that asks wrote it down; one object, or several.
fn challenges(ask: &Ask) -> Vec<AuthChallenge> {
    let written = ask.data.as_ref().and_then(Body::inline).unwrap_or_default();
    let several = serde_json::from_str::<Vec<AuthChallenge>>(written);
    let found = several.or_else(|_| serde_json::from_str::<AuthChallenge>(written).map(|one| vec![one]));
    found.unwrap_or_else(|_| {
        let named = ask.reason.clone().unwrap_or_default();
        let auth_url = ask.question.as_ref().and_then(Body::inline).unwrap_or_default().to_owned();
        vec![AuthChallenge { server_name: named, auth_url, ..AuthChallenge::default() }]
    })
}

/// A call as it would run now. The run itself can wait too: that is call 0, and calls nothing.
pub(super) fn function_call(told: TaskLog<'_>, no: CallNo) -> FunctionCall {
    let id = CallId { run: told.run.facts.id, no }.to_string();
    let index = place(told.log, no);
    let (name, arguments) = match stored_call(told.log, no) {
        Some(call) => (call.tool.to_string(), call.arguments),
        None => ("run".to_owned(), "{}".to_owned()),
    };
    FunctionCall {
        content_type: "function_call",
        id,
        index,
        function_name: name.clone(),
        name,
        plugin_name: None,
        arguments,
        metadata: BTreeMap::new(),
    }
}

/// Its place in the model's reply.
fn place(log: &[Envelope], no: CallNo) -> usize {
    let of = |envelope: &Envelope| {
        let Event::ModelReplied(replied) = &envelope.event else { return None };
        replied.reply.calls.iter().position(|call| call.no == no)
    };
    log.iter().find_map(of).unwrap_or(0)
}
