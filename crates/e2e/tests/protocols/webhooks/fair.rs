//! Deliveries are fair between owners: what one of them subscribes delays nobody else (F25).
//!
//! The receivers of one person hang, as many as they like; those of others are told all the same.

use serde_json::json;

use super::text;
use super::who::site_with;
use standfast_testkit::receiver::{Mood, Receiver};

/// F25: 128 hanging subscriptions of one user, to many runs, delay nobody else's delivery: not for one of their time-outs.
#[tokio::test]
async fn hanging_receivers_of_one_owner_delay_nobody_else() {
    // Longer than anything here is waited for: whoever needs a place of theirs is told nothing before the test gives up.
    let site = site_with("5m");
    let (hangs, takes) = (Receiver::new(Mood::Hangs).await, Receiver::new(Mood::Takes).await);
    // Eight runs with sixteen receivers each.
    let mut runs = Vec::new();
    for _ in 0..8 {
        let (run, _) = site.held().await;
        for _ in 0..16 {
            let made = site.subscribe(&site.ann, &hangs, json!({"run": run})).await;
            assert_eq!(made.0, 201, "{made:?}");
        }
        runs.push(run);
    }
    assert_eq!(site.subscribe(&site.bob, &takes, json!({"agent": "ops"})).await.0, 201);
    for run in &runs {
        let path = format!("/runs/{run}/cancel");
        assert_eq!(site.ask(&site.ann, "POST", &path, Some(json!({}))).await.0, 200);
    }
    hangs.until("many deliveries that hang", |got| got.len() >= 32).await;
    // While they hang, another run begins and ends; the other owner hears all of it, and of the others too.
    let (run, _) = site.held().await;
    let path = format!("/runs/{run}/cancel");
    assert_eq!(site.ask(&site.ann, "POST", &path, Some(json!({}))).await.0, 200);
    takes.whole_story(&run).await;
    let of = |got: &standfast_testkit::receiver::Got| text(&got.body()["data"]["run"]["id"]);
    for run in &runs {
        takes.until("each run that was canceled", |got| got.iter().any(|one| of(one) == *run)).await;
    }
}
