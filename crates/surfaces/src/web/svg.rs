//! Pictures that the server draws: the timeline of a run, bars and lines of charts. Plain SVG, without script, fonts or links.
//!
//! Every text passes one escape. Colours come from classes of the page's own style where a picture stands in a page, and
//! from a style of its own where it is kept as a file.

use std::fmt::Write as _;

use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldKey;
use standfast_core::project::{ResolutionKind, hold_of};
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use crate::labels;
use crate::labels::hidden_characters::visible;

/// Events that a picture of a timeline has at most.
const EVENTS_MAX: usize = 400;
const ROW: usize = 22;
/// Characters of a name in a chart.
const NAME_MAX: usize = 24;

/// What a picture that is kept as a file looks like.
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1a2129}.q{fill:#56616d}rect.g{fill:#fff}\
     line{stroke:#d8dde3}circle{fill:#56616d}.person,.agent{fill:#14598c}.waits{fill:#b06a00}\
     .decided{fill:#17653a}.bad{fill:#a3271f}\
     @media (prefers-color-scheme:dark){text{fill:#e7ebef}.q{fill:#a3aeba}rect.g{fill:#12161b}line{stroke:#343d47}}";

/// A text that may stand in a picture.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A run as a picture: one line an event, with how long after the start it was.
pub(super) fn timeline(run: &Run, log: &[Envelope], now: Timestamp) -> String {
    let left_out = log.len().saturating_sub(EVENTS_MAX);
    let shown = &log[left_out..];
    let kinds: Vec<(HoldKey, HoldKind)> = log
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::HoldOpened(opened) => Some((opened.hold, opened.kind)),
            _ => None,
        })
        .collect();
    let height = 70 + ROW * (shown.len() + 1 + usize::from(left_out > 0));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{height}\" viewBox=\"0 0 860 {height}\" role=\"img\">\
         <title>Timeline of run {id}</title><style>{STYLE}</style><rect class=\"g\" width=\"860\" height=\"{height}\"/>\
         <text x=\"20\" y=\"26\" font-weight=\"bold\">{agent}: {status}</text><text class=\"q\" x=\"20\" y=\"44\">{id}</text>\
         <line x1=\"130\" y1=\"60\" x2=\"130\" y2=\"{end}\"/>",
        id = escaped(&run.facts.id.to_string()),
        agent = escaped(run.facts.agent.as_str()),
        status = super::pages::run::status_text(run),
        end = height - 16,
    );
    let mut y = 70;
    if left_out > 0 {
        let text = format!("… {left_out} earlier events are not in this picture");
        let _ = write!(out, "<text class=\"q\" x=\"146\" y=\"{}\">{}</text>", y + 4, escaped(&text));
        y += ROW;
    }
    for envelope in shown {
        let after = labels::span(envelope.at.since(run.facts.started_at));
        let hold = hold_of(&envelope.event);
        let kind = kinds.iter().find(|(key, _)| Some(*key) == hold).map(|(_, kind)| *kind);
        let title = labels::describe(&envelope.event, kind).title;
        let short: String = title.chars().take(80).collect();
        let _ = write!(
            out,
            "<text class=\"q\" x=\"116\" y=\"{text}\" text-anchor=\"end\">+{after}</text>\
             <circle class=\"{tone}\" cx=\"130\" cy=\"{y}\" r=\"5\"/><text x=\"146\" y=\"{text}\">{short}</text>",
            text = y + 4,
            tone = tone(&envelope.event),
            short = escaped(&short),
        );
        y += ROW;
    }
    let last = match run.outcome() {
        Some(_) => String::new(),
        None => format!("now, +{}", labels::span(now.since(run.facts.started_at))),
    };
    let _ = write!(out, "<text class=\"q\" x=\"146\" y=\"{}\">{}</text></svg>", y + 4, escaped(&last));
    out
}

/// What stands out.
pub(super) fn tone(event: &Event) -> &'static str {
    match event {
        Event::HoldOpened(_) | Event::CallOrphaned(_) | Event::CallContradicted(_) => "waits",
        Event::HoldResolved(resolved) => match ResolutionKind::from(&resolved.resolution) {
            ResolutionKind::Approved | ResolutionKind::Edited | ResolutionKind::Answered => "decided",
            ResolutionKind::Denied | ResolutionKind::Failed => "bad",
            ResolutionKind::Expired | ResolutionKind::Withdrawn | ResolutionKind::Superseded => "over",
        },
        Event::HoldVoted(_) | Event::HoldEdited(_) => "decided",
        Event::MessageReceived(_) | Event::MessageQueued(_) => "person",
        Event::ModelReplied(_) => "agent",
        Event::ModelFailed(_) => "bad",
        Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallFinished(_) => "call",
        Event::RunStarted(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::RunEnded(_)
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_) => "over",
    }
}

/// The highest value of an axis, beside it as the 0 is; one that has no room there stands within.
fn scale(most: u64) -> String {
    let place = if most < 100 { "x=\"34\" y=\"20\" text-anchor=\"end\"" } else { "x=\"46\" y=\"20\"" };
    format!("<text {place}>{most}</text>")
}

/// A line over time: values at equal distances, with the first and last instant below.
pub(super) fn line(title: &str, values: &[u64], ends: (&str, &str)) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 160.0;
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let step = WIDTH / f64::from(u32::try_from(values.len().max(2) - 1).unwrap_or(u32::MAX));
    let mut points = String::new();
    for (at, value) in values.iter().enumerate() {
        let x = 40.0 + step * f64::from(u32::try_from(at).unwrap_or(u32::MAX));
        let y = 10.0 + HEIGHT * (1.0 - share(*value, most));
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 700 214\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>\
         <line class=\"axis\" x1=\"40\" y1=\"170\" x2=\"680\" y2=\"170\"/><line class=\"axis\" x1=\"40\" y1=\"10\" x2=\"40\" y2=\"170\"/>\
         {scale}<text x=\"34\" y=\"172\" text-anchor=\"end\">0</text>\
         <text x=\"40\" y=\"200\">{first}</text><text x=\"680\" y=\"200\" text-anchor=\"end\">{last}</text>\
         <polygon class=\"area\" points=\"40,170 {points}680,170\"/><polyline class=\"line\" points=\"{points}\"/></svg>",
        title = escaped(title),
        scale = scale(most),
        first = escaped(ends.0),
        last = escaped(ends.1),
    )
}

