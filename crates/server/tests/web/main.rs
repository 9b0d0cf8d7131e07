//! The pages over HTTP, on a real SQLite file: what they show, what they refuse, what their forms do.
//!
//! A browser is a cookie and a client here; `crates/e2e/browser` has the same pages in a real one. Each caller has a
//! listener of their own on the same engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod holds;
mod queue;
mod site;

use std::collections::BTreeSet;

use standfast_core::approver::Approver;
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Approvers, SelfApproval};
use standfast_engine::clock::Clock;

use site::{ARGUMENTS, Browser, Page, Site, origin};

/// T7, T20, T21: no page runs, loads, keeps or tells anything.
#[tokio::test]
async fn every_page_carries_strict_headers() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (run, hold) = site.held("ops").await;
    for (path, status) in [
        ("/".to_owned(), 200),
        ("/?kind=approval".into(), 200),
        ("/?kind=aproval".into(), 400),
        ("/?tol=x".into(), 400),
        ("/history".into(), 200),
        ("/history?outcome=maybe".into(), 400),
        ("/charts".into(), 200),
        ("/charts?over=1y".into(), 400),
        (format!("/review?hold={hold}"), 200),
        ("/runs?state=odd".into(), 400),
        ("/runs".into(), 200),
        (format!("/runs/{run}"), 200),
        (format!("/approve/{hold}"), 200),
        ("/approve/nonsense".into(), 404),
        ("/nothing".into(), 404),
        ("/?cursor=x".into(), 400),
    ] {
        let page = alice.get(&path).await;
        assert_eq!(page.status, status, "{path}");
        let header = |name: &str| page.headers.get(name).map(|value| value.to_str().unwrap());
        let policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";
        assert_eq!(header("content-security-policy"), Some(policy), "{path}");
        assert_eq!(header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(header("x-content-type-options"), Some("nosniff"));
        assert_eq!(header("x-frame-options"), Some("DENY"));
        assert_eq!(header("referrer-policy"), Some("same-origin"));
        assert_eq!(header("cache-control"), Some("no-store"));
        assert_eq!(header("set-cookie"), None, "the browser has its token");
        page.does_not_say("style=\"").says("<html lang=\"en\">");
        // The server's own module, and no other script. What refuses something has none: nothing on it changes.
        let scripts = usize::from(status == 200);
        assert_eq!(page.body.matches("<script").count(), scripts, "{path}");
        let own = page.body.matches("<script type=\"module\" src=\"&#x2f;assets&#x2f;live-");
        assert_eq!(own.count(), scripts, "{path}");
    }
    let stranger = Browser { token: String::new(), ..alice };
    let cookie = stranger.get("/").await.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Lax; Path=/"), "{cookie}");
    let style = stranger.get("/assets/style.css").await;
    assert_eq!(
        (style.status, &style.headers["content-type"]),
        (200, &"text/css; charset=utf-8".parse().unwrap())
    );
    let again = stranger.request(reqwest::Method::GET, "/assets/style.css");
    let again = stranger.send(again.header("if-none-match", style.headers["etag"].clone())).await;
    assert_eq!(again.status, 304);
}

/// T6: whatever fetches a link, nothing happens.
#[tokio::test]
async fn looking_changes_nothing() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (run, hold) = site.held("ops").await;
    let before = site.seq(run).await;
    for method in [reqwest::Method::GET, reqwest::Method::HEAD, reqwest::Method::OPTIONS] {
        for path in
            [format!("/approve/{hold}"), format!("/approve/{hold}?decision=approve"), format!("/runs/{run}")]
        {
            let request = alice.request(method.clone(), &path).header("purpose", "prefetch");
            alice.send(request).await;
        }
    }
    assert_eq!(alice.get(&format!("/runs/{run}/cancel")).await.status, 405);
    assert_eq!((site.seq(run).await, site.effects()), (before, Vec::new()));
}

