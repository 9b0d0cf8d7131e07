//! Rolling budgets as the log keeps them: what the start of a call takes, and the keys under which stores keep it.
//!
//! How much there may be is the business of the rule language. Each take of an account has a number, and at most one append has
//! it: the guard is the store's, as for `effect.rs`. A start names the last take that it was counted with. Every number from
//! there up to its own must be free, and is its own from then on, so what was counted is still all there is when it is written,
//! also where an earlier call of the same turn was to have one of them and did not start.

use serde::{Deserialize, Serialize};

use crate::id::CallNo;
use crate::time::{Millis, Timestamp};

/// How much longer than it counts a take is remembered: nodes do not agree on the time to the millisecond.
const SLACK: Millis = Millis::hours(1);

/// What a start takes from a rolling budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTake {
    /// What it is counted with: the rule, the budget, and the values that are counted apart.
    pub account: String,
    /// Counts the takes of the account, over all runs.
    pub no: u32,
    /// The last take that was there when this one was found to fit, or a person agreed to it.
    pub after: u32,
    /// How much, as an exact decimal number.
    pub amount: String,
    /// How long it counts.
    pub window: Millis,
}

/// A take as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTake {
    /// Counts the takes of the account.
    pub no: u32,
    /// When.
    pub at: Timestamp,
    /// By which call of its run.
    pub call: CallNo,
    /// By which start of it.
    pub attempt: u32,
    /// How much, as an exact decimal number.
    pub amount: String,
}

impl BudgetTake {
    /// What the keys of the takes of an account begin with.
    #[must_use]
    pub fn prefix(account: &str) -> String {
        format!("budget {account} ")
    }

    /// What the keys of the numbers of an account begin with. Behind it they are in their order.
    #[must_use]
    pub fn number_prefix(account: &str) -> String {
        format!("budget number {account} ")
    }

    /// The keys that must not be there when it is written, and are from then on, for good: numbers are never used again.
    pub fn numbers(&self) -> impl Iterator<Item = String> + '_ {
        let prefix = BudgetTake::number_prefix(&self.account);
        (self.after.saturating_add(1)..=self.no).map(move |no| format!("{prefix}{}", digits(no)))
    }

    /// The key that says how much was taken.
    #[must_use]
    pub fn stored(&self, at: Timestamp, call: CallNo, attempt: u32) -> String {
        let (prefix, no) = (BudgetTake::prefix(&self.account), digits(self.no));
        format!("{prefix}{no} {} {} {attempt} {}", at.0, call.0, self.amount)
    }

    /// Until when that key is remembered.
    #[must_use]
    pub fn expires_at(&self, at: Timestamp) -> Timestamp {
        at.plus(self.window).plus(SLACK)
    }
}

impl StoredTake {
    /// Reads a key behind the prefix of its account; none for what is not a take.
    #[must_use]
    pub fn read(rest: &str) -> Option<StoredTake> {
        let mut words = rest.split(' ');
        let read = StoredTake {
            no: words.next()?.parse().ok()?,
            at: Timestamp(words.next()?.parse().ok()?),
            call: CallNo(words.next()?.parse().ok()?),
            attempt: words.next()?.parse().ok()?,
            amount: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(read)
    }
}

/// Ten digits, so that keys are in the order of numbers.
fn digits(no: u32) -> String {
    format!("{no:010}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_is_read_as_it_is_stored() {
        let account = r#"["rule:refunds","daily","ann"]"#.to_owned();
        let take =
            BudgetTake { account, no: 17, after: 15, amount: "12.5".into(), window: Millis::hours(24) };
        let prefix = BudgetTake::number_prefix(&take.account);
        let numbers: Vec<String> = take.numbers().collect();
        assert_eq!(numbers, [format!("{prefix}0000000016"), format!("{prefix}0000000017")]);
        let stored = take.stored(Timestamp(-5), CallNo(3), 2);
        let rest = stored.strip_prefix(&BudgetTake::prefix(&take.account)).unwrap();
        let (no, at, call, amount) = (17, Timestamp(-5), CallNo(3), "12.5".to_owned());
        assert_eq!(StoredTake::read(rest), Some(StoredTake { no, at, call, attempt: 2, amount }));
        for odd in ["", "x", "1", "1 2 3 4", "1 2 3 4 5 6", "1 x 3 4 5"] {
            assert_eq!(StoredTake::read(odd), None, "{odd:?}");
        }
        assert_eq!(take.expires_at(Timestamp(0)), Timestamp(0).plus(Millis::hours(25)));
    }
}
