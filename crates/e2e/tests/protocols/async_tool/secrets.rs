//! T29: what a job is given to sign its reports with is in nothing that is stored, shown, exported or logged, however
//! often the job repeats it.
//!
//! A canary test: everything that the server leaves behind is searched for the secret.

use std::path::Path;

use serde_json::{Value, json};

use crate::async_tool::world::{Outside, Server, Setup, serve, text};

/// How an echo reaches the server.
#[derive(Debug, Clone, Copy)]
enum Echo {
    /// In the answer to the start.
    Start,
    /// In a signed result.
    Result,
    /// In a signed error.
    Error,
    /// In a report of progress, then in a result by hand.
    Progress,
    /// In a decision of the owner, through the API of holds.
    Decision,
}

impl Echo {
    /// Reports about a job with everything that it was told.
    async fn report(self, server: &Server, job: &Value) {
        let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
        let echo = json!({"output": "done", "request": job, "again": job.to_string(), (secret): [secret]});
        let answered = match self {
            Echo::Start => return,
            Echo::Result => server.webhook(&json!({"pendingID": id, "result": echo}), secret).await,
            Echo::Error => {
                server.webhook(&json!({"pendingID": id, "error": format!("no: {job}")}), secret).await
            }
            Echo::Progress => {
                let note = json!({"pendingID": id, "status": "processing", "output": job.to_string()});
                let noted = server.post("/async-tool/progress", &note).await;
                assert_eq!(noted.status, 200, "{noted:?}");
                server.post("/async-tool/result", &json!({"pendingID": id, "result": echo})).await
            }
            Echo::Decision => {
                let body = json!({"resolution": "answer", "value": echo});
                server.post(&format!("/api/v1/holds/{id}/resolve"), &body).await
            }
        };
        assert_eq!(answered.status, 200, "{self:?}: {answered:?}");
    }
}

/// Every file below a folder that has this text in it.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text))
        } else {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// T29, S2-9: the start's answer, a result, an error, progress and a decision, each with the whole request in it: the run
/// goes on, and no event, export, file of the database or line of the log has the secret.
#[tokio::test(flavor = "multi_thread")]
async fn an_echoed_request_does_not_give_the_secret_away() {
    let waits = json!({"externalRef": "$REQUEST", "output": "started with $REQUEST"});
    for (answer, echo) in [
        (json!({"async": false, "result": {"echo": "$REQUEST"}}), Echo::Start),
        (json!({"async": false, "error": "refused: $REQUEST"}), Echo::Start),
        (waits.clone(), Echo::Result),
        (waits.clone(), Echo::Error),
        (waits.clone(), Echo::Progress),
        (waits, Echo::Decision),
    ] {
        let outside = Outside::answering(answer.clone()).await;
        let folder = Setup::default().folder(&outside);
        let server = serve(folder.path());
        let run = server.begin("s-1").await;
        let job = outside.job().await;
        let secret = text(&job["callbackSecret"]).to_owned();
        assert!(secret.len() >= 32, "{job}");
        if !matches!(echo, Echo::Start) {
            server.call_is(text(&job["pendingID"]), "waiting").await;
        }
        echo.report(&server, &job).await;
        server.run_is(&run, "completed").await;
        let log = server.log(&run).await;
        assert!(log.contains("[secret]"), "{answer} {echo:?}: nothing was cut: {log}");
        assert!(!log.contains(&secret), "{answer} {echo:?}: {log}");
        assert_eq!(files_with(folder.path(), &secret), Vec::<String>::new(), "{answer} {echo:?}");
        let mut export = standfast_testkit::standfast();
        let export = export.args(["audit", "export"]).arg(folder.path().join("a.db")).output().unwrap();
        let exported = String::from_utf8(export.stdout).unwrap();
        assert!(exported.contains("[secret]") && !exported.contains(&secret), "{answer} {echo:?}");
    }
}
