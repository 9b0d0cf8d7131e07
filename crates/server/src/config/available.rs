//! What a file may say and this version cannot do yet.
//!
//! The one place: `validate` accepts these, so that a file can be written ahead, and `serve` refuses to start with the
//! list. Whoever adds a feature removes its line.

use super::Config;
use super::file::{Agent, LlmType, ToolType};
use super::stores::Lives;

/// Everything that this file asks of a later version.
pub(super) fn not_yet(config: &Config) -> Vec<String> {
    let mut list = Vec::new();
    for (name, agent) in &config.file.agents {
        list.extend(llm(config, agent));
        list.extend(agent_keys(name, agent));
    }
    for plan in &config.agents {
        let kinds = plan.tools.iter().filter(|tool| !runs(tool.kind));
        list.extend(kinds.map(|tool| format!("tools.{}: tools of type `{}`", tool.name, tool.kind.as_str())));
    }
    if config.file.server.public_url.is_some() {
        list.push("server.public_url: links and callbacks".to_owned());
    }
    list.extend(stores(config));
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

fn runs(kind: ToolType) -> bool {
    match kind {
        ToolType::Command
        | ToolType::SuspendForInput
        | ToolType::ReadFile
        | ToolType::WriteFile
        | ToolType::DeleteFile
        | ToolType::ListDir
        | ToolType::SearchFiles => true,
        ToolType::External => false,
    }
}

fn agent_keys(name: &str, agent: &Agent) -> Vec<String> {
    let mut list = Vec::new();
    if agent.task.as_ref().is_some_and(|task| task.timeout.is_some()) {
        list.push(format!("agents.{name}.task.timeout: a limit of the working time"));
    }
    if !agent.sub_agents.is_empty() {
        list.push(format!("agents.{name}.sub_agents: agents that hand work to agents"));
    }
    list
}

/// C28: namespaces in one database.
fn stores(config: &Config) -> Vec<String> {
    let durable = config.agents.iter().filter(|plan| plan.lives == Lives::Durably);
    let mut names: Vec<Option<&String>> = durable
        .filter_map(|plan| config.file.agents.get(&plan.name))
        .map(|agent| agent.session_store.as_ref())
        .collect();
    names.sort();
    names.dedup();
    match names.len() > 1 {
        true => vec!["session_stores: several names for one database".to_owned()],
        false => Vec::new(),
    }
}
