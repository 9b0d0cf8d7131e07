//! The section `channels`: how people, and rooms of chats, are notified of pending holds.
//!
//! Who is asked is said by the approvers of agents and rules; where somebody is reached by mail stands with them in `people`. Which keys
//! belong to which type is `check/channels.rs`.

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;
use standfast_core::name::Tenant;
use standfast_core::time::Millis;
use standfast_surfaces::{chat, mail};

use super::agent::{BusinessHours, some_hours};
use super::values::{Secret, Span};

/// A channel.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Channel {
    /// What kind of channel it is.
    #[serde(rename = "type")]
    pub kind: ChannelType,
    /// Its name, where there are several of its type. `standfast subscriptions` and the audit log name it, and so do the addresses of
    /// clicks. Default: its type.
    #[garde(inner(custom(plain_name)))]
    pub name: Option<String>,
    /// `mail`: whom mails are from, such as `Standfast <approvals@example.com>`.
    #[garde(inner(custom(mail_box)))]
    pub from: Option<String>,
    /// `mail`: the host name of the mail server (SMTP).
    #[garde(inner(length(min = 1, max = 253)))]
    pub host: Option<String>,
    /// Its port. Default: 465 with `tls: implicit`, else 587.
    #[garde(inner(range(min = 1)))]
    pub port: Option<u16>,
    /// How the connection is protected: `starttls`, `implicit` from its first byte, or `off`, for a mail server on this
    /// machine only.
    #[schemars(extend("default" = "starttls"))]
    pub tls: Option<ChannelTls>,
    /// A PEM file with the certificate of an authority to trust beside those of this machine, relative to this file.
    pub certificate_authority: Option<String>,
    /// The user to log in as at the mail server.
    pub user: Option<String>,
    /// Their password.
    pub password: Option<Secret>,
    /// `slack`, `discord`: the id of the channel, such as `C0123456789`. `ntfy`: the topic.
    #[garde(inner(custom(plain_name)))]
    pub room: Option<String>,
    /// `slack`: whether people get messages of their own, where `slack` of `people` says, instead of a room.
    #[schemars(extend("default" = false))]
    pub direct: Option<bool>,
    /// `slack`, `discord`: the token of the bot. `ntfy`: the token to publish with, where the topic needs one.
    pub token: Option<Secret>,
    /// `slack`: the signing secret of the app, where Slack sends clicks to this server. With it or with `app_token`, and with `team`, messages
    /// have buttons.
    #[garde(inner(custom(secret_of_some_length)))]
    pub signing_secret: Option<Secret>,
    /// `slack`: an app-level token (`xapp-…`) with the scope `connections:write`, for Socket Mode: this server fetches clicks from Slack, which
    /// need not reach it.
    #[garde(inner(custom(app_level_token)))]
    pub app_token: Option<Secret>,
    /// `discord`: the public key of the application. With it, and with `team`, messages have buttons.
    #[garde(inner(custom(is_public_key)))]
    pub public_key: Option<String>,
    /// `slack`: the id of the workspace, such as `T0123456789`. `discord`: the id of the server. Clicks of members of others decide nothing.
    #[garde(inner(custom(plain_name)))]
    pub team: Option<String>,
    /// `slack`, `discord`: which calls have buttons that decide, by their risk class. Others lead to the page where people sign in.
    #[schemars(extend("default" = "low"))]
    pub decide_in_chat: Option<ChannelDecide>,
    /// `teams`, `webhook`: the address that takes messages. Whoever knows it can write there, so it is a secret.
    #[garde(inner(custom(secret_address)))]
    pub url: Option<Secret>,
    /// `slack`, `discord`, `ntfy`: the address of the API or the server, for a proxy or a server of your own. Default: that of Slack, Discord
    /// or ntfy.sh.
    #[garde(inner(custom(address)))]
    pub api_url: Option<String>,
    /// `webhook`: how messages are written.
    #[schemars(extend("default" = "text"))]
    pub format: Option<ChannelFormat>,
    /// `webhook`, `ntfy`: what messages say, with `{title}`, `{news}`, `{facts}`, `{agent}`, `{owner}`, `{opened}`, `{deadline}`,
    /// `{risk}`, `{reason}`, `{tool}`, `{call}` and `{page}`.
    #[garde(inner(custom(template)))]
    pub text: Option<String>,
    /// `teams`, `webhook`: whether messages show the arguments of calls to whoever reads the room.
    #[schemars(extend("default" = false))]
    pub arguments: Option<bool>,
    /// Of all but `mail`: the tenant whose holds the room is notified of.
    #[garde(inner(custom(tenant_name)))]
    #[schemars(extend("default" = "default"))]
    pub tenant: Option<String>,
    /// Of all but `mail`: when the room can be disturbed. Outside of these hours messages wait until they begin again; what only changes a
    /// message does not. People have `notify.hours`.
    #[garde(inner(custom(some_hours)))]
    pub hours: Option<BusinessHours>,
    /// How long one message may take.
    #[garde(inner(custom(a_second_to_five_minutes)))]
    #[schemars(extend("default" = "30s"))]
    pub timeout: Option<Span>,
    /// What is delivered. Default: all of them.
    #[garde(inner(length(min = 1)))]
    pub on: Option<Vec<ChannelEvent>>,
    /// The agents whose holds are delivered. Default: all of them.
    pub agents: Option<Vec<String>>,
}

