//! Files whose prose is checked. Each file counts for one crate or document in the baseline.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// A checked file.
#[derive(Debug)]
pub(super) struct Source {
    /// Path relative to the root of the workspace.
    pub path: PathBuf,
    /// Name in the baseline: `crates/NAME`, `xtask`, `fuzz`, `changelog`, or the path of a
    /// document.
    pub group: String,
}

impl Source {
    /// Creates the source for the file at `path`, which is relative to the root of the workspace.
    /// Returns `None` if the prose of the file is not checked.
    pub(super) fn new(path: impl Into<PathBuf>) -> Option<Self> {
        let path: PathBuf = path.into();
        let name = path.to_str()?;
        let parts: Vec<&str> = name.split('/').collect();
        let group = match parts[..] {
            ["crates", crate_name, .., file] if is_rust(file) => format!("crates/{crate_name}"),
            [folder @ ("xtask" | "fuzz"), .., file] if is_rust(file) => folder.to_owned(),
            ["changelog", .., file] if file.ends_with(".md") => "changelog".to_owned(),
            // All other pages of the results are written by commands, so their prose is not
            // checked.
            ["docs", "results", file] if file != "README.md" => return None,
            [file] | [".github" | "docs", .., file] if file.ends_with(".md") => name.to_owned(),
            _ => return None,
        };
        Some(Self { path, group })
    }

    /// Returns the part of the file's text that is checked. Changelog sections of earlier releases
    /// are not checked.
    pub(super) fn checked<'a>(&self, text: &'a str) -> &'a str {
        match text.find("\n## [") {
            Some(at) if self.group == "CHANGELOG.md" => &text[..=at],
            _ => text,
        }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.to_str().is_some_and(is_rust)
    }
}

fn is_rust(file: &str) -> bool {
    file.ends_with(".rs")
}

/// Returns the checked files below `root`, sorted by path.
pub(super) fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    for entry in entries(root)? {
        let path = entry.path();
        let is_source = FOLDERS.iter().any(|folder| path.ends_with(folder));
        if is_source && path.is_dir() {
            collect(&path, &mut paths)?;
        } else if path.is_file() {
            paths.push(path);
        }
    }
    let paths = paths.iter().filter_map(|path| path.strip_prefix(root).ok());
    let mut sources: Vec<_> = paths.filter_map(Source::new).collect();
    anyhow::ensure!(!sources.is_empty(), "there are no files to check");
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// Adds the files of a folder to `paths`, except build products.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in entries(folder)? {
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.file_name() != "target" {
            collect(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let entries: Result<Vec<_>, std::io::Error> = entries.collect();
    entries.with_context(|| folder.display().to_string())
}

/// Folders that contain comments or documents.
const FOLDERS: [&str; 6] = [".github", "changelog", "crates", "docs", "fuzz", "xtask"];

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn released_parts_of_the_changelog_are_not_checked() {
        let text = "# Changelog\n\nNew.\n\n## [0.1.0]\n\n- Old.\n";
        let checked = |path: &str| Source::new(path).expect("a document").checked(text);
        assert!(checked("CHANGELOG.md").ends_with("New.\n\n"));
        assert_eq!(checked("README.md"), text);
    }

    #[test]
    fn file_counts_for_its_crate_or_for_itself() {
        let group = |path: &str| Source::new(path).map(|source| source.group);
        assert_eq!(
            group("crates/net/src/tls/roots.rs").as_deref(),
            Some("crates/net")
        );
        assert_eq!(
            group("fuzz/fuzz_targets/link_pair.rs").as_deref(),
            Some("fuzz")
        );
        assert_eq!(group("README.md").as_deref(), Some("README.md"));
        assert_eq!(group("docs/moving.md").as_deref(), Some("docs/moving.md"));
        assert_eq!(
            group("changelog/unreleased/fixed-a.md").as_deref(),
            Some("changelog")
        );
        assert_eq!(
            group(".github/PULL_REQUEST_TEMPLATE.md").as_deref(),
            Some(".github/PULL_REQUEST_TEMPLATE.md")
        );
        assert_eq!(
            group("docs/results/README.md").as_deref(),
            Some("docs/results/README.md")
        );
        for path in [
            "docs/results/wan.md",
            "docs/a.svg",
            "crates/net/Cargo.toml",
            "Cargo.lock",
        ] {
            assert_eq!(group(path), None, "{path}");
        }
    }
}
