//! One provider over HTTP: the request, the stream that comes back, and what it cost.
//!
//! How it speaks is for the file of its dialect; what happens when it fails is `chain.rs`. Its key is in one header and
//! nowhere else: not in errors, not in logs, not in what is stored.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use standfast_core::message::Usage;
use standfast_core::time::Millis;
use standfast_engine::clock::duration;
use standfast_engine::http_date::retry_after;
use standfast_engine::model::{Live, ModelReply, Prompt};
use standfast_engine::request_context;

use super::conversation::{self, Conversation, Maker, Names};
use super::error::{self, Trouble, TroubleKind};
use super::limiter::Gate;
use super::proxies;
use super::reply::{Flow, ProviderReply, ReplyReader, TokenUsage};
use super::request::{ModelQuery, Parameters};
use super::stream_frames::{FrameFormat, Frames};
use super::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(15);

/// How many bytes a whole reply may have.
const REPLY_MAX: usize = 64 * 1024 * 1024;

/// How much of an answer that is not a reply is read.
const ERROR_MAX: usize = 64 * 1024;

/// How a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Chat completions.
    OpenaiChat,
    /// OpenAI's newer way.
    OpenaiResponses,
    /// Anthropic's messages.
    Anthropic,
    /// Google's contents and parts.
    Gemini,
    /// Ollama's own.
    Ollama,
}

impl Dialect {
    /// Its name, as in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "openai",
            Dialect::OpenaiResponses => "openai_responses",
            Dialect::Anthropic => "anthropic",
            Dialect::Gemini => "gemini",
            Dialect::Ollama => "ollama",
        }
    }

    /// Who provides it, by the names of OpenTelemetry's conventions.
    #[must_use]
    pub fn provider(self) -> &'static str {
        match self {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "openai",
            Dialect::Anthropic => "anthropic",
            Dialect::Gemini => "gcp.gemini",
            Dialect::Ollama => "ollama",
        }
    }

    /// Where the provider itself is.
    #[must_use]
    pub fn official(self) -> &'static str {
        match self {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "https://api.openai.com/v1",
            Dialect::Anthropic => "https://api.anthropic.com",
            Dialect::Gemini => "https://generativelanguage.googleapis.com",
            Dialect::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// How paths begin there, where they begin alike.
    fn version(self) -> &'static str {
        match self {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "//",
            Dialect::Anthropic => "/v1",
            Dialect::Gemini => "/v1beta",
            Dialect::Ollama => "/api",
        }
    }

    fn framing(self) -> FrameFormat {
        match self {
            Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Anthropic | Dialect::Gemini => {
                FrameFormat::Events
            }
            Dialect::Ollama => FrameFormat::Lines,
        }
    }

    fn path(self, model: &str) -> String {
        match self {
            Dialect::OpenaiChat => "/chat/completions".to_owned(),
            Dialect::OpenaiResponses => "/responses".to_owned(),
            Dialect::Anthropic => "/v1/messages".to_owned(),
            Dialect::Gemini => {
                let model = model.trim_start_matches("models/");
                format!("/v1beta/models/{model}:streamGenerateContent?alt=sse")
            }
            Dialect::Ollama => "/api/chat".to_owned(),
        }
    }

    /// The header with the key.
    fn key_header(self, key: &str) -> (&'static str, String) {
        match self {
            Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Ollama => {
                ("authorization", format!("Bearer {key}"))
            }
            Dialect::Anthropic => ("x-api-key", key.to_owned()),
            Dialect::Gemini => ("x-goog-api-key", key.to_owned()),
        }
    }

    fn body(self, asking: &ModelQuery<'_>) -> String {
        match self {
            Dialect::OpenaiChat => openai_chat::body(asking),
            Dialect::OpenaiResponses => openai_responses::body(asking),
            Dialect::Anthropic => anthropic::body(asking),
            Dialect::Gemini => gemini::body(asking),
            Dialect::Ollama => ollama::body(asking),
        }
    }

    fn reading(self, names: Names) -> Box<dyn ReplyReader> {
        match self {
            Dialect::OpenaiChat => Box::new(openai_chat::ChatReading::new(names)),
            Dialect::OpenaiResponses => Box::new(openai_responses::ResponsesReading::new(names)),
            Dialect::Anthropic => Box::new(anthropic::MessagesReading::new(names)),
            Dialect::Gemini => Box::new(gemini::GeminiReading::new(names)),
            Dialect::Ollama => Box::new(ollama::OllamaReading::new(names)),
        }
    }
}

