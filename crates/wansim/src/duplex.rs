//! Both directions of a path, and the radio medium that they may share.

use std::time::{Duration, Instant};

use units::ByteCount;

use crate::{
    config::{PathConfig, Radio},
    counters::Counters,
    medium::RadioMedium,
    path::{Packet, Path},
    path_direction::PathDirection,
};

/// Both directions of a WAN path.
///
/// Without a radio, the directions are two independent [`Path`]s. With a radio, packets first pass
/// the shared medium, and then the path of their direction. The counters and the MTU of the path
/// then also apply to the medium.
///
/// Time must not run backwards. The fate of a packet does not depend on the calls of
/// [`Duplex::poll`].
#[derive(Debug)]
pub struct Duplex<P> {
    paths: [Path<P>; 2],
    medium: Option<RadioMedium<P>>,
}

impl<P: Packet> Duplex<P> {
    /// Creates two empty paths, forward and backward. `paths` contains the settings and the seed of
    /// each path.
    pub fn new(paths: [(PathConfig, u64); 2], radio: Option<Radio>) -> Self {
        Self {
            paths: paths.map(|(config, seed)| Path::new(config, seed)),
            medium: radio.map(RadioMedium::new),
        }
    }

    /// Returns the medium, or `None` if the directions share no medium.
    pub fn radio(&self) -> Option<&Radio> {
        self.medium.as_ref().map(RadioMedium::radio)
    }

    /// Returns the path of one direction.
    pub fn path(&self, direction: PathDirection) -> &Path<P> {
        &self.paths[direction.index()]
    }

    /// Changes the settings of one direction while traffic flows ([`Path::configure`]). The
    /// settings of the medium do not change.
    pub fn configure(&mut self, direction: PathDirection, config: PathConfig, now: Instant) {
        self.catch_up(now);
        self.paths[direction.index()].configure(config, now);
    }

    /// Sends a packet in one direction.
    pub fn send(&mut self, direction: PathDirection, packet: P, now: Instant) {
        self.leave_medium(now);
        let path = &mut self.paths[direction.index()];
        let Some(medium) = &mut self.medium else {
            return path.send(packet, now);
        };
        if path.admit(&packet) {
            let ip_bytes = packet.ip_bytes();
            let is_taken = medium.push(direction, packet, ip_bytes, now).is_ok();
            path.count_queue(medium.queue_bytes(direction), !is_taken);
        }
    }

    /// Returns the next packet that has arrived by `now` in one direction.
    pub fn poll(&mut self, direction: PathDirection, now: Instant) -> Option<P> {
        self.leave_medium(now);
        self.paths[direction.index()].poll(now)
    }

    /// Returns the time at which [`Duplex::poll`] must be called next, for either direction.
    /// Returns `None` if both directions are empty.
    ///
    /// The returned time may be too early, but it is never too late.
    pub fn next_arrival(&self) -> Option<Instant> {
        let directions = [PathDirection::Forward, PathDirection::Backward];
        directions
            .into_iter()
            .filter_map(|direction| self.next_arrival_of(direction))
            .min()
    }

    /// Returns the time at which [`Duplex::poll`] must be called next for one direction. The
    /// returned time may be too early.
    pub fn next_arrival_of(&self, direction: PathDirection) -> Option<Instant> {
        let path = self.path(direction);
        let medium = self.medium.as_ref();
        let sent = medium
            .and_then(|medium| medium.next_departure(direction))
            .map(|at| at + path.shortest_delay());
        path.next_arrival().into_iter().chain(sent).min()
    }

    /// Updates the counters of both directions to the time `now`.
    pub fn catch_up(&mut self, now: Instant) {
        self.leave_medium(now);
        self.paths.iter_mut().for_each(|path| path.catch_up(now));
    }

    /// Returns the time that a packet would wait in queues if it were sent now.
    ///
    /// It is the transmission time of all packets that wait in the same direction. The result
    /// refers to the time of the last call with a time argument.
    pub fn queue_delay(&self, direction: PathDirection) -> Duration {
        let path = self.path(direction);
        match (&self.medium, path.config().rate) {
            (Some(medium), _) => medium.queue_airtime(direction),
            (None, Some(rate)) => rate.time_to_send(ByteCount::new(path.counters().queue_bytes)),
            (None, None) => Duration::ZERO,
        }
    }

    /// Returns the counters of one direction.
    pub fn counters(&self, direction: PathDirection) -> &Counters {
        self.path(direction).counters()
    }

    /// Moves the frames that the medium has sent by `now` to the paths.
    fn leave_medium(&mut self, now: Instant) {
        let Some(medium) = &mut self.medium else {
            return;
        };
        while let Some((direction, packet, at)) = medium.pop(now) {
            let path = &mut self.paths[direction.index()];
            path.count_queue(medium.queue_bytes(direction), false);
            path.carry(packet, at);
        }
    }
}
