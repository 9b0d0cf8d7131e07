//! Whose account a login uses, with which client it is made, on which node, and that no secret of it gets out.
//!
//! The server that wants the login, and the authorization server, are those of `login.rs`.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::mcp::login::{Browser, PAY, auth_hold, csrf, keeps_tokens, protected_with};
use crate::mcp::server::{Server, folder, lines, on_postgres, rewrite, text};

const SECRET: &str = "hand-made-secret/+:0123456789";

/// A folder whose MCP server is at this port; `more` is part of its entry, `rest` of the file.
fn waiting(port: u16, more: &str, rest: &str) -> TempDir {
    let tools = format!(
        "  it: {{type: mcp, url: 'http://127.0.0.1:{port}/mcp', overrides: {{pay: {{requires_approval: false}}}}{more}}}\n{rest}"
    );
    folder(PAY, &tools)
}

/// Starts a server that says everything it has to say into `log`.
fn serve(folder: &Path, port: u16) -> Server {
    let path = folder.join("log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"]);
    command.arg(folder.join("standfast.yaml")).arg("--data").arg(folder.join(format!("data-{port}")));
    command.env("RUST_LOG", "trace").env("HAND_MADE", SECRET).stderr(log);
    let starting = std::panic::AssertUnwindSafe(|| standfast_testkit::start(&mut command));
    std::panic::catch_unwind(starting).unwrap_or_else(|_| {
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(20).collect();
        panic!("it said last, newest first: {last:#?}")
    })
}

/// Everything that the command line and the API can say of a run and its hold.
fn told(server: &Server, run: &str, hold: &str) -> Vec<String> {
    let api = |path: &str| Browser::default().get(&format!("{}{path}", server.base)).body;
    vec![
        server.ask(&["show", run]).to_string(),
        server.ask(&["holds", "show", hold]).to_string(),
        api(&format!("/api/v1/runs/{run}/events")),
        api(&format!("/api/v1/holds/{hold}")),
        api(&format!("/v1/agents/helper/tasks/{run}")),
        api(&format!("/runs/{run}")),
        api(&format!("/approve/{hold}")),
    ]
}

/// T29, T30: none of these is in a file of the server or in what it says.
fn keeps(folder: &TempDir, port: u16, told: &[String], more: &[&str]) {
    let mut secrets = lines(folder, "issued.txt");
    secrets.extend(more.iter().map(|secret| (*secret).to_owned()));
    let data = folder.path().join(format!("data-{port}"));
    std::fs::rename(&data, folder.path().join("data")).unwrap();
    keeps_tokens(folder.path(), &secrets);
    for secret in &secrets {
        assert!(told.iter().all(|text| !text.contains(secret)), "a secret is told");
    }
}

/// T29, T30: a client that was registered by hand logs in with its secret, at a server that registers nobody. After the
/// whole of it neither its secret nor a token is in the log, which has everything, in a file, or in what anybody is told.
#[test]
fn a_client_that_was_registered_by_hand() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = waiting(port, ", oauth: {client_id: by-hand, client_secret: '${HAND_MADE}'}", "");
    let client = format!("by-hand {SECRET} http://127.0.0.1:{own}/login/callback");
    let _protected = protected_with(&folder, port, &[("CLIENT", &client)]);
    let server = serve(folder.path(), own);
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = auth_hold(&server, &run);
    let mut browser = Browser::default();
    let there = browser.begin(text(&hold["data"]["auth_url"]));
    assert!(there.contains("client_id=by-hand&") && !there.contains("secret"), "{there}");
    let back = browser.get(&there).location;
    assert_eq!(browser.get(&back).status, 303);
    server.until_status(&run, "completed");
    // Renewed with the same client.
    let first = lines(&folder, "issued.txt")[..1].join("\n");
    std::fs::write(folder.path().join("place/ended.txt"), first).unwrap();
    assert_eq!(server.send("helper")["status"], "completed");
    assert_eq!(lines(&folder, "issued.txt").len(), 4);
    assert_eq!(lines(&folder, "registered.txt").len(), 0);
    let told = told(&server, &run, text(&hold["id"]));
    drop(server);
    keeps(&folder, own, &told, &[SECRET]);
}

