//! Requirements of the dashboard's tests: Playwright, axe, and gateways with simulated transfers.
//! Debian's packages do not provide these requirements.

use anyhow::Result;

use crate::{
    shell::{cargo, succeeds},
    wheels,
};

/// Installs the driver of the browser into `target/browser`, and builds the gateways. If the driver
/// is unavailable, pytest reports this and skips the tests.
pub(crate) fn prepare() -> Result<()> {
    wheels::provide("browser.txt", "browser")?;
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
