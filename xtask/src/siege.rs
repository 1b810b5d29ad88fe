//! `cargo xtask siege`: what the tests try in seconds, for minutes, with seeds of its own.

use anyhow::Result;

use crate::{
    Failure,
    shell::{cargo, succeeds},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Siege,
}

#[derive(clap::Subcommand)]
enum Siege {
    /// Runs FTP sessions with clients, servers and links that stall, half-close, reset and reorder
    Ftp {
        /// Number of sessions
        #[arg(long, default_value_t = 10_000_000)]
        cases: u64,
        /// Seed of the first session; each further one has the next number
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Puts an adversary where the paths between two cores of the link end
    Link,
    /// Puts a peer that lies, withholds and floods beside honest peers of a gateway of the link
    Peer {
        /// Number of sieges
        #[arg(long, default_value_t = 510)]
        cases: u64,
        /// Seed of the first siege; each further one has the next number
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Lets up to 2,000 readers of a link stall beside a healthy transfer and a dialogue
    Stalled,
    /// Ends FTP transfers in nine ways, and compares what the client, the transfer log and the metrics count
    TransferLog {
        /// Number of transfers that end in each way
        #[arg(long, default_value_t = 1_112)]
        rounds: u64,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let mut command = match &arguments.what {
        Siege::Ftp { cases, seed } => {
            let mut command = cargo("test --release -p ftp --test world -- --nocapture".split(' '));
            command
                .env("SIEGE_CASES", cases.to_string())
                .env("SIEGE_SEED", seed.to_string());
            command
        }
        Siege::Link => {
            let line =
                "test --release -p link --features sim --test adversary -- --ignored --nocapture";
            cargo(line.split(' '))
        }
        Siege::Stalled => {
            let line =
                "test --release -p link --features sim --test stalled -- --ignored --nocapture";
            cargo(line.split(' '))
        }
        Siege::Peer { cases, seed } => {
            let line = "test --release -p link --features sim --test siege_peer -- --nocapture";
            let mut command = cargo(line.split(' '));
            command
                .env("SIEGE_CASES", cases.to_string())
                .env("SIEGE_SEED", seed.to_string())
                .env("SIEGE_SECONDS", "6")
                .env("SIEGE_MBIT", "80");
            command
        }
        Siege::TransferLog { rounds } => {
            let line = "test -p gateway --test transfer_log client_log -- --nocapture";
            let mut command = cargo(line.split(' '));
            command.env("SIEGE_ROUNDS", rounds.to_string());
            command
        }
    };
    Ok(match succeeds(&mut command)? {
        true => Ok(()),
        false => Err(Failure::Failed),
    })
}
