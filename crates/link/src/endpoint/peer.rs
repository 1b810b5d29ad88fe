//! The endpoint's state for each configured peer.

use std::{net::SocketAddr, time::Duration};

use units::BitRate;

use super::{
    EndpointPeer,
    first_flights::{FirstFlights, Newest},
    remembered::Remembered,
};
use crate::{
    congestion::PathMemory,
    connection::Stats,
    handshake::{
        envelope::{EnvelopeKey, KeyId},
        tls::TlsConfig,
    },
    identity::{Identity, PublicKey},
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
    /// There may be more than one connection.
    pub(crate) has_several: bool,
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
    /// The peer has closed the last connection because our key is none of its peers' any more.
    pub(crate) is_dismissed: bool,
    /// Properties of the path that earlier connections measured.
    pub(crate) memory: Option<PathMemory>,
    /// What of that was last handed out to be kept.
    pub(crate) kept: Option<PathMemory>,
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
        remembered: &Remembered,
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
            past: Stats::default(),
        })
    }

    /// Takes on other settings. Of a key that stays it is known which first flights have come.
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
    fn new(us: &Identity, key: &PublicKey, newest: Option<Newest>) -> Result<Self, rustls::Error> {
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
