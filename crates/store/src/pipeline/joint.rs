//! One append of several runs, of which all is written or nothing: a no to a sub-run ends the runs above it with it.
//!
//! The first order leads. Where it is refused nothing is written of the others; one of the others that is refused, because
//! its run has ended by then, is left out. Everything is decided again on what is there when somebody else was faster, on
//! this node or on another. Unlike [`Pipeline`] nothing is decided ahead. [`start_jointly`] begins several runs in the same way.

use std::sync::Arc;

use standfast_core::command::Start;
use standfast_core::decide::{self, Answer as Outcome};
use standfast_core::event::Envelope;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::refusal::Refusal;

use super::{Order, Pipeline, TRIES, all, decided_holds, head, seal, unchanged};
use crate::batch::Batch;
use crate::contract::Store;
use crate::error::StoreError;

/// What became of orders that were appended together, or of starts.
#[derive(Debug)]
pub struct JointSettlement {
    /// The outcome of the first one.
    pub outcome: Result<Outcome, Refusal>,
    /// The runs after it, the first one in front.
    pub rows: Vec<RunRow>,
    /// The events that were written to each of them.
    pub events: Vec<Vec<Envelope>>,
    /// The holds of each of them that they decided.
    pub decided: Vec<Vec<HoldRow>>,
}

impl JointSettlement {
    /// The first one was refused: nothing was written.
    fn refused(outcome: Result<Outcome, Refusal>, rows: Vec<RunRow>) -> JointSettlement {
        let (events, decided) = (vec![Vec::new(); rows.len()], vec![Vec::new(); rows.len()]);
        JointSettlement { outcome, rows, events, decided }
    }
}

/// Decides each order on its run and appends all of it at once.
pub async fn append_jointly(
    store: &Arc<dyn Store>,
    lead: (RunRow, Order),
    others: Vec<(RunRow, Order)>,
) -> Result<JointSettlement, StoreError> {
    let run = lead.0.run.facts.id;
    let mut orders: Vec<(RunRow, Order)> = std::iter::once(lead).chain(others).collect();
    for _ in 0..TRIES {
        match attempt(store, &orders).await {
            Err(StoreError::Conflict { .. }) => {}
            settled => return settled,
        }
        for (row, _) in &mut orders {
            *row = store.load(row.run.facts.id).await?.row;
        }
    }
    Err(StoreError::Conflict { run })
}

/// Begins several runs at once: all of them are there afterwards, or none. `commands` of each order follow its start in the
/// same link. Ids are new, so nobody can be faster; a guard that does not hold refuses everything.
pub async fn start_jointly(
    store: &Arc<dyn Store>,
    starts: Vec<(Start, Order)>,
) -> Result<JointSettlement, StoreError> {
    let (mut batches, mut rows, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for (start, order) in &starts {
        let started = match decide::start(start, &order.given.context()) {
            Ok(started) => started,
            Err(refusal) => return Ok(JointSettlement::refused(Err(refusal), Vec::new())),
        };
        let decided = all(started, true, order);
        let batch = Batch::seal(None, &decided, seal(&decided, order));
        rows.extend(batch.as_ref().map(|batch| batch.row.clone()));
        events.push(decided.events);
        batches.extend(batch);
    }
    let first = batches.first().map(|batch| (batch.row.clone(), batch.link.header.first));
    match (store.append(batches).await, first) {
        (Err(StoreError::Unknown { why }), Some((row, seq))) => {
            let ours = head(Some(&row));
            Pipeline::of(store.clone(), row).find_out(seq, ours, why).await?;
        }
        (appended, _) => appended?,
    }
    // What begins has decided nothing yet.
    let decided = vec![Vec::new(); rows.len()];
    Ok(JointSettlement { outcome: Ok(Outcome::Done), rows, events, decided })
}

async fn attempt(store: &Arc<dyn Store>, orders: &[(RunRow, Order)]) -> Result<JointSettlement, StoreError> {
    let (mut batches, mut rows, mut events, mut first_outcome) = (Vec::new(), Vec::new(), Vec::new(), None);
    let mut holds = Vec::new();
    for (row, order) in orders {
        let decided = all(unchanged(&row.run), false, order);
        let is_lead = first_outcome.is_none();
        let outcome = first_outcome.get_or_insert_with(|| decided.outcome.clone());
        if is_lead && outcome.is_err() {
            // Refused on what was read: which may not be what is there.
            Pipeline::of(store.clone(), row.clone()).is_current().await?;
            return Ok(JointSettlement::refused(decided.outcome, vec![row.clone()]));
        }
        let batch =
            Batch::seal(Some(row), &decided, seal(&decided, order)).filter(|_| decided.outcome.is_ok());
        events.push(if batch.is_some() { decided.events.clone() } else { Vec::new() });
        holds.push(decided_holds(batch.as_ref()));
        rows.push(batch.as_ref().map_or_else(|| row.clone(), |batch| batch.row.clone()));
        batches.extend(batch);
    }
    let outcome = first_outcome.unwrap_or(Ok(Outcome::Repeated));
    let Some(first) = batches.first().map(|batch| (batch.row.clone(), batch.link.header.first)) else {
        return Ok(JointSettlement { outcome, rows, events, decided: holds });
    };
    match store.append(batches).await {
        Ok(()) => {}
        // One link tells for all of them.
        Err(StoreError::Unknown { why }) => {
            let (row, seq) = first;
            let ours = head(Some(&row));
            Pipeline::of(store.clone(), row).find_out(seq, ours, why).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(JointSettlement { outcome, rows, events, decided: holds })
}
