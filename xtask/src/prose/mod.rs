//! `cargo xtask prose`: counts sentences that break the rules of CONTRIBUTING.md and
//! `docs/glossary.md`.
//!
//! The command reads the comments of all Rust files, and all Markdown documents. It counts the
//! violations of each crate and document. The numbers in the baseline limit these counts, and may
//! only decrease. [`text`] finds the sentences, [`rules`] checks each sentence, and [`baseline`]
//! compares the numbers.

mod baseline;
mod rules;
mod rust;
mod text;
mod tree;
mod words;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use self::{
    baseline::{Baseline, Change},
    rules::{Rule, Violation},
    tree::Source,
};
use crate::{Failure, shell::root};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print each violation in the files below PATH [default: all files]
    #[arg(long, value_name = "PATH")]
    list: Option<Option<PathBuf>>,
    /// Lower the counts in the baseline to the present counts; the command never raises a count
    #[arg(long)]
    write: bool,
    /// Print each exception with its reason
    #[arg(long)]
    exceptions: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let root = root();
    let report = Report::read(root)?;
    if let Some(path) = &arguments.list {
        print!("{}", report.list(path.as_deref().unwrap_or(Path::new(""))));
        return Ok(Ok(()));
    }
    if arguments.exceptions {
        print!("{}", report.exceptions());
        return Ok(Ok(()));
    }
    if arguments.write {
        Baseline::lower(root, &report.counts())?;
    }
    print!("{}", report.summary());
    let complaints = report.complaints(root)?;
    for complaint in &complaints {
        println!("{complaint}");
    }
    Ok(if complaints.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed)
    })
}

/// Returns complaints about the tree at `root`: differences from the baseline, and exceptions that
/// permit no violation.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    Report::read(root)?.complaints(root)
}

/// Violations and exceptions of all files.
struct Report {
    files: Vec<File>,
}

/// Violations and exceptions of one file.
struct File {
    source: Source,
    violations: Vec<Violation>,
    exceptions: Vec<Exception>,
    /// Line numbers of exceptions that permit no violation.
    unused: Vec<usize>,
}

/// A comment that permits the violations of one line.
#[derive(Debug, PartialEq, Eq)]
struct Exception {
    /// Line number of the comment.
    line: usize,
    /// Line number to which the exception applies.
    target: usize,
    reason: String,
}

impl Report {
    fn read(root: &Path) -> Result<Self> {
        let files = tree::sources(root)?.into_iter().map(|source| {
            let path = root.join(&source.path);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(File::check(source, &text))
        });
        Ok(Self {
            files: files.collect::<Result<_>>()?,
        })
    }

    /// Returns the number of violations of each crate and document.
    fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for file in &self.files {
            *counts.entry(file.source.group.clone()).or_default() += file.violations.len();
        }
        counts
    }

    /// Lists the violations in the files below `path`, as text with one violation on each line.
    fn list(&self, path: &Path) -> String {
        let path = path.strip_prefix("./").unwrap_or(path);
        let mut lines = String::new();
        for file in &self.files {
            if file.source.path.starts_with(path) {
                for violation in &file.violations {
                    lines += &format!("{}:{violation}\n", file.source.path.display());
                }
            }
        }
        lines
    }

    /// Lists the exceptions, as text with one exception on each line.
    fn exceptions(&self) -> String {
        let mut lines = String::new();
        for file in &self.files {
            for Exception { line, reason, .. } in &file.exceptions {
                lines += &format!("{}:{line}: {reason}\n", file.source.path.display());
            }
        }
        lines
    }

    /// Returns the text with the number of violations of each crate, document and rule.
    fn summary(&self) -> String {
        let counts = self.counts();
        let mut lines = String::new();
        for (group, count) in counts.iter().filter(|(_, count)| **count > 0) {
            lines += &format!("{count:7} {group}\n");
        }
        let total: usize = counts.values().sum();
        lines += &format!("{total:7} in all\n");
        for rule in Rule::ALL {
            let violations = self.files.iter().flat_map(|file| &file.violations);
            let count = violations.filter(|it| it.rule == rule).count();
            lines += &format!("{count:7} {}\n", rule.name());
        }
        let exceptions: usize = self.files.iter().map(|file| file.exceptions.len()).sum();
        lines += &format!("{exceptions:7} exceptions\n");
        lines
    }

    fn complaints(&self, root: &Path) -> Result<Vec<String>> {
        let changes = Baseline::read(root)?.changes(&self.counts());
        let mut complaints: Vec<String> = changes.iter().map(Change::to_string).collect();
        for file in &self.files {
            let path = file.source.path.display();
            complaints.extend(file.unused.iter().map(|line| {
                format!("prose: {path}:{line}: the exception permits nothing; remove it")
            }));
        }
        Ok(complaints)
    }
}

