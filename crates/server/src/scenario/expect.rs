//! Comparing how things are with how a scenario expects them.
//!
//! Everything that is not as expected is said at once. What a scenario does not name may be anything.

use standfast_core::body::Body;
use standfast_core::event::{Envelope, Outcome};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, Seq};
use standfast_core::json::RawJson;
use standfast_core::run::{Run, Status, WaitKind, status};
use standfast_core::transcript::{Entry, transcript};
use standfast_engine::{EngineError, HoldView};
use standfast_models::script_file::Json;

use super::ScenarioError;
use super::step_file::{ExpectText, HoldText, StartText, ToldText};
use super::tools::ToolStart;
use super::world::{StartedRun, World};

/// What is not as expected of this run.
pub(super) async fn check(
    world: &mut World,
    begun: &StartedRun,
    expected: &ExpectText,
) -> Result<Vec<String>, ScenarioError> {
    let run = world.load(begun.run).await?;
    let failed = |error: EngineError| ScenarioError::here(error.to_string());
    let who = world.principal(&begun.owner);
    let mut problems = Vec::new();
    if let Some(wanted) = &expected.status {
        compare(&mut problems, "status", wanted, status_word(&run));
    }
    if let Some(wanted) = &expected.waiting_for {
        compare(&mut problems, "waiting_for", wanted, waiting_word(&run));
    }
    if let Some(wanted) = &expected.holds {
        let mut open = Vec::new();
        for hold in &run.state.holds {
            let id = HoldId { run: begun.run, key: hold.key };
            open.push(world.engine()?.reads().hold(&who, id).await.map_err(failed)?);
        }
        holds(&mut problems, wanted, &open);
    }
    if expected.result.is_some() || expected.reason.is_some() {
        let view = world.engine()?.reads().run(&who, begun.run).await.map_err(failed)?;
        if let Some(wanted) = &expected.result {
            let was = view.result.as_ref().map_or("(none)".to_owned(), shown);
            if !view.result.as_ref().is_some_and(|body| is_body(wanted, body)) {
                problems.push(format!("result: expected {}, was {was}", unquoted(wanted)));
            }
        }
        if let Some(wanted) = &expected.reason {
            let was = view.reason.as_deref().unwrap_or("(none)");
            if !view.reason.as_deref().is_some_and(|reason| reason.contains(wanted.as_str())) {
                problems.push(format!("reason: expected a text with {wanted:?}, was {was}"));
            }
        }
    }
    if let Some(wanted) = &expected.starts {
        starts(&mut problems, wanted, &world.oracle.starts(begun.run));
    }
    if expected.events.is_some() || expected.told.is_some() {
        let events = world.engine()?.reads().events(begun.run, Seq(0)).await.map_err(failed)?;
        if let Some(wanted) = &expected.events {
            seen(&mut problems, wanted, &events);
        }
        for wanted in expected.told.iter().flatten() {
            told(&mut problems, wanted, &events);
        }
    }
    if !problems.is_empty() {
        problems.push(open_holds(&run));
    }
    Ok(problems)
}

/// What is open, for whoever looks for the mistake.
pub(super) fn open_holds(run: &Run) -> String {
    let hold = |hold: &standfast_core::hold::Hold| {
        let tool = run.call(hold.call()).map_or("the run", |call| call.tool.as_str());
        format!("{} of {tool} (call {})", hold.kind.as_str(), hold.call())
    };
    match run.state.holds.as_slice() {
        [] => format!("no holds are open; the run is {}", status_word(run)),
        open => format!("open holds: {}", open.iter().map(hold).collect::<Vec<_>>().join(", ")),
    }
}

fn compare(problems: &mut Vec<String>, what: &str, wanted: &str, was: &str) {
    if wanted != was {
        problems.push(format!("{what}: expected {wanted}, was {was}"));
    }
}

fn holds(problems: &mut Vec<String>, wanted: &[HoldText], open: &[HoldView]) {
    if wanted.len() != open.len() {
        problems.push(format!("holds: expected {} open, were {}", wanted.len(), open.len()));
        return;
    }
    for (at, (wanted, view)) in wanted.iter().zip(open).enumerate() {
        let no = at + 1;
        let mut compare_text = |what: &str, wanted: Option<&str>, was: Option<&str>| {
            if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != was) {
                let was = was.unwrap_or("(none)");
                problems.push(format!("hold {no}: {what}: expected {wanted}, was {was}"));
            }
        };
        let question = view.ask.question.as_ref().and_then(Body::inline);
        compare_text("kind", wanted.kind.map(HoldKind::as_str), Some(view.row.kind.as_str()));
        compare_text("tool", wanted.tool.as_deref(), view.row.tool.as_ref().map(|tool| tool.as_str()));
        compare_text("reason", wanted.reason.as_deref(), view.ask.reason.as_deref());
        compare_text("question", wanted.question.as_deref(), question);
        if let Some(options) = &wanted.options {
            let (wanted, was) = (options.join(", "), view.ask.options.join(", "));
            compare_text("options", Some(&wanted), Some(&was));
        }
        if let Some(span) = &wanted.expires_in {
            let at = view.row.opened_at.plus(span.0);
            let was = view.row.expires_at.map(|at| at.since(view.row.opened_at).0);
            let word =
                |ms: Option<i64>| ms.map_or("(never)".to_owned(), |ms| format!("{ms}ms after it opened"));
            if view.row.expires_at != Some(at) {
                compare_text("expires_in", Some(&word(Some(span.0.0))), Some(&word(was)));
            }
        }
        if let Some(expired) = wanted.expired {
            let was = view.row.expired_at.is_some();
            compare_text("expired", Some(&expired.to_string()), Some(&was.to_string()));
        }
        if let Some(arguments) = &wanted.arguments {
            let was = view.arguments.as_ref().map(RawJson::text);
            if !was.is_some_and(|was| is_text(arguments, was)) {
                compare_text("arguments", Some(&unquoted(arguments)), Some(was.unwrap_or("(none)")));
            }
        }
    }
}

