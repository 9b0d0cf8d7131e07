//! Signatures of reports: which are right, and every way in which one is not (T10, S2-21, S2-39).
//!
//! The vectors are written out; what they mean is the standard's.

use super::*;

const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const AT: i64 = 1_614_265_330;

fn secrets() -> Vec<String> {
    vec![format!("whsec_{SECRET}")]
}

fn standard(id: &str, timestamp: &str, signatures: &str) -> Signature {
    let text = |text: &str| text.to_owned();
    Signature::Standard { id: text(id), timestamp: text(timestamp), signatures: text(signatures) }
}

fn now(seconds: i64) -> Timestamp {
    Timestamp((AT + seconds) * 1000)
}

/// T10: the vector of the standard's own libraries, and what is near it and wrong.
#[test]
fn a_standard_webhook_is_checked() {
    let (id, at) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", AT.to_string());
    let right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let checked =
        |signature: &Signature, body: &[u8], at: i64| verify(signature, body, &secrets(), now(at)).is_ok();
    assert!(checked(&standard(id, &at, right), BODY, 0));
    // Several signatures, as while the sender changes its secret.
    assert!(checked(&standard(id, &at, &format!("v1,AAAA v1a,BBBB {right}")), BODY, 0));
    // The edges of what is still now.
    for (seconds, expected) in [(300, true), (-300, true), (301, false), (-301, false), (86_400, false)] {
        assert_eq!(checked(&standard(id, &at, right), BODY, seconds), expected, "{seconds}");
    }
    for (id, at, signatures, body) in [
        ("msg_other", at.as_str(), right, BODY),
        (id, "1614265331", right, BODY),
        (id, "soon", right, BODY),
        (id, "", right, BODY),
        ("", at.as_str(), right, BODY),
        ("a.b", at.as_str(), right, BODY),
        (id, at.as_str(), "", BODY),
        (id, at.as_str(), "v1,", BODY),
        (id, at.as_str(), "v1,not base64", BODY),
        (id, at.as_str(), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
        (id, at.as_str(), "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
        (id, at.as_str(), right, br#"{"test":2432232314}"#),
        (id, at.as_str(), right, b""),
        (id, at.as_str(), right, b"{\"test\": 2432232314}\n"),
        (id, at.as_str(), right, b" {\"test\": 2432232314}"),
        (id, "+1614265330", right, BODY),
        (id, "01614265330", right, BODY),
        (id, " 1614265330", right, BODY),
        (id, "1614265330.0", right, BODY),
        (id, "1614265330000", right, BODY),
        (id, "-1614265330", right, BODY),
        (id, "9223372036854775808", right, BODY),
        ("msg_p5jXN8AQM9LWM0D4loKWxJek ", at.as_str(), right, BODY),
        ("MSG_P5JXN8AQM9LWM0D4LOKWXJEK", at.as_str(), right, BODY),
        (id, at.as_str(), "v1, g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
        (id, at.as_str(), "V1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
        (id, at.as_str(), "v1=g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
        (id, at.as_str(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE", BODY),
        (id, at.as_str(), "v1,g0hM9SsE-OTPJTGt_tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
        (id, at.as_str(), "v1,AAAA,v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY),
    ] {
        assert!(!checked(&standard(id, at, signatures), body, 0), "{id} {at} {signatures}");
    }
    // The secret in its other spelling, beside a new one, and others.
    let keyed = |secrets: &[&str]| {
        let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        verify(&standard(id, &at, right), BODY, &secrets, now(0)).is_ok()
    };
    assert!(keyed(&[SECRET]) && keyed(&["whsec_bmV3", &format!("whsec_{SECRET}")]));
    assert!(!keyed(&["whsec_bmV3"]) && !keyed(&[&SECRET.to_lowercase()]) && !keyed(&[""]) && !keyed(&[]));
}

/// T10, T31: with any one bit of a header or of the body changed nothing is signed any more.
#[test]
fn t10_no_bit_of_a_standard_webhook_can_change() {
    let (id, at) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", AT.to_string());
    let right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let changed = |good: &[u8]| -> Vec<Vec<u8>> {
        let bits = (0..good.len() * 8).map(|bit| {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        bits.collect()
    };
    let texts = |good: &str| changed(good.as_bytes()).into_iter().filter_map(|it| String::from_utf8(it).ok());
    let is_right = |signature: &Signature, body: &[u8]| verify(signature, body, &secrets(), now(0)).is_ok();
    assert!(is_right(&standard(id, &at, right), BODY));
    for id in texts(id) {
        assert!(!is_right(&standard(&id, &at, right), BODY), "{id}");
    }
    for at in texts(&at) {
        assert!(!is_right(&standard(id, &at, right), BODY), "{at}");
    }
    for signature in texts(right) {
        assert!(!is_right(&standard(id, &at, &signature), BODY), "{signature}");
    }
    for body in changed(BODY) {
        assert!(!is_right(&standard(id, &at, right), &body), "{body:?}");
    }
}

/// S2-21, S2-39: the plain header over the raw bytes, with the new secret or the one before it.
#[test]
fn a_plain_signature_is_checked() {
    // printf '{"pendingID":"hold_1"}' | openssl dgst -sha256 -hmac 'old secret'
    let body = br#"{"pendingID":"hold_1"}"#;
    let signed = |secret: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(body);
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let secrets = ["new secret".to_owned(), "old secret".to_owned()];
    let checked =
        |text: &str, body: &[u8]| verify(&Signature::Plain(text.into()), body, &secrets, now(0)).is_ok();
    for secret in &secrets {
        assert!(checked(&signed(secret), body));
        assert!(checked(&format!("sha256={}", signed(secret)), body));
    }
    let right = signed("new secret");
    for wrong in [
        String::new(),
        "sha256=".into(),
        signed("another secret"),
        right[..63].into(),
        format!("{right}0"),
        format!("sha1={right}"),
        right.replace(|c: char| c.is_ascii_digit(), "z"),
    ] {
        assert!(!checked(&wrong, body), "{wrong}");
    }
    // The same value, written otherwise.
    assert!(!checked(&right, br#"{ "pendingID": "hold_1" }"#));
    assert!(verify(&Signature::Plain(right), body, &[], now(0)).is_err(), "no secret, no signature");
}
