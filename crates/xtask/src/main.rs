//! `cargo xtask`: the repository's own commands, so that a person and CI run the same thing.
//!
//! Knows how to build, check and measure the product, never how the product works. `commands.rs` has the list
//! of subcommands, `test.rs` what CI does, `product.rs` the program that is tested, `long_runs.rs` what takes too long for it, `fuzz.rs` parsers and libFuzzer, `tidy/` the rules that a
//! compiler cannot check, `book.rs` the guide, `dist.rs` what is shipped,
//! `upgrade.rs` an upgrade of two real programs, `clients.rs` the packages for Python and TypeScript.

mod book;
mod clients;
mod commands;
mod dist;
mod fuzz;
mod long_runs;
mod needs;
mod package_stamp;
mod process;
mod product;
mod test;
mod tidy;
mod upgrade;

use std::process::ExitCode;

use anyhow::Result;

use commands::Command;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let command = commands::parse(std::env::args_os().skip(1))?;
    if command == Command::Help {
        print!("{}", commands::help());
        return Ok(());
    }
    let root = process::repository_root()?;
    match command {
        Command::Help => Ok(()),
        Command::Test => test::run(&root),
        Command::Bench(arguments) => long_runs::bench(&root, &arguments),
        Command::Faults(arguments) => long_runs::faults(&root, &arguments),
        Command::Fuzz(arguments) => fuzz::fuzz(&root, &arguments),
        Command::Tidy => tidy::check(&root),
        Command::TidyMissing => tidy::missing(&root),
        Command::TidyTests => tidy::write_tests(&root),
        Command::TidyGraph => tidy::show_graph(&root),
        Command::TidySvg(file) => tidy::draw_graph(&root, file.as_ref()),
        Command::Product => product::build(&root).map(|path| println!("{}", path.display())),
        Command::Dist(options) => dist::run(&root, &options),
        Command::UpgradeCheck(arguments) => upgrade::run(&root, &arguments),
        Command::Clients => clients::run(&root),
        Command::Book => book::build_and_check(&root),
        Command::Screenshots => test::take_screenshots(&root),
    }
}
