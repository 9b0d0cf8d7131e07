//! What happened to a tenant beside its runs: kept in order, numbered without gaps, never changed.
//!
//! What an entry means is not a store's business.

use standfast_core::digest::Digest;
use standfast_core::time::Millis;

use super::Factory;
use super::support::{NewRun, World, block_on, tenant};
use crate::audit::entry_hash;
use crate::{AuditEntry, Credential, Scope, SessionChange, SessionKey, Subscription};

impl World {
    fn audit(&self, of: &str, after: u64, limit: usize) -> Vec<AuditEntry> {
        block_on(self.store().audit_entries(tenant(of), after, limit)).unwrap()
    }
}

pub fn an_entry_is_kept_with_the_next_number(factory: &Factory) {
    let mut world = World::new(factory);
    let mut wanted = Vec::new();
    for (no, entry) in [(1, "{\"a\":\"é\\u0000\"}"), (2, "{}"), (3, "{\"n\":9007199254740993}")] {
        block_on(world.store().put_audit(tenant("default"), world.now(), entry.into())).unwrap();
        let previous = wanted.last().map(|last: &AuditEntry| last.hash);
        let hash = entry_hash(previous, "default", no, world.now(), entry);
        wanted.push(AuditEntry { no, at: world.now(), entry: entry.into(), hash });
        world.later(Millis::seconds(1));
    }
    block_on(world.store().put_audit(tenant("acme"), world.now(), "{}".into())).unwrap();
    world.reopen();
    assert_eq!(world.audit("default", 0, 10), wanted);
    assert_eq!(world.audit("default", 1, 1), wanted[1..2]);
    assert_eq!(world.audit("default", 3, 10), []);
    assert_eq!(world.audit("acme", 0, 10).len(), 1);
    assert_eq!(world.audit("unheard-of", 0, 10), []);
}

fn expect_chained(kept: &[AuditEntry]) {
    let mut previous = None;
    for (entry, no) in kept.iter().zip(1..) {
        assert_eq!(entry.no, no);
        assert_eq!(entry.hash, entry_hash(previous, "default", no, entry.at, &entry.entry));
        previous = Some(entry.hash);
    }
}

/// Rows beside the runs add entries where somebody could change them behind the store's back; they fit between others.
pub fn entries_of_rows_are_in_the_same_chain(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.start(&NewRun::of("helper").in_session("s"));
    let session = SessionKey::of(&row.run.facts);
    let subscription = |no: u32| Subscription {
        tenant: tenant("default"),
        id: format!("sub-{no}"),
        scope: Scope::Tenant,
        owner: "ann".into(),
        wants: 1,
        is_active: true,
        facts: "{}".into(),
    };
    let credential = |no: u32| Credential {
        tenant: tenant("default"),
        prefix: format!("key{no}"),
        hash: Digest([9; 32]),
        facts: "{}".into(),
        expires_at: None,
        revoked_at: None,
    };
    let mut changes = Vec::new();
    for no in 0..8 {
        changes.push(world.store().put_subscription(subscription(no)));
        changes.push(world.store().put_credential(credential(no)));
        let entry = world.store().put_audit(tenant("default"), world.now(), "{\"n\":1}".into());
        changes.push(Box::pin(async move { entry.await.map(|()| true) }));
    }
    let notes = SessionChange::Metadata { before: "{}".into(), after: "{\"a\":1}".into() };
    changes.push(world.store().change_session(session.clone(), notes, world.now()));
    for changed in changes {
        assert!(block_on(changed).unwrap());
    }
    assert!(block_on(world.store().delete_subscription(tenant("default"), "sub-3".into())).unwrap());
    assert!(
        block_on(world.store().revoke_credential(tenant("default"), "key5".into(), world.now())).unwrap()
    );
    assert!(block_on(world.store().change_session(session, SessionChange::Close, world.now())).unwrap());
    // What changes nothing is not news.
    assert!(!block_on(world.store().put_subscription(subscription(1))).unwrap());
    assert!(!block_on(world.store().put_credential(credential(1))).unwrap());
    world.reopen();
    let kept = world.audit("default", 0, 100);
    expect_chained(&kept);
    let of = |kind: &str| kept.iter().filter(|entry| entry.entry.contains(kind)).count();
    // Nobody but the store itself reaches rows in memory; keys in files are changed by other processes.
    let is_said = |kind: &str, all: usize| assert!([0, all].contains(&of(kind)), "{kind}: {kept:?}");
    is_said("row.subscription", 9);
    is_said("row.session", 2);
    is_said("row.key", 9);
    assert_eq!(of("{\"n\":1}"), 8);
}

pub fn entries_added_at_the_same_moment_are_all_kept(factory: &Factory) {
    let world = World::new(factory);
    let adding: Vec<_> = (0..16)
        .map(|entry| world.store().put_audit(tenant("default"), world.now(), format!("{{\"n\":{entry}}}")))
        .collect();
    for added in adding {
        block_on(added).unwrap();
    }
    let kept = world.audit("default", 0, 100);
    let numbers: Vec<u64> = kept.iter().map(|entry| entry.no).collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<u64>>());
    expect_chained(&kept);
    let mut entries: Vec<&str> = kept.iter().map(|entry| entry.entry.as_str()).collect();
    entries.sort_unstable();
    entries.dedup();
    assert_eq!(entries.len(), 16);
}
