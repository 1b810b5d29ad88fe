//! Configuration file of an agent. The file defines the agent's jobs. A job accepts the options of
//! `longhaul copy` as keys, with `_` instead of `-`.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{CommandFactory as _, Parser, error::ContextKind};
use mover::agent::{JobTimes, Schedule};
use net::target::Host;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use units::parse_duration;

use crate::{
    copy::{self, Line},
    text_position::TextPosition,
};

/// A checked configuration.
pub(super) struct Config {
    /// Address on which the agent serves `/status.json` and `/metrics`.
    pub(super) listen: Option<SocketAddr>,
    /// Additional host names under which clients may request `listen`.
    pub(super) hosts: Vec<Host>,
    /// Folder in which the agent stores its state.
    pub(super) state: Option<PathBuf>,
    pub(super) jobs: Vec<JobConfig>,
}

/// A checked job with one destination. If a job in the file has several destinations, each
/// destination yields one value of this type.
pub(super) struct JobConfig {
    pub(super) name: String,
    pub(super) times: JobTimes,
    /// Source, destination and options.
    pub(super) copy: copy::Args,
    pub(super) on_file: Option<Vec<OsString>>,
    pub(super) on_file_timeout: Duration,
    pub(super) on_file_retries: u32,
    pub(super) keep_history: Duration,
    pub(super) removes_source: bool,
    /// Whether the job also copies files whose names show that another program is still writing
    /// them.
    pub(super) takes_partial: bool,
    /// Position of the job in the file.
    pub(super) at: TextPosition,
}

/// A mistake in the file, and its byte range.
struct Problem {
    span: Range<usize>,
    message: String,
}

type Table<'a> = BTreeMap<String, (Range<usize>, &'a Spanned<DeValue<'a>>)>;
type CheckResult<T> = Result<T, Problem>;

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// The first mistake, with the file, the line and the column.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow::anyhow!("{}: cannot be read: {error}", path.display()))?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> anyhow::Result<Self> {
        let place = |span: Range<usize>| TextPosition::of(text, span.start, path);
        let tell = |it: Problem| anyhow::anyhow!("{}: {}", place(it.span), it.message);
        let read = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let message = error.message().replace('`', "\"");
            tell(Problem { span, message })
        });
        check(read?.get_ref(), &place).map_err(tell)
    }
}

fn check(file: &DeTable<'_>, place: &dyn Fn(Range<usize>) -> TextPosition) -> CheckResult<Config> {
    let mut top = table(file);
    let mut config = Config {
        listen: None,
        hosts: Vec::new(),
        state: None,
        jobs: Vec::new(),
    };
    if let Some((_, agent)) = top.remove("agent") {
        let mut agent = table(as_table(agent)?);
        if let Some((_, listen)) = agent.remove("listen") {
            let wrong = || problem(listen, "expected ADDRESS:PORT, such as \"127.0.0.1:9811\"");
            config.listen = Some(as_text(listen)?.parse().map_err(|_| wrong())?);
        }
        if let Some((_, hosts)) = agent.remove("hosts") {
            let parsed = as_texts(hosts)?.into_iter().map(|it| Host::parse(&it));
            let parsed: Result<Vec<Host>, _> = parsed.collect();
            config.hosts = parsed.map_err(|error| problem(hosts, &error.to_string()))?;
        }
        if let Some((_, state)) = agent.remove("state") {
            config.state = Some(as_path(state)?.into());
        }
        refuse_others(&agent, "listen, hosts, state")?;
    }
    let Some((_, jobs)) = top.remove("job") else {
        refuse_others(&top, "agent, job")?;
        return Err(Problem {
            span: 0..0,
            message: "there is no [[job]]: longhaul agent --help shows one".to_owned(),
        });
    };
    refuse_others(&top, "agent, job")?;
    let DeValue::Array(array) = jobs.get_ref() else {
        return Err(problem(jobs, "expected [[job]], with two brackets"));
    };
    for job in array.iter() {
        let made = check_job(job, place)?;
        for job in made {
            let is_taken = |it: &JobConfig| it.name == job.1.name;
            if config.jobs.iter().any(is_taken) {
                let message = format!(
                    "another job has the name {:?}: give each job its own",
                    job.1.name
                );
                return Err(Problem {
                    span: job.0,
                    message,
                });
            }
            config.jobs.push(job.1);
        }
    }
    Ok(config)
}

