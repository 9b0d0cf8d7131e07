//! Standing approvals in the engine: saved as shown, used no more often than they say on any node, ended when they are revoked,
//! expired, or made for another schema or rule.
//!
//! What one covers is tested in `crates/policy`; the whole way with the program in `crates/e2e/tests/program/grants.rs`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_core::command::Choice;
use standfast_core::digest::Digest;
use standfast_core::event::Event;
use standfast_core::grant::GrantUse;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::name::ToolName;
use standfast_core::receipt::{CallEffect, receipt_of_call};
use standfast_core::run::status;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::{
    ArgumentPath, Engine, Freedom, GrantError, GrantProposal, GrantRefusal, GrantRequest, GrantState,
};
use standfast_models::scripted::Line;
use standfast_store::{
    Answer, AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SealedChange, SecretLayer,
    SessionLayer, Store, StoreError, WorkLayer,
};

use crate::corners::changed;
use crate::rules::judged_by;
use crate::{ARGUMENTS, COMPLETED, HELD, Site, decision, hold_of, start, until, who};

fn section() -> Value {
    json!({"rules": [{"id": "gone", "hold": "delete_file", "because": "it is gone then"}]})
}

/// Settings with these rules, and with the key that grants are sealed with.
fn settings(site: &Site, section: &Value, change: impl Fn(&mut Agent)) -> Settings {
    let mut settings = changed(site, |agent| {
        judged_by(agent, section);
        change(agent);
    });
    settings.webhooks.key = Some(SigningKey::new([7; 32]));
    settings
}

fn server_on(site: &Site, store: Arc<dyn Store>, clock: Clock) -> Engine {
    let engine = Engine::new(store, clock, crate::fixed(), settings(site, &section(), |_| {}));
    engine.work();
    engine
}

async fn held(engine: &Engine) -> HoldId {
    let run = start(engine).await;
    until(engine, run, HELD).await;
    hold_of(engine, run, HoldKind::Approval).await
}

fn asking(uses: u32) -> GrantRequest {
    GrantRequest { uses: Some(uses), ..GrantRequest::default() }
}

/// Sees the rule, and approves with exactly that.
async fn granted(engine: &Engine, hold: HoldId, request: &GrantRequest) -> GrantProposal {
    let alice = who("alice");
    let shown = engine.grants().propose(&alice, hold, request).await.unwrap();
    let exact = GrantRequest { uses: Some(shown.uses), until: Some(shown.until), ..request.clone() };
    let approve = decision(hold, Choice::Approve);
    engine.grants().approve(&alice, approve, &exact, shown.digest()).await.unwrap();
    until(engine, hold.run, COMPLETED).await;
    shown
}

async fn uses(engine: &Engine, run: RunId) -> Vec<GrantUse> {
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let used = events.iter().filter_map(|envelope| match &envelope.event {
        Event::CallStarted(started) => started.grant_use.clone(),
        _ => None,
    });
    used.collect()
}

async fn states(engine: &Engine) -> Vec<(u32, GrantState)> {
    let found = engine.grants().list(&who("alice")).await.unwrap();
    found.into_iter().map(|view| (view.used, view.state)).collect()
}

