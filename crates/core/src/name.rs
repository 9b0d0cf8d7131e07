//! Names that people or other systems choose: tenants, agents, tools, users, sessions, rules, grants.
//!
//! Each is its own type, so that no function can be handed the wrong one. A name is 1 to 256 bytes without control
//! characters; everything narrower is a matter of configuration.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName {
    /// What the name was meant to be, such as `session`.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is not a {} name: it {}", self.what, self.why)
    }
}

impl std::error::Error for BadName {}

const MAX_BYTES: usize = 256;

fn check(what: &'static str, text: &str) -> Result<(), BadName> {
    let why = if text.is_empty() {
        "is empty"
    } else if text.len() > MAX_BYTES {
        "is longer than 256 bytes"
    } else if text.chars().any(char::is_control) {
        "contains a control character"
    } else {
        return Ok(());
    };
    Err(BadName { what, why })
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes a text as a name, or says why it is invalid.
            pub fn new(text: impl AsRef<str>) -> Result<Self, BadName> {
                check($what, text.as_ref())?;
                Ok(Self(Arc::from(text.as_ref())))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// A text that is shared already is not copied.
        impl TryFrom<Arc<str>> for $name {
            type Error = BadName;

            fn try_from(text: Arc<str>) -> Result<Self, BadName> {
                check($what, &text)?;
                Ok(Self(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct NameVisitor;
                impl Visitor<'_> for NameVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(NameVisitor)
            }
        }
    };
}

name!(
    /// Whose data it is. Every key of data begins with it.
    Tenant, "tenant"
);
name!(
    /// An agent as configured.
    AgentName, "agent"
);
name!(
    /// A tool as the model knows it.
    ToolName, "tool"
);
name!(
    /// A person or a service that acts, as the credential says, never as a message says.
    UserId, "user"
);
name!(
    /// Users who may decide together, as the credential says.
    GroupName, "group"
);
name!(
    /// What users may be besides themselves, as the credential says.
    RoleName, "role"
);
name!(
    /// The conversation that runs belong to; chosen by the client or made for it.
    SessionId, "session"
);
name!(
    /// A rule of the policy, as the log names it.
    RuleId, "rule"
);
name!(
    /// A bounded standing approval.
    GrantId, "grant"
);
name!(
    /// A queue of work for outside workers.
    InboxName, "inbox"
);
name!(
    /// An outside worker that claims runs.
    WorkerName, "worker"
);

impl Tenant {
    /// The tenant of a server that has only one.
    #[must_use]
    pub fn default_tenant() -> Tenant {
        static NAME: LazyLock<Tenant> = LazyLock::new(|| Tenant(Arc::from("default")));
        NAME.clone()
    }
}

impl UserId {
    /// Whoever is at this machine, on a server without identities.
    #[must_use]
    pub fn local() -> UserId {
        static NAME: LazyLock<UserId> = LazyLock::new(|| UserId(Arc::from("local")));
        NAME.clone()
    }
}

impl RuleId {
    /// What holds a call for which the policy gave no verdict at all.
    #[must_use]
    pub fn no_verdict() -> RuleId {
        RuleId(Arc::from("standfast:no-verdict"))
    }

    /// What holds an allowed call whose turn is held as a whole (`hold_batch`).
    #[must_use]
    pub fn batch() -> RuleId {
        RuleId(Arc::from("standfast:batch"))
    }

    /// What re-asks when a file that the call names is no longer the one that was shown.
    #[must_use]
    pub fn files_changed() -> RuleId {
        RuleId(Arc::from("standfast:files-changed"))
    }

    /// What refuses a call that a person has denied before, while nobody has asked for it since.
    #[must_use]
    pub fn denied_before() -> RuleId {
        RuleId(Arc::from("standfast:denied-before"))
    }

    /// What re-asks when the tool's schema is no longer the one that was shown.
    #[must_use]
    pub fn schema_changed() -> RuleId {
        RuleId(Arc::from("standfast:schema-changed"))
    }

    /// What holds a call for what the read-only call of `rule` said, named by its digest: an approval satisfies just that.
    ///
    /// # Errors
    /// If the name gets too long.
    pub fn finding(rule: &RuleId, digest: &str) -> Result<RuleId, BadName> {
        RuleId::new(format!("{FINDING}{rule}:{digest}"))
    }

    /// Whether both are findings of the same rule, the same one or different ones.
    #[must_use]
    pub fn is_finding_like(&self, other: &RuleId) -> bool {
        let looked = |rule: &'_ RuleId| {
            let (rule, _) = rule.as_str().strip_prefix(FINDING)?.rsplit_once(':')?;
            Some(rule.to_owned())
        };
        looked(self).is_some_and(|rule| looked(other) == Some(rule))
    }
}

/// How the names of findings begin.
const FINDING: &str = "precondition:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable() {
        assert!(SessionId::new("ctx-1").is_ok());
        let why = |text: &str| SessionId::new(text).map_err(|e| e.to_string());
        assert_eq!(why(""), Err("this is not a session name: it is empty".into()));
        assert_eq!(why("a\nb"), Err("this is not a session name: it contains a control character".into()));
        assert_eq!(
            why(&"x".repeat(257)),
            Err("this is not a session name: it is longer than 256 bytes".into())
        );
    }

    #[test]
    fn a_stored_name_is_checked_when_it_is_read() {
        assert!(serde_json::from_str::<ToolName>("\"rm\"").is_ok());
        assert!(serde_json::from_str::<ToolName>("\"\"").is_err());
    }
}
