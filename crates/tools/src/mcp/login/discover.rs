//! Who logs people in for an MCP server: protected-resource metadata (RFC 9728), then the metadata of the authorization
//! server (RFC 8414, or OpenID Connect's).
//!
//! Every address here was named by somebody else. It is called only where tools may call (T11), over https unless the
//! configuration names the host, and what it says must be about the server that was asked for.

use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use standfast_engine::outbound::http::{self, HttpLimits, Request};
use standfast_engine::tool::login::NoLogin;

use super::Desk;

/// An authorization server, as far as a login needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    /// Whether its answers name it.
    pub(super) names_issuer: bool,
    /// Whether it reads documents about clients.
    pub(super) reads_documents: bool,
    /// Whether it takes the secret of a client in a header, as it does where it says nothing else.
    pub(super) takes_header: bool,
    /// What is asked for.
    pub(super) scopes: Vec<String>,
    /// What a token is for.
    pub(super) resource: String,
}

#[derive(Deserialize)]
struct Resource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct Authorization {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    registration_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// Finds out, going by what the MCP server said when it asked for a login.
pub(super) async fn find(desk: &Desk, challenge: &str) -> Result<AuthorizationServer, NoLogin> {
    let url = Url::parse(&desk.options.url).map_err(|error| NoLogin(error.to_string()))?;
    let resource = resource(desk, &url, challenge).await?;
    let (issuer, named, supported) = match resource {
        Some(Resource { resource, authorization_servers, scopes_supported }) => {
            let issuer = authorization_servers.into_iter().next();
            let issuer = issuer.ok_or_else(|| NoLogin("it names no authorization server".into()))?;
            (issuer, resource, scopes_supported)
        }
        // Servers before the metadata of resources were their own authorization servers.
        None => (url.origin().ascii_serialization(), desk.options.url.clone(), Vec::new()),
    };
    let server = authorization(desk, &issuer).await?;
    if !server.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return Err(NoLogin(format!("{issuer} does not say that it supports PKCE with S256")));
    }
    let asked = parameter(challenge, "scope").map(|scope| scope.split(' ').map(str::to_owned).collect());
    let scopes: Vec<String> = desk.options.scopes.clone().or(asked).unwrap_or(supported);
    Ok(AuthorizationServer {
        issuer: server.issuer,
        authorization_endpoint: checked(desk, server.authorization_endpoint)?,
        token_endpoint: checked(desk, server.token_endpoint)?,
        registration_endpoint: server.registration_endpoint,
        names_issuer: server.authorization_response_iss_parameter_supported,
        reads_documents: server.client_id_metadata_document_supported,
        takes_header: takes_header(&server.token_endpoint_auth_methods_supported),
        scopes,
        resource: named,
    })
}

