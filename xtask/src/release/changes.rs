//! Changes of files for a new release: the version number, the changelog, and the removal of its
//! fragments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use jiff::civil::Date;
use toml_edit::{DocumentMut, Item, value};

use crate::{
    changelog::{self, Fragment},
    version::Version,
};

/// Changes of files. The paths are relative to the root of the workspace.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Paths and new contents of files.
    texts: Vec<(PathBuf, String)>,
    /// Paths of files to remove.
    removed: Vec<PathBuf>,
}

/// Returns the reason why `version` cannot follow the version `present`. One reason is that no
/// fragment describes a change. Returns `None` if `version` can follow, or if both versions are
/// equal.
pub(super) fn objection(version: Version, present: Version, fragments: usize) -> Option<String> {
    if version == present {
        return None;
    }
    let successors = present.successors();
    if !successors.contains(&version) {
        let [patch, minor, major] = successors;
        return Some(format!(
            "{version} does not follow {present}; {patch}, {minor} and {major} do"
        ));
    }
    (fragments == 0).then(|| format!("{} has no change to release", changelog::FOLDER))
}

impl Changes {
    /// Determines the changes that turn the tree at `root` into the release `version` with the date
    /// `date`.
    ///
    /// # Errors
    /// If a file cannot be read, or has an unexpected form.
    pub(super) fn prepare(root: &Path, version: Version, date: Date) -> Result<Self> {
        let mut changes = Self::default();
        let present = Version::of_workspace(root)?;
        let fragments = changelog::fragments(root)?;
        if !fragments.is_empty() {
            let (paths, fragments): (_, Vec<Fragment>) = fragments.into_iter().unzip();
            changes.removed = paths;
            changes.edit(root, changelog::FILE, |text| {
                changelog::join(text, version, date, &fragments)
            })?;
        }
        if version != present {
            changes.edit(root, "Cargo.toml", |text| manifest(text, version))?;
            for path in ["Cargo.lock", "fuzz/Cargo.lock"] {
                changes.edit(root, path, |text| lock(text, present, version))?;
            }
            changes.edit(root, "packaging/debian/changelog", |text| {
                Ok(debian(text, version, date))
            })?;
        }
        Ok(changes)
    }

    fn edit(
        &mut self,
        root: &Path,
        path: &str,
        edit: impl FnOnce(&str) -> Result<String>,
    ) -> Result<()> {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        let text = edit(&text).with_context(|| path.to_owned())?;
        self.texts.push((path.into(), text));
        Ok(())
    }

    /// Returns whether the tree is already the release, so that no change is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.removed.is_empty()
    }

    /// Applies the changes to the tree at `root`.
    pub(super) fn apply(&self, root: &Path) -> Result<()> {
        for (path, text) in &self.texts {
            fs::write(root.join(path), text).with_context(|| path.display().to_string())?;
        }
        for path in &self.removed {
            fs::remove_file(root.join(path)).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// Returns the text of `Cargo.toml` with the new version of the workspace. Dependencies on crates
/// of the workspace also get the new version.
fn manifest(text: &str, version: Version) -> Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let package = document
        .get_mut("workspace")
        .and_then(|it| it.get_mut("package"));
    let present = package.and_then(|it| it.get_mut("version"));
    // If the key is missing, the library returns an item without a value.
    let present = present.filter(|it| it.is_str());
    *present.context("no workspace.package.version")? = value(version.to_string());
    let dependencies = document
        .get_mut("workspace")
        .and_then(|it| it.get_mut("dependencies"))
        .and_then(Item::as_table_like_mut);
    for (_, dependency) in dependencies.into_iter().flat_map(|it| it.iter_mut()) {
        if let Some(dependency) = dependency.as_inline_table_mut()
            && dependency.contains_key("path")
            && let Some(present) = dependency.get_mut("version")
        {
            let decor = present.decor().clone();
            *present = version.to_string().into();
            *present.decor_mut() = decor;
        }
    }
    Ok(document.to_string())
}

/// Returns the text of `Cargo.lock` with the new version for all crates of the workspace. Crates
/// with a source or with another version do not belong to the workspace.
fn lock(text: &str, present: Version, version: Version) -> Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let packages = document.get_mut("package");
    let packages = packages.and_then(Item::as_array_of_tables_mut);
    let present = present.to_string();
    for package in packages.context("no packages")?.iter_mut() {
        let found = package.get("version").and_then(Item::as_str);
        if found == Some(&present) && !package.contains_key("source") {
            package["version"] = value(version.to_string());
        }
    }
    Ok(document.to_string())
}

