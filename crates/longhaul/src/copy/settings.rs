//! What a command line of `copy` means.

use std::{
    env,
    path::{Path, PathBuf},
};

use gateway::tls::{Fingerprint, Verify as VerifyTls};
use mover::{
    credentials::Credentials,
    job::{Job, Moving, Root, Site, Target, Verify},
    location::{Location, Remote, Scheme, Server},
    names::join,
    near::Peer,
    plan,
    server::{Dial, Door, Password, Route},
};

use super::{Args, Resume, Way};
use crate::exit;

/// A checked command line.
pub(super) struct Settings {
    sources: Vec<Location>,
    destination: Location,
    credentials: Credentials,
    pub(super) verify_tls: VerifyTls,
    gateway: Option<Door>,
    /// The far gateway, and our key.
    pub(super) peer: Option<(Peer, PathBuf)>,
}

impl Settings {
    /// Reads the command line, the netrc file and the environment.
    pub(super) fn read(args: &Args) -> anyhow::Result<Self> {
        let locations: Result<Vec<Location>, _> = args
            .locations
            .iter()
            .map(|it| Location::parse(it))
            .collect();
        let mut sources = locations.map_err(exit::wrong_use)?;
        let destination = sources
            .pop()
            .expect("the command line has two locations at least");
        let of = |location: &Location| match location {
            Location::Local(_) => None,
            Location::Remote(remote) => Some(remote.server.clone()),
        };
        let first = of(&sources[0]);
        exit::ensure(
            sources.iter().all(|it| of(it) == first),
            "the sources must all be on this machine, or all on one server",
        )?;
        exit::ensure(
            first.is_some() || of(&destination).is_some() || args.way.is_direct(),
            "both ends are on this machine: no gateway is of use",
        )?;
        Ok(Self {
            sources,
            destination,
            credentials: args.way.credentials()?,
            verify_tls: args.way.verify_tls()?,
            gateway: args.way.gateway()?,
            peer: args.way.peer()?,
        })
    }

    /// What the job is: two commands with the same name do the same.
    pub(super) fn name(&self) -> String {
        let absolute = |location: &Location| match location {
            Location::Local(path) => std::path::absolute(path)
                .unwrap_or_else(|_| path.clone())
                .to_string_lossy()
                .into_owned(),
            Location::Remote(remote) => remote.to_string(),
        };
        // A slash at the end says what a name is, and not which.
        let name = |location| absolute(location).trim_end_matches('/').to_owned();
        let sources: Vec<String> = self.sources.iter().map(name).collect();
        format!("{}\n{}", sources.join("\n"), name(&self.destination))
    }

    /// The TLS of the servers behind a far gateway.
    pub(super) fn scheme(&self) -> Scheme {
        let mut all = self.sources.iter().chain([&self.destination]);
        let scheme = all.find_map(|it| match it {
            Location::Remote(remote) => Some(remote.server.scheme),
            Location::Local(_) => None,
        });
        scheme.unwrap_or(Scheme::Ftp)
    }

    /// The job; `near` is the door of the near gateway in this process.
    pub(super) fn job(self, args: &Args, near: Option<Door>) -> Job {
        let door = near.or_else(|| self.gateway.clone());
        let is_one = self.sources.len() == 1;
        let roots = self.sources.iter().map(|source| {
            let path = path(source);
            let name = last_name(&path);
            let target = path_of_directory(&self.destination);
            let target = if is_one { target } else { join(&target, &name) };
            Root {
                source: path,
                destination: Target::new(target, name),
            }
        });
        Job {
            roots: roots.collect(),
            source: self.site(&self.sources[0], args, door.clone()),
            destination: self.site(&self.destination, args, door),
            plan: plan::Options {
                lanes_max: usize::from(args.transfers),
                retries: args.retries,
                keeps_newer: args.update,
                makes_empty_directories: args.empty_dirs,
            },
            moving: Moving {
                partial_suffix: (!args.inplace).then(|| args.partial_suffix.clone().into_bytes()),
                resumes: args.resume == Resume::Auto,
                verify: match args.verify {
                    super::Verify::None => Verify::None,
                    super::Verify::Size => Verify::Size,
                    super::Verify::Readback => Verify::ReadBack,
                },
                rate_max: args.bwlimit,
            },
        }
    }

