//! The way to one provider: so many requests at once, the others wait in line, and the line is bounded.
//!
//! Agents take turns: whoever has a thousand runs waiting gets every second place when one other agent waits, not all of
//! them. A provider that says how long it wants to be left alone is left alone by everyone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use standfast_core::name::AgentName;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::model::Live;
use tokio::sync::oneshot;

use super::error::{Trouble, TroubleKind};

/// How many requests may wait in line.
const LINE_MAX: usize = 1000;

/// How long somebody waits here for a provider that wants to be left alone. Longer waits are stored, and cost nothing.
const WAIT_HERE: Millis = Millis::seconds(10);

/// The way to one provider.
pub(super) struct Gate {
    most: usize,
    line_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    inside: usize,
    waiting: usize,
    lines: BTreeMap<AgentName, VecDeque<oneshot::Sender<Pass>>>,
    /// Whose turn it is next; every agent with a line stands here once.
    order: VecDeque<AgentName>,
    closed_until: Option<Timestamp>,
}

/// The right to ask, given back when it is dropped.
pub(super) struct Pass {
    gate: Option<Arc<Gate>>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.leave();
        }
    }
}

impl Gate {
    /// A gate that lets so many through at once.
    pub(super) fn new(most: usize) -> Gate {
        Gate { most, line_max: LINE_MAX, state: Mutex::default() }
    }

    /// Waits for a place, and for the provider to be open.
    pub(super) async fn enter(self: &Arc<Gate>, agent: &AgentName, live: &Live) -> Result<Pass, Trouble> {
        let waits = self.stand_in_line(agent)?;
        let pass = match waits {
            Ok(pass) => pass,
            Err(line) => line.await.map_err(|_| Trouble::new(TroubleKind::Crowded, "the line was closed"))?,
        };
        while let Some(wait) = self.closed_for(live.now()) {
            if wait > WAIT_HERE {
                let said = "it asked for a pause; no request is sent before that";
                return Err(Trouble::new(TroubleKind::RateLimited { wait: Some(wait) }, said));
            }
            live.sleep(wait).await;
        }
        Ok(pass)
    }

    /// Nobody asks before this instant.
    pub(super) fn close_until(&self, until: Timestamp) {
        let mut state = self.state();
        state.closed_until = state.closed_until.max(Some(until));
    }

    fn closed_for(&self, now: Timestamp) -> Option<Millis> {
        let until = self.state().closed_until?;
        (until > now).then(|| Millis(until.0 - now.0))
    }

    fn stand_in_line(
        self: &Arc<Gate>,
        agent: &AgentName,
    ) -> Result<Result<Pass, oneshot::Receiver<Pass>>, Trouble> {
        let mut state = self.state();
        if state.inside < self.most {
            state.inside += 1;
            return Ok(Ok(Pass { gate: Some(self.clone()) }));
        }
        if state.waiting >= self.line_max {
            let said = format!("{} at once, {} in line", self.most, self.line_max);
            return Err(Trouble::new(TroubleKind::Crowded, said));
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting += 1;
        let line = state.lines.entry(agent.clone()).or_default();
        line.push_back(sender);
        if line.len() == 1 {
            state.order.push_back(agent.clone());
        }
        Ok(Err(receiver))
    }

    /// Gives a place to whoever is next; whoever has gone away meanwhile is passed over.
    fn leave(self: &Arc<Gate>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.next();
                if next.is_none() {
                    state.inside -= 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Pass { gate: Some(self.clone()) }) {
                Ok(()) => return,
                // The place is still ours to give.
                Err(mut pass) => pass.gate = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<oneshot::Sender<Pass>> {
        let agent = self.order.pop_front()?;
        let line = self.lines.get_mut(&agent)?;
        let next = line.pop_front();
        if line.is_empty() {
            drop(self.lines.remove(&agent))
        } else {
            self.order.push_back(agent)
        }
        self.waiting -= usize::from(next.is_some());
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use standfast_engine::clock::Clock;

    use super::*;

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    fn live() -> Live {
        Live::new(Clock::system(), |_| {})
    }

    /// F26: an agent with a long line does not keep another one waiting to its end.
    #[tokio::test]
    async fn agents_take_turns() {
        let gate = Arc::new(Gate::new(1));
        let first = gate.enter(&agent("greedy"), &live()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for name in ["greedy", "greedy", "greedy", "greedy", "modest", "modest"] {
            let line = match gate.stand_in_line(&agent(name)).unwrap() {
                Ok(_) => panic!("there was a place"),
                Err(line) => line,
            };
            let order = order.clone();
            tasks.spawn(async move {
                let _pass = line.await.unwrap();
                order.lock().unwrap().push(name);
            });
        }
        drop(first);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*order.lock().unwrap(), ["greedy", "modest", "greedy", "modest", "greedy", "greedy"]);
        assert_eq!(gate.state().inside, 0);
    }

    #[tokio::test]
    async fn whoever_goes_away_costs_no_place_and_the_line_is_bounded() {
        let gate = Arc::new(Gate { line_max: 2, ..Gate::new(1) });
        let first = gate.enter(&agent("a"), &live()).await.unwrap();
        let gone = gate.stand_in_line(&agent("a")).unwrap();
        let stays = gate.stand_in_line(&agent("b")).unwrap();
        let full = gate.enter(&agent("c"), &live()).await.err().unwrap();
        assert_eq!(full.kind, TroubleKind::Crowded);
        drop(gone);
        drop(first);
        let Err(line) = stays else { panic!("there was a place") };
        // Given and never taken: it comes back all the same.
        drop(line);
        let state = gate.state();
        assert_eq!((state.inside, state.waiting), (0, 0));
    }

    /// F26: a provider that wants to be left alone is left alone by everyone, for a while here, for longer in the store.
    #[tokio::test]
    async fn a_closed_gate_is_waited_for() {
        let gate = Arc::new(Gate::new(1));
        let clock = Clock::system();
        gate.close_until(clock.now().plus(Millis(30)));
        let began = clock.now();
        let pass = gate.enter(&agent("a"), &live()).await.unwrap();
        assert!(clock.now().0 - began.0 >= 30);
        drop(pass);
        gate.close_until(clock.now().plus(Millis::hours(1)));
        let refused = gate.enter(&agent("a"), &live()).await.err().unwrap();
        assert!(refused.wait().unwrap() > Millis::seconds(3000) && refused.may_pass());
        assert_eq!(gate.state().inside, 0);
    }
}
