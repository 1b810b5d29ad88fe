//! `longhaul ls URL`: the list of the files in a directory of a server or of this machine.

mod listing_printer;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use anyhow::Context as _;
use ftp::listing::{EntryKind, ListingEntry};
use gatewayd::config::LogLevel;
use mover::{
    filter::Filter,
    job::JobSite,
    location::Location,
    names::join,
    plan::{DEPTH_MAX, ENTRIES_THERE_MAX, PATH_BYTES_MAX},
    run::{BrowseError, Browser},
};
use units::parse_duration;

use self::listing_printer::ListingPrinter;
use crate::{
    connection_args::ConnectionArgs,
    exit::{self, INTERRUPTED},
    filters::{Filters, now_unix_s},
    logging,
};

/// List files on a server or on this machine
///
/// URL is ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by AUTH TLS), ftps:// (TLS from the first
/// byte), sftp:// (SSH), or a local path. The path of a URL is relative to the login directory.
/// With a second slash, as in ftp://HOST//PATH, the path begins at the server's root.
///
/// Each line has the size in bytes, the time of the last change in UTC, and the name. The name of a
/// directory ends in a slash. A time with a question mark is in the unknown time zone of the
/// server. Bytes of a name that are not valid text appear as \xNN.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul ls ftp://ftp.example.com//pub
  longhaul ls -R --include '*.mxf' ftpes://me@10.20.0.5/takes --gateway 10.0.0.7:2121

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD. On a terminal, longhaul asks for a missing password. For sftp://, longhaul first
tries the keys of the agent and of ~/.ssh.

Exit codes: 0 everything is listed; 1 a failure, which the output names; 2 wrong use;
3 interrupted.")]
pub(crate) struct Args {
    /// Directory or file to list: a URL or a local path
    url: OsString,
    /// Print sizes and times (the default)
    #[arg(short = 'l', long, overrides_with = "names")]
    long: bool,
    /// Print only names
    #[arg(short = '1', long)]
    names: bool,
    /// Also list subdirectories
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    filters: Filters,
    /// Fail after this time without a reply from the server
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    stall_timeout: Duration,
    /// Print a line of JSON for each entry, and a line with the result
    #[arg(long)]
    json: bool,
}

/// State of a running listing.
struct Lister<'a> {
    browser: Browser,
    root: Vec<u8>,
    filter: Filter,
    is_recursive: bool,
    now_unix_s: i64,
    printer: &'a mut ListingPrinter,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    exit::ensure(
        !args.stall_timeout.is_zero(),
        "--stall-timeout must be above zero, such as 60s",
    )?;
    let location = Location::parse_source(&args.url).map_err(exit::wrong_use)?;
    exit::ensure(
        location.server().is_none_or(|it| !it.scheme.is_web()),
        "a web server has no listings: name a directory of another server or of this machine",
    )?;
    let is_remote = matches!(location, Location::Remote(_));
    exit::ensure(
        is_remote || args.connection.is_direct(),
        "the directory is on this machine, so a gateway has no effect",
    )?;
    let filter = args.filters.read()?;
    // A user who lists files does not need the log messages of the gateway in this process.
    logging::follow(LogLevel::Error);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(list(args, location, filter))?;
    // The program does not wait for a pending name resolution.
    runtime.shutdown_background();
    Ok(code)
}

