//! What must never be let in, whatever it looks like, beside what must.
//!
//! The clock stands still: tokens are valid or over to the second.

use std::collections::BTreeSet;

use aws_lc_rs::hmac;
use serde_json::{Value, json};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::clock::Clock;
use standfast_surfaces::jwt::{Issuer, IssuerSettings, TokenError, TokenRefusal, TokenRules};

use crate::provider::{AUDIENCE, ISSUER, Provider, SigningKey, encoded, published};

/// The second that it is.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn clock() -> Clock {
    Clock::standing_at(Timestamp(NOW * 1000))
}

pub(crate) fn issuer(provider: &Provider) -> Issuer {
    let rules = TokenRules {
        issuer: ISSUER.into(),
        audience: AUDIENCE.into(),
        skew: Millis::seconds(60),
        user_claim: "sub".into(),
        groups_claim: "groups".into(),
        roles_claim: "roles".into(),
        tenant_claim: None,
    };
    let (refresh, max_age) = (Millis::seconds(900), Millis::hours(24));
    let jwks_url = Some(provider.jwks_url());
    Issuer::new(IssuerSettings { jwks_url, refresh, max_age, rules, sign_in: None }).unwrap()
}

/// Claims of Ann, with these beside or instead.
pub(crate) fn claims(more: Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": NOW, "exp": NOW + 300});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

async fn refused(issuer: &Issuer, token: &str) -> TokenRefusal {
    match issuer.identify(token, &clock()).await {
        Err(TokenError::Refused(why)) => why,
        other => panic!("{other:?} for {token}"),
    }
}

#[tokio::test]
async fn every_algorithm_that_is_taken() {
    let keys = [SigningKey::rsa("r"), SigningKey::p256("p"), SigningKey::p384("q"), SigningKey::ed("e")];
    let provider = Provider::with(published(&keys.each_ref())).await;
    let issuer = issuer(&provider);
    let [rsa, p256, p384, ed] = &keys;
    let rsa_ones = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map(|name| (rsa, name));
    for (key, algorithm) in rsa_ones.into_iter().chain([(p256, "ES256"), (p384, "ES384"), (ed, "EdDSA")]) {
        let claims = claims(json!({"groups": ["finance"], "scope": "runs:read"}));
        let token = key.token_by(algorithm, &claims);
        let who: Principal = issuer.identify(&token, &clock()).await.unwrap();
        assert_eq!((who.user.as_str(), who.groups.len()), ("ann", 1), "{algorithm}");
        assert_eq!(who.scopes, BTreeSet::from([Scope::RunsRead]));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let other = key.token_by(algorithm, &json!({"sub": "root"}));
        let (_, foreign) = other.rsplit_once('.').unwrap();
        for wrong in [foreign, "", &signature[4..], &encoded([0; 64])] {
            assert_eq!(
                refused(&issuer, &format!("{signed}.{wrong}")).await,
                TokenRefusal::Signature,
                "{algorithm}"
            );
        }
    }
    assert_eq!(provider.asked(), 1, "the keys are fetched once");
}

/// Unsigned, signed with what everybody knows, signed with a key that came along, signed by somebody else.
#[tokio::test]
async fn signatures_that_anybody_can_make() {
    let (key, evil) = (SigningKey::rsa("r"), SigningKey::rsa("r"));
    let provider = Provider::with(published(&[&key])).await;
    let issuer = issuer(&provider);
    let claims = claims(json!({})).to_string();
    let signed = |algorithm: &str| {
        format!("{}.{}", encoded(json!({"alg": algorithm, "kid": "r"}).to_string()), encoded(&claims))
    };
    for algorithm in ["none", "None", "nOnE"] {
        for token in [format!("{}.", signed(algorithm)), format!("{}.AAAA", signed(algorithm))] {
            assert_eq!(refused(&issuer, &token).await, TokenRefusal::Algorithm(algorithm.into()));
        }
    }
    let jwk = key.jwk();
    for secret in [jwk.to_string(), jwk["n"].as_str().unwrap().to_owned(), String::new()] {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = encoded(hmac::sign(&secret, signed("HS256").as_bytes()));
        let token = format!("{}.{signature}", signed("HS256"));
        assert_eq!(refused(&issuer, &token).await, TokenRefusal::Algorithm("HS256".into()));
    }
    let with = |header: Value| evil.sign("RS256", &header.to_string(), &claims);
    let (jwk, url) = (evil.jwk(), format!("http://{}/elsewhere", provider.address));
    for (header, why) in [
        (json!({"alg": "RS256", "kid": "r"}), TokenRefusal::Signature),
        (json!({"alg": "RS256", "kid": "r", "jwk": jwk}), TokenRefusal::Signature),
        (json!({"alg": "RS256", "kid": "r", "jku": url, "x5u": url}), TokenRefusal::Signature),
        (json!({"alg": "RS256", "jwk": jwk}), TokenRefusal::UnknownKey(None)),
        (json!({"alg": "RS256", "kid": "r", "crit": ["exp"]}), TokenRefusal::Critical),
    ] {
        assert_eq!(refused(&issuer, &with(header.clone())).await, why, "{header}");
    }
    assert_eq!(provider.followed(), 0, "no address in a token is ever called");
}

/// The name of a key is compared and nothing else.
#[tokio::test]
async fn names_of_keys_are_only_names() {
    let (rsa, p256) = (SigningKey::rsa("r"), SigningKey::p256("p"));
    let mut narrow = rsa.jwk();
    narrow["alg"] = "RS512".into();
    let keys = json!({"keys": [narrow, p256.jwk(), {"kty": "oct", "kid": "o", "k": "AAAA"}]});
    let provider = Provider::with(crate::provider::Answer::Keys(keys)).await;
    let issuer = issuer(&provider);
    let claims = claims(json!({})).to_string();
    for id in
        ["../../etc/passwd", "/dev/null", "r' OR '1'='1", "http://127.0.0.1/keys", "R", "", "r\u{0}", "o"]
    {
        let header = json!({"alg": "RS512", "kid": id}).to_string();
        let why = refused(&issuer, &rsa.sign("RS512", &header, &claims)).await;
        assert_eq!(why, TokenRefusal::UnknownKey(Some(id.into())));
    }
    for (key, id, algorithm) in [(&rsa, "r", "RS256"), (&rsa, "p", "RS512"), (&p256, "r", "ES256")] {
        let header = json!({"alg": algorithm, "kid": id}).to_string();
        assert_eq!(refused(&issuer, &key.sign(algorithm, &header, &claims)).await, TokenRefusal::WrongKind);
    }
    let unnamed = rsa.sign("RS512", r#"{"alg":"RS512"}"#, &claims);
    assert!(issuer.identify(&unnamed, &clock()).await.is_ok(), "one key alone can be meant");
}

#[tokio::test]
async fn claims_that_are_wrong_though_they_are_signed() {
    let key = SigningKey::ed("e");
    let provider = Provider::with(published(&[&key])).await;
    let issuer = issuer(&provider);
    for (more, why) in [
        (json!({"iss": "https://login.example"}), TokenRefusal::Issuer),
        (json!({"aud": "somebody-else"}), TokenRefusal::Audience),
        (json!({"aud": ["a", "b"]}), TokenRefusal::Audience),
        (json!({"exp": NOW - 60}), TokenRefusal::Expired),
        (json!({"nbf": NOW + 61}), TokenRefusal::NotYet),
        (json!({"exp": null}), TokenRefusal::Claim("exp".into())),
        (json!({"sub": ["ann"]}), TokenRefusal::Claim("sub".into())),
    ] {
        assert_eq!(refused(&issuer, &key.token(&claims(more.clone()))).await, why, "{more}");
    }
    for more in [
        json!({"aud": ["a", AUDIENCE]}),
        json!({"exp": NOW - 59}),
        json!({"nbf": NOW + 60}),
        json!({"exp": NOW as f64 + 0.5}),
    ] {
        let token = key.token(&claims(more.clone()));
        assert!(issuer.identify(&token, &clock()).await.is_ok(), "{more}");
    }
    let twice = claims(json!({})).to_string().replace(r#""sub":"ann""#, r#""sub":"ann","sub":"root""#);
    let token = key.sign("EdDSA", r#"{"alg":"EdDSA","kid":"e"}"#, &twice);
    assert_eq!(refused(&issuer, &token).await, TokenRefusal::Unreadable("claims"));
    let long = key.token(&claims(json!({"more": "x".repeat(20_000)})));
    assert_eq!(refused(&issuer, &long).await, TokenRefusal::TooLong(long.len()));
}
