//! SHA-256 digests: of a call as it was shown, of stored values, and of links.
//!
//! Every digest begins with its own label and prefixes each part with its length, so that no two lists of parts
//! share one input. The bytes hashed are the bytes stored: nothing is re-serialised first (architecture, rule 3).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::base32::{self, BadId, from_text};
use crate::name::ToolName;

/// A file that a call names, as it was when the call was shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileDigest {
    /// Its path, as people know it.
    pub path: String,
    /// What is in it: SHA-256 in hexadecimal, or why that is not known.
    pub sha256: String,
}

/// A SHA-256, written like ids in base 32: a fifth shorter than hex, in every row that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

/// The digest of a labelled list of parts.
#[must_use]
pub fn of_parts(label: &str, parts: &[&[u8]]) -> Digest {
    of_all(label, parts.iter().copied())
}

/// The same, of parts that come one by one: nobody has to list them first.
#[must_use]
pub fn of_all<'a>(label: &'a str, parts: impl Iterator<Item = &'a [u8]>) -> Digest {
    let mut hasher = Sha256::new();
    for part in std::iter::once(label.as_bytes()).chain(parts) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Digest(hasher.finalize().into())
}

/// The digest of plain bytes; for blobs and definitions.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// The digest of a call as it was shown: tool, argument text byte for byte, digest of the tool's schema.
#[must_use]
pub fn of_call(tool: &ToolName, arguments: &str, schema: Digest) -> Digest {
    of_parts("standfast.call.1", &[tool.as_str().as_bytes(), arguments.as_bytes(), &schema.0])
}

/// The same, of a call that names files: their contents are part of what was shown.
#[must_use]
pub fn of_call_with(tool: &ToolName, arguments: &str, schema: Digest, files: Option<Digest>) -> Digest {
    match files {
        None => of_call(tool, arguments, schema),
        Some(files) => of_parts(
            "standfast.call.2",
            &[tool.as_str().as_bytes(), arguments.as_bytes(), &schema.0, &files.0],
        ),
    }
}

/// The digest of the files that a call names; none when it names none.
#[must_use]
pub fn of_files(files: &[FileDigest]) -> Option<Digest> {
    let parts: Vec<&[u8]> =
        files.iter().flat_map(|file| [file.path.as_bytes(), file.sha256.as_bytes()]).collect();
    (!parts.is_empty()).then(|| of_parts("standfast.files.1", &parts))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(base32::Letters::of(&self.0).as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Digest, BadId> {
        base32::decode(text).map(Digest).ok_or(BadId { wanted: "digest (52 characters)" })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(base32::Letters::of(&self.0).as_str())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T3: files are part of a call's digest by path and contents, and a call without any has the digest that it always
    /// had.
    #[test]
    fn files_are_part_of_what_was_shown() {
        let tool = ToolName::new("execute_command").unwrap();
        let of = |files: &[(&str, &str)]| {
            let file =
                |(path, sha256): &(&str, &str)| FileDigest { path: (*path).into(), sha256: (*sha256).into() };
            let files: Vec<FileDigest> = files.iter().map(file).collect();
            of_call_with(&tool, "{}", Digest([1; 32]), of_files(&files))
        };
        assert_eq!(of(&[]), of_call(&tool, "{}", Digest([1; 32])));
        let all =
            [of(&[]), of(&[("a", "1")]), of(&[("a", "2")]), of(&[("b", "1")]), of(&[("a", "1"), ("b", "1")])];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
    }
}
