//! F19: an older backup is put back, and the outside delivers again what it had delivered.
//!
//! What happened after the backup is gone from the store and not from the world. A person or a job that says the same
//! again is heard again, and what then runs a second time has the token of the first time, by which the outside knows
//! it; nothing runs with other arguments, and no hold has two decisions.

use std::collections::HashMap;

use standfast_core::event::Envelope;
use standfast_core::id::RunId;
use standfast_store::conformance::random::Random;
use tokio::task::JoinSet;

use crate::agents::EFFECTS;
use crate::check::logs_of;
use crate::child::Options;
use crate::facts::Facts;
use crate::report::Row;
use crate::server::{Http, now, pause};
use crate::site::{Field, Kept};
use crate::story::{Acked, ClearUp, Story, Wish, lines};

const WISHES: [Wish; 6] = [Wish::Approve, Wish::Edit, Wish::Deny, Wish::Answer, Wish::Result, Wish::Failure];
const CLIENTS: usize = 18;

/// Restores so many times.
pub(crate) fn restores(count: usize, kept: Kept) -> Row {
    let runtime = crate::runtime();
    let (mut violations, mut ahead, mut again, mut gone) = (Vec::new(), 0, 0, 0);
    for case in 0..count {
        let mut field = Field::new(kept);
        let round = runtime.block_on(round(&mut field, case as u64));
        ahead += round.ahead;
        again += round.again;
        gone += round.gone;
        violations.extend(round.violations.into_iter().map(|why| format!("case {case}: {why}")));
    }
    let note = format!(
        "{gone} runs are younger than the backup; {ahead} effects were ahead of the store, \
         {again} of them came again with their token"
    );
    Row::new(kept.row("F19", "F19-PG"), "an older backup is restored", count, violations).with(note)
}

struct Round {
    violations: Vec<String>,
    /// Effects that the restored store knows nothing of.
    ahead: usize,
    /// Those that happened again afterwards.
    again: usize,
    /// Runs that the restored store knows nothing of.
    gone: usize,
}

async fn round(field: &mut Field, seed: u64) -> Round {
    let mut random = Random::new(seed);
    let mut server = field.start(&Options::default());
    let mut stories: Vec<Story> = (0..CLIENTS)
        .map(|n| Story::new(format!("r-{n}"), WISHES[n % WISHES.len()], ClearUp::ByLooking))
        .collect();
    // Some have ended before the backup, some wait, some begin after it.
    let (early, late) = stories.split_at_mut(CLIENTS * 2 / 3);
    for story in &mut *early {
        begun(story, &server.http()).await;
    }
    let done = usize::try_from(random.below(early.len() as u64)).unwrap_or(0);
    all_live(early.get_mut(..done).unwrap_or_default(), &server.http(), field).await;
    let backup = match field.kept() {
        Kept::File | Kept::Postgres => field.back_up(),
        // A folder of files is copied while no server writes to it.
        Kept::Folder => {
            server.kill();
            let backup = field.back_up();
            server = field.start(&Options::default());
            backup
        }
    };
    let http = server.http();
    all_live(late, &http, field).await;
    all_live(early, &http, field).await;
    server.kill();
    let mut violations: Vec<String> = stories.iter().flat_map(|story| story.violations.clone()).collect();
    field.restore(&backup);
    let before: HashMap<String, String> = lines(field.data()).into_iter().collect();
    std::fs::rename(field.data().join(EFFECTS), field.data().join("effects-before.log")).unwrap();
    let known = known(field);
    let ahead = before.keys().filter(|token| !known.contains(token)).count();
    let mut server = field.start(&Options::default());
    let http = server.http();
    let mut again = Vec::new();
    let mut gone = 0;
    for story in stories {
        let run = story.run.clone().unwrap_or_default();
        let (status, _) = http.get(&format!("/api/v1/runs/{run}")).await.unwrap();
        match status {
            404 => gone += 1,
            _ => again.push(Story { run: Some(run), ..Story::new(story.name, story.wish, story.clear_up) }),
        }
    }
    all_live(&mut again, &http, field).await;
    server.kill();
    let acked: Vec<Acked> = again.iter().flat_map(|story| story.acked.clone()).collect();
    violations.extend(again.into_iter().flat_map(|story| story.violations));
    // Effects from before the backup are in the old file; the store explains those of the new one.
    violations.extend(field.check(&acked));
    let after = lines(field.data());
    for (token, arguments) in &after {
        match before.get(token) {
            Some(first) if first != arguments => {
                violations.push(format!("I4: {token} ran with {first}, then with {arguments}"));
            }
            Some(_) if known.contains(token) => {
                violations.push(format!("I3: {token} ran again, and was known"))
            }
            Some(_) | None => {}
        }
    }
    let again = after.iter().filter(|(token, _)| before.contains_key(token)).count();
    Round { violations, ahead, again, gone }
}

/// The starts that a store knows.
fn known(field: &Field) -> Vec<String> {
    let store = field.store();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let logs = logs_of(&*store, &mut Vec::new());
            logs.iter().flat_map(|(run, log)| tokens(*run, log)).collect()
        });
        reading.join().unwrap()
    })
}

/// The tokens of the starts that the log of a run has.
fn tokens(run: RunId, log: &[Envelope]) -> Vec<String> {
    let calls = Facts::of(log).calls;
    let starts = calls.into_iter().flat_map(|(no, call)| call.starts.into_iter().map(move |n| (no, n)));
    starts.map(|(no, attempt)| format!("{run}/{}/{attempt}", no.0)).collect()
}

/// Starts it and waits until it waits.
async fn begun(story: &mut Story, http: &Http) {
    let begin = now();
    while begin.elapsed() < story.patience {
        match &story.run {
            None => story.begin(http).await.unwrap(),
            Some(run) => {
                let (_, body) = http.get(&format!("/api/v1/runs/{run}")).await.unwrap();
                if body["status"] == "held" {
                    return;
                }
                pause().await;
            }
        }
    }
    story.violations.push(format!("I6: {} does not wait for anybody", story.name));
}

async fn all_live(stories: &mut [Story], http: &Http, field: &Field) {
    let mut living = JoinSet::new();
    for (n, story) in stories.iter().enumerate() {
        let (mut story, http, data) = (story.clone(), http.clone(), field.data().to_owned());
        living.spawn(async move {
            let _ = story.live(&http, &data).await;
            (n, story)
        });
    }
    for (n, story) in living.join_all().await {
        stories[n] = story;
    }
}
