//! The door: which hosts and origins are let in, and who they are.
//!
//! Without configured identities only this machine may call, and every caller is the user `local`. The `Host` check
//! stops pages that point their own name at 127.0.0.1; the `Origin` check stops pages that post to it.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::problem::Problem;
use crate::auth::Principal;

/// Lets a request in as this principal, or says why not.
pub(super) async fn check(
    State(local): State<Principal>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    refuse_foreign(request.method(), request.headers())?;
    request.extensions_mut().insert(local);
    Ok(next.run(request).await)
}

fn refuse_foreign(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).unwrap_or_default();
    if !is_loopback(host) {
        let detail = "this server answers only to localhost, 127.0.0.1 and [::1]";
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong-host",
            "Not for this server",
            detail,
        ));
    }
    let is_harmless = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match text(header::ORIGIN) {
        Some(origin) if !is_harmless && origin != format!("http://{host}") => {
            let detail = "a page of another origin may not change anything here";
            Err(Problem::new(StatusCode::FORBIDDEN, "wrong-origin", "Cross-origin request", detail))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether an authority (`host` or `host:port`) names this machine.
fn is_loopback(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        let address = rest.split_once(']').and_then(|(address, _)| address.parse::<Ipv6Addr>().ok());
        return address.is_some_and(|address| address.is_loopback());
    }
    let host = authority.split_once(':').map_or(authority, |(host, _)| host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: Method, host: &'static str, origin: Option<&'static str>) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        refuse_foreign(&method, &headers).err().map(|problem| problem.status)
    }

    #[test]
    fn only_this_machine_and_its_own_pages_are_let_in() {
        for (method, host, origin, status) in [
            (Method::GET, "127.0.0.1:8080", None, None),
            (Method::GET, "localhost", None, None),
            (Method::GET, "[::1]:8080", None, None),
            (Method::GET, "127.0.0.1.evil.example", None, Some(421)),
            (Method::GET, "evil.example:8080", None, Some(421)),
            (Method::GET, "", None, Some(421)),
            (Method::POST, "localhost:8080", Some("http://localhost:8080"), None),
            (Method::POST, "localhost:8080", Some("http://localhost:3000"), Some(403)),
            (Method::POST, "localhost:8080", Some("https://evil.example"), Some(403)),
            (Method::POST, "localhost:8080", Some("null"), Some(403)),
            (Method::GET, "localhost:8080", Some("https://evil.example"), None),
        ] {
            assert_eq!(answer(method.clone(), host, origin), status, "{method} {host} {origin:?}");
        }
    }
}
