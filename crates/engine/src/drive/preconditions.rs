//! Read-only calls that rules want made before people are asked, and made again directly before the call starts.
//!
//! What they say is shown and stored with the hold. A rule of their own, named by the digest of what they said, holds the
//! call: an approval satisfies exactly what was shown, and another result asks again. What cannot be looked at is shown as
//! that, and held.

use standfast_core::hold::{Finding, HoldTerms};
use standfast_core::id::CallNo;
use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::Run;
use standfast_core::time::Millis;
use standfast_policy::call::Call;
use standfast_policy::rule::Precondition;

use super::Drives;
use super::read_only_call::{ReadOnlyCall, finding};
use crate::policy;
use crate::settings::{Agent, Rules};

/// How long a look may take.
const PATIENCE: Millis = Millis::seconds(30);

/// The text for people when a call is asked about again.
const CHANGED: &str = "What was found before it was approved is different now";

impl Drives {
    /// Looks at what the rules about these calls want looked at, for those that are held.
    pub(crate) async fn look_at_preconditions(
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
                let call = ReadOnlyCall { no, tool: &wanted.tool, arguments: &arguments, patience: PATIENCE };
                let said = self.make_read_only_call(run, agent, call).await;
                (arguments, said)
            }
            Err(why) => (String::new(), Err(why)),
        };
        finding(&wanted.tool, arguments, said)
    }
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
    let digest = finding.digest.to_string();
    let named = RuleId::finding(rule, digest.get(digest.len().saturating_sub(16)..).unwrap_or(&digest));
    // A name that is too long holds by another one, which no approval ever satisfies.
    let named = named.unwrap_or_else(|_| RuleId::no_verdict());
    let satisfied = run.call(no).map(|call| call.satisfied.as_slice()).unwrap_or_default();
    let was_approved = satisfied.iter().any(|one| one.is_finding_like(&named));
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
