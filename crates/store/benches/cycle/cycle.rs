//! A whole cycle through the core and the SQLite store: five appends, three of them waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{
    Admission, AskedCall, Begin, Choice, Command, Decide, Entropy, FinishCall, Limits, RecordReply, Resolve,
    Start,
};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::Digest;
use standfast_core::event::{Driver as DrivenBy, Envelope};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{CallNo, HoldId, Incarnation, RunId, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay, ToolResult, Usage};
use standfast_core::name::{AgentName, RuleId, Tenant, ToolName, UserId};
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};
use standfast_core::run::PromptBasis;
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::stored_call;
use standfast_store::pipeline::{HoldAudience, LeaseRule, Order, OrderContext, Pipeline, Writes};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{AudienceMember, Guard, LeaseChange, SessionKey, SideWrite, Store};

use crate::measure::{Lap, Measurement, load, now};

const ARGUMENTS: &str = r#"{"path": "/var/lib/app/cache/2026-11-15/segment-000017", "recursive": true, "reason": "disk nearly full"}"#;

/// What all cycles share.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    definition: Arc<Definition>,
    definition_digest: Digest,
    limits: Arc<Limits>,
    node: Incarnation,
    counter: AtomicU64,
}

pub(crate) async fn run(concurrency: usize, seconds: f64) -> Measurement {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&SqliteOptions::at(directory.path().join("cycle.db"))).unwrap();
    let bench = Arc::new(Bench::new(Arc::new(store)));
    load(concurrency, seconds, move |_, _| cycle(bench.clone())).await
}

async fn cycle(bench: Arc<Bench>) -> Option<Lap> {
    let start = now();
    let hold = bench.start_until_held().await;
    let approve = now();
    bench.approve_until_done(hold).await;
    Some(Lap { cycle: start.elapsed(), approve: approve.elapsed() })
}

impl Bench {
    pub(crate) fn new(store: Arc<dyn Store>) -> Bench {
        Bench::numbered(store, 0)
    }

