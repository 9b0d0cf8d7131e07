//! The pages over HTTP, on a real SQLite file: what they show, what they refuse, what their forms do.
//!
//! A browser is a cookie and a client here; `crates/e2e/browser` has the same pages in a real one. Each caller has a
//! listener of their own on the same engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

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
use standfast_engine::auth::{ApiKey, Approvers, KEY_BYTES, KeyFacts, Party, Principal, SelfApproval};
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Access, Agent, Auth, Connections, FixedSettings, Settings};
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

const ARGUMENTS: &str = "{\"path\":  \"/srv/<b>old</b>\u{202e}\", \"size\": 9007199254740993}";
const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string"},"size":{"type":"integer"}},"required":["path"]}"#;

/// What the tools of the tests do.
#[derive(Clone, Copy)]
enum Does {
    WritesALine,
    NobodyKnows,
    WaitsFor(SuspendFor),
}

struct TestTool {
    effects: PathBuf,
    does: Does,
}

impl Tool for TestTool {
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
struct Site {
    directory: TempDir,
    store: Arc<SqliteStore>,
    engine: Engine,
    _stop: watch::Sender<bool>,
    stopping: watch::Receiver<bool>,
}

impl Site {
    fn new() -> Site {
        Site::with(Clock::system(), HoldPolicy::default(), Approvers::default())
    }

    fn with(clock: Clock, holds: HoldPolicy, approvers: Approvers) -> Site {
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
        let settings = Settings {
            agents,
            access,
            fixed: FixedSettings { poll: Millis(50), ..FixedSettings::default() },
            ..Settings::usual()
        };
        let store = Arc::new(store);
        let engine = Engine::new(store.clone(), clock, settings);
        engine.work();
        let (stop, stopping) = watch::channel(false);
        Site { directory, store, engine, _stop: stop, stopping }
    }

