//! Checks of a folder in which the gateway stores files, and of the folder's maximum size.

use std::path::{Path, PathBuf};

use toml::Spanned;
use units::ByteCount;

use super::problem::{Problem, problem};

/// Returns the folder's path. A missing disk must not prevent the start. The gateway therefore
/// tests access to the folder only after the start.
pub(super) fn folder(name: &Spanned<PathBuf>, base: &Path) -> PathBuf {
    base.join(name.get_ref())
}

/// Returns the maximum size of the folder in bytes.
pub(super) fn size_max(size: Option<&Spanned<ByteCount>>) -> Result<ByteCount, Problem> {
    match size {
        Some(size) if *size.get_ref() < SIZE_LEAST => {
            Err(problem(size, format!("expected {SIZE_LEAST} at least")))
        }
        Some(size) => Ok(*size.get_ref()),
        None => Ok(SIZE_DEFAULT),
    }
}

/// Minimum size of a folder. A smaller folder could not store a useful amount of a file.
const SIZE_LEAST: ByteCount = ByteCount::mebibytes(64);

const SIZE_DEFAULT: ByteCount = ByteCount::gibibytes(8);
