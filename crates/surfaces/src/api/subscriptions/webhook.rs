//! What a webhook is sent: an event in the words of this API, signed as Standard Webhooks says.
//!
//! A pure function from what happened to a request; when and how often it is sent is the deliverer's business.

use serde::Serialize;
use standfast_engine::{Delivery, DeliveryPayload, DeliveryRequest, ReceiverKind, delivery_id};

use super::super::{map, wire};
use crate::http::webhook_body;

/// Receivers of webhooks.
#[derive(Debug, Clone, Copy)]
pub struct Webhook;

impl Webhook {
    /// The name of this kind.
    pub(super) const NAME: &'static str = "webhook";
}

#[derive(Serialize)]
struct WebhookEvent<'a> {
    subscription: &'a str,
    run: RunNames,
    event: wire::EventBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<HoldLinked>,
}

#[derive(Serialize)]
struct RunNames {
    id: String,
    agent: String,
    session: String,
    owner: String,
}

#[derive(Serialize)]
struct HoldLinked {
    #[serde(flatten)]
    hold: wire::HoldDetail,
    /// The page on which people decide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl ReceiverKind for Webhook {
    fn name(&self) -> &'static str {
        Webhook::NAME
    }

    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        let subscription = telling.subscription;
        let (id, body) = match &telling.what {
            DeliveryPayload::Frame { .. } | DeliveryPayload::Digest { .. } => return None,
            DeliveryPayload::Ping { id } => ((*id).to_owned(), webhook_body::ping(telling)?),
            DeliveryPayload::Event { run, event, hold } => {
                let hold = hold.clone().map(|view| {
                    let url = telling
                        .public_url
                        .map(|base| format!("{}/approve/{}", base.trim_end_matches('/'), view.row.id));
                    HoldLinked { hold: map::hold_view(*view), url }
                });
                let data = WebhookEvent {
                    subscription,
                    run: RunNames {
                        id: run.id.to_string(),
                        agent: run.agent.to_string(),
                        session: run.session.to_string(),
                        owner: run.owner.to_string(),
                    },
                    event: map::event(run.id, event),
                    hold,
                };
                let body = webhook_body::body(event.event.kind(), event.at, data)?;
                (delivery_id(subscription, run.id, event), body)
            }
        };
        Some(webhook_body::signed(telling, id, body))
    }
}
