//! What a server measures of itself, for `/metrics`: how long appends take, how long people take, what is pending.
//!
//! Histograms and counters are recorded where things happen, by watching the store's writer. What is pending is asked of the
//! store when somebody scrapes. Labels are kinds, agents and states, never ids.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use standfast_core::hold::HoldKind;
use standfast_core::name::AgentName;
use standfast_core::project::{HoldChange, HoldClosure, HoldRow, Phase, ResolutionKind};
use standfast_core::time::Timestamp;
use standfast_store::{Counts, Observer};

use crate::clock::Stopwatch;

const HOLDS_OPEN: &str = "standfast_holds_open";
const OLDEST_AGE: &str = "standfast_hold_oldest_age_seconds";
const DECISION: &str = "standfast_hold_decision_seconds";
const EXPIRED: &str = "standfast_holds_expired_total";
const RUNS: &str = "standfast_runs";
const APPEND: &str = "standfast_append_seconds";
const BATCH: &str = "standfast_append_batch_size";
const STORE_UP: &str = "standfast_store_up";
const DELIVERIES: &str = "standfast_deliveries_total";
const BUILD: &str = "standfast_build_info";

/// A commit takes from a tenth of a millisecond to, on a bad day, seconds.
const APPEND_BUCKETS: [f64; 13] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const BATCH_BUCKETS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// A decision takes from seconds to weeks.
const DECISION_BUCKETS: [f64; 11] =
    [1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0];

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// What a server measures of itself.
pub struct Telemetry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    stopwatch: Stopwatch,
    append: Histogram,
    batch: Histogram,
    /// In the order of [`HoldKind::ALL`].
    decisions: Vec<Histogram>,
    expired: Counter,
    delivered: Counter,
    delivery_failed: Counter,
    delivery_dead: Counter,
    /// Kinds and agents that had open holds: they are reported once more when they have none left.
    seen: Mutex<BTreeSet<(AgentName, HoldKind)>>,
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry::new()
    }
}

impl Telemetry {
    /// Nothing measured yet.
    #[must_use]
    pub fn new() -> Telemetry {
        let recorder = match builder() {
            Ok(builder) => builder.build_recorder(),
            Err(error) => unreachable!("no list of buckets is empty: {error}"),
        };
        describe(&recorder);
        let histogram = |key: Key| recorder.register_histogram(&key, &METADATA);
        let of_kind =
            |kind: HoldKind| histogram(Key::from_parts(DECISION, vec![Label::new("kind", kind.as_str())]));
        let version = vec![Label::new("version", env!("CARGO_PKG_VERSION"))];
        recorder.register_gauge(&Key::from_parts(BUILD, version), &METADATA).set(1.0);
        let expired = recorder.register_counter(&Key::from_name(EXPIRED), &METADATA);
        expired.absolute(0);
        let deliveries = |result: &'static str| {
            let key = Key::from_parts(DELIVERIES, vec![Label::new("result", result)]);
            let counter = recorder.register_counter(&key, &METADATA);
            counter.absolute(0);
            counter
        };
        Telemetry {
            handle: recorder.handle(),
            stopwatch: Stopwatch::start(),
            append: histogram(Key::from_name(APPEND)),
            batch: histogram(Key::from_name(BATCH)),
            decisions: HoldKind::ALL.into_iter().map(of_kind).collect(),
            expired,
            delivered: deliveries("delivered"),
            delivery_failed: deliveries("failed"),
            delivery_dead: deliveries("dead"),
            seen: Mutex::default(),
            recorder,
        }
    }

    /// A receiver took an event.
    pub fn delivered(&self) {
        self.delivered.increment(1);
    }

    /// A receiver did not; it is tried again.
    pub fn delivery_failed(&self) {
        self.delivery_failed.increment(1);
    }

    /// A delivery failed and was given up.
    pub fn delivery_dead(&self) {
        self.delivery_dead.increment(1);
    }

    /// Everything as Prometheus reads it. Without counts the store did not answer.
    #[must_use]
    pub fn render(&self, counts: Option<&Counts>, now: Timestamp) -> String {
        self.gauge(STORE_UP, vec![]).set(f64::from(u8::from(counts.is_some())));
        if let Some(counts) = counts {
            self.set_runs(counts);
            self.set_holds(counts, now);
        }
        self.handle.render()
    }

    /// Sums up what was measured again and again, so that it does not pile up while nobody scrapes.
    pub async fn keep_up(&self, every: std::time::Duration) {
        loop {
            tokio::time::sleep(every).await;
            self.handle.run_upkeep();
        }
    }

    fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    fn set_runs(&self, counts: &Counts) {
        let state = |word: &'static str| self.gauge(RUNS, vec![Label::new("state", word)]);
        for phase in Phase::ALL {
            state(phase_word(phase)).set(number(counts.runs.get(&phase).copied().unwrap_or(0)));
        }
        state("quarantined").set(number(counts.quarantined));
    }

    fn set_holds(&self, counts: &Counts, now: Timestamp) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(counts.holds.iter().map(|holds| (holds.agent.clone(), holds.kind)));
        for (agent, kind) in seen.iter() {
            let found = counts.holds.iter().find(|holds| holds.agent == *agent && holds.kind == *kind);
            let labels = vec![Label::new("kind", kind.as_str()), Label::new("agent", agent.to_string())];
            self.gauge(HOLDS_OPEN, labels.clone()).set(number(found.map_or(0, |holds| holds.count)));
            let oldest = found.and_then(|holds| holds.oldest);
            self.gauge(OLDEST_AGE, labels).set(oldest.map_or(0.0, |at| seconds(at, now)));
        }
    }

    fn decided(&self, row: &HoldRow, closed: &HoldClosure) {
        match closed.how {
            ResolutionKind::Expired => self.expired.increment(1),
            // The end of the run or a newer message is nobody's decision.
            ResolutionKind::Withdrawn | ResolutionKind::Superseded => {}
            ResolutionKind::Approved
            | ResolutionKind::Edited
            | ResolutionKind::Denied
            | ResolutionKind::Answered
            | ResolutionKind::Failed => {
                let of_kind =
                    HoldKind::ALL.into_iter().zip(&self.decisions).find(|(kind, _)| *kind == row.kind);
                if let Some((_, histogram)) = of_kind {
                    histogram.record(seconds(row.opened_at, closed.at));
                }
            }
        }
    }
}

