//! `longhaul probe`: measurements between two places, with whatever lies between them.

mod compare;
mod ftp;
mod options;
mod show;
mod transaction;

use std::process::ExitCode;

use clap::Subcommand;
use lab::probe::ProbeError;

/// Measures what lies between two places: the network, or a pair of gateways
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Ftp(Box<ftp::Args>),
    Transaction(transaction::Args),
    Compare(compare::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let done = match &args.what {
        What::Ftp(args) => ftp::run(args),
        What::Transaction(args) => transaction::run(args),
        What::Compare(args) => compare::run(args),
    };
    match done {
        Ok(Verdict::Good) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::SomeFailed) => Ok(ExitCode::FAILURE),
        Err(error) if is_wrong_use(&error) => {
            eprintln!("longhaul: {error:#}");
            Ok(ExitCode::from(2))
        }
        Err(error) => Err(error),
    }
}

fn is_wrong_use(error: &anyhow::Error) -> bool {
    let invalid = error.downcast_ref::<ProbeError>();
    error.downcast_ref::<options::WrongUse>().is_some()
        || invalid.is_some_and(|error| matches!(error, ProbeError::Invalid(_)))
}

/// What came of a measurement that could be made.
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
