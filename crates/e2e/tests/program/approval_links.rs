//! Approval links with the real program: looking decides nothing, the form decides once, for one person and one version (T6, T7,
//! T8, T13).
//!
//! A browser is a client without cookies here, as that of somebody who comes from a mail is; `crates/e2e/browser` has a real one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::{Answer, Http, Process, folder, serve_command, standfast, start, text};
use tempfile::TempDir;

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo <b>hello</b>\"}'\n- text: done\n";

const FIRST: &str = "the first key of links, long enough";
const SECOND: &str = "the second key of links, long enough";

const PEOPLE: &str = "{alice: {groups: [ops]}, bob: {}, carol: {groups: [ops]}}";

/// A browser that opens a page.
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn config(server: &str, people: &str) -> String {
    format!(
        "server: {server}
people: {people}
tools: {{execute_command: {{sandbox: off}}}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: script, session_store: db, approvers: ['group:ops', 'user:local'], tools: [execute_command], task: {{input_timeout: 2h}}}}}}
"
    )
}

fn links(key: &str, rest: &str) -> String {
    format!("{{links: {{key: '{key}', sign_in: none, issue_by_admin: true{rest}}}}}")
}

struct Site {
    folder: TempDir,
    server: Process,
}

impl Site {
    fn new(server: &str, people: &str) -> Site {
        let folder = folder(&[("script", SCRIPT)], &config(server, people));
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        let server = serve(folder.path());
        Site { folder, server }
    }

    /// The same data under another configuration, after `kill -9`.
    fn again(self, server: &str, people: &str) -> Site {
        let Site { folder, server: before } = self;
        drop(before);
        let llms = "llms:\n  script: {type: scripted, script: script.script.yaml}\n";
        let text = format!("{llms}{}", config(server, people));
        std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
        let server = serve(folder.path());
        Site { folder, server }
    }

    /// A run that waits, and its hold.
    fn held(&self) -> (String, String) {
        let run = self.server.send("ops");
        (text(&run["id"]).to_owned(), text(&run["holds"][0]["id"]).to_owned())
    }

    /// The path of a link that was issued.
    fn link(&self, hold: &str, user: &str) -> String {
        let issued = self.server.ask(&["holds", "link", hold, "--for", user]);
        assert_eq!(issued["for"], user, "{issued}");
        let url = text(&issued["url"]);
        url.strip_prefix(&self.server.base).unwrap_or_else(|| panic!("{url}")).to_owned()
    }

    async fn get(&self, path: &str) -> Answer {
        Http::new(&self.server.base).send("GET", path, &[HTML], "").await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = [&[FORM, HTML], headers].concat();
        Http::new(&self.server.base).send("POST", path, &headers, body).await
    }

    fn status(&self, run: &str) -> String {
        text(&self.server.run(run)["status"]).to_owned()
    }

    fn starts(&self, run: &str) -> usize {
        self.server.ask(&["show", run]).to_string().matches("\"call.started\"").count()
    }
}

fn serve(folder: &Path) -> Process {
    let mut command = serve_command(folder);
    // Everything that anything in the program can say.
    let log = File::options().append(true).create(true).open(folder.join("log")).unwrap();
    start(command.env("RUST_LOG", "trace").stderr(log))
}

/// The fields that the forms of a page carry.
fn fields(page: &Answer) -> String {
    format!("nonce={}&form={}", page.field("nonce"), page.field("form"))
}

fn has_form(page: &Answer) -> bool {
    page.text.contains("<form") || page.text.contains("<button")
}

