//! Plans: which cells, by whom, how often. Read from a TOML file and checked once.
//!
//! Lists multiply: each `[[path]]` with each of its round-trip times and shares, with each `[[work]]`
//! and each of its directions and sizes.

use std::{ops::Range, path::Path, time::Duration};

use serde::Deserialize;
use toml::Spanned;
use units::{BitRate, ByteCount};

use super::{
    cell::{Cell, Direction, PathSpec, Work},
    side::Side,
};
use crate::wan::change;

/// A plan, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Names files: letters, digits and hyphens.
    pub name: String,
    /// In a line.
    pub title: String,
    /// What it is about and where it comes from.
    pub about: String,
    /// How often each side does each cell.
    pub repetitions: u32,
    /// A trial is cut off after this time and scored at the rate that it reached.
    pub limit: Duration,
    /// Who is compared.
    pub sides: Vec<Side>,
    /// In the order in which they are tried.
    pub cells: Vec<Cell>,
}

/// What is wrong with a plan, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct PlanError {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    title: String,
    #[serde(default)]
    about: String,
    repetitions: Spanned<u32>,
    limit: Spanned<String>,
    sides: Vec<Spanned<String>>,
    #[serde(default, rename = "path")]
    paths: Vec<PathSection>,
    #[serde(default, rename = "work")]
    works: Vec<WorkSection>,
    published: Option<Published>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathSection {
    rate: Spanned<BitRate>,
    rate_back: Option<Spanned<BitRate>>,
    rtt: Spanned<Many>,
    #[serde(default = "no_share")]
    loss: Spanned<Many>,
    #[serde(default = "no_share")]
    corruption: Spanned<Many>,
    #[serde(default = "no_share")]
    reordering: Spanned<Many>,
    #[serde(default = "no_share")]
    duplication: Spanned<Many>,
    /// Only these sizes go over these paths.
    sizes: Option<Vec<Spanned<ByteCount>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkSection {
    direction: Spanned<Many>,
    size: Vec<Spanned<ByteCount>>,
    #[serde(default = "one")]
    files: Spanned<u32>,
    #[serde(default = "one")]
    clients: Spanned<u32>,
}

/// What fits into an hour: fewer repetitions, and of each dimension what is listed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    repetitions: Option<Spanned<u32>>,
    limit: Option<Spanned<String>>,
    rtt: Option<Spanned<Many>>,
    loss: Option<Spanned<Many>>,
    size: Option<Vec<Spanned<ByteCount>>>,
}

/// One value or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
enum Many {
    One(String),
    List(Vec<String>),
}

fn no_share() -> Spanned<Many> {
    Spanned::new(0..0, Many::One("0%".to_owned()))
}

fn read_all<T>(
    many: &Spanned<Many>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, Problem> {
    let all = match many.get_ref() {
        Many::One(one) => std::slice::from_ref(one),
        Many::List(list) => list,
    };
    let values = all.iter().map(|text| read(text)).collect::<Result<_, _>>();
    values.map_err(|error| (many.span(), error))
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

type Problem = (Range<usize>, String);

impl Plan {
    /// Reads and checks a plan. `published` takes the subset that is meant for publication.
    ///
    /// # Errors
    /// [`PlanError`] with the first thing that is wrong.
    pub fn parse(text: &str, path: &Path, published: bool) -> Result<Self, PlanError> {
        let problem = |(span, message): Problem| {
            let before = text.get(..span.start).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            PlanError {
                file: path.display().to_string(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message,
            }
        };
        let file: File = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            problem((span, error.message().replace('`', "\"")))
        })?;
        check(file, published).map_err(problem)
    }

    /// How many trials there are.
    pub fn trials(&self) -> usize {
        self.cells.len() * self.sides.len() * self.repetitions as usize
    }

    /// How long all trials will take, by the formulas of [`crate::calc`].
    pub fn estimate(&self) -> Duration {
        let of_cell = |cell: &Cell| {
            let sides = self
                .sides
                .iter()
                .map(|side| side.estimate(cell).min(self.limit));
            CELL_SETUP + self.repetitions * sides.map(|time| time + TRIAL_SETUP).sum::<Duration>()
        };
        self.cells.iter().map(of_cell).sum()
    }
}

fn check(file: File, published: bool) -> Result<Plan, Problem> {
    let name = file.name.get_ref();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        let message = "expected a name of small letters, digits and hyphens";
        return Err((file.name.span(), message.to_owned()));
    }
    let subset = file.published.as_ref().filter(|_| published);
    if published && subset.is_none() {
        return Err((0..0, "this plan has no [published] subset".to_owned()));
    }
    let repetitions = subset
        .and_then(|subset| subset.repetitions.as_ref())
        .unwrap_or(&file.repetitions);
    if *repetitions.get_ref() == 0 {
        return Err((repetitions.span(), "expected at least 1".to_owned()));
    }
    let limit = subset
        .and_then(|subset| subset.limit.as_ref())
        .unwrap_or(&file.limit);
    let limit_s = limit
        .get_ref()
        .trim()
        .strip_suffix('s')
        .and_then(|seconds| seconds.trim().parse::<u64>().ok())
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| (limit.span(), "expected a time such as \"60 s\"".to_owned()))?;
    let sides = file.sides.iter().map(|text| {
        let side = text.get_ref().parse::<Side>();
        side.map_err(|error| (text.span(), error.to_string()))
    });
    let sides: Vec<_> = sides.collect::<Result<_, _>>()?;
    if sides.is_empty() {
        return Err((0..0, "expected at least one of sides".to_owned()));
    }
    let mut cells = Vec::new();
    for path in &file.paths {
        for spec in paths(path)? {
            for (work, size) in file
                .works
                .iter()
                .map(works)
                .collect::<Result<Vec<_>, _>>()?
                .concat()
            {
                let listed = |sizes: &Option<Vec<Spanned<ByteCount>>>| {
                    sizes
                        .as_ref()
                        .is_none_or(|sizes| sizes.iter().any(|one| *one.get_ref() == size))
                };
                let kept = match subset {
                    Some(subset) => kept(subset, &spec)? && listed(&subset.size),
                    None => true,
                };
                if kept && listed(&path.sizes) {
                    let path = spec.clone();
                    cells.push(Cell { path, work });
                }
            }
        }
    }
    if cells.is_empty() {
        return Err((
            0..0,
            "there is no cell: expected [[path]] and [[work]]".to_owned(),
        ));
    }
    Ok(Plan {
        name: file.name.get_ref().clone(),
        title: file.title,
        about: file.about.trim().to_owned(),
        repetitions: *repetitions.get_ref(),
        limit: Duration::from_secs(limit_s),
        sides,
        cells,
    })
}

