//! `longhaul check SRC DST`: comparison of two directories or two files.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::JobPurpose;

use crate::moving::{self, CommonArgs, Order};

/// Compare two directories, or two files
///
/// SRC and DST are local paths or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by AUTH TLS),
/// ftps:// (TLS from the first byte), sftp:// (SSH). The command changes no file.
///
/// The command compares the size and time of each file, or with --checksum the size and content. It
/// prints each file that differs, is missing at DST, or exists only at DST.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul check takes/ ftp://me@ftp.example.com/takes
  longhaul check --checksum ftp://ftp.example.com//pub/data ./data

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD. On a terminal, longhaul asks for a missing password. For sftp://, longhaul first
tries the keys of the agent and of ~/.ssh.

Exit codes: 0 SRC and DST are the same; 1 SRC and DST differ, or a comparison failed; 2 wrong use;
3 interrupted.")]
pub(crate) struct Args {
    /// Directory or file to compare with DST
    #[arg(value_name = "SRC")]
    source: OsString,
    /// Directory or file to compare with SRC
    #[arg(value_name = "DST")]
    destination: OsString,
    /// Compare the content of files instead of their times; the command reads the files at SRC and
    /// DST
    #[arg(long)]
    checksum: bool,
    /// Also report directories of SRC that are missing at DST, even if they contain no files
    #[arg(long)]
    empty_dirs: bool,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    moving::run(&[Order {
        sources: std::slice::from_ref(&args.source),
        destination: &args.destination,
        purpose: JobPurpose::Check {
            compares_content: args.checksum,
        },
        common: &args.common,
        writing: None,
        enters_destination: false,
        makes_empty_directories: args.empty_dirs,
    }])
}
