//! Opening of streams for handles that wait for a stream.

use std::time::Instant;

use super::{StreamOpenError, report::wall, run::Driver};

impl Driver {
    /// Opens streams for waiting handles. A handle that has waited too long receives an error.
    pub(super) fn serve_pending_opens(&mut self, now: Instant) {
        let mut still_pending = Vec::new();
        for pending in std::mem::take(&mut self.pending_opens) {
            let Some(name) = self.config.peers.get(pending.peer.0).map(|peer| &peer.name) else {
                let _ = pending.reply.send(Err(StreamOpenError::Closed));
                continue;
            };
            let is_gone = |key| !self.endpoint.has_connection(key);
            if self.stopping.is_some() || pending.beside.is_some_and(is_gone) {
                let _ = pending.reply.send(Err(StreamOpenError::Closed));
                continue;
            }
            let is_up = self.endpoint.is_up(pending.peer.0);
            let opened = match pending.beside {
                Some(key) => self.endpoint.open_beside(key, pending.class, now),
                None if is_up => self.endpoint.open(pending.peer.0, pending.class, now),
                None => None,
            };
            if let Some(key) = opened {
                let streams = self.add_stream(key, pending.class);
                let _ = pending.reply.send(Ok(streams));
                continue;
            }
            if now < pending.deadline {
                still_pending.push(pending);
                continue;
            }
            let name = name.clone();
            let error = if is_up {
                StreamOpenError::TooManyStreams { name }
            } else {
                let last_heard = self.endpoint.peer_view(pending.peer.0).last_heard;
                StreamOpenError::PeerDown {
                    name,
                    last_answer: last_heard.map(|at| wall(at, now)),
                }
            };
            let _ = pending.reply.send(Err(error));
        }
        self.pending_opens = still_pending;
    }
}