/// Checks one `[[job]]` section. Returns one job for each destination, with the position of the
/// job's name in the file.
fn check_job(
    job: &Spanned<DeValue<'_>>,
    place: &dyn Fn(Range<usize>) -> TextPosition,
) -> CheckResult<Vec<(Range<usize>, JobConfig)>> {
    let mut keys = table(as_table(job)?);
    refuse_unknown(&keys)?;
    let missing = |key: &str| problem(job, &format!("the job has no {key}: add it"));
    let (_, name) = keys.remove("name").ok_or_else(|| missing("name"))?;
    let (name_span, name) = (name.span(), checked_name(name)?);
    let (from_key, from) = keys.remove("from").ok_or_else(|| missing("from"))?;
    let from = as_path(from)?;
    let (_, to) = keys.remove("to").ok_or_else(|| missing("to"))?;
    let destinations = as_paths(to)?;
    let is_watched = flag(keys.remove("watch"))?;
    let schedule = schedule(&mut keys)?;
    if schedule.is_none() && !is_watched {
        let message = "the job never runs: expected every = \"10 min\", cron = \"0 3 * * *\", or watch = true";
        return Err(problem(job, message));
    }
    if is_watched && from.contains("://") {
        return Err(Problem {
            span: from_key,
            message: "only a folder of this machine can be watched: use every or cron".to_owned(),
        });
    }
    let is_final = is_watched
        || ["on_file", "remove_source"]
            .iter()
            .any(|it| keys.contains_key(*it));
    let settle_default = if is_final { SETTLE } else { Duration::ZERO };
    let times = JobTimes {
        schedule: schedule.unwrap_or(Schedule::Every(RESCAN)),
        is_watched,
        settle: duration(keys.remove("settle"), settle_default)?,
    };
    let on_file = match keys.remove("on_file") {
        Some((_, command)) => Some(as_paths(command)?.into_iter().map(OsString::from)),
        None => None,
    };
    let on_file: Option<Vec<OsString>> = on_file.map(Iterator::collect);
    let on_file_timeout = duration(keys.remove("on_file_timeout"), ON_FILE_TIMEOUT)?;
    let on_file_retries = match keys.remove("on_file_retries") {
        Some((_, retries)) => {
            let wrong = || problem(retries, "expected a number of attempts, 1000 at most");
            let number = as_texts(retries)?.pop().and_then(|it| it.parse().ok());
            number.filter(|it| *it <= 1000).ok_or_else(wrong)?
        }
        None => 0,
    };
    let keep_history = duration(keys.remove("keep_history"), KEEP_HISTORY)?;
    let removal = keys.remove("remove_source");
    let removal_span = removal.as_ref().map(|(span, _)| span.clone());
    let removes_source = flag(removal)?;
    if removes_source && from.starts_with("https://") {
        return Err(Problem {
            span: removal_span.unwrap_or_default(),
            message: "files of a web server cannot be removed: leave out remove_source".to_owned(),
        });
    }
    if removes_source && destinations.len() > 1 {
        return Err(Problem {
            span: removal_span.unwrap_or_default(),
            message: "remove_source is for jobs with one destination: leave it out, or name one destination".to_owned(),
        });
    }
    let takes_partial = flag(keys.remove("take_partial"))?;
    let flags = flags(&keys)?;
    let mut jobs = Vec::new();
    for (number, destination) in destinations.iter().enumerate() {
        let name = match destinations.len() {
            1 => name.clone(),
            _ => format!("{name}-{}", number + 1),
        };
        let ends = ["--".to_owned(), from.clone(), destination.clone()];
        let line = flags.iter().cloned().chain(ends);
        let copy = Line::try_parse_from(line).map_err(|error| of_clap(&error, &keys, job))?;
        let job = JobConfig {
            name,
            times: times.clone(),
            copy: copy.copy,
            on_file: on_file.clone(),
            on_file_timeout,
            on_file_retries,
            keep_history,
            removes_source,
            takes_partial,
            at: place(name_span.clone()),
        };
        jobs.push((name_span.clone(), job));
    }
    Ok(jobs)
}