    fn site(&self, location: &Location, args: &Args, door: Option<Door>) -> Site {
        let Location::Remote(Remote { server, .. }) = location else {
            return Site::Local;
        };
        Site::Server(Box::new(self.dial(server, args, door)))
    }

    fn dial(&self, server: &Server, args: &Args, door: Option<Door>) -> Dial {
        let account = self.credentials.account(server);
        Dial {
            server: server.clone(),
            route: door.map_or(Route::Direct, Route::Gateway),
            user: account.user,
            password: account.password.unwrap_or(Password(Vec::new())),
            verify: self.verify_tls.clone(),
            is_active: args.way.active,
            patience: args.stall_timeout,
            stall_max: args.stall_timeout,
        }
    }
}

impl Way {
    fn is_direct(&self) -> bool {
        self.gateway.is_none() && self.peer.is_none()
    }

    fn credentials(&self) -> anyhow::Result<Credentials> {
        let mut credentials = Credentials::default();
        let home = env::var_os("HOME").filter(|it| !it.is_empty());
        let netrc = self
            .netrc
            .clone()
            .or_else(|| Some(Path::new(&home?).join(".netrc")));
        if let Some(netrc) = netrc {
            credentials.read_netrc(&netrc).map_err(exit::wrong_use)?;
        }
        if let Some(file) = &self.password_file {
            credentials.read_password(file).map_err(exit::wrong_use)?;
        } else if let Ok(password) = env::var("LONGHAUL_PASSWORD") {
            credentials.password = Some(Password(password.into_bytes()));
        }
        Ok(credentials)
    }

    fn verify_tls(&self) -> anyhow::Result<VerifyTls> {
        match &self.tls_pin {
            Some(pin) => {
                let pin: Fingerprint = pin.parse().map_err(exit::wrong_use)?;
                Ok(VerifyTls::Pin(pin))
            }
            None if self.tls_insecure => Ok(VerifyTls::Off),
            None => Ok(VerifyTls::Roots(None)),
        }
    }

    fn gateway(&self) -> anyhow::Result<Option<Door>> {
        let Some(text) = &self.gateway else {
            return Ok(None);
        };
        let wrong = || exit::misuse(format!("{text:?} is no gateway: expected HOST:PORT"));
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().map_err(|_| wrong())?;
        exit::ensure(!host.is_empty() && port > 0, "a gateway is HOST:PORT")?;
        Ok(Some(Door {
            host: host.to_owned(),
            port,
            has_tls: false,
        }))
    }

    fn peer(&self) -> anyhow::Result<Option<(Peer, PathBuf)>> {
        let Some(text) = &self.peer else {
            return Ok(None);
        };
        let peer = Peer::parse(text).map_err(exit::wrong_use)?;
        let home = env::var_os("HOME").unwrap_or_default();
        let key = Path::new(&home).join(".config/longhaul/key");
        Ok(Some((peer, self.key.clone().unwrap_or(key))))
    }
}

/// The path at its site, in bytes.
fn path(location: &Location) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    match location {
        Location::Local(path) => path.as_os_str().as_bytes().to_vec(),
        Location::Remote(remote) => remote.path.clone(),
    }
}

/// The same; a path of this machine that is empty would be none.
fn path_of_directory(location: &Location) -> Vec<u8> {
    path(location)
}

/// The name that a file has, whatever is in front of it.
fn last_name(path: &[u8]) -> Vec<u8> {
    let mut names = path.split(|it| *it == b'/').filter(|it| !it.is_empty());
    names.next_back().unwrap_or_default().to_vec()
}