/// "This and the next two": two further runs are not held, each use is an event and on the receipt of its call, and the third is
/// held again. Others see nothing of it.
#[tokio::test]
async fn a_grant_answers_as_many_calls_as_it_says() {
    let site = Site::new();
    let engine = server_on(&site, site.store(), Clock::system());
    let hold = held(&engine).await;
    let shown = granted(&engine, hold, &asking(2)).await;
    let lines = shown.describe();
    for line in [
        "calls of delete_file by agent ops in runs of alice",
        r#"path = "/var/cache/old""#,
        "size = 9007199254740993",
        "covers only what these rules ask, as they are now: rule:gone",
        "at most 2 further calls",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:?}");
    }
    assert_eq!(states(&engine).await, [(0, GrantState::Live)]);
    for no in 1..=2 {
        let run = start(&engine).await;
        until(&engine, run, COMPLETED).await;
        let used = uses(&engine, run).await;
        assert_eq!(used.iter().map(|one| one.no).collect::<Vec<_>>(), [no]);
        let events = engine.reads().events(run, Seq(0)).await.unwrap();
        let receipt = receipt_of_call(CallNo(1), &events).unwrap();
        assert_eq!((receipt.hold, receipt.decision), (None, None));
        assert_eq!(receipt.asked.unwrap().judged.unwrap().grant.as_ref(), Some(&used[0].grant));
        let call = receipt.call.unwrap();
        assert_eq!(
            (call.effect, &call.attempts[0].grant_use),
            (CallEffect::Executed, &Some(used[0].clone()))
        );
    }
    assert_eq!(states(&engine).await, [(2, GrantState::UsedUp)]);
    let third = held(&engine).await;
    assert_eq!((site.effects().len(), uses(&engine, third.run).await), (3, vec![]));
    assert_eq!(engine.grants().list(&who("mallory")).await.unwrap(), []);
}

