//! Tokens of an identity provider: what they must be, and whom they stand for.
//!
//! Nothing of a token is believed before its signature is checked: its header only says which of the provider's keys
//! to try, and never brings one along. Only signatures that the provider alone can make are taken, so no algorithm with
//! a shared secret. A name that is there twice makes a token unreadable: two readers could understand two things.

use std::collections::BTreeSet;
use std::fmt;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use standfast_core::name::{GroupName, RoleName, Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Identification, NamedScope, Principal, Scope, ScopeLimits};

/// How long a token may be. Room for some hundred groups, and little to read for nothing.
pub const MAX_TOKEN: usize = 16 * 1024;

/// How long the name of a key may be.
const MAX_KEY_ID: usize = 256;

/// The algorithms that are taken.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// What the claims of a token must be, and which of them say whom it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    /// What `iss` must be.
    pub issuer: String,
    /// What `aud` must be or contain.
    pub audience: String,
    /// How far the clocks may be apart.
    pub skew: Millis,
    /// The claim with the user.
    pub user_claim: String,
    /// The claim with the groups.
    pub groups_claim: String,
    /// The claim with the roles.
    pub roles_claim: String,
    /// The claim with the tenant; none: everyone is of the tenant of the server.
    pub tenant_claim: Option<String>,
}

/// Why a token opens nothing. For the log: callers are not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is too long.
    #[error("it has {0} bytes, and {MAX_TOKEN} are allowed")]
    TooLong(usize),
    /// It has not three parts, or one of them cannot be read.
    #[error("its {0} cannot be read")]
    Unreadable(&'static str),
    /// Its algorithm is not taken.
    #[error("its algorithm {0:?} is not supported")]
    Algorithm(String),
    /// It wants something to be understood that is not.
    #[error("its header has `crit`, which is not supported")]
    Critical,
    /// Its key is none of the provider's.
    #[error("the identity provider has no key {} for it", .0.as_deref().map_or("without a name".to_owned(), |id| format!("{id:?}")))]
    UnknownKey(Option<String>),
    /// Its key is for other algorithms.
    #[error("its algorithm does not match its key")]
    WrongKind,
    /// The key did not sign it.
    #[error("its signature is wrong")]
    Signature,
    /// A claim is missing or of another kind than it must be.
    #[error("its claim `{0}` is missing or cannot be read")]
    Claim(String),
    /// Somebody else issued it.
    #[error("another issuer made it")]
    Issuer,
    /// It is for somebody else.
    #[error("it is for another audience")]
    Audience,
    /// It has ended.
    #[error("it has expired")]
    Expired,
    /// It is not valid yet.
    #[error("it is not valid yet")]
    NotYet,
    /// It is not for what it was shown for.
    #[error("it is a token of another kind")]
    Kind,
    /// It was issued to another client.
    #[error("it was issued to another client")]
    Party,
    /// It belongs to another sign-in.
    #[error("its nonce is not that of this sign-in")]
    Nonce,
    /// The person signed in too long ago, or it does not say when.
    #[error("it does not say that the person has just signed in")]
    Stale,
}

/// A token whose signature has yet to be checked.
#[derive(Debug)]
pub(super) struct Token<'a> {
    /// What is signed: header and claims as they were sent.
    pub(super) signed: &'a str,
    /// The signature as it was sent.
    pub(super) signature: &'a str,
    /// What the header says of both.
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// What it says that it is.
    pub(super) kind: Option<String>,
    claims: &'a str,
}

