//! Surfaces: one folder for each protocol. Each maps its wire types to core types and calls the engine.
//!
//! A surface knows no other surface and no store; dropping a protocol means deleting its folder.

pub mod a2a;
pub mod api;
pub mod async_tool;
pub mod inbox;
pub mod operations;
pub mod teal;
pub mod web;
