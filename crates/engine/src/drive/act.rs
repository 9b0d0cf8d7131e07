//! Calls: starting what may start, running what this drive has started, reporting what came of it.
//!
//! A call's effect begins only after its `call.started` is durable, and not after `start_by`. What a tool reported is
//! handed to the store at once. Whatever a node that died had started is found by its incarnation and never guessed.

use std::pin::pin;

use futures_util::future::join_all;
use standfast_core::body::Body;
use standfast_core::command::{
    Begin, Command, FailKind, FailRun, FinishCall, StoredCall, Suspend, SuspendFor,
};
use standfast_core::digest;
use standfast_core::event::{Envelope, Event, OrphanCause};
use standfast_core::id::{CallId, CallNo, HoldId, HoldKey, MessageId, Secret};
use standfast_core::message::ToolResult;
use standfast_core::name::{AgentName, ToolName};
use standfast_core::next::{NextStep, StartedCall, next};
use standfast_core::policy::Verdicts;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallAttempt, Facts, Run};
use standfast_core::time::Millis;
use standfast_core::transcript::{continuation, stored_call};
use standfast_store::StoreError;
use tokio::task::{Id, JoinError, JoinSet};
use tracing::Instrument as _;

use super::account::account;
use super::effects::{EffectCall, is_claimed_meanwhile};
use super::grants::GrantScope;
use super::reconcile::{give_up_start, push_orphan};
use super::{Drive, Drives, Step, ToolEnd};
use crate::EngineError;
use crate::auth::Principal;
use crate::policy;
use crate::receivers::{Callback, JOB_RECEIVER};
use crate::request_context::{self, RequestContext};
use crate::settings::Agent;
use crate::tool::{Invocation, LookupFuture, Outcome, Suspension, webhook_url};

/// An instant this long before the lease ends is the last at which an effect may begin.
const START_MARGIN: Millis = Millis::seconds(2);

impl Drives {
    /// The start of a call by this node.
    pub(crate) fn begin_call(&self, agent: &AgentName, call: CallNo, stored: StoredCall) -> Command {
        let lease = Millis(self.host.fixed.lease.0 - START_MARGIN.0);
        let start_by = self.host.clock.now().plus(lease);
        let agent = self.host.agent(agent).ok();
        let tool = agent.as_ref().and_then(|agent| agent.tools.get(&stored.tool));
        let tells = tool.is_some_and(|tool| tool.external().is_some());
        let pending = tells.then(|| self.host.clock.entropy().draw("pending", call.0));
        Command::Begin(Begin { call, node: self.host.node, start_by, stored, pending })
    }
}

impl Drives {
    /// Whoever a job wants to be told when it is settled is named before its hold is there, so that nothing is missed.
    /// One that may not be told is left out: the job goes on without it.
    async fn tell_when_settled(&self, run: &Facts, id: HoldId, tool: &ToolName, url: String) {
        let agent = self.host.agent(&run.agent).ok();
        let tool = agent.as_ref().and_then(|agent| agent.tools.get(tool));
        let secret = tool.and_then(|tool| tool.external()).and_then(|job| job.secrets(id).into_iter().next());
        let callback = Callback {
            kind: JOB_RECEIVER,
            name: id.to_string(),
            url,
            details: id.key.to_string(),
            secrets: secret,
        };
        let owner = Principal { tenant: run.tenant.clone(), ..Principal::of(run.owner.clone()) };
        if let Err(error) = self.callbacks.call_back(&owner, run.id, callback).await {
            tracing::warn!(run = %run.id, hold = %id, %error, "drive: could not register the job's webhookURL; the job continues without it");
        }
    }
}

