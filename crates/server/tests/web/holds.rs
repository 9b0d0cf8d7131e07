//! The forms of a hold's page: edited arguments, questions with their fields, the choices of each kind.
//!
//! What counts is asked of the engine, not of the page.

use crate::site::{ARGUMENTS, Site};

/// S1-32: what was entered stays, with the place of the mistake; hidden characters are escapes in the editor.
#[tokio::test]
async fn edited_arguments_are_checked_and_kept() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    let (_, hold) = site.held("ops").await;
    let editor = alice.get(&format!("/approve/{hold}")).await;
    editor.says("&lt;b&gt;old&lt;&#x2f;b&gt;\\u202e&quot;, &quot;size&quot;: 9007199254740993}</textarea>");
    for (entered, text) in [
        ("{\"path\": <1>}", "This is not JSON"),
        (r#"{"path": "a", "path": "b"}"#, "more than once"),
        (r#"{"path": 7}"#, "At &#x2f;path: 7 is not of type"),
        (r#"{}"#, "is a required property"),
        ("", "Arguments are missing"),
    ] {
        let page = alice.decide(hold, &[("decision", "edit"), ("arguments", entered)]).await;
        assert_eq!(page.status, 422, "{entered}");
        page.says(text).says("<details class=\"choice\" open>");
    }
    let kept = alice.decide(hold, &[("decision", "edit"), ("arguments", "{\"path\": <\u{fe0f}>}")]).await;
    kept.says("{&quot;path&quot;: &lt;\u{fe0f}&gt;}</textarea>");
    let good = "{\"path\":\r\n  \"/srv/other\"}";
    assert_eq!(alice.decide(hold, &[("decision", "edit"), ("arguments", good)]).await.status, 303);
    let decided = alice.get(&format!("/approve/{hold}")).await;
    decided.says("Approved with edited arguments").says("&quot;&#x2f;srv&#x2f;other&quot;");
    assert_eq!(site.effects().join("\n"), "{\"path\":\n  \"/srv/other\"}");

    let (_, untouched) = site.held("ops").await;
    let same = ARGUMENTS.replace('\u{202e}', "\\u202e");
    assert_eq!(alice.decide(untouched, &[("decision", "edit"), ("arguments", &same)]).await.status, 303);
    assert_eq!(site.effects().last().unwrap(), ARGUMENTS, "not changed, so the stored bytes run");
}

/// S4-17, S4-18, S4-26: options are buttons, a flat schema is a form, anything else a text box.
#[tokio::test]
async fn every_question_has_its_form() {
    let site = Site::new();
    let alice = site.browser("alice").await;

    let (run, hold) = site.held("options").await;
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("Which?").says("two &lt;disks&gt;").says("value=\"0\" class=\"option\">a\nb</button>");
    page.says("value=\"1\" class=\"option\">&lt;c&gt;</button>").does_not_say("<textarea id=\"value\"");
    assert_eq!(alice.decide(hold, &[("decision", "option"), ("option", "2")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "option"), ("option", "0")]).await.status, 303);
    alice.get(&format!("/runs/{run}")).await.says("Answered").says("<div class=\"text\">a\nb</div>");

    let (run, hold) = site.held("words").await;
    alice.get(&format!("/approve/{hold}")).await.says("<textarea id=\"value\"");
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "  ")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "{\"not\": json}")]).await.status, 303);
    alice.get(&format!("/runs/{run}")).await.says("{&quot;not&quot;: json}");

    let (run, hold) = site.held("form").await;
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("inputmode=\"decimal\"").says("type=\"radio\"").says("<option value=\"1\">CHF</option>");
    let wrong = [("decision", "fields"), ("field-0", "twelve"), ("field-3", "<kept>")];
    let page = alice.decide(hold, &wrong).await;
    assert_eq!(page.status, 422);
    page.says("At &#x2f;amount: ")
        .says("id=\"field-0-hint\"")
        .says("value=\"twelve\"")
        .says("value=\"&lt;kept&gt;\"");
    let right = [
        ("decision", "fields"),
        ("field-0", "12.50"),
        ("field-1", "1"),
        ("field-2", "true"),
        ("field-3", ""),
    ];
    assert_eq!(alice.decide(hold, &right).await.status, 303);
    let page = alice.get(&format!("/approve/{hold}")).await;
    page.says("{&quot;amount&quot;: 12.50, &quot;currency&quot;: &quot;CHF&quot;, &quot;paid&quot;: true}");
    // The timeline has the same as a tree, with the number as it was written.
    alice.get(&format!("/runs/{run}")).await.says("<dt>amount</dt>").says("12.50");

    let (_, hold) = site.held("number").await;
    assert_eq!(alice.decide(hold, &[("decision", "fields"), ("field-0", "0")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "fields")]).await.status, 422);
    assert_eq!(alice.decide(hold, &[("decision", "fields"), ("field-0", "3")]).await.status, 303);

    let (_, hold) = site.held("json").await;
    alice.get(&format!("/approve/{hold}")).await.says("one in each line").says("<textarea id=\"field-0\"");
    assert_eq!(alice.decide(hold, &[("decision", "answer"), ("value", "a, b")]).await.status, 422);
    let page = alice.decide(hold, &[("decision", "answer"), ("value", "[1]")]).await;
    assert_eq!(page.status, 422);
    page.says("At &#x2f;0: 1 is not of type");
    assert_eq!(alice.decide(hold, &[("decision", "fields"), ("field-0", "a\r\nb")]).await.status, 303);

    let (_, hold) = site.held("words").await;
    assert_eq!(alice.decide(hold, &[("decision", "deny"), ("reason", "ask Bob")]).await.status, 303);
    alice.get(&format!("/approve/{hold}")).await.says("Denied").says("ask Bob");
}