/// T6, T7: whoever opens a link, scanners of mail among them, decides nothing, and what it shows is kept to itself; its form
/// decides once. Neither the database nor the log has the link.
#[tokio::test]
async fn t6_looking_at_a_link_decides_nothing_and_its_form_decides_once() {
    let site = Site::new(&links(FIRST, ""), PEOPLE);
    let (run, hold) = site.held();
    let link = site.link(&hold, "alice");
    for method in ["GET", "HEAD", "GET", "OPTIONS", "PUT", "DELETE", "PATCH"] {
        Http::new(&site.server.base).send(method, &link, &[HTML], "").await;
    }
    let page = site.get(&link).await;
    assert_eq!(page.status, 200, "{}", page.text);
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("x-robots-tag", "noindex, nofollow"),
    ] {
        assert_eq!(page.headers[name], value, "{name}");
    }
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{policy}");
    assert!(!page.headers.contains_key("set-cookie") && !page.text.contains("<script"), "{}", page.text);
    assert!(page.text.contains("echo &lt;b&gt;hello&lt;") && page.text.contains("<strong>alice</strong>"));
    let approve = format!("{}&decision=approve", fields(&page));
    for (headers, body, status) in [
        (vec![], "decision=approve".to_owned(), 403),
        (vec![], approve.replace("form=", "form=x"), 403),
        (vec![], approve.replace("nonce=", "nonce=x"), 403),
        (vec![("origin", "https://evil.example")], approve.clone(), 403),
        (vec![("origin", "null"), ("sec-fetch-site", "cross-site")], approve.clone(), 403),
        (vec![], format!("{}&decision=edit&arguments=%7B%7D", fields(&page)), 422),
        (vec![], fields(&page), 422),
    ] {
        let refused = site.post(&link, &headers, &body).await;
        assert_eq!(refused.status, status, "{headers:?} {body}: {}", refused.text);
    }
    assert_eq!((site.status(&run), site.starts(&run)), ("held".to_owned(), 0));
    let done = site.post(&link, &[("origin", "null"), ("sec-fetch-site", "same-origin")], &approve).await;
    assert_eq!(
        (done.status, done.headers["location"].to_str().unwrap()),
        (303, link.as_str()),
        "{}",
        done.text
    );
    site.server.run_once(&run, "completed");
    // The same click again is the same click; another one is told what was decided.
    assert_eq!(site.post(&link, &[], &approve).await.status, 303);
    let late = site.post(&link, &[], &approve.replace("decision=approve", "decision=deny")).await;
    assert!(late.status == 409 && late.text.contains("Already decided"), "{} {}", late.status, late.text);
    let after = site.get(&link).await;
    assert!(after.status == 200 && !has_form(&after), "{}", after.text);
    assert!(after.text.contains("Approved") && after.text.contains("alice (by link)"), "{}", after.text);
    assert_eq!(site.starts(&run), 1);
    let shown = site.server.ask(&["show", &run]).to_string();
    assert!(shown.contains("link:alice"), "{shown}");
    let token = link.strip_prefix("/link/").unwrap();
    let signature = token.rsplit('.').next().unwrap();
    drop(site.server);
    assert_no_file_says(site.folder.path(), signature);
    // The audit says for whom a link was issued.
    let database = site.folder.path().join("kept.db");
    assert!(everything_in(site.folder.path()).contains("link.issued"), "{}", database.display());
}

/// Every byte below a folder, as far as it is text.
fn everything_in(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push_str(&everything_in(&path));
        } else {
            all.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
    all
}

fn assert_no_file_says(folder: &Path, secret: &str) {
    let all = everything_in(folder);
    assert!(all.contains("holds: decided"), "the log is there");
    let at = all.find(secret).map(|at| all[..at].lines().next_back().unwrap_or_default().to_owned());
    assert_eq!(at, None, "a link is in a file");
}

