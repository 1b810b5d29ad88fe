//! Lookup of other programs on this machine.

use std::path::PathBuf;

/// Returns the path of an installed program. The search includes the `sbin` folders, which the
/// `PATH` of ordinary users lacks.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")];
    let mut folders = std::env::split_paths(&path).chain(system);
    folders.find_map(|folder| Some(folder.join(program)).filter(|program| program.is_file()))
}
