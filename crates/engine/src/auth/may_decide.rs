//! What a principal may see and decide: the one answer for every surface (C12, C24), and in words for people.
//!
//! Who may decide is never pinned: all functions take the approvers, and the rules' lists, as they are now.

use std::fmt;

use standfast_core::approver::{Approver, SelfApproval};
use standfast_core::hold::{Demand, HoldKind};
use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::Role;
use standfast_core::project::HoldRow;
use standfast_core::run::{Facts, Run};

use super::approvers::{Approvers, names};
use super::principal::{Principal, Scope};

/// What there is to decide.
#[derive(Debug, Clone, Copy)]
pub struct ToDecide<'a> {
    /// What is waited for.
    pub kind: HoldKind,
    /// The tool whose call waits, if it is one.
    pub tool: Option<&'a ToolName>,
    /// What each rule demands of those who decide; nothing where only the agent says who.
    pub demands: &'a [Demand],
}

impl<'a> ToDecide<'a> {
    /// A hold of a run. Of one that is no longer open, the run does not say what its rules demanded.
    #[must_use]
    pub fn of(hold: &'a HoldRow, run: &'a Run) -> ToDecide<'a> {
        let demands = run.hold(hold.id.key).map(|open| open.demands.as_slice()).unwrap_or_default();
        ToDecide { kind: hold.kind, tool: hold.tool.as_ref(), demands }
    }
}

/// By what right somebody decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRight {
    /// In what role.
    pub role: Role,
    /// The rules whose demands they count for.
    pub counts_for: Vec<RuleId>,
}

/// Why somebody may not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// The run is another tenant's.
    OtherTenant,
    /// Their credential is not for deciding.
    MissingScope,
    /// The list of approvers is empty.
    Nobody,
    /// They are not among those named.
    NotNamed,
    /// They started the run, and somebody else must decide.
    OwnRun,
    /// They are an auditor, who decides nothing.
    Auditor,
    /// They are an operator, who decides nothing.
    Operator,
    /// Their credential is for deciding about other agents.
    OtherAgents,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyNot::OtherTenant => "this run is not of your tenant",
            WhyNot::MissingScope => "your credential lacks the scope holds:decide",
            WhyNot::Nobody => "the list of approvers is empty, so nobody may decide",
            WhyNot::NotNamed => "you are not one of its approvers",
            WhyNot::OwnRun => "you started this run, and someone else must decide",
            WhyNot::Auditor => "you are an auditor, and auditors decide nothing",
            WhyNot::Operator => "you are an operator, and operators decide nothing",
            WhyNot::OtherAgents => "your credential has the scope holds:decide for other agents only",
        })
    }
}

/// By what right this principal may decide such a hold of this run, or why not.
///
/// Absent approvers mean the owner; a list is exactly who may decide, and an empty one nobody (T13). Where rules hold a call,
/// each one's list counts for itself. With `self_approval: forbid` whoever started the run may not decide, whatever else they
/// are (T12); a login is not an approval, and nobody else can give theirs (ADR 0011).
pub fn may_decide(
    who: &Principal,
    run: &Facts,
    hold: ToDecide<'_>,
    approvers: &Approvers,
) -> Result<DecisionRight, WhyNot> {
    if who.tenant != run.tenant {
        return Err(WhyNot::OtherTenant);
    }
    if who.is_auditor() {
        return Err(WhyNot::Auditor);
    }
    if who.is_operator() {
        return Err(WhyNot::Operator);
    }
    if !who.has(Scope::HoldsDecide) {
        return Err(WhyNot::MissingScope);
    }
    if !who.has_for(Scope::HoldsDecide, run.agent.as_str()) {
        return Err(WhyNot::OtherAgents);
    }
    let electorates = electorates(hold, approvers);
    let mut counts_for = Vec::new();
    let (mut role, mut why_not) = (None, None);
    for electorate in &electorates {
        match electorate.takes(who, run) {
            Ok(as_whom) => {
                role.get_or_insert(as_whom);
                counts_for.extend(electorate.rule.cloned());
            }
            Err(why) => drop(why_not.get_or_insert(why)),
        }
    }
    // An unknown outcome is also the administrators' business, unless nobody at all is to decide, or they started it.
    let is_theirs = who.is_admin() && hold.kind == HoldKind::Recovery;
    let role = role.or((is_theirs && why_not == Some(WhyNot::NotNamed)).then_some(Role::Admin));
    role.map(|role| DecisionRight { role, counts_for }).ok_or(why_not.unwrap_or(WhyNot::NotNamed))
}

