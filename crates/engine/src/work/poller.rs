//! Calls that wait for something which nobody reports: the outside is asked now and then.
//!
//! Which calls those are is a list of open holds, so a start finds them all and nothing is stored for it; what is kept in
//! memory is only when each is asked about next; `deliver/remote_cancel.rs` tells the outside when a call was given up. With several servers each asks about the runs of its own shards. Whoever
//! looks twice does no harm: going on is an append like any other, and happens once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Command, Decide, Resolve};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, Seq};
use standfast_core::name::ToolName;
use standfast_core::policy::Role;
use standfast_core::project::HoldRow;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Audience, HoldFilter, HoldQuery, StoreError};
use tokio::task::JoinSet;

use super::Work;
use crate::EngineError;
use crate::commit::Change;
use crate::log::asked;
use crate::tool::{Tool, look_again};

/// How long after a call began to wait it is first asked about; then it is twice as long each time.
const FIRST: Millis = Millis(500);

/// The longest time between two questions about one call.
const LONGEST: Millis = Millis::seconds(30);

/// How often the list of what is pending is read, when there is little of it.
const ROUND: Millis = Millis(500);

/// Questions at once.
const AT_ONCE: usize = 16;

/// Holds of one page of the list.
const PAGE: usize = 200;

/// What may wait for a tool that finds out by itself.
const KINDS: [HoldKind; 3] = [HoldKind::External, HoldKind::Input, HoldKind::Auth];

/// A call that waits.
struct PendingCall {
    tool: Arc<dyn Tool>,
    state: Body,
    pause: Millis,
    ask_at: Timestamp,
    is_asked: bool,
}

#[derive(Default)]
struct Poller {
    waiting: HashMap<HoldId, PendingCall>,
    /// Holds of the same tools that nothing outside is asked about.
    quiet: HashMap<HoldId, ()>,
    asking: JoinSet<(HoldId, bool)>,
    /// How often the settings had changed when this was remembered: the tools are those of then.
    reloads: u64,
}

impl Work {
    /// Polls calls that wait for something elsewhere, from now on until the engine stops.
    pub(super) fn poll_remote_tasks(self: &Arc<Work>) {
        self.host.spawn(rounds(Arc::downgrade(self)));
    }
}

async fn rounds(weak: Weak<Work>) {
    let mut poller = Poller::default();
    while let Some(shared) = weak.upgrade().filter(|shared| !shared.host.is_stopping()) {
        let (mut stopping, mut reloads) = (shared.host.stopping(), shared.host.reloads());
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
        poller.forget_old_tools(*reloads.borrow_and_update());
        match shared.waiting_for(&tools).await {
            Ok(found) => poller.see(&shared, found).await,
            Err(error) => tracing::warn!(%error, "poller: pending calls could not be listed; trying again"),
        }
        poller.ask(&shared);
        // A long list is read less often.
        let pause = Millis(ROUND.0 + i64::try_from(poller.waiting.len()).unwrap_or(i64::MAX));
        let answered = tokio::select! {
            () = shared.host.clock.sleep(pause) => None,
            Some(answered) = poller.asking.join_next(), if !poller.asking.is_empty() => answered.ok(),
            _ = async { stopping.wait_for(|stopping| *stopping).await.is_ok() } => None,
        };
        if let Some((hold, has_news)) = answered {
            poller.answered(&shared, hold, has_news).await;
        }
    }
    poller.asking.shutdown().await;
}

impl Poller {
    /// After other settings everything is found again, with the tools of now.
    fn forget_old_tools(&mut self, reloads: u64) {
        if self.reloads != reloads {
            *self = Poller { reloads, ..Poller::default() };
        }
    }

    /// What is pending now: new ones are remembered, those that are gone are forgotten.
    async fn see(&mut self, shared: &Arc<Work>, found: Vec<HoldRow>) {
        let open: HashMap<HoldId, HoldRow> = found.into_iter().map(|row| (row.id, row)).collect();
        self.waiting.retain(|hold, _| open.contains_key(hold));
        self.quiet.retain(|hold, ()| open.contains_key(hold));
        for (hold, row) in open {
            if self.waiting.contains_key(&hold) || self.quiet.contains_key(&hold) {
                continue;
            }
            match shared.state_of(&row).await {
                Ok(Some((tool, state))) => {
                    let ask_at = shared.host.clock.now().plus(FIRST);
                    self.waiting
                        .insert(hold, PendingCall { tool, state, pause: FIRST, ask_at, is_asked: false });
                }
                Ok(None) => {
                    self.quiet.insert(hold, ());
                }
                Err(error) => {
                    tracing::warn!(%hold, %error, "poller: the state of a pending call could not be read")
                }
            }
        }
    }

    /// Asks about those whose time has come.
    fn ask(&mut self, shared: &Arc<Work>) {
        let now = shared.host.clock.now();
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
            self.asking.spawn(shared.host.clock.follows(async move { (hold, watching.await) }));
        }
    }

    async fn answered(&mut self, shared: &Arc<Work>, hold: HoldId, has_news: bool) {
        if has_news && let Err(error) = shared.looks_again(hold).await {
            tracing::warn!(%hold, %error, "poller: a pending call could not be resumed; trying again");
        }
        if let Some(waiting) = self.waiting.get_mut(&hold) {
            waiting.pause = Millis((waiting.pause.0 * 2).min(LONGEST.0));
            waiting.ask_at = shared.host.clock.now().plus(waiting.pause);
            waiting.is_asked = false;
        }
    }
}

impl Work {
    /// The tools that find out by themselves how things are outside.
    fn tools_that_find_out(&self) -> Vec<ToolName> {
        let settings = self.host.settings();
        let all = settings.agents.values().flat_map(|agent| &agent.tools);
        let mut names: Vec<ToolName> =
            all.filter(|(_, tool)| tool.finds_out()).map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The open holds of these tools in the shards of this node.
    async fn waiting_for(&self, tools: &[ToolName]) -> Result<Vec<HoldRow>, StoreError> {
        let shards = self.nodes.shards();
        let mut found = Vec::new();
        for tenant in self.log.tenants().await? {
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
                    let page = self.log.store.list_holds(query).await?;
                    found.extend(page.items.into_iter().filter(|row| self.nodes.is_own(&shards, row.id.run)));
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
        let agent = self.host.agent(&row.agent).ok();
        let tool = row.tool.as_ref().and_then(|tool| agent?.tools.get(tool).cloned());
        let Some(tool) = tool.filter(|tool| tool.finds_out()) else { return Ok(None) };
        let before = Seq(row.at.0.saturating_sub(1));
        let ask = asked(row, &self.log.events(row.id.run, before).await?);
        Ok(ask.resume.map(|state| (tool, *state)))
    }

    /// Lets a call go on with what it finds outside.
    async fn looks_again(self: &Arc<Work>, hold: HoldId) -> Result<(), EngineError> {
        let stored = self.log.store.load(hold.run).await?;
        if stored.row.run.hold(hold.key).is_none() {
            return Ok(());
        }
        let resolve = Resolve {
            decide: Decide { hold: hold.key, digest: None, revision: None },
            resolution: Choice::Answer { value: look_again() },
            idempotency_key: None,
            message: None,
        };
        let change = Change {
            authority: Role::System.into(),
            ..Change::new(Actor::Node(self.host.node), vec![Command::Resolve(resolve)])
        };
        match self.commit.commit(stored.row, change).await {
            // Somebody was faster.
            Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
