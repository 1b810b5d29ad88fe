//! `longhaul peer ls`: the list of peers and invites.

use gatewayd::{
    config::{Config, PeerOrigin},
    register::{OpenInvite, Register},
};
use serde::Serialize;

use super::unix_s;
use crate::output::Format;

/// Show the gateways that may connect to this gateway, and the invites that are still valid
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul peer ls
  longhaul peer ls --json")]
pub(super) struct Args {
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct List {
    peers: Vec<Peer>,
    invites: Vec<Invite>,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    public_keys: Vec<String>,
    /// Endpoint of the peer. Null if only the peer opens the connection.
    endpoint: Option<String>,
    /// Servers that this gateway reaches through the peer. Null means all servers.
    serves: Option<Vec<String>>,
    /// Origin of the peer: `configuration` or `register`.
    known_by: &'static str,
}

#[derive(Serialize)]
struct Invite {
    name: String,
    /// Time for which the invite is still valid, in seconds.
    left_s: u64,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<()> {
    let register = Register::read(&Register::path(&config.key_file))?;
    let now = unix_s();
    let peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    let peers = peers.filter(|(peer, _)| !peer.is_guest());
    let peers = peers.map(|(peer, of_link)| Peer {
        name: peer.name.clone(),
        public_keys: of_link
            .public_keys
            .iter()
            .map(ToString::to_string)
            .collect(),
        endpoint: of_link.endpoint.clone(),
        serves: peer
            .serves
            .as_ref()
            .map(|it| it.iter().map(ToString::to_string).collect()),
        known_by: match peer.origin {
            PeerOrigin::File => "configuration",
            _ => "register",
        },
    });
    let open = register.invites.iter().filter(|it| it.is_open(now));
    let invites = open.map(|it| Invite {
        name: OpenInvite::peer_name(it),
        left_s: it.expires_unix_s - now,
    });
    let list = List {
        peers: peers.collect(),
        invites: invites.collect(),
    };
    args.format.print(&list, text)
}

fn text(list: &List) -> String {
    let mut text = String::new();
    for peer in &list.peers {
        let endpoint = peer
            .endpoint
            .as_deref()
            .unwrap_or("no endpoint: it connects to this gateway");
        let serves = match peer.serves.as_deref() {
            None => "all servers".to_owned(),
            Some([]) => "no server".to_owned(),
            Some(patterns) => patterns.join(" "),
        };
        text += &format!(
            "{:<16} {} {endpoint}; serves {serves}\n",
            peer.name,
            peer.public_keys.join(" ")
        );
    }
    for invite in &list.invites {
        let minutes = invite.left_s.div_ceil(60);
        text += &format!("{:<16} open for {minutes} min\n", invite.name);
    }
    if text.is_empty() {
        text = "no peer; \"longhaul peer invite\" makes an invite for one\n".to_owned();
    }
    text
}
