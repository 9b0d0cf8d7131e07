//! The section `people`, and how approval links are signed (`server.links`).
//!
//! Who may decide what is said by the approvers of agents and rules, not here.

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;
use standfast_core::name::{GroupName, RoleName, Tenant, UserId};
use standfast_core::time::Millis;
use standfast_surfaces::http::parse_rfc3339;

use super::agent::{BusinessHours, some_hours};
use super::channels::{ChannelEvent, mail_address, plain_name};
use super::server::long_enough;
use super::values::{Secret, Span};

/// Somebody whom approval links are issued for.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Person {
    /// Where they get mail from `channels`.
    #[garde(inner(custom(mail_address)))]
    pub mail: Option<String>,
    /// Where they get direct messages from `channels` of Slack with `direct`: the id of their user there, such as `U0123456789`.
    #[garde(inner(custom(plain_name)))]
    pub slack: Option<String>,
    /// The groups that they belong to, for channels and for approval links without sign-in. Lists of approvers name groups.
    #[garde(inner(custom(group_name)))]
    pub groups: Vec<String>,
    /// The roles that they have, for channels and for approval links without sign-in.
    #[garde(inner(custom(role_name)))]
    pub roles: Vec<String>,
    /// The tenant that they belong to.
    #[garde(inner(custom(tenant_name)))]
    #[schemars(extend("default" = "default"))]
    pub tenant: Option<String>,
    /// What they want mail and direct messages about, and when. Default: all of it, at once.
    #[garde(dive)]
    pub notify: Option<Notify>,
    /// When they are away, and who decides in their place.
    #[garde(dive)]
    pub away: Option<Away>,
}

/// That somebody is away for a while.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Away {
    /// From when on, such as `2026-12-01T08:00:00Z`. Default: now.
    #[garde(inner(custom(an_instant)))]
    pub from: Option<String>,
    /// Until when, such as `2027-01-07T08:00:00Z`.
    #[garde(custom(an_instant))]
    pub until: String,
    /// The user who decides in their place. What they may decide is handed on to this user, hold by hold, until then; logins are not.
    #[garde(custom(user_name))]
    pub stand_in: String,
}

/// What somebody wants mail and direct messages about, and when.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Notify {
    /// What they are notified of, of what the channel delivers. Default: all of it.
    pub on: Option<Vec<ChannelEvent>>,
    /// The names of the channels that reach them. Default: all mail and direct messages.
    pub channels: Option<Vec<String>>,
    /// When they can be disturbed. Outside of these hours messages about what is pending wait until they begin again.
    #[garde(inner(custom(some_hours)))]
    pub hours: Option<BusinessHours>,
    /// One message about everything that is pending, so often, instead of one about each hold: at multiples of this span, counted in UTC.
    /// Escalations are sent at once.
    #[garde(inner(custom(a_second_to_a_week)))]
    pub digest: Option<Span>,
}

/// Approval links.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Links {
    /// The key that links are signed with: long, random, the same on every node. To change it, move the old one to
    /// `previous_keys`.
    #[garde(custom(long_enough))]
    pub key: Secret,
    /// Previous keys, the newest first. Links that were signed with them still count until they expire.
    #[serde(default)]
    #[garde(length(max = 4), inner(custom(long_enough)))]
    pub previous_keys: Vec<Secret>,
    /// How long a link counts.
    #[garde(inner(custom(a_second_to_a_month)))]
    #[schemars(extend("default" = "24h"))]
    pub expires: Option<Span>,
    /// Whether a link counts only for somebody who has signed in as its person, or for whoever has it.
    #[schemars(extend("default" = "required"))]
    pub sign_in: Option<LinkSignIn>,
    /// Whether admins are handed links for others with `sign_in: none`, by which they decide as those. Otherwise only channels hand
    /// such links out, each to its person.
    #[schemars(extend("default" = false))]
    pub issue_by_admin: Option<bool>,
}

/// Whether whoever opens a link must have signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkSignIn {
    /// The link alone shows nothing.
    Required,
    /// Whoever has the link decides as its person.
    None,
}

fn a_second_to_a_week(span: &Span, (): &()) -> garde::Result {
    if (Millis::seconds(1)..=Millis::hours(7 * 24)).contains(&span.0) {
        Ok(())
    } else {
        Err(garde::Error::new("must be from a second to 7 days"))
    }
}

fn a_second_to_a_month(span: &Span, (): &()) -> garde::Result {
    if (Millis::seconds(1)..=Millis::hours(31 * 24)).contains(&span.0) {
        Ok(())
    } else {
        Err(garde::Error::new("must be from a second to 31 days"))
    }
}

fn an_instant(text: &str, (): &()) -> garde::Result {
    let wrong = "wrong: it is no time; write it in UTC, such as 2026-12-01T08:00:00Z";
    parse_rfc3339(text).map(drop).ok_or_else(|| garde::Error::new(wrong))
}

fn user_name(text: &str, (): &()) -> garde::Result {
    UserId::new(text).map(drop).map_err(garde::Error::new)
}

fn group_name(text: &str, (): &()) -> garde::Result {
    GroupName::new(text).map(drop).map_err(garde::Error::new)
}

fn role_name(text: &str, (): &()) -> garde::Result {
    RoleName::new(text).map(drop).map_err(garde::Error::new)
}

fn tenant_name(text: &str, (): &()) -> garde::Result {
    Tenant::new(text).map(drop).map_err(garde::Error::new)
}