/// A server that reads documents about clients learns of ours by its address, and nobody is registered.
#[test]
fn a_client_that_a_document_describes() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let rest = "server: {public_url: 'https://standfast.example.org', auth: {api_keys: true}}\n";
    let folder = waiting(port, "", rest);
    let key = key(&folder, "ann");
    let here = format!("http://127.0.0.1:{own}");
    let _protected = protected_with(&folder, port, &[("DOCUMENTS", &here)]);
    let server = serve(folder.path(), own);
    let run = held(&server, &key);
    let hold = ask(&server, &key, &format!("/api/v1/holds/{}", text(&run["holds"][0]["id"])), None);
    let url = text(&hold["data"]["auth_url"]);
    assert!(url.starts_with("https://standfast.example.org/login/hold_"), "{url}");
    let mut browser = Browser::default();
    browser.key = Some(key.clone());
    let there = browser.begin(&url.replace("https://standfast.example.org", &here));
    let id = "client_id=https%3A%2F%2Fstandfast.example.org%2Flogin%2Fclient.json&";
    assert!(there.contains(id), "{there}");
    let back = browser.get(&there).location;
    assert!(back.starts_with("https://standfast.example.org/login/callback?code="), "{back}");
    let page = browser.get(&back.replace("https://standfast.example.org", &here));
    assert_eq!(page.status, 303, "{}", page.body);
    completes(&server, &key, text(&run["id"]));
    let read = lines(&folder, "documents.txt");
    assert!(!read.is_empty() && read.iter().all(|id| id.ends_with("/login/client.json")), "{read:?}");
    assert_eq!(lines(&folder, "registered.txt").len(), 0);
    drop(server);
    keeps(&folder, own, &[], &[]);
}

/// C28, T29: a login begins at one server and its answer comes back to another, also when the first is gone by then. The
/// run goes on there, and the login counts on both.
#[test]
fn a_login_over_two_nodes() {
    let (port, one) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let rest = format!(
        "server: {{public_url: 'http://127.0.0.1:{one}', nodes: {{take_over_after: 3s}}, webhooks: {{key: 0123456789abcdef0123456789abcdef}}}}\n"
    );
    let folder = waiting(port, "", &rest);
    on_postgres(&folder);
    let _protected = protected_with(&folder, port, &[]);
    let first = serve(folder.path(), one);
    let second = serve(folder.path(), 0);
    let run = text(&first.send("helper")["id"]).to_owned();
    let hold = auth_hold(&second, &run);
    let mut browser = Browser::default();
    let there = browser.begin(text(&hold["data"]["auth_url"]));
    let back = browser.get(&there).location;
    drop(first);
    let elsewhere = back.replace(&format!("http://127.0.0.1:{one}"), &second.base);
    assert_ne!(elsewhere, back);
    let page = browser.get(&elsewhere);
    assert_eq!(page.status, 303, "{}", page.body);
    second.until_status(&run, "completed");
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay"], "once");
    let first = serve(folder.path(), one);
    assert_eq!(first.send("helper")["status"], "completed", "the login is there on every node");
    assert_eq!(lines(&folder, "registered.txt").len(), 1);
    let told = told(&first, &run, text(&hold["id"]));
    drop((first, second));
    keeps(&folder, 0, &told, &[]);
}

/// A login on one node is known on the other, which was there all the time and did not know the tools: its runs begin
/// with them, and so do those that waited for the same login. None begins without the tools that its agent has.
#[test]
fn the_other_node_learns_of_a_login() {
    let (port, one) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let rest = format!(
        "server: {{public_url: 'http://127.0.0.1:{one}', webhooks: {{key: 0123456789abcdef0123456789abcdef}}}}\n"
    );
    let folder = waiting(port, "", &rest);
    on_postgres(&folder);
    let _protected = protected_with(&folder, port, &[]);
    let (first, second) = (serve(folder.path(), one), serve(folder.path(), 0));
    let run = text(&first.send("helper")["id"]).to_owned();
    let waits = text(&second.send("helper")["id"]).to_owned();
    let also = text(&first.send("helper")["id"]).to_owned();
    let (hold, other) = (auth_hold(&second, &waits), auth_hold(&first, &also));
    Browser::default().log_in(text(&auth_hold(&first, &run)["data"]["auth_url"]));
    first.until_status(&run, "completed");
    assert_eq!(lines(&folder, "paid.txt").len(), 1);
    let run = text(&second.send("helper")["id"]).to_owned();
    second.until_status(&run, "completed");
    assert_eq!(lines(&folder, "paid.txt").len(), 2);
    // Those that were asked before go on when somebody says so, or logs in once more.
    second.ask(&["holds", "answer", text(&hold["id"]), "there is a login now"]);
    second.until_status(&waits, "completed");
    assert_eq!(lines(&folder, "paid.txt").len(), 3);
    Browser::default().log_in(text(&other["data"]["auth_url"]));
    first.until_status(&also, "completed");
    assert_eq!(lines(&folder, "paid.txt").len(), 4);
}

