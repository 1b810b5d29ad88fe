//! `cargo xtask conformance`: the scripts in `conformance/`, with the release build.

use std::{fs, process::Command};

use anyhow::{Context, Result};

use crate::{
    Failure, packages,
    shell::{cargo, root, succeeds, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which script, without `.py`; all of them if left out
    name: Option<String>,
    /// Passed to the script
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let scripts = scripts()?;
    let chosen: Vec<_> = scripts
        .iter()
        .filter(|script| arguments.name.as_ref().is_none_or(|name| name == *script))
        .collect();
    if chosen.is_empty() {
        eprintln!("no such script; there are: {}", scripts.join(", "));
        return Ok(Err(Failure::Missing));
    }
    if let Err(failure) = packages::provide(packages::CONFORMANCE)? {
        return Ok(Err(failure));
    }
    anyhow::ensure!(
        succeeds(&mut cargo(["build", "--release", "-p", "longhaul"]))?,
        "longhaul does not build"
    );
    let program = target_folder().join("release/longhaul");
    let mut failed = Vec::new();
    for name in chosen {
        let mut command = Command::new("python3");
        command
            .arg(root().join("conformance").join(format!("{name}.py")))
            .arg("--longhaul")
            .arg(&program)
            .args(&arguments.arguments)
            .current_dir(root());
        if !succeeds(&mut command)? {
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(Ok(()));
    }
    println!("failed: {}", failed.join(", "));
    Ok(Err(Failure::Failed))
}

/// The scripts that can be run, by name: those with a first line that says so; the others are parts.
fn scripts() -> Result<Vec<String>> {
    let folder = root().join("conformance");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_script = path.extension().is_some_and(|extension| extension == "py")
            && fs::read(&path)?.starts_with(b"#!");
        if let (true, Some(name)) = (is_script, path.file_stem()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
