//! What is known of the request that is being answered, wherever it is asked within it: by which way it came.
//!
//! Set once around every request by whoever serves it, and read where something is measured of it. Nothing is decided by it.
//! What runs in the background has none.

/// The way by which somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The native API.
    Api,
    /// The pages.
    Web,
    /// A2A, whatever its binding and version.
    A2a,
    /// Teal Agents.
    Teal,
    /// Tasks of inboxes.
    Inbox,
    /// Jobs that report back.
    AsyncTool,
    /// Whoever operates the server: health, metrics.
    Operations,
    /// By no request: the server itself, or a program that embeds it.
    Internal,
}

impl Channel {
    /// All of them.
    pub const ALL: [Channel; 8] = [
        Channel::Api,
        Channel::Web,
        Channel::A2a,
        Channel::Teal,
        Channel::Inbox,
        Channel::AsyncTool,
        Channel::Operations,
        Channel::Internal,
    ];

    /// Its name, as labels of metrics have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Api => "api",
            Channel::Web => "web",
            Channel::A2a => "a2a",
            Channel::Teal => "teal",
            Channel::Inbox => "inbox",
            Channel::AsyncTool => "async_tool",
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
    CURRENT.try_with(|context| context.channel).unwrap_or(Channel::Internal)
}
