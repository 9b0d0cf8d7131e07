//! What a store indexes: the row of a run, the rows of its holds, and how an append changes them.
//!
//! Everything here can be made again from the events; nothing here is ever edited by hand.

use std::sync::Arc;

use crate::actor::Actor;
use crate::apply;
use crate::digest::Digest;
use crate::event::{Envelope, Event, HoldResolved, Outcome};
use crate::hold::{Hold, HoldKind, Resolution};
use crate::id::{HoldId, HoldKey, MessageId, RequestId, RunId, Seq};
use crate::name::{AgentName, InboxName, SessionId, ToolName, UserId};
use crate::next;
use crate::run::{Run, Status, WaitKind, status};
use crate::time::Timestamp;

/// A run as a store keeps it: the fold, and the columns by which it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The fold, shared by everyone who has the row.
    pub run: Arc<Run>,
    /// Hash of the last link.
    pub head: Digest,
    /// When somebody should look at it by itself; none when only something outside can move it.
    pub due_at: Option<Timestamp>,
    /// Its status as one word, for filters.
    pub phase: Phase,
    /// When an outside worker may claim it; none when it may not.
    pub claimable_at: Option<Timestamp>,
}

/// A run's status as one word. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Nobody has worked on it.
    Queued = 1,
    /// An outside worker has it.
    Claimed = 2,
    /// Thinking or acting.
    Working = 3,
    /// Waits to ask the model again.
    Retrying = 4,
    /// Waits for a person.
    HeldForPerson = 5,
    /// Waits for a login.
    HeldForAuth = 6,
    /// Waits for outside systems only.
    HeldForExternal = 7,
    /// Over, with a result.
    Completed = 8,
    /// Over, with an error.
    Failed = 9,
    /// Over, stopped.
    Canceled = 10,
    /// Over, not taken.
    Rejected = 11,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 11] = [
        Phase::Queued,
        Phase::Claimed,
        Phase::Working,
        Phase::Retrying,
        Phase::HeldForPerson,
        Phase::HeldForAuth,
        Phase::HeldForExternal,
        Phase::Completed,
        Phase::Failed,
        Phase::Canceled,
        Phase::Rejected,
    ];

    /// The phase behind a stored number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| *phase as u8 == number)
    }
}

impl From<Status> for Phase {
    fn from(status: Status) -> Phase {
        match status {
            Status::Queued => Phase::Queued,
            Status::Claimed => Phase::Claimed,
            Status::Working => Phase::Working,
            Status::Retrying(_) => Phase::Retrying,
            Status::Held(WaitKind::Person) => Phase::HeldForPerson,
            Status::Held(WaitKind::Auth) => Phase::HeldForAuth,
            Status::Held(WaitKind::External) => Phase::HeldForExternal,
            Status::Ended(Outcome::Completed) => Phase::Completed,
            Status::Ended(Outcome::Failed) => Phase::Failed,
            Status::Ended(Outcome::Canceled) => Phase::Canceled,
            Status::Ended(Outcome::Rejected) => Phase::Rejected,
        }
    }
}

/// A hold as a store keeps it. What is asked stands in the event at `at`; arguments stand in the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRow {
    /// Its id.
    pub id: HoldId,
    /// What it waits for.
    pub kind: HoldKind,
    /// The agent of its run.
    pub agent: AgentName,
    /// The conversation of its run.
    pub session: SessionId,
    /// The tool of its call; none when the run itself waits.
    pub tool: Option<ToolName>,
    /// The inbox of its run.
    pub inbox: Option<InboxName>,
    /// The open holds of a run share it: one for each turn that opens some.
    pub request: Option<RequestId>,
    /// The assistant's message that led to it.
    pub message: Option<MessageId>,
    /// The event that opened it.
    pub at: Seq,
    /// When that was.
    pub opened_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it expired, if it was kept.
    pub expired_at: Option<Timestamp>,
    /// Digest of the call as it is shown now.
    pub digest: Option<Digest>,
    /// Counts the edits.
    pub revision: u32,
    /// Over a cap: listed, but nobody is notified.
    pub muted: bool,
    /// Who is asked in particular.
    pub assignee: Option<UserId>,
    /// The outside system said that it works on it.
    pub processing: bool,
    /// Its decision, once it has one.
    pub closed: Option<HoldClosure>,
}

