//! The commands for contributors and CI, which `cargo xtask --help` lists.
//!
//! Each command prints the commands that it runs. The exit code is 0 on success, and 1 if a command
//! failed. It is 2 if the arguments are wrong or a requirement is missing.

mod architecture;
mod bench;
mod book;
mod browser;
mod changelog;
mod conformance;
mod eval;
mod fuzz;
mod lint;
mod man;
mod manifests;
mod package;
mod packages;
mod picture;
mod previous;
mod prose;
mod release;
mod sbom;
mod shell;
mod siege;
mod test;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Reason why a command did not succeed.
#[derive(Debug)]
enum Failure {
    /// A command has failed and has printed the reason.
    Failed,
    /// A requirement is missing. A printed message names the requirement.
    Missing,
}

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "The commands that contributors and CI both run"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds and runs every test; the last line counts them
    ///
    /// As root, Debian packages that the tests need are installed first. Otherwise the missing ones
    /// are named, and the exit code is 2.
    Test(test::Arguments),
    /// Checks format, lints, documentation, licences, prose, the changelog, and the tree against
    /// ARCHITECTURE.md; no warning is let through
    Lint(lint::Arguments),
    /// Counts sentences of comments and documents that break the rules for prose
    ///
    /// Each crate and document has a number in `xtask/prose-baseline.toml`, which may only fall.
    Prose(prose::Arguments),
    /// Runs a benchmark
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Fuzzes the parsers of bytes from outside
    Fuzz(fuzz::Arguments),
    /// Runs the short trials of the tests for minutes: millions of sessions, an adversary
    Siege(siege::Arguments),
    /// Runs the tests in `conformance/`: real clients and servers over an emulated WAN (root only)
    Conformance(conformance::Arguments),
    /// 121,000 file transfers and a million FTP commands by 32 sessions: failures, memory,
    /// descriptors (root only); an hour
    Soak {
        /// Passed on: `-- --quick`, `-- --write`, `-- --seconds N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Outages, deaths, full disks, clocks and limits during transfers: results of clients (root
    /// only); 40 min
    Faults {
        /// Passed on: `-- --quick`, `-- --write`, `-- --only TEXT`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Runs a plan of `plans/` with its peers installed; `smoke` is checked, too
    Eval(eval::Arguments),
    /// Writes man pages, and completions for bash, zsh and fish
    Man(man::Arguments),
    /// Builds the documents into a book with mdBook, and checks their links and command lines
    ///
    /// The pages are in the folder `book` of cargo's target folder.
    Book(book::Arguments),
    /// Draws the picture of the README from the results
    Picture,
    /// Builds the Debian packages longhaul and longhaul-lab, and an archive for other distributions
    Package(package::Arguments),
    /// Makes a release: version, changelog, packages, source archive, checksums (RELEASING.md)
    ///
    /// The tree must be clean. Tag, signature and publication are left to do by hand, and printed.
    Release(release::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Command::Test(arguments) => test::run(arguments),
        Command::Lint(arguments) => lint::run(arguments),
        Command::Prose(arguments) => prose::run(arguments),
        Command::Bench(bench) => bench::run(bench),
        Command::Fuzz(arguments) => fuzz::run(arguments),
        Command::Siege(arguments) => siege::run(arguments),
        Command::Conformance(arguments) => conformance::run(arguments),
        Command::Soak { arguments } => bench::measure(bench::Script::Soak, arguments),
        Command::Faults { arguments } => bench::measure(bench::Script::Faults, arguments),
        Command::Eval(arguments) => eval::run(arguments),
        Command::Man(arguments) => man::run(arguments),
        Command::Book(arguments) => book::run(arguments),
        Command::Picture => picture::run(),
        Command::Package(arguments) => package::run(arguments),
        Command::Release(arguments) => release::run(arguments),
    };
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Failure::Failed)) => ExitCode::from(1),
        Ok(Err(Failure::Missing)) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