/// A key for a user of the server in this folder.
fn key(folder: &TempDir, user: &str) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", user, "--config"]).arg(folder.path().join("standfast.yaml"));
    let output = command.env("HAND_MADE", SECRET).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// What the API says to somebody with this key.
fn ask(server: &Server, key: &str, path: &str, body: Option<&str>) -> Value {
    let url = format!("{}{path}", server.base);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let bearer = format!("Bearer {key}");
    let mut response = match body {
        Some(body) => {
            let request = agent.post(&url).header("authorization", bearer);
            request.header("content-type", "application/json").send(body).unwrap()
        }
        None => agent.get(&url).header("authorization", bearer).call().unwrap(),
    };
    serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap()
}

/// A run of somebody with this key, as soon as it waits.
fn held(server: &Server, key: &str) -> Value {
    let body = r#"{"input": "pay", "wait": "settled"}"#;
    let run = ask(server, key, "/api/v1/agents/helper/runs", Some(body));
    assert_eq!(run["status"], "held", "{run:#}");
    run
}

fn completes(server: &Server, key: &str, run: &str) {
    let path = format!("/api/v1/runs/{run}");
    let ended = (0..1200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        ask(server, key, &path, None)["status"] == "completed"
    });
    assert!(ended, "{:#}", ask(server, key, &path, None));
}

/// T12, T15, T29: the account is that of the run's owner, so only they log in, also where others have to approve. An
/// approver may look, sees whose login it is, and brings nothing back, not even with the owner's cookies.
#[test]
fn only_the_owner_logs_in() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = waiting(port, "", "server: {auth: {api_keys: true}}\n");
    rewrite(&folder, "task: {}", "task: {}, approvers: [bob], self_approval: forbid");
    let _protected = protected_with(&folder, port, &[]);
    let (ann, bob) = (key(&folder, "ann"), key(&folder, "bob"));
    let server = serve(folder.path(), own);
    let run = held(&server, &ann);
    let hold = text(&run["holds"][0]["id"]).to_owned();
    let url = format!("http://127.0.0.1:{own}/login/{hold}");
    let (mut owner, mut approver) = (Browser::default(), Browser::default());
    (owner.key, approver.key) = (Some(ann.clone()), Some(bob.clone()));

    let style = Browser::default().get(&format!("http://127.0.0.1:{own}/assets/style.css"));
    assert_eq!(
        style.status, 200,
        "browsers show their key for pages alone, and what these look like is no secret"
    );
    let refused = approver.get(&url);
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("Only ann can log in here"), "{}", refused.body);
    let page = approver.get(&format!("http://127.0.0.1:{own}/approve/{hold}"));
    assert!(
        page.status == 200 && page.body.contains("Only <strong>ann</strong> can log in"),
        "{}",
        page.body
    );
    assert!(!page.body.contains(&format!("/login/{hold}")), "{}", page.body);
    assert_eq!(approver.post(&url, csrf(&page)).status, 403);

    let there = owner.begin(&url);
    let back = owner.get(&there).location;
    // A browser that was lent, with somebody else signed in.
    owner.key = Some(bob.clone());
    assert_eq!(owner.get(&back).status, 403);
    owner.key = Some(ann.clone());
    assert_eq!(owner.get(&back).status, 303);
    completes(&server, &ann, text(&run["id"]));
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay"]);

    // Bob's own runs ask for his own login; he may deny what he may not give.
    assert_eq!(held(&server, &bob)["holds"][0]["kind"], "auth");
    std::fs::write(folder.path().join("place/ended.txt"), lines(&folder, "issued.txt").join("\n")).unwrap();
    let hold = text(&held(&server, &ann)["holds"][0]["id"]).to_owned();
    let path = format!("/api/v1/holds/{hold}/resolve");
    let denied = ask(&server, &bob, &path, Some(r#"{"resolution": "deny", "reason": "not now"}"#));
    assert_eq!(denied["hold"]["decided"]["how"], "denied", "{denied:#}");
    assert_eq!(lines(&folder, "paid.txt").len(), 1);
}
