//! The WAN emulator: two network namespaces, and between them a path that treats the packets of any
//! program as its settings say.
//!
//! Each site is a namespace with an interface (a veth) whose other end a thread of this process
//! holds by a packet socket. Every packet passes through [`wansim::Path`], one for each direction.
//! It needs no traffic shaping from the kernel, and works for an ordinary user in a user namespace
//! ([`privilege::acquire`]). Linux only.
#![allow(
    clippy::disallowed_methods,
    reason = "drives the kernel in real time: sockets, clocks and threads"
)]

mod cable;
pub mod calibrate;
mod capture;
pub mod change;
mod checksum;
mod client;
mod config;
mod control;
pub mod daemon;
mod emulator;
mod error;
mod frame;
pub mod load;
mod netlink;
mod netns;
pub mod privilege;
mod report;
mod run;
pub mod script;
mod state;
mod sys;
mod topology;

use std::{
    ffi::OsStr,
    io::{self, Write},
    net::Ipv4Addr,
    process::Command,
    thread,
};

pub use cable::Cable;
pub use capture::{Capture, CaptureOptions, CaptureReport};
pub use client::{Client, RemoteCapture, Removed};
pub use config::{Direction, Site, SiteConfig, WanConfig};
pub use control::Description;
pub use error::WanError;
pub use report::{DirectionReport, Load, Report, ThreadReport};
pub use state::Place;
use units::ByteCount;
use wansim::PathConfig;

use emulator::Emulator;
use topology::Topology;

/// An emulated WAN that is up. Dropping it stops the traffic and removes what was made; programs
/// still inside find themselves without a network.
#[derive(Debug)]
pub struct Wan {
    // In this order: the emulator ends before its wires go.
    emulator: Emulator,
    topology: Topology,
    config: WanConfig,
}

impl Wan {
    /// Makes the two sites and starts carrying packets between them.
    ///
    /// # Errors
    /// [`WanError::Forbidden`] names the setting that keeps this user from making namespaces;
    /// [`WanError::NameTaken`] if a visible namespace has the name of a site.
    pub fn up(config: WanConfig) -> Result<Self, WanError> {
        let (topology, sockets) = Topology::build(&config)?;
        let emulator = Emulator::start(sockets, &config)?;
        Ok(Self {
            emulator,
            topology,
            config,
        })
    }

    /// How it was made. [`Self::report`] has the settings of the paths now in force.
    pub fn config(&self) -> &WanConfig {
        &self.config
    }

    /// A site's address on the WAN.
    pub fn address(&self, site: Site) -> Ipv4Addr {
        self.config.sites[site.index()].ipv4
    }

    /// Changes one direction while traffic flows; in force when this returns.
    pub fn set(&self, direction: Direction, path: PathConfig) {
        self.emulator.configure(direction, path);
    }

    /// The settings in force, what happened to packets, and whether the machine kept up.
    pub fn report(&self) -> Report {
        self.emulator.report()
    }

    /// Writes what a site sends into the WAN and gets out of it to a pcap file, with times in
    /// nanoseconds: each packet of the wire by itself, in the order in which the emulator took and
    /// delivered them, which may be at most [`WanConfig::coalesce`] and 0.1 ms late. Packets cut short
    /// keep the partial checksum that the kernel gave them.
    ///
    /// # Errors
    /// [`WanError::Io`] if there can be no more threads.
    pub fn capture(
        &self,
        site: Site,
        file: impl Write + Send + 'static,
        options: CaptureOptions,
    ) -> Result<Capture, WanError> {
        self.emulator.capture(site, file, options)
    }

