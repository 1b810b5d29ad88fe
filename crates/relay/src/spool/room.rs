//! The disk space of all spools.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use link::PeerId;

/// Bytes that each peer uses.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    taken: Mutex<HashMap<PeerId, u64>>,
}

/// A part of the disk space. Dropping it frees that part.
#[derive(Debug)]
pub(super) struct Room {
    rooms: Arc<Rooms>,
    peer: PeerId,
    bytes: u64,
}

impl Rooms {
    /// Reserves `bytes` bytes. `None` if they are not free, or if `peer` would use nearly all of
    /// `size_max`.
    pub(super) fn take(self: &Arc<Self>, peer: PeerId, bytes: u64, size_max: u64) -> Option<Room> {
        let mut taken = self.lock();
        let all: u64 = taken.values().sum();
        let own = taken.entry(peer).or_default();
        let most = size_max - size_max / PEER_LEAVES;
        if bytes > size_max.saturating_sub(all) || bytes > most.saturating_sub(*own) {
            return None;
        }
        *own += bytes;
        Some(Room {
            rooms: self.clone(),
            peer,
            bytes,
        })
    }

    #[cfg(test)]
    pub(super) fn taken_bytes(&self) -> u64 {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerId, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(own) = self.rooms.lock().get_mut(&self.peer) {
            *own -= self.bytes;
        }
    }
}

/// One over the part that a peer leaves to the others.
const PEER_LEAVES: u64 = 8;
