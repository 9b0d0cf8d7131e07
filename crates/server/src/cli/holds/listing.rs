//! The list of pending holds: how old each is, what it is about in a line, and ids that may be shortened.
//!
//! Decides nothing. What one hold says in full is `holds.rs`, the list that is looked through with keys `picker.rs`.

use serde_json::value::RawValue;
use standfast_core::time::Timestamp;
use standfast_engine::clock::Clock;
use standfast_surfaces::http::parse_rfc3339;

use super::HoldBody;
use crate::cli::client::{Failure, Server, read, segment};
use crate::cli::plain::{Text, plain, table};

/// Of how many holds the arguments are looked up for the list: a request for each.
pub(super) const SUMMED_UP: usize = 50;

/// Characters of a summary.
const SUMMARY: usize = 48;

/// An id this long is not a shortened one.
const WHOLE: usize = 40;

/// What every id of a hold begins with.
const PREFIX: &str = "hold_";

/// Pending holds as a table.
pub(super) fn rows(server: &Server, items: &[Box<RawValue>]) -> Result<String, Failure> {
    if items.is_empty() {
        return Ok("no pending holds".into());
    }
    let now = Clock::system().now();
    let mut rows = Vec::new();
    for (item, no) in items.iter().zip(0..) {
        let listed: HoldBody = read(item.get())?;
        // What cannot be looked up any more was decided meanwhile.
        let whole = if no < SUMMED_UP { hold(server, listed.id.raw()).ok() } else { None };
        let summary = whole.as_ref().map_or("-".into(), summary);
        let tool = listed.tool.as_ref().map_or("-".into(), Text::to_string);
        let HoldBody { id, kind, agent, .. } = &listed;
        let [id, kind, agent] = [id, kind, agent].map(Text::to_string);
        rows.push(vec![age(&listed, now), kind, tool, agent, summary, id]);
    }
    Ok(table(&["AGE", "KIND", "TOOL", "AGENT", "WHAT", "HOLD"], &rows))
}

/// A hold with everything that is known of it.
pub(super) fn hold(server: &Server, id: &str) -> Result<HoldBody, Failure> {
    read(&server.get(&format!("/holds/{}", segment(id)))?)
}

/// How long a hold has been open.
pub(super) fn age(hold: &HoldBody, now: Timestamp) -> String {
    let Some(opened) = parse_rfc3339(hold.opened_at.raw()) else { return "-".into() };
    let seconds = now.since(opened).0.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// What a hold is about, in one line: the arguments of its call, or its question.
pub(super) fn summary(hold: &HoldBody) -> String {
    let said = hold.arguments_text.as_ref().or(hold.question.as_ref()).map_or("", Text::raw);
    let line = plain(&said.split_whitespace().collect::<Vec<_>>().join(" "));
    match line.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "-".into(),
        None => line,
    }
}

/// The whole id of a pending hold by its beginning, with or without `hold_`. One that fits none is left as it is: the server says
/// what is wrong with it.
pub(super) fn whole_id(server: &Server, id: &str) -> Result<String, Failure> {
    if id.len() >= WHOLE || id.trim_start_matches(PREFIX).is_empty() {
        return Ok(id.to_owned());
    }
    let wanted = if id.starts_with(PREFIX) { id.to_owned() } else { format!("{PREFIX}{id}") };
    let items = server.list("/holds", &[])?;
    let holds: Vec<HoldBody> = items.iter().map(|item| read(item.get())).collect::<Result<_, Failure>>()?;
    let fitting: Vec<&HoldBody> = holds.iter().filter(|hold| hold.id.raw().starts_with(&wanted)).collect();
    match &fitting[..] {
        [] => Ok(id.to_owned()),
        [one] => Ok(one.id.raw().to_owned()),
        several => {
            let ids: Vec<String> = several.iter().take(5).map(|hold| hold.id.to_string()).collect();
            let said = format!(
                "{} fits {} pending holds; write more of it:\n{}",
                plain(id),
                several.len(),
                ids.join("\n")
            );
            Err(Failure::Refused { said, body: String::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_with(arguments: &str) -> HoldBody {
        let hold = serde_json::json!({
            "id": "hold_1", "run": "run_1", "agent": "ops", "session": "s-1", "kind": "approval", "state": "open",
            "opened_at": "2026-01-01T00:00:00Z", "arguments_text": arguments, "revision": 0,
        });
        serde_json::from_str(&hold.to_string()).unwrap()
    }

    #[test]
    fn ages_are_short() {
        let hold = hold_with("{}");
        let opened = parse_rfc3339("2026-01-01T00:00:00Z").unwrap();
        for (seconds, expected) in [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (172_800, "2d")] {
            assert_eq!(age(&hold, Timestamp(opened.0 + seconds * 1000)), expected);
        }
    }

    #[test]
    fn a_summary_is_one_plain_line() {
        assert_eq!(summary(&hold_with("{\"a\":\n  1}")), "{\"a\": 1}");
        assert_eq!(summary(&hold_with("\u{202e}x")), "\\u{202e}x");
        let long = summary(&hold_with(&"x".repeat(100)));
        assert_eq!((long.chars().count(), long.ends_with('…')), (SUMMARY + 1, true));
    }
}
