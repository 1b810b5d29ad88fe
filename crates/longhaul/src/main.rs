//! Longhaul: moves files over long, lossy links at line rate.

mod wan;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(version, about = "Moves files over long, lossy links at line rate")]
enum Command {
    /// Joins two network namespaces by an emulated WAN, for any program
    Wan(wan::Args),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Wan(args) => wan::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("longhaul: {error:#}");
        ExitCode::FAILURE
    })
}
