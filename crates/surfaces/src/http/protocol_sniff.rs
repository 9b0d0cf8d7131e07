//! Which protocol a connection speaks, by its first bytes: HTTP/2 without negotiation begins with a text of its own.
//!
//! Read here rather than by the libraries, because this is where a client may dawdle before any limit of theirs begins.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What a client of HTTP/2 says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionProtocol {
    Http1,
    Http2,
}

/// A connection whose first bytes were read already; whoever reads it gets them first.
pub(super) struct Rewound<S> {
    first: Vec<u8>,
    stream: S,
}

/// Reads as much as shows the protocol. None when the client leaves before.
pub(super) async fn read<S: AsyncRead + Unpin>(mut stream: S) -> Option<(ConnectionProtocol, Rewound<S>)> {
    let mut first = Vec::with_capacity(PREFACE.len());
    loop {
        let mut bytes = [0; PREFACE.len()];
        let room = PREFACE.len() - first.len();
        let read = stream.read(bytes.get_mut(..room)?).await.ok().filter(|read| *read > 0)?;
        first.extend_from_slice(bytes.get(..read)?);
        let is_preface = PREFACE.starts_with(&first);
        if is_preface && first.len() < PREFACE.len() {
            continue;
        }
        let speaks = if is_preface { ConnectionProtocol::Http2 } else { ConnectionProtocol::Http1 };
        return Some((speaks, Rewound { first, stream }));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let some = self.first.len().min(buf.remaining());
        let given: Vec<u8> = self.first.drain(..some).collect();
        buf.put_slice(&given);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
