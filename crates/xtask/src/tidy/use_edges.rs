//! Rule: who may depend on whom. Crates: core <- store <- engine <- models, tools, surfaces <- server.
//!
//! Three fences: the dependencies of each crate, the paths between the surfaces, and the parts of the world
//! that core must not reach. The reasons are in `ARCHITECTURE.md`.

use super::cargo_manifest::{Section, dependencies};
use super::repository::{Repository, SourceFile};
use super::rust_paths::{NamedPath, Origin, named_paths};
use super::violation::Violation;

/// All that core may be built from.
const CORE_DEPENDENCIES: &[&str] = &["serde", "serde_json", "sha2"];

/// A crate of ours and those of ours that it must not know, not even in its tests.
const NOT_UPWARDS: &[(&str, &[&str])] = &[
    ("core", &["standfast-store", "standfast-engine", MODELS, TOOLS, SURFACES, "standfast", "xtask"]),
    ("store", &["standfast-engine", MODELS, TOOLS, SURFACES, "standfast", "xtask"]),
    ("engine", &[MODELS, TOOLS, SURFACES, "standfast", "xtask"]),
    ("models", &["standfast-store", TOOLS, SURFACES, "standfast", "xtask"]),
    ("tools", &["standfast-store", MODELS, SURFACES, "standfast", "xtask"]),
    ("surfaces", &["standfast-store", MODELS, TOOLS, "standfast", "xtask"]),
    ("server", &["xtask"]),
];

const MODELS: &str = "standfast-models";
const TOOLS: &str = "standfast-tools";
const SURFACES: &str = "standfast-surfaces";

/// What surfaces share; everything else at the root of their crate is a surface.
const SHARED_BY_SURFACES: &[&str] = &["html", "http", "jwt", "lib", "labels"];

/// What core must not name: clocks, files, network, threads, randomness.
const CORE_MUST_NOT_NAME: &[&[&str]] =
    &[&["std", "fs"], &["std", "net"], &["std", "thread"], &["tokio"], &["rand"]];

/// Types that core must not name, however they were imported.
const CORE_MUST_NOT_USE: &[&str] = &["SystemTime", "Instant"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.files() {
        match (file.crate_folder(), file.path_in_crate()) {
            (Some(folder), Some("Cargo.toml")) => violations.extend(manifest(file, folder)),
            (Some("core"), Some(path)) => {
                violations.extend(source_path(file, path).map(core).unwrap_or_default())
            }
            (Some("surfaces"), Some(path)) => {
                let checked = source_path(file, path).map(|source| surfaces(repository, source));
                violations.extend(checked.unwrap_or_default());
            }
            (Some(_), _) | (None, _) => {}
        }
    }
    violations
}

/// A file of a crate with its path from the crate's `src`.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a SourceFile,
    path_in_src: &'a str,
}

fn source_path<'a>(file: &'a SourceFile, path_in_crate: &'a str) -> Option<Source<'a>> {
    let path_in_src = path_in_crate.strip_prefix("src/")?;
    file.is_rust().then_some(Source { file, path_in_src })
}

fn manifest(file: &SourceFile, folder: &str) -> Vec<Violation> {
    let upwards = NOT_UPWARDS.iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, above)| above);
    let mut violations = Vec::new();
    for dependency in dependencies(&file.text) {
        let package = dependency.package.as_str();
        if upwards.contains(&package) {
            violations.push(Violation::new(
                &file.path,
                dependency.line,
                format!("crates/{folder} depends on {package}, which it must not know"),
                "the direction is core <- store <- engine <- models, tools, surfaces <- server; move what is shared down",
            ));
        } else if folder == "core"
            && dependency.section == Section::Product
            && !CORE_DEPENDENCIES.contains(&package)
        {
            violations.push(Violation::new(
                &file.path,
                dependency.line,
                format!("core depends on {package}"),
                format!(
                    "core is built from {} only; put the code that needs more into store or server",
                    CORE_DEPENDENCIES.join(", ")
                ),
            ));
        }
    }
    violations
}

fn core(source: Source<'_>) -> Vec<Violation> {
    let Source { file, path_in_src } = source;
    let forbidden = |path: &NamedPath| {
        CORE_MUST_NOT_NAME.iter().any(|start| path.starts_with(start))
            || path.segments.iter().any(|segment| CORE_MUST_NOT_USE.contains(&segment.as_str()))
    };
    let paths = named_paths(&file.text, path_in_src);
    let named = paths.iter().filter(|path| forbidden(path));
    named
        .map(|path| {
            Violation::new(
                &file.path,
                path.line,
                format!("core names {}", path.shown()),
                "core has no clock, no randomness and no IO; take what is needed as an argument",
            )
        })
        .collect()
}

fn surfaces(repository: &Repository, source: Source<'_>) -> Vec<Violation> {
    let Source { file, path_in_src } = source;
    let Some(here) = surface_of(path_in_src) else { return Vec::new() };
    let paths = named_paths(&file.text, path_in_src);
    let found = paths.iter().filter_map(|path| {
        let (problem, remedy) = surface_edge(repository, here, path)?;
        Some(Violation::new(&file.path, path.line, problem, remedy))
    });
    found.collect()
}

