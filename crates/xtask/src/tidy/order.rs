//! Rule: the order of crates, of the top-level modules of each, and of the components of the engine, with no cycle in any of
//! them. Calls of methods count: an object that is cut into many files is found out.
//!
//! The order is the data below. `graph/` computes who uses whom; `cargo xtask tidy --graph` prints it.

use super::cargo_manifest::{Section, dependencies};
use super::graph::{Folder, Graph, Place, draw, graph_of};
use super::repository::Repository;
use super::violation::Violation;

/// A name and the names that it may use.
type Row = (&'static str, &'static [&'static str]);

/// The crates, by their folders, each with those of ours that it is built from.
const CRATES: &[Row] = &[
    ("core", &[]),
    ("policy", &["core"]),
    ("store", &["core"]),
    ("engine", &["core", "policy", "store"]),
    ("models", &["core", "engine"]),
    ("tools", &["core", "engine"]),
    ("surfaces", &["core", "engine"]),
    ("server", &["core", "policy", "store", "engine", "models", "tools", "surfaces"]),
    ("bench", &["core", "store", "engine", "models", "surfaces", "server"]),
    ("testkit", &[]),
    ("e2e", &["core", "store", "testkit"]),
    ("xtask", &[]),
];

/// What every crate may use in its tests beside what it is built from.
const FOR_TESTS: &[&str] = &["testkit"];

/// The components of the engine: `log <- wakes <- commit <- drive <- work`; `reads` on log and wakes, `deliver` on log and
/// commit. `identity`, `nodes` and `receivers` are small and below whoever names them; `submit` is what callers ask for, the
/// facade hands all of them out. What is not listed may be used by anybody, as long as there is no cycle.
const ENGINE: &[Row] = &[
    ("log", &[]),
    ("wakes", &["log"]),
    ("identity", &["log"]),
    ("nodes", &["log", "wakes"]),
    ("receivers", &["log", "identity"]),
    ("reads", &["log", "wakes"]),
    ("commit", &["log", "wakes", "nodes"]),
    ("deliver", &["log", "wakes", "identity", "nodes", "receivers", "commit"]),
    ("drive", &["log", "wakes", "receivers", "commit"]),
    ("work", &["log", "wakes", "nodes", "commit", "drive"]),
    ("submit", &["log", "wakes", "nodes", "receivers", "reads", "commit", "drive"]),
    (
        "facade",
        &[
            "log",
            "wakes",
            "identity",
            "nodes",
            "receivers",
            "reads",
            "commit",
            "deliver",
            "drive",
            "submit",
            "work",
        ],
    ),
];

/// Where the engine's components are; its other modules stand beside them.
pub(crate) const ENGINE_FOLDER: &str = "crates/engine/src";

/// The crates whose top-level modules are kept in order; those of the engine are its components.
const PRODUCT: &[&str] = &["core", "policy", "store", "models", "tools", "surfaces", "server"];

/// Folders that only tests use, though they are built into the crates.
pub(crate) const FOR_TESTS_ONLY: &[&str] = &["crates/core/src/testing", "crates/store/src/conformance"];

/// The drawing in the documentation.
const DRAWING: &str = "docs/images/architecture.svg";

/// How many places a violation names.
const PLACES: usize = 3;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = manifests(repository);
    for (title, graph) in graphs(repository) {
        violations.extend(cycles(&title, &graph));
    }
    violations.extend(order(&engine(repository).1));
    violations.extend(drawing(repository));
    violations
}

/// The crates and the engine's components as `ARCHITECTURE.md` shows them.
pub(crate) fn drawn(repository: &Repository) -> String {
    let (title, engine) = engine(repository);
    let listed = ENGINE.iter().map(|(name, _)| *name);
    draw(&[("crates".to_owned(), crates(repository)), (title, engine.only(listed))])
}

/// Every graph of the repository with its title: the crates, the engine's components, the modules of each crate.
pub(crate) fn graphs(repository: &Repository) -> Vec<(String, Graph)> {
    let mut graphs = vec![("crates".to_owned(), crates(repository)), engine(repository)];
    for name in PRODUCT {
        let path = format!("crates/{name}/src");
        let graph = graph_of(repository, Folder { path: &path, facade: None, for_tests: FOR_TESTS_ONLY });
        if graph.nodes.len() > 1 {
            graphs.push((format!("modules of {path}"), graph));
        }
    }
    graphs
}

fn engine(repository: &Repository) -> (String, Graph) {
    let path = ENGINE_FOLDER;
    let graph = graph_of(repository, Folder { path, facade: Some("Engine"), for_tests: FOR_TESTS_ONLY });
    (format!("components of {path}"), graph)
}

/// The crates and what they are built from.
fn crates(repository: &Repository) -> Graph {
    let manifests: Vec<_> = repository
        .files()
        .iter()
        .filter(|file| file.path_in_crate() == Some("Cargo.toml"))
        .filter_map(|file| Some((file, file.crate_folder()?)))
        .collect();
    let mut graph = Graph::of(manifests.iter().map(|(_, folder)| (*folder).to_owned()));
    for (file, from) in manifests {
        let used = dependencies(&file.text);
        for dependency in used.iter().filter(|dependency| is_built_from(from, &dependency.section)) {
            let place =
                Place { path: file.path.clone(), line: dependency.line, what: dependency.package.clone() };
            graph.add(from, folder_of(&dependency.package), place);
        }
    }
    graph
}

/// Tests are what the crates for tests are for.
fn is_built_from(folder: &str, section: &Section) -> bool {
    *section == Section::Product || folder == "e2e"
}

/// `store` for the package `standfast-store`, `server` for `standfast`.
fn folder_of(package: &str) -> &str {
    match package {
        "standfast" => "server",
        other => other.strip_prefix("standfast-").unwrap_or(other),
    }
}

fn manifests(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.files().iter().filter(|file| file.path_in_crate() == Some("Cargo.toml")) {
        let Some(folder) = file.crate_folder() else { continue };
        let Some((_, allowed)) = CRATES.iter().find(|(name, _)| *name == folder) else {
            violations.push(Violation::new(
                &file.path,
                1,
                format!("crates/{folder} has no place in the order of crates"),
                "give it one in CRATES, crates/xtask/src/tidy/order.rs",
            ));
            continue;
        };
        for dependency in dependencies(&file.text) {
            let used = folder_of(&dependency.package);
            let is_ours = CRATES.iter().any(|(name, _)| *name == used)
                && (dependency.package.starts_with("standfast") || used == "xtask");
            let is_for_tests = dependency.section != Section::Product && FOR_TESTS.contains(&used);
            if is_ours && used != folder && !allowed.contains(&used) && !is_for_tests {
                violations.push(Violation::new(
                    &file.path,
                    dependency.line,
                    format!("crates/{folder} uses crates/{used}"),
                    format!("it may use {}; move what is shared down", listed(allowed)),
                ));
            }
        }
    }
    violations
}

fn order(graph: &Graph) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (from, to, places) in graph.edges() {
        let row = ENGINE.iter().find(|(name, _)| *name == from);
        let is_ordered = ENGINE.iter().any(|(name, _)| *name == to);
        if let (Some((_, allowed)), true) = (row, is_ordered)
            && !allowed.contains(&to)
        {
            violations.extend(places.iter().take(PLACES).map(|place| {
                Violation::new(
                    &place.path,
                    place.line,
                    format!("the engine's `{from}` uses `{to}` ({})", place.what),
                    format!("it may use {}; hand it what it needs", listed(allowed)),
                )
            }));
        }
    }
    violations
}

