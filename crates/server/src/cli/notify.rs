//! Telling systemd where the server stands: ready, stopping. Without `NOTIFY_SOCKET` nothing is sent.
//!
//! One datagram each, as `sd_notify(3)` has it; a service of `Type=notify` counts as started when it is ready.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state that systemd knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum ServiceState {
    Ready,
    Stopping,
}

/// Tells it. Whoever does not listen any more misses nothing that matters.
pub(super) fn notify(state: ServiceState) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let text = match state {
        ServiceState::Ready => "READY=1",
        ServiceState::Stopping => "STOPPING=1",
    };
    let address = match socket.as_bytes() {
        // A name that is not a file.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&socket),
    };
    let sent = UnixDatagram::unbound().and_then(|own| own.send_to_addr(text.as_bytes(), &address?));
    if let Err(error) = sent {
        tracing::warn!(%error, "serve: could not tell the service manager");
    }
}
