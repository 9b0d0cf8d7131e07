//! Pages without script, with the real binary: who is asked about a hold, and how a vote stands.
//!
//! `Browser` keeps its cookie and posts forms; the pages of standing approvals are `grants.rs`, pages with script `crates/e2e/browser`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;
use standfast_testkit::{Process, folder, serve, standfast, text, until};

use crate::policy::{logging, reloads, replaced};

/// A browser without script: it keeps its cookie.
pub(crate) struct Browser {
    base: String,
    key: String,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    cookie: std::cell::RefCell<String>,
}

impl Browser {
    /// Somebody at a server that knows no keys.
    pub(crate) fn of(server: &Process) -> Browser {
        Browser::with_key(server, "")
    }

    /// Somebody who is known by a key.
    pub(crate) fn with_key(server: &Process, key: &str) -> Browser {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Browser {
            base: server.base.clone(),
            key: key.to_owned(),
            client,
            runtime,
            cookie: String::new().into(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.answer(self.client.get(format!("{}{path}", self.base)))
    }

    pub(crate) fn page(&self, path: &str) -> String {
        let (status, page) = self.get(path);
        assert_eq!(status, 200, "{path}: {page}");
        page
    }

    pub(crate) fn post(&self, path: &str, form: &[(String, String)]) -> (u16, String) {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let fields: Vec<String> =
            form.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let posted = self.client.post(format!("{}{path}", self.base)).header("origin", &self.base);
        let posted = posted.header("content-type", "application/x-www-form-urlencoded");
        self.answer(posted.body(fields.join("&")))
    }

    fn answer(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        let request = request.header("cookie", self.cookie.borrow().clone());
        let request = match self.key.as_str() {
            "" => request,
            key => request.bearer_auth(key),
        };
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            if let Some(set) = response.headers().get("set-cookie") {
                let pair = set.to_str().unwrap().split(';').next().unwrap().to_owned();
                self.cookie.replace(pair);
            }
            (response.status().as_u16(), response.text().await.unwrap())
        })
    }
}

/// The value of a hidden field of a page.
pub(crate) fn field(page: &str, name: &str) -> String {
    let found = page.split_once(&format!("name=\"{name}\" value=\""));
    let (_, rest) = found.unwrap_or_else(|| panic!("{name}: {page}"));
    rest.split_once('"').unwrap().0.to_owned()
}

/// Decides a hold on its page, as the page shows it.
pub(crate) fn decide(browser: &Browser, hold: &str, decision: &str) -> (u16, String) {
    post_form(browser, hold, ("", &["digest", "revision"]), ("decision", decision))
}

/// Posts a form of a hold's page, with what the page has in its hidden fields.
fn post_form(
    browser: &Browser,
    hold: &str,
    (below, hidden): (&str, &[&str]),
    (name, value): (&str, &str),
) -> (u16, String) {
    let shown = browser.page(&format!("/approve/{hold}"));
    let hidden = ["csrf", "once"].iter().chain(hidden).map(|name| ((*name).to_owned(), field(&shown, name)));
    let form: Vec<(String, String)> = hidden.chain([(name.to_owned(), value.to_owned())]).collect();
    browser.post(&format!("/approve/{hold}{below}"), &form)
}

