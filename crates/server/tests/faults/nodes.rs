//! Several nodes on one Postgres, all of them real processes, while something goes wrong again and again.
//!
//! Nodes are killed with -9 and started again, stopped with SIGSTOP past their leases, given wrong clocks, made deaf to
//! each other; Postgres crashes and comes back; connections are ended and answers of COMMIT are lost. Clients go to any
//! node. Seeded: what goes wrong and what clients do follows from the seed, as far as a machine lets it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use standfast_core::event::Event;
use standfast_core::time::Millis;
use standfast_store::conformance::cluster::{self, Replication};
use standfast_store::conformance::random::Random;
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::agents::{Behaviour, SHORT_LEASE};
use crate::check::{check_postgres, logs_of};
use crate::child::Options;
use crate::report::Row;
use crate::server::{Http, Server, now, pause};
use crate::story::{Acked, ClearUp, Story, Wish};
use crate::trouble::{Database, Fault, Nodes, counted};

/// Nobody may still be at work so long after the last fault has ended (I6).
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// While faults go on a run may be unlucky many times; then it is only stuck if it never comes on.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a row does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Approval cycles: runs that are started, decided, and over.
    pub(crate) cycles: usize,
    pub(crate) faults: Vec<Fault>,
    /// How Postgres replicates to a standby, where it has one.
    pub(crate) replication: Option<Replication>,
    /// Milliseconds between two faults: at least, and at most so much more.
    pub(crate) between: (u64, u64),
    pub(crate) is_deaf: bool,
    /// After how long the runs of a dead node are another's.
    pub(crate) lease: Millis,
    /// By how many milliseconds the clock of each node is wrong; of those that are not named it is right.
    pub(crate) wrong_by: Vec<i64>,
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn new(id: &'static str, what: &'static str, cycles: usize) -> Plan {
        Plan {
            id,
            what,
            nodes: 3,
            clients: 16,
            cycles,
            faults: Vec::new(),
            replication: None,
            between: (1_500, 2_500),
            is_deaf: false,
            lease: SHORT_LEASE,
            wrong_by: Vec::new(),
            seed: 1,
        }
    }

    pub(crate) fn with(self, faults: &[Fault]) -> Plan {
        Plan { faults: faults.to_vec(), ..self }
    }
}

/// Where the nodes are; the place of one that is dead is empty.
struct Site {
    data: PathBuf,
    bases: RwLock<Vec<String>>,
    /// How many cycles have begun.
    begun: AtomicUsize,
    wanted: usize,
}

/// Runs a plan.
pub(crate) fn run(plan: &Plan) -> Row {
    let data = tempfile::tempdir().unwrap();
    let runtime = crate::runtime();
    let mut database = runtime.block_on(Database::new(plan.replication));
    let begin = database_time(&database.primary.url());
    let Outcome { stories, counts, recovered, mut violations } =
        runtime.block_on(play(plan, data.path(), &mut database));
    violations.extend(stories.iter().flat_map(|story| story.violations.clone()));
    if recovered > RECOVERED_AFTER {
        violations.push(format!("I6: runs were still at work {recovered:?} after the last fault was over"));
    }
    let acked: Vec<Acked> = stories.iter().flat_map(|story| story.acked.clone()).collect();
    let url = database.primary.url();
    violations.extend(check_postgres(&url, data.path(), &acked));
    violations.extend(untimely(&url, begin, plan.faults.is_empty()));
    let asked: usize = stories.iter().map(|story| story.recoveries).sum();
    let mut note = format!(
        "{} cycles on {} nodes; {counts}; {} acknowledged; {asked} unknown outcomes asked about; \
         calm again {:.1} s after the last fault",
        stories.len(),
        plan.nodes,
        acked.len(),
        recovered.as_secs_f64()
    );
    if plan.replication == Some(Replication::Asynchronous) {
        let (lost, others) = violations.into_iter().partition(|why| is_what_a_late_standby_lacks(why));
        violations = others;
        note.push_str(&format!("; {} findings about what the standby had not got yet", Vec::len(&lost)));
    }
    let violations = violations.into_iter().map(|why| format!("seed {}: {why}", plan.seed)).collect();
    Row::new(plan.id, plan.what, stories.len(), violations).with(note)
}

/// Whether this is what `docs/many-nodes.md` says of a standby that follows asynchronously: the last moments before the
/// failover are missing, so what was acknowledged in them is not there, and what ran in them is not known.
fn is_what_a_late_standby_lacks(why: &str) -> bool {
    why.starts_with("I1:")
        || why.starts_with("I2: acknowledged")
        || why.contains("ran without a recorded start")
        || why.contains("its log does not know it")
        // Decided again because the decision is missing: the same token, by which the outside knows it.
        || why.contains("had its effect twice")
        || why.contains("of a call that was allowed")
}

struct Outcome {
    stories: Vec<Story>,
    counts: String,
    recovered: Duration,
    violations: Vec<String>,
}

