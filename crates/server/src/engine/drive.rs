//! Following one run until it waits or ends: ask the model, start calls, report what they did.
//!
//! A call's effect begins only after its `call.started` is durable, and not after `start_by`. What a tool reported is
//! handed to the store at once. Whatever a node that died had started is found by its incarnation and never guessed.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;

use holdpoint_core::actor::Actor;
use holdpoint_core::body::Body;
use holdpoint_core::command::{Begin, Command, FinishCall, RecordFailure, RecordReply, StoredCall, Suspend};
use holdpoint_core::decide::Answer;
use holdpoint_core::event::{Envelope, Event};
use holdpoint_core::id::{CallId, CallNo, Incarnation, RunId, Seq};
use holdpoint_core::message::ToolResult;
use holdpoint_core::next::{Next, Running, next};
use holdpoint_core::policy::{Role, Verdicts};
use holdpoint_core::run::{CallAttempt, Heard, Run, Stage};
use holdpoint_core::time::Millis;
use holdpoint_core::transcript::{stored_call, transcript};
use holdpoint_store::StoreError;
use holdpoint_store::ahead::Driver;
use tokio::sync::{Notify, oneshot};
use tokio::task::{Id, JoinSet};

use super::orders::{More, beside};
use super::{EngineError, Place, Shared};
use crate::model::{ModelFailure, ModelReply, Prompt};
use crate::policy;
use crate::settings::Agent;
use crate::tool::{Invocation, Outcome};

/// An instant this long before the lease ends is the last at which an effect may begin.
const START_MARGIN: Millis = Millis::seconds(2);

/// How often a run waits for a store that is away before it is left to whoever finds it later.
const STORE_TRIES: u32 = 120;

/// What the first thing that a drive wrote came to, told once it is durable.
pub(super) type Accepted = oneshot::Sender<Result<Answer, EngineError>>;

impl Shared {
    /// Drives a run in the background.
    pub(super) fn drive(self: &Arc<Shared>, driver: Driver, log: Vec<Envelope>, place: Place) {
        self.drive_and_tell(driver, log, place, None);
    }

    /// The same for a run into which somebody's wish was just pushed. It is told in the background as well: whoever
    /// wished may go away, what they began goes on.
    pub(super) fn drive_and_tell(
        self: &Arc<Shared>,
        driver: Driver,
        log: Vec<Envelope>,
        place: Place,
        accepted: Option<Accepted>,
    ) {
        let Some(run) = driver.tip().map(|run| run.facts.id) else { return };
        let drive = Drive {
            shared: self.clone(),
            run,
            driver,
            log,
            accepted,
            is_void: false,
            tools: JoinSet::new(),
            begun: HashSet::new(),
            at_work: HashMap::new(),
            woken: self.wakes.listen(run),
            _place: place,
        };
        self.spawn(drive.until_it_waits());
    }

    /// Waits for something long without losing the run to another node.
    async fn keeping_the_lease<T>(&self, run: RunId, long: impl Future<Output = T>) -> T {
        let mut long = std::pin::pin!(long);
        let renewal = Millis(self.settings.lease.0 / 3);
        loop {
            tokio::select! {
                done = &mut long => return done,
                () = self.clock.sleep(renewal) => self.renew(run).await,
            }
        }
    }

    /// The start of a call by this node.
    pub(super) fn begin(&self, call: CallNo, stored: StoredCall) -> Command {
        let lease = Millis(self.settings.lease.0 - START_MARGIN.0);
        let start_by = self.clock.now().plus(lease);
        Command::Begin(Begin { call, node: self.node, start_by, stored })
    }

    async fn renew(&self, run: RunId) {
        let until = self.clock.now().plus(self.settings.lease);
        // Losing a lease never harms state: whoever takes over is told apart by the sequence.
        let _ = self.store.renew(vec![run], self.node, until).await;
    }
}

