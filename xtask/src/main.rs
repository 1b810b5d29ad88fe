//! The commands for contributors and CI, which `cargo xtask --help` lists.
//!
//! Each command prints the commands that it runs. The exit code is 0 on success, and 1 if a command
//! failed. It is 2 if the arguments are wrong or a requirement is missing.

mod architecture;
mod bench;
mod book;
mod browser;
mod changelog;
mod clippy;
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
mod wheels;

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
    about = "Run the checks, tests and builds of contributors and CI"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build and run all tests; the last line states their number
    ///
    /// If the tests need Debian packages that are missing, the command first installs the packages
    /// as root. For any other user, the command names the missing packages and ends with exit code
    /// 2.
    Test(test::Arguments),
    /// Check format, lints, documentation, licences, prose, the changelog, and the architecture in
    /// ARCHITECTURE.md; any warning is an error
    Lint(lint::Arguments),
    /// Count the sentences in comments and documents that break the rules for prose
    ///
    /// The file `xtask/prose-baseline.toml` contains the permitted count of each crate and
    /// document. A permitted count may only fall.
    Prose(prose::Arguments),
    /// Run a benchmark
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Fuzz the parsers of network input and other untrusted input
    Fuzz(fuzz::Arguments),
    /// Run the short random trials of the tests much longer: millions of sessions, and an adversary
    Siege(siege::Arguments),
    /// Run the tests in `conformance/`, with real clients and servers over an emulated WAN (root
    /// only)
    Conformance(conformance::Arguments),
    /// Run 121,000 file transfers and a million FTP commands in 32 sessions, and count failures,
    /// memory and descriptors (root only); 1 h
    Soak {
        /// Arguments for the script: `-- --quick`, `-- --write`, `-- --seconds N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Cause outages, crashes, full disks, clock changes and exceeded limits during transfers, and
    /// check the clients' results (root only); 40 min
    Faults {
        /// Arguments for the script: `-- --quick`, `-- --write`, `-- --only TEXT`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Install the programs that a plan of `plans/` compares, and run the plan; also check the
    /// results of `smoke`
    Eval(eval::Arguments),
    /// Write man pages, and completions for bash, zsh and fish
    Man(man::Arguments),
    /// Build the documents into a book with mdBook, and check their links and command lines
    ///
    /// The command writes the pages to the folder `book` in cargo's target folder.
    Book(book::Arguments),
    /// Draw the picture of the README from the results
    Picture,
    /// Build the Debian packages longhaul and longhaul-lab, and an archive for other distributions
    Package(package::Arguments),
    /// Make a release: version, changelog, packages, source archive, checksums (see RELEASING.md)
    ///
    /// The working tree must have no uncommitted changes. The command makes no tag and no
    /// signature, and does not publish the release. It prints these remaining steps.
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
