//! The TOML form of a plan, and the expansion of its sections into cells.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use units::{BitRate, ByteCount};

use super::{CellTask, EvaluationPlan, PlanProblem};
use crate::{
    cell::{
        Cell, CellWork, CompetingConnection, FileProtocol, PathSpec, ServerBuffers, TrialDirection,
        WorkKind,
    },
    side::Side,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    name: Spanned<String>,
    title: String,
    #[serde(default)]
    about: String,
    repetitions: Spanned<u32>,
    limit: Spanned<String>,
    sides: Spanned<Vec<Side>>,
    /// Protocol of the server of all cells.
    #[serde(default)]
    protocol: FileProtocol,
    #[serde(default)]
    cells: Vec<CellSection>,
    published: Option<PublishedSubset>,
}

/// Settings of the published subset. The subset also excludes sections with `published = false`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedSubset {
    repetitions: Option<Spanned<u32>>,
    limit: Option<Spanned<String>>,
}

/// One `[[cells]]` section. It stands for all combinations of its values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellSection {
    /// Whether the published subset includes this section.
    #[serde(default = "yes")]
    published: bool,
    rate: Option<Spanned<BitRate>>,
    rate_back: Option<Spanned<BitRate>>,
    /// Name of a profile with a radio medium. It replaces `rate` and `rtt`.
    medium: Option<Spanned<String>>,
    rtt: Option<Spanned<TextList>>,
    loss: Option<Spanned<TextList>>,
    corruption: Option<Spanned<TextList>>,
    reordering: Option<Spanned<TextList>>,
    duplication: Option<Spanned<TextList>>,
    #[serde(default)]
    job: WorkKind,
    #[serde(default = "down")]
    direction: Spanned<TextList>,
    size: Spanned<TextList>,
    #[serde(default = "one")]
    files: Spanned<u32>,
    #[serde(default = "one")]
    clients: Spanned<u32>,
    /// Numbers of threads. Required for movers, and not permitted for other programs.
    threads: Option<Spanned<CountList>>,
    window: Option<Spanned<TextList>>,
    server: Option<Spanned<TextList>>,
    beside: Option<Spanned<TextList>>,
    outage: Option<Spanned<TextList>>,
    /// Programs to compare in this section, instead of the programs of the plan.
    sides: Option<Spanned<Vec<Side>>>,
    repetitions: Option<Spanned<u32>>,
    limit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
