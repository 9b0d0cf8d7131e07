//! How the provider's keys come and go, and what happens while it is away.
//!
//! Time passes only when a test says so, so ten seconds and a day are as exact as each other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_surfaces::jwt::{Issuer, TRY_AGAIN, TokenError, TokenRefusal};

use crate::forged::{NOW, claims, clock, issuer};
use crate::provider::{Answer, Provider, SigningKey, published};

/// A token that outlives every test here.
fn token(key: &SigningKey) -> String {
    key.token(&claims(json!({"exp": NOW + 1_000_000})))
}

async fn is_in(issuer: &Issuer, token: &str, clock: &Clock) -> bool {
    match issuer.identify(token, clock).await {
        Ok(_) => true,
        Err(TokenError::Refused(TokenRefusal::UnknownKey(_))) => false,
        Err(other) => panic!("{other:?}"),
    }
}

async fn has_no_keys(issuer: &Issuer, token: &str, clock: &Clock) -> bool {
    matches!(issuer.identify(token, clock).await, Err(TokenError::NoKeys { retry_after }) if retry_after >= Millis(1000))
}

#[tokio::test]
async fn a_new_key_is_found_and_an_old_one_goes() {
    let (old, new) = (SigningKey::ed("old"), SigningKey::ed("new"));
    let provider = Provider::with(published(&[&old])).await;
    let (issuer, clock) = (issuer(&provider), clock());
    assert!(is_in(&issuer, &token(&old), &clock).await);
    provider.answers(published(&[&new]));
    assert!(!is_in(&issuer, &token(&new), &clock).await, "it was asked less than ten seconds ago");
    assert_eq!(provider.asked(), 1);
    clock.advance(TRY_AGAIN);
    assert!(is_in(&issuer, &token(&new), &clock).await);
    assert!(!is_in(&issuer, &token(&old), &clock).await, "what the provider took back opens nothing");
    assert_eq!(provider.asked(), 2);
}

#[tokio::test]
async fn made_up_names_do_not_hammer_the_provider() {
    let (key, evil) = (SigningKey::ed("e"), SigningKey::ed("evil"));
    let provider = Provider::with(published(&[&key])).await;
    let (issuer, clock) = (issuer(&provider), clock());
    let (good, bad) = (token(&key), token(&evil));
    assert!(is_in(&issuer, &good, &clock).await);
    for round in 1..=3 {
        clock.advance(TRY_AGAIN);
        let all = join_all((0..200).map(|_| is_in(&issuer, &bad, &clock))).await;
        assert!(!all.contains(&true));
        assert_eq!(provider.asked(), 1 + round);
        assert!(is_in(&issuer, &good, &clock).await);
    }
}

#[tokio::test]
async fn keys_are_fetched_again_now_and_then() {
    let (old, new) = (SigningKey::ed("same"), SigningKey::ed("same"));
    let provider = Provider::with(published(&[&old])).await;
    let (issuer, clock) = (Arc::new(issuer(&provider)), clock());
    let fresh = {
        let (issuer, clock) = (issuer.clone(), clock.clone());
        tokio::spawn(async move { issuer.keep_fresh(&clock).await })
    };
    provider.is_asked(1).await;
    assert!(is_in(&issuer, &token(&old), &clock).await);
    provider.answers(published(&[&new]));
    let mut seconds = 0;
    while issuer.identify(&token(&new), &clock).await.is_err() {
        clock.advance(Millis::seconds(100));
        seconds += 100;
        // The clock says when, but the keys come over a real connection.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(seconds <= 80_000, "never fetched again");
    }
    assert!(seconds >= 900, "{seconds}");
    fresh.abort();
}

#[tokio::test]
async fn without_keys_nobody_is_let_in() {
    let key = SigningKey::ed("e");
    let mut provider = Provider::with(published(&[&key])).await;
    provider.go_away();
    let (issuer, clock) = (issuer(&provider), clock());
    assert!(has_no_keys(&issuer, &token(&key), &clock).await);
    let unsigned = issuer.identify("not a token", &clock).await;
    assert!(matches!(unsigned, Err(TokenError::Refused(_))), "what is no token is told without keys");
    provider.come_back().await;
    assert!(has_no_keys(&issuer, &token(&key), &clock).await, "not asked again at once");
    clock.advance(TRY_AGAIN);
    assert!(is_in(&issuer, &token(&key), &clock).await);
}

#[tokio::test]
async fn while_the_provider_is_away_its_keys_are_used_for_a_day() {
    let (key, other) = (SigningKey::ed("e"), SigningKey::ed("o"));
    let mut provider = Provider::with(published(&[&key])).await;
    let (issuer, clock) = (issuer(&provider), clock());
    assert!(is_in(&issuer, &token(&key), &clock).await);
    provider.go_away();
    clock.advance(Millis::hours(24));
    assert!(!is_in(&issuer, &token(&other), &clock).await, "asking in vain changes nothing");
    assert!(is_in(&issuer, &token(&key), &clock).await);
    clock.advance(Millis(1));
    assert!(has_no_keys(&issuer, &token(&key), &clock).await);
    provider.come_back().await;
    clock.advance(TRY_AGAIN);
    assert!(is_in(&issuer, &token(&key), &clock).await);
}

/// What is no set of keys counts as no answer: it lets nobody in, and takes nothing away.
#[tokio::test]
async fn answers_that_are_no_keys() {
    let (key, other) = (SigningKey::ed("e"), SigningKey::ed("o"));
    let padded = json!({"keys": [key.jwk()], "more": "x".repeat(300_000)});
    let many = json!({"keys": vec![key.jwk(); 101]});
    let good = json!({"keys": [key.jwk()]}).to_string();
    for (what, answer) in [
        ("garbage", Answer::Text(200, "<html>log in</html>".into())),
        ("half", Answer::Text(200, good[..good.len() - 2].into())),
        ("no set", Answer::Text(200, "{}".into())),
        ("too large", Answer::Keys(padded)),
        ("too many", Answer::Keys(many)),
        ("an error", Answer::Text(500, good.clone())),
        ("another status", Answer::Text(203, good.clone())),
        ("redirect", Answer::Redirect),
        ("slow", Answer::Slow),
    ] {
        let provider = Provider::with(answer.clone()).await;
        let (issuer, clock) = (issuer(&provider), clock());
        if what != "slow" {
            assert!(has_no_keys(&issuer, &token(&key), &clock).await, "{what}");
            clock.advance(TRY_AGAIN);
        }
        provider.answers(published(&[&key]));
        assert!(is_in(&issuer, &token(&key), &clock).await, "{what}");
        provider.answers(answer);
        clock.advance(TRY_AGAIN);
        assert!(!is_in(&issuer, &token(&other), &clock).await, "{what}");
        assert!(is_in(&issuer, &token(&key), &clock).await, "{what}: the keys of before are still there");
        assert_eq!(provider.followed(), 0, "{what}");
    }
}

/// An empty set is an answer: the provider took its keys back.
#[tokio::test]
async fn keys_that_are_taken_back_open_nothing() {
    let (key, other) = (SigningKey::ed("e"), SigningKey::ed("o"));
    let provider = Provider::with(published(&[&key])).await;
    let (issuer, clock) = (issuer(&provider), clock());
    assert!(is_in(&issuer, &token(&key), &clock).await);
    provider.answers(published(&[]));
    clock.advance(TRY_AGAIN);
    assert!(!is_in(&issuer, &token(&other), &clock).await);
    assert!(!is_in(&issuer, &token(&key), &clock).await);
}
