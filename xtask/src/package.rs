//! `cargo xtask package`: builds Debian packages, and an archive for other distributions.
//!
//! The program in the archive needs no library of the system. The packages and the archive contain
//! man pages and completions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    Failure, man, sbom,
    shell::{Build, cargo, root, succeeds, target_folder, tool},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write the packages to this folder [default: `packages` in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A Debian package: its name, the features of its program, and the program's name. The program is
/// built without default features.
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

/// Files of the archive for a manual installation, in addition to the program, its man pages and
/// completions.
const ARCHIVED: [&str; 8] = [
    "LICENSE",
    "README.md",
    "examples/site-a.toml",
    "examples/site-b.toml",
    "packaging/longhaul.service",
    "packaging/longhaul-agent.service",
    "packaging/longhaul.sysusers",
    "packaging/transparent.conf",
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
    fs::create_dir_all(&out)?;
    let deb = tool("cargo-deb", DEB_VERSION, Build::Optimised)?;
    for package in &PACKAGES {
        build(package, &staged)?;
        let bill = format!("{}.cdx.json", package.name);
        sbom::write(package.features, &staged.join(&bill))?;
        fs::copy(staged.join(&bill), out.join(&bill)).context(bill)?;
        let mut write = Command::new(&deb);
        write.args(["--no-build", "--no-strip", "-p", "longhaul", "--output"]);
        write.arg(&out).current_dir(root());
        if package.name != "longhaul" {
            write.args(["--variant", package.program]);
        }
        if !succeeds(&mut write)? {
            return Ok(Err(Failure::Failed));
        }
    }
    archive(&staged, &out)?;
    for entry in fs::read_dir(&out)? {
        println!("{}", entry?.path().display());
    }
    Ok(Ok(()))
}

/// Builds the program of a package in its own target folder. The programs of both packages are
/// built as `longhaul`, so they need separate folders.
fn build(package: &Package, staged: &Path) -> Result<()> {
    let target = target_folder().join(format!("{}-build", package.name));
    let mut build = production(package.features, &target);
    // Flags from the environment would change the shipped program.
    build.env_remove("RUSTFLAGS");
    anyhow::ensure!(succeeds(&mut build)?, "longhaul does not build");
    copy(
        &target.join("release/longhaul"),
        &staged.join(package.program),
    )
}

/// Writes the archive for other distributions. The program in the archive contains all its
/// libraries, including the C library.
fn archive(staged: &Path, out: &Path) -> Result<()> {
    let target = target_folder().join("longhaul-static-build");
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = production(&[], &target);
    // Build scripts and macros load libraries, so the flags must not apply to them. If a target is
    // named, cargo applies the flags only to the program.
    build
        .args(["--target", &triple])
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    anyhow::ensure!(succeeds(&mut build)?, "longhaul does not build statically");
    let name = format!(
        "longhaul-{}-linux-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let program = target.join(triple).join("release/longhaul");
    pack(&program, staged, &name, out)
}

/// Writes the archive `name` of a program, with the man pages and completions in `staged`, into the
/// folder `out`.
fn pack(program: &Path, staged: &Path, name: &str, out: &Path) -> Result<()> {
    let folder = staged.join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    copy(program, &folder.join("longhaul"))?;
    for file in ARCHIVED {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().expect("a folder"))?;
        copy(&root().join(file), &to)?;
    }
    for part in ["docs", "docs/tutorials", "docs/how-to"] {
        let docs = folder.join(part);
        fs::create_dir_all(&docs)?;
        for entry in fs::read_dir(root().join(part))? {
            let from = entry?.path();
            if from.extension().is_some_and(|kind| kind == "md") {
                copy(&from, &docs.join(from.file_name().unwrap_or_default()))?;
            }
        }
    }
    let mut collect = Command::new("cp");
    collect.arg("-r").arg(staged.join("man"));
    collect.arg(staged.join("completions")).arg(&folder);
    anyhow::ensure!(succeeds(&mut collect)?, "{name} cannot be written");
    let mut pack = Command::new("tar");
    pack.args(["--owner=0", "--group=0", "--sort=name", "-C"]);
    pack.arg(staged).arg("-czf");
    pack.arg(out.join(format!("{name}.tar.gz"))).arg(name);
    anyhow::ensure!(succeeds(&mut pack)?, "{name} cannot be packed");
    Ok(())
}

/// Returns the command that builds the program for a release.
fn production(features: &[&str], target: &Path) -> Command {
    let mut build = cargo([
        "build",
        "--release",
        "-p",
        "longhaul",
        "--no-default-features",
    ]);
    build.arg("--features").arg(features.join(","));
    build.env("CARGO_TARGET_DIR", target);
    // In `.ci/run`, the wrapper is clippy's compiler.
    build.env_remove("RUSTC_WORKSPACE_WRAPPER");
    // The names of functions in a backtrace are not worth a tenth of the program's size.
    build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    build
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| to.display().to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use tempfile::TempDir;
    use toml::{Table, Value};

    use super::{ARCHIVED, PACKAGES, pack};
    use crate::shell::{root, tests::write};

    #[test]
    fn archive_has_the_program_its_pages_and_the_documents() {
        let (staged, out) = (TempDir::new(), TempDir::new());
        let (staged, out) = (staged.expect("a folder"), out.expect("a folder"));
        let program = out.path().join("built");
        fs::write(&program, "program").expect("room");
        write(staged.path(), "man/longhaul.1", "page");
        write(staged.path(), "completions/longhaul.bash", "complete");
        // The new archive must not contain a file of an earlier archive.
        write(staged.path(), "longhaul-1/old", "old");
        pack(&program, staged.path(), "longhaul-1", out.path()).expect("an archive");
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "-tvzf"]);
        let listed = tar.arg(out.path().join("longhaul-1.tar.gz")).output();
        let listed = String::from_utf8(listed.expect("tar runs").stdout).expect("names");
        let names: Vec<_> = listed
            .lines()
            .filter_map(|line| line.rsplit_once(" longhaul-1/").map(|(_, name)| name))
            .collect();
        let others = [
            "longhaul",
            "man/longhaul.1",
            "completions/longhaul.bash",
            "docs/operating.md",
            "docs/how-to/monitoring.md",
        ];
        for name in others.iter().chain(&ARCHIVED) {
            assert!(names.contains(name), "{name} is not in {names:?}");
        }
        assert!(!names.contains(&"old"));
        assert!(
            listed.lines().all(|line| line.contains(" 0/0 ")),
            "{listed}"
        );
    }

    #[test]
    fn debian_packages_have_files_that_exist_and_variants_of_their_programs() {
        let folder = root().join("crates/longhaul");
        let text = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let manifest: Table = text.parse().expect("TOML");
        let deb = &manifest["package"]["metadata"]["deb"];
        let mut checked = 0;
        for package in &PACKAGES {
            let section = match package.name {
                "longhaul" => deb,
                _ => &deb["variants"][package.program],
            };
            assert_eq!(section["name"].as_str(), Some(package.name));
            let assets = section["assets"].as_array().expect("a list").iter();
            let sources = assets.map(|it| it[0].as_str().expect("a path"));
            let sources: Vec<_> = sources.collect();
            let program = format!("../../target/package/{}", package.program);
            assert!(sources.contains(&&*program), "{sources:?}");
            let bill = format!("../../target/package/{}.cdx.json", package.name);
            assert!(sources.contains(&&*bill), "{sources:?}");
            // The command itself makes all other files.
            let kept = sources.iter().filter(|it| !it.contains("/target/"));
            for source in kept {
                let (path, name) = source.rsplit_once('/').expect("a folder");
                let suffix = name.strip_prefix('*').unwrap_or(name);
                let mut entries = fs::read_dir(folder.join(path)).expect(source);
                let exists = entries.any(|entry| {
                    let name = entry.expect("an entry").file_name();
                    name.to_string_lossy().ends_with(suffix)
                });
                assert!(exists, "{source} does not exist");
                checked += 1;
            }
        }
        let units = deb["systemd-units"].as_array().expect("a list");
        for unit in units.iter().filter_map(|it| it["unit-name"].as_str()) {
            let file = root().join(format!("packaging/{unit}.service"));
            assert!(file.exists(), "{}", file.display());
        }
        assert!(
            checked > 8 && units.iter().all(Value::is_table),
            "{checked}"
        );
    }
}
