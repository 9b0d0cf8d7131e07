//! Callers who stay for long: whether they would still be let in, and may still see what they follow.
//!
//! A key that is revoked or expires, and a token that runs out, so end the streams that were opened with them: before the
//! next news, looked up at most once a second, and after ten seconds in any case. Who may see a run is looked at before
//! all news. Each surface says in its own words why a stream ended.

use std::time::Duration;

use standfast_core::id::RunId;
use standfast_core::run::Facts;
use standfast_engine::auth::Principal;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{App, Pass};

/// How often it is looked without news.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How long a look counts when there is news.
const LOOK_LASTS: Duration = Duration::from_secs(1);

/// What a reader hears last whose key was revoked, or whose token has run out.
pub const INVALID: &str = "the key or token that this stream was opened with is no longer valid";

/// What a reader hears last who may not see the run any more.
const UNSEEN: &str = "you no longer have access to this run";

/// Somebody who was let in, and stays to follow a run.
pub struct Stay {
    app: App,
    pass: Pass,
    who: Principal,
    /// What they follow; none when it is lists of everything that they may see.
    run: Option<RunId>,
    /// What never changes of the run, once it was looked up.
    facts: Option<Facts>,
    looked_at: Instant,
    look_again: Interval,
    /// A look was due, and has not come to an end.
    is_due: bool,
}

impl Stay {
    /// Whoever has just been let in with this, to follow a run.
    #[must_use]
    pub fn new(app: &App, pass: Pass, who: Principal, run: RunId) -> Stay {
        Stay::of(app, pass, who, Some(run))
    }

    /// Whoever has just been let in with this, to follow whatever they may see.
    #[must_use]
    pub fn for_lists(app: &App, pass: Pass, who: Principal) -> Stay {
        Stay::of(app, pass, who, None)
    }

    /// Whether they may see a run; one that cannot be told is none of theirs.
    pub async fn may_see(&self, run: RunId) -> bool {
        let facts = self.app.engine.reads().facts(run).await.ok().flatten();
        facts.is_some_and(|facts| self.app.engine.reads().may_see(&self.who, &facts))
    }

    fn of(app: &App, pass: Pass, who: Principal, run: Option<RunId>) -> Stay {
        let mut look_again = tokio::time::interval(LOOK_AGAIN);
        look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look_again.reset();
        let (app, looked_at) = (app.clone(), Instant::now());
        Stay { app, pass, who, run, facts: None, looked_at, look_again, is_due: false }
    }

    /// Comes back when they would no longer be let in. Whoever breaks off waiting for it loses nothing: a look that was
    /// due is the first thing that the next wait does, so that much news cannot put it off.
    pub async fn is_over(&mut self) {
        if self.pass.is_for_all() {
            return std::future::pending().await;
        }
        loop {
            if !self.is_due {
                self.look_again.tick().await;
                self.is_due = true;
            }
            if !self.looks().await {
                return;
            }
            self.is_due = false;
        }
    }

    /// Why they may not hear the news of the run; none when they may. A server that cannot tell lets them: it will be asked
    /// again.
    pub async fn is_shut_out(&mut self) -> Option<&'static str> {
        let is_due = !self.pass.is_for_all() && self.looked_at.elapsed() >= LOOK_LASTS;
        if is_due && !self.looks().await {
            return Some(INVALID);
        }
        if self.facts.is_none()
            && let Some(run) = self.run
        {
            self.facts = self.app.engine.reads().facts(run).await.ok().flatten();
        }
        let may_see = |facts: &Facts| self.app.engine.reads().may_see(&self.who, facts);
        (!self.facts.as_ref().is_none_or(may_see)).then_some(UNSEEN)
    }

    /// Whether they would still be let in; as whom is remembered.
    async fn looks(&mut self) -> bool {
        let is_good = self.pass.renew(&self.app, &mut self.who).await;
        self.looked_at = Instant::now();
        is_good
    }
}
