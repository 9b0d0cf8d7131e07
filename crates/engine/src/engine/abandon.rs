//! Calls that nobody waits for any more, of tools that began something outside: the outside is told so.
//!
//! A hold of such an agent that ends without an answer puts a notice in the same append. The deliverer finds it, also after
//! a crash and on another node, and tries again until the outside has heard, as it does with every notice. `lookout.rs`
//! asks the other way round: how things are outside while a call waits.

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::decide::Decided;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{HoldKey, RunId, Seq};
use standfast_core::name::AgentName;
use standfast_core::project::How;
use standfast_core::transcript::stored_call;
use standfast_store::ahead::Beside;
use standfast_store::{Notice, Put, StoreError};

use super::Shared;
use crate::tool::Tool;

/// What notices of this kind have in the place of a subscription. Those of people begin with `sub_`.
pub(super) const ABANDONED: &str = "tools: nobody waits";

/// What telling the outside came to.
pub(super) struct Told {
    /// The last event that was looked at.
    pub(super) upto: Seq,
    /// What stood in the way.
    pub(super) heard: Result<(), String>,
}

type Besides = Arc<dyn Fn(&Decided) -> Beside + Send + Sync>;

impl Shared {
    /// Writes, beside what else is written, that the outside is to be told: where an agent has such tools.
    pub(super) fn telling_outside(&self, agent: &AgentName, beside: Besides) -> Besides {
        let settings = self.settings();
        let finds_out = |tool: &Arc<dyn Tool>| tool.finds_out();
        if !settings.agents.get(agent).is_some_and(|agent| agent.tools.values().any(finds_out)) {
            return beside;
        }
        Arc::new(move |decided| {
            let mut all = beside(decided);
            all.puts.extend(notice(decided));
            all
        })
    }

    /// Tells the outside of the holds of a run that ended without an answer, from this event on.
    pub(super) async fn tell_outside(&self, run: RunId, from: Seq) -> Result<Told, StoreError> {
        let events = self.events(run, Seq(0)).await?;
        let upto = events.last().map_or(from, |last| last.seq);
        let told = |heard| Ok(Told { upto, heard });
        let Some(facts) = self.store.facts(run).await? else { return told(Ok(())) };
        let Ok(agent) = self.agent(&facts.agent) else { return told(Ok(())) };
        let given_up = events.iter().filter(|envelope| envelope.seq >= from).filter_map(given_up);
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

fn notice(decided: &Decided) -> Option<Put> {
    let first = decided.events.iter().find(|envelope| given_up(envelope).is_some())?;
    let (from, due_at) = (first.seq, decided.run.state.at);
    Some(Put::Notice(Notice { subscription: ABANDONED.to_owned(), owner: String::new(), from, due_at }))
}

/// The hold that ended here, if its call does not go on.
fn given_up(envelope: &Envelope) -> Option<HoldKey> {
    let Event::HoldResolved(resolved) = &envelope.event else { return None };
    match How::from(&resolved.resolution) {
        How::Approved | How::Edited | How::Answered => None,
        How::Denied | How::Failed | How::Expired | How::Withdrawn | How::Superseded => Some(resolved.hold),
    }
}

/// What the tool left with a hold.
fn state_of(events: &[Envelope], hold: HoldKey) -> Option<&Body> {
    events.iter().find_map(|envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        opened.ask.resume.as_deref().filter(|_| opened.hold == hold)
    })
}
