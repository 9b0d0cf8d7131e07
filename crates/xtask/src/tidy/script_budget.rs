//! Rule: the script that pages load stays small: at most 15 KB, packed as it would be sent.
//!
//! Pages decide without it, so it may not grow into an application. Measured with the system's `gzip`, because a rule should
//! not cost a dependency; where there is none, the rule says so.

use std::io::Write;
use std::process::{Command, Stdio};

use super::repository::Repository;
use super::violation::Violation;

/// The files that the server puts into one module.
const PARTS: [&str; 2] =
    ["crates/surfaces/src/html/script/idiomorph.js", "crates/surfaces/src/html/script/live.js"];

const MOST_BYTES: usize = 15 * 1024;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let parts: Vec<&str> =
        PARTS.iter().filter_map(|path| repository.file(path)).map(|file| file.text.as_str()).collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let violation = |what: String, then: &'static str| vec![Violation::new(PARTS[1], 1, what, then)];
    match packed(parts.join("\n").as_bytes()) {
        Some(bytes) if bytes <= MOST_BYTES => Vec::new(),
        Some(bytes) => violation(
            format!("the script of the pages has {bytes} bytes packed, at most {MOST_BYTES} are allowed"),
            "leave it to the server: pages are rendered there",
        ),
        None => violation("the script of the pages cannot be measured".into(), "install `gzip`"),
    }
}

/// How many bytes it has, packed.
fn packed(text: &[u8]) -> Option<usize> {
    let mut gzip =
        Command::new("gzip").arg("-9c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut input = gzip.stdin.take()?;
    let text = text.to_vec();
    // Written beside: a pipe that nobody reads is full at some point.
    let writing = std::thread::spawn(move || input.write_all(&text));
    let output = gzip.wait_with_output().ok()?;
    writing.join().ok()?.ok()?;
    output.status.success().then_some(output.stdout.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn a_script_that_has_grown_too_large_is_found() {
        // Text that cannot be packed much: the digits of a simple generator.
        let mut state = 1u64;
        let noise: String = (0..200_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + u8::try_from(state >> 58).unwrap_or(0))
            })
            .collect();
        let large = Repository::of(&[(PARTS[0], "var x;"), (PARTS[1], noise.as_str())]);
        assert_eq!(places(&check(&large)), [format!("{}:1", PARTS[1])]);
        let small = Repository::of(&[(PARTS[0], "var x;"), (PARTS[1], "x();")]);
        assert!(check(&small).is_empty() && check(&Repository::of(&[])).is_empty());
    }
}
