//! Pages for people: what is pending, one hold or several, the history, runs, charts, conversations, inboxes, outside jobs.
//! Server-rendered; a script only shows what changes.
//!
//! `routes.rs` and `holds.rs` have the handlers of holds, runs and lists; `conversation.rs`, `inboxes.rs`, `jobs.rs`, `links.rs`, `login.rs`,
//! `sign_in.rs` and `tour.rs` those of their pages; `events.rs` tells an open page that something changed. `pages/` is what each
//! page shows, `widget.rs` a hold within another page, `forms.rs` and `fields.rs` what a posted form says; `diff.rs`,
//! `json_view.rs`, `media.rs` and `svg.rs` make what is shown readable, `addresses.rs` links. What pages of any surface need
//! (templates, the token of forms, headers) is `crate::html`. GET changes nothing; every form posts to the engine and
//! redirects to a page.

mod addresses;
mod conversation;
mod deciding;
mod diff;
mod events;
mod fields;
mod forms;
mod grants;
mod holds;
mod inboxes;
mod jobs;
mod json_view;
mod links;
mod login;
mod media;
mod pages;
mod people;
mod plain_schema;
mod provider_sign_in;
mod queue;
mod receipts;
mod routes;
mod sign_in;
mod svg;
mod task_status;
mod tour;
mod widget;

pub use routes::routes;
