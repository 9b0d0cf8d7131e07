//! Rolling budgets: whether there is enough left for a call, and what its own start takes.
//!
//! What was taken are keys that starts have written; the next one is written with the start, behind a guard, so that of two
//! starts that were counted with the same takes one is refused, on any node, and counted again. A call that would be too much is held or denied, as
//! its budget says. Calls that no rule with a budget matches cost nothing.

use std::collections::BTreeMap;

use standfast_core::budget::{BudgetTake, StoredTake};
use standfast_core::event::Envelope;
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::name::{RuleId, Tenant};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::receipt::did_nothing;
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use standfast_policy::budget::{BudgetOutcome, RuleClaim, Take, TakeState};
use standfast_policy::decimal::Decimal;
use standfast_store::{KeyQuery, KeyRecord, StoreError};

use super::Drives;
use super::effects::hold;
use crate::EngineError;
use crate::settings::Agent;

/// Keys that are read at once.
const PAGE: usize = 1000;

/// Takes of which is looked up what came of them, the newest first, where there is not enough left.
const LOOKED_UP: usize = 256;

/// The rule of calls for which there is not enough left, with the names of rule and budget behind it.
const OVER: &str = "budget:over";

/// The rule of calls of which cannot be told whether there is enough left.
const UNREADABLE: &str = "budget:unreadable";

/// The accounts of the calls of one turn: what was taken before, and what those calls take.
#[derive(Default)]
pub(super) struct Accounts(BTreeMap<String, Account>);

#[derive(Default)]
struct Account {
    /// The number of the last take.
    last: u32,
    /// What was taken, the newest first.
    taken: Vec<TakenAmount>,
    /// What earlier calls of the same turn take.
    planned: Vec<Take>,
    /// Whether it was looked up which takes had no effect.
    is_looked_up: bool,
}

/// What a start took.
struct TakenAmount {
    run: RunId,
    call: CallNo,
    attempt: u32,
    take: Take,
}

impl Drives {
    /// Adds to the verdicts what the budgets say of a call, and what its start takes.
    pub(super) async fn see_to_budgets(
        &self,
        (facts, agent): (&Facts, &Agent),
        (no, claims): (CallNo, Vec<RuleClaim>),
        accounts: &mut Accounts,
        verdicts: &mut Verdicts,
    ) -> Result<(), EngineError> {
        for claim in claims {
            // What does not start takes nothing.
            if verdicts.combine(no).judged.effect == Effect::Deny {
                return Ok(());
            }
            let (tenant, name) = (&facts.tenant, &claim.claim.account);
            let now = self.host.clock.now();
            if !accounts.0.contains_key(name) {
                match self.read_account(tenant, name).await? {
                    Some(account) => drop(accounts.0.insert(name.clone(), account)),
                    None => {
                        let reason = format!(
                            "what was taken from budget {} cannot be read, so that a person must say whether there is enough",
                            claim.budget.name
                        );
                        hold(agent, no, UNREADABLE, reason, verdicts);
                        continue;
                    }
                }
            }
            let Some(account) = accounts.0.get_mut(name) else { continue };
            let mut outcome = account.check(&claim, now);
            if !account.is_looked_up && matches!(outcome, BudgetOutcome::Over { .. }) {
                self.look_up_outcomes(account).await?;
                outcome = account.check(&claim, now);
            }
            if let BudgetOutcome::Over { taken, enough_at } = outcome {
                refuse((agent, no), &claim, (&taken, enough_at), verdicts);
                if claim.budget.over == Effect::Deny {
                    return Ok(());
                }
            }
            verdicts.takes.push((no, account.take(&claim, now)));
        }
        Ok(())
    }

