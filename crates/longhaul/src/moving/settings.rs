//! What a command line means.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    path::Path,
    sync::Arc,
};

use mover::{
    filter::Filter,
    job::{Job, Moving, Root, Target, Verify},
    location::{Location, Remote, Scheme, Server},
    names::join,
    plan::{self, Purpose},
};
use units::BitRate;

use super::{Order, Writing, calls::Words};
use crate::{exit, filters::now_unix_s, way::Access};

/// A checked command line.
pub(crate) struct Settings {
    sources: Vec<Location>,
    destination: Location,
    filter: Filter,
    lanes_max: u16,
    pub(super) on_file: Option<Words>,
    pub(crate) access: Access,
}

impl Settings {
    /// Reads the command line, the netrc file and the environment.
    pub(crate) fn read(order: &Order<'_>) -> anyhow::Result<Self> {
        let is_zero = |rate: BitRate| rate.as_bytes_per_s() == 0.0;
        exit::ensure(
            !order.common.bwlimit.is_some_and(is_zero),
            "--bwlimit 0 would move nothing",
        )?;
        exit::ensure(
            !order.common.stall_timeout.is_zero(),
            "--stall-timeout must be more than nothing",
        )?;
        let way = &order.common.way;
        let sources = order.sources.iter().map(|it| Location::parse(it));
        let sources: Result<Vec<Location>, _> = sources.collect();
        let sources = sources.map_err(exit::wrong_use)?;
        let destination = Location::parse(order.destination).map_err(exit::wrong_use)?;
        let of = Location::server;
        let first = of(&sources[0]);
        exit::ensure(
            sources.iter().all(|it| of(it) == first),
            "the sources must all be on this machine, or all on one server",
        )?;
        exit::ensure(
            first.is_some() || of(&destination).is_some() || way.is_direct(),
            "both ends are on this machine: no gateway is of use",
        )?;
        check_names(&sources)?;
        exit::ensure(
            !sources.iter().any(|it| is_within(it, &destination)),
            "a directory cannot be copied into itself",
        )?;
        let is_sync = matches!(order.purpose, Purpose::Sync { .. });
        exit::ensure(
            !is_sync || !sources.iter().any(|it| is_within(&destination, it)),
            "a directory cannot become as one within it is",
        )?;
        let schemes: Vec<Scheme> = [&sources[0], &destination]
            .into_iter()
            .filter_map(|it| of(it).map(|it| it.scheme))
            .collect();
        exit::ensure(
            !way.has_peer() || schemes.windows(2).all(|it| it[0] == it[1]),
            "with --peer both servers must have the same scheme",
        )?;
        let on_file = order.writing.and_then(|it| it.on_file.as_deref());
        let mut settings = [Self {
            sources,
            destination,
            filter: order.common.filters.read()?,
            lanes_max: order.common.transfers,
            on_file: on_file.map(Words::read).transpose()?,
            access: way.read(order.common.stall_timeout)?,
        }];
        share_connections(&mut settings, std::slice::from_ref(order))?;
        let [settings] = settings;
        Ok(settings)
    }

    /// The servers of both ends. A lane has a connection to each.
    fn ends_at_servers(&self) -> impl Iterator<Item = &Server> {
        let ends = [self.sources.first(), Some(&self.destination)];
        ends.into_iter().flatten().filter_map(Location::server)
    }

    /// What the job is: two commands with the same name do the same.
    pub(super) fn name(&self) -> String {
        let (sources, destination) = self.ends();
        format!("{}\n{destination}", sources.join("\n"))
    }

    /// The sources and the destination, whatever the working directory is.
    pub(crate) fn ends(&self) -> (Vec<String>, String) {
        let absolute = |location: &Location| match location {
            Location::Local(path) => std::path::absolute(path)
                .unwrap_or_else(|_| path.clone())
                .to_string_lossy()
                .into_owned(),
            Location::Remote(remote) => remote.to_string(),
        };
        // A slash at the end says what a name is, and not which.
        let name = |location| absolute(location).trim_end_matches('/').to_owned();
        (
            self.sources.iter().map(name).collect(),
            name(&self.destination),
        )
    }

    /// The servers that the job needs.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        let all = self.sources.iter().chain([&self.destination]);
        all.filter_map(Location::server)
    }

    /// The job.
    pub(crate) fn job(self, order: &Order<'_>) -> Job {
        let common = order.common;
        let is_one = self.sources.len() == 1;
        let roots = self.sources.iter().map(|source| {
            let path = source.path();
            let name = last_name(&path);
            let target = self.destination.path();
            let target = if is_one { target } else { join(&target, &name) };
            Root {
                source: path,
                destination: Target::new(target, name),
            }
        });
        Job {
            roots: roots.collect(),
            source: self.access.site(&self.sources[0]),
            destination: self.access.site(&self.destination),
            plan: plan::Options {
                purpose: order.purpose.clone(),
                lanes_max: usize::from(self.lanes_max),
                retries: common.retries,
                keeps_newer: order.writing.is_some_and(|it| it.update),
                makes_empty_directories: order.makes_empty_directories,
                is_dry_run: order.is_dry_run(),
                filter: Arc::new(self.filter),
                begun_unix_s: now_unix_s(),
                ..plan::Options::default()
            },
            moving: Moving {
                resumes: order.resumes(),
                rate_max: common.bwlimit,
                ..order.writing.map(moving).unwrap_or_default()
            },
        }
    }
}

