//! A list is worked through: after a decision, and when a hold is skipped, the next one of the same list opens.

use std::collections::BTreeSet;

use standfast_core::approver::Approver;
use standfast_core::hold::HoldPolicy;
use standfast_core::id::HoldId;
use standfast_core::message::Message;
use standfast_core::name::{AgentName, UserId};
use standfast_core::time::Millis;
use standfast_engine::NewRun;
use standfast_engine::auth::{Approvers, SelfApproval};
use standfast_engine::clock::Clock;

use crate::site::{Browser, Page, Site, who};

/// A hold of bob, which alice may decide.
async fn of_bob(site: &Site) -> HoldId {
    let agent = AgentName::new("ops").unwrap();
    let new = NewRun { agent, session: None, message: Message::text("x"), once: None };
    let run = site.engine.submit().start(&who("bob"), new).await.unwrap();
    let view = site.engine.reads().settled_run(&who("bob"), run, Millis::seconds(30)).await.unwrap();
    HoldId { run, key: view.run.state.holds[0].key }
}

/// Whoever started a run does not decide about it: alice looks at her own holds, and decides those of bob.
fn site() -> Site {
    let named = ["alice", "bob"].map(|user| Approver::User(UserId::new(user).unwrap()));
    let named = Some(BTreeSet::from(named));
    let approvers = Approvers { named, self_approval: SelfApproval::Forbid, ..Approvers::default() };
    Site::with(Clock::system(), HoldPolicy::default(), approvers)
}

/// The address that begins like this, on a page.
fn address(page: &Page, start: &str) -> Option<String> {
    let body = page.body.replace("&#x2f;", "/").replace("&amp;", "&");
    let at = body.find(start)?;
    Some(body[at..].split('"').next().unwrap().to_owned())
}

/// Where *Skip* leads.
fn skip(page: &Page) -> String {
    let body = page.body.replace("&#x2f;", "/").replace("&amp;", "&");
    let link = body
        .split_once("class=\"skip-hold\" rel=\"next\" href=\"")
        .unwrap_or_else(|| panic!("no next in {body}"));
    link.1.split('"').next().unwrap().to_owned()
}

/// The page of a hold as the list leads to it.
async fn opened_from_list(alice: &Browser, hold: HoldId) -> Page {
    let mut list = alice.get("/").await;
    loop {
        if let Some(href) = address(&list, &format!("/approve/{hold}?from=")) {
            return alice.get(&href).await;
        }
        let next = next_of(&list).unwrap_or_else(|| panic!("{hold} is not in the list"));
        list = alice.get(&next).await;
    }
}

fn next_of(list: &Page) -> Option<String> {
    let (_, rest) = list.body.split_once("rel=\"next\" href=\"")?;
    let href = rest.split('"').next()?;
    Some(href.replace("&#x2f;", "/").replace("&amp;", "&"))
}

/// Approves as the page says, and where that leads.
async fn approve(alice: &Browser, hold: HoldId, page: &Page) -> String {
    let names = ["digest", "revision", "once", "from", "next"];
    let shown = names.map(|name| page.hidden(name).replace("&#x2f;", "/").replace("&amp;", "&"));
    let mut fields: Vec<(&str, &str)> = names.into_iter().zip(shown.iter().map(String::as_str)).collect();
    fields.push(("decision", "approve"));
    let answer = alice.post(&format!("/approve/{hold}"), &fields).await;
    assert_eq!(answer.status, 303, "{}", answer.body);
    answer.headers["location"].to_str().unwrap().to_owned()
}

#[track_caller]
fn leads_to(href: &str, hold: HoldId) {
    assert!(href.starts_with(&format!("/approve/{hold}?")), "{href} is not {hold}");
}

/// S4-17: from the middle of a list of which the first holds are somebody else's to decide, to its end and to its beginning.
#[tokio::test]
async fn a_list_is_worked_through_from_where_one_is() {
    let site = site();
    for _ in 0..30 {
        site.held("ops").await;
    }
    let mut holds = Vec::new();
    for _ in 0..60 {
        holds.push(of_bob(&site).await);
    }
    let alice = site.browser("alice").await;
    let page = opened_from_list(&alice, holds[29]).await;
    let mut href = approve(&alice, holds[29], &page).await;
    leads_to(&href, holds[30]);
    assert!(href.ends_with(&format!("&done={}", holds[29])), "{href}");
    for next in &holds[31..] {
        href = skip(&alice.get(&href).await);
        leads_to(&href, *next);
    }
    href = skip(&alice.get(&href).await);
    leads_to(&href, holds[0]);
}

/// What somebody else has decided meanwhile is passed over, and nothing behind it is.
#[tokio::test]
async fn a_hold_that_is_decided_meanwhile_is_passed_over() {
    let site = site();
    let holds = [of_bob(&site).await, of_bob(&site).await, of_bob(&site).await, of_bob(&site).await];
    let alice = site.browser("alice").await;
    let page = opened_from_list(&alice, holds[1]).await;
    leads_to(&skip(&page), holds[2]);
    assert_eq!(alice.decide(holds[2], &[("decision", "deny")]).await.status, 303);
    leads_to(&approve(&alice, holds[1], &page).await, holds[3]);
    let page = opened_from_list(&alice, holds[3]).await;
    let href = approve(&alice, holds[3], &page).await;
    leads_to(&href, holds[0]);
    let page = alice.get(&href).await;
    page.does_not_say("class=\"skip-hold\"");
    let own = approve(&alice, holds[0], &page).await;
    leads_to(&own, holds[0]);
}
