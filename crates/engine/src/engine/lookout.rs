//! Calls that wait for something which nobody reports: the outside is asked now and then.
//!
//! Which calls those are is a list of open holds, so a start finds them all and nothing is stored for it; what is kept in
//! memory is only when each is asked about next; `abandon.rs` tells the outside when nobody waits. With several servers each asks about the runs of its own shards. Whoever
//! looks twice does no harm: going on is an append like any other, and happens once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Command, Decide, Resolve, Wanted};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, Seq};
use standfast_core::name::ToolName;
use standfast_core::policy::{Role, Verdicts};
use standfast_core::project::HoldRow;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::ahead::Driver;
use standfast_store::{Audience, HoldFilter, HoldQuery, StoreError};
use tokio::task::JoinSet;

use super::orders::{Lease, More, beside};
use super::views::asked;
use super::{Engine, EngineError, Shared};
use crate::tool::{Tool, look_again};

/// How long after a call began to wait it is first asked about; then it is twice as long each time.
const FIRST: Millis = Millis(500);

/// The longest time between two questions about one call.
const LONGEST: Millis = Millis::seconds(30);

/// How often the list of what waits is read, when there is little of it.
const ROUND: Millis = Millis(500);

/// Questions at once.
const AT_ONCE: usize = 16;

/// Holds of one page of the list.
const PAGE: usize = 200;

/// What may wait for a tool that finds out by itself.
const KINDS: [HoldKind; 3] = [HoldKind::External, HoldKind::Input, HoldKind::Auth];

/// A call that waits.
struct Waiting {
    tool: Arc<dyn Tool>,
    state: Body,
    pause: Millis,
    ask_at: Timestamp,
    is_asked: bool,
}

#[derive(Default)]
struct Lookout {
    waiting: HashMap<HoldId, Waiting>,
    /// Holds of the same tools that nothing outside is asked about.
    quiet: HashMap<HoldId, ()>,
    asking: JoinSet<(HoldId, bool)>,
    /// How often the settings had changed when this was remembered: the tools are those of then.
    reloads: u64,
}

impl Engine {
    /// Looks after calls that wait, from now on until the engine stops.
    pub(super) fn keep_lookout(&self) {
        self.shared.spawn(rounds(Arc::downgrade(&self.shared)));
    }
}

async fn rounds(weak: Weak<Shared>) {
    let mut lookout = Lookout::default();
    while let Some(shared) = weak.upgrade().filter(|shared| !shared.is_stopping()) {
        let (mut stopping, mut reloads) = (shared.stopping.subscribe(), shared.reloads.subscribe());
        let tools = shared.tools_that_find_out();
        if tools.is_empty() {
            // Nobody wakes up for nothing: only other settings can bring such a tool.
            drop(shared);
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                changed = reloads.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            }
        }
        lookout.forget_old_tools(*reloads.borrow_and_update());
        match shared.waiting_for(&tools).await {
            Ok(found) => lookout.see(&shared, found).await,
            Err(error) => tracing::warn!(%error, "calls that wait cannot be looked for; trying again"),
        }
        lookout.ask(&shared);
        // A long list is read less often.
        let pause = Millis(ROUND.0 + i64::try_from(lookout.waiting.len()).unwrap_or(i64::MAX));
        let answered = tokio::select! {
            () = shared.clock.sleep(pause) => None,
            Some(answered) = lookout.asking.join_next(), if !lookout.asking.is_empty() => answered.ok(),
            _ = async { stopping.wait_for(|stopping| *stopping).await.is_ok() } => None,
        };
        if let Some((hold, has_news)) = answered {
            lookout.answered(&shared, hold, has_news).await;
        }
    }
    lookout.asking.shutdown().await;
}

impl Lookout {
    /// After other settings everything is found again, with the tools of now.
    fn forget_old_tools(&mut self, reloads: u64) {
        if self.reloads != reloads {
            *self = Lookout { reloads, ..Lookout::default() };
        }
    }

    /// What waits now: new ones are remembered, those that are gone are forgotten.
    async fn see(&mut self, shared: &Arc<Shared>, found: Vec<HoldRow>) {
        let open: HashMap<HoldId, HoldRow> = found.into_iter().map(|row| (row.id, row)).collect();
        self.waiting.retain(|hold, _| open.contains_key(hold));
        self.quiet.retain(|hold, ()| open.contains_key(hold));
        for (hold, row) in open {
            if self.waiting.contains_key(&hold) || self.quiet.contains_key(&hold) {
                continue;
            }
            match shared.state_of(&row).await {
                Ok(Some((tool, state))) => {
                    let ask_at = shared.clock.now().plus(FIRST);
                    self.waiting.insert(hold, Waiting { tool, state, pause: FIRST, ask_at, is_asked: false });
                }
                Ok(None) => {
                    self.quiet.insert(hold, ());
                }
                Err(error) => tracing::warn!(%hold, %error, "what a call waits for cannot be read"),
            }
        }
    }

