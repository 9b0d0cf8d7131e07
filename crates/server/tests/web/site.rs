//! The server and the browsers of these tests: a site with an agent for each thing that can wait, and what a browser does.
//!
//! Each caller has a listener of their own on the same engine. What pages show is asserted by the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::redirect::Policy;
use standfast::app;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::{Ask, HoldPolicy};
use standfast_core::id::{HoldId, RunId};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay, ToolResult};
use standfast_core::name::{AgentName, ToolName, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{ApiKey, Approvers, KEY_BYTES, KeyFacts, Principal};
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Access, Agent, Auth, Connections, FixedSettings, Settings};
use standfast_engine::tool::preview::Risk;
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_engine::tool::{Invocation, Outcome, Suspension, Tool, ToolFuture};
use standfast_engine::{Engine, NewRun};
use standfast_models::scripted::{Line, Script};
use standfast_store::SecretStore;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_surfaces::http;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) const ARGUMENTS: &str = "{\"path\":  \"/srv/<b>old</b>\u{202e}\", \"size\": 9007199254740993}";
pub(crate) const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string"},"size":{"type":"integer"}},"required":["path"]}"#;

/// What the tools of the tests do.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    WritesALine,
    NobodyKnows,
    WaitsFor(SuspendFor),
}

pub(crate) struct TestTool {
    pub(crate) effects: PathBuf,
    pub(crate) does: Does,
}

impl Tool for TestTool {
    fn risk(&self, _arguments: &str) -> Option<Risk> {
        matches!(self.does, Does::WritesALine).then_some(Risk::Destructive)
    }

    fn run(&self, invocation: Invocation) -> ToolFuture {
        let outcome = match self.does {
            Does::WritesALine => {
                let mut file =
                    std::fs::OpenOptions::new().create(true).append(true).open(&self.effects).unwrap();
                writeln!(file, "{}", invocation.arguments).unwrap();
                Outcome::Done(ToolResult::Ok(Body::text("deleted")))
            }
            Does::NobodyKnows => Outcome::Unknown("the connection broke".into()),
            Does::WaitsFor(kind) => {
                let ask = Ask { reason: Some("<i>elsewhere</i>".into()), ..Ask::default() };
                Outcome::Pending(Box::new(Suspension { kind, ask, timeout: None, secret: None }))
            }
        };
        Box::pin(std::future::ready(outcome))
    }
}

/// A server with an agent for each thing that can wait.
pub(crate) struct Site {
    pub(crate) directory: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) engine: Engine,
    pub(crate) _stop: watch::Sender<bool>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::with(Clock::system(), HoldPolicy::default(), Approvers::default())
    }

    pub(crate) fn with(clock: Clock, holds: HoldPolicy, approvers: Approvers) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&SqliteOptions::at(directory.path().join("standfast.db"))).unwrap();
        let effects = directory.path().join("effects");
        let ask = |arguments: &str| Line::calls(&[(suspend::NAME, arguments)]);
        let agents = [
            ("ops", Line::calls(&[("delete_file", ARGUMENTS)])),
            ("lost", Line::calls(&[("lost", "{}")])),
            ("job", Line::calls(&[("job", "{}")])),
            ("login", Line::calls(&[("login", "{}")])),
            (
                "options",
                ask(r#"{"reason": "two <disks>", "question": "Which?", "options": ["a\nb", "<c>"]}"#),
            ),
            ("words", ask(r#"{"reason": "stuck", "question": "What now?"}"#)),
            (
                "form",
                ask(
                    r#"{"reason": "dark scan", "resumeSchema": {"properties": {"amount": {"type": "number"}, "currency": {"enum": ["EUR", "CHF"]}, "paid": {"type": "boolean"}, "note": {"type": "string"}}, "required": ["amount"]}}"#,
                ),
            ),
            ("number", ask(r#"{"reason": "how many", "resumeSchema": {"type": "integer", "minimum": 1}}"#)),
            (
                "json",
                ask(
                    r#"{"reason": "a list", "resumeSchema": {"type": "array", "items": {"type": "string"}}}"#,
                ),
            ),
        ];
        let agents = agents.map(|(name, line)| {
            let name = AgentName::new(name).unwrap();
            (name.clone(), Arc::new(agent(name, line, &effects, &holds, &approvers)))
        });
        let access = Access { auth: Auth::Keys, ..Access::default() };
        let agents = BTreeMap::from(agents);
        let settings = Settings { agents, access, ..Settings::usual() };
        let fixed = FixedSettings { poll: Millis(50), ..FixedSettings::default() };
        let store = Arc::new(store);
        let engine = Engine::new(store.clone(), clock, fixed, settings);
        engine.work();
        let (stop, stopping) = watch::channel(false);
        Site { directory, store, engine, _stop: stop, stopping }
    }

    /// A browser of this user.
    pub(crate) async fn browser(&self, user: &str) -> Browser {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let app = http::App { engine: self.engine.clone(), stopping: self.stopping.clone() };
        let (router, stopping) = (app::router(app), self.stopping.clone());
        tokio::spawn(async move { http::serve(listener, router, &Connections::default(), stopping).await });
        let key = format!("Bearer {}", key_of(user, &self.store).await);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, key.parse().unwrap())]);
        let client = reqwest::Client::builder().redirect(Policy::none()).default_headers(headers);
        let client = client.build().unwrap();
        let mut browser = Browser { base, client, token: String::new() };
        let cookie = browser.get("/").await.headers["set-cookie"].to_str().unwrap().to_owned();
        browser.token = cookie.split(['=', ';']).nth(1).unwrap().to_owned();
        browser
    }

    /// A run of alice that waits, and what it waits for.
    pub(crate) async fn held(&self, agent: &str) -> (RunId, HoldId) {
        let new = NewRun {
            agent: AgentName::new(agent).unwrap(),
            session: None,
            message: Message::text("<script>alert(1)</script>"),
            once: None,
        };
        let run = self.engine.submit().start(&who("alice"), new).await.unwrap();
        let view = self.engine.reads().settled_run(&who("alice"), run, Millis::seconds(30)).await.unwrap();
        (run, HoldId { run, key: view.run.state.holds[0].key })
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.path().join("effects")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) async fn seq(&self, run: RunId) -> u64 {
        self.engine.reads().load(run).await.unwrap().row.run.state.seq.0
    }
}

