//! Findings about the servers that this gateway connects to for its peers.

use gatewayd::config::Config;

use super::{Findings, ssh};
use crate::ssh_server::connect;

/// Connects to each server that the allow list names individually. Also checks the host key of each
/// SSH server.
pub(super) fn examine(config: &Config, findings: &mut Findings) {
    let mut seen = Vec::new();
    for peer in &config.relay.peers {
        for server in peer.allow.0.iter().filter_map(|it| it.server()) {
            if seen.contains(&server) {
                continue;
            }
            let what = format!("server {server}");
            match connect(&server) {
                Ok(stream) if ssh::is_ssh(&server, &stream) => {
                    ssh::examine_server(config, &server, findings);
                }
                Ok(_) => findings.good(what, "it accepts connections"),
                Err(error) => findings.wrong(
                    what,
                    error.to_string(),
                    "start the server, let its firewall accept connections from this machine, or correct [far] allow",
                ),
            }
            seen.push(server);
        }
    }
}
