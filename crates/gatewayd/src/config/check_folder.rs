//! Checks of a folder in which the gateway stores files, and of its greatest size.

use std::path::{Path, PathBuf};

use toml::Spanned;
use units::ByteCount;

use super::problem::{Problem, problem};

/// Returns the folder. Its use is checked while the gateway runs: a missing disk must not prevent
/// the start.
pub(super) fn folder(name: &Spanned<PathBuf>, base: &Path) -> PathBuf {
    base.join(name.get_ref())
}

/// Returns the most bytes in the folder.
pub(super) fn size_max(size: Option<&Spanned<ByteCount>>) -> Result<ByteCount, Problem> {
    match size {
        Some(size) if *size.get_ref() < SIZE_LEAST => {
            Err(problem(size, format!("expected {SIZE_LEAST} at least")))
        }
        Some(size) => Ok(*size.get_ref()),
        None => Ok(SIZE_DEFAULT),
    }
}

/// Least size. A smaller folder would hold no useful part of a file.
const SIZE_LEAST: ByteCount = ByteCount::mebibytes(64);

const SIZE_DEFAULT: ByteCount = ByteCount::gibibytes(8);
