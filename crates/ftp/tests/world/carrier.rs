//! Simulated TCP connections and link streams. A carrier transports only byte counts, not the
//! bytes.

use std::time::Duration;

use crate::channel::{Channel, Rng};

/// The two ends of a carrier. End A is nearer to the client, and end B is nearer to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    A,
    B,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Bytes(u64),
    Fin,
    Reset,
}

/// Result of a read from a carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Nothing,
    Bytes(u64),
    End,
    Reset,
}

/// Error: the carrier accepts no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

/// State of one direction of a carrier.
#[derive(Debug)]
struct Lane {
    pieces: Channel<Piece>,
    unread_bytes: u64,
    /// Whether the writer has sent its end of file.
    has_fin: bool,
    /// Whether the reader has read the end of file.
    has_ended: bool,
    /// Whether the reader has read a reset.
    is_reset: bool,
    /// Request to stop, from the reader to the writer. The request arrives after the delay of the
    /// carrier.
    stop: Channel<()>,
    is_stopped: bool,
}

impl Lane {
    fn new(delay_ms: u64) -> Self {
        Self {
            pieces: Channel::new(delay_ms),
            unread_bytes: 0,
            has_fin: false,
            has_ended: false,
            is_reset: false,
            stop: Channel::new(delay_ms),
            is_stopped: false,
        }
    }
}

/// A simulated TCP connection or link stream.
#[derive(Debug)]
pub(crate) struct Carrier {
    lanes: [Lane; 2],
    /// For each end, whether its socket is closed. The carrier answers bytes for a closed socket
    /// with a reset.
    closed: [bool; 2],
    /// Whether a reset discards bytes that have arrived and are still unread.
    reset_overtakes: bool,
    capacity_bytes: u64,
}

impl Carrier {
    pub(crate) fn new(delay_ms: u64, capacity_bytes: u64, reset_overtakes: bool) -> Self {
        Self {
            lanes: [Lane::new(delay_ms), Lane::new(delay_ms)],
            closed: [false; 2],
            reset_overtakes,
            capacity_bytes,
        }
    }

    /// Writes at most `count` bytes. Returns the number of bytes written.
    pub(crate) fn write(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        end: End,
        count: u64,
    ) -> Result<u64, Refused> {
        if self.is_reset_for(now, end) || self.closed[end as usize] {
            return Err(Refused);
        }
        let lane = &mut self.lanes[end as usize];
        lane.is_stopped |= lane.stop.pop(now).is_some();
        if lane.is_stopped || lane.has_fin {
            return Err(Refused);
        }
        let room = self.capacity_bytes.saturating_sub(lane.unread_bytes);
        let count = count.min(room);
        if count > 0 {
            lane.unread_bytes += count;
            lane.pieces.push(now, rng, Piece::Bytes(count));
        }
        Ok(count)
    }

    /// Whether the reader at the other end has stopped reading.
    pub(crate) fn is_stopped(&mut self, now: Duration, end: End) -> bool {
        let lane = &mut self.lanes[end as usize];
        lane.is_stopped |= lane.stop.pop(now).is_some();
        lane.is_stopped
    }

    /// Whether `end` may write further bytes.
    pub(crate) fn has_room(&self, end: End) -> bool {
        self.lanes[end as usize].unread_bytes < self.capacity_bytes
    }

    /// Writes `count` bytes even if they exceed the capacity. The caller has already read these
    /// bytes from another carrier, so they must not be lost.
    pub(crate) fn push(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        end: End,
        count: u64,
    ) -> Result<(), Refused> {
        self.write(now, rng, end, 0)?;
        let lane = &mut self.lanes[end as usize];
        lane.unread_bytes += count;
        lane.pieces.push(now, rng, Piece::Bytes(count));
        Ok(())
    }

    pub(crate) fn finish(&mut self, now: Duration, rng: &mut Rng, end: End) -> Result<(), Refused> {
        if self.is_reset_for(now, end) {
            return Err(Refused);
        }
        let lane = &mut self.lanes[end as usize];
        if !lane.has_fin {
            lane.has_fin = true;
            lane.pieces.push(now, rng, Piece::Fin);
        }
        Ok(())
    }

    /// Resets the direction in which `end` writes to a stream. Unread bytes are lost.
    pub(crate) fn reset_lane(&mut self, now: Duration, rng: &mut Rng, end: End) {
        let lane = &mut self.lanes[end as usize];
        lane.pieces.clear();
        lane.unread_bytes = 0;
        lane.has_fin = true;
        lane.pieces.push(now, rng, Piece::Reset);
    }

    /// Stops reading at `end`, and sends the writer a request to stop.
    pub(crate) fn stop(&mut self, now: Duration, rng: &mut Rng, end: End) {
        let lane = &mut self.lanes[end.other() as usize];
        lane.stop.push(now, rng, ());
        lane.pieces.clear();
        lane.is_reset = true;
    }

