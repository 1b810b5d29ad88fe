//! Checks of keys that several kinds of listeners have.

use std::{collections::HashSet, net::SocketAddr, ops::RangeInclusive};

use toml::Spanned;

use super::{
    Config, PeerSettings,
    problem::{Problem, problem},
};
use net::target::HostPort;

/// Refuses an address on which another section listens.
pub(super) fn listen_once(
    listen: &Spanned<SocketAddr>,
    config: &Config,
    listens: &mut HashSet<SocketAddr>,
) -> Result<(), Problem> {
    let address = *listen.get_ref();
    let admin = config.admin_explicit && config.admin_listen == address;
    if address.port() != 0 && (admin || !listens.insert(address)) {
        return Err(problem(
            listen,
            "another section listens on this address: expected another address or port",
        ));
    }
    Ok(())
}

/// Returns the index of the peer that the key `via` names. Returns `None` if the key is not set.
pub(super) fn via(
    via: Option<&Spanned<String>>,
    config: &Config,
) -> Result<Option<usize>, Problem> {
    let Some(via) = via else { return Ok(None) };
    let named = |peer: &PeerSettings| peer.name == *via.get_ref() && !peer.is_guest();
    match config.relay.peers.iter().position(named) {
        Some(index) => Ok(Some(index)),
        None => {
            let names: Vec<_> = config
                .relay
                .peers
                .iter()
                .filter(|p| !p.is_guest())
                .map(|p| format!("{:?}", p.name))
                .collect();
            let message = format!(
                "no [[peer]] is named {:?}, expected one of: {}",
                via.get_ref(),
                names.join(", ")
            );
            Err(problem(via, message))
        }
    }
}

/// Refuses a target that no peer serves. Accepts every target if `via` names a peer, because the
/// listener then uses this peer in any case.
pub(super) fn served(
    target: &Spanned<HostPort>,
    via: Option<usize>,
    config: &Config,
) -> Result<(), Problem> {
    if config
        .relay
        .peers_for(&target.get_ref().host, via)
        .is_empty()
    {
        let message = "no [[peer]] serves this target, expected one whose serves matches it, or via = with the name of a peer";
        return Err(problem(target, message));
    }
    Ok(())
}

/// Parses a range of ports such as `30000-30999`.
pub(super) fn passive_ports(text: &Spanned<String>) -> Result<RangeInclusive<u16>, Problem> {
    let range = text.get_ref().split_once('-').and_then(|(low, high)| {
        let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (1024 <= low && low <= high).then_some(low..=high)
    });
    range.ok_or_else(|| {
        problem(
            text,
            "expected a range of ports from 1024, such as \"30000-30999\"",
        )
    })
}
