//! Calls that were given up, of tools that began something outside: the outside is sent a cancel request.
//!
//! A hold of such an agent that ends without an answer puts a notice in the same append. The deliverer finds it, also after
//! a crash and on another node, and tries again until the outside has heard, as it does with every notice. `work/poller.rs`
//! asks the other way round: how things are outside while a call waits.

use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{HoldKey, RunId, Seq};
use standfast_core::transcript::stored_call;
use standfast_store::StoreError;
use standfast_store::pipeline::hold_given_up;

use super::Deliveries;

/// The result of telling the outside.
pub(super) struct RemoteCancel {
    /// The last event that was looked at.
    pub(super) upto: Seq,
    /// What stood in the way.
    pub(super) heard: Result<(), String>,
}

impl Deliveries {
    /// Tells the outside of the holds of a run that ended without an answer, from this event on.
    pub(super) async fn tell_outside(&self, run: RunId, from: Seq) -> Result<RemoteCancel, StoreError> {
        let events = self.log.events(run, Seq(0)).await?;
        let upto = events.last().map_or(from, |last| last.seq);
        let told = |heard| Ok(RemoteCancel { upto, heard });
        let Some(facts) = self.log.store.facts(run).await? else { return told(Ok(())) };
        let Ok(agent) = self.host.agent(&facts.agent) else { return told(Ok(())) };
        let given_up = events.iter().filter(|envelope| envelope.seq >= from).filter_map(hold_given_up);
        for hold in given_up {
            let Some(state) = state_of(&events, hold) else { continue };
            let tool = stored_call(&events, hold.call).and_then(|call| agent.tools.get(&call.tool));
            let Some(telling) = tool.and_then(|tool| tool.abandon(state)) else { continue };
            if let Err(why) = telling.await {
                return told(Err(why));
            }
        }
        told(Ok(()))
    }
}

/// What the tool left with a hold.
fn state_of(events: &[Envelope], hold: HoldKey) -> Option<&Body> {
    events.iter().find_map(|envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        opened.ask.resume.as_deref().filter(|_| opened.hold == hold)
    })
}
