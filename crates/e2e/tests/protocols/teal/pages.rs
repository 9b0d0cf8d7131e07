//! The addresses of a pause in a browser: a page that asks, never a decision by looking; and behind a path of a proxy.
//!
//! `crates/e2e/browser` has the same page in a real browser.

use serde_json::json;

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, Server, demo, text};

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");

/// What the form of a page repeats, as a browser would send it, and the cookie.
async fn form(server: &Server, url: &str) -> (String, String) {
    let page = server.send("GET", url, &[HTML], "").await;
    assert_eq!(page.status, 200, "{page:?}");
    let cookie = page.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let field = |name: &str| {
        let start = format!("name=\"{name}\" value=\"");
        let rest = &page.text[page.text.find(&start).unwrap() + start.len()..];
        let value = rest[..rest.find('"').unwrap()].replace("&#x2f;", "/");
        value.replace('/', "%2F").replace(' ', "+")
    };
    (format!("csrf={}&once={}&seen={}", field("csrf"), field("once"), field("seen")), cookie)
}

/// S1-12, T7, T21: opened in a browser, an approval address shows what would run and decides nothing, however often;
/// its form decides once, with the token of this browser; a form from elsewhere decides nothing.
#[tokio::test]
async fn looking_decides_nothing_and_the_form_decides_once() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let paused = server.paused("ops").await;
    let url = text(&paused["approval_url"]).to_owned();
    for address in [&url, &text(&paused["rejection_url"]).to_owned()] {
        let page = server.send("GET", address, &[HTML], "").await;
        assert_eq!(page.status, 200);
        assert!(page.text.contains("&quot;&#x2f;srv&#x2f;cache&#x2f;old&quot;"), "{}", page.text);
        assert!(page.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
        assert_eq!(page.headers["cache-control"], "no-store");
        server.send("HEAD", address, &[HTML], "").await;
    }
    // Programs that follow links get the task, and no cookie.
    let plain = server.get(&url).await;
    assert_eq!(plain.body["status"], "Paused", "{plain:?}");
    assert!(!plain.headers.contains_key("set-cookie"));
    let (fields, cookie) = form(&server, &url).await;
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let approve = format!("{fields}&action=approve");
    let without_cookie = server.send("POST", &url, &[kind, HTML], &approve).await;
    assert_eq!(without_cookie.status, 403, "{without_cookie:?}");
    let foreign = [kind, HTML, ("cookie", &cookie), ("origin", "https://evil.example")];
    assert_eq!(server.send("POST", &url, &foreign, &approve).await.status, 403);
    let ours = [kind, HTML, ("cookie", cookie.as_str())];
    let strange = server.send("POST", &url, &ours, &format!("{fields}&action=perhaps")).await;
    assert_eq!(strange.status, 422, "{}", strange.text);
    assert_eq!(server.task("ops", &paused["task_id"]).await["status"], "Paused");
    let done = server.send("POST", &url, &ours, &approve).await;
    assert_eq!(done.status, 303, "{}", done.text);
    assert_eq!(done.headers["location"], format!("{BASE}/resume/{}", text(&paused["request_id"])));
    server.until("ops", &paused["task_id"], "Completed").await;
    // The same click once more is the same click; another one is told who was faster, on a page.
    assert_eq!(server.send("POST", &url, &ours, &approve).await.status, 303);
    let (fields, cookie) = (fields.replace("once=", "once=x"), cookie);
    let late = [kind, HTML, ("cookie", cookie.as_str())];
    let late = server.send("POST", &url, &late, &format!("{fields}&action=reject")).await;
    assert_eq!(late.status, 409, "{}", late.text);
    assert!(late.text.contains("already decided") && late.text.contains("<h1>"), "{}", late.text);
    let effects = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap();
    assert_eq!(effects.lines().count(), 1, "{effects}");
    let gone = server.send("GET", &format!("{BASE}/resume/req_nothing"), &[HTML], "").await;
    assert!(gone.status == 404 && gone.text.contains("<h1>"), "{}", gone.text);
}

/// T19: a page that is older than an edit decides nothing: its form repeats what it showed.
#[tokio::test]
async fn a_page_that_is_out_of_date_decides_nothing() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let paused = server.paused("ops").await;
    let url = text(&paused["approval_url"]).to_owned();
    let (fields, cookie) = form(&server, &url).await;
    let other = fields.replace("&seen=", "&seen=1-00000000000000000000000000%2F%2F0+");
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let headers = [kind, HTML, ("cookie", cookie.as_str())];
    let seen = fields.split("&seen=").nth(1).unwrap();
    let (key, rest) = seen.split_once("%2F").unwrap();
    let (digest, _) = rest.split_once("%2F").unwrap();
    for stale in [
        fields.replace(seen, &format!("{key}%2F{digest}%2F1")),
        fields.replace(digest, &"0".repeat(digest.len())),
        fields.replace(seen, ""),
        fields.replace(seen, "nonsense"),
    ] {
        let answer = server.send("POST", &url, &headers, &format!("{stale}&action=approve")).await;
        assert!(matches!(answer.status, 409 | 422), "{stale}: {} {}", answer.status, answer.text);
    }
    assert_eq!(server.task("ops", &paused["task_id"]).await["status"], "Paused");
    // What was shown beside it does not matter.
    let done = server.send("POST", &url, &headers, &format!("{other}&action=approve")).await;
    assert_eq!(done.status, 303, "{}", done.text);
}

/// S1-11: behind a proxy that puts a path before everything, the published addresses have it, and the page's links too.
#[tokio::test]
async fn addresses_are_those_that_others_reach() {
    let elsewhere = Elsewhere::quick().await;
    let more = "server: {public_url: 'https://agents.example.com/hold/', auth: {api_keys: true}}\n";
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], more);
    let ann = folder.key("ann");
    let server = folder.serve().with(ann);
    let paused = server.paused("ops").await;
    let path = format!("{BASE}/resume/{}", text(&paused["request_id"]));
    let public = format!("https://agents.example.com/hold{path}?action=approve");
    assert_eq!(paused["approval_url"], json!(public));
    // As the proxy passes it on.
    let page = server.send("GET", &format!("{path}?action=approve"), &[HTML], "").await;
    assert!(
        page.text.contains("href=\"&#x2f;hold/assets/style.css")
            || page.text.contains("/hold/assets/style.css"),
        "{}",
        page.text
    );
    let (fields, cookie) = form(&server, &path).await;
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let headers = [kind, HTML, ("cookie", cookie.as_str())];
    let done = server.send("POST", &path, &headers, &format!("{fields}&action=reject&reason=no")).await;
    assert_eq!(done.headers["location"], format!("/hold{path}"));
    assert_eq!(server.task("ops", &paused["task_id"]).await["status"], "Canceled");
    assert!(elsewhere.got().is_empty());
}
