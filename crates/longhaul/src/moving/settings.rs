//! Conversion of a command line to the settings of jobs.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use mover::{
    filter::Filter,
    job::{CopyOptions, CopyVerification, GrowthHandling, Job, Root, RootTarget},
    location::{Location, Remote, Scheme, Server},
    names::join,
    plan::{self, JobPurpose},
    spool_sharing::SpoolSharing,
};

use super::{
    Order, WriteArgs,
    calls::CommandWords,
    overlap::{INTO_ITSELF, ONE_WITHIN},
};
use crate::{connection_args::Access, exit, filters::now_unix_s};

/// A command line after all checks.
pub(crate) struct Settings {
    sources: Vec<Location>,
    destination: Location,
    filter: Filter,
    lanes_max: u16,
    pub(super) on_file: Option<CommandWords>,
    pub(crate) access: Access,
    /// State that jobs share if they send the same files through one gateway.
    sharing: Option<Arc<SpoolSharing>>,
}

/// Identity of a server. Different gateways may reach different servers at the same address.
#[derive(PartialEq, Eq, Hash)]
struct ServerName {
    gateway: Option<String>,
    host: String,
    port: u16,
}

impl Settings {
    /// Reads the settings from the command line, the netrc file and the environment.
    pub(crate) fn read(order: &Order<'_>) -> anyhow::Result<Self> {
        let mut all = Self::read_all(std::slice::from_ref(order))?;
        Ok(all.pop().expect("an order has settings"))
    }

