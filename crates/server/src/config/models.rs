//! From the section `llms` to models that can be asked.
//!
//! Each provider is set up once, whoever asks it, so that its limits hold for all agents together.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use standfast_core::json::RawJson;
use standfast_core::time::Millis;
use standfast_engine::model::Model;
use standfast_models::chain::Chain;
use standfast_models::provider::{Price, Provider, ProviderSettings};
use standfast_models::script_file::{self, ScriptError};

use super::Config;
use super::build::BuildError;
use super::file::{self, Llm};
use super::stores::absolute;

/// How long one reply may take, unless the file says otherwise.
const TIMEOUT: Millis = Millis::seconds(600);

/// How long to wait before a model is asked again for the first time.
const BACKOFF: Millis = Millis::seconds(1);

/// How many requests may be under way to one provider, unless the file says otherwise.
const AT_ONCE: u32 = 32;

/// The providers of a file.
pub(super) struct Models {
    providers: BTreeMap<String, Arc<Provider>>,
}

impl Models {
    /// Sets up every provider of a file.
    pub(super) fn of_file(config: &Config) -> Result<Models, BuildError> {
        let mut providers = BTreeMap::new();
        for (name, llm) in &config.file.llms {
            if let Some(settings) = settings(name, llm) {
                providers.insert(name.clone(), Arc::new(Provider::new(settings)?));
            }
        }
        Ok(Models { providers })
    }

    /// What an agent asks.
    pub(super) fn of(&self, agent: &file::Agent, config: &Config) -> Result<Arc<dyn Model>, BuildError> {
        if self.providers.contains_key(&agent.llm) {
            Ok(Arc::new(self.chain(&agent.llm, config)))
        } else {
            script(agent, config)
        }
    }

    fn chain(&self, name: &str, config: &Config) -> Chain {
        let mut names = vec![name];
        // The check has refused circles; should one be left, it ends here.
        while let Some(next) = names.last().and_then(|last| config.file.llms.get(*last)?.fallback.as_deref())
        {
            if names.contains(&next) {
                break;
            }
            names.push(next);
        }
        let chain = names.iter().filter_map(|name| self.providers.get(*name).cloned()).collect();
        let others = self.providers.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Chain::new(chain, others.map(|(_, provider)| provider.clone()).collect())
    }
}

impl Config {
    /// One provider by its name below `llms`, set up as the server would; none when it is a script.
    pub fn provider(&self, name: &str) -> Result<Option<Provider>, BuildError> {
        let settings = self.file.llms.get(name).and_then(|llm| settings(name, llm));
        Ok(settings.map(Provider::new).transpose()?)
    }
}

fn settings(name: &str, llm: &Llm) -> Option<ProviderSettings> {
    let price = llm.price.map(|price| Price {
        input: price.input,
        cached_input: price.cached_input.unwrap_or(price.input),
        output: price.output,
    });
    // The number of tries is bounded by `model_attempts` in any case; with a fallback there must be some left for it.
    let usual_retries = if llm.fallback.is_some() { 1 } else { u32::MAX };
    Some(ProviderSettings {
        name: name.to_owned(),
        dialect: llm.kind.dialect()?,
        model: llm.model.clone()?,
        parameters: parameters(llm).map(|json| json.text().to_owned()),
        base_url: llm.base_url.clone(),
        api_key: llm.api_key.as_ref().map(|key| key.expose().to_owned()),
        headers: llm.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
        timeout: llm.timeout.map_or(TIMEOUT, |span| span.0),
        price: price.unwrap_or_default(),
        max_retries: llm.max_retries.unwrap_or(usual_retries),
        backoff: BACKOFF,
        max_concurrent: usize::try_from(llm.max_concurrent.unwrap_or(AT_ONCE)).unwrap_or(usize::MAX),
    })
}

/// What a model is asked with beside the conversation.
pub(super) fn parameters(llm: &Llm) -> Option<RawJson> {
    let more = llm.parameters.as_ref().and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let mut members = more.unwrap_or_default();
    members.extend(llm.temperature.map(|value| ("temperature".to_owned(), value.into())));
    members.extend(llm.max_tokens.map(|value| ("max_tokens".to_owned(), value.into())));
    if members.is_empty() {
        return None;
    }
    RawJson::parse(&Value::Object(members).to_string()).ok()
}

fn script(agent: &file::Agent, config: &Config) -> Result<Arc<dyn Model>, BuildError> {
    let script = config.file.llms.get(&agent.llm).and_then(|llm| llm.script.as_deref()).unwrap_or_default();
    let path = absolute(&config.folder, script);
    let wrong = |why: String| BuildError::Script { path: path.clone(), why };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let script = script_file::parse(&text).map_err(|error: ScriptError| wrong(error.to_string()))?;
    Ok(Arc::new(script))
}