    /// One whose runs have other ids than those of every other number.
    pub(crate) fn numbered(store: Arc<dyn Store>, number: u64) -> Bench {
        let schema = RawJson::parse(r#"{"type":"object"}"#).unwrap();
        let spec = ToolSpec {
            description: "Deletes a file".into(),
            schema,
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        };
        let definition = Definition {
            agent: AgentName::new("ops").unwrap(),
            prompt: "You look after a server.".into(),
            model: "scripted".into(),
            model_parameters: None,
            tools: BTreeMap::from([(tool(), spec)]),
            policy: None,
            sub_agents: Vec::new(),
            show_thinking: false,
            hold_batch: false,
            holds: HoldPolicy::default(),
        };
        Bench {
            store,
            definition_digest: definition.digest(),
            definition: Arc::new(definition),
            limits: Arc::new(Limits::default()),
            node: Incarnation([5; 16]),
            counter: AtomicU64::new(1 + number * 1000),
        }
    }

    /// Starts a run; the model asks for a call that needs approval; comes back when the run is durably held.
    pub(crate) async fn start_until_held(&self) -> HoldId {
        let mut driver = self.started();
        driver.push(self.asks_for_a_call());
        let settlement = driver.settle().await;
        assert!(settlement.failed.is_none(), "{:?}", settlement.failed);
        let run = &driver.durable().unwrap().run;
        HoldId { run: run.facts.id, key: run.state.holds[0].key }
    }

    /// Approves from storage, runs the no-op tool, lets the model finish; comes back when that is durable.
    pub(crate) async fn approve_until_done(&self, hold: HoldId) {
        let stored = self.store.load(hold.run).await.unwrap();
        let events = self.events(hold.run).await;
        let mut driver = Pipeline::of(self.store.clone(), stored.row);
        driver.push(self.approves_and_starts(hold, &events));
        let settlement = driver.settle().await;
        assert!(settlement.failed.is_none(), "{:?}", settlement.failed);
        driver.push(self.tool_reports());
        let heard = driver.tip().unwrap().heard();
        driver.push(self.model_finishes(heard));
        let settlement = driver.settle().await;
        assert!(settlement.failed.is_none(), "{:?}", settlement.failed);
        assert!(driver.durable().unwrap().run.outcome().is_some());
    }

    async fn events(&self, run: RunId) -> Vec<Envelope> {
        let links = self.store.links(run, Default::default(), 1000).await.unwrap();
        links.iter().flat_map(|link| link.events().unwrap()).collect()
    }

    pub(crate) fn started(&self) -> Pipeline {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        let entropy = entropy(n);
        let random: [u8; 5] = entropy.draw("run", 0).0[..5].try_into().unwrap();
        let tenant = Tenant::default_tenant();
        let id = RunId::new(&tenant, StorageKind::Durable, Timestamp(1_762_000_000_000 + n as i64), random);
        let start = Start {
            id,
            tenant,
            agent: AgentName::new("ops").unwrap(),
            session: id.own_session(),
            owner: UserId::new("alice").unwrap(),
            driver: DrivenBy::Loop,
            definition: self.definition_digest,
            parent: None,
            inbox: None,
            message: Message::text("Please free some space on the disk, it is nearly full."),
            taken: Admission::AtOnce,
            history: None,
        };
        let key = SessionKey {
            tenant: start.tenant.clone(),
            agent: start.agent.clone(),
            owner: start.owner.clone(),
            session: start.session.clone(),
        };
        let digest = self.definition_digest;
        let writes = Writes {
            guards: vec![Guard::SessionOpen { session: key }],
            puts: vec![SideWrite::Definition { digest, bytes: self.definition.to_bytes().into() }],
            ..self.takes()
        };
        let order = self.order(Vec::new(), Actor::Client(UserId::new("alice").unwrap()), writes);
        Pipeline::start(self.store.clone(), start, order).unwrap()
    }

    pub(crate) fn asks_for_a_call(&self) -> Order {
        let call = AskedCall {
            id: "call_8f3a".into(),
            tool: tool().to_string(),
            arguments: ARGUMENTS.into(),
            problem: None,
        };
        let reply = RecordReply {
            text: None,
            parts: Vec::new(),
            calls: vec![call],
            opaque: None,
            usage: Usage { input: 120, output: 40, cost_micros: 0 },
            model: None,
            heard: PromptBasis { turn: 0, messages: 1, results: None },
        };
        let mut order = self.order(
            vec![Command::RecordReply(reply)],
            Actor::Node(self.node),
            Writes {
                lease: LeaseRule::Set(LeaseChange::Release),
                audience: HoldAudience {
                    owner: Some(UserId::new("alice").unwrap()),
                    named: vec![AudienceMember("role:approver".into())],
                },
                ..Writes::default()
            },
        );
        let verdict = Verdict::new(Effect::Hold, RuleId::new("tool:requires_approval").unwrap());
        order.given.verdicts = Verdicts { by_call: vec![(CallNo(1), verdict)], ..Verdicts::default() };
        order
    }

    pub(crate) fn approves_and_starts(&self, hold: HoldId, events: &[Envelope]) -> Order {
        let resolve = Resolve {
            decide: Decide { hold: hold.key, digest: None, revision: None },
            resolution: Choice::Approve,
            idempotency_key: None,
            message: None,
        };
        let begin = Begin {
            call: CallNo(1),
            node: self.node,
            start_by: Timestamp(i64::MAX),
            stored: stored_call(events, CallNo(1)).unwrap(),
            pending: None,
        };
        let commands = vec![Command::Resolve(resolve), Command::Begin(begin)];
        let mut order = self.order(commands, Actor::Person(UserId::new("alice").unwrap()), self.takes());
        order.given.authority = Some(Role::Owner);
        let verdict = Verdict::new(Effect::Hold, RuleId::new("tool:requires_approval").unwrap());
        order.given.verdicts = Verdicts { by_call: vec![(CallNo(1), verdict)], ..Verdicts::default() };
        order
    }

    pub(crate) fn tool_reports(&self) -> Order {
        let finish = FinishCall {
            call: CallNo(1),
            attempt: 1,
            result: ToolResult::Ok(Body::text("deleted 1 file, 4.2 GB are free now")),
            worker: None,
        };
        self.order(vec![Command::FinishCall(finish)], Actor::Node(self.node), Writes::default())
    }

    pub(crate) fn model_finishes(&self, heard: PromptBasis) -> Order {
        let reply = RecordReply {
            text: Some("Done: 4.2 GB are free now.".into()),
            parts: Vec::new(),
            calls: Vec::new(),
            opaque: None,
            usage: Usage { input: 180, output: 12, cost_micros: 0 },
            model: None,
            heard,
        };
        let release = Writes { lease: LeaseRule::Set(LeaseChange::Release), ..Writes::default() };
        self.order(vec![Command::RecordReply(reply)], Actor::Node(self.node), release)
    }

    fn takes(&self) -> Writes {
        let lease = LeaseChange::Take { node: self.node, until: Timestamp(1_762_000_030_000) };
        Writes { lease: LeaseRule::Set(lease), ..Writes::default() }
    }

    fn order(&self, commands: Vec<Command>, actor: Actor, writes: Writes) -> Order {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        let given = OrderContext {
            now: Timestamp(1_762_000_000_000).plus(Millis(n as i64)),
            entropy: entropy(n),
            actor,
            definition: self.definition.clone(),
            verdicts: Verdicts::default(),
            authority: None,
            counts_for: Vec::new(),
            recorded: None,
            limits: self.limits.clone(),
            origin: None,
        };
        Order { commands, given, writes }
    }
}

fn tool() -> ToolName {
    ToolName::new("delete_file").unwrap()
}

fn entropy(n: u64) -> Entropy {
    let Digest(bytes) = standfast_core::digest::of_parts("bench", &[&n.to_be_bytes()]);
    Entropy(bytes)
}
