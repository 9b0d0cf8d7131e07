//! Pages for people: what waits, one hold, runs. Server-rendered, without any script.
//!
//! `routes.rs` has the handlers, `pages/` what each page shows, `forms.rs` and `fields.rs` what a posted form says,
//! `csrf.rs` the token that every form carries, `headers.rs` what browsers are told, `render.rs` the templates. GET
//! changes nothing; every form posts to the engine and redirects to a page.

mod assets;
mod csrf;
mod error;
mod fields;
mod forms;
mod headers;
mod pages;
mod render;
mod routes;

pub use error::problems_as_pages;
pub use routes::routes;
