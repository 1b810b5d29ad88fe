//! List of all actions that a connection may have to take. Each such action is called an interest.
//!
//! The list determines the next datagram, the actions that send no datagram, and the time of the
//! next timer.
//!
//! Input: the time, and the time until which data must wait. Output: datagrams, and the next
//! deadline. Each interest returns the time when it is [due](Connection::due), and is then
//! [served](Connection::serve). Sending and timers use the same list. Each deadline is therefore
//! served by the interest that set it. The module [`transmit`](super::transmit) writes the
//! datagrams.

use super::{Connection, ConnectionEnd, Transmit, UnconfirmedHandshake, transmit::SendWindow};
use crate::{time::Time, wire::frame::Frame};

/// Action that a connection may have to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Interest {
    /// The connection has ended, and the endpoint must record the end.
    Ended,
    /// The number of sent packets without a report exceeds its limit, because the peer sends no
    /// reports.
    Unreported,
    KeysWornOut,
    /// The idle timeout has passed without a packet from the peer.
    Gone,
    /// Return the token of the peer's challenge.
    Response,
    /// Send a challenge to an unvalidated address from which packets of the peer arrived.
    Challenge,
    /// Send a copy of the CLOSE frame.
    Close,
    /// Send the last flight of the handshake again.
    Flight,
    Report,
    /// Send a probe while the peer is silent. The probe is a ping. If the peer may lack the last
    /// flight of the handshake, every second probe is that flight.
    Probe,
    /// Reports are overdue, so the peer now counts as silent.
    Silence,
    /// Send a ping to request a packet, because a report or data from the peer is overdue.
    Doubt,
    MtuProbe,
    /// Send a ping that was requested, or that keeps the path open.
    Ping,
    /// Send control frames and slots, subject to pacing and the congestion window.
    Data,
}

impl Interest {
    /// All interests, highest priority first.
    pub(super) const ALL: [Self; 15] = [
        Self::Ended,
        Self::Unreported,
        Self::KeysWornOut,
        Self::Gone,
        Self::Response,
        Self::Challenge,
        Self::Close,
        Self::Flight,
        Self::Report,
        Self::Probe,
        Self::Silence,
        Self::Doubt,
        Self::MtuProbe,
        Self::Ping,
        Self::Data,
    ];

    /// Whether the interest may still be due after one datagram has served it.
    fn has_more(self) -> bool {
        matches!(self, Self::Response | Self::Report | Self::Data)
    }

    /// Whether serving the interest sends a datagram.
    fn sends(self) -> bool {
        match self {
            Self::Response
            | Self::Challenge
            | Self::Close
            | Self::Flight
            | Self::Report
            | Self::Probe
            | Self::MtuProbe
            | Self::Ping
            | Self::Data => true,
            Self::Ended
            | Self::Unreported
            | Self::KeysWornOut
            | Self::Gone
            | Self::Silence
            | Self::Doubt => false,
        }
    }
}

impl Connection {
    /// Appends at most `count_max` datagrams of equal size to `out`. Returns `None` if no datagram
    /// is due now.
    ///
    /// Data and MTU probes wait until `held_until`. That time comes from the rate limit that all
    /// connections share.
    pub(crate) fn poll_transmit(
        &mut self,
        out: &mut Vec<u8>,
        count_max: usize,
        held_until: Time,
        now: Time,
    ) -> Option<Transmit> {
        let last = self.last_open();
        for interest in Interest::ALL {
            if interest > last {
                break;
            }
            if interest.sends() && self.may_serve(interest, held_until, now) {
                let transmit = self.serve(interest, out, count_max, now);
                if transmit.is_none() || !interest.has_more() {
                    self.assert_served(interest, held_until, now);
                }
                if transmit.is_some() {
                    return transmit;
                }
            }
        }
        None
    }

