//! Logins by OAuth at a server of the official Python SDK, which is its own authorization server: everything that a
//! browser does is done here by plain HTTP.
//!
//! Standfast is killed between every two steps.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::mcp::over_http::{Program, listening};
use crate::mcp::python::python;
use crate::mcp::server::{Server, folder, lines, of_run, packages, serve_at, text};

/// A server that wants a login, with its folder.
fn protected(folder: &TempDir, port: u16) -> Program {
    protected_with(folder, port, &[])
}

/// The same with these variables.
pub(crate) fn protected_with(folder: &TempDir, port: u16, variables: &[(&str, &str)]) -> Program {
    let mut command = std::process::Command::new(python("python"));
    command.arg(packages().join("protected.py")).arg(folder.path().join("place")).arg(port.to_string());
    command.envs(variables.iter().copied());
    listening(command, port)
}

pub(crate) const PAY: &str = "- calls:\n  - {tool: it__pay, arguments: {to: Ann}}\n- text: done\n";

fn entry(port: u16) -> String {
    format!(
        "  it: {{type: mcp, url: 'http://127.0.0.1:{port}/mcp', overrides: {{pay: {{requires_approval: false}}}}}}\n"
    )
}

/// A browser that keeps its cookies and follows nothing by itself.
#[derive(Default)]
pub(crate) struct Browser {
    cookies: Vec<(String, String)>,
    /// The key that its user gave when asked for one.
    pub(crate) key: Option<String>,
}

pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) location: String,
    pub(crate) body: String,
}

impl Browser {
    fn agent() -> ureq::Agent {
        ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into()
    }

    fn cookie(&self) -> String {
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }

    fn read(&mut self, mut response: ureq::http::Response<ureq::Body>) -> Page {
        for cookie in response.headers().get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        let location = response.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        let body = response.body_mut().read_to_string().unwrap();
        Page { status: response.status().as_u16(), location: location.unwrap_or_default(), body }
    }

    fn with_key<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let request = request.header("cookie", self.cookie());
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    pub(crate) fn get(&mut self, url: &str) -> Page {
        let response = self.with_key(Browser::agent().get(url)).call().unwrap();
        self.read(response)
    }

    /// Sends the form of a page of logins.
    pub(crate) fn post(&mut self, url: &str, token: &str) -> Page {
        let response = self.with_key(Browser::agent().post(url)).send_form([("csrf", token)]).unwrap();
        self.read(response)
    }

    /// Opens the page of a login and sends its form; comes back with the address of the authorization server.
    pub(crate) fn begin(&mut self, url: &str) -> String {
        let page = self.get(url);
        assert_eq!(page.status, 200, "{}", page.body);
        let page = self.post(url, csrf(&page));
        assert_eq!(page.status, 200, "{}", page.body);
        let link = page.body.split("id=\"next\"").nth(1).unwrap().split("href=\"").nth(1).unwrap();
        link.split('"').next().unwrap().replace("&amp;", "&").replace("&#x2f;", "/")
    }

    /// The whole of a login.
    pub(crate) fn log_in(&mut self, url: &str) {
        let there = self.begin(url);
        let back = self.get(&there).location;
        let page = self.get(&back);
        assert_eq!(page.status, 303, "{}", page.body);
    }
}

/// The token of the form on a page.
pub(crate) fn csrf(page: &Page) -> &str {
    page.body.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap()
}

pub(crate) fn auth_hold(server: &Server, run: &str) -> serde_json::Value {
    server.until(run, "held for a login", |shown| of_run(shown)["holds"][0]["kind"] == "auth");
    server.hold(run)
}

