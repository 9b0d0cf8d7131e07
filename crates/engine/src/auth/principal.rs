//! Whoever is calling: tenant, user, groups, roles, and what their credential is for.
//!
//! Groups and roles say who somebody is; scopes say what the credential may be used for. Having a scope gives nobody
//! the right to decide: `may_decide` asks who they are.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use standfast_core::approver::Approver;
use standfast_core::name::{AgentName, BadName, GroupName, InboxName, RoleName, Tenant, UserId};
use standfast_core::time::Timestamp;

use super::scope_limits::{NamedScope, ScopeLimits};

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Whose data they may see.
    pub tenant: Tenant,
    /// Who they are.
    pub user: UserId,
    /// The groups that they belong to.
    pub groups: BTreeSet<GroupName>,
    /// The roles that they have.
    pub roles: BTreeSet<RoleName>,
    /// What their credential may be used for.
    pub scopes: BTreeSet<Scope>,
    /// What those are narrowed to: agents, inboxes, gateways.
    pub limits: ScopeLimits,
    /// How they were identified, so that it can be asked again later whether that still holds.
    pub by: Identification,
}

/// How somebody was identified.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identification {
    /// Not at all: no identities are configured.
    #[default]
    Local,
    /// By an API key.
    ApiKey {
        /// The part of it that is not a secret.
        prefix: String,
    },
    /// By a token of the identity provider.
    Token {
        /// When it was issued: of two tokens the later one says what its holder may.
        issued_at: Timestamp,
        /// When it stops to be taken.
        expires_at: Timestamp,
        /// When its holder signed in at the provider (`auth_time`), if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed_in_at: Option<Timestamp>,
    },
    /// By an approval link that was issued for them; what they decide says so.
    Link,
    /// By the configuration, which names them: for what the server itself sends them.
    Configured,
}

/// What a credential may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// Look: agents, runs, events, holds, receipts.
    #[serde(rename = "runs:read")]
    RunsRead,
    /// Start runs, send messages, cancel.
    #[serde(rename = "runs:write")]
    RunsWrite,
    /// Decide holds.
    #[serde(rename = "holds:decide")]
    HoldsDecide,
    /// Work on the tasks of inboxes: see them, claim them, report on them.
    #[serde(rename = "inbox:work")]
    InboxWork,
    /// Open gates, and run what they let through. Whoever has it decides nothing, whatever else they have.
    #[serde(rename = "gates:open")]
    GatesOpen,
    /// Scrape the metrics of the server, and nothing else.
    #[serde(rename = "metrics:read")]
    MetricsRead,
    /// Everything, and see everything of the tenant.
    #[serde(rename = "admin")]
    Admin,
}

/// The role that makes somebody an administrator.
const ADMIN: &str = "admin";

/// The role of whoever reads everything and changes nothing.
const AUDITOR: &str = "auditor";

/// The role of whoever keeps the server going and decides nothing.
const OPERATOR: &str = "operator";

impl Principal {
    /// An ordinary user of the tenant of a server that has only one: everything but administering.
    #[must_use]
    pub fn of(user: UserId) -> Principal {
        Principal {
            tenant: Tenant::default_tenant(),
            user,
            groups: BTreeSet::new(),
            roles: BTreeSet::new(),
            scopes: Scope::usual(),
            limits: ScopeLimits::default(),
            by: Identification::Local,
        }
    }

    /// Whoever is at this machine, when no identities are configured.
    #[must_use]
    pub fn local() -> Principal {
        static LOCAL: LazyLock<Principal> = LazyLock::new(|| Principal {
            scopes: BTreeSet::from([Scope::Admin]),
            ..Principal::of(UserId::local())
        });
        LOCAL.clone()
    }

    /// A room of a chat that is notified of holds: it sees all of its tenant and decides nothing.
    #[must_use]
    pub fn room(tenant: Tenant, user: UserId) -> Principal {
        Principal {
            tenant,
            roles: RoleName::new(AUDITOR).into_iter().collect(),
            scopes: BTreeSet::from([Scope::RunsRead]),
            by: Identification::Configured,
            ..Principal::of(user)
        }
    }

