//! Disk space that all spools share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use link::PeerId;

/// Number of reserved bytes of each peer.
#[derive(Debug, Default)]
pub(super) struct DiskSpace {
    reserved: Mutex<HashMap<PeerId, u64>>,
}

/// Reserved disk space of one spool. Dropping the value releases the space.
#[derive(Debug)]
pub(super) struct SpaceReservation {
    disk_space: Arc<DiskSpace>,
    peer: PeerId,
    bytes: u64,
}

impl DiskSpace {
    /// Reserves `bytes` bytes for a spool of `peer`. Returns `None` if too few bytes are free, or
    /// if `peer` would use more than seven eighths of `size_max`.
    pub(super) fn reserve(
        self: &Arc<Self>,
        peer: PeerId,
        bytes: u64,
        size_max: u64,
    ) -> Option<SpaceReservation> {
        let mut reserved = self.lock();
        let all: u64 = reserved.values().sum();
        let own = reserved.entry(peer).or_default();
        let most = size_max - size_max / PEER_LEAVES;
        if bytes > size_max.saturating_sub(all) || bytes > most.saturating_sub(*own) {
            return None;
        }
        *own += bytes;
        Some(SpaceReservation {
            disk_space: self.clone(),
            peer,
            bytes,
        })
    }

    #[cfg(test)]
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerId, u64>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        if let Some(own) = self.disk_space.lock().get_mut(&self.peer) {
            *own -= self.bytes;
        }
    }
}

/// Divisor of the disk space: one eighth is always available to other peers.
const PEER_LEAVES: u64 = 8;
