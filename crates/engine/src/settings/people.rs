//! People whom the configuration names, and the approval links that are issued for them.
//!
//! Values. What somebody may decide is `auth/may_decide.rs`, asked with the groups and roles that stand here now; how a link is
//! signed is `secrets/link.rs`, issuing and opening one `submit/links.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use standfast_core::name::{GroupName, RoleName, Tenant, UserId};
use standfast_core::project::HoldRow;
use standfast_core::time::{Millis, Timestamp};
use standfast_policy::hours::BusinessHours;

use crate::auth::{Identification, Principal, Scope};
use crate::secrets::{ApprovalLink, LinkKeys};

/// Somebody whom the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredPerson {
    /// Whose runs they are asked about.
    pub tenant: Tenant,
    /// Their groups.
    pub groups: BTreeSet<GroupName>,
    /// Their roles.
    pub roles: BTreeSet<RoleName>,
    /// Where they get mail.
    pub mail: Option<String>,
    /// Where they get direct messages of Slack, by the id of their user there. Who clicks is another matter.
    pub slack: Option<String>,
    /// What of it they want.
    pub notify: NotifyWishes,
    /// When they are away, and who stands in.
    pub away: Option<Absence>,
}

/// That somebody is away for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// Who decides in their place.
    pub stand_in: UserId,
}

/// What somebody wants to be notified of, and when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotifyWishes {
    /// The kinds of events; none means whatever the channel delivers.
    pub events: Option<BTreeSet<&'static str>>,
    /// The channels, by their names; none means all.
    pub channels: Option<BTreeSet<String>>,
    /// When they want to be disturbed; outside of these hours notices wait until they begin again. None means always.
    pub hours: Option<Arc<BusinessHours>>,
    /// How often they get one message about everything that is pending, instead of one about each. None means at once.
    pub digest: Option<Millis>,
}

impl NotifyWishes {
    /// Until when a notice waits that would disturb now; none when it does not.
    #[must_use]
    pub fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        quiet_until(self.hours.as_ref()?, now)
    }
}

/// When hours begin again; none while they last.
pub(super) fn quiet_until(hours: &BusinessHours, now: Timestamp) -> Option<Timestamp> {
    let begins = hours.after(now, Millis(0))?;
    (begins > now).then_some(begins)
}

impl ConfiguredPerson {
    /// Them, as somebody who looks at what they are asked about and decides it, and nothing else.
    #[must_use]
    pub fn principal(&self, user: &UserId, by: Identification) -> Principal {
        Principal {
            tenant: self.tenant.clone(),
            groups: self.groups.clone(),
            roles: self.roles.clone(),
            scopes: BTreeSet::from([Scope::RunsRead, Scope::HoldsDecide]),
            by,
            ..Principal::of(user.clone())
        }
    }
}

/// How approval links are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalLinks {
    /// What they are signed with; the keys before are still known after a rotation.
    pub keys: LinkKeys,
    /// How long one counts.
    pub expires: Millis,
    /// Whether its holder must have signed in as well.
    pub sign_in: LinkSignIn,
    /// Who hands out links that are enough to decide by.
    pub bearers: BearerLinks,
}

impl ApprovalLinks {
    /// A link to a hold as it is now, for one person.
    #[must_use]
    pub fn link_to(&self, hold: &HoldRow, tenant: Tenant, audience: UserId, now: Timestamp) -> ApprovalLink {
        ApprovalLink {
            hold: hold.id,
            digest: hold.digest,
            revision: hold.revision,
            tenant,
            audience,
            expires_at: now.plus(self.expires),
        }
    }
}

/// Whether whoever opens a link must have signed in as the person whom it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkSignIn {
    /// They must: the link alone shows nothing.
    Required,
    /// Whoever has the link decides as that person.
    None,
}

/// Who hands out links with which whoever has them decides as their person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BearerLinks {
    /// Channels alone, to the person: whoever configures does not thereby decide.
    ToPerson,
    /// Administrators are handed them as well, whomever they are for.
    ToAdmins,
}
