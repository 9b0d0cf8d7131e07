//! Channels: how people are notified of pending holds, each by themselves (mail) or together in a room of a chat.
//!
//! Values. Who is notified of what by which channel is `deliver/channels.rs`; how a message looks and is sent is a surface's business,
//! who somebody is in a chat `submit/chat_accounts.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use standfast_core::event::Event;
use standfast_core::hold;
use standfast_core::name::{AgentName, Tenant};
use standfast_core::time::{Millis, Timestamp};
use standfast_policy::hours::BusinessHours;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use super::people::{self, ConfiguredPerson};

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// What it is called among channels.
    pub name: String,
    /// Whose holds a room is notified of; people have a tenant of their own.
    pub tenant: Tenant,
    /// How long one message may take.
    pub timeout: Millis,
    /// The kinds of events that are delivered.
    pub events: Vec<&'static str>,
    /// The agents whose holds are delivered; none means all.
    pub agents: Option<BTreeSet<AgentName>>,
    /// When a room can be disturbed; none means always. People have hours of their own.
    pub hours: Option<Arc<BusinessHours>>,
    /// What it is.
    pub via: ChannelVia,
}

impl Channel {
    /// The kind of receiver that it is told by.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.via {
            ChannelVia::Mail(_) => "mail",
            ChannelVia::Slack(_) => "slack",
            ChannelVia::Discord(_) => "discord",
            ChannelVia::Teams(_) => "teams",
            ChannelVia::Ntfy(_) => "ntfy",
            ChannelVia::Webhook(_) => "chat-webhook",
        }
    }

    /// Whether it reaches several people at once, instead of each by themselves.
    #[must_use]
    pub fn is_room(&self) -> bool {
        match &self.via {
            ChannelVia::Mail(_) => false,
            ChannelVia::Slack(room) => room.room.is_some(),
            ChannelVia::Discord(_) | ChannelVia::Teams(_) | ChannelVia::Ntfy(_) | ChannelVia::Webhook(_) => {
                true
            }
        }
    }

    /// Where it reaches somebody by themselves; none where it does not.
    #[must_use]
    pub fn address_of<'a>(&self, one: &'a ConfiguredPerson) -> Option<&'a str> {
        match &self.via {
            ChannelVia::Mail(_) => one.mail.as_deref(),
            ChannelVia::Slack(room) if room.room.is_none() && one.tenant == self.tenant => {
                one.slack.as_deref()
            }
            ChannelVia::Slack(_)
            | ChannelVia::Discord(_)
            | ChannelVia::Teams(_)
            | ChannelVia::Ntfy(_)
            | ChannelVia::Webhook(_) => None,
        }
    }

    /// Until when a room is not told of such an event; none when it is told now. Where the message that is there is changed, that disturbs
    /// nobody.
    #[must_use]
    pub fn quiet_until(&self, event: &Event, now: Timestamp) -> Option<Timestamp> {
        let changes = match &self.via {
            ChannelVia::Slack(_) | ChannelVia::Discord(_) => true,
            ChannelVia::Mail(_) | ChannelVia::Teams(_) | ChannelVia::Ntfy(_) | ChannelVia::Webhook(_) => {
                false
            }
        };
        let is_change =
            matches!(event, Event::HoldResolved(_) | Event::HoldEdited(_) | Event::HoldDelegated(_));
        if changes && is_change {
            return None;
        }
        people::quiet_until(self.hours.as_ref()?, now)
    }
}

/// What a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelVia {
    /// Mail to each person.
    Mail(MailServer),
    /// A channel of Slack.
    Slack(SlackRoom),
    /// A channel of Discord.
    Discord(DiscordRoom),
    /// A channel of Teams, by the address of a workflow.
    Teams(WebhookRoom),
    /// A topic of ntfy.
    Ntfy(NtfyTopic),
    /// Any chat that takes messages at an address.
    Webhook(WebhookRoom),
}

/// A secret of a channel, which shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct ChannelSecret(pub String);

impl Drop for ChannelSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for ChannelSecret {}

impl fmt::Debug for ChannelSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChannelSecret(..)")
    }
}

/// Which calls can be decided with buttons in a chat, by their risk class. What nobody has given a class has none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecideInChat {
    /// None: messages lead to the page.
    Never,
    /// Those of low risk.
    Low,
    /// Those of medium risk as well.
    Medium,
    /// Those of high risk as well.
    High,
    /// All of them.
    Always,
}

