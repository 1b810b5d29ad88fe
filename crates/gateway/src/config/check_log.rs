//! Checks of what is logged where.

use std::path::Path;

use super::{
    file::LogSection,
    problem::{Problem, problem},
};
use crate::transfer_log::{Format, Settings};

/// The transfer log, if the section asks for one.
pub(super) fn transfer_log(
    section: &LogSection,
    folder: &Path,
) -> Result<Option<Settings>, Problem> {
    let format = match &section.transfer_log_format {
        None => Format::default(),
        Some(name) => match name.get_ref().as_str() {
            "json" => Format::Json,
            "xferlog" => Format::Xferlog,
            other => {
                let message = format!(
                    "unknown transfer_log_format {other:?}, expected \"json\" or \"xferlog\""
                );
                return Err(problem(name, message));
            }
        },
    };
    match (&section.transfer_log, &section.transfer_log_format) {
        (None, Some(name)) => Err(problem(name, "transfer_log_format needs transfer_log")),
        (path, _) => Ok(path.as_ref().map(|path| Settings {
            path: folder.join(path),
            format,
        })),
    }
}