/// What the resource says of itself; none where it says nothing.
async fn resource(desk: &Desk, url: &Url, challenge: &str) -> Result<Option<Resource>, NoLogin> {
    let candidates = match parameter(challenge, "resource_metadata") {
        Some(named) => vec![named],
        None => well_known(url, &["oauth-protected-resource"], WellKnownPath::Before),
    };
    let Some((_, found)) = first::<Resource>(desk, &candidates).await? else { return Ok(None) };
    let about = Url::parse(&found.resource).ok();
    // Metadata about another resource would lead to tokens for somebody else.
    let is_it = about.is_some_and(|about| {
        let (path, ours) = (about.path().trim_end_matches('/'), url.path().trim_end_matches('/'));
        let rest = ours.strip_prefix(path);
        about.origin() == url.origin() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if is_it {
        Ok(Some(found))
    } else {
        Err(NoLogin(format!("its metadata are about {:?}, and not about it", found.resource)))
    }
}

async fn authorization(desk: &Desk, issuer: &str) -> Result<Authorization, NoLogin> {
    let url = Url::parse(issuer).map_err(|error| NoLogin(format!("{issuer:?} is not a URL: {error}")))?;
    let mut candidates =
        well_known(&url, &["oauth-authorization-server", "openid-configuration"], WellKnownPath::Before);
    candidates.extend(well_known(&url, &["openid-configuration"], WellKnownPath::After));
    candidates.dedup();
    let found = first::<Authorization>(desk, &candidates).await?;
    let (at, found) = found.ok_or_else(|| NoLogin(format!("{issuer} has no metadata of a login server")))?;
    if is_same_issuer(&found.issuer, issuer) {
        Ok(found)
    } else {
        Err(NoLogin(format!("{at} is about {:?}, and not about {issuer}", found.issuer)))
    }
}

/// Whether a secret goes into a header: the standard's own way, unless only the other one is named.
fn takes_header(methods: &[String]) -> bool {
    let names = |wanted: &str| methods.iter().any(|method| method == wanted);
    names("client_secret_basic") || !names("client_secret_post")
}

/// Whether two texts name the same issuer; one slash at the end makes no difference.
pub(super) fn is_same_issuer(one: &str, other: &str) -> bool {
    one.strip_suffix('/').unwrap_or(one) == other.strip_suffix('/').unwrap_or(other)
}

/// Where the path of an address stands in that of its metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WellKnownPath {
    Before,
    After,
}

/// Where metadata of an address may be: with its path, and without.
fn well_known(url: &Url, names: &[&str], place: WellKnownPath) -> Vec<String> {
    let (origin, path) = (url.origin().ascii_serialization(), url.path().trim_end_matches('/'));
    let mut all = Vec::new();
    for name in names {
        match place {
            WellKnownPath::Before if !path.is_empty() => {
                all.push(format!("{origin}/.well-known/{name}{path}"))
            }
            WellKnownPath::Before => {}
            WellKnownPath::After => all.push(format!("{origin}{path}/.well-known/{name}")),
        }
    }
    if place == WellKnownPath::Before {
        all.extend(names.iter().map(|name| format!("{origin}/.well-known/{name}")));
    }
    all
}

/// The first of these documents that is there, and where it was.
async fn first<T: DeserializeOwned>(desk: &Desk, urls: &[String]) -> Result<Option<(String, T)>, NoLogin> {
    for url in urls {
        let request = Request {
            method: Method::GET,
            url: checked(desk, url.clone())?,
            headers: vec![("accept".into(), "application/json".into())],
            body: None,
            idempotency_key: "metadata".into(),
        };
        let answer = send(desk, request).await?;
        match answer.status {
            200 => {
                let read = serde_json::from_str(&answer.body);
                let read = read.map_err(|error| NoLogin(format!("{url} cannot be read: {error}")))?;
                return Ok(Some((url.clone(), read)));
            }
            status if (400..500).contains(&status) => {}
            status => return Err(NoLogin(format!("{url} answered {status}"))),
        }
    }
    Ok(None)
}

/// An address that may be called with secrets.
pub(super) fn checked(desk: &Desk, url: String) -> Result<String, NoLogin> {
    let guard = &desk.options.guard;
    let parsed = guard.check_text(&url).map_err(|blocked| NoLogin(blocked.to_string()))?;
    if parsed.scheme() == "https" || guard.is_named(&parsed) {
        Ok(url)
    } else {
        Err(NoLogin(format!("{url:?} is not https; name its host in `allowed_hosts` if that is meant")))
    }
}

/// Sends a request to where tools may call.
pub(super) async fn send(desk: &Desk, request: Request) -> Result<http::Answer, NoLogin> {
    let limits = HttpLimits { time: standfast_core::time::Millis::seconds(15), ..HttpLimits::default() };
    let url = request.url.clone();
    let answer = http::send(&desk.options.guard, &limits, request).await;
    answer.map_err(|trouble| NoLogin(format!("{url}: {trouble}")))
}

/// A parameter of what a server says of the login that it wants.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    while let Some(at) = rest.find(name) {
        let before = rest.get(..at).and_then(|text| text.chars().next_back());
        let after = rest.get(at + name.len()..)?;
        rest = after;
        let starts = before.is_none_or(|c| c == ' ' || c == ',');
        let Some(value) = after.trim_start().strip_prefix('=').filter(|_| starts) else { continue };
        let value = value.trim_start();
        return match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().map(str::to_owned),
            None => value.split([',', ' ']).next().map(str::to_owned),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let said =
            r#"Bearer error="x", xscope="no", scope="a b", resource_metadata="https://a.example/m", n=1"#;
        assert_eq!(parameter(said, "scope").as_deref(), Some("a b"));
        assert_eq!(parameter(said, "resource_metadata").as_deref(), Some("https://a.example/m"));
        assert_eq!(parameter(said, "n").as_deref(), Some("1"));
        assert_eq!(parameter(said, "realm"), None);
        assert_eq!(parameter("Bearer", "scope"), None);
    }

    #[test]
    fn secrets_go_where_a_server_takes_them() {
        let methods = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (named, in_header) in [
            (methods(&[]), true),
            (methods(&["client_secret_post", "client_secret_basic"]), true),
            (methods(&["none"]), true),
            (methods(&["none", "client_secret_post"]), false),
        ] {
            assert_eq!(takes_header(&named), in_header, "{named:?}");
        }
    }

    #[test]
    fn metadata_are_looked_for_where_the_standards_have_them() {
        let url = Url::parse("https://a.example/mcp").unwrap();
        assert_eq!(
            well_known(&url, &["oauth-protected-resource"], WellKnownPath::Before),
            [
                "https://a.example/.well-known/oauth-protected-resource/mcp",
                "https://a.example/.well-known/oauth-protected-resource"
            ]
        );
        let root = Url::parse("https://a.example/").unwrap();
        assert_eq!(
            well_known(&root, &["openid-configuration"], WellKnownPath::After),
            ["https://a.example/.well-known/openid-configuration"]
        );
        assert!(is_same_issuer("https://a.example/", "https://a.example"));
        assert!(!is_same_issuer("https://a.example.org", "https://a.example"));
    }
}
