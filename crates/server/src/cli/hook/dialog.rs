//! A hook beside the client's own dialog: Claude Code ends it as soon as its user has decided there, and the server is told so at once.
//!
//! What a server makes of it is `hooks/dialogs.rs` of the surfaces. Where nobody could be told, the next event of the client tells it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::super::client::{Patience, Server};
use super::ClientName;

/// What the server knows the end of a dialog by.
const CLOSED: &str = "DialogClosed";

/// What a process that was asked to end says with its code.
pub(super) const ENDED: u8 = 128 + 15;

/// Whether the client has ended the hook of a dialog.
#[derive(Debug, Clone, Default)]
pub(super) struct DialogEnd(Arc<AtomicBool>);

impl DialogEnd {
    /// Whether what the server says next is of no use any more.
    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits beside the hook until the client ends it, and tells the server.
    pub(super) fn watch(&self, client: ClientName, event: &str, server: Server) {
        let Some(closed) = closed(client, event) else { return };
        let has_come = self.0.clone();
        std::thread::spawn(move || {
            if is_asked_to_end() {
                has_come.store(true, Ordering::SeqCst);
                let path = format!("/hooks/{}", client.name());
                drop(server.post(&path, &closed, Patience::Usual));
                std::process::exit(i32::from(ENDED));
            }
        });
    }
}

/// Waits for the signal; false where it cannot be caught, and ends this process by itself.
fn is_asked_to_end() -> bool {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return false;
    };
    runtime.block_on(async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => terminate.recv().await.is_some(),
            Err(_) => false,
        }
    })
}

/// The same event as the end of its dialog; none for what has no dialog beside it.
fn closed(client: ClientName, event: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(event).ok()?;
    let name = event.get_mut("hook_event_name")?;
    if client != ClientName::ClaudeCode || name.as_str() != Some("PermissionRequest") {
        return None;
    }
    *name = Value::from(CLOSED);
    Some(event.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hook_of_a_dialog_tells_its_end() {
        let event = |name: &str| format!(r#"{{"session_id":"s","hook_event_name":"{name}"}}"#);
        let told = closed(ClientName::ClaudeCode, &event("PermissionRequest")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["hook_event_name"], CLOSED);
        for (client, event) in [
            (ClientName::ClaudeCode, event("PreToolUse")),
            // It shows its dialog when the hook has answered.
            (ClientName::Codex, event("PermissionRequest")),
            (ClientName::ClaudeCode, "no JSON".to_owned()),
        ] {
            assert_eq!(closed(client, &event), None, "{client:?}: {event}");
        }
    }
}