    /// A browser of this user.
    async fn browser(&self, user: &str) -> Browser {
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
    async fn held(&self, agent: &str) -> (RunId, HoldId) {
        let new = NewRun {
            agent: AgentName::new(agent).unwrap(),
            session: None,
            message: Message::text("<script>alert(1)</script>"),
            once: None,
        };
        let run = self.engine.start(&who("alice"), new).await.unwrap();
        let view = self.engine.reads().settled_run(&who("alice"), run, Millis::seconds(30)).await.unwrap();
        (run, HoldId { run, key: view.run.state.holds[0].key })
    }

    fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.path().join("effects")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn seq(&self, run: RunId) -> u64 {
        self.engine.load(run).await.unwrap().row.run.state.seq.0
    }
}

fn agent(
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

fn who(user: &str) -> Principal {
    Principal::of(UserId::new(user).unwrap())
}

/// A key of this user, kept in the store.
async fn key_of(user: &str, store: &SqliteStore) -> String {
    let mut random = [7; KEY_BYTES];
    random.iter_mut().zip(user.bytes()).for_each(|(byte, letter)| *byte = letter);
    let Principal { tenant, user, groups, roles, scopes, inboxes, by: _ } = who(user);
    let facts = KeyFacts { name: None, user, groups, roles, scopes, inboxes, created_at: Timestamp(0) };
    let key = ApiKey::new(random);
    // A second browser of the same user has the same key.
    store.put_credential(key.credential(tenant, &facts, None).unwrap()).await.unwrap();
    key.reveal()
}

struct Browser {
    base: String,
    client: reqwest::Client,
    token: String,
}

#[derive(Debug)]
struct Page {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Page {
    /// The value of a hidden field.
    fn hidden(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let rest = self.body.split_once(&start).unwrap_or_else(|| panic!("no {name} in {}", self.body)).1;
        rest.split_once('"').unwrap().0.to_owned()
    }

    #[track_caller]
    fn says(&self, text: &str) -> &Page {
        assert!(self.body.contains(text), "{text:?} is not in:\n{}", self.body);
        self
    }

    #[track_caller]
    fn does_not_say(&self, text: &str) -> &Page {
        assert!(!self.body.contains(text), "{text:?} is in:\n{}", self.body);
        self
    }
}

impl Browser {
    async fn send(&self, request: reqwest::RequestBuilder) -> Page {
        let response = request.header("accept", "text/html").send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Page { status, headers, body: response.text().await.unwrap() }
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        if self.token.is_empty() {
            request
        } else {
            request.header("cookie", format!("standfast_csrf={}", self.token))
        }
    }

    async fn get(&self, path: &str) -> Page {
        self.send(self.request(reqwest::Method::GET, path)).await
    }

    fn form(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let pairs: Vec<String> =
            fields.iter().map(|(k, v)| format!("{}={}", encoded(k), encoded(v))).collect();
        self.request(reqwest::Method::POST, path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", &self.base)
            .body(pairs.join("&"))
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut all = vec![("csrf", self.token.as_str())];
        all.extend(fields);
        self.send(self.form(path, &all)).await
    }

    /// Fills in a form of a hold's page as it is shown now.
    async fn decide(&self, hold: HoldId, fields: &[(&str, &str)]) -> Page {
        let path = format!("/approve/{hold}");
        let page = self.get(&path).await;
        let [digest, revision, once] = ["digest", "revision", "once"].map(|name| page.hidden(name));
        let shown = [("digest", digest.as_str()), ("revision", revision.as_str()), ("once", once.as_str())];
        self.post(&path, &[&shown[..], fields].concat()).await
    }
}

/// In place of the page's own.
fn origin(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(reqwest::header::ORIGIN, value.parse().unwrap())])
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(byte).collect()
}

/// T7, T20, T21: no page runs, loads, keeps or tells anything.
#[tokio::test]
async fn every_page_carries_strict_headers() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (run, hold) = site.held("ops").await;
    for (path, status) in [
        ("/".to_owned(), 200),
        ("/?kind=approval".into(), 200),
        ("/runs".into(), 200),
        (format!("/runs/{run}"), 200),
        (format!("/approve/{hold}"), 200),
        ("/approve/nonsense".into(), 404),
        ("/nothing".into(), 404),
        ("/?cursor=x".into(), 400),
    ] {
        let page = alice.get(&path).await;
        assert_eq!(page.status, status, "{path}");
        let header = |name: &str| page.headers.get(name).map(|value| value.to_str().unwrap());
        let policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";
        assert_eq!(header("content-security-policy"), Some(policy), "{path}");
        assert_eq!(header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(header("x-content-type-options"), Some("nosniff"));
        assert_eq!(header("x-frame-options"), Some("DENY"));
        assert_eq!(header("referrer-policy"), Some("same-origin"));
        assert_eq!(header("cache-control"), Some("no-store"));
        assert_eq!(header("set-cookie"), None, "the browser has its token");
        page.does_not_say("<script").does_not_say("style=\"").says("<html lang=\"en\">");
    }
    let stranger = Browser { token: String::new(), ..alice };
    let cookie = stranger.get("/").await.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    let style = stranger.get("/assets/style.css").await;
    assert_eq!(
        (style.status, &style.headers["content-type"]),
        (200, &"text/css; charset=utf-8".parse().unwrap())
    );
    let again = stranger.request(reqwest::Method::GET, "/assets/style.css");
    let again = stranger.send(again.header("if-none-match", style.headers["etag"].clone())).await;
    assert_eq!(again.status, 304);
}

/// T6: whatever fetches a link, nothing happens.
#[tokio::test]
async fn looking_changes_nothing() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (run, hold) = site.held("ops").await;
    let before = site.seq(run).await;
    for method in [reqwest::Method::GET, reqwest::Method::HEAD, reqwest::Method::OPTIONS] {
        for path in
            [format!("/approve/{hold}"), format!("/approve/{hold}?decision=approve"), format!("/runs/{run}")]
        {
            let request = alice.request(method.clone(), &path).header("purpose", "prefetch");
            alice.send(request).await;
        }
    }
    assert_eq!(alice.get(&format!("/runs/{run}/cancel")).await.status, 405);
    assert_eq!((site.seq(run).await, site.effects()), (before, Vec::new()));
}

/// T21: a form without this browser's token decides nothing.
#[tokio::test]
async fn a_form_needs_the_token() {
    let site = Site::new();
    let (alice, other) = (site.browser("alice").await, site.browser("alice").await);
    let (run, hold) = site.held("ops").await;
    let before = site.seq(run).await;
    let path = format!("/approve/{hold}");
    let page = alice.get(&path).await;
    let (digest, token) = (page.hidden("digest"), alice.token.as_str());
    let approve = [("decision", "approve"), ("digest", digest.as_str()), ("revision", "0")];
    let with = |token: &'static str| [&[("csrf", token)], &approve[..]].concat();
    let own = [&[("csrf", token)], &approve[..]].concat();
    let tokenless = Browser { base: alice.base.clone(), client: alice.client.clone(), token: String::new() };
    for (request, status) in [
        (alice.form(&path, &approve), 403),
        (alice.form(&path, &with("")), 403),
        (alice.form(&path, &with("guess")), 403),
        (other.form(&path, &own), 403),
        (tokenless.form(&path, &own), 403),
        (alice.form(&path, &own).headers(origin("https://evil.example")), 403),
        (alice.form(&path, &own).headers(origin("null")), 403),
        (
            alice.request(reqwest::Method::POST, &path).body("{}").header("content-type", "application/json"),
            415,
        ),
        (alice.form("/runs", &[("agent", "ops"), ("input", "x")]), 403),
        (alice.form(&format!("/runs/{run}/cancel"), &[]), 403),
    ] {
        let page = alice.send(request).await;
        assert_eq!(page.status, status, "{}", page.body);
        page.says("<html");
    }
    assert_eq!((site.seq(run).await, site.effects()), (before, Vec::new()));
    assert_eq!(alice.send(alice.form(&path, &own)).await.status, 303);
}

/// S0-33, T17, T19, T20: the page shows the bytes that will run, whole, escaped and with hidden characters marked; what
/// it showed is what runs, once.
#[tokio::test]
async fn what_is_shown_is_what_runs() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (run, hold) = site.held("ops").await;
    let page = alice.get(&format!("/approve/{hold}")).await;
    let shown = "{&quot;path&quot;:  &quot;&#x2f;srv&#x2f;&lt;b&gt;old&lt;&#x2f;b&gt;<span class=\"mark\">⟨U+202E⟩</span>&quot;, \
                 &quot;size&quot;: 9007199254740993}</pre>";
    page.says(shown).says("Approve delete_file?").says("Cannot be undone").says("Check carefully");
    page.does_not_say("\u{202e}").does_not_say("<b>old").says(&page.hidden("digest")[..8]);
    for fact in [run.to_string(), hold.to_string(), "alice".into(), "ops".into()] {
        page.says(&fact);
    }
    let answered = alice.decide(hold, &[("decision", "approve")]).await;
    assert_eq!(
        (answered.status, &answered.headers["location"]),
        (303, &format!("/approve/{hold}").parse().unwrap())
    );
    assert_eq!(site.effects(), [ARGUMENTS]);
    let decided = alice.get(&format!("/approve/{hold}")).await;
    decided.says("Approved").says("by <strong>alice</strong>").says("It ran.").says("Attempt 1 at");
    decided.does_not_say("<form").does_not_say("<button");

