//! Logins at the server behind a gateway: whoever needs one is led to the page of a hold that waits for it, and what they asked goes
//! on once they are back.
//!
//! Which tokens there are, and how they are got, is the tools' business; the hold and its page are the engine's. A call waits for
//! the login as for a decision; any other request is answered with the address.

use axum::response::Response;
use serde_json::json;
use serde_json::value::RawValue;
use standfast_engine::upstream::UpstreamError;
use standfast_engine::{GateState, LoginAsked, LookedUpGate};
use tokio::sync::mpsc::Sender;

use super::super::ladder::{self, OUR_ID, Rung, STRETCH, WaitReason};
use super::super::profile::ClientProfile;
use super::call::{CallRun, Output, Question};
use super::keeper::Keeper;
use super::memory::OpenGuard;
use super::{ClientRequest, RequestId, unreachable_upstream, whole_json};

/// The code of an error that asks a client's user to open an address.
const ADDRESS_REQUIRED: i32 = -32042;

/// The code of any other.
const INTERNAL: i32 = -32603;

/// A login that waits.
pub(super) struct PendingLogin {
    view: LookedUpGate,
    /// The page that leads there.
    url: String,
}

impl Keeper {
    /// The login that the user needs; in words why there is none.
    async fn login(&self) -> Result<PendingLogin, String> {
        let asked = self.app.engine.gates().ask_for_login(&self.who, &self.gateway).await;
        match asked.map_err(|error| self.words(&error))? {
            LoginAsked::Impossible(why) => Err(why),
            LoginAsked::Waits(view) => {
                let hold = view.hold.map(|hold| hold.to_string()).unwrap_or_default();
                Ok(PendingLogin { url: format!("{}/login/{hold}", self.site), view: *view })
            }
        }
    }
}

impl ClientRequest {
    /// The answer to a request that its server did not answer.
    pub(super) async fn not_reached(
        &self,
        error: &UpstreamError,
        asked: Option<&str>,
        client: &ClientProfile,
    ) -> Response {
        let request = asked.and_then(|asked| serde_json::from_str::<RequestId>(asked).ok());
        let (UpstreamError::LoginRequired(why), Some(RequestId { id })) = (error, request) else {
            return unreachable_upstream(error);
        };
        tracing::info!(gateway = self.gateway.name, user = %self.who.user, "mcp: the server behind a gateway requires a login");
        match self.keeper().login().await {
            Ok(login) => whole_json(needs_login(&id, client, why, &login.url)),
            Err(no) => {
                let message = format!(
                    "{why}, and the login cannot be started: {no}. Give the gateway `headers` that the server takes."
                );
                let error = json!({"code": INTERNAL, "message": message});
                whole_json(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
            }
        }
    }
}

/// The error that leads a client's user to the page of a login.
fn needs_login(id: &RawValue, client: &ClientProfile, why: &str, url: &str) -> String {
    let message = format!("{why}. Open {url} in a browser, log in there, and try again.");
    let opens = client.opens_addresses && !client.is_sessionless();
    let address =
        json!({"mode": "url", "elicitationId": format!("{OUR_ID}{url}"), "url": url, "message": message});
    let error = json!({
        "code": if opens { ADDRESS_REQUIRED } else { INTERNAL },
        "message": message,
        "data": {"elicitations": [address]},
    });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

impl CallRun {
    /// Waits until the client's user has logged in at the server, as long as the client can; otherwise what to tell the model.
    pub(super) async fn logs_in(
        &self,
        why: &str,
        open: &OpenGuard,
        out: &Sender<Output>,
    ) -> Result<(), String> {
        let login = match self.keeper.login().await {
            Ok(login) => login,
            Err(no) => return Err(format!("Not executed: {why}, and the login cannot be started: {no}.")),
        };
        let PendingLogin { mut view, url } = login;
        let (clock, server) = (self.keeper.app.engine.clock(), self.keeper.gateway.name.as_str());
        let rung = match ladder::rung(&self.client, &self.call, false) {
            // Those who come back would find a call that is under way.
            Rung::Task | Rung::ComeBack if self.call.progress.is_some() => Rung::Progress,
            Rung::Task | Rung::ComeBack => Rung::Answer,
            rung => rung,
        };
        let until = clock.now().plus(self.budget(rung));
        let mut question = Question::none(self);
        if matches!(rung, Rung::Address | Rung::Form) {
            question.ask(&WaitReason::Login(server), Some(url.as_str()), out).await;
        }
        let (mut step, mut is_wanted) = (0, true);
        while view.state == GateState::Held && is_wanted {
            let left = until.since(clock.now());
            if left.0 <= 0 || self.keeper.app.engine.is_stopping() {
                break;
            }
            step += 1;
            if let Some(line) = self.call.still_waits(step, &format!("waiting for a login: {url}")) {
                self.send(line, out).await;
            }
            tokio::select! {
                () = out.closed() => is_wanted = false,
                () = open.request.cancelled.notified() => is_wanted = false,
                declined = question.is_declined() => is_wanted = !declined,
                looked = self.keeper.past(&[GateState::Held], view.gate, STRETCH.min(left)) => match looked {
                    Ok(now) => view = now,
                    Err(why) => return Err(format!("Not executed: {why}")),
                },
            }
        }
        question.end(view.state != GateState::Held, out).await;
        if view.state == GateState::Done {
            return Ok(());
        }
        Err(format!(
            "Not executed: {why}. Somebody has to open {url} in a browser and log in there. Then repeat exactly this call: what was \
             approved stays approved."
        ))
    }
}
