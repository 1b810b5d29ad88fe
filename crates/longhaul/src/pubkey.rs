//! `longhaul pubkey FILE`: prints the public key of an identity.

use std::path::PathBuf;

use link::Identity;

use crate::{keygen::PublicKey, output::Format};

/// Print the public key that belongs to a private key
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  longhaul pubkey site-a.key")]
pub(crate) struct Args {
    /// Key file that `longhaul keygen` wrote
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let identity = Identity::read(&args.file)?;
    PublicKey::of(&identity, &args.file).print(args.format)
}