    let timeline = alice.get(&format!("/runs/{run}")).await;
    timeline
        .says("&lt;script&gt;alert(1)&lt;&#x2f;script&gt;")
        .does_not_say("<script")
        .does_not_say("\u{202e}");
    for text in [
        "Run of ops started",
        "call 1: delete_file",
        "Held: approval",
        "Approved",
        "Call 1 finished",
        "Done.",
    ] {
        timeline.says(text);
    }
    timeline.does_not_say("Cancel this run");
}

/// A page that is out of date decides nothing and shows what is there now.
#[tokio::test]
async fn a_stale_page_is_told_what_changed() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, hold) = site.held("ops").await;
    let path = format!("/approve/{hold}");
    let digest = alice.get(&path).await.hidden("digest");
    let other = format!("{}{}", if digest.starts_with('0') { "1" } else { "0" }, &digest[1..]);
    for (digest, revision, status, text) in [
        (digest.as_str(), "7", 409, "Changed since you saw it"),
        (other.as_str(), "0", 409, "Changed since you saw it"),
        ("", "0", 422, "The form is incomplete"),
        (digest.as_str(), "", 422, "The form is incomplete"),
        ("nonsense", "0", 422, "The form is incomplete"),
    ] {
        let fields = [("decision", "approve"), ("digest", digest), ("revision", revision)];
        let page = alice.post(&path, &fields).await;
        assert_eq!(page.status, status, "{digest} {revision}");
        page.says(text).says("role=\"alert\"").says("Approve: run it as shown");
    }
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// S1-32: what was entered stays, with the place of the mistake; hidden characters are escapes in the editor.
#[tokio::test]
async fn edited_arguments_are_checked_and_kept() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, hold) = site.held("ops").await;
    let editor = alice.get(&format!("/approve/{hold}")).await;
    editor.says("&lt;b&gt;old&lt;&#x2f;b&gt;\\u202e&quot;, &quot;size&quot;: 9007199254740993}</textarea>");
    for (entered, text) in [
        ("{\"path\": <1>}", "This is not JSON"),
        (r#"{"path": "a", "path": "b"}"#, "more than once"),
        (r#"{"path": 7}"#, "At &#x2f;path: 7 is not of type"),
        (r#"{}"#, "is a required property"),
        ("", "Arguments are missing"),
    ] {
        let page = alice.decide(hold, &[("decision", "edit"), ("arguments", entered)]).await;
        assert_eq!(page.status, 422, "{entered}");
        page.says(text).says("<details class=\"choice\" open>");
    }
    let kept = alice.decide(hold, &[("decision", "edit"), ("arguments", "{\"path\": <\u{fe0f}>}")]).await;
    kept.says("{&quot;path&quot;: &lt;\u{fe0f}&gt;}</textarea>");
    let good = "{\"path\":\r\n  \"/srv/other\"}";
    assert_eq!(alice.decide(hold, &[("decision", "edit"), ("arguments", good)]).await.status, 303);
    let decided = alice.get(&format!("/approve/{hold}")).await;
    decided.says("Approved with edited arguments").says("&quot;&#x2f;srv&#x2f;other&quot;");
    assert_eq!(site.effects().join("\n"), "{\"path\":\n  \"/srv/other\"}");

    let (_, untouched) = site.held("ops").await;
    let same = ARGUMENTS.replace('\u{202e}', "\\u202e");
    assert_eq!(alice.decide(untouched, &[("decision", "edit"), ("arguments", &same)]).await.status, 303);
    assert_eq!(site.effects().last().unwrap(), ARGUMENTS, "not changed, so the stored bytes run");
}

/// S4-17, S4-18, S4-26: options are buttons, a flat schema is a form, anything else a text box.
#[tokio::test]
async fn every_question_has_its_form() {
    let site = Site::new();
    let alice = site.browser("alice").await;

    let (run, hold) = site.held("options").await;
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("Which?").says("two &lt;disks&gt;").says("value=\"0\" class=\"option\">a\nb</button>");
    page.says("value=\"1\" class=\"option\">&lt;c&gt;</button>").does_not_say("<textarea id=\"value\"");
    assert_eq!(alice.decide(hold, &[("decision", "option"), ("option", "2")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "option"), ("option", "0")]).await.status, 303);
    alice.get(&format!("/runs/{run}")).await.says("Answered").says("<div class=\"text\">a\nb</div>");

    let (run, hold) = site.held("words").await;
    alice.get(&format!("/approve/{hold}")).await.says("<textarea id=\"value\"");
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "  ")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "{\"not\": json}")]).await.status, 303);
    alice.get(&format!("/runs/{run}")).await.says("{&quot;not&quot;: json}");

    let (run, hold) = site.held("form").await;
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("inputmode=\"decimal\"").says("type=\"radio\"").says("<option value=\"1\">CHF</option>");
    let wrong = [("decision", "fields"), ("field-0", "twelve"), ("field-3", "<kept>")];
    let page = alice.decide(hold, &wrong).await;
    assert_eq!(page.status, 422);
    page.says("At &#x2f;amount: ")
        .says("id=\"field-0-hint\"")
        .says("value=\"twelve\"")
        .says("value=\"&lt;kept&gt;\"");
    let right = [
        ("decision", "fields"),
        ("field-0", "12.50"),
        ("field-1", "1"),
        ("field-2", "true"),
        ("field-3", ""),
    ];
    assert_eq!(alice.decide(hold, &right).await.status, 303);
    let page = alice.get(&format!("/runs/{run}")).await;
    page.says("{&quot;amount&quot;: 12.50, &quot;currency&quot;: &quot;CHF&quot;, &quot;paid&quot;: true}");

    let (_, hold) = site.held("number").await;
    assert_eq!(alice.decide(hold, &[("decision", "fields"), ("field-0", "0")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "fields")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "fields"), ("field-0", "3")]).await.status, 303);

    let (_, hold) = site.held("json").await;
    alice.get(&format!("/approve/{hold}")).await.says("must match this schema").says("&quot;array&quot;");
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "a, b")]).await.status, 422);
    let page = alice.decide(hold, &[("decision", "answer"), ("value", "[1]")]).await;
    assert_eq!(page.status, 422);
    page.says("At &#x2f;0: 1 is not of type").says("[1]</textarea>");
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "[\"a\"]")]).await.status, 303);

    let (_, hold) = site.held("words").await;
    assert_eq!(alice.decide(hold, &[("decision", "deny"), ("reason", "ask Bob")]).await.status, 303);
    alice.get(&format!("/approve/{hold}")).await.says("Denied").says("ask Bob");
}

