//! `longhaul probe`: measurements of the path between two machines, and of middleboxes on the path.

mod bulk;
mod compare;
mod ftp;
mod options;
mod ping;
mod serve;
mod show;
mod tcp;
mod transaction;
mod udp;

use std::process::ExitCode;

use probe::ProbeError;

use crate::exit::wrong_use;

/// Measure the network, or a pair of gateways, between two machines
///
/// Each measurement makes a record of each attempt, including failed attempts. The command
/// calculates summaries and plots from the records.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    Ftp(Box<ftp::Args>),
    Transaction(transaction::Args),
    Compare(compare::Args),
    Bulk(bulk::Args),
    Ping(ping::Args),
    Tcp(tcp::Args),
    Udp(udp::Args),
    Serve(serve::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let done = match &args.subcommand {
        Subcommand::Ftp(args) => ftp::run(args),
        Subcommand::Transaction(args) => transaction::run(args),
        Subcommand::Compare(args) => compare::run(args),
        Subcommand::Bulk(args) => bulk::run(args),
        Subcommand::Ping(args) => ping::run(args),
        Subcommand::Tcp(args) => tcp::run(args),
        Subcommand::Udp(args) => udp::run(args),
        Subcommand::Serve(args) => serve::run(args),
    };
    match done {
        Ok(Verdict::Good) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::SomeFailed) => Ok(ExitCode::FAILURE),
        Err(error) => Err(match error.downcast_ref::<ProbeError>() {
            Some(ProbeError::Invalid(_)) => wrong_use(error),
            _ => error,
        }),
    }
}

/// Result of a completed measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    SomeFailed,
}

impl Verdict {
    fn of(is_good: bool) -> Self {
        if is_good {
            Self::Good
        } else {
            Self::SomeFailed
        }
    }
}

/// Default port of `longhaul probe serve`.
const PEER_PORT: u16 = 4811;

const EXAMPLES: &str = "\
Examples:
  longhaul probe serve                                  at one place
  longhaul probe tcp 10.77.0.2 -P 4 -t 20               at the other place
  longhaul probe ftp ftp.example.org";
