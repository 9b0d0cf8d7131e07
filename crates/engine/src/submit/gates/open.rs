//! Opening gates: one, or the calls of one turn, all of them or none.
//!
//! What a gate is known by is written by the very append that opens it, as a key that nobody can use twice: the same caller,
//! session, call and digest attach to the gate that is there, on any node, however many ask at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Admission, AskedCall, ClaimRun, Command, Propose, Start, Suspend, SuspendFor};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::{self, Digest};
use standfast_core::event::Driver;
use standfast_core::grant::GrantUse;
use standfast_core::hold::{Ask, HoldPolicy, OnTimeout};
use standfast_core::id::{RunId, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::message::Message;
use standfast_core::name::{SessionId, ToolName};
use standfast_core::policy::{Effect, HoldTimes, Verdicts};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Guard, SessionKey, SideWrite, StoreError};

use super::{CALL, Gates, RETRIES};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::{Authority, Change, IdempotencyKey};
use crate::drive::effects::EffectCall;
use crate::drive::grants::GrantScope;
use crate::log::needs;
use crate::policy;
use crate::receivers::{Callback, SubscriptionError, UnresolvedHost};
use crate::settings::Agent;
use crate::submit::tasks::claim_name;
use crate::tool::Suspension;

/// How long an approval that nobody uses counts.
const VALID_FOR: Millis = Millis::hours(24);

/// How long it is remembered what a gate is known by: longer than anybody waits.
const KNOWN_FOR: Millis = Millis::hours(10 * 365 * 24);

/// A call that somebody else's agent wants to run.
#[derive(Debug, Clone)]
pub struct NewGate {
    /// The tool, as the agent calls it.
    pub tool: ToolName,
    /// Its arguments, byte for byte.
    pub arguments: RawJson,
    /// What the arguments must keep to, also when somebody edits them.
    pub schema: Option<RawJson>,
    /// The agent's conversation.
    pub session: SessionId,
    /// What the agent calls this call.
    pub call: String,
    /// What approvers see: who asks, why, in what context.
    pub message: Message,
    /// Until when somebody should decide.
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_deadline: OnTimeout,
    /// Whether somebody is to be asked whatever the policy says.
    pub asks: Effect,
    /// The question, where a person's answer is wanted and nothing is to run.
    pub question: Option<Ask>,
    /// Whether its caller says that something is lost when it runs: then no standing approval answers it, unless the policy
    /// has some for such calls.
    pub is_destructive: bool,
}

/// A gate that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedGate {
    /// Its id.
    pub gate: RunId,
    /// Whether it was opened now; otherwise it was there.
    pub is_new: bool,
}

impl NewGate {
    /// What its run is pinned to. Equal calls have equal ones, so that few are stored.
    fn definition(&self, agent: &Agent) -> Definition {
        let schema = self.schema.clone().or_else(|| RawJson::parse("{}").ok());
        let spec = schema.map(|schema| ToolSpec::new("", schema));
        let tools = spec.map(|spec| (self.tool.clone(), spec)).into_iter().collect();
        let holds = HoldPolicy { on_timeout: self.on_deadline, ..HoldPolicy::default() };
        Definition { tools, holds, ..Definition::clone(&agent.definition) }
    }
}

/// How often the uses of standing approvals are counted again when others were faster; then a person is asked.
const GRANT_RACES: u32 = 16;

/// A gate before it is there, and what the policy says of it.
pub(super) struct JudgedGate {
    pub(super) facts: Facts,
    pub(super) call: AskedCall,
    pub(super) question: Option<Suspension>,
    pub(super) verdicts: Verdicts,
    pub(super) now: Timestamp,
}

/// A gate before it is there.
pub(super) struct PlannedGate {
    pub(super) new: NewGate,
    /// Who is told what was decided.
    callback: Option<Callback>,
    definition: Arc<Definition>,
    /// What it is known by.
    pub(super) key: String,
    digest: Digest,
}

impl Gates {
    /// Opens a gate for each of these calls, or attaches to the one that is there: all of them or none. Their ids come back
    /// in the same order, durably.
    pub async fn open(
        &self,
        who: &Principal,
        gates: Vec<NewGate>,
        once: Option<IdempotencyKey>,
    ) -> Result<Vec<OpenedGate>, EngineError> {
        let gates = gates.into_iter().map(|gate| (gate, None)).collect();
        self.open_all(who, gates, once).await.map_err(|error| match error {
            SubscriptionError::Engine(error) => error,
            // Said of callbacks only, of which there are none.
            other => StoreError::Unavailable { why: other.to_string() }.into(),
        })
    }

