//! Gates: somebody else's agent asks before it runs a call itself, says that it begins, and tells what came of it.
//!
//! A gate is a run of the built-in agent `gate` with one call, so everything that holds for runs holds for gates. It is
//! claimed by whoever opened it (`decide/outside.rs`), who alone starts and reports. `open` attaches a repeat to the gate that
//! is there: the same caller, session, call and digest. `login.rs` asks for a login in the place of a call, `result_marks.rs` knows which results
//! reached somebody, `dialog_marks.rs` which gates were also put before somebody at the agent's own terminal. What is shown of a gate is
//! `view.rs`; the rules are the core's.

mod dialog_marks;
mod login;
mod open;
mod result_marks;
mod view;

use std::ops::Deref;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Begin, Command, FinishCall};
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, OrphanCause};
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::message::ToolResult;
use standfast_core::name::{SessionId, WorkerName};
use standfast_core::policy::Verdicts;
use standfast_core::refusal::Refusal;
use standfast_core::run::{Call, CallState, Facts, Run};
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::stored_call;
use standfast_store::{RunFilter, RunQuery, StoreError};

use super::Submit;
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::{Authority, Change, Commit, IdempotencyKey};
use crate::drive::effects::EffectCall;
use crate::drive::grants::GrantScope;
use crate::host::Host;
use crate::log::{Log, Snapshot, needs};
use crate::policy;
use crate::reads::Reads;

pub use dialog_marks::ClosedDialogs;
pub use login::LoginAsked;
pub use open::{NewGate, OpenedGate};
pub use view::{GateDecision, GateState, GateView};

/// The one call of a gate.
const CALL: CallNo = CallNo(1);

/// Gates of a conversation that are looked at for what a hook reports.
const LIVE: usize = 64;

/// How often something is decided again when others were faster.
const RETRIES: u32 = 3;

/// The longest that whoever started a call may run it without a word.
const LONGEST_LEASE: Millis = Millis::hours(24);

/// Why a gate did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// As anywhere.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// The call was started before: nobody starts it twice.
    #[error("the call was already started (attempt {attempt}); a gate lets its call start once")]
    AlreadyStarted {
        /// Which start that was.
        attempt: u32,
    },
    /// It is in a state in which this makes no sense.
    #[error("{why}")]
    WrongState {
        /// Where it stands.
        state: GateState,
        /// What would make sense.
        why: &'static str,
    },
    /// What would be started is not what was decided.
    #[error(
        "the digest is not that of the call that may run; read the gate again and run the arguments that it names"
    )]
    OtherDigest {
        /// That of the call that may run.
        digest: Option<Digest>,
    },
}

/// A start, durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateStart {
    /// Which start it is.
    pub attempt: u32,
    /// Until when its outcome is awaited; then a person is asked what it did.
    pub start_by: Timestamp,
}

/// What came of a call, as whoever ran it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateOutcome {
    /// It did what it should.
    Succeeded(Body),
    /// It failed.
    Failed(Body),
    /// It never ran.
    NotExecuted,
    /// It never ran, and its approval is as good as before: whoever asks next may start it.
    GivenBack,
    /// They do not know.
    Unknown(String),
}

/// A gate as it was looked up: whoever goes on with it reads its run no second time.
#[derive(Clone)]
pub struct LookedUpGate {
    view: GateView,
    snapshot: Arc<Snapshot>,
}

impl Deref for LookedUpGate {
    type Target = GateView;

    fn deref(&self) -> &GateView {
        &self.view
    }
}

/// Why a gate is no longer wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The work that needed it was stopped.
    Cancelled,
    /// Somebody decided at the agent's own terminal.
    DecidedElsewhere,
    /// Another call takes its place.
    Superseded,
}

impl Withdrawal {
    /// What the log says.
    fn reason(self) -> &'static str {
        match self {
            Withdrawal::Cancelled => "withdrawn: the agent no longer wants to run the call",
            Withdrawal::DecidedElsewhere => "withdrawn: somebody decided where the agent runs",
            Withdrawal::Superseded => "withdrawn: another call took its place",
        }
    }
}

