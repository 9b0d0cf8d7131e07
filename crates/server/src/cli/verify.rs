//! `standfast verify FILE`: plays the promise against people's own configuration file, and says what was kept.
//!
//! Exit codes: 0 nothing failed, 1 something did, 2 the file cannot be loaded or nothing could be played. The servers are
//! this very program (`serve --rehearse`): `rehearsal.rs` is what is different from what the file says, `choose.rs` finds
//! a call that is held, `play.rs` plays the cases of `case.rs` on a `stage.rs`, `judge.rs` says what makes them pass.

mod arguments;
mod case;
mod choose;
mod judge;
mod people;
mod play;
mod rehearsal;
mod report;
mod stage;
mod stand_in;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use standfast::config::{self, AgentPlan, Config, Surroundings, Unset};
use standfast_engine::auth::KeyFacts;
use standfast_engine::clock::Clock;
use standfast_engine::settings::Settings;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use self::case::{Case, Finding, Verdict};
use self::choose::HeldCall;
use self::play::Trouble;
use self::rehearsal::{ScriptedCall, StoreKind, ToolConduct};
use self::report::{AgentReport, PlayedCall, Report};
use self::stage::{Nursery, Setup};
use super::plain::plain;
use super::validate;

pub(super) use self::rehearsal::Rehearsal;

/// What `verify` can be told.
#[derive(Debug, Clone, Args)]
pub(super) struct Verify {
    /// The configuration file.
    #[arg(default_value = "standfast.yaml")]
    file: PathBuf,
    /// Play this case only. May be repeated.
    #[arg(long, value_name = "CASE")]
    only: Vec<Case>,
    /// Play this agent only. May be repeated.
    #[arg(long = "agent", value_name = "NAME")]
    agents: Vec<String>,
    /// The address of a Postgres in which databases may be made, for a file whose store is Postgres. Each case is played in a
    /// new database, which is removed; no other is touched. Without it such a file is played on SQLite.
    #[arg(long, value_name = "URL", env = "STANDFAST_VERIFY_POSTGRES", hide_env_values = true)]
    postgres: Option<String>,
    /// Accept variables that are not set: models are not asked, so their keys are not needed.
    #[arg(long)]
    allow_unset: bool,
    /// Also write the result as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Keep the folder with stores, scripts and logs, and say where it is.
    #[arg(long)]
    keep: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: Verify) -> ExitCode {
    let made = tempfile::Builder::new().prefix("standfast-verify-").tempdir();
    let (folder, runtime) = match (made, Runtime::new()) {
        (Ok(folder), Ok(runtime)) => (folder, runtime),
        (Err(error), _) => return fail(&format!("no folder for the stores could be made: {error}")),
        (_, Err(error)) => return fail(&format!("no runtime: {error}")),
    };
    let nursery = Nursery::default();
    let verification = Verification { arguments, folder: folder.path().to_owned(), nursery: nursery.clone() };
    let (arguments, (done, finished)) = (verification.arguments.clone(), oneshot::channel());
    // On a thread of its own, so that a signal ends all servers and the folder whatever is being played.
    let playing = std::thread::spawn(move || drop(done.send(verification.report())));
    let finished = runtime.block_on(async {
        tokio::select! {
            finished = finished => finished.ok(),
            () = stopped() => None,
        }
    });
    nursery.close();
    // What is still being played ends by itself: nobody answers any more.
    let _ = playing.join();
    tidy_up(folder, arguments.keep);
    match finished {
        Some(Ok(report)) => say(&report, &arguments),
        Some(Err(why)) => fail(&why),
        None => {
            eprintln!("standfast: verify: stopped; its servers are ended");
            ExitCode::from(130)
        }
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("standfast: {why}");
    ExitCode::from(2)
}

/// A signal that asks this program to stop.
async fn stopped() {
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without a handler the signal ends this process, and that its servers.
        (Err(_), _) | (_, Err(_)) => std::future::pending().await,
    }
}

fn tidy_up(folder: TempDir, keeps: bool) {
    if keeps {
        eprintln!("verify: stores, scripts and logs are kept in {}", folder.keep().display());
    } else if let Err(error) = folder.close() {
        eprintln!("standfast: verify: the folder of the stores could not be removed: {error}");
    }
}

fn say(report: &Report, arguments: &Verify) -> ExitCode {
    if let Some(path) = &arguments.junit
        && let Err(error) = std::fs::write(path, report.junit())
    {
        return fail(&format!("{} could not be written: {error}", path.display()));
    }
    let text = if arguments.json { format!("{:#}\n", report.json()) } else { report.text() };
    let code = if report.totals().failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    validate::print(&text, code)
}

/// All that is to be played.
struct Verification {
    arguments: Verify,
    folder: PathBuf,
    nursery: Nursery,
}

/// What is the same for all cases of an agent.
struct AgentPart<'a> {
    plan: &'a AgentPlan,
    folder: PathBuf,
    store: StoreKind,
    calls: &'a BTreeMap<String, Option<ScriptedCall>>,
    allows_unset: bool,
}

impl AgentPart<'_> {
    fn rehearsal(&self, case: Case) -> Rehearsal {
        Rehearsal {
            folder: self.folder.join(case.name()),
            store: self.store,
            calls: self.calls.clone(),
            tools: ToolConduct::Returns,
            timeout: None,
            allows_unset: self.allows_unset,
        }
    }
}

