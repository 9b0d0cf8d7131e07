//! What every surface with pages shares: templates, the token of forms, the headers of pages, what a no looks like.
//!
//! Knows no page of its own but the frame, the message and the sign-in; a surface brings its templates along. `script/` is the
//! one module that pages load: it shows what changed and adds keys. It decides nothing: every page works without it.

mod assets;
mod csrf;
mod failure;
mod filters;
mod headers;
mod markdown;
mod render;

pub(crate) use assets::routes as asset_routes;
pub(crate) use csrf::{
    PostedForm, Token, keep as keep_token, keep_alone as keep_token_alone, once as new_nonce,
};
pub(crate) use failure::Failure;
pub use failure::retells;
pub(crate) use headers::{add as add_headers, with as with_headers};
pub(crate) use render::{SignInPage, Site, Templates, marked, sign_in_page};