impl<'a> Token<'a> {
    /// Takes a token apart.
    pub(super) fn parse(text: &'a str) -> Result<Token<'a>, TokenRefusal> {
        if text.len() > MAX_TOKEN {
            return Err(TokenRefusal::TooLong(text.len()));
        }
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        let [header, claims, signature] = parts[..] else {
            return Err(TokenRefusal::Unreadable("three parts"));
        };
        let signed = text.get(..header.len() + 1 + claims.len()).unwrap_or_default();
        let header = object(header).ok_or(TokenRefusal::Unreadable("header"))?;
        if header.contains_key("crit") {
            return Err(TokenRefusal::Critical);
        }
        let named = header.get("alg").and_then(Value::as_str).ok_or(TokenRefusal::Unreadable("algorithm"))?;
        let algorithm = ALGORITHMS.iter().find(|(name, _)| *name == named).map(|(_, algorithm)| *algorithm);
        let unknown = || TokenRefusal::Algorithm(named.chars().take(20).collect());
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) if id.len() <= MAX_KEY_ID => Some(id.clone()),
            Some(_) => return Err(TokenRefusal::Unreadable("key id")),
        };
        let kind = header.get("typ").and_then(Value::as_str).map(str::to_ascii_lowercase);
        Ok(Token { signed, signature, algorithm: algorithm.ok_or_else(unknown)?, key_id, kind, claims })
    }

    pub(super) fn claims(&self) -> Result<Value, TokenRefusal> {
        Ok(Value::Object(object(self.claims).ok_or(TokenRefusal::Unreadable("claims"))?))
    }

    /// Whom it stands for at this instant. Only for tokens whose signature was found right.
    pub(super) fn principal(&self, rules: &TokenRules, now: Timestamp) -> Result<Principal, TokenRefusal> {
        let claims = self.claims()?;
        let expires_at = check(&claims, rules, now)?;
        // A logout token has the same issuer and may have the same audience, and stands for nobody.
        if claims.get("events").is_some() || self.kind.as_deref().is_some_and(|kind| kind.contains("logout"))
        {
            return Err(TokenRefusal::Kind);
        }
        // Without a time of issue the later end tells the later token.
        let issued_at = instant(&claims, "iat").ok().flatten().unwrap_or(expires_at);
        let named = |name: &str| TokenRefusal::Claim(name.to_owned());
        // An address that nobody has verified is a name that anybody can give themselves.
        let is_unverified = matches!(claims.get("email_verified"), Some(Value::Bool(false)));
        if rules.user_claim == "email" && is_unverified {
            return Err(named("email_verified"));
        }
        let user = claim(&claims, &rules.user_claim).and_then(Value::as_str);
        let user = user.and_then(|user| UserId::new(user).ok()).ok_or_else(|| named(&rules.user_claim))?;
        let groups = words(&claims, &rules.groups_claim)?.unwrap_or_default();
        let roles = words(&claims, &rules.roles_claim)?.unwrap_or_default();
        // Whoever is of no tenant, or of one whose name cannot be one, is nobody here: never of the usual one.
        let tenant = match &rules.tenant_claim {
            Some(name) => {
                let text = claim(&claims, name).and_then(Value::as_str);
                text.and_then(|text| Tenant::new(text).ok())
                    .ok_or_else(|| TokenRefusal::Claim(name.clone()))?
            }
            None => Tenant::default_tenant(),
        };
        let (scopes, limits) = scopes(&claims)?;
        // A group whose name cannot be one names nobody here, so leaving it out takes nothing but rights.
        Ok(Principal {
            tenant,
            by: Identification::Token {
                issued_at,
                expires_at: expires_at.plus(rules.skew),
                signed_in_at: instant(&claims, "auth_time")?,
            },
            groups: groups.iter().filter_map(|name| GroupName::new(name).ok()).collect(),
            roles: roles.iter().filter_map(|name| RoleName::new(name).ok()).collect(),
            scopes,
            limits,
            ..Principal::of(user)
        })
    }
}

/// When the token expires, if it is one that counts now.
fn check(claims: &Value, rules: &TokenRules, now: Timestamp) -> Result<Timestamp, TokenRefusal> {
    if claims.get("iss").and_then(Value::as_str) != Some(rules.issuer.as_str()) {
        return Err(TokenRefusal::Issuer);
    }
    if !is_meant(claims, &rules.audience) {
        return Err(TokenRefusal::Audience);
    }
    let expires_at = instant(claims, "exp")?.ok_or_else(|| TokenRefusal::Claim("exp".to_owned()))?;
    if now >= expires_at.plus(rules.skew) {
        return Err(TokenRefusal::Expired);
    }
    match instant(claims, "nbf")? {
        Some(from) if now.plus(rules.skew) < from => Err(TokenRefusal::NotYet),
        Some(_) | None => Ok(expires_at),
    }
}

pub(super) fn is_meant(claims: &Value, audience: &str) -> bool {
    match claims.get("aud") {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(list)) => list.iter().any(|one| one.as_str() == Some(audience)),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => false,
    }
}

