//! Hooks of coding agents under `/hooks/{client}`: what the client's own hook sends becomes a gate, and the gate's decision the
//! answer that the client understands.
//!
//! `event.rs` reads what clients send, `answer.rs` is the table of answers to them; both are pure. The gate itself is the
//! engine's, as for `/api/v1/gates`. A client that gives up leaves its gate open; a dialog of its own that is gone does not.
//! `dialogs.rs` has what becomes of those.

mod answer;
mod dialogs;
mod event;
#[cfg(test)]
mod strangers;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use serde::Deserialize;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::hold::OnTimeout;
use standfast_core::id::RunId;
use standfast_core::message::Message;
use standfast_core::name::{SessionId, ToolName};
use standfast_core::policy::Effect;
use standfast_core::time::Millis;
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::{GateError, GateState, GateView, LookedUpGate, NewGate, OpenedGate, Withdrawal};

use self::answer::{Dialog, Edits, Fallback, GateVerdict};
use self::event::{Client, HookEvent, Moment};
use crate::http::{App, Args, JsonBody, Problem, Segment, gate_problem, gate_text, refusal, site};

/// The longest that a hook waits, in seconds.
const LONGEST_WAIT: u64 = 86_400;

/// How long a hook waits unless it says.
const USUAL_WAIT: u64 = 25;

/// How long what a coding agent runs may take before somebody is asked what became of it.
const LEASE: Millis = Millis::hours(12);

/// How often the same call may be approved in one conversation by clients that have no names for calls.
const REPEATS: u32 = 100;

/// How long to wait, and the answer to the client when nobody has decided by then.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookArgs {
    wait: Option<u64>,
    #[serde(default)]
    then: Fallback,
}

/// The routes.
pub fn routes() -> Router<App> {
    Router::new().route("/hooks/{client}", post(hook))
}

async fn hook(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Segment(client): Segment,
    Args(args): Args<HookArgs>,
    headers: axum::http::HeaderMap,
    JsonBody(fields): JsonBody<BTreeMap<String, Box<RawValue>>>,
) -> Result<Response, Problem> {
    // Also what no rule is about: whoever opens no gates hears nothing of the policy.
    if !who.has(Scope::GatesOpen) {
        return Err(Problem::missing_scope(Scope::GatesOpen));
    }
    let client = Client::named(&client).ok_or_else(|| unknown_client(&client))?;
    let event = event::read(client, &fields).map_err(Problem::invalid)?;
    let site = site(&app.engine, &headers);
    let text = match &event.moment {
        Moment::Before | Moment::Permission => {
            let wait = args.wait.unwrap_or(USUAL_WAIT).min(LONGEST_WAIT);
            let dialog = Dialog::of(client, &event.moment, args.then);
            let view = ask(&app, &who, (client, &event), (wait, dialog)).await?;
            let verdict = verdict_of(&app, &who, (client, &event), view.as_ref(), &site).await?;
            if dialog == Dialog::Afterwards {
                dialogs::note_open(&app, &who, &event, view.as_ref()).await?;
            }
            answer::of(client, &event, &verdict, args.then)
        }
        Moment::After(_) | Moment::DecidedThere => {
            report(&app, &who, &event).await?;
            answer::silence(client).to_owned()
        }
        Moment::DialogsClosed(reach) => {
            dialogs::see_closed(&app, &who, &event, *reach).await?;
            answer::to_news(client, &event).to_owned()
        }
        Moment::Other => answer::silence(client).to_owned(),
    };
    let headers = [(header::CONTENT_TYPE, "application/json")];
    Ok((StatusCode::OK, headers, text).into_response())
}

fn unknown_client(name: &str) -> Problem {
    let detail = format!("there is no client {name:?}; the clients are: {}", Client::NAMES.join(", "));
    Problem::new(StatusCode::NOT_FOUND, "no-such-client", "No such client", detail)
}

fn refused(error: &standfast_engine::EngineError) -> Problem {
    refusal::problem(None, error)
}