/// A drawing that shows what was true once is worse than none.
fn drawing(repository: &Repository) -> Option<Violation> {
    let file = repository.file(DRAWING)?;
    (file.text != drawn(repository)).then(|| {
        let remedy = format!("draw it again with `cargo xtask tidy --svg {DRAWING}`");
        Violation::new(DRAWING, 1, "the drawing is not what the sources say", remedy)
    })
}

fn cycles(title: &str, graph: &Graph) -> Vec<Violation> {
    let mut violations = Vec::new();
    for cycle in graph.cycles() {
        let is_inside = |name: &str| cycle.iter().any(|one| one == name);
        let edge = |(from, to, places): (&str, &str, &[Place])| {
            let place = places.first()?;
            (is_inside(from) && is_inside(to))
                .then(|| (place.clone(), format!("{from} -> {to} ({})", place.what)))
        };
        let edges: Vec<(Place, String)> = graph.edges().filter_map(edge).collect();
        let Some((first, _)) = edges.first() else { continue };
        let shown: Vec<&str> = edges.iter().take(PLACES).map(|(_, shown)| shown.as_str()).collect();
        violations.push(Violation::new(
            &first.path,
            first.line,
            format!("{title}: {} use each other", cycle.join(", ")),
            format!(
                "cut the thinnest of {} edges, such as {}; `cargo xtask tidy --graph` has them all",
                edges.len(),
                shown.join(", ")
            ),
        ));
    }
    violations
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none of ours".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Repository::of(files)).iter().map(|violation| violation.problem.clone()).collect()
    }

    #[test]
    fn a_crate_uses_what_is_below_it() {
        let uses = |package: &str| {
            format!("[dependencies]\n{package} = \"1\"\n[dev-dependencies]\nstandfast-testkit = \"1\"")
        };
        assert_eq!(
            problems(&[("crates/engine/Cargo.toml", &uses("standfast-surfaces"))]),
            ["crates/engine uses crates/surfaces"]
        );
        assert!(problems(&[("crates/surfaces/Cargo.toml", &uses("standfast-engine"))]).is_empty());
        assert_eq!(
            problems(&[("crates/new/Cargo.toml", "")]),
            ["crates/new has no place in the order of crates"]
        );
    }

    #[test]
    fn the_drawing_is_what_the_sources_say() {
        let manifest = ("crates/core/Cargo.toml", "");
        let drawn = drawn(&Repository::of(&[manifest]));
        assert!(problems(&[manifest, (DRAWING, &drawn)]).is_empty());
        assert_eq!(problems(&[manifest, (DRAWING, "<svg/>")]), ["the drawing is not what the sources say"]);
    }

    #[test]
    fn components_of_the_engine_keep_their_order() {
        let files = [
            ("crates/engine/src/log.rs", "pub struct Log;"),
            ("crates/engine/src/reads.rs", "use crate::commit::Commit;"),
            ("crates/engine/src/commit.rs", "use crate::log::Log; use crate::vocabulary::Error;"),
            ("crates/engine/src/vocabulary.rs", "pub struct Error;"),
        ];
        assert_eq!(problems(&files), ["the engine's `reads` uses `commit` (crate::commit::Commit)"]);
    }

    #[test]
    fn modules_that_use_each_other_are_found() {
        let files = [
            ("crates/server/src/config/mod.rs", "use crate::settings::Settings;"),
            ("crates/server/src/settings.rs", "use crate::config::Span;"),
            ("crates/server/src/lib.rs", "mod config; mod settings;"),
        ];
        assert_eq!(problems(&files), ["modules of crates/server/src: config, settings use each other"]);
    }
}
