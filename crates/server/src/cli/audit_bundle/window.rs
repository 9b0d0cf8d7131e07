//! The part of the audit that a bundle is about: what changed between two instants.
//!
//! A run that changed then is there from its first event on, up to the end of the time or to what the first signed head after it names:
//! so its chain verifies by itself. Of what did not change then the signed heads alone speak. Those of the time name each run that changed,
//! so that none can be left out; the last one before it names where each tenant's audit goes on.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use standfast_core::link::Contents;
use standfast_core::time::Timestamp;
use standfast_store::AuditEntry;
use standfast_store::audit::{ExportedLink, ExportedRun};
use standfast_surfaces::http::parse_rfc3339;

/// Between which instants.
#[derive(Debug, Args)]
pub(super) struct TimeRange {
    /// Only what changed from then on: 2026-11-01, or 2026-11-01T12:00:00Z. In UTC.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Timestamp>,
    /// Only what changed before then.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<Timestamp>,
}

/// A day, or an instant.
fn instant(text: &str) -> Result<Timestamp, String> {
    let midnight = || parse_rfc3339(&format!("{text}T00:00:00Z"));
    parse_rfc3339(text).or_else(midnight).ok_or_else(|| {
        format!("{text:?} is no day such as 2026-11-01 and no instant in UTC such as 2026-11-01T12:00:00Z")
    })
}

/// What of a head counts here; that it is signed has been looked at.
#[derive(Deserialize)]
struct HeadLine {
    head: HeadBody,
}

#[derive(Deserialize)]
struct HeadBody {
    at: Timestamp,
    changed: Vec<(String, u64, String)>,
    entries: BTreeMap<String, (u64, String)>,
}

/// The part of the audit that is wanted, and what signed heads say of it.
pub(super) struct Window {
    from: Timestamp,
    to: Timestamp,
    is_whole: bool,
    heads: Option<String>,
    /// The last signed event of each run.
    signed: BTreeMap<String, u64>,
    /// The runs that the heads of the time name.
    changed: BTreeSet<String>,
    /// The last entry of each tenant before the time.
    before: BTreeMap<String, u64>,
}

impl Window {
    /// The part that is wanted of what these heads are about.
    pub(super) fn new(range: &TimeRange, heads: Option<String>) -> Result<Window, String> {
        let (from, to) = (range.from.unwrap_or(Timestamp(i64::MIN)), range.to.unwrap_or(Timestamp(i64::MAX)));
        if from >= to {
            return Err("--from must be before --to".to_owned());
        }
        let is_whole = range.from.is_none() && range.to.is_none();
        let (signed, changed, before) = Default::default();
        let mut window = Window { from, to, is_whole, heads: None, signed, changed, before };
        if let Some(text) = heads {
            window.read(&text)?;
        }
        Ok(window)
    }

    /// Takes the heads up to the first one that was signed after the time.
    fn read(&mut self, text: &str) -> Result<(), String> {
        let mut kept = String::new();
        for line in text.lines() {
            let HeadLine { head } = serde_json::from_str(line)
                .map_err(|error| format!("a signed head cannot be read: {error}"))?;
            kept.push_str(line);
            kept.push('\n');
            let is_before = head.at <= self.from;
            for (run, seq, _) in head.changed {
                if !is_before {
                    self.changed.insert(run.clone());
                }
                self.signed.insert(run, seq);
            }
            if is_before {
                self.before = head.entries.into_iter().map(|(tenant, (no, _))| (tenant, no)).collect();
            }
            if head.at >= self.to {
                break;
            }
        }
        self.heads = Some(kept);
        Ok(())
    }

    /// The signed heads that go into the bundle.
    pub(super) fn heads(&self) -> Option<&str> {
        self.heads.as_deref()
    }

