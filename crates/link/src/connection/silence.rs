//! Silence of the peer: the connection first asks for a sign of life, then sends probes only, and in the end
//! gives up.
//!
//! In: the time, suspensions of this process, and ICMP errors. What is sent meanwhile is in `transmit`; what ends
//! the silence is in `receive`.

use std::time::Duration;

use super::{Connection, ConnectionEnd, repeat::RepeatsLeft};
use crate::time::Time;

/// A sender asks for a report when none has come for a round trip and a half and this time more.
const DOUBT_SLACK: Duration = Duration::from_millis(10);
/// A receiver asks when nothing has come for this time in the middle of a transfer.
const DOUBT_AFTER: Duration = Duration::from_millis(300);
/// After a suspension longer than the idle timeout, the peer has this time and four round trips to be heard.
const DOUBTFUL_MAX: Duration = Duration::from_secs(5);
/// Probes are a round trip apart, within the first two bounds. At first they are an eighth of a round trip
/// apart, and no closer than the third, until the fourth time and five round trips after the silence began.
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(200);
const PROBE_PAUSE_MAX: Duration = Duration::from_millis(500);
const PROBE_PAUSE_FIRST: Duration = Duration::from_millis(25);
const OFTEN_UNTIL: Duration = Duration::from_secs(5);

/// This process was suspended for longer than the peer waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubtful {
    /// When to give up.
    pub(super) end: Time,
    unheard_since: Time,
}

impl Connection {
    /// Lets time pass: notices silence, gives up when it lasts.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        if self.closed.is_some() {
            return;
        }
        if self.sent.is_overfull() {
            self.closed = Some(ConnectionEnd::Violation);
            return;
        }
        if self.keys.is_worn_out() {
            self.closed = Some(ConnectionEnd::KeysWornOut);
            return;
        }
        if let Some(Doubtful { unheard_since, .. }) = self.doubtful.filter(|it| it.end <= now) {
            self.closed = Some(ConnectionEnd::Silence(now.since(unheard_since)));
            return;
        }
        if now.since(self.last_heard) >= self.idle_timeout {
            self.closed = Some(ConnectionEnd::Silence(now.since(self.last_heard)));
            return;
        }
        if self.silent_since.is_none() && self.silence_deadline().is_some_and(|due| due <= now) {
            self.fall_silent(now);
        }
        if self.silent_since.is_none() && self.next_doubt().is_some_and(|due| due <= now) {
            self.ping_wanted = true;
            self.last_doubt = now;
            // Slots on their way may be repeated once more.
            self.doubts = self.doubts.saturating_add(1);
            self.repeat_pass = Time::default();
            self.repeats_left = self.repeats_left.max(RepeatsLeft::NextPass);
        }
        if self.silent_since.is_none() && now.since(self.last_sent) >= self.keep_alive {
            self.ping_wanted = true;
        }
    }

    fn fall_silent(&mut self, now: Time) {
        self.silent_since = Some(self.last_heard);
        self.next_probe = now;
    }

    /// An ICMP error says that our packets do not reach the peer. Anybody can forge one, so it is a reason to ask
    /// the peer at once, and no more than that.
    pub(crate) fn on_unreachable(&mut self, now: Time) {
        let is_due = now.since(self.last_heard) > self.path.rtt.smoothed() / 4
            && now.since(self.last_doubt) > self.path.rtt.smoothed() / 2;
        if self.silent_since.is_none() && is_due {
            self.last_doubt = now;
            self.ping_wanted = true;
        }
    }

    /// This process was suspended for `asleep`, until now. That is no silence of the peer: the peer is asked at
    /// once, and has as much time to answer as without the suspension. But it may have given the connection
    /// up meanwhile.
    pub(crate) fn on_sleep(&mut self, asleep: Duration, now: Time) {
        if now.since(self.last_heard) >= self.idle_timeout {
            self.doubtful.get_or_insert(Doubtful {
                end: now + DOUBTFUL_MAX + 4 * self.path.rtt.smoothed(),
                unheard_since: self.last_heard,
            });
        }
        self.last_heard = self.last_heard + asleep;
        self.silent_since = Some(self.silent_since.map_or(now, |since| since + asleep));
        self.next_probe = now;
        self.sent.on_sleep(now);
    }

    /// When to ask whether the peer is still there.
    ///
    /// A receiver that expects more has no packets in flight whose loss it would notice. A sender whose last
    /// packets were lost gets no report of that, since reports go on for two round trips only.
    pub(super) fn next_doubt(&self) -> Option<Time> {
        let rtt = self.path.rtt.smoothed();
        let heard = self.last_heard.max(self.last_eliciting);
        let due = heard + DOUBT_AFTER.max(rtt.mul_f64(1.5));
        let as_receiver = (due < self.expects_until).then_some(due);
        let as_sender = self.sent.oldest_in_flight().map(|oldest| {
            let since = oldest.max(self.last_progress).max(self.last_eliciting);
            since + rtt.mul_f64(1.5) + DOUBT_SLACK
        });
        let due = as_receiver.into_iter().chain(as_sender).min()?;
        Some(due.max(self.last_doubt + rtt / 2))
    }

    /// The time between two probes. It is short at first: where packets get lost in bursts, each packet sent
    /// brings the end of the burst nearer.
    pub(super) fn probe_pause(&self, now: Time) -> Duration {
        let rtt = self.path.rtt.smoothed();
        let pause = rtt.clamp(PROBE_PAUSE_MIN, PROBE_PAUSE_MAX);
        match self.silent_since {
            Some(since) if now.since(since) < OFTEN_UNTIL + 5 * rtt => {
                (rtt / 8).clamp(PROBE_PAUSE_FIRST, pause)
            }
            _ => pause,
        }
    }

    /// When the lack of reports counts as silence: long after one was due for the oldest packet in flight.
    pub(super) fn silence_deadline(&self) -> Option<Time> {
        let oldest = self.sent.oldest_in_flight()?;
        let rtt = self.path.rtt.smoothed();
        let window = self
            .sent
            .reorder_window(self.path.rtt.base(), self.last_progress);
        let patience = rtt.mul_f64(3.5) + 2 * window + Duration::from_millis(150);
        Some(oldest.max(self.last_progress) + patience)
    }
}
