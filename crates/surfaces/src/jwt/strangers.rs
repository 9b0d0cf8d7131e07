//! Tokens and key sets of strangers: none makes the reader panic, and none but the one that was signed counts (T9, T31).
//!
//! A real key signs one token; every other text is that token with something wrong.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use standfast_testkit::damage::{each, each_text};

use super::jwks::Keys;
use super::token::{MAX_TOKEN, Token};

const SEED: [u8; 32] = [7; 32];

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn key_set(pair: &Ed25519KeyPair) -> String {
    let x = encoded(pair.public_key());
    format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k-1","x":"{x}"}}]}}"#)
}

fn token(pair: &Ed25519KeyPair, header: &str) -> String {
    let claims = r#"{"iss":"https://login.example.org/","aud":["standfast"],"sub":"ann","exp":4102444800,"groups":["a","b"]}"#;
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    let signature = encoded(pair.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// T9, T31: of a token and everything that is nearly it, only what the key has signed is found right.
#[test]
fn t9_no_token_counts_that_was_not_signed() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&SEED).unwrap();
    let keys = Keys::parse(key_set(&pair).as_bytes()).unwrap();
    assert_eq!(keys.len(), 1);
    let named = token(&pair, r#"{"alg":"EdDSA","kid":"k-1","typ":"JWT"}"#);
    let unnamed = token(&pair, r#"{"alg":"EdDSA"}"#);
    let signed = |text: &str| text.rsplit_once('.').map(|(signed, _)| signed.to_owned());
    let right = [signed(&named), signed(&unnamed)];
    let (mut parsed, mut found_right) = (0, 0);
    each_text(&[&named, &unnamed], 30_000, |text| {
        let Ok(token) = Token::parse(text) else { return };
        parsed += 1;
        assert!(text.len() <= MAX_TOKEN && text.starts_with(token.signed));
        let _ = token.claims();
        if keys.check(&token).is_ok() {
            found_right += 1;
            assert!(right.contains(&Some(token.signed.to_owned())), "{text}");
        }
    });
    assert!(parsed > 50 && found_right >= 2, "{parsed} parsed, {found_right} found right");
}

/// T31: a set of keys is read or refused, and none of it is more than it was.
#[test]
fn t31_any_set_of_keys_is_read_or_refused() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&SEED).unwrap();
    let one = key_set(&pair);
    let others = r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"r"},{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","key_ops":["verify"]}]}"#;
    let named = token(&pair, r#"{"alg":"EdDSA","kid":"k-1"}"#);
    let token = Token::parse(&named).unwrap();
    let mut read = 0;
    each(&[one.as_bytes(), others.as_bytes()], 30_000, |bytes| {
        let Ok(keys) = Keys::parse(bytes) else { return };
        read += 1;
        let _ = keys.check(&token);
    });
    assert!(read > 50, "{read}");
}
