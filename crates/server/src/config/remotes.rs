//! The agents elsewhere that a file names: each is asked for its card once, before runs are pinned to it.
//!
//! A card that cannot be used is a mistake, told with its place. One that cannot be fetched now is none: this server may
//! be started before the other, and the first call then asks a person about the card that nobody has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_tools::a2a::card::Trouble;
use standfast_tools::a2a::{RemoteAgent, RemoteOptions};
use standfast_tools::external::USUAL_TIMEOUT;

use super::build::tools::{guard, others};
use super::file::{A2aKeys, Tool, ToolKind};
use super::path::Path;
use super::problem::{Problem, Problems};
use super::source::Spot;
use super::{BuildError, Config, tree};

/// Bytes of an answer, unless the file says otherwise.
const ANSWER_BYTES: usize = 1024 * 1024;

/// The agents elsewhere, by the name of their entry.
pub(super) type Remotes = BTreeMap<String, Arc<RemoteAgent>>;

impl Config {
    /// Every remote agent that an agent of this server can hand work to.
    pub(super) async fn remote_agents(&self, clock: &Clock) -> Result<Remotes, BuildError> {
        let used = self.agents.iter().flat_map(|plan| &plan.tools);
        let names: BTreeSet<&str> = used.map(|tool| tool.name.as_str()).collect();
        let entries = names.into_iter().filter_map(|name| {
            let tool = self.file.tools.get(name)?;
            match &tool.kind {
                Some(ToolKind::A2a(keys)) => Some((name, tool, keys)),
                Some(_) | None => None,
            }
        });
        let all = join_all(entries.map(async |(name, tool, keys)| {
            let remote = RemoteAgent::new(options(name, tool, keys), clock.clone());
            let seen = remote.look().await;
            (name, Arc::new(remote), seen)
        }));
        let (mut remotes, mut problems) = (Remotes::new(), Vec::new());
        let tree = tree::parse(&self.source.text).ok().map(|(tree, _)| tree);
        for (name, remote, seen) in all.await {
            match seen {
                Ok(()) => {}
                Err(trouble @ Trouble::Away { .. }) => tracing::warn!(
                    tool = name,
                    %trouble,
                    "a2a: remote agent unreachable; its calls need approval once its card is available"
                ),
                Err(trouble @ Trouble::Unusable { .. }) => {
                    let path = Path::of(&["tools", name]);
                    let at = tree.as_ref().map_or(Spot::START, |tree| tree.spot(&path));
                    let what = format!("the remote agent `{name}` cannot be used: {trouble}");
                    let help = "repair its entry or its card; `enabled: false` disables it".to_owned();
                    problems.push(Problem { at, path, what, help });
                }
            }
            remotes.insert(name.to_owned(), remote);
        }
        if problems.is_empty() {
            return Ok(remotes);
        }
        let source = self.source.clone();
        Err(BuildError::Remote(Box::new(Problems { source, problems, notices: Vec::new() })))
    }
}

fn options(name: &str, tool: &Tool, keys: &A2aKeys) -> RemoteOptions {
    let headers = keys.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
    let kept = keys.max_output.and_then(|bytes| usize::try_from(bytes).ok());
    RemoteOptions {
        name: name.to_owned(),
        url: keys.url.clone().unwrap_or_default(),
        headers: headers.collect(),
        guard: guard(keys.allowed_hosts.as_deref(), others(keys.only_allowed_hosts)),
        answer_bytes: kept.unwrap_or(ANSWER_BYTES),
        timeout: keys.timeout.map_or(USUAL_TIMEOUT, |span| span.0).max(Millis(1)),
        idempotent: keys.idempotent,
        description: tool.common.description.clone(),
    }
}
