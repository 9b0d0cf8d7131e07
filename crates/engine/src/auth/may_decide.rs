//! What a principal may see and decide: the one answer for every surface (C12, C24).
//!
//! Who may decide is never pinned: both functions take the approvers as they are now.

use standfast_core::hold::HoldKind;
use standfast_core::name::ToolName;
use standfast_core::policy::Role;
use standfast_core::project::HoldRow;
use standfast_core::run::Facts;

use super::approvers::{Approvers, SelfApproval};
use super::principal::{Principal, Scope};

/// What there is to decide.
#[derive(Debug, Clone, Copy)]
pub struct ToDecide<'a> {
    /// What is waited for.
    pub kind: HoldKind,
    /// The tool whose call waits, if it is one.
    pub tool: Option<&'a ToolName>,
}

impl<'a> From<&'a HoldRow> for ToDecide<'a> {
    fn from(hold: &'a HoldRow) -> ToDecide<'a> {
        ToDecide { kind: hold.kind, tool: hold.tool.as_ref() }
    }
}

/// In what role this principal may decide such a hold of this run; none when not at all.
///
/// Absent approvers mean the owner, an empty list means nobody (T13). With `self_approval: forbid` whoever started the
/// run may not decide, whatever else they are (T12); a login is no approval, and nobody else can give theirs (ADR 0011).
#[must_use]
pub fn may_decide(who: &Principal, run: &Facts, hold: ToDecide<'_>, approvers: &Approvers) -> Option<Role> {
    if who.tenant != run.tenant || !who.has(Scope::HoldsDecide) {
        return None;
    }
    // An empty list is meant: nobody, not even the owner.
    if approvers.named.as_ref().is_some_and(|named| named.is_empty()) {
        return None;
    }
    let is_owner = who.user == run.owner;
    let is_approval = hold.kind != HoldKind::Auth;
    if is_owner && is_approval && approvers.self_approval_of(hold.tool) == SelfApproval::Forbid {
        return None;
    }
    if approvers.include(who) {
        return Some(Role::Approver);
    }
    if is_owner {
        return Some(Role::Owner);
    }
    // An unknown outcome is also the administrators' business.
    (who.is_admin() && hold.kind == HoldKind::Recovery).then_some(Role::Admin)
}

/// Whether this principal may log in for a hold that they may decide: the account becomes that of the run's owner, so it
/// is the owner's own (ADR 0011). Whoever else may decide the hold can deny it.
#[must_use]
pub fn may_log_in(who: &Principal, run: &Facts, hold: ToDecide<'_>, approvers: &Approvers) -> bool {
    let is_owner = who.user == run.owner;
    hold.kind == HoldKind::Auth && is_owner && may_decide(who, run, hold, approvers).is_some()
}

