//! Filter of a job's files: rules for paths, and limits on size and age.
//!
//! The first rule whose pattern matches a path decides. Paths are relative to a root and do not
//! begin with a slash. This module opens no file and reads no clock. The caller lists the
//! directories.

mod pattern;

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, time::Duration};

use ftp::listing::ModifiedTime;
use globset::{GlobSet, GlobSetBuilder};
use units::ByteCount;

use self::pattern::Pattern;

/// Filter of a job's files. The default filter accepts every file.
#[derive(Debug, Clone)]
pub struct Filter {
    rules: Vec<Rule>,
    /// The patterns of all rules, in the order of the rules.
    patterns: GlobSet,
    /// Whether the filter accepts files that match no rule.
    takes_rest: bool,
    bounds: Bounds,
}

/// A pattern, and whether the rule accepts or excludes matching files.
///
/// `*` matches any bytes within a name, `?` matches one byte, and `[a-z]` matches one byte of a
/// set. `{a,b}` matches either pattern. `**` between slashes matches any number of directories. A
/// backslash makes the next character literal.
///
/// A pattern with a leading slash begins at the root. Any other pattern may begin in any directory.
/// A pattern that ends in a slash or in `/**` matches everything below the matching directories.
/// All other patterns match files.
#[derive(Debug, Clone)]
pub struct Rule {
    takes: bool,
    /// Whether this rule makes the filter exclude files that match no rule.
    is_exclusive: bool,
    pattern: Pattern,
}

/// Limits on the size and the age of files. A file of unknown size does not meet any size limit. A
/// file of unknown time does not meet any age limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest accepted size.
    pub size_min: Option<ByteCount>,
    /// Largest accepted size.
    pub size_max: Option<ByteCount>,
    /// Minimum time since the last change of an accepted file.
    pub age_min: Option<Duration>,
    /// Maximum time since the last change of an accepted file.
    pub age_max: Option<Duration>,
}

/// An error in a pattern or in a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The pattern cannot be parsed.
    #[error("{pattern:?} is no pattern: {reason}")]
    Pattern {
        /// The rejected pattern.
        pattern: String,
        /// Description of the mistake.
        reason: String,
    },
    /// A line in a file of rules has a mistake.
    #[error("line {line}, column {column}: {reason}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// Position of the mistake in bytes within the line, counted from 1.
        column: usize,
        /// Description of the mistake.
        reason: String,
    },
    /// The number of rules exceeds the limit.
    #[error("there are more than {RULES_MAX} rules")]
    TooMany,
    /// The combined matcher of all patterns is too large.
    #[error("the patterns cannot be used together: {0}")]
    Set(String),
}

impl Filter {
    /// Creates a filter from rules and limits.
    ///
    /// # Errors
    /// [`FilterError`] if there are too many rules, or if the combined matcher is too large.
    pub fn new(rules: Vec<Rule>, bounds: Bounds) -> Result<Self, FilterError> {
        if rules.len() > RULES_MAX {
            return Err(FilterError::TooMany);
        }
        let mut patterns = GlobSetBuilder::new();
        for rule in &rules {
            patterns.add(rule.pattern.glob().clone());
        }
        let patterns = patterns.build();
        Ok(Self {
            patterns: patterns.map_err(|error| FilterError::Set(error.to_string()))?,
            takes_rest: !rules.iter().any(|it| it.is_exclusive),
            rules,
            bounds,
        })
    }

    /// Returns whether the filter accepts a file. The parameters are the path below the root, the
    /// size in bytes, the last change, and the present time in seconds since 1970.
    pub fn takes_file(
        &self,
        path: &[u8],
        size_bytes: Option<u64>,
        modified: Option<ModifiedTime>,
        now_unix_s: i64,
    ) -> bool {
        self.bounds.hold(size_bytes, modified, now_unix_s) && self.takes_path(path)
    }

    /// Returns whether the filter can accept any file below a directory. If so, the directory must
    /// be listed. Only the directory's path is examined.
    pub fn enters(&self, directory: &[u8]) -> bool {
        for Rule { takes, pattern, .. } in &self.rules {
            if *takes && pattern.may_match_below(directory) {
                return true;
            }
            if !*takes && pattern.matches_all_below(directory) {
                return false;
            }
        }
        self.takes_rest
    }