/// C7: the link to a hold that has expired and is kept says that a late decision still counts, and once it is decided, that it was late.
#[tokio::test]
async fn a_link_says_what_is_late() {
    let site = Site::new(&links(FIRST, ""), PEOPLE);
    let file = site.folder.path().join("standfast.yaml");
    let written = std::fs::read_to_string(&file).unwrap();
    let keeps = "task: {input_timeout: 1, hitl: {on_timeout: keep, expiry_grace: 2d}}";
    std::fs::write(&file, written.replace("task: {input_timeout: 2h}", keeps)).unwrap();
    let Site { folder, server } = site;
    drop(server);
    let server = serve(folder.path());
    let site = Site { folder, server };
    let (run, hold) = site.held();
    site.server
        .until(&run, "expired", |_| site.server.ask(&["holds", "show", &hold])["expired_at"].is_string());
    let link = site.link(&hold, "alice");
    let page = site.get(&link).await;
    assert!(page.status == 200 && has_form(&page), "{} {}", page.status, page.text);
    assert!(page.text.contains("The deadline has passed; a late decision still counts"), "{}", page.text);
    let done = site.post(&link, &[], &format!("{}&decision=approve", fields(&page))).await;
    assert_eq!(done.status, 303, "{}", done.text);
    assert_eq!(site.server.ask(&["holds", "show", &hold])["late"], true);
    let after = site.get(&link).await;
    assert!(after.text.contains("after the deadline"), "{}", after.text);
}

/// T8: a link decides the version that it was issued for: after an edit it shows what is asked now, without a button, and a
/// form from before decides nothing. A link with anything of it changed opens nothing.
#[tokio::test]
async fn t8_a_link_is_for_one_version_of_one_hold() {
    let site = Site::new(&links(FIRST, ""), PEOPLE);
    let (run, hold) = site.held();
    let link = site.link(&hold, "alice");
    let before = format!("{}&decision=approve", fields(&site.get(&link).await));
    let edit = json!({"arguments": {"command": "echo other"}, "revision": 0});
    let edited = Http::new(&site.server.base).post(&format!("/api/v1/holds/{hold}/edit"), &edit).await;
    assert_eq!(edited.status, 200, "{}", edited.text);
    let page = site.get(&link).await;
    assert!(page.status == 200 && page.text.contains("another version"), "{}", page.text);
    assert!(page.text.contains("echo other") && !has_form(&page), "{}", page.text);
    let refused = site.post(&link, &[], &before).await;
    assert!(refused.status == 409 && refused.text.contains("another version"), "{}", refused.text);
    assert_eq!((site.status(&run), site.starts(&run)), ("held".to_owned(), 0));
    // A form of one link is none of another, and a changed link is none at all.
    let (_, second) = site.held();
    let other = site.link(&second, "alice");
    assert_eq!(site.post(&other, &[], &before).await.status, 403);
    for path in
        [format!("{other}x"), other.replace("/link/", "/link/x"), "/link/a.b.c".into(), "/link/x".into()]
    {
        for answer in [site.get(&path).await, site.post(&path, &[], &before).await] {
            assert_eq!(answer.status, 404, "{path} {}", answer.text);
            assert_eq!(answer.headers["referrer-policy"], "no-referrer");
        }
    }
    let fresh = site.link(&hold, "alice");
    let deny = format!("{}&decision=deny&reason=too+loud", fields(&site.get(&fresh).await));
    assert_eq!(site.post(&fresh, &[], &deny).await.status, 303);
    assert!(site.get(&fresh).await.text.contains("Denied"));
    assert!(site.server.ask(&["show", &run]).to_string().contains("too loud"));
}

/// T13: who may decide is asked when the form is sent: whoever left the group sees nothing, and whoever left the configuration
/// has no link any more. Nobody gets one for somebody who may not decide.
#[tokio::test]
async fn t13_a_link_of_somebody_who_left_decides_nothing() {
    let site = Site::new(&links(FIRST, ""), PEOPLE);
    let (run, hold) = site.held();
    let (alice, carol) = (site.link(&hold, "alice"), site.link(&hold, "carol"));
    let body = |page: &Answer| format!("{}&decision=approve", fields(page));
    let (of_alice, of_carol) = (body(&site.get(&alice).await), body(&site.get(&carol).await));
    for (user, why) in [("bob", "may not see"), ("dave", "people")] {
        let refused = site.server.refused(&["holds", "link", &hold, "--for", user]);
        assert!(refused.contains(why), "{refused}");
    }
    let site = site.again(&links(FIRST, ""), "{alice: {}, bob: {}}");
    let left = site.post(&alice, &[], &of_alice).await;
    assert_eq!(left.status, 404, "{}", left.text);
    assert_eq!(site.get(&alice).await.status, 404);
    let gone = site.post(&carol, &[], &of_carol).await;
    assert!(gone.status == 403 && gone.text.contains("not asked here any more"), "{}", gone.text);
    assert_eq!((site.status(&run), site.starts(&run)), ("held".to_owned(), 0));
    // Back in the group, the same link counts again.
    let site = site.again(&links(FIRST, ""), PEOPLE);
    assert_eq!(site.post(&alice, &[], &of_alice).await.status, 303);
    site.server.run_once(&run, "completed");
}

