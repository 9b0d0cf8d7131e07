//! A server as its clients see it: a process that can be killed, and HTTP.
//!
//! Nothing here looks into the store. A request that got no answer is `Gone`: nobody knows what became of it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::Value;

use crate::child::{Options, SERVE};

/// What the model of the product's agent says.
const SCRIPT: &str = r#"replies:
- calls:
  - tool: execute_command
    arguments: '{"command": "echo hello"}'
- text: done
"#;

/// The product on a store of its own, with the agent of [`SCRIPT`].
const CONFIGURATION: &str = r#"
llms: {script: {type: scripted, script: script.yaml}}
tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {main: {STORE}}
server: {nodes: {take_over_after: 3s}}
agents: {ops: {llm: script, session_store: main, tools: [execute_command], task: {input_timeout: 2h}}}
"#;

/// The server did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// A running server; dropping it is `kill -9`.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) bases: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts the server under test on a data directory. One that died before it listened has no address.
    pub(crate) fn start(data: &Path, options: &Options) -> Server {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(SERVE).arg(data).args(options.arguments());
        Server::started(command, data, options.nodes, "")
    }

    /// The same with the data directory as its home.
    pub(crate) fn start_at_home(data: &Path, options: &Options) -> Server {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(SERVE).arg(data).args(options.arguments()).env("HOME", data);
        Server::started(command, data, options.nodes, "")
    }

    /// Starts the product itself: with its embedded demo on a file, or with an agent of a configuration on this store.
    pub(crate) fn product(data: &Path, store: Option<&str>) -> Server {
        let mut command = Command::new(crate::standfast());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).env("RUST_LOG", "warn");
        if let Some(store) = store {
            std::fs::write(data.join("script.yaml"), SCRIPT).unwrap();
            let configuration = data.join("standfast.yaml");
            std::fs::write(&configuration, CONFIGURATION.replace("STORE", store)).unwrap();
            command.arg("--config").arg(configuration);
        }
        Server::started(command, data, 1, standfast_testkit::process::GREETING)
    }

    /// Starts the product itself with a configuration of its own.
    pub(crate) fn configured(data: &Path, configuration: &str) -> Server {
        let file = data.join("standfast.yaml");
        std::fs::write(&file, configuration).unwrap();
        let mut command = Command::new(crate::standfast());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).env("RUST_LOG", "warn");
        command.current_dir(data).arg("--config").arg(file);
        Server::started(command, data, 1, standfast_testkit::process::GREETING)
    }

    fn started(mut command: Command, data: &Path, nodes: usize, greeting: &str) -> Server {
        let log = data.join("server.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut bases = Vec::new();
        for _ in 0..nodes {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            bases.extend(
                line.trim().strip_prefix(greeting).filter(|base| !base.is_empty()).map(str::to_owned),
            );
        }
        // The rest is read so that no writer is blocked.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Server { child, bases }
    }

    pub(crate) fn http(&self) -> Http {
        self.http_of(0)
    }

    pub(crate) fn http_of(&self, node: usize) -> Http {
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        // One that died before it listened has no address; asking it is asking nobody.
        let base = self.bases.get(node).cloned().unwrap_or_else(|| "http://127.0.0.1:9".into());
        Http { client, base }
    }

    /// Kills it without warning and waits until it is gone.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        // It may be gone already.
        let _ = Command::new("kill").args([signal, &pid]).stderr(Stdio::null()).status();
    }

    /// Memory that it has, in kilobytes.
    pub(crate) fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Processor time that it has used, in hundredths of a second.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        number(11) + number(12)
    }
}

/// What a server wrote to its log about panics; there must be none.
pub(crate) fn panics(data: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(data.join("server.log")).unwrap_or_default();
    log.lines().filter(|line| line.contains("panicked")).map(|line| format!("I6: a panic: {line}")).collect()
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) client: Client,
    pub(crate) base: String,
}

impl Http {
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, Value), Gone> {
        self.answer(self.client.get(format!("{}{path}", self.base))).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str, key: Option<&str>) -> Result<(u16, Value), Gone> {
        let request = self.client.post(format!("{}{path}", self.base)).body(body.to_owned());
        let request = request.header("content-type", "application/json");
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        self.answer(request).await
    }

    /// A report that is signed as the protocol of async tools says.
    pub(crate) async fn post_signed(
        &self,
        path: &str,
        body: &str,
        signature: &str,
    ) -> Result<(u16, Value), Gone> {
        let request = self.client.post(format!("{}{path}", self.base)).body(body.to_owned());
        let request = request.header("content-type", "application/json");
        self.answer(request.header("x-webhook-signature", format!("sha256={signature}"))).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<(u16, Value), Gone> {
        let response = request.send().await.map_err(|_| Gone)?;
        let status = response.status().as_u16();
        // An answer counts when all of it has arrived.
        let text = response.text().await.map_err(|_| Gone)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

#[expect(clippy::disallowed_methods, reason = "patience and reports are measured in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits a little between two looks.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(15)).await;
}