/// Columns over time: how many in each of equal parts, with the first and last instant below.
pub(super) fn columns(title: &str, values: &[u64], ends: (&str, &str)) -> String {
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let step = 640.0 / f64::from(u32::try_from(values.len().max(1)).unwrap_or(u32::MAX));
    let mut columns = String::new();
    for (at, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
        let x = 40.0 + step * f64::from(u32::try_from(at).unwrap_or(u32::MAX)) + step * 0.1;
        let height = 100.0 * share(*value, most);
        let _ = write!(
            columns,
            "<rect class=\"c-expired\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            110.0 - height,
            step * 0.8
        );
    }
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 700 156\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>\
         <line class=\"axis\" x1=\"40\" y1=\"110\" x2=\"680\" y2=\"110\"/><line class=\"axis\" x1=\"40\" y1=\"10\" x2=\"40\" y2=\"110\"/>\
         {scale}<text x=\"34\" y=\"112\" text-anchor=\"end\">0</text>\
         <text x=\"40\" y=\"140\">{first}</text><text x=\"680\" y=\"140\" text-anchor=\"end\">{last}</text>{columns}</svg>",
        title = escaped(title),
        scale = scale(most),
        first = escaped(ends.0),
        last = escaped(ends.1),
    )
}

/// A part of a bar: how much, and the class that colours it.
pub(super) struct BarPart {
    pub(super) value: u64,
    pub(super) class: &'static str,
}

/// A bar with its name and what stands behind it.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) parts: Vec<BarPart>,
    pub(super) text: String,
}

/// Bars below each other, all on one scale; name and figures stand above each, so that there is room for both on a phone.
pub(super) fn bars(title: &str, bars: &[Bar]) -> String {
    let total = |bar: &Bar| bar.parts.iter().map(|part| part.value).sum::<u64>();
    let most = bars.iter().map(total).max().unwrap_or_default().max(1);
    let height = 10 + 52 * bars.len();
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 700 {height}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>",
        title = escaped(title)
    );
    for (at, bar) in bars.iter().enumerate() {
        let y = 4 + 52 * at;
        let short: String = bar.name.chars().take(NAME_MAX).collect();
        let more = if short.len() < bar.name.len() { "…" } else { "" };
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{line}\">{name}{more}</text>\
             <text class=\"q\" x=\"700\" y=\"{line}\" text-anchor=\"end\">{text}</text>",
            line = y + 19,
            name = escaped(&short),
            text = escaped(&bar.text)
        );
        let mut x = 0.0;
        for part in &bar.parts {
            let width = 700.0 * share(part.value, most);
            let _ = write!(
                out,
                "<rect class=\"{}\" x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"18\"/>",
                part.class,
                y + 27
            );
            x += width;
        }
    }
    out.push_str("</svg>");
    out
}

/// A part of a whole, between 0 and 1.
fn share(part: u64, whole: u64) -> f64 {
    let thousandths = part.saturating_mul(1000) / whole.max(1);
    f64::from(u32::try_from(thousandths).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what was approved or answered looks like it.
    #[test]
    fn a_decision_looks_like_what_it_was() {
        let tone_of = |resolution: serde_json::Value| {
            let hold =
                HoldKey { call: standfast_core::id::CallNo(1), secret: standfast_core::id::Secret([1; 16]) };
            let resolved =
                serde_json::from_value(serde_json::json!({"hold": hold, "resolution": resolution}));
            tone(&Event::HoldResolved(resolved.unwrap()))
        };
        for (resolution, expected) in [
            (serde_json::json!({"approve": {}}), "decided"),
            (serde_json::json!({"deny": {}}), "bad"),
            (serde_json::json!("withdraw"), "over"),
            (serde_json::json!("expire"), "over"),
            (serde_json::json!("supersede"), "over"),
        ] {
            assert_eq!(tone_of(resolution.clone()), expected, "{resolution}");
        }
    }

    /// T20: whatever stands in a name, a picture has no markup of its own.
    #[test]
    fn texts_in_pictures_are_escaped() {
        let name = "</text><script>alert(1)</script>\u{202e}\"'";
        let bar =
            Bar { name: name.into(), parts: vec![BarPart { value: 3, class: "good" }], text: name.into() };
        let picture = bars(name, &[bar]);
        assert!(!picture.contains("<script") && !picture.contains('\u{202e}'), "{picture}");
        assert!(line(name, &[1, 2], (name, "b")).contains("&lt;script"));
        assert!(!line("a", &[], ("", "")).contains("NaN"));
    }
}
