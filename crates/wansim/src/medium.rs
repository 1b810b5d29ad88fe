//! A half-duplex radio medium. Two stations send frames to each other over one channel.
//!
//! Each frame needs a fixed airtime, and an airtime for its bytes at the channel's rate. Each
//! further hop needs both airtimes again. Each station has its own FIFO queue with a limit in
//! bytes. The stations send frames alternately, like the average result of contention. The medium
//! is deterministic. Collisions and fading must be modelled as loss of the paths.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    config::{ETHERNET_OVERHEAD, Radio},
    path_direction::PathDirection,
};

#[derive(Debug)]
pub(crate) struct RadioMedium<P> {
    radio: Radio,
    stations: [Station<P>; 2],
    /// Station whose frame is being transmitted, and the end of the transmission.
    on_air: Option<(PathDirection, Instant)>,
    last_served: PathDirection,
}

/// Queue of one station.
#[derive(Debug)]
struct Station<P> {
    /// Frames with their lengths. During its transmission a frame stays at the front.
    queue: VecDeque<(P, usize)>,
    queue_bytes: u64,
    queue_airtime: Duration,
}

impl<P> RadioMedium<P> {
    pub(crate) fn new(radio: Radio) -> Self {
        let station = || Station {
            queue: VecDeque::new(),
            queue_bytes: 0,
            queue_airtime: Duration::ZERO,
        };
        Self {
            radio,
            stations: [station(), station()],
            on_air: None,
            last_served: PathDirection::Backward,
        }
    }

    pub(crate) fn radio(&self) -> &Radio {
        &self.radio
    }

    /// Returns the bytes that wait in one direction, including the frame in transmission. The
    /// result refers to the time of the last [`Self::pop`].
    pub(crate) fn queue_bytes(&self, direction: PathDirection) -> u64 {
        self.stations[direction.index()].queue_bytes
    }

    /// Returns the total airtime of all frames that wait in one direction.
    pub(crate) fn queue_airtime(&self, direction: PathDirection) -> Duration {
        self.stations[direction.index()].queue_airtime
    }

    /// Adds a packet of `ip_bytes` bytes. Returns the packet if it does not fit the station's
    /// queue. The caller must first remove the frames whose transmission has ended by `now`.
    pub(crate) fn push(
        &mut self,
        direction: PathDirection,
        packet: P,
        ip_bytes: usize,
        now: Instant,
    ) -> Result<(), P> {
        let station = &mut self.stations[direction.index()];
        let wire_bytes = (ip_bytes + ETHERNET_OVERHEAD) as u64;
        let limit = self.radio.queue.bytes();
        if !station.queue.is_empty() && station.queue_bytes.saturating_add(wire_bytes) > limit {
            return Err(packet);
        }
        station.queue.push_back((packet, ip_bytes));
        station.queue_bytes += wire_bytes;
        station.queue_airtime += self.radio.airtime(ip_bytes);
        if self.on_air.is_none() {
            self.serve(now);
        }
        Ok(())
    }

    /// Removes the next frame whose transmission has ended by `now`. Returns it with the end of its
    /// transmission.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(PathDirection, P, Instant)> {
        let (direction, end) = self.on_air.filter(|(_, end)| *end <= now)?;
        let station = &mut self.stations[direction.index()];
        let (packet, ip_bytes) = station.queue.pop_front()?;
        station.queue_bytes -= (ip_bytes + ETHERNET_OVERHEAD) as u64;
        station.queue_airtime -= self.radio.airtime(ip_bytes);
        self.on_air = None;
        self.serve(end);
        Some((direction, packet, end))
    }

    /// Returns the earliest time at which a frame of this direction can leave the medium. The time
    /// is exact if the frame is in transmission. Otherwise it is the end of the present
    /// transmission.
    pub(crate) fn next_departure(&self, direction: PathDirection) -> Option<Instant> {
        let (on_air, end) = self.on_air?;
        let waits = !self.stations[direction.index()].queue.is_empty();
        (on_air == direction || waits).then_some(end)
    }

    /// Starts the transmission of a frame. The station that did not send the last frame has
    /// priority.
    fn serve(&mut self, now: Instant) {
        let turn = [self.last_served.other(), self.last_served];
        for direction in turn {
            if let Some((_, ip_bytes)) = self.stations[direction.index()].queue.front() {
                self.on_air = Some((direction, now + self.radio.airtime(*ip_bytes)));
                self.last_served = direction;
                return;
            }
        }
    }
}
