//! Mail to approvers with the real program and a real mail server (aiosmtpd): who is notified, what a mail says, and that its link
//! decides (T6, T13, T19, T20, T29).
//!
//! `server.py` is the mail server, `read.py` reads a mail as a program of a reader would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod page;
mod stand_ins;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use standfast_testkit::binary::{repository_root, target_folder};
use standfast_testkit::{Answer, Http, Process, certify, folder, free_port, standfast, start, text, until};
use tempfile::TempDir;

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo <b>canary-argument</b>\"}'\n- text: done\n";

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A mail server; dropping it kills it.
pub(crate) struct MailServer {
    child: Child,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python(script: &str) -> Command {
    let mut command = Command::new(target_folder().join("mail-server/bin/python"));
    command.arg(repository_root().join("crates/e2e/tests/outside/mail").join(script));
    command
}

impl MailServer {
    pub(crate) fn start(mode: &str, above: &Path) -> MailServer {
        let folder = above.join("mails");
        std::fs::create_dir(&folder).unwrap();
        if mode != "plain" {
            certify(above, 1);
        }
        let mut command = python("server.py");
        let mut child = command.arg(mode).arg(&folder).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("the mail server did not start: {line:?}"));
        MailServer { child, port, folder }
    }

    fn refuse(&self, how: &str) {
        std::fs::write(self.folder.join("refuse"), how).unwrap();
    }

    /// The mail with this number, once it came.
    fn mail(&self, no: usize) -> Mail {
        let path = self.folder.join(format!("{no}.eml"));
        until(&format!("mail {no} came"), || path.exists());
        Mail::read(&path)
    }

    fn count(&self) -> usize {
        let all = std::fs::read_dir(&self.folder).unwrap();
        all.filter(|one| one.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "eml")).count()
    }
}

/// A mail as its reader has it.
struct Mail {
    headers: Vec<(String, String)>,
    text: String,
    html: String,
}

impl Mail {
    fn read(path: &Path) -> Mail {
        let read = python("read.py").arg(path).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let read: Value = serde_json::from_slice(&read.stdout).unwrap();
        let pair = |pair: &Value| (text(&pair[0]).to_owned(), text(&pair[1]).to_owned());
        Mail {
            headers: read["headers"].as_array().unwrap().iter().map(pair).collect(),
            text: text(&read["text"]).to_owned(),
            html: text(&read["html"]).to_owned(),
        }
    }

    /// The one header of this name.
    fn header(&self, name: &str) -> &str {
        let all: Vec<&str> =
            self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
        assert_eq!(all.len(), 1, "{name}: {:?}", self.headers);
        all[0]
    }

    /// The approval link, if there is one.
    fn link(&self) -> Option<&str> {
        self.text.lines().find(|line| line.contains("/link/"))
    }
}

struct Site {
    folder: TempDir,
    server: Process,
    mails: MailServer,
}

/// What the agent says of its holds, beside who approves.
const TASK: &str = "{input_timeout: 2h}";

impl Site {
    /// A server with a channel in this mode; the rest of the channel and of the agent as they are given.
    fn new(mode: &str, script: &str, channel: &str, task: &str) -> Site {
        let folder = folder(&[("script", script)], "");
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        let mails = MailServer::start(mode, folder.path());
        let port = free_port();
        let tls = if mode == "plain" { "off" } else { mode };
        let rest = format!(
            "server:
  public_url: http://127.0.0.1:{port}
  links: {{key: 'the key of links, which is long enough', sign_in: none}}
  webhooks: {{retries: [1s, 1s, 1s]}}
people:
  alice: {{mail: alice@example.com, groups: [ops]}}
  bob: {{mail: bob@example.com}}
  carol: {{groups: [ops]}}
channels:
- {{type: mail, from: 'Standfast <approvals@example.com>', host: localhost, port: {}, tls: {tls}{channel}}}
tools: {{execute_command: {{sandbox: off}}}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: script, session_store: db, approvers: ['group:ops', 'user:local'], tools: [execute_command], task: {task}}}}}
",
            mails.port
        );
        let config = folder.path().join("standfast.yaml");
        let llms = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{llms}{rest}")).unwrap();
        let server = serve(folder.path(), port);
        Site { folder, server, mails }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

