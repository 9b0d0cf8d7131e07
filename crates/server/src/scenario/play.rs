//! Playing the steps of a scenario, one after the other; the first that is not as expected ends it.
//!
//! People and clients reach the engine as they do over the native API, and are refused in its words.

use standfast_core::body::Body;
use standfast_core::command::{Choice, Decide, OnHold, Say};
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::Hold;
use standfast_core::id::{HoldId, HoldKey, Seq};
use standfast_core::message::Message;
use standfast_core::name::UserId;
use standfast_core::run::Run;
use standfast_core::transcript::stored_call;
use standfast_engine::{Decision, EngineError, NewRun};
use standfast_surfaces::http::refusal::problem;

use super::agent::Cast;
use super::expect;
use super::file::Scenario;
use super::step_file::{RefusedText, ScriptedDecision, Selector, Step, Verb};
use super::world::{StartedRun, World};
use super::{FailedStep, Outcome, RunLog, ScenarioError};

/// Who begins runs when the scenario does not say.
const SOMEBODY: &str = "user";

/// The result of a step: nothing wrong, or what was expected and what was there.
type StepResult = Result<Vec<String>, ScenarioError>;

pub(super) async fn play(scenario: Scenario) -> Result<Outcome, ScenarioError> {
    let cast = Cast::new(&scenario.agent, scenario.script, scenario.results)?;
    let mut world = World::begin(cast, scenario.admins)?;
    let steps = scenario.steps.len();
    for (at, step) in scenario.steps.into_iter().enumerate() {
        let (line, verb) = (step.line, step.verb.word());
        let broken = |broken: ScenarioError| ScenarioError { line: broken.line.or(Some(line)), ..broken };
        let problems = world.take(step).await.map_err(broken)?;
        if !problems.is_empty() {
            let logs = world.logs().await?;
            return Ok(Outcome::Failed(FailedStep { line, step: at + 1, verb, problems, logs }));
        }
    }
    Ok(Outcome::Passed { steps })
}

impl World {
    async fn take(&mut self, step: Step) -> StepResult {
        let Step { verb, who, run, refused, .. } = step;
        let done = match verb {
            Verb::Wait(span) => return self.wait(span).await.map(|()| Vec::new()),
            Verb::Restart { down } => return self.restart(down).await.map(|()| Vec::new()),
            Verb::Expect(expected) => {
                let begun = self.begun(run.as_deref())?.clone();
                return expect::check(self, &begun, &expected).await;
            }
            Verb::Send { text, session } => {
                let owner = who.map_or_else(|| UserId::new(SOMEBODY).map_err(bad_name), Ok)?;
                let message = Message::text(text);
                let new = NewRun { agent: self.agent().clone(), session, message, once: None };
                let started = self.engine()?.submit().start(&self.principal(&owner), new).await;
                started.map(|id| self.runs.push(StartedRun { label: run, run: id, owner }))
            }
            Verb::Say { text, supersedes } => {
                let begun = self.begun(run.as_deref())?;
                let on_hold = if supersedes { OnHold::Supersede } else { OnHold::Refuse };
                let say = Say { message: Message::text(text), on_hold };
                let who = self.principal(&who.unwrap_or_else(|| begun.owner.clone()));
                self.engine()?.submit().say(&who, begun.run, say, None).await.map(drop)
            }
            Verb::Cancel { reason } => {
                let begun = self.begun(run.as_deref())?;
                let who = self.principal(&who.unwrap_or_else(|| begun.owner.clone()));
                self.engine()?.submit().cancel(&who, begun.run, reason, None).await.map(drop)
            }
            Verb::Decide { how, hold } => {
                let begun = self.begun(run.as_deref())?;
                let state = self.load(begun.run).await?;
                let seen = match select(&state, &hold) {
                    FoundHold::Open(seen) => seen,
                    // A decision that is too late must be possible, to see what it is answered with.
                    FoundHold::None => match self.decided(begun, &hold).await? {
                        Some(key) => Decide { hold: key, digest: None, revision: None },
                        None => return Ok(vec![format!("no such hold; {}", expect::open_holds(&state))]),
                    },
                    FoundHold::Several => {
                        let which = "several open holds match; select one with `tool`, `kind` or `call`";
                        return Ok(vec![format!("{which}; {}", expect::open_holds(&state))]);
                    }
                };
                let decision = Decision {
                    hold: HoldId { run: begun.run, key: seen.hold },
                    wanted: wanted(how),
                    digest: seen.digest,
                    revision: seen.revision,
                    once: None,
                };
                let who = self.principal(&who.unwrap_or_else(|| begun.owner.clone()));
                self.engine()?.submit().decide(&who, decision).await.map(drop)
            }
        };
        let problems = as_expected(done, refused);
        self.come_to_rest().await?;
        Ok(problems)
    }

