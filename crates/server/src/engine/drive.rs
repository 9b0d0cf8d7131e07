//! Following one run until it waits or ends: ask the model, start calls, report what they did.
//!
//! A call's effect begins only after its `call.started` is durable, and not after `start_by`. What a tool reported is
//! handed to the store at once. Whatever a node that died had started is found by its incarnation and never guessed.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use holdpoint_core::actor::Actor;
use holdpoint_core::body::Body;
use holdpoint_core::command::{Begin, Command, FinishCall, RecordFailure, RecordReply, Suspend};
use holdpoint_core::event::Envelope;
use holdpoint_core::id::{CallId, CallNo, RunId, Seq};
use holdpoint_core::message::ToolResult;
use holdpoint_core::next::{Next, Running, next};
use holdpoint_core::policy::Verdicts;
use holdpoint_core::run::{CallAttempt, Run, Stage};
use holdpoint_core::time::Millis;
use holdpoint_core::transcript::{stored_call, transcript};
use holdpoint_store::StoreError;
use holdpoint_store::ahead::Driver;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::sleep;

use super::orders::beside;
use super::{EngineError, Place, Shared};
use crate::clock::duration;
use crate::model::{ModelFailure, Prompt};
use crate::policy;
use crate::tool::{Invocation, Outcome};

/// An instant this long before the lease ends is the last at which an effect may begin.
const START_MARGIN: Millis = Millis::seconds(2);

/// How often a run waits for a store that is away before it is left to whoever finds it later.
const STORE_TRIES: u32 = 120;

impl Shared {
    /// Drives a run in the background.
    pub(super) fn drive(self: &Arc<Shared>, driver: Driver, log: Vec<Envelope>, place: Place) {
        let Some(run) = driver.durable().map(|row| row.run.facts.id) else { return };
        let drive = Drive {
            shared: self.clone(),
            run,
            driver,
            log,
            tools: JoinSet::new(),
            begun: HashSet::new(),
            at_work: HashMap::new(),
            woken: self.wakes.listen(run),
            _place: place,
        };
        let shared = self.clone();
        self.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(drive.until_it_waits()).catch_unwind().await {
                shared.after_panic(run, panic).await;
            }
        });
    }

    /// Waits for something long without losing the run to another node.
    async fn keeping_the_lease<T>(&self, run: RunId, long: impl Future<Output = T>) -> T {
        let mut long = std::pin::pin!(long);
        let renewal = duration(Millis(self.settings.lease.0 / 3));
        loop {
            tokio::select! {
                done = &mut long => return done,
                () = sleep(renewal) => self.renew(run).await,
            }
        }
    }

    async fn renew(&self, run: RunId) {
        let until = self.clock.now().plus(self.settings.lease);
        // Losing a lease never harms state: whoever takes over is told apart by the sequence.
        let _ = self.store.renew(vec![run], self.node, until).await;
    }
}

struct Drive {
    shared: Arc<Shared>,
    run: RunId,
    driver: Driver,
    /// The run's events, as far as they are durable.
    log: Vec<Envelope>,
    tools: JoinSet<Outcome>,
    /// Starts that this drive itself has made and not run yet. Only these are run: any other start, also one of this
    /// very node, may have had its effect already.
    begun: HashSet<CallAttempt>,
    at_work: HashMap<Id, CallAttempt>,
    woken: Arc<Notify>,
    _place: Place,
}

/// Whether there is more to do.
enum Step {
    GoOn,
    Stop,
}

impl Drive {
    async fn until_it_waits(mut self) {
        loop {
            match self.step().await {
                Ok(Step::GoOn) => {}
                Ok(Step::Stop) => break,
                Err(error) if self.recovers_from(&error).await => {}
                Err(EngineError::Store(StoreError::Corrupt { why, .. })) => {
                    self.shared.put_aside(self.run, &why).await;
                    return;
                }
                Err(error) => {
                    tracing::warn!(run = %self.run, %error, "left for another try");
                    break;
                }
            }
        }
        // Mostly the last append has done so already.
        let _ = self.shared.store.release(self.run, self.shared.node).await;
        self.shared.wakes.wake_worker();
    }

    /// A store that is away for a while: what the model said and what tools reported is kept and written when it is
    /// back, never asked for or run again.
    async fn recovers_from(&mut self, error: &EngineError) -> bool {
        let mut error = error.clone();
        for _ in 0..STORE_TRIES {
            let EngineError::Store(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) = &error
            else {
                return false;
            };
            tracing::warn!(run = %self.run, %error, "waiting for the store");
            sleep(duration(self.shared.settings.poll)).await;
            match self.settle().await {
                Ok(()) => return true,
                Err(again) => error = again,
            }
        }
        false
    }