fn serve(folder: &Path, port: u16) -> Process {
    let mut command = standfast();
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"])
        .arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env_remove("STANDFAST_KEY").env("RUST_LOG", "trace");
    let log = File::options().append(true).create(true).open(folder.join("log")).unwrap();
    start(command.stderr(log))
}

/// The fields that the forms of a page carry.
fn fields(page: &Answer) -> String {
    format!("nonce={}&form={}", page.field("nonce"), page.field("form"))
}

/// T6, T13, T20, T29: a hold opens and its approver, nobody else, gets a mail over STARTTLS, as text and as HTML with everything
/// escaped; the link of the mail shows the call when it is opened and decides when its form is sent; then a second mail of the same
/// conversation says what was decided. Password and link are in no log and no row.
#[tokio::test]
async fn t6_a_mail_brings_a_link_that_decides_when_its_form_is_sent() {
    let login = ", certificate_authority: ca.pem, user: standfast, password: canary-password";
    let site = Site::new("starttls", SCRIPT, login, TASK);
    let run = site.server.send("ops");
    let (id, hold) = (text(&run["id"]).to_owned(), text(&run["holds"][0]["id"]).to_owned());
    let mail = site.mails.mail(1);
    assert_eq!((mail.header("x-to"), mail.header("x-tls")), ("alice@example.com", "True"));
    assert_eq!(mail.header("from"), "Standfast <approvals@example.com>");
    assert_eq!(mail.header("subject"), "Approve execute_command?");
    assert_eq!(mail.header("auto-submitted"), "auto-generated");
    assert!(mail.text.contains("echo <b>canary-argument</b>") && mail.text.contains(&hold), "{}", mail.text);
    assert!(mail.html.contains("&lt;b&gt;canary-argument") && !mail.html.contains("<b>"), "{}", mail.html);
    assert!(mail.text.contains("Deadline: ") && mail.text.contains("Started by: local"), "{}", mail.text);
    let link = mail.link().unwrap_or_else(|| panic!("{}", mail.text)).to_owned();
    let http = Http::new(&site.server.base);
    for _ in 0..3 {
        assert_eq!(http.send("GET", &link, &[HTML], "").await.status, 200);
    }
    let page = http.send("GET", &link, &[HTML], "").await;
    assert!(page.text.contains("canary-argument") && page.text.contains("alice"), "{}", page.text);
    assert_eq!(text(&site.server.run(&id)["status"]), "held", "looking decides nothing");
    let body = format!("{}&decision=approve", fields(&page));
    assert_eq!(http.send("POST", &link, &[FORM, HTML], &body).await.status, 303);
    site.server.run_once(&id, "completed");
    let decided = site.mails.mail(2);
    assert_eq!(decided.header("subject"), "Approved: Approve execute_command?");
    assert!(decided.text.contains("by alice (by link)") && decided.link().is_none(), "{}", decided.text);
    assert_eq!(decided.header("references"), mail.header("references"), "one conversation");
    assert_ne!(decided.header("message-id"), mail.header("message-id"));
    assert_eq!(site.mails.count(), 2, "nobody else is asked, so nobody else is told");
    let listed = site.server.ask(&["subscriptions", "list"]).to_string();
    assert!(listed.contains("channel:mail"), "{listed}");
    let log = site.log();
    let signature = link.rsplit('.').next().unwrap().to_owned();
    drop(site.server);
    for secret in ["canary-password", signature.as_str()] {
        assert!(!log.contains(secret), "it is in the log");
        for file in ["kept.db", "kept.db-wal"] {
            let stored = std::fs::read(site.folder.path().join(file)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&stored).contains(secret), "it is in {file}");
        }
    }
}

