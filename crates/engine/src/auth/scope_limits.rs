//! What scopes are narrowed to: `runs:write:NAME` is for one agent, `inbox:work:NAME` for one inbox, `gates:open:NAME` for one gateway.
//!
//! The rule is one for all: a scope with a name covers what has that name, a scope without one covers all, and whoever has both has
//! all. Who asks what is `principal.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use standfast_core::name::{AgentName, InboxName};

use super::principal::Scope;

/// The names that scopes are narrowed to. A scope that is not among them is not narrowed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeLimits(BTreeMap<Scope, BTreeSet<String>>);

/// A scope as keys and tokens name it: `runs:write`, or `runs:write:ops`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedScope {
    /// The scope.
    pub scope: Scope,
    /// What it is narrowed to.
    pub only: Option<String>,
}

impl ScopeLimits {
    /// The scopes that are named, and what they are narrowed to. One that is also named without a name covers all.
    pub fn of(named: impl IntoIterator<Item = NamedScope>) -> (BTreeSet<Scope>, ScopeLimits) {
        let (mut scopes, mut whole) = (BTreeSet::new(), BTreeSet::new());
        let mut limits = ScopeLimits::default();
        for NamedScope { scope, only } in named {
            scopes.insert(scope);
            match only {
                Some(name) => limits.narrow(scope, name),
                None => drop(whole.insert(scope)),
            }
        }
        limits.0.retain(|scope, _| !whole.contains(scope));
        (scopes, limits)
    }

    /// Narrows a scope to one more name.
    pub fn narrow(&mut self, scope: Scope, name: impl Into<String>) {
        self.0.entry(scope).or_default().insert(name.into());
    }

    /// The names that a scope is narrowed to; none when it covers all.
    #[must_use]
    pub fn names(&self, scope: Scope) -> Option<&BTreeSet<String>> {
        self.0.get(&scope).filter(|names| !names.is_empty())
    }

    /// Whether a scope covers what has this name.
    #[must_use]
    pub fn cover(&self, scope: Scope, name: &str) -> bool {
        self.names(scope).is_none_or(|names| names.contains(name))
    }

    /// Whether nothing is narrowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with a scope that covers all.
    #[must_use]
    pub fn without(mut self, scope: Scope) -> ScopeLimits {
        self.0.remove(&scope);
        self
    }

    /// These scopes as keys and tokens name them.
    #[must_use]
    pub fn named(&self, scopes: &BTreeSet<Scope>) -> Vec<NamedScope> {
        let named = |scope: &Scope| match self.names(*scope) {
            Some(names) => names.iter().map(|name| NamedScope::only(*scope, name)).collect(),
            None => vec![NamedScope::from(*scope)],
        };
        scopes.iter().flat_map(named).collect()
    }
}

impl NamedScope {
    /// A scope that is narrowed to this.
    pub fn only(scope: Scope, name: impl Into<String>) -> NamedScope {
        NamedScope { scope, only: Some(name.into()) }
    }
}

impl From<Scope> for NamedScope {
    fn from(scope: Scope) -> NamedScope {
        NamedScope { scope, only: None }
    }
}

impl fmt::Display for NamedScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.only {
            Some(name) => write!(f, "{}:{name}", self.scope),
            None => write!(f, "{}", self.scope),
        }
    }
}

impl Serialize for NamedScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for NamedScope {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedScope, String> {
        let narrowed = Scope::ALL.into_iter().find_map(|scope| {
            let name = text.strip_prefix(scope.as_str())?.strip_prefix(':')?;
            Some((scope, name))
        });
        let Some((scope, name)) = narrowed else { return text.parse::<Scope>().map(NamedScope::from) };
        let bad = |error: &dyn fmt::Display| Err(format!("the name after {scope}: cannot be one: {error}"));
        match scope {
            Scope::RunsRead | Scope::RunsWrite | Scope::HoldsDecide => {
                AgentName::new(name).map_or_else(|error| bad(&error), |_| Ok(NamedScope::only(scope, name)))
            }
            Scope::InboxWork | Scope::GatesOpen => {
                InboxName::new(name).map_or_else(|error| bad(&error), |_| Ok(NamedScope::only(scope, name)))
            }
            Scope::MetricsRead | Scope::Admin => {
                Err(format!("the scope {scope} covers all of a tenant; write it without a name"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> (BTreeSet<Scope>, ScopeLimits) {
        ScopeLimits::of(texts.iter().map(|text| text.parse().unwrap()))
    }

    #[test]
    fn a_scope_with_a_name_is_written_as_it_is_read() {
        for text in ["runs:read", "runs:write:ops", "holds:decide:gate", "inbox:work:mail", "gates:open:jira"]
        {
            let scope: NamedScope = text.parse().unwrap();
            assert_eq!(scope.to_string(), text);
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("\"{text}\""));
        }
        for text in
            ["", "runs", "runs:read:", "runs:read:a\nb", "admin:ops", "metrics:read:ops", "runs:reads"]
        {
            assert!(text.parse::<NamedScope>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_scope_without_a_name_covers_all() {
        let (scopes, limits) = named(&["runs:read:a", "runs:read:b", "runs:write:a", "runs:write", "admin"]);
        assert_eq!(scopes, BTreeSet::from([Scope::RunsRead, Scope::RunsWrite, Scope::Admin]));
        for (scope, name, covers) in [
            (Scope::RunsRead, "a", true),
            (Scope::RunsRead, "b", true),
            (Scope::RunsRead, "c", false),
            (Scope::RunsRead, "", false),
            (Scope::RunsWrite, "a", true),
            (Scope::RunsWrite, "c", true),
        ] {
            assert_eq!(limits.cover(scope, name), covers, "{scope} {name}");
        }
        let names: Vec<String> = limits.named(&scopes).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["runs:read:a", "runs:read:b", "runs:write", "admin"]);
        let stored = serde_json::to_string(&limits).unwrap();
        assert_eq!(stored, r#"{"runs:read":["a","b"]}"#);
        assert_eq!(serde_json::from_str::<ScopeLimits>(&stored).unwrap(), limits);
    }
}
