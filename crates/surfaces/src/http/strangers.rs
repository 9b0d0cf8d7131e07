//! Headers and bodies of strangers: cookies, addresses of proxies, times, JSON. None makes its reader panic or believe what it should not (T31, T37).
//!
//! Damaged ones, the same in every run (`standfast_testkit::damage`). What a cookie stands for is the engine's to say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::value::RawValue;
use standfast_core::json::RawJson;
use standfast_testkit::damage::{each, each_text};

use super::cookies::{cookie_of, session_cookie, shown_session};
use super::extract::{is_too_deep, read};
use super::forwarded;
use super::time::{parse_rfc3339, rfc3339};

fn headers(name: header::HeaderName, bytes: &[u8]) -> Option<HeaderMap> {
    let value = HeaderValue::from_bytes(bytes).ok()?;
    Some(HeaderMap::from_iter([(name, value)]))
}

/// T31: a cookie is a part of what was sent, and never empty where it stands for a session.
#[test]
fn t31_any_cookie_is_read_as_it_was_sent() {
    let good: [&[u8]; 2] = [
        b"standfast_csrf=0000; standfast_session=k.abcd1234.0c1g60r30c1g60r30c1g60r30c1g",
        b"a=b; standfast_session=; standfast_session=u.x.y; standfast_csrf=\"q\"",
    ];
    let mut found = 0;
    each(&good, 60_000, |bytes| {
        let Some(headers) = headers(header::COOKIE, bytes) else { return };
        for value in
            [cookie_of(&headers, "standfast_csrf"), session_cookie(&headers), shown_session(&headers)]
        {
            found += usize::from(value.is_some());
            assert!(value.is_none_or(|value| String::from_utf8_lossy(bytes).contains(value)));
        }
        assert!(session_cookie(&headers).is_none_or(|value| !value.is_empty()));
    });
    assert!(found > 50, "{found}");
}

/// T31: the same of the session of a command line, which is shown as a bearer token.
#[test]
fn t31_any_bearer_token_is_read_as_it_was_sent() {
    let mut found = 0;
    each(&[b"Bearer sfs_u.x.y", b"bearer sfs_", b"Basic YTpi"], 20_000, |bytes| {
        let Some(headers) = headers(header::AUTHORIZATION, bytes) else { return };
        let shown = shown_session(&headers);
        found += usize::from(shown.is_some());
        assert!(shown.is_none_or(|value| String::from_utf8_lossy(bytes).contains(value)));
    });
    assert!(found > 50, "{found}");
}

/// T31: what the door takes is an object without two members of one name, no deeper than it may be, and written again it is the same.
#[test]
fn t31_any_body_at_the_door_is_an_object_or_refused() {
    let good: [&[u8]; 4] = [
        br#"{"input":"please","session":"s-1","wait":"settled"}"#,
        br#"{"resolution":"approve_edited","arguments":{"a":[1,2.50,null,{"b":"\u00e9\ud83d\ude00"}],"n":9007199254740993},"revision":2}"#,
        br#"{"a":{"a":{"a":{"a":[[[[[[true]]]]]]}}}}"#,
        br#"[{"input":1}]"#,
    ];
    let (mut taken, mut refused) = (0, 0);
    each(&good, 60_000, |bytes| match read::<BTreeMap<String, Box<RawValue>>>(bytes) {
        Ok(fields) => {
            taken += 1;
            assert!(!is_too_deep(bytes));
            let again = serde_json::to_vec(&fields).unwrap();
            let fields_again = read::<BTreeMap<String, Box<RawValue>>>(&again).unwrap();
            let texts = |fields: &BTreeMap<String, Box<RawValue>>| -> Vec<String> {
                fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect()
            };
            assert_eq!(texts(&fields_again), texts(&fields));
            for json in fields.values().filter_map(|value| RawJson::parse(value.get()).ok()) {
                assert_eq!(RawJson::parse(json.text()).unwrap().text(), json.text());
            }
        }
        Err(_) => refused += 1,
    });
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}

/// T37: whatever the headers say, whoever is no trusted proxy is themselves, and a trusted proxy is never told to be an address that
/// it did not write.
#[test]
fn t37_any_forwarded_header_names_an_address_of_its_own() {
    let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    let (stranger, proxy): (IpAddr, IpAddr) = ("192.0.2.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let good: [&[u8]; 4] = [
        b"203.0.113.7, 198.51.100.1:4711, 10.0.0.2",
        b"for=203.0.113.7, For=\"[2001:db8::1]:80\";proto=https",
        b"[::1]:80, 2001:db8::2",
        b"for=_hidden;by=203.0.113.43",
    ];
    let mut named = 0;
    each(&good, 60_000, |bytes| {
        for name in [header::HeaderName::from_static("x-forwarded-for"), header::FORWARDED] {
            let Some(headers) = headers(name, bytes) else { return };
            assert_eq!(forwarded::client(stranger, &headers, &trusted), stranger);
            named += usize::from(forwarded::client(proxy, &headers, &trusted) != proxy);
        }
    });
    assert!(named > 50, "{named}");
}

/// T31: a time that is taken is one instant, however it was written.
#[test]
fn t31_any_time_is_an_instant_or_none() {
    let mut taken = 0;
    each_text(
        &["2025-11-01T12:26:40.123Z", "2000-02-29T00:00:00Z", "9999-12-31T23:59:59.999999Z"],
        60_000,
        |text| {
            if let Some(at) = parse_rfc3339(text) {
                taken += 1;
                assert_eq!(parse_rfc3339(&rfc3339(at)), Some(at), "{text}");
            }
        },
    );
    assert!(taken > 50, "{taken}");
}
