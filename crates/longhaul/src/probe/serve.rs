//! `longhaul probe serve`.

use std::thread;

use probe::Peer;

use super::{Verdict, options::resolve};
use crate::output;

/// The other end of bulk, transaction, ping, tcp and udp: listens until it is ended
///
/// TCP and UDP at one port. UDP goes only to clients that have a TCP connection here, so it cannot be turned
/// against others. Whoever reaches the port can use the line; let a firewall say who that is.
#[derive(clap::Args)]
#[command(after_help = "Example: longhaul probe serve --listen 10.77.0.2:4811")]
pub(super) struct Args {
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:4811", value_name = "ADDRESS:PORT")]
    listen: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let peer = Peer::start(resolve(&args.listen, Some(super::PEER_PORT))?)?;
    output::print(&format!("listening at {}\n", peer.address()))?;
    // Until a signal ends the process.
    loop {
        thread::park();
    }
}
