//! The book as HTML pages. mdBook builds it from a copy of the documents.
//!
//! The copy has the same layout as the repository. A relative link therefore leads to the same
//! document in the book and in the repository. The copy also contains the files outside `docs` to
//! which documents link.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::page::{Page, ROOT_PAGES, SUMMARY, files};
use crate::shell::{Build, read_lines, tool};

/// Builds the book of `pages` into the folder `out`, and returns complaints about the book.
/// `linked` are files outside `docs` that the book must contain.
pub(super) fn build(
    root: &Path,
    pages: &[Page],
    linked: &[PathBuf],
    out: &Path,
) -> Result<Vec<String>> {
    let source = out.with_added_extension("source");
    for folder in [out, &source] {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
    }
    write(&source.join("book.toml"), BOOK)?;
    let pages_of_root = ROOT_PAGES.iter().map(PathBuf::from);
    let all = files(root, Path::new("docs"))?.into_iter();
    for path in all.chain(pages_of_root).chain(linked.iter().cloned()) {
        let from = fs::read(root.join(&path)).with_context(|| path.display().to_string())?;
        write(&source.join("src").join(&path), from)?;
    }
    let listed = fs::read_to_string(root.join(SUMMARY))?;
    write(&source.join("src/SUMMARY.md"), summary(&listed))?;
    let mut complaints = Vec::new();
    let mut mdbook = Command::new(tool("mdbook", MDBOOK_VERSION, Build::Quick)?);
    mdbook.arg("build").arg("--dest-dir").arg(out).arg(&source);
    let is_built = read_lines(&mut mdbook, |line| {
        if line.contains("WARN") || line.contains("ERROR") {
            complaints.push(format!("mdbook: {line}"));
        } else {
            eprintln!("{line}");
        }
    })?;
    if !is_built {
        complaints.push("mdbook: the book is not built".to_owned());
        return Ok(complaints);
    }
    complaints.extend(wrong_links(out, pages)?);
    Ok(complaints)
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, content).with_context(|| path.display().to_string())
}

/// Returns mdBook's list of all pages: the README, the pages in `listed` (`docs/SUMMARY.md`), and
/// the other documents of the root.
fn summary(listed: &str) -> String {
    let listed = listed
        .trim_start_matches("# Summary")
        .replace("](", "](docs/");
    let mut text = format!("# Summary\n\n[Longhaul](README.md)\n{listed}\n# Project\n\n");
    for path in ROOT_PAGES.iter().filter(|path| **path != "README.md") {
        let name = path.trim_end_matches(".md");
        let (first, rest) = name.split_at(1);
        text += &format!("- [{first}{}]({path})\n", rest.to_lowercase());
    }
    text += &format!("- [All pages]({SUMMARY})\n");
    text
}

/// Returns a complaint for each relative link in the built pages, if the target of the link does
/// not exist.
fn wrong_links(out: &Path, pages: &[Page]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for page in pages {
        let path = page.path.with_extension("html");
        let html = fs::read_to_string(out.join(&path));
        let Ok(html) = html else {
            complaints.push(format!("the book lacks {}", path.display()));
            continue;
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        for link in links(&html) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => out.join(&path),
                file => out.join(folder).join(file),
            };
            let is_there = match anchor {
                "" => target.is_file(),
                anchor => fs::read_to_string(&target)
                    .is_ok_and(|html| html.contains(&format!("id=\"{anchor}\""))),
            };
            if !is_there {
                let page = page.path.display();
                complaints.push(format!(
                    "{page}: its page in the book has a dead link: {link}"
                ));
            }
        }
    }
    Ok(complaints)
}

/// Returns the relative links of an HTML page that mdBook has written.
fn links(html: &str) -> BTreeSet<&str> {
    let values = [" href=\"", " src=\""].map(|name| html.split(name).skip(1));
    let values = values.into_iter().flatten();
    let values = values.filter_map(|behind| behind.split('"').next());
    let is_relative = |value: &&str| !value.is_empty() && !value.contains(':');
    values.filter(is_relative).collect()
}

const MDBOOK_VERSION: &str = "0.5.4";

/// Settings of mdBook.
const BOOK: &str = include_str!("book.toml");

#[cfg(test)]
mod tests {
    use super::{links, summary};

    #[test]
    fn the_list_of_the_book_has_the_readme_the_listed_pages_and_the_root() {
        let text = summary("# Summary\n\n# A\n\n- [B](b.md)\n  - [C](c/d.md)\n");
        assert!(
            text.starts_with(
                "# Summary\n\n[Longhaul](README.md)\n\n\n# A\n\n- [B](docs/b.md)\n  - [C](docs/c/d.md)\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("- [Contributing](CONTRIBUTING.md)\n"),
            "{text}"
        );
        assert_eq!(text.matches("README.md").count(), 1);
    }

    #[test]
    fn links_of_a_built_page_are_the_relative_ones() {
        let html =
            "<a href=\"a.html#b\">x</a><img src=\"c.png\"><a href=\"https://d\"><a href=\"#e\">";
        assert_eq!(Vec::from_iter(links(html)), ["#e", "a.html#b", "c.png"]);
    }
}
