//! Headers that reports are signed with, damaged: none is half believed (T31).
//!
//! Damaged ones, the same in every run (`standfast_testkit::damage`). Whether a signature is right is the engine's to say.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use standfast_engine::Signature;
use standfast_testkit::damage::each_text;

use super::routes::signature;

/// T31: a signature is one in one of the two ways, with each of its parts as it was sent, or it is none.
#[test]
fn t31_any_headers_of_a_report_are_one_signature_or_none() {
    let good = [
        "webhook-id: msg_1\nwebhook-timestamp: 1762000000\nwebhook-signature: v1,c2lnbmF0dXJl v1a,eHg=",
        "x-webhook-signature: sha256=00ff",
        "webhook-id: msg_1\nwebhook-id: msg_2\nx-webhook-signature: 00ff",
    ];
    let (mut signed, mut refused) = (0, 0);
    each_text(&good, 60_000, |text| {
        let mut headers = HeaderMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let name = HeaderName::try_from(name.trim().to_ascii_lowercase());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                let _ = headers.try_append(name, value);
            }
        }
        let sent = |name: &str, said: &str| {
            let values: Vec<_> = headers.get_all(name).iter().collect();
            values.len() == 1 && values[0].to_str().is_ok_and(|value| value.trim() == said)
        };
        match signature(&headers) {
            Ok(Some(Signature::Plain(said))) => {
                signed += 1;
                assert!(sent("x-webhook-signature", &said), "{text}");
            }
            Ok(Some(Signature::Standard { id, timestamp, signatures })) => {
                signed += 1;
                assert!(sent("webhook-id", &id) && sent("webhook-timestamp", &timestamp), "{text}");
                assert!(sent("webhook-signature", &signatures), "{text}");
            }
            Ok(None) => assert!(!headers.contains_key("webhook-id"), "{text}"),
            Err(_) => refused += 1,
        }
    });
    assert!(signed > 50 && refused > 50, "{signed} signed, {refused} refused");
}
