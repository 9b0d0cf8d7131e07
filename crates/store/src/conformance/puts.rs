//! What is written beside an append, and reading it and the links back.
//!
//! Keys, large values and definitions; notices, audiences and wakes have files of their own.

use standfast_core::body::{Blob, BlobForm, BlobRef};
use standfast_core::digest::{self, Digest};
use standfast_core::id::Seq;
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::time::Millis;

use super::Factory;
use super::appending::say;
use super::support::{NewRun, World, block_on, tenant};
use crate::{KeyQuery, KeyRecord, SideWrite, StoreError};

pub fn a_key_remembers_what_it_was_used_for(factory: &Factory) {
    let mut world = World::new(factory);
    let expires_at = world.now().plus(Millis::hours(7 * 24));
    let row = world.queued_run("helper");
    let mut batch = world.scribe.batch(&row, &say("again"));
    let request = Digest([9; 32]);
    batch.puts.push(SideWrite::Key { key: "alice/POST/k-1".into(), request, expires_at });
    let row = world.write(batch);
    world.reopen();
    let record = KeyRecord { request, run: row.run.facts.id, seq: row.run.state.seq, expires_at };
    let find = |tenant_name: &str, key: &str| {
        block_on(world.store().find_key(tenant(tenant_name), key.to_owned())).unwrap()
    };
    assert_eq!(find("default", "alice/POST/k-1"), Some(record));
    assert_eq!(find("default", "alice/POST/k-2"), None);
    assert_eq!(find("acme", "alice/POST/k-1"), None);
}

pub fn a_key_used_again_names_its_last_use(factory: &Factory) {
    let mut world = World::new(factory);
    let put = |n: u8, at| SideWrite::Key { key: "k".into(), request: Digest([n; 32]), expires_at: at };
    let (soon, late) = (world.now().plus(Millis(1)), world.now().plus(Millis::hours(1)));
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    batch.puts.push(put(1, soon));
    world.write(batch);
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    batch.puts.push(put(2, late));
    let row = world.write(batch);
    let record = KeyRecord {
        request: Digest([2; 32]),
        run: row.run.facts.id,
        seq: row.run.state.seq,
        expires_at: late,
    };
    assert_eq!(block_on(world.store().find_key(tenant("default"), "k".into())), Ok(Some(record)));
}

/// Keys that begin alike are read from the last one on, in pieces, whatever signs they are made of.
pub fn keys_that_begin_alike_are_listed_backwards(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    let names = ["a", "a ", "a 1", "a 2", "a 2 x", "a 2½", "a 3%_", "a!", "A 1", "b 1"];
    for key in names {
        let (request, expires_at) = (Digest([7; 32]), world.now().plus(Millis::hours(1)));
        batch.puts.push(SideWrite::Key { key: key.to_owned(), request, expires_at });
    }
    let run = world.write(batch).run.facts.id;
    world.reopen();
    let list = |tenant: Tenant, before: Option<&str>, limit: usize| -> Vec<String> {
        let before = before.map(ToOwned::to_owned);
        let query = KeyQuery { tenant, prefix: "a ".into(), before, limit };
        let found = block_on(world.store().keys_under(query)).unwrap();
        assert!(found.iter().all(|(_, record)| record.run == run && record.request == Digest([7; 32])));
        found.into_iter().map(|(key, _)| key).collect()
    };
    let ours = Tenant::default_tenant;
    assert_eq!(list(ours(), None, 99), ["a 3%_", "a 2½", "a 2 x", "a 2", "a 1", "a "]);
    assert_eq!(list(ours(), None, 2), ["a 3%_", "a 2½"]);
    assert_eq!(list(ours(), Some("a 2½"), 2), ["a 2 x", "a 2"]);
    assert_eq!(list(ours(), Some("a "), 2), Vec::<String>::new());
    assert_eq!(list(tenant("acme"), None, 99), Vec::<String>::new());
}

pub fn keys_past_their_time_are_forgotten_in_pieces(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    for n in 0..5 {
        let expires_at = now.plus(Millis::hours(n));
        let mut batch = world.scribe.start(&NewRun::of("helper"));
        batch.puts.push(SideWrite::Key { key: format!("k-{n}"), request: Digest([1; 32]), expires_at });
        world.write(batch);
    }
    let forget = |limit| block_on(world.store().forget_keys(now.plus(Millis::hours(2)), limit)).unwrap();
    assert_eq!([forget(2), forget(2), forget(2)], [2, 1, 0]);
    world.reopen();
    let is_known = |n: i32| {
        let found = block_on(world.store().find_key(tenant("default"), format!("k-{n}"))).unwrap();
        found.is_some()
    };
    assert_eq!([0, 1, 2, 3, 4].map(is_known), [false, false, false, true, true]);
}

