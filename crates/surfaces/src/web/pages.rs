//! What each page shows, as plain values: everything that a template prints is worked out here.
//!
//! One file for each page. Times come with how long ago they are; text of models, tools and people is passed on as it
//! is stored, and made visible by the templates.

pub(super) mod call;
pub(super) mod charts;
pub(super) mod context;
pub(super) mod conversation;
pub(super) mod history;
pub(super) mod hold;
mod message;
pub(super) mod review;
pub(super) mod run;
pub(super) mod stakes;
pub(super) mod waiting;

use serde::Serialize;
use standfast_core::project::ResolutionKind;
use standfast_core::run::Status;
use standfast_core::time::Timestamp;

use crate::http::rfc3339;
use crate::labels;

/// An instant as a page shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShownInstant {
    /// For programs.
    iso: String,
    /// For people, in UTC.
    text: String,
    /// How long ago, or in how long.
    relative: String,
    /// The same without the direction.
    distance: String,
}

impl ShownInstant {
    /// For people, in UTC.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn new(at: Timestamp, now: Timestamp) -> ShownInstant {
        let iso = rfc3339(at);
        let text = labels::instant(at);
        let distance = labels::span(if at > now { at.since(now) } else { now.since(at) });
        let relative = if at > now { format!("in {distance}") } else { format!("{distance} ago") };
        ShownInstant { iso, text, relative, distance }
    }
}

/// How a resolution looks.
pub(super) fn resolution_tone(how: ResolutionKind) -> &'static str {
    match how {
        ResolutionKind::Approved | ResolutionKind::Edited | ResolutionKind::Answered => "good",
        ResolutionKind::Denied | ResolutionKind::Failed => "bad",
        ResolutionKind::Expired | ResolutionKind::Withdrawn | ResolutionKind::Superseded => "over",
    }
}

/// How a status looks.
pub(super) fn tone(status: Status) -> &'static str {
    use standfast_core::event::Outcome;
    match status {
        Status::Held(_) => "waits",
        Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => "works",
        Status::Ended(Outcome::Completed) => "good",
        Status::Ended(Outcome::Failed | Outcome::Rejected) => "bad",
        Status::Ended(Outcome::Canceled) => "over",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_told_with_their_distance() {
        let (now, at) = (Timestamp(1_762_000_000_123), Timestamp(1_762_000_000_123 - 90_000));
        let ago = ShownInstant::new(at, now);
        assert_eq!((ago.text.as_str(), ago.relative.as_str()), ("2025-11-01 12:25:10 UTC", "1 min ago"));
        assert_eq!(ShownInstant::new(now, at).relative, "in 1 min");
    }
}