pub(crate) fn agent(
    name: AgentName,
    line: Line,
    effects: &std::path::Path,
    holds: &HoldPolicy,
    approvers: &Approvers,
) -> Agent {
    let tool = |name: &str| ToolName::new(name).unwrap();
    let spec = || ToolSpec {
        description: "Deletes a file".into(),
        schema: RawJson::parse(SCHEMA).unwrap(),
        replay: Replay::Never,
        reversible: false,
        approval_prompt: None,
        holds: None,
    };
    let any = || ToolSpec { schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(), ..spec() };
    let does = [
        ("delete_file", spec(), Does::WritesALine),
        ("lost", any(), Does::NobodyKnows),
        ("job", any(), Does::WaitsFor(SuspendFor::External)),
        ("login", any(), Does::WaitsFor(SuspendFor::Auth)),
    ];
    let mut specs = BTreeMap::from([(tool(suspend::NAME), SuspendForInput::spec())]);
    let mut tools: BTreeMap<ToolName, Arc<dyn Tool>> =
        BTreeMap::from([(tool(suspend::NAME), Arc::new(SuspendForInput) as Arc<dyn Tool>)]);
    for (name, spec, does) in does {
        specs.insert(tool(name), spec);
        tools.insert(tool(name), Arc::new(TestTool { effects: effects.to_owned(), does }));
    }
    let definition = Definition {
        agent: name,
        prompt: String::new(),
        model: "scripted".into(),
        model_parameters: None,
        tools: specs,
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: holds.clone(),
    };
    Agent {
        tools,
        needs_approval: BTreeSet::from([tool("delete_file")]),
        approvers: approvers.clone(),
        worker_pool: 5,
        ..Agent::new(definition, Arc::new(Script { lines: vec![line, Line::says("Done.")] }))
    }
}

pub(crate) fn who(user: &str) -> Principal {
    Principal::of(UserId::new(user).unwrap())
}

/// A key of this user, kept in the store.
pub(crate) async fn key_of(user: &str, store: &SqliteStore) -> String {
    let mut random = [7; KEY_BYTES];
    random.iter_mut().zip(user.bytes()).for_each(|(byte, letter)| *byte = letter);
    let Principal { tenant, user, groups, roles, scopes, limits, by: _ } = who(user);
    let facts = KeyFacts {
        name: None,
        user,
        groups,
        roles,
        scopes,
        inboxes: Default::default(),
        limits,
        created_at: Timestamp(0),
    };
    let key = ApiKey::new(random);
    // A second browser of the same user has the same key.
    store.put_credential(key.credential(tenant, &facts, None).unwrap()).await.unwrap();
    key.reveal()
}

pub(crate) struct Browser {
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
    pub(crate) token: String,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Page {
    /// The value of a hidden field.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let rest = self.body.split_once(&start).unwrap_or_else(|| panic!("no {name} in {}", self.body)).1;
        rest.split_once('"').unwrap().0.to_owned()
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Page {
        assert!(self.body.contains(text), "{text:?} is not in:\n{}", self.body);
        self
    }

    #[track_caller]
    pub(crate) fn does_not_say(&self, text: &str) -> &Page {
        assert!(!self.body.contains(text), "{text:?} is in:\n{}", self.body);
        self
    }
}

impl Browser {
    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Page {
        let response = request.header("accept", "text/html").send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Page { status, headers, body: response.text().await.unwrap() }
    }

    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        if self.token.is_empty() {
            request
        } else {
            request.header("cookie", format!("standfast_csrf={}", self.token))
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send(self.request(reqwest::Method::GET, path)).await
    }

    pub(crate) fn form(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let pairs: Vec<String> =
            fields.iter().map(|(k, v)| format!("{}={}", encoded(k), encoded(v))).collect();
        self.request(reqwest::Method::POST, path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", &self.base)
            .body(pairs.join("&"))
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut all = vec![("csrf", self.token.as_str())];
        all.extend(fields);
        self.send(self.form(path, &all)).await
    }

    /// Fills in a form of a hold's page as it is shown now.
    pub(crate) async fn decide(&self, hold: HoldId, fields: &[(&str, &str)]) -> Page {
        let path = format!("/approve/{hold}");
        let page = self.get(&path).await;
        let [digest, revision, once] = ["digest", "revision", "once"].map(|name| page.hidden(name));
        let shown = [("digest", digest.as_str()), ("revision", revision.as_str()), ("once", once.as_str())];
        self.post(&path, &[&shown[..], fields].concat()).await
    }
}

/// In place of the page's own.
pub(crate) fn origin(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(reqwest::header::ORIGIN, value.parse().unwrap())])
}

pub(crate) fn encoded(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(byte).collect()
}
