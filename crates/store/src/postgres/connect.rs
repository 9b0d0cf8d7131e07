//! Connections: how they are made, what every session sets, and the statements that each has prepared.
//!
//! A connection that fails is dropped and another one made; no request waits for one that is gone. The password stays
//! inside the driver's configuration and is in no message.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Notification, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresOptions;
use super::failure::{Failure, describe};
use super::schema::OpenError;
use crate::observer::{Effort, Observer};

/// What every session sets. Plans made while the tables were empty would read whole tables for ever; a statement that
/// hangs must not hold locks; compiling plans costs more than these statements take.
pub(super) const SESSION: &str = "SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SET statement_timeout = '30s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '30s'; \
     SET default_transaction_isolation = 'read committed'; SET client_min_messages = error; \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long it may take until a session is ready: whoever takes a connection and says nothing is given up.
const SESSION_WAIT: Duration = Duration::from_secs(10);

/// How long an answer may take; longer than the database lets a statement take. A database that stands still, or a
/// network that swallows everything, says nothing at all.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Makes connections.
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// Where the database is, for messages: never the password.
    place: String,
    /// Who counts trips and statements.
    counts: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(options: &PostgresOptions) -> Result<Connector, OpenError> {
        let (mut config, wants_tls) = parsed(&options.url)?;
        if !wants_tls {
            config.ssl_mode(SslMode::Disable);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WAIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("standfast");
        }
        config.keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(Duration::from_secs(30));
        let place = place(&config);
        let tls = if wants_tls {
            Some(tls().map_err(|why| OpenError::Unusable { place: place.clone(), why })?)
        } else {
            None
        };
        let counts = options.observer.as_ref().filter(|observer| observer.counts_efforts()).cloned();
        Ok(Connector { config, tls, place, counts })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A connection on which every session setting is made. What the database tells by itself goes to `heard`.
    pub(super) async fn connect(
        &self,
        heard: Option<tokio::sync::mpsc::UnboundedSender<Notification>>,
    ) -> Result<Connection, Failure> {
        within(SESSION_WAIT, self.session(heard)).await
    }

    async fn session(
        &self,
        heard: Option<tokio::sync::mpsc::UnboundedSender<Notification>>,
    ) -> Result<Connection, Failure> {
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(lost)?;
                tokio::spawn(drive(connection, heard));
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(lost)?;
                tokio::spawn(drive(connection, heard));
                client
            }
        };
        client.batch_execute(SESSION).await.map_err(lost)?;
        Ok(Connection { client, statements: Mutex::default(), counts: self.counts.clone() })
    }
}

/// What somebody waits for, for as long as an answer may take. After that the connection is of no more use.
pub(super) async fn answered<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    within(ANSWER_WAIT, work).await
}

async fn within<T>(span: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let silence = |_| Failure::Lost(format!("it did not answer within {} s", span.as_secs()));
    tokio::time::timeout(span, work).await.map_err(silence)?
}

/// Whatever fails while connecting, nothing was written.
fn lost(error: tokio_postgres::Error) -> Failure {
    Failure::Lost(describe(&error))
}

/// Moves bytes until the connection ends, and passes on what the database says by itself.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    heard: Option<tokio::sync::mpsc::UnboundedSender<Notification>>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    // Whoever waits for an answer notices the end of the connection by itself.
    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(notification), Some(heard)) = (message, &heard) {
            // Nobody listens any more: the store is being closed.
            let _ = heard.send(notification);
        }
    }
}

/// The address as the driver knows it, and whether it asks for TLS.
pub(super) fn parsed(url: &str) -> Result<(Config, bool), OpenError> {
    let (url, wants_tls) = tls_of(url);
    let config = url.parse().map_err(|error| OpenError::BadUrl { why: describe(&error) })?;
    Ok((config, wants_tls))
}

/// The address without what the driver does not know, and whether it asks for TLS. `require` verifies the certificate
/// too: encryption that anybody can open in the middle is none. Without `sslmode` the connection is not encrypted.
fn tls_of(url: &str) -> (String, bool) {
    let mut url = url.to_owned();
    for verified in ["sslmode=verify-full", "sslmode=verify-ca"] {
        url = url.replace(verified, "sslmode=require");
    }
    let wants_tls = url.contains("sslmode=require");
    (url, wants_tls)
}

/// The certificate authorities of this machine; `SSL_CERT_FILE` names others.
fn tls() -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("no certificate authorities were found; set SSL_CERT_FILE to a file with them".into());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// `host:port/database`, as an operator would look for it.
pub(super) fn place(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("{host}:{port}/{}", config.get_dbname().or(config.get_user()).unwrap_or_default())
}

/// One session with the database.
pub(super) struct Connection {
    pub(super) client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    counts: Option<Arc<dyn Observer>>,
}

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Connection {
    /// The prepared form of a statement.
    pub(super) async fn statement(&self, sql: &'static str) -> Result<Statement, tokio_postgres::Error> {
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, statement.clone());
        Ok(statement)
    }

    /// So many statements are about to be sent in one trip.
    pub(super) fn count_trip(&self, effort: Effort, statements: usize) {
        if let Some(observer) = &self.counts {
            observer.spent(Effort::Trip);
            (0..statements).for_each(|_| observer.spent(effort));
        }
    }

    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.statement(sql).await?;
        self.count_trip(Effort::WriteStatement, 1);
        self.client.query(&statement, params).await
    }
}

/// A statement on its way.
pub(super) type PendingRows<'a> = Pin<Box<dyn Future<Output = Rows> + Send + 'a>>;

/// The result of a statement.
pub(super) type Rows = Result<Vec<Row>, tokio_postgres::Error>;

/// Sends statements one after the other without waiting between them: one round trip for all. Their order is that of
/// the list, because each is sent when it is polled for the first time. One that cannot even be sent keeps those behind
/// it from being sent, so that a COMMIT at the end never commits a part; then the last answer is its error.
pub(super) async fn pipeline(sent: Vec<PendingRows<'_>>) -> Vec<Rows> {
    let mut under_way: Vec<(PendingRows<'_>, Option<Rows>)> = Vec::new();
    let mut to_send = sent.into_iter();
    std::future::poll_fn(move |context: &mut Context<'_>| {
        while let Some(mut next) = to_send.next() {
            let answer = match next.as_mut().poll(context) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            };
            if matches!(answer, Some(Err(_))) {
                to_send.by_ref().for_each(drop);
            }
            under_way.push((next, answer));
        }
        let mut is_done = true;
        for (one, answer) in &mut under_way {
            if answer.is_none() {
                match one.as_mut().poll(context) {
                    Poll::Ready(result) => *answer = Some(result),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done {
            Poll::Ready(under_way.iter_mut().filter_map(|(_, answer)| answer.take()).collect())
        } else {
            Poll::Pending
        }
    })
    .await
}
