//! `reconcile` of a tool: the read-only call that says whether the effect of a lost start happened.
//!
//! Templates and conditions are kept as they are written: the crate `standfast-policy` reads them, and `check/reconcile.rs`
//! gives its mistakes their lines.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use standfast_policy::reconcile;

use super::values::{Parameters, Span};
use crate::config::mcp::{BETWEEN, our_name};

/// A read-only call that says whether the effect of a call happened of which nobody knows the outcome; see docs/tools.md.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reconcile {
    /// The tool that is called: one of the agent's that changes nothing. Below `overrides` of an `mcp` entry it is one of the
    /// same server, by the server's own name, unless it has `__` in it. Required.
    pub tool: Option<String>,
    /// Its arguments. In a text `{PATH}` stands for an argument of the call; `{PATH}` alone takes it whole.
    pub arguments: Option<Parameters>,
    /// What the answer is if the effect happened: conditions by path, as in `where` of a policy rule.
    pub happened: Option<Parameters>,
    /// What the answer is if it did not. An answer that fits both, or neither, cannot tell.
    pub did_not_happen: Option<Parameters>,
    /// How long the answer may take, `5m` at most.
    #[schemars(extend("default" = "30s"))]
    pub timeout: Option<Span>,
}

/// What is wrong with one of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadReconcile {
    /// The keys below `reconcile` that lead there.
    pub place: Vec<String>,
    /// What is wrong.
    pub why: String,
}

impl Reconcile {
    /// As the policy reads it; `server` is the entry of a server whose tools are called by their own names.
    pub fn read(&self, server: Option<&str>) -> Result<reconcile::Reconcile, BadReconcile> {
        let bad = |place: &[&str], why: String| BadReconcile {
            place: place.iter().map(|key| (*key).to_owned()).collect(),
            why,
        };
        let Some(tool) = self.tool.as_deref().filter(|tool| !tool.is_empty()) else {
            return Err(bad(&[], "it has no `tool`".into()));
        };
        let tool = match server {
            Some(server) if !tool.contains(BETWEEN) => {
                our_name(server, tool).map_err(|why| bad(&["tool"], why))?.to_string()
            }
            Some(_) | None => tool.to_owned(),
        };
        let mut whole = Map::from_iter([("tool".to_owned(), Value::from(tool))]);
        if let Some(span) = self.timeout {
            whole.insert("timeout".to_owned(), json!(span.to_string()));
        }
        let parts = [
            ("arguments", &self.arguments),
            ("happened", &self.happened),
            ("did_not_happen", &self.did_not_happen),
        ];
        for (key, written) in parts {
            let Some(Parameters(members)) = written else { continue };
            // One by one, so that each mistake has its place.
            for (name, member) in members {
                let alone = json!({"tool": "t", key: {name: member}});
                serde_json::from_value::<reconcile::Reconcile>(alone)
                    .map_err(|error| bad(&[key, name], error.to_string()))?;
            }
            whole.insert(key.to_owned(), Value::Object(members.clone()));
        }
        let read: reconcile::Reconcile =
            serde_json::from_value(Value::Object(whole)).map_err(|error| bad(&[], error.to_string()))?;
        let counted = |written: &Option<Parameters>| written.as_ref().map_or(0, |Parameters(all)| all.len());
        for (key, written, conditions) in [
            ("happened", &self.happened, &read.happened),
            ("did_not_happen", &self.did_not_happen, &read.did_not_happen),
        ] {
            if conditions.len() < counted(written) {
                let why = "two conditions are about one place; `name` and `/name` are the same";
                return Err(bad(&[key], why.into()));
            }
        }
        match read.misfit() {
            Some((key, why)) => Err(bad(&[key], why)),
            None => Ok(read),
        }
    }
}
