//! `longhaul check SRC DST`: comparison of two directories or two files.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::JobPurpose;

use crate::moving::{self, CommonArgs, Order};

/// Compare two directories, or two files
///
/// SRC and DST are paths of this machine or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by
/// AUTH TLS), ftps:// (TLS from the first byte). Nothing is changed.
///
/// Files are compared by size and time, with --checksum by size and content. Each file that
/// differs, is missing at DST, or exists only at DST is named.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul check takes/ ftp://me@ftp.example.com/takes
  longhaul check --checksum ftp://ftp.example.com//pub/data ./data

Passwords come from --password-file, from the environment variable LONGHAUL_PASSWORD, or from
~/.netrc. On a terminal, longhaul asks for a missing password.

Exit codes: 0 both are the same; 1 they differ, or something failed; 2 wrong use; 3 interrupted.")]
pub(crate) struct Args {
    /// Files to compare with DST
    #[arg(value_name = "SRC")]
    source: OsString,
    /// Files to compare with SRC
    #[arg(value_name = "DST")]
    destination: OsString,
    /// Read both files, and compare their content in place of their times
    #[arg(long)]
    checksum: bool,
    /// Report missing directories at DST even if they contain no files
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
