//! The `longhaul` program: one binary, one subcommand for each job.
//!
//! Exit codes: 0 done, 1 the work failed, 2 wrong use or configuration.

mod calc;
#[cfg(feature = "laboratory")]
mod demo;
#[cfg(feature = "laboratory")]
mod eval;
mod gateway;
mod keygen;
mod laboratory;
mod output;
mod probe;
mod pubkey;
mod status;
#[cfg(feature = "laboratory")]
mod wan;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::Parser;

#[derive(Parser)]
#[command(version = env!("LONGHAUL_VERSION"), about = "Moves files over long, lossy links at line rate")]
enum Command {
    /// Move a file plainly and accelerated over an emulated WAN, and compare
    ///
    /// Needs nothing installed and nothing configured. Takes about two minutes.
    #[cfg(feature = "laboratory")]
    Demo(demo::Args),
    /// Run a gateway
    ///
    /// SIGTERM and SIGINT end it when its transfers are done, after 10 s at the latest. SIGHUP makes it read
    /// the file again and take on a changed `rate_max`, in the midst of transfers; all else in the file
    /// waits for a restart, and a log line says so.
    Gateway(gateway::Args),
    /// Say what a running gateway is doing
    Status(status::Args),
    /// Write a new identity and print its public key
    Keygen(keygen::Args),
    /// Print the public key of an identity
    Pubkey(pubkey::Args),
    /// Joins two network namespaces by an emulated WAN, for any program
    #[cfg(feature = "laboratory")]
    Wan(wan::Args),
    #[cfg(feature = "laboratory")]
    Eval(eval::Args),
    Probe(probe::Args),
    /// Calculates what a path allows: windows, rates, loss limits, times; each with its formula
    Calc(calc::Args),
    #[cfg(not(feature = "laboratory"))]
    #[command(flatten)]
    Absent(laboratory::Absent),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,libunftp=off,suppaftp=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let done = |()| ExitCode::SUCCESS;
    let result = match Command::parse() {
        #[cfg(feature = "laboratory")]
        Command::Demo(args) => demo::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Status(args) => status::run(&args).map(done),
        Command::Keygen(args) => keygen::run(&args).map(done),
        Command::Pubkey(args) => pubkey::run(&args).map(done),
        #[cfg(feature = "laboratory")]
        Command::Wan(args) => wan::run(args),
        #[cfg(feature = "laboratory")]
        Command::Eval(args) => eval::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Calc(args) => calc::run(args).map(done),
        #[cfg(not(feature = "laboratory"))]
        Command::Absent(command) => Ok(command.explain()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("longhaul: {error:#}");
        ExitCode::FAILURE
    })
}