/// The kinds of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelType {
    /// Mail over SMTP, to each person by themselves.
    Mail,
    /// A channel of Slack.
    Slack,
    /// A channel of Discord.
    Discord,
    /// A channel of Teams, by the address of a workflow.
    Teams,
    /// A topic of ntfy.
    Ntfy,
    /// Any chat that takes messages at an address.
    Webhook,
}

impl ChannelType {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ChannelType::Mail => "mail",
            ChannelType::Slack => "slack",
            ChannelType::Discord => "discord",
            ChannelType::Teams => "teams",
            ChannelType::Ntfy => "ntfy",
            ChannelType::Webhook => "webhook",
        }
    }
}

impl Channel {
    /// What it is called.
    #[must_use]
    pub fn called(&self) -> &str {
        self.name.as_deref().unwrap_or(self.kind.as_str())
    }
}

/// Which calls are decided with buttons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelDecide {
    /// None.
    Never,
    /// Of risk class `low`: rules say so, or the tool only reads or can be undone.
    Low,
    /// Of `medium` as well.
    Medium,
    /// Of `high` as well.
    High,
    /// All of them, also those that nobody has classed and those that cannot be undone.
    Always,
}

/// How messages to an address are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelFormat {
    /// `{"text": …}`, as Slack, Mattermost, Rocket.Chat and Google Chat take it.
    Text,
    /// `{"content": …}`, as Discord takes it.
    Discord,
    /// An adaptive card, as workflows of Teams take it.
    Teams,
    /// Everything that is known, each under its name.
    Json,
}

/// How a connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelTls {
    /// By `STARTTLS`, without which nothing is sent.
    Starttls,
    /// From its first byte.
    Implicit,
    /// Not at all.
    Off,
}

/// What people are notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelEvent {
    /// A hold opened.
    Opened,
    /// The arguments of a held call were changed.
    Edited,
    /// A hold is still pending (`remind_after`).
    Reminded,
    /// Others are asked as well.
    Escalated,
    /// It was handed on to somebody, by hand or because they stand in: mail to them, and messages that are there say who may decide.
    Delegated,
    /// The hold has expired, and was kept.
    Expired,
    /// A hold was decided.
    Resolved,
}

impl ChannelEvent {
    /// All of them.
    pub const ALL: [ChannelEvent; 7] = [
        ChannelEvent::Opened,
        ChannelEvent::Edited,
        ChannelEvent::Reminded,
        ChannelEvent::Escalated,
        ChannelEvent::Delegated,
        ChannelEvent::Expired,
        ChannelEvent::Resolved,
    ];

    /// The kind of event in the log of a run.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            ChannelEvent::Opened => "hold.opened",
            ChannelEvent::Edited => "hold.edited",
            ChannelEvent::Reminded => "hold.reminded",
            ChannelEvent::Escalated => "hold.escalated",
            ChannelEvent::Delegated => "hold.delegated",
            ChannelEvent::Expired => "hold.expired",
            ChannelEvent::Resolved => "hold.resolved",
        }
    }
}

pub(super) fn plain_name(text: &str, (): &()) -> garde::Result {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        Ok(())
    } else {
        Err(garde::Error::new("must be 1 to 64 letters, digits, - or _"))
    }
}

fn mail_box(text: &str, (): &()) -> garde::Result {
    if text.contains("${") || mail::is_mailbox(text) {
        Ok(())
    } else {
        Err(garde::Error::new("must be a mail address, such as Standfast <approvals@example.com>"))
    }
}

fn tenant_name(text: &str, (): &()) -> garde::Result {
    Tenant::new(text).map(drop).map_err(garde::Error::new)
}

fn secret_of_some_length(secret: &Secret, (): &()) -> garde::Result {
    let text = secret.expose();
    if text.contains("${") || text.len() >= 16 {
        Ok(())
    } else {
        Err(garde::Error::new("must have at least 16 characters"))
    }
}

fn app_level_token(secret: &Secret, (): &()) -> garde::Result {
    let text = secret.expose();
    if text.contains("${") || text.starts_with("xapp-") {
        Ok(())
    } else {
        Err(garde::Error::new("must be an app-level token of Slack, which begins with xapp-"))
    }
}

fn is_public_key(text: &str, (): &()) -> garde::Result {
    if text.contains("${") || chat::public_key(text).is_some() {
        Ok(())
    } else {
        Err(garde::Error::new("must be 64 letters from 0 to f, as Discord shows the public key"))
    }
}

fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = !text.chars().any(|c| c.is_control() || c.is_whitespace());
    text.contains("${") || (is_plain && rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')))
}

fn address(text: &str, (): &()) -> garde::Result {
    if is_address(text) { Ok(()) } else { Err(garde::Error::new("must begin with https:// or http://")) }
}

fn secret_address(secret: &Secret, (): &()) -> garde::Result {
    address(secret.expose(), &())
}

fn template(text: &str, (): &()) -> garde::Result {
    match chat::unknown_placeholder(text) {
        None => Ok(()),
        Some(name) => Err(garde::Error::new(format!("has {{{name}}}, which stands for nothing"))),
    }
}

/// An address without a name.
pub(super) fn mail_address(text: &str, (): &()) -> garde::Result {
    if text.contains("${") || mail::is_address(text) {
        Ok(())
    } else {
        Err(garde::Error::new("must be a mail address, such as alice@example.com"))
    }
}

fn a_second_to_five_minutes(span: &Span, (): &()) -> garde::Result {
    if (Millis::seconds(1)..=Millis::seconds(300)).contains(&span.0) {
        Ok(())
    } else {
        Err(garde::Error::new("must be from a second to 5 minutes"))
    }
}
