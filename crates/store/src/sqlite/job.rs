//! What the writer is asked to do, and how each job is done inside its transaction.
//!
//! What an append does is in `append.rs`; the writer's smaller jobs are in `work.rs` and `deliveries.rs`. When the answer
//! goes out is the writer's affair.

use std::sync::Arc;

use rusqlite::Connection;
use standfast_core::id::{Incarnation, RunId};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use tokio::sync::oneshot;

use super::append::{self, EncodedBatch};
use super::credentials::{self, CredentialChange};
use super::deliveries::{self, SubscriptionChange};
use super::gather::Interest;
use super::names::Texts;
use super::tally::Tally;
use super::writer_memory::WriterMemory;
use super::{erase, work};
use crate::error::StoreError;
use crate::query::{Claim, ClaimedRun, KeyNote, SealedChange, SessionChange, SessionKey, SettleNotice};

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Something for the writer to do, and where its answer goes.
pub(super) enum Job {
    Append(HandedOver, Reply<()>),
    /// Somebody waits for what the writer has already.
    Hurry,
    Claim(Claim, Reply<Vec<ClaimedRun>>),
    Renew(Vec<RunId>, Incarnation, Timestamp, Reply<Vec<RunId>>),
    /// Whether an append could be written now. Tried with a write of its own when the last one found no room.
    Probe(bool, Reply<Vec<RunId>>),
    Release(RunId, Incarnation, Option<Timestamp>, Reply<()>),
    ForgetKeys(Timestamp, usize, Reply<usize>),
    /// Needs no sync of its own.
    NoteKeys(Vec<KeyNote>, Reply<()>),
    SettleNotice(i64, SettleNotice, Reply<()>),
    ChangeSession(SessionKey, SessionChange, Timestamp, Reply<bool>),
    Erase(RunId, Reply<()>),
    Credential(CredentialChange, Reply<bool>),
    Sealed(SealedChange, Reply<bool>),
    Subscription(SubscriptionChange, Reply<bool>),
    Quarantine(RunId, String, Reply<()>),
    Audit(Tenant, Timestamp, String, Reply<()>),
}

/// An append on its way.
pub(super) struct HandedOver {
    pub(super) batches: Vec<EncodedBatch>,
    /// When it was handed over, by the observer's clock.
    pub(super) at: u64,
    /// Whether anybody waits for it.
    pub(super) interest: Arc<Interest>,
}

/// Why a job did not get done.
#[derive(Debug)]
pub(super) enum Failure {
    /// A refusal: nothing was written for it, the others in the transaction go on.
    Refused(StoreError),
    /// The database refused it: the whole transaction is undone.
    Database(rusqlite::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Database(error)
    }
}

/// The result of a job.
pub(super) enum JobResult {
    Nothing,
    Claimed(Vec<ClaimedRun>),
    Runs(Vec<RunId>),
    Found(bool),
    /// What it changed of the memory.
    Changed(Tally),
    Forgot(usize),
}

impl Job {
    /// Whether it may be lost with the machine, and is synced with whatever follows.
    pub(super) fn needs_no_sync(&self) -> bool {
        matches!(self, Job::NoteKeys(..))
    }

    /// Whether nobody awaits it yet.
    pub(super) fn can_wait(&self) -> bool {
        matches!(self, Job::Append(append, _) if append.interest.is_taken_unawaited())
    }

    /// The appends of this job.
    pub(super) fn batches(&self) -> &[EncodedBatch] {
        match self {
            Job::Append(append, _) => &append.batches,
            Job::Hurry
            | Job::Claim(..)
            | Job::Renew(..)
            | Job::Probe(..)
            | Job::Release(..)
            | Job::ForgetKeys(..)
            | Job::NoteKeys(..)
            | Job::SettleNotice(..)
            | Job::ChangeSession(..)
            | Job::Erase(..)
            | Job::Credential(..)
            | Job::Sealed(..)
            | Job::Subscription(..)
            | Job::Quarantine(..)
            | Job::Audit(..) => &[],
        }
    }

