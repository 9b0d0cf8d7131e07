//! Servers that cannot be used are refused at the start, with file, line and reason.
//!
//! No tool is left out silently.

use crate::mcp::server::{folder, package, refused, serve};

/// A server that is not there, one that is no MCP server, and an address where nobody is.
#[test]
fn a_server_that_cannot_be_reached_is_refused_with_its_line() {
    for (tools, why) in [
        ("  it: {type: mcp, command: no-such-program}\n", "\"no-such-program\" cannot be started"),
        ("  it: {type: mcp, command: 'false'}\n", "cannot be reached"),
        ("  it: {type: mcp, command: sh, args: [-c, 'echo wrong key >&2; exit 1']}\n", "wrong key"),
        ("  it: {type: mcp, url: 'http://127.0.0.1:9/mcp'}\n", "cannot be reached"),
    ] {
        let folder = folder("- text: done\n", tools);
        let said = refused(folder.path());
        assert!(said.contains(why) && said.contains("standfast.yaml:5:"), "{said}");
    }
}

/// Names that the server does not have are slips of the pen, and no tool goes its own way because of one.
#[test]
fn names_that_a_server_does_not_have_are_refused() {
    let program = package("server-filesystem");
    let tools = format!(
        "  it:\n    type: mcp\n    command: node\n    args: [{program:?}, PLACE]\n    allow: [read_fil]\n    \
         deny: [nothing]\n    overrides: {{write_flie: {{requires_approval: true}}}}\n"
    );
    let folder = folder("- text: done\n", &tools);
    let said = refused(folder.path());
    for expected in [
        "the server has no tool `read_fil`",
        "did you mean `read_file`?",
        "the server has no tool `nothing`",
        "the server has no tool `write_flie`",
        "did you mean `write_file`?",
        "standfast.yaml:9:",
        "3 errors",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// `allow`, `deny` and what single tools are told otherwise.
#[test]
fn an_agent_gets_the_tools_that_the_file_allows() {
    let program = package("server-filesystem");
    let tools = format!(
        "  it:\n    type: mcp\n    command: node\n    args: [{program:?}, PLACE]\n    \
         allow: [list_allowed_directories, create_directory, write_file]\n    deny: [write_file]\n    \
         overrides: {{create_directory: {{requires_approval: false}}}}\n"
    );
    let folder = folder("", &tools);
    let made = folder.path().join("place/made");
    let script = format!(
        "replies:\n- calls:\n  - {{tool: it__create_directory, arguments: {{path: {made:?}}}}}\n  \
         - {{tool: it__write_file, arguments: {{path: {:?}, content: x}}}}\n- text: done\n",
        made.join("file")
    );
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    let server = serve(folder.path());
    assert_eq!(server.send("helper")["status"], "completed");
    assert!(made.is_dir() && !made.join("file").exists());
}
