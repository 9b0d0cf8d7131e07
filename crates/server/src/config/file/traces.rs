//! The section `server.traces`: where spans are sent, which ones, and under what name.
//!
//! What it does not say is taken from the variables of the environment that OpenTelemetry names (`otlp/settings.rs`).

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::llm::web_address;
use super::values::{Secret, Span, more_than_nothing};

/// Traces for an OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Traces {
    /// The address of the collector. Over HTTP, `/v1/traces` is appended unless it ends with that. Default: the variable
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://localhost:4318`, and for gRPC
    /// `http://localhost:4317`.
    #[garde(inner(custom(web_address)))]
    pub endpoint: Option<String>,
    /// How it is spoken to. Default: the variable `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http/protobuf`.
    pub protocol: Option<TraceProtocol>,
    /// Headers of each request, such as a key, by variables of the environment. Values are never shown. Default: the
    /// variable `OTEL_EXPORTER_OTLP_HEADERS`.
    #[garde(custom(one_line_each))]
    pub headers: BTreeMap<String, Secret>,
    /// A PEM file with the authority of the collector's certificate, relative to this file. Default: those that the system
    /// trusts.
    pub certificate_authority: Option<String>,
    /// The share of traces that are recorded, from 0 to 1, of those that begin at this server. A trace that a caller names
    /// is recorded if the caller records it. Default: by `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`, else all.
    #[garde(inner(range(min = 0.0, max = 1.0)))]
    pub sample: Option<f64>,
    /// What this server is called. Default: the variable `OTEL_SERVICE_NAME`, else `standfast`.
    #[garde(inner(length(min = 1)))]
    pub service_name: Option<String>,
    /// More attributes of this server, such as `deployment.environment.name`, besides those of the variable
    /// `OTEL_RESOURCE_ATTRIBUTES`.
    pub resource: BTreeMap<String, String>,
    /// How long the collector may take to respond.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "10s"))]
    pub timeout: Option<Span>,
}

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum TraceProtocol {
    /// OTLP over HTTP, in protobuf.
    #[serde(rename = "http/protobuf")]
    Http,
    /// OTLP over gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

fn one_line_each(headers: &BTreeMap<String, Secret>, (): &()) -> garde::Result {
    let is_one_line =
        |value: &Secret| value.expose().bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte));
    match headers.iter().find(|(_, value)| !is_one_line(value)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(garde::Error::new(format!("has a value that is not one line of ASCII text: {name}")))
        }
    }
}
