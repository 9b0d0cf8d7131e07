//! Pages for people: what is pending, one hold or several, the history, runs, charts. Server-rendered; no script decides.
//!
//! `routes.rs` and `holds.rs` have the handlers, `pages/` what each page shows, `forms.rs` and `fields.rs` what a posted form
//! says; `diff.rs`, `json_view.rs`, `media.rs` and `svg.rs` make what is shown readable. What
//! pages of any surface need (templates, the token of forms, headers) is `crate::html`. GET changes nothing; every form
//! posts to the engine and redirects to a page.

mod diff;
mod fields;
mod forms;
mod holds;
mod json_view;
mod login;
mod media;
mod pages;
mod routes;
mod svg;

pub use routes::routes;