/// A key of somebody who is in a group.
pub(crate) fn key(folder: &std::path::Path, user: &str, group: &str) -> String {
    let arguments = ["keys", "create", "--config", "standfast.yaml", "--user", user, "--group", group];
    let made = standfast().args(arguments).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// A folder with an agent that writes a file, which this rule holds; people have keys.
pub(crate) fn writer_held_by(rule: &str) -> tempfile::TempDir {
    let call =
        json!({"tool": "write_file", "arguments": json!({"path": "a.txt", "content": "x"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let config = format!(
        "server: {{auth: {{api_keys: true}}}}
tools: {{write_file: {{requires_approval: false}}}}
agents: {{a: {{llm: s, tools: [write_file], task: {{}}, session_store: main}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: kept.db}}}}}}
policy: {{rules: [{rule}]}}
"
    );
    folder(&[("s", &script)], &config)
}

/// Two of three must agree: a hold is taken, given back, assigned and delegated on its page, who stands in votes there, and the
/// page says how the vote stands. What makes no sense changes nothing, and the page says why.
#[test]
fn a_hold_is_handed_around_and_voted_on_by_pages() {
    let folder = writer_held_by("{id: two, hold: write_file, approvers: [\"group:ops\"], quorum: 2}");
    let at = folder.path();
    let server = serve(at);
    let (ann, bob, cy, dee) =
        (key(at, "ann", "dev"), key(at, "bob", "ops"), key(at, "cy", "ops"), key(at, "dee", "dev"));
    let held = server.ask_anyway(&["send", "a", "go", "--wait", "--key", &ann]);
    let id = text(&held["holds"][0]["id"]).to_owned();
    let (page, people) = (format!("/approve/{id}"), format!("/approve/{id}/people"));
    let (bob, cy, dee) =
        (Browser::with_key(&server, &bob), Browser::with_key(&server, &cy), Browser::with_key(&server, &dee));
    let ann = Browser::with_key(&server, &ann);
    assert!(!ann.page(&page).contains("Who is asked"), "only who may decide says who is asked");
    let send = |browser: &Browser, action: &str, to: &str, hours: &str| {
        let shown = browser.page(&page);
        let fields = [("csrf", field(&shown, "csrf")), ("once", field(&shown, "once"))];
        let fields = fields.into_iter().chain([
            ("action", action.to_owned()),
            ("to", to.to_owned()),
            ("hours", hours.to_owned()),
        ]);
        let fields: Vec<(String, String)> = fields.map(|(name, value)| (name.to_owned(), value)).collect();
        browser.post(&people, &fields)
    };
    assert_eq!(send(&bob, "take", "", "").0, 303);
    let shown = bob.page(&page);
    assert!(shown.contains("Who is asked: bob") && !shown.contains("Assign it to me"), "{shown}");
    assert!(shown.contains("<strong>0 of 2</strong> approvals"), "{shown}");
    assert_eq!(send(&cy, "release", "", "").0, 303);
    assert!(!bob.page(&page).contains("Who is asked:"));
    assert_eq!(send(&bob, "assign", "cy", "3").0, 303);
    assert!(cy.page(&page).contains("Who is asked: cy"));
    for (action, to, hours, why) in [
        ("assign", "", "", "Enter who."),
        ("delegate", "dee", "", "Enter for how many hours."),
        ("delegate", "dee", "-1", "a whole number of hours"),
        ("reopen", "", "", "has not expired"),
        ("grab", "", "", "The form has no action."),
    ] {
        let (status, told) = send(&bob, action, to, hours);
        assert!((400..500).contains(&status) && told.contains(why), "{action} {status}: {told}");
    }
    let (status, _) = ann.post(&people, &[("action".into(), "take".into())]);
    assert!((400..500).contains(&status), "a form without its token: {status}");
    assert_eq!(dee.get(&page).0, 404, "nobody has asked dee yet");
    assert_eq!(send(&bob, "delegate", "dee", "24").0, 303);
    assert!(cy.page(&page).contains("In place of bob"));
    let approve = |browser: &Browser| decide(browser, &id, "approve").0;
    assert_eq!(approve(&dee), 303);
    let shown = cy.page(&page);
    assert!(shown.contains("<strong>1 of 2</strong> approvals: dee"), "{shown}");
    assert!(shown.contains("the approvals so far are void"), "an edit says what it does to votes: {shown}");
    assert!(!at.join("workspace/a.txt").exists());
    assert_eq!(approve(&cy), 303);
    let shown = cy.page(&page);
    assert!(shown.contains("Approved") && !shown.contains("Who is asked"), "{shown}");
    let receipt = cy.page(&format!("/approve/{id}/receipt"));
    assert!(receipt.contains("dee in place of bob"), "{receipt}");
    assert!(at.join("workspace/a.txt").exists());
}

/// Rules are replaced while calls wait: the page says what changed since it was asked and what can be done about it. Asked again it is
/// another revision, by what is there now; whoever decides then denies it, or cancels the run.
#[test]
fn what_changed_is_shown_and_asked_again_on_the_page() {
    let script = json!({"replies": [
        {"calls": [{"tool": "write_file", "arguments": json!({"path": "a.txt", "content": "x"}).to_string()}]},
        {"text": "done"},
    ]});
    let rules = |because: &str| {
        format!(
            "llms: {{s: {{type: scripted, script: s.script.yaml}}}}
agents: {{a: {{llm: s, tools: [write_file], task: {{}}, session_store: main}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: kept.db}}}}}}
policy: {{rules: [{{id: one, hold: write_file, because: {because}}}]}}
"
        )
    };
    let folder = folder(&[("s", &script.to_string())], "");
    let at = folder.path();
    std::fs::write(at.join("standfast.yaml"), rules("it is read by others")).unwrap();
    let log_file = at.join("server.log");
    let server = logging(at, &log_file);
    let runs = [server.send("a"), server.send("a")];
    let [first, second] = [0, 1].map(|no: usize| text(&runs[no]["holds"][0]["id"]).to_owned());
    let browser = Browser::of(&server);
    let page = browser.page(&format!("/approve/{first}"));
    assert!(
        !page.contains("Changed since this was asked.") && page.contains("it is read by others"),
        "{page}"
    );
    replaced(at, &rules("it is read by everybody"));
    until("the new rules count", || reloads(&log_file) == 1);
    for (hold, run) in [(&first, &runs[0]), (&second, &runs[1])] {
        let page = browser.page(&format!("/approve/{hold}"));
        assert!(page.contains("Changed since this was asked.</strong> The policy has changed."), "{page}");
        let cancels = format!("<a href=\"/runs/{}\">the page of the run</a>", text(&run["id"]));
        assert!(page.contains("Ask again") && page.contains(&cancels), "{page}");
        let again = post_form(&browser, hold, ("/people", &["revision"]), ("action", "again"));
        assert_eq!(again.0, 303, "{}", again.1);
        let page = browser.page(&format!("/approve/{hold}"));
        assert_eq!(field(&page, "revision"), "1");
        assert!(page.contains("it is read by everybody"), "{page}");
        assert!(!page.contains("Changed since this was asked."), "{page}");
    }
    assert_eq!(decide(&browser, &first, "deny").0, 303);
    assert_eq!(server.run_once(text(&runs[0]["id"]), "completed")["status"], "completed");
    let run = format!("/runs/{}", text(&runs[1]["id"]));
    let form = [("csrf".to_owned(), field(&browser.page(&run), "csrf"))];
    assert_eq!(browser.post(&format!("{run}/cancel"), &form).0, 303);
    server.run_once(text(&runs[1]["id"]), "canceled");
    assert!(!at.join("workspace/a.txt").exists());
}