    /// Reads several orders of one command line. Refuses two orders with the same destination.
    pub(crate) fn read_all(orders: &[Order<'_>]) -> anyhow::Result<Vec<Self>> {
        let all = orders.iter().enumerate();
        let all = all.map(|(number, order)| Self::read_one(order, number, orders.len()));
        let mut all: Vec<Self> = all.collect::<Result<_, _>>()?;
        let schemes: HashSet<Scheme> = all
            .iter()
            .flat_map(Self::servers)
            .map(|it| it.scheme)
            .filter(|it| it.is_ftp())
            .collect();
        let connection = &orders[0].common.connection;
        let has_other = all
            .iter()
            .flat_map(Self::servers)
            .any(|it| !it.scheme.is_web());
        exit::ensure(
            has_other || connection.is_direct(),
            "source and destination are on this machine or at a web server, so a gateway has no effect",
        )?;
        exit::ensure(
            !connection.has_peer() || schemes.len() < 2,
            "with --peer all FTP servers must have the same scheme: run one copy for each scheme",
        )?;
        let mut places = HashSet::new();
        for one in &all {
            let twice = format!("{} is a destination twice: name it once", one.ends().1);
            exit::ensure(places.insert(one.place()), &twice)?;
        }
        share_connections(&mut all, orders)?;
        Ok(all)
    }

    fn read_one(order: &Order<'_>, number: usize, count: usize) -> anyhow::Result<Self> {
        exit::ensure(
            !order.common.stall_timeout.is_zero(),
            "--stall-timeout must be above zero, such as 60s",
        )?;
        let sources = order.sources.iter().map(|it| Location::parse_source(it));
        let sources: Result<Vec<Location>, _> = sources.collect();
        let sources = sources.map_err(exit::wrong_use)?;
        let destination = Location::parse_destination(order.destination);
        let destination = destination.map_err(exit::wrong_use)?;
        exit::ensure(
            destination.server().is_none_or(|it| !it.scheme.is_web()),
            "a web server is a source alone: nothing can be written there",
        )?;
        let of = Location::server;
        let first = of(&sources[0]);
        exit::ensure(
            sources.iter().all(|it| of(it) == first),
            "the sources must all be on this machine, or all on one server: run one copy for each",
        )?;
        let has_stdin = order.sources.iter().any(|it| it == "-");
        exit::ensure(
            !has_stdin || order.enters_destination,
            "only longhaul copy reads standard input, -: for a file of this name write ./-",
        )?;
        check_names(&sources)?;
        exit::ensure(
            !sources.iter().any(|it| is_within(it, &destination)),
            INTO_ITSELF,
        )?;
        let is_sync = matches!(order.purpose, JobPurpose::Sync { .. });
        exit::ensure(
            !is_sync || !sources.iter().any(|it| is_within(&destination, it)),
            ONE_WITHIN,
        )?;
        let copies_links = order
            .writing
            .is_some_and(|it| it.links == super::Links::Copy);
        let is_remote = first.is_some() || destination.server().is_some();
        exit::ensure(
            !copies_links || !is_remote,
            "--links copy: servers receive no symbolic links. --links follow copies their targets",
        )?;
        let on_file = order.writing.and_then(|it| it.on_file.as_deref());
        let (connection, timeout) = (&order.common.connection, order.common.stall_timeout);
        let servers = sources.iter().chain([&destination]);
        let servers: Vec<&Server> = servers.filter_map(Location::server).collect();
        let access = connection.read_one(number, count, timeout, &servers)?;
        Ok(Self {
            sources,
            destination,
            filter: order.common.filters.read()?,
            lanes_max: order.common.transfers,
            on_file: on_file.map(CommandWords::read).transpose()?,
            access,
            sharing: None,
        })
    }

    /// Returns the server, the user and the path of the destination. A local path has no server and
    /// no user.
    fn place(&self) -> (Option<(ServerName, String)>, Vec<u8>) {
        let trimmed = |mut path: Vec<u8>| {
            while path.len() > 1 && path.ends_with(b"/") {
                path.pop();
            }
            path
        };
        match &self.destination {
            Location::Local(path) => {
                let resolved = resolved(path).unwrap_or_else(|_| path.clone());
                (
                    None,
                    trimmed(resolved.into_os_string().into_encoded_bytes()),
                )
            }
            Location::Remote(Remote { server, path }) => {
                let user = self.access.user(server);
                (
                    Some((self.server_name(server), user)),
                    trimmed(path.clone()),
                )
            }
        }
    }

    /// Returns the identity of a server.
    fn server_name(&self, server: &Server) -> ServerName {
        ServerName {
            gateway: self.access.gateway().map(str::to_owned),
            host: server.host.to_ascii_lowercase(),
            port: server.port,
        }
    }

    /// Returns the servers to which each lane connects: the server of the source, and the server of
    /// the destination.
    fn ends_at_servers(&self) -> impl Iterator<Item = &Server> {
        let ends = [self.sources.first(), Some(&self.destination)];
        ends.into_iter().flatten().filter_map(Location::server)
    }

    /// Returns the name of the job. Different spellings of the same paths yield the same name.
    pub(super) fn name(&self) -> String {
        let sources: Vec<String> = self.sources.iter().map(canonical).collect();
        let destination = canonical(&self.destination);
        let name = format!("{}\n{destination}", sources.join("\n"));
        match self.access.gateway() {
            Some(gateway) => format!("{name}\n{gateway}"),
            None => name,
        }
    }

    /// Returns the sources and the destination as absolute paths or URLs.
    pub(crate) fn ends(&self) -> (Vec<String>, String) {
        let absolute = |location: &Location| match location {
            Location::Local(path) => std::path::absolute(path)
                .unwrap_or_else(|_| path.clone())
                .to_string_lossy()
                .into_owned(),
            Location::Remote(remote) => remote.to_string(),
        };
        // A slash at the end marks a directory, but does not distinguish two paths.
        let name = |location| absolute(location).trim_end_matches('/').to_owned();
        (
            self.sources.iter().map(name).collect(),
            name(&self.destination),
        )
    }

    /// Returns the sources and the destination.
    pub(super) fn locations(&self) -> (&[Location], &Location) {
        (&self.sources, &self.destination)
    }

    /// Returns the first source, if it is on this machine.
    pub(crate) fn local_source(&self) -> Option<&Path> {
        match self.sources.first()? {
            Location::Local(path) => Some(path),
            Location::Remote(_) => None,
        }
    }

    /// Returns the servers that the job uses.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        let all = self.sources.iter().chain([&self.destination]);
        all.filter_map(Location::server)
    }

