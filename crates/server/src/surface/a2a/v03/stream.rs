//! Streams of 0.3: the frames of 1.0, each said in the older words.
//!
//! A subscription to a task that is over shows the task and closes; 1.0 refuses it.

use std::convert::Infallible;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};

/// A stream of one event.
pub(super) fn once(name: Option<&'static str>, data: String) -> Response {
    let event = Event::default().data(data);
    let event = match name {
        Some(name) => event.event(name),
        None => event,
    };
    Sse::new(futures_util::stream::iter([Ok::<Event, Infallible>(event)])).into_response()
}
