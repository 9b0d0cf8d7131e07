//! The role `auditor` on every surface: everything of the tenant can be looked at, and nothing can be decided or changed,
//! whatever the credential is for.
//!
//! The requests are those that `tenants.rs` makes as a stranger.

use serde_json::json;

use super::asked::{HOOK, LISTS, MCP, over_grpc, requests};
use super::{Site, Things};

/// What waits for a stream to end is no question of rights.
pub(super) fn follows(path: &str, body: Option<&serde_json::Value>) -> bool {
    let method = body.and_then(|body| body["method"].as_str()).unwrap_or_default();
    let asks = body.map(|body| &body["params"]["arguments"]);
    // Whoever looks at a held gate by MCP waits for the decision.
    let waits = path == MCP && asks.is_some_and(|asks| asks["status"].is_null());
    let is_stream = path.ends_with(":subscribe")
        || path.starts_with("/events?")
        || (path.contains("/gates/") && path.ends_with("/events"));
    waits || is_stream || ["SubscribeToTask", "tasks/resubscribe"].contains(&method)
}

/// T12, T36: every look of an auditor finds what an administrator's finds; every change is refused, on each surface, and
/// afterwards everything is as it was. Neither the scope nor the role `admin` changes that.
#[tokio::test]
async fn an_auditor_reads_everything_and_changes_nothing() {
    let site = Site::new();
    let root = site.keys(&["create", "--user", "root", "--scope", "admin"]);
    let boss = site.keys(&["create", "--user", "boss", "--scope", "admin"]);
    let things = Things::of(&site, &root).await;
    let document = site.json(&root, "GET", "/openapi.json", None).await;
    let kept = [
        format!("/api/v1/runs/{}", things.run),
        format!("/api/v1/runs/{}", things.asking),
        "/api/v1/sessions/night%20shift".to_owned(),
        format!("/api/v1/subscriptions/{}", things.subscription),
        format!("/api/inboxes/tickets/tasks/{}", things.task),
        format!("/api/v1/gates/{}", things.gate),
        format!("/api/v1/grants/{}", things.grant),
    ];
    let mut before = Vec::new();
    for path in &kept {
        before.push(site.json(&root, "GET", path, None).await);
    }
    let nothing: [&str; 0] = [];
    for more in [&nothing[..], &["--scope", "admin"], &["--role", "admin"]] {
        let eve = site.keys(&[&["create", "--user", "eve", "--role", "auditor"], more].concat());
        let (mut looks, mut wrong) = (0, Vec::new());
        for (method, path, body) in requests(&document, &things) {
            if follows(&path, body.as_ref()) {
                continue;
            }
            let (status, said, _) = site.ask(&eve, &method, &path, body.as_ref()).await;
            let rpc = body.as_ref().and_then(|body| body["method"].as_str()).unwrap_or_default();
            let refuses = |status: u16, said: &str| {
                status >= 400
                    || (!rpc.is_empty() && (said.contains("\"error\"") || said.contains("\"isError\":true")))
            };
            let is_refused = refuses(status, &said);
            if path == HOOK {
                // Of a call that they did not ask about, nothing is taken down; what is kept shows it.
                assert!(is_refused || said == "{}", "{said}");
            } else if path.ends_with("/grant") {
                // The page is a form for those who decide, and nothing is to be seen on it.
                assert!(is_refused, "{said}");
            } else if method == "GET" || ["GetTask", "tasks/get"].contains(&rpc) {
                let (theirs, their_answer, _) = site.ask(&boss, &method, &path, body.as_ref()).await;
                let is_there = !refuses(theirs, &their_answer);
                looks += usize::from(is_there);
                if status != theirs || is_refused == is_there {
                    wrong.push(format!("{method} {path} {rpc}: {status} instead of {theirs}: {said}"));
                }
            } else if !is_refused {
                wrong.push(format!("{method} {path} {rpc}: {status}: {said}"));
            }
        }
        assert!(wrong.is_empty(), "{more:?}:\n{}", wrong.join("\n"));
        assert!(looks >= 12, "{looks}");
        // Lists have for them what they have for an administrator.
        let lists = document["paths"].as_object().unwrap().iter();
        let lists =
            lists.filter(|(path, methods)| methods.get("get").is_some() && things.path(path).is_none());
        let lists = lists.map(|(path, _)| path.replace("{agent}", "ops").replace("{inboxId}", "tickets"));
        let pages = LISTS.map(str::to_owned);
        for path in lists.filter(|path| !path.ends_with("/events")).chain(pages) {
            let (found, theirs, _) = site.ask(&boss, "GET", &path, None).await;
            let (status, listed, _) = site.ask(&eve, "GET", &path, None).await;
            assert_eq!(status, found, "{path}: {listed}");
            let names = things.names();
            let missing = names.iter().find(|name| theirs.contains(**name) && !listed.contains(**name));
            assert_eq!(missing, None, "{path}: {listed}");
        }
        let (_, page, _) = site.ask(&eve, "GET", &format!("/approve/{}", things.hold), None).await;
        assert!(!page.contains("data-action=\"approve\""), "{page}");
        assert!(page.contains("auditors decide nothing"), "{page}");
        for (name, answer) in over_grpc(&site, &eve, &things.run).await {
            let is_look = ["GetTask", "SubscribeToTask", "ListPush"].iter().any(|look| name.ends_with(look));
            // There is no receiver of this name, for anybody.
            assert!(answer.is_ok() == is_look || name.ends_with("GetPush"), "{name}: {answer:?}");
        }
        // What is new is refused too.
        let new = json!({"input": "please"});
        for (path, body) in [
            ("/api/v1/agents/ops/runs", new),
            ("/api/v1/subscriptions", json!({"url": "http://127.0.0.1:9/hook"})),
            ("/api/inboxes/tickets/tasks", json!({"type": "ticket", "payload": {}})),
            ("/api/inboxes/tickets/claim", json!({})),
        ] {
            let (status, said, _) = site.ask(&eve, "POST", path, Some(&body)).await;
            assert!((400..500).contains(&status), "{path}: {status} {said}");
        }
    }
    for (path, before) in kept.iter().zip(before) {
        assert_eq!(site.json(&root, "GET", path, None).await, before, "{path}");
    }
    // Of another tenant an auditor sees nothing, as everybody else.
    let other = site.keys(&["create", "--user", "eve", "--role", "auditor", "--tenant", "acme"]);
    assert_eq!(site.ask(&other, "GET", &kept[0], None).await.0, 404);
}
