//! `longhaul keygen FILE`: creation of a new identity (key pair).

use std::path::{Path, PathBuf};

use link::Identity;
use serde::Serialize;

use crate::output::Format;

/// Write a new identity and print its public key
///
/// The identity is a private key. The file gets mode 0600. The command never replaces an existing
/// file.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  longhaul keygen site-a.key")]
pub(crate) struct Args {
    /// Key file to write
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// Output of the commands `keygen` and `pubkey`.
#[derive(Serialize)]
pub(crate) struct PublicKey<'a> {
    file: &'a Path,
    public_key: String,
}

impl<'a> PublicKey<'a> {
    pub(crate) fn of(identity: &Identity, file: &'a Path) -> Self {
        Self {
            file,
            public_key: identity.public_key().to_string(),
        }
    }

    pub(crate) fn print(&self, format: Format) -> anyhow::Result<()> {
        format.print(self, |key| format!("{}\n", key.public_key))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let identity = Identity::generate();
    identity.write_new(&args.file)?;
    PublicKey::of(&identity, &args.file).print(args.format)
}
