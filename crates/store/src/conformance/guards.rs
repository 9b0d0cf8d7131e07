//! Guards: facts beside the run that must hold for an append to be written.
//!
//! A guard that does not hold is named by its position among all guards of the append, and nothing was written, not
//! even what the guards before it would have counted.

use standfast_core::budget::{BudgetTake, StoredTake};
use standfast_core::digest::Digest;
use standfast_core::effect::EffectClaim;
use standfast_core::id::CallNo;
use standfast_core::name::Tenant;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;

use super::Factory;
use super::appending::say;
use super::support::{NODE, NewRun, OTHER_NODE, World, block_on, session_of};
use crate::{Batch, Guard, KeyQuery, KeyRecord, SessionChange, SideWrite, StoreError};

pub fn an_unused_key_passes(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.write_guarded(vec![unused("k-1")]).unwrap();
    world.expect_stored(&row);
}

pub fn a_used_key_is_refused(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    batch.puts.push(used("k-1", &world));
    let first = world.write(batch);
    world.reopen();
    let refused = world.write_guarded(vec![unused("k-2"), unused("k-1")]);
    let why = format!("the key was used for run {}", first.run.facts.id);
    assert_eq!(refused, Err(StoreError::Guard { which: 1, why }));
}

/// A claim on an effect is a key that is kept for good: of two runs one starts, and the other one finds out whose it is.
pub fn an_effect_is_claimed_once(factory: &Factory) {
    let mut world = World::new(factory);
    let claim = EffectClaim { key: "refund:p-17".into(), no: 1 };
    let claims = |world: &mut World, claim: &EffectClaim| {
        let mut batch = world.scribe.start(&NewRun::of("helper"));
        let (run, expires_at) = (batch.run(), world.now().plus(Millis::hours(24 * 365 * 100)));
        batch.guards.push(Guard::KeyUnused { key: claim.stored() });
        let request = EffectClaim::owner(run, CallNo(1));
        batch.puts.push(SideWrite::Key { key: claim.stored(), request, expires_at });
        (run, world.append(vec![batch]))
    };
    let (first, written) = claims(&mut world, &claim);
    assert_eq!(written, Ok(()));
    world.reopen();
    let forgotten = world.store().forget_keys(world.now().plus(Millis::hours(24 * 365 * 50)), 100);
    assert_eq!(block_on(forgotten), Ok(0));
    let why = format!("the key was used for run {first}");
    assert_eq!(claims(&mut world, &claim).1, Err(StoreError::Guard { which: 0, why }));
    let found = block_on(world.store().find_key(Tenant::default_tenant(), claim.stored())).unwrap().unwrap();
    assert_eq!((found.run, found.request), (first, EffectClaim::owner(first, CallNo(1))));
    assert_eq!(claims(&mut world, &EffectClaim { no: 2, ..claim }).1, Ok(()), "the second start of it");
}