fn schedule(keys: &mut Table<'_>) -> CheckResult<Option<Schedule>> {
    let every = keys.remove("every");
    let Some((cron_key, cron)) = keys.remove("cron") else {
        let Some((_, every)) = every else {
            return Ok(None);
        };
        let schedule = Schedule::every(&as_text(every)?);
        return Ok(Some(
            schedule.map_err(|it| problem(every, &it.to_string()))?,
        ));
    };
    if every.is_some() {
        return Err(Problem {
            span: cron_key,
            message: "a job has either every or cron: remove one of them".to_owned(),
        });
    }
    let schedule = Schedule::cron(&as_text(cron)?);
    Ok(Some(schedule.map_err(|it| problem(cron, &it.to_string()))?))
}

/// Refuses the first key that is neither a job's own key nor an option of `longhaul copy`. The
/// check comes first, because a misspelled key may cause other mistakes, such as a missing key.
fn refuse_unknown(keys: &Table<'_>) -> CheckResult<()> {
    let command = Line::command();
    let is_flag = |key: &str| {
        let long = key.replace('_', "-");
        let mut flags = command.get_arguments();
        let is_long = flags.any(|it| it.get_long() == Some(&long));
        is_long && !key.contains('-') && !NOT_FOR_JOBS.contains(&key)
    };
    let is_unknown = |key: &str| !OWN_KEYS.contains(&key) && !is_flag(key);
    let unknown = keys.iter().filter(|(key, _)| is_unknown(key));
    match unknown.min_by_key(|(_, (span, _))| span.start) {
        None => Ok(()),
        Some((key, (span, _))) => Err(Problem {
            span: span.clone(),
            message: format!("a job has no key {key:?}: docs/moving.md has every key"),
        }),
    }
}

/// Converts keys that are options of `longhaul copy` to a command line, in the order of the file.
fn flags(keys: &Table<'_>) -> CheckResult<Vec<String>> {
    let mut sorted: Vec<_> = keys.iter().collect();
    sorted.sort_by_key(|(_, (span, _))| span.start);
    let mut line = Vec::new();
    for (key, (_, value)) in sorted {
        let long = key.replace('_', "-");
        match value.get_ref() {
            DeValue::Boolean(true) => line.push(format!("--{long}")),
            DeValue::Boolean(false) => {}
            _ => {
                for text in as_paths(value)? {
                    line.push(format!("--{long}={text}"));
                }
            }
        }
    }
    Ok(line)
}

/// Converts an error of the command line parser to an error about a key of the file.
fn of_clap(error: &clap::Error, keys: &Table<'_>, job: &Spanned<DeValue<'_>>) -> Problem {
    let named = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let named = named.unwrap_or_default();
    let long = named.trim_start_matches("--");
    let long = long.split([' ', '=', ',']).next().unwrap_or_default();
    let key = long.replace('-', "_");
    let said = error.to_string();
    let said = said.lines().next().unwrap_or_default();
    let message = said.trim_start_matches("error: ").to_owned();
    let span = keys.get(&key).map_or(job.span(), |(_, value)| value.span());
    Problem { span, message }
}

fn table<'a>(table: &'a DeTable<'a>) -> Table<'a> {
    let entries = table.iter();
    let entry = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
        let name: &toml::de::DeString<'_> = key.get_ref();
        (name.to_string(), (key.span(), value))
    };
    entries.map(entry).collect()
}

fn refuse_others(rest: &Table<'_>, expected: &str) -> CheckResult<()> {
    match rest.iter().next() {
        None => Ok(()),
        Some((key, (span, _))) => Err(Problem {
            span: span.clone(),
            message: format!("there is no key {key:?} here: expected {expected}"),
        }),
    }
}

fn as_table<'a>(value: &'a Spanned<DeValue<'a>>) -> CheckResult<&'a DeTable<'a>> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(problem(value, "expected a table")),
    }
}

