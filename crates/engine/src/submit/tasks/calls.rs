//! Calls of workers elsewhere: a worker asks before it runs a tool of its own, and tells what came of it.
//!
//! The call is judged and held like any other (`decide/outside.rs`); what the worker then ran is its word. Claims are
//! `claims.rs`.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{AskedCall, Command, FinishCall, Propose};
use standfast_core::decide::Answer;
use standfast_core::definition::ToolSpec;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::name::{InboxName, ToolName, WorkerName};
use standfast_core::policy::Effect;
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_store::StoreError;

use super::claims::works_in;
use super::{TaskQueue, is_claim_of};
use crate::EngineError;
use crate::auth::Principal;
use crate::commit::{Authority, Change, IdempotencyKey};
use crate::drive::effects::EffectCall;
use crate::drive::grants::GrantScope;
use crate::policy;

/// How often the uses of standing approvals are counted again when others were faster; then a person is asked.
const GRANT_RACES: u32 = 16;

/// A call that a worker wants to run.
#[derive(Debug, Clone)]
pub struct ProposedCall {
    /// What the worker calls it; empty when it has no name for it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments, as JSON text.
    pub arguments: String,
    /// Why, for whoever is asked.
    pub context: Option<Body>,
    /// Whether the worker wants somebody to be asked, or only tells of it. Rules of the server may be stricter.
    pub asks: Effect,
    /// The schema of a tool that the worker brings: what a standing approval for it is tied to.
    pub schema: Option<RawJson>,
}

/// What came of a call that a worker ran.
#[derive(Debug, Clone)]
pub struct CallReport {
    /// Which call.
    pub call: CallNo,
    /// What came of it.
    pub result: ToolResult,
}

impl TaskQueue {
    /// Takes down a call that a worker wants to run. It is durable when this comes back; whether it may run says the task.
    pub async fn propose(
        &self,
        who: &Principal,
        (inbox, run): (&InboxName, RunId),
        worker: WorkerName,
        proposed: ProposedCall,
        once: Option<IdempotencyKey>,
    ) -> Result<CallNo, EngineError> {
        works_in(who, inbox)?;
        let ProposedCall { id, tool, arguments, context, asks, schema } = proposed;
        // Known by it as any tool is by its own.
        let schema = schema.map(|schema| ToolSpec::new("", schema).schema_digest());
        let call = AskedCall { id, tool, arguments, problem: None };
        let mut lost_races = 0;
        let (no, answer) = loop {
            let snapshot = self.inboxes.snapshot(who, inbox, run).await?;
            let row = snapshot.stored().row.clone();
            if !is_claim_of(&worker, &who.user) {
                return Err(claimed_by_other(&row.run));
            }
            if let Some(done) = self.commit.done_before(who, once.as_ref()).await? {
                return proposed_by(snapshot.log().await?, done.seq).ok_or(EngineError::NotFound);
            }
            let facts = &row.run.facts;
            let definition = self.log.definition(&facts.agent, row.run.state.definition).await?;
            let agent = self.host.agent(&facts.agent).ok();
            let now = self.host.clock.now();
            let mut verdicts =
                policy::of_proposal(agent.as_deref(), &definition, (&row.run, now), (&call, asks));
            let no = CallNo(row.run.state.calls_made + 1);
            // Whether its effect was started before, here or by whom: shown to whoever is asked. What it claims itself nobody
            // writes down, as a worker does not say when it starts.
            if let (Some(agent), Ok(tool)) = (agent.as_deref(), ToolName::new(&call.tool)) {
                let asked = EffectCall { no, tool, arguments: call.arguments.clone() };
                self.drives.see_to_effects(facts, agent, [asked], &mut verdicts).await?;
            }
            let mut taken = Vec::new();
            // Its use is taken with the append that allows it: a worker does not say when it starts what it runs.
            if let Some(agent) = agent.as_deref().filter(|_| lost_races < GRANT_RACES)
                && let Ok(tool) = ToolName::new(&call.tool)
            {
                let run = Some(&*row.run);
                let of = GrantScope { facts, run, log: &[], agent, definition: &definition, brought: schema };
                let asked = EffectCall { no, tool, arguments: call.arguments.clone() };
                self.drives.see_to_grants(of, [asked], &mut taken, &mut verdicts).await?;
            }
            let (worker, call, context) = (worker.clone(), call.clone(), context.clone());
            let command = Command::Propose(Propose { worker: worker.clone(), call, context, schema });
            let change = Change {
                authority: Authority { verdicts, ..Authority::default() },
                writes: self.commit.mark(who, once.as_ref()),
                ..Change::new(Actor::Outside(worker), vec![command])
            };
            match self.commit.commit_once(who, once.as_ref(), row, change).await {
                // Somebody took the same use, or ended the standing approval: it is counted again.
                Err(EngineError::Store(StoreError::Guard { .. })) if !taken.is_empty() => lost_races += 1,
                answer => break (no, answer?),
            }
        };
        match answer {
            // The same request came first, or others were asked for meanwhile: the log says which call this one is.
            Answer::Repeated => {
                let done = self.commit.done_before(who, once.as_ref()).await?;
                let log = self.log.events(run, Seq(0)).await?;
                done.and_then(|done| proposed_by(&log, done.seq)).ok_or(EngineError::NotFound)
            }
            Answer::Done
            | Answer::Voted { .. }
            | Answer::Edited
            | Answer::Held
            | Answer::Refused
            | Answer::Contradicted => Ok(no),
        }
    }

    /// Takes down what came of a call that a worker ran.
    pub async fn report_call(
        &self,
        who: &Principal,
        (inbox, run): (&InboxName, RunId),
        worker: WorkerName,
        report: CallReport,
        once: Option<IdempotencyKey>,
    ) -> Result<(), EngineError> {
        works_in(who, inbox)?;
        let row = self.inboxes.snapshot(who, inbox, run).await?.stored().row.clone();
        // What came of a call whose outcome is unknown is welcome from whoever was allowed to run it, also later.
        if !is_claim_of(&worker, &who.user) {
            return Err(claimed_by_other(&row.run));
        }
        if self.commit.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(());
        }
        let CallReport { call, result } = report;
        let finish = FinishCall { call, attempt: 0, result, worker: Some(worker.clone()) };
        self.as_worker(who, row, worker, Command::FinishCall(finish), once.as_ref()).await.map(drop)
    }
}

/// The call that the append proposed whose last event this is.
fn proposed_by(log: &[Envelope], last: Seq) -> Option<CallNo> {
    let before = log.iter().rev().filter(|envelope| envelope.seq <= last);
    before.into_iter().find_map(|envelope| {
        let Event::CallProposed(proposed) = &envelope.event else { return None };
        Some(proposed.call.no)
    })
}

fn claimed_by_other(run: &Run) -> EngineError {
    Refusal::ClaimedByOther { holder: run.state.claim.as_ref().map(|claim| claim.worker.clone()) }.into()
}