/// Takes from one account have numbers: who was counted with fewer of them than there are is refused, also where a number was
/// left out.
pub fn a_take_is_refused_unless_all_others_were_counted(factory: &Factory) {
    let mut world = World::new(factory);
    let account = r#"["rule:refunds","daily","ann ½"]"#;
    let mut take = |no: u32, after: u32| {
        let (amount, window) = ("5.5".to_owned(), Millis::hours(24));
        let take = BudgetTake { account: account.into(), no, after, amount, window };
        let mut batch = world.scribe.start(&NewRun::of("helper"));
        let (run, now) = (batch.run(), world.now());
        batch.guards.extend(take.numbers().map(|key| Guard::KeyUnused { key }));
        let (request, expires_at) = (EffectClaim::owner(run, CallNo(1)), take.expires_at(now));
        let keys = take.numbers().chain([take.stored(now, CallNo(1), 1)]);
        batch.puts.extend(keys.map(|key| SideWrite::Key { key, request, expires_at }));
        let written = world.append(vec![batch]);
        world.reopen();
        (run, written)
    };
    let (first, written) = take(1, 0);
    assert_eq!(written, Ok(()));
    let (_, late) = take(1, 0);
    assert!(matches!(late, Err(StoreError::Guard { which: 0, .. })), "{late:?}");
    let (third, written) = take(3, 1);
    assert_eq!(written, Ok(()), "the call that was to be the second did not start");
    let (_, unaware) = take(2, 1);
    assert!(matches!(unaware, Err(StoreError::Guard { which: 0, .. })), "it was not counted with the third");
    assert_eq!(take(4, 3).1, Ok(()));
    let prefix = BudgetTake::prefix(account);
    let query =
        KeyQuery { tenant: Tenant::default_tenant(), prefix: prefix.clone(), before: None, limit: 99 };
    let found = block_on(world.store().keys_under(query)).unwrap();
    let read = |(key, record): &(String, KeyRecord)| {
        let take = StoredTake::read(key.strip_prefix(&prefix).unwrap()).unwrap();
        (take.no, take.amount, record.run)
    };
    let amounts: Vec<_> = found.iter().map(read).collect();
    assert_eq!(amounts.get(1..), Some(&[(3, "5.5".into(), third), (1, "5.5".into(), first)][..]));
}

pub fn a_key_of_another_tenant_does_not_count(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batch = world.scribe.start(&NewRun::of("helper").of_tenant("acme"));
    batch.puts.push(used("k-1", &world));
    world.write(batch);
    assert!(world.write_guarded(vec![unused("k-1")]).is_ok());
}

pub fn a_counter_is_exact_up_to_its_limit(factory: &Factory) {
    let mut world = World::new(factory);
    assert!(world.write_guarded(vec![within("runs", 2, 3)]).is_ok());
    assert!(world.write_guarded(vec![within("runs", 1, 3)]).is_ok());
    world.reopen();
    assert_eq!(world.write_guarded(vec![within("runs", 1, 3)]), Err(over(0, "runs is at 3 of 3")));
    assert!(world.write_guarded(vec![within("runs", 1, 4)]).is_ok());
    assert!(world.write_guarded(vec![within("others", 3, 3)]).is_ok());
}

pub fn a_refused_append_adds_nothing_to_its_counters(factory: &Factory) {
    let mut world = World::new(factory);
    let refused = world.write_guarded(vec![within("a", 5, 5), within("b", 1, 0)]);
    assert_eq!(refused, Err(over(1, "b is at 0 of 0")));
    assert!(world.write_guarded(vec![within("a", 5, 5)]).is_ok());
    let mut stale = world.scribe.start(&NewRun::of("helper"));
    world.write(stale.clone());
    stale.guards.push(within("c", 1, 1));
    assert_eq!(world.append(vec![stale.clone()]), Err(StoreError::Conflict { run: stale.run() }));
    assert!(world.write_guarded(vec![within("c", 1, 1)]).is_ok());
}

pub fn a_counter_gives_back(factory: &Factory) {
    let mut world = World::new(factory);
    assert!(world.write_guarded(vec![within("open", 3, 3)]).is_ok());
    assert!(world.write_guarded(vec![within("open", -2, 3)]).is_ok());
    assert_eq!(world.write_guarded(vec![within("open", 3, 3)]), Err(over(0, "open is at 1 of 3")));
    assert!(world.write_guarded(vec![within("open", 2, 3)]).is_ok());
}

pub fn a_counter_belongs_to_its_tenant(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batch = world.scribe.start(&NewRun::of("helper").of_tenant("acme"));
    batch.guards.push(within("runs", 1, 1));
    world.write(batch);
    assert!(world.write_guarded(vec![within("runs", 1, 1)]).is_ok());
}

