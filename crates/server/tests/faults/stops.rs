//! F3: the product itself is asked to stop while clients work: once, twice, or killed while it drains.
//!
//! A stop in order and a kill leave the same state: everything acknowledged is there, and the next server finishes it.

use std::path::Path;
use std::time::Duration;

use standfast_store::conformance::random::Random;
use tokio::task::JoinSet;

use crate::report::Row;
use crate::server::{Http, Server, now};
use crate::site::{Field, Kept};
use crate::story::{Acked, ClearUp, Story, Wish};

/// What the agent of the product can do.
const WISHES: [Wish; 5] = [Wish::Approve, Wish::Deny, Wish::Edit, Wish::Cancel, Wish::Message];
const CLIENTS: usize = 6;
/// Cases at the same time.
const AT_ONCE: usize = 6;

/// Stops the product so many times.
pub(crate) fn stops(count: usize, kept: Kept) -> Row {
    let runtime = crate::runtime();
    let mut violations = Vec::new();
    for first in (0..count).step_by(AT_ONCE) {
        let cases: JoinSet<_> = runtime
            .block_on(async { (first..count.min(first + AT_ONCE)).map(|case| one(case, kept)).collect() });
        violations.extend(runtime.block_on(cases.join_all()).concat());
    }
    Row::new(kept.row("F3", "F3-PG"), "SIGTERM, twice, killed while draining", count, violations)
}

async fn one(case: usize, kept: Kept) -> Vec<String> {
    let field = Field::new(kept);
    let mut random = Random::new(case as u64);
    let mut server = field.product();
    let wishes = (0..CLIENTS).map(|client| WISHES[(case + client) % WISHES.len()]);
    // What people put in place of arguments fits the tool of the demo.
    let wishes = wishes.filter(|wish| *wish != Wish::Edit || kept == Kept::File);
    let stories =
        wishes.enumerate().map(|(n, wish)| Story::new(format!("stop-{n}"), wish, ClearUp::ByLooking));
    let living = live(stories, &server.http(), field.data());
    tokio::time::sleep(Duration::from_millis(20 + random.below(120))).await;
    let mut wrong = Vec::new();
    server.signal("-TERM");
    let wait = Duration::from_millis(random.below(8));
    match case % 3 {
        0 => {}
        1 => {
            tokio::time::sleep(wait).await;
            server.signal("-TERM");
        }
        _ => {
            tokio::time::sleep(wait).await;
            server.signal("-KILL");
        }
    }
    match (ended_within(&mut server, Duration::from_secs(12)).await, case % 3) {
        (None, _) => wrong.push("I6: it does not stop".into()),
        (Some(Some(0)), _) | (Some(Some(1)), 1) | (Some(None), 1 | 2) => {}
        (Some(code), kind) => wrong.push(format!("I6: stopped in way {kind} it ended with {code:?}")),
    }
    drop(server);
    let stories = living.join_all().await;
    let mut server = field.product();
    let stories = live(stories.into_iter(), &server.http(), field.data()).join_all().await;
    server.kill();
    let acked: Vec<Acked> = stories.iter().flat_map(|story| story.acked.clone()).collect();
    wrong.extend(
        stories.iter().filter(|story| !story.is_over).map(|story| format!("I6: not over: {story:?}")),
    );
    wrong.extend(stories.into_iter().flat_map(|story| story.violations));
    wrong.extend(field.check(&acked));
    wrong.into_iter().map(|why| format!("case {case}: {why}")).collect()
}

fn live(stories: impl Iterator<Item = Story>, http: &Http, data: &Path) -> JoinSet<Story> {
    let mut living = JoinSet::new();
    for mut story in stories {
        let (http, data) = (http.clone(), data.to_owned());
        living.spawn(async move {
            // Whoever was cut off goes on with the next server.
            let _ = story.live(&http, &data).await;
            story
        });
    }
    living
}

/// The exit code once it has ended: none inside when a signal ended it, none at all when it still runs.
async fn ended_within(server: &mut Server, patience: Duration) -> Option<Option<i32>> {
    let begin = now();
    while begin.elapsed() < patience {
        if let Ok(Some(status)) = server.child.try_wait() {
            return Some(status.code());
        }
        crate::server::pause().await;
    }
    None
}
