//! The program of the previous release, built from an older commit of the repository.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::shell::{cargo, require, root, succeeds, target_folder};

/// The last commit whose gateways support at most version 5 of the gateway protocol. Tests use this
/// commit as the previous release until a previous release has a tag. Change the hash when the
/// latest protocol version changes.
const COMMIT: &str = "eafbd92452dc89db43e96414970edad63f8b7783";

/// Returns the path of the previous release's program. Builds the program if it does not exist yet.
///
/// # Errors
/// If git cannot export the commit, or the program cannot be built. A source archive and a shallow
/// clone do not contain the commit.
pub(crate) fn program() -> Result<PathBuf> {
    let name = format!("longhaul-{COMMIT}");
    provide(&target_folder().join("previous"), &name, |work| {
        let source = export(root(), COMMIT, work)?;
        build(&source, work)
    })
    .with_context(|| format!("no program of the previous release ({COMMIT})"))
}

/// Returns the path of the file `name` in a folder. If the file is missing, `make` creates it. A
/// concurrent run waits until the first run has created the file.
fn provide(
    folder: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join("lock");
    let lock = File::create(&path).with_context(|| path.display().to_string())?;
    lock.lock().with_context(|| path.display().to_string())?;
    let program = folder.join(name);
    if !program.exists() {
        let work = Work::new(folder.join("work"))?;
        let made = make(&work.0)?;
        fs::rename(&made, &program).with_context(|| program.display().to_string())?;
    }
    Ok(program)
}

/// Exports the files of a commit into the folder `work`. Returns the folder with the sources.
fn export(repository: &Path, commit: &str, work: &Path) -> Result<PathBuf> {
    let archive = work.join("source.tar");
    let source = work.join("source");
    // In a container, the repository often belongs to another user. The commit is archived instead
    // of cloned, because a shallow clone cannot be cloned.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "archive", "--format=tar"]);
    git.arg("--output").arg(&archive).arg(commit);
    require(git.current_dir(repository))?;
    fs::create_dir(&source).with_context(|| source.display().to_string())?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&source);
    require(&mut tar)?;
    Ok(source)
}

/// Builds the program from the sources in a folder.
fn build(source: &Path, work: &Path) -> Result<PathBuf> {
    let build = work.join("build");
    let mut cargo = cargo(["build", "--locked", "--release", "-p", "longhaul"]);
    cargo.arg("--manifest-path").arg(source.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&build);
    // The build reads its commit from git. Without this limit, it would find the commit of the
    // surrounding repository.
    cargo.env("GIT_CEILING_DIRECTORIES", work);
    anyhow::ensure!(succeeds(&mut cargo)?, "it does not build");
    Ok(build.join("release/longhaul"))
}

/// A temporary folder. Drop removes the folder.
struct Work(PathBuf);

impl Work {
    /// Creates an empty folder. Removes the folder of an interrupted run first.
    fn new(path: PathBuf) -> Result<Self> {
        remove(&path)
            .and_then(|()| fs::create_dir(&path))
            .with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, os::unix::fs::chown, process};

    use nix::unistd::geteuid;

    use super::*;

    /// Creates a temporary folder for one test, outside this repository.
    fn folder(test: &str) -> Work {
        let name = format!("longhaul-xtask-{test}-{}", process::id());
        Work::new(env::temp_dir().join(name)).expect("a temporary folder")
    }

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        git.args(arguments).current_dir(folder);
        let output = git.output().expect("git runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Creates a git repository with several commits in a folder. Returns its path and its middle
    /// commit.
    fn repository(folder: &Path) -> (PathBuf, String) {
        let repository = folder.join("repository");
        fs::create_dir(&repository).expect("a folder");
        git(&repository, &["init", "--quiet"]);
        for text in ["oldest", "middle", "latest"] {
            fs::write(repository.join("file"), text).expect("a file");
            git(&repository, &["add", "file"]);
            git(&repository, &["commit", "--quiet", "--message", text]);
        }
        let commit = git(&repository, &["rev-parse", "HEAD~"]);
        (repository, commit)
    }

    fn exported(repository: &Path, commit: &str, folder: &Path) -> Result<String> {
        let work = Work::new(folder.join("work"))?;
        let source = export(repository, commit, &work.0)?;
        Ok(fs::read_to_string(source.join("file"))?)
    }

    #[test]
    fn an_export_has_the_files_of_the_commit() {
        let folder = folder("export");
        let (repository, commit) = repository(&folder.0);
        let text = exported(&repository, &commit, &folder.0);
        assert_eq!(text.expect("an export"), "middle");
    }

    #[test]
    fn a_shallow_clone_that_has_the_commit_can_be_exported() {
        let folder = folder("shallow");
        let (repository, commit) = repository(&folder.0);
        let url = format!("file://{}", repository.display());
        for (depth, has_commit) in [("2", true), ("1", false)] {
            let clone = folder.0.join(depth);
            fs::create_dir(&clone).expect("a folder");
            git(&clone, &["clone", "--quiet", "--depth", depth, &url, "."]);
            let text = exported(&clone, &commit, &folder.0);
            assert_eq!(text.is_ok(), has_commit, "{text:?}");
        }
    }

    #[test]
    fn a_repository_of_another_user_can_be_exported() {
        if !geteuid().is_root() {
            return;
        }
        let folder = folder("owner");
        let (repository, commit) = repository(&folder.0);
        for path in [repository.clone(), repository.join(".git")] {
            chown(path, Some(65_534), Some(65_534)).expect("root may give a folder away");
        }
        let text = exported(&repository, &commit, &folder.0);
        assert_eq!(text.expect("an export"), "middle");
    }

    #[test]
    fn a_missing_commit_fails_with_the_error_of_git() {
        let folder = folder("missing");
        let (repository, _) = repository(&folder.0);
        let error = exported(&repository, COMMIT, &folder.0).expect_err("no such commit");
        assert!(format!("{error:#}").contains(COMMIT), "{error:#}");
        assert!(format!("{error:#}").contains("fatal: "), "{error:#}");
    }

    #[test]
    fn the_work_folder_is_removed_also_after_a_failure() {
        let folder = folder("work");
        let work = folder.0.join("work");
        fs::create_dir(&work).expect("a folder");
        fs::write(work.join("left"), "by an interrupted run").expect("a file");
        let failed = provide(&folder.0, "program", |work| {
            assert!(!work.join("left").exists());
            fs::write(work.join("source"), "")?;
            anyhow::bail!("it does not build")
        });
        assert_eq!(
            failed.expect_err("it fails").to_string(),
            "it does not build"
        );
        assert!(!work.exists());
        let made = provide(&folder.0, "program", |work| {
            fs::write(work.join("made"), "")?;
            Ok(work.join("made"))
        });
        assert!(made.expect("a program").exists());
        assert!(!work.exists());
        let kept = provide(&folder.0, "program", |_| unreachable!("it is made once"));
        assert!(kept.expect("a program").exists());
    }
}
