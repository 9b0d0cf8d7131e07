//! Subscriptions as the engine keeps them, where the API cannot show it in a moment.
//!
//! What is told, and to whom, is tested with the real binary in `webhooks`.

use std::sync::Arc;

use standfast_core::id::{RunId, StorageKind};
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{Settings, Webhooks};
use standfast_engine::{Engine, NewSubscription, SubscriptionError, SubscriptionScope};
use standfast_store::memory::MemoryStore;
use standfast_store::{DeliveryStore, Subscription};

use crate::Site;

/// Every append looks at the subscriptions to agents and to everything, so their number is limited; any number of
/// subscriptions to single runs before them in the list does not change that.
#[tokio::test]
async fn many_subscriptions_to_runs_do_not_hide_how_many_hear_of_everything() {
    let (site, store, tenant) = (Site::new(), Arc::new(MemoryStore::new()), Tenant::default_tenant());
    let of_run = |n: i64| {
        let run = RunId::new(&tenant, StorageKind::Durable, Timestamp(n), [0; 5]);
        (format!("sub_a{n:05}"), SubscriptionScope::Run(run))
    };
    let of_all = |n: i64| (format!("sub_z{n:05}"), SubscriptionScope::Tenant);
    for (id, scope) in (0..2_100).map(of_run).chain((0..99).map(of_all)) {
        let (tenant, facts) = (tenant.clone(), "{}".to_owned());
        let owner = format!("default user-{}", id.len());
        let new = Subscription { tenant, id, scope, owner, wants: 1, is_active: true, facts };
        assert!(store.put_subscription(new).await.unwrap());
    }
    let webhooks = Webhooks { key: Some(SigningKey::new([7; 32])), ..Webhooks::default() };
    let engine =
        Engine::new(store, Clock::system(), crate::fixed(), Settings { webhooks, ..site.settings() });
    let subscribe = async || {
        let url = "https://93.184.216.34/hook".to_owned();
        let new = NewSubscription {
            kind: "webhook",
            hears: SubscriptionScope::Tenant,
            url,
            events: None,
            once: None,
        };
        engine.subscriptions().subscribe(&Principal::local(), new).await
    };
    assert!(subscribe().await.is_ok(), "one more is allowed");
    match subscribe().await {
        Err(SubscriptionError::Invalid(why)) => assert!(why.contains("there are 100 subscriptions"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// F25: nobody uses up what all share: an approver has room for so many broad subscriptions, then others still have theirs.
/// Those to one run are bounded too, because every append to it looks at them.
#[tokio::test]
async fn one_owner_does_not_use_up_the_subscriptions_of_all() {
    let (site, store) = (Site::new(), Arc::new(MemoryStore::new()));
    let webhooks = Webhooks { key: Some(SigningKey::new([7; 32])), ..Webhooks::default() };
    let engine =
        Engine::new(store, Clock::system(), crate::fixed(), Settings { webhooks, ..site.settings() });
    let admin = |user: &str| Principal { user: UserId::new(user).unwrap(), ..Principal::local() };
    let subscribe = async |who: &Principal, hears: SubscriptionScope| {
        let url = "https://93.184.216.34/hook".to_owned();
        let new = NewSubscription { kind: "webhook", hears, url, events: None, once: None };
        engine.subscriptions().subscribe(who, new).await
    };
    let run = crate::start(&engine).await;
    for hears in [SubscriptionScope::Tenant, SubscriptionScope::Run(run)] {
        for _ in 0..20 {
            subscribe(&admin("ann"), hears.clone()).await.unwrap();
        }
        match subscribe(&admin("ann"), hears.clone()).await {
            Err(SubscriptionError::Invalid(why)) => {
                assert!(why.contains("you have 20 subscriptions"), "{why}")
            }
            other => panic!("{other:?}"),
        }
        assert!(subscribe(&admin("bob"), hears).await.is_ok(), "others still may");
    }
}
