//! A client that costs as little as possible: one kept connection, one request at a time.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One kept connection.
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    /// Lines that the head of every request has beside the usual ones.
    more: &'static str,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Connection {
        Connection::try_open(address).await.unwrap()
    }

    /// For servers that may not have room for it.
    pub(crate) async fn try_open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::with_capacity(16 * 1024);
        Ok(Connection { stream, address: address.to_owned(), more: "", buffer })
    }

    /// Sends these lines, each with its end, in the head of every request.
    pub(crate) fn with(self, more: &'static str) -> Connection {
        Connection { more, ..self }
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> String {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            self.more,
            body.len()
        );
        self.send(&request).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{}\r\n", self.address, self.more);
        self.send(&request).await
    }

    /// Begins to read a stream of events; [`Connection::wait_for`] reads on.
    pub(crate) async fn follow(&mut self, path: &str) -> io::Result<()> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\n{}accept: text/event-stream\r\n\r\n",
            self.address, self.more
        );
        self.buffer.clear();
        self.stream.write_all(request.as_bytes()).await
    }

    /// Reads on until this has come.
    pub(crate) async fn wait_for(&mut self, word: &str) -> io::Result<()> {
        while !self.buffer.windows(word.len()).any(|some| some == word.as_bytes()) {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let so_far = String::from_utf8_lossy(&self.buffer);
                return Err(io::Error::other(format!("the stream ended without {word}: {so_far}")));
            }
        }
        Ok(())
    }

    /// The body of the answer; anything but a 2xx is the end of the bench.
    async fn send(&mut self, request: &str) -> String {
        self.stream.write_all(request.as_bytes()).await.unwrap();
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.unwrap();
            assert!(read > 0, "the server closed the connection");
            if let Some(whole) = whole(&self.buffer) {
                let text = String::from_utf8_lossy(&self.buffer[whole..]).into_owned();
                assert!(self.buffer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&self.buffer));
                return text;
            }
        }
    }
}

/// Where the body begins, once all of it is there.
fn whole(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&buffer[..head]).unwrap();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let begin = head + 4;
    (buffer.len() >= begin + length.unwrap_or(0)).then_some(begin)
}

/// The first text of this name in a JSON body; a parser would cost more than what is measured.
pub(crate) fn text_of<'a>(body: &'a str, name: &str) -> &'a str {
    let begin = body.find(&format!("\"{name}\":\"")).unwrap() + name.len() + 4;
    &body[begin..begin + body[begin..].find('"').unwrap()]
}
