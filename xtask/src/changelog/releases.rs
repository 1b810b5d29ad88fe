//! `CHANGELOG.md`, which has a section for each release. The newest release is first.
//!
//! The module adds fragments to the section of a release. The sections of all other releases stay
//! unchanged.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use jiff::civil::Date;

use super::fragment::{Fragment, Kind};
use crate::version::Version;

/// The section of one release.
#[derive(Debug)]
struct Release {
    version: Version,
    date: Date,
    /// Text before the entries, such as a warning about an upgrade.
    summary: String,
    /// Entries of each kind, without blank lines before and after them.
    entries: BTreeMap<Kind, String>,
}

/// Returns `changelog` with the fragments added to the section of `version`, dated `date`.
///
/// The section may already exist if it is the newest section. An existing section keeps its
/// entries.
///
/// # Errors
/// If the newest section cannot be parsed, or is the section of a newer version.
pub(crate) fn join(
    changelog: &str,
    version: Version,
    date: Date,
    fragments: &[Fragment],
) -> Result<String> {
    let (preamble, sections) = sections(changelog);
    let newest = sections.first().map(|text| Release::parse(text));
    let newest = newest.transpose()?;
    let mut others = sections.iter();
    let mut release = match newest {
        Some(newest) if newest.version > version => {
            bail!("the changelog has the newer version {}", newest.version)
        }
        Some(newest) if newest.version == version => {
            others.next();
            Release { date, ..newest }
        }
        _ => Release {
            version,
            date,
            summary: String::new(),
            entries: BTreeMap::new(),
        },
    };
    release.add(fragments);
    let others: String = others.copied().collect();
    let mut joined = format!("{}\n\n{}", preamble.trim_end(), release.text());
    if !others.is_empty() {
        joined.push('\n');
        joined += &others;
    }
    Ok(joined)
}

/// Returns the section of a version, or `None` if there is no such section.
pub(crate) fn section(changelog: &str, version: Version) -> Option<&str> {
    let heading = format!("## [{version}] ");
    let (_, sections) = sections(changelog);
    let mut found = sections.into_iter().filter(|it| it.starts_with(&heading));
    found.next()
}

/// Checks all sections, and returns the newest version.
///
/// # Errors
/// If a section cannot be parsed, or a version is not older than the version above it.
pub(super) fn newest(changelog: &str) -> Result<Version> {
    let (_, sections) = sections(changelog);
    let mut newest = None;
    let mut above: Option<Version> = None;
    for section in sections {
        let version = Release::parse(section)?.version;
        if let Some(above) = above {
            ensure!(version < above, "{version} stands below {above}");
        }
        above = Some(version);
        newest = newest.or(Some(version));
    }
    newest.context("there is no release")
}

/// Splits the changelog into the text before the first release, and the sections.
fn sections(changelog: &str) -> (&str, Vec<&str>) {
    let starts = changelog.match_indices("\n## ").map(|(at, _)| at + 1);
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([changelog.len()]);
    let preamble = &changelog[..starts.first().copied().unwrap_or(changelog.len())];
    let all = starts.iter().zip(ends);
    let all = all.map(|(start, end)| &changelog[*start..end]).collect();
    (preamble, all)
}

impl Release {
    fn parse(section: &str) -> Result<Self> {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let parse = || {
            let (version, date) = heading.strip_prefix("## [")?.split_once("] - ")?;
            Some((version.parse().ok()?, date.trim_end().parse().ok()?))
        };
        let (version, date) =
            parse().with_context(|| format!("{heading:?} is no \"## [VERSION] - DATE\""))?;
        // The text gets a newline in front, so that the heading of a kind may be the first line.
        let body = format!("\n{body}");
        let mut parts = body.split("\n### ");
        let summary = parts.next().unwrap_or_default().trim().to_owned();
        let mut entries = BTreeMap::new();
        for part in parts {
            let (heading, text) = part.split_once('\n').unwrap_or((part, ""));
            let kind = Kind::of_heading(heading.trim()).with_context(|| version_name(version))?;
            let before = entries.insert(kind, text.trim().to_owned());
            ensure!(before.is_none(), "{version} has two parts {heading}");
        }
        Ok(Self {
            version,
            date,
            summary,
            entries,
        })
    }

    /// Adds fragments before the existing entries of the same kind.
    fn add(&mut self, fragments: &[Fragment]) {
        let mut added: BTreeMap<Kind, String> = BTreeMap::new();
        for fragment in fragments {
            *added.entry(fragment.kind).or_default() += &fragment.entry();
        }
        for (kind, text) in added {
            let present = self.entries.entry(kind).or_default();
            *present = (text + present).trim_end().to_owned();
        }
    }

