//! Hook for a hostile peer in the simulator.
//!
//! The hook can change the frames of each packet before encryption. It can also create packets with
//! arbitrary content and an arbitrary packet number.
//!
//! Input: the payload of a packet before encryption. Output: the payload that is encrypted instead.
//! The simulator selects the forgeries.

use std::sync::{Arc, Mutex};

use super::Connection;
use crate::wire::packet::{self, HEADER_SIZE};

/// Function that changes the frames of a packet before the packet is encrypted.
pub type Forger = Arc<Mutex<dyn FnMut(&mut Vec<u8>) + Send>>;

impl Connection {
    /// Sets a function that changes all packets from now on. With such a function, this side plays
    /// the hostile peer. It then ignores protocol violations by its peer, so that its attack does
    /// not end.
    pub(crate) fn set_forger(&mut self, forger: Option<Forger>) {
        self.forger = forger;
    }

    /// Calls the forger with the payload of a packet. The packet starts at offset `start` of `out`.
    /// Its payload is between the packet header and the end of `out`.
    pub(super) fn forge(&mut self, out: &mut Vec<u8>, start: usize) {
        let Some(forger) = &self.forger else { return };
        let mut payload = out.split_off(start + HEADER_SIZE);
        let mut forger = forger.lock().expect("no forger panics");
        (*forger)(&mut payload);
        out.extend_from_slice(&payload);
    }

    /// Returns the number of entries that the sender has visited in its log of sent packets to
    /// process reports.
    pub(crate) fn entries_walked(&self) -> u64 {
        self.sent.entries_walked()
    }

    /// Whether a forger changes the packets that this side sends.
    pub(super) fn is_forger(&self) -> bool {
        self.forger.is_some()
    }

    /// Appends a packet with an arbitrary packet number. The log of sent packets does not record
    /// this packet.
    pub(crate) fn seal_as(&mut self, number: u64, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let phase = self.keys.phase_for_sealing();
        packet::put_data_header(out, self.peer_id, number, phase);
        out.extend_from_slice(payload);
        self.keys.seal(out, start, number);
    }

    /// Replaces the packet keys, even if they have not reached their usage limit.
    pub(crate) fn turn_keys(&mut self) {
        self.keys.rotate();
    }
}
