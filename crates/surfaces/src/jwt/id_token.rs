//! ID tokens and logout tokens of an identity provider (OpenID Connect): what they must be beyond what every token must.
//!
//! Whom the claims of an ID token stand for is told by the same function as for bearer tokens, `token.rs`. Nonce and age are
//! compared by whoever knows what was asked for: `sign_in_client.rs`.

use serde_json::Value;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{LogoutNotice, Principal};

use super::token::{Token, TokenRefusal, TokenRules, instant, is_meant};

/// What an ID token says, beside whom it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdToken {
    /// Whom it stands for.
    pub(super) who: Principal,
    /// The provider's own name of them.
    pub(super) subject: String,
    /// The provider's session.
    pub(super) session: Option<String>,
    pub(super) nonce: Option<String>,
    pub(super) signed_in_at: Option<Timestamp>,
}

/// The event that a logout token is about.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// How long after it was issued a logout token counts.
const LOGOUT_COUNTS: Millis = Millis::seconds(10 * 60);

impl Token<'_> {
    /// What an ID token for this client says at this instant. Only for tokens whose signature was found right.
    pub(super) fn id_token(
        &self,
        rules: &TokenRules,
        client: &str,
        now: Timestamp,
    ) -> Result<IdToken, TokenRefusal> {
        let rules = TokenRules { audience: client.to_owned(), ..rules.clone() };
        let who = self.principal(&rules, now)?;
        let claims = self.claims()?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        // Several audiences need a word about which of them asked (OpenID Connect Core, 3.1.3.7).
        let is_for_several =
            claims.get("aud").and_then(Value::as_array).is_some_and(|audiences| audiences.len() > 1);
        match (text("azp"), claims.get("azp")) {
            (Some(party), _) if party == client => {}
            (None, None) if !is_for_several => {}
            (Some(_) | None, _) => return Err(TokenRefusal::Party),
        }
        instant(&claims, "iat")?.ok_or_else(|| TokenRefusal::Claim("iat".to_owned()))?;
        let subject = text("sub").filter(|subject| !subject.is_empty());
        Ok(IdToken {
            who,
            subject: subject.ok_or_else(|| TokenRefusal::Claim("sub".to_owned()))?,
            session: text("sid"),
            nonce: text("nonce"),
            signed_in_at: instant(&claims, "auth_time")?,
        })
    }

    /// Whose sessions a logout token for one of these clients ends (OpenID Connect Back-Channel Logout, 2.6).
    pub(super) fn logout(
        &self,
        rules: &TokenRules,
        clients: &[&str],
        now: Timestamp,
    ) -> Result<LogoutNotice, TokenRefusal> {
        let claims = self.claims()?;
        let is_event =
            claims.get("events").and_then(|events| events.get(LOGOUT_EVENT)).is_some_and(Value::is_object);
        let is_kind =
            matches!(self.kind.as_deref(), None | Some("logout+jwt" | "application/logout+jwt" | "jwt"));
        if !is_event || !is_kind || claims.get("nonce").is_some() {
            return Err(TokenRefusal::Kind);
        }
        if claims.get("iss").and_then(Value::as_str) != Some(rules.issuer.as_str()) {
            return Err(TokenRefusal::Issuer);
        }
        if !clients.iter().any(|client| is_meant(&claims, client)) {
            return Err(TokenRefusal::Audience);
        }
        let issued_at = instant(&claims, "iat")?.ok_or_else(|| TokenRefusal::Claim("iat".to_owned()))?;
        if issued_at > now.plus(rules.skew) {
            return Err(TokenRefusal::NotYet);
        }
        let is_over = instant(&claims, "exp")?.is_some_and(|end| now >= end.plus(rules.skew));
        if is_over || now.since(issued_at) >= LOGOUT_COUNTS {
            return Err(TokenRefusal::Expired);
        }
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        // One that names a session alone cannot be found by the name of somebody.
        let subject = text("sub").ok_or_else(|| TokenRefusal::Claim("sub".to_owned()))?;
        Ok(LogoutNotice { subject, provider_session: text("sid") })
    }
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn rules() -> TokenRules {
        TokenRules {
            issuer: "https://login.example".into(),
            audience: "api".into(),
            skew: Millis::seconds(60),
            user_claim: "sub".into(),
            groups_claim: "groups".into(),
            roles_claim: "roles".into(),
            tenant_claim: None,
        }
    }

    fn token(header: &Value, claims: &Value, more: &Value) -> String {
        let mut claims = claims.clone();
        for (name, value) in more.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let encoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.AAAA", encoded(header), encoded(&claims))
    }

    fn id_token(more: Value) -> Result<IdToken, TokenRefusal> {
        let claims = json!({"iss": "https://login.example", "aud": "web", "sub": "1", "exp": 2000, "iat": 999,
            "nonce": "n", "auth_time": 990, "sid": "s"});
        let text = token(&json!({"alg": "ES256"}), &claims, &more);
        Token::parse(&text)?.id_token(&rules(), "web", NOW)
    }

    fn logout(header: Value, more: Value) -> Result<LogoutNotice, TokenRefusal> {
        let claims = json!({"iss": "https://login.example", "aud": "web", "sub": "1", "iat": 999, "jti": "j",
            "exp": 1100, "events": {LOGOUT_EVENT: {}}, "sid": "s"});
        let text = token(&header, &claims, &more);
        Token::parse(&text)?.logout(&rules(), &["web", "cli"], NOW)
    }

    #[test]
    fn what_an_id_token_must_say() {
        let good = id_token(json!({})).unwrap();
        assert_eq!(
            (good.subject.as_str(), good.nonce.as_deref(), good.session.as_deref()),
            ("1", Some("n"), Some("s"))
        );
        assert_eq!(good.signed_in_at, Some(Timestamp(990_000)));
        for (more, refused) in [
            (json!({"aud": "api"}), TokenRefusal::Audience),
            (json!({"aud": "cli"}), TokenRefusal::Audience),
            (json!({"iss": "https://evil.example"}), TokenRefusal::Issuer),
            (json!({"exp": 900}), TokenRefusal::Expired),
            (json!({"iat": null}), TokenRefusal::Claim("iat".into())),
            (json!({"aud": ["web", "api"]}), TokenRefusal::Party),
            (json!({"aud": ["web", "api"], "azp": "api"}), TokenRefusal::Party),
            (json!({"azp": "api"}), TokenRefusal::Party),
            (json!({"azp": 7}), TokenRefusal::Party),
            (json!({"auth_time": "now"}), TokenRefusal::Claim("auth_time".into())),
            (json!({"events": {LOGOUT_EVENT: {}}}), TokenRefusal::Kind),
        ] {
            assert_eq!(id_token(more.clone()), Err(refused), "{more}");
        }
        for more in
            [json!({"azp": "web"}), json!({"aud": ["web"]}), json!({"aud": ["web", "api"], "azp": "web"})]
        {
            assert!(id_token(more.clone()).is_ok(), "{more}");
        }
    }

    #[test]
    fn what_a_logout_token_must_say() {
        let header = || json!({"alg": "ES256", "typ": "logout+jwt"});
        let good = LogoutNotice { subject: "1".into(), provider_session: Some("s".into()) };
        assert_eq!(logout(header(), json!({})), Ok(good.clone()));
        assert_eq!(logout(json!({"alg": "ES256"}), json!({"exp": null, "aud": ["cli"]})), Ok(good));
        for (more, refused) in [
            (json!({"nonce": "n"}), TokenRefusal::Kind),
            (json!({"events": null}), TokenRefusal::Kind),
            (json!({"events": {"other": {}}}), TokenRefusal::Kind),
            (json!({"events": LOGOUT_EVENT}), TokenRefusal::Kind),
            (json!({"iss": "https://evil.example"}), TokenRefusal::Issuer),
            (json!({"aud": "api"}), TokenRefusal::Audience),
            (json!({"iat": null}), TokenRefusal::Claim("iat".into())),
            (json!({"iat": 300, "exp": null}), TokenRefusal::Expired),
            (json!({"exp": 900}), TokenRefusal::Expired),
            (json!({"iat": 1070}), TokenRefusal::NotYet),
            (json!({"sub": null}), TokenRefusal::Claim("sub".into())),
        ] {
            assert_eq!(logout(header(), more.clone()), Err(refused), "{more}");
        }
        assert_eq!(logout(json!({"alg": "ES256", "typ": "at+jwt"}), json!({})), Err(TokenRefusal::Kind));
    }

    /// A logout token is signed by the same keys and is nobody's token.
    #[test]
    fn a_logout_token_lets_nobody_in() {
        let claims = json!({"iss": "https://login.example", "aud": "api", "sub": "1", "exp": 2000});
        let text = token(&json!({"alg": "ES256", "typ": "logout+jwt"}), &claims, &json!({}));
        assert_eq!(Token::parse(&text).unwrap().principal(&rules(), NOW), Err(TokenRefusal::Kind));
    }
}
