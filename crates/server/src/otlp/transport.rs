//! One request to a collector, over HTTP or gRPC, and whether it is worth another one.
//!
//! Its address is the operator's own, so it is called wherever it is; redirects are not followed, as they would take headers
//! with keys elsewhere. When to try again is `otlp.rs`.

use std::time::Duration;

use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic_prost::ProstCodec;

use super::settings::{BadTraces, TraceSettings};
use super::wire::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use crate::config::file::TraceProtocol;

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The one method of a collector for traces.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 64 * 1024;

/// How a collector is reached.
pub(super) enum Transport {
    Http { client: reqwest::Client, url: reqwest::Url, headers: HeaderMap },
    Grpc { channel: Channel, metadata: MetadataMap, timeout: Duration },
}

/// Why spans were not taken.
pub(super) enum Refusal {
    /// Another try may help.
    Again(String),
    /// It would not.
    Final(String),
}

impl Transport {
    pub(super) fn new(settings: &TraceSettings) -> Result<Transport, BadTraces> {
        match settings.protocol {
            TraceProtocol::Http => over_http(settings),
            TraceProtocol::Grpc => over_grpc(settings),
        }
    }

    /// Sends spans; how many of them were not taken.
    pub(super) async fn send(&self, request: &ExportTraceServiceRequest) -> Result<usize, Refusal> {
        let answer = match self {
            Transport::Http { client, url, headers } => {
                send_http(client.post(url.clone()).headers(headers.clone()), request).await?
            }
            Transport::Grpc { channel, metadata, timeout } => {
                let sending = send_grpc(channel.clone(), metadata.clone(), request.clone());
                match tokio::time::timeout(*timeout, sending).await {
                    Ok(sent) => sent?,
                    Err(_) => return Err(Refusal::Again("it timed out".to_owned())),
                }
            }
        };
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(usize::try_from(rejected).unwrap_or(0))
    }
}

fn over_http(settings: &TraceSettings) -> Result<Transport, BadTraces> {
    let url = settings.url().parse().map_err(|_| BadTraces::Endpoint)?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    for (name, value) in &settings.headers {
        let bad = || BadTraces::Header(name.clone());
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| bad())?, value);
    }
    let mut client = reqwest::Client::builder()
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT)
        .timeout(settings.timeout)
        .user_agent(concat!("standfast/", env!("CARGO_PKG_VERSION")));
    if let Some(pem) = &settings.authority {
        let found = reqwest::Certificate::from_pem_bundle(pem).map_err(|_| BadTraces::Authority)?;
        client = client.tls_certs_merge(found);
    }
    let client = client.build().map_err(|error| BadTraces::Client(error.to_string()))?;
    Ok(Transport::Http { client, url, headers })
}

fn over_grpc(settings: &TraceSettings) -> Result<Transport, BadTraces> {
    let mut metadata = MetadataMap::new();
    for (name, value) in &settings.headers {
        let bad = || BadTraces::Header(name.clone());
        let key = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes()).map_err(|_| bad())?;
        metadata.insert(key, AsciiMetadataValue::try_from(value.as_str()).map_err(|_| bad())?);
    }
    let endpoint = Endpoint::from_shared(settings.url()).map_err(|_| BadTraces::Endpoint)?;
    let mut endpoint = endpoint.connect_timeout(CONNECT).timeout(settings.timeout);
    if settings.is_encrypted() {
        let tls = match &settings.authority {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint = endpoint.tls_config(tls).map_err(|error| BadTraces::Client(error.to_string()))?;
    }
    Ok(Transport::Grpc { channel: endpoint.connect_lazy(), metadata, timeout: settings.timeout })
}

async fn send_http(
    sending: reqwest::RequestBuilder,
    request: &ExportTraceServiceRequest,
) -> Result<ExportTraceServiceResponse, Refusal> {
    let sent = sending.body(request.encode_to_vec()).send().await;
    // The error without the address: it may have a key in it.
    let mut answer = sent.map_err(|error| Refusal::Again(kind_of(&error).to_owned()))?;
    let status = answer.status().as_u16();
    match status {
        200..=299 => {}
        429 | 502 | 503 | 504 => return Err(Refusal::Again(format!("it answered {status}"))),
        _ => return Err(Refusal::Final(format!("it answered {status}"))),
    }
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        if body.len() + chunk.len() > ANSWER_BYTES {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    // Whatever it says beside 200, it has them.
    Ok(ExportTraceServiceResponse::decode(body.as_slice()).unwrap_or_default())
}

fn kind_of(error: &reqwest::Error) -> &'static str {
    match (error.is_timeout(), error.is_connect()) {
        (true, _) => "it timed out",
        (false, true) => "no connection",
        (false, false) => "the connection broke",
    }
}

async fn send_grpc(
    channel: Channel,
    metadata: MetadataMap,
    request: ExportTraceServiceRequest,
) -> Result<ExportTraceServiceResponse, Refusal> {
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES);
    client.ready().await.map_err(|_| Refusal::Again("no connection".to_owned()))?;
    let mut request = tonic::Request::new(request);
    *request.metadata_mut() = metadata;
    let codec = ProstCodec::<ExportTraceServiceRequest, ExportTraceServiceResponse>::default();
    let answer = client.unary(request, PathAndQuery::from_static(METHOD), codec).await;
    answer.map(tonic::Response::into_inner).map_err(|status| {
        let why = format!("it answered {}", status.code().description());
        match status.code() {
            // A connection that breaks is told as unknown.
            Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted => Refusal::Again(why),
            Code::Ok
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::Internal
            | Code::Unauthenticated => Refusal::Final(why),
        }
    })
}
