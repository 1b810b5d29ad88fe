//! Git commands that a release runs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{shell::require, version::Version};

/// Returns the reason why the tree at `tree` cannot become a release: uncommitted changes, or an
/// existing tag of this version. Returns `None` if the release is possible.
pub(super) fn objection(tree: &Path, version: Version) -> Result<Option<String>> {
    let changed = read(tree, &["status", "--porcelain"])?;
    if !changed.is_empty() {
        let reason = format!("the tree has changes without a commit:\n{changed}");
        return Ok(Some(reason));
    }
    let tag = version.tag();
    let found = read(tree, &["tag", "--list", &tag])?;
    let is_tagged = found == tag;
    Ok(is_tagged.then(|| format!("the version {version} is released: the tag {tag} exists")))
}

/// Returns the hash of the newest commit.
pub(super) fn head(tree: &Path) -> Result<String> {
    read(tree, &["rev-parse", "HEAD"])
}

/// Commits all changes of the tree.
///
/// In a rehearsal, the commit has a placeholder author and no signature.
pub(super) fn commit(tree: &Path, version: Version, is_rehearsal: bool) -> Result<()> {
    run(tree, &["add", "--all"])?;
    let mut git = command(tree);
    if is_rehearsal {
        git.args(["-c", "user.name=rehearsal", "-c", "commit.gpgSign=false"]);
        git.args(["-c", "user.email=rehearsal@localhost"]);
    }
    git.args(["commit", "--quiet", "--message"]);
    git.arg(format!("release: cut version {version}"));
    require(&mut git)
        .context("the commit failed; `git restore --staged --worktree .` undoes the changes")
}

/// Copies the newest commit of `tree` into the clone for rehearsals. Returns the folder of the
/// clone, which is below the target folder `target`.
///
/// The clone keeps its build products, so that the next rehearsal rebuilds only changed code.
pub(super) fn rehearsal(tree: &Path, target: &Path) -> Result<PathBuf> {
    let folder = target.join("rehearsal");
    if !folder.join(".git").exists() {
        init(&folder, &[])?;
    }
    let commit = fetch(tree, &folder)?;
    run(
        &folder,
        &["checkout", "--quiet", "--force", "--detach", &commit],
    )?;
    run(&folder, &["clean", "--quiet", "--force", "-d"])?;
    Ok(folder)
}

/// Creates a repository without commits.
pub(super) fn init(folder: &Path, options: &[&str]) -> Result<()> {
    let mut git = program();
    git.args(["init", "--quiet"]).args(options).arg(folder);
    require(&mut git)
}

/// Copies the newest commit of the repository `from` into the repository `to`. Returns the commit.
pub(super) fn fetch(from: &Path, to: &Path) -> Result<String> {
    let commit = head(from)?;
    let mut git = command(to);
    // Git does not pass on its `-c` settings to `upload-pack`, so this command sets them again.
    let sender = "git -c safe.directory=* upload-pack";
    git.args(["fetch", "--quiet", "--no-tags", "--depth=1"]);
    git.args(["--upload-pack", sender]);
    require(git.arg(from).arg("HEAD"))?;
    let fetched = read(to, &["rev-parse", "FETCH_HEAD"])?;
    ensure!(
        fetched == commit,
        "{fetched} was fetched instead of {commit}"
    );
    Ok(commit)
}

/// Returns a git command that runs in a folder. Git accepts the folder even if another user owns
/// it, as in containers.
pub(super) fn command(folder: &Path) -> Command {
    let mut git = program();
    git.args(["-c", "safe.directory=*"]).current_dir(folder);
    git
}

/// Returns a git command that uses the repository of its folder. In a git hook, environment
/// variables would otherwise make git use the hook's repository.
fn program() -> Command {
    let mut git = Command::new("git");
    for variable in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_CONFIG_PARAMETERS",
    ] {
        git.env_remove(variable);
    }
    git
}

/// Runs git in a folder.
pub(super) fn run(folder: &Path, arguments: &[&str]) -> Result<()> {
    require(command(folder).args(arguments))
}

/// Runs git in a folder, and returns its output.
pub(super) fn read(folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = command(folder);
    let output = git.args(arguments).output().context("git")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    let name = arguments.join(" ");
    ensure!(output.status.success(), "git {name}: {}", reason.trim());
    let text = String::from_utf8(output.stdout).with_context(|| format!("git {name}"))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::{Path, Version, command, commit, init, objection, run};
    use crate::shell::tests::write;

    /// Creates a repository with one commit that contains these files.
    pub(in crate::release) fn repository(files: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().expect("a folder");
        init(folder.path(), &[]).expect("git runs");
        for (name, text) in files {
            write(folder.path(), name, text);
        }
        commit(folder.path(), version("0.0.1"), true).expect("git commits");
        folder
    }

    pub(in crate::release) fn version(text: &str) -> Version {
        text.parse().expect("a version")
    }

    #[test]
    fn tree_with_uncommitted_changes_is_no_release() {
        let folder = repository(&[("a", "1"), (".gitignore", "/target\n")]);
        let objection = || objection(folder.path(), version("0.1.0")).expect("git runs");
        assert_eq!(objection(), None);
        write(folder.path(), "target/built", "1");
        assert_eq!(objection(), None, "build products do not count");
        write(folder.path(), "b", "1");
        let reason = objection().expect("a new file");
        assert!(reason.contains("without a commit:\n?? b"), "{reason}");
        fs::remove_file(folder.path().join("b")).expect("it exists");
        write(folder.path(), "a", "2");
        let reason = objection().expect("a changed file");
        assert!(reason.contains(" M a"), "{reason}");
    }

    #[test]
    fn version_with_a_tag_is_not_released_again() {
        let folder = repository(&[("a", "1")]);
        run(folder.path(), &["tag", "v0.1.0"]).expect("git tags");
        let objection = |text| objection(folder.path(), version(text)).expect("git runs");
        let reason = objection("0.1.0").expect("it has a tag");
        assert!(reason.contains("v0.1.0"), "{reason}");
        assert_eq!(objection("0.1.1"), None);
    }

    #[test]
    fn variables_of_a_hook_do_not_choose_the_repository() {
        let git = command(Path::new("."));
        let removed: Vec<_> = git
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .collect();
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            assert!(removed.iter().any(|(it, _)| *it == name), "{name}");
        }
    }
}
