//! The door: which hosts and origins are let in, and who they are.
//!
//! Without configured identities only this machine may call, and every caller is the user `local`. Otherwise every
//! request needs an API key or a token of the identity provider, as configured, except those that ask whether the server
//! is up, and a browser that has signed in, which shows a cookie (`cookies.rs`). The `Host` check stops pages that point their own name at this server; the `Origin` check stops pages that
//! post to it. A credential is always looked up; only those who fail often are throttled (`attempts.rs`), by the address of
//! the client, which proxies that are trusted may name (`forwarded.rs`). How often anybody may ask is `rates.rs`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use standfast_engine::auth::{ApiKey, NotLetIn, Principal, Scope};
use standfast_engine::settings::{Auth, LinkSignIn, Settings};
use standfast_engine::{Activity, EngineError};

use super::app::App;
use super::attempts::{Attempts, Throttle};
use super::problem::{Problem, ProblemDetails};
use super::rates::Rates;
use super::{cookies, forwarded};

/// Paths that may be asked without saying who one is: by whoever watches the server, by servers that log people in, and by
/// browsers whose user is about to say who they are.
const OPEN: &[&str] = &[
    "/healthz",
    "/readyz",
    "/login/client.json",
    SIGN_IN,
    "/sign-in/start",
    "/sign-in/callback",
    "/sign-in/backchannel-logout",
    "/sign-out",
    SIGN_IN_OFFER,
];

/// What the command line asks before somebody signs in with it.
const SIGN_IN_OFFER: &str = "/api/v1/sign-ins/offer";

/// Where the command line shows an ID token, which says who it is.
const SIGN_INS: &str = "/api/v1/sign-ins";

/// How sessions of the command line begin, so that they are told from keys and tokens.
pub(super) const COMMAND_LINE: &str = "sfs_";

/// What a page asks for by itself while it is open: nobody need be there.
const EVENTS: &str = "/events";
const FRAGMENT: HeaderName = HeaderName::from_static("x-standfast-fragment");

/// Where browsers sign in.
const SIGN_IN: &str = "/sign-in";

/// What is measured: a key may be for nothing else.
const METRICS: &str = "/metrics";

/// What agents ask before they run a call: their key may be for nothing else.
const GATES: &str = "/api/v1/gates/";

/// Where agents ask people over MCP, with the same keys, and reach MCP servers behind it.
const MCP: &str = "/mcp";
const MCP_SERVERS: &str = "/mcp/";

/// Approval links, which say by their signature whom they are for.
const LINKS: &str = "/link/";

/// Clicks in chats, which their chat has signed: whether it did is seen where the secrets are.
const CLICKS: [&str; 2] = ["/chat/slack/", "/chat/discord/"];

/// Styles, icons and the script: the same for everybody.
const ASSETS: &str = "/assets/";

/// What agents say about themselves to everyone, below their addresses: how to reach them, and how to say who you are.
const CARD: &str = "/.well-known/agent-card.json";

/// Where a browser says that a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The address of the client: the other end of the connection, or whom a trusted proxy there names.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// The server has a first minute to show.
#[derive(Debug, Clone, Copy)]
pub struct HasTour;

/// People can sign in at an identity provider of this name: for the page that a browser is shown instead of a no.
#[derive(Debug, Clone)]
pub struct SignInOffer(pub String);

/// The door and what it remembers. The page where browsers sign in has it at hand: what is tried there counts as elsewhere.
#[derive(Clone)]
pub struct Door {
    app: App,
    attempts: Arc<Attempts>,
    rates: Arc<Rates>,
}

/// What a caller was let in with, for whoever keeps them in for long.
#[derive(Clone, Default)]
pub struct Pass(Option<Arc<Credential>>);

