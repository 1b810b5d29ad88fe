//! Peers that support only an older version of the gateway protocol. A stored version expires after
//! some time, because peers are upgraded.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use link::PeerId;
use tokio::time::Instant;

use crate::wire::Version;

/// For each peer that refused the latest version, the version in its refusal and the time of the
/// refusal.
#[derive(Debug, Default)]
pub(crate) struct PeerVersions(Mutex<HashMap<PeerId, (Version, Instant)>>);

impl PeerVersions {
    /// Returns the protocol version for the next session with `peer`.
    pub(crate) fn version_of(&self, peer: PeerId, now: Instant) -> Version {
        let mut versions = self.lock();
        match versions.get(&peer) {
            Some((version, at)) if now.saturating_duration_since(*at) < KEPT => *version,
            Some(_) => {
                versions.remove(&peer);
                Version::LATEST
            }
            None => Version::LATEST,
        }
    }

    /// Stores `version` as the latest version that `peer` supports.
    pub(crate) fn learn(&self, peer: PeerId, version: Version, now: Instant) {
        self.lock().insert(peer, (version, now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerId, (Version, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time after which a session tries the latest version again. If the peer still has the older
/// release, the attempt costs one round trip.
const KEPT: Duration = Duration::from_secs(10 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_tried_with_the_latest_version_again_after_a_while() {
        let (versions, now) = (PeerVersions::default(), Instant::now());
        assert_eq!(versions.version_of(PeerId(0), now), Version::LATEST);
        versions.learn(PeerId(0), Version::V5, now);
        assert_eq!(versions.version_of(PeerId(0), now), Version::V5);
        assert_eq!(versions.version_of(PeerId(1), now), Version::LATEST);
        assert_eq!(versions.version_of(PeerId(0), now + KEPT), Version::LATEST);
        assert_eq!(versions.version_of(PeerId(0), now), Version::LATEST);
    }
}