/// Returns the changelog of the Debian packages with a new entry for the version at its top. The
/// author is the author of the previous entry.
fn debian(text: &str, version: Version, date: Date) -> String {
    let author = text.lines().find_map(|line| line.strip_prefix(" -- "));
    let author = author.and_then(|line| line.split_once("  "));
    let author = author.map_or("Longhaul developers", |(author, _)| author);
    let day = date.strftime("%a, %d %b %Y");
    format!(
        "longhaul ({version}-1) unstable; urgency=medium\n\n  \
         * Version {version}. CHANGELOG.md has its changes.\n\n \
         -- {author}  {day} 00:00:00 +0000\n\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jiff::civil::{Date, date};

    use super::{Changes, debian, lock, manifest, objection};
    use crate::{
        changelog::FOLDER,
        release::git::tests::{repository, version},
        shell::root,
    };

    const DAY: Date = date(2026, 12, 24);

    const LOCK: &str = "\
# Generated by Cargo.
version = 4

[[package]]
name = \"codec\"
version = \"0.1.0\"
dependencies = [
 \"bytes\",
]

[[package]]
name = \"foreign\"
version = \"0.1.0\"
source = \"registry+https://github.com/rust-lang/crates.io-index\"
checksum = \"00\"

[[package]]
name = \"fuzz\"
version = \"0.0.0\"
";

    #[test]
    fn version_follows_the_present_one_or_is_the_present_one() {
        let objection = |to, from, fragments| objection(version(to), version(from), fragments);
        assert_eq!(objection("0.1.0", "0.1.0", 0), None);
        assert_eq!(objection("0.1.0", "0.1.0", 3), None);
        for next in ["0.1.1", "0.2.0", "1.0.0"] {
            assert_eq!(objection(next, "0.1.0", 1), None, "{next}");
        }
        for other in ["0.0.9", "0.1.2", "0.3.0", "0.2.1", "2.0.0"] {
            let reason = objection(other, "0.1.0", 1).expect(other);
            assert!(reason.contains("0.1.1, 0.2.0 and 1.0.0 do"), "{reason}");
        }
        let reason = objection("0.2.0", "0.1.0", 0).expect("no fragments");
        assert!(reason.contains(FOLDER), "{reason}");
    }

    #[test]
    fn only_versions_of_the_workspace_change_in_the_manifest() {
        let text = "[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\" # New.\n\n\
                    [workspace.dependencies]\n\
                    units = { path = \"crates/units\", version = \"0.1.0\" }\n\
                    other = \"0.1.0\"\nthird = { version = \"0.1.0\" }\n";
        let changed = manifest(text, version("0.2.0")).expect("a manifest");
        assert_eq!(changed, text.replacen("0.1.0", "0.2.0", 2));
        assert!(manifest("[workspace]\n", version("0.2.0")).is_err());
    }

    #[test]
    fn only_crates_of_the_workspace_change_in_the_lock() {
        let changed = lock(LOCK, version("0.1.0"), version("0.2.0")).expect("a lock");
        assert_eq!(changed, LOCK.replacen("0.1.0", "0.2.0", 1));
    }

    #[test]
    fn real_lock_changes_in_the_lines_of_the_workspace_alone() {
        let text = fs::read_to_string(root().join("Cargo.lock")).expect("a lock");
        let present = super::Version::of_workspace(root()).expect("a version");
        let [next, ..] = present.successors();
        let changed = lock(&text, present, next).expect("a lock");
        let pairs = text.lines().zip(changed.lines());
        let changed: Vec<_> = pairs.filter(|(before, after)| before != after).collect();
        let crates = fs::read_dir(root().join("crates")).expect("crates");
        assert_eq!(changed.len(), crates.count() + 1, "{changed:?}");
        let line = format!("version = \"{next}\"");
        assert!(changed.iter().all(|(_, after)| *after == line));
    }

    #[test]
    fn debian_entry_has_the_author_and_form_of_the_entry_before() {
        let before = "longhaul (0.1.0-1) unstable; urgency=medium\n\n  * First.\n\n \
                      -- A B <a@b.invalid>  Fri, 27 Nov 2026 09:00:00 +0000\n";
        let entry = "longhaul (0.2.0-1) unstable; urgency=medium\n\n  \
                     * Version 0.2.0. CHANGELOG.md has its changes.\n\n \
                     -- A B <a@b.invalid>  Thu, 24 Dec 2026 00:00:00 +0000\n\n";
        let text = debian(before, version("0.2.0"), DAY);
        assert_eq!(text, format!("{entry}{before}"));
    }

    #[test]
    fn changes_set_the_version_everywhere_and_use_up_the_fragments() {
        let fragment = format!("{FOLDER}/fixed-a.md");
        let keep = format!("{FOLDER}/.gitkeep");
        let folder = repository(&[
            ("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\n"),
            ("Cargo.lock", LOCK),
            ("fuzz/Cargo.lock", LOCK),
            ("packaging/debian/changelog", "longhaul (0.1.0-1)\n"),
            ("CHANGELOG.md", "# C\n\n## [0.1.0] - 2026-11-29\n"),
            (&fragment, "A fault is gone.\n"),
            (&keep, ""),
        ]);
        let tree = folder.path();
        let read = |name: &str| fs::read_to_string(tree.join(name)).expect(name);
        let changes = Changes::prepare(tree, version("0.2.0"), DAY).expect("changes");
        assert!(read("Cargo.toml").contains("0.1.0"), "nothing changes yet");
        changes.apply(tree).expect("the files can be written");
        for name in ["Cargo.toml", "Cargo.lock", "fuzz/Cargo.lock"] {
            assert!(read(name).contains("version = \"0.2.0\""), "{name}");
        }
        assert!(read("packaging/debian/changelog").starts_with("longhaul (0.2.0-1)"));
        let section = "## [0.2.0] - 2026-12-24\n\n### Fixed\n\n- A fault is gone.\n\n## [0.1.0]";
        assert!(read("CHANGELOG.md").contains(section));
        assert!(!tree.join(&fragment).exists());
        assert!(tree.join(&keep).exists());

        let again = Changes::prepare(tree, version("0.2.0"), DAY).expect("changes");
        assert!(again.is_empty(), "{again:?}");
    }
}