impl Pass {
    /// Whether nobody has to show anything here, so that nothing can run out.
    pub(super) fn is_for_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether they would still be let in; if so `who` becomes whom they are now. A server that cannot tell says yes: it will
    /// be asked again.
    pub async fn renew(&self, app: &App, who: &mut Principal) -> bool {
        let Some(shown) = &self.0 else { return true };
        match identify(app, &app.engine.settings().access.auth, shown, Activity::Background).await {
            Ok(now) => *who = now,
            Err(NotIdentified::CannotTell(_)) => {}
            Err(NotIdentified::Unknown) => return false,
        }
        true
    }
}

impl Door {
    pub(super) fn new(app: &App) -> Door {
        Door { app: app.clone(), attempts: Arc::default(), rates: Arc::default() }
    }

    /// Whom a key or token stands for that somebody typed, and the token if it was one; a wrong one is counted.
    pub async fn identify_typed(
        &self,
        from: Option<Peer>,
        typed: &str,
    ) -> Result<(Principal, Option<String>), Problem> {
        let Door { app, attempts, .. } = self;
        let auth = &app.engine.settings().access.auth;
        let credential = Credential::of(typed.trim());
        let identified = match &credential {
            // What the command line has is not for browsers.
            Some(Credential::CommandLine(_)) | None => Err(NotIdentified::Unknown),
            Some(credential) => identify(app, auth, credential, Activity::Person).await,
        };
        let token = match &credential {
            Some(Credential::Token(token)) => Some(token.clone()),
            Some(Credential::Key(_) | Credential::Session(_) | Credential::CommandLine(_)) | None => None,
        };
        match identified {
            Ok(who) => Ok((who, token)),
            Err(NotIdentified::CannotTell(problem)) => Err(problem),
            Err(NotIdentified::Unknown) => {
                let prefix = credential.as_ref().and_then(Credential::prefix);
                Err(refuse(app, attempts, (from.map(|peer| peer.0), prefix), || unknown(auth)))
            }
        }
    }

    /// Lets a request in with its principal, or says why not.
    pub(super) async fn let_in(&self, request: &mut Request) -> Result<(), Problem> {
        let Door { app, attempts, rates } = self;
        let settings = app.engine.settings();
        let names = ServerNames { listen: app.engine.fixed().listen, hosts: &settings.access.hosts };
        refuse_foreign(&names, request.method(), request.uri().path(), request.headers())?;
        if let Some(Peer(peer)) = request.extensions().get::<Peer>().copied() {
            let client = forwarded::client(peer, request.headers(), &settings.access.trusted_proxies);
            tracing::Span::current().record("from", tracing::field::display(client));
            request.extensions_mut().insert(Peer(client));
        }
        let (limits, now) = (&settings.access.rates, app.engine.clock().now());
        let from = request.extensions().get::<Peer>().map(|peer| peer.0);
        rates.count_from(limits, request, from, now)?;
        if request.uri().path() == SIGN_IN {
            request.extensions_mut().insert(self.clone());
        }
        if settings.tour.is_some() {
            request.extensions_mut().insert(HasTour);
        }
        let is_open = is_open(request.method(), request.uri().path()) || is_open_link(&settings, request);
        if !is_open && !is_report(app, request) {
            let shown = shown(request.headers(), request.uri().path());
            let is_background = request.uri().path() == EVENTS || request.headers().contains_key(FRAGMENT);
            let activity = if is_background { Activity::Background } else { Activity::Person };
            let (who, pass) = principal(app, attempts, from, (shown, activity)).await?;
            request.extensions_mut().insert(pass);
            rates.count_of(limits, request, &who, now)?;
            // Looking is refused here, where no new route can forget it. Changes are the engine's to refuse.
            let may_look = who.has(Scope::RunsRead) || has_narrower_scope(&who, request.uri().path());
            if is_harmless(request.method()) && !may_look {
                return Err(Problem::missing_scope(Scope::RunsRead));
            }
            request.extensions_mut().insert(who);
        }
        Ok(())
    }
}

