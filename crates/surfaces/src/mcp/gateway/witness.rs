//! Bodies of a server's answers as they pass: their messages are seen, and pass as they are.
//!
//! What is seen is remembered elsewhere (`memory.rs`); nothing here changes a byte.

use super::frame::{FrameReader, MESSAGE_BYTES};

/// Sees the messages of a body that passes.
pub(super) struct Witness<F> {
    reader: Option<FrameReader>,
    body: Vec<u8>,
    sees: F,
}

impl<F: FnMut(&str)> Witness<F> {
    pub(super) fn of(is_stream: bool, sees: F) -> Witness<F> {
        Witness { reader: is_stream.then(FrameReader::default), body: Vec::new(), sees }
    }

    pub(super) fn see(&mut self, bytes: &[u8]) {
        if let Some(reader) = &mut self.reader {
            match reader.read(bytes) {
                Ok(frames) => frames.iter().for_each(|frame| (self.sees)(&frame.text)),
                // Nothing more is seen of it; it passes all the same.
                Err(_) => *reader = FrameReader::default(),
            }
        } else if self.body.len() + bytes.len() <= MESSAGE_BYTES {
            self.body.extend_from_slice(bytes);
            if let Ok(text) = std::str::from_utf8(&self.body)
                && text.trim_end().ends_with('}')
            {
                (self.sees)(text);
            }
        }
    }
}
