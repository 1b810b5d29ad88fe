//! `longhaul sync SRC DST`: changes a directory so that it equals another directory.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::{Deletion, DeletionMax, JobPurpose};

use crate::moving::{self, CommonArgs, Order, WriteArgs};

/// Make a directory equal to another directory
///
/// SRC and DST are local paths or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by AUTH TLS),
/// ftps:// (TLS from the first byte), sftp:// (SSH).
///
/// The command copies each file of SRC that is missing at DST, or has another size or time at DST.
/// It also creates empty directories. A file of SRC replaces a link or an empty directory with the
/// same name. A directory of SRC replaces a file with the same name.
///
/// With --delete, the command also deletes files and directories at DST that SRC does not have. It
/// deletes at the end, and only if no failure has occurred and --max-delete permits the number. It
/// keeps files at DST that filters exclude.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul sync takes/ ftp://me@ftp.example.com/takes
  longhaul sync -n --delete ftp://ftp.example.com//pub/data ./data
  longhaul sync --delete --max-delete 50 --exclude 'cache/' site/ ftpes://me@10.20.0.5/site

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD. On a terminal, longhaul asks for a missing password. For sftp://, longhaul first
tries the keys of the agent and of ~/.ssh.

Exit codes: 0 done; 1 a failure, which the output names; 2 wrong use; 3 interrupted.")]
pub(crate) struct Args {
    /// Directory to copy
    #[arg(value_name = "SRC")]
    source: OsString,
    /// Directory to make equal to SRC
    #[arg(value_name = "DST")]
    destination: OsString,
    #[command(flatten)]
    writing: WriteArgs,
    /// Delete files and directories at DST that SRC does not have
    #[arg(long)]
    delete: bool,
    /// Maximum number of deleted files and directories, or maximum share of DST; above the limit,
    /// delete nothing [default: 10%, but at least 10]
    #[arg(long, value_name = "N|PERCENT", requires = "delete")]
    max_delete: Option<DeletionMax>,
    /// Also delete files at DST that filters exclude
    #[arg(long, requires = "delete")]
    delete_excluded: bool,
    /// Accept an empty directory of SRC even if the same directory at DST has files
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
