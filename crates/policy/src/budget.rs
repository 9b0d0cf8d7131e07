//! Rolling budgets: how many calls, or how much of an argument, there may be in a span of time.
//!
//! Pure arithmetic over what was taken before. Takes are keys that are written with the start of a call, behind a guard
//! (`budget.rs` of the core); a take whose outcome is unknown stays taken. What a call wants that cannot be read, or is below
//! zero, holds.

use serde::{Deserialize, Serialize};
use standfast_core::name::RuleId;
use standfast_core::policy::Effect;
use standfast_core::time::Timestamp;

use crate::decimal::Decimal;
use crate::span::Span;
use crate::value::{ArgumentPath, Value};

/// Bytes that the name of an account may have.
const MAX_BYTES: usize = 512;

/// How much there may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Its name within the rule; takes are counted by it.
    pub name: String,
    /// The argument whose values are added; without it calls are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<ArgumentPath>,
    /// How much there may be, this included.
    pub limit: Decimal,
    /// The span in which it is counted.
    pub window: Span,
    /// What is counted apart: `tool`, `agent`, `owner`, or an argument such as `/currency`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per: Vec<Dimension>,
    /// What happens to a call that would be too much.
    #[serde(default = "hold", skip_serializing_if = "is_hold")]
    pub over: Effect,
}

fn hold() -> Effect {
    Effect::Hold
}

fn is_hold(effect: &Effect) -> bool {
    *effect == Effect::Hold
}

/// What a budget is counted apart by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Dimension {
    /// Each tool.
    Tool,
    /// Each agent.
    Agent,
    /// Each owner of runs.
    Owner,
    /// Each value of an argument.
    Argument(ArgumentPath),
}

impl TryFrom<String> for Dimension {
    type Error = String;

    fn try_from(text: String) -> Result<Dimension, String> {
        match text.as_str() {
            "tool" => Ok(Dimension::Tool),
            "agent" => Ok(Dimension::Agent),
            "owner" => Ok(Dimension::Owner),
            path if path.starts_with('/') => ArgumentPath::parse(path).map(Dimension::Argument),
            other => Err(format!("{other:?} is none; write tool, agent, owner, or an argument as /NAME")),
        }
    }
}

impl From<Dimension> for String {
    fn from(dimension: Dimension) -> String {
        match dimension {
            Dimension::Tool => "tool".into(),
            Dimension::Agent => "agent".into(),
            Dimension::Owner => "owner".into(),
            // As a pointer, so that an argument called `tool` is not the tool.
            Dimension::Argument(path) => match path.to_string() {
                pointer if pointer.starts_with('/') => pointer,
                name => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            },
        }
    }
}

/// Whose call it is, as far as budgets ask.
#[derive(Debug, Clone, Copy)]
pub struct Spender<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The agent.
    pub agent: &'a str,
    /// The owner of the run.
    pub owner: &'a str,
    /// The arguments; none where they cannot be read.
    pub arguments: Option<&'a Value>,
}

/// What a call takes from a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What it is counted with: the rule, the budget and the values of its dimensions.
    pub account: String,
    /// How much.
    pub amount: Decimal,
}

/// What a call takes by a rule that matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleClaim {
    /// The rule.
    pub rule: RuleId,
    /// The budget.
    pub budget: Budget,
    /// What the call takes from it.
    pub claim: Claim,
}

/// What was taken before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// When.
    pub at: Timestamp,
    /// How much.
    pub amount: Decimal,
    /// What came of it.
    pub state: TakeState,
}

/// What came of a call that took from a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeState {
    /// It was started: it is running, it returned, or nobody knows.
    Kept,
    /// It is known that it did not happen.
    Returned,
}

/// What a budget says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetOutcome {
    /// There is enough; this is left afterwards.
    Within {
        /// What is left.
        left: Decimal,
    },
    /// It would be too much.
    Over {
        /// What was taken in the window.
        taken: Decimal,
        /// From when on it would be enough, if nothing else is taken; none when it never is.
        enough_at: Option<Timestamp>,
    },
}

