//! Checks of links. Each relative link must lead to an existing file and anchor, and each absolute
//! link must be a valid address.

use std::path::{Path, PathBuf};

use url::Url;

use super::page::Page;

/// Returns a complaint for each wrong link of `pages`. `pages` are all documents of the tree at
/// `root`.
pub(super) fn complaints(root: &Path, pages: &[Page]) -> Vec<String> {
    let mut complaints = Vec::new();
    for page in pages {
        for link in &page.document.links {
            let target = &link.target;
            if let Err(fault) = Place::resolve(&page.path, target)
                .and_then(|place| place.map_or(Ok(()), |place| place.check(root, pages)))
            {
                complaints.push(page.complaint(link.line, &format!("link to {target:?}: {fault}")));
            }
        }
    }
    complaints
}

/// Returns the files outside `docs` to which documents link, except the documents themselves.
pub(super) fn linked_files(root: &Path, pages: &[Page]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for page in pages {
        for link in &page.document.links {
            let place = Place::resolve(&page.path, &link.target).ok().flatten();
            files.extend(place.map(|place| place.path).filter(|path| {
                let is_page = pages.iter().any(|page| page.path == *path);
                !path.starts_with("docs") && !is_page && root.join(path).is_file()
            }));
        }
    }
    files.sort();
    files.dedup();
    files
}

/// The target of a relative link.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Path relative to the root of the repository.
    path: PathBuf,
    anchor: Option<String>,
}

impl Place {
    /// Returns the target of a link in the document at `from`. Returns `None` for an absolute
    /// address.
    fn resolve(from: &Path, target: &str) -> Result<Option<Self>, String> {
        match Url::parse(target) {
            Ok(url) if url.has_host() || url.scheme() == "mailto" => return Ok(None),
            Ok(_) => return Err("an address without a host".to_owned()),
            Err(url::ParseError::RelativeUrlWithoutBase) => {}
            Err(error) => return Err(error.to_string()),
        }
        let base = Url::from_file_path(Path::new(BASE).join(from));
        let base = base.map_err(|()| format!("{} is no path", from.display()))?;
        let url = base.join(target).map_err(|error| error.to_string())?;
        let path = url.to_file_path().map_err(|()| "no path".to_owned())?;
        let Ok(path) = path.strip_prefix(BASE) else {
            return Err("leads out of the repository".to_owned());
        };
        Ok(Some(Self {
            path: path.to_owned(),
            anchor: url.fragment().map(str::to_owned),
        }))
    }

    fn check(&self, root: &Path, pages: &[Page]) -> Result<(), String> {
        let path = &self.path;
        if root.join(path).is_dir() {
            return Err(format!("{} is a folder: name a file", path.display()));
        }
        if !root.join(path).is_file() {
            return Err(format!("there is no {}", path.display()));
        }
        let page = pages.iter().find(|page| page.path == *path);
        let is_document = path.extension().is_some_and(|it| it == "md");
        match (&self.anchor, page) {
            (_, None) if is_document => Err(format!("{} is no page of the book", path.display())),
            (None, _) => Ok(()),
            (Some(anchor), Some(page)) if page.document.anchors.contains(anchor) => Ok(()),
            (Some(anchor), _) => Err(format!("{} has no heading {anchor:?}", path.display())),
        }
    }
}

/// Placeholder for the path of the repository's root while relative paths are resolved.
const BASE: &str = "/repository";

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Place, complaints, linked_files};
    use crate::{book::page::Page, shell::root};

    fn resolve(target: &str) -> Result<Option<(PathBuf, Option<String>)>, String> {
        let place = Place::resolve(Path::new("docs/how-to/a.md"), target)?;
        Ok(place.map(|place| (place.path, place.anchor)))
    }

    #[test]
    fn a_relative_link_is_resolved_from_the_folder_of_its_page() {
        let place = |path: &str, anchor: Option<&str>| {
            Ok(Some((PathBuf::from(path), anchor.map(str::to_owned))))
        };
        assert_eq!(resolve("b.md"), place("docs/how-to/b.md", None));
        assert_eq!(resolve("#c"), place("docs/how-to/a.md", Some("c")));
        assert_eq!(resolve("../d.md#e"), place("docs/d.md", Some("e")));
        assert_eq!(resolve("../../README.md"), place("README.md", None));
        assert_eq!(resolve("a%20b.png"), place("docs/how-to/a b.png", None));
    }

    #[test]
    fn an_absolute_link_must_be_an_address() {
        assert_eq!(resolve("https://x.example/a#b"), Ok(None));
        assert_eq!(resolve("mailto:a@x.example"), Ok(None));
        for wrong in [
            "https://",
            "http:/\\",
            "javascript:x",
            "../../../a.md",
            "/docs/b.md",
        ] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_missing_file_a_missing_heading_and_a_folder_are_named() {
        let text = "# A\n\n[a](#a) [b](#b)\n\n[c](no.md) [d](../Cargo.toml)\n[e](results)\n";
        let pages = [Page::new("docs/moving.md", text)];
        assert_eq!(
            complaints(root(), &pages),
            [
                "docs/moving.md:3: link to \"#b\": docs/moving.md has no heading \"b\"",
                "docs/moving.md:5: link to \"no.md\": there is no docs/no.md",
                "docs/moving.md:6: link to \"results\": docs/results is a folder: name a file",
            ]
        );
        assert_eq!(linked_files(root(), &pages), [Path::new("Cargo.toml")]);
    }
}
