//! Text form of the bytes of ids and keys: Crockford's base 32 in lower case.
//!
//! Chosen over hex (a quarter longer) and base 64 (needs two cases and signs that break when double-clicked).
//! The alphabet is in byte order, so ids that begin with a time sort by it as text too.

use std::fmt;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadId {
    /// The kind of id that was wanted, such as `run`.
    pub wanted: &'static str,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is not the id of a {}", self.wanted)
    }
}

impl std::error::Error for BadId {}

/// The text of `bytes`, five bits a character, the last one padded with zero bits.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(5));
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            text.push(char_of(bits >> held));
        }
        bits &= (1 << held) - 1;
    }
    if held > 0 {
        text.push(char_of(bits << (5 - held)));
    }
    text
}

/// The bytes behind `text`, if it is exactly what [`encode`] writes for `N` bytes.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != (N * 8).div_ceil(5) {
        return None;
    }
    let mut bytes = [0u8; N];
    let (mut bits, mut held, mut at) = (0u32, 0u32, 0usize);
    for c in text.bytes() {
        let value = ALPHABET.iter().position(|a| *a == c)?;
        bits = (bits << 5) | u32::try_from(value).ok()?;
        held += 5;
        if held >= 8 {
            held -= 8;
            *bytes.get_mut(at)? = u8::try_from(bits >> held).ok()?;
            at += 1;
            bits &= (1 << held) - 1;
        }
    }
    // Padding bits must be zero, or two texts would name one id.
    (bits == 0 && at == N).then_some(bytes)
}

fn char_of(bits: u32) -> char {
    char::from(ALPHABET[(bits & 31) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_sort_as_text() {
        let low = [0u8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let high = [1u8; 16];
        assert_eq!(decode::<16>(&encode(&low)), Some(low));
        assert_eq!(decode::<16>(&encode(&high)), Some(high));
        assert!(encode(&low) < encode(&high));
    }

    #[test]
    fn a_text_with_foreign_characters_or_padding_names_nothing() {
        let text = encode(&[7u8; 16]);
        assert_eq!(decode::<16>(&text.to_uppercase()), None);
        assert_eq!(decode::<16>(&text[1..]), None);
        assert_eq!(decode::<16>(&format!("{}z", &text[..25])), None, "padding bits are set");
    }
}