impl Budget {
    /// What a call would take; an error holds it.
    pub fn claim(&self, rule: &str, spender: Spender<'_>) -> Result<Claim, String> {
        let amount = match &self.sum {
            None => Decimal::from(1),
            Some(path) => match spender.arguments.and_then(|arguments| path.find_one(arguments)) {
                Some(Value::Number(Some(number))) if !number.is_negative() => number.clone(),
                Some(Value::Number(Some(_))) => {
                    return Err(format!("budget {}: argument {path} is below zero", self.name));
                }
                Some(other) => {
                    return Err(format!(
                        "budget {}: argument {path} is {}, not a number",
                        self.name,
                        other.kind()
                    ));
                }
                None => return Err(format!("budget {}: argument {path} is missing", self.name)),
            },
        };
        let mut account = vec![rule.to_owned(), self.name.clone()];
        for dimension in &self.per {
            account.push(match dimension {
                Dimension::Tool => spender.tool.to_owned(),
                Dimension::Agent => spender.agent.to_owned(),
                Dimension::Owner => spender.owner.to_owned(),
                Dimension::Argument(path) => match spender.arguments.and_then(|all| path.find_one(all)) {
                    Some(value @ (Value::Text(_) | Value::Number(Some(_)) | Value::Bool(_))) => {
                        value.to_string()
                    }
                    Some(_) | None => {
                        return Err(format!(
                            "budget {}: argument {path} is missing or not a single value",
                            self.name
                        ));
                    }
                },
            });
        }
        // As JSON, so that no value can pretend to be two.
        let account = serde_json::Value::from(account).to_string();
        if account.len() > MAX_BYTES {
            return Err(format!(
                "budget {}: what it is counted apart by is longer than {MAX_BYTES} bytes",
                self.name
            ));
        }
        Ok(Claim { account, amount })
    }

    /// Why there is not enough left for a call, in words.
    #[must_use]
    pub fn exceeded(
        &self,
        rule: &str,
        amount: &Decimal,
        (taken, enough_at): (&Decimal, Option<Timestamp>),
    ) -> String {
        let enough_at = enough_at.and_then(|at| jiff::Timestamp::from_millisecond(at.0).ok());
        let later = match enough_at {
            Some(at) => format!("there is enough for it from {at} on, if nothing else is taken"),
            None if *amount > self.limit => "that is more than there ever is".to_owned(),
            None => "there is not enough left".to_owned(),
        };
        format!(
            "budget {} of rule {rule}: {taken} of {} in {} are taken, and this call takes {amount}; {later}",
            self.name, self.limit, self.window
        )
    }