    /// Returns the scheme of the job's FTP servers. Returns `None` if the job uses no FTP server.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        let mut schemes = self.servers().map(|it| it.scheme);
        schemes.find(|it| it.is_ftp())
    }

    /// Creates the job from these settings and the options of the order.
    pub(crate) fn job(self, order: &Order<'_>) -> Job {
        let common = order.common;
        let becomes_destination = match &self.sources[..] {
            [one] => !order.enters_destination || !enters(one, &self.destination),
            _ => false,
        };
        let to = root_path(&self.destination);
        let roots = self.sources.iter().map(|source| {
            let name = source.name();
            let target = match becomes_destination {
                true => to.clone(),
                false => join(&to, &name),
            };
            Root {
                source: root_path(source),
                destination: RootTarget::new(target, name),
            }
        });
        Job {
            roots: roots.collect(),
            files: None,
            source: self.access.site(&self.sources[0]),
            destination: self.access.site(&self.destination),
            plan: plan::PlanOptions {
                purpose: order.purpose.clone(),
                lanes_max: usize::from(self.lanes_max),
                retries: common.retries,
                keeps_newer: order.writing.is_some_and(|it| it.update),
                compares_content: order.writing.is_some_and(|it| it.checksum),
                links: order
                    .writing
                    .map_or(plan::Links::Skip, |it| links(it.links)),
                settle_s: order.writing.map_or(0, settle_s),
                follows_growth: order
                    .writing
                    .is_some_and(|it| it.growing == super::Growth::Follow),
                makes_empty_directories: order.makes_empty_directories,
                is_dry_run: order.is_dry_run(),
                filter: Arc::new(self.filter),
                begun_unix_s: now_unix_s(),
                ..plan::PlanOptions::default()
            },
            moving: CopyOptions {
                resumes: order.resumes(),
                rate_max: common.bwlimit.clone(),
                ..order.writing.map(moving).unwrap_or_default()
            },
            sharing: self.sharing,
            fence: None,
            session_pool: None,
        }
    }
}

/// Asks the user for missing passwords, once for each account.
pub(super) fn ask_passwords(jobs: &mut [Settings]) -> anyhow::Result<()> {
    for number in 0..jobs.len() {
        let (before, rest) = jobs.split_at_mut(number);
        let job = &mut rest[0];
        for other in before {
            job.access.adopt_passwords(&other.access);
        }
        let servers: Vec<Server> = job.servers().cloned().collect();
        for server in servers {
            job.access.ask_password(&server)?;
        }
    }
    Ok(())
}

/// Asks the user about host keys and passwords of SFTP servers, once for each server.
pub(super) async fn ask_for_ssh(jobs: &mut [Settings]) -> anyhow::Result<()> {
    for number in 0..jobs.len() {
        let (before, rest) = jobs.split_at_mut(number);
        let job = &mut rest[0];
        for other in before {
            job.access.adopt_passwords(&other.access);
        }
        let servers: HashSet<Server> = job.servers().cloned().collect();
        let servers: Vec<Server> = servers.into_iter().collect();
        job.access.ask_for_ssh(&servers).await?;
    }
    Ok(())
}

/// Makes jobs behind one gateway share its spool, so that each file crosses the link only once.
pub(super) fn share_gateways(jobs: &mut [Settings]) {
    let mut behind: HashMap<(String, u16), Vec<&mut Settings>> = HashMap::new();
    for job in jobs {
        let listener = job.access.listeners().map(|it| &it.ftp);
        let listener = listener.map(|it| (it.host.clone(), it.port));
        let is_at_ftp = |it: &Server| it.scheme.is_ftp();
        if let (Some(listener), true) = (listener, job.destination.server().is_some_and(is_at_ftp))
        {
            behind.entry(listener).or_default().push(job);
        }
    }
    for jobs in behind.into_values().filter(|it| it.len() > 1) {
        let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        let sharing = Arc::new(SpoolSharing::new(count));
        for job in jobs {
            job.sharing = Some(sharing.clone());
        }
    }
}

