//! The source archive of a release. Its bytes do not depend on the machine that creates it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::git;
use crate::{shell::require, version::Version};

/// Writes `longhaul-VERSION.tar.gz` with the newest commit of `tree` into the folder `out`.
///
/// For a check it creates a second archive from a copy of the repository. The second archive uses
/// another time zone, and ignores the git configuration of the user and the machine.
///
/// # Errors
/// If the two archives differ.
pub(super) fn write(tree: &Path, version: Version, out: &Path) -> Result<()> {
    let name = format!("longhaul-{version}");
    pack(tree, &git::head(tree)?, &name, out, &[])?;
    let work = TempDir::new()?;
    let copy = work.path().join("copy.git");
    git::init(&copy, &["--bare"])?;
    let commit = git::fetch(tree, &copy)?;
    let settings = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("LC_ALL", "C"),
        ("TZ", "Pacific/Auckland"),
    ];
    pack(&copy, &commit, &name, work.path(), &settings)?;
    let file = format!("{name}.tar.gz");
    let [first, second] = [out, work.path()].map(|folder| fs::read(folder.join(&file)));
    ensure!(
        first? == second?,
        "{file} is not reproducible: a second one differs"
    );
    Ok(())
}

/// Writes an archive with the files of a commit to `out`. All files have the time of the commit.
fn pack(
    repository: &Path,
    commit: &str,
    name: &str,
    out: &Path,
    settings: &[(&str, &str)],
) -> Result<()> {
    let archive = out.join(format!("{name}.tar"));
    let mut git = git::command(repository);
    // Without this option, a setting of the user could change the permissions in the archive.
    git.args(["-c", "tar.umask=0022", "archive", "--format=tar"]);
    git.arg(format!("--prefix={name}/")).arg("--output");
    git.arg(&archive).arg(commit).envs(settings.iter().copied());
    require(&mut git)?;
    // The compressed file contains neither its original name nor the time of the compression.
    let mut gzip = Command::new("gzip");
    gzip.args(["--no-name", "--best", "--force"]).arg(&archive);
    require(&mut gzip).context("the source archive cannot be compressed")
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use tempfile::TempDir;

    use super::write;
    use crate::release::git::tests::{repository, version};

    #[test]
    fn archive_has_the_same_bytes_each_time_and_the_files_of_the_commit_alone() {
        let folder = repository(&[("src/a.rs", "fn a() {}\n"), ("b", "1\n")]);
        fs::write(folder.path().join("left-over"), "1").expect("room");
        let archives = [0, 1].map(|_| {
            let out = TempDir::new().expect("a folder");
            write(folder.path(), version("0.2.0"), out.path()).expect("an archive");
            out
        });
        let path = |out: &TempDir| out.path().join("longhaul-0.2.0.tar.gz");
        let bytes = archives
            .each_ref()
            .map(|out| fs::read(path(out)).expect("a file"));
        assert_eq!(bytes[0], bytes[1]);
        let mut tar = Command::new("tar");
        let listed = tar.arg("-tzf").arg(path(&archives[0])).output();
        let listed = String::from_utf8(listed.expect("tar runs").stdout).expect("names");
        let mut names: Vec<_> = listed.lines().filter(|it| !it.ends_with('/')).collect();
        names.sort_unstable();
        assert_eq!(names, ["longhaul-0.2.0/b", "longhaul-0.2.0/src/a.rs"]);
        let rest = fs::read_dir(archives[0].path()).expect("a folder").count();
        assert_eq!(rest, 1, "no uncompressed archive stays");
    }

    #[test]
    fn archive_that_depends_on_the_configuration_of_the_repository_is_refused() {
        let folder = repository(&[("a", "1\n"), ("b", "1\n")]);
        let attributes = folder.path().join(".git/info/attributes");
        fs::create_dir_all(attributes.parent().expect("a folder")).expect("a folder");
        fs::write(attributes, "b export-ignore\n").expect("room");
        let out = TempDir::new().expect("a folder");
        let error = write(folder.path(), version("0.2.0"), out.path());
        let error = error.expect_err("the copy has no such setting").to_string();
        assert!(error.contains("not reproducible"), "{error}");
    }
}
