//! Where spans are sent and under what name: what the file says, then the variables that OpenTelemetry names.
//!
//! The section `server.traces` must be there, so that a variable which is meant for another program turns nothing on;
//! `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER=none` turn it off.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use standfast_engine::clock::duration;
use standfast_engine::traces::SampleShare;

use super::wire::Resource;
use crate::config::file::{TraceProtocol, Traces as Section};

/// The path of a collector over HTTP.
const PATH: &str = "/v1/traces";

/// How long a collector may take, unless somebody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why spans cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTraces {
    /// The address is none.
    #[error(
        "server.traces: the collector's endpoint is not a URL; check the key `endpoint` and OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    Endpoint,
    /// A header cannot be sent.
    #[error("server.traces: the header {0:?} cannot be sent; check its name, and its value for line breaks")]
    Header(String),
    /// A variable has a value that is none.
    #[error("server.traces: the variable {variable} must be {wanted}")]
    Variable {
        /// Which one.
        variable: &'static str,
        /// What it may be.
        wanted: &'static str,
    },
    /// The authority is no certificate.
    #[error("server.traces: certificate_authority is not a PEM file with certificates")]
    Authority,
    /// The file of the authority cannot be read.
    #[error("server.traces: cannot read {0}, the certificate_authority")]
    AuthorityFile(String),
    /// No client can be made.
    #[error("server.traces: no connections can be made here: {0}")]
    Client(String),
}

/// Where spans are sent, and under what name.
pub struct TraceSettings {
    pub(super) protocol: TraceProtocol,
    endpoint: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) authority: Option<Vec<u8>>,
    pub(super) share: SampleShare,
    pub(super) resource: Resource,
    pub(super) timeout: Duration,
}

impl TraceSettings {
    /// What the section and the environment say; none where the environment turns traces off. `node` is what this server is
    /// called among others.
    pub fn of(
        section: &Section,
        folder: &Path,
        node: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<TraceSettings>, BadTraces> {
        let set = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty());
        let is_off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        if is_off {
            return Ok(None);
        }
        let either = |own: &str, of_all: &str| set(own).or_else(|| set(of_all));
        let protocol = match section.protocol {
            Some(protocol) => protocol,
            None => protocol_of(either("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"))?,
        };
        let own = section.endpoint.clone().or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let base = own.map(|base| with_path(&base, protocol));
        // The variable for traces alone is taken as it is, as the specification wants it.
        let whole = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").filter(|_| section.endpoint.is_none());
        let endpoint = whole.or(base).unwrap_or_else(|| match protocol {
            TraceProtocol::Http => format!("http://localhost:4318{PATH}"),
            TraceProtocol::Grpc => "http://localhost:4317".to_owned(),
        });
        let named = either("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let mut headers: BTreeMap<String, String> = pairs(&named.unwrap_or_default())
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        let own = section.headers.iter();
        headers.extend(own.map(|(name, value)| (name.to_ascii_lowercase(), value.expose().to_owned())));
        let file = section.certificate_authority.as_ref().map(|file| folder.join(file));
        let file = file.or_else(|| set("OTEL_EXPORTER_OTLP_CERTIFICATE").map(Into::into));
        let read = |file: std::path::PathBuf| {
            std::fs::read(&file).map_err(|_| BadTraces::AuthorityFile(file.display().to_string()))
        };
        let timeout = either("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
        let timeout = timeout.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        Ok(Some(TraceSettings {
            protocol,
            endpoint,
            headers: headers.into_iter().collect(),
            authority: file.map(read).transpose()?,
            share: match section.sample {
                Some(share) => SampleShare::new(share),
                None => share_of(set("OTEL_TRACES_SAMPLER"), set("OTEL_TRACES_SAMPLER_ARG"))?,
            },
            resource: resource(section, node, set),
            timeout: section.timeout.map(|span| duration(span.0)).or(timeout).unwrap_or(TIMEOUT),
        }))
    }

    /// The address that is called.
    pub(super) fn url(&self) -> String {
        self.endpoint.clone()
    }

    /// Where that is, without what may be secret in an address.
    pub(super) fn host(&self) -> String {
        let Ok(url) = self.endpoint.parse::<reqwest::Url>() else { return String::new() };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.endpoint.starts_with("https://")
    }

    pub(super) fn protocol_word(&self) -> &'static str {
        match self.protocol {
            TraceProtocol::Http => "http/protobuf",
            TraceProtocol::Grpc => "grpc",
        }
    }
}

fn protocol_of(variable: Option<String>) -> Result<TraceProtocol, BadTraces> {
    match variable.as_deref() {
        None | Some("http/protobuf") => Ok(TraceProtocol::Http),
        Some("grpc") => Ok(TraceProtocol::Grpc),
        Some(_) => Err(BadTraces::Variable {
            variable: "OTEL_EXPORTER_OTLP_PROTOCOL",
            wanted: "http/protobuf or grpc",
        }),
    }
}

fn with_path(base: &str, protocol: TraceProtocol) -> String {
    let base = base.trim_end_matches('/');
    match protocol {
        TraceProtocol::Http if !base.ends_with(PATH) => format!("{base}{PATH}"),
        TraceProtocol::Http | TraceProtocol::Grpc => base.to_owned(),
    }
}

/// A trace that a caller names is always taken as the caller says, so the samplers that look at the parent and those that
/// do not are the same here.
fn share_of(sampler: Option<String>, argument: Option<String>) -> Result<SampleShare, BadTraces> {
    let variable = "OTEL_TRACES_SAMPLER";
    match sampler.as_deref() {
        None | Some("always_on" | "parentbased_always_on") => Ok(SampleShare::new(1.0)),
        Some("always_off" | "parentbased_always_off") => Ok(SampleShare::new(0.0)),
        Some("traceidratio" | "parentbased_traceidratio") => {
            let share = argument.map_or(Ok(1.0), |text| text.parse::<f64>());
            let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
            let bad =
                BadTraces::Variable { variable: "OTEL_TRACES_SAMPLER_ARG", wanted: "a number from 0 to 1" };
            share.map(SampleShare::new).ok_or(bad)
        }
        Some(_) => Err(BadTraces::Variable {
            variable,
            wanted: "always_on, always_off or traceidratio, with or without parentbased_",
        }),
    }
}

fn resource(section: &Section, node: &str, set: impl Fn(&str) -> Option<String>) -> Resource {
    let mut attributes: BTreeMap<String, String> =
        pairs(&set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()).collect();
    attributes.extend(section.resource.clone());
    let name = section.service_name.clone().or_else(|| set("OTEL_SERVICE_NAME"));
    if let Some(name) = name {
        attributes.insert("service.name".into(), name);
    }
    attributes.entry("service.name".into()).or_insert_with(|| "standfast".into());
    attributes.entry("service.version".into()).or_insert_with(|| env!("CARGO_PKG_VERSION").into());
    attributes.entry("service.instance.id".into()).or_insert_with(|| node.to_owned());
    Resource::new(attributes)
}

/// `name=value` pairs between commas, with values as in a URL.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), decoded(value.trim())))
    })
}