/// T21: a form without this browser's token decides nothing.
#[tokio::test]
async fn a_form_needs_the_token() {
    let site = Site::new();
    let (alice, other) = (site.browser("alice").await, site.browser("alice").await);
    let (run, hold) = site.held("ops").await;
    let before = site.seq(run).await;
    let path = format!("/approve/{hold}");
    let page = alice.get(&path).await;
    let (digest, token) = (page.hidden("digest"), alice.token.as_str());
    let approve = [("decision", "approve"), ("digest", digest.as_str()), ("revision", "0")];
    let with = |token: &'static str| [&[("csrf", token)], &approve[..]].concat();
    let own = [&[("csrf", token)], &approve[..]].concat();
    let tokenless = Browser { base: alice.base.clone(), client: alice.client.clone(), token: String::new() };
    for (request, status) in [
        (alice.form(&path, &approve), 403),
        (alice.form(&path, &with("")), 403),
        (alice.form(&path, &with("guess")), 403),
        (other.form(&path, &own), 403),
        (tokenless.form(&path, &own), 403),
        (alice.form(&path, &own).headers(origin("https://evil.example")), 403),
        (alice.form(&path, &own).headers(origin("null")), 403),
        (
            alice.request(reqwest::Method::POST, &path).body("{}").header("content-type", "application/json"),
            415,
        ),
        (alice.form("/runs", &[("agent", "ops"), ("input", "x")]), 403),
        (alice.form(&format!("/runs/{run}/cancel"), &[]), 403),
    ] {
        let page = alice.send(request).await;
        assert_eq!(page.status, status, "{}", page.body);
        page.says("<html");
    }
    assert_eq!((site.seq(run).await, site.effects()), (before, Vec::new()));
    assert_eq!(alice.send(alice.form(&path, &own)).await.status, 303);
}

/// S0-33, T17, T19, T20: the page shows the bytes that will run, whole, escaped and with hidden characters marked; what
/// it showed is what runs, once.
#[tokio::test]
async fn what_is_shown_is_what_runs() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (run, hold) = site.held("ops").await;
    let page = alice.get(&format!("/approve/{hold}")).await;
    let shown = "{&quot;path&quot;:  &quot;&#x2f;srv&#x2f;&lt;b&gt;old&lt;&#x2f;b&gt;<span class=\"mark\">⟨U+202E⟩</span>&quot;, \
                 &quot;size&quot;: 9007199254740993}</pre>";
    page.says(shown).says("Approve delete_file?").says("Cannot be undone").says("Check carefully");
    page.does_not_say("\u{202e}").does_not_say("<b>old").says(&page.hidden("digest")[..8]);
    for fact in [run.to_string(), hold.to_string(), "alice".into(), "ops".into()] {
        page.says(&fact);
    }
    let answered = alice.decide(hold, &[("decision", "approve")]).await;
    assert_eq!(
        (answered.status, &answered.headers["location"]),
        (303, &format!("/approve/{hold}").parse().unwrap())
    );
    assert_eq!(site.effects(), [ARGUMENTS]);
    let decided = alice.get(&format!("/approve/{hold}")).await;
    decided.says("Approved").says("by <strong>alice</strong>").says("It ran.").says("Attempt 1, <time");
    decided.does_not_say("<form").does_not_say("<button name=");

    let timeline = alice.get(&format!("/runs/{run}")).await;
    timeline
        .says("&lt;script&gt;alert(1)&lt;&#x2f;script&gt;")
        .does_not_say("<script>alert")
        .does_not_say("\u{202e}");
    for text in [
        "Run of ops started",
        "call 1: delete_file",
        "Held: approval",
        "Approved",
        "Call 1 finished",
        "Done.",
    ] {
        timeline.says(text);
    }
    timeline.does_not_say("Cancel this run");
}

