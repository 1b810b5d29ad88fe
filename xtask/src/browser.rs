//! Requirements of the dashboard's tests: Playwright, axe, and gateways with simulated transfers.
//! Debian's packages do not provide these requirements.

use std::{fs, process::Command};

use anyhow::{Context, Result};

use crate::{
    conformance::PYTHON,
    shell::{cargo, root, succeeds, target_folder},
};

/// Installs the driver of the browser into `target/browser`, and builds the gateways. If the driver
/// is unavailable, pytest reports this and skips the tests.
pub(crate) fn prepare() -> Result<()> {
    let wanted = root().join("conformance/browser.txt");
    let folder = target_folder().join("browser");
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
    let build = [
        "build",
        "--release",
        "-p",
        "longhaul-gatewayd",
        "--example",
        "dashboard",
        "--features",
        "testing",
    ];
    anyhow::ensure!(
        succeeds(&mut cargo(build))?,
        "the gateways of the tests do not build"
    );
    Ok(())
}