/// T7: links end; they count through a rotation of the key, and not without it; without keys there are none.
#[tokio::test]
async fn t7_links_end_and_outlive_a_rotation() {
    let site = Site::new(&links(FIRST, ""), PEOPLE);
    let (run, hold) = site.held();
    let first = site.link(&hold, "alice");
    let form = format!("{}&decision=approve", fields(&site.get(&first).await));
    let site = site.again(&links(SECOND, ""), PEOPLE);
    assert_eq!(site.get(&first).await.status, 404, "its key is not known any more");
    let rotated = links(SECOND, &format!(", previous_keys: ['{FIRST}']"));
    let site = site.again(&rotated, PEOPLE);
    let second = site.link(&hold, "carol");
    assert_eq!((site.get(&first).await.status, site.get(&second).await.status), (200, 200));
    assert_eq!(site.post(&first, &[], &form).await.status, 303);
    site.server.run_once(&run, "completed");
    assert!(site.get(&second).await.text.contains("alice (by link)"), "the other one shows what was decided");
    // Both end.
    let site = site.again(&links(SECOND, ", expires: 1s"), PEOPLE);
    let (_, hold) = site.held();
    let short = site.link(&hold, "alice");
    let base = site.server.base.clone();
    let mut ended = site.get(&short).await;
    for _ in 0..100 {
        if ended.status == 410 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        ended = Http::new(&base).send("GET", &short, &[HTML], "").await;
    }
    assert!(ended.status == 410 && ended.text.contains("expired") && !has_form(&ended), "{}", ended.text);
    let site = site.again("{}", PEOPLE);
    assert_eq!(site.get(&second).await.status, 404);
    let off = site.server.refused(&["holds", "link", &hold, "--for", "alice"]);
    assert!(off.contains("server.links.key"), "{off}");
}

