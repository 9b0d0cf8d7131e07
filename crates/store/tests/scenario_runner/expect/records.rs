//! What the conversation, hold rows, receipts, lists and the stored state say.
//!
//! Each sentence compares one record with one fact, in the words that the record itself uses.

use standfast_core::event::{Envelope, Event};
use standfast_core::execution_state::{ExecutionState, execution_state};
use standfast_core::id::{CallNo, HoldId, HoldKey, Seq};
use standfast_core::link::Contents;
use standfast_core::message::Part;
use standfast_core::name::InboxName;
use standfast_core::project::{HoldRow, ResolutionKind};
use standfast_core::receipt::{Receipt, Report, receipt};
use standfast_core::transcript::{CallResult, Entry, transcript};
use standfast_store::{Audience, AudienceMember, HoldFilter, HoldQuery, RunFilter, RunQuery};

use super::super::block_on::block_on;
use super::super::details::{not_understood, number};
use super::super::script::Tok;
use super::super::script::Tok::{Json, Text, Word};
use super::super::world::{View, World};
use super::{one_of, same, word};

/// Checks a sentence about records; false when it is not about one.
pub(super) fn check(world: &World, toks: &[Tok<'_>]) -> Result<bool, String> {
    match toks {
        [Word("the"), Word("model"), Word("saw"), Text(text) | Json(text)] => saw(world, text)?,
        [Word("the"), Word("model"), Word("did"), Word("not"), Word("see"), Text(text)] => {
            if saw(world, text).is_ok() {
                return Err(format!("the model saw {text:?}"));
            }
        }
        [Word("result"), Word("of"), Word("call"), Word(no), Word("is"), Word("missing")] => {
            let found = result(&world.view()?, number(no)?);
            same("the result", found, None)?;
        }
        [Word("result"), Word("of"), Word("call"), Word(no), rest @ ..] => {
            let found = result(&world.view()?, number(no)?).ok_or("the call has no result")?;
            came_to(&found, rest)?;
        }
        [Word("receipt"), Word("of"), Word("call"), Word(no), rest @ ..] => {
            let view = world.view()?;
            let hold = latest_hold(&view, number(no)?)?;
            let receipt = receipt(hold, &view.events).ok_or("there is no receipt")?;
            receipt_says(&receipt, rest)?;
        }
        [Word("receipt"), Word("of"), Word("hold"), Word(at), rest @ ..] => {
            let view = world.view()?;
            let hold = holds(&view).nth(number(at)? as usize - 1).ok_or("there is no such hold")?;
            let receipt = receipt(hold, &view.events).ok_or("there is no receipt")?;
            receipt_says(&receipt, rest)?;
        }
        [Word("hold"), Word("of"), Word("call"), Word(no), rest @ ..] => {
            row_says(world, latest_hold(&world.view()?, number(no)?)?, rest)?;
        }
        [Word("hold"), Word("of"), Word("the"), Word("run"), rest @ ..] => {
            row_says(world, latest_hold(&world.view()?, 0)?, rest)?;
        }
        [Word("hold"), Word(at), rest @ ..] => {
            let view = world.view()?;
            let hold = holds(&view).nth(number(at)? as usize - 1).ok_or("there is no such hold")?;
            row_says(world, hold, rest)?;
        }
        [Word("calls"), Word(a), Word("and"), Word(b), Word("share"), Word("a"), Word("request")] => {
            let view = world.view()?;
            let row = |no: &str| hold_row(world, latest_hold(&view, number(no)?)?);
            same("the request", row(a)?.request, row(b)?.request)?;
        }
        [Word("calls"), Word(a), Word("and"), Word(b), Word("have"), Word("different"), Word("requests")] => {
            let view = world.view()?;
            let row = |no: &str| hold_row(world, latest_hold(&view, number(no)?)?);
            if row(a)?.request == row(b)?.request {
                return Err("they share a request".into());
            }
        }
        [Word(name), Word("sees"), rest @ ..] => sees(world, name, rest)?,
        [Word("stored"), Word("state"), Word("waits"), Word("for"), tools @ ..] => {
            stored_state(world, tools)?
        }
        [Word("contents"), Word("erased")] => erased(world)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// What a model is sent when it is asked now: messages of users and results of calls.
fn saw(world: &World, text: &str) -> Result<(), String> {
    let told: Vec<String> = transcript(&world.view()?.events).into_iter().flat_map(said).collect();
    if told.iter().any(|said| said.contains(text)) {
        Ok(())
    } else {
        Err(format!("the model saw only {told:?}"))
    }
}

fn said(entry: Entry) -> Vec<String> {
    match entry {
        Entry::User(user) => user
            .message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(body) | Part::Data(body) | Part::File { content: body, .. } => body.inline(),
            })
            .map(str::to_owned)
            .collect(),
        Entry::Assistant(_) => Vec::new(),
        Entry::Tool(result) => result.told().into_iter().collect(),
    }
}

fn result(view: &View, no: u32) -> Option<CallResult> {
    transcript(&view.events).into_iter().find_map(|entry| match entry {
        Entry::Tool(result) if result.call == CallNo(no) => Some(result),
        Entry::Tool(_) | Entry::User(_) | Entry::Assistant(_) => None,
    })
}

fn came_to(result: &CallResult, toks: &[Tok<'_>]) -> Result<(), String> {
    let (words, text) = match toks {
        [words @ .., Text(text) | Json(text)] => (words, Some(*text)),
        words => (words, None),
    };
    let words: Vec<&str> = words.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
    let kind = serde_json::to_string(&result.kind).map_err(|error| error.to_string())?;
    same("the result", kind.trim_matches('"'), words.join("_").as_str())?;
    let told = result.told().ok_or("the result is not filled in")?;
    match text {
        Some(text) if !told.contains(text) => Err(format!("the model is told {told}")),
        Some(_) | None => Ok(()),
    }
}

fn holds(view: &View) -> impl DoubleEndedIterator<Item = HoldKey> {
    let opened = |envelope: &Envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        Some(opened.hold)
    };
    view.events.iter().filter_map(opened)
}

fn latest_hold(view: &View, no: u32) -> Result<HoldKey, String> {
    holds(view).rev().find(|hold| hold.call == CallNo(no)).ok_or_else(|| format!("call {no} has no hold"))
}

fn hold_row(world: &World, key: HoldKey) -> Result<HoldRow, String> {
    let id = HoldId { run: world.current()?.id, key };
    let row = block_on(world.store.find_hold(id)).map_err(|error| error.to_string())?;
    row.ok_or_else(|| "the hold has no row".into())
}

/// How a hold stands, in one word.
const HOWS: [&str; 9] =
    ["open", "approved", "edited", "denied", "answered", "failed", "expired", "withdrawn", "superseded"];

fn row_says(world: &World, key: HoldKey, toks: &[Tok<'_>]) -> Result<(), String> {
    let row = hold_row(world, key)?;
    let how = match &row.closed {
        None => "open",
        Some(closed) => match closed.how {
            ResolutionKind::Approved => "approved",
            ResolutionKind::Edited => "edited",
            ResolutionKind::Denied => "denied",
            ResolutionKind::Answered => "answered",
            ResolutionKind::Failed => "failed",
            ResolutionKind::Expired => "expired",
            ResolutionKind::Withdrawn => "withdrawn",
            ResolutionKind::Superseded => "superseded",
        },
    };
    let by = row.closed.as_ref().map(|closed| closed.by.to_string());
    match toks {
        [Word("is"), Word("an" | "a"), Word(kind), Word("hold")] => {
            same("the kind", format!("{:?}", row.kind).to_lowercase().as_str(), *kind)
        }
        [Word("assigned"), Word("to"), Word(name)] => {
            same("the assignee", row.assignee.as_ref().map(|user| user.as_str()), Some(*name))
        }
        [Word("assigned"), Word("to"), Word("nobody"), Word("in"), Word("particular")] => {
            same("the assignee", row.assignee, None)
        }
        [Word("muted")] => same("muted", row.muted, true),
        [Word("marked"), Word("expired")] => same("expired", row.expired_at.is_some(), true),
        [Word("not"), Word("marked"), Word("expired")] => same("expired", row.expired_at, None),
        [Word("processing")] => same("processing", row.processing, true),
        [Word("not"), Word("processing")] => same("processing", row.processing, false),
        [Word("at"), Word("revision"), Word(no)] => same("the revision", row.revision, number(no)?),
        [Word("without"), Word("a"), Word("deadline")] => same("the deadline", row.expires_at, None),
        [Word("with"), Word("a"), Word("deadline"), Word("in"), Word(count), Word(unit)] => {
            let span = super::span(count, unit)?;
            same("the deadline", row.expires_at, Some(row.opened_at.plus(span)))
        }
        [Word(wanted), Word("by"), Word(actor)] => {
            same("the hold", how, *wanted)?;
            same("decided by", by.as_deref(), Some(*actor))
        }
        [Word(wanted)] => {
            one_of(wanted, &HOWS)?;
            same("the hold", how, *wanted)
        }
        other => Err(not_understood(other)),
    }
}

/// What ran, in the words of the receipt.
const EFFECTS: [&str; 6] = ["executed", "failed", "not executed", "outcome unknown", "running", "waiting"];

fn receipt_says(receipt: &Receipt, toks: &[Tok<'_>]) -> Result<(), String> {
    let call = receipt.call.as_ref();
    match toks {
        [Word("was"), Word("shown"), Word(times), Word("times" | "time")] => {
            same("shown", receipt.shown.len(), number(times)? as usize)
        }
        [Word("first"), Word("showed"), Json(arguments)] => {
            let first = receipt.shown.first().and_then(|shown| shown.arguments.as_ref()?.inline());
            same("first shown", first, Some(*arguments))
        }
        [Word("last"), Word("showed"), Json(arguments)] => {
            let last = receipt.shown.last().and_then(|shown| shown.arguments.as_ref()?.inline());
            same("last shown", last, Some(*arguments))
        }
        [Word("has"), Word(count), Word("votes" | "vote")] => {
            same("votes", receipt.votes.len(), number(count)? as usize)
        }
        [Word("reported"), Word("by"), Word(actor)] => match call.and_then(|call| call.report.as_ref()) {
            Some(Report::ReportedBy(by)) => same("reported by", by.to_string().as_str(), *actor),
            other => Err(format!("the receipt says {other:?}")),
        },
        [Word("not"), Word("reported")] => {
            same("the report", call.and_then(|call| call.report.as_ref()), Some(&Report::NotReported))
        }
        [Word("contradicted"), Text(text)] => {
            let said = format!("{:?}", call.map(|call| &call.contradictions));
            if said.contains(text) { Ok(()) } else { Err(format!("contradictions: {said}")) }
        }
        [Word("decided"), Word("late")] => {
            same("late", receipt.decision.as_ref().map(|decision| decision.late), Some(true))
        }
        [Word("decided"), Word("in"), Word("time")] => {
            same("late", receipt.decision.as_ref().map(|decision| decision.late), Some(false))
        }
        [Word("decided"), words @ .., Word("by"), Word(actor)] => {
            let decision = receipt.decision.as_ref().ok_or("there is no decision")?;
            let words: Vec<&str> = words.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
            let said = serde_json::to_string(&decision.word).map_err(|error| error.to_string())?;
            same("the decision", said.trim_matches('"'), words.join("_").as_str())?;
            same("decided by", decision.by.to_string().as_str(), *actor)
        }
        words => {
            let words: Vec<&str> = words.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
            one_of(&words.join(" "), &EFFECTS)?;
            let effect =
                serde_json::to_string(&call.map(|call| call.effect)).map_err(|error| error.to_string())?;
            same("the effect", effect.trim_matches('"'), words.join("_").as_str())
        }
    }
}

/// The open holds that a person finds in the list, by their tools.
fn sees(world: &World, name: &str, toks: &[Tok<'_>]) -> Result<(), String> {
    let query = HoldQuery {
        tenant: standfast_core::name::Tenant::default_tenant(),
        audience: Audience::AnyOf(vec![AudienceMember(format!("user:{name}"))]),
        filter: HoldFilter::All,
        kinds: Vec::new(),
        cursor: None,
        limit: 100,
    };
    let page = block_on(world.store.list_holds(query)).map_err(|error| error.to_string())?;
    let tool = |row: &HoldRow| row.tool.as_ref().map_or("run".to_owned(), |tool| tool.as_str().to_owned());
    let listed: Vec<String> = page.items.iter().map(tool).collect();
    let wanted: Vec<&str> = match toks {
        [Word("no"), Word("open"), Word("hold")] => Vec::new(),
        [Word("holds"), Word("of"), tools @ ..] => {
            tools.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?
        }
        other => return Err(not_understood(other)),
    };
    same(&format!("{name} sees"), listed, wanted)
}

/// The runs that workers may claim now, in the order in which they should.
pub(super) fn claimable(world: &World, names: &[Tok<'_>]) -> Result<(), String> {
    let inbox = world.setting.inbox.as_ref().map(|place| place.inbox.as_str()).unwrap_or("none");
    let inbox = InboxName::new(inbox).map_err(|bad| bad.to_string())?;
    let query = RunQuery {
        tenant: standfast_core::name::Tenant::default_tenant(),
        filter: RunFilter::Claimable(inbox, world.now, standfast_store::Claimant::Anybody),
        phases: Vec::new(),
        since: None,
        cursor: None,
        limit: 100,
    };
    let page = block_on(world.store.list_runs(query)).map_err(|error| error.to_string())?;
    let mut listed = Vec::new();
    for row in &page.items {
        listed.push(world.runs[world.index(row.run.facts.id)?].name.as_str());
    }
    let wanted: Vec<&str> = names.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
    let wanted = if wanted == ["none"] { Vec::new() } else { wanted };
    same("claimable", listed, wanted)
}

/// The state of a paused run as one value: it comes back from its bytes, and its open calls are these.
fn stored_state(world: &World, tools: &[Tok<'_>]) -> Result<(), String> {
    let view = world.view()?;
    let definition = &world.setting.pinned[&view.row.run.state.definition];
    let state = execution_state(&view.row.run, definition, &view.events);
    let restored = ExecutionState::from_json(&state.to_json()).map_err(|bad| bad.to_string())?;
    same("the restored state", &restored, &state)?;
    let pending: Vec<&str> = state.pending_tool_calls.iter().map(|call| call.name.as_str()).collect();
    let wanted: Vec<&str> = tools.iter().map(|tok| word(tok)).collect::<Result<_, _>>()?;
    let wanted = if wanted == ["nothing"] { Vec::new() } else { wanted };
    same("pending calls", pending, wanted)
}

/// Only the event that says so can still be read; `invariants.rs` checks that the chain verifies.
fn erased(world: &World) -> Result<(), String> {
    let run = world.current()?.id;
    let links = block_on(world.store.links(run, Seq(0), 10_000)).map_err(|error| error.to_string())?;
    let readable: Vec<Seq> = links
        .iter()
        .filter(|link| matches!(link.contents, Contents::Whole { .. }))
        .map(|link| link.header.first)
        .collect();
    let last: Vec<Seq> = links.last().map(|link| link.header.first).into_iter().collect();
    same("readable links", readable, last)
}
