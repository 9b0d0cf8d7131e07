//! The models: one file for each way that providers speak. What a model is, the engine says.
//!
//! `provider.rs` is how one is asked over HTTP, `chain.rs` what happens when it fails, `conversation.rs` what all of them
//! are sent, `scripted.rs` one that needs no provider.

#![warn(missing_docs)]

mod anthropic;
pub mod chain;
mod conversation;
pub mod error;
mod gemini;
mod limiter;
mod ollama;
mod openai_chat;
mod openai_responses;
pub mod provider;
mod proxies;
mod reply;
mod request;
pub mod script_file;
pub mod scripted;
mod stream_frames;
