//! The stored format, written down: every kind of event, a sealed link, and the text of ids.
//!
//! The files under `golden/` are never changed once released; a kind that grows gets further lines or a `v2` file.
//! What is computed from stored bytes (digests, link hashes) is checked in `digests.rs`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::value::RawValue;
use standfast_core::actor::Actor;
use standfast_core::digest::Digest;
use standfast_core::event::{Event, RunClaimed, RunErased};
use standfast_core::id::{
    CallId, CallNo, HoldId, HoldKey, MessageId, RequestId, RequestKey, RunId, Secret, Seq, Shard,
    StorageKind, tenant_tag,
};
use standfast_core::link::{Chain, FIRST_PREVIOUS, Link};
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Timestamp;

const AT: Timestamp = Timestamp(1_762_000_000_000);

/// Tables that other tests read.
const TABLES: [&str; 2] = ["digests.json", "links.json"];

#[test]
fn every_kind_has_a_golden_file_and_every_file_a_kind() {
    let mut wanted: Vec<String> = Event::KINDS.iter().map(|kind| format!("{kind}.v1.json")).collect();
    wanted.extend(TABLES.map(String::from));
    wanted.sort();
    let found: Vec<String> = golden_files().into_keys().collect();
    assert_eq!(found, wanted);
}

#[test]
fn golden_events_are_of_their_kind_and_are_written_as_they_were_read() {
    for kind in Event::KINDS {
        let lines = golden_events(kind);
        assert!(!lines.is_empty(), "{kind} has no golden event");
        for line in lines {
            let event: Event =
                serde_json::from_str(&line).unwrap_or_else(|e| panic!("{kind}: {e} in {line}"));
            assert_eq!(event.kind(), kind);
            assert_eq!(serde_json::to_string(&event).unwrap(), line);
        }
    }
}

#[test]
fn a_field_of_the_future_does_not_break_an_old_reader() {
    for kind in Event::KINDS {
        for line in golden_events(kind) {
            let grown = with_unknown_field(&line);
            let event: Event =
                serde_json::from_str(&grown).unwrap_or_else(|e| panic!("{kind}: {e} in {grown}"));
            assert_eq!(serde_json::to_string(&event).unwrap(), line);
        }
    }
}

#[test]
fn a_kind_of_the_future_is_not_taken_for_another_one() {
    let error = serde_json::from_str::<Event>(r#"{"run.paused":{}}"#).unwrap_err();
    assert!(error.to_string().starts_with("unknown variant `run.paused`"), "{error}");
}

#[test]
fn a_sealed_link_keeps_its_hash() {
    let events = [
        Event::RunClaimed(RunClaimed { claim: None, started: false }),
        Event::RunErased(RunErased { reason: Some("why".into()) }),
    ];
    let actor = Actor::Person(UserId::new("alice").unwrap());
    let chain = Chain { previous: FIRST_PREVIOUS, salt: [7; 16] };
    let link = Link::seal(run(), Seq(3), AT, actor, &events, chain);
    assert_eq!(link.hash.to_string(), "xwp7gss0nhcq1n4tmcan098p8eeqfbabznpmc0sew84r3ecq5wcg");
    assert_eq!(
        link.contents.commitment().to_string(),
        "8qynv0q7b412bx3zw5t6mvkpzwsyc0mxjdm0e6jacw6g2texg9f0"
    );
    assert_eq!(link.verify(FIRST_PREVIOUS, Seq(3)), Ok(()));
    assert_eq!(link.events().unwrap().into_iter().map(|e| e.event).collect::<Vec<_>>(), events);
}

#[test]
fn an_erased_link_keeps_its_hash_and_says_nothing() {
    let events = [Event::RunErased(RunErased { reason: Some("why".into()) })];
    let chain = Chain { previous: Digest([1; 32]), salt: [7; 16] };
    let mut link = Link::seal(run(), Seq(9), AT, Actor::Clock, &events, chain);
    let whole = link.clone();
    link.erase();
    assert_eq!((link.hash, link.contents.commitment()), (whole.hash, whole.contents.commitment()));
    assert_eq!(link.verify(Digest([1; 32]), Seq(9)), Ok(()));
    assert_eq!(link.events(), Ok(vec![]));
}

#[test]
fn ids_keep_their_text() {
    let (run, secret) = (run(), secret());
    let hold = HoldId { run, key: HoldKey { call: CallNo(3), secret } };
    let request = RequestId { run, key: RequestKey { turn: 2, secret } };
    let texts = [
        run.to_string(),
        hold.to_string(),
        request.to_string(),
        hold.key.to_string(),
        request.key.to_string(),
        CallId { run, no: CallNo(7) }.to_string(),
        MessageId { run, seq: Seq(12) }.to_string(),
        RunId::new(&Tenant::default_tenant(), StorageKind::Memory, AT, [1, 2, 3, 4, 5]).to_string(),
    ];
    let golden = [
        "run_06d3yrjm020030jf7tv1a0r40m",
        "hold_06d3yrjm020030jf7tv1a0r40m000003000g40r40m30e209185gr38e1w",
        "req_06d3yrjm020030jf7tv1a0r40m000002000g40r40m30e209185gr38e1w",
        "3-000g40r40m30e209185gr38e1w",
        "2-000g40r40m30e209185gr38e1w",
        "call_06d3yrjm020030jf7tv1a0r40m000007",
        "msg_06d3yrjm020030jf7tv1a0r40m0000000000030",
        "mrun_06d3yrjm020g30jf7tv1a0r40m",
    ];
    assert_eq!(texts, golden);
}

#[test]
fn a_child_keeps_its_id() {
    let children =
        [(3, 1), (3, 2), (4, 1)].map(|(call, attempt)| run().child(CallNo(call), attempt).to_string());
    let golden = [
        "run_06d3yrjm02019btf7tv1a72w0m",
        "run_06d3yrjm0208qdjf7tv1aapa9m",
        "run_06d3yrjm020bna2f7tv1aedm2c",
    ];
    assert_eq!(children, golden);
}

/// A tenant, its tag, and three of its runs with their shards.
type TenantField = (&'static str, u32, [(&'static str, u8); 3]);

