//! `longhaul probe serve`: the program that other probe commands connect to.

use std::{
    net::{IpAddr, SocketAddr},
    thread,
};

use probe::ProbePeer;

use super::{PEER_PORT, Verdict, options::resolve};
use crate::output;

/// Serve as the peer of probe bulk, transaction, ping, tcp and udp
///
/// The peer listens for TCP and UDP at one port until a signal ends the program. It sends UDP only
/// to clients with an open TCP connection, so that attackers cannot direct its datagrams at other
/// hosts. Anyone with access to the port can fill the path with traffic, so protect the port with a
/// firewall.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul probe serve
  longhaul probe serve -B 10.77.0.2 -p 5201")]
pub(super) struct Args {
    /// Listen at this address
    #[arg(short = 'B', long, default_value = "0.0.0.0", value_name = "ADDRESS")]
    bind: IpAddr,
    /// Listen at this port
    #[arg(short, long, default_value_t = PEER_PORT, value_name = "PORT")]
    port: u16,
    /// Listen at this address and port; the same as --bind and --port together
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["bind", "port"])]
    listen: Option<String>,
}

impl Args {
    fn address(&self) -> anyhow::Result<SocketAddr> {
        match &self.listen {
            Some(text) => resolve(text, Some(PEER_PORT)),
            None => Ok((self.bind, self.port).into()),
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let peer = ProbePeer::start(args.address()?)?;
    output::print(&format!("listening at {}\n", peer.address()))?;
    // The loop lasts until a signal ends the process.
    loop {
        thread::park();
    }
}
