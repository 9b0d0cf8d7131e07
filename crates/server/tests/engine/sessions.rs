//! The life of a browser session by a clock that the test moves: it ends without use, and after its longest time however much it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use standfast_core::name::Tenant;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{ApiKey, KEY_BYTES, KeyFacts, Principal, Scope};
use standfast_engine::clock::Clock;
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{Access, Auth, SessionLimits, Settings};
use standfast_engine::{Activity, Engine};
use standfast_store::Store;

use crate::{Site, fixed, who};

const NOON: Timestamp = Timestamp(1_774_623_600_000);

const LIMITS: SessionLimits = SessionLimits { idle: Millis::hours(24), lasts: Millis::hours(7 * 24) };

/// A server that takes keys, and somebody who has signed in with one.
async fn signed_in(site: &Site) -> (Engine, Arc<dyn Store>, String) {
    let (store, clock) = (site.store(), Clock::standing_at(NOON));
    let key = ApiKey::new([7; KEY_BYTES]);
    let facts = KeyFacts {
        name: None,
        user: who("ann").user,
        groups: BTreeSet::new(),
        roles: BTreeSet::new(),
        scopes: Scope::usual(),
        inboxes: BTreeSet::new(),
        limits: Default::default(),
        created_at: NOON,
    };
    let credential = key.credential(Tenant::default_tenant(), &facts, None).unwrap();
    let ann: Principal = key.opens(&credential, NOON).unwrap();
    assert!(store.put_credential(credential).await.unwrap());
    let access = Access { auth: Auth::Keys, sessions: LIMITS, ..Access::default() };
    let mut settings = Settings { access, agents: BTreeMap::new(), ..site.settings() };
    settings.webhooks.key = Some(SigningKey::new([7; 32]));
    let engine = Engine::new(store.clone(), clock, fixed(), settings);
    let begun = engine.identity().open_browser_session(&ann, None, None).await.unwrap();
    assert_eq!(begun.lasts, LIMITS.lasts);
    (engine, store, begun.cookie)
}

async fn is_let_in(engine: &Engine, cookie: &str, activity: Activity) -> bool {
    engine.identity().identify_browser(cookie, activity).await.unwrap().is_ok()
}

/// Whoever uses a session every hour is signed out all the same when its time is over, to the millisecond; a page that stays
/// open does not use it.
#[tokio::test]
async fn a_session_ends_after_its_longest_time_however_much_it_is_used() {
    let site = Site::new();
    let (engine, _, cookie) = signed_in(&site).await;
    for hour in 0..7 * 24 {
        assert!(is_let_in(&engine, &cookie, Activity::Person).await, "after {hour} hours");
        engine.clock().advance(Millis::hours(1));
    }
    assert!(!is_let_in(&engine, &cookie, Activity::Person).await, "it has lasted for seven days");
    let other = Site::new();
    let (engine, _, cookie) = signed_in(&other).await;
    for _ in 0..8 {
        engine.clock().advance(Millis::hours(20));
        assert!(is_let_in(&engine, &cookie, Activity::Person).await);
    }
    engine.clock().advance(Millis(LIMITS.lasts.0 - Millis::hours(8 * 20).0 - 1));
    assert!(is_let_in(&engine, &cookie, Activity::Background).await);
    engine.clock().advance(Millis(1));
    assert!(!is_let_in(&engine, &cookie, Activity::Person).await);
}

/// A session that nobody uses ends, however long it could have lasted.
#[tokio::test]
async fn a_session_ends_when_nobody_uses_it() {
    let site = Site::new();
    let (engine, _, cookie) = signed_in(&site).await;
    engine.clock().advance(Millis(LIMITS.idle.0 - 1));
    assert!(is_let_in(&engine, &cookie, Activity::Background).await);
    engine.clock().advance(Millis(1));
    assert!(!is_let_in(&engine, &cookie, Activity::Person).await);
}

/// T9, T37: a key whose known part is right and whose secret is not opens nothing, and the audit of its tenant says so, twenty times a
/// minute at most; of one that nobody knows it says nothing.
#[tokio::test]
async fn t9_a_wrong_secret_is_in_the_audit_of_its_user() {
    let site = Site::new();
    let (engine, store, _) = signed_in(&site).await;
    let (mut wrong, unknown) = ([7; KEY_BYTES], ApiKey::new([8; KEY_BYTES]));
    wrong[KEY_BYTES - 1] = 8;
    let wrong = ApiKey::new(wrong);
    let refused = async || {
        let entries = store.audit_entries(Tenant::default_tenant(), 0, 1000).await.unwrap();
        let of_kind = entries.into_iter().filter(|entry| entry.entry.contains("sign_in.refused"));
        of_kind.map(|entry| entry.entry).collect::<Vec<String>>()
    };
    assert_eq!(engine.identity().identify(&unknown).await.unwrap(), None);
    assert_eq!(refused().await, Vec::<String>::new());
    for _ in 0..50 {
        assert_eq!(engine.identity().identify(&wrong).await.unwrap(), None);
    }
    let entries = refused().await;
    assert_eq!(entries.len(), 20);
    assert!(entries[0].contains(r#""user":"ann""#) && entries[0].contains("wrong_secret"), "{entries:?}");
    engine.clock().advance(Millis::seconds(61));
    engine.identity().identify(&wrong).await.unwrap();
    let entries = refused().await;
    assert!(entries.len() == 21 && entries[20].contains(r#""left_out":30"#), "{entries:?}");
}
