//! Mail to people who are asked: when a hold opens, is changed, is reminded of, escalates, expires or is decided.
//!
//! `message.rs` is what a mail says, `smtp.rs` how it is handed to a mail server. When and how often that is tried is the
//! deliverer's business, who is asked the engine's. A mail shows the arguments whole and has the link of its reader, or neither.

mod message;
mod smtp;

use futures_util::future::BoxFuture;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::name::UserId;
use standfast_core::time::Millis;
use standfast_engine::settings::{ChannelVia, MailServer};
use standfast_engine::{Delivery, DeliveryRequest, HoldView, ReceiverKind, SendFailure};

/// Whether a text is a sender or receiver as a header has it: an address, or a name and an address.
#[must_use]
pub fn is_mailbox(text: &str) -> bool {
    !text.contains(char::is_control) && text.parse::<lettre::message::Mailbox>().is_ok()
}

/// Whether a text is a mail address and nothing else.
#[must_use]
pub fn is_address(text: &str) -> bool {
    !text.contains(char::is_control) && text.parse::<lettre::Address>().is_ok()
}

/// Greets a mail server as a mail would, with its encryption and its login, and leaves: why that does not work.
pub async fn reach(server: &MailServer, timeout: Millis) -> Result<(), String> {
    smtp::reach(server, timeout).await
}

/// Who gets a mail, and how.
#[derive(Clone, Copy)]
struct MailTarget<'a> {
    server: &'a MailServer,
    person: &'a UserId,
    address: &'a str,
    /// Their approval link. A secret.
    link: Option<&'a str>,
}

/// Receivers of mail.
#[derive(Debug, Clone, Copy)]
pub struct Mail;

impl ReceiverKind for Mail {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn request(&self, _telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        None
    }

    fn wants_link(&self, event: &Envelope, hold: &HoldView) -> bool {
        let is_asked = !matches!(event.event, Event::HoldResolved(_));
        let is_decided_by_links = matches!(hold.row.kind, HoldKind::Approval | HoldKind::Input);
        is_asked && is_decided_by_links && message::is_whole(hold)
    }

    fn send<'a>(&'a self, telling: &'a Delivery<'a>) -> Option<BoxFuture<'a, Result<(), SendFailure>>> {
        let told = telling.target?;
        let ChannelVia::Mail(server) = &told.channel.via else { return None };
        let target = MailTarget { server, person: told.person?, address: told.address, link: told.link };
        let message = message::compose(telling, &target)?;
        let timeout = told.channel.timeout;
        Some(Box::pin(async move { Ok(smtp::send(server, timeout, message?).await?) }))
    }
}