/// Limits each job's lanes, so that all jobs together do not exceed `--connections` at any server.
fn share_connections(jobs: &mut [Settings], orders: &[Order<'_>]) -> anyhow::Result<()> {
    let mut uses: HashMap<ServerName, u16> = HashMap::new();
    for job in jobs.iter() {
        for server in job.ends_at_servers() {
            *uses.entry(job.server_name(server)).or_default() += 1;
        }
    }
    for (job, order) in jobs.iter_mut().zip(orders) {
        let Some(connections) = order.common.connections else {
            continue;
        };
        let most = job
            .ends_at_servers()
            .map(|it| connections / uses[&job.server_name(it)]);
        let most = most.min().unwrap_or(u16::MAX);
        exit::ensure(
            most > 0,
            "--connections are too few: each destination needs one to each server, and two if the source is on it too",
        )?;
        job.lanes_max = job.lanes_max.min(most);
    }
    Ok(())
}

fn links(links: super::Links) -> plan::Links {
    match links {
        super::Links::Skip => plan::Links::Skip,
        super::Links::Follow => plan::Links::Follow,
        super::Links::Copy => plan::Links::Copy,
    }
}

fn settle_s(writing: &WriteArgs) -> i64 {
    let settle = writing.settle.unwrap_or_default();
    i64::try_from(settle.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn moving(writing: &WriteArgs) -> CopyOptions {
    let suffix = writing.partial_suffix.clone().into_bytes();
    CopyOptions {
        partial_suffix: (!writing.inplace).then_some(suffix),
        verify: match writing.verify {
            super::Verify::None => CopyVerification::None,
            super::Verify::Size => CopyVerification::Size,
            super::Verify::Hash => CopyVerification::Hash,
            super::Verify::Readback => CopyVerification::ReadBack,
        },
        growing: match writing.growing {
            super::Growth::Snapshot => GrowthHandling::Snapshot,
            super::Growth::Follow => GrowthHandling::Follow,
        },
        ..CopyOptions::default()
    }
}

/// Checks that the names of several sources differ, because all go into one directory.
fn check_names(sources: &[Location]) -> anyhow::Result<()> {
    if sources.len() == 1 {
        return Ok(());
    }
    let mut names = HashSet::new();
    for source in sources {
        let name = source.name();
        if matches!(name.as_slice(), b"" | b"." | b"..") {
            return Err(exit::misuse(format!(
                "{source} has no name of its own: copy it alone"
            )));
        }
        if !names.insert(name) {
            return Err(exit::misuse(format!(
                "another source has the name of {source}: copy each to a directory of its own"
            )));
        }
    }
    Ok(())
}

/// Returns the canonical spelling of a location. All spellings of one path yield the same result.
fn canonical(location: &Location) -> String {
    match location {
        Location::Local(path) => resolved_root(path).to_string_lossy().into_owned(),
        Location::Remote(remote) => {
            let names = remote.path.split(|it| *it == b'/');
            let names: Vec<&[u8]> = names.filter(|it| !matches!(*it, b"" | b".")).collect();
            let root: &[u8] = if remote.path.starts_with(b"/") {
                b"/"
            } else {
                b""
            };
            let mut server = remote.server.clone();
            server.host.make_ascii_lowercase();
            let path = [root, &names.join(&b'/')].concat();
            Remote { server, path }.to_string()
        }
    }
}

/// Returns the path of a root.
///
/// All spellings of a local root yield the same path, so its parts and records are found again. A
/// slash at the end is preserved, because it marks a directory.
fn root_path(location: &Location) -> Vec<u8> {
    let typed = location.path();
    let Location::Local(path) = location else {
        return typed;
    };
    let mut path = resolved_root(path).into_os_string().into_encoded_bytes();
    if typed.ends_with(b"/") && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

/// Returns the absolute path without symbolic links. If the last component is a link to a file,
/// this link remains.
fn resolved_root(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if path.is_dir() {
        return path.canonicalize().unwrap_or(path);
    }
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => resolved(above).map_or(path.clone(), |it| it.join(name)),
        _ => path,
    }
}

/// Resolves the symbolic links in a path. Components that do not exist remain unchanged.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut above = path.ancestors();
    let found = above.find_map(|it| Some((it.canonicalize().ok()?, path.strip_prefix(it).ok()?)));
    Ok(match found {
        Some((above, below)) => above.join(below),
        None => path,
    })
}

/// Whether `inner` is below the directory `outer` on the same machine.
fn is_within(outer: &Location, inner: &Location) -> bool {
    let below = |outer: &Path, inner: &Path| inner != outer && inner.starts_with(outer);
    match (outer, inner) {
        (Location::Local(outer), Location::Local(inner)) => {
            match (resolved(outer), resolved(inner)) {
                (Ok(outer), Ok(inner)) => {
                    outer.is_dir() && (below(&outer, &inner) || is_above(&outer, &inner))
                }
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

/// Whether a single source is copied into the destination directory, under the source's name.
/// Several sources are always copied in this way.
fn enters(source: &Location, destination: &Location) -> bool {
    let name = source.name();
    let has_name = !matches!(name.as_slice(), b"" | b"." | b"..");
    has_name && destination.path().ends_with(b"/") && !source.path().ends_with(b"/")
}

/// Whether `outer` is the same directory as a parent of `inner`. A bind mount can cause this.
fn is_above(outer: &Path, inner: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let outer = place(outer);
    let mut above = inner.ancestors().skip(1);
    outer.is_some() && above.any(|it| place(it) == outer)
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

    fn settings(line: &str) -> Settings {
        let words = line.split(' ').chain(["--netrc", "/nonexistent"]);
        let line = Line::parse_from(["copy"].into_iter().chain(words));
        let orders = line.copy.orders().expect("it has a destination");
        Settings::read(&orders[0]).expect("it is right")
    }

    #[test]
    fn a_job_has_one_name_however_its_paths_are_spelled() {
        let name = |line: &str| settings(line).name();
        let one = name("/tmp/a ftp://Host/b/c");
        for line in [
            "/tmp//a/ ftp://host/b//c/",
            "/tmp/./a ftp://host/./b/c",
            "/usr/../tmp/a ftp://host/b/c",
        ] {
            assert_eq!(name(line), one, "{line}");
        }
        for line in [
            "/tmp/a ftp://host//b/c",
            "/tmp/a ftp://host/c",
            "/tmp/a ftp://host:2121/b/c",
        ] {
            assert_ne!(name(line), one, "{line}");
        }
    }

    #[test]
    fn roots_of_this_machine_have_one_path_however_they_are_spelled() {
        let folder = tempfile::tempdir().expect("room");
        let here = folder.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(here.join("from/below")).expect("room");
        std::fs::create_dir(here.join("to")).expect("room");
        std::fs::write(here.join("file"), b"x").expect("room");
        for (link, target) in [("link", "to"), ("name", "file"), ("above", ".")] {
            std::os::unix::fs::symlink(target, here.join(link)).expect("room");
        }
        let roots = |from: &str, to: &str| {
            let here = here.display();
            let line = format!("{here}/{from} {here}/{to}");
            let line = Line::parse_from(["copy"].into_iter().chain(line.split(' ')));
            let orders = line.copy.orders().expect("it has a destination");
            let job = Settings::read(&orders[0])
                .expect("it is right")
                .job(&orders[0]);
            let root = &job.roots[0];
            let below = |path: &[u8]| {
                let path = join(path, b"x");
                let path = String::from_utf8(path).expect("text");
                path.replace(&format!("{here}/"), "")
            };
            (below(&root.source), below(root.destination.directory()))
        };
        let one = ("from/x".to_owned(), "to/x".to_owned());
        for (from, to) in [
            ("from", "to"),
            ("from/", "./to"),
            ("./from/", "to//"),
            ("from/below/../", "link"),
            ("above/from", "above//link/"),
        ] {
            assert_eq!(
                roots(from, to),
                (one.0.clone(), one.1.clone()),
                "{from} {to}"
            );
        }
        // If a path leads to a missing file or to a link to a file, its last component stays
        // unchanged.
        assert_eq!(roots("from", "above/new").1, "new/x");
        assert_eq!(roots("above/name", "to").0, "name/x");
        let working = std::env::current_dir().expect("a folder");
        let relative = root_path(&Location::Local("./src/".into()));
        let relative = String::from_utf8(relative).expect("text");
        let expected = working.canonicalize().expect("there").join("src/");
        assert_eq!(relative, expected.display().to_string());
    }

    #[test]
    fn jobs_share_the_connections_to_a_server() {
        let lanes = |line: &str| {
            let words = line
                .split(' ')
                .chain(["--netrc", "/nonexistent", "--transfers", "8"]);
            let line = Line::parse_from(["copy"].into_iter().chain(words));
            let orders = line.copy.orders().expect("it has destinations");
            let settings = Settings::read_all(&orders).expect("it is right");
            let lanes = settings.iter().map(|it| it.lanes_max);
            lanes.collect::<Vec<u16>>()
        };
        assert_eq!(lanes("/a ftp://h/b"), [8]);
        assert_eq!(lanes("/a ftp://h/b --connections 3"), [3]);
        assert_eq!(lanes("ftp://h/a ftp://H/b --connections 5"), [2]);
        let two = "/a --to ftp://h/b --to ftp://other/c --connections 4";
        assert_eq!(lanes(two), [4, 4]);
        let from_one = "ftp://h/a --to /b --to ftp://other/c --connections 4";
        assert_eq!(lanes(from_one), [2, 2]);
    }
}
