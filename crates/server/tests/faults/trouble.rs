//! What can go wrong for nodes that share a Postgres, and how it is made to.
//!
//! A node is killed or stands still; Postgres crashes, hands over to its standby, refuses, stalls, has no connection
//! left; answers get lost on the way. All of it is done to real processes.

use std::path::Path;
use std::time::Duration;

use standfast_store::conformance::cluster::{self, OwnServer, Replication};
use standfast_store::conformance::random::Random;

use crate::child::Options;
use crate::proxy::Between;
use crate::server::Server;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9 of a node, and a new one in its place.
    Kill,
    /// SIGSTOP of a node for longer than its leases, then SIGCONT.
    Pause,
    /// Postgres crashes, and comes back after a moment.
    Crash,
    /// Postgres crashes for good, and its standby takes its place.
    FailOver,
    /// Every connection to Postgres is ended.
    Disconnect,
    /// Answers of Postgres are lost, also those of COMMIT.
    LoseAnswers,
    /// Postgres undoes writes: serialisation failures, deadlocks, locks that are not to be had, queries that take too long.
    Refuse,
    /// Somebody holds a lock on everything for seconds.
    Stall,
    /// Other clients take every connection that Postgres has.
    Exhaust,
}

impl Fault {
    /// How a report names it, after a number.
    fn words(self) -> &'static str {
        match self {
            Fault::Kill => "kills",
            Fault::Pause => "pauses",
            Fault::Crash => "crashes of Postgres",
            Fault::FailOver => "failovers",
            Fault::Disconnect => "times every connection ended",
            Fault::LoseAnswers => "times answers were lost",
            Fault::Refuse => "times writes were undone",
            Fault::Stall => "stalls",
            Fault::Exhaust => "times no connection was left",
        }
    }
}

/// What the nodes share: a Postgres, its standby where there is one, and who stands between.
pub(crate) struct Database {
    pub(crate) primary: OwnServer,
    standby: Option<OwnServer>,
    pub(crate) between: Between,
}

impl Database {
    /// A fresh one.
    pub(crate) async fn new(replication: Option<Replication>) -> Database {
        let (primary, standby) = match replication {
            None => (OwnServer::new(), None),
            Some(replication) => {
                let primary = OwnServer::replicating(replication);
                let standby = primary.standby();
                (primary, Some(standby))
            }
        };
        let between = Between::before(primary.port()).await;
        Database { primary, standby, between }
    }

    /// How nodes reach it.
    pub(crate) fn url(&self) -> String {
        self.primary.url_through(self.between.port)
    }

    /// Once the tables are there: what makes [`Fault::Refuse`] possible.
    pub(crate) fn prepare(&self, faults: &[Fault]) {
        if faults.contains(&Fault::Refuse) {
            cluster::run(&self.primary.url(), &REFUSING.map(str::to_owned));
        }
    }

    /// The standby takes the place of the primary. What the old primary finds when it is back is nobody.
    async fn fail_over(&mut self, away: Duration) -> Vec<String> {
        let Some(standby) = self.standby.take() else { return vec!["F12: there is no standby".into()] };
        self.primary.crash();
        tokio::time::sleep(away).await;
        standby.promote();
        self.between.lead_to(standby.port());
        let old = std::mem::replace(&mut self.primary, standby);
        old.start();
        let nodes = "SELECT FROM pg_stat_activity WHERE application_name = 'standfast'";
        let talking = cluster::query_count(&old.url(), nodes);
        drop(old);
        self.standby = Some(self.primary.standby());
        let split = (talking > 0).then(|| format!("F12: {talking} nodes still talk to the old primary"));
        split.into_iter().collect()
    }