/// The gate of a call, as soon as it is decided or the time is up; none where no rule is about the call.
async fn ask(
    app: &App,
    who: &Principal,
    (client, event): (Client, &HookEvent),
    (wait, dialog): (u64, Dialog),
) -> Result<Option<LookedUpGate>, Problem> {
    let tool =
        ToolName::new(&event.tool).map_err(|bad| Problem::invalid(format!("the tool's name: {bad}")))?;
    let session =
        SessionId::new(&event.session).map_err(|bad| Problem::invalid(format!("session: {bad}")))?;
    if let Some(view) = asked_as_edited(app, who, (client, event), &session).await? {
        return Ok(Some(view));
    }
    if event.moment == Moment::Permission
        && let Some(gate) = dialogs::asked_before(app, who, event, &session).await?
    {
        return wait_for(app, who, event, gate, (wait, dialog)).await.map(Some);
    }
    let by_rule = app.engine.gates().by_a_rule(who, &tool, event.arguments.text(), &session);
    if by_rule.is_none() && event.is_readable {
        return Ok(None);
    }
    // What a rule settles without a person need not be found again, so its name need not be the same.
    // Whoever asks by a hook does not say when the call starts, so nobody could count it.
    let is_counted = app.engine.gates().is_counted_at_start(who, &tool, event.arguments.text(), &session);
    let asks_nobody =
        by_rule.is_some_and(|effect| effect != Effect::Hold) && event.is_readable && !is_counted;
    for no in 1..=REPEATS {
        let call = match &event.call {
            Some(call) => call.clone(),
            None if asks_nobody => format!("{:?}", app.engine.clock().entropy().draw("call", no)),
            None => format!("{}#{no}", event.moment.name()),
        };
        let new = NewGate {
            tool: tool.clone(),
            arguments: event.arguments.clone(),
            schema: None,
            session: session.clone(),
            call,
            message: message(client, event),
            deadline: None,
            on_deadline: OnTimeout::Deny,
            asks: if event.is_readable && !is_counted { Effect::Allow } else { Effect::Hold },
            question: None,
            is_destructive: false,
        };
        let gates = app.engine.gates();
        let opened = gates.open(who, vec![new], None).await.map_err(|error| refused(&error))?;
        let OpenedGate { gate, is_new } = opened.first().copied().ok_or_else(Problem::not_found)?;
        let view = gates.look(who, gate).await.map_err(|error| refused(&error))?;
        // What a standing approval lets run is counted for one call.
        let was_counted = !is_new && view.decision.as_ref().is_some_and(|decision| decision.grant.is_some());
        let is_used_up = was_counted
            || matches!(
                view.state,
                GateState::Done | GateState::Started | GateState::Withdrawn | GateState::Expired
            );
        // Without a name of its own the same call again is another call, once the one before has run.
        if event.call.is_none() && is_used_up {
            continue;
        }
        return if view.state == GateState::Held {
            wait_for(app, who, event, gate, (wait, dialog)).await.map(Some)
        } else {
            Ok(Some(view))
        };
    }
    let detail =
        format!("the same call was approved {REPEATS} times in this conversation; begin another one");
    Err(Problem::invalid(detail))
}

/// A gate as soon as it is decided, or the time is up. What a dialog beside the hook shows is noted before.
async fn wait_for(
    app: &App,
    who: &Principal,
    event: &HookEvent,
    gate: RunId,
    (wait, dialog): (u64, Dialog),
) -> Result<LookedUpGate, Problem> {
    let gates = app.engine.gates();
    if dialog == Dialog::Beside {
        let noted = gates.note_dialog(who, gate, event.agent.as_deref()).await;
        noted.map_err(|error| refused(&error))?;
    }
    let wait = Millis(i64::try_from(wait.saturating_mul(1000)).unwrap_or(i64::MAX));
    gates.decided(who, gate, wait).await.map_err(|error| refused(&error))
}

/// The gate whose edited arguments are exactly these, where the client could not take them with its permission: it was told to
/// have its model ask for them, and what was approved is not asked about again.
async fn asked_as_edited(
    app: &App,
    who: &Principal,
    (client, event): (Client, &HookEvent),
    session: &SessionId,
) -> Result<Option<LookedUpGate>, Problem> {
    if Edits::of(client, &event.moment) == Edits::Taken {
        return Ok(None);
    }
    let gates = app.engine.gates();
    let live = gates.live(who, session).await.map_err(|error| refused(&error))?;
    let is_it = |view: &&GateView| {
        let is_edited = view.decision.as_ref().is_some_and(|decision| decision.is_edited);
        view.state == GateState::Allowed
            && is_edited
            && view.tool.as_str() == event.tool
            && is_same(view, event)
    };
    match live.iter().find(is_it) {
        Some(view) => gates.look(who, view.gate).await.map(Some).map_err(|error| refused(&error)),
        None => Ok(None),
    }
}

/// Whether a call has the arguments of a gate. Clients write them in their own way, with other spaces or another order.
fn is_same(view: &GateView, event: &HookEvent) -> bool {
    match &view.arguments {
        Body::Json(arguments) => arguments.loose_key() == event.arguments.loose_key(),
        Body::Text(_) | Body::Blob(_) => view.arguments.inline() == Some(event.arguments.text()),
    }
}

