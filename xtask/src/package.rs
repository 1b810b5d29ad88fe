//! `cargo xtask package`: the packages for Debian, with man pages and completions.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    Failure, man, sbom,
    shell::{cargo, root, succeeds, target_folder, tool},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Writes the packages into this folder instead of `packages` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A package: its name, the features of its program beside none, and what the program is called.
struct Package {
    name: &'static str,
    features: &'static [&'static str],
    program: &'static str,
}

const PACKAGES: [Package; 2] = [
    Package {
        name: "longhaul",
        features: &[],
        program: "longhaul",
    },
    Package {
        name: "longhaul-lab",
        features: &["laboratory"],
        program: "longhaul-lab",
    },
];

const DEB_VERSION: &str = "3.8.0";

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let staged = target_folder().join("package");
    let out = match &arguments.out {
        Some(folder) => std::path::absolute(folder)?,
        None => target_folder().join("packages"),
    };
    let described = man::Arguments::production(staged.clone());
    if let Err(failure) = man::run(&described)? {
        return Ok(Err(failure));
    }
    let deb = tool("cargo-deb", DEB_VERSION)?;
    for package in &PACKAGES {
        build(package, &staged)?;
        let bill = format!("{}.cdx.json", package.name);
        sbom::write(package.features, &staged.join(&bill))?;
        fs::create_dir_all(&out)?;
        fs::copy(staged.join(&bill), out.join(&bill)).context(bill)?;
        let mut write = std::process::Command::new(&deb);
        write.args(["--no-build", "--no-strip", "-p", "longhaul", "--output"]);
        write.arg(&out).current_dir(root());
        if package.name != "longhaul" {
            write.args(["--variant", package.program]);
        }
        if !succeeds(&mut write)? {
            return Ok(Err(Failure::Failed));
        }
    }
    for entry in fs::read_dir(&out)? {
        println!("{}", entry?.path().display());
    }
    Ok(Ok(()))
}

/// Builds the program of a package, in a target folder of its own: both are called longhaul.
fn build(package: &Package, staged: &Path) -> Result<()> {
    let target = target_folder().join(format!("{}-build", package.name));
    let mut build = cargo([
        "build",
        "--release",
        "-p",
        "longhaul",
        "--no-default-features",
    ]);
    build.arg("--features").arg(package.features.join(","));
    build.env("CARGO_TARGET_DIR", &target);
    // Names of functions in a backtrace are worth less than a tenth of the size.
    build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    // A profile that was set from outside would change what is shipped.
    build.env_remove("RUSTFLAGS");
    anyhow::ensure!(succeeds(&mut build)?, "longhaul does not build");
    let (from, to) = (
        target.join("release/longhaul"),
        staged.join(package.program),
    );
    fs::copy(&from, &to).with_context(|| to.display().to_string())?;
    Ok(())
}
