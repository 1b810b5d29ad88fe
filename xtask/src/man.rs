//! `cargo xtask man`: generates man pages and shell completions from the definition of the command
//! line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    Failure,
    shell::{cargo, succeeds, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write to the folders `man` and `completions` in DIR [default: cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Describe the production build, without the commands of the laboratory
    #[arg(long)]
    production: bool,
}

impl Arguments {
    /// Returns arguments that write the pages of the production build to the folder `out`.
    pub(crate) fn production(out: PathBuf) -> Self {
        Self {
            out: Some(out),
            production: true,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let out = match &arguments.out {
        // Cargo runs in the root of the workspace, but this program may run in another folder.
        Some(folder) => std::path::absolute(folder)?,
        None => target_folder(),
    };
    let pages = out.join("man");
    // Old pages are removed first. Otherwise the page of a removed command would stay.
    if pages.exists() {
        remove_pages(&pages)?;
    }
    let mut write = cargo(["run", "--quiet", "-p", "longhaul", "--example", "man"]);
    if arguments.production {
        write.arg("--no-default-features");
    }
    write.arg("--").arg(&pages).arg(out.join("completions"));
    if !succeeds(&mut write)? {
        return Ok(Err(Failure::Failed));
    }
    check(&pages)
}

fn remove_pages(folder: &Path) -> Result<()> {
    for path in pages(folder)? {
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Formats every page once. groff warns about text that it cannot show.
fn check(folder: &Path) -> Result<Result<(), Failure>> {
    let mut command = Command::new("groff");
    command.args(["-man", "-ww", "-z", "-Tutf8"]);
    let Ok(formatted) = command.args(pages(folder)?).output() else {
        println!("the pages are not checked: groff is not installed");
        return Ok(Ok(()));
    };
    let warnings = String::from_utf8_lossy(&formatted.stderr);
    if formatted.status.success() && warnings.trim().is_empty() {
        return Ok(Ok(()));
    }
    eprintln!("groff: {}", warnings.trim());
    Ok(Err(Failure::Failed))
}

/// Returns the paths of Longhaul's man pages in a folder.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("longhaul") && name.ends_with(".1") {
            all.push(path);
        }
    }
    Ok(all)
}
