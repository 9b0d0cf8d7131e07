//! Sessions of clients at servers over HTTP: the server's own id, sealed together with whose it is and what the client can do.
//!
//! Nothing is stored, so any node knows a session, also after a restart; and a session is of no use to anybody else.

use serde::{Deserialize, Serialize};

use super::super::generation::Hello;
use super::super::profile::ClientProfile;
use super::{ClientRequest, seal, unseal};

/// What sessions are sealed as.
const WHAT: &str = "mcp session";

/// A client's session.
#[derive(Debug, Default)]
pub(super) struct SessionToken {
    /// Its id at the server; none where that gives none.
    pub(super) upstream: Option<String>,
    /// What the client can do.
    pub(super) client: ClientProfile,
    /// What it said at the beginning, where its server has no sessions: each request says it again.
    pub(super) hello: Option<Hello>,
}

/// The same with whose it is.
#[derive(Serialize, Deserialize)]
struct SealedSession {
    gateway: String,
    tenant: String,
    user: String,
    upstream: Option<String>,
    client: ClientProfile,
    #[serde(default)]
    hello: Option<Hello>,
}

impl SessionToken {
    /// The session that a request names; none where it is none of this client's. A request without one is passed on without one.
    pub(super) fn of(asked: &ClientRequest, header: &str) -> Option<SessionToken> {
        if header.is_empty() {
            return Some(SessionToken::default());
        }
        let opened = unseal(&asked.app, WHAT, header);
        let found: Option<SealedSession> = opened.and_then(|opened| serde_json::from_str(&opened).ok());
        let found = found.filter(|found| {
            found.gateway == asked.gateway.name
                && found.tenant == asked.who.tenant.as_str()
                && found.user == asked.who.user.as_str()
        });
        let SealedSession { upstream, client, hello, .. } = found?;
        Some(SessionToken { upstream, client, hello })
    }

    /// As the client gets it.
    pub(super) fn sealed(self, asked: &ClientRequest) -> Option<String> {
        let sealed = SealedSession {
            gateway: asked.gateway.name.clone(),
            tenant: asked.who.tenant.as_str().to_owned(),
            user: asked.who.user.as_str().to_owned(),
            upstream: self.upstream,
            client: self.client,
            hello: self.hello,
        };
        seal(&asked.app, WHAT, &serde_json::to_string(&sealed).ok()?)
    }
}