/// What a million tokens cost, in whole units of some currency.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Tokens read.
    pub input: f64,
    /// Tokens read from the provider's cache.
    pub cached_input: f64,
    /// Tokens written.
    pub output: f64,
}

impl Price {
    fn of(self, spent: TokenUsage) -> Usage {
        let fresh = spent.input.saturating_sub(spent.cached);
        // A unit for a million tokens is a millionth for each.
        let micros = fresh as f64 * self.input
            + spent.cached as f64 * self.cached_input
            + spent.output as f64 * self.output;
        let cost_micros = if micros.is_finite() && micros > 0.0 { micros.round() as u64 } else { 0 };
        Usage { input: spent.input, output: spent.output, cost_micros }
    }
}

/// How to reach a provider.
pub struct ProviderSettings {
    /// Its name in the configuration.
    pub name: String,
    /// How it speaks.
    pub dialect: Dialect,
    /// The provider's name of the model.
    pub model: String,
    /// What it is asked with beside the conversation: a JSON object.
    pub parameters: Option<String>,
    /// Another address than the provider's own.
    pub base_url: Option<String>,
    /// Its key.
    pub api_key: Option<String>,
    /// More headers; their values are secrets.
    pub headers: Vec<(String, String)>,
    /// How long one reply may take.
    pub timeout: Millis,
    /// What a million tokens cost.
    pub price: Price,
    /// How often it is asked again.
    pub max_retries: u32,
    /// How long to wait before it is asked again for the first time; each further time twice as long.
    pub backoff: Millis,
    /// How many requests at once.
    pub max_concurrent: usize,
}

/// Why a provider cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProvider {
    /// A header is none.
    #[error(
        "llms.{llm}: the header {header:?} cannot be sent; check its name, and its value for line breaks"
    )]
    Header {
        /// The llm.
        llm: String,
        /// The header.
        header: String,
    },
    /// No client can be made.
    #[error("llms.{llm}: no connections can be made here: {why}")]
    Client {
        /// The llm.
        llm: String,
        /// Why.
        why: String,
    },
}

/// One provider.
pub struct Provider {
    settings: ProviderSettings,
    base: String,
    headers: HeaderMap,
    client: Client,
    gate: Arc<Gate>,
}

impl Provider {
    /// A provider that is set up, and not asked yet.
    pub fn new(settings: ProviderSettings) -> Result<Provider, BadProvider> {
        let base = settings.base_url.clone().unwrap_or_else(|| settings.dialect.official().to_owned());
        let base = base.trim_end_matches('/');
        // Whoever writes the version into the address does not mean it twice.
        let base = base.strip_suffix(settings.dialect.version()).unwrap_or(base).to_owned();
        let headers = headers(&settings)?;
        let bad_client = |why: String| BadProvider::Client { llm: settings.name.clone(), why };
        let client = Client::builder()
            .redirect(Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT)
            .user_agent(concat!("standfast/", env!("CARGO_PKG_VERSION")));
        let client = proxies::through(client, |name| std::env::var(name).ok()).map_err(bad_client)?;
        let client = client.build().map_err(|error| bad_client(error.to_string()))?;
        let gate = Arc::new(Gate::new(settings.max_concurrent.max(1)));
        Ok(Provider { settings, base, headers, client, gate })
    }

    /// What it was set up with.
    #[must_use]
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Who it is, in words: for whoever reads why there is no reply.
    #[must_use]
    pub fn describe(&self) -> String {
        let ProviderSettings { name, dialect, model, .. } = &self.settings;
        format!("llm `{name}` ({}, model {model}) at {}", dialect.as_str(), self.host())
    }

    /// Where it is, without what may be secret in an address.
    #[must_use]
    pub fn host(&self) -> String {
        let Ok(url) = self.base.parse::<reqwest::Url>() else { return self.base.clone() };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
    }

    /// Asks for the next reply, once.
    pub async fn ask(&self, prompt: &Prompt, live: &Live) -> Result<ModelReply, Trouble> {
        let _pass = self.gate.enter(&prompt.definition.agent, live).await?;
        let asked = self.exchange(prompt, live).await;
        if let Some(wait) = asked.as_ref().err().and_then(Trouble::wait) {
            self.gate.close_until(live.now().plus(wait));
        }
        asked.map_err(|trouble| self.without_secrets(trouble))
    }