    /// Releases a stream. If `end` has not sent its end of file, the function resets the direction
    /// from `end`. The function also stops reading at `end`.
    pub(crate) fn let_go(&mut self, now: Duration, rng: &mut Rng, end: End) {
        if !self.lanes[end as usize].has_fin {
            self.reset_lane(now, rng, end);
        }
        self.stop(now, rng, end);
    }

    /// Closes the socket at `end` with a reset.
    pub(crate) fn reset(&mut self, now: Duration, rng: &mut Rng, end: End) {
        if self.closed[end as usize] {
            return;
        }
        self.closed[end as usize] = true;
        let lane = &mut self.lanes[end as usize];
        lane.has_fin = true;
        lane.pieces.push(now, rng, Piece::Reset);
        self.lanes[end.other() as usize].pieces.clear();
    }

    /// Closes the socket at `end`. If the socket has unread bytes, the close is a reset.
    pub(crate) fn close(&mut self, now: Duration, rng: &mut Rng, end: End) {
        if self.closed[end as usize] {
            return;
        }
        let unread = self.lanes[end.other() as usize].pieces.arrived(now);
        let has_unread = unread.into_iter().any(|p| matches!(p, Piece::Bytes(_)));
        if has_unread {
            return self.reset(now, rng, end);
        }
        let _ = self.finish(now, rng, end);
        self.closed[end as usize] = true;
    }

    pub(crate) fn read(&mut self, now: Duration, end: End) -> Read {
        let lane = &mut self.lanes[end.other() as usize];
        if lane.is_reset {
            return Read::Reset;
        }
        let resets = |p: &Piece| *p == Piece::Reset;
        if self.reset_overtakes && lane.pieces.arrived(now).any(resets) {
            lane.pieces.clear();
            lane.is_reset = true;
            return Read::Reset;
        }
        match lane.pieces.pop(now) {
            None if lane.has_ended => Read::End,
            None => Read::Nothing,
            Some(Piece::Bytes(count)) => {
                lane.unread_bytes = lane.unread_bytes.saturating_sub(count);
                Read::Bytes(count)
            }
            Some(Piece::Fin) => {
                lane.has_ended = true;
                Read::End
            }
            Some(Piece::Reset) => {
                lane.is_reset = true;
                Read::Reset
            }
        }
    }

    /// Whether unread bytes, or an unread end of file, have arrived at `end`.
    pub(crate) fn has_unread(&self, now: Duration, end: End) -> bool {
        let lane = &self.lanes[end.other() as usize];
        lane.pieces.arrived(now).next().is_some()
    }

    /// Whether the other end has received all bytes that `end` has written.
    pub(crate) fn is_acknowledged(&self, now: Duration, end: End) -> bool {
        self.lanes[end as usize].pieces.is_settled(now)
    }

    /// Returns the number of unread bytes that have arrived at `end`, and whether the end of file
    /// has arrived.
    pub(crate) fn waiting(&self, now: Duration, end: End) -> (u64, bool) {
        let lane = &self.lanes[end.other() as usize];
        lane.pieces
            .arrived(now)
            .fold((0, false), |(bytes, has_fin), piece| match piece {
                Piece::Bytes(count) => (bytes + count, has_fin),
                Piece::Fin => (bytes, true),
                Piece::Reset => (bytes, has_fin),
            })
    }

    /// Whether a reset by the other end has arrived at `end`.
    pub(crate) fn is_reset_for(&self, now: Duration, end: End) -> bool {
        let lane = &self.lanes[end.other() as usize];
        lane.is_reset || lane.pieces.arrived(now).any(|p| *p == Piece::Reset)
    }

    /// Simulates the kernel: if bytes arrive for a closed socket, the carrier answers with a reset.
    pub(crate) fn settle(&mut self, now: Duration, rng: &mut Rng) {
        for end in [End::A, End::B] {
            let lane = &mut self.lanes[end.other() as usize];
            if !self.closed[end as usize] || lane.is_reset {
                continue;
            }
            let has_bytes = lane
                .pieces
                .arrived(now)
                .any(|p| matches!(p, Piece::Bytes(_)));
            if has_bytes {
                lane.pieces.clear();
                lane.is_reset = true;
                self.lanes[end as usize].pieces.push(now, rng, Piece::Reset);
            }
        }
    }

    pub(crate) fn next_arrival(&self, now: Duration) -> Option<Duration> {
        let lanes = self.lanes.iter();
        lanes
            .flat_map(|lane| [lane.pieces.next_arrival(now), lane.stop.next_arrival(now)])
            .flatten()
            .min()
    }
}
