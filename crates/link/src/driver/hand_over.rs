//! Handover of the socket by the driver to another process. Afterwards the driver receives its
//! datagrams from that process.

use std::{io, time::Instant};

use super::{
    memory_file,
    run::{Driver, RECEIVE_BATCHES_MAX},
    socket_handover::{self, DatagramFeed, FeedResult, HandoverError, LinkHandover, OLDER_MAX},
};

impl Driver {
    /// Stops reading the socket, and returns the state for the successor process.
    pub(super) fn hand_over(&mut self, now: Instant) -> Result<LinkHandover, HandoverError> {
        if self.feed.is_some() || self.stopping.is_some() {
            return Err(HandoverError::Gone);
        }
        let of_socket = |error: io::Error| HandoverError::Socket(error.kind());
        let mut older = self.older.living().map_err(of_socket)?;
        if older.len() >= OLDER_MAX {
            return Err(HandoverError::TooManyOlder);
        }
        let (channel, feed) = socket_handover::datagram_channel().map_err(of_socket)?;
        older.push((self.generation, channel));
        let taken = |generation: &u8| older.iter().any(|(it, _)| it == generation);
        let after = (1..=u8::MAX).map(|step| self.generation.wrapping_add(step));
        let generation = after.into_iter().find(|it| !taken(it));
        let (instance, remembered) = self.endpoint.handover_state(now);
        self.feed = Some(DatagramFeed::new(feed));
        Ok(LinkHandover {
            generation: generation.expect("there are more generations than processes"),
            instance,
            remembered: memory_file::print(&remembered),
            older,
        })
    }

    /// Starts to read the socket again, because the handover has failed or the other process has
    /// ended.
    pub(super) fn take_back(&mut self) {
        if self.feed.take().is_some() {
            self.endpoint.take_back();
        }
    }

    /// Handles datagrams that another process has received from the socket and forwarded.
    pub(super) fn receive_fed(&mut self, now: Instant) {
        let Some(feed) = &mut self.feed else { return };
        let reading = self.clock.reading();
        let (mut bytes, mut fed) = (0, FeedResult::Message);
        for _ in 0..RECEIVE_BATCHES_MAX {
            let endpoint = &mut self.endpoint;
            fed = feed.receive(|handed| {
                bytes += handed.datagram.len();
                let received = reading.instant(handed.received, None);
                endpoint.handle_datagram(handed.datagram, handed.from, received);
            });
            if fed != FeedResult::Message {
                break;
            }
        }
        self.receive_budget
            .fetched(bytes, fed == FeedResult::Message, now);
        if fed == FeedResult::Gone {
            tracing::warn!("the process that reads the socket has ended");
            self.take_back();
        }
    }
}
