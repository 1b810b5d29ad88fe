//! `longhaul sync SRC DST`: changes a directory so that it equals another directory.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::{Deletion, DeletionMax, JobPurpose};

use crate::moving::{self, CommonArgs, Order, WriteArgs};

/// Make a directory equal to another one
///
/// SRC and DST are paths of this machine or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by
/// AUTH TLS), ftps:// (TLS from the first byte).
///
/// All files that DST lacks, or has with another size or time, are copied; empty directories are
/// made as well. A file replaces a link or an empty directory with its name, and a directory
/// replaces a file.
///
/// With --delete, files at DST that SRC does not have are deleted. This happens at the end, if no
/// failure has occurred, and if --max-delete permits it. Files that filters leave out are kept.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul sync takes/ ftp://me@ftp.example.com/takes
  longhaul sync -n --delete ftp://ftp.example.com//pub/data ./data
  longhaul sync --delete --max-delete 50 --exclude 'cache/' site/ ftpes://me@10.20.0.5/site

Passwords come from --password-file, from the environment variable LONGHAUL_PASSWORD, or from
~/.netrc. On a terminal, longhaul asks for a missing password.

Exit codes: 0 done; 1 something failed, and is named; 2 wrong use; 3 interrupted.")]
pub(crate) struct Args {
    /// The directory to copy
    #[arg(value_name = "SRC")]
    source: OsString,
    /// The directory to make equal to SRC
    #[arg(value_name = "DST")]
    destination: OsString,
    #[command(flatten)]
    writing: WriteArgs,
    /// Delete files at DST that SRC does not have
    #[arg(long)]
    delete: bool,
    /// Delete nothing if more would be deleted than this number of files and directories, or this
    /// share of all at DST [default: 10%, or 10]
    #[arg(long, value_name = "N|PERCENT", requires = "delete")]
    max_delete: Option<DeletionMax>,
    /// Delete also files that filters leave out
    #[arg(long, requires = "delete")]
    delete_excluded: bool,
    /// Accept an empty listing of a directory of SRC, even if DST has files in the directory
    #[arg(long, requires = "delete")]
    trust_empty: bool,
    #[command(flatten)]
    common: CommonArgs,
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
        purpose: JobPurpose::Sync { deletion },
        common: &args.common,
        writing: Some(&args.writing),
        enters_destination: false,
        makes_empty_directories: true,
    }])
}