    /// The same with whoever is told what was decided about each: from its first append on, or, of a gate that is there, from now on.
    pub async fn open_with_callbacks(
        &self,
        who: &Principal,
        gates: Vec<(NewGate, Option<Callback>)>,
        once: Option<IdempotencyKey>,
    ) -> Result<Vec<OpenedGate>, SubscriptionError> {
        needs(who, Scope::GatesOpen)?;
        for callback in gates.iter().filter_map(|(_, callback)| callback.as_ref()) {
            self.submit.callbacks.check_address(&callback.url, UnresolvedHost::Kept).await?;
        }
        self.open_all(who, gates, once).await
    }

    async fn open_all(
        &self,
        who: &Principal,
        gates: Vec<(NewGate, Option<Callback>)>,
        once: Option<IdempotencyKey>,
    ) -> Result<Vec<OpenedGate>, SubscriptionError> {
        needs(who, Scope::GatesOpen)?;
        // Another request under the same key is a mistake; the same one finds its gates by what they are known by.
        self.commit.done_before(who, once.as_ref()).await?;
        let agent = self.host.settings().gate.clone();
        let planned: Vec<PlannedGate> = gates
            .into_iter()
            .map(|(new, callback)| PlannedGate { callback, ..planned(who, &agent, new) })
            .collect();
        self.log.heard_of(&who.tenant);
        let (mut failures, mut lost_races) = (0, 0);
        while failures < RETRIES {
            let mut known: BTreeMap<&str, OpenedGate> = BTreeMap::new();
            for gate in &planned {
                if let Some(found) = self.log.store.find_key(who.tenant.clone(), gate.key.clone()).await? {
                    known.insert(&gate.key, OpenedGate { gate: found.run, is_new: false });
                }
            }
            let mut starts = Vec::new();
            let mut taken = Vec::new();
            let mut once = once.as_ref();
            for gate in &planned {
                if !known.contains_key(gate.key.as_str()) {
                    let id = self.host.clock.run_id(&who.tenant, StorageKind::Durable);
                    let mut judged = self.judge(who, &agent, gate, id);
                    self.look_up_effects(&agent, gate, &mut judged).await?;
                    if lost_races < GRANT_RACES {
                        self.let_grants_answer(&agent, gate, &mut judged, &mut taken).await?;
                    }
                    starts.push(self.start_of(who, gate, judged, once.take()));
                    known.insert(&gate.key, OpenedGate { gate: id, is_new: true });
                }
            }
            let ids: Vec<OpenedGate> =
                planned.iter().filter_map(|gate| known.get(gate.key.as_str()).copied()).collect();
            // Before the gates are there, so that nothing is decided that nobody is told.
            self.keep_callbacks(who, &planned, &ids).await?;
            if starts.is_empty() {
                return Ok(ids);
            }
            match self.commit.commit_starts(starts).await {
                Ok(rows) => {
                    rows.into_iter().for_each(|row| self.log.known.put(row.run.facts.clone()));
                    return Ok(ids);
                }
                Err(error) => {
                    // Whether a store that did not answer has them nobody knows.
                    if !matches!(&error, EngineError::Store(why) if !matches!(why, StoreError::Guard { .. }))
                    {
                        self.drop_callbacks(who, &planned, &ids).await?;
                    }
                    match error {
                        // The same gate was opened at this moment, or its session is closed.
                        EngineError::Store(StoreError::Guard { .. }) if taken.is_empty() => failures += 1,
                        // Or somebody took the same use of a standing approval, or ended it: it is counted again.
                        EngineError::Store(StoreError::Guard { .. }) => lost_races += 1,
                        error => return Err(error.into()),
                    }
                }
            }
        }
        let session = planned.first().map(|gate| gate.new.session.clone()).ok_or(EngineError::NotFound)?;
        Err(EngineError::SessionClosed { agent: agent.definition.agent.clone(), session }.into())
    }

    /// Keeps who is told what was decided about these gates.
    async fn keep_callbacks(
        &self,
        who: &Principal,
        planned: &[PlannedGate],
        ids: &[OpenedGate],
    ) -> Result<(), SubscriptionError> {
        for (gate, opened) in planned.iter().zip(ids) {
            if let Some(callback) = &gate.callback {
                self.submit.callbacks.keep_named(who, opened.gate, callback.clone()).await?;
            }
        }
        Ok(())
    }

