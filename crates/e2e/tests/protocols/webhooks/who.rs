//! Who may make, see and change subscriptions, and who is notified of what: over HTTP, with real keys.
//!
//! For everyone else a subscription does not exist, byte for byte like one that never did (T15, T16).

use serde_json::{Value, json};
use standfast_store::conformance::cluster;

use super::{Server, folder_on, patience, serve, text};
use standfast_testkit::receiver::{Got, Mood, Receiver};

/// A server with keys on Postgres, and the keys of five people.
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) ann: String,
    pub(crate) bob: String,
    pub(crate) eve: String,
    pub(crate) admin: String,
    /// An administrator of another tenant.
    foreign: String,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn site() -> Site {
    site_with("2s")
}

/// The same, with receivers that may take this long to answer.
pub(crate) fn site_with(timeout: &str) -> Site {
    let url = cluster::shared().database();
    let folder = folder_on(&format!("driver: postgres, url: \"{url}\""), &patience());
    let config = folder.path().join("standfast.yaml");
    let file = std::fs::read_to_string(&config).unwrap();
    let file = file
        .replace("  public_url:", "  auth: {api_keys: true}\n  public_url:")
        .replace("session_store: db,", "session_store: db, approvers: ['user:bob'],")
        .replace("timeout: 2s", &format!("timeout: {timeout}"));
    std::fs::write(&config, file).unwrap();
    let key = |arguments: &[&str]| {
        let mut command = standfast_testkit::standfast();
        let made =
            command.args(["keys", "create"]).args(arguments).arg("--config").arg(&config).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let server = serve(folder.path());
    let foreign = key(&["--user", "root", "--scope", "admin", "--tenant", "other"]);
    Site {
        ann: key(&["--user", "ann"]),
        bob: key(&["--user", "bob"]),
        eve: key(&["--user", "eve"]),
        admin: key(&["--user", "root", "--scope", "admin"]),
        foreign,
        server,
        folder,
    }
}

/// The result of a request: status, body, and every header but the date.
pub(crate) type Answered = (u16, Value, Vec<(String, String)>);

impl Site {
    pub(crate) async fn ask(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Answered {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let url = format!("{}/api/v1{path}", self.server.program.base);
        let mut request = self.server.http.client.request(method, url).bearer_auth(key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let headers =
            response.headers().iter().filter(|(name, _)| *name != "date" && *name != "x-request-id");
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null), headers)
    }

    /// The id of a run of ann's whose call waits, and its hold.
    pub(crate) async fn held(&self) -> (String, String) {
        let body = json!({"input": "please", "wait": "settled"});
        let (status, run, _) = self.ask(&self.ann, "POST", "/agents/ops/runs", Some(body)).await;
        assert_eq!(status, 201, "{run}");
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }

    pub(crate) async fn subscribe(&self, key: &str, receiver: &Receiver, more: Value) -> Answered {
        let mut body = json!({"url": receiver.url(), "events": ["*"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ask(key, "POST", "/subscriptions", Some(body)).await
    }

    async fn listed(&self, key: &str) -> Vec<String> {
        let (status, list, _) = self.ask(key, "GET", "/subscriptions", None).await;
        assert_eq!(status, 200, "{list}");
        list["subscriptions"].as_array().unwrap().iter().map(|one| text(&one["id"])).collect()
    }
}

/// T15: a run is subscribed to by those who may see it, an agent by its approvers, everything by administrators. A run of
/// somebody else is like one that never was, also for an administrator of another tenant.
#[tokio::test]
async fn subscriptions_are_made_by_those_who_may_see() {
    let (site, receiver) = (site(), Receiver::new(Mood::Takes).await);
    let (run, _) = site.held().await;
    let unknown = run.replace(&run[run.len() - 6..], "000000");
    for (name, key, of_run, of_agent, of_all) in [
        ("the owner", &site.ann, 201, 403, 403),
        ("an approver", &site.bob, 201, 201, 403),
        ("a stranger", &site.eve, 404, 403, 403),
        ("an administrator", &site.admin, 201, 201, 201),
        ("an administrator of another tenant", &site.foreign, 404, 201, 201),
    ] {
        let asked = site.subscribe(key, &receiver, json!({"run": run})).await;
        assert_eq!(asked.0, of_run, "{name}, the run: {asked:?}");
        if of_run == 404 {
            let nothing = site.subscribe(key, &receiver, json!({"run": unknown})).await;
            assert_eq!(asked, nothing, "{name} finds out that there is a run");
        }
        for (more, wanted) in [(json!({"agent": "ops"}), of_agent), (json!({}), of_all)] {
            let asked = site.subscribe(key, &receiver, more.clone()).await;
            assert_eq!(asked.0, wanted, "{name}, {more}: {asked:?}");
        }
    }
    // A key that may only read makes none, and one without any key neither.
    assert_eq!(site.subscribe("", &receiver, json!({"run": run})).await.0, 401);
}

/// T15, T16, T29: whoever did not make a subscription, and does not administer its tenant, sees neither it nor its secret
/// nor what could not be told, and changes nothing of it: everything answers as for an id that never was.
#[tokio::test]
async fn subscriptions_of_others_do_not_exist() {
    let (site, receiver) = (site(), Receiver::new(Mood::Says("410 Gone".into())).await);
    let (run, _) = site.held().await;
    let (status, made, _) = site.subscribe(&site.ann, &receiver, json!({"run": run})).await;
    assert_eq!(status, 201, "{made}");
    let (id, secret) = (text(&made["id"]), text(&made["secret"]));
    let hold = site.ask(&site.ann, "GET", &format!("/runs/{run}"), None).await.1;
    let hold = text(&hold["holds"][0]["id"]);
    let approve = format!("/holds/{hold}/resolve");
    let decided = site.ask(&site.bob, "POST", &approve, Some(json!({"resolution": "approve"}))).await;
    assert_eq!(decided.0, 200, "{decided:?}");
    // The receiver wants nothing: there is a dead letter.
    let letters = format!("/subscriptions/{id}/dead-letters");
    let mut letter = None;
    for _ in 0..600 {
        let (_, found, _) = site.ask(&site.ann, "GET", &letters, None).await;
        letter = found["dead_letters"][0]["id"].as_str().map(str::to_owned);
        if letter.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let letter = letter.expect("a dead letter");
    let requests = [
        ("GET", String::new()),
        ("GET", "/dead-letters".to_owned()),
        ("POST", format!("/dead-letters/{letter}/resend")),
        ("POST", "/rotate".to_owned()),
        ("POST", "/test".to_owned()),
        ("POST", "/enable".to_owned()),
        ("POST", "/disable".to_owned()),
        ("DELETE", String::new()),
    ];
    let unknown = id.replace(&id[id.len() - 6..], "000000");
    for key in [&site.bob, &site.eve, &site.foreign] {
        assert_eq!(site.listed(key).await, Vec::<String>::new());
        for (method, rest) in &requests {
            let [theirs, nothing] = [&id, &unknown].map(|id| format!("/subscriptions/{id}{rest}"));
            let answered = site.ask(key, method, &theirs, None).await;
            assert_eq!(answered.0, 404, "{method} {rest}: {answered:?}");
            assert_eq!(answered, site.ask(key, method, &nothing, None).await, "{method} {rest}");
            assert!(!answered.1.to_string().contains(&secret), "{answered:?}");
        }
    }
    // It is all still there, for its owner and for administrators.
    for key in [&site.ann, &site.admin] {
        assert_eq!(site.listed(key).await, std::slice::from_ref(&id));
        let (status, found, _) = site.ask(key, "GET", &letters, None).await;
        assert_eq!((status, &found["dead_letters"][0]["id"]), (200, &json!(letter)), "{found}");
        let (_, shown, _) = site.ask(key, "GET", &format!("/subscriptions/{id}"), None).await;
        assert!(shown["state"] == "disabled" && !shown.to_string().contains(&secret), "{shown}");
    }
    assert_eq!(site.ask(&site.admin, "DELETE", &format!("/subscriptions/{id}"), None).await.0, 204);
    assert_eq!(site.listed(&site.ann).await, Vec::<String>::new());
}

/// T16: deliveries go to those who may see what they tell. A subscription to everything of another tenant hears nothing of
/// this one, and one to a run nothing of another.
#[tokio::test]
async fn nobody_is_told_of_what_is_not_theirs() {
    let site = site();
    let mut receivers = Vec::new();
    for _ in 0..4 {
        receivers.push(Receiver::new(Mood::Takes).await);
    }
    let [all, agent, one, foreign] = <[Receiver; 4]>::try_from(receivers).ok().unwrap();
    let (first, _) = site.held().await;
    assert_eq!(site.subscribe(&site.admin, &all, json!({})).await.0, 201);
    assert_eq!(site.subscribe(&site.bob, &agent, json!({"agent": "ops"})).await.0, 201);
    assert_eq!(site.subscribe(&site.ann, &one, json!({"run": first})).await.0, 201);
    assert_eq!(site.subscribe(&site.foreign, &foreign, json!({})).await.0, 201);
    let (second, _) = site.held().await;
    for run in [&first, &second] {
        assert_eq!(site.ask(&site.ann, "POST", &format!("/runs/{run}/cancel"), Some(json!({}))).await.0, 200);
    }
    for receiver in [&all, &agent] {
        receiver.whole_story(&first).await;
        receiver.whole_story(&second).await;
    }
    one.whole_story(&first).await;
    let of = |got: &Got| text(&got.body()["data"]["run"]["id"]);
    assert!(one.all().iter().all(|got| of(got) == first), "it hears of another run");
    assert_eq!(foreign.all().len(), 0, "another tenant is told");
}
