//! Tests of releases, in temporary trees whose `xtask` has no dependencies.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Parser;
use tempfile::TempDir;

use super::{
    CHECKSUMS, changelog, cut, files,
    git::{
        self, read, run,
        tests::{repository, version},
    },
    objection, release, write_checksums,
};
use crate::{
    Arguments, Failure, manifests,
    shell::{root, tests::write},
    version::Version,
};

#[test]
fn checksums_name_all_files_and_can_be_verified() {
    let folder = TempDir::new().expect("a folder");
    for name in ["b.deb", "a.tar.gz"] {
        write(folder.path(), name, name);
    }
    write_checksums(folder.path()).expect("sha256sum runs");
    let text = fs::read_to_string(folder.path().join(CHECKSUMS)).expect("checksums");
    let names: Vec<_> = text
        .lines()
        .filter_map(|it| it.split("  ").nth(1))
        .collect();
    assert_eq!(names, ["a.tar.gz", "b.deb"]);
    let verified = || {
        let mut verify = Command::new("sha256sum");
        verify.args(["--check", "--quiet", CHECKSUMS]);
        let output = verify.current_dir(folder.path()).output();
        output.expect("sha256sum runs").status.success()
    };
    assert!(verified());
    write(folder.path(), "b.deb", "other");
    assert!(!verified(), "a changed file is detected");
}

#[test]
fn summary_offers_to_undo_only_a_commit_that_was_made() {
    let out = TempDir::new().expect("a folder");
    let summary = |dry_run, is_committed| {
        let arguments = super::Arguments {
            version: version("0.2.0"),
            dry_run,
            no_packages: true,
            out: None,
        };
        super::summary(&arguments, out.path(), is_committed)
    };
    let undo = "git reset --keep HEAD~";
    assert!(summary(false, true).contains(undo));
    assert!(!summary(false, false).contains(undo));
    assert!(summary(false, false).contains("git tag --sign v0.2.0"));
    let rehearsed = summary(true, true);
    assert!(rehearsed.contains("rehearsal") && !rehearsed.contains("git "));
}

#[test]
fn release_needs_a_clean_tree_a_successor_and_fragments() {
    let folder = repository(&[("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\n")]);
    let tree = folder.path();
    let reason = |text| objection(tree, version(text)).expect("the tree can be read");
    assert_eq!(reason("0.1.0"), None);
    let reason_of_none = reason("0.2.0").expect("no fragments");
    assert!(reason_of_none.contains("no change to release"));
    write(
        tree,
        &format!("{}/fixed-a.md", changelog::FOLDER),
        "It is.\n",
    );
    let reason = reason("0.2.0").expect("the fragment is not committed");
    assert!(reason.contains("without a commit"), "{reason}");
}

