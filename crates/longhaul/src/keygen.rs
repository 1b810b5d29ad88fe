//! `longhaul keygen FILE`: a new identity.

use std::path::PathBuf;

use anyhow::Context as _;
use link::Identity;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key file to write; never over an existing file.
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let identity = Identity::generate();
    identity
        .write_new(&args.file)
        .with_context(|| format!("cannot write {}", args.file.display()))?;
    println!("{}", identity.public_key());
    Ok(())
}
