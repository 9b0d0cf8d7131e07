//! Whether whoever approves has signed in as lately as the rules that hold the call want (step-up, `max_age` of OpenID Connect).
//!
//! Beside `may_decide.rs`, which says who may: this asks only those, and only when they approve; a denial needs nothing. What
//! counts is when the identity provider says that its user signed in (`auth_time`). Keys, links and whatever else says nothing
//! of that are no sign-in.

use standfast_core::command::Choice;
use standfast_core::time::{Millis, Timestamp};

use super::approvers::Approvers;
use super::may_decide::ToDecide;
use super::principal::{Identification, Principal};

/// How long ago somebody who approves may have signed in, where their sign-in is older than that, or is none. A rule that is
/// still there counts as it is now as well: the shortest time of all.
#[must_use]
pub fn needs_sign_in(
    who: &Principal,
    hold: ToDecide<'_>,
    approvers: &Approvers,
    now: Timestamp,
) -> Option<Millis> {
    let of_now = |rule| approvers.rules.by_rule.get(rule).and_then(|now| now.sign_in_max_age);
    let wanted = hold.demands.iter().flat_map(|demand| [demand.sign_in_max_age, of_now(&demand.rule)]);
    let max_age = wanted.flatten().min()?;
    let is_fresh = signed_in_at(who).is_some_and(|at| now.since(at) <= max_age);
    (!is_fresh).then_some(max_age)
}

/// Whether a decision lets something happen, so that it may need a fresh sign-in.
#[must_use]
pub fn approves(wanted: &Choice) -> bool {
    match wanted {
        Choice::Approve | Choice::ApproveEdited { .. } | Choice::Answer { .. } => true,
        Choice::Deny { .. } | Choice::Fail { .. } | Choice::Withdraw => false,
    }
}

/// When somebody signed in at the identity provider, as it says.
fn signed_in_at(who: &Principal) -> Option<Timestamp> {
    match who.by {
        Identification::Token { signed_in_at, .. } => signed_in_at,
        Identification::Local
        | Identification::ApiKey { .. }
        | Identification::Link
        | Identification::Configured => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use standfast_core::hold::{Demand, HoldKind};
    use standfast_core::name::{RuleId, UserId};

    use super::super::approvers::{RuleApprovers, RuleElectorate};
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn ann(by: Identification) -> Principal {
        Principal { by, ..Principal::of(UserId::new("ann").unwrap()) }
    }

    fn token(seconds_ago: Option<i64>) -> Identification {
        let signed_in_at = seconds_ago.map(|ago| Timestamp(NOW.0 - ago * 1000));
        Identification::Token { issued_at: NOW, expires_at: Timestamp(i64::MAX), signed_in_at }
    }

    fn now_wants(rule: &RuleId, seconds: i64) -> Approvers {
        let electorate =
            RuleElectorate { sign_in_max_age: Some(Millis::seconds(seconds)), ..RuleElectorate::default() };
        let by_rule = BTreeMap::from([(rule.clone(), electorate)]);
        Approvers { rules: Arc::new(RuleApprovers { by_rule, ..Default::default() }), ..Default::default() }
    }

    /// T12, T34: who signed in lately enough, for a rule as it was and as it is; what is no sign-in never is.
    #[test]
    fn a_sign_in_is_as_fresh_as_the_strictest_rule_wants() {
        let rule = RuleId::new("rule:drop").unwrap();
        let demand = |seconds: Option<i64>| Demand {
            sign_in_max_age: seconds.map(Millis::seconds),
            ..Demand::of(rule.clone())
        };
        let (nobody, stricter) = (Approvers::default(), now_wants(&rule, 60));
        for (by, then, approvers, wants) in [
            (token(Some(0)), Some(300), &nobody, None),
            (token(Some(300)), Some(300), &nobody, None),
            (token(Some(301)), Some(300), &nobody, Some(300)),
            (token(None), Some(300), &nobody, Some(300)),
            (token(Some(100)), Some(300), &stricter, Some(60)),
            (token(Some(100)), None, &stricter, Some(60)),
            (token(Some(60)), Some(300), &stricter, None),
            (token(Some(100)), Some(30), &stricter, Some(30)),
            (token(None), None, &nobody, None),
            (Identification::ApiKey { prefix: "aaaaaaaa".into() }, None, &nobody, None),
            (Identification::ApiKey { prefix: "aaaaaaaa".into() }, Some(300), &nobody, Some(300)),
            (Identification::Link, Some(300), &nobody, Some(300)),
            (Identification::Configured, Some(300), &nobody, Some(300)),
            (Identification::Local, Some(300), &nobody, Some(300)),
        ] {
            let demands = [Demand::of(RuleId::new("rule:other").unwrap()), demand(then)];
            let hold = ToDecide { kind: HoldKind::Approval, tool: None, demands: &demands };
            let found = needs_sign_in(&ann(by.clone()), hold, approvers, NOW);
            assert_eq!(found, wants.map(Millis::seconds), "{by:?} {then:?}");
        }
    }
}
