//! Checks of `[spool]`: the folder for uploads that the gateway copies to several servers.

use std::path::Path;

use super::{check_folder, file::SpoolSection, problem::Problem};
use relay::spool::SpoolSettings;

/// Returns the settings of the spool, if the file has the section `[spool]`.
pub(super) fn spool(
    section: Option<&SpoolSection>,
    folder: &Path,
) -> Result<Option<SpoolSettings>, Problem> {
    let Some(section) = section else {
        return Ok(None);
    };
    Ok(Some(SpoolSettings {
        folder: check_folder::folder(&section.folder, folder),
        size_max: check_folder::size_max(section.size_max.as_ref())?,
    }))
}