    async fn exchange(&self, prompt: &Prompt, live: &Live) -> Result<ModelReply, Trouble> {
        let ProviderSettings { dialect, model, base_url, price, .. } = &self.settings;
        let maker = Maker { dialect: dialect.as_str(), model };
        let conversation = Conversation::new(prompt, maker);
        let is_pinned = prompt.definition.model == *model;
        let pinned = prompt.definition.model_parameters.as_ref().map(|json| json.text());
        let own = self.settings.parameters.as_deref();
        let parameters = Parameters::parse(if is_pinned { pinned } else { own });
        let asking = ModelQuery {
            model,
            conversation: &conversation,
            parameters: &parameters,
            is_official: base_url.is_none(),
        };
        let body = dialect.body(&asking);
        let response = self.send(body, live).await?;
        let said = self.read(response, dialect.reading(conversation.names), live).await?;
        let opaque = said.own.as_ref().map(|own| conversation::own(maker, own)).transpose();
        Ok(ModelReply {
            text: Some(said.text).filter(|text| !text.is_empty()),
            calls: said.calls,
            opaque: opaque.map_err(|bad| Trouble::new(TroubleKind::Garbled, bad.to_string()))?,
            usage: price.of(said.spent),
            model: (!is_pinned).then(|| model.clone()),
            finish: said.finish,
            ..ModelReply::default()
        })
    }

    async fn send(&self, body: String, live: &Live) -> Result<Response, Trouble> {
        let url = format!("{}{}", self.base, self.settings.dialect.path(&self.settings.model));
        let mut request = self
            .client
            .post(url)
            .headers(self.headers.clone())
            .body(body)
            .timeout(duration(self.settings.timeout));
        // For gateways in front of models; where traces are off there is none.
        if let Some(span) = request_context::span() {
            request = request.header("traceparent", span.to_string());
        }
        let response = request.send().await.map_err(|error| unsent(&error))?;
        let status = response.status().as_u16();
        let named = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if status == 200 {
            let kind = named("content-type").unwrap_or_default().to_ascii_lowercase();
            let is_one_answer = self.settings.dialect.framing() == FrameFormat::Events
                && kind.starts_with("application/json");
            if !is_one_answer && !kind.starts_with("text/html") {
                return Ok(response);
            }
            let body = beginning(response).await;
            let error = serde_json::from_str::<serde_json::Value>(&body).map(|json| json["error"].clone());
            return Err(match error {
                Ok(error) if !error.is_null() => error::of_stream_error("", &error),
                Ok(_) | Err(_) => Trouble::new(TroubleKind::NotAStream, format!("it sent {kind}")),
            });
        }
        let in_millis = named("retry-after-ms").and_then(|text| text.parse::<i64>().ok()).map(Millis);
        let wait = in_millis.or_else(|| retry_after(named("retry-after")?, live.now()));
        let to = named("location").map(str::to_owned);
        let body = beginning(response).await;
        let mut trouble = error::of_status(status, wait, &body);
        if let (TroubleKind::Redirects, Some(to)) = (trouble.kind, to) {
            trouble = Trouble::new(TroubleKind::Redirects, to.split('?').next().unwrap_or_default());
        }
        Err(trouble)
    }

    async fn read(
        &self,
        mut response: Response,
        mut reading: Box<dyn ReplyReader>,
        live: &Live,
    ) -> Result<ProviderReply, Trouble> {
        let mut frames = Frames::new(self.settings.dialect.framing());
        let mut bytes = 0;
        loop {
            let chunk = response.chunk().await;
            let is_over = match &chunk {
                Ok(Some(chunk)) => {
                    bytes += chunk.len();
                    let too_long = |error: super::stream_frames::FrameTooLong| {
                        Trouble::new(TroubleKind::TooLarge, error.to_string())
                    };
                    frames.push(chunk).map_err(too_long)?;
                    false
                }
                Ok(None) => true,
                Err(error) if error.is_timeout() => return Err(Trouble::new(TroubleKind::Slow, "")),
                Err(_) => true,
            };
            if bytes > REPLY_MAX {
                return Err(Trouble::new(TroubleKind::TooLarge, format!("more than {REPLY_MAX} bytes")));
            }
            if is_over {
                frames.end();
            }
            while let Some(frame) = frames.next() {
                if reading.take(&frame, live)? == Flow::Done {
                    return reading.finish();
                }
            }
            if is_over {
                let broke = chunk.err().map(|error| causes(&error));
                return reading.finish().map_err(|trouble| match (trouble.kind, broke) {
                    (TroubleKind::Cut, Some(why)) => Trouble::new(TroubleKind::Cut, why),
                    (_, _) => trouble,
                });
            }
        }
    }