impl DecideInChat {
    /// Whether a call of this risk class is decided with buttons.
    #[must_use]
    pub fn takes(self, risk: Option<hold::Risk>) -> bool {
        let least = match risk {
            Some(hold::Risk::Low) => DecideInChat::Low,
            Some(hold::Risk::Medium) => DecideInChat::Medium,
            Some(hold::Risk::High) => DecideInChat::High,
            Some(hold::Risk::Destructive) | None => DecideInChat::Always,
        };
        self >= least
    }
}

/// A channel of Slack, or direct messages there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackRoom {
    /// The address of the Web API.
    pub api: String,
    /// The token of the bot.
    pub token: ChannelSecret,
    /// The channel, by its id; none where people get messages of their own.
    pub room: Option<String>,
    /// How clicks show that they come from Slack; without it messages have no buttons.
    pub interactive: Option<SlackInteractive>,
}

/// What clicks in Slack are checked by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackInteractive {
    /// What Slack signs requests with; none where it sends none.
    pub signing_secret: Option<ChannelSecret>,
    /// The app-level token, with which clicks are fetched over a socket (Socket Mode).
    pub app_token: Option<ChannelSecret>,
    /// The workspace, by its id: clicks from others count for nothing.
    pub team: String,
    /// What can be decided.
    pub decide: DecideInChat,
}

/// A channel of Discord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscordRoom {
    /// The address of the API.
    pub api: String,
    /// The token of the bot.
    pub token: ChannelSecret,
    /// The channel, by its id.
    pub room: String,
    /// How clicks show that they come from Discord; without it messages have no buttons.
    pub interactive: Option<DiscordInteractive>,
}

/// What clicks in Discord are checked by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscordInteractive {
    /// The public key of the application.
    pub public_key: [u8; 32],
    /// The server of Discord, by its id: clicks from others count for nothing.
    pub guild: String,
    /// What can be decided.
    pub decide: DecideInChat,
}

/// A topic of ntfy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtfyTopic {
    /// The server.
    pub server: String,
    /// The topic.
    pub topic: String,
    /// The token to publish with.
    pub token: Option<ChannelSecret>,
    /// What messages say.
    pub text: Option<String>,
}

/// A chat that takes messages at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRoom {
    /// The address; whoever knows it can write there.
    pub url: ChannelSecret,
    /// How messages are written.
    pub format: WebhookFormat,
    /// What messages say, where they are text.
    pub text: Option<String>,
    /// Whether they have the arguments of calls.
    pub shows_arguments: bool,
}

/// How messages to an address are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookFormat {
    /// An adaptive card, as workflows of Teams take it.
    Card,
    /// `{"text": …}`: Slack, Mattermost, Rocket.Chat, Google Chat.
    Text,
    /// `{"content": …}`: Discord.
    Content,
    /// Everything that is known, each under its name.
    Json,
}

/// A server that takes mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// Who mails are from, as a header has it.
    pub from: String,
    /// The server that takes them.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: MailTls,
    /// The sender as the server gets it.
    pub login: Option<MailLogin>,
    /// Certificates of the authorities that are trusted beside those of this machine, as PEM.
    pub authorities: Option<Arc<[u8]>>,
}

/// How a connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTls {
    /// From its first byte.
    Implicit,
    /// From `STARTTLS` on, without which nothing is sent.
    StartTls,
    /// Not at all.
    Off,
}

/// How a mail server knows who sends.
#[derive(Clone, PartialEq, Eq)]
pub struct MailLogin {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for MailLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MailLogin(..)")
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::hold::Risk;

    use super::*;

    /// T13: what nobody has classed is not of low risk.
    #[test]
    fn t13_only_classed_risks_are_decided_in_a_chat() {
        let classes = [Some(Risk::Low), Some(Risk::Medium), Some(Risk::High), Some(Risk::Destructive), None];
        for (decide, takes) in [
            (DecideInChat::Never, [false, false, false, false, false]),
            (DecideInChat::Low, [true, false, false, false, false]),
            (DecideInChat::Medium, [true, true, false, false, false]),
            (DecideInChat::High, [true, true, true, false, false]),
            (DecideInChat::Always, [true, true, true, true, true]),
        ] {
            assert_eq!(classes.map(|risk| decide.takes(risk)), takes, "{decide:?}");
        }
    }

    #[test]
    fn secrets_show_nothing() {
        assert_eq!(format!("{:?}", ChannelSecret("canary".into())), "ChannelSecret(..)");
    }
}
