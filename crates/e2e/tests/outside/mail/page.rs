//! The page docs/mail.md as its reader follows it: its configuration, its link, its command, and what its people want.

use serde_json::json;
use standfast_testkit::{free_port, standfast, text, until_found};

use super::*;
use crate::pages::{block, page, with};

/// What the page leaves to its reader: an agent whose holds the group of the page decides.
const REST: &str = "tools: {execute_command: {sandbox: off}}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, approvers: ['group:ops'], tools: [execute_command], task: {input_timeout: 2h}}}
";

fn key(folder: &Path, arguments: &[&str]) -> String {
    let mut command = standfast();
    command.args(["keys", "create"]).args(arguments).arg("--config").arg(folder.join("standfast.yaml"));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Signs in with a key on the way to this page, and gives the cookie.
async fn signs_in(http: &Http, typed: &str, next: &str) -> String {
    let cookie_of = |answer: &Answer| {
        answer.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
    };
    let cookie = cookie_of(&http.send("GET", "/sign-in", &[HTML], "").await);
    let (_, token) = cookie.split_once('=').unwrap();
    let form = format!("csrf={token}&key={typed}&next={}", next.replace('/', "%2F"));
    let done = http.send("POST", "/sign-in", &[FORM, HTML, ("cookie", &cookie)], &form).await;
    assert_eq!(done.status, 303, "{done:?}");
    cookie_of(&done)
}

/// The person of the page who is asked gets a mail, whose link shows nothing before she has signed in and decides when its form is sent;
/// nobody else gets one. The command of the page lists the subscription behind it, and what people want is a file that is served.
#[tokio::test]
async fn the_page_of_mail_asks_people_by_mail() {
    let page = page("mail.md");
    let folder = folder(&[("script", SCRIPT)], "");
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let mails = MailServer::start("starttls", folder.path());
    let port = free_port();
    let host = format!("host: localhost\n  port: {}\n  certificate_authority: ca.pem", mails.port);
    let printed = with(
        block(&page, "yaml", 0),
        &[
            ("host: smtp.example.com", &host),
            ("https://approve.example.com", &format!("http://127.0.0.1:{port}")),
        ],
    );
    let file = folder.path().join("standfast.yaml");
    let llms = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{llms}{printed}\n{REST}")).unwrap();
    let secrets = "SMTP_PASSWORD=canary-password\nLINK_KEY=the key of links, which is long enough\n";
    std::fs::write(folder.path().join(".env"), secrets).unwrap();
    let (root, alice) = (
        key(folder.path(), &["--user", "root", "--scope", "admin"]),
        key(folder.path(), &["--user", "alice", "--group", "ops"]),
    );
    let server = serve(folder.path(), port);
    let admin = Http::new(&server.base).with_key(&root);
    let run =
        admin.post("/api/v1/agents/ops/runs", &json!({"input": "please", "wait": "settled"})).await.body;
    let mail = mails.mail(1);
    assert_eq!((mail.header("x-to"), mail.header("x-tls")), ("alice@example.com", "True"));
    let link = mail.link().unwrap_or_else(|| panic!("{}", mail.text)).to_owned();
    let http = Http::new(&server.base);
    let closed = http.send("GET", &link, &[HTML], "").await;
    assert!(closed.status == 401 && !closed.text.contains("canary-argument"), "{}", closed.text);
    let path = link.strip_prefix(&server.base).unwrap();
    let cookie = signs_in(&http, &alice, path).await;
    let shown = http.send("GET", &link, &[HTML, ("cookie", &cookie)], "").await;
    assert!(shown.text.contains("canary-argument"), "{}", shown.text);
    let form = format!("{}&decision=approve", fields(&shown));
    let sent = http.send("POST", &link, &[FORM, HTML, ("cookie", &cookie)], &form).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let run = format!("/api/v1/runs/{}", text(&run["id"]));
    until_found("the run has ended", async || {
        (admin.get(&run).await.body["status"] == "completed").then_some(())
    })
    .await;
    let decided = mails.mail(2);
    assert_eq!(decided.header("subject"), "Approved: Approve execute_command?");
    assert_eq!((decided.header("x-to"), mails.count()), ("alice@example.com", 2));

    assert_eq!(block(&page, "console", 0), "$ standfast subscriptions list");
    let mut command = standfast();
    command.args(["subscriptions", "list", "--server", &server.base]).env("STANDFAST_KEY", &root);
    let listed = command.output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("channel:mail"), "{listed:?}");

    drop(server);
    let (_, rest) = printed.split_once("\nchannels:\n").unwrap();
    let wishes = block(&page, "yaml", 1);
    std::fs::write(&file, format!("{llms}{wishes}\nchannels:\n{rest}\n{REST}")).unwrap();
    let server = serve(folder.path(), port);
    assert_eq!(Http::new(&server.base).get("/healthz").await.status, 200);
}
