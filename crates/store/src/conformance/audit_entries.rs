//! What happened to a tenant beside its runs: kept in order, numbered without gaps, never changed.
//!
//! What an entry means is not a store's business.

use standfast_core::time::Millis;

use super::Factory;
use super::support::{World, block_on, tenant};
use crate::AuditEntry;
use crate::audit::entry_hash;

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
    let mut previous = None;
    for entry in &kept {
        assert_eq!(entry.hash, entry_hash(previous, "default", entry.no, entry.at, &entry.entry));
        previous = Some(entry.hash);
    }
    let mut entries: Vec<&str> = kept.iter().map(|entry| entry.entry.as_str()).collect();
    entries.sort_unstable();
    entries.dedup();
    assert_eq!(entries.len(), 16);
}