/// T21, T29, S4-11: nobody has ever logged in, so not even the tools are known: the run waits for the login before it
/// begins. The hold says where to go. Only the browser that was sent there brings the answer back, once, and from whom it
/// was sent to; then the run goes on by itself. `kill -9` between all of these steps changes nothing.
#[test]
fn t34_a_run_waits_for_a_login_and_goes_on_after_it() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = folder(PAY, &entry(port));
    let _protected = protected(&folder, port);
    let server = serve_at(folder.path(), own);
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = auth_hold(&server, &run);
    let data = &hold["data"];
    assert_eq!((&data["server_name"], &data["scopes"]), (&json!("it"), &json!(["pay"])), "{hold:#}");
    assert!(text(&data["auth_server"]).starts_with(&format!("http://127.0.0.1:{port}")), "{hold:#}");
    let auth_url = text(&data["auth_url"]).to_owned();
    assert_eq!(auth_url, format!("http://127.0.0.1:{own}/login/{}", text(&hold["id"])));
    drop(server);

    let server = serve_at(folder.path(), own);
    let mut browser = Browser::default();
    let forged = Browser::agent().post(&auth_url).send_form([("csrf", "guess")]).unwrap();
    assert_eq!(forged.status().as_u16(), 403);
    let there = browser.begin(&auth_url);
    for part in ["code_challenge_method=S256", "response_type=code", "state=", "&resource=http%3A%2F%2F127"] {
        assert!(there.contains(part), "{there}");
    }
    drop(server);

    let server = serve_at(folder.path(), own);
    let back = browser.get(&there).location;
    assert!(back.starts_with(&format!("http://127.0.0.1:{own}/login/callback?code=")), "{back}");
    assert_eq!(Browser::default().get(&back).status, 403, "another browser");
    assert_eq!(browser.get(&format!("{back}&iss=https%3A%2F%2Fevil.example")).status, 422, "another issuer");
    let state = back.split("state=").nth(1).unwrap();
    assert_eq!(browser.get(&back.replace(state, "guess")).status, 403, "another state");
    assert_eq!(server.hold(&run)["id"], hold["id"], "none of this counted");
    let finished = browser.get(&back);
    assert_eq!(finished.status, 303, "{}", finished.body);
    assert!(finished.location.starts_with("/approve/"), "{}", finished.location);
    assert!((400..500).contains(&browser.get(&back).status), "once");

    server.until_status(&run, "completed");
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay"]);
    assert_eq!(lines(&folder, "resources.txt"), [format!("http://127.0.0.1:{port}/mcp")]);
    drop(server);
    let server = serve_at(folder.path(), own);
    assert_eq!(server.send("helper")["status"], "completed", "the login is still there");
    assert_eq!(lines(&folder, "registered.txt").len(), 1, "one client for all logins");
    keeps_tokens(folder.path(), &lines(&folder, "issued.txt"));
}

/// T29, T30: no token is in anything that Standfast wrote, and neither are other secrets.
pub(crate) fn keeps_tokens(folder: &Path, tokens: &[String]) {
    assert!(tokens.len() >= 2);
    for file in std::fs::read_dir(folder).unwrap().chain(std::fs::read_dir(folder.join("data")).unwrap()) {
        let path = file.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for token in tokens {
            let has = bytes.windows(token.len()).any(|window| window == token.as_bytes());
            assert!(!has, "a token is in {}", path.display());
        }
    }
}

/// A token that is not taken any more is renewed by itself. When that has expired too, the call waits for another login, and
/// is made once after it, also by a server that was started in between.
#[test]
fn a_login_that_has_ended_is_asked_for_again() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = folder(PAY, &entry(port));
    let _protected = protected(&folder, port);
    let end = |tokens: &[String]| {
        std::fs::write(folder.path().join("place/ended.txt"), tokens.join("\n")).unwrap();
    };
    let server = serve_at(folder.path(), own);
    let run = text(&server.send("helper")["id"]).to_owned();
    Browser::default().log_in(text(&auth_hold(&server, &run)["data"]["auth_url"]));
    server.until_status(&run, "completed");

    end(&lines(&folder, "issued.txt")[..1]);
    let sent = server.send("helper");
    assert_eq!(sent["status"], "completed", "renewed: {sent:#}");
    assert_eq!(lines(&folder, "issued.txt").len(), 4);

    end(&lines(&folder, "issued.txt"));
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = auth_hold(&server, &run);
    assert_eq!(hold["tool"], "it__pay", "{hold:#}");
    drop(server);
    let server = serve_at(folder.path(), own);
    Browser::default().log_in(text(&hold["data"]["auth_url"]));
    server.until_status(&run, "completed");
    assert_eq!(lines(&folder, "paid.txt").len(), 3, "once for each run");
    keeps_tokens(folder.path(), &lines(&folder, "issued.txt"));
}

