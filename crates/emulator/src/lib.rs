//! The WAN emulator: two network namespaces, and between them a path. The path impairs the packets
//! of any program according to its settings.
//!
//! Each site is a namespace with a veth, whose other end a thread of this process reads and writes
//! through a packet socket. Every packet passes through one [`wansim::Path`] for its direction. The
//! emulator needs no traffic shaping from the kernel, and works for an ordinary user in a user
//! namespace ([`privilege::acquire`]). Linux only.
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
pub use client::{Client, DownResult, RemoteCapture};
pub use config::{Direction, Site, SiteConfig, WanConfig};
pub use control::Description;
pub use error::WanError;
pub use report::{DirectionReport, OverloadCounters, ThreadReport, WanReport};
pub use state::EmulatorPaths;
use units::ByteCount;
use wansim::PathConfig;

use emulator::Emulator;
use topology::Topology;

/// A running emulated WAN. Drop stops the traffic and removes the sites; programs that still run
/// inside lose their network.
#[derive(Debug)]
pub struct Wan {
    // Fields drop in this order: the emulator ends before its wires.
    emulator: Emulator,
    topology: Topology,
    config: WanConfig,
}

impl Wan {
    /// Makes the two sites and starts to carry packets between them.
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

    /// The configuration at the start. [`Self::report`] has the settings in force.
    pub fn config(&self) -> &WanConfig {
        &self.config
    }

    /// Returns the IPv4 address of a site.
    pub fn address(&self, site: Site) -> Ipv4Addr {
        self.config.sites[site.index()].ipv4
    }

    /// Changes one direction while traffic flows. The change is in force on return.
    pub fn set(&self, direction: Direction, path: PathConfig) {
        self.emulator.configure(direction, path);
    }

    /// The settings in force, the counters, and whether the machine kept up.
    pub fn report(&self) -> WanReport {
        self.emulator.report()
    }

    /// Captures the packets that a site sends into the WAN and receives from it, in a pcap file
    /// with times in nanoseconds.
    ///
    /// The file has each packet of the wire by itself, in the order in which the emulator took and
    /// delivered them. Its times may be late by [`WanConfig::coalesce`] and 0.1 ms. A packet that
    /// is cut short keeps the kernel's partial checksum.
    ///
    /// # Errors
    /// [`WanError::Io`] if no threads are left.
    pub fn capture(
        &self,
        site: Site,
        file: impl Write + Send + 'static,
        options: CaptureOptions,
    ) -> Result<Capture, WanError> {
        self.emulator.capture(site, file, options)
    }

    /// Takes a site's WAN interface down, as if its cable were pulled, or up again. While it is
    /// down, programs of the site cannot send, and packets that arrive at the site are lost.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn set_interface_up(&mut self, site: Site, up: bool) -> Result<(), WanError> {
        self.topology.set_interface_up(site, up)
    }

    /// Sets the TCP congestion control (`cubic`, `bbr`, ...) of a site's IPv4 connections over the
    /// WAN, including accepted connections. Every user of the emulator may do so.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel lacks this congestion control.
    pub fn set_congestion_control(&mut self, site: Site, name: &str) -> Result<(), WanError> {
        self.topology.set_congestion_control(site, name)
    }

    /// Prepares the TCP of both sites for comparisons. Buffers may grow to `buffer`, above any
    /// default limit. No connection starts from the metrics of an earlier one.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn prepare_tcp(&self, buffer: ByteCount) -> Result<(), WanError> {
        let bytes = buffer.bytes();
        for site in Site::BOTH {
            self.write_tcp(
                site,
                &[
                    ("tcp_rmem", format!("{TCP_BUFFER_MIN_BYTES} 131072 {bytes}")),
                    ("tcp_wmem", format!("{TCP_BUFFER_MIN_BYTES} 16384 {bytes}")),
                    ("tcp_no_metrics_save", "1".to_owned()),
                ],
            )?;
        }
        Ok(())
    }

    /// Gives the TCP connections of a site fixed buffers, as programs get them that ask for `size`
    /// in each direction. The kernel allots twice as much, for its own overhead.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn fix_tcp_buffers(&self, site: Site, size: ByteCount) -> Result<(), WanError> {
        let bytes = 2 * size.bytes();
        let text = format!("{TCP_BUFFER_MIN_BYTES} {bytes} {bytes}");
        self.write_tcp(site, &[("tcp_rmem", text.clone()), ("tcp_wmem", text)])
    }

    /// Gives the TCP connections of a site fixed receive buffers that allow a window of about
    /// `window` with full packets.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn fix_tcp_window(&self, site: Site, window: ByteCount) -> Result<(), WanError> {
        let bytes = window.bytes() * FULL_PACKET_MEMORY_BYTES / SEGMENT_BYTES;
        self.write_tcp(
            site,
            &[
                (
                    "tcp_rmem",
                    format!("{TCP_BUFFER_MIN_BYTES} {bytes} {bytes}"),
                ),
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

    /// Runs `work` inside a site and waits for it. Sockets that `work` opens belong to the site,
    /// also when they are used outside later.
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
    /// [`WanError::Io`] if no threads or descriptors are left. If the namespace cannot be entered,
    /// the thread returns an error.
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
    /// [`WanError::Io`] if no descriptors are left.
    pub fn command(&self, site: Site, program: impl AsRef<OsStr>) -> Result<Command, WanError> {
        let mut command = Command::new(program);
        sys::enter_before_exec(&mut command, self.namespace(site)?);
        Ok(command)
    }

    /// A descriptor of a site's network namespace, for `setns`.
    ///
    /// # Errors
    /// [`WanError::Io`] if no descriptors are left.
    pub fn namespace(&self, site: Site) -> Result<std::os::fd::OwnedFd, WanError> {
        self.topology.netns(site).clone_fd()
    }
}

/// TCP payload of a 1500-byte packet with timestamps.
const SEGMENT_BYTES: u64 = 1448;

/// Receive buffer that the kernel charges for such a packet, in bytes.
const FULL_PACKET_MEMORY_BYTES: u64 = 2304;
/// Least TCP buffer, as the kernel's default has it: a page.
const TCP_BUFFER_MIN_BYTES: u64 = 4096;
