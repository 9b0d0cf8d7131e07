//! What pages of one hold read of its run: the hold's own, that of an approval link and its form, the rule of a standing approval and
//! the approval that saves it, here and over the API.

use std::sync::Arc;

use serde_json::json;
use standfast_core::approver::Approver;
use standfast_core::id::HoldId;
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Millis;
use standfast_engine::secrets::{LinkKeys, SigningKey};
use standfast_engine::settings::{ApprovalLinks, BearerLinks, ConfiguredPerson, LinkSignIn, Settings};

use super::{Call, Server};
use crate::agent;
use crate::rules::judged_by;

/// What a server needs for links and standing approvals.
pub(super) fn settings(settings: &mut Settings, call: Call) {
    let alice = UserId::new("alice").unwrap();
    let person = ConfiguredPerson {
        tenant: Tenant::default_tenant(),
        groups: Default::default(),
        roles: Default::default(),
        mail: None,
        slack: None,
        notify: Default::default(),
        away: None,
    };
    settings.people.insert(alice.clone(), person);
    let keys = LinkKeys::of_texts("a key of links that is long enough", []);
    let (sign_in, bearers) = (LinkSignIn::None, BearerLinks::ToAdmins);
    settings.links = Some(ApprovalLinks { keys, expires: Millis::hours(1), sign_in, bearers });
    settings.webhooks.key = Some(SigningKey::new([7; 32]));
    let mut ops = (*settings.agents[&agent()]).clone();
    ops.approvers.named = Some([Approver::Owner, Approver::User(alice)].into());
    if call == Call::HeldByARule {
        let rule = json!({"id": "gone", "hold": "delete_file", "because": "it is gone then"});
        judged_by(&mut ops, &json!({"rules": [rule]}));
    }
    settings.agents.insert(agent(), Arc::new(ops));
}

impl Server {
    /// A link to a hold for alice.
    async fn link(&self, hold: HoldId) -> String {
        let issued = self.post(&format!("/api/v1/holds/{hold}/link"), &json!({"for": "alice"})).await;
        issued["url"].as_str().unwrap().strip_prefix(&self.base).unwrap().to_owned()
    }
}

/// The value of a field that a page has.
fn field(page: &str, name: &str) -> String {
    let rest =
        page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {page}")).1;
    rest.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn the_page_of_a_hold_reads_its_run_once() {
    let server = Server::new(Call::HeldByARule).await;
    let hold = server.held().await;
    server.store.begin(hold.run);
    let page = server.get(&format!("/approve/{hold}")).await;
    assert!(page.contains(&format!("/approve/{hold}/grant")), "{page}");
    server.assert_one_read("the page of a hold");
}

#[tokio::test]
async fn a_decision_by_an_approval_link_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    server.engine.join().await.unwrap();
    let hold = server.held().await;
    server.store.begin(hold.run);
    let path = server.link(hold).await;
    server.assert_one_read("issuing a link");
    server.store.begin(hold.run);
    let page = server.get(&path).await;
    server.assert_one_read("the page of a link");
    let form = format!("nonce={}&form={}&decision=approve", field(&page, "nonce"), field(&page, "form"));
    let request = server.client.post(format!("{}{path}", server.base)).header("accept", "text/html");
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    server.store.begin(hold.run);
    let (status, text) = server.send(request.body(form)).await;
    assert_eq!(status, 303, "{text}");
    server.assert_few_reads("the form of a link");
}

#[tokio::test]
async fn a_standing_approval_reads_its_run_once() {
    let server = Server::new(Call::HeldByARule).await;
    let hold = server.held().await;
    let path = format!("/approve/{hold}/grant?uses=2&hours=1");
    server.store.begin(hold.run);
    server.get(&path).await;
    server.assert_one_read("the rule of a standing approval");
    let fields = ["digest", "revision", "once", "uses", "until", "grant_digest"];
    let (status, text) = server.post_form(&path, &fields, &[("decision", "approve")]).await;
    assert_eq!(status, 303, "{text}");
    server.assert_few_reads("the page of a standing approval");

    let server = Server::new(Call::HeldByARule).await;
    let other = server.held().await;
    let mut wish = json!({"uses": 1, "same_session": true});
    server.store.begin(other.run);
    let rule = server.post(&format!("/api/v1/holds/{other}/grant-rule"), &wish).await;
    server.assert_one_read("the rule of a standing approval, over the API");
    (wish["until"], wish["digest"]) = (rule["until"].clone(), rule["digest"].clone());
    let body = json!({"resolution": "approve", "grant": wish, "wait": "settled"});
    server.store.begin(other.run);
    server.post(&format!("/api/v1/holds/{other}/resolve"), &body).await;
    server.assert_few_reads("a standing approval over the API");
}
