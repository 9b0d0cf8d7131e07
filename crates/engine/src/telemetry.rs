//! What a server measures of itself, for `/metrics`: requests, models, tools, decisions, appends, deliveries, leases, and
//! what is pending.
//!
//! Histograms and counters are recorded where things happen. What is pending is asked of the store when somebody scrapes.
//! Labels are kinds, agents, models, tools and states, never ids. `series.rs` makes the handles. `packaging/monitoring` has a
//! dashboard and alerts over these names, which a test compares with what is exported here.

mod series;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Label, Recorder as _};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use standfast_core::command::Choice;
use standfast_core::hold::HoldKind;
use standfast_core::message::ToolResult;
use standfast_core::name::AgentName;
use standfast_core::project::{HoldChange, HoldClosure, HoldRow, Phase, ResolutionKind};
use standfast_core::time::Timestamp;
use standfast_store::{Counts, Observer};

use crate::clock::Stopwatch;
use crate::model::{ModelFailure, ModelReply};
use crate::request_context::Channel;
use crate::tool::Outcome;
use series::{ModelSeries, NamedSeries, Registry, ToolSeries, label};

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
const REQUESTS: &str = "standfast_http_requests_total";
const REQUEST: &str = "standfast_http_request_seconds";
const IN_FLIGHT: &str = "standfast_http_requests_in_flight";
const MODEL: &str = "standfast_model_request_seconds";
const MODEL_REQUESTS: &str = "standfast_model_requests_total";
const MODEL_TOKENS: &str = "standfast_model_tokens_total";
const MODEL_COST: &str = "standfast_model_cost_micros_total";
const TOOL: &str = "standfast_tool_call_seconds";
const TOOL_CALLS: &str = "standfast_tool_calls_total";
const DECISIONS: &str = "standfast_decisions_total";
const LEASES: &str = "standfast_leases_held";
const LEASES_LOST: &str = "standfast_leases_lost_total";
const TAKEN_OVER: &str = "standfast_runs_taken_over_total";
const OVERDUE: &str = "standfast_runs_overdue_seconds";
const QUEUE: &str = "standfast_queue_depth";
const SHED: &str = "standfast_runs_shed_total";
const SPANS: &str = "standfast_trace_spans_total";

/// A commit takes from a tenth of a millisecond to, on a bad day, seconds.
const APPEND_BUCKETS: [f64; 13] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const BATCH_BUCKETS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// A decision takes from seconds to weeks.
const DECISION_BUCKETS: [f64; 11] =
    [1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0];

/// A request takes from a part of a millisecond to the minutes that somebody waits for a run.
const REQUEST_BUCKETS: [f64; 12] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 300.0];
/// A model or a tool takes from milliseconds to minutes.
const WORK_BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// How a decision ended a hold, in the order of their counters.
const OUTCOMES: [&str; 6] = ["approved", "edited", "denied", "answered", "failed", "withdrawn"];

/// Classes of answers, in the order of their counters.
const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What a server measures of itself.
pub struct Telemetry {
    registry: Registry,
    handle: PrometheusHandle,
    stopwatch: Stopwatch,
    append: Histogram,
    batch: Histogram,
    /// In the order of [`Channel::ALL`].
    requests: Vec<RequestSeries>,
    in_flight: Level,
    models: NamedSeries<ModelSeries>,
    tools: NamedSeries<ToolSeries>,
    /// In the order of [`HoldKind::ALL`].
    decisions: Vec<Histogram>,
    /// In the order of [`Channel::ALL`], and of [`OUTCOMES`] for each.
    decided: Vec<Vec<Counter>>,
    clock_decided: Counter,
    leases_lost: Counter,
    taken_over: Counter,
    overdue: Gauge,
    writes: Level,
    shed: Counter,
    /// In the order of [`SpanFate::ALL`].
    spans: [Counter; 3],
    due_deliveries: Gauge,
    expired: Counter,
    delivered: Counter,
    delivery_failed: Counter,
    delivery_dead: Counter,
    /// Kinds and agents that had open holds: they are reported once more when they have none left.
    seen: Mutex<BTreeSet<(AgentName, HoldKind)>>,
}

/// What became of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanFate {
    /// The collector has it.
    Exported,
    /// There was no room for it.
    Dropped,
    /// It could not be sent.
    Failed,
}

impl SpanFate {
    const ALL: [SpanFate; 3] = [SpanFate::Exported, SpanFate::Dropped, SpanFate::Failed];

