//! Bytes that begin as good ones and have a few things wrong: flipped, cut, repeated, mixed with others, or with a token of some format.
//!
//! The same in every run. `STANDFAST_FUZZ_CASES` asks for more of them, `STANDFAST_FUZZ_SEED` for others. `cargo xtask fuzz` shows the same parsers
//! inputs that are guided by the code that they reach.

/// What stands in many formats where something happens.
pub const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\r\n",
    b"\n",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b".",
    b"..",
    b"/",
    b"%",
    b"%00",
    b"%ff",
    b"\xff",
    b"\xc3\x28",
    b"\xf0\x9f",
    b"\\ud800",
    b"\\u0000",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551616",
    b"9999999999999999999999",
    b"sf_",
    b"sfs_",
    b"v1,",
    b"whsec_",
    b"==",
    b"&",
    b"=",
    b";",
    b"\x7f",
    b"\xe2\x80\xae",
    b"run_",
    b"hold_",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
];

/// Numbers that look random and are the same in every run.
#[derive(Debug)]
pub struct Draw(u64);

impl Draw {
    /// From this seed, unless the environment names another one.
    pub fn new(usual: u64) -> Draw {
        Draw(number("STANDFAST_FUZZ_SEED", usual).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below this one.
    pub fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(most.max(1)).unwrap()).unwrap()
    }

    /// Bytes with one to four things wrong.
    pub fn damage(&mut self, good: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = at + self.below((bytes.len() - at).min(24) + 1);
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let part = bytes[at..end].repeat(1 + self.below(40));
                    bytes.splice(at..at, part);
                }
                3 => bytes.truncate(at),
                4 => {
                    let from = self.below(other.len() + 1);
                    let to = from + self.below((other.len() - from).min(40) + 1);
                    bytes.splice(at..end, other[from..to].to_vec());
                }
                _ => drop(bytes.splice(at..end, TOKENS[self.below(TOKENS.len())].to_vec())),
            }
        }
        bytes
    }
}

/// How many cases there are, unless the environment says so.
pub fn cases(usual: usize) -> usize {
    usize::try_from(number("STANDFAST_FUZZ_CASES", u64::try_from(usual).unwrap())).unwrap()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Shows a parser each of these, damaged in turn: as bytes. Built for `cargo xtask fuzz`, libFuzzer makes more of them, and this never
/// comes back.
#[cfg(fuzzing_libfuzzer)]
pub fn each(good: &[&[u8]], _usual: usize, parser: impl FnMut(&[u8])) {
    guided::each(good, parser);
}

/// Shows a parser each of these, damaged in turn: as bytes.
#[cfg(not(fuzzing_libfuzzer))]
pub fn each(good: &[&[u8]], usual: usize, mut parser: impl FnMut(&[u8])) {
    let mut draw = Draw::new(0x9e37_79b9_7f4a_7c15);
    good.iter().for_each(|good| parser(good));
    for case in 0..cases(usual) {
        let other = good[draw.below(good.len())];
        let bytes = draw.damage(good[case % good.len()], other);
        parser(&bytes);
    }
}

/// The same as text; bytes that are none are marked as such.
pub fn each_text(good: &[&str], usual: usize, mut parser: impl FnMut(&str)) {
    let good: Vec<&[u8]> = good.iter().map(|good| good.as_bytes()).collect();
    each(&good, usual, |bytes| parser(&String::from_utf8_lossy(bytes)));
}

/// The same parsers with libFuzzer's inputs.
#[cfg(fuzzing_libfuzzer)]
mod guided {
    use std::panic::RefUnwindSafe;
    use std::path::Path;

    use bolero_engine::Engine as _;
    use bolero_engine::driver::Options;
    use bolero_libfuzzer::LibFuzzerEngine;

    /// A parser, whatever it counts: nothing is looked at after a panic, which ends the process.
    struct Parser<P>(P);

    impl<P> RefUnwindSafe for Parser<P> {}

    impl<P: FnMut(&[u8])> Parser<P> {
        fn show(&mut self, bytes: &[u8]) {
            (self.0)(bytes);
        }
    }

    /// Begins with the good ones, in the folder that libFuzzer reads and adds to.
    pub(super) fn each(good: &[&[u8]], parser: impl FnMut(&[u8])) {
        let folder = std::env::var("STANDFAST_FUZZ_CORPUS").unwrap();
        for (no, good) in good.iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("good-{no}")), good).unwrap();
        }
        let mut parser = Parser(parser);
        LibFuzzerEngine::default().run(move |bytes: &[u8]| parser.show(bytes), Options::default());
    }
}
