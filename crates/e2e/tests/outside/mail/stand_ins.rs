//! Whoever stands in for somebody who is away gets the mail, and decides by its link.

use super::*;

/// C24: while Alice is away a hold is handed on to Bob, whom nobody else asks: he gets one mail that says in whose place, with a link that
/// decides, and hears of reminders. Dora, who is asked herself, gets no mail about what was handed on to Bob.
#[tokio::test]
async fn whoever_stands_in_gets_the_mail_and_decides_by_its_link() {
    let site = Site::new("plain", SCRIPT, "", "{input_timeout: 2h, hitl: {remind_before: 7190s}}");
    let folder = site.folder.path().to_owned();
    let Site { folder: kept, server, mails } = site;
    let port: u16 = server.base.rsplit(':').next().unwrap().parse().unwrap();
    drop(server);
    let config = std::fs::read_to_string(folder.join("standfast.yaml")).unwrap();
    let alice = "  alice: {mail: alice@example.com, groups: [ops]";
    let away = format!(
        "{alice}, away: {{until: 2099-01-01T00:00:00Z, stand_in: bob}}}}\n  dora: {{mail: dora@example.com, groups: [ops]"
    );
    assert!(config.contains(alice));
    std::fs::write(folder.join("standfast.yaml"), config.replace(alice, &away)).unwrap();
    let site = Site { folder: kept, server: serve(&folder, port), mails };
    let run = site.server.send("ops");
    assert_eq!(run["status"], "held", "{run}");
    let to = |who: &str| -> Vec<Mail> {
        let all = (1..=site.mails.count()).map(|no| site.mails.mail(no));
        all.filter(|mail| mail.header("x-to") == format!("{who}@example.com")).collect()
    };
    let subjects =
        |who: &str| -> Vec<String> { to(who).iter().map(|mail| mail.header("subject").to_owned()).collect() };
    until("bob is told", || !to("bob").is_empty());
    let handed = to("bob").remove(0);
    assert_eq!(handed.header("subject"), "Handed on to you: Approve execute_command?");
    let said = "alice lets bob decide this in their place until 2099-01-01 00:00:00 UTC.";
    assert!(handed.text.contains(said) && handed.html.contains(said), "{}", handed.text);
    assert!(handed.text.contains("<b>canary-argument</b>"), "{}", handed.text);
    until("bob is reminded", || subjects("bob").contains(&"Reminder: Approve execute_command?".to_owned()));
    let http = Http { key: None, ..Http::new(&site.server.base) };
    let link = handed.link().unwrap().to_owned();
    let page = http.send("GET", &link, &[HTML], "").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let sent = http.send("POST", &link, &[FORM, HTML], &format!("{}&decision=approve", fields(&page))).await;
    assert!(sent.status < 400, "{} {}", sent.status, sent.text);
    // Dora, Alice: as without anybody who stands in.
    until("dora hears of the decision", || {
        to("dora").iter().any(|mail| mail.text.contains("Approved by bob"))
    });
    for who in ["dora", "alice"] {
        let all = subjects(who);
        assert!(all.contains(&"Approve execute_command?".to_owned()), "{who}: {all:?}");
        assert!(!all.iter().any(|one| one.starts_with("Handed on")), "{who}: {all:?}");
    }
    assert!(!subjects("bob").contains(&"Approve execute_command?".to_owned()));
}