/// Unknown outcomes, outside jobs and logins are decided in words of their own.
#[tokio::test]
async fn every_kind_of_hold_has_its_choices() {
    let site = Site::new();
    let alice = site.browser("alice").await;
    for (decision, value, words) in [
        ("answer", ("value", "it is gone"), "It happened"),
        ("deny", ("reason", "looked"), "It did not happen"),
        ("approve", ("", ""), "Run again"),
    ] {
        let (_, hold) = site.held("lost").await;
        let page = alice.get(&format!("/approve/{hold}")).await;
        page.says("Did lost take effect?")
            .says("The tool could not tell how the call ended: the connection broke")
            .says("its outcome is unknown")
            .says("Run it again")
            .says("It did not happen");
        assert_eq!(alice.decide(hold, &[("decision", decision), value]).await.status, 303);
        alice.get(&format!("/approve/{hold}")).await.says(&format!("<h2 id=\"decision\">{words}</h2>"));
    }
    for (agent, decision, value, words) in [
        ("job", "answer", ("value", "{\"ok\": true}"), "Answered"),
        ("job", "fail", ("error", "out of paper"), "Failed"),
        ("login", "answer", ("value", "done"), "Answered"),
        ("login", "fail", ("error", "expired"), "Failed"),
        ("login", "deny", ("reason", "no"), "Denied"),
    ] {
        let (_, hold) = site.held(agent).await;
        alice.get(&format!("/approve/{hold}")).await.says("&lt;i&gt;elsewhere&lt;&#x2f;i&gt;");
        assert_eq!(
            alice.decide(hold, &[("decision", decision)]).await.status,
            if decision == "deny" { 303 } else { 422 }
        );
        if decision != "deny" {
            assert_eq!(alice.decide(hold, &[("decision", decision), value]).await.status, 303);
        }
        alice.get(&format!("/approve/{hold}")).await.says(&format!("<h2 id=\"decision\">{words}</h2>"));
    }
    let (_, hold) = site.held("job").await;
    let page = alice.decide(hold, &[("decision", "approve")]).await;
    assert_eq!(page.status, 422, "C25: an outside job takes no approval");
    page.says("Wrong decision for this kind of hold");
}