enum TextList {
    One(String),
    List(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a list of numbers")]
enum CountList {
    One(u32),
    List(Vec<u32>),
}

/// Time limit of a trial, in the form that the plan states.
#[derive(Clone, Copy)]
enum TrialLimit {
    Time(Duration),
    /// A multiple of the ideal time, but at least [`LIMIT_MIN`].
    Ideals(f64),
}

fn down() -> Spanned<TextList> {
    Spanned::new(0..0, TextList::One("down".to_owned()))
}

fn yes() -> bool {
    true
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

impl PlanFile {
    pub(super) fn plan(self, published: bool) -> Result<EvaluationPlan, PlanProblem> {
        let name = self.name.get_ref();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            let message = "expected a name of small letters, digits and hyphens";
            return Err((self.name.span(), message.to_owned()));
        }
        let subset = self.published.as_ref().filter(|_| published);
        if published && subset.is_none() {
            return Err((0..0, "this plan has no [published] subset".to_owned()));
        }
        let repetitions = subset.and_then(|subset| subset.repetitions.as_ref());
        let repetitions = positive(repetitions.unwrap_or(&self.repetitions))?;
        let limit = subset.and_then(|subset| subset.limit.as_ref());
        let limit = read_limit(limit.unwrap_or(&self.limit))?;
        let sides = read_sides(&self.sides)?;
        let mut tasks: Vec<CellTask> = Vec::new();
        for section in &self.cells {
            let cells = section.cells(self.protocol)?;
            let (sides, place) = match &section.sides {
                Some(own) => (read_sides(own)?, own.span()),
                None => (sides.clone(), self.sides.span()),
            };
            section
                .check_sides(&sides, self.protocol)
                .map_err(|message| (place, message.to_owned()))?;
            let own = section.repetitions.as_ref().map(positive);
            let repetitions = own.transpose()?.unwrap_or(repetitions);
            let own = section.limit.as_ref().map(read_limit);
            let limit = own.transpose()?.unwrap_or(limit);
            if published && !section.published {
                continue;
            }
            for cell in cells {
                if tasks.iter().all(|task| task.cell != cell) {
                    tasks.push(CellTask {
                        limit: limit.of(&cell),
                        cell,
                        sides: sides.clone(),
                        repetitions,
                    });
                }
            }
        }
        if tasks.is_empty() {
            return Err((0..0, "there is no cell: expected [[cells]]".to_owned()));
        }
        Ok(EvaluationPlan {
            name: self.name.get_ref().clone(),
            title: self.title,
            about: self.about.trim().to_owned(),
            tasks,
        })
    }
}

impl CellSection {
    /// Returns the cells for all combinations of the section's values.
    fn cells(&self, protocol: FileProtocol) -> Result<Vec<Cell>, PlanProblem> {
        if self.job != WorkKind::Files
            && let Some(limit) = &self.limit
        {
            let message = "sessions and transactions end by themselves, without a limit";
            return Err((limit.span(), message.to_owned()));
        }
        for count in [&self.files, &self.clients] {
            positive(count)?;
        }
        let clients = *self.clients.get_ref();
        if !self.files.get_ref().is_multiple_of(clients) {
            let message = "expected a multiple of clients, which share the files evenly";
            return Err((self.files.span(), message.to_owned()));
        }
        let work = CellWork {
            job: self.job,
            protocol,
            direction: TrialDirection::Down,
            size_bytes: 0,
            files: *self.files.get_ref(),
            clients,
            threads: None,
            window_bytes: None,
            server: None,
            beside: None,
            outage_ms: None,
        };
        let path = self.path()?;
        let mut cells = vec![Cell { path, work }];
        let all = &mut cells;
        vary(all, &self.rtt, milliseconds, |cell| &mut cell.path.rtt_ms)?;
        vary(all, &self.loss, share, |cell| &mut cell.path.loss)?;
        vary(all, &self.corruption, share, |cell| {
            &mut cell.path.corruption
        })?;
        vary(all, &self.reordering, share, |cell| {
            &mut cell.path.reordering
        })?;
        vary(all, &self.duplication, share, |cell| {
            &mut cell.path.duplication
        })?;
        vary(all, &self.window, or_none(size), |cell| {
            &mut cell.work.window_bytes
        })?;
        vary(all, &self.server, or_none(buffers), |cell| {
            &mut cell.work.server
        })?;
        vary(all, &self.beside, or_none(neighbour), |cell| {
            &mut cell.work.beside
        })?;
        vary(all, &self.outage, or_none(whole_milliseconds), |cell| {
            &mut cell.work.outage_ms
        })?;
        if let Some(threads) = &self.threads {
            let counts = threads_of(threads)?;
            multiply(all, &counts, |cell| &mut cell.work.threads);
        }
        vary(all, &self.size, size, |cell| &mut cell.work.size_bytes)?;
        vary(all, &self.direction, direction, |cell| {
            &mut cell.work.direction
        })?;
        Ok(cells)
    }

    /// Checks the programs to compare. Movers require a number of threads, and permit only one
    /// client. Other programs permit only FTP, and no number of threads.
    fn check_sides(&self, sides: &[Side], protocol: FileProtocol) -> Result<(), &'static str> {
        let movers = sides.iter().filter(|side| side.is_mover()).count();
        let fetching = sides.iter().filter(|side| side.fetches_by(protocol));
        if self.threads.is_none() {
            return match movers {
                0 if protocol == FileProtocol::Ftp => Ok(()),
                0 => Err("only movers fetch by SFTP, and a side here is none"),
                _ => Err("movers need threads, as in threads = [1, 8]"),
            };
        }
        let directions = match self.direction.get_ref() {
            TextList::One(one) => std::slice::from_ref(one),
            TextList::List(list) => list,
        };
        let is_download = directions.iter().all(|direction| direction == "down");
        if movers < sides.len() {
            Err("threads are for movers, and a side here is none")
        } else if fetching.count() < movers {
            Err("a mover here does not fetch by the protocol of the plan")
        } else if self.job != WorkKind::Files || *self.clients.get_ref() != 1 || !is_download {
            Err("movers are tried with downloads of files, without clients")
        } else {
            Ok(())
        }
    }

    fn path(&self) -> Result<PathSpec, PlanProblem> {
        let rate = |rate: &Spanned<BitRate>| match rate.get_ref().as_bits_per_s() {
            0 => Err((rate.span(), "expected a rate above zero".to_owned())),
            bits_per_s => Ok(bits_per_s),
        };
        let missing = || {
            let message = "expected a rate and an rtt, or a medium";
            (self.size.span(), message.to_owned())
        };
        if let Some(medium) = &self.medium {
            let rates = [&self.rate, &self.rate_back];
            if let Some(rate) = rates.into_iter().flatten().next() {
                return Err((rate.span(), "a medium has a rate of its own".to_owned()));
            }
            return PathSpec::of_medium(medium.get_ref()).ok_or_else(|| {
                let message = format!("no profile with a medium is called {:?}", medium.get_ref());
                (medium.span(), message)
            });
        }
        self.rtt.as_ref().ok_or_else(missing)?;
        Ok(PathSpec {
            rate_bits_per_s: rate(self.rate.as_ref().ok_or_else(missing)?)?,
            rate_back_bits_per_s: self.rate_back.as_ref().map(rate).transpose()?,
            ..PathSpec::default()
        })
    }
}

impl TrialLimit {
    fn of(self, cell: &Cell) -> Duration {
        let work = match self {
            Self::Time(time) => time,
            Self::Ideals(times) => cell.transfer().ideal_time().mul_f64(times).max(LIMIT_MIN),
        };
        work + cell.work.outage()
    }
}

/// Parses each text as one or more values. Replaces each cell by several cells, one for each value.
fn vary<'a, T: Copy>(
    cells: &mut Vec<Cell>,
    many: impl Into<Option<&'a Spanned<TextList>>>,
    read: impl Fn(&str) -> Result<T, String>,
    place: impl Fn(&mut Cell) -> &mut T,
) -> Result<(), PlanProblem> {
    let Some(many) = many.into() else {
        return Ok(());
    };
    let all = match many.get_ref() {
        TextList::One(one) => std::slice::from_ref(one),
        TextList::List(list) => list,
    };
    let values = all
        .iter()
        .map(|text| read(text))
        .collect::<Result<Vec<_>, _>>();
    let values = values.map_err(|error| (many.span(), error))?;
    multiply(cells, &values, place);
    Ok(())
}

