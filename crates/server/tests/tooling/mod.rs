//! One start of a call, for the tests of tools.
//!
//! Shared by several test programs; each uses all of it.

use serde_json::Value;
use standfast_core::id::{CallId, CallNo, HoldId, HoldKey, MessageId, RunId, Secret, Seq, StorageKind};
use standfast_core::name::{SessionId, Tenant, ToolName};
use standfast_core::time::Timestamp;
use standfast_engine::tool::Invocation;

/// The first start of the first call of a run.
pub(crate) fn invocation(arguments: &Value) -> Invocation {
    let run = RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [7; 5]);
    let no = CallNo(1);
    Invocation {
        call: CallId { run, no },
        attempt: 1,
        arguments: arguments.to_string(),
        tool: ToolName::new("the_tool").unwrap(),
        session: SessionId::new("ses_1").unwrap(),
        message: MessageId { run, seq: Seq(3) },
        asked_as: "toolu_1".into(),
        owner: standfast_core::name::UserId::new("ann").unwrap(),
        resumed: None,
        pending: HoldId { run, key: HoldKey { call: no, secret: Secret([9; 16]) } },
    }
}
