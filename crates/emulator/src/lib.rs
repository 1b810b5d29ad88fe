//! The WAN emulator. It consists of two network namespaces (sites) and an emulated path between
//! them. The path impairs the packets of all programs in the sites, according to its settings.
//!
//! Each site has one end of a veth pair. A thread of this process reads from the opposite end and
//! writes to it, through a packet socket. Every packet passes through the [`wansim::Path`] of its
//! direction. The emulator needs no traffic shaping by the kernel. An ordinary user can run it in a
//! user namespace ([`privilege::acquire`]). It runs only on Linux.
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

/// A running emulated WAN. Drop stops the traffic and removes the sites. Programs that still run
/// inside a site then lose their network.
#[derive(Debug)]
pub struct Wan {
    // Rust drops the fields in this order, so that the emulator ends before its wires.
    emulator: Emulator,
    topology: Topology,
    config: WanConfig,
}

impl Wan {
    /// Creates the two sites and starts to move packets between them.
    ///
    /// # Errors
    /// [`WanError::Forbidden`] names the setting that prevents this user from creating namespaces.
    /// [`WanError::NameTaken`] if a visible namespace already has the name of a site.
    pub fn up(config: WanConfig) -> Result<Self, WanError> {
        let (topology, sockets) = Topology::build(&config)?;
        let emulator = Emulator::start(sockets, &config)?;
        Ok(Self {
            emulator,
            topology,
            config,
        })
    }

    /// Returns the configuration with which the WAN started. [`Self::report`] returns the current
    /// settings.
    pub fn config(&self) -> &WanConfig {
        &self.config
    }

    /// Returns the IPv4 address of a site.
    pub fn address(&self, site: Site) -> Ipv4Addr {
        self.config.sites[site.index()].ipv4
    }

    /// Changes the settings of one direction while traffic flows. The new settings apply when the
    /// function returns.
    pub fn set(&self, direction: Direction, path: PathConfig) {
        self.emulator.configure(direction, path);
    }

    /// Returns the current settings, the counters, and whether the machine was fast enough.
    pub fn report(&self) -> WanReport {
        self.emulator.report()
    }

    /// Captures the packets that a site sends into the WAN or receives from the WAN. Writes them to
    /// a pcap file with times in nanoseconds.
    ///
    /// The file contains each packet of the wire separately. The packets have the order in which
    /// the emulator received or delivered them. Times may be late by at most the sum of
    /// [`WanConfig::coalesce`] and 0.1 ms. A truncated packet keeps the kernel's partial checksum.
    ///
    /// # Errors
    /// [`WanError::Io`] if the system cannot start another thread.
    pub fn capture(
        &self,
        site: Site,
        file: impl Write + Send + 'static,
        options: CaptureOptions,
    ) -> Result<Capture, WanError> {
        self.emulator.capture(site, file, options)
    }

    /// Sets a site's WAN interface down, like a pulled cable, or up again. While the interface is
    /// down, programs of the site cannot send. Packets that arrive at the site are lost.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn set_interface_up(&mut self, site: Site, up: bool) -> Result<(), WanError> {
        self.topology.set_interface_up(site, up)
    }

    /// Sets the TCP congestion control (`cubic`, `bbr`, ...) of a site's IPv4 connections over the
    /// WAN. The setting also applies to connections that the site accepts. Every user of the
    /// emulator may call this function.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel lacks this congestion control.
    pub fn set_congestion_control(&mut self, site: Site, name: &str) -> Result<(), WanError> {
        self.topology.set_congestion_control(site, name)
    }

    /// Prepares the TCP of both sites for comparisons. The kernel may enlarge buffers up to
    /// `buffer`, even beyond its default limits. New connections do not reuse the metrics of
    /// earlier connections.
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

    /// Gives the TCP connections of a site buffers of fixed size, as if every program had requested
    /// `size` for each direction. The kernel allocates twice that size, for its own overhead.
    ///
    /// # Errors
    /// [`WanError::Io`] if the kernel refuses.
    pub fn fix_tcp_buffers(&self, site: Site, size: ByteCount) -> Result<(), WanError> {
        let bytes = 2 * size.bytes();
        let text = format!("{TCP_BUFFER_MIN_BYTES} {bytes} {bytes}");
        self.write_tcp(site, &[("tcp_rmem", text.clone()), ("tcp_wmem", text)])
    }

    /// Gives the TCP connections of a site receive buffers of fixed size. With full-size packets,
    /// these buffers permit a window of about `window`.
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

    /// Runs `work` inside a site, and waits until it returns. Sockets that `work` opens belong to
    /// the site, even if they are used outside the site later.
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

    /// Starts a thread inside a site. If the thread cannot enter the namespace, its result is an
    /// error.
    ///
    /// # Errors
    /// [`WanError::Io`] if the system has no free thread or file descriptor.
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

    /// Returns a command that runs `program` inside a site.
    ///
    /// # Errors
    /// [`WanError::Io`] if the process has no free file descriptor.
    pub fn command(&self, site: Site, program: impl AsRef<OsStr>) -> Result<Command, WanError> {
        let mut command = Command::new(program);
        sys::enter_before_exec(&mut command, self.namespace(site)?);
        Ok(command)
    }

    /// Returns a file descriptor of a site's network namespace, for `setns`.
    ///
    /// # Errors
    /// [`WanError::Io`] if the process has no free file descriptor.
    pub fn namespace(&self, site: Site) -> Result<std::os::fd::OwnedFd, WanError> {
        self.topology.netns(site).clone_fd()
    }
}

/// TCP payload of a 1500-byte packet with timestamps.
const SEGMENT_BYTES: u64 = 1448;

/// Bytes that a full packet uses in the receive buffer.
const FULL_PACKET_MEMORY_BYTES: u64 = 2304;
/// Minimum size of a TCP buffer: one page, like the kernel's default.
const TCP_BUFFER_MIN_BYTES: u64 = 4096;