    /// Does it, and says what should not have happened. Nodes that are dead meanwhile have no base.
    pub(crate) async fn suffer(
        &mut self,
        fault: Fault,
        nodes: &mut Nodes<'_>,
        random: &mut Random,
    ) -> Vec<String> {
        let span =
            |least: u64, more: u64, random: &mut Random| Duration::from_millis(least + random.below(more));
        match fault {
            Fault::Kill => nodes.kill(random).await,
            Fault::Pause => nodes.pause(random).await,
            Fault::Crash => {
                self.primary.crash();
                tokio::time::sleep(span(0, 2_000, random)).await;
                self.primary.start();
            }
            Fault::FailOver => return self.fail_over(span(0, 500, random)).await,
            Fault::Disconnect => cluster::run(&self.primary.url(), &[cluster::END_NODES.into()]),
            Fault::LoseAnswers => self.between.lose_answers(span(20, 60, random)).await,
            Fault::Refuse => {
                cluster::run(&self.primary.url(), &["UPDATE trouble SET share = 0.4".into()]);
                tokio::time::sleep(span(300, 700, random)).await;
                cluster::run(&self.primary.url(), &["UPDATE trouble SET share = 0".into()]);
            }
            Fault::Stall => {
                let seconds = span(1_000, 4_000, random).as_secs_f64();
                let stall = ["BEGIN", "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"].map(str::to_owned);
                let held = [format!("SELECT pg_sleep({seconds})"), "COMMIT".into()];
                cluster::run(&self.primary.url(), &[stall, held].concat());
            }
            Fault::Exhaust => cluster::use_up_connections(&self.primary.url(), span(500, 1_500, random)),
        }
        Vec::new()
    }
}

/// Undoes a share of all appends, with the codes that Postgres has for it.
const REFUSING: [&str; 4] = [
    "CREATE TABLE trouble (share float8 NOT NULL)",
    "INSERT INTO trouble VALUES (0)",
    "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$
     DECLARE codes text[] := ARRAY['40001', '40P01', '55P03', '57014'];
     BEGIN
         IF random() < (SELECT share FROM trouble) THEN
             RAISE EXCEPTION 'trouble on purpose' USING ERRCODE = codes[1 + floor(random() * 4)::int];
         END IF;
         RETURN NULL;
     END $$",
    "CREATE TRIGGER trouble BEFORE INSERT ON links FOR EACH STATEMENT EXECUTE FUNCTION trouble()",
];

/// The nodes, and where each can be reached; the place of one that is dead is empty.
pub(crate) struct Nodes<'a> {
    pub(crate) servers: &'a mut [Server],
    pub(crate) bases: &'a std::sync::RwLock<Vec<String>>,
    pub(crate) data: &'a Path,
    pub(crate) options: &'a (dyn Fn(usize) -> Options + Sync),
}

impl Nodes<'_> {
    fn any(&self, random: &mut Random) -> usize {
        usize::try_from(random.below(self.servers.len() as u64)).unwrap_or(0)
    }

    async fn kill(&mut self, random: &mut Random) {
        let node = self.any(random);
        self.servers[node].kill();
        self.bases.write().unwrap()[node].clear();
        // Nobody waits for it to be back: the other nodes go on.
        tokio::time::sleep(Duration::from_millis(random.below(1_000))).await;
        self.servers[node] = Server::start(self.data, &(self.options)(node));
        self.bases.write().unwrap()[node] = self.servers[node].bases.concat();
    }

    async fn pause(&mut self, random: &mut Random) {
        let node = self.any(random);
        self.servers[node].signal("-STOP");
        // Requests to it hang; clients give up on them.
        tokio::time::sleep(Duration::from_millis(3_500 + random.below(1_500))).await;
        self.servers[node].signal("-CONT");
    }
}

/// What was done, in words.
pub(crate) fn counted(done: &[Fault], answers_lost: u64) -> String {
    let mut counts: Vec<(Fault, usize)> = Vec::new();
    for fault in done {
        match counts.iter_mut().find(|(one, _)| one == fault) {
            Some((_, count)) => *count += 1,
            None => counts.push((*fault, 1)),
        }
    }
    let mut words: Vec<String> =
        counts.into_iter().map(|(fault, n)| format!("{n} {}", fault.words())).collect();
    words.extend((answers_lost > 0).then(|| format!("{answers_lost} answers lost")));
    if words.is_empty() { "no faults".to_owned() } else { words.join(", ") }
}
