//! Which client a request comes from, when it comes through a proxy.
//!
//! Anybody can send `X-Forwarded-For` and `Forwarded`, so both are believed only from proxies that the configuration names,
//! and only from their right end: each proxy appends whom it talks to. Whatever stands further left was sent by the client.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the client: the nearest one that is not a trusted proxy. The peer's own where no header says it: one proxy
/// sets one of the two headers and lets the other one pass, so where both are there and differ, neither is believed.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let plain = nearest(headers, &X_FORWARDED_FOR, trusted, |hop| address(hop.trim()));
    let standard = nearest(headers, &axum::http::header::FORWARDED, trusted, for_of);
    match (plain, standard) {
        (Some(plain), Some(standard)) if plain != standard => peer,
        (Some(found), _) | (None, Some(found)) => found,
        (None, None) => peer,
    }
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|network| network.contains(&address))
}

/// The last hop of a header that is not a trusted proxy. None when there is no header, or when a hop cannot be read before one
/// is found: nobody vouches for what stands behind it.
fn nearest(
    headers: &HeaderMap,
    name: &HeaderName,
    trusted: &[IpNet],
    read: impl Fn(&str) -> Option<IpAddr>,
) -> Option<IpAddr> {
    let mut last = None;
    let lines: Vec<&str> = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let hop = read(hop)?;
        if !is_trusted(hop, trusted) {
            return Some(hop.to_canonical());
        }
        last = Some(hop.to_canonical());
    }
    // Nothing but proxies: the request began at the farthest of them.
    last
}

/// `for=…` of one element of `Forwarded`.
fn for_of(element: &str) -> Option<IpAddr> {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(value.trim().trim_matches('"'))
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split_once(']')?.0.parse().ok();
    }
    let without_port = || text.split_once(':').and_then(|(address, _)| address.parse().ok());
    text.parse().ok().or_else(without_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: &str, headers: &[(&'static str, &'static str)]) -> String {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &map, &trusted).to_string()
    }

    /// T37: what a client writes into the headers itself changes nothing.
    #[test]
    fn only_trusted_proxies_say_who_the_client_is_and_only_at_the_right_end() {
        let plain = "x-forwarded-for";
        for (peer, headers, client) in [
            ("192.0.2.9", vec![(plain, "198.51.100.1")], "192.0.2.9"),
            ("10.0.0.1", vec![], "10.0.0.1"),
            ("10.0.0.1", vec![(plain, "198.51.100.1")], "198.51.100.1"),
            ("::ffff:10.0.0.1", vec![(plain, "198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", vec![(plain, "203.0.113.7, 198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", vec![(plain, "203.0.113.7, 198.51.100.1, 10.0.0.2")], "198.51.100.1"),
            ("10.0.0.1", vec![(plain, "203.0.113.7"), (plain, "198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", vec![(plain, "198.51.100.1:4711")], "198.51.100.1"),
            ("10.0.0.1", vec![(plain, "198.51.100.1, nonsense")], "10.0.0.1"),
            ("10.0.0.1", vec![(plain, "nonsense, 198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", vec![(plain, "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
            ("10.0.0.1", vec![(plain, "")], "10.0.0.1"),
            ("10.0.0.1", vec![("forwarded", "for=198.51.100.1;proto=https")], "198.51.100.1"),
            ("10.0.0.1", vec![("forwarded", "for=203.0.113.7, For=\"[2001:db8::1]:80\"")], "2001:db8::1"),
            ("10.0.0.1", vec![("forwarded", "for=_hidden")], "10.0.0.1"),
            ("fd00::1", vec![("forwarded", "proto=https")], "fd00::1"),
            ("10.0.0.1", vec![(plain, "198.51.100.1"), ("forwarded", "for=203.0.113.7")], "10.0.0.1"),
            ("10.0.0.1", vec![(plain, "198.51.100.1"), ("forwarded", "for=198.51.100.1")], "198.51.100.1"),
        ] {
            assert_eq!(seen(peer, &headers), client, "{peer} {headers:?}");
        }
    }
}
