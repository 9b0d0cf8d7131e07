//! Series of metrics: their names, their labels, and handles that cost an atomic operation to use.
//!
//! Labels that are known beforehand have their handles from the start; models and tools get theirs when they are first used,
//! at most so many of each, so that a server which is asked for ever new names does not grow. What is measured when is not
//! known here: `telemetry.rs`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::PrometheusRecorder;

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// How many models or tools have series of their own; what comes later is counted as `other`.
const NAMES_MAX: usize = 256;

/// What the series of names beyond that are called.
const OTHER: &str = "other";

/// Makes handles of series.
#[derive(Clone)]
pub(super) struct Registry(Arc<PrometheusRecorder>);

impl Registry {
    pub(super) fn new(recorder: PrometheusRecorder) -> Registry {
        Registry(Arc::new(recorder))
    }

    pub(super) fn recorder(&self) -> &PrometheusRecorder {
        &self.0
    }

    /// A counter that is exported from the start: a series that appears with its first event hides that event from `rate`.
    pub(super) fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        let counter = self.0.register_counter(&Key::from_parts(name, labels), &METADATA);
        counter.absolute(0);
        counter
    }

    pub(super) fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.0.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    pub(super) fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        self.0.register_histogram(&Key::from_parts(name, labels), &METADATA)
    }
}

/// The series of things with names that are not known beforehand.
pub(super) struct NamedSeries<S> {
    known: RwLock<HashMap<String, Arc<S>>>,
    make: fn(&Registry, &str) -> S,
    registry: Registry,
}

impl<S> NamedSeries<S> {
    pub(super) fn new(registry: &Registry, make: fn(&Registry, &str) -> S) -> NamedSeries<S> {
        NamedSeries { known: RwLock::default(), make, registry: registry.clone() }
    }

    /// The series of this name, or those of all others when there are too many.
    pub(super) fn of(&self, name: &str) -> Arc<S> {
        if let Some(found) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return found.clone();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let name = if known.len() < NAMES_MAX { name } else { OTHER };
        let made =
            known.entry(name.to_owned()).or_insert_with(|| Arc::new((self.make)(&self.registry, name)));
        made.clone()
    }
}

/// What is measured of a model.
pub(super) struct ModelSeries {
    pub(super) seconds: Histogram,
    pub(super) replied: Counter,
    pub(super) failed: Counter,
    pub(super) input: Counter,
    pub(super) output: Counter,
    pub(super) cost: Counter,
}

/// What is measured of a tool.
pub(super) struct ToolSeries {
    pub(super) seconds: Histogram,
    pub(super) ok: Counter,
    pub(super) failed: Counter,
    pub(super) unknown: Counter,
    pub(super) pending: Counter,
}

/// A label with a value that is known beforehand.
pub(super) fn label(name: &'static str, value: &'static str) -> Vec<Label> {
    vec![Label::new(name, value)]
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn names_beyond_the_limit_share_their_series() {
        let registry = Registry::new(PrometheusBuilder::new().build_recorder());
        let series = NamedSeries::new(&registry, |registry, name| {
            registry.counter("made_total", vec![Label::new("name", name.to_owned())])
        });
        for no in 0..NAMES_MAX + 20 {
            series.of(&format!("name {no}")).increment(1);
        }
        series.of("name 3").increment(1);
        let text = registry.recorder().handle().render();
        assert!(text.contains("made_total{name=\"other\"} 20\n"), "{text}");
        assert!(text.contains("made_total{name=\"name 3\"} 2\n"), "{text}");
        assert!(!text.contains("name 260"), "{text}");
    }
}