async fn list(args: &Args, location: Location, filter: Filter) -> anyhow::Result<ExitCode> {
    let servers: Vec<_> = location.server().into_iter().collect();
    let mut access = args.connection.read(args.stall_timeout, &servers)?;
    if let Some(server) = location.server() {
        access.ask_password(server)?;
    }
    let near = access.start_near(location.server().map(|it| it.scheme))?;
    let servers: Vec<_> = location.server().cloned().into_iter().collect();
    access.ask_for_ssh(&servers).await?;
    let site = access.site(&location);
    let mut printer = ListingPrinter::new(args.json, args.names);
    let listed = tokio::select! {
        listed = list_all(args, &site, location.path(), filter, &mut printer) => Some(listed),
        () = exit::interrupted() => None,
    };
    if let Some(near) = near {
        near.end().await;
    }
    let is_interrupted = listed.is_none();
    listed.transpose()?;
    printer.print_result(is_interrupted)?;
    Ok(match (is_interrupted, printer.failed()) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

async fn list_all(
    args: &Args,
    site: &JobSite,
    root: Vec<u8>,
    filter: Filter,
    printer: &mut ListingPrinter,
) -> anyhow::Result<()> {
    let browser = Browser::open(site, None).await.map_err(with_hint)?;
    let mut lister = Lister {
        browser,
        root,
        filter,
        is_recursive: args.recursive,
        now_unix_s: now_unix_s(),
        printer,
    };
    lister.all().await?;
    lister.browser.close().await;
    Ok(())
}

/// Adds the hint for the user to the error, if there is a hint.
fn with_hint(error: BrowseError) -> anyhow::Error {
    let hint = match &error {
        BrowseError::Server(error) => error.hint(),
        _ => None,
    };
    let error = anyhow::Error::from(error);
    match hint {
        Some(hint) => anyhow::anyhow!("{error:#} ({hint})"),
        None => error,
    }
}

impl Lister<'_> {
    async fn all(&mut self) -> anyhow::Result<()> {
        let root = self.browser.look(&self.root).await?;
        let root = root.context("there is no such file or directory")?;
        if root.kind != EntryKind::Directory {
            let mut names = self.root.split(|it| *it == b'/');
            let name = names.next_back().unwrap_or_default().to_vec();
            return self.printer.print_entry(&name, &root);
        }
        // Directories to be listed, the next one at the end.
        let mut waiting = vec![Vec::new()];
        while let Some(directory) = waiting.pop() {
            let below = match self.directory(&directory).await {
                Ok(below) => below,
                Err(error) if directory.is_empty() || is_lost(&error) => return Err(error),
                Err(error) => {
                    self.printer
                        .print_failure(&directory, &format!("{error:#}"));
                    continue;
                }
            };
            if !self.is_recursive {
                break;
            }
            if waiting.len() + below.len() > ENTRIES_THERE_MAX {
                anyhow::bail!(
                    "more than {ENTRIES_THERE_MAX} directories wait to be listed: list the subdirectories \
                 one by one"
                );
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Prints the entries of one directory. Returns its subdirectories.
    async fn directory(&mut self, directory: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let depth = directory.split(|it| *it == b'/').count();
        anyhow::ensure!(
            depth <= DEPTH_MAX && directory.len() <= PATH_BYTES_MAX,
            "the directory is too deep: a link may lead back into itself"
        );
        let path = match directory {
            b"" => self.root.clone(),
            below => join(&self.root, below),
        };
        let mut entries: Vec<ListingEntry> = Vec::new();
        let mut count = 0;
        let take = |some: Vec<ListingEntry>| {
            count += some.len();
            if count <= ENTRIES_THERE_MAX {
                entries.extend(some);
            }
        };
        let not_understood = self.browser.list(&path, take).await?;
        anyhow::ensure!(
            count <= ENTRIES_THERE_MAX,
            "the directory has more than {ENTRIES_THERE_MAX} entries"
        );
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut below = Vec::new();
        for entry in entries {
            let path = join(directory, &entry.name);
            let is_directory = entry.kind == EntryKind::Directory;
            let is_shown = match entry.kind {
                EntryKind::Directory => self.filter.enters(&path),
                _ => {
                    self.filter
                        .takes_file(&path, entry.size_bytes, entry.modified, self.now_unix_s)
                }
            };
            if is_shown {
                self.printer.print_entry(&path, &entry)?;
            }
            if is_shown && is_directory {
                below.push(path);
            }
        }
        if not_understood > 0 {
            let reason = format!("{not_understood} lines of its listing are not understood");
            self.printer.print_failure(directory, &reason);
        }
        Ok(below)
    }
}

/// Whether this error means that the connection is no longer usable.
fn is_lost(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<BrowseError>();
    matches!(error, Some(BrowseError::Server(it)) if !it.retry_action().keeps_connection())
}
