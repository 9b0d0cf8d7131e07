//! `cargo xtask tidy`: the rules of this repository that no compiler checks, one file for each rule.
//!
//! A rule is a pure function from the repository's files to violations, so its tests are small pieces of
//! text. The list of rules is in `rules.rs`. `repository.rs` reads the files; `rust_tokens.rs`,
//! `rust_paths.rs`, `cargo_manifest.rs` and `markdown.rs` read what is in them, no more than the rules need;
//! `graph/` computes who uses whom.

mod cargo_manifest;
mod code_map;
mod error_texts;
mod file_length;
mod graph;
mod guides;
mod links;
mod markdown;
mod module_docs;
mod named_sources;
mod no_leftovers;
mod old_name;
mod order;
mod product_only;
mod readme_commands;
mod repository;
mod requirement_numbers;
mod requirement_table;
mod requirements;
mod rules;
mod rust_paths;
mod rust_tokens;
mod script_budget;
mod threats;
mod type_methods;
mod type_names;
mod use_edges;
mod violation;
mod write_path;

pub(crate) use rules::{check, draw_graph, missing, show_graph, write_tests};