/// How a hold was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldClosure {
    /// The event that says so.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who caused it.
    pub by: Actor,
    /// What, as one word.
    pub how: ResolutionKind,
}

/// A resolution as one word. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ResolutionKind {
    /// It may run.
    Approved = 1,
    /// It may run with other arguments.
    Edited = 2,
    /// It may not run.
    Denied = 3,
    /// It has its answer.
    Answered = 4,
    /// It failed.
    Failed = 5,
    /// Nobody decided in time.
    Expired = 6,
    /// The run ended first.
    Withdrawn = 7,
    /// A newer message took its place.
    Superseded = 8,
}

impl ResolutionKind {
    /// All of them.
    pub const ALL: [ResolutionKind; 8] = [
        ResolutionKind::Approved,
        ResolutionKind::Edited,
        ResolutionKind::Denied,
        ResolutionKind::Answered,
        ResolutionKind::Failed,
        ResolutionKind::Expired,
        ResolutionKind::Withdrawn,
        ResolutionKind::Superseded,
    ];

    /// Its word, for protocols and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ResolutionKind::Approved => "approved",
            ResolutionKind::Edited => "edited",
            ResolutionKind::Denied => "denied",
            ResolutionKind::Answered => "answered",
            ResolutionKind::Failed => "failed",
            ResolutionKind::Expired => "expired",
            ResolutionKind::Withdrawn => "withdrawn",
            ResolutionKind::Superseded => "superseded",
        }
    }

    /// The word behind a stored number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<ResolutionKind> {
        ResolutionKind::ALL.into_iter().find(|how| *how as u8 == number)
    }
}

impl From<&Resolution> for ResolutionKind {
    fn from(resolution: &Resolution) -> ResolutionKind {
        match resolution {
            Resolution::Approve { edited: None } => ResolutionKind::Approved,
            Resolution::Approve { edited: Some(_) } => ResolutionKind::Edited,
            Resolution::Deny { .. } => ResolutionKind::Denied,
            Resolution::Answer { .. } => ResolutionKind::Answered,
            Resolution::Fail { .. } => ResolutionKind::Failed,
            Resolution::Expire => ResolutionKind::Expired,
            Resolution::Withdraw => ResolutionKind::Withdrawn,
            Resolution::Supersede => ResolutionKind::Superseded,
        }
    }
}

/// How an append changes the hold rows of its run, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldChange {
    /// A new hold.
    Open(HoldRow),
    /// An open hold as it is now.
    Update(HoldRow),
    /// A hold that has its decision; the row says which.
    Close(HoldRow),
}

/// The row of a run.
#[must_use]
pub fn run_row(run: impl Into<Arc<Run>>, head: Digest) -> RunRow {
    let run = run.into();
    let may_be_claimed = run.is_claimable(Timestamp(i64::MAX));
    RunRow {
        head,
        due_at: next::due_at(&run),
        phase: Phase::from(status(&run)),
        claimable_at: may_be_claimed.then(|| run.state.claimable_at.unwrap_or(run.facts.started_at)),
        run,
    }
}

/// How these events change the hold rows. `before` is the run without them, none when they begin it.
#[must_use]
pub fn hold_changes(before: Option<&Run>, events: &[Envelope], after: &Run) -> Vec<HoldChange> {
    if !events.iter().any(|envelope| touched(after, &envelope.event).is_some()) {
        return Vec::new();
    }
    let mut changes = Vec::new();
    let mut run = before.cloned();
    for envelope in events {
        let was_open = |run: &Run| run.hold(touched(run, &envelope.event)?).map(|hold| hold_row(run, hold));
        let row_before = run.as_ref().and_then(was_open);
        match &mut run {
            Some(run) => apply::apply(run, envelope),
            None => run = apply::begin(after.facts.id, envelope),
        }
        let row_after = run.as_ref().and_then(was_open);
        changes.extend(match (&envelope.event, row_before, row_after) {
            (Event::HoldResolved(resolved), Some(row), _) => {
                Some(HoldChange::Close(closed(row, envelope, resolved)))
            }
            (_, None, Some(row)) => Some(HoldChange::Open(row)),
            (_, Some(_), Some(row)) => Some(HoldChange::Update(row)),
            (_, _, None) => None,
        });
    }
    changes
}

