//! Approval links: issuing one for a person, and who somebody is who opens one.
//!
//! A link says nothing of what its person may do: whoever opens it is that person with the groups and roles of now, and
//! `auth/may_decide.rs` is asked like for everybody else when they decide. How one is signed is `secrets/link.rs`.

use std::sync::Arc;

use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::time::Timestamp;
use standfast_store::StoreError;

use crate::EngineError;
use crate::auth::{Identification, Principal, Scope};
use crate::host::Host;
use crate::log::{Log, needs};
use crate::nodes::{LINK_LEVEL, Nodes};
use crate::reads::Reads;
use crate::secrets::ApprovalLink;
use crate::settings::{ApprovalLinks, BearerLinks, LinkSignIn};

/// Why no link was issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// As for everything else.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There are none here.
    #[error("approval links are off: set server.links.key, the same on every node")]
    Off,
    /// A node is there that could not read what is decided by one.
    #[error("a node of an older version is running; upgrade it before links are issued")]
    OlderNode,
    /// Nobody of this name is configured.
    #[error("{0} is not among the people of the configuration; add them below people:")]
    NoSuchPerson(UserId),
    /// Whoever has it would decide as somebody else.
    #[error(
        "with server.links.sign_in: none whoever has a link decides as {0}, so only {0} is handed it, by a channel; \
         configure their mail, set sign_in: required, or set server.links.issue_by_admin: true to hand it to admins"
    )]
    NotForAdmins(UserId),
    /// There is nothing left to decide.
    #[error("this hold already has a decision")]
    Decided,
    /// They may not decide it.
    #[error("{user} may not decide this hold: {why}")]
    NotTheirs {
        /// Whom the link was to be for.
        user: UserId,
        /// Why not.
        why: String,
    },
}

impl From<StoreError> for LinkError {
    fn from(error: StoreError) -> LinkError {
        LinkError::Engine(error.into())
    }
}

/// Why a link opens nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkRefusal {
    /// It was not issued by this server, was changed, or its key is not known any more.
    Invalid,
    /// It has ended.
    Expired(HoldId),
    /// Whom it was issued for is not configured any more.
    NoSuchPerson,
    /// Somebody else has signed in.
    OtherPerson {
        /// Whom it is for.
        audience: UserId,
        /// Who has signed in.
        signed_in: UserId,
    },
    /// Nobody has signed in, and somebody must.
    NotSignedIn,
    /// A node is there that could not read what is decided by it.
    OlderNode,
}

/// A link that was issued.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedLink {
    /// What stands in its address. A secret: whoever has it may be able to decide.
    pub token: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A link that counts, and who opened it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLink {
    /// What it is bound to.
    pub link: ApprovalLink,
    /// The person whom it is for, with the rights of now.
    pub who: Principal,
}

/// Issues and opens approval links.
pub struct Links {
    host: Arc<Host>,
    log: Arc<Log>,
    reads: Arc<Reads>,
    nodes: Arc<Nodes>,
}

impl Links {
    pub(crate) fn new(log: Arc<Log>, reads: Arc<Reads>, nodes: Arc<Nodes>) -> Links {
        Links { host: log.host.clone(), log, reads, nodes }
    }

    /// Issues a link to an open hold for one person. For administrators, who are not handed what lets them decide as somebody else
    /// unless the configuration says so.
    pub async fn issue(
        &self,
        who: &Principal,
        hold: HoldId,
        audience: UserId,
    ) -> Result<IssuedLink, LinkError> {
        needs(who, Scope::Admin)?;
        let settings = self.host.settings();
        // First whether there is such a hold: what is another tenant's is answered like nothing.
        let snapshot = self.reads.snapshot(who, hold.run).await?;
        let view = self.reads.hold_view(who, &snapshot, hold).await?;
        let links = settings.links.as_ref().ok_or(LinkError::Off)?;
        let Some(person) = settings.person(&who.tenant, &audience) else {
            return Err(LinkError::NoSuchPerson(audience));
        };
        let is_handed_over = links.sign_in == LinkSignIn::None && audience != who.user;
        if is_handed_over && links.bearers == BearerLinks::ToPerson {
            return Err(LinkError::NotForAdmins(audience));
        }
        if self.nodes.feature_level() < LINK_LEVEL {
            return Err(LinkError::OlderNode);
        }
        if view.row.closed.is_some() {
            return Err(LinkError::Decided);
        }
        // Whoever must sign in first may have groups that only their credential tells; then it is asked when they decide.
        if links.sign_in == LinkSignIn::None {
            let bearer = person.principal(&audience, Identification::Link);
            let why = if self.log.may_see_run(&bearer, snapshot.run()) {
                let theirs = self.reads.hold_view(&bearer, &snapshot, hold).await?;
                let why_not = || theirs.why_not.map(|why| why.to_string()).unwrap_or_default();
                (!theirs.may_decide).then(why_not)
            } else {
                Some("they may not see its run".to_owned())
            };
            if let Some(why) = why {
                return Err(LinkError::NotTheirs { user: audience, why });
            }
        }
        let now = self.host.clock.now();
        let link = links.link_to(&view.row, who.tenant.clone(), audience, now);
        self.log.record_link(&link, who.user.as_str()).await?;
        Ok(IssuedLink { token: links.keys.sign(&link), expires_at: link.expires_at })
    }

    /// Who opens a link, if it counts. Whether they may see or decide its hold is asked as for everybody else.
    pub fn open(&self, token: &str, signed_in: Option<&Principal>) -> Result<OpenedLink, LinkRefusal> {
        let settings = self.host.settings();
        let links = settings.links.as_ref().ok_or(LinkRefusal::Invalid)?;
        let link = links.keys.open(token).ok_or(LinkRefusal::Invalid)?;
        let who = self.bearer(links, &link, signed_in);
        if let Err(why) = &who {
            tracing::warn!(hold = %link.hold, audience = %link.audience, ?why, "links: a link was refused");
        }
        who.map(|who| OpenedLink { link, who })
    }

    fn bearer(
        &self,
        links: &ApprovalLinks,
        link: &ApprovalLink,
        signed_in: Option<&Principal>,
    ) -> Result<Principal, LinkRefusal> {
        let settings = self.host.settings();
        if self.host.clock.now() >= link.expires_at {
            return Err(LinkRefusal::Expired(link.hold));
        }
        if self.nodes.feature_level() < LINK_LEVEL {
            return Err(LinkRefusal::OlderNode);
        }
        let person = settings.person(&link.tenant, &link.audience).ok_or(LinkRefusal::NoSuchPerson)?;
        match (links.sign_in, signed_in) {
            (LinkSignIn::None, _) => Ok(person.principal(&link.audience, Identification::Link)),
            (LinkSignIn::Required, None) => Err(LinkRefusal::NotSignedIn),
            (LinkSignIn::Required, Some(who)) if who.user == link.audience && who.tenant == link.tenant => {
                Ok(Principal { by: Identification::Link, ..who.clone() })
            }
            (LinkSignIn::Required, Some(who)) => {
                Err(LinkRefusal::OtherPerson { audience: link.audience.clone(), signed_in: who.user.clone() })
            }
        }
    }
}

impl std::fmt::Debug for IssuedLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuedLink(until {:?})", self.expires_at)
    }
}
