//! A run that has not begun and whose agent has tools that nobody knows yet: it asks for the login that they need.
//!
//! Once somebody has logged in, at whichever node, the configuration is read again, and the run goes on with its agent as
//! it is then: never without the tools that it waited for.

use std::pin::pin;

use standfast_core::command::{Command, Suspend};
use standfast_core::event::Event;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId, HoldKey};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::run::Run;
use standfast_store::Put;

use super::Drive;
use crate::engine::EngineError;
use crate::engine::orders::More;
use crate::tool::Pending;
use crate::tool::login::LoginDesk;

impl Drive {
    /// A run that has not begun asks for the logins that its agent's tools need. True when it has something to wait for,
    /// or was moved to another definition.
    pub(super) async fn asks_for_logins(&mut self, run: &Run) -> Result<bool, EngineError> {
        let shared = self.shared.clone();
        let awaited = shared.awaited(run);
        let is_pinned =
            shared.agent(&run.facts.agent).is_ok_and(|agent| agent.digest == run.state.definition);
        // One that is not pinned to the agent as it is knows what it was told, and nothing of these servers.
        let lacks_tools = is_pinned && !awaited.is_empty();
        for desk in awaited {
            if desk.knows_offers().await {
                // Somebody has logged in, perhaps at another node.
                let mut read = pin!(shared.read_again(run, &*desk));
                loop {
                    tokio::select! {
                        () = &mut read => break,
                        () = shared.clock.sleep(shared.renewal()) => self.keep().await?,
                    }
                }
            }
            let is_awaited = shared.awaited(run).iter().any(|other| other.server() == desk.server());
            if is_pinned && is_awaited {
                self.asks_for(run, &*desk).await?;
                return Ok(true);
            }
        }
        match run.state.turn == 0 && (lacks_tools || self.has_asked()) {
            true => self.moves_to_its_agent(run).await,
            false => Ok(false),
        }
    }

    async fn asks_for(&mut self, run: &Run, desk: &dyn LoginDesk) -> Result<(), EngineError> {
        let secret = self.shared.clock.entropy().draw("login", 0);
        let hold = HoldId { run: self.run, key: HoldKey { call: CallNo::RUN, secret } };
        let Pending { kind, ask, timeout, secret } = desk.asks(hold, &run.facts.owner).await;
        let (call, attempt, worker) = (CallNo::RUN, 0, None);
        let suspend = Suspend { call, attempt, kind, ask, timeout, secret, worker };
        self.push(Command::Suspend(suspend), Verdicts::default()).await?;
        self.settle().await
    }

    /// Whether it has waited for a login before it began.
    fn has_asked(&self) -> bool {
        let is_login = |event: &Event| {
            matches!(event, Event::HoldOpened(opened)
                if opened.hold.call == CallNo::RUN && opened.kind == HoldKind::Auth)
        };
        self.events().iter().any(|envelope| is_login(&envelope.event))
    }

    /// Moves a run that has not begun to its agent as it is now. False when it is there.
    async fn moves_to_its_agent(&mut self, run: &Run) -> Result<bool, EngineError> {
        let agent = self.shared.agent(&run.facts.agent)?;
        if agent.digest == run.state.definition {
            return Ok(false);
        }
        let put = Put::Definition { digest: agent.digest, bytes: agent.definition.to_bytes() };
        let more = More { puts: vec![put], ..More::default() };
        let repin = Command::Repin { definition: agent.digest };
        self.push_with(Some(Role::System), repin, Verdicts::default(), more).await?;
        self.settle().await?;
        Ok(self.refused.is_none())
    }
}
