//! `longhaul copy SRC... DST`: files and directories from here to there.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::Purpose;

use crate::moving::{self, Common, Order, Writing};

/// Copy files and directories to or from FTP servers
///
/// SRC and DST are paths of this machine or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by
/// AUTH TLS), ftps:// (TLS from the first byte). The path of a URL begins in the directory of the
/// log-in; with a second slash, ftp://HOST//PATH, at the server's root.
///
/// A directory becomes DST: what is in SRC is in DST afterwards. A file becomes DST, or goes into DST
/// if that is a directory or ends in a slash. Of several sources each goes into DST. Files that DST
/// has with the same size and time are not copied again.
///
/// A file has the suffix .part until it is whole. A run that was interrupted is gone on with by the
/// same command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul copy film.mxf ftp://me@ftp.example.com/incoming/
  longhaul copy ftp://ftp.example.com//pub/data ./data --gateway 10.0.0.7:2121
  longhaul copy takes/ ftpes://me@10.20.0.5/takes --peer 'KEY@203.0.113.9:4810'

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD.

Exit codes: 0 all is there; 1 something failed, and is named; 2 wrong use; 3 interrupted.")]
pub(crate) struct Args {
    /// Files and directories to copy, and where to: at last the destination
    #[arg(required = true, num_args = 2.., value_name = "SRC... DST")]
    locations: Vec<OsString>,
    #[command(flatten)]
    writing: Writing,
    /// Make directories also where nothing is in them
    #[arg(long)]
    empty_dirs: bool,
    #[command(flatten)]
    common: Common,
}

impl Args {
    pub(crate) fn order(&self) -> Order<'_> {
        Order {
            locations: &self.locations,
            purpose: Purpose::Copy,
            common: &self.common,
            writing: Some(&self.writing),
            makes_empty_directories: self.empty_dirs,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    moving::run(&args.order())
}
