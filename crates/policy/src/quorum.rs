//! Who must agree, and whether they have: several rules at once, each with its own approvers and number.
//!
//! One person counts once for each rule that names them. A denial is final, an edit begins the vote anew. Pure arithmetic;
//! the log of votes is the core's.

use std::fmt;

use standfast_core::approver::{Approver, Person, SelfApproval};
use standfast_core::hold::Demand;
use standfast_core::name::{RuleId, UserId};

/// What one hold rule asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The rule.
    pub rule: RuleId,
    /// Exactly who may decide; none means whoever the agent says.
    pub approvers: Option<Vec<Approver>>,
    /// How many of them must agree; at least one.
    pub quorum: u32,
    /// Whether whoever started the run may be one of them.
    pub self_approval: SelfApproval,
}

/// Who may decide where a rule does not say, and who started the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Electorate {
    /// Whoever started the run.
    pub owner: UserId,
    /// The agent's approvers; none means the owner.
    pub approvers: Option<Vec<Approver>>,
    /// Whether the owner may, as far as server, agent and tool say.
    pub self_approval: SelfApproval,
}

/// Why somebody may not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ineligible {
    /// They are not on the list.
    NotNamed,
    /// They started the run, and somebody else must decide.
    OwnRun,
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ineligible::NotNamed => "you are not among the approvers",
            Ineligible::OwnRun => "you started this run, and someone else must decide",
        })
    }
}

impl From<&Requirement> for Demand {
    fn from(requirement: &Requirement) -> Demand {
        let quorum = if requirement.quorum > 1 { requirement.quorum } else { 0 };
        Demand {
            approvers: requirement.approvers.clone(),
            quorum,
            self_approval: requirement.self_approval,
            ..Demand::of(requirement.rule.clone())
        }
    }
}

impl Requirement {
    /// Whether somebody may decide for this rule.
    pub fn eligible(&self, person: &Person, electorate: &Electorate) -> Result<(), Ineligible> {
        let forbids = self.self_approval.max(electorate.self_approval) == SelfApproval::Forbid;
        if forbids && person.user == electorate.owner {
            return Err(Ineligible::OwnRun);
        }
        let named = self.approvers.as_ref().or(electorate.approvers.as_ref());
        let is_named = match named {
            Some(approvers) => approvers.iter().any(|one| one.means(person, &electorate.owner)),
            None => person.user == electorate.owner,
        };
        if is_named { Ok(()) } else { Err(Ineligible::NotNamed) }
    }

    /// Who may decide, in words.
    #[must_use]
    pub fn describe(&self, electorate: &Electorate) -> String {
        let named = match self.approvers.as_ref().or(electorate.approvers.as_ref()) {
            Some(approvers) if approvers.is_empty() => "nobody".to_owned(),
            Some(approvers) => approvers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            None => "the owner of the run".to_owned(),
        };
        let count = if self.quorum > 1 { format!("{} of ", self.quorum) } else { String::new() };
        let forbids = self.self_approval.max(electorate.self_approval) == SelfApproval::Forbid;
        let not_own = if forbids { ", not whoever started the run" } else { "" };
        format!("{count}{named}{not_own}")
    }
}

/// What somebody does to a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoteAction {
    /// Agrees with what this revision shows.
    Approve {
        /// The revision that they saw.
        revision: u32,
    },
    /// Says no, for good.
    Deny,
    /// Puts other arguments in place: the vote begins anew.
    Edit {
        /// The revision that they changed.
        revision: u32,
    },
}

/// How a vote stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BallotState {
    /// More must agree.
    Open,
    /// Everybody who must has agreed.
    Approved,
    /// Somebody said no.
    Denied {
        /// Who.
        by: UserId,
    },
}

/// Why an action is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoteRefusal {
    /// It was decided before.
    Decided,
    /// They saw something else than what stands now.
    StaleRevision {
        /// What stands now.
        current: u32,
    },
    /// They agreed before.
    VotedBefore,
    /// They may not decide, for any of the rules; why, for the first.
    MayNot(Ineligible),
}

/// A vote: requirements, and who has agreed with the current revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballot {
    requirements: Vec<Requirement>,
    electorate: Electorate,
    revision: u32,
    votes: Vec<Person>,
    state: BallotState,
}

impl Ballot {
    /// A vote in which nobody has agreed yet. Without a requirement the agent's approvers decide, one of them.
    #[must_use]
    pub fn new(requirements: Vec<Requirement>, electorate: Electorate) -> Ballot {
        let requirements = if requirements.is_empty() {
            let rule = RuleId::no_verdict();
            vec![Requirement { rule, approvers: None, quorum: 1, self_approval: SelfApproval::Allow }]
        } else {
            requirements
        };
        Ballot { requirements, electorate, revision: 0, votes: Vec::new(), state: BallotState::Open }
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self) -> &BallotState {
        &self.state
    }

    /// What is being voted on.
    #[must_use]
    pub fn revision(&self) -> u32 {
        self.revision
    }

    /// Who has agreed with what stands now.
    pub fn voters(&self) -> impl Iterator<Item = &UserId> {
        self.votes.iter().map(|person| &person.user)
    }

    /// How many votes each rule has, and how many it needs.
    #[must_use]
    pub fn tally(&self) -> Vec<(&Requirement, u32)> {
        self.requirements.iter().map(|one| (one, self.count(one))).collect()
    }

    fn count(&self, requirement: &Requirement) -> u32 {
        let counts = |person: &&Person| requirement.eligible(person, &self.electorate).is_ok();
        u32::try_from(self.votes.iter().filter(counts).count()).unwrap_or(u32::MAX)
    }

