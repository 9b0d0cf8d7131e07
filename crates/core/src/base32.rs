//! Text form of the bytes of ids and keys: Crockford's base 32 in lower case.
//!
//! Chosen over hex (a quarter longer) and base 64 (needs two cases and signs that break when double-clicked).
//! The alphabet is in byte order, so ids that begin with a time sort by it as text too.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::Visitor;

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

/// Reads a text where it stands: nothing is copied to find out what it names.
pub(crate) fn from_text<'de, T: FromStr<Err = BadId>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct TextVisitor<T>(PhantomData<T>);
    impl<T: FromStr<Err = BadId>> Visitor<'_> for TextVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(TextVisitor(PhantomData))
}

/// Every byte's place in the alphabet; [`FOREIGN`] for those that are not in it.
const PLACES: [u8; 256] = {
    let mut places = [FOREIGN; 256];
    let mut at = 0;
    while at < ALPHABET.len() {
        places[ALPHABET[at] as usize] = at as u8;
        at += 1;
    }
    places
};

const FOREIGN: u8 = u8::MAX;

/// The longest text that [`Letters`] holds: of 40 bytes.
const LETTERS_MAX: usize = 64;

/// The text of a few bytes, where it is made: most ids are written into something longer at once.
#[derive(Clone, Copy)]
pub struct Letters {
    letters: [u8; LETTERS_MAX],
    length: usize,
}

impl Letters {
    /// The text of `bytes`; of more than 40, of the first 40.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Letters {
        let mut text = Letters { letters: [0; LETTERS_MAX], length: 0 };
        for (to, letter) in text.letters.iter_mut().zip(letters(bytes)) {
            *to = letter;
            text.length += 1;
        }
        text
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.letters.get(..self.length).unwrap_or_default()).unwrap_or_default()
    }
}

/// The text of `bytes`, five bits a character, the last one padded with zero bits.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(5));
    text.extend(letters(bytes).map(char::from));
    text
}

fn letters(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let (mut bits, mut held, mut rest) = (0u32, 0u32, bytes.iter());
    std::iter::from_fn(move || {
        if held < 5
            && let Some(byte) = rest.next()
        {
            bits = (bits << 8) | u32::from(*byte);
            held += 8;
        }
        let padding = match held {
            0 => return None,
            1..5 => 5 - held,
            _ => 0,
        };
        (bits, held) = (bits << padding, held + padding - 5);
        let letter = ALPHABET[(bits >> held & 31) as usize];
        bits &= (1 << held) - 1;
        Some(letter)
    })
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
        let place = PLACES[usize::from(c)];
        if place == FOREIGN {
            return None;
        }
        bits = (bits << 5) | u32::from(place);
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
    fn letters_are_the_same_wherever_they_are_made() {
        for (bytes, text) in
            [(&[][..], ""), (&[0xff], "zw"), (&[1, 2, 3, 4, 5], "04106105"), (&[7; 6], "0w3ge1r70w")]
        {
            assert_eq!(encode(bytes), text);
        }
        for length in 0..=40 {
            let bytes = vec![0xa5; length];
            assert_eq!(Letters::of(&bytes).as_str(), encode(&bytes));
        }
    }

    #[test]
    fn a_text_with_foreign_characters_or_padding_names_nothing() {
        let text = encode(&[7u8; 16]);
        assert_eq!(decode::<16>(&text.to_uppercase()), None);
        assert_eq!(decode::<16>(&text[1..]), None);
        assert_eq!(decode::<16>(&format!("{}z", &text[..25])), None, "padding bits are set");
    }
}
