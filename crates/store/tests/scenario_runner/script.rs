//! Scenario files as text: a title, a `shows:` line, and sentences made of words, quoted texts and JSON.
//!
//! JSON stays byte for byte as it stands in the file, because arguments do. What a sentence means is `steps.rs`.

use std::path::Path;

/// A scenario file.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// The numbers and rules that it shows.
    pub(crate) shows: Vec<String>,
    /// Its sentences.
    pub(crate) lines: Vec<Line>,
}

/// One sentence and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
}

/// One piece of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tok<'a> {
    /// A word. Commas only separate.
    Word(&'a str),
    /// A quoted text; there are no escapes.
    Text(&'a str),
    /// An object or array, byte for byte.
    Json(&'a str),
}

/// All scenarios of a folder, by name.
pub(crate) fn read_all(folder: &Path) -> Result<Vec<Scenario>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut scenarios = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|ending| ending == "scenario") {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            scenarios.push(read(&name, &text)?);
        }
    }
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

/// A scenario from its text.
pub(crate) fn read(name: &str, text: &str) -> Result<Scenario, String> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let title = lines.next().map(|(_, line)| line).unwrap_or_default();
    if !title.ends_with('.') {
        return Err(format!("{name}: the first line is a title sentence that ends with a full stop"));
    }
    let shows = lines.next().and_then(|(_, line)| line.strip_prefix("shows:"));
    let shows = shows.ok_or_else(|| format!("{name}: the second line begins with `shows:`"))?;
    let shows = shows.split(',').map(|number| number.trim().to_owned()).collect();
    let is_sentence = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
    let line = |(number, text): (usize, &str)| Line { number, text: text.to_owned() };
    Ok(Scenario { name: name.to_owned(), shows, lines: lines.filter(is_sentence).map(line).collect() })
}

/// The pieces of a sentence.
pub(crate) fn pieces(line: &str) -> Result<Vec<Tok<'_>>, String> {
    let mut toks = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => text_length(rest)?,
            '{' | '[' => json_length(rest)?,
            _ => rest.find([' ', ',']).unwrap_or(rest.len()),
        };
        let (piece, after) = rest.split_at(length);
        toks.push(match first {
            '"' => Tok::Text(&piece[1..piece.len() - 1]),
            '{' | '[' => Tok::Json(piece),
            _ => Tok::Word(piece),
        });
        rest = after.trim_start_matches([' ', ',']);
    }
    Ok(toks)
}

fn text_length(rest: &str) -> Result<usize, String> {
    let end = rest[1..].find('"').ok_or_else(|| format!("a quoted text does not end: {rest}"))?;
    Ok(end + 2)
}

/// How far an object or array reaches: to its last bracket, not counting those inside strings.
fn json_length(rest: &str) -> Result<usize, String> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at + 1);
        }
    }
    Err(format!("JSON does not end: {rest}"))
}
