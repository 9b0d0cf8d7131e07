//! Whether anything is asked on a connection of HTTP/2: many requests share it, and between them it costs a place.
//!
//! A request is under way until the last byte of its answer is written, or nobody wants it any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;

/// How many requests are under way.
#[derive(Clone)]
pub(super) struct Busy(Arc<watch::Sender<usize>>);

/// One of them.
pub(super) struct UnderWay(Busy);

impl Busy {
    pub(super) fn new() -> Busy {
        Busy(Arc::new(watch::channel(0).0))
    }

    /// A request begins.
    pub(super) fn begin(&self) -> UnderWay {
        self.0.send_modify(|count| *count += 1);
        UnderWay(self.clone())
    }

    /// Comes back when nothing was asked for so long.
    pub(super) async fn idle_for(&self, span: Duration) {
        let mut counts = self.0.subscribe();
        loop {
            // The sender is this very value: it does not go away.
            let _ = counts.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(span, counts.wait_for(|count| *count > 0)).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// The body of an answer; its request is under way as long as it is there.
pub(super) struct AnsweringBody {
    pub(super) body: Body,
    pub(super) _under_way: UnderWay,
}

impl HttpBody for AnsweringBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