    /// Asks about those whose time has come.
    fn ask(&mut self, shared: &Arc<Shared>) {
        let now = shared.clock.now();
        for (hold, waiting) in &mut self.waiting {
            if self.asking.len() >= AT_ONCE {
                return;
            }
            if waiting.is_asked || waiting.ask_at > now {
                continue;
            }
            let Some(watching) = waiting.tool.watch(&waiting.state) else { continue };
            let hold = *hold;
            waiting.is_asked = true;
            self.asking.spawn(shared.clock.follows(async move { (hold, watching.await) }));
        }
    }

    async fn answered(&mut self, shared: &Arc<Shared>, hold: HoldId, has_news: bool) {
        if has_news && let Err(error) = shared.looks_again(hold).await {
            tracing::warn!(%hold, %error, "a call that can go on was not started; trying again");
        }
        if let Some(waiting) = self.waiting.get_mut(&hold) {
            waiting.pause = Millis((waiting.pause.0 * 2).min(LONGEST.0));
            waiting.ask_at = shared.clock.now().plus(waiting.pause);
            waiting.is_asked = false;
        }
    }
}

impl Shared {
    /// The tools that find out by themselves how things are outside.
    fn tools_that_find_out(&self) -> Vec<ToolName> {
        let settings = self.settings();
        let all = settings.agents.values().flat_map(|agent| &agent.tools);
        let mut names: Vec<ToolName> =
            all.filter(|(_, tool)| tool.finds_out()).map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The open holds of these tools in the shards of this node.
    async fn waiting_for(&self, tools: &[ToolName]) -> Result<Vec<HoldRow>, StoreError> {
        let shards = self.shards();
        let mut found = Vec::new();
        for tenant in self.tenants().await? {
            for tool in tools {
                let mut cursor = None;
                loop {
                    let query = HoldQuery {
                        tenant: tenant.clone(),
                        audience: Audience::Everyone,
                        filter: HoldFilter::Tool(tool.clone()),
                        kinds: KINDS.to_vec(),
                        cursor,
                        limit: PAGE,
                    };
                    let page = self.store.list_holds(query).await?;
                    found.extend(page.items.into_iter().filter(|row| self.is_own(&shards, row.id.run)));
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The tool of a call that waits, and what it left with its hold; none when it left nothing, or is gone.
    async fn state_of(&self, row: &HoldRow) -> Result<Option<(Arc<dyn Tool>, Body)>, StoreError> {
        let agent = self.agent(&row.agent).ok();
        let tool = row.tool.as_ref().and_then(|tool| agent?.tools.get(tool).cloned());
        let Some(tool) = tool.filter(|tool| tool.finds_out()) else { return Ok(None) };
        let before = Seq(row.at.0.saturating_sub(1));
        let ask = asked(row, &self.events(row.id.run, before).await?);
        Ok(ask.resume.map(|state| (tool, *state)))
    }

    /// Lets a call go on with what it finds outside.
    async fn looks_again(&self, hold: HoldId) -> Result<(), EngineError> {
        let stored = self.store.load(hold.run).await?;
        let run = &stored.row.run;
        if run.hold(hold.key).is_none() {
            return Ok(());
        }
        let definition = self.definition(&run.facts.agent, run.state.definition).await?;
        let resolve = Resolve {
            decide: Decide { hold: hold.key, digest: None, revision: None },
            resolution: Wanted::Answer { value: look_again() },
            idempotency_key: None,
        };
        let beside = beside(Lease::Untouched, &self.approvers(&run.facts.agent), More::default());
        let actor = Actor::Node(self.node);
        let mut order =
            self.order(vec![Command::Resolve(resolve)], actor, definition, Verdicts::default(), beside);
        order.given.authority = Some(Role::System);
        let mut driver = Driver::of(self.store.clone(), stored.row);
        driver.push(order);
        let settled = driver.settle().await;
        self.wakes.wake(hold.run);
        self.wakes.wake_worker();
        settled.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
