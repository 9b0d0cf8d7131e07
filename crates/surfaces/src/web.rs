//! Pages for people: what is pending, one hold, runs. Server-rendered, without any script.
//!
//! `routes.rs` has the handlers, `pages/` what each page shows, `forms.rs` and `fields.rs` what a posted form says. What
//! pages of any surface need (templates, the token of forms, headers) is `crate::html`. GET changes nothing; every form
//! posts to the engine and redirects to a page.

mod fields;
mod forms;
mod login;
mod pages;
mod routes;

pub use routes::routes;
