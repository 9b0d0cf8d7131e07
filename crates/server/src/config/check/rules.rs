//! Keys that go together, and keys that do not: one function for each kind of entry.
//!
//! What a single value may be is `file/`; models have `llms.rs`, stores `stores.rs`.

use standfast_core::name::InboxName;
use standfast_core::time::Millis;
use standfast_engine::tool::suspend;
use standfast_surfaces::jwt::keys_address;

use crate::config::build::{approver, host_of};
use crate::config::check::CheckResult;
use crate::config::file::{Agent, File, Hitl, Jwt, OnTimeout, SelfApproval, Server, ToolType};
use crate::config::mode::{self, ASYNC_NEEDS_STORE};
use crate::config::path::Path;
use crate::config::plan;
use crate::config::tree::{Form, Node, Value};

/// T29: a key in a file is a key in its copies and its history.
pub(super) fn secret_in_file(path: &Path, tree: &Node, found: &mut CheckResult) {
    let Some(Value::Scalar(scalar)) = tree.find(path).map(|node| &node.value) else { return };
    if matches!(scalar.form, Form::Plain | Form::Quoted) {
        found.notice(
            tree,
            path,
            format!("`{path}` is a secret in plain text; write ${{NAME}} and set the variable"),
        );
    }
}

pub(super) fn agent(name: &str, agent: &Agent, file: &File, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["agents", name]);
    match &agent.task {
        None => without_task(name, agent, file, tree, found),
        Some(task) => {
            mode_of(&path, agent, &task.hitl, tree, found);
            let grace = task.hitl.expiry_grace.is_some() || task.hitl.after_grace.is_some();
            let on_timeout = task.hitl.on_timeout.or(Some(OnTimeout::Fail));
            grace_needs_keep(&path.key("task").key("hitl"), on_timeout, grace, tree, found);
            escalation_is_whole(&path.key("task").key("hitl"), &task.hitl, tree, found);
        }
    }
    inboxes(&path, agent, file, tree, found);
    approvers(&path, agent, file, tree, found);
    // A key that does nothing would be a promise.
    if agent.reasoning.show_thinking == Some(true) {
        let what = format!(
            "`{path}.reasoning.show_thinking` cannot be true: the thinking of models is neither stored nor shown"
        );
        let at = path.key("reasoning").key("show_thinking");
        found.problem(tree, &at, what, "remove it; what a model says in its replies is shown");
    }
    let enabled =
        |tool: &&String| file.tools.get(*tool).is_none_or(|tool| tool.common.enabled != Some(false));
    if !agent.tools.is_empty() && agent.tools.iter().filter(enabled).count() == 0 {
        found.notice(tree, &path.key("tools"), format!("all tools of agent `{name}` are disabled"));
    }
}

/// Roles that decide nothing, whatever a list says.
const NEVER_DECIDE: [&str; 2] = ["role:auditor", "role:operator"];

/// C24: a list of approvers is exactly who may decide, so each entry must name somebody.
fn approvers(path: &Path, agent: &Agent, file: &File, tree: &Node, found: &mut CheckResult) {
    let Some(named) = &agent.approvers else { return };
    let path = path.key("approvers");
    for (no, name) in named.iter().enumerate() {
        let Err(why) = approver(name) else { continue };
        let (what, help) = match why.split_once("; ") {
            Some((what, help)) => (what.to_owned(), help.to_owned()),
            None => (
                format!("{name:?} names nobody: {why}"),
                "write owner, user:NAME, group:NAME or role:NAME".into(),
            ),
        };
        found.problem(tree, &path.item(no), what, help);
    }
    for (no, name) in named.iter().enumerate().filter(|(_, name)| NEVER_DECIDE.contains(&name.as_str())) {
        let what = format!("{name:?} names nobody who decides: whoever has this role decides nothing");
        found.notice(tree, &path.item(no), what);
    }
    let forbids = [file.server.self_approval, agent.self_approval].contains(&Some(SelfApproval::Forbid));
    if named.is_empty() {
        let what =
            "the list of approvers is empty, so nobody may decide and every hold waits until it expires";
        found.notice(tree, &path, what.into());
    } else if forbids && named.iter().all(|name| name == "owner") {
        let what = "only the owner is an approver, and self-approval is forbidden, so nobody may decide";
        found.notice(tree, &path, what.into());
    }
}