/// `%20` and the like.
fn decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = (digit(bytes.get(at + 1)), digit(bytes.get(at + 2)));
        match (byte, pair) {
            (b'%', (Some(high), Some(low))) => {
                found.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
            }
            _ => {
                found.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(found).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(section: &Section, variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, BadTraces> {
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        TraceSettings::of(section, Path::new("/nowhere"), "node-1", variable)
    }

    #[test]
    fn the_file_wins_over_variables_and_variables_over_defaults() {
        let usual = settings(&Section::default(), &[]).unwrap().unwrap();
        assert_eq!((usual.url().as_str(), usual.timeout), ("http://localhost:4318/v1/traces", TIMEOUT));
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://all.example:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b,other = c"),
            ("OTEL_SERVICE_NAME", "approvals"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ];
        let set = settings(&Section::default(), &variables).unwrap().unwrap();
        assert_eq!(set.url(), "https://all.example:4318/v1/traces");
        assert_eq!(set.timeout, Duration::from_millis(250));
        assert_eq!(set.headers, [("other".into(), "c".into()), ("x-key".into(), "a b".to_owned())]);
        let section = Section {
            endpoint: Some("http://own.example".into()),
            protocol: Some(TraceProtocol::Grpc),
            ..Section::default()
        };
        let own = settings(&section, &variables).unwrap().unwrap();
        assert_eq!((own.url().as_str(), own.is_encrypted()), ("http://own.example", false));
        let traces = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://own.example/here?key=secret")];
        let traces = settings(&Section::default(), &traces).unwrap().unwrap();
        assert_eq!(traces.url(), "https://own.example/here?key=secret");
        assert_eq!(traces.host(), "https://own.example");
    }

    #[test]
    fn variables_that_turn_it_off_or_are_wrong() {
        for variable in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(settings(&Section::default(), &[variable]).unwrap().is_none());
        }
        for (name, value) in [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), ("OTEL_TRACES_SAMPLER", "jaeger")]
        {
            assert!(settings(&Section::default(), &[(name, value)]).is_err(), "{name}");
        }
        let ratio =
            [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")];
        assert_eq!(settings(&Section::default(), &ratio).unwrap().unwrap().share, SampleShare::new(0.25));
    }
}