    /// Nobody is told of gates that are not there after all.
    async fn drop_callbacks(
        &self,
        who: &Principal,
        planned: &[PlannedGate],
        ids: &[OpenedGate],
    ) -> Result<(), StoreError> {
        for (gate, opened) in planned.iter().zip(ids).filter(|(_, opened)| opened.is_new) {
            if let Some(callback) = &gate.callback {
                self.submit.callbacks.drop_callback(who, opened.gate, callback).await?;
            }
        }
        Ok(())
    }

    /// The last gate of a call that is made again and again, and its number: each repeat has a name of its own, and none is
    /// opened before the one before it is there.
    pub async fn last_repeat(
        &self,
        who: &Principal,
        new: &NewGate,
        name: impl Fn(u32) -> String + Send + Sync,
    ) -> Result<Option<(u32, RunId)>, EngineError> {
        needs(who, Scope::GatesOpen)?;
        let agent = self.host.settings().gate.clone();
        let find = async |no: u32| {
            let key = planned(who, &agent, NewGate { call: name(no), ..new.clone() }).key;
            let found = self.log.store.find_key(who.tenant.clone(), key).await?;
            Ok::<_, EngineError>(found.map(|found| found.run))
        };
        let (mut last, mut beyond) = (None, 1);
        while let Some(run) = find(beyond).await? {
            last = Some((beyond, run));
            beyond = beyond.saturating_mul(2);
        }
        let Some((mut no, mut run)) = last else { return Ok(None) };
        while beyond - no > 1 {
            let middle = no + (beyond - no) / 2;
            match find(middle).await? {
                Some(found) => (no, run) = (middle, found),
                None => beyond = middle,
            }
        }
        Ok(Some((no, run)))
    }

    /// What the rules of the policy say of a call; none where it would only fall back on its default.
    #[must_use]
    pub fn by_a_rule(
        &self,
        who: &Principal,
        tool: &ToolName,
        arguments: &str,
        session: &SessionId,
    ) -> Option<Effect> {
        let agent = self.host.settings().gate.clone();
        let id = self.host.clock.run_id(&who.tenant, StorageKind::Durable);
        let facts = facts(who, &agent, (id, session.clone()), self.host.clock.now());
        policy::by_a_rule(&agent, &facts, tool, arguments)
    }

    /// Whether the start of a call takes from a budget or claims an effect: then that is done when it is started, and only then.
    #[must_use]
    pub fn is_counted_at_start(
        &self,
        who: &Principal,
        tool: &ToolName,
        arguments: &str,
        session: &SessionId,
    ) -> bool {
        let agent = self.host.settings().gate.clone();
        let id = self.host.clock.run_id(&who.tenant, StorageKind::Durable);
        let facts = facts(who, &agent, (id, session.clone()), self.host.clock.now());
        !policy::counted_at_start(&agent, &facts, tool, arguments).is_empty()
    }

    /// What the policy says of the call of a gate that is not there yet.
    fn judge(&self, who: &Principal, agent: &Agent, gate: &PlannedGate, id: RunId) -> JudgedGate {
        let (new, now) = (&gate.new, self.host.clock.now());
        let facts = facts(who, agent, (id, new.session.clone()), now);
        let call = AskedCall {
            id: new.call.clone(),
            tool: new.tool.to_string(),
            arguments: new.arguments.text().to_owned(),
            problem: None,
        };
        let question = new.question.clone().filter(|_| !policy::denies(agent, &facts, &new.tool, &call));
        let mut verdicts = match &question {
            Some(_) => policy::of_question(agent),
            None => policy::of_gate(agent, &gate.definition, (&facts, now), (&call, new.asks)),
        };
        if let Some(expires_at) = new.deadline.filter(|_| question.is_none()) {
            let times = HoldTimes { expires_at: Some(expires_at), ..HoldTimes::default() };
            verdicts.times.push((CALL, times));
        }
        let question = question.map(|ask| Suspension {
            kind: SuspendFor::Input,
            ask,
            timeout: new.deadline.map(|deadline| Millis(deadline.since(now).0.max(1))),
            secret: None,
        });
        JudgedGate { facts, call, question, verdicts, now }
    }

    /// Looks up whether the effect of the call was started before and whether its budgets have enough left, so that whoever is asked
    /// knows. Both are looked up again, and claimed and taken, when the call starts.
    async fn look_up_effects(
        &self,
        agent: &Agent,
        gate: &PlannedGate,
        judged: &mut JudgedGate,
    ) -> Result<(), EngineError> {
        if judged.question.is_some() {
            return Ok(());
        }
        let call =
            EffectCall { no: CALL, tool: gate.new.tool.clone(), arguments: judged.call.arguments.clone() };
        self.submit.drives.see_to_effects(&judged.facts, agent, [call], &mut judged.verdicts).await
    }

