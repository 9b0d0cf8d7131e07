//! A denser form of small JSON documents whose members are known: the fold of a run.
//!
//! Every held run keeps its fold, and every append writes it, so it is worth a few tables: phrases that every fold has
//! become one byte, ids and digests the bytes that they stand for, large numbers seven bits a byte. Bytes that JSON never
//! contains stand for these, so everything else stays as it is, and what cannot be packed is stored as it came.
//! The tables only ever grow at their ends: what was written once must be read for ever.

use std::sync::LazyLock;

use standfast_core::base32;

use crate::columns::CorruptRow;

/// Sixteen bytes, as 26 letters in the text.
const ID: u8 = 0x01;
/// Thirty-two bytes, as 52 letters in the text.
const DIGEST: u8 = 0x02;
/// A number of at least five digits.
const NUMBER: u8 = 0x03;

/// Bytes that stand for phrases, in the order of [`PHRASES`]. Control characters are escaped in JSON, except white space
/// between its parts; the others occur in no UTF-8.
const CODES: [u8; 38] = [
    0x04, 0x05, 0x06, 0x07, 0x08, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
    0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0xc0, 0xc1, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb,
    0xfc, 0xfd, 0xfe, 0xff,
];

/// What folds have in common. A new one takes the place of none: these are in databases.
const PHRASES: [&str; 38] = [
    r#"{"s":"acting","t":"#,
    r#"{"s":{"thinking":{"#,
    r#"{"s":{"ended":""#,
    r#","u":{"input":"#,
    r#","output":"#,
    r#","cost_micros":"#,
    r#"},"reply":"#,
    r#","said":"#,
    r#","calls":[{"n":"#,
    r#","tool":""#,
    r#"","at":"#,
    r#","digest":""#,
    r#"","s":"held""#,
    r#"","s":"ready""#,
    r#"","s":{"started":{"node":""#,
    r#"","start_by":"#,
    r#","s":{"done":""#,
    r#"}],"made":"#,
    r#","holds":[{"key":""#,
    r#"","kind":"approval","at":"#,
    r#"","kind":""#,
    r#","since":"#,
    r#","rules":["tool:requires_approval"]"#,
    r#","rules":[""#,
    r#","policy":{"#,
    r#","votes_needed":"#,
    r#","expires_at":"#,
    r#","remind_at":"#,
    r#","last":""#,
    r#","req":""#,
    r#","res":""#,
    r#","replay":""#,
    r#","attempt":"#,
    r#","satisfied":[""#,
    r#"},{"n":"#,
    r#","claims":"#,
    r#","t":"#,
    r#","calls":["#,
];