/// C36: in runs of an inbox the model has a tool `suspend`; another one of that name would be lost.
fn inboxes(path: &Path, agent: &Agent, file: &File, tree: &Node, found: &mut CheckResult) {
    if agent.inboxes.is_empty() {
        let idle = [
            ("inbox_types", !agent.inbox_types.is_empty()),
            ("max_concurrent", agent.max_concurrent.is_some()),
        ];
        for (key, _) in idle.iter().filter(|(_, is_given)| *is_given) {
            let what = format!("`{path}.{key}` has an effect only with `inboxes`");
            found.problem(tree, &path.key(key), what, format!("add `inboxes: [NAME]`, or remove `{key}`"));
        }
        return;
    }
    if agent.inboxes.iter().any(|name| InboxName::new(name).is_err()) {
        let what = format!("`{path}.inboxes` has an invalid name");
        found.problem(
            tree,
            &path.key("inboxes"),
            what,
            "a name has 1 to 256 bytes and no control characters",
        );
    }
    let is_other =
        |tool: &plan::ToolPlan| tool.name == suspend::IN_INBOXES && tool.kind != ToolType::SuspendForInput;
    if plan::tools(agent, file).iter().any(is_other) {
        let what = format!(
            "`{path}` serves inboxes, where the tool `suspend` asks people, and has another tool `suspend`"
        );
        found.problem(tree, &path.key("tools"), what, "give that tool another name");
    }
}

/// S0-57: the bad row of the matrix.
fn mode_of(path: &Path, agent: &Agent, hitl: &Hitl, tree: &Node, found: &mut CheckResult) {
    let store = plan::store_of(agent);
    if mode::effective(hitl.mode, store).is_none() {
        let help = format!(
            "add `session_store: NAME` to `{path}`, with that name below `session_stores:`, or remove `mode: async`"
        );
        found.problem(tree, &path.key("task").key("hitl").key("mode"), ASYNC_NEEDS_STORE.to_owned(), help);
    }
}

/// C29: without a `task` block nothing can wait.
fn without_task(name: &str, agent: &Agent, file: &File, tree: &Node, found: &mut CheckResult) {
    let gated: Vec<String> =
        plan::tools(agent, file).into_iter().filter(|tool| tool.asks).map(|tool| tool.name).collect();
    if !gated.is_empty() {
        let what = format!(
            "agent `{name}` has no `task` block, so calls of {} are denied; add `task: {{}}` to hold them for approval",
            gated.join(", ")
        );
        found.notice(tree, &Path::of(&["agents", name]), what);
    }
}

/// One of the two keys alone would be a promise that nobody keeps.
fn escalation_is_whole(path: &Path, hitl: &Hitl, tree: &Node, found: &mut CheckResult) {
    let names_somebody = hitl.escalate_to.as_ref().is_some_and(|to| !to.is_empty());
    let (given, missing) = match (hitl.escalate_after.is_some(), names_somebody) {
        (true, false) => ("escalate_after", "escalate_to"),
        (false, true) => ("escalate_to", "escalate_after"),
        (true, true) | (false, false) => return,
    };
    let what = format!("`{path}.{given}` has an effect only with `{missing}`");
    found.problem(tree, &path.key(given), what, format!("add `{missing}`, or remove `{given}`"));
}

pub(super) fn grace_needs_keep(
    path: &Path,
    on_timeout: Option<OnTimeout>,
    has_grace: bool,
    tree: &Node,
    found: &mut CheckResult,
) {
    if has_grace && on_timeout.is_some_and(|on_timeout| on_timeout != OnTimeout::Keep) {
        let key = if tree.find(&path.key("expiry_grace")).is_some() { "expiry_grace" } else { "after_grace" };
        let what = format!("`{path}.{key}` has an effect only with `on_timeout: keep`");
        found.problem(tree, &path.key(key), what, format!("write `on_timeout: keep`, or remove `{key}`"));
    }
}

