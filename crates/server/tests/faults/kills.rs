//! F2: kill -9 at random moments while many clients work, again and again on the same directory or database.
//!
//! Seeded: what clients do and when the server is killed follows from the seed, as far as a machine lets it.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use standfast_store::conformance::random::Random;
use tokio::task::JoinSet;

use crate::agents::Behaviour;
use crate::child::Options;
use crate::report::Row;
use crate::server::{Http, pause};
use crate::site::{Field, Kept};
use crate::story::{Acked, ClearUp, Story, Wish};

const CLIENTS: u64 = 24;
/// A data directory is checked and left after so many kills, so that checking stays quick.
const KILLS_OF_A_DIRECTORY: usize = 25;

/// Kills a busy server so many times.
pub(crate) fn kills(count: usize, seed: u64, kept: Kept) -> Row {
    let runtime = crate::runtime();
    let (mut violations, mut runs, mut asked, mut done) = (Vec::new(), 0, 0, 0);
    while done < count {
        let kills = (count - done).min(KILLS_OF_A_DIRECTORY);
        let field = Field::new(kept);
        let round = runtime.block_on(round(&field, kills, seed + done as u64));
        runs += round.stories.len();
        asked += round.stories.iter().map(|story| story.recoveries).sum::<usize>();
        let acked: Vec<Acked> = round.stories.iter().flat_map(|story| story.acked.clone()).collect();
        let found = round.stories.into_iter().flat_map(|story| story.violations);
        let found = found.chain(field.check(&acked));
        violations.extend(found.map(|why| format!("seed {}: {why}", seed + done as u64)));
        done += kills;
    }
    let note = format!("{runs} runs, {asked} unknown outcomes asked about");
    Row::new(kept.row("F2", "F2-PG"), "kill -9 under load", count, violations).with(note)
}

struct Round {
    stories: Vec<Story>,
}

/// Where the server is now; empty while it is dead. True when no more runs should be started.
#[derive(Default)]
struct Where {
    base: String,
    is_ending: bool,
}

async fn round(field: &Field, kills: usize, seed: u64) -> Round {
    let behaviour = Behaviour {
        tool: Duration::from_millis(20),
        model: Duration::from_millis(5),
        ..Options::default().behaviour
    };
    let options = Options { behaviour, ..Options::default() };
    let place = Arc::new(RwLock::new(Where::default()));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (place, data) = (place.clone(), field.data().to_owned());
        clients.spawn(async move { work(&place, &data, client, seed).await });
    }
    let mut random = Random::new(seed);
    for _ in 0..kills {
        let mut server = field.start(&options);
        place.write().unwrap().base = server.bases.first().cloned().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(40 + random.below(500))).await;
        server.kill();
        place.write().unwrap().base.clear();
    }
    let mut server = field.start(&options);
    *place.write().unwrap() =
        Where { base: server.bases.first().cloned().unwrap_or_default(), is_ending: true };
    let stories = clients.join_all().await.concat();
    server.kill();
    Round { stories }
}

/// One client: one run after the other, each with its own wish.
async fn work(place: &RwLock<Where>, data: &Path, client: u64, seed: u64) -> Vec<Story> {
    let mut random = Random::new(seed ^ (client << 32));
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
    let mut stories = Vec::new();
    let mut is_ending = false;
    while !is_ending {
        let wish = *random.pick(&Wish::ALL);
        let clear_up =
            *random.pick(&[ClearUp::ByLooking, ClearUp::Again, ClearUp::DidNotHappen, ClearUp::Happened]);
        let mut story = Story::new(format!("s-{client}-{}", stories.len()), wish, clear_up);
        while !story.is_over {
            let base = place.read().unwrap().base.clone();
            if base.is_empty() {
                pause().await;
                continue;
            }
            let http = Http { client: http.clone(), base };
            if story.live(&http, data).await.is_err() {
                pause().await;
            }
        }
        stories.push(story);
        is_ending = place.read().unwrap().is_ending;
    }
    stories
}