/// For each third byte the phrases that have it, the longest first, and for each byte the phrase that it stands for.
struct Tables {
    by_third: [Vec<(&'static [u8], u8)>; 128],
    by_code: [Option<&'static str>; 256],
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut tables = Tables { by_third: std::array::from_fn(|_| Vec::new()), by_code: [None; 256] };
    for (phrase, code) in PHRASES.iter().zip(CODES) {
        let bytes = phrase.as_bytes();
        let third = usize::from(bytes.get(2).copied().unwrap_or_default());
        if let Some(list) = tables.by_third.get_mut(third) {
            list.push((bytes, code));
        }
        if let Some(place) = tables.by_code.get_mut(usize::from(code)) {
            *place = Some(phrase);
        }
    }
    for list in &mut tables.by_third {
        list.sort_by_key(|(phrase, _)| std::cmp::Reverse(phrase.len()));
    }
    tables
});

fn is_code(byte: u8) -> bool {
    matches!(byte, 0x00..=0x08 | 0x0b | 0x0c | 0x0e..=0x1f | 0xc0 | 0xc1 | 0xf5..=0xff)
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_digit() || byte.is_ascii_lowercase()
}

/// The dense form of a text behind this first byte; none when the text has bytes that stand for something else here.
pub(super) fn pack(first: u8, text: &str) -> Option<Vec<u8>> {
    let tables = &*TABLES;
    let mut packed = Vec::with_capacity(text.len() / 2 + 16);
    packed.push(first);
    let mut rest = text.as_bytes();
    while let Some(byte) = rest.first().copied() {
        if is_code(byte) {
            return None;
        }
        let used = if is_letter(byte) {
            let word = rest.iter().position(|byte| !is_letter(*byte)).unwrap_or(rest.len());
            pack_word(rest.get(..word).unwrap_or_default(), &mut packed);
            word
        } else {
            let third = rest.get(2).map_or(0, |third| usize::from(*third));
            let known = tables
                .by_third
                .get(third)
                .and_then(|list| list.iter().find(|(phrase, _)| rest.starts_with(phrase)));
            packed.push(known.map_or(byte, |(_, code)| *code));
            known.map_or(1, |(phrase, _)| phrase.len())
        };
        rest = rest.get(used..).unwrap_or_default();
    }
    Some(packed)
}

/// Letters and digits: an id, a digest, a number, or themselves.
fn pack_word(word: &[u8], packed: &mut Vec<u8>) {
    let text = std::str::from_utf8(word).unwrap_or_default();
    if let Some(id) = base32::decode::<16>(text) {
        packed.push(ID);
        packed.extend(id);
    } else if let Some(digest) = base32::decode::<32>(text) {
        packed.push(DIGEST);
        packed.extend(digest);
    } else if let Some(mut number) = large_number(text) {
        packed.push(NUMBER);
        while let (low, high @ 1..) = (number & 0x7f, number >> 7) {
            packed.push(0x80 | low.to_le_bytes()[0]);
            number = high;
        }
        packed.push(number.to_le_bytes()[0]);
    } else {
        packed.extend(word);
    }
}

/// A number that is shorter by its bytes, and comes out of them as it went in.
fn large_number(text: &str) -> Option<u64> {
    let is_plain =
        text.len() >= 5 && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// The text behind a dense form, without its first byte.
pub(super) fn unpack(packed: &[u8]) -> Result<String, CorruptRow> {
    let mut text = Vec::with_capacity(packed.len() * 3);
    let mut rest = packed.get(1..).unwrap_or_default();
    while let Some((byte, after)) = rest.split_first() {
        rest = match *byte {
            ID => unpack_bytes::<16>(after, &mut text)?,
            DIGEST => unpack_bytes::<32>(after, &mut text)?,
            NUMBER => unpack_number(after, &mut text)?,
            code if is_code(code) => {
                let phrase = TABLES.by_code.get(usize::from(code)).copied().flatten().ok_or_else(broken)?;
                text.extend_from_slice(phrase.as_bytes());
                after
            }
            plain => {
                text.push(plain);
                after
            }
        };
    }
    String::from_utf8(text).map_err(|_| broken())
}

fn unpack_bytes<'a, const N: usize>(rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], CorruptRow> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or_else(broken)?;
    text.extend_from_slice(base32::Letters::of(bytes).as_str().as_bytes());
    Ok(after)
}

fn unpack_number<'a>(rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], CorruptRow> {
    let mut number = 0u64;
    for (at, byte) in rest.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0);
        if byte & 0x80 == 0 {
            text.extend_from_slice(number.to_string().as_bytes());
            return Ok(rest.get(at + 1..).unwrap_or_default());
        }
    }
    Err(broken())
}

fn broken() -> CorruptRow {
    CorruptRow("its packed state cannot be read".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fold_becomes_much_smaller_and_comes_back() {
        let id = base32::encode(&[7; 16]);
        let digest = base32::encode(&[0xfe; 32]);
        let fold = format!(
            r#"{{"s":"acting","t":1,"u":{{"input":120,"output":40}},"reply":2,"said":1,"calls":[{{"n":1,"tool":"delete_file","at":2,"digest":"{digest}","s":"held"}}],"made":1,"holds":[{{"key":"1-{id}","kind":"approval","at":3,"since":1762000000000,"rules":["tool:requires_approval"]}}]}}"#
        );
        let packed = pack(1, &fold).unwrap();
        assert_eq!(unpack(&packed).unwrap(), fold);
        assert!(packed.len() * 5 < fold.len() * 2, "{} of {}", packed.len(), fold.len());
    }

    #[test]
    fn no_two_codes_are_the_same() {
        let mut codes = CODES.to_vec();
        codes.extend([ID, DIGEST, NUMBER]);
        assert!(codes.iter().all(|code| is_code(*code)));
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len() + 3);
    }

    #[test]
    fn damage_is_noticed_or_harmless() {
        let packed =
            pack(1, &format!(r#"{{"a":"{}","n":1762000000000}}"#, base32::encode(&[3; 16]))).unwrap();
        for at in 1..packed.len() {
            for byte in 0..=255 {
                let mut damaged = packed.clone();
                damaged[at] = byte;
                let _ = unpack(&damaged);
                let _ = unpack(&damaged[..at]);
            }
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back(parts in prop::collection::vec(prop_oneof![
            any::<String>(),
            any::<u64>().prop_map(|number| number.to_string()),
            any::<[u8; 16]>().prop_map(|bytes| base32::encode(&bytes)),
            any::<[u8; 32]>().prop_map(|bytes| base32::encode(&bytes)),
            prop::sample::select(PHRASES.to_vec()).prop_map(str::to_owned),
            "[0-9a-z]{1,60}",
            "[\\x00-\\x1f\"{}:,]{1,4}",
        ], 0..12)) {
            let text = parts.concat();
            if let Some(packed) = pack(1, &text) {
                prop_assert_eq!(unpack(&packed).unwrap(), text);
            } else {
                prop_assert!(text.bytes().any(is_code));
            }
        }
    }
}