    async fn step(&mut self) -> Result<Step, EngineError> {
        let Some(run) = self.driver.tip().cloned() else { return Ok(Step::Stop) };
        match next(&run, self.shared.clock.now()) {
            Next::Tick => self.push(Command::Tick, Verdicts::default()).await?,
            Next::Think => self.think(&run).await?,
            Next::Act { ready, started } if run.outcome().is_none() => self.act(&run, ready, started).await?,
            Next::Act { started, .. } => self.stop_tools(started).await?,
            Next::Wait(_) | Next::Nothing => {
                self.settle().await?;
                return Ok(Step::Stop);
            }
        }
        Ok(Step::GoOn)
    }

    /// Asks the model. It waits for nothing: what it is asked with may still be on its way to the disk.
    async fn think(&mut self, run: &Run) -> Result<(), EngineError> {
        let shared = self.shared.clone();
        let agent = shared.agent(&run.facts.agent)?;
        let definition = shared.definition(agent, run.state.definition).await?;
        let failures = match run.state.stage {
            Stage::Thinking { failures, .. } => failures,
            Stage::Acting | Stage::Ended(_) => 0,
        };
        let transcript = transcript(&self.events());
        let prompt = Prompt { definition, transcript, turn: run.state.turn, failures };
        let heard = run.heard();
        let asked = agent.model.ask(prompt);
        let command = match shared.keeping_the_lease(self.run, asked).await {
            Ok(reply) => {
                let verdicts = policy::of_reply(agent, run, &reply.calls);
                let reply = RecordReply {
                    text: reply.text,
                    calls: reply.calls,
                    opaque: reply.opaque,
                    usage: reply.usage,
                    model: reply.model,
                    heard,
                };
                return self.push(Command::RecordReply(reply), verdicts).await;
            }
            Err(ModelFailure { error, retry_after }) => Command::RecordFailure(RecordFailure {
                error: Body::text(error),
                retry_at: retry_after.map(|span| shared.clock.now().plus(span)),
            }),
        };
        self.push(command, Verdicts::default()).await
    }

    /// Starts what may start, runs what this node has started, reports what came of it.
    async fn act(&mut self, run: &Run, ready: Vec<CallNo>, started: Vec<Running>) -> Result<(), EngineError> {
        let agent_verdicts = policy::of_run(self.shared.agent(&run.facts.agent)?, run);
        if !ready.is_empty() {
            // Before anything starts, everything below it is durable.
            self.settle().await?;
            for call in ready {
                let attempt = run.call(call).map_or(0, |call| call.attempt) + 1;
                self.begun.insert(CallAttempt { call, attempt });
                self.begin(call, agent_verdicts.clone()).await?;
            }
            return self.settle().await;
        }
        for running in started {
            let attempt = CallAttempt { call: running.call, attempt: running.attempt };
            if self.at_work.values().any(|at_work| *at_work == attempt) {
                continue;
            }
            match self.begun.remove(&attempt) {
                true => self.run_tool(run, running).await?,
                false => self.orphan(running).await?,
            }
        }
        self.wait_for_news().await
    }

    async fn begin(&mut self, call: CallNo, verdicts: Verdicts) -> Result<(), EngineError> {
        let Some(stored) = stored_call(&self.log, call) else {
            let why = format!("the arguments of call {call} cannot be found in the log");
            return Err(StoreError::Corrupt { run: self.run, why }.into());
        };
        let lease = Millis(self.shared.settings.lease.0 - START_MARGIN.0);
        let start_by = self.shared.clock.now().plus(lease);
        let begin = Begin { call, node: self.shared.node, start_by, stored };
        self.push(Command::Begin(begin), verdicts).await
    }

    /// Runs a call whose start is durable, unless it is too late for that.
    async fn run_tool(&mut self, run: &Run, running: Running) -> Result<(), EngineError> {
        let Running { call, attempt, start_by, .. } = running;
        if self.shared.clock.now() >= start_by {
            return self.push(Command::Return { call, attempt }, Verdicts::default()).await;
        }
        let shared = self.shared.clone();
        let agent = shared.agent(&run.facts.agent)?;
        let stored = stored_call(&self.log, call);
        let tool = stored.as_ref().and_then(|stored| agent.tools.get(&stored.tool));
        let (Some(stored), Some(tool)) = (&stored, tool) else {
            let result = ToolResult::Failed(Body::text("not executed: this server does not have the tool"));
            let finish = FinishCall { call, attempt, result, worker: None };
            return self.push(Command::FinishCall(finish), Verdicts::default()).await;
        };
        let call_id = CallId { run: self.run, no: call };
        let invocation = Invocation { call: call_id, attempt, arguments: stored.arguments.clone() };
        let handle = self.tools.spawn(tool.run(invocation));
        self.at_work.insert(handle.id(), CallAttempt { call, attempt });
        Ok(())
    }