pub(super) fn server(server: &Server, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["server"]);
    let address = server.listen.as_ref().and_then(|listen| listen.parse::<std::net::SocketAddr>().ok());
    let has_auth = tree.find(&path.key("auth")).is_some();
    if address.is_some_and(|address| !address.ip().is_loopback()) && !has_auth {
        let what = "this address is reachable from other machines, and there is no `server.auth`".to_owned();
        let help = "listen on 127.0.0.1 or [::1], or add `server.auth`: without it every caller may decide everything";
        found.problem(tree, &path.key("listen"), what, help);
    }
    let public_host = server.public_url.as_deref().and_then(host_of);
    if public_host.as_deref().is_some_and(|host| !is_this_machine(host)) && !has_auth {
        let what = "`server.public_url` makes this server public, and there is no `server.auth`".to_owned();
        found.problem(tree, &path.key("public_url"), what, "add `server.auth`, or remove `public_url`");
    }
    if !has_auth && !server.hosts.is_empty() {
        let what = "`server.hosts` makes this server public, and there is no `server.auth`".to_owned();
        found.problem(tree, &path.key("hosts"), what, "add `server.auth`, or remove `hosts`");
    }
    if let Some(audit) = &server.audit
        && audit.key_file.is_some() != audit.key_command.is_empty()
    {
        let what = "`server.audit` needs `key_file` or `key_command`, and not both".to_owned();
        let help =
            "`openssl genpkey -algorithm ed25519 -out audit.pem` makes a key for `key_file: audit.pem`";
        found.problem(tree, &path.key("audit"), what, help);
    }
    if let Some(jwt) = server.auth.as_ref().and_then(|auth| auth.jwt.as_ref()) {
        let (max_age, refresh) = (jwt.max_age.map(|span| span.0), jwt.refresh.map(|span| span.0));
        if max_age.is_some_and(|max_age| max_age < refresh.unwrap_or(Millis::seconds(15 * 60))) {
            let what =
                "`max_age` is shorter than `refresh`, so keys are too old before they are fetched again";
            let help = "write a `max_age` of several times `refresh`";
            found.problem(tree, &path.key("auth").key("jwt").key("max_age"), what.to_owned(), help);
        }
        sign_in(server, jwt, tree, found);
    }
    if let Some(auth) = &server.auth {
        let auth_path = path.key("auth");
        let is_open = auth.api_keys == Some(true) || tree.find(&auth_path.key("jwt")).is_some();
        if !is_open {
            let what = "`server.auth` accepts no credentials".to_owned();
            found.problem(
                tree,
                &auth_path,
                what,
                "write `api_keys: true` or `jwt: …` below it, or remove it",
            );
        }
    }
}

/// What signing in at the provider needs beside its own section.
fn sign_in(server: &Server, jwt: &Jwt, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["server", "auth", "jwt"]);
    let needs_discovery = jwt.jwks_url.is_none() || jwt.sign_in.is_some();
    let is_address = jwt.issuer.contains("${") || keys_address(&jwt.issuer).is_ok();
    if needs_discovery && !is_address {
        let what = "`issuer` must be an https address, where the provider publishes what it is".to_owned();
        let help = "write the issuer as in the provider's tokens; without `sign_in`, `jwks_url` can say where its keys are";
        found.problem(tree, &path.key("issuer"), what, help);
    }
    let Some(sign_in) = &jwt.sign_in else { return };
    let path = path.key("sign_in");
    if server.public_url.is_none() {
        let what =
            "`sign_in` needs `server.public_url`: browsers come back to it from the provider".to_owned();
        found.problem(tree, &path, what, "write the address that people reach this server by");
    }
    let lacks_openid =
        sign_in.scopes.as_ref().is_some_and(|scopes| !scopes.iter().any(|scope| scope == "openid"));
    if lacks_openid {
        let what = "`scopes` lacks `openid`, without which there is no ID token".to_owned();
        found.problem(tree, &path.key("scopes"), what, "add `openid`");
    }
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
