//! What has arrived at the receiver: how much is stored, and whether it is what was sent.

use std::{os::unix::fs::MetadataExt, path::Path};

use anyhow::Context;
use bench_kit::content::hash_file;

/// Stored bytes of a file whose parts arrive in any order. The file's length would count holes.
pub(super) fn stored_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.blocks() * 512)
}

pub(super) fn compare(path: &Path, expected: u64) -> anyhow::Result<()> {
    let hash = hash_file(path).with_context(|| path.display().to_string())?;
    anyhow::ensure!(hash == expected, "the hashes differ");
    Ok(())
}