/// Seconds since 1970, with or without a fraction.
pub(super) fn instant(claims: &Value, name: &str) -> Result<Option<Timestamp>, TokenRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let whole = value.as_i64().map(|seconds| seconds.saturating_mul(1000));
    // Up to here a fraction of a number of milliseconds is exact enough, and the cast keeps it.
    let fits = |millis: &f64| millis.abs() < 9e15;
    let millis =
        whole.or_else(|| value.as_f64().map(|seconds| seconds * 1000.0).filter(fits).map(|n| n as i64));
    millis.map(|millis| Some(Timestamp(millis))).ok_or_else(|| TokenRefusal::Claim(name.to_owned()))
}

/// What a token may be used for. One that says nothing of it is good for the usual; one that does only for what it
/// names, and names of other servers' scopes give nothing here.
fn scopes(claims: &Value) -> Result<(BTreeSet<Scope>, ScopeLimits), TokenRefusal> {
    let named = match words(claims, "scope")? {
        Some(named) => Some(named),
        None => words(claims, "scp")?,
    };
    let Some(named) = named else { return Ok((Scope::usual(), ScopeLimits::default())) };
    Ok(ScopeLimits::of(named.iter().filter_map(|name| name.parse::<NamedScope>().ok())))
}

/// A list of texts, or a text with spaces between them.
fn words(claims: &Value, name: &str) -> Result<Option<Vec<String>>, TokenRefusal> {
    let unreadable = || TokenRefusal::Claim(name.to_owned());
    match claim(claims, name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.split_ascii_whitespace().map(str::to_owned).collect())),
        Some(Value::Array(list)) => {
            let texts = list.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(unreadable));
            texts.collect::<Result<_, _>>().map(Some)
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(unreadable()),
    }
}

/// A claim by its name, or by a JSON pointer when the name begins with a slash: `/realm_access/roles`.
fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) }
}