/// Whom one rule, or the agent, lets decide.
struct Electorate<'a> {
    rule: Option<&'a RuleId>,
    /// None means the owner.
    approvers: Option<Vec<&'a Approver>>,
    self_approval: SelfApproval,
    quorum: u32,
    kind: HoldKind,
}

/// Who may decide a hold: for each of its rules, or as the agent says. Of a rule that is still there, its list as it is now.
fn electorates<'a>(hold: ToDecide<'a>, approvers: &'a Approvers) -> Vec<Electorate<'a>> {
    let by_agent = || approvers.named.as_ref().map(|named| named.iter().collect::<Vec<_>>());
    let self_approval = approvers.self_approval_of(hold.tool);
    if hold.demands.is_empty() {
        let approvers = by_agent();
        return vec![Electorate { rule: None, approvers, self_approval, quorum: 1, kind: hold.kind }];
    }
    let of_demand = |demand: &'a Demand| {
        let now = approvers.rules.by_rule.get(&demand.rule);
        let named = now.map_or(demand.approvers.as_ref(), |now| now.approvers.as_ref());
        let forbids = now.map(|now| now.self_approval).unwrap_or_default();
        Electorate {
            rule: Some(&demand.rule),
            approvers: named.map(|named| named.iter().collect()).or_else(by_agent),
            self_approval: self_approval.max(demand.self_approval).max(forbids),
            quorum: demand.quorum.max(1),
            kind: hold.kind,
        }
    };
    hold.demands.iter().map(of_demand).collect()
}

impl Electorate<'_> {
    fn takes(&self, who: &Principal, run: &Facts) -> Result<Role, WhyNot> {
        let is_owner = who.user == run.owner;
        let Some(named) = &self.approvers else {
            return match (is_owner, self.forbids_owner()) {
                (true, false) => Ok(Role::Owner),
                (true, true) => Err(WhyNot::OwnRun),
                (false, _) => Err(WhyNot::NotNamed),
            };
        };
        if named.is_empty() {
            return Err(WhyNot::Nobody);
        }
        if is_owner && self.forbids_owner() {
            return Err(WhyNot::OwnRun);
        }
        if named.iter().any(|approver| names(approver, who)) {
            return Ok(Role::Approver);
        }
        // Whoever else is named, a login is the owner's own.
        let is_owners = named.contains(&&Approver::Owner) || self.kind == HoldKind::Auth;
        if is_owner && is_owners { Ok(Role::Owner) } else { Err(WhyNot::NotNamed) }
    }

    fn forbids_owner(&self) -> bool {
        self.kind != HoldKind::Auth && self.self_approval == SelfApproval::Forbid
    }

    fn describe(&self, run: &Facts) -> String {
        let owner = format!("the owner of the run (user:{})", run.owner);
        let named = match &self.approvers {
            None => owner,
            Some(named) if named.is_empty() => return "nobody: the list of approvers is empty".to_owned(),
            Some(named) => {
                let word = |one: &&Approver| match one {
                    Approver::Owner => owner.clone(),
                    Approver::User(_) | Approver::Group(_) | Approver::Role(_) => one.to_string(),
                };
                let mut words: Vec<String> = named.iter().map(word).collect();
                if self.kind == HoldKind::Auth && !named.contains(&&Approver::Owner) {
                    words.push(owner);
                }
                words.join(" or ")
            }
        };
        let count = if self.quorum > 1 { format!("{} people of: ", self.quorum) } else { String::new() };
        let not_own = if self.forbids_owner() { ", but not whoever started the run" } else { "" };
        format!("{count}{named}{not_own}")
    }
}