/// A page that is out of date decides nothing and shows what is there now.
#[tokio::test]
async fn a_stale_page_is_told_what_changed() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, hold) = site.held("ops").await;
    let path = format!("/approve/{hold}");
    let digest = alice.get(&path).await.hidden("digest");
    let other = format!("{}{}", if digest.starts_with('0') { "1" } else { "0" }, &digest[1..]);
    for (digest, revision, status, text) in [
        (digest.as_str(), "7", 409, "Changed since you saw it"),
        (other.as_str(), "0", 409, "Changed since you saw it"),
        ("", "0", 422, "The form is incomplete"),
        (digest.as_str(), "", 422, "The form is incomplete"),
        ("nonsense", "0", 422, "The form is incomplete"),
    ] {
        let fields = [("decision", "approve"), ("digest", digest), ("revision", revision)];
        let page = alice.post(&path, &fields).await;
        assert_eq!(page.status, status, "{digest} {revision}");
        page.says(text).says("role=\"alert\"").says("Approve: run it as shown");
    }
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// T12, T15: what is not yours looks like nothing; what you may only look at has no buttons.
#[tokio::test]
async fn others_see_nothing_and_lookers_decide_nothing() {
    let named = BTreeSet::from([Approver::User(UserId::new("bob").unwrap())]);
    let approvers =
        Approvers { named: Some(named), self_approval: SelfApproval::Forbid, ..Approvers::default() };
    let site = Site::with(Clock::system(), HoldPolicy::default(), approvers);
    let (run, hold) = site.held("ops").await;
    let path = format!("/approve/{hold}");
    let mallory = site.browser("mallory").await;
    let nothing = mallory.get("/approve/nonsense").await;
    for foreign in [path.clone(), format!("/runs/{run}")] {
        let page = mallory.get(&foreign).await;
        assert_eq!((page.status, &page.body), (nothing.status, &nothing.body), "{foreign}");
    }
    let fields = [("decision", "approve"), ("revision", "0"), ("digest", "")];
    for foreign in [path.clone(), format!("/runs/{run}/cancel")] {
        let page = mallory.post(&foreign, &fields).await;
        assert_eq!((page.status, &page.body), (404, &nothing.body), "{foreign}");
    }
    mallory.get("/").await.says("Nothing is pending.");
    mallory.get("/runs").await.says("No runs yet.");

    let alice = site.browser("alice").await;
    let page = alice.get(&path).await;
    page.says("you started this run, and someone else must decide").does_not_say("<button name=");
    let bob = site.browser("bob").await;
    let digest = bob.get(&path).await.hidden("digest");
    let page = alice.post(&path, &[("decision", "approve"), ("revision", "0"), ("digest", &digest)]).await;
    assert_eq!(page.status, 403);
    page.says("You may not decide this");
    assert_eq!(site.effects(), Vec::<String>::new());
    bob.get("/").await.says("Approve delete_file?");
    assert_eq!(bob.decide(hold, &[("decision", "approve")]).await.status, 303);
    assert_eq!(site.effects().len(), 1);
}

/// T5: one decision: a form sent twice is one, another one is refused and told which counts.
#[tokio::test]
async fn a_hold_is_decided_once() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, hold) = site.held("ops").await;
    let path = format!("/approve/{hold}");
    let page = alice.get(&path).await;
    let [digest, once] = ["digest", "once"].map(|name| page.hidden(name));
    let form = |decision| {
        [("decision", decision), ("digest", digest.as_str()), ("revision", "0"), ("once", once.as_str())]
    };
    assert_eq!(alice.post(&path, &form("approve")).await.status, 303);
    assert_eq!(alice.post(&path, &form("approve")).await.status, 303, "the same click again");
    let late = alice.post(&path, &form("deny")).await;
    assert_eq!(late.status, 409);
    late.says("Already decided")
        .says("Approved")
        .says("by <strong>alice</strong>")
        .does_not_say("<button name=");
    assert_eq!(site.effects().len(), 1);
}