    /// Lets a standing approval answer what holds the call. Its use is taken with the append that opens the gate, so what is
    /// allowed is counted, whether or not its caller says that it starts.
    async fn let_grants_answer(
        &self,
        agent: &Agent,
        gate: &PlannedGate,
        judged: &mut JudgedGate,
        taken: &mut Vec<GrantUse>,
    ) -> Result<(), EngineError> {
        let is_lost = gate.new.is_destructive && !agent.rules.grants_for_losses();
        if judged.question.is_some() || is_lost {
            return Ok(());
        }
        let of = GrantScope {
            facts: &judged.facts,
            run: None,
            log: &[],
            agent,
            definition: &gate.definition,
            brought: None,
        };
        let call =
            EffectCall { no: CALL, tool: gate.new.tool.clone(), arguments: judged.call.arguments.clone() };
        self.submit.drives.see_to_grants(of, [call], taken, &mut judged.verdicts).await
    }

    /// The first append of a gate: run, claim, call, and its hold where one is needed.
    pub(super) fn start_of(
        &self,
        who: &Principal,
        gate: &PlannedGate,
        judged: JudgedGate,
        once: Option<&IdempotencyKey>,
    ) -> (Start, Arc<Definition>, Change) {
        let JudgedGate { facts, call, question, verdicts, now } = judged;
        let new = &gate.new;
        let mut commands = Vec::new();
        if let Some(worker) = claim_name(facts.agent.as_str(), 1, &who.user) {
            let claim = ClaimRun::Worker { worker: worker.clone(), period: VALID_FOR };
            commands.push(Command::Claim(claim));
            commands.push(Command::Propose(Propose {
                worker: worker.clone(),
                call,
                context: None,
                schema: None,
            }));
            commands.extend(question.map(|Suspension { kind, ask, timeout, secret }| {
                let (call, attempt, worker) = (CALL, 0, Some(worker));
                Command::Suspend(Suspend { call, attempt, kind, ask, timeout, secret, worker })
            }));
        }
        let mut writes = self.commit.mark(who, once);
        writes.guards.push(Guard::KeyUnused { key: gate.key.clone() });
        let expires_at = now.plus(KNOWN_FOR);
        writes.puts.push(SideWrite::Key { key: gate.key.clone(), request: gate.digest, expires_at });
        let session = SessionKey {
            tenant: who.tenant.clone(),
            agent: facts.agent.clone(),
            owner: who.user.clone(),
            session: new.session.clone(),
        };
        writes.guards.push(Guard::SessionOpen { session });
        let pinned = gate.definition.digest();
        writes.puts.push(self.log.put_definition(pinned, &gate.definition));
        let start = Start {
            id: facts.id,
            tenant: facts.tenant,
            agent: facts.agent,
            session: facts.session,
            owner: facts.owner,
            driver: Driver::Gate,
            definition: pinned,
            parent: None,
            inbox: None,
            message: new.message.clone(),
            taken: Admission::AtOnce,
            history: None,
        };
        let change = Change {
            authority: Authority { verdicts, ..Authority::default() },
            commands,
            writes,
            ..Change::new(Actor::Client(who.user.clone()), Vec::new())
        };
        (start, gate.definition.clone(), change)
    }
}

/// What never changes of a gate.
pub(super) fn facts(
    who: &Principal,
    agent: &Agent,
    (id, session): (RunId, SessionId),
    now: Timestamp,
) -> Facts {
    Facts {
        id,
        tenant: who.tenant.clone(),
        agent: agent.definition.agent.clone(),
        session,
        owner: who.user.clone(),
        driver: Driver::Gate,
        parent: None,
        started_at: now,
        inbox: None,
    }
}

pub(super) fn planned(who: &Principal, agent: &Agent, new: NewGate) -> PlannedGate {
    let definition = Arc::new(new.definition(agent));
    let schema = definition.tools.get(&new.tool).map(ToolSpec::schema_digest).unwrap_or_default();
    let digest = digest::of_call(&new.tool, new.arguments.text(), schema);
    let parts = [
        who.user.as_str().as_bytes(),
        new.session.as_str().as_bytes(),
        new.call.as_bytes(),
        digest.0.as_slice(),
    ];
    let key = digest::of_parts("standfast.gate.1", &parts).to_string();
    PlannedGate { new, callback: None, definition, key, digest }
}
