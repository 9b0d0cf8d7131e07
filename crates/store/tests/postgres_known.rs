//! What a node remembers on Postgres is never believed: what other nodes did meanwhile is seen.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

use std::sync::Arc;

use standfast_core::command::{Choice, Command};
use standfast_core::project::RunRow;
use standfast_core::time::Millis;
use standfast_store::conformance::cluster::{query_count, run, shared};
use standfast_store::conformance::support::{
    NODE, NewRun, OTHER_NODE, SHELL, Scribe, block_on, checked, resolve, tenant, the_hold,
};
use standfast_store::postgres::{self, PostgresOptions, PostgresStore};
use standfast_store::{
    Batch, Claim, DeliveryStore, Guard, LeaseChange, RunStore, Scope, ShardSet, StoreError, Subscription,
    WorkStore,
};

/// Two nodes on one database, and who writes.
struct Nodes {
    url: String,
    ours: Arc<PostgresStore>,
    theirs: Arc<PostgresStore>,
    scribe: Scribe,
}

impl Nodes {
    fn new(seed: u64) -> Nodes {
        let url = shared().database();
        let open = || Arc::new(PostgresStore::open(&PostgresOptions::at(&url)).unwrap());
        let (ours, theirs) = (open(), open());
        Nodes { url, ours, theirs, scribe: Scribe::new(seed) }
    }

    /// The first append of a run, with the definition that it is pinned to.
    fn start(&mut self) -> Batch {
        let mut start = self.scribe.start(&NewRun::of("helper"));
        start.puts.push(self.scribe.pinned(&start.row));
        start
    }

    /// A held run that our node wrote, and so remembers.
    fn held(&mut self) -> RunRow {
        let start = self.start();
        let reply = self.scribe.reply(&start.row, &[SHELL]);
        assert_eq!(block_on(self.ours.append(vec![start])), Ok(()));
        assert_eq!(block_on(self.ours.append(vec![reply.clone()])), Ok(()));
        reply.row
    }

    fn approval(&mut self, row: &RunRow) -> Batch {
        self.scribe.batch(row, &resolve(the_hold(row).key, Choice::Approve))
    }

    fn expect_sound(&self) {
        assert_eq!(postgres::verify(&PostgresOptions::at(&self.url), |_| {}).unwrap().findings, []);
    }
}

#[test]
fn what_another_node_appended_is_a_conflict() {
    let mut nodes = Nodes::new(1);
    let row = nodes.held();
    let run = row.run.facts.id;
    let (approval, cancel) =
        (nodes.approval(&row), nodes.scribe.batch(&row, &Command::Cancel { reason: None }));
    assert_eq!(block_on(nodes.theirs.append(vec![cancel.clone()])), Ok(()));
    assert_eq!(block_on(nodes.ours.append(vec![approval])), Err(StoreError::Conflict { run }));
    assert_eq!(checked(&*nodes.ours, run), Ok(cancel.row));
    nodes.expect_sound();
}

/// One of a group is stale: it alone is refused.
#[test]
fn one_that_is_stale_takes_no_other_with_it() {
    let mut nodes = Nodes::new(2);
    let rows: Vec<RunRow> = (0..8).map(|_| nodes.held()).collect();
    let cancel = nodes.scribe.batch(&rows[3], &Command::Cancel { reason: None });
    assert_eq!(block_on(nodes.theirs.append(vec![cancel])), Ok(()));
    let batches: Vec<Batch> = rows.iter().map(|row| nodes.approval(row)).collect();
    let expected: Vec<RunRow> = batches.iter().map(|batch| batch.row.clone()).collect();
    let answers: Vec<_> = batches.into_iter().map(|batch| nodes.ours.append(vec![batch])).collect();
    for (n, answer) in answers.into_iter().enumerate() {
        let answer = block_on(answer);
        if n == 3 {
            assert_eq!(answer, Err(StoreError::Conflict { run: rows[3].run.facts.id }));
        } else {
            assert_eq!(answer, Ok(()));
            assert_eq!(checked(&*nodes.theirs, rows[n].run.facts.id).as_ref(), Ok(&expected[n]));
        }
    }
    nodes.expect_sound();
}

/// Of two nodes that both remember the same run one wins each append.
#[test]
fn nodes_that_remember_the_same_take_turns() {
    let mut nodes = Nodes::new(3);
    let start = nodes.start();
    assert_eq!(block_on(nodes.ours.append(vec![start.clone()])), Ok(()));
    let mut row = start.row;
    for turn in 0..10 {
        let say = nodes.scribe.batch(&row, &standfast_store::conformance::appending::say("on"));
        let (first, second) =
            if turn % 2 == 0 { (&nodes.ours, &nodes.theirs) } else { (&nodes.theirs, &nodes.ours) };
        assert_eq!(block_on(first.append(vec![say.clone()])), Ok(()));
        let run = row.run.facts.id;
        assert_eq!(block_on(second.append(vec![say.clone()])), Err(StoreError::Conflict { run }));
        row = say.row;
    }
    assert_eq!(checked(&*nodes.ours, row.run.facts.id), Ok(row));
    nodes.expect_sound();
}