/// Cancel withdraws what is pending; both pages say so.
#[tokio::test]
async fn a_run_is_started_and_canceled_from_a_page() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    for (agent, input) in [("ops", " "), ("", "x"), ("nobody", "x")] {
        let page = alice.post("/runs", &[("agent", agent), ("input", input)]).await;
        assert!([422, 404].contains(&page.status), "{agent:?} {input:?}");
    }
    let started = alice.post("/runs", &[("agent", "ops"), ("input", "Free\r\nspace")]).await;
    assert_eq!(started.status, 303);
    let path = started.headers["location"].to_str().unwrap().to_owned();
    let run: RunId = path.strip_prefix("/runs/").unwrap().parse().unwrap();
    let page = alice.get(&path).await;
    page.says("Waiting for a person").says("Free\nspace").says("Cancel this run").says("/approve/hold_");
    let hold = HoldId { run, key: site.engine.reads().load(run).await.unwrap().row.run.state.holds[0].key };
    let canceled = alice.post(&format!("{path}/cancel"), &[("reason", "changed <my> mind")]).await;
    assert_eq!(canceled.status, 303);
    alice.get(&path).await.says("Canceled").says("changed &lt;my&gt; mind").does_not_say("<form");
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("Withdrawn: the run ended first").says("It did not run.").does_not_say("<form");
    assert_eq!(alice.post(&format!("{path}/cancel"), &[]).await.status, 409);
}

/// S4-17, S4-26, S0-49: what is pending is listed with kind, question, reason, age and deadline; what expired says so.
#[tokio::test]
async fn what_waits_is_listed_and_paged() {
    let noon = Timestamp(1_762_000_000_000);
    let holds = HoldPolicy { timeout: Some(Millis::hours(2)), ..HoldPolicy::default() };
    let site = Site::with(Clock::standing_at(noon), holds, Approvers::default());
    let alice = site.browser("alice").await;
    alice.get("/").await.says("Nothing is pending.").says("Start a run");
    let (_, approval) = site.held("ops").await;
    for agent in ["options", "lost", "job", "login"] {
        site.held(agent).await;
    }
    site.engine.clock().advance(Millis::seconds(90 * 60));
    let page = alice.get("/").await;
    for text in [
        "Approve delete_file?",
        "Which?",
        "two &lt;disks&gt;",
        "Did lost take effect?",
        "Waiting for the result of job",
    ] {
        page.says(text);
    }
    page.says("login needs a login")
        .says("pending for")
        .says("1 h 30 min")
        .says("in 30 min")
        .says("⟨U+202E⟩")
        .does_not_say("\u{202e}");
    // By kind, in words, in the navigation and in the title of the tab.
    let counts = "(1 approval, 1 question, 1 job or sub-run, 1 login, 1 unknown outcome) ";
    page.says(&format!("<title>{counts}Pending · Standfast</title>"));
    page.says("<a class=\"kind-count kind-input\" href=\"/?kind=input\">1 question</a>");
    alice.get("/me").await.says(&format!("<title>{counts}"));
    for (kind, says, does_not) in [
        ("approval", "Approve delete_file?", "Which?"),
        ("input", "Which?", "Approve delete_file?"),
        ("recovery", "Did lost take effect?", "Which?"),
        ("external", "Waiting for the result of job", "Which?"),
        ("auth", "needs a login", "Which?"),
    ] {
        alice.get(&format!("/?kind={kind}")).await.says(says).does_not_say(does_not);
    }
    for _ in 0..25 {
        site.held("words").await;
    }
    let first = alice.get("/").await;
    let next = first.body.split_once("rel=\"next\" href=\"").unwrap().1.split_once('"').unwrap().0;
    let next = next.replace("&#x2f;", "/").replace("&amp;", "&");
    let second = alice.get(&next).await;
    let count = |page: &Page| page.body.matches("class=\"item\"").count();
    assert_eq!((count(&first), count(&second)), (25, 5));

    site.engine.clock().advance(Millis::hours(1));
    let decided = alice.decide(approval, &[("decision", "approve")]).await;
    assert_eq!(decided.status, 409);
    decided.says("Expired").says("It did not run.").does_not_say("<button name=");
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// What was decided is found again, by those who may see it: on the page, as CSV and as JSON.
#[tokio::test]
async fn decided_holds_are_in_the_history() {
    let site = Site::new();
    let (alice, mallory) = (site.browser("alice").await, site.browser("mallory").await);
    let (_, hold) = site.held("ops").await;
    let (run, withdrawn) = site.held("options").await;
    assert_eq!(alice.decide(hold, &[("decision", "deny"), ("reason", "no")]).await.status, 303);
    site.engine.submit().cancel(&site::who("alice"), run, None, None).await.unwrap();
    let all = alice.get("/history").await;
    all.says(&hold.to_string()).says(&withdrawn.to_string()).says("Denied").says("Withdrawn");
    // What was asked is shown as in the list of what is pending: with its hidden characters, as text.
    all.says("&#x2f;srv&#x2f;&lt;b&gt;old&lt;&#x2f;b&gt;<span class=\"mark\">⟨U+202E⟩</span> · size: 9007199254740993");
    all.says("Which?").does_not_say("\u{202e}");
    let denied = alice.get("/history?outcome=denied&by=alice&tool=delete_file").await;
    denied.says(&hold.to_string()).does_not_say(&withdrawn.to_string());
    alice.get("/history?outcome=approved").await.says("No decision fits these filters");
    alice.get("/history.csv?outcome=denied").await.says("delete_file,denied,alice,");
    alice.get("/history.json").await.says("\"outcome\":\"withdrawn\"").says("\"next_cursor\":null");
    mallory.get("/history").await.says("Nothing was decided yet").does_not_say(&hold.to_string());
}

/// A hold that was opened from a list leads to the next one of that list, with what just happened.
#[tokio::test]
async fn a_decision_leads_to_the_next_hold_of_its_list() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, first) = site.held("ops").await;
    site.held("options").await;
    let (_, second) = site.held("ops").await;
    let from = "kind=approval";
    let opened = alice.get(&format!("/approve/{first}?from=kind%3Dapproval")).await;
    opened.says(&format!("name=\"next\" value=\"{second}\""));
    let next = second.to_string();
    let answered = alice.decide(first, &[("decision", "approve"), ("from", from), ("next", &next)]).await;
    let location = answered.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(location, format!("/approve/{second}?from=kind%3Dapproval&done={first}"));
    alice.get(&location).await.says("Approved: delete_file").says("Approve delete_file?");
    let last = alice.decide(second, &[("decision", "deny"), ("from", from), ("next", "")]).await;
    assert_eq!(last.headers["location"], format!("/approve/{second}?from=kind%3Dapproval").as_str());
}

