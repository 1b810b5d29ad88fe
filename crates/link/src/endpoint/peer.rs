//! The endpoint's state for each configured peer.

use std::{net::SocketAddr, time::Duration};

use units::BitRate;

use super::{
    EndpointPeer,
    first_flights::{FirstFlights, Newest, ReplayMemory},
};
use crate::{
    congestion::PathMemory,
    connection::Stats,
    handshake::{
        envelope::{EnvelopeKey, KeyId},
        tls::TlsConfig,
    },
    identity::Identity,
    time::Time,
    wire::packet::ConnectionId,
};

/// One configured peer.
pub(crate) struct Peer {
    pub(crate) keys: Vec<PeerKey>,
    /// We know where it is and connect by ourselves.
    pub(crate) has_endpoint: bool,
    pub(crate) rate_max: Option<BitRate>,
    /// New streams use this connection.
    pub(crate) current: Option<ConnectionId>,
    pub(crate) address: Option<SocketAddr>,
    /// The address is asked for and not yet known.
    pub(crate) resolving: bool,
    pub(crate) attempt: Option<ConnectionId>,
    pub(crate) next_attempt: Time,
    pub(crate) attempts: u64,
    /// Which of the keys the next attempt expects.
    pub(crate) next_key: usize,
    pub(crate) last_heard: Option<Time>,
    /// When an ICMP error last reported the peer's address as closed or unreachable.
    pub(crate) refused: Option<Time>,
    /// Properties of the path that earlier connections measured.
    pub(crate) memory: Option<PathMemory>,
    pub(crate) rtt: Option<Duration>,
    /// Counters of closed connections.
    pub(crate) past: Stats,
}

/// One of the public keys that a peer may have, and the keys derived from it.
pub(crate) struct PeerKey {
    pub(crate) id: KeyId,
    pub(crate) tls: TlsConfig,
    /// For handshakes that this endpoint begins.
    pub(crate) outward: EnvelopeKey,
    /// For handshakes that the peer begins.
    pub(crate) inward: EnvelopeKey,
    /// The first flights from this key.
    pub(crate) first_flights: FirstFlights,
}

impl Peer {
    pub(crate) fn new(
        us: &Identity,
        configured: &EndpointPeer,
        memory: &ReplayMemory,
    ) -> Result<Self, rustls::Error> {
        let ours = us.public_key();
        let keys = configured.public_keys.iter().map(|key| {
            let newest = memory.newest.iter().find(|(known, _)| known == key);
            Ok(PeerKey {
                id: KeyId::of(key),
                tls: TlsConfig::new(us, key)?,
                outward: EnvelopeKey::new(key, &ours),
                inward: EnvelopeKey::new(&ours, key),
                first_flights: FirstFlights::new(
                    newest.map_or(Newest::default(), |(_, newest)| *newest),
                ),
            })
        });
        Ok(Self {
            keys: keys.collect::<Result<_, rustls::Error>>()?,
            has_endpoint: configured.has_endpoint,
            rate_max: configured.rate_max,
            current: None,
            address: None,
            resolving: false,
            attempt: None,
            next_attempt: Time::default(),
            attempts: 0,
            next_key: 0,
            last_heard: None,
            refused: None,
            memory: None,
            rtt: None,
            past: Stats::default(),
        })
    }
}
