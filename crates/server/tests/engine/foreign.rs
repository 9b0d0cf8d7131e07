//! T15: a run of somebody else and a run that does not exist are the same to whoever asks: the same answer, after the same
//! work.
//!
//! Work is what takes time, so what the store is asked is compared; a stopwatch would say something else on every
//! machine.

use std::sync::{Arc, Mutex};

use standfast_core::command::{Choice, OnHold, Say};
use standfast_core::digest::Digest;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId, RunId, Seq, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::link::Link;
use standfast_core::message::Message;
use standfast_core::name::{InboxName, Tenant, UserId};
use standfast_core::project::HoldRow;
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::clock::Clock;
use standfast_engine::settings::FixedSettings;
use standfast_engine::{
    Adjustment, Engine, EngineError, GateError, GateOutcome, GrantError, GrantRequest, HoldAdjustment,
    LinkError, Withdrawal,
};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{
    Answer, AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, RunStore, SecretLayer, SessionKey,
    SessionLayer, SessionRow, SessionStore, Store, StoredRun, WorkLayer,
};

use crate::{HELD, Site, decision, hold_of, start, until, who};

/// A store that writes down what it is asked for.
struct Noting {
    inner: Arc<SqliteStore>,
    asked: Mutex<Vec<&'static str>>,
}

impl Noting {
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }

    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Layer for Noting {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Noting {
    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.note("load");
        self.inner.load(run)
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.note("facts");
        self.inner.facts(run)
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.note("links");
        self.inner.links(run, after, limit)
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.note("blob");
        self.inner.blob(run, digest)
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.note("definition");
        self.inner.definition(tenant, digest)
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.note("find_hold");
        self.inner.find_hold(hold)
    }
}

impl SessionLayer for Noting {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.note("session");
        self.inner.session(key)
    }
}

impl WorkLayer for Noting {}
impl DeliveryLayer for Noting {}
impl IdempotencyLayer for Noting {}
impl SecretLayer for Noting {}
impl AuditLayer for Noting {}

/// Everything that can be asked about a run by its id, or by that of its hold.
const OPERATIONS: usize = 21;

/// Starts, reports and withdrawals of gates, and tasks of inboxes.
const OWNERS_ALONE: [usize; 4] = [10, 11, 12, OPERATIONS - 1];

/// Approval links are issued by administrators, to whom all of their tenant is theirs: this one is another tenant's.
const ISSUE: usize = 19;

fn root() -> Principal {
    let scopes = [Scope::Admin].into();
    Principal { tenant: Tenant::new("acme").unwrap(), scopes, ..who("root") }
}

fn gate(done: Result<(), GateError>) -> Result<(), EngineError> {
    match done {
        Err(GateError::Engine(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

async fn ask(engine: &Engine, operation: usize, hold: HoldId) -> Result<(), EngineError> {
    let (mallory, run) = (who("mallory"), hold.run);
    let agent = Principal { scopes: [Scope::RunsRead, Scope::GatesOpen].into(), ..who("mallory") };
    let say = Say { message: Message::text("hello"), on_hold: OnHold::Refuse };
    match operation {
        0 => engine.reads().run(&mallory, run).await.map(drop),
        1 => engine.reads().look_up(&mallory, run).await.map(drop),
        2 => engine.reads().log(&mallory, run, Seq(0)).await.map(drop),
        3 => engine.reads().see(&mallory, run).await.map(drop),
        4 => engine.reads().hold(&mallory, hold).await.map(drop),
        5 => engine.reads().receipt(&mallory, hold).await.map(drop),
        6 => engine.submit().decide(&mallory, decision(hold, Choice::Approve)).await.map(drop),
        7 => engine.submit().say(&mallory, run, say, None).await.map(drop),
        8 => engine.submit().cancel(&mallory, run, None, None).await.map(drop),
        9 => engine.gates().look(&agent, run).await.map(drop),
        10 => gate(engine.gates().start(&agent, run, None, Millis::hours(1)).await.map(drop)),
        11 => gate(engine.gates().report(&agent, run, None, GateOutcome::NotExecuted, None).await),
        12 => gate(engine.gates().withdraw(&agent, run, Withdrawal::Cancelled, None).await),
        13..=16 => {
            let (to, until) = (UserId::new("eve").unwrap(), Timestamp(4_000_000_000_000));
            let what = match operation {
                13 => Adjustment::Assign { to: Some(to), until: None },
                14 => Adjustment::Delegate { to, until },
                15 => Adjustment::Reopen { expires_at: None },
                _ => Adjustment::Edit {
                    arguments: RawJson::parse("{}").unwrap(),
                    digest: None,
                    revision: None,
                },
            };
            engine.submit().adjust(&mallory, HoldAdjustment { hold, what, once: None }).await.map(drop)
        }
        17 => match engine.grants().propose(&mallory, hold, &GrantRequest::default()).await {
            Err(GrantError::Engine(error)) => Err(error),
            other => panic!("{other:?}"),
        },
        18 => {
            let snapshot = engine.reads().snapshot(&mallory, run).await?;
            snapshot.call_receipt(CallNo(1)).await.map(drop)
        }
        ISSUE => match engine.submit().links().issue(&root(), hold, UserId::new("eve").unwrap()).await {
            Err(LinkError::Engine(error)) => Err(error),
            other => panic!("{:?}", other.map(drop)),
        },
        _ => engine.inboxes().task(&mallory, &InboxName::new("work").unwrap(), run).await.map(drop),
    }
}

/// T15, C12: also when the run was just looked at by its owner, and when its row cannot be read.
#[tokio::test]
async fn t15_a_foreign_run_costs_what_an_unknown_one_costs() {
    let site = Site::new();
    let inner = Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap());
    let store = Arc::new(Noting { inner, asked: Mutex::default() });
    // Nobody looks by itself.
    let fixed = FixedSettings { poll: standfast_core::time::Millis::hours(1), ..crate::fixed() };
    let engine = Engine::new(store.clone(), Clock::system(), fixed, site.settings());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let foreign = hold_of(&engine, run, HoldKind::Approval).await;
    let tenant = Tenant::default_tenant();
    let unknown = HoldId {
        run: RunId::new(&tenant, StorageKind::Durable, Timestamp(1_762_000_000_000), [7; 5]),
        ..foreign
    };
    for is_broken in [false, true] {
        if is_broken {
            let other = rusqlite::Connection::open(site.path("standfast.db")).unwrap();
            other.execute_batch("UPDATE runs SET state = '{'").unwrap();
        } else {
            engine.reads().run(&who("alice"), run).await.unwrap();
        }
        for operation in 0..OPERATIONS {
            store.taken();
            let of_unknown = (ask(&engine, operation, unknown).await, store.taken());
            let of_foreign = (ask(&engine, operation, foreign).await, store.taken());
            assert_eq!(of_foreign, of_unknown, "operation {operation}, broken: {is_broken}");
            assert_eq!(of_foreign.0, Err(EngineError::NotFound), "operation {operation}");
            // Something of a run may have been escalated or delegated to them; a task of an inbox is not, and a gate is
            // its agent's alone.
            let is_owners_alone = OWNERS_ALONE.contains(&operation);
            let looks: &[&str] = if is_owners_alone { &["facts"] } else { &["facts", "load"] };
            assert_eq!(of_foreign.1, looks, "operation {operation}");
        }
    }
    engine.die().await;
}
