//! What a node does by itself: finding due runs, serving inboxes, polling remote tasks, sweeping jobs, erasing old runs,
//! saying that it is there.
//!
//! `worker.rs` claims what is due and drives it, `inbox_server.rs` takes tasks, `poller.rs` asks about calls that wait
//! elsewhere, `job_sweep.rs` finds jobs that went silent, `retention.rs` erases, `startup_report.rs` counts what a start
//! found. Each loop ends when the engine stops or is dropped.

mod inbox_server;
mod job_sweep;
mod poller;
mod retention;
mod startup_report;
mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use standfast_core::name::Tenant;

use super::commit::Commit;
use super::drive::{Drives, Pool};
use super::host::Host;
use super::log::Log;
use super::nodes::Nodes;
use super::wakes::Wakes;

pub use startup_report::StartupReport;

/// What a node does by itself.
pub struct Work {
    host: Arc<Host>,
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    nodes: Arc<Nodes>,
    commit: Arc<Commit>,
    drives: Arc<Drives>,
    pool: Arc<Pool>,
    /// Jobs that were found silent since the start, of each tenant.
    silent_jobs: Mutex<BTreeMap<Tenant, u64>>,
    /// What was found at the start.
    looking: Mutex<startup_report::StartupScan>,
}

impl Work {
    pub(crate) fn new(drives: Arc<Drives>, nodes: Arc<Nodes>) -> Work {
        let (host, log, wakes) = (drives.host.clone(), drives.log.clone(), drives.wakes.clone());
        let (commit, pool) = (drives.commit.clone(), drives.pool.clone());
        let (silent_jobs, looking) = (Mutex::default(), Mutex::default());
        Work { host, log, wakes, nodes, commit, drives, pool, silent_jobs, looking }
    }
}