/// Who may decide such a hold of this run, in words.
#[must_use]
pub fn who_decides(run: &Facts, hold: ToDecide<'_>, approvers: &Approvers) -> String {
    let mut words: Vec<String> = Vec::new();
    for electorate in electorates(hold, approvers) {
        let described = electorate.describe(run);
        if !words.contains(&described) {
            words.push(described);
        }
    }
    let everyone = words.join("; and ");
    if hold.kind == HoldKind::Recovery { format!("{everyone}; or an administrator") } else { everyone }
}

/// Whether this principal may log in for a hold that they may decide: the account becomes that of the run's owner, so it
/// is the owner's own (ADR 0011). Whoever else may decide the hold can deny it.
#[must_use]
pub fn may_log_in(who: &Principal, run: &Facts, hold: ToDecide<'_>, approvers: &Approvers) -> bool {
    let is_owner = who.user == run.owner;
    hold.kind == HoldKind::Auth && is_owner && may_decide(who, run, hold, approvers).is_ok()
}

/// Whether this principal may see this run and its holds: owners, approvers, administrators, operators and auditors of its tenant, with
/// a credential that is not for other agents only. For everyone else it does not exist (T15).
#[must_use]
pub fn may_see(who: &Principal, run: &Facts, approvers: Option<&Approvers>) -> bool {
    let is_involved = || {
        who.user == run.owner || who.oversees() || approvers.is_some_and(|approvers| approvers.include(who))
    };
    who.tenant == run.tenant && who.reads(&run.agent) && is_involved()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use standfast_core::event::Driver;
    use standfast_core::id::{RunId, StorageKind};
    use standfast_core::name::{AgentName, GroupName, RoleName, SessionId, Tenant, UserId};
    use standfast_core::time::Timestamp;

    use super::super::approvers::{RuleApprovers, RuleElectorate};
    use super::super::scope_limits::ScopeLimits;
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
                "with" => (who.scopes, who.limits) = ScopeLimits::of([name.parse().unwrap()]),
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
        ToDecide { kind, tool: None, demands: &[] }
    }

    /// C24: a tool can be stricter than its agent, never less strict.
    #[test]
    fn the_strictest_of_agent_and_tool_counts() {
        let (deploy, look) = (ToolName::new("deploy").unwrap(), ToolName::new("look").unwrap());
        for (agent, owner_decides_look) in [(MAY, true), (FOUR_EYES, false)] {
            let list = Approvers {
                four_eyes: BTreeSet::from([deploy.clone()]),
                ..approvers(Some("user:ann,owner"), agent)
            };
            let decides = |who: &str, tool: &ToolName| {
                let hold = ToDecide { kind: HoldKind::Approval, tool: Some(tool), demands: &[] };
                may_decide(&principal(who), &run(), hold, &list).is_ok()
            };
            assert!(!decides("owner", &deploy));
            assert_eq!(decides("owner", &look), owner_decides_look);
            assert!(decides("ann", &deploy) && decides("ann", &look));
        }
    }

    /// C24, T12, T13: who, the list, self-approval, and in which role they decide an approval.
    #[test]
    fn who_may_decide() {
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
            ("owner", named, MAY, None),
            ("owner", Some("owner"), MAY, Some(Role::Owner)),
            ("owner", Some("owner,group:finance"), MAY, Some(Role::Owner)),
            ("owner", Some("owner"), FOUR_EYES, None),
            ("ann", Some("owner"), MAY, None),
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
            ("owner as auditor", None, MAY, None),
            ("ann as auditor", named, MAY, None),
            ("ann as auditor with admin", named, MAY, None),
            ("bob as auditor", Some("role:auditor"), MAY, None),
            ("owner as operator", None, MAY, None),
            ("ann as operator", named, MAY, None),
            ("ann as operator as admin with admin", named, MAY, None),
            ("bob as operator", Some("role:operator"), MAY, None),
            ("ann with holds:decide:ops", named, MAY, Some(Role::Approver)),
            ("ann with holds:decide:pay", named, MAY, None),
            ("owner with holds:decide:pay", None, MAY, None),
        ] {
            let decides =
                may_decide(&principal(who), &run(), of(HoldKind::Approval), &approvers(list, self_approval));
            assert_eq!(
                decides.ok().map(|standing| standing.role),
                role,
                "{who}; {list:?}; {self_approval:?}"
            );
        }
    }

    /// C24: each rule's list counts for itself, as it is now; a rule that names nobody means whoever the agent says.
    #[test]
    fn each_rule_has_its_own_approvers() {
        let (prod, money, plain) = (
            RuleId::new("rule:prod").unwrap(),
            RuleId::new("rule:money").unwrap(),
            RuleId::new("rule:plain").unwrap(),
        );
        let listed =
            |text: &str| Some(text.split(',').map(|one| one.parse().unwrap()).collect::<Vec<Approver>>());
        let demands = [
            Demand { approvers: listed("group:ops"), quorum: 2, ..Demand::of(prod.clone()) },
            Demand { approvers: listed("role:cfo,owner"), ..Demand::of(money.clone()) },
            Demand::of(plain.clone()),
        ];
        let hold = ToDecide { kind: HoldKind::Approval, tool: None, demands: &demands };
        let mut list = approvers(Some("user:ann"), MAY);
        let counts = |who: &str, list: &Approvers| {
            may_decide(&principal(who), &run(), hold, list).map(|standing| standing.counts_for)
        };
        assert_eq!(counts("bob in ops", &list), Ok(vec![prod.clone()]));
        assert_eq!(counts("owner", &list), Ok(vec![money.clone()]));
        assert_eq!(counts("ann in ops as cfo", &list), Ok(vec![prod.clone(), money, plain]));
        assert_eq!(counts("bob in sales", &list), Err(WhyNot::NotNamed));
        assert_eq!(
            who_decides(&run(), hold, &list),
            "2 people of: group:ops; and role:cfo or the owner of the run (user:owner); and user:ann"
        );
        // The file names others now.
        let now = RuleElectorate { approvers: listed("group:sre"), ..RuleElectorate::default() };
        list.rules =
            Arc::new(RuleApprovers { by_rule: BTreeMap::from([(prod.clone(), now)]), ..Default::default() });
        assert_eq!(counts("bob in ops", &list), Err(WhyNot::NotNamed));
        assert_eq!(counts("bob in sre", &list), Ok(vec![prod]));
    }

    /// An unknown outcome is also the administrators' business, and nothing else is.
    #[test]
    fn administrators_decide_unknown_outcomes_only() {
        let list = approvers(Some("user:ann"), SelfApproval::Forbid);
        for kind in HoldKind::ALL {
            let expected = (kind == HoldKind::Recovery).then_some(Role::Admin);
            let role = |who: &str| {
                may_decide(&principal(who), &run(), of(kind), &list).ok().map(|standing| standing.role)
            };
            assert_eq!(role("bob as admin"), expected, "{kind:?}");
            assert_eq!(role("bob with admin"), expected, "{kind:?}");
            let owners = (kind == HoldKind::Auth).then_some(Role::Owner);
            assert_eq!(role("owner as admin"), owners, "{kind:?}");
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
        let ann = may_decide(&principal("ann"), &run(), of(HoldKind::Auth), &list);
        assert_eq!(ann.map(|standing| standing.role), Ok(Role::Approver));
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
            ("bob as auditor", true),
            ("bob from acme as auditor", false),
            ("bob as operator", true),
            ("bob from acme as operator", false),
            ("owner with runs:read:ops", true),
            ("owner with runs:read:pay", false),
            ("bob as auditor with runs:read:ops", true),
            ("bob as auditor with runs:read:pay", false),
            ("bob as admin with runs:read:pay", false),
            ("bob in finance with runs:read:pay", false),
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
