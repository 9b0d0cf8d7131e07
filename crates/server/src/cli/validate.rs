//! `standfast validate FILE`: every mistake of a configuration file, or what its agents come to.
//!
//! For a blocking agent it says what makes it async. Exit codes: 0 right, 1 mistakes, 2 the file cannot be read.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use standfast::config::file::{Backend, Mode, SelfApproval, SessionStore, Span};
use standfast::config::{
    self, AgentPlan, Config, EffectiveMode, LoadError, Notice, Problem, RunStorage, ToolPlan, Unset,
};
use standfast_core::hold::OnTimeout;

use super::connect;

/// What `validate` can be told.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// The configuration file.
    #[arg(default_value = "standfast.yaml")]
    file: PathBuf,
    /// Also start the MCP servers, fetch the cards of remote agents, send each provider of models a request, greet mail
    /// servers and try the collector of traces. Starts programs and costs a few tokens; stores nothing.
    #[arg(long, conflicts_with = "allow_unset")]
    connect: bool,
    /// Accept variables that are not set: to validate a file without its secrets.
    #[arg(long)]
    allow_unset: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Validate) -> ExitCode {
    let unset = if arguments.allow_unset { Unset::Allow } else { Unset::Refuse };
    let loaded = config::load(&arguments.file, unset);
    let text = match (&loaded, arguments.json) {
        (Ok(config), false) => right(config),
        // Printed together with what came of connecting.
        (Ok(config), true) if arguments.connect => {
            as_json(&config.source.name, &[], &config.notices, config).to_string()
        }
        (Ok(config), true) => format!("{:#}\n", as_json(&config.source.name, &[], &config.notices, config)),
        (Err(LoadError::Wrong(wrong)), false) => wrong.show(),
        (Err(LoadError::Wrong(wrong)), true) => {
            format!("{:#}\n", as_json(&wrong.source.name, &wrong.problems, &wrong.notices, None))
        }
        (Err(LoadError::Read { .. } | LoadError::Dotenv { .. }), _) => String::new(),
    };
    match loaded {
        Ok(config) if arguments.connect => connect::run(&config, &text, arguments.json),
        Ok(_) => print(&text, ExitCode::SUCCESS),
        Err(LoadError::Wrong(_)) => print(&text, ExitCode::from(1)),
        Err(unreadable @ (LoadError::Read { .. } | LoadError::Dotenv { .. })) => {
            eprintln!("standfast: {unreadable}");
            ExitCode::from(2)
        }
    }
}

