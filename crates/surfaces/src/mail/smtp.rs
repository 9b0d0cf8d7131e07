//! Handing one mail to a mail server: one connection, protected as configured, and what the server said.
//!
//! Whatever it refused is retried by the deliverer, a temporary refusal (greylisting) like any other.

use std::time::Duration;

use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::{self, AsyncSmtpTransport};
use lettre::{AsyncTransport, Message, Tokio1Executor};
use standfast_core::time::Millis;
use standfast_engine::settings::{MailServer, MailTls};

/// Characters of what a mail server says that are kept.
const SAID_MAX: usize = 300;

pub(super) async fn send(channel: &MailServer, timeout: Millis, message: Message) -> Result<(), String> {
    within(timeout, transport(channel, timeout)?.send(message)).await.map(drop)
}

/// A connection without a mail.
pub(super) async fn reach(channel: &MailServer, timeout: Millis) -> Result<(), String> {
    let answers = within(timeout, transport(channel, timeout)?.test_connection()).await?;
    if answers { Ok(()) } else { Err("the mail server ended the connection".to_owned()) }
}

/// The whole exchange: the client's own limit is for connecting alone, and a server that goes silent later would be waited for without end.
async fn within<T>(
    timeout: Millis,
    exchange: impl Future<Output = Result<T, smtp::Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(span(timeout), exchange).await {
        Ok(result) => result.map_err(|error| said(&error)),
        Err(_) => Err(format!("the mail server did not answer within {timeout}")),
    }
}

fn span(timeout: Millis) -> Duration {
    Duration::from_millis(u64::try_from(timeout.0).unwrap_or(u64::MAX))
}

fn transport(channel: &MailServer, timeout: Millis) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let tls = match channel.tls {
        MailTls::Off => Tls::None,
        MailTls::Implicit => Tls::Wrapper(parameters(channel)?),
        MailTls::StartTls => Tls::Required(parameters(channel)?),
    };
    let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&channel.host)
        .port(channel.port)
        .tls(tls)
        .timeout(Some(span(timeout)));
    if let Some(login) = &channel.login {
        let credentials = Credentials::new(login.user.clone(), login.password.clone());
        transport = transport.credentials(credentials);
    }
    Ok(transport.build::<Tokio1Executor>())
}

fn parameters(channel: &MailServer) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(channel.host.clone());
    if let Some(pem) = &channel.authorities {
        let unreadable = |_| "the certificates of the channel cannot be read".to_owned();
        builder = builder.add_root_certificate(Certificate::from_pem(pem).map_err(unreadable)?);
    }
    builder.build_rustls().map_err(|error| format!("TLS to the mail server is not possible: {error}"))
}

/// What went wrong, in a line.
fn said(error: &smtp::Error) -> String {
    let mut text = match error.status() {
        Some(code) => format!("the mail server answered {code}"),
        None => "the mail server could not be reached".to_owned(),
    };
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_MAX).collect()
}
