//! Sub-runs: a call that another agent of this server works on.
//!
//! The parent's hold names its child before the child exists, and wakes the parent in the same append; whoever drives
//! the parent then begins the child, whose id follows from run, call and attempt, so that twice is once. A child that
//! ends wakes its parent in the same append, a parent that ends wakes its children. Each looks at the other when it is
//! driven: nothing is carried in memory, and a crash anywhere leaves a wake that somebody finds.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Admission, Choice, Command, Decide, Resolve, Start};
use standfast_core::event::{Driver as DrivenBy, Envelope, Outcome, Parent};
use standfast_core::hold::Hold;
use standfast_core::id::{RunId, Seq};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::run::Run;
use standfast_core::transcript::stored_call;
use standfast_store::StoreError;
use standfast_store::pipeline::Writes;

use super::{Drive, Drives};
use crate::EngineError;
use crate::commit::Change;
use crate::log::result_of;
use crate::request_context::{self, RequestContext};

/// Begins children that were promised, takes the results of those that have ended, and ends the run when no parent waits
/// for it any more.
pub(super) async fn look_after_family(drive: &mut Drive) -> Result<(), EngineError> {
    let Some(run) = drive.pipeline.tip().cloned() else { return Ok(()) };
    if run.outcome().is_some() {
        return Ok(());
    }
    // Before there is something in hand that a failing read could lose.
    drive.above = drive.drives.callbacks.receivers_above(&run.facts.tenant, run.facts.parent).await?;
    if let Some(parent) = run.facts.parent
        && !drive.drives.is_waited_for(parent).await?
    {
        let reason = Some(format!("the run {} that asked for it no longer waits for it", parent.run));
        return drive.push(Command::Cancel { reason }, Verdicts::default()).await;
    }
    for hold in &run.state.holds {
        let Some(child) = hold.child else { continue };
        // A child that is begun belongs to this drive's trace.
        let context = RequestContext::of_work(super::spans::span_of(drive));
        let looking = drive.drives.child_came_to(&run, hold, child, &drive.log);
        if let Some(wanted) = request_context::within(context, looking).await? {
            let decide = Decide { hold: hold.key, digest: None, revision: None };
            let resolve = Resolve { decide, resolution: wanted, idempotency_key: None, message: None };
            drive.push_as(Role::System, Command::Resolve(resolve)).await?;
        }
    }
    Ok(())
}

impl Drives {
    /// Whether a parent still has the hold that this sub-run's end settles.
    async fn is_waited_for(&self, parent: Parent) -> Result<bool, EngineError> {
        match self.log.store.load(parent.run).await {
            Ok(stored) => Ok(stored.row.run.hold(parent.hold).is_some()),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The result of a child; none while it is at work. One that does not exist yet is begun.
    async fn child_came_to(
        self: &Arc<Drives>,
        run: &Run,
        hold: &Hold,
        child: RunId,
        log: &[Envelope],
    ) -> Result<Option<Choice>, EngineError> {
        let row = match self.log.store.load(child).await {
            Ok(stored) => stored.row,
            Err(StoreError::NotFound { .. }) => return self.begin_child(run, hold, child, log).await,
            Err(error) => return Err(error.into()),
        };
        let Some(outcome) = row.run.outcome() else { return Ok(None) };
        let (result, reason) = result_of(&self.log.events(child, Seq(0)).await?);
        let agent = &row.run.facts.agent;
        let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let failed =
            |what: &str| Choice::Fail { error: Body::text(format!("agent {agent} {what}{because}")) };
        Ok(Some(match outcome {
            Outcome::Completed => Choice::Answer { value: result.unwrap_or_else(|| Body::text("")) },
            Outcome::Failed => failed("failed"),
            Outcome::Canceled => failed("was canceled"),
            Outcome::Rejected => failed("would not take the work"),
        }))
    }

    /// Begins a child; what stands in the way of it is its result.
    async fn begin_child(
        self: &Arc<Drives>,
        run: &Run,
        hold: &Hold,
        child: RunId,
        log: &[Envelope],
    ) -> Result<Option<Choice>, EngineError> {
        let parent = self.host.agent(&run.facts.agent).ok();
        let stored = stored_call(log, hold.call());
        let asked =
            stored.and_then(|stored| parent.as_ref()?.tools.get(&stored.tool)?.sub_run(&stored.arguments));
        let fail = |why: String| Ok(Some(Choice::Fail { error: Body::text(why) }));
        let Some(asked) = asked else {
            return fail("not executed: this server does not have the tool".into());
        };
        let agent = match self.host.agent(&asked.agent) {
            Ok(agent) => agent,
            Err(error) => return fail(format!("not executed: {error}")),
        };
        let start = Start {
            id: child,
            tenant: run.facts.tenant.clone(),
            agent: asked.agent,
            session: run.facts.session.clone(),
            owner: run.facts.owner.clone(),
            driver: DrivenBy::Loop,
            definition: agent.digest,
            parent: Some(Parent {
                run: run.facts.id,
                call: hold.call(),
                hold: hold.key,
                depth: run.facts.parent.map_or(0, |parent| parent.depth) + 1,
            }),
            inbox: None,
            message: asked.message,
            taken: Admission::Queued,
            history: None,
        };
        let definition = self.log.put_definition(agent.digest, &agent.definition);
        let writes = Writes { puts: vec![definition], ..Writes::default() };
        let change = Change { writes, ..Change::new(Actor::Node(self.host.node), Vec::new()) };
        match self.commit.commit_start(start, agent.definition.clone(), change).await {
            // Whoever drove the parent before may have begun it already.
            Ok(_) | Err(EngineError::Store(StoreError::Conflict { .. })) => Ok(None),
            Err(EngineError::Refused(refusal)) => fail(format!("not executed: {refusal}")),
            Err(error) => Err(error),
        }
    }
}
