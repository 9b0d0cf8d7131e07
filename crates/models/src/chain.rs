//! A provider and those that are asked when it fails.
//!
//! Each failure is stored with the instant of the next try, so waiting outlives the process and the number of tries is
//! bounded. Who is asked follows from that number alone: after a restart the same provider is next.

use std::sync::Arc;

use standfast_core::time::Millis;
use standfast_engine::clock;
use standfast_engine::model::{Live, Model, ModelFailure, ModelFuture, ModelReply, Prompt};

use super::provider::Provider;

/// The longest wait between two tries, unless the provider asks for a longer one.
const BACKOFF_MAX: Millis = Millis::seconds(60);

/// A provider, and its fallbacks in order.
pub struct Chain {
    providers: Vec<Arc<Provider>>,
    /// Every other one that is set up, for runs that are pinned to its model.
    others: Vec<Arc<Provider>>,
}

impl Chain {
    /// A chain that is asked in this order. Runs that are pinned to the model of one of the others ask that one first.
    #[must_use]
    pub fn new(providers: Vec<Arc<Provider>>, others: Vec<Arc<Provider>>) -> Chain {
        Chain { providers, others }
    }

    fn in_order(&self, pinned: &str) -> Vec<&Arc<Provider>> {
        let is_pinned = |provider: &&Arc<Provider>| provider.settings().model == pinned;
        let first = self.providers.first().filter(is_pinned);
        let other = self.others.iter().find(is_pinned).filter(|_| first.is_none());
        other.into_iter().chain(&self.providers).collect()
    }

    async fn next_reply(&self, prompt: &Prompt, live: &Live) -> Result<ModelReply, ModelFailure> {
        let order = self.in_order(&prompt.definition.model);
        let mut errors: Vec<String> = Vec::new();
        // How many failures were those of providers before this one.
        let mut before = 0_u32;
        for (at, provider) in order.iter().enumerate() {
            let is_last = at + 1 == order.len();
            let retries = provider.settings().max_retries;
            let failures = prompt.failures.saturating_sub(before);
            if !is_last && failures > retries {
                before = before.saturating_add(retries).saturating_add(1);
                continue;
            }
            let trouble = match provider.ask(prompt, live).await {
                Ok(reply) => return Ok(reply),
                Err(trouble) => trouble,
            };
            tracing::warn!(
                llm = provider.settings().name,
                kind = trouble.word(),
                "model: request failed: {trouble}"
            );
            errors.push(format!("{}: {trouble}", provider.describe()));
            if trouble.may_pass() && failures < retries {
                let wait = trouble.wait().unwrap_or_else(|| backoff(provider.settings().backoff, failures));
                return Err(ModelFailure { error: errors.join("; then "), retry_after: Some(wait) });
            }
            if is_last {
                errors.push(trouble.advice().to_owned());
            }
            before = prompt.failures;
        }
        let advice = errors.pop().unwrap_or_else(|| "no provider is set up".to_owned());
        Err(ModelFailure { error: format!("{}; {advice}", errors.join("; then ")), retry_after: None })
    }
}

impl Model for Chain {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move { self.next_reply(&prompt, live).await })
    }

    fn provider(&self, model: &str) -> &'static str {
        self.in_order(model).first().map_or("custom", |provider| provider.settings().dialect.provider())
    }

    fn also_has(&self, model: &str) -> bool {
        self.providers.iter().chain(&self.others).any(|provider| provider.settings().model == model)
    }
}

/// Twice as long each time, and never for everyone at the same moment.
fn backoff(first: Millis, failures: u32) -> Millis {
    let wait = first.0.saturating_mul(1_i64 << failures.min(16)).min(BACKOFF_MAX.0);
    let [random] = clock::random_bytes::<1>();
    Millis(wait + wait / 4 * i64::from(random) / 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        for (failures, least) in [(0, 1_000), (1, 2_000), (3, 8_000), (40, 60_000)] {
            let wait = backoff(Millis(1_000), failures).0;
            assert!((least..=least + least / 4).contains(&wait), "{failures}: {wait}");
        }
    }
}
