//! A hook for a peer that lies: the frames of each packet can be changed before it is sealed, and packets can be
//! made of any bytes under any number. Only the simulator has it.
//!
//! In: the payload of a packet that is about to be sealed. Out: another payload. What a lie is, the simulator knows.

use std::sync::{Arc, Mutex};

use super::Connection;
use crate::wire::packet::{self, HEADER_SIZE};

/// Changes the frames of a packet before it is sealed.
pub type Forger = Arc<Mutex<dyn FnMut(&mut Vec<u8>) + Send>>;

impl Connection {
    /// From now on `forger` changes all packets, and nothing that the peer does is taken for a violation: who lies
    /// is not offended.
    pub(crate) fn set_forger(&mut self, forger: Option<Forger>) {
        self.forger = forger;
    }

    /// Lets the forger change the payload of the packet that starts at `start` of `out` and ends with it.
    pub(super) fn forge(&mut self, out: &mut Vec<u8>, start: usize) {
        let Some(forger) = &self.forger else { return };
        let mut payload = out.split_off(start + HEADER_SIZE);
        let mut forger = forger.lock().expect("no forger panics");
        (*forger)(&mut payload);
        out.extend_from_slice(&payload);
    }

    /// Entries of the log that reports have made us walk.
    pub(crate) fn entries_walked(&self) -> u64 {
        self.sent.entries_walked()
    }

    /// Whether our own packets are changed.
    pub(super) fn is_forger(&self) -> bool {
        self.forger.is_some()
    }

    /// Appends a packet with any number, of which our log does not know.
    pub(crate) fn seal_as(&mut self, number: u64, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let phase = self.keys.phase_for_sealing();
        packet::put_data_header(out, self.peer_id, number, phase);
        out.extend_from_slice(payload);
        self.keys.seal(out, start, number);
    }

    /// Goes on with the next keys, whether the present ones are worn or not.
    pub(crate) fn turn_keys(&mut self) {
        self.keys.rotate();
    }
}