/// Gates, for whoever opened them.
pub struct Gates {
    host: Arc<Host>,
    log: Arc<Log>,
    commit: Arc<Commit>,
    submit: Arc<Submit>,
    reads: Arc<Reads>,
}

impl Gates {
    pub(crate) fn new(submit: Arc<Submit>, reads: Arc<Reads>) -> Gates {
        let (host, log, commit) = (submit.host.clone(), submit.log.clone(), submit.commit.clone());
        Gates { host, log, commit, submit, reads }
    }

    /// A gate, for whoever opened it or may see it otherwise.
    pub async fn look(&self, who: &Principal, gate: RunId) -> Result<LookedUpGate, EngineError> {
        let snapshot = Arc::new(self.seen(who, gate).await?);
        let view = GateView::of(snapshot.run(), snapshot.log().await?).ok_or(EngineError::NotFound)?;
        Ok(LookedUpGate { view, snapshot })
    }

    /// The same as soon as it is decided; as it is when that takes longer than `at_most`. Giving up changes nothing.
    pub async fn decided(
        &self,
        who: &Principal,
        gate: RunId,
        at_most: Millis,
    ) -> Result<LookedUpGate, EngineError> {
        self.past(&[GateState::Held], who, gate, at_most).await
    }

    /// The same as soon as it is in none of these states.
    pub async fn past(
        &self,
        states: &[GateState],
        who: &Principal,
        gate: RunId,
        at_most: Millis,
    ) -> Result<LookedUpGate, EngineError> {
        let until = self.host.clock.now().plus(at_most);
        loop {
            let view = self.look(who, gate).await?;
            let left = until.since(self.host.clock.now());
            if !states.contains(&view.state) || left.0 <= 0 || self.host.is_stopping() {
                return Ok(view);
            }
            let mut follower = self.reads.follow(gate, view.seq);
            let mut stopping = self.host.stopping();
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => {}
                news = self.host.clock.timeout(left, follower.next()) => drop(news.transpose()?),
            }
        }
    }

    /// The latest gates of a conversation of the caller that are not over, newest first.
    pub async fn live(&self, who: &Principal, session: &SessionId) -> Result<Vec<GateView>, EngineError> {
        needs(who, Scope::GatesOpen)?;
        let agent = self.host.settings().gate.definition.agent.clone();
        let query = RunQuery {
            tenant: who.tenant.clone(),
            filter: RunFilter::SessionOf(who.user.clone(), agent, session.clone()),
            phases: Vec::new(),
            since: None,
            cursor: None,
            limit: LIVE,
        };
        let mut live = Vec::new();
        for row in self.log.store.list_runs(query).await?.items {
            if row.run.outcome().is_none() && row.run.facts.driver == Driver::Gate {
                let log = self.log.events(row.run.facts.id, Seq(0)).await?;
                live.extend(GateView::of(&row.run, &log));
            }
        }
        Ok(live)
    }

    /// Whoever opened a gate is about to run its call: once, and never again.
    pub async fn start(
        &self,
        who: &Principal,
        gate: RunId,
        digest: Option<Digest>,
        lease: Millis,
    ) -> Result<GateStart, GateError> {
        let own = Arc::new(self.own(who, gate).await?);
        self.start_own(who, own, digest, lease).await
    }

    /// The same, on what the caller has read of the gate: what may run is what that shows.
    pub async fn start_on(
        &self,
        who: &Principal,
        found: &LookedUpGate,
        lease: Millis,
    ) -> Result<GateStart, GateError> {
        needs(who, Scope::GatesOpen)?;
        if !is_opened_by(who, &found.snapshot.run().facts) {
            return Err(EngineError::NotFound.into());
        }
        self.start_own(who, found.snapshot.clone(), found.digest, lease).await
    }

    async fn start_own(
        &self,
        who: &Principal,
        mut own: Arc<Snapshot>,
        digest: Option<Digest>,
        lease: Millis,
    ) -> Result<GateStart, GateError> {
        let lease = Millis(lease.0.clamp(1, LONGEST_LEASE.0));
        for _ in 0..RETRIES {
            if let Some(started) = self.try_start(&own, digest, lease).await? {
                return Ok(started);
            }
            own = Arc::new(self.own(who, own.id()).await?);
        }
        self.startable(&own).await?;
        Err(EngineError::from(Refusal::CallNotReady(CALL)).into())
    }

    /// Starts the call; none when what stands there now has to be looked at again.
    async fn try_start(
        &self,
        own: &Snapshot,
        digest: Option<Digest>,
        lease: Millis,
    ) -> Result<Option<GateStart>, GateError> {
        let call = self.startable(own).await?;
        if digest != call.digest {
            return Err(GateError::OtherDigest { digest: call.digest });
        }
        let worker = worker_of(own.run()).ok_or(EngineError::NotFound)?;
        let stored = stored_call(own.log().await.map_err(EngineError::from)?, CALL);
        let stored = stored.ok_or(EngineError::NotFound)?;
        let verdicts = self.verdicts(own, &stored.arguments).await?;
        let start_by = self.host.clock.now().plus(lease);
        let begin = Begin { call: CALL, node: self.host.node, start_by, stored, pending: None };
        let change = Change {
            authority: Authority { verdicts, ..Authority::default() },
            ..Change::new(Actor::Outside(worker), vec![Command::Begin(begin)])
        };
        match self.commit.commit(own.stored().row.clone(), change).await {
            Ok(done) => Ok(match done.row.run.call(CALL).map(|call| (call.attempt, call.state)) {
                Some((attempt, CallState::Started { start_by, .. })) => Some(GateStart { attempt, start_by }),
                // The policy is stricter now than it was: somebody is asked again, or it is refused.
                Some(_) | None => None,
            }),
            // Somebody was faster, or began the same effect: what stands there now says what follows.
            Err(EngineError::Refused(Refusal::CallNotReady(_) | Refusal::Ended(_)))
            | Err(EngineError::Store(StoreError::Guard { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The answer to what a server asked before it ran a call that was started is about to be handed on: true once, on one node,
    /// and never again for this question of this start, whoever sends the answer again. Nothing that was approved once runs twice.
    pub async fn hands_on(
        &self,
        who: &Principal,
        gate: RunId,
        attempt: u32,
        question: Digest,
    ) -> Result<bool, EngineError> {
        let snapshot = self.own(who, gate).await?;
        let is_under_way = |run: &Run| {
            let call = run.call(CALL).filter(|call| call.attempt == attempt);
            call.is_some_and(|call| matches!(call.state, CallState::Started { .. }))
        };
        let Some(worker) = worker_of(snapshot.run()).filter(|_| is_under_way(snapshot.run())) else {
            return Ok(false);
        };
        let once = IdempotencyKey::message(gate, &format!("answer {attempt} {question}"));
        let note = Body::text("the client answered what the server asked first");
        let change = Change {
            writes: self.commit.mark(who, Some(&once)),
            ..Change::new(
                Actor::Outside(worker),
                vec![Command::Progress { call: CALL, note, processing: None }],
            )
        };
        match self.commit.commit(snapshot.stored().row.clone(), change).await {
            Ok(done) => Ok(is_under_way(&done.row.run)),
            Err(EngineError::Store(StoreError::Guard { .. }) | EngineError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes down what came of a call.
    pub async fn report(
        &self,
        who: &Principal,
        gate: RunId,
        attempt: Option<u32>,
        outcome: GateOutcome,
        once: Option<IdempotencyKey>,
    ) -> Result<(), GateError> {
        let snapshot = self.own(who, gate).await?;
        let run = snapshot.run();
        if self.commit.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(());
        }
        let call = run.call(CALL).ok_or(EngineError::NotFound)?;
        let worker = worker_of(run).ok_or(EngineError::NotFound)?;
        let attempt = attempt.unwrap_or(call.attempt);
        let Some(commands) = self.report_commands(&snapshot, (call, attempt), outcome, &worker).await? else {
            return Ok(());
        };
        let change = Change {
            writes: self.commit.mark(who, once.as_ref()),
            ..Change::new(Actor::Outside(worker), commands)
        };
        let base = snapshot.stored().row.clone();
        self.commit.commit_once(who, once.as_ref(), base, change).await?;
        Ok(())
    }

    /// What a report means for a call as it stands; none when nothing follows.
    async fn report_commands(
        &self,
        snapshot: &Snapshot,
        (call, attempt): (&Call, u32),
        outcome: GateOutcome,
        worker: &WorkerName,
    ) -> Result<Option<Vec<Command>>, GateError> {
        let finish = |result| {
            let worker = Some(worker.clone());
            Some(vec![Command::FinishCall(FinishCall { call: CALL, attempt, result, worker })])
        };
        let never_ran = || ToolResult::Failed(Body::text("not executed, as the gate's caller reported"));
        Ok(match (outcome, call.state) {
            (GateOutcome::Succeeded(result), _) => finish(ToolResult::Ok(result)),
            (GateOutcome::Failed(error), _) => finish(ToolResult::Failed(error)),
            (GateOutcome::GivenBack, CallState::Started { .. }) => {
                Some(vec![Command::Return { call: CALL, attempt }])
            }
            (GateOutcome::GivenBack, CallState::Ready | CallState::Held | CallState::Done(_)) => None,
            (GateOutcome::NotExecuted, CallState::Started { .. }) => Some(vec![
                Command::Return { call: CALL, attempt },
                Command::Cancel { reason: Some(NOT_EXECUTED.to_owned()) },
            ]),
            (GateOutcome::NotExecuted, CallState::Ready) if call.attempt == 0 => {
                Some(vec![Command::Cancel { reason: Some(NOT_EXECUTED.to_owned()) }])
            }
            (GateOutcome::NotExecuted, CallState::Ready | CallState::Held | CallState::Done(_)) => {
                finish(never_ran())
            }
            (GateOutcome::Unknown(why), CallState::Started { node, .. }) => {
                let why = OrphanCause::Tool(why);
                Some(vec![Command::Orphan { call: CALL, attempt, node, why, reconciled: None }])
            }
            (GateOutcome::Unknown(_), CallState::Ready | CallState::Held | CallState::Done(_)) => {
                let state = self.state(snapshot).await?;
                if state == GateState::OutcomeUnknown {
                    return Ok(None);
                }
                let why = "nothing was started whose outcome could be unknown";
                return Err(GateError::WrongState { state, why });
            }
        })
    }

    /// A gate is no longer wanted: its hold closes, and nothing may run.
    pub async fn withdraw(
        &self,
        who: &Principal,
        gate: RunId,
        why: Withdrawal,
        once: Option<IdempotencyKey>,
    ) -> Result<(), GateError> {
        let snapshot = self.own(who, gate).await?;
        let state = self.state(&snapshot).await?;
        match state {
            GateState::Held | GateState::Allowed => {}
            GateState::Withdrawn => return Ok(()),
            GateState::Started | GateState::OutcomeUnknown => {
                let why = "the call was started; report its outcome instead";
                return Err(GateError::WrongState { state, why });
            }
            GateState::Denied | GateState::Expired | GateState::Done => {
                let why = "the gate has ended";
                return Err(GateError::WrongState { state, why });
            }
        }
        let actor = worker_of(snapshot.run()).map_or_else(|| Actor::Client(who.user.clone()), Actor::Outside);
        let cancel = Command::Cancel { reason: Some(why.reason().to_owned()) };
        let change =
            Change { writes: self.commit.mark(who, once.as_ref()), ..Change::new(actor, vec![cancel]) };
        let base = snapshot.stored().row.clone();
        self.commit.commit_once(who, once.as_ref(), base, change).await?;
        Ok(())
    }

    /// The call of a gate, if it may start now.
    async fn startable(&self, snapshot: &Snapshot) -> Result<Call, GateError> {
        let call = snapshot.run().call(CALL).ok_or(EngineError::NotFound)?;
        let state = self.state(snapshot).await?;
        let why = match state {
            GateState::Allowed => return Ok(call.clone()),
            GateState::Started | GateState::Done | GateState::OutcomeUnknown if call.attempt > 0 => {
                return Err(GateError::AlreadyStarted { attempt: call.attempt });
            }
            GateState::Done | GateState::Started => "its outcome was already reported",
            GateState::OutcomeUnknown => "the time to run it has passed; open another gate",
            GateState::Held => "nobody has decided yet",
            GateState::Denied => "it was denied; do not run it",
            GateState::Expired => "nobody decided in time; do not run it",
            GateState::Withdrawn => "it was withdrawn; do not run it",
        };
        Err(GateError::WrongState { state, why })
    }

    async fn state(&self, snapshot: &Snapshot) -> Result<GateState, EngineError> {
        let view = GateView::of(snapshot.run(), snapshot.log().await?);
        view.map(|view| view.state).ok_or(EngineError::NotFound)
    }

    /// What the policy says of the call directly before it starts.
    async fn verdicts(&self, snapshot: &Snapshot, arguments: &str) -> Result<Verdicts, EngineError> {
        let run = snapshot.run();
        let definition = self.log.definition(&run.facts.agent, run.state.definition).await?;
        let agent = self.host.agent(&run.facts.agent)?;
        let as_stored = |_| Some(arguments.to_owned());
        let now = self.host.clock.now();
        let mut verdicts = policy::of_run(Some(&agent), &definition, (run, now), as_stored);
        let call = run.call(CALL).map(|call| EffectCall {
            no: CALL,
            tool: call.tool.clone(),
            arguments: arguments.to_owned(),
        });
        let drives = &self.submit.drives;
        drives.see_to_effects(&run.facts, &agent, call.clone(), &mut verdicts).await?;
        let (facts, log, definition) = (&run.facts, snapshot.log().await?, &*definition);
        let of = GrantScope { facts, run: Some(run), log, agent: &agent, definition, brought: None };
        drives.see_to_grants(of, call, &mut Vec::new(), &mut verdicts).await?;
        Ok(verdicts)
    }

    /// A gate that the caller opened.
    async fn own(&self, who: &Principal, gate: RunId) -> Result<Snapshot, EngineError> {
        needs(who, Scope::GatesOpen)?;
        let stored = self.log.stored_if(who, gate, |facts| is_opened_by(who, facts)).await?;
        // An administrator sees runs that do not even say whose they are.
        if !is_opened_by(who, &stored.row.run.facts) {
            return Err(EngineError::NotFound);
        }
        Ok(Snapshot::new(self.log.clone(), stored))
    }

    /// A gate that the caller may see.
    async fn seen(&self, who: &Principal, gate: RunId) -> Result<Snapshot, EngineError> {
        // Whoever may open gates and not see runs sees their own gates.
        if !who.has(Scope::RunsRead) {
            return self.own(who, gate).await;
        }
        match self.log.snapshot(who, gate).await? {
            snapshot if snapshot.run().facts.driver == Driver::Gate => Ok(snapshot),
            _ => Err(EngineError::NotFound),
        }
    }
}

/// Whether the caller opened a gate.
fn is_opened_by(who: &Principal, facts: &Facts) -> bool {
    facts.tenant == who.tenant && facts.owner == who.user && facts.driver == Driver::Gate
}

/// Why a gate ended whose call was not run.
const NOT_EXECUTED: &str = "the gate's caller reported that the call was not executed";

/// Who may start and report: whoever claimed the gate, also after its end.
fn worker_of(run: &Run) -> Option<WorkerName> {
    let claim = run.state.claim.as_ref().map(|claim| claim.worker.clone());
    claim.or_else(|| run.call(CALL)?.worker.clone())
}