impl Observer for Telemetry {
    fn now(&self) -> u64 {
        self.stopwatch.micros()
    }

    fn committed(&self, appends: usize) {
        self.batch.record(number(appends as u64));
    }

    fn appended(&self, handed_over: u64, holds: &[HoldChange]) {
        let micros = self.stopwatch.micros().saturating_sub(handed_over);
        self.append.record(number(micros) / 1e6);
        for change in holds {
            match change {
                HoldChange::Close(row) => {
                    if let Some(closed) = &row.closed {
                        self.decided(row, closed);
                    }
                }
                HoldChange::Open(_) | HoldChange::Update(_) => {}
            }
        }
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let of = |name: &str| Matcher::Full(name.to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(of(APPEND), &APPEND_BUCKETS)?
        .set_buckets_for_metric(of(BATCH), &BATCH_BUCKETS)?
        .set_buckets_for_metric(of(DECISION), &DECISION_BUCKETS)
}

fn describe(recorder: &PrometheusRecorder) {
    for (name, words) in [
        (HOLDS_OPEN, "Open holds."),
        (OLDEST_AGE, "Age of the oldest open hold; 0 when none is open."),
        (RUNS, "Stored runs by state."),
        (STORE_UP, "1 when the store answered this scrape, else 0."),
        (BUILD, "1, with the version of the server."),
    ] {
        recorder.describe_gauge(name.into(), None, words.into());
    }
    for (name, words) in [
        (DECISION, "Time from the opening of a hold to its decision."),
        (APPEND, "Latency of an append until it is durable."),
        (BATCH, "Appends that shared one commit."),
    ] {
        recorder.describe_histogram(name.into(), None, words.into());
    }
    recorder.describe_counter(EXPIRED.into(), None, "Holds that expired, since the start.".into());
    recorder.describe_counter(
        DELIVERIES.into(),
        None,
        "Delivery attempts to subscriptions, since the start.".into(),
    );
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Claimed => "claimed",
        Phase::Working => "working",
        Phase::Retrying => "retrying",
        Phase::HeldForPerson => "held_for_person",
        Phase::HeldForAuth => "held_for_auth",
        Phase::HeldForExternal => "held_for_external",
        Phase::Completed => "completed",
        Phase::Failed => "failed",
        Phase::Canceled => "canceled",
        Phase::Rejected => "rejected",
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    number(u64::try_from(to.since(from).0).unwrap_or(0)) / 1e3
}

/// Exact up to 2^53, which is more than there can be of anything here.
fn number(n: u64) -> f64 {
    n as f64
}
