//! Reads the sources below a folder into a graph: the folder's files and folders are the components.
//!
//! An edge is a path that leads into another component, or a call of a method that another component defines. What a call is
//! made on is found by names: `self`, fields, parameters, variables with a type, and what methods return. Tests do not
//! count. Macros are not followed.

use std::collections::{BTreeMap, BTreeSet};

use super::methods::{ImplBlock, annotations, declared, fields, impl_blocks};
use super::{Graph, Place};
use crate::tidy::repository::{Repository, SourceFile};
use crate::tidy::rust_paths::{Origin, named_paths_in};
use crate::tidy::rust_tokens::{Token, tokens};

/// A folder of sources and the type that stands for the whole of it, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Folder<'a> {
    /// Such as `crates/engine/src`.
    pub(crate) path: &'a str,
    /// The type that hands the components out, such as `Engine`; it stands above them.
    pub(crate) facade: Option<&'a str>,
    /// Folders below it that only tests use.
    pub(crate) for_tests: &'a [&'a str],
}

/// One file of the folder.
struct Source<'a> {
    file: &'a SourceFile,
    component: String,
    tokens: Vec<Token>,
    blocks: Vec<ImplBlock>,
}

/// What the names in the sources mean.
#[derive(Default)]
struct Known {
    /// Which components declare a type of this name.
    types: BTreeMap<String, BTreeSet<String>>,
    /// Which components define a method of a type.
    methods: BTreeMap<(String, String), BTreeSet<String>>,
    /// Which of our types a field of a struct has.
    fields: BTreeMap<(String, String), BTreeSet<String>>,
    /// Which of our types fields of this name have, each set once.
    by_field: BTreeMap<String, BTreeSet<BTreeSet<String>>>,
    /// Which of our types methods of this name return, each set once.
    returns: BTreeMap<String, BTreeSet<BTreeSet<String>>>,
    /// What the folder's own file passes on under its name, and where that comes from.
    passed_on: BTreeMap<String, String>,
}

impl Known {
    /// What every field, or every method, of this name has in common; nothing where they differ.
    fn agreed(by_name: &BTreeMap<String, BTreeSet<BTreeSet<String>>>, name: &str) -> BTreeSet<String> {
        let found = by_name.get(name).filter(|found| found.len() == 1);
        found.and_then(|found| found.first()).cloned().unwrap_or_default()
    }
}

/// The tokens of a file without what is only built for tests.
pub(crate) fn product_tokens(source: &str) -> Vec<Token> {
    let all = tokens(source);
    let mut kept = Vec::with_capacity(all.len());
    let mut at = 0;
    while at < all.len() {
        if is_test_attribute(&all[at..]) {
            at = end_of_item(&all, at + 7);
        } else {
            kept.push(all[at].clone());
            at += 1;
        }
    }
    kept
}

/// The graph of the components below a folder.
pub(crate) fn graph_of(repository: &Repository, folder: Folder<'_>) -> Graph {
    let sources = sources_of(repository, folder);
    let known = known_in(&sources, folder);
    let mut graph = Graph::of(sources.iter().map(|source| source.component.clone()));
    if folder.facade.is_none() {
        // The file that only lists modules is not a component.
        graph.nodes.remove(FACADE);
    }
    for source in &sources {
        paths(&mut graph, source, &known, folder);
        calls(&mut graph, source, &known);
    }
    graph
}

/// The component that stands for the folder's own file: `lib.rs`, `main.rs`, `mod.rs`, or the file beside the folder.
const FACADE: &str = "facade";