/// Unknown outcomes, outside jobs and logins are decided in words of their own.
#[tokio::test]
async fn every_kind_of_hold_has_its_choices() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    for (decision, value, words) in [
        ("answer", ("value", "it is gone"), "It happened"),
        ("deny", ("reason", "looked"), "It did not happen"),
        ("approve", ("", ""), "Run again"),
    ] {
        let (_, hold) = site.held("lost").await;
        let page = alice.get(&format!("/approve/{hold}")).await;
        page.says("Did lost take effect?")
            .says("its outcome is unknown")
            .says("Run it again")
            .says("It did not happen");
        assert_eq!(alice.decide(hold, &[("decision", decision), value]).await.status, 303);
        alice.get(&format!("/approve/{hold}")).await.says(&format!("<h2 id=\"decision\">{words}</h2>"));
    }
    for (agent, decision, value, words) in [
        ("job", "answer", ("value", "{\"ok\": true}"), "Answered"),
        ("job", "fail", ("error", "out of paper"), "Failed"),
        ("login", "answer", ("value", "done"), "Answered"),
        ("login", "fail", ("error", "expired"), "Failed"),
        ("login", "deny", ("reason", "no"), "Denied"),
    ] {
        let (_, hold) = site.held(agent).await;
        alice.get(&format!("/approve/{hold}")).await.says("&lt;i&gt;elsewhere&lt;&#x2f;i&gt;");
        assert_eq!(
            alice.decide(hold, &[("decision", decision)]).await.status,
            if decision == "deny" { 303 } else { 422 }
        );
        if decision != "deny" {
            assert_eq!(alice.decide(hold, &[("decision", decision), value]).await.status, 303);
        }
        alice.get(&format!("/approve/{hold}")).await.says(&format!("<h2 id=\"decision\">{words}</h2>"));
    }
    let (_, hold) = site.held("job").await;
    let page = alice.decide(hold, &[("decision", "approve")]).await;
    assert_eq!(page.status, 422, "C25: an outside job takes no approval");
    page.says("Wrong decision for this kind of hold");
}

