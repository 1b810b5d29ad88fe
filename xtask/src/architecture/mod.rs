//! Comparison of the tree with `ARCHITECTURE.md`. It checks the code map and the arrows between
//! crates. It also checks that no crate has import circles, and that no two public types share a
//! name.
//!
//! Each check returns its complaints as sentences. `cargo xtask lint` prints the complaints, and a
//! test asserts that there are no complaints.

mod arrows;
mod circles;
mod map;
mod type_names;

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Returns every difference between the tree at `root` and its `ARCHITECTURE.md`.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let path = root.join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut complaints = map::complaints(root, &text)?;
    complaints.extend(arrows::complaints(root, &text)?);
    complaints.extend(circles::complaints(root)?);
    complaints.extend(type_names::complaints(root)?);
    Ok(complaints)
}

/// Returns the crates of the workspace, by the names of their folders.
fn crates(root: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = children(&root.join("crates"))?;
    names.sort();
    anyhow::ensure!(!names.is_empty(), "there are no crates");
    Ok(names)
}

/// Returns the names of a folder's entries.
fn children(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::shell::root;

    #[test]
    fn the_tree_is_as_the_architecture_says() {
        let complaints = super::complaints(root()).expect("the tree can be read");
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}
