//! Channels, from the file to settings.
//!
//! Which keys belong to which type was checked before (`check/channels.rs`): what is missing here is empty.

use std::path::Path as FilePath;
use std::sync::Arc;

use standfast_core::name::{AgentName, Tenant};
use standfast_core::time::Millis;
use standfast_engine::settings::{
    Channel, ChannelSecret, ChannelVia, DecideInChat, DiscordInteractive, DiscordRoom, MailLogin, MailServer,
    MailTls, NtfyTopic, SlackInteractive, SlackRoom, WebhookFormat, WebhookRoom,
};
use standfast_surfaces::chat;

use super::BuildError;
use crate::config::file::{self, ChannelType, File};
use crate::config::stores::absolute;

/// Where the APIs are, unless the file says otherwise.
const SLACK: &str = "https://slack.com/api";
const DISCORD: &str = "https://discord.com/api/v10";
const NTFY: &str = "https://ntfy.sh";

/// The channels of a file.
pub(super) fn channels(file: &File, folder: &FilePath) -> Result<Vec<Channel>, BuildError> {
    file.channels.iter().map(|said| channel(said, folder)).collect()
}

fn channel(said: &file::Channel, folder: &FilePath) -> Result<Channel, BuildError> {
    let on = said.on.as_deref().unwrap_or(&file::ChannelEvent::ALL);
    let agents = said.agents.as_ref();
    let agents = agents.map(|names| names.iter().map(AgentName::new).collect::<Result<_, _>>());
    let api = |usual: &str| said.api_url.clone().unwrap_or_else(|| usual.to_owned());
    let room = || said.room.clone().unwrap_or_default();
    let webhook = |format| WebhookRoom {
        url: secret(&said.url),
        format,
        text: said.text.clone(),
        shows_arguments: said.arguments.unwrap_or(false),
    };
    let via = match said.kind {
        ChannelType::Mail => ChannelVia::Mail(mail(said, folder)?),
        ChannelType::Slack => ChannelVia::Slack(SlackRoom {
            api: api(SLACK),
            token: secret(&said.token),
            room: said.room.clone(),
            interactive: (said.signing_secret.is_some() || said.app_token.is_some()).then(|| {
                SlackInteractive {
                    signing_secret: said.signing_secret.as_ref().map(|_| secret(&said.signing_secret)),
                    app_token: said.app_token.as_ref().map(|_| secret(&said.app_token)),
                    team: said.team.clone().unwrap_or_default(),
                    decide: decide(said),
                }
            }),
        }),
        ChannelType::Discord => ChannelVia::Discord(DiscordRoom {
            api: api(DISCORD),
            token: secret(&said.token),
            room: room(),
            interactive: said.public_key.as_deref().and_then(chat::public_key).map(|public_key| {
                let guild = said.team.clone().unwrap_or_default();
                DiscordInteractive { public_key, guild, decide: decide(said) }
            }),
        }),
        ChannelType::Teams => ChannelVia::Teams(webhook(WebhookFormat::Card)),
        ChannelType::Ntfy => ChannelVia::Ntfy(NtfyTopic {
            server: api(NTFY),
            topic: room(),
            token: said.token.as_ref().map(|_| secret(&said.token)),
            text: said.text.clone(),
        }),
        ChannelType::Webhook => ChannelVia::Webhook(webhook(match said.format {
            Some(file::ChannelFormat::Discord) => WebhookFormat::Content,
            Some(file::ChannelFormat::Teams) => WebhookFormat::Card,
            Some(file::ChannelFormat::Json) => WebhookFormat::Json,
            Some(file::ChannelFormat::Text) | None => WebhookFormat::Text,
        })),
    };
    Ok(Channel {
        name: said.called().to_owned(),
        tenant: said.tenant.as_ref().map_or_else(|| Ok(Tenant::default_tenant()), Tenant::new)?,
        timeout: said.timeout.map_or(Millis::seconds(30), |span| span.0),
        events: on.iter().map(|event| event.kind()).collect(),
        agents: agents.transpose()?,
        // Hours that cannot be read have been refused before.
        hours: said.hours.as_ref().and_then(|hours| hours.counted().ok()).map(Arc::new),
        via,
    })
}

fn mail(said: &file::Channel, folder: &FilePath) -> Result<MailServer, BuildError> {
    let tls = match said.tls {
        Some(file::ChannelTls::Implicit) => MailTls::Implicit,
        Some(file::ChannelTls::Off) => MailTls::Off,
        Some(file::ChannelTls::Starttls) | None => MailTls::StartTls,
    };
    let usual_port = if tls == MailTls::Implicit { 465 } else { 587 };
    let read = |path: &String| {
        let path = absolute(folder, path);
        std::fs::read(&path).map_err(|error| BuildError::ChannelFile { path, error })
    };
    Ok(MailServer {
        from: said.from.clone().unwrap_or_default(),
        host: said.host.clone().unwrap_or_default(),
        port: said.port.unwrap_or(usual_port),
        tls,
        login: said
            .user
            .as_ref()
            .zip(said.password.as_ref())
            .map(|(user, password)| MailLogin { user: user.clone(), password: password.expose().to_owned() }),
        authorities: said.certificate_authority.as_ref().map(read).transpose()?.map(Into::into),
    })
}

fn secret(said: &Option<file::Secret>) -> ChannelSecret {
    ChannelSecret(said.as_ref().map(|secret| secret.expose().to_owned()).unwrap_or_default())
}

fn decide(said: &file::Channel) -> DecideInChat {
    match said.decide_in_chat {
        Some(file::ChannelDecide::Never) => DecideInChat::Never,
        Some(file::ChannelDecide::Medium) => DecideInChat::Medium,
        Some(file::ChannelDecide::High) => DecideInChat::High,
        Some(file::ChannelDecide::Always) => DecideInChat::Always,
        Some(file::ChannelDecide::Low) | None => DecideInChat::Low,
    }
}
