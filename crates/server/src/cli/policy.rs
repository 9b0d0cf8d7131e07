//! `standfast policy test`, `diff` and `explain`: what rules would do, before they do it.
//!
//! Rules are those of configuration files, calls are those that the server's database has (`policy/recorded_calls.rs`). Nothing is
//! changed, and the server may be running. Exit codes: 0 all is well, 1 people should look (something became looser, a call
//! that people denied would run), 2 the question could not be answered.

mod recorded_calls;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use standfast::config::{self, Config, Unset};
use standfast_core::approver::Person;
use standfast_core::id::HoldId;
use standfast_core::name::{AgentName, GroupName, RoleName, RuleId, SessionId, ToolName, UserId};
use standfast_policy::backtest::{Backtest, Count, RecordedCall, RecordedOutcome, backtest};
use standfast_policy::call::{Call, ToolDefault};
use standfast_policy::diff::{LooseningKind, LooserCalls, PolicyChange, PolicyDiff, diff};
use standfast_policy::explain::{Explanation, word};
use standfast_policy::matching::RuleOutcome;
use standfast_policy::truth::Truth;
use standfast_policy::value::Arguments;
use standfast_policy::witness::Coverage;

use super::plain::plain;
use recorded_calls::{Record, tool_default};

/// What can be asked about rules.
#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Back-test the rules of a configuration file against the calls in the database: what would be held, allowed and denied,
    /// and how people decided those.
    Test {
        /// The configuration file with the rules.
        config: PathBuf,
        #[command(flatten)]
        stored: CallSource,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Compare the rules of two configuration files: every class of calls that became looser, with an example.
    Diff {
        /// The file as it was.
        old: PathBuf,
        /// The file as it is to be.
        new: PathBuf,
        #[command(flatten)]
        stored: CallSource,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Say what the rules of a configuration file do to one call, which rules matched, and why.
    Explain {
        /// The configuration file with the rules.
        config: PathBuf,
        /// The call: the id of its hold, RUN:NUMBER, or JSON such as '{"tool": "refund", "arguments": {"amount": 5}}' with
        /// `agent`, `user`, `groups`, `roles` and `session` as needed.
        call: String,
        #[command(flatten)]
        stored: CallSource,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
}

/// Where the calls are.
#[derive(Debug, Args)]
pub(super) struct CallSource {
    /// The SQLite file of a server, or its folder of files. Default: the database that the configuration file names, else the
    /// one in the data directory.
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

pub(super) fn run(command: &Policy) -> ExitCode {
    let answered = match command {
        Policy::Test { config, stored, json } => test(config, stored, *json),
        Policy::Diff { old, new, stored, json } => compare(old, new, stored, *json),
        Policy::Explain { config, call, stored, json } => explain(config, call, stored, *json),
    };
    match answered {
        Ok((text, code)) => match std::io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => code,
            Err(_) => ExitCode::from(2),
        },
        Err(error) => {
            eprintln!("standfast: {}", error.trim_end());
            ExitCode::from(2)
        }
    }
}

fn load(path: &Path) -> Result<Config, String> {
    config::load(path, Unset::Allow).map_err(|error| error.to_string())
}

fn test(path: &Path, stored: &CallSource, as_json: bool) -> Result<(String, ExitCode), String> {
    let config = load(path)?;
    let calls = recorded_calls::calls(stored.database.as_deref(), path)?;
    let calls: Vec<RecordedCall> = calls.into_iter().map(|record| of_record(record, &config)).collect();
    let found = backtest(&config.policy, &calls);
    let code = if found.denied_and_allowed.calls == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let text = if as_json {
        format!("{:#}\n", test_json(&found, calls.len()))
    } else {
        test_text(&found, calls.len())
    };
    Ok((text, code))
}

fn of_record(record: Record, config: &Config) -> RecordedCall {
    let tool = tool_default(config, &record.call, record.judged);
    RecordedCall { id: record.id, call: record.call, tool, outcome: record.outcome }
}

fn test_text(found: &Backtest, calls: usize) -> String {
    let mut out = format!("{calls} stored calls\n");
    for (effect, count) in found.by_effect.iter().rev() {
        let _ = writeln!(out, "  {:<6} {:>6}  {}", word(*effect), count.calls, outcomes(count));
    }
    if !found.by_rule.is_empty() {
        out.push_str("by rule\n");
    }
    for (rule, count) in &found.by_rule {
        let _ = writeln!(
            out,
            "  {rule}: decides {} of {} that it matches",
            count.decided.calls,
            count.matched.calls.max(count.decided.calls)
        );
        let _ =
            writeln!(out, "    {}; such as {}", outcomes(&count.decided), count.decided.examples.join(", "));
    }
    for rule in &found.unused {
        let _ = writeln!(out, "  {rule}: matches nothing");
    }
    if found.denied_and_allowed.calls > 0 {
        let _ = writeln!(
            out,
            "people denied {} calls that would run without asking: {}",
            found.denied_and_allowed.calls,
            found.denied_and_allowed.examples.join(", ")
        );
    }
    if found.approved_and_denied.calls > 0 {
        let _ = writeln!(
            out,
            "people approved {} calls that would be denied: {}",
            found.approved_and_denied.calls,
            found.approved_and_denied.examples.join(", ")
        );
    }
    out
}

fn outcomes(count: &Count) -> String {
    let said = count.by_outcome.iter().map(|(outcome, calls)| format!("{calls} {}", outcome_word(*outcome)));
    said.collect::<Vec<_>>().join(", ")
}

fn outcome_word(outcome: RecordedOutcome) -> &'static str {
    match outcome {
        RecordedOutcome::Ran => "ran",
        RecordedOutcome::Approved => "approved",
        RecordedOutcome::Edited => "edited",
        RecordedOutcome::Denied => "denied",
        RecordedOutcome::Expired => "expired",
        RecordedOutcome::Refused => "refused",
        RecordedOutcome::Pending => "pending",
    }
}

fn test_json(found: &Backtest, calls: usize) -> Json {
    let count = |count: &Count| {
        let outcomes: serde_json::Map<String, Json> = count
            .by_outcome
            .iter()
            .map(|(outcome, n)| (outcome_word(*outcome).to_owned(), json!(n)))
            .collect();
        json!({"calls": count.calls, "outcomes": outcomes, "examples": count.examples})
    };
    let effects: serde_json::Map<String, Json> =
        found.by_effect.iter().map(|(effect, of)| (word(*effect).to_owned(), count(of))).collect();
    let rules: serde_json::Map<String, Json> = found
        .by_rule
        .iter()
        .map(|(rule, of)| {
            (rule.to_string(), json!({"matched": count(&of.matched), "decided": count(&of.decided)}))
        })
        .collect();
    json!({
        "calls": calls,
        "by_effect": effects,
        "by_rule": rules,
        "denied_and_allowed": count(&found.denied_and_allowed),
        "approved_and_denied": count(&found.approved_and_denied),
        "unused": found.unused.iter().map(RuleId::as_str).collect::<Vec<_>>(),
    })
}

fn compare(old: &Path, new: &Path, stored: &CallSource, as_json: bool) -> Result<(String, ExitCode), String> {
    let (was, is) = (load(old)?, load(new)?);
    // Without a database the corners of the rules are looked at all the same.
    let records = match (recorded_calls::calls(stored.database.as_deref(), new), &stored.database) {
        (Ok(records), _) => records,
        (Err(_), None) => Vec::new(),
        (Err(error), Some(_)) => return Err(error),
    };
    let judged: Vec<(ToolName, ToolDefault)> = records
        .iter()
        .map(|record| (record.call.tool.clone(), tool_default(&is, &record.call, record.judged)))
        .collect();
    let default = |tool: &ToolName| {
        let known = judged.iter().find(|(name, _)| name == tool).map(|(_, default)| *default);
        known.unwrap_or_else(|| {
            recorded_calls::configured(&is, None, tool).unwrap_or(ToolDefault::ChangesWorld)
        })
    };
    let calls: Vec<Call> = records.into_iter().map(|record| record.call).collect();
    let found = diff(&was.policy, &is.policy, &calls, &default);
    let code = if found.looser.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let text = if as_json { format!("{:#}\n", diff_json(&found)) } else { diff_text(&found) };
    Ok((text, code))
}

fn diff_text(found: &PolicyDiff) -> String {
    let mut out = String::new();
    for change in &found.changes {
        let _ = match change {
            PolicyChange::Added(rule, effect) => writeln!(out, "+ {rule} ({})", word(*effect)),
            PolicyChange::Removed(rule, effect) => writeln!(out, "- {rule} ({})", word(*effect)),
            PolicyChange::Changed(rule, keys) => writeln!(out, "~ {rule}: {}", keys.join(", ")),
            PolicyChange::Setting(key) => writeln!(out, "~ {key}"),
        };
    }
    if found.looser.is_empty() {
        out.push_str("no call became looser\n");
    }
    for class in &found.looser {
        let _ = writeln!(
            out,
            "looser: {} {} (before: {}; now: {})",
            class.tool,
            loosening(class.loosening),
            names(&class.before),
            names(&class.after)
        );
        let _ = writeln!(
            out,
            "  {} stored calls; for example {}",
            class.recorded,
            plain(&example(&class.example))
        );
    }
    if found.coverage != Coverage::Complete {
        out.push_str("the rules have too many corners to look at all of them; there may be more\n");
    }
    out
}

fn names(rules: &[RuleId]) -> String {
    rules.iter().map(RuleId::as_str).collect::<Vec<_>>().join(", ")
}

fn loosening(how: LooseningKind) -> String {
    match how {
        LooseningKind::Effect { from, to } => format!("{} -> {}", word(from), word(to)),
        LooseningKind::Approval => "hold, with fewer or other people".to_owned(),
        LooseningKind::Budget => "a budget is gone or larger".to_owned(),
    }
}

fn example(call: &Call) -> String {
    let arguments =
        call.arguments.value().map_or_else(|| "unreadable arguments".to_owned(), ToString::to_string);
    format!("{} of {} for {}: {arguments}", call.tool, call.agent, call.caller.user)
}

fn diff_json(found: &PolicyDiff) -> Json {
    let change = |change: &PolicyChange| match change {
        PolicyChange::Added(rule, effect) => json!({"added": rule.as_str(), "effect": word(*effect)}),
        PolicyChange::Removed(rule, effect) => json!({"removed": rule.as_str(), "effect": word(*effect)}),
        PolicyChange::Changed(rule, keys) => json!({"changed": rule.as_str(), "keys": keys}),
        PolicyChange::Setting(key) => json!({"setting": key}),
    };
    let class = |class: &LooserCalls| {
        let (from, to) = match class.loosening {
            LooseningKind::Effect { from, to } => (word(from), word(to)),
            LooseningKind::Approval => ("hold", "hold"),
            LooseningKind::Budget => ("budget", "larger budget"),
        };
        json!({
            "tool": class.tool.as_str(), "from": from, "to": to, "before": rule_names(&class.before),
            "after": rule_names(&class.after), "recorded": class.recorded,
            "example": {
                "tool": class.example.tool.as_str(), "agent": class.example.agent.as_str(),
                "user": class.example.caller.user.as_str(),
                "arguments": class.example.arguments.value().map(ToString::to_string),
            },
        })
    };
    json!({
        "changes": found.changes.iter().map(change).collect::<Vec<_>>(),
        "looser": found.looser.iter().map(class).collect::<Vec<_>>(),
        "complete": found.coverage == Coverage::Complete,
    })
}

fn rule_names(rules: &[RuleId]) -> Vec<&str> {
    rules.iter().map(RuleId::as_str).collect()
}

fn explain(
    path: &Path,
    call: &str,
    stored: &CallSource,
    as_json: bool,
) -> Result<(String, ExitCode), String> {
    let config = load(path)?;
    let (call, judged) = if call.trim_start().starts_with('{') {
        (described(call, &config)?, None)
    } else {
        let record = find(call, stored, path)?;
        (record.call, record.judged)
    };
    let found = config.policy.explain(&call, tool_default(&config, &call, judged));
    let text = if as_json {
        format!("{:#}\n", explain_json(&found, &config))
    } else {
        plain_lines(&found.to_string())
    };
    Ok((text, ExitCode::SUCCESS))
}

/// What people and models wrote must not move the cursor.
fn plain_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", plain(line))).collect()
}

