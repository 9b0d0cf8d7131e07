//! The server under test, as a process of its own: the product's router and engine on SQLite, with crash points.
//!
//! The test binary starts itself with `--serve`. It ends when its standard input closes, so that none outlives a test
//! that was itself killed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use standfast::app;
use standfast_core::time::Millis;
use standfast_engine::Engine;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Connections, Settings};
use standfast_store::file::{FileOptions, FileStore};
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{
    AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer, ShardSet, Store,
    WorkLayer,
};
use standfast_surfaces::http;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::agents::{Behaviour, SHORT_LEASE, fixed, settings};
use crate::points::{Crashing, Nth, Points};

/// A store of several nodes whose hints are all lost.
struct Deaf {
    inner: PostgresStore,
    nobody: tokio::sync::broadcast::Sender<ShardSet>,
}

impl Layer for Deaf {
    fn below(&self) -> &dyn Store {
        &self.inner
    }
}

impl WorkLayer for Deaf {
    fn hints(&self) -> Option<tokio::sync::broadcast::Receiver<ShardSet>> {
        Some(self.nobody.subscribe())
    }
}

impl RunLayer for Deaf {}
impl DeliveryLayer for Deaf {}
impl SessionLayer for Deaf {}
impl IdempotencyLayer for Deaf {}
impl SecretLayer for Deaf {}
impl AuditLayer for Deaf {}

/// The database may be away just now.
fn open_postgres(url: &str) -> Option<PostgresStore> {
    for _ in 0..200 {
        match PostgresStore::open(&PostgresOptions::at(url)) {
            Ok(store) => return Some(store),
            Err(error) => eprintln!("{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// The argument that makes the test binary this server.
pub(crate) const SERVE: &str = "--serve";

/// How the server under test behaves.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How many engines share the store, each with an address of its own.
    pub(crate) nodes: usize,
    pub(crate) behaviour: Behaviour,
    pub(crate) abort_at: Option<Nth>,
    pub(crate) late: Option<(String, Duration)>,
    pub(crate) trace: Option<PathBuf>,
    /// The address of a Postgres that several servers share; none for a file of its own.
    pub(crate) postgres: Option<String>,
    /// Whether a folder of files is kept instead of a file.
    pub(crate) in_folder: bool,
    /// Whether no hint of another node is heard.
    pub(crate) is_deaf: bool,
    /// By how much the machine's clock is wrong.
    pub(crate) wrong_by: Millis,
    /// How long runs are kept once they have ended; for ever if that is not said.
    pub(crate) keep: Option<Millis>,
}

impl Default for Options {
    fn default() -> Options {
        let behaviour = Behaviour {
            tool: Duration::ZERO,
            model: Duration::ZERO,
            expiry: Millis(300),
            lease: SHORT_LEASE,
        };
        Options {
            nodes: 1,
            behaviour,
            abort_at: None,
            late: None,
            trace: None,
            postgres: None,
            in_folder: false,
            is_deaf: false,
            wrong_by: Millis(0),
            keep: None,
        }
    }
}

impl Options {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("nodes={}", self.nodes),
            format!("tool={}", self.behaviour.tool.as_millis()),
            format!("model={}", self.behaviour.model.as_millis()),
            format!("expiry={}", self.behaviour.expiry.0),
            format!("lease={}", self.behaviour.lease.0),
        ];
        arguments.extend(self.abort_at.iter().map(|at| format!("abort={}#{}", at.point, at.nth)));
        arguments.extend(self.late.iter().map(|(kind, late)| format!("late={kind}#{}", late.as_millis())));
        arguments.extend(self.trace.iter().map(|path| format!("trace={}", path.display())));
        arguments.extend(self.postgres.iter().map(|url| format!("postgres={url}")));
        arguments.push(format!("folder={}", self.in_folder));
        arguments.extend([format!("deaf={}", self.is_deaf), format!("wrong_by={}", self.wrong_by.0)]);
        arguments.extend(self.keep.iter().map(|span| format!("keep={}", span.0)));
        arguments
    }

    fn parse(arguments: &[String]) -> Options {
        let mut options = Options::default();
        let millis = |value: &str| Duration::from_millis(value.parse().unwrap());
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap();
            match name {
                "nodes" => options.nodes = value.parse().unwrap(),
                "tool" => options.behaviour.tool = millis(value),
                "model" => options.behaviour.model = millis(value),
                "expiry" => options.behaviour.expiry = Millis(value.parse().unwrap()),
                "lease" => options.behaviour.lease = Millis(value.parse().unwrap()),
                "abort" => {
                    let (point, nth) = value.split_once('#').unwrap();
                    options.abort_at = Some(Nth { point: point.into(), nth: nth.parse().unwrap() });
                }
                "late" => {
                    let (kind, late) = value.split_once('#').unwrap();
                    options.late = Some((kind.into(), millis(late)));
                }
                "trace" => options.trace = Some(value.into()),
                "postgres" => options.postgres = Some(value.into()),
                "folder" => options.in_folder = value == "true",
                "deaf" => options.is_deaf = value == "true",
                "wrong_by" => options.wrong_by = Millis(value.parse().unwrap()),
                "keep" => options.keep = Some(Millis(value.parse().unwrap())),
                other => panic!("the server under test knows no {other}"),
            }
        }
        options
    }
}

/// Serves until standard input closes.
pub(crate) fn serve(arguments: &[String]) -> ExitCode {
    let (data, rest) = arguments.split_first().unwrap();
    let options = Options::parse(rest);
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(serve_on(data.into(), options));
    ExitCode::SUCCESS
}

async fn serve_on(data: PathBuf, options: Options) {
    let trace = options.trace.as_ref().map(|path| Mutex::new(std::fs::File::create(path).unwrap()));
    let points =
        Arc::new(Points { abort_at: options.abort_at, late: options.late, trace, ..Points::default() });
    let store: Arc<dyn Store> = match &options.postgres {
        None if options.in_folder => {
            let inner = FileStore::open(&FileOptions::at(data.join(crate::site::FOLDER))).unwrap();
            Arc::new(Crashing { inner, points: points.clone() })
        }
        None => {
            let inner = SqliteStore::open(&SqliteOptions::at(data.join("standfast.db"))).unwrap();
            Arc::new(Crashing { inner, points: points.clone() })
        }
        Some(url) => {
            let Some(inner) = open_postgres(url) else { return };
            let (nobody, _) = tokio::sync::broadcast::channel(1);
            if options.is_deaf {
                Arc::new(Deaf { inner, nobody })
            } else {
                Arc::new(Crashing { inner, points: points.clone() })
            }
        }
    };
    let (stop, stopping) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for _ in 0..options.nodes {
        let settings = Settings { keep_ended: options.keep, ..settings(&data, &options.behaviour, &points) };
        let (clock, fixed) = (Clock::wrong_by(options.wrong_by), fixed(&options.behaviour));
        let engine = Engine::new(store.clone(), clock, fixed, settings);
        // A store that is away is tried again by whoever works.
        let _ = engine.join().await;
        engine.work();
        let app = http::App { engine, stopping: stopping.clone() };
        let counted = points.clone();
        let reads = get(async move || counted.reads.load(Ordering::Relaxed).to_string());
        let router = Router::new().route("/test/reads", reads).merge(app::router(app));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("http://{}", listener.local_addr().unwrap());
        let stopping = stopping.clone();
        serving.spawn(async move { http::serve(listener, router, &Connections::default(), stopping).await });
    }
    serving.join_all().await;
    drop(stop);
}

/// Whoever is at this machine, as in the product.
pub(crate) fn local() -> Principal {
    Principal::local()
}
