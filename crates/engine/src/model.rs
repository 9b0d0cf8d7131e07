//! What the engine asks of a model, and what comes back.
//!
//! What a model says is a value that the rules decide on; a model never touches a run. How providers are spoken to is
//! not known here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use standfast_core::command::AskedCall;
use standfast_core::definition::Definition;
use standfast_core::json::RawJson;
use standfast_core::message::{Part, Usage};
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::Entry;

use crate::clock::Clock;

/// What a model is asked with.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Instructions, tools, parameters: as the run is pinned.
    pub definition: Arc<Definition>,
    /// The conversation so far.
    pub transcript: Vec<Entry>,
    /// Replies so far.
    pub turn: u32,
    /// Failures since the last reply.
    pub failures: u32,
}

/// What a model says.
#[derive(Debug, Clone, Default)]
pub struct ModelReply {
    /// Its words.
    pub text: Option<String>,
    /// Data and files that it made, beside its words.
    pub parts: Vec<Part>,
    /// The calls it asks for.
    pub calls: Vec<AskedCall>,
    /// Blocks to send back as they came.
    pub opaque: Option<RawJson>,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, when it is not the pinned one.
    pub model: Option<String>,
    /// Why it stopped, in the provider's word: for what is measured, nothing is decided by it.
    pub finish: Option<String>,
    /// Why there is no answer and never will be; then nothing else of the reply counts.
    pub gives_up: Option<GivesUp>,
}

/// How a model ends a run without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivesUp {
    /// The work cannot be done.
    Fails(String),
    /// It will not do the work.
    Rejects(String),
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFailure {
    /// What the provider said.
    pub error: String,
    /// How long to wait before asking again; none when asking again cannot help.
    pub retry_after: Option<Millis>,
}

/// The result of asking.
pub type ModelFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelReply, ModelFailure>> + Send + 'a>>;

/// What a model has while it is asked: time, and whoever listens to it.
pub struct Live {
    clock: Clock,
    hears: Box<dyn Fn(&str) + Send + Sync>,
}

impl Live {
    /// Words go to `hears` as they come.
    #[must_use]
    pub fn new(clock: Clock, hears: impl Fn(&str) + Send + Sync + 'static) -> Live {
        Live { clock, hears: Box::new(hears) }
    }

    /// Says a piece of the reply to whoever listens just now. The reply itself must have it too.
    pub fn delta(&self, text: &str) {
        (self.hears)(text);
    }

    /// The instant now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits.
    pub async fn sleep(&self, span: Millis) {
        self.clock.sleep(span).await;
    }
}

/// Something that replies.
pub trait Model: Send + Sync {
    /// Asks for the next reply.
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a>;

    /// Whether it can also ask this model, for runs that are pinned to another one than its own.
    fn also_has(&self, _model: &str) -> bool {
        false
    }

    /// Who provides this model, by the names that OpenTelemetry has for them: for what is measured.
    fn provider(&self, _model: &str) -> &'static str {
        "custom"
    }

    /// Whether it replies within this process, so that nothing leaves it when it is asked. It may then be asked before what
    /// it is asked with is durable.
    fn is_in_process(&self) -> bool {
        false
    }
}