fn starts(problems: &mut Vec<String>, wanted: &[StartText], were: &[ToolStart]) {
    let is_same = |(wanted, was): (&StartText, &ToolStart)| {
        wanted.tool == was.tool.as_str()
            && wanted.arguments.as_ref().is_none_or(|arguments| is_text(arguments, &was.arguments))
            && wanted.attempt.is_none_or(|attempt| attempt == was.attempt)
    };
    if wanted.len() == were.len() && wanted.iter().zip(were).all(is_same) {
        return;
    }
    let wanted = wanted.iter().map(|start| {
        let arguments = start.arguments.as_ref().map_or(String::new(), |json| format!(" {}", unquoted(json)));
        let attempt = start.attempt.map_or(String::new(), |attempt| format!(" (attempt {attempt})"));
        format!("{}{arguments}{attempt}", start.tool)
    });
    let were =
        were.iter().map(|start| format!("{} {} (attempt {})", start.tool, start.arguments, start.attempt));
    problems.push(format!("starts: expected {}, were {}", listed(wanted), listed(were)));
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".into() } else { format!("{}: {}", items.len(), items.join("; ")) }
}

/// The events must have happened in this order; others may lie between.
fn seen(problems: &mut Vec<String>, wanted: &[String], events: &[Envelope]) {
    let mut kinds = events.iter().map(|envelope| envelope.event.kind());
    let missing = wanted.iter().find(|wanted| !kinds.any(|kind| kind == wanted.as_str()));
    if let Some(missing) = missing {
        let were: Vec<&str> = events.iter().map(|envelope| envelope.event.kind()).collect();
        problems.push(format!(
            "events: expected {}, but there is no {missing} in its place; were {}",
            wanted.join(", "),
            were.join(", ")
        ));
    }
}

/// The last call of the tool has a result that says this.
fn told(problems: &mut Vec<String>, wanted: &ToldText, events: &[Envelope]) {
    let mut said = None;
    for entry in transcript(events) {
        match entry {
            Entry::Tool(result) if result.tool.as_str() == wanted.tool => said = Some(shown(&result.content)),
            Entry::Tool(_) | Entry::User(_) | Entry::Assistant(_) => {}
        }
    }
    if !said.as_ref().is_some_and(|said| said.contains(&wanted.text)) {
        let said = said.unwrap_or_else(|| "(nothing)".into());
        problems.push(format!("told: expected {} to say {:?}, was {said}", wanted.tool, wanted.text));
    }
}

/// A string must be the text byte for byte; anything else is compared as JSON.
fn is_text(Json(wanted): &Json, was: &str) -> bool {
    if let Ok(exact) = serde_json::from_str::<String>(wanted) {
        return exact == was || RawJson::parse(was).is_ok_and(|was| was.text() == wanted);
    }
    let key = |text: &str| RawJson::parse(text).map(|json| json.loose_key()).ok();
    key(wanted).is_some() && key(wanted) == key(was)
}

fn is_body(wanted: &Json, was: &Body) -> bool {
    was.inline().is_some_and(|was| is_text(wanted, was))
}

fn shown(body: &Body) -> String {
    body.inline().unwrap_or("(too large to be shown)").to_owned()
}

fn unquoted(Json(text): &Json) -> String {
    serde_json::from_str::<String>(text).unwrap_or_else(|_| text.clone())
}

fn status_word(run: &Run) -> &'static str {
    match status(run) {
        Status::Queued => "queued",
        Status::Claimed => "claimed",
        Status::Working => "working",
        Status::Retrying(_) => "retrying",
        Status::Held(_) => "held",
        Status::Ended(Outcome::Completed) => "completed",
        Status::Ended(Outcome::Failed) => "failed",
        Status::Ended(Outcome::Canceled) => "canceled",
        Status::Ended(Outcome::Rejected) => "rejected",
    }
}

fn waiting_word(run: &Run) -> &'static str {
    match run.waiting() {
        Some(WaitKind::Person) => "person",
        Some(WaitKind::Auth) => "auth",
        Some(WaitKind::External) => "external",
        None => "nothing",
    }
}
