//! A run that has not begun and whose agent has tools that nobody knows yet: it asks for the login that they need.
//!
//! Once somebody has logged in, at whichever node, the configuration is read again, and the run goes on.

use std::pin::pin;

use holdpoint_core::command::{Command, Suspend};
use holdpoint_core::id::{CallNo, HoldId, HoldKey};
use holdpoint_core::policy::Verdicts;
use holdpoint_core::run::Run;

use super::Drive;
use crate::engine::EngineError;
use crate::tool::Pending;

impl Drive {
    /// A run that has not begun asks for the logins that its agent's tools need. True when it has something to wait for.
    pub(super) async fn asks_for_logins(&mut self, run: &Run) -> Result<bool, EngineError> {
        let shared = self.shared.clone();
        for desk in shared.awaited(run) {
            if desk.knows_offers().await {
                // Somebody has logged in, perhaps at another node.
                let mut read = pin!(shared.read_again(run, &desk));
                loop {
                    tokio::select! {
                        () = &mut read => break,
                        () = shared.clock.sleep(shared.renewal()) => self.keep().await?,
                    }
                }
                continue;
            }
            let pinned =
                shared.agent(&run.facts.agent).is_ok_and(|agent| agent.digest == run.state.definition);
            if !pinned {
                // It knows what it was told, and nothing of this server.
                continue;
            }
            let secret = shared.clock.entropy().draw("login", 0);
            let hold = HoldId { run: self.run, key: HoldKey { call: CallNo::RUN, secret } };
            let Pending { kind, ask, timeout, secret } = desk.asks(hold, &run.facts.owner).await;
            let (call, attempt, worker) = (CallNo::RUN, 0, None);
            let suspend = Suspend { call, attempt, kind, ask, timeout, secret, worker };
            self.push(Command::Suspend(suspend), Verdicts::default()).await?;
            self.settle().await?;
            return Ok(true);
        }
        Ok(false)
    }
}
