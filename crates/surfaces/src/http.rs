//! What every HTTP surface shares: the door, problem details, bodies, times, stopping.
//!
//! Knows no protocol; the folders beside this one do. `app.rs` puts them together, `listen.rs` serves the whole.

mod app;
mod attempts;
mod cookies;
mod extract;
pub(crate) mod filters;
mod forwarded;
mod gates;
mod guard;
mod in_flight;
mod listen;
mod openapi;
mod problem;
mod protocol_sniff;
mod public_url;
mod rates;
mod reauthorize;
pub mod refusal;
mod request_id;
mod route;
pub mod status;
#[cfg(test)]
mod strangers;
mod surroundings;
mod time;
mod tls;
pub(crate) mod webhook_body;
mod written_answers;

pub use app::App;
pub use cookies::{
    command_line_token, cookie_of, forget_session, keep_session, keep_sign_in, session_cookie, shown_session,
};
pub use extract::{
    Args, JsonBody, Repeatable, Segment, UnparsedJson, body_bytes, idempotency_key, is_too_deep,
};
pub use gates::{gate_problem, gate_text, gate_url, gate_value};
pub use guard::{Door, HasTour, Pass, Peer, SignInOffer};
pub use listen::{serve, serve_with};
pub use openapi::described;
pub(crate) use problem::keep_advice;
pub use problem::{Problem, ProblemDetails, RecordedDecision};
pub use public_url::{is_https, mount, site};
pub use reauthorize::{INVALID, Stay};
pub use route::is_route;
pub use surroundings::{ChannelOf, ProblemWriter, Reteller, surrounded};
pub use time::{http_date, parse_rfc3339, rfc3339};
pub use tls::{BadCertificate, ServerCertificate};
pub use tokio_rustls::TlsAcceptor;
pub use written_answers::when_written;