/// Whether somebody may look at a path without the scope to look at everything: scrapers see figures, agents their own gates.
fn has_narrower_scope(who: &Principal, path: &str) -> bool {
    if path == METRICS {
        return who.has(Scope::MetricsRead);
    }
    match path.strip_prefix(MCP_SERVERS) {
        Some(gateway) => who.has_for(Scope::GatesOpen, gateway),
        None => (path == MCP || path.starts_with(GATES)) && who.has(Scope::GatesOpen),
    }
}

fn is_open(method: &Method, path: &str) -> bool {
    let is_card = || path == CARD || (path.starts_with("/v1/agents/") && path.ends_with(CARD));
    OPEN.contains(&path)
        || (*method == Method::POST && path == SIGN_INS)
        || (*method == Method::POST && CLICKS.iter().any(|prefix| path.starts_with(prefix)))
        || (is_harmless(method) && (path.starts_with(ASSETS) || is_card()))
}

/// Approval links, unless their holders must have signed in as well. Where there are none, nobody need say who they are to
/// hear it.
fn is_open_link(settings: &Settings, request: &Request) -> bool {
    let needs_sign_in = settings.links.as_ref().is_some_and(|links| links.sign_in == LinkSignIn::Required);
    request.uri().path().starts_with(LINKS) && !needs_sign_in
}

/// Reports of outside jobs, which show by a signature that they may. Whether it is right is seen where the secrets are;
/// whoever shows a key or token as well is asked for it as usual.
fn is_report(app: &App, request: &Request) -> bool {
    let path = request.uri().path();
    let below = path.strip_prefix("/async-tool/").or_else(|| path.strip_prefix("/async-tools/"));
    let headers = request.headers();
    let is_signed = headers.contains_key("x-webhook-signature") || headers.contains_key("webhook-signature");
    let may_be_signed = match below {
        Some("webhook") => true,
        Some("result" | "error" | "progress") => is_signed,
        Some(_) | None => false,
    };
    let is_local = matches!(app.engine.settings().access.auth, Auth::Local);
    request.method() == Method::POST
        && may_be_signed
        && !is_local
        && !headers.contains_key(header::AUTHORIZATION)
}

fn is_harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The one value of a header; none when there is none, and a text that fits nothing when there are several.
fn one(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    Some(values.next().map_or(first.to_str().unwrap_or_default(), |_| ""))
}

/// What callers may know this server by, beside the names of this machine.
struct ServerNames<'a> {
    listen: IpAddr,
    hosts: &'a BTreeSet<String>,
}

fn refuse_foreign(
    names: &ServerNames<'_>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let host = one(headers, header::HOST).unwrap_or_default();
    if !is_ours(names, host) {
        let detail = "this server does not answer to this name: call it localhost, 127.0.0.1, [::1], the address it \
                      listens on, or a name that it was given with --host";
        let status = StatusCode::MISDIRECTED_REQUEST;
        return Err(Problem::new(status, "wrong-host", "Unknown host", detail));
    }
    // https: whoever stands in front of this server may speak it.
    let is_ours =
        |origin: &str| ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
    // A page that tells nobody where it was sends its form with the origin `null`; then only the browser knows where the form
    // is from. Forms of links carry a token of their page as well, because over plain http it does not say.
    let is_link = path.starts_with(LINKS);
    let is_from_elsewhere = match one(headers, header::ORIGIN) {
        Some("null") if is_link => !is_same_site(headers),
        Some(origin) => !is_ours(origin),
        None => is_link && !is_same_site(headers),
    };
    if is_from_elsewhere && !is_harmless(method) {
        let detail = "cross-origin requests cannot change anything here";
        return Err(Problem::new(StatusCode::FORBIDDEN, "wrong-origin", "Cross-origin request", detail));
    }
    Ok(())
}

/// Whether a browser says that a request comes from a page of this server, or says nothing about it.
fn is_same_site(headers: &HeaderMap) -> bool {
    matches!(one(headers, SEC_FETCH_SITE), None | Some("same-origin" | "none"))
}

