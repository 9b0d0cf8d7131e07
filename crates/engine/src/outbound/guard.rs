//! Which addresses tools may call (T11): public ones, and hosts that the configuration names.
//!
//! A name is resolved once, every address that it has is looked at, and the connection goes to exactly those. Nothing is
//! checked by the text of a host alone: `2130706433`, `0x7f.1` and `[::ffff:127.0.0.1]` are all this machine.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::Url;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// How long looking up a name may take.
const LOOK_UP: Duration = Duration::from_secs(10);

/// Where tools may call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guard {
    /// Hosts that may be called whatever their address is: `host`, or `host:port`; in lower case.
    pub allowed_hosts: BTreeSet<String>,
    /// Whether other hosts may be called at all.
    pub others: UnnamedHosts,
}

/// Whether hosts that nobody named may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnnamedHosts {
    /// At public addresses.
    #[default]
    Public,
    /// Not at all.
    Never,
}

/// Why an address is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockReason {
    /// No address that can be called.
    #[error("{url:?} cannot be called: {why}")]
    Url {
        /// As given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A host that nobody named, where only named ones may be called.
    #[error("the host {0:?} is not among the allowed hosts")]
    NotNamed(String),
    /// An address of this machine or of a network that is not public.
    #[error(
        "{host:?} resolves to {address}, which is not a public address; if it may be called, add it to allowed_hosts"
    )]
    NotPublic {
        /// The host.
        host: String,
        /// One of its addresses.
        address: IpAddr,
    },
    /// A name that leads nowhere.
    #[error("{host:?} cannot be resolved: {error}")]
    NoAddress {
        /// The host.
        host: String,
        /// What the system said.
        error: String,
    },
}

/// An address that was checked.
#[derive(Debug, Clone)]
pub struct CheckedAddress {
    /// The whole address.
    pub url: Url,
    /// The host as the client looks it up.
    pub host: String,
    /// What a connection may go to.
    pub addresses: Vec<SocketAddr>,
}

impl Guard {
    /// What can be said without asking anybody: the form, and addresses that are written as numbers.
    pub fn check_text(&self, url: &str) -> Result<Url, BlockReason> {
        let bad = |why: &str| BlockReason::Url { url: url.to_owned(), why: why.to_owned() };
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(bad("it has spaces or control characters"));
        }
        let parsed = Url::parse(url).map_err(|error| bad(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(bad("only http and https"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad("it has a user or a password"));
        }
        let (host, port) = host_and_port(&parsed).ok_or_else(|| bad("it has no host"))?;
        if self.names(&host, port) {
            return Ok(parsed);
        }
        if self.others == UnnamedHosts::Never {
            return Err(BlockReason::NotNamed(host));
        }
        if let Ok(address) = host.parse::<IpAddr>()
            && !is_public(address)
        {
            return Err(BlockReason::NotPublic { host, address });
        }
        Ok(parsed)
    }

    /// Looks up where it leads. If any resolved address is private, all are refused.
    pub async fn check(&self, url: &str) -> Result<CheckedAddress, BlockReason> {
        let url = self.check_text(url)?;
        let Some((host, port)) = host_and_port(&url) else {
            return Err(BlockReason::Url { url: url.to_string(), why: "it has no host".into() });
        };
        let nowhere = |error: String| BlockReason::NoAddress { host: host.clone(), error };
        let found = timeout(LOOK_UP, lookup_host((host.as_str(), port))).await;
        let found = found.map_err(|_| nowhere("the DNS lookup timed out".into()))?;
        let addresses: Vec<SocketAddr> = found.map_err(|error| nowhere(error.to_string()))?.collect();
        if addresses.is_empty() {
            return Err(nowhere("the answer is empty".into()));
        }
        if !self.names(&host, port)
            && let Some(address) = addresses.iter().map(SocketAddr::ip).find(|address| !is_public(*address))
        {
            return Err(BlockReason::NotPublic { host, address });
        }
        Ok(CheckedAddress { url, host, addresses })
    }

    /// Whether the host of an address is named.
    #[must_use]
    pub fn is_named(&self, url: &Url) -> bool {
        host_and_port(url).is_some_and(|(host, port)| self.names(&host, port))
    }

    fn names(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.');
        self.allowed_hosts.contains(host) || self.allowed_hosts.contains(&format!("{host}:{port}"))
    }
}

fn host_and_port(url: &Url) -> Option<(String, u16)> {
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    (!host.is_empty()).then_some((host, url.port_or_known_default()?))
}

/// Whether an address is one of the public internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Ranges of IPv4 that are not public, from the registry of special addresses.
const CLOSED_V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Ranges below the public one of IPv6 (2000::/3) that are not: tunnels that lead to any IPv4, documentation, protocols.
const CLOSED_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !CLOSED_V4.iter().any(|(first, bits)| Ipv4Net::new(*first, *bits).is_ok_and(|net| net.contains(&address)))
}

/// Only what is handed out as public. An IPv4 address inside (mapped, NAT64) is outside of that, and so is not.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let inside = |first: Ipv6Addr, bits| Ipv6Net::new(first, bits).is_ok_and(|net| net.contains(&address));
    inside(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        && !CLOSED_V6.iter().any(|(first, bits)| inside(*first, *bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> impl Iterator<Item = &str> {
        text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// T11: 100 addresses and more that lead inside, however they are written, and what hides where it leads.
    #[tokio::test]
    async fn t11_no_way_of_writing_an_inside_address_is_called() {
        let (guard, mut count) = (Guard::default(), 0);
        for url in addresses(include_str!("corpus/inside.txt")) {
            let checked = guard.check(url).await;
            assert!(checked.is_err(), "{url} would be called: {checked:?}");
            count += 1;
        }
        assert!(count >= 100, "{count}");
    }

    /// T11: nobody is kept from what is public, and what is named is called wherever it is.
    #[tokio::test]
    async fn t11_public_and_named_addresses_are_called() {
        let guard = Guard::default();
        for url in addresses(include_str!("corpus/outside.txt")) {
            assert!(guard.check(url).await.is_ok(), "{url}");
        }
        let named = Guard { allowed_hosts: ["127.0.0.1".to_owned()].into(), ..Guard::default() };
        assert!(named.check("http://127.0.0.1:8080/").await.is_ok());
        assert!(named.check("http://127.0.0.2:8080/").await.is_err());
        let never = Guard { others: UnnamedHosts::Never, ..Guard::default() };
        assert!(never.check("https://1.1.1.1/").await.is_err());
    }
}