/// A mail server that refuses for now, as greylisting does, gets the same mail again; one that never takes it leaves a dead letter,
/// which can be sent again; a kill in between loses nothing.
#[tokio::test]
async fn a_mail_that_is_refused_is_sent_again_and_never_lost() {
    let site = Site::new(
        "implicit",
        SCRIPT,
        ", certificate_authority: ca.pem, user: standfast, password: canary-password, on: [opened]",
        TASK,
    );
    site.mails.refuse("2");
    let run = site.server.send("ops");
    let mail = site.mails.mail(1);
    assert_eq!(mail.header("x-tls"), "True");
    assert!(mail.text.contains(text(&run["holds"][0]["id"])));
    assert!(site.log().contains("the mail server answered 451"), "{}", site.log().len());
    // Never taken: a dead letter that says why.
    site.mails.refuse("552");
    site.server.send("ops");
    let listed = site.server.ask(&["subscriptions", "list"]);
    let all = listed["subscriptions"].as_array().or(listed.as_array()).unwrap().clone();
    let of_agent = all.iter().find(|one| one["agent"] == "ops").unwrap_or_else(|| panic!("{listed}"));
    let id = text(&of_agent["id"]).to_owned();
    let path = format!("/api/v1/subscriptions/{id}/dead-letters");
    let http = Http::new(&site.server.base);
    let mut dead = json!(null);
    for _ in 0..600 {
        dead = http.get(&path).await.body;
        if dead.to_string().contains("552") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(dead.to_string().contains("the mail server answered 552"), "{dead}");
    // Nobody was notified of a third one when the program died; it is sent after the start.
    site.mails.refuse("9");
    site.server.send("ops");
    let Site { folder, server, mails } = site;
    let port = server.base.rsplit(':').next().unwrap().parse().unwrap();
    drop(server);
    mails.refuse("0");
    let server = serve(folder.path(), port);
    let again = mails.mail(2);
    assert_eq!(again.header("subject"), "Approve execute_command?");
    drop(server);
}

/// T19: what does not fit in a mail is not cut: the mail has neither the arguments nor a link that decides, but the page to sign in
/// at. A reminder is a mail of its own, and somebody who is asked later is notified then.
#[tokio::test]
async fn t19_a_mail_shows_all_of_it_or_has_no_link() {
    let long = "x".repeat(20_000);
    let script = format!(
        "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{{\"command\": \"echo {long}\"}}'\n- text: done\n"
    );
    let task = "{input_timeout: 2h, hitl: {remind_after: 1s, escalate_after: 1s, escalate_to: ['user:bob']}}";
    let site = Site::new("plain", &script, "", task);
    let run = site.server.send("ops");
    let first = site.mails.mail(1);
    assert!(first.link().is_none() && !first.text.contains("xxxxx"), "{}", first.text);
    assert!(
        first.text.contains("too long for a mail") && first.text.contains("/approve/hold_"),
        "{}",
        first.text
    );
    let told = |to: &str, subject: &str| {
        let found = (1..=site.mails.count()).map(|no| site.mails.mail(no));
        found.into_iter().any(|mail| mail.header("x-to") == to && mail.header("subject") == subject)
    };
    until("alice is reminded", || told("alice@example.com", "Reminder: Approve execute_command?"));
    until("bob is asked as well", || told("bob@example.com", "Escalated to you: Approve execute_command?"));
    assert_eq!(text(&run["status"]), "held");
}

/// Before the server is started, and beside it: whether the mail server answers, takes the login and is the one that it says.
#[test]
fn a_mail_server_that_cannot_be_used_is_found_before_a_mail_is_lost() {
    for (login, wanted) in [
        (
            "certificate_authority: ca.pem, user: standfast, password: canary-password",
            "ok      channel mail: ",
        ),
        (
            "certificate_authority: ca.pem, user: standfast, password: wrong-canary",
            "failed  channel mail: the mail server answered 535",
        ),
        (
            "user: standfast, password: canary-password",
            "failed  channel mail: the mail server could not be reached",
        ),
    ] {
        let site = Site::new("starttls", SCRIPT, &format!(", {login}"), TASK);
        let mut command = standfast();
        let tried = command.args(["validate", "--connect"]).current_dir(site.folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&tried.stdout);
        assert!(said.contains(wanted) && !said.contains("canary"), "{said}");
        assert_eq!(tried.status.success(), wanted.starts_with("ok"), "{said}");
    }
}

/// A mail server that greets and then says nothing holds nobody up for longer than the channel's `timeout`.
#[test]
fn a_mail_server_that_goes_silent_is_waited_for_as_long_as_configured() {
    let site = Site::new("plain", SCRIPT, ", timeout: 2s", TASK);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in silent.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(b"220 mail\r\n").unwrap();
            kept.push(stream);
        }
    });
    let config = site.folder.path().join("standfast.yaml");
    let said = std::fs::read_to_string(&config).unwrap();
    let elsewhere = said.replace(&format!("port: {}", site.mails.port), &format!("port: {port}"));
    assert_ne!(said, elsewhere);
    std::fs::write(&config, elsewhere).unwrap();
    let tried = standfast().args(["validate", "--connect"]).current_dir(site.folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(said.contains("failed  channel mail: the mail server did not answer within 2s"), "{said}");
}