fn share(text: &str) -> Result<f64, String> {
    change::parse_share(text).map_err(|error| error.to_string())
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let time = change::parse_duration(text).map_err(|error| error.to_string())?;
    Ok(time.as_secs_f64() * 1e3)
}

/// All combinations of a section's lists.
fn paths(section: &PathSection) -> Result<Vec<PathSpec>, Problem> {
    let positive = |rate: &Spanned<BitRate>| match rate.get_ref().as_bits_per_s() {
        0 => Err((rate.span(), "expected a rate above zero".to_owned())),
        bits_per_s => Ok(bits_per_s),
    };
    let base = PathSpec {
        rate_bits_per_s: positive(&section.rate)?,
        rate_back_bits_per_s: section.rate_back.as_ref().map(positive).transpose()?,
        rtt_ms: 0.0,
        loss: 0.0,
        corruption: 0.0,
        reordering: 0.0,
        duplication: 0.0,
    };
    let mut all = vec![base];
    for (values, set) in [
        (
            read_all(&section.rtt, milliseconds)?,
            (|path, value| path.rtt_ms = value) as fn(&mut PathSpec, f64),
        ),
        (read_all(&section.loss, share)?, |path, value| {
            path.loss = value
        }),
        (read_all(&section.corruption, share)?, |path, value| {
            path.corruption = value
        }),
        (read_all(&section.reordering, share)?, |path, value| {
            path.reordering = value
        }),
        (read_all(&section.duplication, share)?, |path, value| {
            path.duplication = value
        }),
    ] {
        all = all
            .iter()
            .flat_map(|path| {
                values.iter().map(move |value| {
                    let mut path = path.clone();
                    set(&mut path, *value);
                    path
                })
            })
            .collect();
    }
    Ok(all)
}

fn works(section: &WorkSection) -> Result<Vec<(Work, ByteCount)>, Problem> {
    let directions = read_all(&section.direction, |text| match text {
        "down" => Ok(Direction::Down),
        "up" => Ok(Direction::Up),
        other => Err(format!("{other:?} is not a direction: \"down\" or \"up\"")),
    })?;
    for count in [&section.files, &section.clients] {
        if *count.get_ref() == 0 {
            return Err((count.span(), "expected at least 1".to_owned()));
        }
    }
    if !section
        .files
        .get_ref()
        .is_multiple_of(*section.clients.get_ref())
    {
        let message = "expected a multiple of clients, which share the files evenly";
        return Err((section.files.span(), message.to_owned()));
    }
    let mut all = Vec::new();
    for size in &section.size {
        if *size.get_ref() == ByteCount::ZERO {
            return Err((size.span(), "expected a size above zero".to_owned()));
        }
        all.extend(directions.iter().map(|direction| {
            let work = Work {
                direction: *direction,
                size_bytes: size.get_ref().bytes(),
                files: *section.files.get_ref(),
                clients: *section.clients.get_ref(),
            };
            (work, *size.get_ref())
        }));
    }
    Ok(all)
}

fn kept(subset: &Published, path: &PathSpec) -> Result<bool, Problem> {
    let listed = |values: Option<Vec<f64>>, value: f64| {
        values.is_none_or(|values| values.iter().any(|one| (one - value).abs() < 1e-9))
    };
    let rtt = subset
        .rtt
        .as_ref()
        .map(|many| read_all(many, milliseconds))
        .transpose()?;
    let loss = subset
        .loss
        .as_ref()
        .map(|many| read_all(many, share))
        .transpose()?;
    Ok(listed(rtt, path.rtt_ms) && listed(loss, path.loss))
}

/// Sites, servers and gateways.
const CELL_SETUP: Duration = Duration::from_secs(2);

/// Logging in, looking at counters.
const TRIAL_SETUP: Duration = Duration::from_millis(700);

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