/// A stored call: by its hold, or by its run and number.
fn find(named: &str, stored: &CallSource, config: &Path) -> Result<Record, String> {
    let wanted = match named.parse::<HoldId>() {
        Ok(hold) => format!("{}:{}", hold.run, hold.key.call.0),
        Err(_) if named.contains(':') => named.to_owned(),
        Err(_) => {
            return Err(format!(
                "{named:?} is neither the id of a hold, nor RUN:NUMBER, nor JSON that begins with {{"
            ));
        }
    };
    let mut records = recorded_calls::calls(stored.database.as_deref(), config)?.into_iter();
    records.find(|record| record.id == wanted).ok_or_else(|| format!("the database has no call {wanted}"))
}

/// A call that somebody made up.
fn described(text: &str, config: &Config) -> Result<Call, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CallText {
        tool: String,
        agent: Option<String>,
        user: Option<String>,
        #[serde(default)]
        groups: Vec<String>,
        #[serde(default)]
        roles: Vec<String>,
        session: Option<String>,
        arguments: Option<Box<serde_json::value::RawValue>>,
    }
    let said: CallText = serde_json::from_str(text).map_err(|error| format!("the call: {error}"))?;
    let first = || config.agents.first().map_or_else(|| "agent".to_owned(), |plan| plan.name.clone());
    let bad = |error: standfast_core::name::BadName| error.to_string();
    let user = UserId::new(said.user.as_deref().unwrap_or("someone")).map_err(bad)?;
    let groups = said.groups.iter().map(GroupName::new).collect::<Result<_, _>>().map_err(bad)?;
    let roles = said.roles.iter().map(RoleName::new).collect::<Result<_, _>>().map_err(bad)?;
    Ok(Call {
        tool: ToolName::new(&said.tool).map_err(bad)?,
        agent: AgentName::new(said.agent.unwrap_or_else(first)).map_err(bad)?,
        caller: Person { groups, roles, ..Person::of(user) },
        session: said.session.map(SessionId::new).transpose().map_err(bad)?,
        arguments: Arguments::parse(said.arguments.as_ref().map_or("{}", |arguments| arguments.get())),
    })
}

fn explain_json(found: &Explanation, config: &Config) -> Json {
    let rules: Vec<Json> = found
        .rules
        .iter()
        .map(|rule| {
            let matched = match rule.outcome {
                RuleOutcome::Match(effect) => Some(word(effect)),
                RuleOutcome::NoMatch => None,
            };
            let conditions: Vec<Json> = rule
                .conditions
                .iter()
                .map(|one| {
                    let truth = match one.truth {
                        Truth::Yes => "yes",
                        Truth::No => "no",
                        Truth::Unknown => "unknown",
                    };
                    json!({"subject": one.subject, "wanted": one.wanted, "found": one.found, "truth": truth})
                })
                .collect();
            json!({
                "rule": rule.rule.as_str(), "effect": word(rule.effect), "matched": matched,
                "place": format!("{}: {}", config.source.name, rule.place), "conditions": conditions,
            })
        })
        .collect();
    let decision = &found.decision;
    json!({
        "effect": word(decision.effect),
        "observed": decision.observed.map(word),
        "decided_by": rule_names(&decision.decided_by),
        "because": decision.because.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
        "risk": decision.risk.map(standfast_core::hold::Risk::as_str),
        "reversible": decision.reversible,
        "rules": rules,
    })
}
