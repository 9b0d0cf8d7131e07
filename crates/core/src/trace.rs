//! Trace context of the W3C (`traceparent`), as far as it is stored: whose trace something belongs to.
//!
//! Nothing is decided by it, and it is only there where traces are on. Spans, sampling and where they are sent to are the
//! engine's (`traces.rs` there).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base32::from_text;
use crate::id::BadId;

/// Bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A place in a trace: the trace, and one of its spans. Written as a `traceparent` header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace; never all zeros.
    pub trace: [u8; 16],
    /// The span; never all zeros.
    pub span: [u8; 8],
    /// Whether its spans are recorded.
    pub is_sampled: bool,
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(if self.is_sampled { "-01" } else { "-00" })
    }
}

/// Reads a `traceparent`. Of a later version what is known of it counts, as the standard wants it.
impl FromStr for TraceContext {
    type Err = BadId;

    fn from_str(text: &str) -> Result<TraceContext, BadId> {
        let bad = || BadId { wanted: "traceparent" };
        let known = text.as_bytes().get(..LENGTH).ok_or_else(bad)?;
        let [version] = hex(&known[..2]).ok_or_else(bad)?;
        let is_whole = match version {
            0 => text.len() == LENGTH,
            0xff => false,
            _ => text.len() == LENGTH || text.as_bytes()[LENGTH] == b'-',
        };
        if !is_whole || known[2] != b'-' || known[35] != b'-' || known[52] != b'-' {
            return Err(bad());
        }
        let trace: [u8; 16] = hex(&known[3..35]).ok_or_else(bad)?;
        let span: [u8; 8] = hex(&known[36..52]).ok_or_else(bad)?;
        let [flags] = hex(&known[53..]).ok_or_else(bad)?;
        if trace == [0; 16] || span == [0; 8] {
            return Err(bad());
        }
        Ok(TraceContext { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Bytes from small hexadecimal digits; the standard knows no others.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// The request that caused something: its span, and by which way it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its span.
    pub traceparent: TraceContext,
    /// Its way, as metrics name it.
    pub channel: Cow<'static, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_survives_its_text_form() {
        let context: TraceContext = TEXT.parse().unwrap();
        assert_eq!((context.to_string().as_str(), context.is_sampled), (TEXT, true));
        let later = format!("cc{}-what-may-come", &TEXT[2..]);
        assert_eq!(later.parse::<TraceContext>().unwrap(), context);
        let unsampled: TraceContext = TEXT.replace("-01", "-00").parse().unwrap();
        assert_eq!(unsampled, TraceContext { is_sampled: false, ..context });
    }

    #[test]
    fn what_is_no_context_is_refused() {
        let zeros = "0".repeat(32);
        let bad = [
            String::new(),
            TEXT[..54].to_owned(),
            format!("{TEXT}-more"),
            format!("cc{}x", &TEXT[2..]),
            format!("ff{}", &TEXT[2..]),
            TEXT.to_uppercase(),
            TEXT.replace("0af7651916cd43dd8448eb211c80319c", &zeros),
            TEXT.replace("b7ad6b7169203331", &zeros[..16]),
            TEXT.replace("-b7", "xb7"),
            format!("{}é", &TEXT[..54]),
        ];
        for text in bad {
            assert!(text.parse::<TraceContext>().is_err(), "{text}");
        }
    }
}