fn surface_edge(repository: &Repository, here: &str, path: &NamedPath) -> Option<(String, &'static str)> {
    if !path.starts_with(&["crate"]) {
        return None;
    }
    let opens_all_surfaces =
        path.origin == Origin::Use && path.segments.get(1).is_none_or(|second| second == "*");
    if opens_all_surfaces {
        let problem = format!("surface `{here}` imports {}, and with it every other surface", path.shown());
        return Some((problem, "import the item that is needed, by its full path"));
    }
    let there = path.segments.get(1)?;
    let other = there != here && is_surface(repository, there);
    other.then(|| {
        (
            format!("surface `{here}` uses surface `{there}` ({})", path.shown()),
            "a surface must be removable by deleting its folder; move what both need to `http` or the engine",
        )
    })
}

/// `a2a` for `a2a/map.rs` and for `a2a.rs`; nothing for what the surfaces share.
fn surface_of(path_in_src: &str) -> Option<&str> {
    let name = path_in_src.split('/').next()?.trim_end_matches(".rs");
    (!SHARED_BY_SURFACES.contains(&name)).then_some(name)
}

/// Whether `crate::name` is a surface, and neither shared nor an item of the root.
fn is_surface(repository: &Repository, name: &str) -> bool {
    let module = format!("crates/surfaces/src/{name}");
    !SHARED_BY_SURFACES.contains(&name)
        && (repository.has_file_or_folder(&module) || repository.file(&format!("{module}.rs")).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let others = ["a2a", "teal", "http"].map(|name| format!("crates/surfaces/src/{name}/wire.rs"));
        let mut files: Vec<(&str, &str)> = others.iter().map(|other| (other.as_str(), "")).collect();
        files.push((path, text));
        check(&Repository::of(&files)).iter().map(|violation| violation.problem.clone()).collect()
    }

    #[test]
    fn core_has_three_dependencies() {
        let manifest = "[dependencies]\nserde = \"1\"\ntokio = \"1\"\n[dev-dependencies]\nproptest = \"1\"";
        assert_eq!(found("crates/core/Cargo.toml", manifest), ["core depends on tokio"]);
    }

    #[test]
    fn no_crate_depends_on_one_above_it() {
        let manifest =
            "[dependencies]\nstandfast-core = { path = \"../core\" }\n[dev-dependencies]\nstandfast = \"1\"";
        let expected = ["crates/store depends on standfast, which it must not know"];
        assert_eq!(found("crates/store/Cargo.toml", manifest), expected);
        assert!(found("crates/server/Cargo.toml", manifest).is_empty());
        let sideways = "[dependencies]\nstandfast-engine = { path = \"../engine\" }\nstandfast-tools = \"1\"";
        let expected = ["crates/surfaces depends on standfast-tools, which it must not know"];
        assert_eq!(found("crates/surfaces/Cargo.toml", sideways), expected);
    }

    #[test]
    fn core_does_not_reach_the_world() {
        let source = "use std::{collections::BTreeMap, fs, time::{Duration, SystemTime}};\n// tokio::spawn\n\
            fn f() { let now = Instant::now(); rand::random(); std::thread::sleep(x) }";
        let expected = [
            "core names std::fs",
            "core names std::time::SystemTime",
            "core names Instant::now",
            "core names rand::random",
            "core names std::thread::sleep",
        ];
        assert_eq!(found("crates/core/src/run.rs", source), expected);
        assert!(found("crates/core/tests/golden.rs", source).is_empty());
    }

    #[test]
    fn surfaces_do_not_use_each_other() {
        let path = "crates/surfaces/src/teal/map.rs";
        assert_eq!(found(path, "use crate::a2a::wire::Task;").len(), 1);
        assert_eq!(found(path, "fn f(task: super::super::a2a::wire::Task) {}").len(), 1);
        assert_eq!(found(path, "use crate::*;").len(), 1);
        assert!(found(path, "use super::wire::Task; use crate::teal::wire;").is_empty());
        assert!(found(path, "use crate::http::Problem; pub(crate) fn f() {}").is_empty());
        assert!(found("crates/surfaces/src/http/app.rs", "use crate::html;").is_empty());
    }

    #[test]
    fn the_versions_of_a_protocol_are_one_surface() {
        let older = "crates/surfaces/src/a2a/v03/map.rs";
        assert!(found(older, "use super::super::wire; use crate::a2a::map;").is_empty());
    }

    #[test]
    fn neither_surfaces_nor_tools_know_the_store() {
        let manifest = "[dependencies]\nstandfast-store = { path = \"../store\" }";
        for (folder, allowed) in [("surfaces", 0), ("models", 0), ("tools", 0), ("engine", 1), ("server", 1)]
        {
            let problems = found(&format!("crates/{folder}/Cargo.toml"), manifest);
            assert_eq!(problems.len(), 1 - allowed, "{folder}: {problems:?}");
        }
    }

    #[test]
    fn surfaces_know_neither_models_nor_the_store() {
        for below in [MODELS, "standfast-store"] {
            let manifest = format!("[dependencies]\nstandfast-engine = \"1\"\n{below} = \"1\"");
            let expected = [format!("crates/surfaces depends on {below}, which it must not know")];
            assert_eq!(found("crates/surfaces/Cargo.toml", &manifest), expected);
        }
    }

    #[test]
    fn the_engine_does_not_know_the_surfaces() {
        let manifest = "[dev-dependencies]\nstandfast-surfaces = \"1\"";
        let expected = ["crates/engine depends on standfast-surfaces, which it must not know"];
        assert_eq!(found("crates/engine/Cargo.toml", manifest), expected);
    }
}