/// T7: with `sign_in: required` a link shows nothing before its person has signed in, and nothing to anybody else; only admins
/// have links issued.
#[tokio::test]
async fn t7_a_link_can_need_a_sign_in() {
    let server = format!("{{auth: {{api_keys: true}}, links: {{key: '{FIRST}'}}}}");
    let site = Site::new(&server, PEOPLE);
    let key = |arguments: &[&str]| {
        let mut command = standfast();
        let config = site.folder.path().join("standfast.yaml");
        command.args(["keys", "create"]).args(arguments).arg("--config").arg(config);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    let admin = key(&["--user", "root", "--scope", "admin"]);
    let alice = key(&["--user", "alice", "--group", "ops"]);
    let bob = key(&["--user", "bob"]);
    let api = |key: &str| Http::new(&site.server.base).with_key(key);
    let started = json!({"input": "please", "wait": "settled"});
    let run: Value = api(&admin).post("/api/v1/agents/ops/runs", &started).await.body;
    let hold = text(&run["holds"][0]["id"]).to_owned();
    let issue = format!("/api/v1/holds/{hold}/link");
    let wanted = json!({"for": "alice"});
    assert_eq!(api(&alice).post(&issue, &wanted).await.status, 403);
    let issued = api(&admin).post(&issue, &wanted).await;
    assert_eq!((issued.status, &issued.headers["cache-control"]), (201, &"no-store".parse().unwrap()));
    let link = text(&issued.body["url"]).strip_prefix(&site.server.base).unwrap().to_owned();
    let closed = site.get(&link).await;
    assert!(
        closed.status == 401 && closed.text.contains("Sign in") && !closed.text.contains("hello"),
        "{closed:?}"
    );
    let session = async |typed: &str| {
        let page = site.get("/sign-in").await;
        let cookie = page.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let token = cookie.split_once('=').unwrap().1.to_owned();
        let form = format!("csrf={token}&key={typed}&next={}", link.replace('/', "%2F"));
        let done = site.post("/sign-in", &[("cookie", &cookie)], &form).await;
        assert_eq!(
            (done.status, done.headers["location"].to_str().unwrap()),
            (303, link.as_str()),
            "{done:?}"
        );
        done.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
    };
    let (alices, bobs) = (session(&alice).await, session(&bob).await);
    let opened = async |cookie: &str| {
        Http::new(&site.server.base).send("GET", &link, &[HTML, ("cookie", cookie)], "").await
    };
    let other = opened(&bobs).await;
    assert!(other.status == 403 && other.text.contains("signed in as bob"), "{}", other.text);
    let page = opened(&alices).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let approve = format!("{}&decision=approve", fields(&page));
    assert_eq!(site.post(&link, &[], &approve).await.status, 401);
    assert_eq!(site.post(&link, &[("cookie", &bobs)], &approve).await.status, 403);
    assert_eq!(site.post(&link, &[("cookie", &alices)], &approve).await.status, 303);
    let id = text(&run["id"]).to_owned();
    let state = async || api(&admin).get(&format!("/api/v1/runs/{id}")).await.body["status"].clone();
    for _ in 0..200 {
        if state().await == "completed" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(state().await, "completed");
}

/// T12: whoever configures does not thereby decide: with `sign_in: none` an admin is not handed a link of somebody else, by the API or the
/// command line, and none is recorded as issued; one for themselves they are. With a sign-in a link is no use to others, so they get it.
#[tokio::test]
async fn t12_an_admin_is_not_handed_what_lets_them_decide_as_somebody_else() {
    let people = "{alice: {groups: [ops]}, local: {groups: [ops]}}";
    let site = Site::new(&format!("{{links: {{key: '{FIRST}', sign_in: none}}}}"), people);
    let (run, hold) = site.held();
    let http = Http::new(&site.server.base);
    let issue = async |user: &str| {
        let body = json!({"for": user}).to_string();
        let headers = [("content-type", "application/json")];
        http.send("POST", &format!("/api/v1/holds/{hold}/link"), &headers, &body).await
    };
    let refused = issue("alice").await;
    assert!(refused.status == 403 && refused.text.contains("issue_by_admin"), "{}", refused.text);
    assert!(!refused.text.contains("/link/"), "{}", refused.text);
    let mut program = standfast();
    let said = program.args(["holds", "link", &hold, "--for", "alice", "--server", &site.server.base]);
    let said = said.output().unwrap();
    assert!(!said.status.success() && said.stdout.is_empty(), "{said:?}");
    assert_eq!(site.status(&run), "held");
    let own = issue("local").await;
    assert_eq!(own.status, 201, "{}", own.text);
    let database = rusqlite::Connection::open(site.folder.path().join("kept.db")).unwrap();
    let count = "SELECT count(*) FROM audit WHERE entry LIKE '%link.issued%'";
    assert_eq!(database.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

/// What does not go together is a mistake of the file.
#[test]
fn links_that_nobody_can_use_are_refused() {
    for (server, wrong) in [
        (format!("{{links: {{key: '{FIRST}'}}}}"), "sign_in: none"),
        ("{links: {key: short, sign_in: none}}".to_owned(), "32 characters"),
        (links(FIRST, ", expires: 90d"), "31 days"),
        ("{links: {sign_in: none}}".to_owned(), "key"),
    ] {
        let folder = folder(&[("script", SCRIPT)], &config(&server, PEOPLE));
        let checked = standfast().arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
        assert!(checked.status.code() == Some(1) && said.contains(wrong), "{server}: {said}");
    }
}