    fn as_str(self) -> &'static str {
        match self {
            SpanFate::Exported => "exported",
            SpanFate::Dropped => "dropped",
            SpanFate::Failed => "failed",
        }
    }
}

/// What is measured of the requests of one channel.
struct RequestSeries {
    seconds: Histogram,
    /// In the order of [`STATUSES`].
    answered: Vec<Counter>,
}

/// Something that is under way as long as this is there: a request, or a write that waits for the store.
pub struct UnderWay<'a>(&'a Level);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.gauge.decrement(1.0);
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many of something there are just now, also for whoever goes by it.
struct Level {
    gauge: Gauge,
    count: AtomicUsize,
}

impl Level {
    fn new(gauge: Gauge) -> Level {
        Level { gauge, count: AtomicUsize::new(0) }
    }

    fn begin(&self) -> UnderWay<'_> {
        self.gauge.increment(1.0);
        self.count.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }
}

/// Something that takes time, since when by the server's stopwatch.
#[derive(Debug, Clone, Copy)]
pub struct Lap(u64);

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
        let registry = Registry::new(recorder);
        registry.gauge(BUILD, label("version", env!("CARGO_PKG_VERSION"))).set(1.0);
        let deliveries = |result| registry.counter(DELIVERIES, label("result", result));
        let queue = |name| registry.gauge(QUEUE, label("queue", name));
        let of_kind = |kind: HoldKind| registry.histogram(DECISION, label("kind", kind.as_str()));
        let decided = |outcome: &'static str, channel: &'static str| {
            let labels = vec![Label::new("outcome", outcome), Label::new("channel", channel)];
            registry.counter(DECISIONS, labels)
        };
        let decided_by = |channel: Channel| OUTCOMES.map(|outcome| decided(outcome, channel.as_str())).into();
        Telemetry {
            handle: registry.recorder().handle(),
            stopwatch: Stopwatch::start(),
            append: registry.histogram(APPEND, vec![]),
            batch: registry.histogram(BATCH, vec![]),
            requests: Channel::ALL.map(|channel| request_series(&registry, channel)).into(),
            in_flight: Level::new(registry.gauge(IN_FLIGHT, vec![])),
            models: NamedSeries::new(&registry, model_series),
            tools: NamedSeries::new(&registry, tool_series),
            decisions: HoldKind::ALL.into_iter().map(of_kind).collect(),
            decided: Channel::ALL.map(decided_by).into(),
            clock_decided: decided("expired", "clock"),
            leases_lost: registry.counter(LEASES_LOST, vec![]),
            taken_over: registry.counter(TAKEN_OVER, vec![]),
            overdue: registry.gauge(OVERDUE, vec![]),
            writes: Level::new(queue("writes")),
            shed: registry.counter(SHED, vec![]),
            spans: SpanFate::ALL.map(|fate| registry.counter(SPANS, label("result", fate.as_str()))),
            due_deliveries: queue("deliveries"),
            expired: registry.counter(EXPIRED, vec![]),
            delivered: deliveries("delivered"),
            delivery_failed: deliveries("failed"),
            delivery_dead: deliveries("dead"),
            seen: Mutex::default(),
            registry,
        }
    }

    /// Something begins that `answered`, `asked` or `ran` tells the end of.
    #[must_use]
    pub fn begin(&self) -> Lap {
        Lap(self.stopwatch.micros())
    }

    fn seconds_since(&self, begun: Lap) -> f64 {
        number(self.stopwatch.micros().saturating_sub(begun.0)) / 1e6
    }

    /// A request is being answered for as long as what it returns is there.
    #[must_use]
    pub fn request(&self) -> UnderWay<'_> {
        self.in_flight.begin()
    }

    /// A request was answered with this status.
    pub fn answered(&self, channel: Channel, begun: Lap, status: u16) {
        let Some((_, series)) = Channel::ALL.into_iter().zip(&self.requests).find(|(one, _)| *one == channel)
        else {
            return;
        };
        series.seconds.record(self.seconds_since(begun));
        let class = usize::from(status / 100).clamp(1, STATUSES.len()) - 1;
        series.answered.iter().skip(class).take(1).for_each(|counter| counter.increment(1));
    }

    /// A model was asked; `name` is the one that answered, or the configured one.
    pub(crate) fn asked(&self, name: &str, begun: Lap, replied: &Result<ModelReply, ModelFailure>) {
        let series = self.models.of(name);
        series.seconds.record(self.seconds_since(begun));
        match replied {
            Ok(reply) => {
                series.replied.increment(1);
                series.input.increment(reply.usage.input);
                series.output.increment(reply.usage.output);
                series.cost.increment(reply.usage.cost_micros);
            }
            Err(_) => series.failed.increment(1),
        }
    }

    /// A tool ran.
    pub(crate) fn ran(&self, tool: &str, begun: Lap, came: &Outcome) {
        let series = self.tools.of(tool);
        series.seconds.record(self.seconds_since(begun));
        match came {
            Outcome::Done(ToolResult::Ok(_)) => series.ok.increment(1),
            Outcome::Done(ToolResult::Failed(_)) => series.failed.increment(1),
            Outcome::Unknown(_) => series.unknown.increment(1),
            Outcome::Pending(_) => series.pending.increment(1),
        }
    }

    /// Somebody decided a hold. Votes that do not suffice and repeats are no decisions.
    pub(crate) fn decided(&self, channel: Channel, wanted: &Choice) {
        let outcome = match wanted {
            Choice::Approve => 0,
            Choice::ApproveEdited { .. } => 1,
            Choice::Deny { .. } => 2,
            Choice::Answer { .. } => 3,
            Choice::Fail { .. } => 4,
            Choice::Withdraw => 5,
        };
        let of_channel = Channel::ALL.into_iter().zip(&self.decided).find(|(one, _)| *one == channel);
        let counter = of_channel.and_then(|(_, counters)| counters.get::<usize>(outcome));
        if let Some(counter) = counter {
            counter.increment(1);
        }
    }

    /// Another node took a run that this one was working on.
    pub(crate) fn lease_lost(&self) {
        self.leases_lost.increment(1);
    }

    /// This node took a run whose lease had run out.
    pub(crate) fn took_over(&self) {
        self.taken_over.increment(1);
    }

    /// How long ago the run that has waited longest became due, of those that were just claimed.
    pub(crate) fn behind_by(&self, millis: i64) {
        self.overdue.set(number(u64::try_from(millis).unwrap_or(0)) / 1e3);
    }

    /// A write waits for the store for as long as what it returns is there.
    pub(crate) fn write(&self) -> UnderWay<'_> {
        self.writes.begin()
    }

    /// How many writes wait for the store.
    pub(crate) fn waiting_writes(&self) -> usize {
        self.writes.count.load(Ordering::Relaxed)
    }

    /// A new run was refused, because too much waits already.
    pub(crate) fn shed(&self) {
        self.shed.increment(1);
    }

    /// What became of so many spans.
    pub fn spans(&self, fate: SpanFate, count: u64) {
        if let Some((_, counter)) = SpanFate::ALL.into_iter().zip(&self.spans).find(|(one, _)| *one == fate) {
            counter.increment(count);
        }
    }

    /// How many deliveries are under way or wait for a place.
    pub(crate) fn due_deliveries(&self, count: usize) {
        self.due_deliveries.set(number(count as u64));
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

    /// Everything as Prometheus reads it. Without counts the store did not answer; `leases` are those of this node.
    #[must_use]
    pub fn render(&self, counts: Option<&Counts>, leases: usize, now: Timestamp) -> String {
        self.gauge(STORE_UP, vec![]).set(f64::from(u8::from(counts.is_some())));
        self.gauge(LEASES, vec![]).set(number(leases as u64));
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
        self.registry.gauge(name, labels)
    }

    fn set_runs(&self, counts: &Counts) {
        let state = |word: &'static str| self.gauge(RUNS, vec![Label::new("state", word)]);
        for phase in Phase::ALL {
            state(phase_word(phase)).set(number(counts.runs.get(&phase).copied().unwrap_or(0)));
        }
        state("quarantined").set(number(counts.quarantined));
        let queued = counts.runs.get(&Phase::Queued).copied().unwrap_or(0);
        self.gauge(QUEUE, label("queue", "runs")).set(number(queued));
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

    fn closed(&self, row: &HoldRow, closed: &HoldClosure) {
        match closed.how {
            ResolutionKind::Expired => {
                self.expired.increment(1);
                self.clock_decided.increment(1);
            }
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
                        self.closed(row, closed);
                    }
                }
                HoldChange::Open(_) | HoldChange::Update(_) => {}
            }
        }
    }

    fn report(&self, component: &str, text: &str) {
        tracing::warn!("{component}: {text}");
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let of = |name: &str| Matcher::Full(name.to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(of(APPEND), &APPEND_BUCKETS)?
        .set_buckets_for_metric(of(BATCH), &BATCH_BUCKETS)?
        .set_buckets_for_metric(of(REQUEST), &REQUEST_BUCKETS)?
        .set_buckets_for_metric(of(MODEL), &WORK_BUCKETS)?
        .set_buckets_for_metric(of(TOOL), &WORK_BUCKETS)?
        .set_buckets_for_metric(of(DECISION), &DECISION_BUCKETS)
}

fn request_series(registry: &Registry, channel: Channel) -> RequestSeries {
    let answered = |status| {
        let labels = vec![Label::new("channel", channel.as_str()), Label::new("status", status)];
        registry.counter(REQUESTS, labels)
    };
    RequestSeries {
        seconds: registry.histogram(REQUEST, label("channel", channel.as_str())),
        answered: STATUSES.map(answered).into(),
    }
}

fn model_series(registry: &Registry, name: &str) -> ModelSeries {
    let model = || Label::new("model", name.to_owned());
    let result = |word| registry.counter(MODEL_REQUESTS, vec![model(), Label::new("result", word)]);
    let tokens = |word| registry.counter(MODEL_TOKENS, vec![model(), Label::new("direction", word)]);
    ModelSeries {
        seconds: registry.histogram(MODEL, vec![model()]),
        replied: result("replied"),
        failed: result("failed"),
        input: tokens("input"),
        output: tokens("output"),
        cost: registry.counter(MODEL_COST, vec![model()]),
    }
}

fn tool_series(registry: &Registry, name: &str) -> ToolSeries {
    let tool = || Label::new("tool", name.to_owned());
    let result = |word| registry.counter(TOOL_CALLS, vec![tool(), Label::new("result", word)]);
    ToolSeries {
        seconds: registry.histogram(TOOL, vec![tool()]),
        ok: result("ok"),
        failed: result("failed"),
        unknown: result("unknown"),
        pending: result("pending"),
    }
}

fn describe(recorder: &PrometheusRecorder) {
    for (name, words) in [
        (HOLDS_OPEN, "Open holds."),
        (OLDEST_AGE, "Age of the oldest open hold; 0 when none is open."),
        (RUNS, "Stored runs by state."),
        (STORE_UP, "1 when the store answered this scrape, else 0."),
        (BUILD, "1, with the version of the server."),
        (IN_FLIGHT, "Requests that are being answered, also those that wait for a run."),
        (LEASES, "Runs that this node works on."),
        (OVERDUE, "How long the most overdue of the runs claimed last had been due."),
        (QUEUE, "Queue depth: stored runs waiting for a slot, writes for the store, deliveries for a place."),
    ] {
        recorder.describe_gauge(name.into(), None, words.into());
    }
    for (name, words) in [
        (DECISION, "Time from the opening of a hold to its decision."),
        (APPEND, "Latency of an append until it is durable."),
        (BATCH, "Appends that shared one commit."),
        (REQUEST, "Time from a request to its answer, by channel."),
        (MODEL, "Time that a model took to reply or to fail."),
        (TOOL, "Time that a tool took."),
    ] {
        recorder.describe_histogram(name.into(), None, words.into());
    }
    for (name, words) in [
        (EXPIRED, "Holds that expired, since the start."),
        (DELIVERIES, "Delivery attempts to subscriptions, since the start."),
        (REQUESTS, "Requests by channel and class of status, since the start."),
        (MODEL_REQUESTS, "Requests to models by result, since the start."),
        (MODEL_TOKENS, "Tokens that models read and wrote, since the start."),
        (MODEL_COST, "What models cost by the price table, in millionths of its unit, since the start."),
        (TOOL_CALLS, "Calls of tools by result, since the start."),
        (DECISIONS, "Decisions on holds by outcome and by the channel that they came by, since the start."),
        (LEASES_LOST, "Runs that another node took over from this one, since the start."),
        (SHED, "New runs that were refused because too much waited already, since the start."),
        (SPANS, "Spans of traces by result, since the start."),
        (TAKEN_OVER, "Runs that this node took over after their lease had run out, since the start."),
    ] {
        recorder.describe_counter(name.into(), None, words.into());
    }
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
