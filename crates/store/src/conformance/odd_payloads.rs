//! Payloads at the edges: NUL, emoji, escapes of surrogates, huge texts, the longest names, many calls.
//!
//! What went in comes out byte for byte, also after reopening.

use standfast_core::body::Body;
use standfast_core::command::{Command, OnHold, RecordReply, Say};
use standfast_core::digest;
use standfast_core::event::Event;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};
use standfast_core::project::RunRow;

use super::Factory;
use super::support::{
    LOOKUP, NewRun, SHELL, World, agent, asked, block_on, holds_by, session, session_of, tenant,
};
use crate::{
    Audience, AudienceMember, Guard, HoldFilter, HoldQuery, Notice, NoticeQuery, RunFilter, SessionChange,
    SideWrite,
};

pub fn odd_texts_come_back_byte_for_byte(factory: &Factory) {
    let mut world = World::new(factory);
    let texts = [
        "",
        "\0",
        "a\0b",
        "👩‍👩‍👧‍👦🏴‍☠️",
        "e\u{301} \u{202e}right to left\u{feff}",
        "\u{fffd}\u{ffff}\u{10ffff}",
        r"\ud83d\ude00 \ud800",
        "'; DROP TABLE runs; --",
        "line\r\nline\u{2028}",
        "\u{7f}\u{1}\u{1b}[31m",
    ];
    let mut row = world.start(&NewRun::of("helper").saying(""));
    for text in texts {
        row = world.send(&row, &said(Message::text(text)));
    }
    world.reopen();
    assert_eq!(world.words(&row)[1..], texts);
    world.expect_stored(&row);
}

pub fn json_keeps_its_bytes(factory: &Factory) {
    let mut world = World::new(factory);
    let texts = [
        r#"{"s": "\ud83d\ude00", "t" :"\u0000"}"#,
        r#"{"n":9007199254740993,"m":1e400,"k":-0.0}"#,
        "[ ]",
        r#""\u00e9""#,
        "{\"\":\"\",\" \":null}",
    ];
    let parts: Vec<Part> =
        texts.iter().map(|text| Part::Data(Body::Json(RawJson::parse(text).unwrap()))).collect();
    let row = world.queued_run("helper");
    let row = world.send(&row, &said(Message { client_id: Some("\0".into()), ..Message::of(parts.clone()) }));
    world.reopen();
    let events = world.events(row.run.facts.id);
    let Some(Event::MessageReceived(heard)) = events.last().map(|envelope| &envelope.event) else {
        panic!("not a message: {events:?}");
    };
    assert_eq!(heard.message.parts, parts);
    world.expect_stored(&row);
}

/// Ten mebibytes go beside the log; the row and the link stay small.
pub fn a_huge_text_is_stored(factory: &Factory) {
    let mut world = World::new(factory);
    let text = "0123456789abcde\u{e9}".repeat(10 * 1024 * 1024 / 17 + 1);
    assert!(text.len() >= 10 * 1024 * 1024);
    let row = world.start(&NewRun::of("helper").saying(text.clone()));
    world.reopen();
    let name = digest::of_bytes(text.as_bytes());
    assert!(block_on(world.store().blob(row.run.facts.id, name)) == Ok(Some(text)));
    world.expect_stored(&row);
}

/// A model's own blocks are not moved out of the log.
pub fn a_large_link_is_stored(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let many = (0..200).map(|n| Part::Text(Body::text(format!("{n}").repeat(5000)))).collect();
    let row = world.send(&row, &said(Message::of(many)));
    world.reopen();
    world.expect_stored(&row);
    assert_eq!(world.words(&row).len(), 201);
}

pub fn the_longest_names_are_stored(factory: &Factory) {
    let mut world = World::new(factory);
    let long = |letter: &str| letter.repeat(256 / letter.len());
    let new = NewRun {
        session: session(&long("é")),
        ..NewRun::of(&long("🏴")).of_tenant(&long("t")).in_inbox(&long("i"), 255)
    };
    let row = world.start(&new);
    world.reopen();
    world.expect_stored(&row);
    let query = crate::RunQuery {
        tenant: tenant(&long("t")),
        ..super::support::runs_by(RunFilter::Session(agent(&long("🏴")), session(&long("é"))))
    };
    assert_eq!(world.all_runs(&query), [row]);
}

