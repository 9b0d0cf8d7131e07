//! The span of a delivery: part of its run's trace, and named to whoever receives it over HTTP.
//!
//! Where traces are off there is none. What is sent is `rounds.rs`, and `channels.rs` for mail and chats. Who a mail is for is in
//! no span, and neither is what it says.

use std::sync::Arc;

use standfast_core::id::RunId;

use super::{Deliveries, DeliveryPayload, SendFailure};
use crate::log::trace_of;
use crate::outbound::http::{Answer, Trouble};
use crate::receivers::Receiver;
use crate::settings::{Channel, ChannelVia};
use crate::traces::{Span, SpanKind, Traces};

/// The run that something is told of.
pub(super) fn run_of(what: &DeliveryPayload<'_>) -> Option<RunId> {
    match what {
        DeliveryPayload::Ping { .. } | DeliveryPayload::Digest { .. } => None,
        DeliveryPayload::Event { run, .. } | DeliveryPayload::Frame { run, .. } => Some(run.id),
    }
}

impl Deliveries {
    /// Something of a run is about to be sent.
    pub(super) async fn begin_delivery_span(
        &self,
        run: Option<RunId>,
        subscription: &str,
        receiver: &Receiver,
    ) -> Option<(Arc<Traces>, Span)> {
        let (traces, trace) = trace_of(&self.log, run?).await?;
        let mut span = traces.begin(SpanKind::Client, "deliver webhook", Some(trace.start()));
        span.set("http.request.method", "POST");
        // Addresses may have secrets in path and query; the host has none.
        let host = reqwest::Url::parse(&receiver.url).ok();
        if let Some(host) = host.and_then(|url| url.host_str().map(str::to_owned)) {
            span.set("server.address", host);
        }
        span.set("standfast.subscription.id", subscription.to_owned());
        if let Some(run) = run {
            span.set("standfast.run.id", run.to_string());
        }
        Some((traces, span))
    }

    /// Something of a run is about to be sent by mail or to a room of a chat.
    pub(super) async fn begin_channel_span(
        &self,
        run: Option<RunId>,
        subscription: &str,
        channel: &Channel,
    ) -> Option<(Arc<Traces>, Span)> {
        let run = run?;
        let (traces, trace) = trace_of(&self.log, run).await?;
        let name = if channel.is_room() { "deliver message" } else { "deliver mail" };
        let mut span = traces.begin(SpanKind::Client, name, Some(trace.start()));
        // The address of a room may be a secret; that of a mail server is none.
        if let ChannelVia::Mail(server) = &channel.via {
            span.set("server.address", server.host.clone());
        }
        span.set("standfast.notified.kind", channel.kind());
        span.set("standfast.notified.channel", channel.name.clone());
        span.set("standfast.subscription.id", subscription.to_owned());
        span.set("standfast.run.id", run.to_string());
        Some((traces, span))
    }
}

/// It was sent by mail or to a room, or not. Why not may have words of others in it, and stays in the log.
pub(super) fn end_channel_span(traces: &Traces, mut span: Span, sent: &Result<(), SendFailure>) {
    if sent.is_err() {
        span.fail("not_sent");
    }
    traces.end(span);
}

/// It was sent, or not.
pub(super) fn end_delivery_span(traces: &Traces, mut span: Span, sent: &Result<Answer, Trouble>) {
    match sent {
        Ok(answer) => {
            span.set("http.response.status_code", answer.status);
            if !(200..300).contains(&answer.status) {
                span.fail(answer.status.to_string());
            }
        }
        Err(Trouble::Blocked(_)) => span.fail("blocked"),
        Err(Trouble::NotSent(_)) => span.fail("not_sent"),
        Err(Trouble::Broken(_)) => span.fail("incomplete"),
    }
    traces.end(span);
}