#[test]
fn what_another_node_leased_or_put_aside_is_seen() {
    let mut nodes = Nodes::new(4);
    let row = nodes.held();
    let (id, now) = (row.run.facts.id, nodes.scribe.now);
    let mut approval = nodes.approval(&row);
    approval.lease = LeaseChange::Take { node: NODE, until: now.plus(Millis::seconds(1)) };
    approval.guards.push(Guard::NotLeased { node: NODE, now });
    assert_eq!(block_on(nodes.ours.append(vec![approval.clone()])), Ok(()));
    let later = now.plus(Millis::seconds(5));
    let claim = Claim {
        node: OTHER_NODE,
        now: later,
        until: later.plus(Millis::seconds(60)),
        shards: ShardSet::all(),
        limit: 5,
        room: Vec::new(),
    };
    assert_eq!(block_on(nodes.theirs.claim_due(claim)).unwrap().len(), 1);
    let mut cancel = nodes.scribe.batch(&approval.row, &Command::Cancel { reason: None });
    cancel.guards.push(Guard::NotLeased { node: NODE, now: later });
    assert!(matches!(block_on(nodes.ours.append(vec![cancel.clone()])), Err(StoreError::Guard { .. })));
    assert_eq!(block_on(nodes.theirs.quarantine(id, "by hand".into())), Ok(()));
    cancel.guards.clear();
    let answer = block_on(nodes.ours.append(vec![cancel]));
    assert_eq!(answer, Err(StoreError::Corrupt { run: id, why: "by hand".into() }));
}

/// Once a subscription is acknowledged, every append puts a notice, also that of a node that knew of nobody.
#[test]
fn who_listens_since_a_moment_ago_is_told() {
    let mut nodes = Nodes::new(5);
    let row = nodes.held();
    let approval = nodes.approval(&row);
    let new = Subscription {
        tenant: tenant("default"),
        id: "a".into(),
        scope: Scope::Tenant,
        owner: "ann".into(),
        wants: u64::MAX >> 1,
        is_active: true,
        facts: "{}".into(),
    };
    assert_eq!(block_on(nodes.theirs.put_subscription(new)), Ok(true));
    assert_eq!(block_on(nodes.ours.append(vec![approval.clone()])), Ok(()));
    assert_eq!(query_count(&nodes.url, "SELECT FROM notices"), 1);
    let cancel = nodes.scribe.batch(&approval.row, &Command::Cancel { reason: None });
    assert_eq!(block_on(nodes.ours.append(vec![cancel])), Ok(()));
    assert_eq!(query_count(&nodes.url, "SELECT FROM notices"), 1);
    assert_eq!(
        query_count(&nodes.url, "SELECT FROM notices WHERE latest > first_seq"),
        1,
        "there is more to tell"
    );
}

/// Rows that a node knows of and somebody took away by hand do no harm to what follows.
#[test]
fn a_run_that_is_gone_is_not_found() {
    let mut nodes = Nodes::new(6);
    let row = nodes.held();
    let approval = nodes.approval(&row);
    run(&nodes.url, &["DELETE FROM links".into(), "DELETE FROM holds".into(), "DELETE FROM runs".into()]);
    let id = row.run.facts.id;
    assert_eq!(block_on(nodes.ours.append(vec![approval])), Err(StoreError::NotFound { run: id }));
}

/// Several appends of one run that wait together: all links, one row, in order.
#[test]
fn appends_of_one_run_share_a_transaction() {
    let mut nodes = Nodes::new(7);
    let (mut batches, mut rows) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let start = nodes.start();
        let reply = nodes.scribe.reply(&start.row, &[SHELL]);
        let approval = nodes.approval(&reply.row);
        let cancel = nodes.scribe.batch(&approval.row, &Command::Cancel { reason: None });
        rows.push(cancel.row.clone());
        batches.extend([start, reply, approval, cancel]);
    }
    let answers: Vec<_> = batches.into_iter().map(|batch| nodes.ours.append(vec![batch])).collect();
    answers.into_iter().for_each(|answer| assert_eq!(block_on(answer), Ok(())));
    for row in rows {
        assert_eq!(checked(&*nodes.theirs, row.run.facts.id).as_ref(), Ok(&row));
    }
    assert_eq!(query_count(&nodes.url, "SELECT FROM links"), 80);
    assert_eq!(query_count(&nodes.url, "SELECT FROM audience"), 0);
    assert_eq!(query_count(&nodes.url, "SELECT FROM holds WHERE NOT closed"), 0);
    let commits = query_count(&nodes.url, "SELECT DISTINCT xmin::text FROM links");
    assert!(commits < 40, "{commits} commits for 80 appends");
    nodes.expect_sound();
}
