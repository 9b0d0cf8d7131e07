//! What every HTTP surface shares: the door, problem details, bodies, times, stopping.
//!
//! Knows no protocol; the folders beside this one do. `app.rs` puts them together, `listen.rs` serves the whole.

mod app;
mod attempts;
mod busy;
mod extract;
mod forwarded;
mod guard;
mod listen;
mod openapi;
mod preface;
mod problem;
pub mod refusal;
mod request_id;
mod site;
pub mod status;
mod stay;
mod surroundings;
mod time;
mod tls;
mod written;

pub use app::App;
pub use extract::{
    Args, JsonBody, Repeatable, Segment, UnparsedJson, body_bytes, idempotency_key, is_too_deep,
};
pub use guard::{Pass, Peer};
pub use listen::{serve, serve_with};
pub use openapi::described;
pub(crate) use problem::keep_advice;
pub use problem::{Problem, ProblemDetails, RecordedDecision};
pub use site::{mount, site};
pub use stay::{INVALID, Stay};
pub use surroundings::{Reteller, Retelling, surrounded};
pub use time::{http_date, parse_rfc3339, rfc3339};
pub use tls::{BadCertificate, ServerCertificate};
pub use written::when_written;
