//! A half-duplex radio medium: two stations send frames to each other over one channel.
//!
//! Each frame takes a fixed airtime plus its bytes by the rate, and takes it again for each further
//! hop. A station keeps its own byte-bounded FIFO queue. The channel serves the stations in turn, frame
//! by frame, which is what contention comes to on average. There is no chance in it: collisions
//! and fading are left to the loss of the paths behind.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    config::{ETHERNET_OVERHEAD, Radio},
    way::Way,
};

#[derive(Debug)]
pub(crate) struct Medium<P> {
    radio: Radio,
    stations: [Station<P>; 2],
    /// The frame being sent, and when it has been.
    on_air: Option<(Way, Instant)>,
    last_served: Way,
}

/// What one station has to send.
#[derive(Debug)]
struct Station<P> {
    /// The frame on the air is its first.
    queue: VecDeque<(P, usize)>,
    queue_bytes: u64,
    queue_airtime: Duration,
}

impl<P> Medium<P> {
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
            last_served: Way::Backward,
        }
    }

    pub(crate) fn radio(&self) -> &Radio {
        &self.radio
    }

    /// Bytes that wait to go one way as of the last [`Self::pop`], the frame on the air included.
    pub(crate) fn queue_bytes(&self, way: Way) -> u64 {
        self.stations[way.index()].queue_bytes
    }

    /// The airtime of what waits to go one way.
    pub(crate) fn queue_airtime(&self, way: Way) -> Duration {
        self.stations[way.index()].queue_airtime
    }

    /// Takes a packet of `ip_bytes`, or gives it back if the station's queue would then hold too much.
    /// Frames that have been sent by `now` must have been popped before.
    pub(crate) fn push(
        &mut self,
        way: Way,
        packet: P,
        ip_bytes: usize,
        now: Instant,
    ) -> Result<(), P> {
        let station = &mut self.stations[way.index()];
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

    /// The next frame that has been sent by `now`, and when it was.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Way, P, Instant)> {
        let (way, end) = self.on_air.filter(|(_, end)| *end <= now)?;
        let station = &mut self.stations[way.index()];
        let (packet, ip_bytes) = station.queue.pop_front()?;
        station.queue_bytes -= (ip_bytes + ETHERNET_OVERHEAD) as u64;
        station.queue_airtime -= self.radio.airtime(ip_bytes);
        self.on_air = None;
        self.serve(end);
        Some((way, packet, end))
    }

    /// When a frame that goes this way can have been sent at the earliest: exact for the one on the
    /// air, else the end of that one.
    pub(crate) fn next_departure(&self, way: Way) -> Option<Instant> {
        let (on_air, end) = self.on_air?;
        let waits = !self.stations[way.index()].queue.is_empty();
        (on_air == way || waits).then_some(end)
    }

    /// Puts a frame on the air: of the station that was not served last, if it has one.
    fn serve(&mut self, now: Instant) {
        let turn = [self.last_served.other(), self.last_served];
        for way in turn {
            if let Some((_, ip_bytes)) = self.stations[way.index()].queue.front() {
                self.on_air = Some((way, now + self.radio.airtime(*ip_bytes)));
                self.last_served = way;
                return;
            }
        }
    }
}
