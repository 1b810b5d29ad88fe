//! `longhaul wan capture`: writes packets to a pcap file.

use std::{fs::File, os::fd::AsFd, path::PathBuf, time::Duration};

use anyhow::Context;
use emulator::{CaptureOptions, Client, Site, change};
use nix::sys::{
    signal::{SigSet, SigmaskHow, Signal, sigprocmask},
    signalfd::{SfdFlags, SignalFd},
};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  longhaul wan capture site-b --out b.pcap --for 10s")]
pub(super) struct Capture {
    /// Name of the site
    pub(super) site: String,
    /// Write the packets to this pcap file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Keep this number of bytes of each packet, including the Ethernet header
    #[arg(long, default_value_t = CaptureOptions::default().snap_bytes, value_name = "BYTES")]
    snap: u32,
    /// End after this number of packets [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    packets: Option<u64>,
    /// End after this time: 30s [default: no limit]
    #[arg(long = "for", value_parser = change::parse_span, value_name = "TIME")]
    time: Option<Duration>,
}

impl Capture {
    /// Captures packets until Ctrl-C, or until a limit of the options is reached. Prints a summary
    /// of the file.
    pub(super) fn run(&self, client: &Client, site: Site) -> anyhow::Result<()> {
        let stop = stop_signals().context("waiting for signals")?;
        let path = self.out.display();
        let file = File::create(&self.out).with_context(|| format!("making {path}"))?;
        let options = CaptureOptions {
            snap_bytes: self.snap,
            packets: self.packets,
        };
        let capture = client.capture(site, file, options)?;
        eprintln!("capturing at {} to {path}; end with Ctrl-C", self.site);
        let report = capture.run(self.time, stop.as_fd())?;
        eprintln!(
            "{path}: {} packets, {} left out because the file was slower than they",
            report.packets, report.left_out
        );
        Ok(())
    }
}

/// Returns a file descriptor that becomes readable when this process receives SIGINT, SIGTERM or
/// SIGHUP.
fn stop_signals() -> nix::Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)
}
