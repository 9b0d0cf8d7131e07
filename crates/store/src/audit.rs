//! What an audit of a store finds, and what an export hands over.
//!
//! What is proven of one run is the same for every backend and stands here; how runs are found and read is the
//! backend's ([`crate::sqlite::verify`], [`crate::postgres::verify`]).

use holdpoint_core::apply;
use holdpoint_core::digest::{self, Digest};
use holdpoint_core::event::Envelope;
use holdpoint_core::id::{RunId, Seq};
use holdpoint_core::link::{Contents, FIRST_PREVIOUS, Link};
use holdpoint_core::run::Run;

use crate::error::StoreError;

/// What was looked at and what was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Runs looked at.
    pub runs: u64,
    /// Links whose hashes were checked.
    pub links: u64,
    /// Events in them.
    pub events: u64,
    /// Runs whose contents were erased; their chains were checked all the same.
    pub erased: u64,
    /// What is wrong, at most one for each run.
    pub findings: Vec<Finding>,
}

/// Something that is wrong with a run. It is quarantined; others are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The run's id, or the number of its row when it has no readable id.
    pub run: String,
    /// What is wrong with it.
    pub what: String,
}

/// The log of a run, as far as it verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The run.
    pub run: RunId,
    /// Its links up to the first that does not verify.
    pub links: Vec<ExportedLink>,
    /// What is wrong with it.
    pub wrong: Option<String>,
}

/// A link with its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedLink {
    /// The link as it is stored.
    pub link: Link,
    /// Its events with large values in place; none when they were erased.
    pub events: Vec<Envelope>,
}

/// What a backend shows of its runs. For one run all of it is of one moment.
pub(crate) trait Evidence {
    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError>;
    fn run(&self, run: RunId) -> Result<Run, StoreError>;
    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError>;
}

/// What was seen of one run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Nobody wanted to look at it.
    pub(crate) is_skipped: bool,
    pub(crate) links: u64,
    pub(crate) events: u64,
    pub(crate) is_erased: bool,
    pub(crate) wrong: Option<String>,
}

impl Report {
    /// Counts a run that was looked at.
    pub(crate) fn add(&mut self, run: RunId, seen: Seen) {
        self.links += seen.links;
        self.events += seen.events;
        self.erased += u64::from(seen.is_erased);
        self.findings.extend(seen.wrong.map(|what| Finding { run: run.to_string(), what }));
    }
}

/// Looks at one run: its chain, its fold, its large values.
pub(crate) fn look_at(evidence: &dyn Evidence, run: RunId) -> Result<Seen, StoreError> {
    let links = evidence.links(run)?;
    let mut seen = Seen { links: links.len() as u64, ..Seen::default() };
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    let mut events: Vec<Envelope> = Vec::new();
    for link in &links {
        let checked = link.verify(previous, next).and_then(|()| link.events());
        match checked {
            Ok(more) => events.extend(more),
            Err(bad) => {
                seen.wrong = Some(bad.to_string());
                return Ok(seen);
            }
        }
        (previous, next) = (link.hash, link.next());
    }
    seen.events = next.0.saturating_sub(1);
    seen.is_erased = links.iter().any(|link| matches!(link.contents, Contents::Erased { .. }));
    let stored = evidence.run(run)?;
    seen.wrong = first_wrong(evidence, &links, &events, &stored, seen.is_erased)?;
    Ok(seen)
}

/// The first thing that the row or the large values say otherwise than the events.
fn first_wrong(
    evidence: &dyn Evidence,
    links: &[Link],
    events: &[Envelope],
    stored: &Run,
    is_erased: bool,
) -> Result<Option<String>, StoreError> {
    let run = stored.facts.id;
    if links.is_empty() {
        return Ok(Some("it has no events".into()));
    }
    if is_erased {
        // Without contents there is nothing to fold; the chain is all that is left to check.
        return Ok(match stored.state.erased {
            true => None,
            false => Some("contents are missing although the run was never erased".into()),
        });
    }
    if apply::fold(run, events).as_ref() != Some(stored) {
        return Ok(Some("its row is not what its events fold into".into()));
    }
    for name in events.iter().flat_map(|envelope| envelope.event.blobs()) {
        let value = evidence.blob(run, name.digest)?;
        if value.is_none_or(|value| digest::of_bytes(value.as_bytes()) != name.digest) {
            return Ok(Some(format!("the large value {} is missing or changed", name.digest)));
        }
    }
    Ok(None)
}

/// Looks at a run and takes what its log says, as far as it verifies; passes over it when only another one is wanted.
pub(crate) fn look_and_export(
    evidence: &dyn Evidence,
    only: Option<RunId>,
    run: RunId,
) -> Result<(Seen, Option<Exported>), StoreError> {
    if only.is_some_and(|only| only != run) {
        return Ok((Seen { is_skipped: true, ..Seen::default() }, None));
    }
    let seen = look_at(evidence, run)?;
    let exported = Exported { run, links: exported(evidence, run)?, wrong: seen.wrong.clone() };
    Ok((seen, Some(exported)))
}

/// The links of a run that verify, with the large values of their events in place.
fn exported(evidence: &dyn Evidence, run: RunId) -> Result<Vec<ExportedLink>, StoreError> {
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    let mut exported = Vec::new();
    for link in evidence.links(run)? {
        let Ok(mut events) = link.verify(previous, next).and_then(|()| link.events()) else { break };
        for envelope in &mut events {
            for name in envelope.event.blobs() {
                // A value that is missing or changed stays a reference; the audit says so beside it.
                if let Some(value) = evidence.blob(run, name.digest)? {
                    let _ = envelope.event.fill(&name, &value);
                }
            }
        }
        (previous, next) = (link.hash, link.next());
        exported.push(ExportedLink { link, events });
    }
    Ok(exported)
}