impl Drive {
    /// Starts what may start, runs what this drive has started, waits for what comes of it.
    pub(super) async fn act(
        &mut self,
        run: &Run,
        ready: Vec<CallNo>,
        started: Vec<StartedCall>,
    ) -> Result<(), EngineError> {
        if self.drives.host.is_stopping() || self.is_lost {
            self.return_begun().await?;
            return self.wait_for_news().await;
        }
        // What a tool reports is decided with it: once it runs, nothing in hand may be lost to a read that fails.
        self.definition().await?;
        if !ready.is_empty() {
            return self.begin_all(run, ready).await;
        }
        for running in started {
            let attempt = CallAttempt { call: running.call, attempt: running.attempt };
            if self.at_work.values().any(|at_work| *at_work == attempt) {
                continue;
            }
            if self.begun.remove(&attempt) {
                self.run_tool(run, running).await?
            } else {
                // A node that does not know its own call any more has lost what drove the run.
                let is_ours = running.node == self.drives.host.node;
                let why = if is_ours { OrphanCause::Crash } else { OrphanCause::ServerLost };
                self.orphan(running, why).await?
            }
        }
        self.wait_for_news().await
    }

    async fn begin_all(&mut self, run: &Run, ready: Vec<CallNo>) -> Result<(), EngineError> {
        // Before anything starts, everything below it is durable. The log has its arguments only then.
        self.settle().await?;
        if self.pipeline.tip().is_none_or(|now| **now != *run) {
            // What made these calls ready lost its race: there may be no such calls.
            return Ok(());
        }
        if super::login::asks_for_logins(self, run).await? {
            return Ok(());
        }
        let ready = match self.drives.tools_of(run, ready.clone()) {
            (there, Some(missing)) if there.is_empty() => {
                self.ask_about(&missing).await?;
                match self.refused.take() {
                    // No room for the question: the calls are refused one by one, and the model gets the reason.
                    Some(Refusal::Cap { .. }) => ready,
                    Some(_) | None => return Ok(()),
                }
            }
            (there, _) => there,
        };
        let agent = self.drives.host.agent(&run.facts.agent).ok();
        if let Some(agent) = &agent {
            self.look(run, agent, &ready).await?;
        }
        let definition = self.definition().await?;
        let arguments = |call| stored_call(&self.log, call).map(|stored| stored.arguments);
        let now = self.drives.host.clock.now();
        let mut verdicts = policy::of_run(agent.as_deref(), &definition, (run, now), arguments);
        if let Some(agent) = &agent {
            let begun = ready.iter().filter_map(|call| Some((*call, stored_call(&self.log, *call)?)));
            let begun = begun.map(|(call, stored)| (call, stored.tool, stored.arguments)).collect();
            self.drives.look_at_preconditions(run, agent, begun, &mut verdicts).await;
        }
        if let Some(agent) = agent.as_deref().filter(|agent| agent.may_claim_effects()) {
            let stored = |call: &CallNo| Some((*call, stored_call(&self.log, *call)?));
            let calls: Vec<EffectCall> = ready
                .iter()
                .filter_map(stored)
                .map(|(no, StoredCall { tool, arguments })| EffectCall { no, tool, arguments })
                .collect();
            self.drives.see_to_effects(&run.facts, agent, calls, &mut verdicts).await?;
        }
        if let Some(agent) = agent.as_deref().filter(|agent| agent.rules.takes_grants()) {
            let stored = |call: &CallNo| Some((*call, stored_call(&self.log, *call)?));
            let calls = ready.iter().filter_map(stored);
            let calls: Vec<EffectCall> = calls
                .map(|(no, StoredCall { tool, arguments })| EffectCall { no, tool, arguments })
                .collect();
            let (facts, log, definition) = (&run.facts, &*self.log, &*definition);
            let of = GrantScope { facts, run: Some(run), log, agent, definition, brought: None };
            self.drives.see_to_grants(of, calls, &mut Vec::new(), &mut verdicts).await?;
        }
        for call in ready {
            let Some(stored) = stored_call(&self.log, call) else {
                return self
                    .give_up(format!("the arguments of call {call} cannot be found in the log"))
                    .await;
            };
            let begin = self.drives.begin_call(&run.facts.agent, call, stored);
            self.push(begin, verdicts.clone()).await?;
        }
        match self.settle().await {
            // Somebody else began the same effect meanwhile: nothing of this was written, and it is looked up again.
            Err(error) if is_claimed_meanwhile(&error) => {
                drop(self.pipeline.take_back());
                return Ok(());
            }
            settled => settled?,
        }
        match self.refused.take() {
            Some(refusal @ Refusal::Tampered { .. }) => self.give_up(refusal.to_string()).await,
            // Somebody else changed the run in between; if nobody did, trying again would be refused again.
            Some(refusal) if self.pipeline.tip().is_some_and(|now| now.state.seq == run.state.seq) => {
                Err(EngineError::Refused(refusal))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Finds out how things are outside for the tools that are about to run, without losing the run to another node.
    async fn look(&mut self, run: &Run, agent: &Agent, ready: &[CallNo]) -> Result<(), EngineError> {
        let calls = run.state.calls.iter().filter(|call| ready.contains(&call.no));
        let looks: Vec<LookupFuture> =
            calls.filter_map(|call| agent.tools.get(&call.tool)?.look(&account(&run.facts))).collect();
        if looks.is_empty() {
            return Ok(());
        }
        let mut looking = pin!(join_all(looks));
        let drives = self.drives.clone();
        loop {
            tokio::select! {
                _ = &mut looking => return Ok(()),
                () = drives.host.clock.sleep(drives.renewal()) => self.keep().await?,
            }
        }
    }

    /// What is stored cannot be gone on with (C35): the run ends, and says why.
    async fn give_up(&mut self, why: String) -> Result<(), EngineError> {
        tracing::error!(run = %self.run, why, "drive: the stored run cannot be continued");
        let error = format!("failed to load execution state: {why}");
        let fail =
            FailRun { worker: None, error: error.clone(), detail: None, kind: FailKind::Final, heard: None };
        self.push(Command::Fail(fail), Verdicts::default()).await?;
        self.settle().await?;
        match self.refused.take() {
            // Something may have run: the run stays as it is, for a person to look at.
            Some(_) => Err(StoreError::Corrupt { run: self.run, why }.into()),
            None => Ok(()),
        }
    }

    /// Runs a call whose start is durable, unless it is too late for that: asked when it has the processor, not when it is
    /// put in line for it.
    async fn run_tool(&mut self, run: &Run, running: StartedCall) -> Result<(), EngineError> {
        let StartedCall { call, attempt, start_by, .. } = running;
        let drives = self.drives.clone();
        let agent = drives.host.agent(&run.facts.agent).ok();
        let stored = stored_call(&self.log, call);
        let tool = stored.as_ref().and_then(|stored| agent.as_ref()?.tools.get(&stored.tool).cloned());
        let (Some(stored), Some(tool)) = (&stored, tool) else {
            let why = Body::text("not executed: this server does not have the tool");
            return self.finish(call, attempt, ToolResult::Failed(why)).await;
        };
        if let Some(result) = tool.in_log(&stored.arguments, &self.log) {
            return self.finish(call, attempt, result).await;
        }
        let call_id = CallId { run: self.run, no: call };
        let on_record = pending(&self.log, call, attempt);
        let secret = on_record.unwrap_or_else(|| drives.host.clock.entropy().draw("pending", attempt));
        let invocation = Invocation {
            call: call_id,
            attempt,
            arguments: stored.arguments.clone(),
            tool: stored.tool.clone(),
            session: run.facts.session.clone(),
            message: MessageId { run: self.run, seq: run.state.replied_at },
            asked_as: asked_as(&self.log, call).unwrap_or_default(),
            owner: account(&run.facts),
            resumed: continuation(&self.log, call),
            pending: HoldId { run: self.run, key: HoldKey { call, secret } },
        };
        // Compared where the effect begins: a busy machine may take its time between here and there.
        let clock = drives.host.clock.clone();
        // Files that were rewritten meanwhile: given back, the call is asked about again when it is begun again.
        let approved = run.call(call).filter(|call| !call.satisfied.is_empty()).map(|call| call.files);
        let handed = tool.secrets(&invocation);
        let (telemetry, name) = (drives.host.fixed.telemetry.clone(), stored.tool.clone());
        let span = super::spans::begin_tool_span(self, run, &name, (call, attempt), &invocation.asked_as);
        let context = RequestContext::of_work(span.as_ref().map(|work| work.span.context));
        let running = async move {
            let has_other_files = || {
                approved.is_some_and(|files| digest::of_files(&tool.files(&invocation.arguments)) != files)
            };
            if clock.now() >= start_by || has_other_files() {
                return ToolEnd::TooLate;
            }
            let begun = telemetry.begin();
            let came = request_context::within(context, tool.run(invocation)).await;
            telemetry.ran(name.as_str(), begun, &came);
            if let Some(span) = span {
                span.end_tool(&came);
            }
            ToolEnd::Ran(match handed {
                Some(handed) => handed.await.cut_outcome(came),
                None => came,
            })
        };
        let handle = self.tools.spawn(drives.host.clock.follows(running.in_current_span()));
        self.at_work.insert(handle.id(), CallAttempt { call, attempt });
        Ok(())
    }

    async fn finish(&mut self, call: CallNo, attempt: u32, result: ToolResult) -> Result<(), EngineError> {
        let finish = FinishCall { call, attempt, result, worker: None };
        self.push(Command::FinishCall(finish), Verdicts::default()).await
    }

    /// A call that somebody started and does not run any more; a node knows at once that it lost its own.
    async fn orphan(&mut self, lost: StartedCall, why: OrphanCause) -> Result<(), EngineError> {
        if lost.node != self.drives.host.node {
            let from = lost.start_by.plus(self.drives.host.settings().limits.orphan_margin);
            while from > self.drives.host.clock.now() {
                let left = from.since(self.drives.host.clock.now());
                let drives = self.drives.clone();
                drives.host.clock.sleep(Millis(left.0.min(drives.renewal().0))).await;
                self.keep().await?;
                if self.is_lost {
                    // Whoever has it now finds the call too.
                    return Ok(());
                }
            }
        }
        let StartedCall { call, attempt, .. } = lost;
        if self.goes_on_by_looking(call) {
            self.push(Command::Return { call, attempt }, Verdicts::default()).await?;
        } else {
            give_up_start(self, CallAttempt { call, attempt }, why).await?;
        }
        self.settle().await
    }

    /// Whether a lost start only went on with what was there, of a tool that first looks how far it came: then it is
    /// as if it had not been, and no person has to find out what it did.
    fn goes_on_by_looking(&self, call: CallNo) -> bool {
        let Some(run) = self.pipeline.tip().filter(|run| run.outcome().is_none()) else { return false };
        let agent = self.drives.host.agent(&run.facts.agent).ok();
        let tool = run.call(call).and_then(|call| agent.as_ref()?.tools.get(&call.tool).cloned());
        tool.is_some_and(|tool| tool.finds_out()) && continuation(&self.log, call).is_some()
    }

    /// The run has ended: its tools are stopped. What ended until then is recorded, what never ran is given back, and of the
    /// rest nobody knows what it did.
    pub(super) async fn stop_tools(&mut self, started: Vec<StartedCall>) -> Result<(), EngineError> {
        while let Some(done) = self.tools.try_join_next_with_id() {
            self.report(done).await?;
        }
        self.tools.abort_all();
        self.tools = JoinSet::new();
        self.at_work.clear();
        self.return_begun().await?;
        self.settle().await?;
        for running in started {
            let is_open = self.pipeline.tip().and_then(|run| run.call(running.call)).is_some_and(|call| {
                matches!(call.state, standfast_core::run::CallState::Started { .. })
                    && call.attempt == running.attempt
            });
            if is_open {
                self.orphan(running, OrphanCause::RunEnded).await?;
            }
        }
        self.settle().await
    }

    /// The server stops, or another node has the run, and no tool is at work: what was started and not run yet is given back, the rest waits.
    pub(super) async fn give_back(&mut self) -> Result<Step, EngineError> {
        self.settle().await?;
        self.return_begun().await?;
        self.settle().await?;
        Ok(Step::Stop)
    }

    async fn return_begun(&mut self) -> Result<(), EngineError> {
        for CallAttempt { call, attempt } in std::mem::take(&mut self.begun) {
            self.push(Command::Return { call, attempt }, Verdicts::default()).await?;
        }
        Ok(())
    }

    /// Waits for a tool, or for somebody else's append.
    pub(super) async fn wait_for_news(&mut self) -> Result<(), EngineError> {
        self.settle().await?;
        if self.tools.is_empty() {
            return Ok(());
        }
        let (drives, woken) = (self.drives.clone(), self.woken.clone());
        let left = if self.is_at_work() { super::work_time::time_left(self) } else { None };
        let renewal = self.until_renewal();
        tokio::select! {
            biased;
            Some(done) = self.tools.join_next_with_id() => self.report(done).await,
            () = drives.sleep_until_out_of_time(left) => Ok(()),
            () = woken.changed() => self.refresh().await,
            () = renewal => self.keep().await,
        }
    }

    /// Whether the run has something to do, and is not only waited for until its tools have stopped.
    fn is_at_work(&self) -> bool {
        let has_work = |run: &Run| matches!(next(run, self.drives.host.clock.now()), NextStep::Act { .. });
        self.pipeline.tip().is_some_and(|run| run.outcome().is_none() && has_work(run))
    }

    async fn report(&mut self, done: Result<(Id, ToolEnd), JoinError>) -> Result<(), EngineError> {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(CallAttempt { call, attempt }) = self.at_work.remove(&id) else { return Ok(()) };
        match done {
            Ok((_, ToolEnd::TooLate)) => {
                self.push(Command::Return { call, attempt }, Verdicts::default()).await
            }
            Ok((_, ToolEnd::Ran(Outcome::Done(result)))) => self.finish(call, attempt, result).await,
            Ok((_, ToolEnd::Ran(Outcome::Pending(pending)))) => self.suspend(call, attempt, *pending).await,
            // What the tool did until then nobody knows (C35).
            Ok((_, ToolEnd::Ran(Outcome::Unknown(why)))) => {
                tracing::warn!(run = %self.run, %call, why, "drive: outcome unknown");
                give_up_start(self, CallAttempt { call, attempt }, OrphanCause::Tool(why)).await
            }
            Ok((_, ToolEnd::Reconciled { why, said })) => {
                push_orphan(self, CallAttempt { call, attempt }, why, Some(said)).await
            }
            Err(panic) => {
                tracing::error!(run = %self.run, %call, %panic, "drive: the tool panicked; outcome unknown");
                give_up_start(self, CallAttempt { call, attempt }, OrphanCause::Crash).await
            }
        }
    }

    /// A call that waits for something outside; where a cap does not let it wait, it did not run.
    async fn suspend(&mut self, call: CallNo, attempt: u32, pending: Suspension) -> Result<(), EngineError> {
        let Suspension { kind, ask, timeout, secret } = pending;
        let told = webhook_url(&ask).filter(|_| kind == SuspendFor::External);
        if let (Some(url), Some(secret), Some(run)) = (told, secret, self.pipeline.tip()) {
            let id = HoldId { run: self.run, key: HoldKey { call, secret } };
            let tool = run.call(call).map(|call| call.tool.clone());
            let (drives, facts) = (self.drives.clone(), run.facts.clone());
            if let Some(tool) = tool {
                drives.tell_when_settled(&facts, id, &tool, url).await;
            }
        }
        let suspend = Suspend { call, attempt, kind, ask, timeout, secret, worker: None };
        let verdicts = super::hold_life::of_suspension(self, call, suspend.kind).await;
        self.push(Command::Suspend(suspend), verdicts).await?;
        self.settle().await?;
        match self.refused.take() {
            Some(refusal @ Refusal::Cap { .. }) => {
                let why = Body::text(format!("not executed: {refusal}"));
                self.finish(call, attempt, ToolResult::Failed(why)).await
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The id that stands on record for a start, so that it can be sent outside.
fn pending(log: &[Envelope], call: CallNo, attempt: u32) -> Option<Secret> {
    let started = log.iter().rev().find_map(|envelope| {
        let Event::CallStarted(started) = &envelope.event else { return None };
        (started.call == call && started.attempt == attempt).then_some(started)
    });
    started.and_then(|started| started.pending).map(|key| key.secret)
}

/// The model's own id of a call.
fn asked_as(log: &[Envelope], call: CallNo) -> Option<String> {
    log.iter().rev().find_map(|envelope| {
        let Event::ModelReplied(replied) = &envelope.event else { return None };
        replied.reply.calls.iter().find(|asked| asked.no == call).map(|asked| asked.id.clone())
    })
}
