//! Where Standfast keeps runs.
//!
//! A store knows rows and locks, nothing of what they mean: events, rows and guards come in by shape. The contract is
//! [`Store`]; what an append consists of is [`Batch`]. Backends: [`memory`] (the reference), [`sqlite`] (the embedded
//! default), [`postgres`] (many nodes), [`split_store`] (memory beside a durable one). `conformance` is the one suite that
//! every backend passes; [`pipeline`] appends to a run without waiting for each append.

#![warn(missing_docs)]

pub mod audit;
mod batch;
mod call_query;
mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod error;
pub mod export;
mod fairness;
pub mod file;
mod key_query;
mod layer;
pub mod memory;
mod observer;
pub mod pipeline;
pub mod postgres;
mod query;
mod recipient;
mod row_audit;
mod shard_balance;
mod single_node;
pub mod split_store;
pub mod sqlite;
mod subscription;

pub use batch::{AudienceMember, Batch, ExpectedHead, Guard, LeaseChange, Notice, Seal, SideWrite};
pub use call_query::{CallQuery, CallStatus};
pub use contract::{
    Answer, AuditStore, DeliveryStore, IdempotencyStore, RunStore, SecretStore, SessionStore, Store,
    WorkStore,
};
pub use error::StoreError;
pub use key_query::KeyQuery;
pub use layer::{
    AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer, WorkLayer,
};
pub use observer::{Effort, Observer};
pub use query::{
    Audience, AuditEntry, Claim, Claimant, ClaimedRun, Counts, Credential, DecidedQuery, DueNotice,
    EndedQuery, Heartbeat, HoldFilter, HoldQuery, InboxCounts, KeyNote, KeyRecord, Lease, NodeRow, OpenHolds,
    Page, RunFilter, RunQuery, SCAN_MAX, SealedChange, SessionChange, SessionKey, SessionQuery, SessionRow,
    SettleNotice, ShardSet, StoredRun, UnreadableRun,
};
pub use recipient::Recipient;
pub use subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Scope, Subscription, SubscriptionCount, SubscriptionQuery,
};