    fn text(&self) -> String {
        let mut text = format!("## [{}] - {}\n", self.version, self.date);
        if !self.summary.is_empty() {
            text += &format!("\n{}\n", self.summary);
        }
        for (kind, entries) in &self.entries {
            text += &format!("\n### {}\n\n{entries}\n", kind.heading());
        }
        text
    }
}

fn version_name(version: Version) -> String {
    format!("the section of {version}")
}

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};

    use super::{Fragment, Version, join, newest, section};

    const CHANGELOG: &str = "\
# Changelog

A preamble.

## [0.2.0] - 2026-12-24

Upgrade the far gateway first.

### Added

- A listener.
  - With a detail.

### Fixed

- A leak.

## [0.1.0] - 2026-11-29

### Added

- Everything.
";

    fn version(text: &str) -> Version {
        text.parse().expect("a version")
    }

    fn fragments() -> Vec<Fragment> {
        let files = [
            ("added-key.md", "A key\nwith a reason.\n"),
            ("fixed-7-race.md", "A race."),
            ("security-bound.md", "A bound."),
            ("added-port.md", "A port."),
        ];
        let parse = |(name, text)| Fragment::parse(name, text).expect("a fragment");
        files.map(parse).into()
    }

    const DAY: Date = date(2027, 1, 31);

    #[test]
    fn fragments_become_the_section_of_a_new_version_above_the_others() {
        let joined = join(CHANGELOG, version("0.2.1"), DAY, &fragments());
        let (before, after) = CHANGELOG.split_at(CHANGELOG.find("## [").expect("a section"));
        let new = "\
## [0.2.1] - 2027-01-31

### Added

- A key
  with a reason.
- A port.

### Fixed

- A race. (#7)

### Security

- A bound.

";
        assert_eq!(
            joined.expect("a changelog"),
            format!("{before}{new}{after}")
        );
    }

    #[test]
    fn fragments_join_the_entries_of_a_version_that_has_a_section() {
        let joined = join(CHANGELOG, version("0.2.0"), DAY, &fragments());
        let joined = joined.expect("a changelog");
        let old = section(CHANGELOG, version("0.2.0")).expect("a section");
        let new = "\
## [0.2.0] - 2027-01-31

Upgrade the far gateway first.

### Added

- A key
  with a reason.
- A port.
- A listener.
  - With a detail.

### Fixed

- A race. (#7)
- A leak.

### Security

- A bound.

";
        assert_eq!(joined, CHANGELOG.replace(old, new));
        let again = join(&joined, version("0.2.0"), DAY, &[]).expect("a changelog");
        assert_eq!(again, joined, "nothing changes without fragments");
    }

    #[test]
    fn first_release_gets_the_first_section() {
        let joined = join("# Changelog\n", version("0.1.0"), DAY, &fragments()[3..]);
        let text = "# Changelog\n\n## [0.1.0] - 2027-01-31\n\n### Added\n\n- A port.\n";
        assert_eq!(joined.expect("a changelog"), text);
    }

    #[test]
    fn version_below_the_newest_gets_no_section() {
        let error = join(CHANGELOG, version("0.1.0"), DAY, &fragments());
        let error = error.expect_err("it is older").to_string();
        assert!(error.contains("0.2.0"), "{error}");
    }

    #[test]
    fn section_of_a_version_ends_where_the_next_one_begins() {
        let text = section(CHANGELOG, version("0.2.0")).expect("a section");
        assert!(text.starts_with("## [0.2.0]") && text.ends_with("- A leak.\n\n"));
        let text = section(CHANGELOG, version("0.1.0")).expect("a section");
        assert!(text.ends_with("- Everything.\n"));
        assert_eq!(section(CHANGELOG, version("0.3.0")), None);
    }

    #[test]
    fn sections_have_versions_in_order_dates_and_kinds() {
        assert_eq!(newest(CHANGELOG).expect("it is right"), version("0.2.0"));
        let error = |from: &str, to: &str| {
            let wrong = CHANGELOG.replace(from, to);
            assert_ne!(wrong, CHANGELOG);
            format!("{:#}", newest(&wrong).expect_err("it is wrong"))
        };
        assert!(error("## [0.2.0]", "## [0.1.0]").contains("stands below"));
        assert!(error("## [0.2.0] - 2026-12-24", "## [Unreleased]").contains("Unreleased"));
        assert!(error("2026-12-24", "2026-13-24").contains("2026-13-24"));
        assert!(error("### Fixed", "### Repaired").contains("Repaired"));
        assert!(error("### Fixed", "### Added").contains("two parts Added"));
        assert!(newest("# Changelog\n").is_err());
    }
}