    /// What of a run belongs in; none when it did not change then.
    pub(super) fn part_of(&self, mut exported: ExportedRun) -> Option<ExportedRun> {
        let name = exported.run.to_string();
        let is_of_time = |one: &ExportedLink| (self.from..self.to).contains(&one.link.header.at);
        if !self.changed.contains(&name) && !exported.links.iter().any(is_of_time) {
            return None;
        }
        // The proof of a deletion names the end of the chain.
        let is_erased = |one: &ExportedLink| matches!(one.link.contents, Contents::Erased { .. });
        if !exported.links.iter().any(is_erased) {
            let signed = self.signed.get(&name).copied().unwrap_or_default();
            let end = exported.links.iter().position(|one| {
                let header = &one.link.header;
                header.at >= self.to && header.first.0 > signed
            });
            exported.links.truncate(end.unwrap_or(exported.links.len()));
            exported.values.retain(|digest, _| is_named(&exported.links, &digest.to_string()));
        }
        Some(exported)
    }

    /// Whether an entry of a tenant's audit belongs in. Proofs of deletion may be younger than what was deleted, so those that were written
    /// after the time do too.
    pub(super) fn has_entry(&self, tenant: &str, entry: &AuditEntry) -> bool {
        self.before.get(tenant).is_none_or(|before| entry.no > *before)
    }

    /// What the manifest says of it: milliseconds since 1970.
    pub(super) fn manifest(&self) -> Option<Value> {
        let ms = |Timestamp(ms): Timestamp| (ms != i64::MIN && ms != i64::MAX).then_some(ms);
        (!self.is_whole).then(|| json!({ "from": ms(self.from), "to": ms(self.to) }))
    }
}

/// Whether one of these links names a large value.
fn is_named(links: &[ExportedLink], digest: &str) -> bool {
    links.iter().any(|one| match &one.link.contents {
        Contents::Whole { payload, .. } => {
            payload.windows(digest.len()).any(|part| part == digest.as_bytes())
        }
        Contents::Erased { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(no: u32, at: i64, changed: &[(&str, u64)], entries: u64) -> String {
        let changed: Vec<_> = changed.iter().map(|(run, seq)| json!([run, seq, "hash"])).collect();
        let head = json!({"no": no, "at": at, "changed": changed, "entries": {"default": [entries, "hash"]}});
        format!("{}\n", json!({"head": head, "key": "", "signature": ""}))
    }

    fn window(from: Option<i64>, to: Option<i64>) -> Window {
        let heads = [
            head(1, 100, &[("run_a", 3), ("run_b", 2)], 4),
            head(2, 200, &[("run_a", 5)], 4),
            head(3, 300, &[("run_c", 7)], 6),
            head(4, 400, &[("run_d", 1)], 9),
        ];
        let range = TimeRange { from: from.map(Timestamp), to: to.map(Timestamp) };
        Window::new(&range, Some(heads.concat())).unwrap()
    }

    #[test]
    fn heads_say_what_changed_and_where_the_audit_goes_on() {
        let some = window(Some(150), Some(250));
        let changed: Vec<&str> = some.changed.iter().map(String::as_str).collect();
        // The head after the time may be about the end of it.
        assert_eq!(changed, ["run_a", "run_c"]);
        assert_eq!(some.signed["run_a"], 5);
        assert_eq!(some.heads().unwrap().lines().count(), 3);
        assert_eq!(some.before["default"], 4);
        let entry = |no| AuditEntry {
            no,
            at: Timestamp(0),
            entry: "{}".into(),
            hash: standfast_core::digest::Digest([0; 32]),
        };
        assert!(!some.has_entry("default", &entry(4)) && some.has_entry("default", &entry(5)));
        assert!(some.has_entry("acme", &entry(1)), "a tenant that came later");
        assert_eq!(some.manifest(), Some(json!({"from": 150, "to": 250})));
        let whole = window(None, None);
        assert_eq!((whole.changed.len(), whole.before.len(), whole.manifest()), (4, 0, None));
        assert_eq!(whole.heads().unwrap().lines().count(), 4);
    }

    #[test]
    fn a_time_is_a_day_or_an_instant() {
        assert_eq!(instant("1970-01-02"), Ok(Timestamp(86_400_000)));
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(Timestamp(1000)));
        for text in ["", "yesterday", "2026-02-30", "2026-11-01T12:00"] {
            assert!(instant(text).is_err(), "{text:?}");
        }
        let range = TimeRange { from: Some(Timestamp(2)), to: Some(Timestamp(2)) };
        assert!(Window::new(&range, None).is_err());
    }
}