/// Stored work lists are keyed by the shard: it may never change.
#[test]
fn tenants_keep_their_tags_and_runs_their_shards() {
    let golden: [TenantField; 3] = [
        (
            "default",
            0x4f3e_b615,
            [
                ("run_06d3yrjm020030jf7tv1a0r40m", 223),
                ("run_06d3yrjm0600k2af7tv1a28914", 4),
                ("mrun_06d3yrjm020zzftf7tv1bzzzzw", 113),
            ],
        ),
        (
            "acme",
            0x8a15_3738,
            [
                ("run_06d3yrjm020030ma2mvkg0r40m", 255),
                ("run_06d3yrjm0600k2ca2mvkg28914", 14),
                ("mrun_06d3yrjm020zzfwa2mvkhzzzzw", 212),
            ],
        ),
        (
            "Übergröße GmbH",
            0xfdf2_ec67,
            [
                ("run_06d3yrjm020030qxybp6e0r40m", 224),
                ("run_06d3yrjm0600k2fxybp6e28914", 43),
                ("mrun_06d3yrjm020zzfzxybp6fzzzzw", 237),
            ],
        ),
    ];
    for (name, tag, runs) in golden {
        let tenant = Tenant::new(name).unwrap();
        let made = [
            RunId::new(&tenant, StorageKind::Durable, AT, [1, 2, 3, 4, 5]),
            RunId::new(&tenant, StorageKind::Durable, Timestamp(AT.0 + 1), [9; 5]),
            RunId::new(&tenant, StorageKind::Memory, AT, [255; 5]),
        ];
        assert_eq!(tenant_tag(&tenant), tag);
        for (made, (text, shard)) in made.into_iter().zip(runs) {
            assert_eq!((made.to_string().as_str(), made.shard(&tenant)), (text, Shard(shard)));
            assert_eq!((made.tenant_tag(), text.parse()), (tag, Ok(made)));
        }
    }
}

fn run() -> RunId {
    RunId::new(&Tenant::default_tenant(), StorageKind::Durable, AT, [1, 2, 3, 4, 5])
}

fn secret() -> Secret {
    Secret([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
}

fn golden_files() -> BTreeMap<String, PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), file.path())).collect()
}

/// The stored texts of the golden events of a kind, byte for byte.
fn golden_events(kind: &str) -> Vec<String> {
    let file = std::fs::read_to_string(&golden_files()[&format!("{kind}.v1.json")]).unwrap();
    let events: Vec<Box<RawValue>> = serde_json::from_str(&file).unwrap();
    events.iter().map(|event| event.get().to_owned()).collect()
}

/// The event as a later version might write it: one more field than this version knows.
fn with_unknown_field(event: &str) -> String {
    let body = event.strip_suffix("}}").unwrap();
    let comma = if body.ends_with('{') { "" } else { "," };
    format!(r#"{body}{comma}"of_the_future":{{"x":[1]}}}}}}"#)
}
