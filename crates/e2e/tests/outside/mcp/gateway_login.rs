//! A server behind a gateway that wants a login: the gateway begins one of its own, for each user, and a call waits for it.
//!
//! The server that wants the login, and its authorization server, are those of `login.rs`; Standfast is killed in between.

use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::text;
use tempfile::TempDir;

use super::gateway::{folder, serve};
use super::gateway_calls::{Client, hold, messages, resolve, result, words};
use super::login::{Browser, keeps_tokens, protected_with};
use super::server::lines;

const VERSION: &str = "2025-11-25";

/// A gateway in front of a server that wants a login; its tool is held.
fn gateway(port: u16, more: &str) -> TempDir {
    folder(&format!("  it: {{url: 'http://127.0.0.1:{port}/mcp', wait: 30s}}\n"), more)
}

/// A client's first words, whatever comes of them.
async fn hello(http: &Http, capabilities: Value) -> Value {
    let client = Client { http: http.clone(), path: "/mcp/it".to_owned(), session: None, version: VERSION };
    let params = json!({"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": {"name": "plain", "version": "1"}});
    let answer = client.ask(json!("hello"), "initialize", params).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    messages(&answer).pop().unwrap()
}

/// The page of the login that somebody was told.
fn page(told: &Value) -> String {
    let message = text(&told["error"]["message"]);
    let at = message.find("http://127.0.0.1").unwrap_or_else(|| panic!("{message}"));
    let url = message[at..].split_whitespace().find(|word| word.contains("/login/hold_")).unwrap();
    url.trim_end_matches('.').to_owned()
}

fn end_tokens(folder: &TempDir) {
    let issued = lines(folder, "issued.txt").join("\n");
    std::fs::write(folder.path().join("place/ended.txt"), issued).unwrap();
}

