//! Software bill of materials of a package. It lists the libraries of the program in CycloneDX
//! JSON.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::shell::{Build, root, succeeds, tool};

const CYCLONEDX_VERSION: &str = "0.5.9";
/// Name of the file that the tool writes into the folder of each crate of the workspace.
const NAME: &str = "bill-of-materials";

/// Writes the bill of materials for the program with these features to `out`.
pub(crate) fn write(features: &[&str], out: &Path) -> Result<()> {
    let mut describe = Command::new(tool(
        "cargo-cyclonedx",
        CYCLONEDX_VERSION,
        Build::Optimised,
    )?);
    describe.args([
        "cyclonedx",
        "--quiet",
        "--format",
        "json",
        "--spec-version",
        "1.5",
    ]);
    describe.args(["--no-default-features", "--override-filename", NAME]);
    describe.arg("--features").arg(features.join(","));
    describe
        .arg("--manifest-path")
        .arg("crates/longhaul/Cargo.toml");
    describe.current_dir(root());
    let described = succeeds(&mut describe)?;
    let text = fs::read_to_string(root().join(format!("crates/longhaul/{NAME}.json")));
    let mut members = vec![root().join("xtask")];
    for entry in fs::read_dir(root().join("crates"))? {
        members.push(entry?.path());
    }
    for folder in members {
        // For some crates, the tool has written no file.
        let _ = fs::remove_file(folder.join(format!("{NAME}.json")));
    }
    anyhow::ensure!(described, "the bill of materials was not written");
    // The path of the sources on this machine must not be published.
    let text = text.context("the bill of materials")?;
    let text = text.replace(&format!("file://{}", root().display()), "file:///longhaul");
    fs::write(out, text).with_context(|| out.display().to_string())
}