/// Whether an authority (`host` or `host:port`) names this server.
fn is_ours(names: &ServerNames<'_>, authority: &str) -> bool {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    if !(port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|c| c.is_ascii_digit())))
    {
        return false;
    }
    match name.parse::<IpAddr>() {
        // A page can point its own name here, but it cannot make its name an address: where the server listens on
        // all of them, any address will do.
        Ok(address) => address.is_loopback() || address == names.listen || names.listen.is_unspecified(),
        Err(_) => name.eq_ignore_ascii_case("localhost") || names.hosts.contains(&name.to_ascii_lowercase()),
    }
}

/// What a request shows of who sends it.
enum ShownCredential {
    Nothing,
    /// A header that may be none of ours.
    Header {
        credential: Option<Credential>,
        is_guessable: bool,
    },
    /// The cookie of a browser that has signed in.
    Cookie(String),
}

/// A header counts before a cookie: whoever sends one means it.
fn shown(headers: &HeaderMap, path: &str) -> ShownCredential {
    match one(headers, header::AUTHORIZATION) {
        Some(header) => {
            ShownCredential::Header { credential: credential(header), is_guessable: is_guessable(header) }
        }
        None => cookies::session_for(headers, path)
            .map_or(ShownCredential::Nothing, |cookie| ShownCredential::Cookie(cookie.into())),
    }
}

async fn principal(
    app: &App,
    attempts: &Attempts,
    from: Option<IpAddr>,
    (shown, activity): (ShownCredential, Activity),
) -> Result<(Principal, Pass), Problem> {
    let auth = &app.engine.settings().access.auth;
    if matches!(auth, Auth::Local) {
        return Ok((Principal::local(), Pass::default()));
    }
    let (credential, is_guessable) = match shown {
        // Whoever shows nothing has tried nothing: a browser comes so before its user signs in.
        ShownCredential::Nothing => return Err(unknown(auth)),
        ShownCredential::Header { credential, is_guessable } => (credential, is_guessable),
        // An old session is not a guess.
        ShownCredential::Cookie(cookie) => (Some(Credential::Session(cookie)), false),
    };
    let credential = credential.map(Arc::new);
    let identified = match &credential {
        Some(shown) => identify(app, auth, shown, activity).await,
        None => Err(NotIdentified::Unknown),
    };
    match identified {
        Ok(who) => Ok((who, Pass(credential))),
        Err(NotIdentified::CannotTell(problem)) => Err(problem),
        Err(NotIdentified::Unknown) => {
            let prefix = credential.as_deref().and_then(Credential::prefix);
            Err(refuse(app, attempts, (from.filter(|_| is_guessable), prefix), || unknown(auth)))
        }
    }
}

/// Counts what failed; one too many is answered so.
fn refuse(
    app: &App,
    attempts: &Attempts,
    (from, prefix): (Option<IpAddr>, Option<&str>),
    unknown: impl FnOnce() -> Problem,
) -> Problem {
    match attempts.fail(from, prefix, app.engine.clock().now()) {
        Throttle::No => {
            // The prefix names a key without being one.
            tracing::warn!(prefix, "auth: sign-in refused");
            unknown()
        }
        Throttle::Wait { seconds, is_new } => {
            if is_new {
                tracing::warn!(?from, prefix, seconds, "auth: too many failed attempts; answering 429");
            }
            too_many(seconds)
        }
    }
}

/// What people type, or scripts try: keys, and whatever a browser sends as a password. A token is signed, and wrong ones
/// come from clocks and old sessions.
fn is_guessable(authorization: &str) -> bool {
    let is_token =
        matches!(credential(authorization), Some(Credential::Token(_) | Credential::CommandLine(_)));
    let is_bearer = authorization.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    !(is_token && is_bearer)
}

/// Why nobody can be named.
enum NotIdentified {
    /// The credential opens nothing.
    Unknown,
    /// It cannot be told now.
    CannotTell(Problem),
}