/// Replaces each cell by several cells, one for each value of a field. `place` returns the field in
/// a cell.
fn multiply<T: Copy>(cells: &mut Vec<Cell>, values: &[T], place: impl Fn(&mut Cell) -> &mut T) {
    let with = |cell: &Cell, value: &T| {
        let mut cell = cell.clone();
        *place(&mut cell) = *value;
        cell
    };
    *cells = cells
        .iter()
        .flat_map(|cell| values.iter().map(|value| with(cell, value)))
        .collect();
}

/// Returns the numbers of threads. Fails if a number exceeds [`THREADS_MAX`].
fn threads_of(threads: &Spanned<CountList>) -> Result<Vec<Option<u32>>, PlanProblem> {
    let counts = match threads.get_ref() {
        CountList::One(one) => std::slice::from_ref(one),
        CountList::List(list) => list,
    };
    if counts.is_empty() || !counts.iter().all(|count| (1..=THREADS_MAX).contains(count)) {
        let message = format!("expected numbers from 1 to {THREADS_MAX}");
        return Err((threads.span(), message));
    }
    Ok(counts.iter().copied().map(Some).collect())
}

fn or_none<T>(
    read: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| match text {
        "none" => Ok(None),
        text => read(text).map(Some),
    }
}

fn share(text: &str) -> Result<f64, String> {
    units::parse_share(text).map_err(|error| error.to_string())
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    Ok(time.as_secs_f64() * 1e3)
}

fn whole_milliseconds(text: &str) -> Result<u64, String> {
    Ok(milliseconds(text)?.ceil() as u64)
}

fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteCount>() {
        Ok(ByteCount::ZERO) => Err("expected a size above zero".to_owned()),
        Ok(size) => Ok(size.bytes()),
        Err(error) => Err(error.to_string()),
    }
}

fn buffers(text: &str) -> Result<ServerBuffers, String> {
    let wrong = || format!("{text:?} is not a socket buffer and a block such as \"64 KiB/32 KiB\"");
    let (socket, block) = text.split_once('/').ok_or_else(wrong)?;
    Ok(ServerBuffers {
        socket_bytes: size(socket)?,
        block_bytes: size(block)?,
    })
}

fn neighbour(text: &str) -> Result<CompetingConnection, String> {
    match text {
        "cubic" => Ok(CompetingConnection::Cubic),
        "bbr" => Ok(CompetingConnection::Bbr),
        other => Err(format!("{other:?} is no neighbour: \"cubic\" or \"bbr\"")),
    }
}

fn direction(text: &str) -> Result<TrialDirection, String> {
    match text {
        "down" => Ok(TrialDirection::Down),
        "up" => Ok(TrialDirection::Up),
        other => Err(format!("{other:?} is not a direction: \"down\" or \"up\"")),
    }
}

fn positive(count: &Spanned<u32>) -> Result<u32, PlanProblem> {
    match *count.get_ref() {
        0 => Err((count.span(), "expected at least 1".to_owned())),
        count => Ok(count),
    }
}

fn read_limit(text: &Spanned<String>) -> Result<TrialLimit, PlanProblem> {
    let wrong = || {
        let message = "expected a time such as \"60 s\", or such as \"4 x ideal\"";
        (text.span(), message.to_owned())
    };
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok();
        number.filter(|number| (f64::MIN_POSITIVE..=86_400.0).contains(number))
    };
    if let Some(times) = text.get_ref().strip_suffix("x ideal") {
        return number(times).map(TrialLimit::Ideals).ok_or_else(wrong);
    }
    let seconds = text.get_ref().trim().strip_suffix('s').and_then(number);
    seconds
        .map(|seconds| TrialLimit::Time(Duration::from_secs_f64(seconds)))
        .ok_or_else(wrong)
}

fn read_sides(sides: &Spanned<Vec<Side>>) -> Result<Vec<Side>, PlanProblem> {
    if sides.get_ref().is_empty() {
        return Err((sides.span(), "expected at least one side".to_owned()));
    }
    Ok(sides.get_ref().clone())
}

/// Minimum of a time limit that a plan states as a multiple of the ideal time. The ideal time of a
/// small file is near zero, but slow programs should still finish.
const LIMIT_MIN: Duration = Duration::from_secs(5);
/// Maximum number of threads of a mover. aria2 opens at most 16 connections to a server.
const THREADS_MAX: u32 = 16;