/// Nobody has ever logged in: the client is told where, and its user opens that page, over a server that is killed; then everything goes
/// through. One hold waits for each user, and whoever asks again is led to the same. A login that has ended is asked for while the call
/// waits, which then runs once, with the approval that it had.
#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_begins_a_login_of_its_own() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = gateway(port, "");
    let _protected = protected_with(&folder, port, &[]);
    let address = format!("127.0.0.1:{own}");
    let (server, http) = serve(&folder, &address);
    let told = hello(&http, json!({})).await;
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!("hello"), &json!(-32603)), "{told}");
    let url = page(&told);
    let waits = hold(&http).await;
    assert_eq!((&waits["kind"], &waits["tool"]), (&json!("auth"), &json!("mcp__it__login")), "{waits}");
    assert_eq!(url, format!("http://{address}/login/{}", text(&waits["id"])));
    // A client that opens addresses is told as such an error says it; the login is the same one.
    let told = hello(&http, json!({"elicitation": {"url": {}}})).await;
    assert_eq!(told["error"]["code"], -32042, "{told}");
    let asked = &told["error"]["data"]["elicitations"][0];
    assert_eq!((&asked["mode"], text(&asked["url"])), (&json!("url"), url.as_str()), "{asked}");
    drop(server);

    let (server, http) = serve(&folder, &address);
    let browser = tokio::task::spawn_blocking({
        let url = url.clone();
        move || {
            let mut browser = Browser::default();
            let there = browser.begin(&url);
            (browser, there)
        }
    });
    let (mut browser, there) = browser.await.unwrap();
    drop(server);
    let (_server, http) = {
        drop(http);
        serve(&folder, &address)
    };
    let finished = tokio::task::spawn_blocking(move || {
        let back = browser.get(&there).location;
        browser.get(&back).status
    });
    assert_eq!(finished.await.unwrap(), 303);
    let run = http.get("/api/v1/runs").await.body["runs"][0].clone();
    assert_eq!((&run["agent"], &run["status"]), (&json!("gate"), &json!("completed")), "{run}");

    let client = Client::hello(&http, "it", VERSION, json!({})).await;
    let paying = client.calls(1, "pay", r#"{"to":"Ann"}"#);
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    let paid = result(&paying.await.unwrap());
    assert_eq!(words(&paid), "paid Ann", "{paid}");

    // The login ends while nobody looks.
    end_tokens(&folder);
    let paying = client.calls(2, "pay", r#"{"to":"Bob"}"#);
    let approval = hold(&http).await;
    assert_eq!(approval["tool"], "mcp__it__pay", "{approval}");
    resolve(&http, &approval, json!({"resolution": "approve"})).await;
    let login = hold(&http).await;
    assert_eq!(login["kind"], "auth", "{login}");
    let url = format!("http://{address}/login/{}", text(&login["id"]));
    tokio::task::spawn_blocking(move || Browser::default().log_in(&url)).await.unwrap();
    let answer = paying.await.unwrap();
    assert!(answer.text.contains("waiting for a login"), "whoever follows progress hears it: {answer:?}");
    assert_eq!(words(&result(&answer)), "paid Bob", "{answer:?}");
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay", "Bob pay"]);
    assert_eq!(lines(&folder, "registered.txt").len(), 1, "one client for all logins");
    keeps_tokens(folder.path(), &lines(&folder, "issued.txt"));
}

/// Nobody logs in while the call can wait: the model is told where somebody has to, and the approval stays for the next who makes the
/// same call. Denying the login denies nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_outlives_a_login_that_nobody_gives() {
    let port = standfast_testkit::free_port();
    let folder = folder(&format!("  it: {{url: 'http://127.0.0.1:{port}/mcp', wait: 2s}}\n"), "");
    let _protected = protected_with(&folder, port, &[]);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let url = page(&hello(&http, json!({})).await);
    tokio::task::spawn_blocking(move || Browser::default().log_in(&url)).await.unwrap();
    let client = Client::hello(&http, "it", VERSION, json!({})).await;
    end_tokens(&folder);
    let waits = result(&client.call(1, "pay", r#"{"to":"Ann"}"#).await);
    assert!(words(&waits).contains("waits for approval"), "{waits}");
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    let waits = result(&client.call(2, "pay", r#"{"to":"Ann"}"#).await);
    assert!(words(&waits).starts_with("Not executed") && words(&waits).contains("/login/hold_"), "{waits}");
    let login = hold(&http).await;
    assert_eq!(login["kind"], "auth", "{login}");
    resolve(&http, &login, json!({"resolution": "deny"})).await;
    let calling = client.calls(3, "pay", r#"{"to":"Ann"}"#);
    let another = hold(&http).await;
    assert!(another["kind"] == "auth" && another["id"] != login["id"], "{another}");
    let url = format!("{}/login/{}", http.base, text(&another["id"]));
    tokio::task::spawn_blocking(move || Browser::default().log_in(&url)).await.unwrap();
    let mut paid = result(&calling.await.unwrap());
    if paid["isError"] == true {
        // It had gone on without the login.
        paid = result(&client.call(4, "pay", r#"{"to":"Ann"}"#).await);
    }
    assert_eq!(words(&paid), "paid Ann", "{paid}");
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay"]);
}

/// T29: a login belongs to its user: another user of the same gateway has to log in too, cannot give the first one's, and a user of the
/// same name in another tenant is somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_its_users_alone() {
    let port = standfast_testkit::free_port();
    let folder = gateway(port, "server: {auth: {api_keys: true}}\n");
    let _protected = protected_with(&folder, port, &[]);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let key = |user: &str, more: &[&str]| {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user]).args(more).arg("--config");
        let made = command.arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said = String::from_utf8(made.stdout).unwrap() + &String::from_utf8_lossy(&made.stderr);
        said.lines().find(|line| line.starts_with("sf_")).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let gates = ["--scope", "gates:open"];
    let (ann, annes_agent) = (key("ann", &[]), key("ann", &gates));
    let (bob, bobs_agent) = (key("bob", &[]), key("bob", &gates));
    let elsewhere = key("ann", &["--tenant", "acme", "--scope", "gates:open"]);
    let url = page(&hello(&http.with_key(&annes_agent), json!({})).await);
    let as_user = |key: String, url: String| {
        tokio::task::spawn_blocking(move || {
            let mut browser = Browser::default();
            browser.key = Some(key);
            let page = browser.get(&url);
            if page.status == 200 {
                browser.log_in(&url);
            }
            page.status
        })
    };
    assert!([403, 404].contains(&as_user(bob, url.clone()).await.unwrap()), "it is ann's");
    assert_eq!(as_user(ann, url).await.unwrap(), 200);
    assert!(hello(&http.with_key(&annes_agent), json!({})).await["result"]["serverInfo"].is_object());
    for other in [bobs_agent, elsewhere] {
        let told = hello(&http.with_key(&other), json!({})).await;
        assert!(text(&told["error"]["message"]).contains("/login/hold_"), "{told}");
    }
}

/// Where a login cannot be begun, whoever asked is told why and what to do.
#[tokio::test]
async fn a_login_that_cannot_begin_says_so() {
    let port = standfast_testkit::free_port();
    let folder = gateway(port, "");
    let (closed, listener) = (json!({}), tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap());
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = [0; 4096];
            drop(stream.read(&mut read).await);
            let no = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            drop(stream.write_all(no.as_bytes()).await);
        }
    });
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let told = tokio::time::timeout(Duration::from_secs(60), hello(&http, closed)).await.unwrap();
    let message = text(&told["error"]["message"]);
    assert!(message.contains("cannot be started") && message.contains("`headers`"), "{message}");
}
