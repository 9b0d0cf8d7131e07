//! Verdicts about calls and how they combine; authority to decide.
//!
//! The rule language lives in the server. Its results come in as values: the core combines them (strictest wins, a
//! missing verdict holds) and records which rules spoke.

use serde::{Deserialize, Serialize};

use crate::budget::BudgetTake;
use crate::digest::Digest;
use crate::effect::EffectClaim;
use crate::grant::{GrantUse, SavedGrant};
use crate::hold::{Demand, Escalation, HoldTerms};
use crate::id::CallNo;
use crate::message::{FileDigest, ObservedVerdict, PolicyVerdict};
use crate::name::{GrantId, RuleId};
use crate::time::Timestamp;
pub use crate::verdict::Effect;

/// What one rule, or the grant that answers it, says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Its effect.
    pub effect: Effect,
    /// The rule.
    pub rule: RuleId,
    /// The grant that turned a hold into an allow.
    pub grant: Option<GrantId>,
    /// The reason for people or the model.
    pub reason: Option<String>,
    /// How many people must agree; 1 is the usual.
    pub votes: u32,
    /// Who must agree where it holds, if the rule says; whoever decides the hold answers a rule that does not.
    pub demand: Option<Demand>,
    /// The note for followers of the run when it denies the call.
    pub note: Option<String>,
}

impl Verdict {
    /// A verdict of one rule, asking one person if it holds.
    #[must_use]
    pub fn new(effect: Effect, rule: RuleId) -> Verdict {
        Verdict { effect, rule, grant: None, reason: None, votes: 1, demand: None, note: None }
    }
}

/// All verdicts that the engine worked out for a command, by the policy with this digest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// Digest of the policy.
    pub policy: Option<Digest>,
    /// What each rule said of each call. For a model's reply the calls are numbered as they will be.
    pub by_call: Vec<(CallNo, Verdict)>,
    /// The files that each call names, as they are now.
    pub files: Vec<(CallNo, FileDigest)>,
    /// What people should know of a call before they let it run.
    pub warnings: Vec<(CallNo, String)>,
    /// The file that each call would change, as it is now.
    pub targets: Vec<(CallNo, FileDigest)>,
    /// When time does what to the hold of a call, where that is not the plain span of its policy.
    pub times: Vec<(CallNo, HoldTimes)>,
    /// What the starts of calls claim in the world.
    pub effects: Vec<(CallNo, EffectClaim)>,
    /// What the starts of calls take from rolling budgets.
    pub takes: Vec<(CallNo, BudgetTake)>,
    /// The uses that the starts of calls take of standing approvals.
    pub grant_uses: Vec<(CallNo, GrantUse)>,
    /// The standing approvals that approvals of calls save.
    pub saved_grants: Vec<(CallNo, SavedGrant)>,
    /// The agent or the owner is over its soft cap of open holds: new ones open muted.
    pub mutes: bool,
    /// What rules say of the hold of a call, beside who decides.
    pub terms: Vec<(CallNo, HoldTerms)>,
    /// What rules that only observe would have done.
    pub observed: Vec<(CallNo, ObservedVerdict)>,
}

/// When time does what to a hold: worked out by the engine, which knows business hours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldTimes {
    /// When it expires; none means never.
    pub expires_at: Option<Timestamp>,
    /// When people are reminded, for the first time or again; none means never.
    pub remind_at: Option<Timestamp>,
    /// When who is asked as well.
    pub escalations: Vec<Escalation>,
}

/// All verdicts about one call, combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CombinedVerdict {
    /// For the log.
    pub judged: PolicyVerdict,
    /// Why, in words.
    pub reason: Option<String>,
    /// How many people must agree, if it holds.
    pub votes: u32,
    /// What each rule demands of those who decide, if it holds.
    pub demands: Vec<Demand>,
}

impl Verdicts {
    /// The strictest wins; of several equally strict ones all rules are named; none at all holds.
    #[must_use]
    pub fn combine(&self, call: CallNo) -> CombinedVerdict {
        let mine = || self.by_call.iter().filter(|(no, _)| *no == call).map(|(_, verdict)| verdict);
        let Some(effect) = mine().map(|verdict| verdict.effect).max() else {
            let judged = PolicyVerdict {
                effect: Effect::Hold,
                rules: vec![RuleId::no_verdict()],
                policy: self.policy,
                grant: None,
                observed: None,
            };
            return CombinedVerdict { judged, reason: None, votes: 1, demands: Vec::new() };
        };
        let strictest = || mine().filter(|verdict| verdict.effect == effect);
        let mut rules: Vec<RuleId> = strictest().map(|verdict| verdict.rule.clone()).collect();
        rules.sort();
        rules.dedup();
        let grant = strictest().find_map(|verdict| verdict.grant.clone());
        let observed = self.observed.iter().find(|(no, _)| *no == call);
        let observed = observed.map(|(_, would)| Box::new(would.clone()));
        CombinedVerdict {
            judged: PolicyVerdict { effect, rules, policy: self.policy, grant, observed },
            reason: strictest().find_map(|verdict| verdict.reason.clone()),
            votes: strictest().map(|verdict| verdict.votes).max().unwrap_or(1).max(1),
            demands: strictest()
                .filter(|verdict| verdict.effect == Effect::Hold)
                .filter_map(|verdict| verdict.demand.clone())
                .collect(),
        }
    }
}

