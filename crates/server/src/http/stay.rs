//! Callers who stay for long: whether they would still be let in is looked at now and then.
//!
//! A key that is revoked or expires, and a token that runs out, so end the streams that were opened with them soon. Each
//! surface says in its own words why.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

use super::{App, Pass};

/// How often it is looked.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Somebody who was let in, and stays.
pub struct Stay {
    app: App,
    pass: Pass,
    look_again: Interval,
    /// A look was due, and has not come to an end.
    is_due: bool,
}

impl Stay {
    /// Whoever has just been let in with this.
    #[must_use]
    pub fn new(app: &App, pass: Pass) -> Stay {
        let mut look_again = tokio::time::interval(LOOK_AGAIN);
        look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look_again.reset();
        Stay { app: app.clone(), pass, look_again, is_due: false }
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
            if !self.pass.is_good(&self.app).await {
                return;
            }
            self.is_due = false;
        }
    }
}
