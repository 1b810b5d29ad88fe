//! `longhaul setup far|near`: sets up a gateway on this machine.

mod far;
mod host_keys;
mod near;

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Subcommand;
use gatewayd::config::Config;
use link::{Identity, IdentityError};
use nix::{
    errno::Errno,
    unistd::{AccessFlags, access, geteuid},
};

use crate::{document::Document, exit, places};

/// Set up this machine as a gateway
///
/// First run "longhaul setup far" on the machine at the site of the servers. The command prints
/// an invite. Then run "longhaul setup near" on the machine at the site of the clients. The command
/// asks for the invite. Both commands show their changes, keep other settings of an existing
/// configuration, and start the service.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo longhaul setup far --allow 10.20.0.5:21 --endpoint 203.0.113.9:4810
  sudo longhaul setup far --allow 10.20.0.5:22 --endpoint 203.0.113.9:4810
  sudo longhaul setup near

Exit codes: 0 done; 1 a step failed; 2 wrong use or configuration.")]
pub(crate) struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    Far(far::Args),
    Near(near::Args),
}

/// Options of both commands.
#[derive(clap::Args)]
struct LocationArgs {
    /// Write the configuration to this file
    #[arg(long, default_value = places::CONFIG, value_name = "FILE")]
    config: PathBuf,
    /// Store the key and the state of the gateway in this folder
    #[arg(long, default_value = places::STATE, value_name = "FOLDER")]
    state: PathBuf,
    /// Do not start the service
    #[arg(long)]
    no_start: bool,
    /// Print the changes of the configuration, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.side {
        Side::Far(args) => far::run(args),
        Side::Near(args) => near::run(args),
    }
}

impl LocationArgs {
    /// Checks whether this user may write the configuration and the key. The caller makes this
    /// check before it asks the user questions.
    ///
    /// # Errors
    /// If a folder is not writable. The text names the command for root.
    fn ensure_writable(&self) -> anyhow::Result<()> {
        if self.dry_run || geteuid().is_root() {
            return Ok(());
        }
        let config = std::path::absolute(&self.config)?;
        let state = std::path::absolute(&self.state)?;
        for folder in [config.parent().unwrap_or(&config), &state] {
            // The command makes missing folders.
            let mut present = folder.ancestors().skip_while(|it| !it.exists());
            let present = present.next().unwrap_or(folder);
            let denied = access(present, AccessFlags::W_OK | AccessFlags::X_OK);
            anyhow::ensure!(
                denied != Err(Errno::EACCES),
                "this user may not write to {}: {}",
                present.display(),
                exit::as_root()
            );
        }
        Ok(())
    }

    /// Opens the configuration file, and determines the path of the key file. A new configuration
    /// gets a key file in the state folder.
    fn open(&self, title: &str) -> anyhow::Result<(Document, PathBuf)> {
        let mut document = Document::open(&self.config, title)?;
        let usual = std::path::absolute(&self.state)?.join(KEY_NAME);
        let key_file = document.key_file(&usual);
        let folder = self.config.parent().unwrap_or(Path::new(""));
        Ok((document, folder.join(key_file)))
    }

    /// Prints the changes of the configuration. If the key exists, checks the configuration first.
    /// Returns false for a dry run.
    fn show(&self, document: &Document, key_file: &Path) -> anyhow::Result<bool> {
        if key_file.exists() {
            Config::parse(&document.text(), &self.config).map_err(exit::wrong_use)?;
        }
        match document.changes() {
            changes if changes.is_empty() => {
                eprintln!("{}: nothing to change", self.config.display());
            }
            changes => eprintln!("{}:\n{changes}", self.config.display()),
        }
        if self.dry_run {
            eprintln!("Nothing was written: --dry-run");
        }
        Ok(!self.dry_run)
    }

    /// Checks the configuration and writes it to the file.
    fn write(&self, document: &Document) -> anyhow::Result<Config> {
        let text = document.text();
        let config = Config::parse(&text, &self.config).map_err(exit::wrong_use)?;
        if !document.changes().is_empty() {
            if let Some(folder) = self.config.parent() {
                places::make_folder(folder, false)?;
            }
            places::write_config(&self.config, &text)?;
        }
        Ok(config)
    }
}

/// Reads the private key. If the key file does not exist, creates a new key.
fn key(path: &Path) -> anyhow::Result<Identity> {
    match Identity::read(path) {
        Err(IdentityError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                places::make_folder(folder, true)?;
            }
            let identity = Identity::generate();
            identity.write_new(path)?;
            places::give(path).with_context(|| format!("{}", path.display()))?;
            eprintln!("New key: {}", path.display());
            Ok(identity)
        }
        read => {
            let identity = read?;
            // An earlier run may have ended before this step.
            places::give(path).with_context(|| format!("{}", path.display()))?;
            Ok(identity)
        }
    }
}

/// Asks a question on the terminal until the answer is valid. Returns `None` if the answer is
/// empty, or if there is no terminal.
fn ask<T>(question: &str, parse: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<Option<T>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    loop {
        eprint!("{question}: ");
        io::stderr().flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        match line.trim() {
            "" => return Ok(None),
            text => match parse(text) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => eprintln!("{error}"),
            },
        }
    }
}

const KEY_NAME: &str = "gateway.key";