async fn identify(
    app: &App,
    auth: &Auth,
    shown: &Credential,
    activity: Activity,
) -> Result<Principal, NotIdentified> {
    let by_session = |found: Result<Result<Principal, NotLetIn>, EngineError>| match found {
        Ok(found) => found.map_err(not_let_in),
        Err(error) => {
            tracing::error!(%error, "auth: could not look up a session");
            let problem = cannot_tell("your session cannot be verified right now; retry", 1);
            Err(NotIdentified::CannotTell(problem))
        }
    };
    match shown {
        Credential::Key(key) if auth.takes_keys() => match app.engine.identity().identify(key).await {
            Ok(who) => who.ok_or(NotIdentified::Unknown),
            Err(error) => {
                tracing::error!(%error, "auth: could not look up an API key");
                let problem = cannot_tell("the key cannot be verified right now; retry", 1);
                Err(NotIdentified::CannotTell(problem))
            }
        },
        Credential::Token(token) => match auth.issuer() {
            Some(issuer) => {
                app.engine.identity().identify_token(issuer.as_ref(), token).await.map_err(not_let_in)
            }
            None => Err(NotIdentified::Unknown),
        },
        Credential::Key(_) => Err(NotIdentified::Unknown),
        Credential::Session(cookie) => {
            by_session(app.engine.identity().identify_browser(cookie, activity).await)
        }
        Credential::CommandLine(token) => {
            by_session(app.engine.identity().identify_command_line(token).await)
        }
    }
}

fn not_let_in(why: NotLetIn) -> NotIdentified {
    match why {
        NotLetIn::Refused => NotIdentified::Unknown,
        NotLetIn::NoKeys { retry_after } => {
            let detail = "the keys of the identity provider cannot be fetched, so this token cannot be verified; retry";
            // Rounded up: whoever comes too early waits once more.
            let seconds = retry_after.0.saturating_add(999) / 1000;
            NotIdentified::CannotTell(cannot_tell(detail, u32::try_from(seconds).unwrap_or(u32::MAX)))
        }
    }
}

/// The answer to one wrong key too many. A valid key is not concerned: it was looked up before.
fn too_many(seconds: u32) -> Problem {
    let detail = format!(
        "this key is not valid, and too many invalid keys came from your address or with its prefix; send a valid key, or \
         try again in {seconds} seconds"
    );
    let status = StatusCode::TOO_MANY_REQUESTS;
    let problem = Problem::new(status, "too-many-attempts", "Too many failed attempts", detail);
    problem.with(ProblemDetails { retry_after: Some(seconds), ..ProblemDetails::default() })
}

/// What a caller shows.
enum Credential {
    Key(ApiKey),
    /// Whatever does not begin as keys do.
    Token(String),
    /// The cookie of a browser that has signed in.
    Session(String),
    /// What the command line has once somebody signed in with it.
    CommandLine(String),
}

impl Credential {
    /// The part of a key that is not a secret.
    fn prefix(&self) -> Option<&str> {
        match self {
            Credential::Key(key) => Some(key.prefix()),
            Credential::Token(_) | Credential::Session(_) | Credential::CommandLine(_) => None,
        }
    }

    fn of(text: &str) -> Option<Credential> {
        if text.starts_with("sf_") {
            ApiKey::parse(text).map(Credential::Key)
        } else if let Some(session) = text.strip_prefix(COMMAND_LINE) {
            Some(Credential::CommandLine(session.to_owned()))
        } else {
            (!text.is_empty()).then(|| Credential::Token(text.to_owned()))
        }
    }
}

/// The credential of `Bearer …`, or of `Basic` as password, for programs that know nothing else. The user name does not count.
fn credential(authorization: &str) -> Option<Credential> {
    let (scheme, value) = authorization.split_once(' ')?;
    let value = value.trim();
    let text = if scheme.eq_ignore_ascii_case("bearer") {
        value.to_owned()
    } else if scheme.eq_ignore_ascii_case("basic") {
        let pair = String::from_utf8(BASE64_STANDARD.decode(value).ok()?).ok()?;
        pair.split_once(':')?.1.to_owned()
    } else {
        return None;
    };
    Credential::of(&text)
}

