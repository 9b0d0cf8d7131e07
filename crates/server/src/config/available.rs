//! What a file may say and this version cannot do yet.
//!
//! The one place: `validate` accepts these, so that a file can be written ahead, and `serve` refuses to start with the
//! list. Whoever adds a feature removes its line.

use super::Config;
use super::file::{Agent, LlmType};

/// Everything that this file asks of a later version.
pub(super) fn not_yet(config: &Config) -> Vec<String> {
    let mut list = Vec::new();
    for agent in config.file.agents.values() {
        list.extend(llm(config, agent));
    }
    list.sort();
    list.dedup();
    list
}

fn llm(config: &Config, agent: &Agent) -> Option<String> {
    let kind = match config.file.llms.get(&agent.llm)?.kind {
        LlmType::Scripted => return None,
        LlmType::Openai => "openai",
        LlmType::Anthropic => "anthropic",
        LlmType::Gemini => "gemini",
        LlmType::Ollama => "ollama",
    };
    Some(format!("llms.{}: models of type `{kind}`", agent.llm))
}
