//! Asking the model, and keeping what it said.
//!
//! Asking waits for nothing: what the model is asked with may still be on its way to the disk, and becomes durable
//! meanwhile. A run that ends while it is asked is not asked about any further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::{Pin, pin};

use futures_util::FutureExt;
use holdpoint_core::body::Body;
use holdpoint_core::command::{Command, FailKind, FailRun, RecordFailure, RecordReply};
use holdpoint_core::policy::Verdicts;
use holdpoint_core::run::{Heard, Run, Stage};
use holdpoint_core::transcript::transcript;

use super::Drive;
use crate::engine::EngineError;
use crate::model::{GivesUp, ModelFailure, ModelReply, Prompt};
use crate::policy;
use crate::settings::Agent;
use crate::tool::read_result;

type Replied = Result<ModelReply, ModelFailure>;

/// What asking came to; the error is a panic.
type Said = Result<Replied, Box<dyn Any + Send>>;

impl Drive {
    pub(super) async fn think(&mut self, run: &Run) -> Result<(), EngineError> {
        let shared = self.shared.clone();
        let failures = match run.state.stage {
            Stage::Thinking { failures, .. } => failures,
            Stage::Acting | Stage::Ended(_) => 0,
        };
        if self.asks_for_logins(run).await? {
            return Ok(());
        }
        let mut transcript = transcript(&self.events());
        let definition = self.definition().await?;
        let (agent, model) = match shared.model_of(run, &definition) {
            Ok(found) => found,
            Err(missing) => return self.ask_about(&missing).await,
        };
        // Where the model can read on, a long result is shown in part.
        if definition.tools.keys().any(|tool| tool.as_str() == read_result::NAME) {
            read_result::shorten(&mut transcript);
        }
        let prompt = Prompt { definition, transcript, turn: run.state.turn, failures };
        let heard = run.heard();
        let live = shared.live(run, agent.streaming);
        // A model with a bug ends its run, after whoever started it has heard that it is durable.
        let asking = AssertUnwindSafe(async { model.ask(prompt, &live).await }).catch_unwind();
        let mut asked = pin!(asking);
        let (replied, settled) = self.settle_meanwhile(asked.as_mut()).await;
        let replied = match replied {
            Some(replied) => replied,
            None if self.is_void => return settled,
            None => match self.wait_for_reply(asked.as_mut()).await? {
                Some(replied) => replied,
                None => return Ok(()),
            },
        };
        let replied = replied.unwrap_or_else(|panic| resume_unwind(panic));
        self.record(run, &agent, heard, replied).await?;
        settled
    }

    /// Makes durable what was pushed, and lets whoever follows hear of it. A store that is away is asked again for as
    /// long as the model takes: what tools reported is not held back for it.
    async fn settle_meanwhile(
        &mut self,
        mut asked: Pin<&mut impl Future<Output = Said>>,
    ) -> (Option<Said>, Result<(), EngineError>) {
        let (clock, pause) = (self.shared.clock.clone(), self.shared.settings().poll);
        let mut replied = None;
        loop {
            let settled = {
                let mut settling = pin!(self.settle());
                loop {
                    tokio::select! {
                        biased;
                        settled = &mut settling => break settled,
                        reply = &mut asked, if replied.is_none() => replied = Some(reply),
                    }
                }
            };
            if settled.is_ok() || self.is_void || replied.is_some() {
                return (replied, settled);
            }
            tokio::select! {
                biased;
                reply = &mut asked => replied = Some(reply),
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Waits for the reply without losing the run to another node; none when the run is over before it comes, is another
    /// node's by then, or has worked for as long as it may.
    async fn wait_for_reply(
        &mut self,
        mut asked: Pin<&mut impl Future<Output = Said>>,
    ) -> Result<Option<Said>, EngineError> {
        let shared = self.shared.clone();
        loop {
            let (woken, left) = (self.woken.clone(), self.time_left());
            let renewal = self.until_renewal();
            tokio::select! {
                biased;
                replied = &mut asked => return Ok(Some(replied)),
                () = shared.sleep_until_out_of_time(left) => return Ok(None),
                () = woken.changed() => self.refresh().await?,
                () = renewal => self.keep().await?,
            }
            // Whoever has the run now asks again.
            if self.is_lost || self.driver.tip().is_some_and(|run| run.outcome().is_some()) {
                return Ok(None);
            }
        }
    }

    /// What the model said, or that it said nothing, is kept whatever becomes of the store.
    async fn record(
        &mut self,
        run: &Run,
        agent: &Agent,
        heard: Heard,
        replied: Replied,
    ) -> Result<(), EngineError> {
        match replied {
            Ok(ModelReply { gives_up: Some(gives_up), .. }) => {
                let (error, kind) = match gives_up {
                    GivesUp::Fails(why) => (why, FailKind::Final),
                    GivesUp::Rejects(why) => (why, FailKind::Rejected),
                };
                let fail = FailRun { worker: None, error, detail: None, kind };
                self.push(Command::Fail(fail), Verdicts::default()).await
            }
            Ok(reply) => {
                let definition = self.definition().await?;
                let mut verdicts = policy::of_reply(agent, &definition, run, &reply.calls);
                self.refuse_denied(run, agent, &reply.calls, &mut verdicts).await;
                let reply = RecordReply {
                    text: reply.text,
                    parts: reply.parts,
                    calls: reply.calls,
                    opaque: reply.opaque,
                    usage: reply.usage,
                    model: reply.model,
                    heard,
                };
                self.push(Command::RecordReply(reply), verdicts).await
            }
            Err(ModelFailure { error, retry_after }) => {
                let failure = RecordFailure {
                    error: Body::text(error),
                    retry_at: retry_after.map(|span| self.shared.clock.now().plus(span)),
                };
                self.push(Command::RecordFailure(failure), Verdicts::default()).await
            }
        }
    }
}
