//! Logins that runs wait for: the owner of the run is led to the authorization server and back, and the run goes on
//! (ADR 0011).
//!
//! A run waits for a login in a call whose server asks for one, or, where nobody has ever logged in, before it begins:
//! then the agent's tools are not known yet. Such a run is moved to the agent as it is once they are.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Command};
use standfast_core::event::Driver;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId};
use standfast_core::project::RunRow;
use standfast_core::refusal::Refusal;
use standfast_store::pipeline::Writes;

use super::{Decision, Submit};
use crate::EngineError;
use crate::auth::{Principal, ToDecide, may_decide};
use crate::commit::{Authority, Change, Commit};
use crate::drive::Drives;
use crate::drive::account::account;
use crate::host::Host;
use crate::log::{HoldView, Log, Snapshot};
use crate::reads::Reads;
use crate::settings::PinnedDefinition;
use crate::tool::login::{AuthorizationResponse, LoginDesk, NoLogin, StartedLogin, hold_of};

/// Why somebody could not log in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// As for everything else.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The login itself did not come about.
    #[error(transparent)]
    NoLogin(#[from] NoLogin),
}

/// Logins that runs wait for.
pub struct Logins {
    host: Arc<Host>,
    log: Arc<Log>,
    commit: Arc<Commit>,
    drives: Arc<Drives>,
    reads: Arc<Reads>,
    submit: Arc<Submit>,
}

impl Logins {
    pub(crate) fn new(submit: Arc<Submit>, reads: Arc<Reads>) -> Logins {
        let (host, log) = (submit.host.clone(), submit.log.clone());
        let (commit, drives) = (submit.commit.clone(), submit.drives.clone());
        Logins { host, log, commit, drives, reads, submit }
    }

    /// Begins a login for a hold that waits for one, on what the caller has read of its run.
    pub async fn begin_login(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        hold: HoldId,
    ) -> Result<StartedLogin, LoginError> {
        let (_, desk) = self.login_of(who, snapshot, hold).await?;
        Ok(desk.begin(hold).await?)
    }

    /// Which hold a browser comes back for.
    #[must_use]
    pub fn login_hold(&self, cookie: &str) -> Option<HoldId> {
        let vault = self.host.settings().vault.clone()?;
        hold_of(&vault, cookie)
    }

    /// Finishes a login with what a browser came back with, and lets the run go on.
    pub async fn finish_login(
        &self,
        who: &Principal,
        hold: HoldId,
        cookie: &str,
        returned: &AuthorizationResponse,
    ) -> Result<(), LoginError> {
        let mut snapshot = self.log.snapshot(who, hold.run).await?;
        let (view, desk) = self.login_of(who, &snapshot, hold).await?;
        let run = snapshot.run();
        desk.finish(hold, &account(&run.facts), cookie, returned).await?;
        if view.row.id.key.call == CallNo::RUN {
            desk.clone().learn(&account(&run.facts)).await?;
            self.drives.read_again(run, &*desk).await;
            let moved = self.repin(who, hold, &snapshot).await?;
            snapshot = Snapshot::of_row(self.log.clone(), moved);
        }
        let value = Body::text(format!("logged in at the MCP server `{}`", desk.server()));
        let wanted = Choice::Answer { value };
        let decision = Decision { hold, wanted, digest: None, revision: None, once: None };
        self.submit.decide_on(who, decision.into(), &snapshot).await?;
        Ok(())
    }

    /// The hold, and where its login is made; refused to whoever may not give that login.
    async fn login_of(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        hold: HoldId,
    ) -> Result<(HoldView, Arc<dyn LoginDesk>), LoginError> {
        let view = self.reads.hold_view(who, snapshot, hold).await?;
        if view.row.kind != HoldKind::Auth {
            return Err(EngineError::Refused(Refusal::WrongKind { hold, kind: view.row.kind }).into());
        }
        if !view.may_log_in {
            return Err(EngineError::Refused(Refusal::NotAllowed(Some(hold))).into());
        }
        if view.row.closed.is_some() {
            return Err(NoLogin("this login is no longer pending".into()).into());
        }
        let settings = self.host.settings();
        let agent = &snapshot.run().facts.agent;
        let of_tool = || {
            let tool = view.row.tool.as_ref()?;
            settings.agents.get(agent)?.tools.get(tool)?.desk()
        };
        let asked: Option<serde_json::Value> =
            view.ask.data.as_ref().and_then(Body::inline).and_then(|data| serde_json::from_str(data).ok());
        let of_agent = || {
            let name = asked.as_ref()?.get("server_name")?.as_str()?;
            let awaited = settings.agents.get(agent).into_iter().flat_map(|agent| agent.logins.clone());
            // Somebody else has logged in meanwhile, and the agent has the tools by now.
            let known = settings.agents.get(agent)?.tools.values().filter_map(|tool| tool.desk());
            awaited.chain(known).find(|desk| desk.server() == name)
        };
        // A gateway asks where its server does: nobody's agent has its tools.
        let of_gateway = || {
            let name = asked.as_ref()?.get("server_name")?.as_str()?;
            let mut desks = settings.gateways.values().filter_map(|gateway| gateway.desk.clone());
            desks.find(|desk| desk.server() == name)
        };
        let desk = match snapshot.run().facts.driver {
            Driver::Gate => of_gateway(),
            Driver::Loop | Driver::Outside => of_tool().or_else(of_agent),
        };
        let none = || NoLogin("this server no longer knows where the login is made".into());
        let desk = desk.ok_or_else(none)?;
        Ok((view, desk))
    }

    /// Moves a run that has not begun to its agent as it is now. The run after that.
    async fn repin(&self, who: &Principal, hold: HoldId, snapshot: &Snapshot) -> Result<RunRow, EngineError> {
        let facts = &snapshot.run().facts;
        let agent = self.host.agent(&facts.agent)?;
        let row = snapshot.hold(hold.key).await?.ok_or(EngineError::NotFound)?;
        let approvers = self.host.approvers(&facts.agent);
        let authority = may_decide(who, facts, ToDecide::of(&row, snapshot.run()), &approvers);
        let before = self.log.definition(&facts.agent, snapshot.run().state.definition).await?;
        let PinnedDefinition { definition, digest } = agent.pin_like(&before);
        let put = self.log.put_definition(digest, &definition);
        let change = Change {
            actor: Actor::Person(who.user.clone()),
            authority: Authority {
                role: authority.ok().map(|standing| standing.role),
                ..Authority::default()
            },
            commands: vec![Command::Repin { definition: digest }],
            writes: Writes { puts: vec![put], ..Writes::default() },
        };
        Ok(self.commit.commit(snapshot.stored().row.clone(), change).await?.row)
    }
}