/// Every hold of a run as its events say, open and decided, in the order in which they were opened.
#[must_use]
pub fn hold_rows(run: RunId, events: &[Envelope]) -> Vec<HoldRow> {
    let Some(folded) = apply::fold(run, events) else { return Vec::new() };
    let mut rows: Vec<HoldRow> = Vec::new();
    for change in hold_changes(None, events, &folded) {
        let (HoldChange::Open(row) | HoldChange::Update(row) | HoldChange::Close(row)) = change;
        match rows.iter_mut().find(|known| known.id == row.id) {
            Some(known) => *known = row,
            None => rows.push(row),
        }
    }
    // What an open hold says beyond its events stands in the fold.
    for row in rows.iter_mut().filter(|row| row.closed.is_none()) {
        if let Some(open) = folded.hold(row.id.key) {
            *row = hold_row(&folded, open);
        }
    }
    rows
}

fn closed(row: HoldRow, envelope: &Envelope, resolved: &HoldResolved) -> HoldRow {
    let how = ResolutionKind::from(&resolved.resolution);
    let closed = HoldClosure { seq: envelope.seq, at: envelope.at, by: envelope.actor.clone(), how };
    HoldRow { closed: Some(closed), ..row }
}

/// The row of an open hold.
#[must_use]
pub fn hold_row(run: &Run, hold: &Hold) -> HoldRow {
    let id = run.facts.id;
    let call = run.call(hold.call());
    HoldRow {
        id: HoldId { run: id, key: hold.key },
        kind: hold.kind,
        agent: run.facts.agent.clone(),
        session: run.facts.session.clone(),
        tool: call.map(|call| call.tool.clone()),
        inbox: run.facts.inbox.as_ref().map(|place| place.inbox.clone()),
        request: run.request().map(|key| RequestId { run: id, key }),
        message: (run.state.replied_at.0 > 0).then_some(MessageId { run: id, seq: run.state.replied_at }),
        at: hold.at,
        opened_at: hold.opened_at,
        expires_at: hold.expires_at,
        expired_at: hold.expired_at,
        digest: call.and_then(|call| call.digest),
        revision: hold.revision,
        muted: hold.muted,
        assignee: hold.assignee.clone(),
        processing: hold.processing,
        closed: None,
    }
}

/// The hold whose row an event changes.
fn touched(run: &Run, event: &Event) -> Option<HoldKey> {
    if let Event::CallProgressed(progressed) = event {
        let of_call = |hold: &&Hold| hold.call() == progressed.call && progressed.processing.is_some();
        return run.state.holds.iter().find(of_call).map(|hold| hold.key);
    }
    // Votes, reminders, escalations and who stands in for whom stand in the fold alone.
    let in_the_fold_alone = matches!(
        event,
        Event::HoldVoted(_) | Event::HoldReminded(_) | Event::HoldEscalated(_) | Event::HoldDelegated(_)
    );
    hold_of(event).filter(|_| !in_the_fold_alone)
}

/// The hold that an event is about.
#[must_use]
pub fn hold_of(event: &Event) -> Option<HoldKey> {
    match event {
        Event::HoldOpened(opened) => Some(opened.hold),
        Event::HoldVoted(voted) => Some(voted.hold),
        Event::HoldEdited(edited) => Some(edited.hold),
        Event::HoldAssigned(assigned) => Some(assigned.hold),
        Event::HoldReminded(reminded) => Some(reminded.hold),
        Event::HoldExpired(expired) => Some(expired.hold),
        Event::HoldReopened(reopened) => Some(reopened.hold),
        Event::HoldEscalated(escalated) => Some(escalated.hold),
        Event::HoldDelegated(delegated) => Some(delegated.hold),
        Event::HoldResolved(resolved) => Some(resolved.hold),
        Event::RunStarted(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::RunEnded(_)
        | Event::MessageReceived(_)
        | Event::MessageQueued(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallFinished(_)
        | Event::CallOrphaned(_)
        | Event::CallContradicted(_) => None,
    }
}
