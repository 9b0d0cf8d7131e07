//! What a call looks like on its way to an MCP server, and what goes over a pipe to one.
//!
//! `rmcp` keeps arguments as values and writes them again, which can change a number. A person approved the text, so the
//! text is what is sent: it travels beside the typed message and takes the place of the rewritten arguments here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, Sink};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;

/// How many bytes one message of a server may have.
pub(super) const MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// How many bytes a server may send from one request of ours to the next.
pub(super) const FLOOD_BYTES: u64 = 64 * 1024 * 1024;

/// The argument text of a call, byte for byte as it was decided on.
#[derive(Debug, Clone)]
pub(super) struct RawArguments(pub(super) String);

/// A message as it is sent.
pub(super) fn text_of(message: &ClientJsonRpcMessage) -> serde_json::Result<String> {
    let text = serde_json::to_string(message)?;
    let ClientJsonRpcMessage::Request(request) = message else { return Ok(text) };
    let ClientRequest::CallToolRequest(call) = &request.request else { return Ok(text) };
    let Some(RawArguments(raw)) = call.extensions.get::<RawArguments>() else { return Ok(text) };
    let rewritten = format!("\"arguments\":{}", serde_json::to_string(&call.params.arguments)?);
    Ok(text.replacen(&rewritten, &format!("\"arguments\":{raw}"), 1))
}

/// How much a server may still send.
#[derive(Debug, Clone)]
pub(super) struct Allowance(Arc<AtomicU64>);

impl Allowance {
    pub(super) fn new() -> Allowance {
        Allowance(Arc::new(AtomicU64::new(FLOOD_BYTES)))
    }

    /// The server was asked something, so it may answer.
    pub(super) fn renew(&self) {
        self.0.store(FLOOD_BYTES, Ordering::Relaxed);
    }

    /// Whether it has sent too much.
    pub(super) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) {
        let less = |left: u64| Some(left.saturating_sub(bytes as u64));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Reads as long as the allowance lasts; after that there is nothing more to read.
pub(super) struct MeteredReader<R> {
    source: R,
    allowance: Allowance,
}

impl<R: AsyncRead + Unpin> AsyncRead for MeteredReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.allowance.is_used_up() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.source).poll_read(context, buffer))?;
        self.allowance.take(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

/// The pipes to a server that runs as a program.
pub(super) struct ProcessPipes {
    reads: AsyncRwTransport<RoleClient, MeteredReader<ChildStdout>, Sink>,
    writes: Arc<Mutex<Option<ChildStdin>>>,
}

impl ProcessPipes {
    pub(super) fn new(stdin: ChildStdin, stdout: ChildStdout, allowance: Allowance) -> ProcessPipes {
        let source = MeteredReader { source: stdout, allowance };
        let reads = AsyncRwTransport::new_client(source, tokio::io::sink());
        ProcessPipes {
            reads: reads.with_max_line_length(MESSAGE_BYTES),
            writes: Arc::new(Mutex::new(Some(stdin))),
        }
    }
}

impl Transport<RoleClient> for ProcessPipes {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), std::io::Error>> + Send + 'static {
        let writes = self.writes.clone();
        async move {
            let mut line = text_of(&message)?;
            line.push('\n');
            let mut stdin = writes.lock().await;
            let Some(stdin) = stdin.as_mut() else { return Err(std::io::ErrorKind::NotConnected.into()) };
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ServerJsonRpcMessage>> + Send {
        self.reads.receive()
    }

    async fn close(&mut self) -> Result<(), std::io::Error> {
        self.writes.lock().await.take();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, NumberOrString};

    use super::*;

    /// T3: what was approved is what runs, also where it is a number that no computer's number type holds.
    #[test]
    fn arguments_keep_their_bytes() {
        let raw = r#"{ "b": 12345678901234567890123, "a": 1.0, "note": "\"arguments\":{}" }"#;
        let mut call = CallToolRequest::new(
            CallToolRequestParams::new("pay").with_arguments(serde_json::from_str(raw).unwrap()),
        );
        call.extensions.insert(RawArguments(raw.into()));
        let message =
            ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(call), NumberOrString::Number(1));
        let text = text_of(&message).unwrap();
        assert!(text.contains(&format!(r#""arguments":{raw}"#)), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
    }

    #[tokio::test]
    async fn who_sends_too_much_is_not_read_any_further() {
        use tokio::io::AsyncReadExt;
        let allowance = Allowance::new();
        let mut read = MeteredReader { source: tokio::io::repeat(b'x'), allowance: allowance.clone() };
        let copied = tokio::io::copy(&mut read, &mut tokio::io::sink()).await.unwrap();
        assert!((FLOOD_BYTES..FLOOD_BYTES + 64 * 1024).contains(&copied), "{copied}");
        assert!(allowance.is_used_up());
        allowance.renew();
        assert!(read.read(&mut [0; 8]).await.unwrap() > 0, "asked again, it may answer again");
    }
}
