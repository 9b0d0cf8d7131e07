//! The log of a run as lines: one for each link, with its events byte for byte.
//!
//! A line that is not exactly what is written here makes its run unreadable, and no other.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::actor::Actor;
use standfast_core::base32;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::{Contents, Header, Link};
use standfast_core::time::Timestamp;

use crate::columns::json;

/// A link. `first` and `count` come first: whoever looks for an event reads no further in the lines before it.
#[derive(Debug, Serialize, Deserialize)]
struct LinkLine {
    first: Seq,
    count: u32,
    at: Timestamp,
    actor: Actor,
    hash: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events: Option<Box<RawValue>>,
    /// Events that were not written the way that this program writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// What is left of events that were erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commitment: Option<Digest>,
}

/// The line of a link, with its line feed.
pub(super) fn line(link: &Link) -> String {
    let Header { first, count, at, actor, .. } = link.header.clone();
    let mut line = LinkLine {
        first,
        count,
        at,
        actor,
        hash: link.hash,
        salt: None,
        events: None,
        payload: None,
        commitment: None,
    };
    match &link.contents {
        Contents::Whole { salt, payload } => {
            line.salt = Some(base32::encode(salt));
            let text = String::from_utf8_lossy(payload).into_owned();
            let is_one_line = !text.contains(['\n', '\r']);
            match RawValue::from_string(text.clone()) {
                Ok(events) if is_one_line && events.get() == text => line.events = Some(events),
                Ok(_) | Err(_) => line.payload = Some(text),
            }
        }
        Contents::Erased { commitment } => line.commitment = Some(*commitment),
    }
    json(&line) + "\n"
}

/// The links of a log that hold the events after `after`, at most `limit`.
pub(super) fn links(run: RunId, bytes: &[u8], after: Seq, limit: usize) -> Result<Vec<Link>, String> {
    let mut links = Vec::new();
    for (no, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if links.len() >= limit {
            break;
        }
        let is_before = span(line).is_some_and(|(first, count)| first.saturating_add(count) <= after.0 + 1);
        if is_before {
            continue;
        }
        let link = link(run, line).map_err(|why| format!("line {}: {why}", no + 1))?;
        if link.next() > after.plus(1) {
            links.push(link);
        }
    }
    Ok(links)
}

/// The first event of a line and how many it has, without reading the rest.
fn span(line: &[u8]) -> Option<(u64, u64)> {
    let text = line.get(..line.len().min(64))?;
    let text = text.strip_prefix(b"{\"first\":")?;
    let (first, text) = number(text)?;
    let (count, _) = number(text.strip_prefix(b",\"count\":")?)?;
    Some((first, count))
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

fn link(run: RunId, line: &[u8]) -> Result<Link, String> {
    if !line.ends_with(b"\n") {
        return Err("it is cut".into());
    }
    let line: LinkLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let payload = line.events.map(|events| String::from(Box::<str>::from(events))).or(line.payload);
    let contents = match (line.salt, payload, line.commitment) {
        (Some(salt), Some(payload), None) => {
            let salt = base32::decode(&salt).ok_or("its salt cannot be read")?;
            Contents::Whole { salt, payload: payload.into_bytes() }
        }
        (None, None, Some(commitment)) => Contents::Erased { commitment },
        (_, _, _) => return Err("it is neither whole nor erased".into()),
    };
    let header = Header { run, first: line.first, count: line.count, at: line.at, actor: line.actor };
    Ok(Link { header, contents, hash: line.hash })
}