/// People say what they want mail about, and when: nobody is disturbed outside of their hours, whoever wants a digest gets one mail about
/// everything that is pending, and whoever wants decisions only hears of those. A mail of an edit has the new arguments, and shortly
/// before the deadline there is a reminder.
#[tokio::test]
async fn people_are_told_what_they_want_and_when() {
    let task = "{input_timeout: 2h, hitl: {remind_before: 7196s}}";
    let site = Site::new("plain", SCRIPT, "", task);
    let folder = site.folder.path().to_owned();
    let Site { folder: kept, server, mails } = site;
    let port: u16 = server.base.rsplit(':').next().unwrap().parse().unwrap();
    drop(server);
    let config = std::fs::read_to_string(folder.join("standfast.yaml")).unwrap();
    let hour = (standfast_testkit::wait::now_ms() / 3_600_000 + 12) % 24;
    let days: Vec<String> = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
        .iter()
        .map(|day| format!("{day}: ['{hour:02}:00-{hour:02}:30']"))
        .collect();
    let people = format!(
        "  alice: {{mail: alice@example.com, groups: [ops]}}
  erin: {{mail: erin@example.com, groups: [ops], notify: {{hours: {{time_zone: UTC, days: {{{}}}}}}}}}
  dora: {{mail: dora@example.com, groups: [ops], notify: {{digest: 2s}}}}
  fred: {{mail: fred@example.com, groups: [ops], notify: {{on: [resolved]}}}}
",
        days.join(", ")
    );
    let config = config.replace("  alice: {mail: alice@example.com, groups: [ops]}\n", &people);
    std::fs::write(folder.join("standfast.yaml"), config).unwrap();
    let site = Site { folder: kept, server: serve(&folder, port), mails };
    let first = text(&site.server.send("ops")["holds"][0]["id"]).to_owned();
    let second = site.server.send("ops");
    let told = |to: &str, subject: &str| {
        let found = (1..=site.mails.count()).map(|no| site.mails.mail(no));
        found
            .into_iter()
            .filter(|mail| mail.header("x-to") == to && mail.header("subject") == subject)
            .count()
    };
    until("alice is told of both", || told("alice@example.com", "Approve execute_command?") == 2);
    until("alice is reminded", || told("alice@example.com", "Reminder: Approve execute_command?") > 0);
    until("dora has one mail about both", || told("dora@example.com", "2 decisions are pending") > 0);
    let edit = json!({"arguments": {"command": "echo other"}, "revision": 0});
    let http = Http::new(&site.server.base);
    let edited = http.post(&format!("/api/v1/holds/{first}/edit"), &edit).await;
    assert!((200..300).contains(&edited.status), "{edited:?}");
    until("alice is told of the edit", || {
        told("alice@example.com", "Changed: Approve execute_command?") == 1
    });
    let hold = text(&second["holds"][0]["id"]).to_owned();
    let denied = http.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "deny"})).await;
    assert!((200..300).contains(&denied.status), "{denied:?}");
    until("fred is told of the decision", || {
        told("fred@example.com", "Denied: Approve execute_command?") == 1
    });
    until("alice too", || told("alice@example.com", "Denied: Approve execute_command?") == 1);
    for no in 1..=site.mails.count() {
        let mail = site.mails.mail(no);
        let (to, subject) = (mail.header("x-to").to_owned(), mail.header("subject").to_owned());
        assert_ne!(to, "erin@example.com", "{subject}");
        assert!(to != "dora@example.com" || subject.ends_with("pending"), "{subject}");
        assert!(to != "fred@example.com" || subject.starts_with("Denied"), "{subject}");
        assert!(to != "dora@example.com" || (mail.link().is_none() && mail.text.contains("/approve/hold_")));
    }
}

