//! The baseline: the permitted number of violations for each crate and document, in
//! `xtask/prose-baseline.toml`.
//!
//! A number in the baseline may only decrease. A count above its number in the baseline causes a
//! complaint. A count below its number also causes a complaint, because the number in the file must
//! then be lowered.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use anyhow::{Context, Result};

/// Number of violations of each crate and document.
pub(super) type Counts = BTreeMap<String, usize>;

/// Permitted numbers of violations, as read from the file.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    counts: Counts,
}

/// A count that differs from its number in the baseline.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// More violations than the baseline permits.
    Risen {
        group: String,
        before: usize,
        now: usize,
    },
    /// Fewer violations than the baseline states.
    Fallen {
        group: String,
        before: usize,
        now: usize,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Risen { group, before, now } => write!(
                f,
                "prose: {group} has {now} violations, and its baseline is {before}; `cargo xtask prose --list {group}` prints them"
            ),
            Self::Fallen { group, before, now } => write!(
                f,
                "prose: {group} has {now} violations, fewer than its baseline of {before}; run `cargo xtask prose --write` and commit {FILE}"
            ),
        }
    }
}

impl Baseline {
    /// Reads the baseline of the tree at `root`. A missing file permits no violation.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let table = text
            .parse::<toml::Table>()
            .with_context(|| path.display().to_string())?;
        let count = |(group, value): (String, toml::Value)| -> Result<(String, usize)> {
            let count = value.as_integer().and_then(|it| usize::try_from(it).ok());
            let count = count.with_context(|| format!("{FILE}: {group} is no number"))?;
            Ok((group, count))
        };
        let counts = table.into_iter().map(count).collect::<Result<_>>()?;
        Ok(Self { counts })
    }

    /// Lowers each number in the file to the present count, if the count is lower. The first run
    /// creates the file.
    pub(super) fn lower(root: &Path, counts: &Counts) -> Result<()> {
        let path = root.join(FILE);
        let baseline = if path.exists() {
            Self::read(root)?.lowered(counts)
        } else {
            Self {
                counts: counts.clone(),
            }
        };
        fs::write(&path, baseline.text()).with_context(|| path.display().to_string())
    }

    fn lowered(&self, counts: &Counts) -> Self {
        let lower = |(group, before): (&String, &usize)| {
            let now = counts.get(group).copied().unwrap_or_default();
            (group.clone(), now.min(*before))
        };
        Self {
            counts: self.counts.iter().map(lower).collect(),
        }
    }

    fn text(&self) -> String {
        let counts = self.counts.iter().filter(|(_, count)| **count > 0);
        let lines = counts.map(|(group, count)| format!("\"{group}\" = {count}\n"));
        lines.fold(HEADER.to_owned(), |text, line| text + &line)
    }

    /// Returns the differences between the baseline and the present counts.
    pub(super) fn changes(&self, counts: &Counts) -> Vec<Change> {
        let mut groups: Vec<&String> = self.counts.keys().chain(counts.keys()).collect();
        groups.sort();
        groups.dedup();
        let change = |group: &String| {
            let before = self.counts.get(group).copied().unwrap_or_default();
            let now = counts.get(group).copied().unwrap_or_default();
            let group = group.clone();
            match now.cmp(&before) {
                std::cmp::Ordering::Greater => Some(Change::Risen { group, before, now }),
                std::cmp::Ordering::Less => Some(Change::Fallen { group, before, now }),
                std::cmp::Ordering::Equal => None,
            }
        };
        groups.into_iter().filter_map(change).collect()
    }
}

/// Path of the baseline, relative to the root of the workspace.
const FILE: &str = "xtask/prose-baseline.toml";

const HEADER: &str = "\
# Most violations of the prose rules for each crate and document (`cargo xtask prose`).
# A number may only fall; `cargo xtask prose --write` lowers it.

";

#[cfg(test)]
mod tests {
    use super::{Baseline, Change, Counts};

    fn counts<const N: usize>(counts: [(&str, usize); N]) -> Counts {
        counts
            .map(|(group, count)| (group.to_owned(), count))
            .into()
    }

    fn baseline<const N: usize>(numbers: [(&str, usize); N]) -> Baseline {
        Baseline {
            counts: counts(numbers),
        }
    }

    #[test]
    fn count_above_or_below_its_number_is_a_change() {
        let baseline = baseline([("a", 3), ("b", 3), ("c", 3), ("gone", 1)]);
        let changes = baseline.changes(&counts([("a", 2), ("b", 3), ("c", 4), ("new", 1)]));
        let group = |name: &str| name.to_owned();
        assert_eq!(
            changes,
            [
                Change::Fallen {
                    group: group("a"),
                    before: 3,
                    now: 2
                },
                Change::Risen {
                    group: group("c"),
                    before: 3,
                    now: 4
                },
                Change::Fallen {
                    group: group("gone"),
                    before: 1,
                    now: 0
                },
                Change::Risen {
                    group: group("new"),
                    before: 0,
                    now: 1
                },
            ]
        );
    }

    #[test]
    fn write_lowers_numbers_and_raises_none() {
        let baseline = baseline([("a", 3), ("b", 3), ("gone", 1)]);
        let lowered = baseline.lowered(&counts([("a", 1), ("b", 5), ("new", 2)]));
        let left = counts([("a", 1), ("b", 3), ("gone", 0)]);
        assert_eq!(lowered.counts, left);
        assert!(lowered.text().ends_with("\n\"a\" = 1\n\"b\" = 3\n"));
    }
}
