//! The two sites of the demonstration.
//!
//! The sites are two namespaces with an emulated WAN between them. On systems that forbid
//! namespaces, the sites are the loopback interface with a relay.

use std::{
    cell::Cell,
    fs,
    future::pending,
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use units::ByteCount;
use wansim::profile::Profile;

use super::{files::DemoFiles, relay::PathRelay};
use bench_kit::ftp_server;
use emulator::{Site, Wan, WanConfig, WanError};

/// Two sites with a path between them.
#[derive(Debug)]
pub(super) struct DemoSites {
    place: SiteSetup,
    next_port: Cell<u16>,
}

#[derive(Debug)]
enum SiteSetup {
    Namespaces(Box<Wan>),
    Loopback {
        relay: PathRelay,
        gateway_b: SocketAddr,
    },
}

/// Result of an attempt to set a congestion control.
pub(super) enum CongestionControl {
    Set,
    Missing { available: String },
}

/// TCP buffer size: several times the bandwidth-delay product of the path.
const TCP_BUFFER: ByteCount = ByteCount::mebibytes(64);

impl DemoSites {
    pub(super) fn in_namespaces(profile: &Profile) -> Result<Self, WanError> {
        let mut config = WanConfig {
            paths: [profile.forward.clone(), profile.backward.clone()],
            ..WanConfig::default()
        };
        for site in &mut config.sites {
            site.name = format!("demo-{}-{}", std::process::id(), site.name);
        }
        let wan = Wan::up(config)?;
        // If the process has no permission for this call, the kernel's defaults are sufficient. The
        // table shows the result.
        let _ = wan.prepare_tcp(TCP_BUFFER);
        Ok(Self {
            place: SiteSetup::Namespaces(Box::new(wan)),
            next_port: Cell::new(2121),
        })
    }

    pub(super) fn on_loopback(profile: &Profile) -> anyhow::Result<Self> {
        let gateway_b = free_udp_address()?;
        let relay = PathRelay::start(gateway_b, profile)?;
        Ok(Self {
            place: SiteSetup::Loopback { relay, gateway_b },
            next_port: Cell::new(0),
        })
    }

    /// Sets `name` as the congestion control of new connections at both sites.
    pub(super) fn set_congestion_control(
        &mut self,
        name: &str,
    ) -> anyhow::Result<CongestionControl> {
        let SiteSetup::Namespaces(wan) = &mut self.place else {
            bail!("there is no TCP over the relay")
        };
        for site in Site::BOTH {
            if wan.set_congestion_control(site, name).is_err() {
                let available = fs::read_to_string(AVAILABLE).unwrap_or_default();
                return Ok(CongestionControl::Missing {
                    available: available.trim().to_owned(),
                });
            }
        }
        Ok(CongestionControl::Set)
    }

    /// Starts an FTP server at site B. Returns the server's address when the server accepts
    /// connections.
    pub(super) fn start_server(&self, files: &DemoFiles) -> anyhow::Result<SocketAddr> {
        let folder = files.folder().to_owned();
        let address = match &self.place {
            SiteSetup::Namespaces(wan) => {
                // Each server has a port of its own, because an earlier server may still be closing
                // its port.
                let port = self.next_port.get();
                self.next_port.set(port + 1);
                let address = SocketAddr::from((wan.address(Site::B), port));
                wan.spawn_thread_in(Site::B, move || {
                    report(ftp_server::serve(folder, address, pending()))
                })?;
                address
            }
            SiteSetup::Loopback { .. } => {
                let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let address = socket.local_addr()?;
                drop(socket);
                thread::spawn(move || report(ftp_server::serve(folder, address, pending())));
                address
            }
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let reached = self.at(Site::B, move || TcpStream::connect(address))?;
            if reached.is_ok() {
                return Ok(address);
            }
            if Instant::now() > deadline {
                bail!("the embedded FTP server does not answer at {address}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Calls the function `client` at site A, and returns its result.
    pub(super) fn run_client<T: Send + 'static>(
        &self,
        client: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        self.at(Site::A, client)
    }

    /// Returns a command that runs `program` at a site.
    pub(super) fn command(&self, site: Site, program: &std::path::Path) -> anyhow::Result<Command> {
        match &self.place {
            SiteSetup::Namespaces(wan) => Ok(wan.command(site, program)?),
            SiteSetup::Loopback { .. } => Ok(Command::new(program)),
        }
    }

    /// Returns the address at which the gateway of site A listens.
    pub(super) fn gateway_a(&self) -> SocketAddr {
        match &self.place {
            SiteSetup::Namespaces(wan) => SocketAddr::from((wan.address(Site::A), 4810)),
            SiteSetup::Loopback { .. } => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// Returns the address at which the gateway of site B listens, and the address to which the
    /// gateway of site A sends.
    pub(super) fn gateway_b(&self) -> (SocketAddr, SocketAddr) {
        match &self.place {
            SiteSetup::Namespaces(wan) => {
                let address = SocketAddr::from((wan.address(Site::B), 4810));
                (address, address)
            }
            SiteSetup::Loopback { relay, gateway_b } => (*gateway_b, relay.address()),
        }
    }

    /// Returns an address for the FTP listener at site A.
    pub(super) fn front_listener(&self) -> anyhow::Result<SocketAddr> {
        match &self.place {
            SiteSetup::Namespaces(wan) => Ok(SocketAddr::from((wan.address(Site::A), 2121))),
            SiteSetup::Loopback { .. } => {
                let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                Ok(socket.local_addr()?)
            }
        }
    }

    /// Returns a message if the machine was too slow for the emulation, and `None` otherwise.
    pub(super) fn saturation(&self) -> Option<String> {
        let SiteSetup::Namespaces(wan) = &self.place else {
            return None;
        };
        let report = wan.report();
        report.saturated().then(|| {
            "The machine could not keep up with the emulation: the figures are too low.".to_owned()
        })
    }

    fn at<T: Send + 'static>(
        &self,
        site: Site,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        match &self.place {
            SiteSetup::Namespaces(wan) => {
                let thread = wan.spawn_thread_in(site, work)?;
                Ok(thread
                    .join()
                    .map_err(|_| anyhow::anyhow!("a thread of a site panicked"))??)
            }
            SiteSetup::Loopback { .. } => Ok(work()),
        }
    }
}

fn report(result: anyhow::Result<()>) {
    if let Err(error) = result {
        eprintln!("longhaul demo: {error:#}");
    }
}

fn free_udp_address() -> anyhow::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a port on loopback")?;
    Ok(socket.local_addr()?)
}

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