fn cannot_tell(detail: &str, retry_after: u32) -> Problem {
    let problem =
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable", detail);
    problem.with(ProblemDetails { retry_after: Some(retry_after), ..ProblemDetails::default() })
}

/// The one answer to a credential that is missing, malformed, unknown, expired or revoked.
fn unknown(auth: &Auth) -> Problem {
    let detail = match auth {
        Auth::Local | Auth::Keys => {
            "this server requires an API key: send it as `Authorization: Bearer sf_…`, or set STANDFAST_KEY for \
             the standfast commands; `standfast keys create` creates one"
        }
        Auth::Tokens(_) => {
            "this server requires a token of your identity provider: send it as `Authorization: Bearer …`, or set \
             STANDFAST_KEY for the standfast commands"
        }
        Auth::KeysAndTokens(_) => {
            "this server requires an API key or a token of your identity provider: send it as \
             `Authorization: Bearer …`, or set STANDFAST_KEY for the standfast commands"
        }
    };
    // No `Basic`: a browser is shown a page where its user signs in, not its own password box.
    let challenges: &[&str] = &["Bearer"];
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Authentication required", detail);
    problem.with(ProblemDetails { challenges, ..ProblemDetails::default() })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use standfast_engine::auth::KEY_BYTES;

    use super::*;

    /// A server without names of its own, on this machine only.
    const LOCAL: ServerNames<'static> =
        ServerNames { listen: IpAddr::V4(Ipv4Addr::LOCALHOST), hosts: &BTreeSet::new() };

    fn answer(
        names: &ServerNames<'_>,
        method: Method,
        host: &'static str,
        origin: Option<&'static str>,
    ) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        refuse_foreign(names, &method, "/", &headers).err().map(|problem| problem.status)
    }

    /// T21.
    #[test]
    fn only_this_machine_and_its_own_pages_are_let_in() {
        for (method, host, origin, status) in [
            (Method::GET, "127.0.0.1:8080", None, None),
            (Method::GET, "localhost", None, None),
            (Method::GET, "LocalHost:80", None, None),
            (Method::GET, "[::1]:8080", None, None),
            (Method::GET, "127.0.0.1.evil.example", None, Some(421)),
            (Method::GET, "evil.example:8080", None, Some(421)),
            (Method::GET, "localhost:8080:evil.example", None, Some(421)),
            (Method::GET, "[::1]evil.example", None, Some(421)),
            (Method::GET, "[::1", None, Some(421)),
            (Method::GET, "10.0.0.1", None, Some(421)),
            (Method::GET, "", None, Some(421)),
            (Method::POST, "localhost:8080", Some("http://localhost:8080"), None),
            (Method::POST, "localhost:8080", Some("http://localhost:3000"), Some(403)),
            (Method::POST, "localhost:8080", Some("https://evil.example"), Some(403)),
            (Method::POST, "localhost:8080", Some("null"), Some(403)),
            (Method::DELETE, "localhost:8080", Some(""), Some(403)),
            (Method::GET, "localhost:8080", Some("https://evil.example"), None),
        ] {
            assert_eq!(answer(&LOCAL, method.clone(), host, origin), status, "{method} {host} {origin:?}");
        }
    }

    #[test]
    fn cards_are_for_everyone_and_nothing_else_of_an_agent_is() {
        for (method, path, is_for_everyone) in [
            (Method::GET, "/healthz", true),
            (Method::GET, "/.well-known/agent-card.json", true),
            (Method::HEAD, "/v1/agents/ops/.well-known/agent-card.json", true),
            (Method::POST, "/v1/agents/ops/.well-known/agent-card.json", false),
            (Method::GET, "/api/v1/.well-known/agent-card.json", false),
            (Method::GET, "/v1/agents/ops/extendedAgentCard", false),
            (Method::GET, "/v1/agents/ops/tasks", false),
        ] {
            assert_eq!(is_open(&method, path), is_for_everyone, "{method} {path}");
        }
    }

    /// T21: the form of a link comes from a page that tells nobody where it was; where the browser says that it comes from
    /// elsewhere, or any other path gets it, it is refused.
    #[test]
    fn t21_the_form_of_a_link_comes_from_its_own_page() {
        for (path, origin, site, is_taken) in [
            ("/link/x", Some("null"), Some("same-origin"), true),
            ("/link/x", Some("null"), Some("none"), true),
            ("/link/x", Some("null"), None, true),
            ("/link/x", Some("null"), Some("cross-site"), false),
            ("/link/x", Some("null"), Some("same-site"), false),
            ("/link/x", None, Some("cross-site"), false),
            ("/link/x", Some("http://localhost:8080"), Some("same-origin"), true),
            ("/link/x", Some("https://evil.example"), None, false),
            ("/link/x", Some("https://evil.example"), Some("same-origin"), false),
            ("/approve/x", Some("null"), Some("same-origin"), false),
            ("/sign-in", Some("null"), None, false),
        ] {
            let mut headers = HeaderMap::from_iter([(header::HOST, "localhost:8080".parse().unwrap())]);
            headers.extend(origin.map(|origin| (header::ORIGIN, origin.parse().unwrap())));
            headers.extend(site.map(|site| (SEC_FETCH_SITE, site.parse().unwrap())));
            let taken = refuse_foreign(&LOCAL, &Method::POST, path, &headers).is_ok();
            assert_eq!(taken, is_taken, "{path} {origin:?} {site:?}");
        }
    }

    /// T21: bound elsewhere, the server answers to its address and to the names it was given.
    #[test]
    fn elsewhere_names_must_be_given() {
        let hosts = BTreeSet::from(["approve.example".to_owned()]);
        let at = |listen: &str| ServerNames { listen: listen.parse().unwrap(), hosts: &hosts };
        for (listen, host, status) in [
            ("10.0.0.1", "10.0.0.1:8080", None),
            ("10.0.0.1", "10.0.0.2:8080", Some(421)),
            ("10.0.0.1", "localhost", None),
            ("10.0.0.1", "Approve.Example:443", None),
            ("10.0.0.1", "evil.example", Some(421)),
            ("10.0.0.1", "approve.example.evil.example", Some(421)),
            ("0.0.0.0", "192.168.1.7:8080", None),
            ("::", "[fd00::7]:8080", None),
            ("0.0.0.0", "evil.example", Some(421)),
        ] {
            assert_eq!(answer(&at(listen), Method::GET, host, None), status, "{listen} {host}");
        }
        for (origin, status) in [
            ("https://approve.example", None),
            ("http://approve.example", None),
            ("https://evil.example", Some(403)),
        ] {
            assert_eq!(
                answer(&at("0.0.0.0"), Method::POST, "approve.example", Some(origin)),
                status,
                "{origin}"
            );
        }
    }

    #[test]
    fn a_header_that_is_there_twice_fits_nothing() {
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(refuse_foreign(&LOCAL, &Method::GET, "/", &headers).is_ok());
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(refuse_foreign(&LOCAL, &Method::GET, "/", &headers).is_err());
        assert!(refuse_foreign(&LOCAL, &Method::GET, "/", &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_key_comes_as_bearer_or_as_the_password_of_a_browser() {
        let text = ApiKey::new([9; KEY_BYTES]).reveal();
        let basic = |pair: String| format!("Basic {}", BASE64_STANDARD.encode(pair));
        for (header, is_key) in [
            (format!("Bearer {text}"), true),
            (format!("bearer  {text} "), true),
            (basic(format!("anyone:{text}")), true),
            (basic(format!(":{text}")), true),
            (basic(text.clone()), false),
            (basic(format!("{text}:")), false),
            (format!("Basic {text}"), false),
            (format!("Token {text}"), false),
            (text.clone(), false),
            ("Bearer ".into(), false),
            ("Basic \u{7f}".into(), false),
        ] {
            let found = credential(&header);
            assert_eq!(matches!(found, Some(Credential::Key(_))), is_key, "{header}");
        }
    }
}