pub fn a_large_value_is_kept_with_its_run(factory: &Factory) {
    let mut world = World::new(factory);
    let text = "long ".repeat(10_000);
    let row = world.start(&NewRun::of("helper").saying(text.clone()));
    let other = world.queued_run("helper");
    world.reopen();
    let name = digest::of_bytes(text.as_bytes());
    let blob = |run, name| block_on(world.store().blob(run, name)).unwrap();
    assert_eq!(blob(row.run.facts.id, name), Some(text));
    assert_eq!(blob(other.run.facts.id, name), None);
    assert_eq!(blob(row.run.facts.id, Digest([0; 32])), None);
    world.expect_stored(&row);
}

pub fn the_same_large_value_twice_is_one(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    let text = "x".repeat(20_000);
    let digest = digest::of_bytes(text.as_bytes());
    let name = BlobRef { digest, bytes: 20_000, form: BlobForm::Text };
    batch.puts = vec![SideWrite::Blob(Blob { name, text: text.clone() }); 2];
    let row = world.write(batch);
    assert_eq!(block_on(world.store().blob(row.run.facts.id, digest)), Ok(Some(text)));
}

pub fn a_definition_is_stored_once_for_its_tenant(factory: &Factory) {
    let mut world = World::new(factory);
    let put = |bytes: &[u8]| SideWrite::Definition { digest: Digest([4; 32]), bytes: bytes.into() };
    for bytes in [b"\x00first\xff".as_slice(), b"ignored: the digest names the first"] {
        let mut batch = world.scribe.start(&NewRun::of("helper"));
        batch.puts.push(put(bytes));
        world.write(batch);
    }
    world.reopen();
    let find = |name: &str, digest| block_on(world.store().definition(tenant(name), digest)).unwrap();
    assert_eq!(find("default", Digest([4; 32])), Some(b"\x00first\xff".to_vec()));
    assert_eq!(find("default", Digest([5; 32])), None);
    assert_eq!(find("acme", Digest([4; 32])), None);
}

pub fn nothing_is_put_by_a_refused_append(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let mut stale = world.scribe.batch(&row, &say("stale"));
    world.send(&row, &say("newer"));
    let (key, expires_at) = ("k".to_owned(), world.now());
    stale.puts.push(SideWrite::Key { key: key.clone(), request: Digest([1; 32]), expires_at });
    stale.puts.push(SideWrite::Definition { digest: Digest([4; 32]), bytes: [1].into() });
    assert_eq!(world.append(vec![stale]), Err(StoreError::Conflict { run: row.run.facts.id }));
    assert_eq!(block_on(world.store().find_key(tenant("default"), key)), Ok(None));
    assert_eq!(block_on(world.store().definition(tenant("default"), Digest([4; 32]))), Ok(None));
}

/// Events 1–2 are one link, then one link for each of events 3 to 7.
pub fn links_are_read_from_any_event(factory: &Factory) {
    let mut world = World::new(factory);
    let mut row = world.queued_run("helper");
    world.queued_run("neighbour");
    for n in 3..=7 {
        row = world.send(&row, &say(&format!("message {n}")));
    }
    let run = row.run.facts.id;
    let firsts = |after: u64, limit: usize| -> Vec<u64> {
        let links = block_on(world.store().links(run, Seq(after), limit)).unwrap();
        links.iter().map(|link: &Link| link.header.first.0).collect()
    };
    assert_eq!(firsts(0, 100), [1, 3, 4, 5, 6, 7]);
    assert_eq!(firsts(0, 2), [1, 3]);
    // From the middle of a link: the link that holds the next event.
    assert_eq!(firsts(1, 100), [1, 3, 4, 5, 6, 7]);
    assert_eq!(firsts(1, 1), [1]);
    assert_eq!(firsts(2, 2), [3, 4]);
    assert_eq!(firsts(5, 100), [6, 7]);
    assert_eq!(firsts(6, 1), [7]);
    assert_eq!(firsts(7, 100), [0u64; 0]);
    assert_eq!(firsts(u64::MAX, 100), [0u64; 0]);
    assert_eq!(firsts(0, usize::MAX), [1, 3, 4, 5, 6, 7]);
}

pub fn links_come_back_whole(factory: &Factory) {
    let mut world = World::new(factory);
    let batch = world.scribe.start(&NewRun::of("helper"));
    let first = batch.link.clone();
    let row = world.write(batch);
    let batch = world.scribe.reply(&row, &[super::support::SHELL, super::support::LOOKUP]);
    let second = batch.link.clone();
    world.write(batch);
    world.reopen();
    assert_eq!(world.links(row.run.facts.id), [first, second]);
}
