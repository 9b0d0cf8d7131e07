//! The section `llms`: models and how to reach them.
//!
//! What goes together is checked in `check/rules.rs`; what each provider can do is docs/models.md.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;
use standfast_models::provider::Dialect;

use super::values::{Secret, Span};

/// A model and how to reach it.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Llm {
    /// The provider.
    #[serde(rename = "type")]
    pub kind: LlmType,
    /// The provider's name of the model, such as `gpt-4o`. Not for `scripted`.
    #[garde(inner(length(min = 1)))]
    pub model: Option<String>,
    /// The key of the provider. Write `${NAME}` and set the variable, so that the key is in no file.
    #[garde(skip)]
    pub api_key: Option<Secret>,
    /// The URL of the API, if it is not the provider's own: a gateway, or a server that speaks the same protocol.
    #[garde(inner(custom(web_address)))]
    pub base_url: Option<String>,
    /// The sampling temperature. Default: the provider's.
    #[garde(inner(range(min = 0.0, max = 2.0)))]
    pub temperature: Option<f64>,
    /// Maximum number of tokens of a reply. Default: the provider's.
    #[garde(inner(range(min = 1)))]
    pub max_tokens: Option<u32>,
    /// How long one reply may take.
    #[schemars(extend("default" = "10m"))]
    pub timeout: Option<Span>,
    /// Additional headers of each request. Values are never shown.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Number of retries after a transient failure; then the fallback is called, or the run fails. Default: 1 with a
    /// `fallback`, else as many as `server.limits.model_attempts` allows.
    #[garde(inner(range(max = 100)))]
    pub max_retries: Option<u32>,
    /// The name of another model below `llms` that is called when this one fails.
    #[garde(inner(length(min = 1)))]
    pub fallback: Option<String>,
    /// Maximum number of concurrent requests; further ones are queued, and agents take turns.
    #[garde(inner(range(min = 1, max = 10_000)))]
    #[schemars(extend("default" = 32))]
    pub max_concurrent: Option<u32>,
    /// Token prices, for the usage of runs and for `server.limits.cost`.
    #[garde(dive)]
    pub price: Option<Price>,
    /// Additional members of each request, as a JSON object in a string: parameters of the provider that have no key
    /// here.
    #[garde(inner(length(min = 1)))]
    pub parameters: Option<String>,
    /// For `scripted`: the file with the replies (docs/scripted-model.md), relative to the configuration file.
    #[garde(inner(length(min = 1)))]
    pub script: Option<String>,
}

/// The provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LlmType {
    /// OpenAI's chat completions, or anything that speaks them at `base_url`: vLLM, llama.cpp, OpenRouter, Ollama.
    Openai,
    /// OpenAI's Responses API, recommended for its reasoning models.
    OpenaiResponses,
    /// Anthropic.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// Ollama, on this machine or at `base_url`.
    Ollama,
    /// A file with replies: no API key, no network, deterministic.
    Scripted,
}

impl LlmType {
    /// How it speaks; none for a script.
    #[must_use]
    pub fn dialect(self) -> Option<Dialect> {
        match self {
            LlmType::Openai => Some(Dialect::OpenaiChat),
            LlmType::OpenaiResponses => Some(Dialect::OpenaiResponses),
            LlmType::Anthropic => Some(Dialect::Anthropic),
            LlmType::Gemini => Some(Dialect::Gemini),
            LlmType::Ollama => Some(Dialect::Ollama),
            LlmType::Scripted => None,
        }
    }
}

/// What a million tokens cost, in whole units of whatever currency you count in.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens.
    #[garde(range(min = 0.0))]
    pub input: f64,
    /// Output tokens.
    #[garde(range(min = 0.0))]
    pub output: f64,
    /// Input tokens from the provider's cache. Default: the same as `input`.
    #[garde(inner(range(min = 0.0)))]
    pub cached_input: Option<f64>,
}

/// Whether a text is the address of something on the web.
pub(super) fn web_address(text: &str, (): &()) -> garde::Result {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' ')) {
        Ok(())
    } else {
        Err(garde::Error::new("must be an address that begins with https:// or http://"))
    }
}
