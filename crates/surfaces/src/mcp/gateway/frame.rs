//! Server-sent events as they pass a gateway: read from what a server sends, written for a client. Pure.
//!
//! What an event carries beside its message goes along: by its id a client asks the server for what it missed.

use axum::body::Bytes;
use tokio::sync::oneshot;

/// How many bytes one message of a server may have.
pub(super) const MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// One message on its way to a client.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// The message; empty in an event that only names a place in the stream.
    pub(super) text: String,
    /// What the server calls the event.
    pub(super) id: Option<String>,
    /// How long a client should wait before it comes back, as the server said.
    pub(super) retry: Option<String>,
    /// Who wants to hear that it was handed over.
    pub(super) taken: Option<oneshot::Sender<()>>,
}

impl Frame {
    /// A message of its own.
    pub(super) fn of(text: String) -> Frame {
        Frame { text, ..Frame::default() }
    }

    /// As it is written into a stream. Whoever waits for that hears it.
    pub(super) fn encoded(mut self) -> Bytes {
        if let Some(taken) = self.taken.take() {
            // Whoever no longer wants to know has gone on.
            let _ = taken.send(());
        }
        let mut event = String::from("event: message\n");
        if let Some(id) = &self.id {
            event.push_str(&format!("id: {id}\n"));
        }
        if let Some(retry) = &self.retry {
            event.push_str(&format!("retry: {retry}\n"));
        }
        // Ends of lines are blanks between values: within texts JSON has escapes for them.
        event.push_str(&format!("data: {}\n\n", self.text.replace(['\n', '\r'], " ")));
        event.into()
    }
}

/// Reads the events of a stream, piece by piece.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    line: Vec<u8>,
    data: Option<String>,
    frame: Frame,
    /// The last byte was a carriage return: a line feed behind it ends nothing.
    after_return: bool,
    read: usize,
}

/// A stream that is none, or an event that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadStream;

impl FrameReader {
    /// The events that end within the next piece.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, BadStream> {
        let mut frames = Vec::new();
        for byte in bytes {
            match (byte, std::mem::take(&mut self.after_return)) {
                (b'\n', true) => {}
                (b'\n' | b'\r', _) => {
                    self.after_return = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    frames.extend(self.take(&String::from_utf8(line).map_err(|_| BadStream)?));
                }
                (other, _) => self.line.push(*other),
            }
            self.read += 1;
            if self.read > 2 * MESSAGE_BYTES {
                return Err(BadStream);
            }
        }
        Ok(frames)
    }

    /// An event is over at an empty line.
    fn take(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            self.read = 0;
            let mut frame = std::mem::take(&mut self.frame);
            let data = self.data.take();
            let is_event = data.is_some() || frame.id.is_some() || frame.retry.is_some();
            frame.text = data.unwrap_or_default();
            return is_event.then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" => self.frame.id = Some(value.to_owned()),
            "retry" => self.frame.retry = Some(value.to_owned()),
            // Names of events and comments say nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_any_pieces() {
        let stream = ": hello\r\nid: 1\r\ndata: \r\n\r\nevent: message\rid: 2\rdata: {\"a\":\rdata: 1}\r\rretry: 500\n\ndata:{}\n\n";
        for size in [1, 2, 7, stream.len()] {
            let mut reader = FrameReader::default();
            let mut frames = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                frames.extend(reader.read(piece).unwrap());
            }
            let seen: Vec<_> = frames
                .iter()
                .map(|frame| (frame.id.as_deref(), frame.text.as_str(), frame.retry.as_deref()))
                .collect();
            assert_eq!(
                seen,
                [
                    (Some("1"), "", None),
                    (Some("2"), "{\"a\":\n1}", None),
                    (None, "", Some("500")),
                    (None, "{}", None)
                ],
                "{size}"
            );
        }
    }

    /// T31: whatever a server sends, it is the same events however it comes in pieces.
    #[test]
    fn t31_any_stream_is_the_same_events_in_any_pieces() {
        let good: [&[u8]; 2] = [
            b": hello\r\nid: 1\r\ndata: \r\n\r\nevent: message\rid: 2\rdata: {\"a\":\rdata: 1}\r\rretry: 500\n\ndata:{}\n\n",
            b"data: one\ndata: two\nid\n\ndata\n\nretry:\n\n",
        ];
        let read = |bytes: &[u8], size: usize| {
            let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
            for piece in bytes.chunks(size) {
                let frames = reader.read(piece).ok()?;
                seen.extend(frames.into_iter().map(|frame| (frame.id, frame.text, frame.retry)));
            }
            Some(seen)
        };
        let mut events = 0;
        standfast_testkit::damage::each(&good, 20_000, |bytes| {
            let whole = read(bytes, bytes.len().max(1));
            events += whole.as_ref().map_or(0, Vec::len);
            for size in [1, 3] {
                assert_eq!(read(bytes, size), whole);
            }
        });
        assert!(events > 500, "{events}");
    }

    #[test]
    fn an_event_is_written_as_one_line_and_bounded() {
        let frame = Frame { id: Some("7".into()), ..Frame::of("{\"a\":\r\n1}".into()) };
        assert_eq!(frame.encoded(), "event: message\nid: 7\ndata: {\"a\":  1}\n\n");
        let mut reader = FrameReader::default();
        let piece = vec![b'x'; MESSAGE_BYTES];
        assert_eq!(reader.read(&piece).unwrap().len(), 0);
        assert_eq!(reader.read(&piece).unwrap().len(), 0);
        assert_eq!(reader.read(b"x").err(), Some(BadStream));
    }

    #[tokio::test]
    async fn whoever_waits_hears_that_a_message_was_handed_over() {
        let (taken, heard) = oneshot::channel();
        Frame { taken: Some(taken), ..Frame::of("{}".into()) }.encoded();
        assert!(heard.await.is_ok());
        let (taken, heard) = oneshot::channel();
        drop(Frame { taken: Some(taken), ..Frame::of("{}".into()) });
        assert!(heard.await.is_err());
    }
}