pub fn odd_keys_counters_and_subscriptions_are_kept_apart(factory: &Factory) {
    let mut world = World::new(factory);
    let odd = ["", "\0", "a\nb", "a", "A", "é", "e\u{301}", "%", "' OR 1=1 --"];
    let now = world.now();
    for text in odd {
        let mut batch = world.scribe.start(&NewRun::of("helper"));
        let key = text.to_owned();
        batch.guards = vec![
            Guard::KeyUnused { key: key.clone() },
            Guard::CounterWithin { counter: key.clone(), add: 1, max: 1 },
        ];
        batch.puts = vec![
            SideWrite::Key { key: key.clone(), request: digest::of_bytes(text.as_bytes()), expires_at: now },
            SideWrite::Notice(Notice {
                subscription: key,
                owner: String::new(),
                from: batch.link.header.first,
                due_at: now,
            }),
        ];
        world.write(batch);
    }
    world.reopen();
    for text in odd {
        let found = block_on(world.store().find_key(tenant("default"), text.to_owned())).unwrap().unwrap();
        assert_eq!(found.request, digest::of_bytes(text.as_bytes()));
    }
    let due = block_on(world.store().due_notices(NoticeQuery::all(now, 50))).unwrap();
    assert_eq!(due.iter().map(|due| due.subscription.as_str()).collect::<Vec<_>>(), odd);
}

pub fn odd_audiences_and_metadata_are_kept(factory: &Factory) {
    let mut world = World::new(factory);
    let odd = ["", "user:a b", "user:\0", "user:a\nb", "rôle:é"];
    let (row, hold) = world.held(&NewRun::of("helper"), &odd);
    for who in odd {
        let audience = Audience::AnyOf(vec![AudienceMember(who.into())]);
        let query = HoldQuery { audience, ..holds_by(HoldFilter::All) };
        assert_eq!(world.all_holds(&query).len(), 1, "{who:?}");
    }
    let metadata = format!("{{\"k\":\"{}\\u0000\u{1f600}\"}}", "x".repeat(100_000));
    let change = SessionChange::Metadata { before: "{}".into(), after: metadata.clone() };
    assert_eq!(block_on(world.store().change_session(session_of(&row), change, world.now())), Ok(true));
    world.reopen();
    assert_eq!(block_on(world.store().session(session_of(&row))).unwrap().unwrap().metadata, metadata);
    assert_eq!(world.find_hold(hold).unwrap().id, hold);
}

pub fn sixty_four_calls_in_a_turn(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let tools: Vec<&str> = (0..64).map(|n| if n % 2 == 0 { SHELL } else { LOOKUP }).collect();
    let calls = tools.iter().map(|tool| asked(tool, r#"{"text": "\u0000é"}"#)).collect();
    let reply = RecordReply {
        text: None,
        parts: Vec::new(),
        calls,
        opaque: Some(RawJson::parse(r#"{"thinking": "…", "signature":"\/"}"#).unwrap()),
        usage: standfast_core::message::Usage { input: u64::MAX, output: 1, cost_micros: 0 },
        model: Some(String::new()),
        heard: row.run.heard(),
    };
    let row = world.send(&row, &Command::RecordReply(reply));
    assert_eq!((row.run.state.calls.len(), row.run.state.holds.len()), (64, 32));
    world.reopen();
    world.expect_stored(&row);
    let query = HoldQuery { limit: 5, ..holds_by(HoldFilter::Run(row.run.facts.id)) };
    assert_eq!(world.all_holds(&query).len(), 32);
}

fn said(message: Message) -> Command {
    Command::Say(Say { message, on_hold: OnHold::Refuse })
}

impl World {
    /// Every text of every message of a run.
    fn words(&self, row: &RunRow) -> Vec<String> {
        let heard = self.events(row.run.facts.id).into_iter().filter_map(|envelope| {
            let event = envelope.event;
            if let Event::MessageReceived(heard) | Event::MessageQueued(heard) = event {
                return Some(heard.message.parts);
            }
            None
        });
        let text = |part: Part| match part {
            Part::Text(body) | Part::Data(body) | Part::File { content: body, .. } => {
                body.inline().map_or_else(|| "large".to_owned(), str::to_owned)
            }
        };
        heard.flatten().map(text).collect()
    }
}
