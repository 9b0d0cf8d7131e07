//! OTLP as it is sent: the messages of `opentelemetry/proto/collector/trace/v1`, as far as spans need them.
//!
//! Written down by hand, with the numbers of the published files: the crates that have them bring a second way to trace along.
//! A test reads what is sent with the official Python package.

use prost::Message;
use standfast_engine::traces::{self, AttributeValue, SpanKind};

/// What is sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// What comes back.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// That not all of it was taken.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// Who sends.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

impl Resource {
    pub(super) fn new(attributes: impl IntoIterator<Item = (String, String)>) -> Resource {
        let attribute = |(key, value)| KeyValue { key, value: Some(text(value)) };
        Resource { attributes: attributes.into_iter().map(attribute).collect() }
    }
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    attributes: Vec<KeyValue>,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 5")]
    value: Option<ValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

/// The status of what failed.
const ERROR: i32 = 2;

/// The flag of what is recorded.
const SAMPLED: u32 = 1;

/// Spans of this server as one request.
pub(super) fn request(
    resource: &Resource,
    spans: impl Iterator<Item = traces::Span>,
) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope { name: "standfast".into(), version: env!("CARGO_PKG_VERSION").into() };
    let scope_spans = ScopeSpans { scope: Some(scope), spans: spans.map(span).collect() };
    let resource_spans = ResourceSpans { resource: Some(resource.clone()), scope_spans: vec![scope_spans] };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
}

fn span(span: traces::Span) -> Span {
    Span {
        trace_id: span.context.trace.to_vec(),
        span_id: span.context.span.to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: span.name.into_owned(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: nanos(span.begun),
        end_time_unix_nano: nanos(span.ended),
        attributes: attributes(span.attributes),
        events: span
            .events
            .into_iter()
            .map(|event| Event {
                time_unix_nano: nanos(event.at),
                name: event.name.to_owned(),
                attributes: attributes(event.attributes),
            })
            .collect(),
        links: span
            .links
            .into_iter()
            .map(|link| Link {
                trace_id: link.to.trace.to_vec(),
                span_id: link.to.span.to_vec(),
                attributes: attributes(link.attributes),
                flags: if link.to.is_sampled { SAMPLED } else { 0 },
            })
            .collect(),
        status: span.has_failed.then_some(Status { code: ERROR }),
        flags: SAMPLED,
    }
}

fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}

fn attributes(found: Vec<traces::Attribute>) -> Vec<KeyValue> {
    let attribute = |(key, value): traces::Attribute| {
        let value = match value {
            AttributeValue::Text(words) => text(words.into_owned()),
            AttributeValue::Number(number) => AnyValue { value: Some(ValueKind::Number(number)) },
            AttributeValue::Flag(flag) => AnyValue { value: Some(ValueKind::Flag(flag)) },
            AttributeValue::Texts(words) => {
                let values = words.into_iter().map(|word| text(word.into_owned())).collect();
                AnyValue { value: Some(ValueKind::List(ArrayValue { values })) }
            }
        };
        KeyValue { key: key.to_owned(), value: Some(value) }
    };
    found.into_iter().map(attribute).collect()
}

fn text(words: String) -> AnyValue {
    AnyValue { value: Some(ValueKind::Text(words)) }
}
