//! Python packages that Debian does not provide, for tests.

use std::{fs, process::Command};

use anyhow::{Context, Result};

use crate::{
    conformance::PYTHON,
    shell::{root, succeeds, target_folder},
};

/// Installs the packages in `conformance/REQUIREMENTS` into `target/FOLDER`. If a package is
/// unavailable, pip reports this, and the tests that need the package are skipped.
pub(crate) fn provide(requirements: &str, folder: &str) -> Result<()> {
    let wanted = root().join("conformance").join(requirements);
    let folder = target_folder().join(folder);
    let stamp = folder.join("installed.txt");
    let text = fs::read_to_string(&wanted).with_context(|| wanted.display().to_string())?;
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&text) {
        let _ = fs::remove_dir_all(&folder);
        let mut pip = Command::new(PYTHON);
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--root-user-action=ignore", "--disable-pip-version-check"])
            .args(["--only-binary=:all:", "--require-hashes", "--target"])
            .arg(&folder)
            .arg("--requirement")
            .arg(&wanted);
        if succeeds(&mut pip)? {
            fs::write(&stamp, text).with_context(|| stamp.display().to_string())?;
        }
    }
    Ok(())
}
