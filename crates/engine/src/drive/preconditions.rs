//! Read-only calls that rules want made before people are asked, and made again directly before the call starts.
//!
//! What they say is shown and stored with the hold. A rule of their own, named by the digest of what they said, holds the
//! call: an approval satisfies exactly what was shown, and another result asks again. What cannot be looked at is shown as
//! that, and held.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use standfast_core::body::Body;
use standfast_core::digest;
use standfast_core::hold::{Finding, HoldTerms};
use standfast_core::id::{CallId, CallNo, HoldId, HoldKey, MessageId};
use standfast_core::message::ToolResult;
use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::Run;
use standfast_core::time::Millis;
use standfast_policy::call::{Call, ToolDefault};
use standfast_policy::rule::Precondition;

use super::Drives;
use super::account::account;
use crate::policy;
use crate::settings::{Agent, Rules};
use crate::tool::{Invocation, Judgement, Outcome};

/// How long a look may take.
const PATIENCE: Millis = Millis::seconds(30);

/// Characters of a result that are shown and stored; all of it counts.
const SHOWN_CHARS: usize = 4_000;

/// What people are told when a call is asked about again.
const CHANGED: &str = "What was found before it was approved is different now";

impl Drives {
    /// Looks at what the rules about these calls want looked at, for those that are held.
    pub(super) async fn look_at_preconditions(
        &self,
        run: &Run,
        agent: &Agent,
        calls: Vec<(CallNo, ToolName, String)>,
        verdicts: &mut Verdicts,
    ) {
        let Rules::Readable(rules) = &agent.rules else { return };
        if !rules.has_preconditions() {
            return;
        }
        for (no, tool, arguments) in calls {
            if verdicts.combine(no).judged.effect != Effect::Hold {
                continue;
            }
            let call = policy::call_of(&run.facts, &tool, Some(&arguments));
            for (rule, wanted) in rules.decide(&call, agent.tool_default(&tool)).preconditions {
                let finding = self.look(run, agent, (no, &call), &wanted).await;
                record(run, no, &rule, finding, verdicts);
            }
        }
    }

    /// Makes one call.
    async fn look(
        &self,
        run: &Run,
        agent: &Agent,
        (no, call): (CallNo, &Call),
        wanted: &Precondition,
    ) -> Finding {
        let (arguments, said) = match arguments(call, wanted) {
            Ok(arguments) => {
                let said = self.ask_tool(run, agent, no, (&wanted.tool, &arguments)).await;
                (arguments, said)
            }
            Err(why) => (String::new(), Err(why)),
        };
        let (result, fails) = match said {
            Ok(result) => (result, false),
            Err(why) => (why, true),
        };
        let parts = [wanted.tool.as_bytes(), arguments.as_bytes(), result.as_bytes(), &[u8::from(fails)]];
        let digest = digest::of_parts("standfast.precondition.1", &parts);
        let result = result.chars().take(SHOWN_CHARS).collect();
        Finding { tool: wanted.tool.clone(), arguments, result, fails, digest }
    }

    /// What a tool that changes nothing says, or why it cannot be asked.
    async fn ask_tool(
        &self,
        run: &Run,
        agent: &Agent,
        no: CallNo,
        (name, arguments): (&str, &str),
    ) -> Result<String, String> {
        let found = ToolName::new(name).ok().and_then(|name| Some((agent.tools.get(&name)?, name)));
        let Some((tool, name)) = found else { return Err(format!("the agent has no tool {name}")) };
        if agent.tool_default(&name) != ToolDefault::ReadOnly || tool.judge(arguments) != Judgement::Allow {
            return Err(format!("{name} is not a tool that changes nothing, so it was not called"));
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
            () = self.host.clock.sleep(PATIENCE) => return Err(format!("{name} did not answer within {PATIENCE}")),
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

/// The arguments of a look: each from its place in the call.
fn arguments(call: &Call, wanted: &Precondition) -> Result<String, String> {
    let mut members = Vec::new();
    for (name, path) in &wanted.arguments {
        let found = call.arguments.value().and_then(|arguments| path.find_one(arguments));
        let Some(value) = found else { return Err(format!("the call has no argument {path}")) };
        members.push(format!("{}:{value}", serde_json::Value::from(name.as_str())));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

/// Writes down what was found: for people, and as a rule that holds.
fn record(run: &Run, no: CallNo, rule: &RuleId, finding: Finding, verdicts: &mut Verdicts) {
    let begins = format!("precondition:{rule}:");
    let digest = finding.digest.to_string();
    let named =
        RuleId::new(format!("{begins}{}", digest.get(digest.len().saturating_sub(16)..).unwrap_or(&digest)));
    // A name that is too long holds by another one, which no approval ever satisfies.
    let named = named.unwrap_or_else(|_| RuleId::no_verdict());
    let satisfied = run.call(no).map(|call| call.satisfied.as_slice()).unwrap_or_default();
    let was_approved = satisfied.iter().any(|one| one.as_str().starts_with(&begins));
    if was_approved && !satisfied.contains(&named) {
        verdicts.warnings.push((no, CHANGED.to_owned()));
    }
    verdicts.by_call.push((no, Verdict::new(Effect::Hold, named)));
    match verdicts.terms.iter_mut().find(|(of, _)| *of == no) {
        Some((_, terms)) => terms.stakes.findings.push(finding),
        None => {
            let mut terms = HoldTerms::default();
            terms.stakes.findings.push(finding);
            verdicts.terms.push((no, terms));
        }
    }
}
