//! People, their sign-in and approval links, from the file to settings.
//!
//! Whom approvers of agents and rules name is `build.rs`, how people are notified `channels.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::name::{BadName, GroupName, RoleName, Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::secrets::{LinkKeys, SecretText};
use standfast_engine::settings::{
    Absence, ApprovalLinks, BearerLinks, ConfiguredPerson, LinkSignIn, NotifyWishes,
};

use standfast_surfaces::http::parse_rfc3339;
use standfast_surfaces::jwt::SignInSettings;

use crate::config::file::{self, File};

/// How long a link counts, unless the file says otherwise.
const USUAL_END: Millis = Millis::hours(24);

/// The people of a file.
pub(super) fn people(file: &File) -> Result<BTreeMap<UserId, ConfiguredPerson>, BadName> {
    let person = |(name, person): (&String, &file::Person)| {
        let configured = ConfiguredPerson {
            tenant: person.tenant.as_ref().map_or_else(|| Ok(Tenant::default_tenant()), Tenant::new)?,
            groups: person.groups.iter().map(GroupName::new).collect::<Result<_, _>>()?,
            roles: person.roles.iter().map(RoleName::new).collect::<Result<_, _>>()?,
            mail: person.mail.clone(),
            slack: person.slack.clone(),
            notify: person.notify.as_ref().map(wishes).unwrap_or_default(),
            away: person.away.as_ref().map(absence).transpose()?,
        };
        Ok((UserId::new(name)?, configured))
    };
    file.people.iter().map(person).collect()
}

/// When somebody is away; times that cannot be read have been refused before.
fn absence(said: &file::Away) -> Result<Absence, BadName> {
    let instant = |text: &str| parse_rfc3339(text).unwrap_or(Timestamp(i64::MIN));
    Ok(Absence {
        from: said.from.as_deref().map_or(Timestamp(i64::MIN), instant),
        until: instant(&said.until),
        stand_in: UserId::new(&said.stand_in)?,
    })
}

/// What somebody wants to be notified of; hours that cannot be read have been refused before.
fn wishes(said: &file::Notify) -> NotifyWishes {
    NotifyWishes {
        events: said.on.as_ref().map(|on| on.iter().map(|event| event.kind()).collect()),
        channels: said.channels.as_ref().map(|names| names.iter().cloned().collect()),
        hours: said.hours.as_ref().and_then(|hours| hours.counted().ok()).map(Arc::new),
        digest: said.digest.map(|span| span.0),
    }
}

/// How people sign in at an identity provider.
pub(super) fn sign_in(said: &file::SignIn) -> SignInSettings {
    let usual = || ["openid", "profile", "email"].map(str::to_owned).to_vec();
    SignInSettings {
        client_id: said.client_id.clone(),
        client_secret: said.client_secret.as_ref().map(|secret| SecretText::new(secret.expose().to_owned())),
        label: said.label.clone().unwrap_or_else(|| "your identity provider".to_owned()),
        scopes: said.scopes.clone().unwrap_or_else(usual),
        renew_every: said.renew.map_or(Millis::seconds(15 * 60), |span| span.0),
        command_line_client: said.cli_client_id.clone(),
    }
}

/// How links are signed.
pub(super) fn links(said: &file::Links) -> ApprovalLinks {
    ApprovalLinks {
        keys: LinkKeys::of_texts(said.key.expose(), said.previous_keys.iter().map(file::Secret::expose)),
        expires: said.expires.map_or(USUAL_END, |span| span.0),
        sign_in: match said.sign_in {
            Some(file::LinkSignIn::None) => LinkSignIn::None,
            Some(file::LinkSignIn::Required) | None => LinkSignIn::Required,
        },
        bearers: match said.issue_by_admin {
            Some(true) => BearerLinks::ToAdmins,
            Some(false) | None => BearerLinks::ToPerson,
        },
    }
}
