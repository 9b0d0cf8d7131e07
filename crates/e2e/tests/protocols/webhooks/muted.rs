//! Caps on the holds that people are notified of: those above are muted, never dropped (T27).

use serde_json::{Value, json};

use super::{patient, serve, text};
use standfast_testkit::receiver::{Got, Mood, Receiver};
use standfast_testkit::standfast;

/// T27: of two open holds of one agent, or of one user's runs, one is notified of. Both are listed, also by the command, and the one that
/// nobody was notified of can be approved.
#[tokio::test]
async fn t27_holds_above_a_cap_are_listed_and_not_notified_of() {
    for cap in ["notified_holds_per_agent", "notified_holds_per_owner"] {
        let folder = patient();
        let config = folder.path().join("standfast.yaml");
        let text_of = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text_of.replace("server:\n", &format!("server:\n  limits: {{{cap}: 1}}\n")))
            .unwrap();
        let (server, receiver) = (serve(folder.path()), Receiver::new(Mood::Takes).await);
        server.subscribed(&receiver, json!({"agent": "ops"})).await;
        let (first, _) = server.held().await;
        let (second, muted) = server.held().await;
        assert_eq!(server.get(&format!("/holds/{muted}")).await["muted"], true, "{cap}");
        let base = server.program.base.clone();
        let listed = move || {
            let output = standfast().args(["holds", "--json", "--server", &base]).output().unwrap();
            let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
            listed["holds"].as_array().unwrap().iter().map(|hold| text(&hold["run"])).collect::<Vec<_>>()
        };
        let listed = tokio::task::spawn_blocking(listed).await.unwrap();
        assert!(
            listed.len() == 2 && listed.contains(&first) && listed.contains(&second),
            "{cap}: {listed:?}"
        );
        server.approve(&muted).await;
        // Its end is told behind everything else of its run: nothing of before is still on its way.
        let story = receiver.whole_story(&second).await;
        assert_eq!(story.iter().map(Got::kind).collect::<Vec<_>>(), ["hold.resolved", "run.ended"], "{cap}");
        let opened = |all: &[Got]| {
            let opened = all.iter().filter(|got| got.kind() == "hold.opened");
            opened.map(|got| text(&got.body()["data"]["run"]["id"])).collect::<Vec<_>>()
        };
        let all = receiver.until("the first hold", |all| !opened(all).is_empty()).await;
        assert_eq!(opened(&all), [first], "{cap}");
    }
}
