//! Digests and link hashes against values that another program computed (Python's hashlib) from the written formula.
//!
//! What a person approves is distinguished byte for byte: 9007199254740993 is not …992, `1` is not `1.0`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;

use serde::Deserialize;
use standfast_core::digest::{self, Digest};
use standfast_core::event::Event;
use standfast_core::id::{RunId, Seq, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::link::{Chain, FIRST_PREVIOUS, Link};
use standfast_core::message::Replay;
use standfast_core::name::{Tenant, ToolName};
use standfast_core::time::Timestamp;
use standfast_core::{actor::Actor, definition::ToolSpec};

#[derive(Deserialize)]
struct CallVector {
    why: String,
    tool: ToolName,
    description: String,
    schema: String,
    schema_digest: Digest,
    arguments: String,
    digest: Digest,
}

#[derive(Deserialize)]
struct LinkVector {
    why: String,
    first: Seq,
    at: Timestamp,
    actor: Actor,
    salt: String,
    payload: String,
    commitment: Digest,
    previous: Digest,
    hash: Digest,
}

#[test]
fn calls_have_the_digests_that_another_program_computed() {
    for vector in call_vectors() {
        let spec = ToolSpec {
            description: vector.description.clone(),
            schema: RawJson::parse(&vector.schema).unwrap(),
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        };
        assert_eq!(spec.schema_digest(), vector.schema_digest, "{}", vector.why);
        let arguments = RawJson::parse(&vector.arguments).unwrap();
        assert_eq!(
            digest::of_call(&vector.tool, arguments.text(), spec.schema_digest()),
            vector.digest,
            "{}",
            vector.why
        );
    }
}

#[test]
fn no_two_calls_that_differ_in_a_byte_share_a_digest() {
    let vectors = call_vectors();
    let distinct: HashSet<Digest> = vectors.iter().map(|vector| vector.digest).collect();
    assert_eq!(distinct.len(), vectors.len());
}

/// Ids and digests are written alike; another spelling of the same bytes is not taken.
#[test]
fn a_digest_has_one_text() {
    let text = call_vectors()[0].digest.to_string();
    assert_eq!(text.len(), 52);
    assert_eq!(text.parse::<Digest>().map(|digest| digest.to_string()), Ok(text.clone()));
    for wrong in ["0".repeat(64), text.to_uppercase(), text[1..].to_owned(), format!("{}z", &text[..51])] {
        assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
    }
}

/// The looser key is only for "the same again"; it tells numbers apart by their text all the same.
#[test]
fn the_loose_key_groups_what_the_digest_tells_apart() {
    let key = |text: &str| RawJson::parse(text).unwrap().loose_key();
    assert_eq!(key(r#"{"a":1,"b":2}"#), key("{\n  \"b\": 2,\n  \"a\": 1\n}"));
    assert_eq!(key(r#"{"to":"é"}"#), key(r#"{"to":"\u00e9"}"#));
    assert_ne!(key(r#"{"n":9007199254740993}"#), key(r#"{"n":9007199254740992}"#));
    assert_ne!(key(r#"{"n":1}"#), key(r#"{"n":1.0}"#));
    assert_ne!(key("{\"to\":\"\u{e9}\"}"), key("{\"to\":\"e\u{301}\"}"));
}

#[test]
fn links_have_the_hashes_that_another_program_computed() {
    let run = RunId::new(
        &Tenant::default_tenant(),
        StorageKind::Durable,
        Timestamp(1_762_000_000_000),
        [1, 2, 3, 4, 5],
    );
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    for vector in link_vectors() {
        let events: Vec<Event> = serde_json::from_str(&vector.payload).unwrap();
        let chain = Chain { previous: vector.previous, salt: salt(&vector.salt) };
        let link = Link::seal(run, vector.first, vector.at, vector.actor, &events, chain);
        assert_eq!(link.contents.commitment(), vector.commitment, "{}", vector.why);
        assert_eq!(link.hash, vector.hash, "{}", vector.why);
        assert_eq!(link.verify(previous, next), Ok(()), "{}", vector.why);
        (previous, next) = (link.hash, link.next());
    }
}

fn call_vectors() -> Vec<CallVector> {
    serde_json::from_str(include_str!("golden/digests.json")).unwrap()
}

fn link_vectors() -> Vec<LinkVector> {
    serde_json::from_str(include_str!("golden/links.json")).unwrap()
}

fn salt(hex: &str) -> [u8; 16] {
    let mut salt = [0; 16];
    for (at, byte) in salt.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap();
    }
    salt
}