    /// Performs those due actions that send no datagram. For example, the method detects that the
    /// peer is silent, and ends the connection after the idle timeout.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        for interest in Interest::ALL {
            // An earlier interest may have changed the state, so that later interests are not
            // permitted.
            if interest > self.last_open() {
                break;
            }
            if !interest.sends() && self.is_due(interest, Time::default(), now) {
                self.serve(interest, &mut Vec::new(), 0, now);
                self.assert_served(interest, Time::default(), now);
            }
        }
    }

    /// Returns the next time at which [`poll_transmit`](Self::poll_transmit) or
    /// [`on_timeout`](Self::on_timeout) must be called. Data and MTU probes wait until
    /// `held_until`.
    pub(crate) fn next_timeout(&mut self, held_until: Time, now: Time) -> Time {
        let last = self.last_open();
        let mut next = Time::NEVER;
        for interest in Interest::ALL {
            if interest > last {
                break;
            }
            let due = self.due(interest, held_until, now);
            next = next.min(due.unwrap_or(Time::NEVER));
        }
        next
    }

    /// Returns the last interest that is permitted in the present state of the connection. All
    /// interests before it in the list are permitted too.
    fn last_open(&self) -> Interest {
        if self.closing.end().is_some() {
            Interest::Ended
        } else if !self.path.is_remote_proven {
            // Only challenges go to an address that has not been validated.
            Interest::Challenge
        } else if self.closing.is_begun() {
            Interest::Close
        } else if self.is_silent() {
            Interest::Probe
        } else {
            Interest::Data
        }
    }

    /// Whether to serve a permitted interest in this call.
    ///
    /// Data need not wait for a full burst, since the endpoint is awake anyway. If no data is
    /// found, the connection records that the application limits the rate.
    fn may_serve(&mut self, interest: Interest, held_until: Time, now: Time) -> bool {
        if interest == Interest::Data {
            return held_until <= now;
        }
        self.is_due(interest, held_until, now)
    }

    fn is_due(&mut self, interest: Interest, held_until: Time, now: Time) -> bool {
        self.due(interest, held_until, now)
            .is_some_and(|due| due <= now)
    }

    /// Returns the time at which a permitted interest must be served, or `None` if it has no work.
    fn due(&mut self, interest: Interest, held_until: Time, now: Time) -> Option<Time> {
        let rtt = self.path.rtt.smoothed();
        match interest {
            Interest::Ended => self.closing.end().map(|_| now),
            Interest::Unreported => self.sent.is_overfull().then_some(now),
            Interest::KeysWornOut => self.keys.is_worn_out().then_some(now),
            Interest::Gone => Some(self.liveness.end()),
            Interest::Response => self.challenges.response.map(|_| now),
            Interest::Challenge => self.challenges.due(),
            Interest::Close => self.closing.due(),
            // During a silence, the flight is sent as a probe.
            Interest::Flight if self.is_silent() => None,
            Interest::Flight => self.unconfirmed.as_ref().map(|flight| flight.next),
            Interest::Report => self.received.report_due(),
            Interest::Probe => self.liveness.probe_due(),
            Interest::Silence => {
                let oldest = self.sent.oldest_in_flight()?;
                let progress = self.liveness.last_progress();
                let window = self.sent.reorder_window(self.path.rtt.base(), progress);
                Some(self.liveness.silence_due(oldest, rtt, window))
            }
            Interest::Doubt => {
                let oldest = self.sent.oldest_in_flight();
                self.liveness.doubt_due(oldest, rtt)
            }
            Interest::MtuProbe => self.path.mtu.probe_due().map(|due| due.max(held_until)),
            Interest::Ping => Some(self.liveness.ping_due(rtt, now)),
            Interest::Data => self.data_due(held_until, now),
        }
    }

    /// Returns the time of the next packet with data. A packet train does not wait for the pacer. A
    /// delayed copy of a slot does not wait for a full burst.
    fn data_due(&mut self, held_until: Time, now: Time) -> Option<Time> {
        let ready = if self.has_data(now) {
            Some(now)
        } else if self.repeats() {
            self.tail_repeater.due(self.repeat_interval())
        } else {
            None
        };
        let paced = if self.train_to_begin() > 0 {
            Some(now)
        } else {
            ready.map(|ready| ready.max(self.path.pacer.next_send()))
        };
        let delayed = self.streams.next_delayed();
        let delayed = delayed.map(|due| self.path.pacer.next_send_from(due));
        let due = paced.into_iter().chain(delayed).min()?;
        (self.window() != SendWindow::Shut).then(|| due.max(held_until))
    }

    /// Serves an interest that is due. Returns the datagrams that were written to `out`, if any.
    fn serve(
        &mut self,
        interest: Interest,
        out: &mut Vec<u8>,
        count_max: usize,
        now: Time,
    ) -> Option<Transmit> {
        let to = self.path.remote;
        match interest {
            Interest::Ended => None,
            Interest::Unreported => {
                self.closing.set_end(ConnectionEnd::Violation);
                None
            }
            Interest::KeysWornOut => {
                self.closing.set_end(ConnectionEnd::KeysWornOut);
                None
            }
            Interest::Gone => {
                let silence = self.liveness.silence(now);
                self.closing.set_end(ConnectionEnd::Silence(silence));
                None
            }
            Interest::Silence => {
                self.liveness.fall_silent(now);
                None
            }
            Interest::Doubt => {
                self.liveness.doubt(now);
                self.tail_repeater.begin_anew();
                None
            }
            Interest::Response => self.write_response(out, now),
            Interest::Challenge => self.write_challenge(out, now),
            Interest::Close => {
                let code = self.closing.take_copy(now)?;
                Some(self.write_single(out, to, &Frame::Close { code }, now))
            }
            Interest::Flight => self.write_flight(out, now),
            Interest::Report => Some(self.write_report(out, now)),
            Interest::Probe => {
                self.liveness.take_probe(self.path.rtt.smoothed(), now);
                // The peer may lack the flight. Or it may have the flight, and lack only this
                // side's address. Alternating probes cover both cases.
                let is_flight = self
                    .unconfirmed
                    .as_mut()
                    .is_some_and(UnconfirmedHandshake::take_turn);
                let flight = is_flight.then(|| self.write_flight(out, now)).flatten();
                flight.or_else(|| Some(self.write_single(out, to, &Frame::Ping, now)))
            }
            Interest::MtuProbe => Some(self.write_mtu_probe(out, now)),
            Interest::Ping => {
                self.liveness.take_ping();
                Some(self.write_single(out, to, &Frame::Ping, now))
            }
            Interest::Data => self.write_data(out, count_max, now),
        }
    }

    /// Asserts that a served interest is no longer due. An interest that stays due would wake the
    /// endpoint in an endless loop, or send datagrams without end.
    fn assert_served(&mut self, interest: Interest, held_until: Time, now: Time) {
        debug_assert!(
            interest == Interest::Ended
                || interest > self.last_open()
                || !self.is_due(interest, held_until, now),
            "{interest:?} was served in vain"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::Interest;

    #[test]
    fn the_list_has_every_interest_once_and_in_order() {
        assert!(Interest::ALL.is_sorted());
        assert_eq!(Interest::ALL.last(), Some(&Interest::Data));
        for (place, interest) in Interest::ALL.into_iter().enumerate() {
            assert_eq!(interest as usize, place);
        }
    }
}