/// What was not shown is not saved: another digest, another count, arguments that were edited meanwhile; and what was shown is
/// all that is covered.
#[tokio::test]
async fn nothing_wider_than_shown_is_saved_or_covered() {
    let mut site = Site::new();
    site.asks_then = vec![Line::calls(&[("delete_file", r#"{"path": "/var/cache/other", "size": 1}"#)])];
    let engine = server_on(&site, site.store(), Clock::system());
    let hold = held(&engine).await;
    let (alice, grants) = (who("alice"), engine.grants());
    let shown = grants.propose(&alice, hold, &asking(2)).await.unwrap();
    let as_shown =
        |uses| GrantRequest { uses: Some(uses), until: Some(shown.until), ..GrantRequest::default() };
    let not_as_shown = Err(GrantError::Refused(GrantRefusal::NotAsShown));
    let approve = || decision(hold, Choice::Approve);
    for (request, digest) in [(as_shown(3), shown.digest()), (as_shown(2), Digest([1; 32]))] {
        let tried = grants.approve(&alice, approve(), &request, digest).await;
        assert_eq!(tried.map(|_| ()), not_as_shown);
    }
    let like = vec![Freedom::UpTo(ArgumentPath::parse("size").unwrap())];
    let wider = GrantRequest { like, ..as_shown(2) };
    let tried = grants.approve(&alice, approve(), &wider, shown.digest()).await;
    assert_eq!(tried.map(|_| ()), not_as_shown);
    let too_many = grants.propose(&alice, hold, &asking(101)).await;
    assert_eq!(too_many, Err(GrantError::Refused(GrantRefusal::TooManyUses { most: 100 })));
    let late = GrantRequest { until: Some(shown.until.plus(Millis::hours(1))), ..asking(1) };
    let late = grants.propose(&alice, hold, &late).await;
    assert!(
        matches!(late, Err(GrantError::Refused(GrantRefusal::BadEnd { .. }))),
        "seven days at most: {late:?}"
    );
    assert_eq!(states(&engine).await, []);
    let mallory = grants.propose(&who("mallory"), hold, &asking(1)).await;
    assert_eq!(mallory, Err(GrantError::Engine(standfast_engine::EngineError::NotFound)));

    let tried = grants.approve(&alice, approve(), &as_shown(2), shown.digest()).await;
    assert!(tried.is_ok(), "{tried:?}");
    // The next call of the same run has another path, and is held.
    until(&engine, hold.run, HELD).await;
    let next = hold_of(&engine, hold.run, HoldKind::Approval).await;
    assert_ne!(next, hold);
    assert_eq!(states(&engine).await, [(0, GrantState::Live)]);
}

/// Revoked, expired, another schema, another rule: the next call is held, and the list says why.
#[tokio::test]
async fn a_grant_ends() {
    let noon = Timestamp(1_762_000_000_000);
    let site = Site::new();
    let engine = server_on(&site, site.store(), Clock::standing_at(noon));
    granted(&engine, held(&engine).await, &asking(9)).await;
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;

    // Another rule of the same name.
    let other = json!({"rules": [{"id": "gone", "hold": "delete_file", "because": "for another reason"}]});
    engine.reload(settings(&site, &other, |_| {}));
    assert_eq!(states(&engine).await, [(1, GrantState::RuleChanged)]);
    held(&engine).await;

    // Another schema.
    engine.reload(settings(&site, &section(), |agent| {
        let mut definition = (*agent.definition).clone();
        let tool = definition.tools.get_mut(&ToolName::new("delete_file").unwrap()).unwrap();
        tool.schema = RawJson::parse(r#"{"type":"object","additionalProperties":true}"#).unwrap();
        let (definition, digest) = (Arc::new(definition.clone()), definition.digest());
        (agent.definition, agent.digest) = (definition, digest);
    }));
    assert_eq!(states(&engine).await, [(1, GrantState::SchemaChanged)]);
    held(&engine).await;

    engine.reload(settings(&site, &section(), |_| {}));
    assert_eq!(states(&engine).await, [(1, GrantState::Live)]);
    let grant = engine.grants().list(&who("alice")).await.unwrap().remove(0).grant.id;
    let stranger = engine.grants().revoke(&who("mallory"), &grant).await;
    assert_eq!(stranger, Err(standfast_engine::EngineError::NotFound));
    let revoked = engine.grants().revoke(&who("alice"), &grant).await.unwrap();
    assert!(matches!(&revoked.state, GrantState::Revoked(Some(by)) if by.by.as_str() == "alice"));
    held(&engine).await;

    granted(&engine, held(&engine).await, &asking(9)).await;
    engine.clock().advance(Millis::hours(24 * 7));
    let found = states(&engine).await;
    assert_eq!(found.last().unwrap(), &(0, GrantState::Expired));
    held(&engine).await;
    assert_eq!(site.effects().len(), 3);
}

/// Destructive classes get none unless the file says so; neither do holds on which several must agree, nor a file without rules
/// that says nothing of them.
#[tokio::test]
async fn some_holds_take_no_grant() {
    let not_allowed = || GrantError::Refused(GrantRefusal::NotAllowed);
    let destructive = json!([{"id": "gone", "hold": "delete_file", "risk": "destructive"}]);
    let final_one = json!([{"id": "gone", "hold": "delete_file", "reversible": false}]);
    let never = json!([{"id": "gone", "hold": "delete_file", "grants": "never"}]);
    let two = json!([{"id": "gone", "hold": "delete_file", "quorum": 2}]);
    for (section, expected) in [
        (json!({"rules": destructive}), Some(not_allowed())),
        (json!({"rules": final_one}), Some(not_allowed())),
        (json!({"rules": never}), Some(not_allowed())),
        (json!({"rules": two}), Some(GrantError::Quorum)),
        (json!({"high_risk_tools": ["delete_file"], "grants": {"max_uses": 9}}), Some(not_allowed())),
        (
            json!({"mode": "observe", "high_risk_tools": ["delete_file"], "grants": {"max_uses": 9}}),
            Some(not_allowed()),
        ),
        (json!({}), Some(not_allowed())),
        (json!({"grants": {"max_uses": 9}}), None),
        (json!({"rules": destructive, "grants": {"destructive": "allow"}}), None),
    ] {
        let site = Site::new();
        let engine =
            Engine::new(site.store(), Clock::system(), crate::fixed(), settings(&site, &section, |_| {}));
        engine.work();
        let hold = held(&engine).await;
        let tried = engine.grants().propose(&who("alice"), hold, &asking(1)).await;
        assert_eq!(tried.err(), expected, "{section}");
        if expected.is_none() {
            granted(&engine, hold, &asking(1)).await;
            let run = start(&engine).await;
            until(&engine, run, COMPLETED).await;
        }
    }
}

/// Two nodes and ten runs at once: as many start as the grant says, and every other one is held.
#[tokio::test(flavor = "multi_thread")]
async fn the_count_holds_when_two_nodes_race_for_it() {
    let site = Site::new();
    let store = site.store();
    let nodes = [server_on(&site, store.clone(), Clock::system()), server_on(&site, store, Clock::system())];
    granted(&nodes[0], held(&nodes[0]).await, &asking(3)).await;
    let started = futures_util::future::join_all((0..10).map(|no| start(&nodes[no % 2]))).await;
    let settled = async {
        for run in &started {
            loop {
                let now = status(&nodes[0].reads().load(*run).await.unwrap().row.run);
                if now == HELD || now == COMPLETED {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settled).await.unwrap();
    let mut numbers = Vec::new();
    for run in &started {
        numbers.extend(uses(&nodes[1], *run).await.iter().map(|used| used.no));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(site.effects().len(), 4, "the approved one, and three by the grant");
    assert_eq!(states(&nodes[1]).await, [(3, GrantState::UsedUp)]);
}

/// Two calls of one reply take two uses; one of them is left over and held where there is one use only. Whatever is held asks with
/// the arguments that were shown.
#[tokio::test]
async fn calls_of_one_reply_share_what_is_left() {
    let mut site = Site::new();
    let engine = server_on(&site, site.store(), Clock::system());
    granted(&engine, held(&engine).await, &asking(1)).await;
    engine.die().await;
    drop(engine);
    site.asks = Line::calls(&[("delete_file", ARGUMENTS), ("delete_file", ARGUMENTS)]);
    let engine = server_on(&site, site.store(), Clock::system());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let ran = async {
        while site.effects().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ran).await.unwrap();
    assert_eq!(uses(&engine, run).await.len(), 1);
}

/// A store in which no sealed document can be written: as if the server died right after each decision.
struct WithoutDocuments(Arc<dyn Store>);

impl Layer for WithoutDocuments {
    fn below(&self) -> &dyn Store {
        &*self.0
    }
}

impl SecretLayer for WithoutDocuments {
    fn change_sealed(&self, _change: SealedChange) -> Answer<bool> {
        Box::pin(std::future::ready(Err(StoreError::Unavailable { why: "for the test".into() })))
    }
}

impl RunLayer for WithoutDocuments {}
impl WorkLayer for WithoutDocuments {}
impl DeliveryLayer for WithoutDocuments {}
impl SessionLayer for WithoutDocuments {}
impl IdempotencyLayer for WithoutDocuments {}
impl AuditLayer for WithoutDocuments {}

/// A grant is there with its decision, in one append: nothing that is written after it is needed for it to count, on any node. With
/// another server key nobody finds it, so a row that somebody writes into the database is no grant.
#[tokio::test]
async fn a_grant_is_there_as_soon_as_its_decision_is() {
    let site = Site::new();
    let below = site.store();
    let engine = server_on(&site, Arc::new(WithoutDocuments(below.clone())), Clock::system());
    granted(&engine, held(&engine).await, &asking(2)).await;
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    assert_eq!(states(&engine).await, [(1, GrantState::Live)]);
    engine.die().await;
    drop(engine);
    let mut others = settings(&site, &section(), |_| {});
    others.webhooks.key = Some(SigningKey::new([9; 32]));
    let engine = Engine::new(below.clone(), Clock::system(), crate::fixed(), others);
    assert_eq!(states(&engine).await, []);
    engine.die().await;
    drop(engine);
    let engine = server_on(&site, below, Clock::system());
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    let alice = who("alice");
    let id = engine.grants().list(&alice).await.unwrap()[0].grant.id.clone();
    let revoked = engine.grants().revoke(&alice, &id).await.unwrap();
    assert!(matches!(revoked.state, GrantState::Revoked(Some(_))), "{revoked:?}");
}
