//! Addresses of pages whose names people choose: conversations and inboxes.
//!
//! A name may have any character, so each part is encoded.

use std::fmt::Write as _;

use standfast_core::name::{AgentName, InboxName, SessionId, UserId};

/// The page of a conversation.
pub(super) fn session(session: &SessionId, agent: &AgentName, owner: &UserId) -> String {
    let (session, agent, owner) =
        (encoded(session.as_str()), encoded(agent.as_str()), encoded(owner.as_str()));
    format!("/sessions/{session}?agent={agent}&owner={owner}")
}

/// The page of an inbox.
pub(super) fn inbox(inbox: &InboxName) -> String {
    format!("/inboxes/{}", encoded(inbox.as_str()))
}

/// A text as a part of an address.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut address, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            address.push(char::from(byte));
        } else {
            // A String takes whatever it is given.
            let _ = write!(address, "%{byte:02X}");
        }
        address
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_part() {
        assert_eq!(encoded("a-b.c_d~1"), "a-b.c_d~1");
        assert_eq!(encoded("a/b?c&d=ü %"), "a%2Fb%3Fc%26d%3D%C3%BC%20%25");
    }
}