/// T12, T15: what is not yours looks like nothing; what you may only look at has no buttons.
#[tokio::test]
async fn others_see_nothing_and_lookers_decide_nothing() {
    let named = BTreeSet::from([Party::User(UserId::new("bob").unwrap())]);
    let approvers =
        Approvers { named: Some(named), self_approval: SelfApproval::Forbid, ..Approvers::default() };
    let site = Site::with(Clock::system(), HoldPolicy::default(), approvers);
    let (run, hold) = site.held("ops").await;
    let path = format!("/approve/{hold}");
    let mallory = site.browser("mallory").await;
    let nothing = mallory.get("/approve/nonsense").await;
    for foreign in [path.clone(), format!("/runs/{run}")] {
        let page = mallory.get(&foreign).await;
        assert_eq!((page.status, &page.body), (nothing.status, &nothing.body), "{foreign}");
    }
    let fields = [("decision", "approve"), ("revision", "0"), ("digest", "")];
    for foreign in [path.clone(), format!("/runs/{run}/cancel")] {
        let page = mallory.post(&foreign, &fields).await;
        assert_eq!((page.status, &page.body), (404, &nothing.body), "{foreign}");
    }
    mallory.get("/").await.says("Nothing is pending.");
    mallory.get("/runs").await.says("No runs yet.");

    let alice = site.browser("alice").await;
    let page = alice.get(&path).await;
    page.says("you are not one of its approvers").does_not_say("<button");
    let bob = site.browser("bob").await;
    let digest = bob.get(&path).await.hidden("digest");
    let page = alice.post(&path, &[("decision", "approve"), ("revision", "0"), ("digest", &digest)]).await;
    assert_eq!(page.status, 403);
    page.says("You may not decide this");
    assert_eq!(site.effects(), Vec::<String>::new());
    bob.get("/").await.says("Approve delete_file?");
    assert_eq!(bob.decide(hold, &[("decision", "approve")]).await.status, 303);
    assert_eq!(site.effects().len(), 1);
}

