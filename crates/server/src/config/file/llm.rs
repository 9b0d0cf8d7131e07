//! The section `llms`: models and how to reach them.
//!
//! Which types this version can already ask is `available.rs`.

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

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
    pub timeout: Option<Span>,
    /// For `scripted`: the file with the replies (docs/scripted-model.md), relative to the configuration file.
    #[garde(inner(length(min = 1)))]
    pub script: Option<String>,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LlmType {
    /// OpenAI, or anything that speaks its protocol at `base_url`.
    Openai,
    /// Anthropic.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// Ollama, on this machine or at `base_url`.
    Ollama,
    /// A file with replies: no key, no network, always the same.
    Scripted,
}

/// Whether a text is the address of something on the web.
pub(super) fn web_address(text: &str, (): &()) -> garde::Result {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' ')) {
        true => Ok(()),
        false => Err(garde::Error::new("must be an address that begins with https:// or http://")),
    }
}