fn as_text(value: &Spanned<DeValue<'_>>) -> CheckResult<String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err(problem(value, "expected a text in quotes")),
    }
}

/// Reads a text as a path. As in a shell, `~/` at the beginning means the home folder.
fn as_path(value: &Spanned<DeValue<'_>>) -> CheckResult<String> {
    in_home(value, as_text(value)?)
}

/// Reads a list of texts as paths. As in a shell, `~/` at the beginning of a text means the home
/// folder.
fn as_paths(value: &Spanned<DeValue<'_>>) -> CheckResult<Vec<String>> {
    let texts = as_texts(value)?.into_iter();
    texts.map(|it| in_home(value, it)).collect()
}

fn in_home(value: &Spanned<DeValue<'_>>, text: String) -> CheckResult<String> {
    let below = match text.strip_prefix('~') {
        Some(below) if below.is_empty() || below.starts_with('/') => below,
        _ => return Ok(text),
    };
    let home = std::env::var("HOME").ok().filter(|it| !it.is_empty());
    let home =
        home.ok_or_else(|| problem(value, "there is no home folder for ~: write the whole path"))?;
    Ok(format!("{home}{below}"))
}

/// Reads a text, a number, or a list of texts and numbers.
fn as_texts(value: &Spanned<DeValue<'_>>) -> CheckResult<Vec<String>> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Ok(vec![number.as_str().to_owned()]),
        DeValue::Array(array) if !array.is_empty() => array.iter().map(as_text).collect(),
        DeValue::Array(_) => Err(problem(
            value,
            "the list is empty: expected at least one text",
        )),
        _ => Ok(vec![as_text(value)?]),
    }
}

fn flag(value: Option<(Range<usize>, &Spanned<DeValue<'_>>)>) -> CheckResult<bool> {
    match value {
        None => Ok(false),
        Some((_, value)) => match value.get_ref() {
            DeValue::Boolean(is_set) => Ok(*is_set),
            _ => Err(problem(value, "expected true or false")),
        },
    }
}

fn duration(
    value: Option<(Range<usize>, &Spanned<DeValue<'_>>)>,
    default: Duration,
) -> CheckResult<Duration> {
    let Some((_, value)) = value else {
        return Ok(default);
    };
    parse_duration(&as_text(value)?).map_err(|it| problem(value, &it.to_string()))
}

/// Reads a name that is permitted as a file name and as a label of metrics.
fn checked_name(value: &Spanned<DeValue<'_>>) -> CheckResult<String> {
    let name = as_text(value)?;
    let is_fit = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let is_good = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(is_fit)
        && !name.starts_with('.');
    match is_good {
        true => Ok(name),
        false => Err(problem(
            value,
            "a name has letters, digits, - and _, 64 at most",
        )),
    }
}

fn problem(at: &Spanned<DeValue<'_>>, message: &str) -> Problem {
    Problem {
        span: at.span(),
        message: message.to_owned(),
    }
}

/// Keys of a job that are not options of `longhaul copy`.
const OWN_KEYS: [&str; 13] = [
    "name",
    "from",
    "to",
    "every",
    "cron",
    "watch",
    "settle",
    "on_file",
    "on_file_timeout",
    "on_file_retries",
    "keep_history",
    "remove_source",
    "take_partial",
];

/// Options that are permitted only on the command line, and not in the file.
const NOT_FOR_JOBS: [&str; 4] = ["dry_run", "json", "progress", "clean"];

const NAME_BYTES_MAX: usize = 64;

/// Default settle time of jobs with `watch`, `on_file` or `remove_source`. A file must stay
/// unchanged for the settle time before it is copied. Other ingest tools use the same value.
const SETTLE: Duration = Duration::from_secs(10);

/// Interval at which the agent lists a watched folder even without notifications. Some file systems
/// do not report all changes.
const RESCAN: Duration = Duration::from_secs(600);

const ON_FILE_TIMEOUT: Duration = Duration::from_secs(3600);

const KEEP_HISTORY: Duration = Duration::from_secs(90 * 86_400);