/// An object in base64, in which no name is there twice.
fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).ok()?;
    match serde_json::from_slice::<Unique>(&bytes).ok()?.0 {
        Value::Object(map) => Some(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// A JSON value in which no name is there twice, at any depth.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON in which no name is there twice")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
                let mut values = Vec::new();
                while let Some(Unique(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(Value::Array(values))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
                let mut map = Map::new();
                while let Some((name, Unique(value))) = members.next_entry::<String, Unique>()? {
                    if map.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name is there twice"));
                    }
                }
                Ok(Value::Object(map))
            }
        }
        deserializer.deserialize_any(V).map(Unique)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> TokenRules {
        TokenRules {
            issuer: "https://login.example/".into(),
            audience: "standfast".into(),
            skew: Millis::seconds(60),
            user_claim: "sub".into(),
            groups_claim: "groups".into(),
            roles_claim: "roles".into(),
            tenant_claim: None,
        }
    }

    fn encoded(text: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(text)
    }

    fn header(text: &str) -> Result<Option<String>, TokenRefusal> {
        Token::parse(&format!("{}.e30.AAAA", encoded(text))).map(|token| token.key_id)
    }

    /// Whom these claims stand for, beside the four that every token needs, at the second 1000.
    fn stands_for(more: Value) -> Result<Principal, TokenRefusal> {
        let mut claims =
            json!({"iss": "https://login.example/", "aud": "standfast", "sub": "ann", "exp": 2000});
        for (name, value) in more.as_object().unwrap() {
            if value.is_null() {
                drop(claims.as_object_mut().unwrap().remove(name))
            } else {
                claims[name] = value.clone()
            }
        }
        claims_stand_for(&claims.to_string(), &rules())
    }

    fn claims_stand_for(claims: &str, rules: &TokenRules) -> Result<Principal, TokenRefusal> {
        let text = format!("{}.{}.AAAA", encoded(r#"{"alg":"ES256"}"#), encoded(claims));
        Token::parse(&text)?.principal(rules, Timestamp(1_000_000))
    }

    /// T16: with a claim for the tenant, a token is of the tenant that it names and of no other; without a name of nobody's.
    #[test]
    fn a_token_is_of_the_tenant_that_it_names() {
        let of = |rules: &TokenRules, tenant: Value| {
            let claims = json!({"iss": "https://login.example/", "aud": "standfast", "sub": "ann", "exp": 2000,
                "iat": 900, "org": {"id": tenant}});
            claims_stand_for(&claims.to_string(), rules)
        };
        let named = TokenRules { tenant_claim: Some("/org/id".into()), ..rules() };
        let who = of(&named, json!("acme")).unwrap();
        assert_eq!(who.tenant, Tenant::new("acme").unwrap());
        let by = Identification::Token {
            issued_at: Timestamp(900_000),
            expires_at: Timestamp(2_060_000),
            signed_in_at: None,
        };
        assert_eq!(who.by, by);
        for tenant in [json!(null), json!(""), json!(7), json!(["acme"]), json!("a\nb")] {
            assert_eq!(of(&named, tenant.clone()), Err(TokenRefusal::Claim("/org/id".into())), "{tenant}");
        }
        assert_eq!(of(&rules(), json!("acme")).unwrap().tenant, Tenant::default_tenant());
    }

    /// T9: shared secrets and unsigned tokens are refused before any key is looked at, in whatever spelling.
    #[test]
    fn only_the_providers_signatures_are_taken() {
        for name in
            ["none", "None", "NONE", "nOnE", "", "HS256", "HS384", "HS512", "rs256", "ES512", "ES256K", "dir"]
        {
            let refused = header(&format!(r#"{{"alg":"{name}"}}"#)).unwrap_err();
            assert_eq!(refused, TokenRefusal::Algorithm(name.into()));
        }
        for (name, _) in ALGORITHMS {
            assert_eq!(header(&format!(r#"{{"alg":"{name}","kid":"a"}}"#)), Ok(Some("a".into())));
        }
    }

    #[test]
    fn a_header_that_could_be_read_in_two_ways_is_not_read() {
        for text in [
            r#"{"alg":"RS256","alg":"none"}"#,
            r#"{"alg":"none","alg":"RS256"}"#,
            r#"{"alg":"RS256","kid":7}"#,
            r#"{"alg":"RS256","kid":null}"#,
            r#"{"alg":["RS256"]}"#,
            r#"{"kid":"a"}"#,
            r#"["RS256"]"#,
            r#"{"alg":"RS256""#,
            &format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "k".repeat(257)),
        ] {
            assert!(matches!(header(text), Err(TokenRefusal::Unreadable(_))), "{text}");
        }
        assert_eq!(header(r#"{"alg":"RS256","crit":["b64"],"b64":false}"#), Err(TokenRefusal::Critical));
        for text in ["", "a", "a.b", "..", "a.b.c", "e30.e30.e30.e30", "sf_1_2", "é.é.é"] {
            assert!(matches!(Token::parse(text), Err(TokenRefusal::Unreadable(_))), "{text}");
        }
        assert!(matches!(Token::parse(&"a.".repeat(MAX_TOKEN)), Err(TokenRefusal::TooLong(_))));
    }

    #[test]
    fn the_claims_that_every_token_needs() {
        assert!(stands_for(json!({})).is_ok());
        for (more, refused) in [
            (json!({"iss": null}), TokenRefusal::Issuer),
            (json!({"iss": "https://login.example"}), TokenRefusal::Issuer),
            (json!({"iss": ["https://login.example/"]}), TokenRefusal::Issuer),
            (json!({"aud": null}), TokenRefusal::Audience),
            (json!({"aud": "standfast2"}), TokenRefusal::Audience),
            (json!({"aud": []}), TokenRefusal::Audience),
            (json!({"aud": {"standfast": 1}}), TokenRefusal::Audience),
            (json!({"exp": null}), TokenRefusal::Claim("exp".into())),
            (json!({"exp": "2000"}), TokenRefusal::Claim("exp".into())),
            (json!({"exp": 1e300}), TokenRefusal::Claim("exp".into())),
            (json!({"exp": 940}), TokenRefusal::Expired),
            (json!({"exp": i64::MIN}), TokenRefusal::Expired),
            (json!({"nbf": 1061}), TokenRefusal::NotYet),
            (json!({"nbf": "soon"}), TokenRefusal::Claim("nbf".into())),
            (json!({"sub": null}), TokenRefusal::Claim("sub".into())),
            (json!({"sub": ""}), TokenRefusal::Claim("sub".into())),
            (json!({"sub": 7}), TokenRefusal::Claim("sub".into())),
            (json!({"sub": "a\nb"}), TokenRefusal::Claim("sub".into())),
            (json!({"groups": 7}), TokenRefusal::Claim("groups".into())),
            (json!({"groups": ["a", 7]}), TokenRefusal::Claim("groups".into())),
            (json!({"roles": {"admin": true}}), TokenRefusal::Claim("roles".into())),
            (json!({"scope": true}), TokenRefusal::Claim("scope".into())),
            (json!({"auth_time": "now"}), TokenRefusal::Claim("auth_time".into())),
            (json!({"events": {}}), TokenRefusal::Kind),
        ] {
            assert_eq!(stands_for(more.clone()), Err(refused), "{more}");
        }
        for more in [
            json!({"aud": ["other", "standfast"]}),
            json!({"exp": 941}),
            json!({"exp": 940.5}),
            json!({"exp": i64::MAX}),
            json!({"nbf": 1060}),
            json!({"nbf": 0}),
        ] {
            assert!(stands_for(more.clone()).is_ok(), "{more}");
        }
    }

    #[test]
    fn a_claim_that_is_there_twice_is_not_read() {
        let claims =
            r#"{"iss":"https://login.example/","aud":"standfast","exp":2000,"sub":"ann","sub":"root"}"#;
        assert_eq!(claims_stand_for(claims, &rules()), Err(TokenRefusal::Unreadable("claims")));
        let claims = r#"{"iss":"https://login.example/","aud":"standfast","exp":2000,"sub":"ann","x":[{"a":1,"a":2}]}"#;
        assert_eq!(claims_stand_for(claims, &rules()), Err(TokenRefusal::Unreadable("claims")));
    }

    #[test]
    fn claims_become_a_principal() {
        let who = stands_for(json!({
            "groups": ["finance", "On Call", "", "a\nb"], "roles": "lead  admin", "scope": "openid runs:read holds:decide"
        }))
        .unwrap();
        let names = |list: Vec<&str>| list.join(",");
        assert_eq!(who.user.as_str(), "ann");
        assert_eq!(names(who.groups.iter().map(GroupName::as_str).collect()), "On Call,finance");
        assert_eq!(names(who.roles.iter().map(RoleName::as_str).collect()), "admin,lead");
        assert_eq!(who.scopes, BTreeSet::from([Scope::RunsRead, Scope::HoldsDecide]));
    }

    #[test]
    fn scopes_of_a_token() {
        let scopes = |more| stands_for(more).unwrap().scopes;
        let read = BTreeSet::from([Scope::RunsRead]);
        assert_eq!(scopes(json!({})), Scope::usual());
        let narrowed = stands_for(
            json!({"scope": "runs:read holds:decide:ops inbox:work:mail inbox:work holds:decide:"}),
        )
        .unwrap();
        assert!(narrowed.has_for(Scope::HoldsDecide, "ops") && !narrowed.has_for(Scope::HoldsDecide, "pay"));
        assert!(narrowed.has_for(Scope::RunsRead, "pay") && narrowed.has_for(Scope::InboxWork, "desk"));
        assert_eq!(scopes(json!({"scp": ["runs:read"]})), read);
        assert_eq!(scopes(json!({"scp": "runs:read email"})), read);
        assert_eq!(scopes(json!({"scope": "runs:read", "scp": "admin"})), read, "the first one counts");
        for none in [json!({"scope": ""}), json!({"scope": "openid email"}), json!({"scp": []})] {
            assert_eq!(scopes(none.clone()), BTreeSet::new(), "{none}");
        }
    }

    #[test]
    fn claims_may_have_other_names() {
        let rules = TokenRules {
            user_claim: "email".into(),
            groups_claim: "https://example.org/groups".into(),
            roles_claim: "/realm_access/roles".into(),
            ..rules()
        };
        let claims = json!({
            "iss": "https://login.example/", "aud": "standfast", "exp": 2000, "sub": "1", "email": "ann@example.org",
            "https://example.org/groups": ["finance"], "realm_access": {"roles": ["lead"]},
        });
        let who = claims_stand_for(&claims.to_string(), &rules).unwrap();
        assert_eq!(who.user.as_str(), "ann@example.org");
        assert_eq!((who.groups.len(), who.roles.len()), (1, 1));
        let mut unverified = claims.clone();
        unverified["email_verified"] = false.into();
        let refused = claims_stand_for(&unverified.to_string(), &rules);
        assert_eq!(refused, Err(TokenRefusal::Claim("email_verified".into())));
    }
}