pub(super) struct Drive {
    pub(super) shared: Arc<Shared>,
    run: RunId,
    pub(super) driver: Driver,
    /// The run's events, as far as they are durable.
    pub(super) log: Vec<Envelope>,
    /// Who waits to hear that what they wished is durable.
    accepted: Option<Accepted>,
    /// Whether that could not be written.
    is_void: bool,
    tools: JoinSet<Outcome>,
    /// Starts that this drive itself has durably made and not run yet. Only these are run: any other start, also one of
    /// this very node, may have had its effect already.
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
        let mut step = self.begin_with_family().await;
        loop {
            match step {
                Ok(Step::GoOn) => {}
                Ok(Step::Stop) => break,
                // Nothing was written, and whoever wished it has been told so: it must not happen later.
                Err(_) if self.is_void => break,
                Err(error) if self.recovers_from(&error).await => {}
                Err(error) => {
                    tracing::warn!(run = %self.run, %error, "left for another try");
                    break;
                }
            }
            step = self.step().await;
        }
        // Mostly the last append has done so already.
        let _ = self.shared.store.release(self.run, self.shared.node).await;
        self.shared.wakes.wake_worker();
    }

    /// Whoever woke the run may have done so for its sub-runs, or for its parent.
    async fn begin_with_family(&mut self) -> Result<Step, EngineError> {
        if self.accepted.is_none() {
            self.look_after_family().await?;
        }
        Ok(Step::GoOn)
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
            self.shared.clock.sleep(self.shared.settings.poll).await;
            match self.settle().await {
                Ok(()) => return true,
                Err(again) => error = again,
            }
        }
        false
    }

    async fn step(&mut self) -> Result<Step, EngineError> {
        let Some(run) = self.driver.tip().cloned() else { return Ok(Step::Stop) };
        if self.shared.is_stopping() && self.at_work.is_empty() {
            return self.give_back().await;
        }
        match next(&run, self.shared.clock.now()) {
            // Only asking a model may come before what it is asked with is durable.
            Next::Tick | Next::Act { .. } | Next::Wait(_) | Next::Nothing if self.accepted.is_some() => {
                self.settle().await?;
            }
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
        let live = shared.live(run);
        let mut asked = pin!(shared.keeping_the_lease(self.run, agent.model.ask(prompt, &live)));
        // Meanwhile what was pushed becomes durable, and whoever follows hears of it.
        let mut replied = None;
        let settled = {
            let mut settled = pin!(self.settle());
            loop {
                tokio::select! {
                    settled = &mut settled => break settled,
                    reply = &mut asked, if replied.is_none() => replied = Some(reply),
                }
            }
        };
        if self.is_void {
            return settled;
        }
        let replied = match replied {
            Some(replied) => replied,
            None => asked.await,
        };
        self.record(run, agent, heard, replied).await?;
        settled
    }

    /// What the model said, or that it said nothing, is kept whatever becomes of the store.
    async fn record(
        &mut self,
        run: &Run,
        agent: &Agent,
        heard: Heard,
        replied: Result<ModelReply, ModelFailure>,
    ) -> Result<(), EngineError> {
        let command = match replied {
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
                retry_at: retry_after.map(|span| self.shared.clock.now().plus(span)),
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
        let begin = self.shared.begin(call, stored);
        self.push(begin, verdicts).await
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
        let handle = self.tools.spawn(shared.clock.follows(tool.run(invocation)));
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
        shared.keeping_the_lease(self.run, shared.clock.sleep(wait)).await;
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

    /// The server stops and no tool is at work: what was started and not run yet is given back, the rest waits.
    async fn give_back(&mut self) -> Result<Step, EngineError> {
        self.settle().await?;
        for CallAttempt { call, attempt } in std::mem::take(&mut self.begun) {
            self.push(Command::Return { call, attempt }, Verdicts::default()).await?;
        }
        self.settle().await?;
        Ok(Step::Stop)
    }

    /// Waits for a tool, or for somebody else's append.
    async fn wait_for_news(&mut self) -> Result<(), EngineError> {
        self.settle().await?;
        if self.tools.is_empty() {
            return Ok(());
        }
        let renewal = Millis(self.shared.settings.lease.0 / 3);
        tokio::select! {
            Some(done) = self.tools.join_next_with_id() => self.report(done).await,
            () = self.woken.notified() => {
                self.driver.refresh().await?;
                self.catch_up().await
            }
            () = self.shared.clock.sleep(renewal) => {
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
    pub(super) async fn push(&mut self, command: Command, verdicts: Verdicts) -> Result<(), EngineError> {
        self.push_as(None, command, verdicts).await
    }

    pub(super) async fn push_as(
        &mut self,
        authority: Option<Role>,
        command: Command,
        verdicts: Verdicts,
    ) -> Result<(), EngineError> {
        let Some(run) = self.driver.tip() else { return Ok(()) };
        let (agent_name, pinned) = (run.facts.agent.clone(), run.state.definition);
        let shared = self.shared.clone();
        let agent = shared.agent(&agent_name)?;
        let definition = shared.definition(agent, pinned).await?;
        let actor = Actor::Node(shared.node);
        let beside = beside(shared.while_busy(), &agent.approvers, More::default());
        let mut order = shared.order(vec![command], actor, definition, verdicts, beside);
        order.given.authority = authority;
        self.driver.push(order);
        Ok(())
    }

    /// Waits until everything is durable, then lets it be seen.
    async fn settle(&mut self) -> Result<(), EngineError> {
        let settlement = self.driver.settle().await;
        for settled in settlement.done {
            if let Err(refusal) = &settled.outcome {
                tracing::debug!(run = %self.run, %refusal, "refused");
            }
            if let Some(accepted) = self.accepted.take() {
                let _ = accepted.send(settled.outcome.map_err(EngineError::from));
            }
            let node = self.shared.node;
            self.begun.extend(settled.events.iter().filter_map(|envelope| started_by(node, envelope)));
            self.log.extend(settled.events);
        }
        if let (Some(error), Some(accepted)) = (&settlement.failed, self.accepted.take()) {
            self.is_void = true;
            let _ = accepted.send(Err(error.clone().into()));
            return Err(error.clone().into());
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

fn started_by(node: Incarnation, envelope: &Envelope) -> Option<CallAttempt> {
    let Event::CallStarted(started) = &envelope.event else { return None };
    (started.node == node).then_some(CallAttempt { call: started.call, attempt: started.attempt })
}
