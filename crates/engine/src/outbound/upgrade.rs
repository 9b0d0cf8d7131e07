//! A connection that is another protocol's from its answer on (`101`), such as WebSocket: to a checked address, over the same TLS as
//! every other request, without redirects or proxies.
//!
//! What is spoken on it is its caller's business. One request is `http.rs`.

use reqwest::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use reqwest::{StatusCode, Upgraded};
use standfast_core::time::Millis;

use super::guard::Guard;
use super::http::{Trouble, connecting, told};
use crate::clock::duration;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct UpgradeRequest {
    /// Where to; `http` or `https`.
    pub url: String,
    /// The protocol.
    pub protocol: &'static str,
    /// Headers of the protocol.
    pub headers: HeaderMap,
}

/// What was agreed to.
#[derive(Debug)]
pub struct UpgradedConnection {
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The bytes of the protocol.
    pub bytes: Upgraded,
}

/// Opens a connection, in this time.
pub async fn upgrade(
    guard: &Guard,
    within: Millis,
    request: UpgradeRequest,
) -> Result<UpgradedConnection, Trouble> {
    let opening = opened(guard, request);
    let opened = tokio::time::timeout(duration(within), opening).await;
    opened.unwrap_or_else(|_| Err(Trouble::Broken("it timed out".to_owned())))
}

async fn opened(guard: &Guard, request: UpgradeRequest) -> Result<UpgradedConnection, Trouble> {
    let checked = guard.check(&request.url).await?;
    // The newer versions of HTTP have no such connections.
    let client = connecting(&checked).http1_only().build();
    let client = client.map_err(|error| Trouble::NotSent(told(&error)))?;
    let mut headers = request.headers;
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(request.protocol));
    let broken = |error: reqwest::Error| Trouble::Broken(told(&error));
    let answer = client.get(checked.url).headers(headers).send().await.map_err(broken)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Trouble::Broken(format!("the answer is {}, not 101", answer.status().as_u16())));
    }
    let headers = answer.headers().clone();
    let bytes = answer.upgrade().await.map_err(broken)?;
    Ok(UpgradedConnection { headers, bytes })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::guard::UnnamedHosts;
    use super::*;

    /// A server that answers one request with this, and then with what it is sent.
    async fn answering(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 2048];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            let mut said = [0; 4];
            if stream.read_exact(&mut said).await.is_ok() {
                stream.write_all(&said).await.unwrap();
            }
            String::from_utf8_lossy(&request[..read]).to_ascii_lowercase()
        });
        (host, serving)
    }

    fn request(host: &str) -> UpgradeRequest {
        let url = format!("http://{host}/link?ticket=canary");
        UpgradeRequest { url, protocol: "websocket", headers: HeaderMap::new() }
    }

    fn only(host: &str) -> Guard {
        Guard { allowed_hosts: [host.to_owned()].into(), others: UnnamedHosts::Never }
    }

    #[tokio::test]
    async fn a_connection_is_the_protocols_from_its_answer_on() {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nx-said: yes\r\n\r\n";
        let (host, serving) = answering(answer).await;
        let mut opened = upgrade(&only(&host), Millis::seconds(60), request(&host)).await.unwrap();
        assert_eq!(opened.headers["x-said"], "yes");
        opened.bytes.write_all(b"ping").await.unwrap();
        let mut said = [0; 4];
        opened.bytes.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"ping");
        let asked = serving.await.unwrap();
        assert!(asked.contains("upgrade: websocket") && asked.contains("connection: upgrade"), "{asked}");
    }

    /// T11: neither an address of this machine that nobody named nor a redirect is a connection, and no error has the address, which is a
    /// secret.
    #[tokio::test]
    async fn t11_no_connection_leads_elsewhere() {
        let (host, serving) =
            answering("HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
                .await;
        let redirected = upgrade(&only(&host), Millis::seconds(60), request(&host)).await.unwrap_err();
        assert_eq!(
            redirected.to_string(),
            "the request was sent, but the response is incomplete: the answer is 307, not 101"
        );
        drop(serving);
        let blocked = upgrade(&Guard::default(), Millis::seconds(60), request(&host)).await.unwrap_err();
        assert!(
            matches!(blocked, Trouble::Blocked(_)) && !blocked.to_string().contains("canary"),
            "{blocked}"
        );
    }
}
