//! The dependencies that a `Cargo.toml` names, line by line.
//!
//! A small reader instead of a TOML crate, which would be most of this crate's build time. It knows tables,
//! inline tables and values that go over several lines; that is all that dependency tables use.

/// One dependency, by the name of its package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) package: String,
    pub(crate) section: Section,
    pub(crate) line: usize,
}

/// What the dependency is for. One for tests only does not reach the users of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Product,
    Tests,
}

pub(crate) fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut place = Place::Elsewhere;
    let mut open_brackets = 0_i32;
    for (index, line) in manifest.lines().enumerate() {
        let line_number = index + 1;
        let line = without_comment(line).trim();
        let inside_value = open_brackets > 0;
        if !inside_value && line.starts_with('[') {
            place = place_of(line);
            if let Place::OneDependency(section, package) = &place {
                found.push(Dependency { package: package.clone(), section: *section, line: line_number });
            }
            continue;
        }
        open_brackets += brackets(line);
        let Some((key, value)) = line.split_once('=').filter(|_| !inside_value) else {
            continue;
        };
        match &place {
            Place::Elsewhere => {}
            Place::Table(section) => {
                let name = unquoted(key.trim().split('.').next().unwrap_or_default());
                let package = renamed(value).unwrap_or(name);
                found.push(Dependency { package: package.to_owned(), section: *section, line: line_number });
            }
            Place::OneDependency(..) => {
                if let ("package", Some(last)) = (key.trim(), found.last_mut()) {
                    last.package = unquoted(value.trim()).to_owned();
                }
            }
        }
    }
    found
}

enum Place {
    Table(Section),
    OneDependency(Section, String),
    Elsewhere,
}

/// `[dependencies]`, `[target.'cfg(unix)'.dependencies]` and `[dependencies.name]`.
fn place_of(header: &str) -> Place {
    let segments = dotted(header.trim_start_matches('[').trim_end_matches(']'));
    let section_of = |segment: &String| match segment.as_str() {
        "dependencies" | "build-dependencies" => Some(Section::Product),
        "dev-dependencies" => Some(Section::Tests),
        _ => None,
    };
    match segments.as_slice() {
        [.., last] if section_of(last).is_some() => section_of(last).map_or(Place::Elsewhere, Place::Table),
        [.., section, name] => match section_of(section) {
            Some(section) => Place::OneDependency(section, name.clone()),
            None => Place::Elsewhere,
        },
        _ => Place::Elsewhere,
    }
}

/// The segments of a dotted key; dots inside quotes do not part it.
fn dotted(key: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut quote = None;
    for c in key.chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if c == open => quote = None,
            ('.', None) => segments.push(String::new()),
            _ => {
                if let Some(last) = segments.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    segments.iter().map(|segment| segment.trim().to_owned()).collect()
}

/// The package in `{ package = "…" }`.
fn renamed(value: &str) -> Option<&str> {
    let (before, after) = value.split_once("package")?;
    let is_key = before.trim_end().ends_with(['{', ',']);
    let text = after.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    if is_key { text.split('"').next() } else { None }
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['"', '\''])
}

fn without_comment(line: &str) -> &str {
    let mut in_string = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => in_string = !in_string,
            '#' if !in_string => return &line[..at],
            _ => {}
        }
    }
    line
}

/// How many brackets and braces stay open on this line.
fn brackets(line: &str) -> i32 {
    let mut in_string = false;
    let mut open = 0;
    for c in line.chars() {
        match c {
            '"' => in_string = !in_string,
            '[' | '{' if !in_string => open += 1,
            ']' | '}' if !in_string => open -= 1,
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(manifest: &str) -> Vec<String> {
        let show = |found: &Dependency| format!("{} {:?} {}", found.package, found.section, found.line);
        dependencies(manifest).iter().map(show).collect()
    }

    #[test]
    fn every_way_to_write_a_dependency() {
        let manifest = r#"[package]
name = "x"
[dependencies]
serde.workspace = true # why
sha2 = "0.11"
clock = { version = "1", package = "tokio" }
wide = { version = "1", features = [
    "a",
    "b=c",
] }
[target.'cfg(unix)'.dependencies]
rustix = "1"
[dependencies.rand]
version = "0.10"
[build-dependencies.proto]
package = "protox"
[dev-dependencies]
proptest.workspace = true
[features]
mutants = []
"#;
        let expected = [
            "serde Product 4",
            "sha2 Product 5",
            "tokio Product 6",
            "wide Product 7",
            "rustix Product 12",
            "rand Product 13",
            "protox Product 15",
            "proptest Tests 18",
        ];
        assert_eq!(shown(manifest), expected);
    }
}
