//! A run that has not begun and whose agent has tools that nobody knows yet: it asks for the login that they need.
//!
//! Once somebody has logged in, at whichever node, the configuration is read again, and the run goes on with its agent as
//! it is then: never without the tools that it waited for.

use std::pin::pin;
use std::sync::Arc;

use standfast_core::command::{Command, Suspend};
use standfast_core::event::Event;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId, HoldKey};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::run::Run;
use standfast_core::time::Millis;
use standfast_store::pipeline::Writes;

use super::known_log::known_events;
use super::{Drive, Drives};
use crate::EngineError;
use crate::settings::PinnedDefinition;
use crate::tool::Suspension;
use crate::tool::login::LoginDesk;

/// How long a configuration may take to be read again.
const RELOAD: Millis = Millis::seconds(60);

/// A run that has not begun asks for the logins that its agent's tools need. True when it has something to wait for,
/// or was moved to another definition.
pub(super) async fn asks_for_logins(drive: &mut Drive, run: &Run) -> Result<bool, EngineError> {
    let drives = drive.drives.clone();
    let awaited = drives.awaited(run);
    let is_pinned = drives.host.agent(&run.facts.agent).is_ok_and(|agent| agent.pins(run.state.definition));
    // One that is not pinned to the agent as it is knows what it was told, and nothing of these servers.
    let lacks_tools = is_pinned && !awaited.is_empty();
    for desk in awaited {
        if desk.knows_offers().await {
            // Somebody has logged in, perhaps at another node.
            let mut read = pin!(drives.read_again(run, &*desk));
            loop {
                tokio::select! {
                    () = &mut read => break,
                    () = drives.host.clock.sleep(drives.renewal()) => drive.keep().await?,
                }
            }
        }
        let is_awaited = drives.awaited(run).iter().any(|other| other.server() == desk.server());
        if is_pinned && is_awaited {
            asks_for(drive, run, &*desk).await?;
            return Ok(true);
        }
    }
    if run.state.turn == 0 && (lacks_tools || has_asked(drive)) {
        moves_to_its_agent(drive, run).await
    } else {
        Ok(false)
    }
}

async fn asks_for(drive: &mut Drive, run: &Run, desk: &dyn LoginDesk) -> Result<(), EngineError> {
    let secret = drive.drives.host.clock.entropy().draw("login", 0);
    let hold = HoldId { run: drive.run, key: HoldKey { call: CallNo::RUN, secret } };
    let Suspension { kind, ask, timeout, secret } = desk.asks(hold, &run.facts.owner).await;
    let (call, attempt, worker) = (CallNo::RUN, 0, None);
    let suspend = Suspend { call, attempt, kind, ask, timeout, secret, worker };
    drive.push(Command::Suspend(suspend), Verdicts::default()).await?;
    drive.settle().await
}

/// Whether it has waited for a login before it began.
fn has_asked(drive: &Drive) -> bool {
    let is_login = |event: &Event| {
        matches!(event, Event::HoldOpened(opened)
            if opened.hold.call == CallNo::RUN && opened.kind == HoldKind::Auth)
    };
    known_events(drive).any(|envelope| is_login(&envelope.event))
}

/// Moves a run that has not begun to its agent as it is now. False when it is there.
async fn moves_to_its_agent(drive: &mut Drive, run: &Run) -> Result<bool, EngineError> {
    let agent = drive.drives.host.agent(&run.facts.agent)?;
    if agent.pins(run.state.definition) {
        return Ok(false);
    }
    let before = drive.drives.log.definition(&run.facts.agent, run.state.definition).await?;
    let PinnedDefinition { definition, digest } = agent.pin_like(&before);
    let put = drive.drives.log.put_definition(digest, &definition);
    let writes = Writes { puts: vec![put], ..Writes::default() };
    let repin = Command::Repin { definition: digest };
    drive.push_with(Role::System.into(), repin, writes).await?;
    drive.settle().await?;
    Ok(drive.refused.is_none())
}

impl Drives {
    /// Servers whose tools the run's agent does not know yet, because nobody has logged in there.
    pub(crate) fn awaited(&self, run: &Run) -> Vec<Arc<dyn LoginDesk>> {
        self.host
            .settings()
            .agents
            .get(&run.facts.agent)
            .map(|agent| agent.logins.clone())
            .unwrap_or_default()
    }

    /// Has the configuration read again, and waits until this server is not awaited any more, for a while.
    pub(crate) async fn read_again(&self, run: &Run, desk: &dyn LoginDesk) {
        let mut reloads = self.host.reloads();
        let is_awaited = || self.awaited(run).iter().any(|other| other.server() == desk.server());
        let read = async {
            while is_awaited() {
                desk.tell();
                let _ = self.host.clock.timeout(Millis::seconds(5), reloads.changed()).await;
            }
        };
        if self.host.clock.timeout(RELOAD, read).await.is_none() {
            tracing::warn!(server = desk.server(), "drive: the configuration was not reloaded after a login");
        }
    }
}