    /// Whether they administer the server: by their role or by their credential. An auditor never does, nor an operator.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        (self.scopes.contains(&Scope::Admin) || self.is_a(ADMIN)) && !self.is_auditor() && !self.is_operator()
    }

    /// Whether they keep the server going and decide nothing, whatever else they are and their credential is for: whoever
    /// configures is not whoever approves.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.is_a(OPERATOR) && !self.is_auditor()
    }

    /// Whether they see to what is everybody's of their tenant: runs, deliveries, subscriptions, conversations.
    #[must_use]
    pub fn operates(&self) -> bool {
        self.is_admin() || self.is_operator()
    }

    /// Whether they read everything of their tenant and change nothing, whatever else they are and their credential is for.
    #[must_use]
    pub fn is_auditor(&self) -> bool {
        self.is_a(AUDITOR)
    }

    /// Whether they see everything of their tenant.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        self.oversees() && self.narrowed_to(Scope::RunsRead).is_none()
    }

    /// Whether they see what is others', of the agents that their credential is for.
    #[must_use]
    pub fn oversees(&self) -> bool {
        self.operates() || self.is_auditor()
    }

    /// Whether their credential shows anything of this agent: what it does not show is not there for them. Whether it is for looking at
    /// all is asked at the door.
    #[must_use]
    pub fn reads(&self, agent: &AgentName) -> bool {
        self.narrowed_to(Scope::RunsRead).is_none_or(|names| names.contains(agent.as_str()))
    }

    /// Them at a gateway that their credential is for: there it opens gates as one does that is for all gateways.
    #[must_use]
    pub fn at_gateway(&self) -> Principal {
        Principal { limits: self.limits.clone().without(Scope::GatesOpen), ..self.clone() }
    }

    /// The names that their credential narrows a scope to; none when it covers all.
    #[must_use]
    pub fn narrowed_to(&self, scope: Scope) -> Option<&BTreeSet<String>> {
        self.limits.names(scope).filter(|_| !self.scopes.contains(&Scope::Admin))
    }

    fn is_a(&self, role: &str) -> bool {
        self.roles.iter().any(|one| one.as_str() == role)
    }

    /// Whether their credential may be used for this, of something at least. One that opens gates is an agent's: it never
    /// decides. One that opens them at some gateways does so nowhere else.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        let is_elsewhere = scope == Scope::GatesOpen && self.narrowed_to(scope).is_some();
        self.may_use(scope) && !is_elsewhere
    }

    /// Whether their credential may be used for this, of what has this name: an agent, an inbox, a gateway.
    #[must_use]
    pub fn has_for(&self, scope: Scope, name: &str) -> bool {
        self.may_use(scope) && self.narrowed_to(scope).is_none_or(|names| names.contains(name))
    }

    /// The scope that their credential lacks for what has this name; none when it is for that.
    #[must_use]
    pub fn lacks(&self, scope: Scope, name: &str) -> Option<NamedScope> {
        if self.has_for(scope, name) {
            return None;
        }
        Some(if self.may_use(scope) { NamedScope::only(scope, name) } else { NamedScope::from(scope) })
    }

    fn may_use(&self, scope: Scope) -> bool {
        let is_allowed = match scope {
            Scope::RunsRead | Scope::MetricsRead => true,
            Scope::HoldsDecide => {
                !self.is_auditor() && !self.is_operator() && !self.scopes.contains(&Scope::GatesOpen)
            }
            Scope::Admin => !self.is_auditor() && !self.is_operator(),
            Scope::RunsWrite | Scope::InboxWork | Scope::GatesOpen => !self.is_auditor(),
        };
        is_allowed && (self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin))
    }

    /// Whether their credential may be used to work on the tasks of this inbox.
    #[must_use]
    pub fn works_in(&self, inbox: &InboxName) -> bool {
        self.has_for(Scope::InboxWork, inbox.as_str())
    }

    /// Every name that a list of approvers could mean them by.
    pub fn parties(&self) -> impl Iterator<Item = Party> {
        let user = std::iter::once(Party::User(self.user.clone()));
        let groups = self.groups.iter().cloned().map(Party::Group);
        user.chain(groups).chain(self.roles.iter().cloned().map(Party::Role))
    }
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 7] = [
        Scope::RunsRead,
        Scope::RunsWrite,
        Scope::HoldsDecide,
        Scope::InboxWork,
        Scope::GatesOpen,
        Scope::MetricsRead,
        Scope::Admin,
    ];

    /// What a key is good for unless somebody says otherwise: everything but administering, scraping, working on others' tasks
    /// and opening gates.
    #[must_use]
    pub fn usual() -> BTreeSet<Scope> {
        BTreeSet::from([Scope::RunsRead, Scope::RunsWrite, Scope::HoldsDecide])
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::RunsRead => "runs:read",
            Scope::RunsWrite => "runs:write",
            Scope::HoldsDecide => "holds:decide",
            Scope::InboxWork => "inbox:work",
            Scope::GatesOpen => "gates:open",
            Scope::MetricsRead => "metrics:read",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        let known = Scope::ALL.into_iter().find(|scope| scope.as_str() == text);
        known.ok_or_else(|| {
            format!("there is no such scope; the scopes are: {}", Scope::ALL.map(Scope::as_str).join(", "))
        })
    }
}

