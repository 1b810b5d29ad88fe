//! Documents of the book, and the check that their list is complete.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::document::Document;

/// A document of the book.
#[derive(Debug)]
pub(super) struct Page {
    /// Path relative to the root of the repository.
    pub path: PathBuf,
    pub text: String,
    pub document: Document,
}

impl Page {
    pub(super) fn new(path: impl Into<PathBuf>, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.to_owned(),
            document: Document::parse(text),
        }
    }

    /// Reads all documents of the tree at `root`, sorted by path.
    pub(super) fn read_all(root: &Path) -> Result<Vec<Self>> {
        let mut paths: Vec<PathBuf> = ROOT_PAGES.iter().map(PathBuf::from).collect();
        let all = files(root, Path::new("docs"))?.into_iter();
        paths.extend(all.filter(|path| path.extension().is_some_and(|it| it == "md")));
        let pages = paths.into_iter().map(|path| {
            let text = fs::read_to_string(root.join(&path));
            let text = text.with_context(|| path.display().to_string())?;
            Ok(Self::new(path, &text))
        });
        pages.collect()
    }

    /// Formats a complaint about a line of the page.
    pub(super) fn complaint(&self, line: usize, fault: &str) -> String {
        format!("{}:{line}: {fault}", self.path.display())
    }
}

/// Returns the files below a folder of `root`, sorted. The paths are relative to `root`.
pub(super) fn files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let entries = fs::read_dir(root.join(folder));
    for entry in entries.with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => all.extend(files(root, &path)?),
            false => all.push(path),
        }
    }
    all.sort();
    Ok(all)
}

/// Returns complaints about pages that `docs/SUMMARY.md` does not list, and about a README that is
/// too long.
pub(super) fn complaints(pages: &[Page]) -> Vec<String> {
    let mut complaints = Vec::new();
    let summary = pages.iter().find(|page| page.path == Path::new(SUMMARY));
    let links = summary.map_or(&[][..], |page| &page.document.links);
    for page in pages {
        let Ok(path) = page.path.strip_prefix("docs") else {
            continue;
        };
        let is_listed = links.iter().any(|link| Path::new(&link.target) == path);
        if page.path != Path::new(SUMMARY) && !is_listed {
            complaints.push(page.complaint(1, &format!("{SUMMARY} does not list this page")));
        }
    }
    for page in pages
        .iter()
        .filter(|page| page.path == Path::new("README.md"))
    {
        let words = page.text.split_whitespace().count();
        if words > README_WORDS_MAX {
            let fault = format!("{words} words, expected at most {README_WORDS_MAX}");
            complaints.push(page.complaint(1, &fault));
        }
    }
    complaints
}

/// Path of the list of all pages in `docs`.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";

/// Documents outside `docs`. The README is the first page of the book.
pub(super) const ROOT_PAGES: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "RELEASING.md",
    "SECURITY.md",
];

/// Maximum number of words of the README. Readers need three minutes for it.
const README_WORDS_MAX: usize = 700;

#[cfg(test)]
mod tests {
    use super::{Page, complaints};

    #[test]
    fn a_page_that_the_summary_leaves_out_is_named() {
        let pages = [
            Page::new("docs/SUMMARY.md", "- [A](a.md)\n  - [B](b/c.md)\n"),
            Page::new("docs/a.md", ""),
            Page::new("docs/b/c.md", ""),
            Page::new("docs/b/d.md", ""),
            Page::new("SECURITY.md", ""),
        ];
        let expected = ["docs/b/d.md:1: docs/SUMMARY.md does not list this page"];
        assert_eq!(complaints(&pages), expected);
    }

    #[test]
    fn a_readme_of_more_than_700_words_is_too_long() {
        let complaints = |words: usize| complaints(&[Page::new("README.md", &"a ".repeat(words))]);
        assert_eq!(complaints(700), [] as [&str; 0]);
        let expected = ["README.md:1: 701 words, expected at most 700"];
        assert_eq!(complaints(701), expected);
    }
}