/// What does not go together is a mistake of the file.
#[test]
fn channels_that_cannot_work_are_refused() {
    let channel = |rest: &str| {
        format!("channels: [{{type: mail, from: a@example.com, host: mail.example.com{rest}}}]\n")
    };
    let url = "server: {public_url: 'http://127.0.0.1:8080'}\n";
    for (config, wrong) in [
        (channel(""), "public_url"),
        (format!("{url}{}", channel(", tls: off")), "tls"),
        (format!("{url}{}", channel(", user: x")), "password"),
        (format!("{url}{}", channel(", agents: [nobody]")), "no such agent"),
        (format!("{url}{}", channel("").replace("a@example.com", "nobody")), "mail address"),
        (format!("{url}people: {{a: {{mail: \"a@b.c\\nBcc: x@y.z\"}}}}\n"), "mail address"),
    ] {
        let rest = format!("{config}agents: {{ops: {{llm: script}}}}\n");
        let folder = folder(&[("script", SCRIPT)], &rest);
        let checked = standfast().arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
        assert!(checked.status.code() == Some(1) && said.contains(wrong), "{config}: {said}");
    }
}

/// C7: a mail about a hold that has expired says until when a late decision still counts, and the mail about that decision says that it
/// was late.
#[tokio::test]
async fn a_mail_says_what_is_late() {
    let task = "{input_timeout: 1, hitl: {on_timeout: keep, expiry_grace: 2d}}";
    let site = Site::new("plain", SCRIPT, ", on: [expired, resolved]", task);
    let run = site.server.send("ops");
    let hold = text(&run["holds"][0]["id"]).to_owned();
    let expired = site.mails.mail(1);
    assert_eq!(expired.header("subject"), "Expired: Approve execute_command?");
    let said = "It has expired, and a late decision still counts until ";
    assert!(expired.text.contains(said) && expired.html.contains(said), "{}", expired.text);
    assert!(expired.text.contains("Expired") && !expired.text.contains("Deadline"), "{}", expired.text);
    let http = Http::new(&site.server.base);
    let path = format!("/api/v1/holds/{hold}/resolve");
    let decided = http.post(&path, &json!({"resolution": "approve"})).await;
    assert_eq!(decided.body["hold"]["late"], true, "{decided:?}");
    let late = site.mails.mail(2);
    assert!(
        late.text.contains("Approved by local at ") && late.text.contains(" UTC (late)."),
        "{}",
        late.text
    );
}
