//! What every surface with pages shares: templates, the token of forms, the headers of pages, what a no looks like.
//!
//! Knows no page of its own but the frame and the message; a surface brings its templates along. Pages have no script.

mod assets;
mod csrf;
mod failure;
mod headers;
mod markdown;
mod render;

pub(crate) use assets::routes as asset_routes;
pub(crate) use csrf::{PostedForm, Token, cookie_of, keep as keep_token};
pub(crate) use failure::Failure;
pub use failure::retells;
pub(crate) use headers::{add as add_headers, with as with_headers};
pub(crate) use render::{Site, Templates, marked};
