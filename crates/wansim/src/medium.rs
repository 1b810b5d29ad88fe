//! A half-duplex radio medium: two stations send frames to each other over one channel.
//!
//! Each frame takes a fixed airtime and its bytes by the rate, and takes both again for each
//! further hop. A station keeps its own byte-bounded FIFO queue. The channel serves the stations in
//! turn, frame by frame, as contention does on average. The medium is deterministic: collisions and
//! fading are part of the paths' loss.

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
    /// Station of the present frame, and the end of its transmission.
    on_air: Option<(PathDirection, Instant)>,
    last_served: PathDirection,
}

/// Queue of one station.
#[derive(Debug)]
struct Station<P> {
    /// Frames with their lengths. A frame on the air stays the first one.
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

    /// Returns the bytes that wait for one direction as of the last [`Self::pop`], including the
    /// frame on the air.
    pub(crate) fn queue_bytes(&self, direction: PathDirection) -> u64 {
        self.stations[direction.index()].queue_bytes
    }

    /// Returns the airtime of all frames that wait for one direction.
    pub(crate) fn queue_airtime(&self, direction: PathDirection) -> Duration {
        self.stations[direction.index()].queue_airtime
    }

    /// Adds a packet of `ip_bytes`, or returns it if it does not fit the station's queue. Frames
    /// whose transmission has ended by `now` must have been removed before.
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

    /// Removes the next frame whose transmission has ended by `now`, with the time of that end.
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

    /// Returns the earliest time at which a frame of this direction can leave. The time is exact
    /// for the frame on the air; for other frames it is the end of that one.
    pub(crate) fn next_departure(&self, direction: PathDirection) -> Option<Instant> {
        let (on_air, end) = self.on_air?;
        let waits = !self.stations[direction.index()].queue.is_empty();
        (on_air == direction || waits).then_some(end)
    }

    /// Starts the transmission of a frame. The station that was not served last goes first.
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
