//! F1: the process aborts before and after everything that it writes, and around the tool, one place at a time.
//!
//! Which places there are is found by living each story once with a trace, so that no list goes stale. After the
//! crash a server without crash points takes over and the client finishes what it began.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::child::Options;
use crate::points::Nth;
use crate::report::Row;
use crate::site::{Field, Kept};
use crate::story::{ClearUp, Story, Wish, lines};

/// Servers at the same time: most of a case is waiting for a lease to end.
const AT_ONCE: usize = 12;
/// Fewer where each has a database of its own.
const AT_ONCE_ON_POSTGRES: usize = 4;

/// The outcome of one case.
struct Case {
    violations: Vec<String>,
    did_crash: bool,
    recoveries: usize,
}

/// Crashes at every place of these stories, `rounds` times; only every `every`-th place.
pub(crate) fn boundaries(wishes: &[Wish], rounds: usize, every: usize, kept: Kept) -> Row {
    crate::runtime().block_on(all(wishes, rounds, every, kept))
}

async fn all(wishes: &[Wish], rounds: usize, every: usize, kept: Kept) -> Row {
    let mut cases = Vec::new();
    for wish in wishes {
        cases.extend(places(*wish, kept).await.into_iter().map(|place| (*wish, place)));
    }
    let cases: Vec<_> = cases.into_iter().step_by(every).collect();
    let at_once = match kept {
        Kept::File | Kept::Folder => AT_ONCE,
        Kept::Postgres => AT_ONCE_ON_POSTGRES,
    };
    let (permits, mut running) = (Arc::new(Semaphore::new(at_once)), JoinSet::new());
    for (wish, place) in cases.iter().cycle().take(cases.len() * rounds).cloned() {
        let permits = permits.clone();
        running.spawn(async move {
            let _permit = permits.acquire().await.unwrap();
            // Starting servers and looking at what they left blocks: nobody else's time is taken by it.
            let case = move || crate::runtime().block_on(one(wish, Some(place), kept));
            tokio::task::spawn_blocking(case).await.unwrap()
        });
    }
    let (mut violations, mut crashes, mut recoveries) = (Vec::new(), 0, 0);
    for case in running.join_all().await {
        violations.extend(case.violations);
        crashes += usize::from(case.did_crash);
        recoveries += case.recoveries;
    }
    let note =
        format!("{crashes} crashes at {} places, {recoveries} unknown outcomes asked about", cases.len());
    Row::new(kept.row("F1", "F1-PG"), "abort around every write", cases.len() * rounds, violations).with(note)
}

/// The places that a story passes when nothing happens.
async fn places(wish: Wish, kept: Kept) -> Vec<Nth> {
    let field = Field::new(kept);
    let trace = field.data().join("trace");
    let server = field.start(&Options { trace: Some(trace.clone()), ..Options::default() });
    let mut story = Story::new("trace", wish, ClearUp::ByLooking);
    story.live(&server.http(), field.data()).await.unwrap();
    drop(server);
    assert_eq!(story.violations, Vec::<String>::new(), "{wish:?} without any crash");
    let mut seen = HashSet::new();
    let text = std::fs::read_to_string(trace).unwrap();
    let place = |line: &str| {
        let (point, nth) = line.split_once('#')?;
        Some(Nth { point: point.to_owned(), nth: nth.parse().ok()? })
    };
    text.lines().filter_map(place).filter(|place| seen.insert(place.clone())).collect()
}

/// One story with one crash.
async fn one(wish: Wish, place: Option<Nth>, kept: Kept) -> Case {
    let field = Field::new(kept);
    let mut story = Story::new("crash", wish, ClearUp::ByLooking);
    let shown = place.as_ref().map(|place| format!("{}#{}", place.point, place.nth)).unwrap_or_default();
    let mut server = field.start(&Options { abort_at: place, ..Options::default() });
    let did_crash = story.live(&server.http(), field.data()).await.is_err();
    server.kill();
    if did_crash {
        server = field.start(&Options::default());
        if story.live(&server.http(), field.data()).await.is_err() {
            story.violations.push("I6: the server is gone again".into());
        }
        server.kill();
    }
    let mut violations = story.violations;
    violations.extend(field.check(&story.acked));
    let effects = lines(field.data()).len();
    if effects != wish.effects() {
        violations.push(format!("I3: {effects} effects instead of {}", wish.effects()));
    }
    let violations = violations.into_iter().map(|why| format!("{wish:?} {shown}: {why}")).collect();
    Case { violations, did_crash, recoveries: story.recoveries }
}