    /// A call that somebody started and does not run any more; a node knows at once that it lost its own.
    async fn orphan(&mut self, lost: Running) -> Result<(), EngineError> {
        let from = lost.start_by.plus(self.shared.settings.limits.orphan_margin);
        let wait = match lost.node == self.shared.node {
            true => Millis(0),
            false => from.since(self.shared.clock.now()),
        };
        let shared = self.shared.clone();
        shared.keeping_the_lease(self.run, sleep(duration(wait))).await;
        let node = self.shared.node;
        let command = Command::Orphan { call: lost.call, attempt: lost.attempt, node };
        self.push(command, Verdicts::default()).await?;
        self.settle().await
    }

    /// The run is over: its tools are stopped, and what they did until then nobody knows.
    async fn stop_tools(&mut self, started: Vec<Running>) -> Result<(), EngineError> {
        self.tools.abort_all();
        self.tools = JoinSet::new();
        self.at_work.clear();
        for running in started {
            self.orphan(running).await?;
        }
        self.settle().await
    }

    /// Waits for a tool, or for somebody else's append.
    async fn wait_for_news(&mut self) -> Result<(), EngineError> {
        self.settle().await?;
        if self.tools.is_empty() {
            return Ok(());
        }
        let renewal = duration(Millis(self.shared.settings.lease.0 / 3));
        tokio::select! {
            Some(done) = self.tools.join_next_with_id() => self.report(done).await,
            () = self.woken.notified() => {
                self.driver.refresh().await?;
                self.catch_up().await
            }
            () = sleep(renewal) => {
                let (shared, run) = (self.shared.clone(), self.run);
                shared.renew(run).await;
                Ok(())
            }
        }
    }

    async fn report(
        &mut self,
        done: Result<(Id, Outcome), tokio::task::JoinError>,
    ) -> Result<(), EngineError> {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(CallAttempt { call, attempt }) = self.at_work.remove(&id) else { return Ok(()) };
        let command = match done {
            Ok((_, Outcome::Done(result))) => {
                Command::FinishCall(FinishCall { call, attempt, result, worker: None })
            }
            Ok((_, Outcome::Pending(pending))) => Command::Suspend(Suspend {
                call,
                attempt,
                kind: pending.kind,
                ask: pending.ask,
                timeout: pending.timeout,
                secret: None,
                worker: None,
            }),
            // What the tool did until then nobody knows (C35).
            Ok((_, Outcome::Unknown(why))) => {
                tracing::warn!(run = %self.run, %call, why, "outcome unknown");
                Command::Orphan { call, attempt, node: self.shared.node }
            }
            Err(panic) => {
                tracing::error!(run = %self.run, %call, %panic, "the tool panicked; outcome unknown");
                Command::Orphan { call, attempt, node: self.shared.node }
            }
        };
        self.push(command, Verdicts::default()).await
    }

    /// Decides a command on the tip and hands its append over.
    async fn push(&mut self, command: Command, verdicts: Verdicts) -> Result<(), EngineError> {
        let Some(run) = self.driver.tip() else { return Ok(()) };
        let (agent_name, pinned) = (run.facts.agent.clone(), run.state.definition);
        let shared = self.shared.clone();
        let agent = shared.agent(&agent_name)?;
        let definition = shared.definition(agent, pinned).await?;
        let actor = Actor::Node(shared.node);
        let beside = beside(shared.while_busy(), &agent.approvers, None);
        self.driver.push(shared.order(vec![command], actor, definition, verdicts, beside));
        Ok(())
    }

    /// Waits until everything is durable, then lets it be seen.
    async fn settle(&mut self) -> Result<(), EngineError> {
        let settlement = self.driver.settle().await;
        for settled in settlement.done {
            if let Err(refusal) = &settled.outcome {
                tracing::debug!(run = %self.run, %refusal, "refused");
            }
            self.log.extend(settled.events);
        }
        self.catch_up().await?;
        self.shared.wakes.wake(self.run);
        match settlement.failed {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Reads what others appended, so that the log is whole up to what is durable.
    async fn catch_up(&mut self) -> Result<(), EngineError> {
        let durable = self.driver.durable().map_or(Seq(0), |row| row.run.state.seq);
        let whole = (1..).zip(&self.log).take_while(|(seq, envelope)| envelope.seq == Seq(*seq)).count();
        if whole == self.log.len() && Seq(whole as u64) == durable {
            return Ok(());
        }
        self.log.truncate(whole);
        self.log.extend(self.shared.events(self.run, Seq(whole as u64)).await?);
        Ok(())
    }

    /// The run's events with those that are still on their way.
    fn events(&self) -> Vec<Envelope> {
        self.log.iter().chain(self.driver.unsettled()).cloned().collect()
    }
}
