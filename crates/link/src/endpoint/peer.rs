//! State that an endpoint keeps for each configured peer.

use std::{net::SocketAddr, time::Duration};

use units::BitRate;

use super::{
    EndpointPeer,
    first_flights::{FirstFlights, NewestHandshake},
    restart_state::RestartState,
};
use crate::{
    congestion::PathMemory,
    connection::ConnectionCounters,
    handshake::{
        envelope::{EnvelopeKey, KeyId},
        tls::TlsConfig,
    },
    identity::{Identity, PublicKey},
    time::Time,
    wire::packet::ConnectionId,
};

/// State of one configured peer.
pub(crate) struct Peer {
    pub(crate) keys: Vec<PeerKey>,
    /// Whether this endpoint has the peer's address and initiates connections.
    pub(crate) has_endpoint: bool,
    pub(crate) rate_max: Option<BitRate>,
    /// Connection on which new streams are opened.
    pub(crate) current: Option<ConnectionId>,
    /// Whether the peer may have more than one connection.
    pub(crate) has_several: bool,
    pub(crate) address: Option<SocketAddr>,
    /// Whether the endpoint has requested the address from its user, and the user has not replied
    /// yet.
    pub(crate) resolving: bool,
    pub(crate) attempt: Option<ConnectionId>,
    pub(crate) next_attempt: Time,
    pub(crate) attempts: u64,
    /// Index of the peer's key that the next attempt expects.
    pub(crate) next_key: usize,
    pub(crate) last_heard: Option<Time>,
    /// Time of the last ICMP error which stated that the peer's address is closed or unreachable.
    pub(crate) refused: Option<Time>,
    /// Whether the peer has closed the last connection because it no longer accepts this gateway's
    /// key.
    pub(crate) is_dismissed: bool,
    /// Path measurements that earlier connections made.
    pub(crate) memory: Option<PathMemory>,
    /// Path measurements that were last returned to the user for storage.
    pub(crate) kept: Option<PathMemory>,
    pub(crate) rtt: Option<Duration>,
    /// Sum of the counters of all ended connections.
    pub(crate) past: ConnectionCounters,
}

/// Public key that a peer may use, and the keys derived from it.
pub(crate) struct PeerKey {
    pub(crate) id: KeyId,
    pub(crate) tls: TlsConfig,
    /// Key for the MAC of hellos in handshakes that this endpoint initiates.
    pub(crate) outward: EnvelopeKey,
    /// Key for the MAC of hellos in handshakes that the peer initiates.
    pub(crate) inward: EnvelopeKey,
    /// First flights (hellos) that were received from this key.
    pub(crate) first_flights: FirstFlights,
}

impl Peer {
    pub(crate) fn new(
        us: &Identity,
        configured: &EndpointPeer,
        remembered: &RestartState,
    ) -> Result<Self, rustls::Error> {
        let keys = configured.public_keys.iter().map(|key| {
            let newest = remembered
                .replay
                .newest
                .iter()
                .find(|(known, _)| known == key);
            PeerKey::new(us, key, newest.map(|(_, newest)| *newest))
        });
        Ok(Self {
            keys: keys.collect::<Result<_, rustls::Error>>()?,
            has_endpoint: configured.has_endpoint,
            rate_max: configured.rate_max,
            current: None,
            has_several: false,
            address: None,
            resolving: false,
            attempt: None,
            next_attempt: Time::default(),
            attempts: 0,
            next_key: 0,
            last_heard: None,
            refused: None,
            is_dismissed: false,
            memory: remembered.path(&configured.public_keys),
            kept: remembered.path(&configured.public_keys),
            rtt: None,
            past: ConnectionCounters::default(),
        })
    }

    /// Applies a changed configuration. Keys that remain configured keep their record of accepted
    /// first flights.
    pub(crate) fn change(
        &mut self,
        us: &Identity,
        configured: &EndpointPeer,
    ) -> Result<(), rustls::Error> {
        let fresh = configured.public_keys.iter().map(|key| {
            let id = KeyId::of(key);
            match self.keys.iter().position(|known| known.id == id) {
                Some(at) => Ok(Err(at)),
                None => PeerKey::new(us, key, None).map(Ok),
            }
        });
        let fresh: Vec<Result<PeerKey, usize>> = fresh.collect::<Result<_, rustls::Error>>()?;
        let mut known: Vec<_> = std::mem::take(&mut self.keys)
            .into_iter()
            .map(Some)
            .collect();
        let keys = fresh.into_iter().map(|key| match key {
            Ok(new) => new,
            Err(at) => known[at].take().expect("no key is configured twice"),
        });
        self.keys = keys.collect();
        self.has_endpoint = configured.has_endpoint;
        self.rate_max = configured.rate_max;
        Ok(())
    }
}

impl PeerKey {
    fn new(
        us: &Identity,
        key: &PublicKey,
        newest: Option<NewestHandshake>,
    ) -> Result<Self, rustls::Error> {
        let ours = us.public_key();
        Ok(Self {
            id: KeyId::of(key),
            tls: TlsConfig::new(us, key)?,
            outward: EnvelopeKey::new(key, &ours),
            inward: EnvelopeKey::new(&ours, key),
            first_flights: FirstFlights::new(newest.unwrap_or_default()),
        })
    }
}