/// T5: one decision: a form sent twice is one, another one is refused and told which counts.
#[tokio::test]
async fn a_hold_is_decided_once() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, hold) = site.held("ops").await;
    let path = format!("/approve/{hold}");
    let page = alice.get(&path).await;
    let [digest, once] = ["digest", "once"].map(|name| page.hidden(name));
    let form = |decision| {
        [("decision", decision), ("digest", digest.as_str()), ("revision", "0"), ("once", once.as_str())]
    };
    assert_eq!(alice.post(&path, &form("approve")).await.status, 303);
    assert_eq!(alice.post(&path, &form("approve")).await.status, 303, "the same click again");
    let late = alice.post(&path, &form("deny")).await;
    assert_eq!(late.status, 409);
    late.says("Already decided").says("Approved").says("by <strong>alice</strong>").does_not_say("<button");
    assert_eq!(site.effects().len(), 1);
}

/// Cancel withdraws what is pending; both pages say so.
#[tokio::test]
async fn a_run_is_started_and_canceled_from_a_page() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    for (agent, input) in [("ops", " "), ("", "x"), ("nobody", "x")] {
        let page = alice.post("/runs", &[("agent", agent), ("input", input)]).await;
        assert!([422, 404].contains(&page.status), "{agent:?} {input:?}");
    }
    let started = alice.post("/runs", &[("agent", "ops"), ("input", "Free\r\nspace")]).await;
    assert_eq!(started.status, 303);
    let path = started.headers["location"].to_str().unwrap().to_owned();
    let run: RunId = path.strip_prefix("/runs/").unwrap().parse().unwrap();
    let page = alice.get(&path).await;
    page.says("Waiting for a person").says("Free\nspace").says("Cancel this run").says("/approve/hold_");
    let hold = HoldId { run, key: site.engine.load(run).await.unwrap().row.run.state.holds[0].key };
    let canceled = alice.post(&format!("{path}/cancel"), &[("reason", "changed <my> mind")]).await;
    assert_eq!(canceled.status, 303);
    alice.get(&path).await.says("Canceled").says("changed &lt;my&gt; mind").does_not_say("<form");
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("Withdrawn: the run ended first").says("It did not run.").does_not_say("<form");
    assert_eq!(alice.post(&format!("{path}/cancel"), &[]).await.status, 409);
}

/// S4-17, S4-26, S0-49: what is pending is listed with kind, question, reason, age and deadline; what expired says so.
#[tokio::test]
async fn what_waits_is_listed_and_paged() {
    let noon = Timestamp(1_762_000_000_000);
    let holds = HoldPolicy { timeout: Some(Millis::hours(2)), ..HoldPolicy::default() };
    let site = Site::with(Clock::standing_at(noon), holds, Approvers::default());
    let alice = site.browser("alice").await;
    alice.get("/").await.says("Nothing is pending.").says("Start a run");
    let (_, approval) = site.held("ops").await;
    for agent in ["options", "lost", "job", "login"] {
        site.held(agent).await;
    }
    site.engine.clock().advance(Millis::seconds(90 * 60));
    let page = alice.get("/").await;
    for text in [
        "Approve delete_file?",
        "Which?",
        "two &lt;disks&gt;",
        "Did lost take effect?",
        "Waiting for the result of job",
    ] {
        page.says(text);
    }
    page.says("login needs a login")
        .says("pending for")
        .says("1 h 30 min")
        .says("in 30 min")
        .says("⟨U+202E⟩")
        .does_not_say("\u{202e}");
    for (kind, says, does_not) in [
        ("approval", "Approve delete_file?", "Which?"),
        ("input", "Which?", "Approve delete_file?"),
        ("recovery", "Did lost take effect?", "Which?"),
        ("external", "Waiting for the result of job", "Which?"),
        ("auth", "needs a login", "Which?"),
    ] {
        alice.get(&format!("/?kind={kind}")).await.says(says).does_not_say(does_not);
    }
    for _ in 0..25 {
        site.held("words").await;
    }
    let first = alice.get("/").await;
    let next = first.body.split_once("<p class=\"more\"><a href=\"").unwrap().1.split_once('"').unwrap().0;
    let next = next.replace("&#x2f;", "/").replace("&amp;", "&");
    let second = alice.get(&next).await;
    let count = |page: &Page| page.body.matches("class=\"item\"").count();
    assert_eq!((count(&first), count(&second)), (25, 5));

    site.engine.clock().advance(Millis::hours(1));
    let decided = alice.decide(approval, &[("decision", "approve")]).await;
    assert_eq!(decided.status, 409);
    decided.says("Expired").says("It did not run.").does_not_say("<button");
    assert_eq!(site.effects(), Vec::<String>::new());
}
