//! The dialogs of clients: which call is put before the client's own user too, and what follows when such a dialog is gone.
//!
//! A client does not say that its user refused a call in its dialog. What it does next says it: so the gate of a call whose dialog
//! was open is withdrawn then, and no page shows a button for a call that will not come back. A gate without a dialog stays open.

use standfast_core::id::RunId;
use standfast_core::name::SessionId;
use standfast_engine::auth::Principal;
use standfast_engine::{ClosedDialogs, GateError, GateState, GateView, LookedUpGate};

use super::event::{DialogReach, HookEvent, Moment};
use super::{is_same, refused};
use crate::http::{App, Problem};

/// Nobody has decided about this gate, and the client asks its own user about it now.
pub(super) async fn note_open(
    app: &App,
    who: &Principal,
    event: &HookEvent,
    view: Option<&LookedUpGate>,
) -> Result<(), Problem> {
    let Some(view) = view.filter(|view| view.state == GateState::Held) else { return Ok(()) };
    let noted = app.engine.gates().note_dialog(who, view.gate, event.agent.as_deref()).await;
    noted.map_err(|error| refused(&error))
}

/// The gate of the call that a client shows its dialog for, or has closed it: where the hook before it has told the client to ask, both are
/// one question, though the dialog has no name for the call.
pub(super) async fn asked_before(
    app: &App,
    who: &Principal,
    event: &HookEvent,
    session: &SessionId,
) -> Result<Option<RunId>, Problem> {
    if event.call.is_some() || !event.is_readable {
        return Ok(None);
    }
    let gates = app.engine.gates();
    let live = gates.live(who, session).await.map_err(|error| refused(&error))?;
    // The oldest of twins, as clients show their dialogs one after the other.
    for view in live.into_iter().rev() {
        let is_it = matches!(view.state, GateState::Held | GateState::Allowed)
            && view.tool.as_str() == event.tool
            && (is_named(&view) || event.moment != Moment::Permission)
            && is_same(&view, event);
        if is_it && gates.has_dialog(who, &view).await.map_err(|error| refused(&error))? {
            return Ok(Some(view.gate));
        }
    }
    Ok(None)
}

/// Whether a dialog without a name for its call found the gate of a call that has one.
pub(super) fn is_attached(event: &HookEvent, view: &GateView) -> bool {
    event.moment == Moment::Permission && event.call.is_none() && is_named(view)
}

/// Whether the client had a name for the call of a gate.
fn is_named(view: &GateView) -> bool {
    !view.call.contains('#')
}

/// Dialogs are gone: whoever sat there has decided about what they showed.
pub(super) async fn see_closed(
    app: &App,
    who: &Principal,
    event: &HookEvent,
    reach: DialogReach,
) -> Result<(), Problem> {
    let Ok(session) = SessionId::new(&event.session) else { return Ok(()) };
    let closed = match reach {
        DialogReach::All => ClosedDialogs::All,
        DialogReach::OfAgent => ClosedDialogs::OfAgent(event.agent.as_deref()),
        DialogReach::OfCall => {
            let Some(gate) = asked_before(app, who, event, &session).await? else { return Ok(()) };
            ClosedDialogs::OfGate(gate)
        }
    };
    match app.engine.gates().withdraw_closed(who, &session, closed).await {
        Ok(()) => Ok(()),
        Err(GateError::Engine(error)) => Err(refused(&error)),
        Err(error) => Err(Problem::invalid(error.to_string())),
    }
}
