//! Opening of streams for handles that wait.

use std::time::Instant;

use super::{OpenError, report::wall, run::Driver};

impl Driver {
    /// Opens streams for waiting handles, or reports that the peer is down.
    pub(super) fn serve_waiting(&mut self, now: Instant) {
        let mut still_waiting = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let Some(name) = self.config.peers.get(waiting.peer.0).map(|peer| &peer.name) else {
                let _ = waiting.reply.send(Err(OpenError::Closed));
                continue;
            };
            let is_gone = |key| !self.endpoint.has_connection(key);
            if self.stopping.is_some() || waiting.beside.is_some_and(is_gone) {
                let _ = waiting.reply.send(Err(OpenError::Closed));
                continue;
            }
            let is_up = self.endpoint.is_up(waiting.peer.0);
            let opened = match waiting.beside {
                Some(key) => self.endpoint.open_beside(key, waiting.class, now),
                None if is_up => self.endpoint.open(waiting.peer.0, waiting.class, now),
                None => None,
            };
            if let Some(key) = opened {
                let streams = self.add_stream(key, waiting.class);
                let _ = waiting.reply.send(Ok(streams));
                continue;
            }
            if now < waiting.deadline {
                still_waiting.push(waiting);
                continue;
            }
            let name = name.clone();
            let error = if is_up {
                OpenError::TooManyStreams { name }
            } else {
                let last_heard = self.endpoint.peer_view(waiting.peer.0).last_heard;
                OpenError::PeerDown {
                    name,
                    last_answer: last_heard.map(|at| wall(at, now)),
                }
            };
            let _ = waiting.reply.send(Err(error));
        }
        self.waiting = still_waiting;
    }
}
