//! Channels: keys that belong to another type, keys that are missing, and what does nothing without another key.
//!
//! What a single value may be is `file/channels.rs`.

use super::CheckResult;
use super::rules::secret_in_file;
use crate::config::file::{Channel, ChannelFormat, ChannelTls, ChannelType, File};
use crate::config::path::Path;
use crate::config::tree::Node;

/// Keys that every channel has.
const EVERYWHERE: [&str; 5] = ["type", "name", "timeout", "on", "agents"];

pub(super) fn check(file: &File, tree: &Node, found: &mut CheckResult) {
    for (no, channel) in file.channels.iter().enumerate() {
        fits(no, channel, file, tree, found);
    }
}

/// The keys of a type: those that it needs, and those that it may have.
fn keys(kind: ChannelType) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        ChannelType::Mail => {
            (&["from", "host"], &["port", "tls", "certificate_authority", "user", "password"])
        }
        ChannelType::Slack => (
            &["token"],
            &[
                "room",
                "direct",
                "signing_secret",
                "app_token",
                "team",
                "decide_in_chat",
                "api_url",
                "tenant",
                "hours",
            ],
        ),
        ChannelType::Discord => {
            (&["room", "token"], &["public_key", "team", "decide_in_chat", "api_url", "tenant", "hours"])
        }
        ChannelType::Teams => (&["url"], &["arguments", "tenant", "hours"]),
        ChannelType::Ntfy => (&["room"], &["token", "text", "api_url", "tenant", "hours"]),
        ChannelType::Webhook => (&["url"], &["format", "text", "arguments", "tenant", "hours"]),
    }
}

/// What a channel needs beside itself.
fn fits(no: usize, channel: &Channel, file: &File, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["channels"]).item(no);
    let kind = channel.kind.as_str();
    for secret in ["password", "token", "signing_secret", "app_token", "url"] {
        secret_in_file(&path.key(secret), tree, found);
    }
    let (needed, possible) = keys(channel.kind);
    let given = tree.keys(&path);
    for key in needed.iter().filter(|key| !given.contains(*key)) {
        let what = format!("`{path}` of type `{kind}` has no `{key}`");
        found.problem(tree, &path, what, format!("add `{key}`"));
    }
    for key in given {
        if !EVERYWHERE.contains(&key) && !needed.contains(&key) && !possible.contains(&key) {
            let what = format!("`{path}.{key}` does nothing in a channel of type `{kind}`");
            found.problem(tree, &path.key(key), what, "remove it");
        }
    }
    if file.channels.iter().take(no).any(|other| other.called() == channel.called()) {
        let what = format!("there are two channels with the name `{}`", channel.called());
        found.problem(tree, &path, what, "give each a `name` of its own");
    }
    for agent in channel.agents.iter().flatten().filter(|name| !file.agents.contains_key(*name)) {
        let what = format!("`{path}.agents` names `{agent}`, and there is no such agent");
        found.problem(tree, &path.key("agents"), what, "write the name of an agent below `agents`");
    }
    if file.server.public_url.is_none() {
        let what = format!("`{path}` sends messages with links, and there is no `server.public_url`");
        found.problem(tree, &path, what, "set `server.public_url` to the address that people open");
    }
    match channel.kind {
        ChannelType::Mail => mail(&path, channel, file, tree, found),
        ChannelType::Slack => {
            let signs = match (&channel.signing_secret, &channel.app_token) {
                (None, Some(_)) => ("app_token", true),
                (signed, _) => ("signing_secret", signed.is_some()),
            };
            clicks(&path, channel, signs, file, tree, found);
            direct(&path, channel, file, tree, found);
        }
        ChannelType::Discord => {
            let signs = ("public_key", channel.public_key.is_some());
            clicks(&path, channel, signs, file, tree, found);
        }
        ChannelType::Webhook => {
            let is_text = matches!(channel.format, None | Some(ChannelFormat::Text | ChannelFormat::Discord));
            if channel.text.is_some() && !is_text {
                let what = format!("`{path}.text` does nothing: this format is no text");
                found.problem(tree, &path.key("text"), what, "remove it, or write `format: text`");
            }
        }
        ChannelType::Teams | ChannelType::Ntfy => {}
    }
}

fn mail(path: &Path, channel: &Channel, file: &File, tree: &Node, found: &mut CheckResult) {
    if channel.user.is_some() != channel.password.is_some() {
        let what = format!("`{path}` needs both `user` and `password`, or neither");
        found.problem(tree, path, what, "add the missing one, or remove the other");
    }
    let host = channel.host.as_deref().unwrap_or_default();
    let is_here = matches!(host, "localhost" | "127.0.0.1" | "::1" | "[::1]");
    if channel.tls == Some(ChannelTls::Off) && !is_here {
        let what = format!("`{path}.tls` is off, and `{host}` is another machine");
        let help = "write `tls: starttls` or `tls: implicit`: mails have approval links in them";
        found.problem(tree, &path.key("tls"), what, help);
    }
    if !file.people.values().any(|person| person.mail.is_some()) {
        let what = "nobody in `people` has a `mail`, so no mail is sent".to_owned();
        found.notice(tree, path, what);
    }
}

/// Messages of a room, or of people.
fn direct(path: &Path, channel: &Channel, file: &File, tree: &Node, found: &mut CheckResult) {
    let is_direct = channel.direct == Some(true);
    if is_direct == channel.room.is_some() {
        let what = format!("`{path}` needs either a `room`, or `direct: true`");
        found.problem(
            tree,
            path,
            what,
            "add `room` for the messages of a channel, or `direct: true` for those of people",
        );
    }
    if is_direct && channel.hours.is_some() {
        let what = format!("`{path}.hours` does nothing: people have hours of their own");
        found.problem(tree, &path.key("hours"), what, "write them below `notify` of each person");
    }
    if is_direct && !file.people.values().any(|person| person.slack.is_some()) {
        found.notice(tree, path, "nobody in `people` has a `slack`, so no message is sent".to_owned());
    }
}

/// Buttons: whoever clicks must be somebody, and the chat must show that it was they.
fn clicks(
    path: &Path,
    channel: &Channel,
    (key, signs): (&str, bool),
    file: &File,
    tree: &Node,
    found: &mut CheckResult,
) {
    if signs != channel.team.is_some() {
        let what = format!("`{path}` needs both `{key}` and `team` for its buttons, or neither");
        found.problem(tree, path, what, "add the missing one, or remove the other");
    }
    if channel.decide_in_chat.is_some() && !signs {
        let what = format!("`{path}.decide_in_chat` does nothing without `{key}`");
        found.problem(tree, &path.key("decide_in_chat"), what, format!("add `{key}` and `team`"));
    }
    if signs && file.people.is_empty() {
        let what = format!("nobody can click in `{path}`: there are no `people`");
        found.notice(tree, path, what);
    }
}