#[test]
fn command_lines_of_workflows_and_of_the_page_exist() {
    let mut paths = vec![root().join("RELEASING.md")];
    for entry in fs::read_dir(root().join(".github/workflows")).expect("workflows") {
        paths.push(entry.expect("an entry").path());
    }
    let mut checked = 0;
    for path in paths {
        let text = fs::read_to_string(&path).expect("it can be read");
        // On a page, command lines are indented. In a workflow, all lines are indented.
        for line in text.lines().filter(|line| line.starts_with("    ")) {
            let Some((_, command)) = line.split_once("cargo xtask ") else {
                continue;
            };
            let command = command.replace("VERSION", "0.2.0");
            let words = ["xtask"].into_iter().chain(command.split_whitespace());
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{}: {line}: {error}", path.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 6, "{checked} command lines were found");
}

/// A tree that can be released, and a separate target folder.
struct Tree {
    repository: TempDir,
    target: TempDir,
}

impl Tree {
    /// Makes a tree of version 0.1.0 with one fragment. The source of the tree's `xtask` is `main`.
    fn new(main: &str) -> Self {
        let repository = repository(&[
            ("Cargo.toml", WORKSPACE),
            ("Cargo.lock", LOCK),
            ("fuzz/Cargo.lock", LOCK),
            ("xtask/Cargo.toml", PACKAGE),
            ("xtask/src/main.rs", main),
            (".gitignore", "/target\n"),
            ("packaging/debian/changelog", "longhaul (0.1.0-1)\n"),
            (changelog::FILE, "# C\n\n## [0.1.0] - 2026-11-29\n"),
            (FRAGMENT, "A fault is gone.\n"),
        ]);
        for (key, value) in [
            ("user.name", "test"),
            ("user.email", "test@localhost"),
            ("commit.gpgSign", "false"),
        ] {
            run(repository.path(), &["config", key, value]).expect("git runs");
        }
        let target = TempDir::new().expect("a folder");
        Self { repository, target }
    }

    fn path(&self) -> &Path {
        self.repository.path()
    }

    /// Releases a version, or rehearses the release. Also returns the folder of the files.
    fn release(
        &self,
        text: &str,
        dry_run: bool,
        no_packages: bool,
    ) -> (Result<(), Failure>, PathBuf) {
        let arguments = super::Arguments {
            version: version(text),
            dry_run,
            no_packages,
            out: None,
        };
        let released = release(self.path(), self.target.path(), &arguments).expect("no error");
        let kind = if dry_run { "-dry-run" } else { "" };
        let out = self.target.path().join(format!("releases/{text}{kind}"));
        (released, out)
    }

    /// Returns the newest commit, the uncommitted changes, and each file with its text.
    fn state(&self) -> (String, String, Vec<(String, String)>) {
        let git = |arguments: &[&str]| read(self.path(), arguments).expect("git runs");
        let names = git(&["ls-files"]);
        let files = names.lines().map(|name| {
            let text = fs::read_to_string(self.path().join(name)).expect(name);
            (name.to_owned(), text)
        });
        let changes = git(&["status", "--porcelain", "--ignored"]);
        (git(&["rev-parse", "HEAD"]), changes, files.collect())
    }
}

/// Returns a file of a source archive.
fn archived(archive: &Path, name: &str) -> String {
    let mut tar = Command::new("tar");
    let output = tar.arg("-xzOf").arg(archive).arg(name).output();
    String::from_utf8(output.expect("tar runs").stdout).expect("a text")
}

#[test]
fn release_commits_the_version_and_uses_up_the_fragments_once() {
    let tree = Tree::new(MAIN);
    let (before, ..) = tree.state();
    let (released, out) = tree.release("0.2.0", false, true);
    released.expect("a release");
    let (commit, changes, texts) = tree.state();
    assert_eq!(changes, "", "all is committed");
    let git = |arguments: &[&str]| read(tree.path(), arguments).expect("git runs");
    assert_eq!(git(&["rev-parse", "HEAD~"]), before, "one commit");
    let subject = git(&["log", "-1", "--format=%s %an"]);
    assert_eq!(subject, "release: cut version 0.2.0 test");
    let text = |name: &str| {
        let found = texts.iter().find(|(it, _)| it == name);
        found.map(|(_, text)| text.as_str())
    };
    for name in ["Cargo.toml", "Cargo.lock", "fuzz/Cargo.lock"] {
        assert!(text(name).is_some_and(|it| it.contains("\"0.2.0\"")));
    }
    assert_eq!(text(FRAGMENT), None);
    let section = "### Fixed\n\n- A fault is gone.\n\n## [0.1.0]";
    assert!(text(changelog::FILE).is_some_and(|it| it.contains(section)));
    let expected = ["NOTES.md", CHECKSUMS, "longhaul-0.2.0.tar.gz"];
    assert_eq!(files(&out).expect("a folder"), expected);

    let (repeated, _) = tree.release("0.2.0", false, true);
    repeated.expect("a release may be repeated");
    assert_eq!(tree.state().0, commit, "no second commit");
    run(tree.path(), &["tag", "v0.2.0"]).expect("git tags");
    let (refused, _) = tree.release("0.2.0", false, true);
    assert!(matches!(refused, Err(Failure::Missing)), "{refused:?}");
}

#[test]
fn rehearsal_makes_all_files_and_leaves_the_tree_unchanged() {
    let tree = Tree::new(MAIN);
    let before = tree.state();
    let (rehearsed, out) = tree.release("0.2.0", true, true);
    rehearsed.expect("a rehearsal");
    assert_eq!(tree.state(), before);
    let archive = out.join("longhaul-0.2.0.tar.gz");
    let manifest = archived(&archive, "longhaul-0.2.0/Cargo.toml");
    assert!(manifest.contains("version = \"0.2.0\""), "{manifest}");
    assert_eq!(
        archived(&archive, &format!("longhaul-0.2.0/{FRAGMENT}")),
        ""
    );
    let notes = fs::read_to_string(out.join("NOTES.md")).expect("notes");
    assert!(notes.contains("- A fault is gone."), "{notes}");
    let sums = fs::read_to_string(out.join(CHECKSUMS)).expect("checksums");
    assert!(sums.contains("  longhaul-0.2.0.tar.gz\n"), "{sums}");

    // The second rehearsal uses the clone of the first rehearsal again, although that clone has its
    // own commit.
    write(tree.path(), FRAGMENT, "Another fault is gone.\n");
    run(
        tree.path(),
        &["commit", "--quiet", "--all", "--message", "a"],
    )
    .expect("git commits");
    let before = tree.state();
    let (rehearsed, out) = tree.release("0.2.0", true, true);
    rehearsed.expect("a second rehearsal");
    assert_eq!(tree.state(), before);
    let notes = fs::read_to_string(out.join("NOTES.md")).expect("notes");
    assert!(notes.contains("- Another fault is gone."), "{notes}");
}

#[test]
fn packages_are_built_with_the_new_version_and_have_checksums() {
    let tree = Tree::new(MAIN);
    let before = tree.state();
    let (rehearsed, out) = tree.release("0.2.0", true, false);
    rehearsed.expect("a rehearsal");
    assert_eq!(tree.state(), before);
    let package = fs::read_to_string(out.join("longhaul.deb")).expect("a package");
    assert_eq!(package, "0.2.0");
    let sums = fs::read_to_string(out.join(CHECKSUMS)).expect("checksums");
    assert!(sums.contains("  longhaul.deb\n"), "{sums}");
}

#[test]
fn release_whose_packages_fail_to_build_fails_and_has_no_checksums() {
    let tree = Tree::new("fn main() { std::process::exit(1) }\n");
    let (rehearsed, out) = tree.release("0.2.0", true, false);
    assert!(matches!(rehearsed, Err(Failure::Failed)), "{rehearsed:?}");
    assert_eq!(files(&out).expect("a folder"), [""; 0]);
}

#[test]
fn newest_commit_of_this_tree_can_become_a_release() {
    if !root().join(".git").exists() {
        // A source archive has no commit.
        return;
    }
    let target = TempDir::new().expect("a folder");
    let clone = git::rehearsal(root(), target.path()).expect("git runs");
    let present = Version::of_workspace(&clone).expect("a version");
    let [_, next, _] = present.successors();
    assert!(cut(&clone, next, true).expect("a commit"));
    assert_eq!(Version::of_workspace(&clone).expect("a version"), next);
    let fragments = changelog::fragments(&clone).expect("the folder can be read");
    assert!(fragments.is_empty(), "{fragments:?}");
    let complaints = manifests::complaints(&clone).expect("the clone can be read");
    assert_eq!(complaints, [""; 0]);
    let changes = read(&clone, &["status", "--porcelain"]).expect("git runs");
    assert_eq!(changes, "");
}

const FRAGMENT: &str = "changelog/unreleased/fixed-a.md";

const WORKSPACE: &str = "\
[workspace]
members = [\"xtask\"]
resolver = \"3\"

[workspace.package]
version = \"0.1.0\"
";

const PACKAGE: &str = "\
[package]
name = \"xtask\"
edition = \"2024\"
version.workspace = true
";

const LOCK: &str = "\
version = 4

[[package]]
name = \"xtask\"
version = \"0.1.0\"
";

/// Stand-in for the command `package`. The resulting package contains the version of the program.
const MAIN: &str = "\
fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [package, out, folder] = arguments.try_into().expect(\"three arguments\");
    assert_eq!([&*package, &*out], [\"package\", \"--out\"]);
    let path = std::path::Path::new(&folder).join(\"longhaul.deb\");
    std::fs::write(path, env!(\"CARGO_PKG_VERSION\")).expect(\"room\");
}
";
