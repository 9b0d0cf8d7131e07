//! Subscriptions as the engine keeps them, where the API cannot show it in a moment.
//!
//! What is told, and to whom, is tested with the real binary in `webhooks`.

use std::sync::Arc;

use holdpoint::auth::Principal;
use holdpoint::clock::Clock;
use holdpoint::engine::{Engine, Hears, NewSubscription, SigningKey, SubscriptionError};
use holdpoint::settings::{Settings, Webhooks};
use holdpoint_core::id::{Place, RunId};
use holdpoint_core::name::Tenant;
use holdpoint_core::time::Timestamp;
use holdpoint_store::memory::MemoryStore;
use holdpoint_store::{Store, Subscription};

use crate::Site;

/// Every append looks at the subscriptions to agents and to everything, so their number is limited; any number of
/// subscriptions to single runs before them in the list does not change that.
#[tokio::test]
async fn many_subscriptions_to_runs_do_not_hide_how_many_hear_of_everything() {
    let (site, store, tenant) = (Site::new(), Arc::new(MemoryStore::new()), Tenant::default_tenant());
    let of_run = |n: i64| {
        let run = RunId::new(&tenant, Place::Durable, Timestamp(n), [0; 5]);
        (format!("sub_a{n:05}"), Hears::Run(run))
    };
    let of_all = |n: i64| (format!("sub_z{n:05}"), Hears::Tenant);
    for (id, scope) in (0..2_100).map(of_run).chain((0..99).map(of_all)) {
        let (tenant, facts) = (tenant.clone(), "{}".to_owned());
        let new = Subscription { tenant, id, scope, wants: 1, is_active: true, facts };
        assert!(store.put_subscription(new).await.unwrap());
    }
    let webhooks = Webhooks { key: Some(SigningKey::new([7; 32])), ..Webhooks::default() };
    let engine = Engine::new(store, Clock::system(), Settings { webhooks, ..site.settings() });
    let subscribe = async || {
        let url = "https://93.184.216.34/hook".to_owned();
        let new = NewSubscription { kind: "webhook", hears: Hears::Tenant, url, events: None, once: None };
        engine.subscribe(&Principal::local(), new).await
    };
    assert!(subscribe().await.is_ok(), "one more is allowed");
    match subscribe().await {
        Err(SubscriptionError::Invalid(why)) => assert!(why.contains("there are 100 subscriptions"), "{why}"),
        other => panic!("{other:?}"),
    }
}
