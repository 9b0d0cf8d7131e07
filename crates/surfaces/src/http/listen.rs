//! One listener for whatever is served, and how it stops.
//!
//! Connections are capped, and whoever dawdles with the headers of a request loses theirs. Stopping: no new connections,
//! streams end, requests in progress finish. Which surfaces there are it does not know: that is `app.rs`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use standfast_engine::clock::duration;
use standfast_engine::settings::Connections;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::guard::Peer;
use super::in_flight::{AnsweringBody, Busy};
use super::protocol_sniff::{self, ConnectionProtocol};

/// How long to wait before the next try when no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Requests at once on one connection of HTTP/2.
const STREAMS: u32 = 100;

/// How many times as long as for the head of a request a connection of HTTP/2 may be there without one.
const IDLE_FACTOR: u32 = 10;

/// hyper has no smaller buffer.
const LEAST_HEADER_BYTES: usize = 8192;

/// Serves until `stopping` becomes true and what was in progress is done. A client that takes too long for the head of
/// a request is cut off; bodies have their own limit, see `extract.rs`. HTTP/1.1 and HTTP/2 share the port: gRPC needs the
/// latter.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Connections,
    stopping: watch::Receiver<bool>,
) {
    serve_with(listener, router, limits, stopping, None).await;
}

/// The same, over TLS where there is an acceptor. A handshake has as long as the head of a request.
pub async fn serve_with(
    listener: TcpListener,
    router: Router,
    limits: &Connections,
    mut stopping: watch::Receiver<bool>,
    tls: Option<TlsAcceptor>,
) {
    let serving = ServeOptions::new(limits);
    let room = Arc::new(Semaphore::new(limits.at_once.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            next = next_connection(&listener, &room) => next,
            // An error means that whoever could stop us is gone: stop as well.
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        while connections.try_join_next().is_some() {}
        let peer = stream.peer_addr().ok().map(|address| Peer(address.ip()));
        let busy = Busy::new();
        let router = TowerToHyperService::new(router.clone());
        let service = FromPeer { peer, router, busy };
        let (serving, watcher, stopping) = (serving.clone(), graceful.watcher(), stopping.clone());
        let tls = tls.clone();
        connections.spawn(async move {
            match tls {
                None => serving.connection(stream, service, watcher, stopping).await,
                Some(tls) => {
                    if let Some(stream) = serving.shake_hands(&tls, stream).await {
                        serving.connection(stream, service, watcher, stopping).await;
                    }
                }
            }
            drop(place);
        });
    }
    // Nobody else is let in while the rest is done.
    drop(listener);
    graceful.shutdown().await;
}

/// How connections are served.
#[derive(Clone)]
struct ServeOptions {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    header_wait: Duration,
}

impl ServeOptions {
    fn new(limits: &Connections) -> ServeOptions {
        let header_wait = duration(limits.header_wait);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(header_wait)
            .max_headers(limits.headers)
            .max_buf_size(limits.header_bytes.max(LEAST_HEADER_BYTES));
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS)
            .keep_alive_interval(Some(header_wait))
            .keep_alive_timeout(header_wait);
        ServeOptions { http1, http2, header_wait }
    }

    /// The connection over TLS. None when the client does not manage to make one.
    async fn shake_hands(&self, tls: &TlsAcceptor, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let error = match tokio::time::timeout(self.header_wait, tls.accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the client took too long".to_owned(),
        };
        tracing::debug!(error, "http: TLS handshake failed");
        None
    }

    /// Serves one connection until it ends.
    async fn connection(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        service: FromPeer,
        watcher: Watcher,
        mut stopping: watch::Receiver<bool>,
    ) {
        let first = tokio::select! {
            first = tokio::time::timeout(self.header_wait, protocol_sniff::read(stream)) => first,
            // Nothing was asked yet.
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let Ok(Some((speaks, stream))) = first else { return };
        let stream = TokioIo::new(stream);
        // What went wrong with it is the client's: it left, or it sent an invalid request.
        let ended = match speaks {
            ConnectionProtocol::Http1 => watcher.watch(self.http1.serve_connection(stream, service)).await,
            ConnectionProtocol::Http2 => {
                let busy = service.busy.clone();
                let connection = watcher.watch(self.http2.serve_connection(stream, service));
                tokio::select! {
                    ended = connection => ended,
                    () = busy.idle_for(self.header_wait * IDLE_FACTOR) => Ok(()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "http: connection ended early");
        }
    }
}

/// The surfaces, told whom they talk to.
struct FromPeer {
    /// None when the client has left again.
    peer: Option<Peer>,
    router: TowerToHyperService<Router>,
    busy: Busy,
}

impl Service<Request<Incoming>> for FromPeer {
    type Response = Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = BoxFuture<'static, Result<Response, Self::Error>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        // HTTP/2 says in the request's address what HTTP/1 says in this header.
        let authority = request.uri().authority().filter(|_| request.version() == Version::HTTP_2);
        let host = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host);
        }
        let under_way = (request.version() == Version::HTTP_2).then(|| self.busy.begin());
        let answer = self.router.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(match under_way {
                Some(_under_way) => answer.map(|body| Body::new(AnsweringBody { body, _under_way })),
                None => answer,
            })
        })
    }
}

/// The next client, once there is room for one. Whoever comes before that waits in the system's queue.
async fn next_connection(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed, so there is always a place in the end.
    let place = room.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Events are small and should not wait for each other.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "http: could not set TCP_NODELAY");
                }
                return (stream, place);
            }
            // The client has left again.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
                ) => {}
            // Most likely there are no more file descriptors; some become free when others end.
            Err(error) => {
                tracing::error!(%error, "http: could not accept a connection; retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
