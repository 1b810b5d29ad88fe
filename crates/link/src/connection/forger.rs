//! Hook for a hostile peer in the simulator.
//!
//! The frames of each packet can be changed before it is sealed. Packets with any bytes and any
//! number can be made.
//!
//! The input is the payload of a packet that is about to be sealed. The output is another payload.
//! The simulator chooses the forgeries.

use std::sync::{Arc, Mutex};

use super::Connection;
use crate::wire::packet::{self, HEADER_SIZE};

/// Function that changes the frames of a packet before it is sealed.
pub type Forger = Arc<Mutex<dyn FnMut(&mut Vec<u8>) + Send>>;

impl Connection {
    /// Lets `forger` change all packets from now on. No behaviour of the peer then counts as a
    /// violation, since a hostile peer does not end its own attack.
    pub(crate) fn set_forger(&mut self, forger: Option<Forger>) {
        self.forger = forger;
    }

    /// Lets the forger change the payload of the packet that starts at `start` of `out` and ends
    /// with it.
    pub(super) fn forge(&mut self, out: &mut Vec<u8>, start: usize) {
        let Some(forger) = &self.forger else { return };
        let mut payload = out.split_off(start + HEADER_SIZE);
        let mut forger = forger.lock().expect("no forger panics");
        (*forger)(&mut payload);
        out.extend_from_slice(&payload);
    }

    /// Returns the number of log entries that reports have caused us to walk.
    pub(crate) fn entries_walked(&self) -> u64 {
        self.sent.entries_walked()
    }

    /// Whether our own packets are changed.
    pub(super) fn is_forger(&self) -> bool {
        self.forger.is_some()
    }

    /// Appends a packet with any number, which our log does not contain.
    pub(crate) fn seal_as(&mut self, number: u64, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let phase = self.keys.phase_for_sealing();
        packet::put_data_header(out, self.peer_id, number, phase);
        out.extend_from_slice(payload);
        self.keys.seal(out, start, number);
    }

    /// Replaces the keys, whether they are worn out or not.
    pub(crate) fn turn_keys(&mut self) {
        self.keys.rotate();
    }
}
