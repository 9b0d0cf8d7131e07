//! Answers that something depends on: whether they were completely written.
//!
//! Complete means that the connection took the last piece of the body. Whoever hangs up before, or never gets that far, was
//! told nothing. It is known by the time the piece is handed over and not when the body is let go: another task may have
//! sent it by then (HTTP/2), and who has read the answer may already ask for the next thing. Knows nothing of what the
//! answers say.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Does something once the body of an answer was handed to its connection completely, and not otherwise.
pub fn when_written(response: Response, then: impl FnOnce() + Send + 'static) -> Response {
    response.map(|inner| Body::new(WatchedBody { inner, then: Some(Box::new(then)) }))
}

struct WatchedBody {
    inner: Body,
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        let is_whole = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || self.inner.is_end_stream(),
            Poll::Ready(Some(Err(_))) => {
                self.then = None;
                false
            }
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        if let Some(then) = self.then.take_if(|_| is_whole) {
            then();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::StreamExt;
    use hyper::body::Body as _;

    use super::*;

    fn watched(body: Body) -> (Body, Arc<AtomicBool>) {
        let is_written = Arc::new(AtomicBool::new(false));
        let says = is_written.clone();
        let response = when_written(Response::new(body), move || says.store(true, Ordering::SeqCst));
        (response.into_body(), is_written)
    }

    /// A body that ends with trailers, as those of gRPC do.
    struct Pieces(std::collections::VecDeque<Frame<Bytes>>);

    impl hyper::body::Body for Pieces {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn in_pieces() -> Body {
        let pieces = ["one", "two"].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    /// Only an answer that was taken to its end counts, whether or not its length is known before.
    #[tokio::test]
    async fn an_answer_counts_once_all_of_it_was_taken() {
        for body in [Body::from("one"), in_pieces()] {
            let (body, is_written) = watched(body);
            drop(body);
            assert!(!is_written.load(Ordering::SeqCst), "nobody took anything");
        }
        let (body, is_written) = watched(Body::from("one"));
        assert_eq!(body.size_hint().exact(), Some(3), "its length is known as before");
        axum::body::to_bytes(body, 99).await.unwrap();
        assert!(is_written.load(Ordering::SeqCst));
        let (body, is_written) = watched(in_pieces());
        let mut pieces = body.into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), "one");
        drop(pieces);
        assert!(!is_written.load(Ordering::SeqCst), "half of it was taken");
        let (body, is_written) = watched(in_pieces());
        let mut pieces = body.into_data_stream();
        while pieces.next().await.is_some() {}
        assert!(is_written.load(Ordering::SeqCst), "all of it was taken, and it is still held");
    }

    /// C26: whoever has read the last piece finds that it counts, however long the body is held by whoever sends it.
    #[tokio::test]
    async fn an_answer_counts_from_its_last_piece_on() {
        let frames = [Frame::data(Bytes::from("one")), Frame::trailers(axum::http::HeaderMap::new())];
        let (mut body, is_written) = watched(Body::new(Pieces(frames.into())));
        let mut body = Pin::new(&mut body);
        let mut next = async || std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await;
        assert!(next().await.unwrap().unwrap().is_data());
        assert!(!is_written.load(Ordering::SeqCst), "its trailers are missing");
        assert!(next().await.unwrap().unwrap().is_trailers());
        assert!(is_written.load(Ordering::SeqCst), "its last piece is on its way");
    }

    /// An answer that breaks off was not written.
    #[tokio::test]
    async fn an_answer_that_fails_does_not_count() {
        let pieces = [Ok(Bytes::from("one")), Err(std::io::Error::other("broken"))];
        let (body, is_written) = watched(Body::from_stream(futures_util::stream::iter(pieces)));
        assert!(axum::body::to_bytes(body, 99).await.is_err());
        assert!(!is_written.load(Ordering::SeqCst));
    }
}
