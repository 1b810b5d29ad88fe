//! Pattern for paths. A pattern matches files. A pattern also determines the directories below
//! which all or some paths match.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use globset::{Candidate, Glob, GlobBuilder, GlobMatcher};

use super::FilterError;

/// A parsed pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// Matcher for the path of a file.
    files: GlobMatcher,
    /// Matcher for directory paths, if the pattern matches directories. All files below a matching
    /// directory match as well.
    directories: Option<GlobMatcher>,
    /// Whether the pattern matches every file.
    is_everything: bool,
    /// Patterns for each name of a path, beginning at the root. `None` if the pattern cannot be
    /// split into names.
    names: Option<Vec<NamePattern>>,
}

/// Pattern for one name of a path.
#[derive(Debug, Clone)]
enum NamePattern {
    /// `**`, which matches any number of names.
    Any,
    One(GlobMatcher),
}

impl Pattern {
    pub(super) fn read(text: &str) -> Result<Self, FilterError> {
        let wrong = |reason: String| FilterError::Pattern {
            pattern: text.to_owned(),
            reason,
        };
        let checked = check(text).and_then(|()| close_classes(text));
        let checked = checked.map_err(|reason| wrong(reason.to_owned()))?;
        let from_root = match checked.strip_prefix('/') {
            Some(rest) => rest.to_owned(),
            None => format!("**/{checked}"),
        };
        let directories = directories(&from_root);
        let whole = match directories {
            Some("") => "**".to_owned(),
            Some(directories) => format!("{directories}/**"),
            None => from_root.clone(),
        };
        let read = |text: &str| {
            let mut builder = GlobBuilder::new(text);
            let glob = builder
                .literal_separator(true)
                .empty_alternates(true)
                .build();
            let glob = glob.map_err(|error| wrong(error.kind().to_string()))?;
            Ok(glob.compile_matcher())
        };
        // If braces contain a slash, the split produces names that cannot be parsed, and the result
        // is `None`.
        let names = directories.unwrap_or(&from_root).split('/');
        let names = names.filter(|it| !it.is_empty()).map(|name| match name {
            "**" => Some(NamePattern::Any),
            name => read(name).ok().map(NamePattern::One),
        });
        Ok(Self {
            names: names.collect(),
            files: read(&whole)?,
            is_everything: directories == Some(""),
            directories: directories.map(read).transpose()?,
        })
    }

    /// Returns the matcher for file paths.
    pub(super) fn glob(&self) -> &Glob {
        self.files.glob()
    }

    /// Returns whether every path below a directory matches.
    pub(super) fn matches_all_below(&self, directory: &[u8]) -> bool {
        let Some(directories) = &self.directories else {
            return false;
        };
        let directory = Candidate::new(OsStr::from_bytes(directory));
        self.is_everything
            || directories.is_match_candidate(&directory)
            || self.files.is_match_candidate(&directory)
    }

    /// Returns whether any path below a directory can match.
    pub(super) fn may_match_below(&self, directory: &[u8]) -> bool {
        let Some(names) = &self.names else {
            return true;
        };
        let mut expected = names.iter();
        for name in directory.split(|it| *it == b'/') {
            match expected.next() {
                Some(NamePattern::Any) => return true,
                Some(NamePattern::One(pattern)) if !pattern.is_match(OsStr::from_bytes(name)) => {
                    return false;
                }
                Some(NamePattern::One(_)) => {}
                None => return self.directories.is_some(),
            }
        }
        expected.next().is_some() || self.directories.is_some()
    }
}

/// Refuses patterns that `globset` and rclone interpret differently.
fn check(pattern: &str) -> Result<(), &'static str> {
    if pattern.is_empty() {
        return Err("it is empty");
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err("it is longer than a path can be");
    }
    if pattern.contains("{{") {
        return Err("regular expressions in {{ }} are not supported");
    }
    let inner = pattern.strip_prefix('/').unwrap_or(pattern);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for name in inner.split('/') {
        if name.contains("**") && name != "**" {
            return Err("** stands for directories, and is alone between slashes, as in **/*.jpg");
        }
        if matches!(name, "." | "..") || name.is_empty() && pattern != "/" {
            return Err("no path has a name that is empty, . or ..");
        }
    }
    Ok(())
}

/// Changes bracket expressions so that they do not match slashes, because a bracket expression must
/// match one byte of a name.
fn close_classes(pattern: &str) -> Result<String, &'static str> {
    let mut closed = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        closed.push(next);
        match next {
            '\\' => closed.extend(rest.next()),
            '[' => {
                let negation = rest.next_if(|it| matches!(it, '!' | '^'));
                let mut class = String::new();
                // A closing bracket that is the first character of the expression stands for
                // itself.
                class.extend(rest.next());
                class.extend(std::iter::from_fn(|| rest.next_if(|it| *it != ']')));
                check_class(&class)?;
                closed.extend(negation.map(|_| '!'));
                // A dash or a bracket at the beginning must stay first to keep its meaning. The
                // slash is inserted after it.
                let first = class.chars().next().filter(|it| matches!(it, '-' | ']'));
                closed.extend(first);
                closed.extend(negation.map(|_| '/'));
                closed.push_str(&class[first.map_or(0, char::len_utf8)..]);
            }
            _ => {}
        }
    }
    Ok(closed)
}

fn check_class(class: &str) -> Result<(), &'static str> {
    if !class.is_ascii() {
        return Err("[ ] stands for one byte: write {ä,ö} in place of [äö]");
    }
    let bytes = class.as_bytes();
    let mut ranges = bytes.windows(3).filter(|it| it[1] == b'-');
    if bytes.contains(&b'/') || ranges.any(|it| (it[0]..=it[2]).contains(&b'/')) {
        return Err("[ ] stands for one byte of a name, and no name has a slash");
    }
    if matches!(bytes, [b'-' | b']', b'-', _, ..]) {
        return Err("a range in [ ] begins with a letter or a digit");
    }
    Ok(())
}

/// Returns the pattern for the directories whose entire content matches. Returns `None` if the
/// pattern matches only files.
fn directories(from_root: &str) -> Option<&str> {
    let all = ["/**/*", "/**", "/"];
    let rest = all.iter().find_map(|it| from_root.strip_suffix(it));
    match (rest, from_root) {
        (None, "" | "**" | "**/*") | (Some("**"), _) => Some(""),
        (rest, _) => rest,
    }
}

/// Maximum length of a pattern. The limit equals the maximum length of a path on Linux.
const PATTERN_BYTES_MAX: usize = 4_096;