/// What approvers see.
fn message(client: Client, event: &HookEvent) -> Message {
    let mut text = format!("{} asks before it runs {}", client.title(), event.tool);
    if let Some(folder) = &event.folder {
        text.push_str(&format!(" in {folder}"));
    }
    text.push('.');
    if !event.is_readable {
        text.push_str(" Its arguments are not JSON, so no rule could look at them.");
    }
    if let Some(words) = &event.words {
        text.push_str(&format!("\n\nWhy, in its own words: {words}"));
    }
    Message::of(vec![standfast_core::message::Part::Text(Body::text(text))])
}

/// What a gate means for its client. A call that may run is started here, so that no second hook lets it run again; the hook
/// that comes after it tells what it did.
async fn verdict_of(
    app: &App,
    who: &Principal,
    (client, event): (Client, &HookEvent),
    view: Option<&LookedUpGate>,
    site: &str,
) -> Result<GateVerdict, Problem> {
    let Some(view) = view else { return Ok(GateVerdict::NoRule) };
    let text = || gate_text(view, site);
    Ok(match view.state {
        GateState::Held => GateVerdict::Undecided(text()),
        GateState::Denied | GateState::Expired | GateState::Withdrawn => GateVerdict::Denied(text()),
        // Its twin was let run: its own dialog stays.
        GateState::Started | GateState::Done | GateState::OutcomeUnknown
            if dialogs::is_attached(event, view) =>
        {
            GateVerdict::Undecided(text())
        }
        GateState::Started | GateState::Done | GateState::OutcomeUnknown => {
            GateVerdict::Denied(format!("Not executed again. {}", text()))
        }
        GateState::Allowed => {
            let is_edited = view.decision.as_ref().is_some_and(|decision| decision.is_edited);
            let verdict = match &view.arguments {
                _ if !is_edited => GateVerdict::Approved(text()),
                _ if is_same(view, event) => {
                    let tool = &view.tool;
                    GateVerdict::Approved(format!(
                        "Approved: {tool} may run with exactly these arguments, once."
                    ))
                }
                Body::Json(arguments) => GateVerdict::Edited(arguments.clone(), text()),
                Body::Text(_) | Body::Blob(_) => return Ok(GateVerdict::Denied(text())),
            };
            // A client that would not run exactly what was approved is not let run: nothing starts until its model asks for that.
            if let GateVerdict::Edited(arguments, _) = &verdict
                && !Edits::of(client, &event.moment).run(&event.arguments, arguments)
            {
                return Ok(verdict);
            }
            match app.engine.gates().start_on(who, view, LEASE).await {
                Ok(_) => verdict,
                Err(GateError::Engine(error)) => return Err(refused(&error)),
                Err(GateError::AlreadyStarted { .. }) if dialogs::is_attached(event, view) => {
                    GateVerdict::Undecided(text())
                }
                Err(error) => GateVerdict::Denied(format!("Not executed: {error}")),
            }
        }
    })
}

/// What ran, or was decided at the client's own terminal, is reported to the gate of the call. A call that has no gate is nobody's
/// business.
async fn report(app: &App, who: &Principal, event: &HookEvent) -> Result<(), Problem> {
    let Ok(session) = SessionId::new(&event.session) else { return Ok(()) };
    let gates = app.engine.gates();
    let live = gates.live(who, &session).await.map_err(|error| refused(&error))?;
    let named = event.call.as_ref().and_then(|call| live.iter().find(|view| view.call == *call));
    // A client may ask without a name for the call, and have one afterwards.
    let is_it = |view: &&GateView| {
        let is_unnamed = event.call.is_none() || view.call.contains('#');
        is_unnamed && view.tool.as_str() == event.tool && is_same(view, event)
    };
    let runs = |view: &&GateView| is_it(view) && view.state == GateState::Started;
    let found = named.or_else(|| live.iter().find(runs)).or_else(|| live.iter().find(is_it));
    let Some(view) = found else { return Ok(()) };
    let done = match (&event.moment, view.state) {
        (Moment::After(outcome), GateState::Started | GateState::Allowed | GateState::OutcomeUnknown) => {
            gates.report(who, view.gate, view.attempt, outcome.clone(), None).await
        }
        // Nobody had decided here, and it ran, or was refused, all the same: somebody decided there.
        (_, GateState::Held) | (Moment::DecidedThere, GateState::Allowed) => {
            gates.withdraw(who, view.gate, Withdrawal::DecidedElsewhere, None).await
        }
        (Moment::DecidedThere, GateState::Started) => {
            let outcome = standfast_engine::GateOutcome::NotExecuted;
            gates.report(who, view.gate, view.attempt, outcome, None).await
        }
        _ => Ok(()),
    };
    match done {
        Ok(()) | Err(GateError::WrongState { .. }) => Ok(()),
        Err(error) => Err(gate_problem(view.gate, &error)),
    }
}