/// Gives each job as many lanes as `--connections` allows, so that all jobs together have no more connections to any server.
pub(super) fn share_connections(jobs: &mut [Settings], orders: &[Order<'_>]) -> anyhow::Result<()> {
    let mut uses: HashMap<(String, u16), u16> = HashMap::new();
    let place = |server: &Server| (server.host.clone(), server.port);
    for server in jobs.iter().flat_map(Settings::ends_at_servers) {
        *uses.entry(place(server)).or_default() += 1;
    }
    for (job, order) in jobs.iter_mut().zip(orders) {
        let Some(connections) = order.common.connections else {
            continue;
        };
        let most = job
            .ends_at_servers()
            .map(|it| connections / uses[&place(it)]);
        let most = most.min().unwrap_or(u16::MAX);
        exit::ensure(
            most > 0,
            "--connections are too few: each destination needs one to each server, and two to a server that is both ends",
        )?;
        job.lanes_max = job.lanes_max.min(most);
    }
    Ok(())
}

fn moving(writing: &Writing) -> Moving {
    let suffix = writing.partial_suffix.clone().into_bytes();
    Moving {
        partial_suffix: (!writing.inplace).then_some(suffix),
        verify: match writing.verify {
            super::Verify::None => Verify::None,
            super::Verify::Size => Verify::Size,
            super::Verify::Readback => Verify::ReadBack,
        },
        ..Moving::default()
    }
}

/// Several sources go into one directory, each under its name: no two may have the same one.
fn check_names(sources: &[Location]) -> anyhow::Result<()> {
    if sources.len() == 1 {
        return Ok(());
    }
    let mut names = HashSet::new();
    for source in sources {
        let name = last_name(&source.path());
        if matches!(name.as_slice(), b"" | b"." | b"..") {
            return Err(exit::misuse(format!(
                "{source} has no name of its own: copy it alone"
            )));
        }
        if !names.insert(name) {
            return Err(exit::misuse(format!(
                "another source has the name of {source}"
            )));
        }
    }
    Ok(())
}

/// Whether `inner` is below the directory `outer`, in the same place.
fn is_within(outer: &Location, inner: &Location) -> bool {
    let below = |outer: &Path, inner: &Path| inner != outer && inner.starts_with(outer);
    match (outer, inner) {
        (Location::Local(outer), Location::Local(inner)) => {
            // What is not there yet cannot be resolved.
            let resolved = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
            match (resolved(outer), resolved(inner)) {
                (Ok(outer), Ok(inner)) => outer.is_dir() && below(&outer, &inner),
                _ => false,
            }
        }
        (Location::Remote(outer), Location::Remote(inner)) => {
            use std::os::unix::ffi::OsStrExt as _;
            let path = |remote: &Remote| Path::new(OsStr::from_bytes(&remote.path)).to_owned();
            outer.server == inner.server && below(&path(outer), &path(inner))
        }
        _ => false,
    }
}

/// The name that a file has, whatever is in front of it.
fn last_name(path: &[u8]) -> Vec<u8> {
    let mut names = path.split(|it| *it == b'/').filter(|it| !it.is_empty());
    names.next_back().unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        copy: crate::copy::Args,
    }

    #[test]
    fn jobs_share_the_connections_to_a_server() {
        let lanes = |line: &str| {
            let words = line
                .split(' ')
                .chain(["--netrc", "/nonexistent", "--transfers", "8"]);
            let line = Line::parse_from(["copy"].into_iter().chain(words));
            let orders = line.copy.orders().expect("it has destinations");
            let settings = orders
                .iter()
                .map(|it| Settings::read(it).expect("it is right"));
            let mut settings: Vec<Settings> = settings.collect();
            share_connections(&mut settings, &orders).expect("there are enough");
            let lanes = settings.iter().map(|it| it.lanes_max);
            lanes.collect::<Vec<u16>>()
        };
        assert_eq!(lanes("/a ftp://h/b"), [8]);
        assert_eq!(lanes("/a ftp://h/b --connections 3"), [3]);
        assert_eq!(lanes("ftp://h/a ftp://h/b --connections 5"), [2]);
        let two = "/a --to ftp://h/b --to ftp://other/c --connections 4";
        assert_eq!(lanes(two), [4, 4]);
        let from_one = "ftp://h/a --to /b --to ftp://other/c --connections 4";
        assert_eq!(lanes(from_one), [2, 2]);
    }
}