    fn takes_path(&self, path: &[u8]) -> bool {
        let matching = self.patterns.matches(OsStr::from_bytes(path));
        match matching.into_iter().min() {
            Some(first) => self.rules[first].takes,
            None => self.takes_rest,
        }
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self::new(Vec::new(), Bounds::default()).expect("no rules are not too many")
    }
}

impl Rule {
    /// Creates a rule that accepts all matches of the pattern. With such a rule, the filter
    /// excludes files that match no rule.
    ///
    /// # Errors
    /// [`FilterError::Pattern`] if the pattern cannot be parsed.
    pub fn include(pattern: &str) -> Result<Self, FilterError> {
        Ok(Self {
            takes: true,
            is_exclusive: true,
            pattern: Pattern::read(pattern)?,
        })
    }

    /// Creates a rule that excludes all matches of the pattern.
    ///
    /// # Errors
    /// [`FilterError::Pattern`] if the pattern cannot be parsed.
    pub fn exclude(pattern: &str) -> Result<Self, FilterError> {
        Ok(Self {
            takes: false,
            is_exclusive: false,
            pattern: Pattern::read(pattern)?,
        })
    }

    /// Parses a file of rules. A line `+ PATTERN` accepts files, a line `- PATTERN` excludes files,
    /// and `#` begins a comment line. Files that match no line are accepted.
    ///
    /// # Errors
    /// [`FilterError::Line`] at the first line of another form.
    pub fn read_lines(text: &[u8]) -> Result<Vec<Self>, FilterError> {
        let mut rules = Vec::new();
        for (at, line) in text.split(|it| *it == b'\n').enumerate() {
            let wrong = |column: usize, reason: String| FilterError::Line {
                line: at + 1,
                column,
                reason,
            };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = std::str::from_utf8(line)
                .map_err(|error| wrong(error.valid_up_to() + 1, NOT_UTF8.to_owned()))?;
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let begins = line.len() - line.trim_start().len();
            let takes = match content.as_bytes()[0] {
                b'+' => true,
                b'-' => false,
                _ => return Err(wrong(begins + 1, NO_SIGN.to_owned())),
            };
            let pattern = content[1..].trim_start();
            let column = begins + content.len() - pattern.len() + 1;
            if !content[1..].starts_with([' ', '\t']) {
                return Err(wrong(begins + 2, NO_SPACE.to_owned()));
            }
            let pattern = Pattern::read(pattern).map_err(|it| wrong(column, it.to_string()))?;
            if rules.len() == RULES_MAX {
                return Err(wrong(begins + 1, FilterError::TooMany.to_string()));
            }
            rules.push(Self {
                takes,
                is_exclusive: false,
                pattern,
            });
        }
        Ok(rules)
    }
}

impl Bounds {
    fn hold(
        &self,
        size_bytes: Option<u64>,
        modified: Option<ModifiedTime>,
        now_unix_s: i64,
    ) -> bool {
        let size = |holds: &dyn Fn(u64) -> bool| size_bytes.is_some_and(holds);
        let age_s = modified.map(|it| i128::from(now_unix_s) - i128::from(it.unix_s));
        let age = |holds: &dyn Fn(i128) -> bool| age_s.is_some_and(holds);
        let seconds = |it: Duration| i128::from(it.as_secs());
        self.size_min
            .is_none_or(|least| size(&|it| it >= least.bytes()))
            && self
                .size_max
                .is_none_or(|most| size(&|it| it <= most.bytes()))
            && self
                .age_min
                .is_none_or(|least| age(&|it| it >= seconds(least)))
            && self
                .age_max
                .is_none_or(|most| age(&|it| it <= seconds(most)))
    }
}

/// Maximum number of rules of a filter.
const RULES_MAX: usize = 10_000;

const NO_SIGN: &str = "a rule begins with + (include) or - (leave out), a comment with #";

const NO_SPACE: &str = "a space must stand between the sign and the pattern";

const NOT_UTF8: &str = "a pattern is UTF-8; ? stands for any other byte";

#[cfg(test)]
mod tests;
