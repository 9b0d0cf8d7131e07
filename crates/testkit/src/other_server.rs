//! Another server that tools call: it answers one request after the other with prepared bytes, and keeps what it got.
//!
//! For tools that speak plain HTTP; a provider of models is `provider.rs`, a receiver of webhooks `receiver.rs`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Where it is, and what it got.
pub struct OtherServer {
    /// Its port on this machine.
    pub port: u16,
    requests: UnboundedReceiver<String>,
}

impl OtherServer {
    /// Answers each connection with the next of these, byte for byte, and closes it.
    pub async fn answering(answers: Vec<String>) -> OtherServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, requests) = unbounded_channel();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !is_whole(&request) {
                    let mut chunk = [0; 4096];
                    let read = stream.read(&mut chunk).await.unwrap();
                    assert_ne!(read, 0, "the request broke off");
                    request.extend_from_slice(&chunk[..read]);
                }
                tell.send(String::from_utf8(request).unwrap()).unwrap();
                // Whoever has read enough closes first.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        OtherServer { port, requests }
    }

    /// The next request, as it came.
    pub async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A whole answer with this body.
pub fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
