//! T5: the native API, the forms of the pages, and the hooks of coding agents: what came once, again at the same node, at another one,
//! after `kill -9`, and late.

use serde_json::{Value, json};
use standfast_testkit::http::{Answer, Http};
use standfast_testkit::text;

use super::{AGAIN, FORM, HTML, Pair, decides, open_holds, with_key};

/// T5: the native API. A decision names its hold and decides no other: without a key it is refused when it comes again, with one it is
/// answered as before, and the same key for another decision is a mistake. Late it is refused, whatever it carries.
#[tokio::test]
async fn t5_api_a_decision_that_comes_again_decides_nothing_more() {
    let mut pair = Pair::new();
    let started = json!({"input": "please", "wait": "settled"});
    assert_eq!(pair.http(0).post("/api/v1/agents/ops/runs", &started).await.status, 201);
    let path = |hold: &str| format!("/api/v1/holds/{hold}/resolve");
    let approve = json!({"resolution": "approve", "wait": "settled"}).to_string();
    let deny = json!({"resolution": "deny", "wait": "settled"}).to_string();
    let first = path(&pair.hold("a.txt").await);
    assert_eq!(pair.http(0).send("POST", &first, &[], &approve).await.status, 200);
    let second = pair.hold("b.txt").await;
    for again in AGAIN {
        let http = pair.again(again);
        for key in [None, Some("late")] {
            let repeated = http.send("POST", &first, &with_key(key), &approve).await;
            assert_eq!(repeated.status, 409, "{again:?} {key:?}: {repeated:?}");
        }
        assert_eq!(open_holds(&http).await, std::slice::from_ref(&second), "{again:?}");
        assert_eq!(pair.written(), "a", "{again:?}");
    }
    let second = path(&second);
    let keyed = pair.http(0).send("POST", &second, &with_key(Some("k")), &approve).await;
    assert_eq!(keyed.status, 200, "{keyed:?}");
    let third = pair.hold("c.txt").await;
    for again in AGAIN {
        let http = pair.again(again);
        let repeated = http.send("POST", &second, &with_key(Some("k")), &approve).await;
        assert_eq!(repeated.status, 200, "{again:?}: {repeated:?}");
        let other = http.send("POST", &second, &with_key(Some("k")), &deny).await;
        assert_eq!(other.status, 422, "{again:?}: {other:?}");
        assert_eq!(open_holds(&http).await, std::slice::from_ref(&third), "{again:?}");
        assert_eq!(pair.written(), "ab", "{again:?}");
    }
    // Late: somebody else said no meanwhile.
    decides(&pair.http(1), &third, &json!({"resolution": "deny", "wait": "settled"})).await;
    for again in AGAIN {
        let http = pair.again(again);
        for key in [None, Some("k-3")] {
            let late = http.send("POST", &path(&third), &with_key(key), &approve).await;
            assert_eq!(late.status, 409, "{again:?} {key:?}: {late:?}");
        }
        assert_eq!(pair.written(), "ab", "{again:?}");
    }
}

/// The token that forms carry, and the cookie that a browser has it in.
const TOKEN: &str = "0000000000000000000000000000000000000000000000000000";

/// A page with a form that decides a hold.
struct FormPage {
    /// Of which conversation.
    session: &'static str,
    /// Where the agent is asked, and how.
    begins: (&'static str, &'static str),
    shown: &'static str,
    posted: &'static str,
    /// The hidden members of the form.
    fields: &'static [&'static str],
    /// The status of the answer to a decision.
    done: u16,
}