fn sources_of<'a>(repository: &'a Repository, folder: Folder<'_>) -> Vec<Source<'a>> {
    let beside = format!("{}.rs", folder.path);
    let mut sources = Vec::new();
    for file in repository.files().iter().filter(|file| file.is_rust()) {
        let component = match file.path.strip_prefix(folder.path).and_then(|rest| rest.strip_prefix('/')) {
            Some("lib.rs" | "main.rs" | "mod.rs") => FACADE,
            Some(rest) => rest.split('/').next().unwrap_or_default().trim_end_matches(".rs"),
            None if file.path == beside => FACADE,
            None => continue,
        };
        let is_for_tests = folder.for_tests.iter().any(|skipped| {
            file.path.strip_prefix(skipped).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
        let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
        if is_for_tests || is_test || component == "bin" {
            continue;
        }
        let tokens = product_tokens(&file.text);
        let blocks = impl_blocks(&tokens);
        sources.push(Source { file, component: component.to_owned(), tokens, blocks });
    }
    sources
}

fn known_in(sources: &[Source<'_>], folder: Folder<'_>) -> Known {
    let mut known = Known::default();
    for source in sources {
        for (_, name, _) in declared(&source.tokens, &["struct", "enum", "trait", "type"]) {
            known.types.entry(name.to_owned()).or_default().insert(source.component.clone());
        }
        for block in &source.blocks {
            for method in &block.methods {
                let key = (block.of.clone(), method.name.clone());
                known.methods.entry(key).or_default().insert(source.component.clone());
            }
        }
        if source.component == FACADE {
            for path in named_paths_in(&source.tokens, &path_in_src(&source.file.path)) {
                let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
                let inside = inside(&segments, folder).unwrap_or(&segments);
                if let ([first, .., last], Origin::Use) = (inside, path.origin) {
                    known.passed_on.insert((*last).to_owned(), (*first).to_owned());
                }
            }
        }
    }
    for source in sources {
        let ours = |words: &BTreeSet<String>| -> BTreeSet<String> {
            words.iter().filter(|word| known.types.contains_key(*word)).cloned().collect()
        };
        for ((of, name), words) in fields(&source.tokens) {
            known.by_field.entry(name.clone()).or_default().insert(ours(&words));
            known.fields.entry((of, name)).or_default().extend(ours(&words));
        }
        for method in source.blocks.iter().flat_map(|block| &block.methods) {
            let words: BTreeSet<String> = method.returns.iter().cloned().collect();
            known.returns.entry(method.name.clone()).or_default().insert(ours(&words));
        }
    }
    known
}

/// The edges that paths make.
fn paths(graph: &mut Graph, source: &Source<'_>, known: &Known, folder: Folder<'_>) {
    for path in named_paths_in(&source.tokens, &path_in_src(&source.file.path)) {
        let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
        let to = match inside(&segments, folder) {
            Some([first, ..]) => target(graph, known, folder, first),
            Some([]) => None,
            // The folder's own file may name its modules without saying where they are.
            None if source.component == FACADE => segments
                .first()
                .filter(|first| graph.nodes.contains(**first))
                .map(|first| (*first).to_owned()),
            None => None,
        };
        if let Some(to) = to {
            let place = Place { path: source.file.path.clone(), line: path.line, what: path.shown() };
            graph.add(&source.component, &to, place);
        }
    }
}

/// The component that the first segment below the folder names.
fn target(graph: &Graph, known: &Known, folder: Folder<'_>, first: &str) -> Option<String> {
    if graph.nodes.contains(first) {
        return Some(first.to_owned());
    }
    if folder.facade == Some(first) {
        return Some(FACADE.to_owned());
    }
    known.passed_on.get(first).cloned()
}

/// The edges that calls of methods make.
fn calls(graph: &mut Graph, source: &Source<'_>, known: &Known) {
    let tokens = &source.tokens;
    let mut variables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, words) in annotations(tokens) {
        let ours = words.into_iter().filter(|word| known.types.contains_key(word));
        variables.entry(name).or_default().extend(ours);
    }
    for at in 1..tokens.len().saturating_sub(1) {
        let Some(name) = tokens[at].word() else { continue };
        if !tokens[at + 1].is_sign('(') {
            continue;
        }
        let own = source.blocks.iter().find(|block| (block.from..block.to).contains(&at));
        let own = own.map(|block| block.of.as_str());
        let of: BTreeSet<String> = if tokens[at - 1].is_sign('.') {
            receiver(&tokens[..at - 1], own, &variables, known)
        } else if at >= 2 && tokens[at - 2].is_word("Self") {
            own.map(str::to_owned).into_iter().collect()
        } else {
            continue;
        };
        for one in of {
            let Some(components) = known.methods.get(&(one.clone(), name.to_owned())) else { continue };
            // A type that several components declare may be any of them; so may a method, also ours.
            let is_one_type = known.types.get(&one).is_some_and(|declared| declared.len() == 1);
            if !is_one_type || components.contains(&source.component) {
                continue;
            }
            for to in components {
                let what = format!("{one}::{name}");
                let place = Place { path: source.file.path.clone(), line: tokens[at].line, what };
                graph.add(&source.component, to, place);
            }
        }
    }
}

/// The types that the expression before a `.` can have.
fn receiver(
    before: &[Token],
    own: Option<&str>,
    variables: &BTreeMap<String, BTreeSet<String>>,
    known: &Known,
) -> BTreeSet<String> {
    let mut before = before;
    // `x.await?.f()` is a call on what `x` gives.
    loop {
        match before {
            [rest @ .., last] if last.is_sign('?') => before = rest,
            [rest @ .., dot, last] if last.is_word("await") && dot.is_sign('.') => before = rest,
            _ => break,
        }
    }
    let Some((last, rest)) = before.split_last() else { return BTreeSet::new() };
    if last.is_sign(')') {
        let called = opening(before).and_then(|open| before[..open].last()).and_then(Token::word);
        return called.map(|name| Known::agreed(&known.returns, name)).unwrap_or_default();
    }
    match last.word() {
        Some("self") => own.map(str::to_owned).into_iter().collect(),
        Some(name) => {
            let is_field = rest.last().is_some_and(|dot| dot.is_sign('.'));
            let is_own = is_field && rest.len() >= 2 && rest[rest.len() - 2].is_word("self");
            let own =
                own.filter(|_| is_own).and_then(|own| known.fields.get(&(own.to_owned(), name.to_owned())));
            let variable = variables.get(name).filter(|types| !is_field && !types.is_empty());
            own.or(variable).cloned().unwrap_or_else(|| Known::agreed(&known.by_field, name))
        }
        None => BTreeSet::new(),
    }
}

/// The position of the bracket that the last one closes.
fn opening(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().rev() {
        if token.is_sign(')') {
            depth += 1;
        } else if token.is_sign('(') {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// What a path from the crate's root names below the folder; nothing when it leads elsewhere.
fn inside<'a, 'b>(segments: &'a [&'b str], folder: Folder<'_>) -> Option<&'a [&'b str]> {
    let below = folder.path.split_once("/src").map(|(_, below)| below.trim_start_matches('/'))?;
    let start = std::iter::once("crate").chain(below.split('/').filter(|part| !part.is_empty()));
    let start: Vec<&str> = start.collect();
    segments.starts_with(&start).then(|| &segments[start.len()..])
}

/// `a/b.rs` of `crates/x/src/a/b.rs`.
fn path_in_src(path: &str) -> String {
    path.split_once("/src/").map_or(path, |(_, rest)| rest).to_owned()
}

/// `#[cfg(test)]`.
fn is_test_attribute(tokens: &[Token]) -> bool {
    let shape = ["#", "[", "cfg", "(", "test", ")", "]"];
    tokens.len() >= shape.len()
        && shape.iter().zip(tokens).all(|(want, token)| {
            token.is_word(want) || want.chars().next().is_some_and(|sign| token.is_sign(sign))
        })
}

/// Behind the item that begins here: after its closing brace, or its semicolon.
fn end_of_item(tokens: &[Token], from: usize) -> usize {
    let mut at = from;
    while at < tokens.len() && !tokens[at].is_sign('{') && !tokens[at].is_sign(';') {
        at += 1;
    }
    if tokens.get(at).is_some_and(|token| token.is_sign('{')) {
        super::methods::closing(tokens, at) + 1
    } else {
        at + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Folder<'_> = Folder { path: "crates/engine/src", facade: Some("Engine"), for_tests: &[] };

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph_of(&Repository::of(files), ROOT);
        graph.edges().map(|(from, to, places)| format!("{from} -> {to}: {}", places[0].what)).collect()
    }

    #[test]
    fn paths_make_edges_and_tests_do_not() {
        let files = [
            ("crates/engine/src/log.rs", "pub struct Log;"),
            (
                "crates/engine/src/commit/mod.rs",
                "use crate::log::Log;\n#[cfg(test)]\nmod tests { use crate::drive::D; }",
            ),
            ("crates/engine/src/drive/think.rs", "fn f() { crate::commit::g() }"),
            ("crates/engine/src/drive/tests.rs", "use crate::log::Log;"),
        ];
        assert_eq!(edges(&files), ["commit -> log: crate::log::Log", "drive -> commit: crate::commit::g"]);
    }

    #[test]
    fn calls_of_methods_make_edges() {
        let files = [
            ("crates/engine/src/log.rs", "pub struct Log;\nimpl Log { fn read(&self) -> Row {} }"),
            (
                "crates/engine/src/wakes.rs",
                "pub struct Wakes;\nimpl Wakes { fn wake(&self) {} fn log(&self) -> &Log {} }",
            ),
            (
                "crates/engine/src/commit.rs",
                "struct Commit { log: Arc<Log> }\nimpl Commit { fn f(&self) { self.log.read() } }",
            ),
            ("crates/engine/src/drive.rs", "fn f(wakes: &Wakes) { wakes.log().read(); other.read(); }"),
        ];
        let found = edges(&files);
        assert!(found.contains(&"commit -> log: Log::read".to_owned()), "{found:?}");
        assert!(found.contains(&"drive -> log: Log::read".to_owned()), "{found:?}");
        assert!(found.contains(&"drive -> wakes: Wakes::log".to_owned()), "{found:?}");
    }

    #[test]
    fn what_could_be_another_type_is_no_edge() {
        let files = [
            (
                "crates/engine/src/log.rs",
                "pub struct State;\nimpl State { fn read(&self) {} }\nstruct A { x: State }",
            ),
            ("crates/engine/src/wakes.rs", "struct State;"),
            (
                "crates/engine/src/reads.rs",
                "pub struct Reads;\nimpl Reads { fn list(&self) {} }\nstruct B { x: Reads }",
            ),
            ("crates/engine/src/drive.rs", "fn f(state: &State) { state.read(); b.x.list(); }"),
        ];
        assert_eq!(edges(&files), Vec::<String>::new());
    }

    #[test]
    fn one_object_in_many_files_is_a_cycle() {
        let files = [
            ("crates/engine/src/lib.rs", "mod a; mod b; pub struct Shared;"),
            ("crates/engine/src/a.rs", "impl Shared { async fn one(&self) { self.two().await?.x } }"),
            ("crates/engine/src/b.rs", "impl Shared { fn two(&self) { Self::one() } }"),
        ];
        let graph = graph_of(&Repository::of(&files), ROOT);
        assert_eq!(graph.cycles(), [["a", "b"]]);
    }

    #[test]
    fn the_facade_stands_above_and_passes_names_on() {
        let files = [
            ("crates/engine/src/lib.rs", "mod log; mod work;\npub use log::Snapshot;\npub struct Engine;"),
            ("crates/engine/src/log.rs", "pub struct Snapshot;"),
            ("crates/engine/src/work.rs", "use crate::Snapshot; use crate::Engine;"),
        ];
        let found = edges(&files);
        assert_eq!(
            found,
            ["facade -> log: log::Snapshot", "work -> facade: crate::Engine", "work -> log: crate::Snapshot"]
        );
    }
}