pub(super) fn print(text: &str, code: ExitCode) -> ExitCode {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

fn right(config: &Config) -> String {
    let mut out = format!("{} is valid\n", config.source.name);
    for plan in &config.agents {
        out.push('\n');
        agent(plan, config, &mut out);
    }
    if !config.notices.is_empty() {
        out.push('\n');
    }
    out.extend(config.notices.iter().map(|notice| notice.show(&config.source)));
    out
}

fn agent(plan: &AgentPlan, config: &Config, out: &mut String) {
    match plan.mode {
        Some(effective) => {
            let _ = writeln!(out, "agent {}: {}", plan.name, effective.mode.as_str());
            let _ = writeln!(out, "  why:            {}", effective.why);
        }
        None => {
            let _ = writeln!(out, "agent {}: no approvals", plan.name);
            let _ = writeln!(
                out,
                "  why:            there is no task block; tools that require approval are denied"
            );
        }
    }
    let [always, sometimes, never] = by_approval(plan).map(|names| names.join(", "));
    let labels = match plan.mode {
        Some(_) => ["needs approval:", "may ask:       ", "no approval:   "],
        None => ["denied:        ", "may be denied: ", "no approval:   "],
    };
    // An agent whose tools may ask does not ask for nothing.
    let is_said = [!always.is_empty() || sometimes.is_empty(), !sometimes.is_empty(), true];
    for ((label, names), _) in
        labels.iter().zip([always, sometimes, never]).zip(is_said).filter(|(_, is)| *is)
    {
        let _ = writeln!(out, "  {label} {}", if names.is_empty() { "nothing" } else { &names });
    }
    if plan.mode.is_some() {
        let _ = writeln!(out, "  may decide:     {}", deciders(plan, config));
        let _ = writeln!(out, "  a decision may take {}", deadline(plan));
    }
    if let Some(span) = plan.may_work {
        let _ = writeln!(
            out,
            "  a run may execute for {}, then it fails; time on hold does not count",
            Span(span)
        );
    }
    let _ = writeln!(out, "  runs are stored {}", home(plan, config));
    if plan.mode.is_some_and(|effective| effective.mode == EffectiveMode::Blocking) {
        let _ = writeln!(out, "  to make it async:");
        for line in to_async(plan, config) {
            let _ = writeln!(out, "    {line}");
        }
    }
}

/// C24: who may decide, in words. Rules may name others for the calls that they hold.
fn deciders(plan: &AgentPlan, config: &Config) -> String {
    let agent = config.file.agents.get(&plan.name);
    let word = |name: &String| match name.as_str() {
        "owner" => "the owner of the run".to_owned(),
        name if name.contains(':') => name.to_owned(),
        name => format!("user:{name}"),
    };
    let named = match agent.and_then(|agent| agent.approvers.as_ref()) {
        None => "the owner of the run".to_owned(),
        Some(named) if named.is_empty() => "nobody: the list of approvers is empty".to_owned(),
        Some(named) => named.iter().map(word).collect::<Vec<_>>().join(" or "),
    };
    let own = [config.file.server.self_approval, agent.and_then(|agent| agent.self_approval)];
    let forbids = own.contains(&Some(SelfApproval::Forbid));
    let not_own = if forbids { ", but not whoever started the run" } else { "" };
    let rules = match config.policy.rules().iter().filter(|rule| rule.rule.approvers.is_some()).count() {
        0 => "",
        _ => "; rules name others for what they hold",
    };
    format!("{named}{not_own}{rules}")
}

/// The tools that always need approval, those that may ask, and those that never do.
fn by_approval(plan: &AgentPlan) -> [Vec<&str>; 3] {
    let named = |is: fn(&ToolPlan) -> bool| {
        plan.tools.iter().filter(|tool| is(tool)).map(|tool| tool.name.as_str()).collect()
    };
    [
        named(|tool| tool.asks && !tool.may_ask),
        named(|tool| tool.may_ask),
        named(|tool| !tool.asks && !tool.may_ask),
    ]
}

fn deadline(plan: &AgentPlan) -> String {
    let Some(timeout) = plan.holds.timeout else { return "any time".to_owned() };
    let then = match plan.holds.on_timeout {
        OnTimeout::Fail => "then the run fails",
        OnTimeout::Deny => "then it is denied",
        OnTimeout::ResumeWithError => "then the model gets an error and continues",
        OnTimeout::Cancel => "then the run is canceled",
        OnTimeout::Keep => "then it is marked as expired and still accepts a decision",
    };
    format!("{}, {then}", Span(timeout))
}

fn home(plan: &AgentPlan, config: &Config) -> String {
    match (&plan.lives, &config.database) {
        (RunStorage::InMemory, _) => "in memory: a restart loses them".to_owned(),
        (RunStorage::Durably, Some(database)) => format!("in {database}"),
        (RunStorage::Durably, None) => "in the data directory".to_owned(),
    }
}

/// S0-62: the two lines that make a blocking agent async; fewer when a part of them is there.
fn to_async(plan: &AgentPlan, config: &Config) -> Vec<String> {
    let agent = config.file.agents.get(&plan.name);
    let mut lines = Vec::new();
    if agent.is_some_and(|agent| agent.session_store.is_none()) {
        let is_durable = |store: &SessionStore| store.backend == Backend::Sql;
        let known =
            config.file.session_stores.iter().find(|(_, store)| is_durable(store)).map(|(name, _)| name);
        if known.is_none() {
            let store =
                "session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}";
            lines.push(format!("{store}    # at the top of the file"));
        }
        let name = known.map_or("main-db", String::as_str);
        lines.push(format!("session_store: {name}    # below agents.{}", plan.name));
    }
    let mode = agent.and_then(|agent| agent.task.as_ref()).and_then(|task| task.hitl.mode);
    if mode == Some(Mode::Blocking) {
        lines.push(format!("mode: auto    # instead of blocking, below agents.{}.task.hitl", plan.name));
    }
    lines
}

fn as_json<'a>(
    file: &str,
    problems: &[Problem],
    notices: &[Notice],
    config: impl Into<Option<&'a Config>>,
) -> Value {
    let problem = |problem: &Problem| {
        json!({
            "line": problem.at.line, "column": problem.at.column, "path": problem.path.to_string(),
            "message": problem.what, "help": problem.help,
        })
    };
    let notice = |notice: &Notice| json!({"line": notice.at.line, "path": notice.path.to_string(), "message": notice.what});
    let agents =
        config.into().map(|config| config.agents.iter().map(|plan| agent_json(plan, config)).collect());
    json!({
        "file": file,
        "valid": problems.is_empty(),
        "errors": problems.iter().map(problem).collect::<Vec<_>>(),
        "notices": notices.iter().map(notice).collect::<Vec<_>>(),
        "agents": agents.unwrap_or_else(Vec::<Value>::new),
    })
}

fn agent_json(plan: &AgentPlan, config: &Config) -> Value {
    let [asks, may_ask, just_runs] = by_approval(plan);
    let is_blocking = plan.mode.is_some_and(|effective| effective.mode == EffectiveMode::Blocking);
    json!({
        "name": plan.name,
        "mode": plan.mode.map(|effective| effective.mode.as_str()),
        "why": plan.mode.map(|effective| effective.why),
        "asks": asks,
        "may_ask": may_ask,
        "just_runs": just_runs,
        "may_decide": deciders(plan, config),
        "timeout_ms": plan.may_work.map(|span| span.0),
        "input_timeout_ms": plan.holds.timeout.map(|timeout| timeout.0),
        "durable": plan.lives == RunStorage::Durably,
        "to_async": if is_blocking { to_async(plan, config) } else { Vec::new() },
    })
}