    /// Whether there is enough left at an instant, with what was taken from the same account. A take counts for the whole
    /// window from its own instant on.
    #[must_use]
    pub fn check(&self, takes: &[Take], amount: &Decimal, now: Timestamp) -> BudgetOutcome {
        let window = self.window.0;
        let mut counted: Vec<&Take> =
            takes.iter().filter(|take| take.state == TakeState::Kept && take.at.plus(window) > now).collect();
        counted.sort_by_key(|take| take.at);
        let taken = counted.iter().fold(Decimal::zero(), |sum, take| sum.plus(&take.amount));
        let left = self.limit.minus(&taken).minus(amount);
        if !left.is_negative() {
            return BudgetOutcome::Within { left };
        }
        let mut rest = taken.clone();
        let enough_at = (*amount <= self.limit).then(|| {
            counted.iter().find_map(|take| {
                rest = rest.minus(&take.amount);
                (rest.plus(amount) <= self.limit).then(|| take.at.plus(window))
            })
        });
        BudgetOutcome::Over { taken, enough_at: enough_at.flatten() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Arguments;
    use proptest::prelude::*;

    fn budget() -> Budget {
        serde_json::from_str(
            r#"{"name":"daily","sum":"amount","limit":1000,"window":"1d","per":["owner","/currency"]}"#,
        )
        .unwrap()
    }

    fn claim(arguments: &str) -> Result<Claim, String> {
        let arguments = Arguments::parse(arguments);
        budget()
            .claim("r", Spender { tool: "refund", agent: "a", owner: "ann", arguments: arguments.value() })
    }

    fn take(hour: i64, amount: &str) -> Take {
        let at = Timestamp(0).plus(standfast_core::time::Millis::hours(hour));
        Take { at, amount: Decimal::parse(amount).unwrap(), state: TakeState::Kept }
    }

    #[test]
    fn a_claim_names_its_account() {
        let claimed = claim(r#"{"amount":12.5,"currency":"EUR"}"#).unwrap();
        assert_eq!(claimed.account, r#"["r","daily","ann","\"EUR\""]"#);
        assert_eq!(claimed.amount.to_string(), "12.5");
        assert!(claim(r#"{"amount":-1,"currency":"EUR"}"#).unwrap_err().contains("below zero"));
        assert!(claim(r#"{"amount":"1","currency":"EUR"}"#).unwrap_err().contains("is text"));
        assert!(claim(r#"{"currency":"EUR"}"#).unwrap_err().contains("missing"));
        assert!(
            claim(r#"{"amount":1}"#).unwrap_err().contains("/currency") || claim(r#"{"amount":1}"#).is_err()
        );
        let long = format!(r#"{{"amount":1,"currency":"{}"}}"#, "x".repeat(600));
        assert!(claim(&long).unwrap_err().contains("longer than 512 bytes"));
        let written = serde_json::to_string(&budget()).unwrap();
        assert_eq!(serde_json::from_str::<Budget>(&written).unwrap(), budget());
    }

    #[test]
    fn a_window_rolls() {
        let budget = budget();
        let takes = [take(0, "600.10"), take(5, "399.90")];
        let check = |hour: i64, amount: &str| {
            budget.check(&takes, &Decimal::parse(amount).unwrap(), take(hour, "0").at)
        };
        let enough_at = Some(take(24, "0").at);
        assert_eq!(check(6, "0.01"), BudgetOutcome::Over { taken: Decimal::from(1000), enough_at });
        assert_eq!(check(24, "600.10"), BudgetOutcome::Within { left: Decimal::zero() });
        assert_eq!(check(6, "1000.01"), BudgetOutcome::Over { taken: Decimal::from(1000), enough_at: None });
        let said = budget.exceeded("r", &Decimal::from(1), (&Decimal::from(1000), enough_at));
        assert_eq!(
            said,
            "budget daily of rule r: 1000 of 1000 in 1d are taken, and this call takes 1; \
             there is enough for it from 1970-01-02T00:00:00Z on, if nothing else is taken"
        );
        let unknown = [take(0, "1000")];
        assert!(
            matches!(budget.check(&unknown, &Decimal::from(1), take(1, "0").at), BudgetOutcome::Over { .. }),
            "what nobody knows stays taken"
        );
        let returned = [Take { state: TakeState::Returned, ..take(0, "1000") }];
        assert!(matches!(
            budget.check(&returned, &Decimal::from(1), take(1, "0").at),
            BudgetOutcome::Within { .. }
        ));
    }

    proptest! {
        /// Whatever is taken one after the other within the budget, no window ever has more than its limit.
        #[test]
        fn no_window_has_more_than_its_limit(wanted in proptest::collection::vec((0_i64..200, 0_i64..600), 0..40)) {
            let budget = budget();
            let mut wanted = wanted;
            wanted.sort_unstable();
            let mut takes: Vec<Take> = Vec::new();
            for (hour, amount) in wanted {
                let next = take(hour, &amount.to_string());
                match budget.check(&takes, &next.amount, next.at) {
                    BudgetOutcome::Within { .. } => takes.push(next),
                    BudgetOutcome::Over { enough_at: Some(at), .. } => {
                        prop_assert!(at > next.at);
                        let is_enough = matches!(budget.check(&takes, &next.amount, at), BudgetOutcome::Within { .. });
                        prop_assert!(is_enough);
                    }
                    BudgetOutcome::Over { enough_at: None, .. } => prop_assert!(next.amount > budget.limit),
                }
            }
            for end in &takes {
                let inside = takes.iter().filter(|one| one.at <= end.at && one.at.plus(budget.window.0) > end.at);
                let sum = inside.fold(Decimal::zero(), |sum, one| sum.plus(&one.amount));
                prop_assert!(sum <= budget.limit);
            }
        }
    }
}
