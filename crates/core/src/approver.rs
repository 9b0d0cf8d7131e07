//! Who may decide, and who called: users, groups, roles, and the owner of a run.
//!
//! A list of approvers is exactly who may decide: the owner is not on it unless named (C24). Values only: who somebody is
//! comes in with a command, and what a hold demands of them is `hold.rs`.

use std::collections::BTreeSet;
use std::fmt;

use crate::name::{BadName, GroupName, RoleName, UserId};
use serde::{Deserialize, Serialize};

/// An entry of a list of approvers: `owner`, `user:alice`, `group:finance`, `role:on-call`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Approver {
    /// Whoever started the run.
    Owner,
    /// One user.
    User(UserId),
    /// Everyone in a group.
    Group(GroupName),
    /// Everyone with a role.
    Role(RoleName),
}

/// Somebody who calls or decides, as the credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Who they are.
    pub user: UserId,
    /// The groups that they belong to.
    pub groups: BTreeSet<GroupName>,
    /// The roles that they have.
    pub roles: BTreeSet<RoleName>,
    /// Whether these are all of their groups and roles.
    pub membership: Membership,
}

/// Whether somebody's groups and roles are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Membership {
    /// All of them.
    #[default]
    Known,
    /// Nobody has said which they have.
    Unknown,
}

/// Whether whoever started a run may decide its holds; the later one is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfApproval {
    /// If they may decide at all.
    #[default]
    Allow,
    /// Never: four eyes.
    Forbid,
}

impl Person {
    /// A user without groups and roles.
    #[must_use]
    pub fn of(user: UserId) -> Person {
        Person { user, groups: BTreeSet::new(), roles: BTreeSet::new(), membership: Membership::Known }
    }

    /// A user of whom nothing but the name is known.
    #[must_use]
    pub fn by_name(user: UserId) -> Person {
        Person { membership: Membership::Unknown, ..Person::of(user) }
    }
}

impl Approver {
    /// Reads an entry, or says how it would be right.
    pub fn parse(text: &str) -> Result<Approver, String> {
        let bad = |name: BadName| name.to_string();
        match text.split_once(':') {
            None if text == "owner" => Ok(Approver::Owner),
            Some(("user", name)) => UserId::new(name).map(Approver::User).map_err(bad),
            Some(("group", name)) => GroupName::new(name).map(Approver::Group).map_err(bad),
            Some(("role", name)) => RoleName::new(name).map(Approver::Role).map_err(bad),
            Some((kind @ ("users" | "groups" | "roles"), name)) => {
                Err(format!("{text:?} names nobody; did you mean `{}:{name}`?", kind.trim_end_matches('s')))
            }
            Some(_) | None => {
                Err(format!("{text:?} names nobody; write owner, user:NAME, group:NAME or role:NAME"))
            }
        }
    }

    /// Whether it means this person, in a run of this owner.
    #[must_use]
    pub fn means(&self, person: &Person, owner: &UserId) -> bool {
        match self {
            Approver::Owner => person.user == *owner,
            Approver::User(user) => person.user == *user,
            Approver::Group(group) => person.groups.contains(group),
            Approver::Role(role) => person.roles.contains(role),
        }
    }
}

impl fmt::Display for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Approver::Owner => f.write_str("owner"),
            Approver::User(user) => write!(f, "user:{user}"),
            Approver::Group(group) => write!(f, "group:{group}"),
            Approver::Role(role) => write!(f, "role:{role}"),
        }
    }
}

impl std::str::FromStr for Approver {
    type Err = String;

    fn from_str(text: &str) -> Result<Approver, String> {
        Approver::parse(text)
    }
}

impl TryFrom<String> for Approver {
    type Error = String;

    fn try_from(text: String) -> Result<Approver, String> {
        Approver::parse(&text)
    }
}

impl From<Approver> for String {
    fn from(approver: Approver) -> String {
        approver.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C24: prefixes are checked, and the owner is an entry like any other.
    #[test]
    fn entries_are_checked() {
        for text in ["owner", "user:ann", "group:a:b", "role:on call"] {
            assert_eq!(Approver::parse(text).unwrap().to_string(), text);
        }
        assert!(Approver::parse("users:bob").unwrap_err().contains("did you mean `user:bob`?"));
        for text in ["", "bob", "user:", "team:x", "Owner"] {
            assert!(Approver::parse(text).is_err(), "{text}");
        }
    }
}
