//! Opening gates: one, or the calls of one turn, all of them or none.
//!
//! What a gate is known by is written by the very append that opens it, as a key that nobody can use twice: the same caller,
//! session, call and digest attach to the gate that is there, on any node, however many ask at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Admission, AskedCall, ClaimRun, Command, Propose, Start};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::{self, Digest};
use standfast_core::event::Driver;
use standfast_core::hold::{HoldPolicy, OnTimeout};
use standfast_core::id::{RunId, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay};
use standfast_core::name::{SessionId, ToolName};
use standfast_core::policy::{Effect, HoldTimes};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Guard, SessionKey, SideWrite, StoreError};

use super::{CALL, Gates, RETRIES};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::{Authority, Change, IdempotencyKey};
use crate::log::needs;
use crate::policy;
use crate::settings::Agent;
use crate::submit::tasks::claim_name;

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
    /// What approvers are told: who asks, why, in what context.
    pub message: Message,
    /// Until when somebody should decide.
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_deadline: OnTimeout,
    /// Whether somebody is to be asked whatever the policy says.
    pub asks: Effect,
}

impl NewGate {
    /// What its run is pinned to. Equal calls have equal ones, so that few are stored.
    fn definition(&self, agent: &Agent) -> Definition {
        let schema = self.schema.clone().or_else(|| RawJson::parse("{}").ok());
        let spec = schema.map(|schema| ToolSpec {
            description: String::new(),
            schema,
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        });
        let tools = spec.map(|spec| (self.tool.clone(), spec)).into_iter().collect();
        let holds = HoldPolicy { on_timeout: self.on_deadline, ..HoldPolicy::default() };
        Definition { tools, holds, ..Definition::clone(&agent.definition) }
    }
}

/// A gate before it is there.
struct PlannedGate {
    new: NewGate,
    definition: Arc<Definition>,
    /// What it is known by.
    key: String,
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
    ) -> Result<Vec<RunId>, EngineError> {
        needs(who, Scope::GatesOpen)?;
        // Another request under the same key is a mistake; the same one finds its gates by what they are known by.
        self.commit.done_before(who, once.as_ref()).await?;
        let agent = self.host.settings().gate.clone();
        let planned: Vec<PlannedGate> = gates.into_iter().map(|new| planned(who, &agent, new)).collect();
        self.log.heard_of(&who.tenant);
        for _ in 0..RETRIES {
            let mut known: BTreeMap<&str, RunId> = BTreeMap::new();
            for gate in &planned {
                if let Some(found) = self.log.store.find_key(who.tenant.clone(), gate.key.clone()).await? {
                    known.insert(&gate.key, found.run);
                }
            }
            let mut starts = Vec::new();
            let mut once = once.as_ref();
            for gate in &planned {
                if !known.contains_key(gate.key.as_str()) {
                    let id = self.host.clock.run_id(&who.tenant, StorageKind::Durable);
                    starts.push(self.start_of(who, &agent, gate, id, once.take()));
                    known.insert(&gate.key, id);
                }
            }
            let ids = || planned.iter().filter_map(|gate| known.get(gate.key.as_str()).copied()).collect();
            if starts.is_empty() {
                return Ok(ids());
            }
            match self.commit.commit_starts(starts).await {
                Ok(rows) => {
                    rows.into_iter().for_each(|row| self.log.known.put(row.run.facts.clone()));
                    return Ok(ids());
                }
                // The same gate was opened at this moment, or its session is closed.
                Err(EngineError::Store(StoreError::Guard { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let session = planned.first().map(|gate| gate.new.session.clone()).ok_or(EngineError::NotFound)?;
        Err(EngineError::SessionClosed { agent: agent.definition.agent.clone(), session })
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

    /// The first append of a gate: run, claim, call, and its hold where one is needed.
    fn start_of(
        &self,
        who: &Principal,
        agent: &Agent,
        gate: &PlannedGate,
        id: RunId,
        once: Option<&IdempotencyKey>,
    ) -> (Start, Arc<Definition>, Change) {
        let (new, now) = (&gate.new, self.host.clock.now());
        let facts = facts(who, agent, (id, new.session.clone()), now);
        let call = AskedCall {
            id: new.call.clone(),
            tool: new.tool.to_string(),
            arguments: new.arguments.text().to_owned(),
            problem: None,
        };
        let mut verdicts = policy::of_gate(agent, &gate.definition, (&facts, now), (&call, new.asks));
        if let Some(expires_at) = new.deadline {
            let times = HoldTimes { expires_at: Some(expires_at), ..HoldTimes::default() };
            verdicts.times.push((CALL, times));
        }
        let mut commands = Vec::new();
        if let Some(worker) = claim_name(facts.agent.as_str(), 1, &who.user) {
            let claim = ClaimRun::Worker { worker: worker.clone(), period: VALID_FOR };
            commands.push(Command::Claim(claim));
            commands.push(Command::Propose(Propose { worker, call, context: None }));
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
            id,
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
fn facts(who: &Principal, agent: &Agent, (id, session): (RunId, SessionId), now: Timestamp) -> Facts {
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

fn planned(who: &Principal, agent: &Agent, new: NewGate) -> PlannedGate {
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
    PlannedGate { new, definition, key, digest }
}