    /// Takes what somebody does, or says why not.
    pub fn apply(&mut self, person: &Person, action: &VoteAction) -> Result<&BallotState, VoteRefusal> {
        if self.state != BallotState::Open {
            return Err(VoteRefusal::Decided);
        }
        let allowed: Vec<Result<(), Ineligible>> =
            self.requirements.iter().map(|one| one.eligible(person, &self.electorate)).collect();
        if allowed.iter().all(Result::is_err) {
            let why = allowed.into_iter().find_map(Result::err).unwrap_or(Ineligible::NotNamed);
            return Err(VoteRefusal::MayNot(why));
        }
        let is_current = |revision: u32| {
            if revision == self.revision {
                Ok(())
            } else {
                Err(VoteRefusal::StaleRevision { current: self.revision })
            }
        };
        match action {
            VoteAction::Deny => self.state = BallotState::Denied { by: person.user.clone() },
            VoteAction::Edit { revision } => {
                is_current(*revision)?;
                self.revision += 1;
                self.votes.clear();
            }
            VoteAction::Approve { revision } => {
                is_current(*revision)?;
                if self.votes.iter().any(|one| one.user == person.user) {
                    return Err(VoteRefusal::VotedBefore);
                }
                self.votes.push(person.clone());
                if self.requirements.iter().all(|one| self.count(one) >= one.quorum.max(1)) {
                    self.state = BallotState::Approved;
                }
            }
        }
        Ok(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_core::name::GroupName;

    fn person(user: &str, groups: &[&str]) -> Person {
        let groups = groups.iter().map(|name| GroupName::new(name).unwrap()).collect();
        Person { groups, ..Person::of(UserId::new(user).unwrap()) }
    }

    fn requirement(rule: &str, approvers: &[&str], quorum: u32) -> Requirement {
        let approvers = approvers.iter().map(|one| Approver::parse(one).unwrap()).collect();
        Requirement {
            rule: RuleId::new(rule).unwrap(),
            approvers: Some(approvers),
            quorum,
            self_approval: SelfApproval::Allow,
        }
    }

    fn electorate() -> Electorate {
        Electorate {
            owner: UserId::new("olga").unwrap(),
            approvers: None,
            self_approval: SelfApproval::Allow,
        }
    }

    const YES: VoteAction = VoteAction::Approve { revision: 0 };

    #[test]
    fn each_rule_needs_its_own_people() {
        let both = vec![requirement("a", &["group:ops"], 2), requirement("b", &["group:finance"], 1)];
        let mut ballot = Ballot::new(both, electorate());
        assert_eq!(ballot.apply(&person("ann", &["ops"]), &YES), Ok(&BallotState::Open));
        assert_eq!(ballot.apply(&person("ann", &["ops"]), &YES), Err(VoteRefusal::VotedBefore));
        assert_eq!(ballot.apply(&person("olga", &[]), &YES), Err(VoteRefusal::MayNot(Ineligible::NotNamed)));
        assert_eq!(ballot.apply(&person("fay", &["finance"]), &YES), Ok(&BallotState::Open));
        // One person in both groups counts for both.
        assert_eq!(ballot.apply(&person("bo", &["ops", "finance"]), &YES), Ok(&BallotState::Approved));
        assert_eq!(ballot.apply(&person("cy", &["ops"]), &VoteAction::Deny), Err(VoteRefusal::Decided));
    }

    /// C16: an edit resets the vote, and whoever saw the old arguments does not agree with the new ones.
    #[test]
    fn an_edit_begins_the_vote_anew() {
        let mut ballot = Ballot::new(vec![requirement("a", &["group:ops"], 2)], electorate());
        ballot.apply(&person("ann", &["ops"]), &YES).unwrap();
        ballot.apply(&person("bo", &["ops"]), &VoteAction::Edit { revision: 0 }).unwrap();
        assert_eq!(ballot.voters().count(), 0);
        assert_eq!(
            ballot.apply(&person("cy", &["ops"]), &YES),
            Err(VoteRefusal::StaleRevision { current: 1 })
        );
        let yes = VoteAction::Approve { revision: 1 };
        ballot.apply(&person("ann", &["ops"]), &yes).unwrap();
        assert_eq!(ballot.apply(&person("bo", &["ops"]), &yes), Ok(&BallotState::Approved));
    }

    /// C4, C24: a denial is final; with a list the owner decides only if named, and never where that is forbidden.
    #[test]
    fn a_list_is_exactly_who_may_decide() {
        let olga = person("olga", &["ops"]);
        let mut plain = Ballot::new(Vec::new(), electorate());
        assert_eq!(plain.apply(&olga, &YES), Ok(&BallotState::Approved));
        let mut listed = Ballot::new(vec![requirement("a", &["owner"], 1)], electorate());
        assert_eq!(
            listed.apply(&olga, &VoteAction::Deny).cloned(),
            Ok(BallotState::Denied { by: olga.user.clone() })
        );
        let forbid = Requirement {
            self_approval: SelfApproval::Forbid,
            ..requirement("a", &["owner", "group:ops"], 1)
        };
        let mut four_eyes = Ballot::new(vec![forbid.clone()], electorate());
        assert_eq!(four_eyes.apply(&olga, &YES), Err(VoteRefusal::MayNot(Ineligible::OwnRun)));
        assert_eq!(forbid.describe(&electorate()), "owner, group:ops, not whoever started the run");
        let mut nobody = Ballot::new(vec![requirement("a", &[], 1)], electorate());
        assert_eq!(nobody.apply(&olga, &YES), Err(VoteRefusal::MayNot(Ineligible::NotNamed)));
    }
}
