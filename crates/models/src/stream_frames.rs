//! What a provider streams, cut into frames: server-sent events, or one JSON value on each line.
//!
//! Bytes come in pieces of any size; a frame comes out when it is whole. What a frame means is for the file of the
//! provider. Lines are bounded: a provider that never ends one is cut off.

use std::collections::VecDeque;

use serde::de::IgnoredAny;

/// How many bytes one frame may have.
const FRAME_MAX: usize = 8 * 1024 * 1024;

/// How a stream is cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameFormat {
    /// `data:` lines, with an empty line behind each event.
    Events,
    /// A JSON value on each line.
    Lines,
}

/// A stream on its way.
#[derive(Debug)]
pub(super) struct Frames {
    framing: FrameFormat,
    /// The line that is not whole yet.
    line: Vec<u8>,
    /// The data of the event that is not whole yet; none without a line of it.
    data: Option<String>,
    /// Whether a line feed would belong to the carriage return before it.
    after_return: bool,
    is_first_line: bool,
    whole: VecDeque<String>,
}

/// A frame is longer than any reply needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a piece of it is longer than {FRAME_MAX} bytes")]
pub(super) struct FrameTooLong;

impl Frames {
    pub(super) fn new(framing: FrameFormat) -> Frames {
        Frames {
            framing,
            line: Vec::new(),
            data: None,
            after_return: false,
            is_first_line: true,
            whole: VecDeque::new(),
        }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), FrameTooLong> {
        for &byte in bytes {
            let follows_return = std::mem::take(&mut self.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\n' => self.end_line(),
                b'\r' => {
                    self.after_return = true;
                    self.end_line();
                }
                other => self.line.push(other),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > FRAME_MAX {
                return Err(FrameTooLong);
            }
        }
        Ok(())
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Option<String> {
        self.whole.pop_front()
    }

    /// Nothing more comes. What is whole but for its end counts; what broke off does not.
    pub(super) fn end(&mut self) {
        match self.framing {
            FrameFormat::Events => self.whole.extend(self.data.take()),
            FrameFormat::Lines => {
                let is_whole = serde_json::from_slice::<IgnoredAny>(&self.line).is_ok();
                if is_whole {
                    self.end_line();
                }
            }
        }
        self.line.clear();
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let is_first = std::mem::take(&mut self.is_first_line);
        let line = if is_first { text.trim_start_matches('\u{feff}') } else { &text };
        match self.framing {
            FrameFormat::Lines if line.trim().is_empty() => {}
            FrameFormat::Lines => self.whole.push_back(line.to_owned()),
            FrameFormat::Events if line.is_empty() => self.whole.extend(self.data.take()),
            FrameFormat::Events => {
                // Comments, ids and names of events are of no use here: every provider says the type in its data too.
                let Some(data) = line.strip_prefix("data") else { return };
                let Some(data) = data.strip_prefix(':').or(data.is_empty().then_some("")) else { return };
                let data = data.strip_prefix(' ').unwrap_or(data);
                match &mut self.data {
                    Some(before) => {
                        before.push('\n');
                        before.push_str(data);
                    }
                    None => self.data = Some(data.to_owned()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(framing: FrameFormat, pieces: &[&[u8]]) -> Vec<String> {
        let mut frames = Frames::new(framing);
        for piece in pieces {
            frames.push(piece).unwrap();
        }
        frames.end();
        std::iter::from_fn(|| frames.next()).collect()
    }

    #[test]
    fn events_are_cut_as_the_standard_says() {
        for (text, expected) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\ndata: b\r\rdata: c\n\n", vec!["a", "b", "c"]),
            ("event: x\nid: 7\nretry: 1\n: comment\ndata: a\ndata: b\n\n", vec!["a\nb"]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data\n\n", vec![""]),
            ("database: x\n\nevent: only\n\n", vec![]),
            ("data:  two spaces\n\n", vec![" two spaces"]),
            ("data: whole\n", vec!["whole"]),
            ("data: {\"broken\": ", vec![]),
        ] {
            assert_eq!(read(FrameFormat::Events, &[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_are_values_and_what_broke_off_is_none() {
        let lines = |text: &str| read(FrameFormat::Lines, &[text.as_bytes()]);
        assert_eq!(lines("{\"a\":1}\n\n {\"b\":2}\r\n{\"c\":3}"), ["{\"a\":1}", " {\"b\":2}", "{\"c\":3}"]);
        assert_eq!(lines("{\"a\":1}\n{\"b\":"), ["{\"a\":1}"]);
    }

    /// F26: what real providers send, cut in two at every byte, is the same frames.
    #[test]
    fn recorded_streams_are_cut_at_every_byte() {
        let streams: [(FrameFormat, &[u8]); 7] = [
            (FrameFormat::Events, include_bytes!("../../server/tests/models/streams/openai_chat.sse")),
            (FrameFormat::Events, include_bytes!("../../server/tests/models/streams/openrouter.sse")),
            (FrameFormat::Events, include_bytes!("../../server/tests/models/streams/vllm.sse")),
            (FrameFormat::Events, include_bytes!("../../server/tests/models/streams/openai_responses.sse")),
            (FrameFormat::Events, include_bytes!("../../server/tests/models/streams/anthropic.sse")),
            (FrameFormat::Events, include_bytes!("../../server/tests/models/streams/gemini.sse")),
            (FrameFormat::Lines, include_bytes!("../../server/tests/models/streams/ollama.ndjson")),
        ];
        for (framing, stream) in streams {
            let whole = read(framing, &[stream]);
            assert!(whole.len() > 2);
            for cut in 0..=stream.len() {
                let (before, after) = stream.split_at(cut);
                assert_eq!(read(framing, &[before, after]), whole, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_line_without_an_end_is_cut_off() {
        let mut frames = Frames::new(FrameFormat::Lines);
        let piece = vec![b'x'; 1024 * 1024];
        let taken = (0..9).map(|_| frames.push(&piece)).find(Result::is_err);
        assert_eq!(taken, Some(Err(FrameTooLong)));
    }

    proptest! {
        /// Wherever the pieces are cut, the frames are the same.
        #[test]
        fn any_pieces(text in "(data: |\\{\"é\":1\\}|\n|\r|\r\n|x){0,40}", cuts in prop::collection::vec(0..200_usize, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            for framing in [FrameFormat::Events, FrameFormat::Lines] {
                prop_assert_eq!(read(framing, &pieces), read(framing, &[bytes]));
            }
        }
    }
}
