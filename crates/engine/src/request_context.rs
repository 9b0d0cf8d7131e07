//! What is known of the request that is being answered, wherever it is asked within it: by which way it came, and its span.
//!
//! Set once around every request by whoever serves it, and around models, tools and deliveries, whose requests to others name
//! their span. Read where something is measured of it. Nothing is decided by it. What runs in the background has none.

use std::borrow::Cow;

use standfast_core::trace::{Origin, TraceContext};

/// The way by which somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The native API.
    Api,
    /// The pages.
    Web,
    /// Approval links.
    Link,
    /// A2A, whatever its binding and version.
    A2a,
    /// Teal Agents.
    Teal,
    /// Tasks of inboxes.
    Inbox,
    /// Jobs that report back.
    AsyncTool,
    /// Agents that ask people, over MCP.
    Mcp,
    /// Hooks of coding agents.
    Hooks,
    /// Whoever operates the server: health, metrics.
    Operations,
    /// By no request: the server itself, or a program that embeds it.
    Internal,
}

impl Channel {
    /// All of them.
    pub const ALL: [Channel; 11] = [
        Channel::Api,
        Channel::Web,
        Channel::Link,
        Channel::A2a,
        Channel::Teal,
        Channel::Inbox,
        Channel::AsyncTool,
        Channel::Mcp,
        Channel::Hooks,
        Channel::Operations,
        Channel::Internal,
    ];

    /// Its name, as labels of metrics have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Api => "api",
            Channel::Web => "web",
            Channel::Link => "link",
            Channel::A2a => "a2a",
            Channel::Teal => "teal",
            Channel::Inbox => "inbox",
            Channel::AsyncTool => "async_tool",
            Channel::Mcp => "mcp",
            Channel::Hooks => "hooks",
            Channel::Operations => "operations",
            Channel::Internal => "internal",
        }
    }
}

/// What is known of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext {
    /// By which way it came.
    pub channel: Channel,
    /// The span that is under way, where traces are on.
    pub span: Option<TraceContext>,
}

impl RequestContext {
    /// Something that no request asked for.
    const INTERNAL: RequestContext = RequestContext { channel: Channel::Internal, span: None };

    /// Work of this server itself, within a span.
    #[must_use]
    pub fn of_work(span: Option<TraceContext>) -> RequestContext {
        RequestContext { span, ..RequestContext::INTERNAL }
    }
}

tokio::task_local! {
    static CURRENT: RequestContext;
}

/// Answers a request: whatever is asked within knows of it.
pub async fn within<T>(context: RequestContext, answering: impl Future<Output = T>) -> T {
    CURRENT.scope(context, answering).await
}

/// The way of the request that is being answered.
#[must_use]
pub fn channel() -> Channel {
    current().channel
}

/// All that is known of it.
#[must_use]
pub fn current() -> RequestContext {
    CURRENT.try_with(|context| *context).unwrap_or(RequestContext::INTERNAL)
}

/// The span that is under way, for requests to others: the header `traceparent`.
#[must_use]
pub fn span() -> Option<TraceContext> {
    current().span
}

/// What is stored of the request with what it causes; none where traces are off.
#[must_use]
pub(crate) fn origin() -> Option<Origin> {
    let RequestContext { channel, span } = current();
    Some(Origin { traceparent: span?, channel: Cow::Borrowed(channel.as_str()) })
}
