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
    /// Who answers.
    #[serde(rename = "type")]
    pub kind: LlmType,
    /// The provider's name of the model, such as `gpt-4o`. Not for `scripted`.
    #[garde(inner(length(min = 1)))]
    pub model: Option<String>,
    /// The key of the provider. Write `${NAME}` and set the variable, so that the key is in no file.
    #[garde(skip)]
    pub api_key: Option<Secret>,
    /// Another address than the provider's own: a gateway, or a server that speaks the same protocol.
    #[garde(inner(custom(web_address)))]
    pub base_url: Option<String>,
    /// How freely the model chooses its words; the provider's default without it.
    #[garde(inner(range(min = 0.0, max = 2.0)))]
    pub temperature: Option<f64>,
    /// How many tokens a reply may have; the provider's default without it.
    #[garde(inner(range(min = 1)))]
    pub max_tokens: Option<u32>,
    /// How long one reply may take.
    #[schemars(extend("default" = "10m"))]
    pub timeout: Option<Span>,
    /// More headers of each request: names and values. Values are never shown.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// How often the model is asked again after a failure that may pass; then the fallback is asked, or the run fails.
    /// Without it: once where there is a `fallback`, else as often as `server.limits.model_attempts` allows.
    #[garde(inner(range(max = 100)))]
    pub max_retries: Option<u32>,
    /// The name of another model below `llms` that is asked when this one fails.
    #[garde(inner(length(min = 1)))]
    pub fallback: Option<String>,
    /// How many requests may be under way to it at once; others wait in line, and agents take turns.
    #[garde(inner(range(min = 1, max = 10_000)))]
    #[schemars(extend("default" = 32))]
    pub max_concurrent: Option<u32>,
    /// What tokens cost, for the sums that runs show and for `server.limits.cost`.
    #[garde(dive)]
    pub price: Option<Price>,
    /// More members of each request, as a JSON object in a text: what the provider knows and this server does not.
    #[garde(inner(length(min = 1)))]
    pub parameters: Option<String>,
    /// For `scripted`: the file with the replies (docs/scripted-model.md), relative to the configuration file.
    #[garde(inner(length(min = 1)))]
    pub script: Option<String>,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LlmType {
    /// OpenAI's chat completions, or anything that speaks them at `base_url`: vLLM, llama.cpp, OpenRouter, Ollama.
    Openai,
    /// OpenAI's responses: what its reasoning models work best with.
    OpenaiResponses,
    /// Anthropic.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// Ollama, on this machine or at `base_url`.
    Ollama,
    /// A file with replies: no key, no network, always the same.
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
    /// Tokens that the model reads.
    #[garde(range(min = 0.0))]
    pub input: f64,
    /// Tokens that the model writes.
    #[garde(range(min = 0.0))]
    pub output: f64,
    /// Tokens that it reads from the provider's cache; as much as others without it.
    #[garde(inner(range(min = 0.0)))]
    pub cached_input: Option<f64>,
}

/// Whether a text is the address of something on the web.
pub(super) fn web_address(text: &str, (): &()) -> garde::Result {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' ')) {
        true => Ok(()),
        false => Err(garde::Error::new("must be an address that begins with https:// or http://")),
    }
}
