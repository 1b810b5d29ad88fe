//! Checks of where files wait that several servers are to have.

use std::path::Path;

use units::ByteCount;

use super::{
    file::SpoolSection,
    problem::{Problem, problem},
};
use crate::spool::Settings;

/// The spool, if there is a section.
pub(super) fn spool(
    section: Option<&SpoolSection>,
    folder: &Path,
) -> Result<Option<Settings>, Problem> {
    let Some(section) = section else {
        return Ok(None);
    };
    let named = folder.join(section.folder.get_ref());
    if !named.is_dir() {
        let message = format!("{} is no folder", named.display());
        return Err(problem(&section.folder, message));
    }
    let size_max = match &section.size_max {
        Some(size) if *size.get_ref() < SIZE_LEAST => {
            let message = format!("expected {SIZE_LEAST} at least");
            return Err(problem(size, message));
        }
        Some(size) => *size.get_ref(),
        None => SIZE_DEFAULT,
    };
    Ok(Some(Settings {
        folder: named,
        size_max,
    }))
}

/// Less would hold no part of a file that is worth the trouble.
const SIZE_LEAST: ByteCount = ByteCount::mebibytes(64);

const SIZE_DEFAULT: ByteCount = ByteCount::gibibytes(8);
