//! Where Standfast keeps runs.
//!
//! A store knows rows and locks, nothing of what they mean: events, rows and guards come in by shape. The contract is
//! [`Store`]; what an append consists of is [`Batch`]. Backends: [`memory`] (the reference), [`sqlite`] (the embedded
//! default), [`postgres`] (many nodes), [`beside`] (memory beside a durable one). `conformance` is the one suite that
//! every backend passes; [`pipeline`] appends to a run without waiting for each append.

mod alone;
pub mod audit;
mod batch;
pub mod beside;
mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod error;
pub mod memory;
pub mod moving;
mod observer;
pub mod pipeline;
pub mod postgres;
mod query;
mod recipient;
mod spread;
pub mod sqlite;
mod subscription;
mod turns;

pub use batch::{Batch, Expected, Guard, LeaseChange, Notice, Put, Seal, Who};
pub use contract::{Answer, Store};
pub use error::StoreError;
pub use observer::Observer;
pub use query::{
    Audience, AuditEntry, Claim, Claimed, Counts, Credential, DueNotice, EndedQuery, Heartbeat, HoldFilter,
    HoldQuery, InboxCounts, KeyNote, KeyRecord, Lease, NodeRow, OpenHolds, Page, RunFilter, RunQuery,
    SCAN_MAX, SealedChange, SessionChange, SessionKey, SessionQuery, SessionRow, SettleNotice, ShardSet,
    Stored, Unreadable,
};
pub use recipient::Recipient;
pub use subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Scope, Subscription, SubscriptionCount, SubscriptionQuery,
};