/// Whether this principal may see this run and its holds: owners, approvers and administrators of its tenant. For
/// everyone else it does not exist (T15).
#[must_use]
pub fn may_see(who: &Principal, run: &Facts, approvers: Option<&Approvers>) -> bool {
    let is_involved = || {
        who.user == run.owner || who.is_admin() || approvers.is_some_and(|approvers| approvers.include(who))
    };
    who.tenant == run.tenant && is_involved()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use standfast_core::event::Driver;
    use standfast_core::id::{RunId, StorageKind};
    use standfast_core::name::{AgentName, GroupName, RoleName, SessionId, Tenant, UserId};
    use standfast_core::time::Timestamp;

    use super::*;

    const FOUR_EYES: SelfApproval = SelfApproval::Forbid;
    const MAY: SelfApproval = SelfApproval::Allow;

    fn run() -> Facts {
        let tenant = Tenant::default_tenant();
        Facts {
            id: RunId::new(&tenant, StorageKind::Durable, Timestamp(1), [1; 5]),
            tenant,
            agent: AgentName::new("ops").unwrap(),
            session: SessionId::new("s-1").unwrap(),
            owner: UserId::new("owner").unwrap(),
            driver: Driver::Loop,
            started_at: Timestamp(1),
            parent: None,
            inbox: None,
        }
    }

    fn user(name: &str) -> Principal {
        Principal::of(UserId::new(name).unwrap())
    }

    /// `owner`, `owner in finance`, `ann`, `ann in finance`, `ann as lead`, `admin`, `owner from acme`, …
    fn principal(text: &str) -> Principal {
        let mut words = text.split(' ');
        let mut who = user(words.next().unwrap());
        while let (Some(word), Some(name)) = (words.next(), words.next()) {
            match word {
                "in" => drop(who.groups.insert(GroupName::new(name).unwrap())),
                "as" => drop(who.roles.insert(RoleName::new(name).unwrap())),
                "from" => who.tenant = Tenant::new(name).unwrap(),
                "with" => who.scopes = BTreeSet::from([name.parse().unwrap()]),
                other => panic!("{other}"),
            }
        }
        who
    }

    /// None: no list. Otherwise the list, with commas.
    fn approvers(named: Option<&str>, self_approval: SelfApproval) -> Approvers {
        let list = |text: &str| {
            text.split(',').filter(|one| !one.is_empty()).map(|one| one.parse().unwrap()).collect()
        };
        Approvers { named: named.map(list), self_approval, ..Approvers::default() }
    }

    fn of(kind: HoldKind) -> ToDecide<'static> {
        ToDecide { kind, tool: None }
    }

    /// C24: a tool can be stricter than its agent, never less strict.
    #[test]
    fn the_strictest_of_agent_and_tool_counts() {
        let (deploy, look) = (ToolName::new("deploy").unwrap(), ToolName::new("look").unwrap());
        for (agent, owner_decides_look) in [(MAY, true), (FOUR_EYES, false)] {
            let list = Approvers {
                four_eyes: BTreeSet::from([deploy.clone()]),
                ..approvers(Some("user:ann"), agent)
            };
            let decides = |who: &str, tool: &ToolName| {
                let hold = ToDecide { kind: HoldKind::Approval, tool: Some(tool) };
                may_decide(&principal(who), &run(), hold, &list).is_some()
            };
            assert!(!decides("owner", &deploy));
            assert_eq!(decides("owner", &look), owner_decides_look);
            assert!(decides("ann", &deploy) && decides("ann", &look));
        }
    }

    /// C24, T12, T13: who, the list, self-approval, and in which role they decide an approval.
    #[test]
    fn who_decides() {
        let named = Some("user:ann,group:finance,role:lead");
        for (who, list, self_approval, role) in [
            ("owner", None, MAY, Some(Role::Owner)),
            ("owner", None, FOUR_EYES, None),
            ("ann", None, MAY, None),
            ("ann in finance as lead", None, MAY, None),
            ("ann as admin", None, MAY, None),
            ("owner", Some(""), MAY, None),
            ("ann", Some(""), MAY, None),
            ("ann as admin", Some(""), MAY, None),
            ("owner", named, MAY, Some(Role::Owner)),
            ("owner in finance", named, MAY, Some(Role::Approver)),
            ("owner", named, FOUR_EYES, None),
            ("owner in finance as lead", named, FOUR_EYES, None),
            ("owner as admin", named, FOUR_EYES, None),
            ("owner", Some("user:owner"), FOUR_EYES, None),
            ("ann", named, FOUR_EYES, Some(Role::Approver)),
            ("ann", named, MAY, Some(Role::Approver)),
            ("bob in finance", named, FOUR_EYES, Some(Role::Approver)),
            ("bob in sales in finance", named, MAY, Some(Role::Approver)),
            ("bob as lead", named, MAY, Some(Role::Approver)),
            ("bob", named, MAY, None),
            ("bob in lead", named, MAY, None),
            ("bob as finance", named, MAY, None),
            ("bob in ann", named, MAY, None),
            ("finance", named, MAY, None),
            ("bob as admin", named, MAY, None),
            ("owner from acme", None, MAY, None),
            ("ann from acme", named, MAY, None),
            ("ann with holds:decide", named, MAY, Some(Role::Approver)),
            ("ann with admin", named, MAY, Some(Role::Approver)),
            ("ann with runs:read", named, MAY, None),
            ("owner with runs:write", None, MAY, None),
        ] {
            let decides =
                may_decide(&principal(who), &run(), of(HoldKind::Approval), &approvers(list, self_approval));
            assert_eq!(decides, role, "{who}; {list:?}; {self_approval:?}");
        }
    }

    /// An unknown outcome is also the administrators' business, and nothing else is.
    #[test]
    fn administrators_decide_unknown_outcomes_only() {
        let list = approvers(Some("user:ann"), SelfApproval::Forbid);
        for kind in HoldKind::ALL {
            let expected = (kind == HoldKind::Recovery).then_some(Role::Admin);
            assert_eq!(may_decide(&principal("bob as admin"), &run(), of(kind), &list), expected, "{kind:?}");
            assert_eq!(
                may_decide(&principal("bob with admin"), &run(), of(kind), &list),
                expected,
                "{kind:?}"
            );
            let owners = (kind == HoldKind::Auth).then_some(Role::Owner);
            assert_eq!(may_decide(&principal("owner as admin"), &run(), of(kind), &list), owners, "{kind:?}");
        }
    }

    /// T12, T29: only the owner logs in, also where others have to approve; the others may decide the hold, and see it.
    #[test]
    fn who_logs_in() {
        let named = Some("user:ann,group:finance");
        for (who, list, self_approval, logs_in) in [
            ("owner", None, MAY, true),
            ("owner", None, FOUR_EYES, true),
            ("owner", named, FOUR_EYES, true),
            ("owner in finance", named, MAY, true),
            ("owner", Some(""), MAY, false),
            ("owner with runs:read", None, MAY, false),
            ("owner from acme", None, MAY, false),
            ("ann", named, MAY, false),
            ("bob in finance", named, FOUR_EYES, false),
            ("bob as admin", named, MAY, false),
        ] {
            let list = approvers(list, self_approval);
            for kind in HoldKind::ALL {
                let may = may_log_in(&principal(who), &run(), of(kind), &list);
                assert_eq!(may, logs_in && kind == HoldKind::Auth, "{who}; {kind:?}");
            }
        }
        let list = approvers(named, FOUR_EYES);
        assert_eq!(may_decide(&principal("ann"), &run(), of(HoldKind::Auth), &list), Some(Role::Approver));
    }

    /// T15: everyone who may decide may see; the owner and administrators see also what they may not decide.
    #[test]
    fn who_sees() {
        let list = approvers(Some("group:finance"), SelfApproval::Forbid);
        for (who, sees) in [
            ("owner", true),
            ("bob in finance", true),
            ("bob as admin", true),
            ("bob with admin", true),
            ("bob", false),
            ("bob in sales", false),
            ("owner from acme", false),
            ("bob from acme as admin", false),
            ("bob from acme in finance", false),
        ] {
            assert_eq!(may_see(&principal(who), &run(), Some(&list)), sees, "{who}");
            let without_agent = may_see(&principal(who), &run(), None);
            assert_eq!(without_agent, sees && who != "bob in finance", "{who}");
        }
    }
}
