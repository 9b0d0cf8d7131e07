//! Clocks, percentiles and the load loop.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one configuration reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measurement {
    pub(crate) cycles: usize,
    pub(crate) seconds: f64,
    pub(crate) cycle_ms: Vec<f64>,
    pub(crate) approve_ms: Vec<f64>,
}

impl Measurement {
    pub(crate) fn add(&mut self, other: Measurement) {
        self.cycles += other.cycles;
        self.seconds += other.seconds;
        self.cycle_ms.extend(other.cycle_ms);
        self.approve_ms.extend(other.approve_ms);
    }

    pub(crate) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.cycles as f64 / self.seconds } else { 0.0 }
    }
}

/// One cycle: how long it took in all, and from approve to done.
pub(crate) struct Lap {
    pub(crate) cycle: Duration,
    pub(crate) approve: Duration,
}

/// Runs `concurrency` loops of cycles until the time is up.
pub(crate) async fn load<F, Fut>(concurrency: usize, seconds: f64, cycle: F) -> Measurement
where
    F: Fn(usize, usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<Lap>> + Send,
{
    let cycle = Arc::new(cycle);
    let (start, length) = (now(), Duration::from_secs_f64(seconds));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..concurrency {
        let cycle = cycle.clone();
        tasks.spawn(async move {
            let mut laps = Vec::new();
            while start.elapsed() < length {
                match cycle(task, laps.len()).await {
                    Some(lap) => laps.push(lap),
                    None => break,
                }
            }
            laps
        });
    }
    let mut measured = Measurement::default();
    while let Some(laps) = tasks.join_next().await {
        for lap in laps.unwrap_or_default() {
            measured.cycles += 1;
            measured.cycle_ms.push(lap.cycle.as_secs_f64() * 1000.0);
            measured.approve_ms.push(lap.approve.as_secs_f64() * 1000.0);
        }
    }
    measured.seconds = start.elapsed().as_secs_f64();
    measured
}

/// The value below which this share of the samples lies.
pub(crate) fn percentile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 - 1.0) * share).round();
    sorted.get(at.max(0.0) as usize).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The runtime that a server of this machine would have.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match built {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    }
}
