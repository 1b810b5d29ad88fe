//! Filter options of the commands `copy`, `sync`, `check` and `ls`.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use mover::filter::{Bounds, Filter, Rule};
use units::ByteCount;

use crate::{age::Age, exit};

/// Filter rules in the order of the command line, and limits on the size and age of files.
#[derive(Debug, Clone)]
pub(crate) struct Filters {
    sources: Vec<Source>,
    sizes: Bounds,
    age_min: Option<Age>,
    age_max: Option<Age>,
}

/// Origin of filter rules: the command line or a file.
#[derive(Debug, Clone)]
enum Source {
    Rule(Box<Rule>),
    File(PathBuf),
}

#[derive(Args)]
struct Flags {
    /// Include files that match GLOB, and exclude files that match no rule; may be given several
    /// times
    #[arg(long, value_name = "GLOB", value_parser = Rule::include, help_heading = HEADING)]
    include: Vec<Rule>,
    /// Exclude files that match GLOB; the first matching rule decides. In GLOB, * and ? match
    /// within a name, and ** between slashes matches any directories. /GLOB matches from SRC on,
    /// and GLOB/ matches all files below a directory
    #[arg(long, value_name = "GLOB", value_parser = Rule::exclude, help_heading = HEADING)]
    exclude: Vec<Rule>,
    /// Read rules from this file: a line '+ GLOB' includes, a line '- GLOB' excludes, and # begins
    /// a comment
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    filter_from: Vec<PathBuf>,
    /// Exclude files smaller than SIZE
    #[arg(long, value_name = "SIZE", help_heading = HEADING)]
    min_size: Option<ByteCount>,
    /// Exclude files larger than SIZE
    #[arg(long, value_name = "SIZE", help_heading = HEADING)]
    max_size: Option<ByteCount>,
    /// Exclude files that were changed within this time (2h, 7d), or since this date (2026-11-01)
    #[arg(long, value_name = "TIME|DATE", help_heading = HEADING)]
    min_age: Option<Age>,
    /// Exclude files that were not changed within this time (2h, 7d), or since this date
    /// (2026-11-01)
    #[arg(long, value_name = "TIME|DATE", help_heading = HEADING)]
    max_age: Option<Age>,
}

impl Filters {
    /// Creates the filter from the options. Reads the files with rules that the options name.
    pub(crate) fn read(&self) -> anyhow::Result<Filter> {
        let mut rules = Vec::new();
        for source in &self.sources {
            match source {
                Source::Rule(rule) => rules.push(rule.as_ref().clone()),
                Source::File(path) => rules.extend(read_file(path).map_err(exit::wrong_use)?),
            }
        }
        let age = |it: Option<Age>| it.map(|it| it.at(now_unix_s()));
        let bounds = Bounds {
            age_min: age(self.age_min),
            age_max: age(self.age_max),
            ..self.sizes
        };
        Filter::new(rules, bounds).map_err(exit::wrong_use)
    }
}

impl Args for Filters {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut sources: Vec<(usize, Source)> = Vec::new();
        for flag in ["include", "exclude"] {
            let rules = matches.get_many::<Rule>(flag).unwrap_or_default();
            let places = matches.indices_of(flag).unwrap_or_default();
            sources.extend(places.zip(rules.cloned().map(|it| Source::Rule(Box::new(it)))));
        }
        let files = matches.get_many::<PathBuf>("filter_from");
        let places = matches.indices_of("filter_from").unwrap_or_default();
        sources.extend(places.zip(files.unwrap_or_default().cloned().map(Source::File)));
        sources.sort_by_key(|(place, _)| *place);
        let flags = Flags::from_arg_matches(matches)?;
        Ok(Self {
            sources: sources.into_iter().map(|(_, source)| source).collect(),
            sizes: Bounds {
                size_min: flags.min_size,
                size_max: flags.max_size,
                ..Bounds::default()
            },
            age_min: flags.min_age,
            age_max: flags.max_age,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the present time in seconds of Unix time. Ages of files are relative to it.
#[allow(clippy::disallowed_methods, reason = "ages are those of now")]
pub(crate) fn now_unix_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

fn read_file(path: &Path) -> anyhow::Result<Vec<Rule>> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|it| it.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    exit::ensure(
        text.len() as u64 <= FILE_BYTES_MAX,
        &format!("{} is too large for a file of rules", path.display()),
    )?;
    Rule::read_lines(&text).with_context(|| path.display().to_string())
}

const HEADING: &str = "Filters";

/// Maximum size of a file with rules. A file of this size can contain the maximum number of rules,
/// if the paths have a usual length.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filters: Filters,
    }

    fn read(arguments: &[&str]) -> Filter {
        let line = Line::parse_from([&["program"], arguments].concat());
        line.filters.read().expect("a filter")
    }

    fn takes(filter: &Filter, path: &str, size: u64) -> bool {
        filter.takes_file(path.as_bytes(), Some(size), None, 0)
    }

    #[test]
    fn rules_count_in_the_order_of_the_command_line() {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("rules");
        std::fs::write(&file, "+ b.bak\n- b.*\n").expect("room");
        let file = file.to_str().expect("text");
        let from = [
            "--exclude",
            "a.bak",
            "--filter-from",
            file,
            "--include",
            "*.bak",
        ];
        let filter = read(&[&from[..], &["--exclude=c.bak"]].concat());
        let taken = ["a.bak", "b.bak", "c.bak", "b.txt", "c.txt"].map(|it| takes(&filter, it, 0));
        assert_eq!(taken, [false, true, true, false, false]);
        let filter = read(&["--exclude=c.bak", "--include", "*.bak", "--max-size", "2K"]);
        let taken = [("c.bak", 1), ("d.bak", 2048), ("d.bak", 2049)];
        let taken = taken.map(|(path, size)| takes(&filter, path, size));
        assert_eq!(taken, [false, true, false]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("rules");
        std::fs::write(&file, "- a\n/b\n").expect("room");
        let path = file.to_str().expect("text");
        let line = Line::parse_from(["program", "--filter-from", path]);
        let error = line.filters.read().expect_err("wrong").to_string();
        let expected = format!("{path}: line 2, column 1: a rule begins with +");
        assert!(error.starts_with(&expected), "{error}");
        let refused = Line::try_parse_from(["program", "--include", "a**"]).err();
        let said = refused.expect("wrong").to_string();
        assert!(said.contains("alone between slashes"), "{said}");
    }
}