    /// A provider may say the key in its error: nobody else should.
    fn without_secrets(&self, mut trouble: Trouble) -> Trouble {
        let ProviderSettings { api_key, headers, .. } = &self.settings;
        let secrets = api_key.iter().chain(headers.iter().map(|(_, value)| value));
        for secret in secrets.filter(|secret| secret.len() > 3) {
            trouble.said = without(&trouble.said, secret);
        }
        trouble
    }
}

/// What was said without a secret, also where what is kept of it ends within the secret.
fn without(said: &str, secret: &str) -> String {
    let said = said.replace(secret, "[secret]");
    let Some(kept) = said.strip_suffix('…') else { return said };
    let mut begins = (4..secret.len()).rev().filter_map(|end| secret.get(..end));
    let before = begins.find_map(|begin| kept.strip_suffix(begin));
    match before {
        Some(before) => format!("{before}[secret]…"),
        None => said,
    }
}

fn headers(settings: &ProviderSettings) -> Result<HeaderMap, BadProvider> {
    let mut all = vec![("content-type".to_owned(), "application/json".to_owned())];
    if settings.dialect == Dialect::Anthropic {
        all.push(("anthropic-version".to_owned(), anthropic::VERSION.to_owned()));
    }
    let key = settings.api_key.as_ref().map(|key| settings.dialect.key_header(key));
    all.extend(key.map(|(name, value)| (name.to_owned(), value)));
    all.extend(settings.headers.iter().cloned());
    let mut headers = HeaderMap::new();
    for (name, value) in all {
        let bad = || BadProvider::Header { llm: settings.name.clone(), header: name.clone() };
        let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| bad())?, value);
    }
    Ok(headers)
}

/// Why nothing came back at all.
fn unsent(error: &reqwest::Error) -> Trouble {
    let said = causes(error);
    let has = |marks: &[&str]| {
        let all = said.to_ascii_lowercase();
        marks.iter().any(|mark| all.contains(mark))
    };
    let kind = if error.is_timeout() {
        TroubleKind::Slow
    } else if has(&["lookup address", "dns error"]) {
        TroubleKind::UnknownHost
    } else if has(&["certificate", "tls", "handshake", "invalidcontenttype", "corrupt message"]) {
        TroubleKind::Untrusted
    } else if error.is_connect() {
        TroubleKind::Unreachable
    } else if error.is_builder() {
        TroubleKind::Refused { status: 0 }
    } else {
        TroubleKind::Cut
    };
    Trouble::new(kind, said)
}

/// What is below an error, without the address: it may have secrets in it.
fn causes(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    let mut below = std::error::Error::source(error);
    while let Some(error) = below {
        texts.push(error.to_string());
        below = error.source();
    }
    texts.dedup();
    texts.join(": ")
}

async fn beginning(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = ERROR_MAX - bytes.len();
        bytes.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
        if bytes.len() >= ERROR_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T29: a key is cut out of what a provider says, also where that is cut short within the key.
    #[test]
    fn t29_no_part_of_a_key_is_kept() {
        for (said, kept) in [
            ("bad key sk-0123456789, sk-0123456789", "bad key [secret], [secret]"),
            ("bad key sk-0123…", "bad key [secret]…"),
            ("bad key sk-0…", "bad key [secret]…"),
            ("bad key sk-0123456789…", "bad key [secret]…"),
            ("bad key sk…", "bad key sk…"),
            ("no key", "no key"),
        ] {
            assert_eq!(without(said, "sk-0123456789"), kept, "{said}");
        }
    }

    /// What tokens cost, to a millionth.
    #[test]
    fn a_price_is_for_a_million_tokens() {
        let price = Price { input: 2.5, cached_input: 1.25, output: 10.0 };
        let spent = TokenUsage { input: 1_000, cached: 400, output: 50 };
        assert_eq!(price.of(spent), Usage { input: 1_000, output: 50, cost_micros: 1_500 + 500 + 500 });
        assert_eq!(Price::default().of(spent).cost_micros, 0);
    }
}
