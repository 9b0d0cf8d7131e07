//! Rule: who may depend on whom. Crates: core <- store <- server. Inside server: surfaces -> engine -> the
//! rest.
//!
//! Three fences: the dependencies of each crate, the paths between the modules of server, and the parts of
//! the world that core must not reach. The reasons are in `ARCHITECTURE.md`.

use super::cargo_manifest::{Section, dependencies};
use super::repository::{Repository, SourceFile};
use super::rust_paths::{NamedPath, Origin, named_paths};
use super::violation::Violation;

/// All that core may be built from.
const CORE_DEPENDENCIES: &[&str] = &["serde", "serde_json", "sha2"];

/// A crate of ours and those of ours that it must not know, not even in its tests.
const NOT_UPWARDS: &[(&str, &[&str])] = &[
    ("core", &["standfast-store", "standfast", "xtask"]),
    ("store", &["standfast", "xtask"]),
    ("server", &["xtask"]),
];

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
            (Some("server"), Some(path)) => {
                let checked = source_path(file, path).map(|source| server(repository, source));
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
                format!("crates/{folder} depends on {package}, which is above it"),
                "the direction is core <- store <- server; move what is shared down",
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

fn server(repository: &Repository, source: Source<'_>) -> Vec<Violation> {
    let Source { file, path_in_src } = source;
    let top = path_in_src.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let paths = named_paths(&file.text, path_in_src);
    let found = paths.iter().filter_map(|path| {
        let (problem, remedy) = match top {
            "engine" => engine_edge(path)?,
            "surface" => surface_edge(repository, path_in_src, path)?,
            _ => return None,
        };
        Some(Violation::new(&file.path, path.line, problem, remedy))
    });
    found.collect()
}

fn engine_edge(path: &NamedPath) -> Option<(String, &'static str)> {
    path.starts_with(&["crate", "surface"]).then(|| {
        (
            format!("the engine uses {}", path.shown()),
            "surfaces call the engine, never the other way; speak core types here",
        )
    })
}

fn surface_edge(
    repository: &Repository,
    path_in_src: &str,
    path: &NamedPath,
) -> Option<(String, &'static str)> {
    if path.starts_with(&["crate", "model"]) || path.starts_with(&["standfast_store"]) {
        let problem = format!("a surface uses {}", path.shown());
        return Some((problem, "a surface maps its protocol to one engine call; let the engine do this"));
    }
    let here = surface_of(path_in_src)?;
    if !path.starts_with(&["crate", "surface"]) {
        return None;
    }
    let opens_all_surfaces =
        path.origin == Origin::Use && path.segments.get(2).is_none_or(|third| third == "*");
    if opens_all_surfaces {
        let problem = format!("surface `{here}` imports {}, and with it every other surface", path.shown());
        return Some((problem, "import the item that is needed, by its full path"));
    }
    let there = path.segments.get(2)?;
    let other = there != here && is_surface(repository, there);
    other.then(|| {
        (
            format!("surface `{here}` uses surface `{there}` ({})", path.shown()),
            "a surface must be removable by deleting its folder; move what both need out of `surface/`",
        )
    })
}

/// `a2a` for `surface/a2a/map.rs` and for `surface/a2a.rs`; nothing for `surface/mod.rs`, which lists them
/// all.
fn surface_of(path_in_src: &str) -> Option<&str> {
    let name = path_in_src.strip_prefix("surface/")?.split('/').next()?.trim_end_matches(".rs");
    (name != "mod").then_some(name)
}

/// Whether `crate::surface::name` is a module of its own and not an item of `surface/mod.rs`.
fn is_surface(repository: &Repository, name: &str) -> bool {
    let module = format!("crates/server/src/surface/{name}");
    repository.has_file_or_folder(&module) || repository.file(&format!("{module}.rs")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    fn found(path: &str, text: &str) -> Vec<String> {
        let others = ["a2a", "teal"].map(|name| format!("crates/server/src/surface/{name}/wire.rs"));
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
        let expected = ["crates/store depends on standfast, which is above it"];
        assert_eq!(found("crates/store/Cargo.toml", manifest), expected);
        assert!(found("crates/server/Cargo.toml", manifest).is_empty());
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
        let path = "crates/server/src/surface/teal/map.rs";
        assert_eq!(found(path, "use crate::surface::a2a::wire::Task;").len(), 1);
        assert_eq!(found(path, "fn f(task: super::super::a2a::wire::Task) {}").len(), 1);
        assert_eq!(found(path, "use crate::surface;").len(), 1);
        assert!(found(path, "use super::wire::Task; use crate::surface::teal::wire;").is_empty());
        assert!(found(path, "use crate::surface::Problem; pub(in crate::surface) fn f() {}").is_empty());
    }

    #[test]
    fn the_versions_of_a_protocol_are_one_surface() {
        let older = "crates/server/src/surface/a2a/v03/map.rs";
        assert!(found(older, "use super::super::wire; use crate::surface::a2a::map;").is_empty());
    }

    #[test]
    fn surfaces_know_neither_models_nor_the_store() {
        let path = "crates/server/src/surface/api/routes.rs";
        let source = "use crate::engine::Engine;\nuse crate::model::Model;\nuse standfast_store::Store;";
        let expected = ["a surface uses crate::model::Model", "a surface uses standfast_store::Store"];
        assert_eq!(found(path, source), expected);
        assert!(found("crates/server/src/engine/worker.rs", source).is_empty());
    }

    #[test]
    fn the_engine_does_not_know_the_surfaces() {
        let path = "crates/server/src/engine/submit.rs";
        let violations = check(&Repository::of(&[(path, "\nuse crate::{model, surface::api};")]));
        assert_eq!(places(&violations), ["crates/server/src/engine/submit.rs:2"]);
        assert!(found("crates/server/src/main.rs", "use crate::surface::api;").is_empty());
    }
}
