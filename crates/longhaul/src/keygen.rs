//! `longhaul keygen FILE`: creation of a new identity (key pair).

use std::{
    io,
    path::{Path, PathBuf},
};

use link::{Identity, IdentityError};
use serde::Serialize;

use crate::{exit, output::Format};

/// Write a new private key to a file, and print the public key
///
/// The private key is the identity of a gateway. The file gets mode 0600. The command never
/// replaces an existing file.
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
    identity.write_new(&args.file).map_err(explain)?;
    PublicKey::of(&identity, &args.file).print(args.format)
}

/// Adds advice for the user to the error for an existing file.
fn explain(error: IdentityError) -> anyhow::Error {
    match error {
        IdentityError::Io { path, source } if source.kind() == io::ErrorKind::AlreadyExists => {
            let shown = path.display();
            let quoted = exit::quote(path.as_os_str()).unwrap_or_else(|| "FILE".to_owned());
            anyhow::anyhow!(
                "the key file {shown} exists, and is not replaced: longhaul pubkey {quoted} prints its public key"
            )
        }
        error => error.into(),
    }
}
