//! Asking the model, and keeping what it said.
//!
//! A model is asked with what is durable. Only one that replies within this process, from a script, may be asked before:
//! nothing leaves the process then, and only what nobody but this drive can say may be on its way, the run's own start and
//! what its tools reported while the lease is surely this node's. What a model says names what it was asked with: if that
//! is not what is stored in the end, it is thrown away and the model is asked again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::FutureExt;
use standfast_core::body::Body;
use standfast_core::command::{Command, FailKind, FailRun, RecordFailure, RecordReply};
use standfast_core::event::{Envelope, Event};
use standfast_core::mutant::Mutant;
use standfast_core::name::ToolName;
use standfast_core::policy::Verdicts;
use standfast_core::run::{PromptBasis, Run, Stage};
use standfast_core::transcript::{results_digest, transcript};
use standfast_store::StoreError;

use super::Drive;
use super::effects::EffectCall;
use super::grants::GrantScope;
use super::known_log::with_known_log;
use crate::EngineError;
use crate::model::{GivesUp, ModelFailure, ModelReply, Prompt};
use crate::policy;
use crate::request_context::{self, RequestContext};
use crate::settings::Agent;
use crate::tool::read_result;

type ModelResult = Result<ModelReply, ModelFailure>;

/// The result of asking; the error is a panic.
type ThinkResult = Result<ModelResult, Box<dyn Any + Send>>;

impl Drive {
    pub(super) async fn think(&mut self, run: &Run) -> Result<(), EngineError> {
        let drives = self.drives.clone();
        let failures = match run.state.stage {
            Stage::Thinking { failures, .. } => failures,
            Stage::Acting | Stage::Ended(_) => 0,
        };
        if super::login::asks_for_logins(self, run).await? {
            return Ok(());
        }
        let definition = self.definition().await?;
        let (agent, model) = match drives.model_of(run, &definition) {
            Ok(found) => found,
            Err(missing) => return self.ask_about(&missing).await,
        };
        if !may_ask(self, model.is_in_process()) {
            return self.settle().await;
        }
        let (results, mut transcript) =
            with_known_log(self, |events| (results_digest(events), transcript(events)));
        let heard = PromptBasis { results, ..run.heard() };
        if !run.is_asked_with(heard) {
            return self.reload_log().await;
        }
        // Where the model can read on, a long result is shown in part.
        if definition.tools.keys().any(|tool| tool.as_str() == read_result::NAME) {
            read_result::shorten(&mut transcript);
        }
        let mut earlier = super::history::earlier_entries(self, &definition).await?;
        earlier.append(&mut transcript);
        let transcript = earlier;
        let pinned = definition.clone();
        let prompt = Prompt { definition, transcript, turn: run.state.turn, failures };
        let span = super::spans::begin_model_span(self, run, &pinned.model, model.as_ref());
        let context = RequestContext::of_work(span.as_ref().map(|work| work.span.context));
        let live = drives.deltas.live(&drives.host.clock, run, agent.streaming);
        let telemetry = drives.host.fixed.telemetry.clone();
        let begun = telemetry.begin();
        // A model with a bug ends its run, after whoever started it has heard that it is durable.
        let asking = request_context::within(context, async { model.ask(prompt, &live).await });
        let asking = AssertUnwindSafe(asking).catch_unwind();
        let mut asked = pin!(asking);
        let (replied, settled) = settle_meanwhile(self, asked.as_mut()).await;
        // What it was asked with never was: whatever it says is about something else.
        if self.is_void || (settled.is_ok() && is_outdated(self, heard)) {
            return settled;
        }
        let replied = match replied {
            Some(replied) => replied,
            None => match wait_for_reply(self, asked.as_mut(), heard).await? {
                Some(replied) => replied,
                None => return Ok(()),
            },
        };
        let replied = replied.unwrap_or_else(|panic| resume_unwind(panic));
        let other = replied.as_ref().ok().and_then(|reply| reply.model.as_deref());
        telemetry.asked(other.unwrap_or(&pinned.model), begun, &replied);
        if let Some(span) = span {
            span.end_model(&replied);
        }
        self.record(run, &agent, heard, replied).await?;
        settled
    }

    /// The log in hand is not the one that the run is made of: it is read again before anybody is asked with it.
    async fn reload_log(&mut self) -> Result<(), EngineError> {
        self.settle().await?;
        Arc::make_mut(&mut self.log).clear();
        self.refresh().await?;
        let is_whole =
            |row: &standfast_core::project::RunRow| row.run.state.results == results_digest(&self.log);
        if self.pipeline.durable().is_none_or(is_whole) {
            Ok(())
        } else {
            let why = "its row is not what its events fold into".to_owned();
            Err(StoreError::Corrupt { run: self.run, why }.into())
        }
    }

