//! `longhaul copy SRC... DST`: copying of files and directories.

use std::{ffi::OsString, process::ExitCode};

use mover::plan::JobPurpose;

use crate::{
    exit,
    moving::{self, CommonArgs, Order, WriteArgs},
};

/// Copy files and directories to or from FTP and SFTP servers
///
/// SRC and DST are local paths or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by AUTH TLS),
/// ftps:// (TLS from the first byte), sftp:// (SSH). The path of a URL is relative to the login
/// directory. With a second slash, as in ftp://HOST//PATH, the path begins at the server's root.
/// SRC may also be a file of a web server (https://HOST/PATH), or standard input (-).
///
/// If SRC is a directory, the command copies the content of SRC into the directory DST. If DST ends
/// in a slash and SRC does not, the copy is a directory in DST with the name of SRC. If SRC is a
/// file, DST is the name of the copy. If DST is a directory or ends in a slash, the copy is a file
/// in DST with the name of SRC. Several sources are always copied into DST, each under its name.
/// The command does not copy files that DST already has with the same size and time.
///
/// With --to the command copies the sources to several destinations at the same time, and reports a
/// result for each destination. A slow or unreachable destination does not delay the other
/// destinations.
///
/// Until a file is complete, its name at DST ends in .part. The same command resumes an interrupted
/// run.
#[derive(clap::Args)]
#[command(override_usage = "\
longhaul copy [OPTIONS] SRC... DST
       longhaul copy [OPTIONS] SRC... --to DST --to DST...")]
#[command(after_help = "\
Examples:
  longhaul copy film.mxf ftp://me@ftp.example.com/incoming/
  longhaul copy ftp://ftp.example.com//pub/data ./data --gateway 10.0.0.7:2121
  longhaul copy sftp://me@files.example/takes ./takes
  longhaul copy takes/ ftpes://me@10.20.0.5/takes --peer 'KEY@203.0.113.9:4810'
  pg_dump films | longhaul copy - ftp://me@ftp.example.com/backup/films.sql
  longhaul copy card/ --to ftp://a.example/day1 --to ftp://b.example/day1 --to /mnt/backup/day1

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD. On a terminal, longhaul asks for a missing password. For sftp://, longhaul first
tries the keys of the agent and of ~/.ssh.

Exit codes: 0 all files are at DST; 1 a failure, which the output names; 2 wrong use;
3 interrupted.")]
pub(crate) struct Args {
    /// Files and directories to copy, and then the destination; with --to, only files and
    /// directories to copy
    #[arg(required = true, num_args = 1.., value_name = "SRC... DST")]
    locations: Vec<OsString>,
    /// Copy to this destination; may be given several times to copy to several destinations
    #[arg(long, value_name = "DST")]
    to: Vec<OsString>,
    #[command(flatten)]
    writing: WriteArgs,
    /// Also create empty directories at DST
    #[arg(long)]
    empty_dirs: bool,
    /// Copy nothing, but delete the incomplete files that an interrupted run of the same command
    /// has left at DST
    #[arg(long)]
    clean: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Command line of a copy that comes from a file or from another machine instead of the shell.
#[derive(clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) copy: Args,
}

impl Args {
    /// Returns one [`Order`] for each destination.
    pub(crate) fn orders(&self) -> anyhow::Result<Vec<Order<'_>>> {
        let (sources, destinations) = match self.locations.split_last() {
            _ if !self.to.is_empty() => (&self.locations[..], &self.to[..]),
            Some((destination, sources)) if !sources.is_empty() => {
                (sources, std::slice::from_ref(destination))
            }
            _ => {
                return Err(exit::misuse(
                    "the destination is missing: give it last, or by --to",
                ));
            }
        };
        let orders = destinations.iter();
        Ok(orders.map(|it| self.order(sources, it)).collect())
    }

    fn order<'a>(&'a self, sources: &'a [OsString], destination: &'a OsString) -> Order<'a> {
        Order {
            sources,
            destination,
            purpose: JobPurpose::Copy,
            common: &self.common,
            writing: Some(&self.writing),
            enters_destination: false,
            makes_empty_directories: self.empty_dirs,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut orders = args.orders()?;
    for order in &mut orders {
        order.enters_destination = true;
    }
    let has_stdin = orders[0].sources.iter().any(|it| it == "-");
    exit::ensure(
        !has_stdin || orders[0].sources.len() == 1,
        "standard input goes alone: for a file called - write ./-",
    )?;
    match (has_stdin, args.clean) {
        (true, _) => moving::pour_stdin(&orders),
        (false, true) => moving::clean(&orders),
        (false, false) => moving::run(&orders),
    }
}
