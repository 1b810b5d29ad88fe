//! One simulated data connection: its two TCP connections, its link stream, and the events at both
//! ends.

use std::time::Duration;

use ftp::session::data::{far::FarData, near::NearData};

use crate::{
    carrier::{Carrier, End, Read},
    channel::Rng,
    driver::{Driver, Planted},
};

/// State of one simulated data connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) near: Option<Driver<NearData>>,
    pub(crate) far: Option<Driver<FarData>>,
    pub(crate) stream: Option<Carrier>,
    /// TCP connection between the client (end A) and the near gateway (end B).
    pub(crate) client_leg: Option<Carrier>,
    /// TCP connection between the far gateway (end A) and the server (end B).
    pub(crate) server_leg: Option<Carrier>,
    /// Time at which the client's connection arrives at the near gateway.
    pub(crate) client_connects_at: Option<Duration>,
    /// Whether the client waits for a connection from the near gateway.
    pub(crate) client_listens: bool,
    /// Time at which the connection between server and far gateway opens. The flag is set if the
    /// server accepts the connection, and unset if the server refuses it.
    pub(crate) server_connects_at: Option<(Duration, bool)>,
    /// Whether the server connects to the far gateway.
    pub(crate) server_dials: bool,
    /// Time at which the stream opens at the far gateway.
    pub(crate) stream_opens_at: Option<Duration>,
    /// Whether the server had no bytes to send and has reset the unused connection.
    pub(crate) is_skipped: bool,
    pub(crate) client: Seen,
    pub(crate) server: Seen,
}

/// Actions and observations of the client or the server on a data connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) written_bytes: u64,
    pub(crate) has_ended: bool,
    /// Whether the client or server has closed its socket, with or without a reset.
    pub(crate) is_closed: bool,
    pub(crate) read_bytes: u64,
    pub(crate) saw_end: bool,
    pub(crate) saw_reset: bool,
}

impl Conn {
    pub(crate) fn new() -> Self {
        Self {
            near: None,
            far: None,
            stream: None,
            client_leg: None,
            server_leg: None,
            client_connects_at: None,
            client_listens: false,
            server_connects_at: None,
            server_dials: false,
            stream_opens_at: None,
            is_skipped: false,
            client: Seen::default(),
            server: Seen::default(),
        }
    }

    /// Performs the pending actions of both gateways and of the kernels. Returns whether any action
    /// was performed.
    pub(crate) fn step(&mut self, now: Duration, rng: &mut Rng, planted: Planted) -> bool {
        let legs = [&mut self.client_leg, &mut self.server_leg];
        for leg in legs.into_iter().flatten() {
            leg.settle(now, rng);
        }
        let mut has_moved = false;
        if let Some(near) = &mut self.near {
            let leg = self.client_leg.as_mut();
            has_moved |= near.step(now, rng, leg, self.stream.as_mut(), planted);
        }
        if let Some(far) = &mut self.far {
            let leg = self.server_leg.as_mut();
            has_moved |= far.step(now, rng, leg, self.stream.as_mut(), Planted::None);
        }
        has_moved
    }

    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        let drivers = [
            self.near.as_ref().and_then(|near| near.next(now)),
            self.far.as_ref().and_then(|far| far.next(now)),
        ];
        let carriers = [&self.stream, &self.client_leg, &self.server_leg];
        let arrivals = carriers
            .into_iter()
            .flatten()
            .filter_map(|carrier| carrier.next_arrival(now));
        let connects = [
            self.client_connects_at,
            self.stream_opens_at,
            self.server_connects_at.map(|(at, _)| at),
        ];
        drivers
            .into_iter()
            .chain(connects)
            .flatten()
            .chain(arrivals)
            .filter(|at| *at > now)
            .min()
    }

    /// Returns the TCP connection of the client or of the server, its end, and the observations at
    /// that end.
    pub(crate) fn side(&mut self, is_client: bool) -> (Option<&mut Carrier>, End, &mut Seen) {
        match is_client {
            true => (self.client_leg.as_mut(), End::A, &mut self.client),
            false => (self.server_leg.as_mut(), End::B, &mut self.server),
        }
    }

    /// Reads the bytes that have arrived. Returns whether any bytes were read.
    pub(crate) fn read(&mut self, now: Duration, is_client: bool) -> bool {
        let (Some(leg), end, seen) = self.side(is_client) else {
            return false;
        };
        if seen.is_closed || seen.saw_end || seen.saw_reset {
            return false;
        }
        match leg.read(now, end) {
            Read::Nothing => return false,
            Read::Bytes(count) => seen.read_bytes += count,
            Read::End => seen.saw_end = true,
            Read::Reset => seen.saw_reset = true,
        }
        true
    }

    /// Writes bytes until the sum of all writes is `total`. Returns whether any bytes were written.
    pub(crate) fn write(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        is_client: bool,
        total: u64,
    ) -> bool {
        let (Some(leg), end, seen) = self.side(is_client) else {
            return false;
        };
        if seen.is_closed || seen.has_ended || seen.written_bytes >= total {
            return false;
        }
        match leg.write(now, rng, end, total - seen.written_bytes) {
            Ok(count) => {
                seen.written_bytes += count;
                count > 0
            }
            Err(_) => {
                seen.saw_reset = true;
                false
            }
        }
    }

    /// Sends the end of file.
    pub(crate) fn end(&mut self, now: Duration, rng: &mut Rng, is_client: bool) {
        let (Some(leg), end, seen) = self.side(is_client) else {
            return;
        };
        if !seen.is_closed && !seen.has_ended && leg.finish(now, rng, end).is_ok() {
            seen.has_ended = true;
        }
    }

    /// Closes the socket, with a reset or as the kernel does when a process ends.
    pub(crate) fn close(&mut self, now: Duration, rng: &mut Rng, is_client: bool, reset: bool) {
        let (Some(leg), end, seen) = self.side(is_client) else {
            return;
        };
        if seen.is_closed {
            return;
        }
        seen.is_closed = true;
        if reset {
            leg.reset(now, rng, end);
        } else {
            let before = leg.has_unread(now, end);
            leg.close(now, rng, end);
            seen.has_ended |= !before;
        }
    }
}