    /// The reply of the model, also an empty one, is kept whatever becomes of the store.
    async fn record(
        &mut self,
        run: &Run,
        agent: &Agent,
        heard: PromptBasis,
        replied: ModelResult,
    ) -> Result<(), EngineError> {
        match replied {
            Ok(ModelReply { gives_up: Some(gives_up), .. }) => {
                let (error, kind) = match gives_up {
                    GivesUp::Fails(why) => (why, FailKind::Final),
                    GivesUp::Rejects(why) => (why, FailKind::Rejected),
                };
                let fail = FailRun { worker: None, error, detail: None, kind, heard: Some(heard) };
                self.push(Command::Fail(fail), Verdicts::default()).await
            }
            Ok(reply) => {
                let definition = self.definition().await?;
                let now = self.drives.host.clock.now();
                let mut verdicts = policy::of_reply(agent, &definition, (run, now), &reply.calls);
                let asked = policy::numbered(run, &reply.calls);
                let asked = asked.filter_map(|(no, call)| {
                    Some((no, ToolName::new(&call.tool).ok()?, call.arguments.clone()))
                });
                let asked = asked.collect();
                self.drives.look_at_preconditions(run, agent, asked, &mut verdicts).await;
                if agent.may_claim_effects() {
                    let calls = policy::numbered(run, &reply.calls).filter_map(|(no, call)| {
                        let tool = ToolName::new(&call.tool).ok()?;
                        Some(EffectCall { no, tool, arguments: call.arguments.clone() })
                    });
                    let calls: Vec<EffectCall> = calls.collect();
                    self.drives.see_to_effects(&run.facts, agent, calls, &mut verdicts).await?;
                }
                if agent.rules.takes_grants() {
                    let calls = policy::numbered(run, &reply.calls).filter_map(|(no, call)| {
                        let tool = ToolName::new(&call.tool).ok()?;
                        Some(EffectCall { no, tool, arguments: call.arguments.clone() })
                    });
                    let calls: Vec<EffectCall> = calls.collect();
                    let (facts, definition) = (&run.facts, &*definition);
                    let of = GrantScope { facts, run: Some(run), log: &[], agent, definition, brought: None };
                    self.drives.see_to_grants(of, calls, &mut Vec::new(), &mut verdicts).await?;
                }
                super::denials::refuse_denied(self, run, agent, &reply.calls, &mut verdicts).await;
                let asked = (&*definition, &*reply.calls);
                super::hold_life::fill_in(self, run, agent, asked, &mut verdicts).await;
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
                    retry_at: retry_after.map(|span| self.drives.host.clock.now().plus(span)),
                    heard: Some(heard),
                };
                self.push(Command::RecordFailure(failure), Verdicts::default()).await
            }
        }
    }
}

/// Whether a model may be asked now. While something is still on its way, only one in this process: if nobody else can
/// say what is in it, and nobody else can have the run.
fn may_ask(drive: &Drive, is_in_process: bool) -> bool {
    if Mutant::DecisionsAskedAhead.is_on() {
        return true;
    }
    let mut unsettled = drive.pipeline.unsettled().peekable();
    if unsettled.peek().is_none() {
        return !drive.may_lose;
    }
    let is_start = drive.pipeline.durable().is_none();
    let is_sure = is_start || (drive.is_leased && drive.drives.host.clock.now() < drive.leased_until);
    is_in_process && is_sure && !drive.may_lose && unsettled.all(is_own_word)
}

/// Whether a model that was asked with this would be told something else now, or need not be asked.
fn is_outdated(drive: &Drive, heard: PromptBasis) -> bool {
    drive.pipeline.tip().is_none_or(|run| run.outcome().is_some() || !run.is_asked_with(heard))
}

/// Makes durable what was pushed, and notifies whoever follows, unless the model replies before: then what it said is
/// written together with what it was asked with. A store that is away is asked again for as long as the model takes: what
/// tools reported is not held back for it.
async fn settle_meanwhile(
    drive: &mut Drive,
    mut asked: Pin<&mut impl Future<Output = ThinkResult>>,
) -> (Option<ThinkResult>, Result<(), EngineError>) {
    let (clock, pause) = (drive.drives.host.clock.clone(), drive.drives.host.fixed.poll);
    loop {
        let settled = tokio::select! {
            biased;
            // First: what was handed over is not written by itself until somebody awaits it.
            replied = &mut asked => {
                // A panic ends the drive: whoever began it hears before that it is durable.
                let settled = if replied.is_err() { drive.settle().await } else { Ok(()) };
                return (Some(replied), settled);
            }
            settled = drive.settle() => settled,
        };
        if settled.is_ok() || drive.is_void {
            return (None, settled);
        }
        tokio::select! {
            biased;
            replied = &mut asked => return (Some(replied), settled),
            () = clock.sleep(pause) => {}
        }
    }
}

/// Waits for the reply without losing the run to another node; none when the run ends before it comes, is another
/// node's by then, has worked for as long as it may, or is no longer what the model was asked with.
async fn wait_for_reply(
    drive: &mut Drive,
    mut asked: Pin<&mut impl Future<Output = ThinkResult>>,
    heard: PromptBasis,
) -> Result<Option<ThinkResult>, EngineError> {
    let drives = drive.drives.clone();
    loop {
        let (woken, left) = (drive.woken.clone(), super::work_time::time_left(drive));
        let renewal = drive.until_renewal();
        tokio::select! {
            biased;
            replied = &mut asked => return Ok(Some(replied)),
            () = drives.sleep_until_out_of_time(left) => return Ok(None),
            () = woken.changed() => drive.refresh().await?,
            () = renewal => drive.keep().await?,
        }
        // Whoever has the run now asks again.
        if drive.is_lost || is_outdated(drive, heard) {
            return Ok(None);
        }
    }
}

/// Whether only the drive itself can say this: its start, what its tools reported. What people, jobs, other runs or the
/// clock decide may be decided otherwise at the same moment, and a reply is refused when its run has heard more meanwhile.
fn is_own_word(envelope: &Envelope) -> bool {
    match &envelope.event {
        Event::RunStarted(_)
        | Event::MessageReceived(_)
        | Event::ModelFailed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallFinished(_) => true,
        Event::ModelReplied(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::RunEnded(_)
        | Event::MessageQueued(_)
        | Event::CallProposed(_)
        | Event::CallOrphaned(_)
        | Event::CallContradicted(_)
        | Event::HoldOpened(_)
        | Event::HoldVoted(_)
        | Event::HoldEdited(_)
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_)
        | Event::HoldResolved(_) => false,
    }
}
