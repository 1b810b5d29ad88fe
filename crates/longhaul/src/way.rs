//! The way to servers: directly, through a gateway, or as one; with which account, with which TLS.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use gateway::tls::{Fingerprint, Verify as VerifyTls};
use mover::{
    credentials::Credentials,
    job::Site,
    location::{Location, Remote, Scheme, Server},
    near::{Near, Peer},
    server::{Dial, Door, Password, Route},
};

use crate::exit;

/// How servers are reached.
#[derive(clap::Args)]
pub(crate) struct Way {
    /// Go through the front door of this gateway
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "peer")]
    gateway: Option<String>,
    /// Be the near gateway, and go through this far one
    #[arg(long, value_name = "KEY@HOST:PORT")]
    peer: Option<String>,
    /// With --peer: our private key, made by longhaul keygen [default: ~/.config/longhaul/key]
    #[arg(long, value_name = "FILE", requires = "peer")]
    key: Option<PathBuf>,
    /// Take the password from the first line of this file
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Read accounts from this file [default: ~/.netrc]
    #[arg(long, value_name = "FILE")]
    netrc: Option<PathBuf>,
    /// Accept this certificate of the server, by its SHA-256 fingerprint
    #[arg(long, value_name = "HEX", conflicts_with = "tls_insecure")]
    tls_pin: Option<String>,
    /// Accept any certificate: anybody on the path can read and change what is copied
    #[arg(long)]
    tls_insecure: bool,
    /// Let servers connect to this machine for data (active mode)
    #[arg(long)]
    active: bool,
}

/// The way to servers, checked.
#[derive(Debug)]
pub(crate) struct Access {
    credentials: Credentials,
    verify_tls: VerifyTls,
    /// The front door of a gateway.
    door: Option<Door>,
    /// The far gateway, and our key.
    peer: Option<(Peer, PathBuf)>,
    is_active: bool,
    patience: Duration,
}

impl Way {
    pub(crate) fn is_direct(&self) -> bool {
        self.gateway.is_none() && self.peer.is_none()
    }

    /// Whether a far gateway is named.
    pub(crate) fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Reads the flags, the netrc file and the environment. `patience` is the longest wait for a reply, and the longest
    /// time in which nothing of a transfer moves.
    pub(crate) fn read(&self, patience: Duration) -> anyhow::Result<Access> {
        Ok(Access {
            credentials: self.credentials()?,
            verify_tls: self.verify_tls()?,
            door: self.gateway()?,
            peer: self.peer()?,
            is_active: self.active,
            patience,
        })
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

impl Access {
    /// Starts the near gateway in this process, if a far one is named, and goes through it from now on. `scheme` is that of
    /// the servers, if there are any.
    pub(crate) fn start_near(&mut self, scheme: Option<Scheme>) -> anyhow::Result<Option<Near>> {
        let Some((peer, key)) = &self.peer else {
            return Ok(None);
        };
        let scheme = scheme.unwrap_or(Scheme::Ftp);
        let near = Near::start(peer, key, scheme, &self.verify_tls).map_err(exit::wrong_use)?;
        self.door = Some(near.door());
        Ok(Some(near))
    }

    /// The far gateway and our key, if this process is to be a near gateway.
    pub(crate) fn peer(&self) -> Option<&(Peer, PathBuf)> {
        self.peer.as_ref()
    }

    /// How certificates of servers are verified.
    pub(crate) fn verify_tls(&self) -> &VerifyTls {
        &self.verify_tls
    }

    /// Goes through the door of a near gateway that runs already.
    pub(crate) fn go_through(&mut self, door: Door) {
        self.door = Some(door);
    }

    /// The account on a server.
    pub(crate) fn user(&self, server: &Server) -> String {
        self.credentials.account(server).user
    }

    /// The place of a location.
    pub(crate) fn site(&self, location: &Location) -> Site {
        let Location::Remote(Remote { server, .. }) = location else {
            return Site::Local;
        };
        let account = self.credentials.account(server);
        Site::Server(Box::new(Dial {
            server: server.clone(),
            route: self.door.clone().map_or(Route::Direct, Route::Gateway),
            user: account.user,
            password: account.password.unwrap_or(Password(Vec::new())),
            verify: self.verify_tls.clone(),
            is_active: self.is_active,
            patience: self.patience,
            stall_max: self.patience,
        }))
    }
}
