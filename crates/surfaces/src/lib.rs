//! The surfaces of Standfast: one folder for each protocol. Each maps its wire types to core types and calls the engine.
//!
//! A surface knows no other surface and no store; dropping a protocol means deleting its folder. What they share: `http`
//! (the door, problem details, listening), `html` (pages), `labels` (states and events in words for people), `jwt` (tokens
//! of an identity provider). Which surfaces a server has is not known here: that is the server's `app`.

pub mod a2a;
pub mod api;
pub mod async_tool;
pub mod chat;
pub mod hooks;
pub mod html;
pub mod http;
pub mod inbox;
pub mod jwt;
pub mod labels;
pub mod mail;
pub mod mcp;
pub mod operations;
pub mod teal;
pub mod web;