const DECIDES: &[&str] = &["csrf", "once", "digest", "revision"];
const SAVES_A_RULE: &[&str] = &["csrf", "once", "digest", "revision", "uses", "until", "grant_digest"];
const RUN: (&str, &str) =
    ("/api/v1/agents/ops/runs", r#"{"input": "please", "session": "SESSION", "wait": "settled"}"#);
const TASK: (&str, &str) = ("/api/inboxes/files/tasks", r#"{"type": "t", "payload": 1}"#);

const FORM_PAGES: [FormPage; 6] = [
    FormPage {
        session: "s-1",
        begins: RUN,
        shown: "/approve/HOLD",
        posted: "/approve/HOLD",
        fields: DECIDES,
        done: 303,
    },
    FormPage {
        session: "s-2",
        begins: RUN,
        shown: "/approve/HOLD",
        posted: "/review/HOLD?hold=HOLD",
        fields: DECIDES,
        done: 303,
    },
    FormPage {
        session: "s-6",
        begins: RUN,
        shown: "/review?hold=HOLD",
        posted: "/review",
        fields: &["csrf", "once", "hold", "digest-HOLD", "revision-HOLD"],
        done: 200,
    },
    FormPage {
        session: "s-3",
        begins: RUN,
        shown: "/sessions/SESSION?agent=ops",
        posted: "/sessions/SESSION/holds/HOLD?agent=ops",
        fields: DECIDES,
        done: 303,
    },
    FormPage {
        session: "s-4",
        begins: TASK,
        shown: "/inboxes/files",
        posted: "/inboxes/files/holds/HOLD",
        fields: DECIDES,
        done: 303,
    },
    FormPage {
        session: "s-5",
        begins: RUN,
        shown: "/approve/HOLD/grant?uses=1&hours=24",
        posted: "/approve/HOLD/grant",
        fields: SAVES_A_RULE,
        done: 303,
    },
];

impl FormPage {
    fn of(&self, template: &str, hold: &str) -> String {
        template.replace("HOLD", hold).replace("SESSION", self.session)
    }

    /// The form of this page that says yes, as a browser would send it now.
    async fn form(&self, http: &Http, hold: &str) -> String {
        let cookie = format!("standfast_csrf={TOKEN}");
        let page = http.send("GET", &self.of(self.shown, hold), &[HTML, ("cookie", &cookie)], "").await;
        let field = |name: String| format!("{name}={}&", page.field(&name).replace('+', "%2B"));
        let fields = self.fields.iter().map(|name| field(self.of(name, hold)));
        fields.chain(["decision=approve".to_owned()]).collect()
    }

    async fn post(&self, http: &Http, hold: &str, form: &str) -> Answer {
        let cookie = format!("standfast_csrf={TOKEN}");
        let headers = [FORM, HTML, ("cookie", cookie.as_str())];
        http.send("POST", &self.of(self.posted, hold), &headers, form).await
    }
}

/// T5: the pages. The form of a page decides its hold once, and the same click is the same click wherever and whenever it comes again;
/// another form of that hold is refused, and so is one that comes late. What is asked next stays asked.
#[tokio::test]
async fn t5_pages_a_form_that_is_sent_again_decides_nothing_more() {
    let mut pair = Pair::new();
    for page in FORM_PAGES {
        let at = page.posted;
        let (path, body) = page.begins;
        let begun = pair.http(0).send("POST", path, &[], &page.of(body, "")).await;
        assert_eq!(begun.status, 201, "{at}: {begun:?}");
        let hold = pair.hold("a.txt").await;
        let form = page.form(&pair.http(0), &hold).await;
        let other = page.form(&pair.http(1), &hold).await;
        assert_ne!(form, other, "{at}");
        let first = page.post(&pair.http(0), &hold, &form).await;
        assert_eq!(first.status, page.done, "{at}: {first:?}");
        let next = pair.hold("b.txt").await;
        for again in AGAIN {
            let http = pair.again(again);
            let same = page.post(&http, &hold, &form).await;
            assert_eq!(same.status, page.done, "{at} {again:?}: {}", same.text);
            let late = page.post(&http, &hold, &other).await;
            assert_eq!(late.status, 409, "{at} {again:?}: {}", late.text);
            // The form of one hold is none of the next one's.
            if page.posted.contains("HOLD") {
                let elsewhere = page.post(&http, &next, &form).await;
                assert!((400..500).contains(&elsewhere.status), "{at} {again:?}: {}", elsewhere.text);
            }
            assert_eq!(
                (pair.written().as_str(), open_holds(&http).await),
                ("a", vec![next.clone()]),
                "{at} {again:?}"
            );
        }
        // Late: decided elsewhere after the page was opened.
        let form = page.form(&pair.http(0), &next).await;
        decides(&pair.http(1), &next, &json!({"resolution": "deny", "wait": "settled"})).await;
        let last = pair.hold("c.txt").await;
        for again in AGAIN {
            let late = page.post(&pair.again(again), &next, &form).await;
            assert_eq!(late.status, 409, "{at} {again:?}: {}", late.text);
            assert_eq!(pair.written(), "a", "{at} {again:?}");
        }
        decides(&pair.http(0), &last, &json!({"resolution": "deny", "wait": "settled"})).await;
        assert_eq!(open_holds(&pair.http(1)).await, [""; 0], "{at}");
        std::fs::remove_file(pair.folder.path().join("workspace/a.txt")).unwrap();
    }
    let granted = pair.http(0).get("/api/v1/grants").await;
    assert_eq!(
        granted.body["grants"].as_array().map(Vec::len),
        Some(1),
        "one rule was saved, once: {granted:?}"
    );
}

/// T5: hooks. A client that has no name for a call asks where it would ask its user: one hold however often and wherever it asks, and one
/// "allow" for one approval, also of two that ask at once at two nodes, and after a crash; what was denied is not allowed later.
#[tokio::test]
async fn t5_hooks_an_approval_lets_one_call_run() {
    let mut pair = Pair::new();
    let event = json!({"session_id": "p", "hook_event_name": "PermissionRequest", "tool_name": "send_refund",
        "tool_input": {"amount": 1}});
    let ask = async |http: Http| -> String { http.post("/hooks/claude-code?wait=0", &event).await.text };
    let is_allowed = |said: &str| said.contains("\"allow\"");
    assert_eq!(ask(pair.http(0)).await, "{}", "its own dialog stays");
    let first = open_holds(&pair.http(0)).await;
    assert_eq!(first.len(), 1, "{first:?}");
    for again in AGAIN {
        let http = pair.again(again);
        assert_eq!(ask(http.clone()).await, "{}", "{again:?}");
        assert_eq!(open_holds(&http).await, first, "{again:?}: one question");
    }
    decides(&pair.http(1), &first[0], &json!({"resolution": "approve"})).await;
    let (here, there) = tokio::join!(ask(pair.http(0)), ask(pair.http(1)));
    let allowed = [&here, &there].into_iter().filter(|said| is_allowed(said)).count();
    assert_eq!(allowed, 1, "{here} {there}");
    // Whoever asks from then on asks anew, about one and the same.
    let mut second = Vec::new();
    for again in AGAIN {
        let http = pair.again(again);
        let said = ask(http.clone()).await;
        assert!(!is_allowed(&said), "{again:?}: {said}");
        let open = open_holds(&http).await;
        assert!(open.len() == 1 && open != first, "{again:?}: {open:?}");
        assert!(second.is_empty() || second == open, "{again:?}: {open:?}");
        second = open;
    }
    // Once more, and the one that decides is gone before anybody asks.
    decides(&pair.http(0), &second[0], &json!({"resolution": "approve"})).await;
    pair.crash(0);
    let said = ask(pair.http(0)).await;
    assert!(is_allowed(&said), "{said}");
    for again in AGAIN {
        let said = ask(pair.again(again)).await;
        assert!(!is_allowed(&said), "{again:?}: {said}");
    }
    let third = open_holds(&pair.http(0)).await;
    assert_eq!(third.len(), 1, "{third:?}");
    decides(&pair.http(1), &third[0], &json!({"resolution": "deny"})).await;
    for again in AGAIN {
        let said = ask(pair.again(again)).await;
        assert!(!is_allowed(&said), "{again:?}: {said}");
    }
    let gates: Vec<Value> =
        pair.http(0).get("/api/v1/runs?agent=gate&limit=50").await.body["runs"].as_array().unwrap().clone();
    let ids: Vec<&str> = gates.iter().map(|gate| text(&gate["id"])).collect();
    let mut started = 0;
    for id in &ids {
        let log = pair.http(0).get(&format!("/api/v1/runs/{id}/events")).await.text;
        started += log.matches("\"call.started\"").count();
    }
    assert_eq!(started, 2, "two approvals, two starts: {ids:?}");
}