async fn play(plan: &Plan, data: &Path, database: &mut Database) -> Outcome {
    let url = database.url();
    let options = |node: usize| Options {
        behaviour: Behaviour {
            tool: Duration::from_millis(20),
            model: Duration::from_millis(5),
            expiry: Millis(400),
            lease: plan.lease,
        },
        postgres: Some(url.clone()),
        is_deaf: plan.is_deaf,
        wrong_by: Millis(plan.wrong_by.get(node).copied().unwrap_or(0)),
        ..Options::default()
    };
    let mut servers: Vec<Server> = (0..plan.nodes).map(|node| Server::start(data, &options(node))).collect();
    database.prepare(&plan.faults);
    let bases = servers.iter().map(|server| server.bases.concat()).collect();
    let site = Arc::new(Site {
        data: data.to_owned(),
        bases: RwLock::new(bases),
        begun: AtomicUsize::new(0),
        wanted: plan.cycles,
    });
    let mut clients = JoinSet::new();
    for client in 0..plan.clients {
        let (site, seed) = (site.clone(), plan.seed);
        clients.spawn(async move { work(&site, client as u64, seed).await });
    }
    let mut random = Random::new(plan.seed);
    let (mut done, mut violations): (Vec<Fault>, Vec<String>) = (Vec::new(), Vec::new());
    let mut nodes = Nodes { servers: &mut servers, bases: &site.bases, data, options: &options };
    while !plan.faults.is_empty() && site.begun.load(Ordering::SeqCst) < plan.cycles {
        tokio::time::sleep(Duration::from_millis(plan.between.0 + random.below(plan.between.1.max(1)))).await;
        let fault = *random.pick(&plan.faults);
        violations.extend(database.suffer(fault, &mut nodes, &mut random).await);
        done.push(fault);
    }
    let calm = now();
    let stories = clients.join_all().await.concat();
    let recovered = if plan.faults.is_empty() { Duration::ZERO } else { calm.elapsed() };
    for server in &mut servers {
        server.kill();
    }
    let counts = counted(&done, database.between.lost());
    Outcome { stories, counts, recovered, violations }
}

/// One client: one run after the other, each on whichever node answers.
async fn work(site: &Site, client: u64, seed: u64) -> Vec<Story> {
    let mut random = Random::new(seed ^ (client << 32));
    // Shorter than a pause: a node that stands still is given up on.
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(4)).build().unwrap();
    let wishes = [
        Wish::Approve,
        Wish::Approve,
        Wish::Approve,
        Wish::Deny,
        Wish::Edit,
        Wish::Pair,
        Wish::Answer,
        Wish::Result,
        Wish::Expire,
        Wish::Cancel,
    ];
    let mut stories = Vec::new();
    while site.begun.fetch_add(1, Ordering::SeqCst) < site.wanted {
        let wish = *random.pick(&wishes);
        let clear_up = *random.pick(&[ClearUp::DidNotHappen, ClearUp::Happened]);
        let mut story = Story::new(format!("n-{client}-{}", stories.len()), wish, clear_up);
        // A while with each node, so that decisions come through others than starts.
        (story.patience, story.stays) = (PATIENCE, Duration::from_millis(150));
        let begin = now();
        while !story.is_over {
            let base = random.pick(&site.bases.read().unwrap()).clone();
            if base.is_empty() {
                pause().await;
                continue;
            }
            let http = Http { client: http.clone(), base };
            if story.live(&http, &site.data).await.is_err() {
                pause().await;
            }
            if begin.elapsed() > PATIENCE && !story.is_over {
                story.violations.push(format!("I6: {} ({wish:?}) is stuck: {:?}", story.name, story.run));
                story.is_over = true;
            }
        }
        stories.push(story);
    }
    stories
}

/// The time of the database, in milliseconds since 1970.
fn database_time(url: &str) -> i64 {
    let question = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    cluster::query_text(url, question).and_then(|text| text.parse().ok()).unwrap()
}

/// F20: everything happened by the time of the database, whatever the clocks of the nodes say; and what expired did so
/// within two seconds of when it should have, unless something else went wrong meanwhile.
fn untimely(url: &str, begin: i64, is_calm: bool) -> Vec<String> {
    let (end, off) = (database_time(url), Millis::seconds(2));
    let store = PostgresStore::open(&PostgresOptions::at(url)).unwrap();
    let mut wrong = Vec::new();
    for (run, log) in logs_of(&store, &mut Vec::new()) {
        let mut due = None;
        for envelope in &log {
            if envelope.at.0 < begin - off.0 || envelope.at.0 > end + off.0 {
                wrong.push(format!(
                    "F20: {run} has an event at {:?}, from {begin} to {end} it was",
                    envelope.at
                ));
            }
            if let Event::HoldOpened(opened) = &envelope.event {
                due = opened.expires_at;
            }
            if let (Event::HoldExpired(_), Some(due)) = (&envelope.event, due) {
                let late = envelope.at.0 - due.0;
                if late < 0 || (is_calm && late > off.0) {
                    wrong.push(format!("F20: {run} expired {late} ms after its time"));
                }
            }
        }
    }
    wrong
}