    /// Takes a site's WAN interface down, as when a cable is pulled, or up again. Meanwhile
    /// programs of this site cannot send; what is on its way to it is lost when it arrives.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn set_interface_up(&mut self, site: Site, up: bool) -> Result<(), WanError> {
        self.topology.set_interface_up(site, up)
    }

    /// Makes `name` (`cubic`, `bbr`, ...) the TCP congestion control of a site's connections over the
    /// WAN by IPv4, those that it accepts included. Works for any user of the emulator.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel does not have it.
    pub fn set_congestion_control(&mut self, site: Site, name: &str) -> Result<(), WanError> {
        self.topology.set_congestion_control(site, name)
    }

    /// Makes the kernel's TCP in both sites fit for comparisons: buffers of up to `buffer`, so that its
    /// defaults hold nothing back, and nothing learned from the connection before.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn prepare_tcp(&self, buffer: ByteCount) -> Result<(), WanError> {
        let bytes = buffer.bytes();
        for site in Site::BOTH {
            self.write_tcp(
                site,
                &[
                    ("tcp_rmem", format!("4096 131072 {bytes}")),
                    ("tcp_wmem", format!("4096 16384 {bytes}")),
                    ("tcp_no_metrics_save", "1".to_owned()),
                ],
            )?;
        }
        Ok(())
    }

    /// Gives the TCP connections of a site buffers as of programs that ask for `bytes` in either direction:
    /// the kernel takes twice as much, for what it adds to the data.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn fix_tcp_buffers(&self, site: Site, size: ByteCount) -> Result<(), WanError> {
        let bytes = 2 * size.bytes();
        let text = format!("4096 {bytes} {bytes}");
        self.write_tcp(site, &[("tcp_rmem", text.clone()), ("tcp_wmem", text)])
    }

    /// Gives the TCP connections of a site receive buffers that do not grow, and that come to about `window` when
    /// packets are full.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn fix_tcp_window(&self, site: Site, window: ByteCount) -> Result<(), WanError> {
        let bytes = window.bytes() * FULL_PACKET_MEMORY_BYTES / SEGMENT_BYTES;
        self.write_tcp(
            site,
            &[
                ("tcp_rmem", format!("4096 {bytes} {bytes}")),
                ("tcp_moderate_rcvbuf", "0".to_owned()),
            ],
        )
    }

    fn write_tcp(&self, site: Site, settings: &[(&str, String)]) -> Result<(), WanError> {
        let written = self.enter(site, || -> io::Result<()> {
            for (file, text) in settings {
                std::fs::write(format!("/proc/sys/net/ipv4/{file}"), text)?;
            }
            Ok(())
        })?;
        written.map_err(WanError::io("setting up TCP"))
    }

    /// Runs `work` inside a site and waits for it. Sockets that it opens belong to the site, even
    /// when they are used outside later.
    ///
    /// # Errors
    /// [`WanError::Io`] if the namespace cannot be entered.
    pub fn enter<T: Send>(
        &self,
        site: Site,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, WanError> {
        self.topology.netns(site).run(work)
    }

    /// Starts a thread inside a site.
    ///
    /// # Errors
    /// [`WanError::Io`] if there can be no more threads or descriptors. A namespace that cannot be
    /// entered shows as the thread's result.
    pub fn spawn_thread_in<T: Send + 'static>(
        &self,
        site: Site,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<io::Result<T>>, WanError> {
        let namespace = self.namespace(site)?;
        let name = self.config.sites[site.index()].name.clone();
        thread::Builder::new()
            .name(name)
            .spawn(move || {
                nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET)?;
                Ok(work())
            })
            .map_err(WanError::io("starting a thread"))
    }

    /// A command that will run `program` inside a site.
    ///
    /// # Errors
    /// [`WanError::Io`] if there can be no more descriptors.
    pub fn command(&self, site: Site, program: impl AsRef<OsStr>) -> Result<Command, WanError> {
        let mut command = Command::new(program);
        sys::enter_before_exec(&mut command, self.namespace(site)?);
        Ok(command)
    }

    /// A descriptor of a site's network namespace, for `setns`.
    ///
    /// # Errors
    /// [`WanError::Io`] if there can be no more descriptors.
    pub fn namespace(&self, site: Site) -> Result<std::os::fd::OwnedFd, WanError> {
        self.topology.netns(site).clone_fd()
    }
}

/// TCP's payload of a packet of 1500 bytes with timestamps.
const SEGMENT_BYTES: u64 = 1448;

/// What the kernel counts for it against a receive buffer.
const FULL_PACKET_MEMORY_BYTES: u64 = 2304;
