//! The `longhaul` program: one binary, with one module for each subcommand.
//!
//! The crate is a library so that man pages, completions and tests can use the definition of the
//! command line ([`command`]). The binary only calls [`run`].

mod admin;
mod age;
mod agent;
mod calc;
mod check;
mod connection_args;
mod copy;
#[cfg(feature = "laboratory")]
mod demo;
mod doctor;
mod document;
mod embedded_gateways;
#[cfg(feature = "laboratory")]
mod eval;
mod exit;
mod filters;
mod gateway;
mod gateway_user;
mod jobs;
mod keygen;
mod laboratory;
mod log;
mod logging;
mod ls;
mod moving;
mod notify;
mod open_files;
mod output;
mod peer;
mod peers;
mod places;
mod probe;
mod pubkey;
mod reload;
mod service;
mod setup;
mod ssh_access;
mod ssh_server;
mod status;
mod store;
mod sync;
mod text_position;
mod top;
mod trace;
mod upgrade;
#[cfg(feature = "laboratory")]
mod wan;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Move files over long, lossy links at line rate
#[derive(Parser)]
#[command(
    name = "longhaul",
    version = env!("LONGHAUL_VERSION"),
    max_term_width = HELP_COLUMNS_MAX,
    subcommand_required = true,
    after_help = EXIT_CODES
)]
struct CommandLine {
    #[command(flatten)]
    logging: logging::LogOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "laboratory")]
    Demo(demo::Args),
    Copy(copy::Args),
    Sync(sync::Args),
    Check(check::Args),
    Ls(ls::Args),
    Agent(agent::Args),
    Jobs(jobs::Args),
    #[command(hide = true)]
    Launch(agent::launch::Args),
    Setup(setup::Args),
    Peer(peer::Args),
    Doctor(doctor::Args),
    Gateway(gateway::Args),
    Status(status::Args),
    Top(top::Args),
    Store(store::Args),
    Reload(reload::Args),
    Upgrade(upgrade::Args),
    Log(log::Args),
    Trace(trace::Args),
    Keygen(keygen::Args),
    Pubkey(pubkey::Args),
    #[cfg(feature = "laboratory")]
    Wan(wan::Args),
    #[cfg(feature = "laboratory")]
    Eval(eval::Args),
    Probe(probe::Args),
    Calc(calc::Args),
    #[cfg(not(feature = "laboratory"))]
    #[command(flatten)]
    Missing(laboratory::MissingCommand),
}

/// Runs the program with the arguments of this process. Returns the exit code: 0 success, 1
/// failure, 2 wrong use or configuration.
pub fn run() -> ExitCode {
    let CommandLine { logging, command } = CommandLine::parse();
    if let Err(error) = logging.start() {
        return exit::tell(&error);
    }
    let done = |()| ExitCode::SUCCESS;
    let result = match command {
        #[cfg(feature = "laboratory")]
        Command::Demo(args) => demo::run(&args).map(done),
        Command::Copy(args) => copy::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Launch(args) => Ok(agent::launch::run(&args)),
        Command::Setup(args) => setup::run(&args).map(done),
        Command::Peer(args) => peer::run(&args).map(done),
        Command::Doctor(args) => doctor::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Status(args) => status::run(&args).map(done),
        Command::Top(args) => top::run(&args).map(done),
        Command::Store(args) => store::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Log(args) => log::run(&args).map(done),
        Command::Trace(args) => trace::run(&args),
        Command::Keygen(args) => keygen::run(&args).map(done),
        Command::Pubkey(args) => pubkey::run(&args).map(done),
        #[cfg(feature = "laboratory")]
        Command::Wan(args) => wan::run(args),
        #[cfg(feature = "laboratory")]
        Command::Eval(args) => eval::run(&args).map(done),
        Command::Probe(args) => probe::run(&args),
        Command::Calc(args) => calc::run(args).map(done),
        #[cfg(not(feature = "laboratory"))]
        Command::Missing(command) => Err(command.call()),
    };
    result.unwrap_or_else(|error| exit::tell(&error))
}

/// Returns the definition of the command line. The definition includes old spellings of options.
pub fn command() -> clap::Command {
    CommandLine::command()
}

/// Maximum length of a line in a help text. Longer lines are hard to read and wrap on an ordinary
/// terminal.
const HELP_COLUMNS_MAX: usize = 100;

const EXIT_CODES: &str = "\
Log messages go to standard error, or to the journal with --log-format journald. --log takes
precedence over -v and -q, which take precedence over the environment variable RUST_LOG. The
default level is info.

Exit codes: 0 done; 1 the work failed; 2 wrong use or configuration; 3 a copy was interrupted.";
