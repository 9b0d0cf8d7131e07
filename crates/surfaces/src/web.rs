//! Pages for people: what is pending, one hold, runs, conversations, inboxes, outside jobs. Server-rendered; a script only
//! shows what changes.
//!
//! `conversation.rs`, `inboxes.rs`, `jobs.rs`, `login.rs`, `sign_in.rs` and `tour.rs` have the handlers of their pages, `events.rs` tells an
//! open page that something changed, `widget.rs` is a hold within another page, `addresses.rs` links. `routes.rs` has the other handlers, `pages/` what each page shows, `forms.rs` and `fields.rs` what a posted form says. What
//! pages of any surface need (templates, the token of forms, headers) is `crate::html`. GET changes nothing; every form
//! posts to the engine and redirects to a page.

mod addresses;
mod conversation;
mod events;
mod fields;
mod forms;
mod inboxes;
mod jobs;
mod login;
mod pages;
mod routes;
mod sign_in;
mod task_status;
mod tour;
mod widget;

pub use routes::routes;
