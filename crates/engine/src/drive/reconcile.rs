//! Asking whether the effect of a lost start happened, before a person is asked.
//!
//! A tool may name a read-only call for that. It is made by whoever drives the run, beside the tools that are at work, so the
//! lease is kept and a crash in the middle leaves the start as it was: whoever finds it asks again. What follows from the answer is
//! the core's to decide; how it is read is the policy's.

use std::sync::Arc;

use standfast_core::command::{Command, StoredCall};
use standfast_core::event::OrphanCause;
use standfast_core::id::CallNo;
use standfast_core::name::ToolName;
use standfast_core::policy::{Effect, Verdicts};
use standfast_core::reconcile::{EffectAnswer, Reconciliation};
use standfast_core::run::{CallAttempt, Run};
use standfast_core::transcript::stored_call;
use standfast_policy::reconcile::Reconcile;
use standfast_policy::value::Arguments;
use tracing::Instrument as _;

use super::read_only_call::{ReadOnlyCall, finding};
use super::{Drive, Drives, ToolEnd};
use crate::EngineError;
use crate::policy;
use crate::settings::Agent;

/// A start of which nobody knows what it did. The call that its tool names is made first, while the run is at work; where there is
/// none, or the run has ended and nobody will be asked, what is known is written down at once.
pub(super) async fn give_up_start(
    drive: &mut Drive,
    CallAttempt { call, attempt }: CallAttempt,
    why: OrphanCause,
) -> Result<(), EngineError> {
    let Some(question) = question_about(drive, call) else {
        return push_orphan(drive, CallAttempt { call, attempt }, why, None).await;
    };
    let drives = drive.drives.clone();
    let asking = async move {
        let said = question.ask(&drives).await;
        ToolEnd::Reconciled { why, said: Box::new(said) }
    };
    let clock = drive.drives.host.clock.clone();
    let handle = drive.tools.spawn(clock.follows(asking.in_current_span()));
    drive.at_work.insert(handle.id(), CallAttempt { call, attempt });
    Ok(())
}

pub(super) async fn push_orphan(
    drive: &mut Drive,
    CallAttempt { call, attempt }: CallAttempt,
    why: OrphanCause,
    reconciled: Option<Box<Reconciliation>>,
) -> Result<(), EngineError> {
    let node = drive.drives.host.node;
    let orphan = Command::Orphan { call, attempt, node, why, reconciled };
    drive.push(orphan, Verdicts::default()).await
}

/// What is to be asked about a start, of a run that still goes on.
fn question_about(drive: &Drive, call: CallNo) -> Option<Question> {
    let run = drive.pipeline.tip().filter(|run| run.outcome().is_none())?;
    let agent = drive.drives.host.agent(&run.facts.agent).ok()?;
    let stored = stored_call(&drive.log, call)?;
    let wanted = agent.reconcile.get(&stored.tool)?.clone();
    Some(Question { run: Run::clone(run), agent, call, stored, wanted })
}

/// What is to be asked about a start.
struct Question {
    run: Run,
    agent: Arc<Agent>,
    call: CallNo,
    stored: StoredCall,
    wanted: Arc<Reconcile>,
}

impl Question {
    async fn ask(&self, drives: &Drives) -> Reconciliation {
        let (run, wanted) = (&self.run, &self.wanted);
        let (arguments, said) = match wanted.arguments(&Arguments::parse(&self.stored.arguments)) {
            Ok(arguments) => {
                let said = self.answer(drives, &arguments).await;
                (arguments, said)
            }
            Err(why) => (String::new(), Err(why)),
        };
        let says = said.as_deref().map_or(EffectAnswer::CannotTell, |answer| wanted.read(answer));
        tracing::info!(
            run = %run.facts.id, call = self.call.0, tool = wanted.tool, says = says.as_str(),
            "calls: asked whether a lost start had its effect"
        );
        Reconciliation { says, finding: finding(&wanted.tool, arguments, said) }
    }

    /// What *happened* came to is told to the model: so what the model may not read without a person, it does not read here.
    async fn answer(&self, drives: &Drives, arguments: &str) -> Result<String, String> {
        let tool = self.wanted.tool.as_str();
        let held = ToolName::new(tool).is_ok_and(|name| {
            policy::by_a_rule(&self.agent, &self.run.facts, &name, arguments) == Some(Effect::Hold)
        });
        if held {
            return Err(format!("a rule holds this call of {tool}, so it was not made"));
        }
        let call = ReadOnlyCall { no: self.call, tool, arguments, patience: self.wanted.patience() };
        drives.make_read_only_call(&self.run, &self.agent, call).await
    }
}