    /// What was taken from an account; none where it cannot be read.
    async fn read_account(&self, tenant: &Tenant, name: &str) -> Result<Option<Account>, EngineError> {
        // The number first: what is taken after that is counted too, and then the number is no longer free.
        let prefix = BudgetTake::number_prefix(name);
        let query = KeyQuery { tenant: tenant.clone(), prefix: prefix.clone(), before: None, limit: 1 };
        let last = self.log.store.keys_under(query).await?;
        let number = |(key, _): &(String, KeyRecord)| key.strip_prefix(&prefix)?.parse().ok();
        let last = match last.first() {
            None => 0,
            Some(last) => match number(last) {
                Some(number) => number,
                None => return Ok(None),
            },
        };
        let mut account = Account { last, ..Account::default() };
        let (prefix, mut before) = (BudgetTake::prefix(name), None);
        loop {
            let query = KeyQuery { tenant: tenant.clone(), prefix: prefix.clone(), before, limit: PAGE };
            let page = self.log.store.keys_under(query).await?;
            for (key, record) in &page {
                let read = key.strip_prefix(&prefix).and_then(StoredTake::read);
                let Some(taken) = read.and_then(|read| TakenAmount::of(record, read)) else {
                    return Ok(None);
                };
                account.taken.push(taken);
            }
            if page.len() < PAGE {
                return Ok(Some(account));
            }
            before = page.last().map(|(key, _)| key.clone());
        }
    }

    /// Finds out which takes had no effect: given back before they ran, or settled as not executed.
    async fn look_up_outcomes(&self, account: &mut Account) -> Result<(), EngineError> {
        account.is_looked_up = true;
        let mut last: Option<(RunId, Vec<Envelope>)> = None;
        for one in account.taken.iter_mut().take(LOOKED_UP) {
            if last.as_ref().is_none_or(|(run, _)| *run != one.run) {
                let events = match self.log.events(one.run, Seq(0)).await {
                    Ok(events) => events,
                    // What nobody can read stays taken.
                    Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => Vec::new(),
                    Err(error) => return Err(error.into()),
                };
                last = Some((one.run, events));
            }
            let events = last.as_ref().map(|(_, events)| events.as_slice()).unwrap_or_default();
            if did_nothing(one.call, one.attempt, events) {
                one.take.state = TakeState::Returned;
            }
        }
        Ok(())
    }
}

impl TakenAmount {
    fn of(record: &KeyRecord, read: StoredTake) -> Option<TakenAmount> {
        let StoredTake { at, call, attempt, amount, .. } = read;
        let take = Take { at, amount: Decimal::parse(&amount)?, state: TakeState::Kept };
        Some(TakenAmount { run: record.run, call, attempt, take })
    }
}

impl Account {
    fn check(&self, claim: &RuleClaim, now: Timestamp) -> BudgetOutcome {
        let taken = self.taken.iter().map(|one| &one.take).chain(&self.planned);
        let taken: Vec<Take> = taken.cloned().collect();
        claim.budget.check(&taken, &claim.claim.amount, now)
    }

    /// The take of a start, after those of earlier calls of the turn.
    fn take(&mut self, claim: &RuleClaim, now: Timestamp) -> BudgetTake {
        let amount = claim.claim.amount.clone();
        self.planned.push(Take { at: now, amount: amount.clone(), state: TakeState::Kept });
        let planned = u32::try_from(self.planned.len()).unwrap_or(u32::MAX);
        BudgetTake {
            account: claim.claim.account.clone(),
            no: self.last.saturating_add(planned),
            after: self.last,
            amount: amount.to_string(),
            window: claim.budget.window.0,
        }
    }
}

/// Holds or denies a call for which there is not enough left.
fn refuse(
    (agent, no): (&Agent, CallNo),
    claim: &RuleClaim,
    (taken, enough_at): (&Decimal, Option<Timestamp>),
    verdicts: &mut Verdicts,
) {
    let RuleClaim { rule, budget, claim } = claim;
    let written = rule.as_str().strip_prefix("rule:").unwrap_or(rule.as_str());
    let reason = budget.exceeded(written, &claim.amount, (taken, enough_at));
    let named = format!("{OVER}:{written}:{}", budget.name);
    let named = if RuleId::new(&named).is_ok() { named } else { OVER.to_owned() };
    match budget.over {
        Effect::Deny => {
            if let Ok(rule) = RuleId::new(&named) {
                let reason = Some(format!("not executed: {reason}"));
                verdicts.by_call.push((no, Verdict { reason, ..Verdict::new(Effect::Deny, rule) }));
            }
        }
        Effect::Hold | Effect::Allow => hold(agent, no, &named, reason, verdicts),
    }
}
