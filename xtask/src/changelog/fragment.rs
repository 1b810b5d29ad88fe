//! Fragments of the changelog: one file for each change since the last release.
//!
//! The name of the file contains the kind of the change. It may also contain the number of an
//! issue, as in `fixed-48-quota.md`. The text of the file is one entry of the changelog.

use anyhow::{Context, Result, ensure};

/// Kind of a change. The variants have the order of "Keep a Changelog".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// New features.
    Added,
    /// Changes of existing features.
    Changed,
    /// Features that a later release removes.
    Deprecated,
    /// Removed features.
    Removed,
    /// Corrected faults.
    Fixed,
    /// Closed vulnerabilities.
    Security,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Added,
        Self::Changed,
        Self::Deprecated,
        Self::Removed,
        Self::Fixed,
        Self::Security,
    ];

    /// Returns the heading of the kind.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Changed => "Changed",
            Self::Deprecated => "Deprecated",
            Self::Removed => "Removed",
            Self::Fixed => "Fixed",
            Self::Security => "Security",
        }
    }

    /// Returns the kind that has this heading.
    pub(super) fn of_heading(heading: &str) -> Result<Self> {
        let kind = Self::ALL.into_iter().find(|it| it.heading() == heading);
        kind.with_context(|| format!("{heading} is no kind of change; {}", Self::names()))
    }

    /// Returns the kind that has this name in lower case.
    fn of_name(name: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        let kind = all.find(|it| it.heading().to_lowercase() == name);
        kind.with_context(|| format!("{name:?} is no kind of change; {}", Self::names()))
    }

    fn names() -> String {
        let names = Self::ALL.map(|it| it.heading().to_lowercase());
        format!("the kinds are {}", names.join(", "))
    }
}

/// A change, as described by one fragment file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Kind of the change.
    pub(super) kind: Kind,
    /// Number of the issue or of the pull request.
    number: Option<u32>,
    /// Lines of the text, at least one. The first line and the last line are not blank.
    lines: Vec<String>,
}

impl Fragment {
    /// Parses a fragment from the file name `name` and its content `text`.
    ///
    /// # Errors
    /// If the name contains no kind, or the text is not a single entry of the changelog.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let stem = name.strip_suffix(".md");
        let stem = stem.context("the name does not end with .md")?;
        let (kind, rest) = stem.split_once('-').unwrap_or((stem, ""));
        let kind = Kind::of_name(kind)?;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            !rest.is_empty() && rest.chars().all(is_plain),
            "the name needs words of a-z, 0-9 and - behind the kind"
        );
        let first = rest.split('-').next().unwrap_or_default();
        let is_number = !first.is_empty() && first.chars().all(|c| c.is_ascii_digit());
        let number = is_number.then(|| first.parse()).transpose();
        let number = number.with_context(|| format!("{first} is no number of an issue"))?;
        ensure!(
            !text.contains("<!--"),
            "the text has a comment; remove the explanations of the template"
        );
        let lines: Vec<String> = text
            .trim()
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        ensure!(!text.trim().is_empty(), "the text is empty");
        ensure!(
            lines.iter().all(|line| !line.is_empty()),
            "the text has a blank line; write one paragraph, or a file for each change"
        );
        ensure!(
            !lines.iter().any(|line| line.trim_start().starts_with('#')),
            "the text has a heading; the name gives the kind"
        );
        ensure!(
            !is_item(&lines[0]),
            "the text begins as a list item; the changelog adds the mark"
        );
        Ok(Self {
            kind,
            number,
            lines,
        })
    }

    /// Returns the fragment as a list item of the changelog, with a newline at its end.
    pub(super) fn entry(&self) -> String {
        let paragraph = self.lines.iter().take_while(|line| !is_item(line)).count();
        let mut entry = String::new();
        for (at, line) in self.lines.iter().enumerate() {
            entry += if at == 0 { "- " } else { "  " };
            entry += line;
            if let Some(number) = self.number
                && at + 1 == paragraph
            {
                entry += &format!(" (#{number})");
            }
            entry.push('\n');
        }
        entry
    }
}

/// Returns whether a line begins a list item.
fn is_item(line: &str) -> bool {
    ["- ", "* ", "+ "]
        .iter()
        .any(|mark| line.trim_start().starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::{Fragment, Kind};

    fn parse(name: &str, text: &str) -> Fragment {
        Fragment::parse(name, text).expect(name)
    }

    /// Returns the error message for a fragment that cannot be parsed.
    fn error(name: &str, text: &str) -> String {
        let error = Fragment::parse(name, text).expect_err(name);
        format!("{error:#}")
    }

    #[test]
    fn name_gives_the_kind_and_the_text_becomes_an_item() {
        let fragment = parse("fixed-quota.md", "The gateway\nreports `552`.  \n\n");
        assert_eq!(fragment.kind, Kind::Fixed);
        assert_eq!(fragment.entry(), "- The gateway\n  reports `552`.\n");
        for kind in Kind::ALL {
            let name = format!("{}-x.md", kind.heading().to_lowercase());
            assert_eq!(parse(&name, "It does.").kind, kind);
        }
    }

    #[test]
    fn number_in_the_name_stands_behind_the_paragraph() {
        let fragment = parse("added-48-release.md", "It is new.\n");
        assert_eq!(fragment.entry(), "- It is new. (#48)\n");
        let fragment = parse("added-48.md", "It has:\n- one part\n- two parts\n");
        assert_eq!(
            fragment.entry(),
            "- It has: (#48)\n  - one part\n  - two parts\n"
        );
        let fragment = parse("added-2fa.md", "It is new.\n");
        assert_eq!(fragment.entry(), "- It is new.\n");
    }

    #[test]
    fn name_without_kind_words_or_ending_is_refused() {
        assert!(error("repaired-quota.md", "It is.").contains("added, changed, deprecated"));
        assert!(error("Fixed-quota.md", "It is.").contains("no kind"));
        assert!(error("quota.md", "It is.").contains("no kind"));
        assert!(error("fixed-quota", "It is.").contains(".md"));
        assert!(error("fixed-quota.txt", "It is.").contains(".md"));
        for name in ["fixed.md", "fixed-.md", "fixed-a b.md", "fixed-Ü.md"] {
            assert!(error(name, "It is.").contains("words"), "{name}");
        }
        assert!(error("fixed-99999999999-a.md", "It is.").contains("number"));
    }

    #[test]
    fn text_that_is_no_single_entry_is_refused() {
        let error = |text| error("fixed-a.md", text);
        assert!(error(" \n\n").contains("empty"));
        assert!(error("One.\n\nTwo.\n").contains("blank line"));
        assert!(error("### Fixed\nOne.\n").contains("heading"));
        assert!(error("- One.\n").contains("list item"));
        assert!(error("One.\n<!-- Describe it. -->\n").contains("template"));
    }
}
