//! Logins that runs wait for: the owner of the run is led to the authorization server and back, and the run goes on
//! (ADR 0011).
//!
//! A run waits for a login in a call whose server asks for one, or, where nobody has ever logged in, before it begins:
//! then the agent's tools are not known yet. Such a run is moved to the agent as it is once they are.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::base32;
use standfast_core::body::Body;
use standfast_core::command::{Command, Wanted};
use standfast_core::digest::{self, Digest};
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId};
use standfast_core::name::{Tenant, UserId};
use standfast_core::policy::Verdicts;
use standfast_core::refusal::Refusal;
use standfast_core::run::{Facts, Run};
use standfast_core::time::Millis;
use standfast_store::Put;
use standfast_store::ahead::Driver;

use super::orders::{Lease, More, beside};
use super::{Decision, Engine, EngineError, HoldView, Shared};
use crate::auth::{Principal, may_decide};
use crate::tool::login::{Begun, LoginDesk, NoLogin, Returned, hold_of};

/// How long a configuration may take to be read again.
const RELOAD: Millis = Millis::seconds(60);

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

/// Under what name the logins of a run's owner are kept: users of the same name in two tenants are two people.
pub(super) fn account(facts: &Facts) -> UserId {
    let (tenant, owner) = (&facts.tenant, &facts.owner);
    if *tenant == Tenant::default_tenant() {
        return owner.clone();
    }
    let parts = [tenant.as_str().as_bytes(), owner.as_str().as_bytes()];
    let Digest(bytes) = digest::of_parts("standfast.account.1", &parts);
    let tag = base32::encode(bytes.get(..15).unwrap_or_default());
    // A name that would be too long is told by its tag alone.
    UserId::new(format!("{owner} of {tenant} ({tag})")).unwrap_or_else(|_| match UserId::new(tag) {
        Ok(account) => account,
        Err(bad) => unreachable!("24 letters and digits are a name: {bad}"),
    })
}

impl Engine {
    /// Begins a login for a hold that waits for one.
    pub async fn begin_login(&self, who: &Principal, hold: HoldId) -> Result<Begun, LoginError> {
        let (_, _, desk) = self.login_of(who, hold).await?;
        Ok(desk.begin(hold).await?)
    }

    /// Which hold a browser comes back for.
    #[must_use]
    pub fn login_hold(&self, cookie: &str) -> Option<HoldId> {
        let vault = self.shared.settings().vault.clone()?;
        hold_of(&vault, cookie)
    }

    /// Finishes a login with what a browser came back with, and lets the run go on.
    pub async fn finish_login(
        &self,
        who: &Principal,
        hold: HoldId,
        cookie: &str,
        returned: &Returned,
    ) -> Result<(), LoginError> {
        let (view, run, desk) = self.login_of(who, hold).await?;
        desk.finish(hold, &account(&run.facts), cookie, returned).await?;
        if view.row.id.key.call == CallNo::RUN {
            desk.clone().learn(&account(&run.facts)).await?;
            self.shared.read_again(&run, &*desk).await;
            self.repin(who, hold).await?;
        }
        let value = Body::text(format!("logged in at the MCP server `{}`", desk.server()));
        let wanted = Wanted::Answer { value };
        self.decide(who, Decision { hold, wanted, digest: None, revision: None, once: None }).await?;
        Ok(())
    }

    /// The hold, its run, and where its login is made; refused to whoever may not give that login.
    async fn login_of(
        &self,
        who: &Principal,
        hold: HoldId,
    ) -> Result<(HoldView, Run, Arc<dyn LoginDesk>), LoginError> {
        let view = self.hold(who, hold).await?;
        let run = self.see(who, hold.run).await?;
        if view.row.kind != HoldKind::Auth {
            return Err(
                EngineError::Refused(Refusal::WrongKind { hold: hold.key, kind: view.row.kind }).into()
            );
        }
        if !view.may_log_in {
            return Err(EngineError::Refused(Refusal::NotAllowed(hold.key)).into());
        }
        if view.row.closed.is_some() {
            return Err(NoLogin("nobody waits for this login any more".into()).into());
        }
        let settings = self.shared.settings();
        let agent = &run.facts.agent;
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
        let desk = of_tool().or_else(of_agent);
        let none = || NoLogin("this server no longer knows where the login is made".into());
        Ok((view, run, desk.ok_or_else(none)?))
    }

    /// Moves a run that has not begun to its agent as it is now.
    async fn repin(&self, who: &Principal, hold: HoldId) -> Result<(), EngineError> {
        let shared = &self.shared;
        let stored = self.visible(who, hold.run).await?;
        let facts = &stored.row.run.facts;
        let agent = shared.agent(&facts.agent)?;
        let row = shared.store.find_hold(hold).await?.ok_or(EngineError::NotFound)?;
        let approvers = shared.approvers(&facts.agent);
        let authority = may_decide(who, facts, (&row).into(), &approvers);
        let definition = shared.definition(&facts.agent, stored.row.run.state.definition).await?;
        let put = Put::Definition { digest: agent.digest, bytes: agent.definition.to_bytes() };
        let more = More { puts: vec![put], ..More::default() };
        let mut order = shared.order(
            vec![Command::Repin { definition: agent.digest }],
            Actor::Person(who.user.clone()),
            definition,
            Verdicts::default(),
            beside(Lease::Untouched, &approvers, more),
        );
        order.given.authority = authority;
        let mut driver = Driver::of(shared.store.clone(), stored.row);
        driver.push(order);
        self.settled(hold.run, driver, None).await.map(|_| ())
    }
}

impl Shared {
    /// Servers whose tools the run's agent does not know yet, because nobody has logged in there.
    pub(super) fn awaited(&self, run: &Run) -> Vec<Arc<dyn LoginDesk>> {
        self.agent(&run.facts.agent).map(|agent| agent.logins.clone()).unwrap_or_default()
    }

    /// Has the configuration read again, and waits until this server is not awaited any more, for a while.
    pub(super) async fn read_again(&self, run: &Run, desk: &dyn LoginDesk) {
        let mut reloads = self.reloads.subscribe();
        let is_awaited = || self.awaited(run).iter().any(|other| other.server() == desk.server());
        let read = async {
            while is_awaited() {
                desk.tell();
                let _ = self.clock.timeout(Millis::seconds(5), reloads.changed()).await;
            }
        };
        if self.clock.timeout(RELOAD, read).await.is_none() {
            tracing::warn!(server = desk.server(), "the configuration was not taken again after a login");
        }
    }
}
