//! A gate at which somebody logs in at the server behind a gateway, in the place of a call: its hold is like that of a run that needs
//! a login, with the same page and the same way back (`submit/logins.rs`).
//!
//! One waits for each user and gateway; whoever needs it attaches to it. What the login is used for is the gateway's to say.

use standfast_core::body::Body;
use standfast_core::command::AskedCall;
use standfast_core::hold::OnTimeout;
use standfast_core::id::{HoldId, HoldKey, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};
use standfast_core::name::{SessionId, ToolName};
use standfast_core::policy::Effect;
use standfast_store::StoreError;

use super::open::{JudgedGate, NewGate, PlannedGate, facts, planned};
use super::{CALL, GateState, Gates, LookedUpGate, RETRIES};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::log::needs;
use crate::policy;
use crate::upstream::Gateway;

/// What came of asking for a login.
pub enum LoginAsked {
    /// This gate waits for it.
    Waits(Box<LookedUpGate>),
    /// Nobody can log in there; why not.
    Impossible(String),
}

impl Gates {
    /// The gate at which a user of a gateway logs in: the one that waits, or a new one.
    pub async fn ask_for_login(&self, who: &Principal, gateway: &Gateway) -> Result<LoginAsked, EngineError> {
        needs(who, Scope::GatesOpen)?;
        let Some(desk) = &gateway.desk else {
            return Ok(LoginAsked::Impossible("the gateway sends a header of its own".to_owned()));
        };
        let Some(new) = login_gate(gateway) else {
            return Ok(LoginAsked::Impossible("the gateway's name is too long for a tool".to_owned()));
        };
        let agent = self.host.settings().gate.clone();
        let name = |no: u32| format!("login#{no}");
        for _ in 0..RETRIES {
            let no = match self.last_repeat(who, &new, name).await? {
                None => 1,
                Some((no, gate)) => {
                    let view = self.look(who, gate).await?;
                    if view.state == GateState::Held {
                        return Ok(LoginAsked::Waits(Box::new(view)));
                    }
                    no.saturating_add(1)
                }
            };
            let gate: PlannedGate = planned(who, &agent, NewGate { call: name(no), ..new.clone() });
            let id = self.host.clock.run_id(&who.tenant, StorageKind::Durable);
            let secret = self.host.clock.entropy().draw("login", no);
            let asks = desk.asks(HoldId { run: id, key: HoldKey { call: CALL, secret } }, &who.user).await;
            if asks.ask.data.is_none() {
                return Ok(LoginAsked::Impossible(asks.ask.reason.unwrap_or_default()));
            }
            let now = self.host.clock.now();
            let call = AskedCall {
                id: gate.new.call.clone(),
                tool: gate.new.tool.to_string(),
                arguments: gate.new.arguments.text().to_owned(),
                problem: None,
            };
            let judged = JudgedGate {
                facts: facts(who, &agent, (id, gate.new.session.clone()), now),
                call,
                question: Some(asks),
                verdicts: policy::of_question(&agent),
                now,
            };
            let start = self.start_of(who, &gate, judged, None);
            match self.commit.commit_starts(vec![start]).await {
                Ok(rows) => {
                    rows.into_iter().for_each(|row| self.log.known.put(row.run.facts.clone()));
                    return Ok(LoginAsked::Waits(Box::new(self.look(who, id).await?)));
                }
                // Another request of the same user asked at this moment.
                Err(EngineError::Store(StoreError::Guard { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Unavailable { why: "others ask for the same login at this moment".to_owned() }.into())
    }
}

/// What people see of it beside what the login asks; none where the gateway's name makes none of a tool.
fn login_gate(gateway: &Gateway) -> Option<NewGate> {
    let text = format!("Clients of the gateway `{}` wait for this login.", gateway.name);
    Some(NewGate {
        tool: ToolName::new(format!("mcp__{}__login", gateway.name)).ok()?,
        arguments: RawJson::parse("{}").ok()?,
        schema: None,
        session: SessionId::new(format!("mcp/{}", gateway.name)).ok()?,
        call: String::new(),
        message: Message::of(vec![Part::Text(Body::text(text))]),
        deadline: None,
        on_deadline: OnTimeout::Deny,
        asks: Effect::Allow,
        question: None,
        is_destructive: false,
    })
}
