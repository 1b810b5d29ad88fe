//! `longhaul pubkey FILE`: the public key of an identity, again.

use std::path::PathBuf;

use anyhow::Context as _;
use link::Identity;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key file that `longhaul keygen` wrote.
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let identity = Identity::read(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    println!("{}", identity.public_key());
    Ok(())
}