impl Verification {
    fn report(&self) -> Result<Report, String> {
        let Verify { file, postgres, agents, .. } = &self.arguments;
        let config = self.load()?;
        let unknown = agents.iter().find(|name| !config.agents.iter().any(|plan| plan.name == **name));
        if let Some(unknown) = unknown {
            let known: Vec<&str> = config.agents.iter().map(|plan| plan.name.as_str()).collect();
            return Err(format!(
                "{}: there is no agent {unknown}; it has {}",
                file.display(),
                known.join(", ")
            ));
        }
        let named = StoreKind::of(config.database.as_ref());
        let store = match (named, postgres) {
            (StoreKind::Postgres, None) => StoreKind::Sqlite,
            (StoreKind::Postgres, Some(_)) => StoreKind::Postgres,
            // From the environment it is for those files that need it.
            (other, _) => other,
        };
        if let (StoreKind::Postgres, Some(address)) = (store, postgres) {
            stage::try_postgres(address)?;
        }
        let settings = self.settings(&config)?;
        let clock = Clock::system();
        let parts = config.agents.iter().filter_map(|plan| {
            let agent = settings.agent(&plan.name)?;
            Some((plan, agent, choose::held_call(&config, plan, agent, clock.now())))
        });
        let parts: Vec<_> = parts.collect();
        let scripted =
            |call: &HeldCall| ScriptedCall { tool: call.tool.to_string(), arguments: call.arguments.clone() };
        let calls: BTreeMap<String, Option<ScriptedCall>> = parts
            .iter()
            .map(|(plan, _, call)| (plan.name.clone(), call.as_ref().ok().map(scripted)))
            .collect();
        let path = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (postgres, nursery) = (postgres.clone(), self.nursery.clone());
        let setup = Setup { config: path, postgres, nursery, clock: clock.clone() };
        let mut reports = Vec::new();
        let is_wanted = |plan: &AgentPlan| agents.is_empty() || agents.contains(&plan.name);
        for (no, (plan, agent, call)) in parts.iter().enumerate().filter(|(_, (plan, ..))| is_wanted(plan)) {
            let folder = self.folder.join(format!("agent-{no}"));
            std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let part =
                AgentPart { plan, folder, store, calls: &calls, allows_unset: self.arguments.allow_unset };
            let cast = people::cast(&config, plan, agent, clock.now()).map_err(|bad| bad.to_string())?;
            reports.push(self.agent(&setup, &part, call, (&cast, named)));
        }
        Ok(Report { file: file.display().to_string(), store, named, agents: reports })
    }

    fn load(&self) -> Result<Config, String> {
        let unset = if self.arguments.allow_unset { Unset::Allow } else { Unset::Refuse };
        config::load(&self.arguments.file, unset).map_err(|error| {
            let why = error.to_string();
            let unset = if why.contains("is not set") {
                "; --allow-unset plays a file without its secrets"
            } else {
                ""
            };
            format!("{why}\nrepair the file; standfast validate checks it again{unset}")
        })
    }

    /// What a server with this file would be made of, without what reaches the world.
    fn settings(&self, config: &Config) -> Result<Settings, String> {
        let folder = self.folder.join("settings");
        let calls = config.agents.iter().map(|plan| (plan.name.clone(), None)).collect();
        let rehearsal = Rehearsal {
            folder: folder.clone(),
            store: StoreKind::Sqlite,
            calls,
            tools: ToolConduct::Returns,
            timeout: None,
            allows_unset: self.arguments.allow_unset,
        };
        let data = folder.join("data");
        let prepared =
            std::fs::create_dir_all(&data).and_then(|()| rehearsal.write(&folder.join("rehearsal.json")));
        prepared.map_err(|error| format!("{}: {error}", folder.display()))?;
        let beside = Surroundings { data, clock: Clock::system(), logins: None };
        let rehearsed = rehearsal.of(self.load()?);
        let runtime = Runtime::new().map_err(|error| format!("no runtime: {error}"))?;
        let built = runtime.block_on(rehearsed.build(&beside)).map_err(|error| error.to_string())?;
        Ok(built.settings)
    }

    fn agent(
        &self,
        setup: &Setup,
        part: &AgentPart<'_>,
        call: &Result<HeldCall, String>,
        (cast, named): (&[KeyFacts], StoreKind),
    ) -> AgentReport {
        let wanted = |case: &Case| self.arguments.only.is_empty() || self.arguments.only.contains(case);
        let cases: Vec<Case> = Case::ALL.into_iter().filter(wanted).collect();
        let name = plain(&part.plan.name);
        let mut findings = Vec::new();
        for (no, case) in cases.iter().enumerate() {
            if setup.nursery.is_closed() {
                break;
            }
            let started = setup.clock.now();
            let unfit = match call {
                Ok(call) => case.inapplicable(part.plan, call, part.store, named),
                Err(why) => Some(why.clone()),
            };
            let (verdict, why) = match (unfit, call) {
                (None, Ok(call)) => {
                    eprintln!("verify: agent {name}: {} ({} of {})", case.name(), no + 1, cases.len());
                    match play::play(*case, setup, part, call, cast) {
                        Ok(why) => (Verdict::Passed, why),
                        Err(Trouble::Wrong(why)) => (Verdict::Failed, why),
                        Err(Trouble::Unfit(why)) => (Verdict::NotApplicable, why),
                    }
                }
                (Some(why), _) => (Verdict::NotApplicable, why),
                (None, Err(why)) => (Verdict::NotApplicable, why.clone()),
            };
            let millis = setup.clock.now().0.saturating_sub(started.0);
            findings.push(Finding { case: *case, verdict, why, millis });
        }
        let played = |call: &HeldCall| PlayedCall {
            tool: call.tool.to_string(),
            arguments: call.arguments.clone(),
            rules: call.rules.clone(),
        };
        let played = call.as_ref().map(played).map_err(Clone::clone);
        AgentReport { agent: part.plan.name.clone(), played, findings }
    }
}