    /// Does the job inside the transaction, in which it has this place.
    pub(super) fn perform(
        &self,
        place: usize,
        connection: &Connection,
        memory: &mut WriterMemory,
        texts: &Texts,
    ) -> Result<JobResult, Failure> {
        match self {
            Job::Append(handed, _) => {
                append::append(connection, memory, place, &handed.batches).map(JobResult::Changed)
            }
            Job::Hurry => Ok(JobResult::Nothing),
            Job::Claim(claim, _) => work::claim_due(connection, memory, texts, claim).map(JobResult::Claimed),
            Job::Renew(runs, node, until, _) => {
                work::renew(connection, memory, runs, *node, *until).map(JobResult::Runs)
            }
            // Any page will do: the header's, whose number nobody else uses.
            Job::Probe(true, _) => connection
                .query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0))
                .and_then(|no| connection.pragma_update(None, "user_version", no.wrapping_add(1)))
                .map(|()| JobResult::Nothing)
                .map_err(Failure::from),
            Job::Probe(false, _) => Ok(JobResult::Nothing),
            Job::Release(run, node, wake_at, _) => {
                work::release(connection, memory, texts, *run, *node, *wake_at).map(|()| JobResult::Nothing)
            }
            Job::ForgetKeys(until, limit, _) => {
                work::forget_keys(connection, *until, *limit).map(JobResult::Forgot)
            }
            Job::NoteKeys(notes, _) => {
                work::note_keys(connection, memory, notes).map(|()| JobResult::Nothing)
            }
            Job::SettleNotice(no, outcome, _) => {
                deliveries::settle_notice(connection, *no, outcome).map(|()| JobResult::Nothing)
            }
            Job::ChangeSession(key, change, at, _) => {
                work::change_session(connection, memory, key, change, *at).map(JobResult::Found)
            }
            Job::Erase(run, _) => {
                memory.runs.forget(*run);
                erase::erase(connection, texts, *run).map(|()| JobResult::Nothing)
            }
            Job::Credential(change, _) => {
                credentials::change(connection, memory, change).map(JobResult::Found).map_err(Failure::from)
            }
            Job::Sealed(change, _) => work::change_sealed(connection, memory, change).map(JobResult::Found),
            Job::Subscription(change, _) => {
                deliveries::change(connection, memory, change).map(JobResult::Found).map_err(Failure::from)
            }
            Job::Audit(tenant, at, entry, _) => work::put_audit(connection, memory, tenant, *at, entry)
                .map(|()| JobResult::Nothing)
                .map_err(Failure::from),
            Job::Quarantine(run, why, _) => {
                memory.runs.forget(*run);
                work::quarantine(connection, *run, why).map(JobResult::Changed)
            }
        }
    }

    /// Sends the answer: only after COMMIT, or when it is certain that nothing was written.
    pub(super) fn answer(self, result: Result<JobResult, StoreError>) {
        match self {
            Job::Hurry => {}
            Job::Append(_, reply)
            | Job::Quarantine(_, _, reply)
            | Job::Audit(_, _, _, reply)
            | Job::Release(_, _, _, reply)
            | Job::SettleNotice(_, _, reply)
            | Job::NoteKeys(_, reply)
            | Job::Erase(_, reply) => send(reply, result.map(|_| ())),
            Job::Claim(_, reply) => send(
                reply,
                result.map(|done| match done {
                    JobResult::Claimed(claimed) => claimed,
                    JobResult::Nothing
                    | JobResult::Runs(_)
                    | JobResult::Found(_)
                    | JobResult::Changed(_)
                    | JobResult::Forgot(_) => Vec::new(),
                }),
            ),
            Job::Renew(_, _, _, reply) | Job::Probe(_, reply) => send(
                reply,
                result.map(|done| match done {
                    JobResult::Runs(runs) => runs,
                    JobResult::Nothing
                    | JobResult::Claimed(_)
                    | JobResult::Found(_)
                    | JobResult::Changed(_)
                    | JobResult::Forgot(_) => Vec::new(),
                }),
            ),
            Job::ForgetKeys(_, _, reply) => send(
                reply,
                result.map(|done| match done {
                    JobResult::Forgot(count) => count,
                    JobResult::Nothing
                    | JobResult::Claimed(_)
                    | JobResult::Runs(_)
                    | JobResult::Found(_)
                    | JobResult::Changed(_) => 0,
                }),
            ),
            Job::ChangeSession(_, _, _, reply)
            | Job::Credential(_, reply)
            | Job::Sealed(_, reply)
            | Job::Subscription(_, reply) => {
                send(reply, result.map(|done| matches!(done, JobResult::Found(true))));
            }
        }
    }
}

fn send<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    // Whoever asked may have gone away; what was written stays written.
    let _ = reply.send(result);
}
