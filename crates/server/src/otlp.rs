//! Sends spans to an OpenTelemetry collector, over OTLP: HTTP with protobuf, or gRPC.
//!
//! Takes them from the engine's queue in batches, in a task of its own. Nothing waits for it: a collector that is away costs a
//! line in the log now and then, and the spans that do not fit. What is in a span is the engine's (`traces`); how it looks on
//! the wire is `otlp/wire.rs`, how it is sent `otlp/transport.rs`, where to `otlp/settings.rs`.

mod settings;
mod transport;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use standfast_engine::clock::Clock;
use standfast_engine::telemetry::{SpanFate, Telemetry};
use standfast_engine::traces::{Span, Traces};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use settings::{BadTraces, TraceSettings};
use transport::{Refusal, Transport};

/// Spans of one request at most.
const BATCH: usize = 512;

/// How long spans are gathered.
const GATHER: Duration = Duration::from_millis(500);

/// Waits between tries to send a batch; then it is given up.
const RETRIES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// How often the log says that spans are lost.
const COMPLAINTS: Duration = Duration::from_secs(5 * 60);

/// How long the rest may take when the server stops.
const FLUSH: Duration = Duration::from_secs(3);

/// Sends spans until it is told to stop.
pub struct Exporter {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Sends what comes from the queue, from now on.
    pub fn start(
        settings: TraceSettings,
        clock: Clock,
        telemetry: Arc<Telemetry>,
    ) -> Result<(Traces, Exporter), BadTraces> {
        let transport = Transport::new(&settings)?;
        let (traces, spans) = Traces::new(clock, settings.share, telemetry.clone());
        tracing::info!(to = settings.host(), protocol = settings.protocol_word(), "traces: sending spans");
        let (stop, stopping) = watch::channel(false);
        let sending = SpanSender {
            transport,
            resource: settings.resource,
            telemetry,
            complained: None,
            lost: 0,
            stopping,
        };
        Ok((traces, Exporter { stop, task: tokio::spawn(sending.run(spans)) }))
    }

    /// Sends what is left, for a moment, and ends.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let mut task = self.task;
        if timeout(FLUSH, &mut task).await.is_err() {
            tracing::warn!(
                "traces: stopping although spans are left; the collector did not take them in time"
            );
            task.abort();
        }
    }
}

/// Sends a collector a request without spans, which it takes where it would take others: where that was, or why not.
pub async fn try_collector(settings: &TraceSettings) -> Result<String, String> {
    let transport = Transport::new(settings).map_err(|error| error.to_string())?;
    let place = format!("{} over {}", settings.host(), settings.protocol_word());
    match transport.send(&wire::request(&settings.resource, std::iter::empty())).await {
        Ok(_) => Ok(place),
        Err(Refusal::Again(why) | Refusal::Final(why)) => Err(format!("{place}: {why}")),
    }
}

struct SpanSender {
    transport: Transport,
    resource: wire::Resource,
    telemetry: Arc<Telemetry>,
    /// When the log last said that spans are lost.
    complained: Option<Instant>,
    /// Spans that were lost since.
    lost: usize,
    stopping: watch::Receiver<bool>,
}

impl SpanSender {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut batch = Vec::with_capacity(BATCH);
        while !*self.stopping.borrow() {
            self.gather(&mut spans, &mut batch).await;
            self.send(&mut batch).await;
        }
        // What the last requests and drives left behind.
        while let Ok(span) = spans.try_recv() {
            batch.push(span);
            if batch.len() == BATCH {
                self.send(&mut batch).await;
            }
        }
        self.send(&mut batch).await;
    }

    /// Waits for a span, then a moment for more of them.
    async fn gather(&mut self, spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
        let mut stopping = self.stopping.clone();
        let stopped = async { stopping.wait_for(|stopping| *stopping).await.map(drop) };
        let gathering = async {
            if spans.recv_many(batch, BATCH).await == 0 {
                // Nobody makes spans any more; the end is told by the other one.
                std::future::pending::<()>().await;
            }
            let until = tokio::time::Instant::now() + GATHER;
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                match timeout_at(until, spans.recv_many(batch, room)).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        };
        tokio::select! {
            _ = stopped => {}
            () = gathering => {}
        }
    }

    async fn send(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len();
        let request = wire::request(&self.resource, batch.drain(..));
        let mut waits = RETRIES.into_iter();
        let refusal = loop {
            match self.transport.send(&request).await {
                Ok(rejected) => return self.took(count, rejected),
                Err(Refusal::Final(why)) => break why,
                Err(Refusal::Again(why)) => match waits.next() {
                    Some(wait) if !*self.stopping.borrow() => {
                        self.complain(&why);
                        let mut stopping = self.stopping.clone();
                        tokio::select! {
                            () = sleep(wait) => {}
                            _ = stopping.wait_for(|stopping| *stopping) => {}
                        }
                    }
                    Some(_) | None => break why,
                },
            }
        };
        self.lose(count);
        self.complain(&refusal);
    }

    fn took(&mut self, count: usize, rejected: usize) {
        self.telemetry.spans(SpanFate::Exported, count.saturating_sub(rejected) as u64);
        if rejected > 0 {
            self.lose(rejected.min(count));
            self.complain("it rejected some of them");
        } else if self.complained.take().is_some() {
            tracing::info!(lost = self.lost, "traces: the collector takes spans again");
            self.lost = 0;
        }
    }

    fn lose(&mut self, count: usize) {
        self.telemetry.spans(SpanFate::Failed, count as u64);
        self.lost = self.lost.saturating_add(count);
    }

    /// Says now and then that the collector does not take spans.
    fn complain(&mut self, why: &str) {
        let is_due = self.complained.is_none_or(|last| last.elapsed() >= COMPLAINTS);
        if is_due {
            tracing::warn!(why, lost = self.lost, "traces: the collector does not take spans; trying again");
            self.complained = Some(Instant::now());
        }
    }
}