/// Several are decided together; each counts by itself, with what it was shown with.
#[tokio::test]
async fn several_holds_are_decided_together() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let holds = [site.held("ops").await.1, site.held("ops").await.1];
    let path = format!("/review?hold={}&hold={}", holds[0], holds[1]);
    // A question stands there with whose run it is and what was said before, as an approval does.
    let question = alice.get(&format!("/review?hold={}", site.held("options").await.1)).await;
    question.says("started by <strong>alice</strong>").says("alice asked").says("&lt;script&gt;alert(1)");
    let page = alice.get(&path).await;
    page.says("Approve all 2 as shown").says("2 of them cannot be undone");
    assert_eq!(site.effects(), Vec::<String>::new());
    assert_eq!(alice.decide(holds[0], &[("decision", "deny")]).await.status, 303);
    let mut fields: Vec<(String, String)> = vec![("decision".into(), "approve".into())];
    for hold in holds {
        let own = |name: &str| page.hidden(&format!("{name}-{hold}"));
        fields.push(("hold".into(), hold.to_string()));
        fields.push((format!("digest-{hold}"), own("digest")));
        fields.push((format!("revision-{hold}"), own("revision")));
    }
    fields.push(("csrf".into(), page.hidden("csrf")));
    fields.push(("once".into(), page.hidden("once")));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let result = alice.send(alice.form("/review", &fields)).await;
    assert_eq!(result.status, 409);
    result.says("Already decided").says("Denied by alice").says("Approved by alice");
    site.engine.reads().settled_run(&site::who("alice"), holds[1].run, Millis::seconds(10)).await.unwrap();
    assert_eq!(site.effects(), [ARGUMENTS]);
}
