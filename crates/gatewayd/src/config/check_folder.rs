//! Checks of a folder in which the gateway keeps files, and of how much it may keep.

use std::path::{Path, PathBuf};

use toml::Spanned;
use units::ByteCount;

use super::problem::{Problem, problem};

/// The folder. Whether it can be used shows while the gateway runs: a disk that is missing must not keep it from its start.
pub(super) fn folder(name: &Spanned<PathBuf>, base: &Path) -> PathBuf {
    base.join(name.get_ref())
}

/// Most bytes in it.
pub(super) fn size_max(size: Option<&Spanned<ByteCount>>) -> Result<ByteCount, Problem> {
    match size {
        Some(size) if *size.get_ref() < SIZE_LEAST => {
            Err(problem(size, format!("expected {SIZE_LEAST} at least")))
        }
        Some(size) => Ok(*size.get_ref()),
        None => Ok(SIZE_DEFAULT),
    }
}

/// Less would hold no part of a file that is worth the trouble.
const SIZE_LEAST: ByteCount = ByteCount::mebibytes(64);

const SIZE_DEFAULT: ByteCount = ByteCount::gibibytes(8);
