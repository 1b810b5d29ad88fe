//! `cargo xtask release`: performs every step of a release that needs no key and no account.
//!
//! The command needs a clean tree and a version. The command commits the version and the changelog.
//! Packages, bills of materials, the source archive and checksums are written to a folder. A person
//! must create the tag and the signature, and publish the files. The command prints the necessary
//! commands.

mod changes;
mod git;
mod source;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use jiff::{Timestamp, tz::TimeZone};

use self::changes::Changes;
use crate::{
    Failure, changelog,
    shell::{cargo, require, root, succeeds, target_folder},
    version::Version,
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Version of the release: a successor of the present version, or the present version if it has
    /// no tag yet
    version: Version,
    /// Do all steps in a clone in cargo's target folder, and change nothing in this working tree
    #[arg(long)]
    dry_run: bool,
    /// Skip the packages and the bills of materials, which take the longest time
    #[arg(long)]
    no_packages: bool,
    /// Write the files to this empty folder [default: `releases/VERSION` in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    release(root(), &target_folder(), arguments)
}

/// Makes a release of the tree at `root`, with cargo's target folder `target`.
fn release(root: &Path, target: &Path, arguments: &Arguments) -> Result<Result<(), Failure>> {
    let version = arguments.version;
    if let Some(reason) = objection(root, version)? {
        eprintln!("error: {reason}");
        return Ok(Err(Failure::Missing));
    }
    let tree = if arguments.dry_run {
        git::rehearsal(root, target)?
    } else {
        root.to_owned()
    };
    let out = out_folder(arguments, target)?;
    let is_committed = cut(&tree, version, arguments.dry_run)?;
    if !arguments.no_packages && !package(&tree, &out, arguments.dry_run)? {
        eprintln!("the packages were not built; the command may be repeated");
        return Ok(Err(Failure::Failed));
    }
    source::write(&tree, version, &out)?;
    let text = fs::read_to_string(tree.join(changelog::FILE)).context(changelog::FILE)?;
    let notes = changelog::section(&text, version);
    let notes = notes.with_context(|| format!("{} lacks {version}", changelog::FILE))?;
    fs::write(out.join("NOTES.md"), notes).context("NOTES.md")?;
    write_checksums(&out)?;
    println!("{}", summary(arguments, &out, is_committed));
    Ok(Ok(()))
}

/// Returns the reason why `version` cannot be released from the tree. Returns `None` if the release
/// is possible.
fn objection(tree: &Path, version: Version) -> Result<Option<String>> {
    if let Some(reason) = git::objection(tree, version)? {
        return Ok(Some(reason));
    }
    let present = Version::of_workspace(tree)?;
    let fragments = changelog::fragments(tree)?.len();
    Ok(changes::objection(version, present, fragments))
}

/// Commits the changes for the version. Returns whether a change was needed.
fn cut(tree: &Path, version: Version, is_rehearsal: bool) -> Result<bool> {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let changes = Changes::prepare(tree, version, today)?;
    if changes.is_empty() {
        return Ok(false);
    }
    changes.apply(tree)?;
    let mut resolve = cargo(["tree", "--locked", "--quiet", "--package", "xtask"]);
    resolve.current_dir(tree);
    require(&mut resolve).context("Cargo.lock does not fit the version")?;
    git::commit(tree, version, is_rehearsal)?;
    Ok(true)
}

/// Builds the packages in a separate process, since that process has the new version. Returns
/// whether the build succeeded.
fn package(tree: &Path, out: &Path, is_rehearsal: bool) -> Result<bool> {
    let mut package = cargo(["run", "--quiet", "--locked", "--package", "xtask", "--"]);
    package
        .args(["package", "--out"])
        .arg(out)
        .current_dir(tree);
    if is_rehearsal {
        // The clone has a target folder of its own.
        package.env_remove("CARGO_TARGET_DIR");
    }
    succeeds(&mut package)
}

/// Creates the folder for the files of the release. Empties the default folder. Any other folder
/// must be empty already.
fn out_folder(arguments: &Arguments, target: &Path) -> Result<PathBuf> {
    let folder = if let Some(folder) = &arguments.out {
        std::path::absolute(folder)?
    } else {
        let kind = if arguments.dry_run { "-dry-run" } else { "" };
        let name = format!("{}{kind}", arguments.version);
        let folder = target.join("releases").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        folder
    };
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let is_empty = fs::read_dir(&folder)?.next().is_none();
    ensure!(is_empty, "{} is not empty", folder.display());
    Ok(folder)
}

/// Writes the SHA-256 hashes of all files in the folder into `SHA256SUMS`.
fn write_checksums(folder: &Path) -> Result<()> {
    let names = files(folder)?;
    let mut hash = Command::new("sha256sum");
    hash.arg("--").args(&names).current_dir(folder);
    let output = hash
        .stderr(Stdio::inherit())
        .output()
        .context("sha256sum")?;
    ensure!(output.status.success(), "sha256sum: {}", output.status);
    fs::write(folder.join(CHECKSUMS), output.stdout).context(CHECKSUMS)
}

/// Returns the names of the files in a folder, sorted.
fn files(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry?.file_name().into_string();
        name.map_err(|name| anyhow::anyhow!("{} is not in UTF-8", name.display()))
    };
    let mut names: Vec<String> = entries.map(name).collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Returns a text with the files of the release, and with the steps that a person must perform.
fn summary(arguments: &Arguments, out: &Path, is_committed: bool) -> String {
    let version = arguments.version;
    let (tag, folder) = (version.tag(), out.display());
    let files = files(out).unwrap_or_default().join("\n  ");
    let mut text = format!("\nThe files of {version} are in {folder}:\n\n  {files}\n\n");
    if arguments.dry_run {
        text += "This was a rehearsal in a clone. Nothing in the tree has changed.";
        return text;
    }
    text += &format!(
        "Left to do by hand (RELEASING.md):\n\n  \
         git show                                                  # read the commit\n  \
         .ci/run                                                   # test and lint it\n  \
         git tag --sign {tag} --message 'Longhaul {version}'\n  \
         gpg --armor --detach-sign {folder}/{CHECKSUMS}\n  \
         git push --atomic REMOTE HEAD {tag}\n\n\
         Then publish the files with {CHECKSUMS}.asc, and NOTES.md as their description."
    );
    if is_committed {
        text += "\n`git reset --keep HEAD~` undoes the commit, as long as it is not pushed.";
    }
    text
}

const CHECKSUMS: &str = "SHA256SUMS";
