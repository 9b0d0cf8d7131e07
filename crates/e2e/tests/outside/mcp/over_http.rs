//! A server over streamable HTTP, killed and started again in the middle.
//!
//! The official everything server, on a port of its own.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::mcp::server::{folder, of_run, package, packages, refused, serve, text};

/// A program that serves; dropping it kills it.
pub(crate) struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn node(arguments: &[&str], port: u16) -> Program {
    let mut command = Command::new("node");
    command.args(arguments).env("PORT", port.to_string());
    listening(command, port)
}

/// Starts a program and waits until it listens.
pub(crate) fn listening(mut command: Command, port: u16) -> Program {
    let program = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    for _ in 0..1200 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return program;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{command:?} does not listen")
}

fn everything(port: u16) -> Program {
    node(&[&package("server-everything"), "streamableHttp"], port)
}

/// A call over HTTP is held, the MCP server is killed and started again, then the call is approved and answered; while
/// nobody is there the model gets that as the result, and nothing else happens.
#[test]
fn a_server_over_http_is_found_again_after_its_restart() {
    let port = standfast_testkit::free_port();
    let first = everything(port);
    let replies = "- calls:\n  - {tool: it__get-sum, arguments: {a: 20, b: 22}}\n- text: done\n";
    let tools = format!(
        "  it: {{type: mcp, url: 'http://127.0.0.1:{port}/mcp', requires_approval: true, allow: [get-sum, echo]}}\n"
    );
    let folder = folder(replies, &tools);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    drop(first);
    let second = everything(port);
    server.ask(&["holds", "approve", text(&hold["id"])]);
    let ended = server.until_status(&run, "completed");
    assert!(ended.to_string().contains("42"), "{ended:#}");

    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    drop(second);
    server.ask(&["holds", "approve", text(&hold["id"])]);
    let ended = server.until_status(&run, "completed");
    let said = ended.to_string();
    assert!(said.contains("not executed") && said.contains("Connection refused"), "{ended:#}");
}

/// A server that does not take the token any more did nothing: the call waits for a login, with what the server says of
/// it. Once the file has another token and somebody says so, the call is made.
#[test]
fn a_server_that_asks_for_a_login_is_waited_for() {
    let (behind, port) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let _everything = everything(behind);
    let replies = "- calls:\n  - {tool: it__get-sum, arguments: {a: 20, b: 22}}\n- text: done\n";
    let tools = format!(
        "  it: {{type: mcp, url: 'http://127.0.0.1:{port}/mcp', requires_approval: true, allow: [get-sum], \
         headers: {{Authorization: 'Bearer ${{TOKEN}}'}}}}\n"
    );
    let folder = folder(replies, &tools);
    let (token, env) = (folder.path().join("place/token"), folder.path().join(".env"));
    std::fs::write(&token, "first").unwrap();
    std::fs::write(&env, "TOKEN=wrong\n").unwrap();
    let gate = packages().join("gate.js").display().to_string();
    let _gate = node(&[&gate, &port.to_string(), &behind.to_string(), &token.display().to_string()], port);
    let said = refused(folder.path());
    assert!(said.contains("requires a login") && said.contains("id.example.org"), "{said}");

    std::fs::write(&env, "TOKEN=first\n").unwrap();
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let approval = server.hold(&run);
    std::fs::write(&token, "second").unwrap();
    server.ask(&["holds", "approve", text(&approval["id"])]);
    server.until(&run, "held for a login", |shown| of_run(shown)["holds"][0]["kind"] == "auth");
    let login = server.hold(&run);
    assert!(login.to_string().contains("id.example.org"), "{login:#}");

    std::fs::write(&env, "TOKEN=second\n").unwrap();
    drop(server);
    let server = serve(folder.path());
    server.ask(&["holds", "answer", text(&login["id"]), "done"]);
    let ended = server.until_status(&run, "completed");
    assert!(ended.to_string().contains("42"), "{ended:#}");
}
