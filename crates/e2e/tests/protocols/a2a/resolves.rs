//! Receivers whose name leads elsewhere later: what was public when it was kept and is private when something is sent is not called,
//! and the dead letter says why. Push notifications and webhooks are sent through the same door.
//!
//! The answers come from a file of hosts that only this server sees: it runs in a mount namespace of its own, where the file lies over
//! `/etc/hosts` and is rewritten while the server runs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{Http, Process, until_found};

use crate::a2a::push::{WHOLE, story};
use crate::a2a::server::{decides, says};

/// An address of the public internet, which nothing here ever calls.
const PUBLIC: &str = "1.1.1.1";

/// A server with a file of hosts of its own.
struct Server {
    _program: Process,
    http: Http,
    folder: tempfile::TempDir,
}

impl Server {
    fn hosts(&self) -> PathBuf {
        self.folder.path().join("hosts")
    }

    /// From now on this name leads there, and nowhere else. The file stays the one that was mounted.
    fn leads(&self, name: &str, addresses: &[&str]) {
        let known = std::fs::read_to_string(self.hosts()).unwrap();
        let others = known.lines().filter(|line| !line.ends_with(name)).map(str::to_owned);
        let lines: Vec<String> =
            others.chain(addresses.iter().map(|address| format!("{address} {name}"))).collect();
        std::fs::write(self.hosts(), lines.join("\n") + "\n").unwrap();
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.http.post(path, body).await;
        assert!([200, 201].contains(&answer.status), "{path}: {answer:?}");
        answer.body
    }
}

/// What follows, with this file over `/etc/hosts`.
fn with_hosts(file: &Path) -> Command {
    let user = Command::new("id").arg("-u").output().unwrap().stdout;
    let mut command = Command::new("unshare");
    if user != b"0\n" {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"").arg(file);
    command
}

fn serve() -> Server {
    let folder = crate::a2a::push::folder();
    let config = "llms: {script: {type: scripted, script: script.yaml}}
server:
  webhooks: {allowed_hosts: ['named.test'], timeout: 5s, retries: [200ms, 200ms]}
tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, tools: [execute_command], task: {}}}
";
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    std::fs::write(folder.path().join("hosts"), "127.0.0.1 localhost named.test\n").unwrap();
    let mut command = with_hosts(&folder.path().join("hosts"));
    command.arg(standfast_testkit::binary::path()).args(["serve", "--listen", "127.0.0.1:0", "--config"]);
    command.arg(folder.path().join("standfast.yaml")).arg("--data").arg(folder.path().join("data"));
    let program = standfast_testkit::start(command.env("RUST_LOG", "warn").env_remove("STANDFAST_KEY"));
    Server { http: Http::new(&program.base), folder, _program: program }
}

/// S3-1, T11: a name whose answer changes: kept while it led to a public address, it is refused at sending when it leads to this
/// machine, to a private network, to the address of a cloud's metadata, or to a public and a private address at once. Nothing
/// connects, the dead letters of the push notification and of the webhook name the address, and a host that the configuration names
/// is told all the same.
#[tokio::test]
async fn a_name_that_leads_to_a_private_address_at_sending_is_refused() {
    let server = serve();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let named = Receiver::new(Mood::Takes).await;
    let cases: [&[&str]; 5] =
        [&["127.0.0.1"], &["10.0.0.7"], &["169.254.169.254"], &["::1"], &[PUBLIC, "192.168.1.1"]];
    for (no, private) in cases.into_iter().enumerate() {
        let (name, private_one) = (format!("moves-{no}.test"), *private.last().unwrap());
        let url = format!("https://{name}:{port}/hook");
        server.leads(&name, private);
        let config = json!({"url": url});
        let task = server.post("/v1/agents/ops/message:send", &json!({"message": says("go")})).await;
        let task = task["task"].clone();
        let configs =
            format!("/v1/agents/ops/tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
        let refused = server.http.post(&configs, &config).await;
        assert_eq!(refused.status, 400, "{private:?}: refused while it leads there: {refused:?}");
        assert!(refused.text.contains("not a public address"), "{refused:?}");

        server.leads(&name, &[PUBLIC]);
        server.post(&configs, &config).await;
        server.post(&configs, &json!({"url": format!("http://named.test:{}/hook", named.port)})).await;
        let hook = json!({"url": url, "events": ["hold.resolved"]});
        let hook = server.post("/api/v1/subscriptions", &hook).await["id"].clone();
        let known = server.http.get("/api/v1/subscriptions").await.body;
        let of_task = |one: &&Value| one["run"] == task["id"] && one["url"] == json!(url);
        let push = known["subscriptions"].as_array().unwrap().iter().find(of_task);
        let push = push.unwrap_or_else(|| panic!("{known}"))["id"].clone();

        server.leads(&name, private);
        let approve = decides(&task, json!({"decision": "approve"}));
        server.post("/v1/agents/ops/message:send", &json!({"message": approve})).await;
        for subscription in [&push, &hook] {
            let path = format!("/api/v1/subscriptions/{}/dead-letters", subscription.as_str().unwrap());
            let reason = until_found(&format!("a dead letter of {name}"), async || {
                let found = server.http.get(&path).await.body;
                found["dead_letters"][0]["reason"].as_str().map(str::to_owned)
            })
            .await;
            let expected = format!("{name:?} resolves to {private_one}, which is not a public address");
            assert!(reason.contains(&expected), "{private:?}: {reason}");
        }
        let is_over = |all: &[_]| story(all).iter().filter(|one| one.ends_with("COMPLETED")).count() > no;
        named.until("the end of the task", is_over).await;
    }
    assert!(listener.accept().is_err(), "nothing ever connected");
    assert!(story(&named.all()).iter().all(|one| WHOLE.contains(&one.as_str())));
}
