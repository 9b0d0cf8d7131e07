//! A reply on its way: what the stream of a provider is read into, whichever way it speaks.
//!
//! Below the dialects, which read, and `provider.rs`, which asks. Knows neither.

use serde_json::value::RawValue;
use standfast_core::command::AskedCall;
use standfast_engine::model::Live;

use super::error::{Trouble, TroubleKind};

/// How many calls one reply may ask for.
const CALLS_MAX: usize = 128;

/// Reads a reply, frame by frame.
pub(super) trait ReplyReader: Send {
    /// Takes a frame of the stream.
    fn take(&mut self, frame: &str, live: &Live) -> Result<Flow, Trouble>;

    /// Nothing more comes: what was said, or why it is not a reply.
    fn finish(self: Box<Self>) -> Result<ProviderReply, Trouble>;
}

/// Whether more is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    GoOn,
    Done,
}

/// What a provider said.
#[derive(Debug, Default)]
pub(super) struct ProviderReply {
    pub(super) text: String,
    pub(super) calls: Vec<AskedCall>,
    /// What it wants to get back as it came.
    pub(super) own: Option<Box<RawValue>>,
    pub(super) spent: TokenUsage,
    /// Why it stopped, in its own word.
    pub(super) finish: Option<String>,
}

/// Tokens of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TokenUsage {
    /// Tokens read, with those that were cached.
    pub(super) input: u64,
    /// Of these: read from a cache.
    pub(super) cached: u64,
    /// Tokens written, with those that were thought.
    pub(super) output: u64,
}

/// What a frame is that cannot be read.
pub(super) fn garbled(error: serde_json::Error) -> Trouble {
    Trouble::new(TroubleKind::Garbled, error.to_string())
}

/// A reply may ask for so many calls and no more.
pub(super) fn stop_if_too_many(calls: usize) -> Result<(), Trouble> {
    if calls > CALLS_MAX {
        Err(Trouble::new(TroubleKind::TooLarge, format!("it asks for more than {CALLS_MAX} calls")))
    } else {
        Ok(())
    }
}