    /// The run that a step is about.
    fn begun(&self, label: Option<&str>) -> Result<&StartedRun, ScenarioError> {
        match label {
            None => self
                .runs
                .last()
                .ok_or_else(|| ScenarioError::here("no run was started yet; `send` starts one")),
            Some(label) => {
                let found = self.runs.iter().rev().find(|begun| begun.label.as_deref() == Some(label));
                found.ok_or_else(|| {
                    ScenarioError::here(format!("no `send` before this step has `run: {label}`"))
                })
            }
        }
    }

    /// The last hold of the run that could be meant, open or not.
    async fn decided(&self, begun: &StartedRun, wanted: &Selector) -> Result<Option<HoldKey>, ScenarioError> {
        let events = self.events(begun).await?;
        let is_wanted = |envelope: &Envelope| {
            let Event::HoldOpened(opened) = &envelope.event else { return None };
            let tool = stored_call(&events, opened.hold.call).map(|call| call.tool);
            wanted.takes(tool.as_ref(), opened.kind, opened.hold.call).then_some(opened.hold)
        };
        Ok(events.iter().rev().find_map(is_wanted))
    }

    async fn events(&self, begun: &StartedRun) -> Result<Vec<Envelope>, ScenarioError> {
        let events = self.engine()?.reads().events(begun.run, Seq(0)).await;
        events.map_err(|error| ScenarioError::here(error.to_string()))
    }

    async fn logs(&self) -> Result<Vec<RunLog>, ScenarioError> {
        let mut logs = Vec::new();
        for begun in &self.runs {
            let events = self.events(begun).await?;
            logs.push(RunLog { run: begun.run, label: begun.label.clone(), events });
        }
        Ok(logs)
    }
}

/// Compares a yes or no with the one that was expected.
fn as_expected(done: Result<(), EngineError>, refused: Option<RefusedText>) -> Vec<String> {
    match (done, refused) {
        (Ok(()), None) => Vec::new(),
        (Ok(()), Some(expected)) => vec![format!("expected a refusal ({}), but it was done", expected.kind)],
        (Err(error), None) => {
            let problem = problem(None, &error);
            vec![format!("refused ({}): {}", kind(&problem.kind), problem.detail)]
        }
        (Err(error), Some(expected)) => {
            let problem = problem(None, &error);
            let mut problems = Vec::new();
            if kind(&problem.kind) != expected.kind {
                let (was, said) = (kind(&problem.kind), &problem.detail);
                problems.push(format!("refused: expected {}, was {was}: {said}", expected.kind));
            } else if let Some(text) = expected.text.filter(|text| !problem.detail.contains(text.as_str())) {
                problems.push(format!("refused: expected a text with {text:?}, was: {}", problem.detail));
            }
            problems
        }
    }
}

/// The kind of a problem without its namespace.
fn kind(urn: &str) -> &str {
    urn.rsplit(':').next().unwrap_or(urn)
}

fn wanted(how: ScriptedDecision) -> Choice {
    match how {
        ScriptedDecision::Approve => Choice::Approve,
        ScriptedDecision::Edit(arguments) => Choice::ApproveEdited { arguments },
        ScriptedDecision::Deny { reason } => Choice::Deny { reason },
        ScriptedDecision::Answer(value) | ScriptedDecision::Result(value) => Choice::Answer { value },
        ScriptedDecision::Fail(error) => Choice::Fail { error: Body::text(error) },
    }
}

/// The open hold that is meant, as its decider sees it.
enum FoundHold {
    Open(Decide),
    None,
    Several,
}

fn select(run: &Run, wanted: &Selector) -> FoundHold {
    let tool = |hold: &Hold| run.call(hold.call()).map(|call| call.tool.clone());
    let is_wanted = |hold: &&Hold| wanted.takes(tool(hold).as_ref(), hold.kind, hold.call());
    let mut found = run.state.holds.iter().filter(is_wanted);
    match (found.next(), found.next()) {
        (Some(hold), None) => FoundHold::Open(Decide {
            hold: hold.key,
            digest: run.call(hold.call()).and_then(|call| call.digest),
            revision: Some(hold.revision),
        }),
        (None, _) => FoundHold::None,
        (Some(_), Some(_)) => FoundHold::Several,
    }
}

fn bad_name(bad: standfast_core::name::BadName) -> ScenarioError {
    ScenarioError::here(bad.to_string())
}
