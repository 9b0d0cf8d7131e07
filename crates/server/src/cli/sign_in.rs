//! Signing in at the identity provider of a server, for `standfast login`: with a browser of this machine (RFC 8252: a
//! redirect to this machine, PKCE), or with any other device (RFC 8628).
//!
//! The provider is asked by this program itself; the server gets the ID token and gives a session for it, which `profile.rs`
//! keeps. Nothing of the provider stays on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use standfast_engine::{bound_nonce, clock};
use standfast_surfaces::jwt::keys_address;
use ureq::Agent;

use super::client::{self, Failure, Patience, ServerArgs, segment};
use super::plain::plain;
use super::trust;

/// How long a request of the browser may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a line of it may be.
const LINE_MAX: u64 = 16 * 1024;
/// How often a device asks, unless the provider says otherwise.
const USUAL_PAUSE: u64 = 5;
/// How often at most, so that it ends: an hour.
const ASKS_MAX: u32 = 720;
/// Requests of browsers that are no answer of the provider, such as those for an icon.
const STRAYS_MAX: usize = 100;

/// By which way somebody signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignInMethod {
    Browser,
    Device,
}

/// How long ago they may have signed in at the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignInAge {
    Any,
    /// They sign in anew.
    Fresh,
}

impl SignInAge {
    /// What the provider is asked for beside the usual. It says when its user signed in where it is asked how long ago.
    fn asks(self) -> &'static [(&'static str, &'static str)] {
        match self {
            SignInAge::Any => &[],
            SignInAge::Fresh => &[("max_age", "0"), ("prompt", "login")],
        }
    }
}

/// What a server says about signing in there.
#[derive(Deserialize)]
pub(super) struct Offer {
    issuer: String,
    client_id: String,
    scopes: Vec<String>,
    nonce: String,
    server: String,
}