/// Two runs of one append that count into the same counter may not slip past its limit together.
pub fn counters_of_one_append_add_up(factory: &Factory) {
    let mut world = World::new(factory);
    let both = |world: &mut World, max: i64| {
        let mut batches: Vec<Batch> = (0..2).map(|_| world.scribe.start(&NewRun::of("helper"))).collect();
        batches.iter_mut().for_each(|batch| batch.guards.push(within("runs", 1, max)));
        world.append(batches)
    };
    assert_eq!(both(&mut world, 1), Err(over(1, "runs is at 1 of 1")));
    assert_eq!(both(&mut world, 2), Ok(()));
    assert_eq!(world.write_guarded(vec![within("runs", 1, 2)]), Err(over(0, "runs is at 2 of 2")));
}

pub fn an_open_or_unknown_session_takes_runs(factory: &Factory) {
    let mut world = World::new(factory);
    let new = world.scribe.start(&NewRun::of("helper")).row;
    let open = Guard::SessionOpen { session: session_of(&new) };
    assert!(world.write_guarded(vec![open.clone()]).is_ok());
    assert!(world.write_guarded(vec![open]).is_ok());
}

pub fn a_closed_session_takes_none(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let key = session_of(&row);
    let close = world.store().change_session(key.clone(), SessionChange::Close, world.now());
    assert_eq!(block_on(close), Ok(true));
    let refused = world.write_guarded(vec![Guard::SessionOpen { session: key }]);
    assert_eq!(refused, Err(over(0, "session s-1 is closed")));
}

/// The position counts through the guards of all batches.
pub fn another_nodes_live_lease_is_respected(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.queued_run("helper").run.facts.id;
    assert_eq!(world.claimed_by(OTHER_NODE), [run]);
    let told_by = |world: &mut World, node| {
        let row = world.load(run).unwrap().row;
        let mut batch = world.scribe.batch(&row, &say("more"));
        batch.guards.push(Guard::NotLeased { node, now: world.now() });
        world.append(vec![batch])
    };
    let why = format!("the node {OTHER_NODE} works on it");
    assert_eq!(told_by(&mut world, NODE), Err(StoreError::Guard { which: 0, why }));
    assert_eq!(told_by(&mut world, OTHER_NODE), Ok(()));
    world.later(Millis::seconds(60));
    assert_eq!(told_by(&mut world, NODE), Ok(()), "a lease that ran out keeps nobody away");
    assert!(
        world.write_guarded(vec![Guard::NotLeased { node: NODE, now: world.now() }]).is_ok(),
        "a new run"
    );
}

pub fn the_guard_that_failed_is_named(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batches: Vec<Batch> = (0..3).map(|_| world.scribe.start(&NewRun::of("helper"))).collect();
    batches[0].guards = vec![unused("a"), within("n", 1, 9)];
    batches[1].guards = vec![];
    batches[2].guards = vec![unused("b"), within("m", 7, 6), within("m", 9, 6)];
    assert_eq!(world.append(batches), Err(over(3, "m is at 0 of 6")));
}

impl World {
    fn write_guarded(&mut self, guards: Vec<Guard>) -> Result<RunRow, StoreError> {
        let mut batch = self.scribe.start(&NewRun::of("helper"));
        batch.guards = guards;
        let row = batch.row.clone();
        let result = self.append(vec![batch]);
        let run = row.run.facts.id;
        if result.is_err() {
            assert_eq!(self.load(run), Err(StoreError::NotFound { run }), "refused, and yet written");
        }
        result.map(|()| row)
    }
}

fn unused(key: &str) -> Guard {
    Guard::KeyUnused { key: key.into() }
}

fn used(key: &str, world: &World) -> SideWrite {
    let expires_at = world.now().plus(Millis::hours(24));
    SideWrite::Key { key: key.into(), request: Digest([3; 32]), expires_at }
}

fn within(counter: &str, add: i64, max: i64) -> Guard {
    Guard::CounterWithin { counter: counter.into(), add, max }
}

fn over(which: usize, why: &str) -> StoreError {
    StoreError::Guard { which, why: why.into() }
}
