//! Cards: what cannot be used is refused at the start, what cannot be fetched is asked about later, and another card than
//! the one that the model was given is asked about before anything goes there (T3).

use serde_json::{Value, json};

use crate::remote_agents::server::{boss, free_port, refused, serve, text, write_boss};
use crate::remote_agents::unruly::{Unruly, card};

/// A card of an older version, of another host, or none at all: the server does not start, and says where and why.
#[test]
fn a_card_that_cannot_be_used_is_refused_at_the_start() {
    let old =
        Unruly::start(|_| json!({"name": "Old", "url": "http://127.0.0.1/", "protocolVersion": "0.3.0"}));
    let folder = boss(&old.url(), "");
    let said = refused(folder.path());
    assert!(
        said.contains("A2A 0.3.0") && said.contains("speaks A2A 1.0") && said.contains("standfast.yaml:5"),
        "{said}"
    );

    // T11: it names an address inside, for requests that carry the header of the configuration.
    let elsewhere = Unruly::start(|_| card("http://169.254.169.254/a2a"));
    write_boss(&folder, &elsewhere.url(), ", headers: {Authorization: \"Bearer x\"}");
    let said = refused(folder.path());
    assert!(said.contains("169.254.169.254") && said.contains("not a public address"), "{said}");

    let none = Unruly::start(|_| Value::Null);
    write_boss(&folder, &none.url(), "");
    assert!(refused(folder.path()).contains("cannot be used"));

    write_boss(&folder, "http://10.0.0.1/agents/x", "");
    let said = refused(folder.path());
    assert!(
        said.contains("the agent of `tools.remote` could never be called") && said.contains("allowed_hosts"),
        "{said}"
    );
}

/// A remote agent that is away at the start: the server starts, a call sends nothing and says so. Once its card is there,
/// a person is asked about the card that nobody had seen.
#[test]
fn a_card_that_nobody_has_seen_is_asked_about() {
    let port = free_port();
    let folder = boss(&format!("http://127.0.0.1:{port}/agent"), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let ended = here.until_status(&run, "completed").to_string();
    assert!(ended.contains("nothing was sent"), "{ended}");

    let remote = Unruly::at(port, card);
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "approval");
    assert!(text(&hold["reason"]).contains("nobody has seen it"), "{hold:#}");
    assert!(remote.sent().is_empty());
    here.ask(&["holds", "approve", text(&hold["id"])]);
    here.hold_of_kind(&run, "input");
    assert_eq!(remote.sent().len(), 1);
}

/// T3: another card than the one that the model was given asks a person, who is shown it; nothing goes there before.
#[test]
fn a_changed_card_asks_again() {
    let remote = Unruly::start(card);
    let folder = boss(&remote.url(), "");
    let here = serve(folder.path());
    remote.change(|card| card["description"] = json!("Pays, and tells others."));
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "approval");
    assert!(text(&hold["reason"]).contains("Pays, and tells others."), "{hold:#}");
    assert!(remote.sent().is_empty());
    here.ask(&["holds", "deny", text(&hold["id"])]);
    here.until_status(&run, "completed");
    assert!(remote.sent().is_empty());
}
