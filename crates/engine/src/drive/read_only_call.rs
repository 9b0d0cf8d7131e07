//! Calls that the server makes by itself, to look: of tools that change nothing, within a time, and never in anybody's name but
//! the run's.
//!
//! Nothing is written down here and nothing is started: a call that is cut off by a crash is made again. What is looked for is
//! `preconditions.rs` and `reconcile.rs`.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use standfast_core::body::Body;
use standfast_core::digest;
use standfast_core::hold::Finding;
use standfast_core::id::{CallId, CallNo, HoldId, HoldKey, MessageId};
use standfast_core::message::ToolResult;
use standfast_core::name::ToolName;
use standfast_core::policy::Effect;
use standfast_core::run::Run;
use standfast_core::time::Millis;
use standfast_policy::call::ToolDefault;

use super::Drives;
use super::account::account;
use crate::policy;
use crate::settings::Agent;
use crate::tool::{Invocation, Judgement, Outcome};

/// Characters of a result that are shown and stored; all of it counts.
const SHOWN_CHARS: usize = 4_000;

/// A call to look.
#[derive(Clone, Copy)]
pub(super) struct ReadOnlyCall<'a> {
    /// The call that it is made for.
    pub(super) no: CallNo,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a str,
    /// How long it may take.
    pub(super) patience: Millis,
}

impl Drives {
    /// What a tool that changes nothing says, or why it cannot be asked. What a rule denies is not called by anybody.
    pub(super) async fn make_read_only_call(
        &self,
        run: &Run,
        agent: &Agent,
        call: ReadOnlyCall<'_>,
    ) -> Result<String, String> {
        let ReadOnlyCall { no, tool: name, arguments, patience } = call;
        let found = ToolName::new(name).ok().and_then(|name| Some((agent.tools.get(&name)?, name)));
        let Some((tool, name)) = found else { return Err(format!("the agent has no tool {name}")) };
        if agent.tool_default(&name) != ToolDefault::ReadOnly || tool.judge(arguments) != Judgement::Allow {
            return Err(format!("{name} is not a tool that changes nothing, so it was not called"));
        }
        if policy::by_a_rule(agent, &run.facts, &name, arguments) == Some(Effect::Deny) {
            return Err(format!("a rule denies this call of {name}, so it was not made"));
        }
        let id = run.facts.id;
        let secret = self.host.clock.entropy().draw("precondition", no.0);
        let invocation = Invocation {
            call: CallId { run: id, no },
            attempt: 0,
            arguments: arguments.to_owned(),
            tool: name.clone(),
            session: run.facts.session.clone(),
            message: MessageId { run: id, seq: run.state.replied_at },
            asked_as: String::new(),
            owner: account(&run.facts),
            resumed: None,
            pending: HoldId { run: id, key: HoldKey { call: no, secret } },
        };
        let handed = tool.secrets(&invocation);
        let running = AssertUnwindSafe(tool.run(invocation)).catch_unwind();
        let came = tokio::select! {
            came = running => came.map_err(|_| format!("{name} failed"))?,
            () = self.host.clock.sleep(patience) => return Err(format!("{name} did not answer within {patience}")),
        };
        let came = match handed {
            Some(handed) => handed.await.cut_outcome(came),
            None => came,
        };
        match came {
            Outcome::Done(ToolResult::Ok(body)) => Ok(text(&body)),
            Outcome::Done(ToolResult::Failed(body)) => Err(text(&body)),
            Outcome::Unknown(why) => Err(why),
            Outcome::Pending(_) => Err(format!("{name} waits for something itself")),
        }
    }
}

fn text(body: &Body) -> String {
    body.inline().unwrap_or("a result that is too large to be shown").to_owned()
}

/// What was found, as it is shown and stored.
pub(super) fn finding(tool: &str, arguments: String, said: Result<String, String>) -> Finding {
    let (result, fails) = match said {
        Ok(result) => (result, false),
        Err(why) => (why, true),
    };
    let parts = [tool.as_bytes(), arguments.as_bytes(), result.as_bytes(), &[u8::from(fails)]];
    let digest = digest::of_parts("standfast.precondition.1", &parts);
    let result = result.chars().take(SHOWN_CHARS).collect();
    Finding { tool: tool.to_owned(), arguments, result, fails, digest }
}
