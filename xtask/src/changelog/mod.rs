//! The changelog. It consists of `CHANGELOG.md`, and of one fragment in `changelog/unreleased` for
//! each change since the last release.
//!
//! `cargo xtask lint` checks the changelog and the fragments. `cargo xtask release` adds the
//! fragments to `CHANGELOG.md`.

mod fragment;
mod releases;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

pub(crate) use self::{
    fragment::Fragment,
    releases::{join, section},
};
use crate::version::Version;

/// Path of the changelog, relative to the root of the workspace.
pub(crate) const FILE: &str = "CHANGELOG.md";

/// Path of the folder of fragments, relative to the root of the workspace.
pub(crate) const FOLDER: &str = "changelog/unreleased";

/// Returns every fault of the changelog and of the fragments in the tree at `root`.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in paths(root)? {
        if let Err(error) = read(&root.join(&path)) {
            complaints.push(format!("changelog: {}: {error:#}", path.display()));
        }
    }
    let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let present = Version::of_workspace(root)?;
    match releases::newest(&text) {
        Ok(newest) if newest == present => {}
        Ok(newest) => complaints.push(format!(
            "changelog: {FILE} begins with {newest}, and Cargo.toml has {present}; \
             `cargo xtask release` sets both"
        )),
        Err(error) => complaints.push(format!(
            "changelog: {FILE}: {error:#}; a new change has a file in {FOLDER}"
        )),
    }
    Ok(complaints)
}

/// Reads the fragments in the tree at `root`, sorted by name. Returns each fragment with its path.
///
/// # Errors
/// If a fragment cannot be parsed.
pub(crate) fn fragments(root: &Path) -> Result<Vec<(PathBuf, Fragment)>> {
    let read = |path: PathBuf| {
        let fragment = read(&root.join(&path)).with_context(|| path.display().to_string())?;
        Ok((path, fragment))
    };
    paths(root)?.into_iter().map(read).collect()
}

/// Returns the paths of the fragment files, except hidden files. The folder may be missing, since
/// Git does not store empty folders.
fn paths(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join(FOLDER);
    let mut paths = Vec::new();
    if folder.exists() {
        for entry in fs::read_dir(&folder).context(FOLDER)? {
            let name = entry?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                paths.push(Path::new(FOLDER).join(name));
            }
        }
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Fragment> {
    let name = path.file_name().and_then(|name| name.to_str());
    let text = fs::read_to_string(path)?;
    Fragment::parse(name.context("the name is not in UTF-8")?, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::{FOLDER, Fragment};
    use crate::shell::{root, tests::write};

    #[test]
    fn changelog_and_fragments_of_the_tree_have_no_fault() {
        let complaints = super::complaints(root()).expect("the tree can be read");
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    #[test]
    fn each_faulty_file_is_a_complaint() {
        let folder = TempDir::new().expect("a folder");
        let tree = folder.path();
        let manifest = "[workspace.package]\nversion = \"0.2.0\"\n";
        write(tree, "Cargo.toml", manifest);
        write(tree, "CHANGELOG.md", "# C\n\n## [0.1.0] - 2026-11-29\n");
        write(tree, &format!("{FOLDER}/.gitkeep"), "");
        write(tree, &format!("{FOLDER}/fixed-a.md"), "It is.\n");
        write(tree, &format!("{FOLDER}/fixed-b.md"), "\n");
        write(tree, &format!("{FOLDER}/notes.txt"), "It is.\n");
        let complaints = super::complaints(tree).expect("the tree can be read");
        assert_eq!(complaints.len(), 3, "{complaints:#?}");
        assert!(complaints[0].contains("fixed-b.md: the text is empty"));
        assert!(complaints[1].contains("notes.txt: "));
        assert!(complaints[2].contains("begins with 0.1.0, and Cargo.toml has 0.2.0"));
        assert!(super::fragments(tree).is_err());

        write(tree, "CHANGELOG.md", "# C\n\n## [Unreleased]\n\n- New.\n");
        let complaints = super::complaints(tree).expect("the tree can be read");
        assert!(complaints[2].contains("Unreleased"), "{complaints:#?}");
    }

    #[test]
    fn tree_without_the_folder_has_no_fragments() {
        let folder = TempDir::new().expect("a folder");
        let none = super::fragments(folder.path()).expect("it may be missing");
        assert!(none.is_empty());
    }

    #[test]
    fn unchanged_template_is_no_fragment() {
        let path = root().join("changelog/template.md");
        let text = fs::read_to_string(path).expect("the template can be read");
        let error = Fragment::parse("fixed-a.md", &text).expect_err("it has explanations");
        assert!(error.to_string().contains("template"), "{error}");
        let (entry, _) = text.split_once("<!--").expect("explanations");
        Fragment::parse("fixed-a.md", entry).expect("the example is an entry");
    }
}