/// A user, a group or a role, as lists of approvers name them: `user:alice`, `group:finance`, `role:on-call`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// One user.
    User(UserId),
    /// Everyone in a group.
    Group(GroupName),
    /// Everyone with a role.
    Role(RoleName),
}

impl Party {
    /// Whom an entry of a list of approvers names; none for the owner, who is known by another way.
    #[must_use]
    pub fn of(approver: &Approver) -> Option<Party> {
        match approver {
            Approver::Owner => None,
            Approver::User(user) => Some(Party::User(user.clone())),
            Approver::Group(group) => Some(Party::Group(group.clone())),
            Approver::Role(role) => Some(Party::Role(role.clone())),
        }
    }
}

/// Why a text names no party.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadParty {
    /// It does not say of which kind.
    #[error("write user:NAME, group:NAME or role:NAME")]
    Kind,
    /// The name is none.
    #[error(transparent)]
    Name(#[from] BadName),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::User(user) => write!(f, "user:{user}"),
            Party::Group(group) => write!(f, "group:{group}"),
            Party::Role(role) => write!(f, "role:{role}"),
        }
    }
}

impl FromStr for Party {
    type Err = BadParty;

    fn from_str(text: &str) -> Result<Party, BadParty> {
        match text.split_once(':') {
            Some(("user", name)) => Ok(Party::User(UserId::new(name)?)),
            Some(("group", name)) => Ok(Party::Group(GroupName::new(name)?)),
            Some(("role", name)) => Ok(Party::Role(RoleName::new(name)?)),
            Some(_) | None => Err(BadParty::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_scope_is_every_scope_and_the_role_is_none() {
        let mut who = Principal::of(UserId::new("ann").unwrap());
        assert!(!who.is_admin() && !who.has(Scope::Admin));
        who.scopes = BTreeSet::from([Scope::RunsRead]);
        who.roles = BTreeSet::from([RoleName::new("admin").unwrap()]);
        assert!(who.is_admin() && !who.has(Scope::HoldsDecide), "the key is still for reading only");
        assert!(Scope::ALL.into_iter().all(|scope| Principal::local().has(scope)));
    }

    /// An auditor has nothing but looking, whatever the credential is for and whatever else they are.
    #[test]
    fn an_auditor_looks_and_nothing_else() {
        let mut who = Principal::of(UserId::new("eve").unwrap());
        who.roles = ["auditor", "admin"].map(|role| RoleName::new(role).unwrap()).into();
        for scopes in [Scope::usual(), BTreeSet::from([Scope::Admin]), BTreeSet::from(Scope::ALL)] {
            who.scopes = scopes;
            let has = Scope::ALL.into_iter().filter(|scope| who.has(*scope));
            assert!(has.into_iter().all(|scope| matches!(scope, Scope::RunsRead | Scope::MetricsRead)));
            assert!(who.has(Scope::RunsRead) && who.sees_all() && !who.is_admin());
        }
        who.scopes = BTreeSet::from([Scope::HoldsDecide]);
        assert!(!who.has(Scope::RunsRead), "a credential that is not for looking shows nothing");
    }

    /// Role × what it is for, with every scope: whoever configures decides nothing, whoever audits changes nothing, and the
    /// stricter role counts.
    #[test]
    fn t12_every_role_has_what_is_its_own() {
        let every = "runs:read runs:write holds:decide inbox:work metrics:read admin";
        let operators = "runs:read runs:write inbox:work metrics:read";
        for (roles, scopes, has, oversees, operates) in [
            ("", "runs:read runs:write holds:decide", "runs:read runs:write holds:decide", false, false),
            (
                "service",
                "runs:read runs:write holds:decide",
                "runs:read runs:write holds:decide",
                false,
                false,
            ),
            ("admin", "runs:read holds:decide", "runs:read holds:decide", true, true),
            ("", every, every, true, true),
            ("operator", every, operators, true, true),
            ("operator admin", every, operators, true, true),
            ("operator", "runs:read holds:decide", "runs:read", true, true),
            ("auditor", every, "runs:read metrics:read", true, false),
            ("auditor operator admin", every, "runs:read metrics:read", true, false),
        ] {
            let mut who = Principal::of(UserId::new("ann").unwrap());
            who.roles = roles.split_whitespace().map(|role| RoleName::new(role).unwrap()).collect();
            let named = scopes.split_whitespace().map(|scope| scope.parse().unwrap());
            (who.scopes, who.limits) = ScopeLimits::of(named);
            let held = Scope::ALL.into_iter().filter(|scope| *scope != Scope::GatesOpen && who.has(*scope));
            let held: Vec<&str> = held.map(Scope::as_str).collect();
            assert_eq!(held.join(" "), has, "{roles:?}");
            assert_eq!((who.oversees(), who.operates()), (oversees, operates), "{roles:?}");
        }
    }

    /// A scope with a name covers that alone, and one that opens gates at a gateway does so nowhere else.
    #[test]
    fn a_scope_with_a_name_covers_that_alone() {
        let with = |scopes: &str| {
            let mut who = Principal::of(UserId::new("ann").unwrap());
            let named = scopes.split_whitespace().map(|scope| scope.parse().unwrap());
            (who.scopes, who.limits) = ScopeLimits::of(named);
            who
        };
        for scope in [Scope::RunsRead, Scope::RunsWrite, Scope::HoldsDecide, Scope::InboxWork] {
            let who = with(&format!("{scope}:ops"));
            assert!(who.has(scope) && who.has_for(scope, "ops") && !who.has_for(scope, "pay"), "{scope}");
            let lacks = |who: &Principal, name: &str| who.lacks(scope, name).map(|lacked| lacked.to_string());
            assert_eq!((lacks(&who, "ops"), lacks(&who, "pay")), (None, Some(format!("{scope}:pay"))));
            assert_eq!(lacks(&with("metrics:read"), "pay"), Some(scope.to_string()));
            assert_eq!(lacks(&with(&format!("{scope}:ops admin")), "pay"), None);
        }
        let who = with("gates:open:jira");
        assert!(!who.has(Scope::GatesOpen) && who.has_for(Scope::GatesOpen, "jira"));
        assert!(!who.has_for(Scope::GatesOpen, "github") && who.at_gateway().has(Scope::GatesOpen));
        assert!(
            !with("gates:open:jira holds:decide").has(Scope::HoldsDecide),
            "it is an agent's all the same"
        );
        let mut auditor = with("runs:read:ops");
        auditor.roles = BTreeSet::from([RoleName::new("auditor").unwrap()]);
        assert!(auditor.oversees() && !auditor.sees_all());
    }

    #[test]
    fn scopes_and_parties_are_written_as_they_are_read() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("\"{scope}\""));
        }
        assert!("holds".parse::<Scope>().unwrap_err().contains("holds:decide"));
        for text in ["user:ann", "group:a:b", "role:on call"] {
            assert_eq!(text.parse::<Party>().unwrap().to_string(), text);
        }
        for text in ["ann", "person:ann", "user:", "group:a\nb", ""] {
            assert!(text.parse::<Party>().is_err(), "{text:?}");
        }
    }
}
