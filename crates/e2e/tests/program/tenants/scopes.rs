//! What a credential is not for: on every surface its holder hears nothing by it and changes nothing with it, also of what is their own.
//!
//! The requests are those that `tenants.rs` makes as a stranger; here their sender is the owner, with a key for something else.

use serde_json::json;
use standfast_testkit::json::owned_text as text;

use super::asked::{HOOK, MCP, over_grpc, requests};
use super::auditor::follows;
use super::{Site, Things};

/// What a key for this may do all the same.
fn is_its_own(scope: &str, path: &str) -> bool {
    match scope {
        "gates:open" => path.contains("/gates/") || [MCP, HOOK].contains(&path),
        "inbox:work" => path.starts_with("/api/inboxes/"),
        _ => false,
    }
}

/// A key of the owner that scrapes metrics, opens gates or works on tasks, and is for nothing else: every request about a single thing
/// of theirs is refused by every surface, those that read by POST among them, and says nothing of it; and nothing changed.
#[tokio::test]
async fn a_key_for_something_else_hears_nothing_and_changes_nothing() {
    let site = Site::new();
    let ann = site.keys(&["create", "--user", "ann", "--scope", "admin"]);
    let things = Things::of(&site, &ann).await;
    let document = site.json(&ann, "GET", "/openapi.json", None).await;
    let shown = |path: &str| path.replace(' ', "%20");
    let kept = [
        format!("/api/v1/runs/{}", things.run),
        format!("/api/v1/runs/{}", things.asking),
        shown(&format!("/api/v1/sessions/{}", things.session)),
        format!("/api/v1/subscriptions/{}", things.subscription),
        format!("/api/inboxes/tickets/tasks/{}", things.task),
        format!("/api/v1/gates/{}", things.gate),
        format!("/api/v1/grants/{}", things.grant),
    ];
    let mut before = Vec::new();
    for path in &kept {
        before.push(site.json(&ann, "GET", path, None).await);
    }
    for scope in ["metrics:read", "gates:open", "inbox:work"] {
        let key = site.keys(&["create", "--user", "ann", "--scope", scope]);
        let (mut asked, mut wrong) = (0, Vec::new());
        for (method, path, body) in requests(&document, &things) {
            if is_its_own(scope, &path) || follows(&path, body.as_ref()) {
                continue;
            }
            let (status, said, _) = site.ask(&key, &method, &path, body.as_ref()).await;
            let is_rpc = path == MCP || body.as_ref().is_some_and(|body| body["jsonrpc"].is_string());
            let is_refused = status >= 400
                || (is_rpc && (said.contains("\"error\"") || said.contains("\"isError\":true")));
            // What the call would do, and what the gate is about.
            let tells = ["echo hello", "send_refund", "\"amount\""].iter().any(|word| said.contains(word));
            if !is_refused || tells {
                let rpc = body.as_ref().and_then(|body| body["method"].as_str()).unwrap_or_default();
                wrong.push(format!("{method} {path} {rpc}: {status} {said}"));
            }
            asked += 1;
        }
        for (name, answer) in over_grpc(&site, &key, &things.run).await {
            if answer.is_ok() {
                wrong.push(format!("gRPC {name}"));
            }
        }
        assert!(wrong.is_empty(), "{scope}:\n{}", wrong.join("\n"));
        assert!(asked > 90, "{scope}: {asked}");
    }
    for (path, before) in kept.iter().zip(before) {
        assert_eq!(site.json(&ann, "GET", path, None).await, before, "{path}");
    }
}

/// Nor does a key that opens no gates hear what the policy would say of a call: neither over MCP nor from a hook, whether a rule is about
/// it or not.
#[tokio::test]
async fn the_policy_is_told_to_those_who_open_gates() {
    let site = Site::new();
    let reads = site.keys(&["create", "--user", "ann", "--scope", "runs:read"]);
    for tool in ["execute_command", "look_up"] {
        let arguments = json!({"tool": tool, "arguments": {"command": "echo"}});
        let params = json!({"name": "check", "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (_, said, _) = site.ask(&reads, "POST", MCP, Some(&body)).await;
        assert!(said.contains("\"isError\":true") && said.contains("gates:open"), "{said}");
        assert!(!said.contains("effect"), "{said}");
        let event = json!({"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": {}, "session_id": "s", "tool_use_id": "c"});
        let (status, said, _) = site.ask(&reads, "POST", HOOK, Some(&event)).await;
        assert!(status == 403 && said.contains("gates:open"), "{status} {said}");
    }
}

/// A key that changes nothing else ends the sessions that began with it, and does not sign its owner out elsewhere: not by the API, not
/// by the page, not all at once.
#[tokio::test]
async fn a_key_for_something_else_signs_nobody_out() {
    let site = Site::new();
    let ann = site.keys(&["create", "--user", "ann"]);
    let page = "/me";
    let session = async |key: &str| {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let request = client.build().unwrap().post(format!("{}/sign-in", site.server.base));
        let request = request.header("cookie", format!("standfast_csrf={}", super::TOKEN));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let done = request.body(format!("csrf={}&key={key}&next=", super::TOKEN)).send().await.unwrap();
        assert_eq!(done.status(), 303);
        let cookies = done.headers().get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap());
        let cookie =
            cookies.map(|cookie| cookie.split(';').next().unwrap()).find(|cookie| cookie.contains('.'));
        cookie.unwrap().to_owned()
    };
    let counts = async |cookie: &str| {
        let request = site.client.get(format!("{}{page}", site.server.base)).header("cookie", cookie);
        request.send().await.unwrap().status().as_u16()
    };
    let browser = session(&ann).await;
    let listed = site.json(&ann, "GET", "/api/v1/sign-ins", None).await;
    let id = text(&listed["sign_ins"][0]["id"]);
    for scope in ["runs:read", "gates:open", "metrics:read", "inbox:work"] {
        let key = site.keys(&["create", "--user", "ann", "--scope", scope]);
        let (status, said, _) = site.ask(&key, "DELETE", &format!("/api/v1/sign-ins/{id}"), None).await;
        assert!(status == 403 && said.contains("runs:write"), "{scope}: {status} {said}");
        for form in [format!("/me/sessions/{id}/end"), "/me/sessions/end-others".to_owned()] {
            site.ask(&key, "POST", &form, Some(&json!(""))).await;
            assert_eq!(counts(&browser).await, 200, "{scope}: {form}");
        }
    }
    // Its own it ends, and the owner ends any.
    let reads = site.keys(&["create", "--user", "ann", "--scope", "runs:read"]);
    let own = session(&reads).await;
    let sessions = site.json(&reads, "GET", "/api/v1/sign-ins", None).await;
    let prefix = reads.split('_').nth(1).unwrap();
    let sessions = sessions["sign_ins"].as_array().unwrap().clone();
    let its = sessions.iter().find(|one| one["key"] == prefix).unwrap_or_else(|| panic!("{sessions:?}"));
    let (status, said, _) =
        site.ask(&reads, "DELETE", &format!("/api/v1/sign-ins/{}", text(&its["id"])), None).await;
    assert_eq!((status, counts(&own).await), (204, 401), "{said}");
    assert_eq!(site.ask(&ann, "DELETE", &format!("/api/v1/sign-ins/{id}"), None).await.0, 204);
    assert_eq!(counts(&browser).await, 401);
}
