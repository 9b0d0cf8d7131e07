//! An open hold for tests of surfaces, with nothing in it that a test has not asked for.
//!
//! Tests of one surface change what they are about; what a hold is made of is said here once.

use standfast_core::hold::{Ask, HoldKind};
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, Seq, StorageKind};
use standfast_core::name::{AgentName, SessionId, Tenant};
use standfast_core::project::HoldRow;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;

/// A hold of this kind, opened for this call.
pub(crate) fn open_hold(kind: HoldKind, call: u32) -> HoldView {
    let run = RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [0; 5]);
    let row = HoldRow {
        id: HoldId { run, key: HoldKey { call: CallNo(call), secret: Secret([1; 16]) } },
        kind,
        agent: AgentName::new("ops").unwrap(),
        session: SessionId::new("s").unwrap(),
        tool: None,
        inbox: None,
        request: None,
        message: None,
        at: Seq(4),
        opened_at: Timestamp(0),
        expires_at: None,
        expired_at: None,
        digest: None,
        revision: 0,
        muted: false,
        assignee: None,
        processing: false,
        closed: None,
    };
    HoldView {
        row,
        owner: standfast_core::name::UserId::new("ann").unwrap(),
        arguments: None,
        ask: Ask::default(),
        prompt: None,
        description: None,
        reversible: None,
        risk: None,
        is_asked_by_server: false,
        unknown_because: None,
        reconciled: None,
        recorded: None,
        path: Vec::new(),
        open: None,
        late: false,
        may_decide: true,
        why_not: None,
        deciders: String::new(),
        demands: Vec::new(),
        rules: Vec::new(),
        driver: standfast_core::event::Driver::Loop,
        drift: Vec::new(),
        needs_sign_in: None,
        may_log_in: false,
    }
}
