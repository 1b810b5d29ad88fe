//! `longhaul sync SRC DST`: makes a directory as another one is.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::{Deletion, DeletionMax, Purpose};

use crate::moving::{self, Common, Order, Writing};

/// Make a directory as another one is
///
/// SRC and DST are paths of this machine or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by
/// AUTH TLS), ftps:// (TLS from the first byte).
///
/// Everything is copied that DST has not with the same size and time, empty directories as well. A
/// file takes the place of a link or an empty directory with its name, a directory that of a file.
///
/// With --delete everything goes that SRC does not have: at last, if nothing has failed, and if it is
/// not more than --max-delete. What filters leave out stays.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul sync takes/ ftp://me@ftp.example.com/takes
  longhaul sync -n --delete ftp://ftp.example.com//pub/data ./data
  longhaul sync --delete --max-delete 50 --exclude 'cache/' site/ ftpes://me@10.20.0.5/site

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD. On a terminal a missing one is asked for.

Exit codes: 0 done; 1 something failed, and is named; 2 wrong use; 3 interrupted.")]
pub(crate) struct Args {
    /// What DST is to become
    #[arg(value_name = "SRC")]
    source: OsString,
    /// What becomes as SRC is
    #[arg(value_name = "DST")]
    destination: OsString,
    #[command(flatten)]
    writing: Writing,
    /// Delete at DST what SRC does not have
    #[arg(long)]
    delete: bool,
    /// Delete nothing at all if more than this would go: a number of files and directories, or a share
    /// of those of DST [default: 10%, or 10 of them]
    #[arg(long, value_name = "N|PERCENT", requires = "delete")]
    max_delete: Option<DeletionMax>,
    /// Delete also what filters leave out
    #[arg(long, requires = "delete")]
    delete_excluded: bool,
    /// Take a directory of SRC that lists nothing for empty, also where DST has files in it
    #[arg(long, requires = "delete")]
    trust_empty: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let deletion = args.delete.then_some(Deletion {
        max: args.max_delete.unwrap_or_default(),
        takes_excluded: args.delete_excluded,
        trusts_empty: args.trust_empty,
    });
    moving::run(&[Order {
        sources: std::slice::from_ref(&args.source),
        destination: &args.destination,
        purpose: Purpose::Sync { deletion },
        common: &args.common,
        writing: Some(&args.writing),
        enters_destination: false,
        makes_empty_directories: true,
    }])
}
