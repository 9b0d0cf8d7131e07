//! Chats: rooms of several people that are notified of holds, and the clicks by which people decide there.
//!
//! `slack.rs`, `discord.rs` and `rooms.rs` (Teams, ntfy, any address) are how messages are sent and changed, `call.rs` is one request to
//! a chat, `template.rs` the texts that a configuration brings. `slack_clicks.rs` and `discord_clicks.rs` are the doors for what a chat
//! signed, `slack_socket.rs` (with `socket_connection.rs`) fetches what Slack hands out over a connection of ours; all end in `clicks.rs`,
//! which asks the engine like everybody else. `account_page.rs` is where somebody says that an account
//! is theirs. A message shows the arguments whole, or has no button.

mod account_page;
mod call;
mod card;
mod clicks;
mod discord;
mod discord_clicks;
#[cfg(test)]
mod display;
mod rooms;
mod slack;
mod slack_clicks;
mod slack_message;
mod slack_socket;
mod socket_connection;
#[cfg(test)]
mod strangers;
mod template;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use standfast_core::time::Timestamp;

use crate::http::App;

pub use discord::{Discord, public_key};
pub use rooms::{Ntfy, Teams, Webhook};
pub use slack::Slack;
pub use slack_socket::{keep_sockets, reach_socket};
pub use template::unknown_placeholder;

/// Bytes of a click that are read.
const CLICK_BYTES: usize = 256 * 1024;

/// How old, or how far ahead, what a chat signed may be, in seconds.
const WINDOW: i64 = 300;

/// The routes.
pub fn routes(app: &App) -> Router<App> {
    let clicks = slack_clicks::routes().merge(discord_clicks::routes());
    clicks.layer(DefaultBodyLimit::max(CLICK_BYTES)).merge(account_page::routes(app))
}

/// Whether a time that a chat signed, in seconds, is about now.
fn is_fresh(signed_at: &str, now: Timestamp) -> bool {
    let is_number =
        !signed_at.is_empty() && signed_at.len() <= 12 && signed_at.bytes().all(|c| c.is_ascii_digit());
    let signed_at = signed_at.parse::<i64>().ok().filter(|_| is_number);
    signed_at.is_some_and(|at| now.0.div_euclid(1000).saturating_sub(at).saturating_abs() <= WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T5, T10: what was signed too long ago, or ahead of now, counts for nothing.
    #[test]
    fn t10_a_time_that_was_signed_is_about_now() {
        let now = Timestamp(1_800_000_000_000);
        for (at, is_taken) in [
            ("1800000000", true),
            ("1799999700", true),
            ("1800000300", true),
            ("1799999699", false),
            ("1800000301", false),
            ("0", false),
            ("", false),
            ("-1800000000", false),
            ("+1800000000", false),
            (" 1800000000", false),
            ("1800000000.0", false),
            ("99999999999999999999", false),
        ] {
            assert_eq!(is_fresh(at, now), is_taken, "{at}");
        }
    }
}