impl File {
    fn check(source: Source, text: &str) -> Self {
        let text = source.checked(text);
        let parsed = if source.is_rust() {
            rust::parse(text)
        } else {
            text::parse_document(text)
        };
        let mut all: Vec<Violation> = parsed.sentences.iter().flat_map(rules::judge).collect();
        all.extend(parsed.wide_lines.into_iter().map(rules::wide));
        all.sort_by_key(|violation| violation.first_line);
        let exceptions = parsed.exceptions;
        let is_used = |it: &Exception| all.iter().any(|violation| violation.covers(it.target));
        let unused = exceptions.iter().filter(|it| !is_used(it));
        let unused = unused.map(|it| it.line).collect();
        all.retain(|violation| !exceptions.iter().any(|it| violation.covers(it.target)));
        Self {
            source,
            violations: all,
            exceptions,
            unused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{File, tree::Source};

    fn check(path: &str, text: &str) -> File {
        let source = Source::new(path).expect("the path belongs to a group");
        File::check(source, text)
    }

    #[test]
    fn violations_of_comments_and_documents_name_line_rule_and_sentence() {
        let file = check(
            "crates/net/src/lib.rs",
            "fn f() {}\n\n/// Of the door.\nfn g() {}\n",
        );
        let lines: Vec<String> = file.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "3: opening \"of\": Of the door.",
                "3: word \"door\" (better: listener): Of the door."
            ]
        );
        let file = check("docs/a.md", "# A\n\nIt opens\nthe `door` door.\n");
        let lines: Vec<String> = file.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["3: word \"door\" (better: listener): It opens the `door` door."]
        );
    }

    #[test]
    fn exception_permits_the_violations_of_the_next_line_only() {
        let text =
            "// prose: the standard's word\n/// A door.\nfn f() {}\n/// A door.\nfn g() {}\n";
        let file = check("crates/net/src/lib.rs", text);
        let lines: Vec<usize> = file.violations.iter().map(|it| it.first_line).collect();
        assert_eq!(lines, [4]);
        assert_eq!(file.exceptions[0].reason, "the standard's word");
        assert!(file.unused.is_empty());
    }

    #[test]
    fn exception_in_a_document_permits_its_own_line_or_the_next_one() {
        let inline = check(
            "docs/a.md",
            "A door. <!-- prose: a real door -->\n\nA door.\n",
        );
        let lines: Vec<usize> = inline.violations.iter().map(|it| it.first_line).collect();
        assert_eq!(lines, [3]);
        let above = check(
            "docs/a.md",
            "<!-- prose: a real door -->\nA door.\n\nA door.\n",
        );
        let lines: Vec<usize> = above.violations.iter().map(|it| it.first_line).collect();
        assert_eq!(lines, [4]);
    }

    #[test]
    fn exception_that_permits_nothing_is_unused() {
        let file = check(
            "crates/net/src/lib.rs",
            "// prose: no reason\n/// A listener.\n",
        );
        assert_eq!(file.unused, [1]);
    }
}