/// What is used of what the provider publishes.
#[derive(Deserialize)]
struct Provider {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: String,
    device_authorization_endpoint: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct DeviceCode {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

#[derive(Deserialize)]
struct NewSession {
    token: String,
    user: String,
}

/// What a server offers; none when nobody signs in there.
pub(super) fn offer(url: &str, authority: Option<&Path>) -> Result<Option<Offer>, String> {
    match server(url, authority)?.get("/sign-ins/offer") {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        Err(Failure::Refused { .. }) => Ok(None),
        Err(Failure::CouldNotAsk(why)) => Err(why),
    }
}

/// Signs somebody in. What the profile keeps, and who it was.
pub(super) fn sign_in(
    url: &str,
    authority: Option<&Path>,
    offer: &Offer,
    (way, age): (SignInMethod, SignInAge),
) -> Result<(String, String), String> {
    // Another server's offer: whoever hands it on would get a token that counts there.
    if offer.server != url {
        return Err(format!(
            "this server says that it is {}; sign in there, with `standfast login {}`",
            plain(&offer.server),
            plain(&offer.server)
        ));
    }
    let client = ProviderClient::new(offer, authority)?;
    let tokens = match way {
        SignInMethod::Browser => client.by_browser(offer, age)?,
        SignInMethod::Device => client.by_device(offer, age)?,
    };
    let id_token = tokens.id_token.ok_or("the identity provider sent no ID token")?;
    let label = format!("standfast {} on {}", env!("CARGO_PKG_VERSION"), host());
    let body = json!({
        "id_token": id_token, "nonce": offer.nonce, "refresh_token": tokens.refresh_token, "label": label,
    });
    let answer = server(url, authority)?.post("/sign-ins", &body.to_string(), Patience::Usual);
    let text = answer.map_err(|failure| match failure {
        Failure::Refused { said, .. } | Failure::CouldNotAsk(said) => said,
    })?;
    let NewSession { token, user } = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok((token, user))
}

fn server(url: &str, authority: Option<&Path>) -> Result<client::Server, String> {
    let asking = ServerArgs::for_server(url.to_owned(), None, authority.map(Path::to_path_buf));
    client::Server::without_key(&asking).map_err(|failure| match failure {
        Failure::Refused { said, .. } | Failure::CouldNotAsk(said) => said,
    })
}

/// The provider, and how it is asked.
struct ProviderClient {
    agent: Agent,
    provider: Provider,
}

impl ProviderClient {
    fn new(offer: &Offer, authority: Option<&Path>) -> Result<ProviderClient, String> {
        let issuer = offer.issuer.trim_end_matches('/');
        keys_address(issuer).map_err(|bad| format!("the identity provider {} {bad}", plain(issuer)))?;
        let tls = if issuer.starts_with("https://") { Some(trust::config(authority)?) } else { None };
        let agent = client::agent(Patience::Usual, tls.as_ref());
        let url = format!("{issuer}/.well-known/openid-configuration");
        let text = read(agent.get(&url).call(), issuer)?
            .map_err(|(status, _)| format!("{url} answered {status}"))?;
        let provider: Provider = serde_json::from_str(&text)
            .map_err(|error| format!("{url} is not a discovery document: {error}"))?;
        if provider.issuer != offer.issuer {
            return Err(format!("{url} is of another issuer"));
        }
        let is_here = issuer.starts_with("http://");
        let endpoints = [&provider.authorization_endpoint, &provider.device_authorization_endpoint];
        for address in endpoints.into_iter().flatten().chain([&provider.token_endpoint]) {
            let read = keys_address(address).map_err(|bad| format!("{} {bad}", plain(address)))?;
            if read.scheme() == "http" && !is_here {
                return Err(format!("{} must begin with https://", plain(address)));
            }
        }
        Ok(ProviderClient { agent, provider })
    }

    fn by_browser(&self, offer: &Offer, age: SignInAge) -> Result<Tokens, String> {
        let endpoint = self.provider.authorization_endpoint.as_ref();
        let endpoint = endpoint.ok_or("the identity provider has no authorization_endpoint")?;
        let failed =
            |error: std::io::Error| format!("cannot listen on this machine for the browser: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let redirect_uri = format!("http://127.0.0.1:{port}/callback");
        let (state, verifier) = (random_text(), random_text());
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let (scope, nonce) = (offer.scopes.join(" "), bound_nonce(&offer.nonce, &offer.server));
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", offer.client_id.as_str()),
            ("redirect_uri", redirect_uri.as_str()),
            ("scope", scope.as_str()),
            ("state", state.as_str()),
            ("nonce", nonce.as_str()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ];
        fields.extend(age.asks().iter().copied());
        let query = form(&fields);
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        let address = format!("{endpoint}{separator}{query}");
        eprintln!("Open this address in a browser on this machine to sign in:\n\n{}\n", plain(&address));
        open_browser(&address);
        let code = self.await_code(&listener, &state)?;
        self.redeem(&[
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &redirect_uri),
            ("code_verifier", &verifier),
            ("client_id", &offer.client_id),
        ])?
        .map_err(|error| format!("the identity provider refused the code: {}", plain(&error)))
    }

    /// Waits until the browser comes back.
    fn await_code(&self, listener: &TcpListener, state: &str) -> Result<String, String> {
        for stream in listener.incoming().take(STRAYS_MAX) {
            let Some((stream, query)) = stream.ok().and_then(asked) else { continue };
            let field =
                |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            // Any page can send a browser here; only the provider knows the state.
            if field("state") != Some(state) {
                respond(stream, "This is not the answer that is waited for.");
                continue;
            }
            if field("iss").is_some_and(|issuer| issuer != self.provider.issuer) {
                respond(stream, "Signing in failed. You can close this window.");
                return Err("the browser came back from another identity provider".into());
            }
            return match field("code") {
                Some(code) => {
                    respond(stream, "You are signed in. You can close this window.");
                    Ok(code.to_owned())
                }
                None => {
                    respond(stream, "Signing in failed. You can close this window.");
                    Err(format!(
                        "the identity provider answered {}",
                        plain(field("error").unwrap_or("nothing"))
                    ))
                }
            };
        }
        Err("nobody came back from the identity provider".into())
    }

    fn by_device(&self, offer: &Offer, age: SignInAge) -> Result<Tokens, String> {
        let endpoint = self.provider.device_authorization_endpoint.as_ref();
        let endpoint =
            endpoint.ok_or("the identity provider has no sign-in for devices; leave out --device")?;
        let (scope, nonce) = (offer.scopes.join(" "), bound_nonce(&offer.nonce, &offer.server));
        let mut fields = vec![
            ("client_id", offer.client_id.as_str()),
            ("scope", scope.as_str()),
            ("nonce", nonce.as_str()),
        ];
        fields.extend(age.asks().iter().copied());
        let body = form(&fields);
        let refused = |(status, text): (u16, String)| {
            format!("the identity provider answered {status}: {}", plain(&error_of(&text)))
        };
        let text = self.post(endpoint, &body)?.map_err(refused)?;
        let code: DeviceCode = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let address = code.verification_uri_complete.as_ref().unwrap_or(&code.verification_uri);
        eprintln!("Open {} on any device and enter the code {}", plain(address), plain(&code.user_code));
        let mut pause = code.interval.unwrap_or(USUAL_PAUSE).clamp(1, 60);
        for _ in 0..ASKS_MAX {
            std::thread::sleep(Duration::from_secs(pause));
            let answer = self.redeem(&[
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", &code.device_code),
                ("client_id", &offer.client_id),
            ])?;
            match answer {
                Ok(tokens) => return Ok(tokens),
                Err(error) if error == "authorization_pending" => {}
                Err(error) if error == "slow_down" => pause = (pause + 5).min(60),
                Err(error) => return Err(format!("the identity provider answered {}", plain(&error))),
            }
        }
        Err("the code was not used in time".into())
    }

    /// Asks for tokens; the provider's error code when it has none.
    fn redeem(&self, fields: &[(&str, &str)]) -> Result<Result<Tokens, String>, String> {
        match self.post(&self.provider.token_endpoint, &form(fields))? {
            Ok(text) => serde_json::from_str(&text).map(Ok).map_err(|error| error.to_string()),
            Err((_, text)) => Ok(Err(error_of(&text))),
        }
    }

    fn post(&self, url: &str, body: &str) -> Result<Result<String, (u16, String)>, String> {
        let request = self.agent.post(url).header("content-type", "application/x-www-form-urlencoded");
        read(request.header("accept", "application/json").send(body), &self.provider.issuer)
    }
}

/// What somebody said: with a status of success, or without one.
fn read(
    asked: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    whom: &str,
) -> Result<Result<String, (u16, String)>, String> {
    let lost =
        |error: ureq::Error| format!("no response from {}: {}", plain(whom), plain(&error.to_string()));
    let mut response = asked.map_err(lost)?;
    let status = response.status();
    let text = response.body_mut().with_config().limit(256 * 1024).read_to_string().map_err(lost)?;
    Ok(if status.is_success() { Ok(text) } else { Err((status.as_u16(), text)) })
}

fn error_of(text: &str) -> String {
    serde_json::from_str::<Refusal>(text).map_or_else(|_| "an error".to_owned(), |refusal| refusal.error)
}

/// The fields of a request to the callback; none for anything else, which is answered.
fn asked(stream: TcpStream) -> Option<(TcpStream, Vec<(String, String)>)> {
    stream.set_read_timeout(Some(REQUEST)).ok()?;
    let mut line = String::new();
    BufReader::new(std::io::Read::take(&stream, LINE_MAX)).read_line(&mut line).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    match target.strip_prefix("/callback?") {
        Some(query) => {
            let url = reqwest::Url::parse(&format!("http://127.0.0.1/?{query}")).ok()?;
            let fields =
                url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
            Some((stream, fields))
        }
        None => {
            respond(stream, "There is nothing here.");
            None
        }
    }
}

fn respond(mut stream: TcpStream, text: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>Standfast</title><p>{text}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n\
                content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\nconnection: close";
    // A browser that has gone misses a sentence.
    let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
}

/// Tries to open a browser; where there is none, the address has been printed.
fn open_browser(address: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if std::env::var_os("DISPLAY").is_some() || std::env::var_os("WAYLAND_DISPLAY").is_some() {
        let _ = command.spawn();
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or(std::env::var("HOSTNAME").ok());
    name.map_or_else(|| "this machine".to_owned(), |name| name.trim().to_owned())
}

fn random_text() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(clock::random_bytes::<32>())
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", segment(value)));
    pairs.collect::<Vec<_>>().join("&")
}