/// S1-28, C31: over Teal Agents the one resume route serves logins too, from the first message to the output: the answer says
/// where to log in, `approve` before that decides nothing wrongly, and after it the answer is what came of the run. Killed
/// between the steps, nothing is lost, and the call is made once.
#[test]
fn teal_agents_log_in_through_the_resume_route() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = folder(PAY, &entry(port));
    let _protected = protected(&folder, port);
    let server = serve_at(folder.path(), own);
    let post = |path: &str, body: serde_json::Value| {
        let url =
            if path.starts_with("http") { path.to_owned() } else { format!("http://127.0.0.1:{own}{path}") };
        let mut response = Browser::agent()
            .post(url)
            .header("content-type", "application/json")
            .send(body.to_string())
            .unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        (response.status().as_u16(), body)
    };
    let says = json!({"items": [{"content_type": "text", "content": "Pay Ann"}]});
    let (status, asked) = post("/tealagents/v1alpha1/helper", says);
    assert_eq!(status, 200, "{asked:#}");
    assert_eq!(asked["message"], "Authentication required for MCP servers.", "{asked:#}");
    let challenge = &asked["auth_challenges"][0];
    assert_eq!((&challenge["server_name"], &challenge["scopes"]), (&json!("it"), &json!(["pay"])));
    assert!(text(&challenge["auth_server"]).starts_with(&format!("http://127.0.0.1:{port}")), "{asked:#}");
    let resume = text(&asked["resume_url"]).to_owned();
    assert_eq!(
        resume,
        format!("http://127.0.0.1:{own}/tealagents/v1alpha1/resume/{}", text(&asked["request_id"]))
    );
    drop(server);

    let server = serve_at(folder.path(), own);
    Browser::default().log_in(text(&challenge["auth_url"]));
    drop(server);

    let _server = serve_at(folder.path(), own);
    let (status, done) = post(&resume, json!({"action": "approve"}));
    assert_eq!((status, &done["output"]), (200, &json!("done")), "{done:#}");
    assert_eq!(done["task_id"], asked["task_id"]);
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay"]);
    let (status, again) = post(&resume, json!({"action": "approve"}));
    assert_eq!((status, &again["output"]), (200, &json!("done")), "said again, it is told again: {again:#}");
    assert_eq!(lines(&folder, "paid.txt"), ["Ann pay"], "and nothing runs again");
    let (status, late) = post(&resume, json!({"action": "reject"}));
    assert_eq!(status, 409, "{late:#}");
    keeps_tokens(folder.path(), &lines(&folder, "issued.txt"));
}

/// S1-28, C1: an approval without a login asks for it again; a rejection ends the task. Meanwhile each protocol has its word for a run that
/// waits for a login.
#[test]
fn teal_agents_that_do_not_log_in_are_asked_again() {
    let (port, own) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let folder = folder(PAY, &entry(port));
    let _protected = protected(&folder, port);
    let _server = serve_at(folder.path(), own);
    let post = |path: &str, body: serde_json::Value| {
        let mut response = Browser::agent()
            .post(format!("http://127.0.0.1:{own}{path}"))
            .header("content-type", "application/json")
            .send(body.to_string())
            .unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        (response.status().as_u16(), body)
    };
    let says = json!({"items": [{"content_type": "text", "content": "Pay Ann"}]});
    let (_, asked) = post("/tealagents/v1alpha1/helper", says);
    let route =
        |asked: &serde_json::Value| format!("/tealagents/v1alpha1/resume/{}", text(&asked["request_id"]));
    let (status, again) = post(&route(&asked), json!({"action": "approve"}));
    assert_eq!(status, 200, "{again:#}");
    assert_eq!(again["auth_challenges"][0]["server_name"], "it", "{again:#}");
    let look = |path: &str| -> serde_json::Value {
        let url = format!("http://127.0.0.1:{own}{path}");
        let mut response = Browser::agent().get(url).header("a2a-version", "1.0").call().unwrap();
        serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap()
    };
    let (task, session) = (text(&again["task_id"]), text(&again["session_id"]));
    let over_a2a = look(&format!("/v1/agents/helper/tasks/{task}"));
    assert_eq!(over_a2a["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{over_a2a:#}");
    let over_teal = look(&format!("/tealagents/v1alpha1/helper/tasks/{task}"));
    assert_eq!(over_teal["status"], "Paused", "{over_teal:#}");
    let conversation = look(&format!("/async-tool/session/{session}/status"));
    assert_eq!(conversation, json!({"type": "busy", "waitingFor": "login"}));
    let kept = look(&format!("/api/v1/sessions/{session}"));
    assert!(kept["metadata"]["pending_executions"][task].is_object(), "{kept:#}");
    let (status, rejected) = post(&route(&again), json!({"action": "reject"}));
    assert_eq!((status, &rejected["status"]), (200, &json!("Canceled")), "{rejected:#}");
    assert!(lines(&folder, "paid.txt").is_empty());
}
