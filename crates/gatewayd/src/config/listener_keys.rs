//! Checks of keys that several kinds of listeners have.

use std::{
    collections::HashMap,
    net::SocketAddr,
    ops::{Range, RangeInclusive},
};

use toml::Spanned;

use super::{
    Config, PeerSettings,
    problem::{OtherPlace, Problem, problem},
};
use net::target::HostPort;

/// Addresses on which the gateway listens, and the use of each address.
pub(super) type Listens = HashMap<SocketAddr, PortUse>;

/// Use of an address, and the position of its key in the file.
pub(super) enum PortUse {
    Clients(Range<usize>),
    Data(Range<usize>),
    Admin,
}

/// Refuses an address on which another section listens.
pub(super) fn listen_once(
    listen: &Spanned<SocketAddr>,
    config: &Config,
    listens: &mut Listens,
) -> Result<(), Problem> {
    let address = *listen.get_ref();
    if address.port() == 0 {
        return Ok(());
    }
    let is_admin = config.admin_explicit && config.admin_listen == address;
    let (message, span, next_step) = match listens.insert(address, PortUse::Clients(listen.span()))
    {
        None if !is_admin => return Ok(()),
        Some(PortUse::Clients(span)) => (
            "another section listens on this address",
            span,
            "merge the two sections, or choose another port",
        ),
        Some(PortUse::Data(span)) => (
            "passive_ports of another section contains this port",
            span,
            "choose another port",
        ),
        None | Some(PortUse::Admin) => {
            let message = "the section [admin] or [admin.https] listens on this address: expected another address or \
                           port";
            return Err(problem(listen, message));
        }
    };
    Err(Problem {
        other: Some(OtherPlace { span, next_step }),
        ..problem(listen, message)
    })
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