impl Verdicts {
    /// The files that a call names, as they are now.
    #[must_use]
    pub fn files(&self, call: CallNo) -> Vec<FileDigest> {
        self.files.iter().filter(|(no, _)| *no == call).map(|(_, file)| file.clone()).collect()
    }

    /// What people should know of a call before they let it run.
    #[must_use]
    pub fn warning(&self, call: CallNo) -> Option<String> {
        self.warnings.iter().find(|(no, _)| *no == call).map(|(_, warning)| warning.clone())
    }

    /// The file that a call would change, as it is now.
    #[must_use]
    pub fn target(&self, call: CallNo) -> Option<Box<FileDigest>> {
        self.targets.iter().find(|(no, _)| *no == call).map(|(_, file)| Box::new(file.clone()))
    }

    /// When time does what to the hold of a call; none where the plain spans of its policy count.
    #[must_use]
    pub fn times(&self, call: CallNo) -> Option<&HoldTimes> {
        self.times.iter().find(|(no, _)| *no == call).map(|(_, times)| times)
    }

    /// What the start of a call claims in the world.
    #[must_use]
    pub fn effects(&self, call: CallNo) -> Vec<EffectClaim> {
        self.effects.iter().filter(|(no, _)| *no == call).map(|(_, claim)| claim.clone()).collect()
    }

    /// What the start of a call takes from rolling budgets.
    #[must_use]
    pub fn takes(&self, call: CallNo) -> Vec<BudgetTake> {
        self.takes.iter().filter(|(no, _)| *no == call).map(|(_, take)| take.clone()).collect()
    }

    /// The use that the start of a call takes of a standing approval.
    #[must_use]
    pub fn grant_use(&self, call: CallNo) -> Option<GrantUse> {
        self.grant_uses.iter().find(|(no, _)| *no == call).map(|(_, taken)| taken.clone())
    }

    /// The standing approval that an approval of a call saves.
    #[must_use]
    pub fn saved_grant(&self, call: CallNo) -> Option<SavedGrant> {
        self.saved_grants.iter().find(|(no, _)| *no == call).map(|(_, saved)| saved.clone())
    }

    /// What rules say of the hold of a call, beside who decides.
    #[must_use]
    pub fn terms(&self, call: CallNo) -> HoldTerms {
        self.terms.iter().find(|(no, _)| *no == call).map(|(_, terms)| terms.clone()).unwrap_or_default()
    }

    /// The note for followers of the run when this call is denied.
    #[must_use]
    pub fn note(&self, call: CallNo) -> Option<&str> {
        let denies = |(no, verdict): &&(CallNo, Verdict)| *no == call && verdict.effect == Effect::Deny;
        self.by_call.iter().filter(denies).find_map(|(_, verdict)| verdict.note.as_deref())
    }
}

/// In what role someone may decide a hold; worked out by the engine before the core is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Started the run.
    Owner,
    /// Named as an approver.
    Approver,
    /// Administers the server.
    Admin,
    /// Holds the id and the signature of an outside job.
    Callback,
    /// The server itself: a sub-run that ended, a tool's late result, a tool that may look again.
    System,
    /// Stands in for somebody who may decide, for a while.
    Delegate,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(effect: Effect, rule: &str) -> (CallNo, Verdict) {
        (CallNo(1), Verdict::new(effect, RuleId::new(rule).unwrap()))
    }

    fn combine(by_call: Vec<(CallNo, Verdict)>) -> (Effect, Vec<String>) {
        let judged = Verdicts { by_call, ..Verdicts::default() }.combine(CallNo(1)).judged;
        (judged.effect, judged.rules.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn t35_the_strictest_wins_and_is_named() {
        let all = vec![verdict(Effect::Allow, "a"), verdict(Effect::Hold, "h2"), verdict(Effect::Hold, "h1")];
        assert_eq!(combine(all.clone()), (Effect::Hold, vec!["h1".into(), "h2".into()]));
        let banned = all.into_iter().chain([verdict(Effect::Deny, "ban")]).collect();
        assert_eq!(combine(banned), (Effect::Deny, vec!["ban".into()]));
    }

    /// T36: what nobody judged is held, never allowed.
    #[test]
    fn t36_a_missing_verdict_holds() {
        assert_eq!(combine(vec![]), (Effect::Hold, vec!["standfast:no-verdict".into()]));
        let other = (CallNo(2), Verdict::new(Effect::Allow, RuleId::new("a").unwrap()));
        assert_eq!(combine(vec![other]).0, Effect::Hold);
    }
}
