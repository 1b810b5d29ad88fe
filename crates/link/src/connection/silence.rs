//! What a connection makes of time in which nothing comes: it asks, then takes it for silence, and in the
//! end gives up.
//!
//! What is sent meanwhile, and when, is in `transmit`; what ends the silence is in `receive`.

use std::time::Duration;

use super::{Connection, ConnectionEnd};
use crate::time::Time;

/// What a report may be late beyond a round trip and a half, before a sender asks for one.
const DOUBT_SLACK: Duration = Duration::from_millis(10);
/// In the midst of a transfer a silence of this length makes a receiver ask.
const DOUBT_AFTER: Duration = Duration::from_millis(300);
/// After a sleep longer than the idle timeout the peer has so long, and four round trips, to be heard.
const DOUBTFUL_MAX: Duration = Duration::from_secs(5);
/// Questions into the silence are a round trip apart within these bounds; an eighth of one at first, until
/// this time and five round trips after the peer was heard last.
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(25);
const PROBE_PAUSE_MAX: Duration = Duration::from_millis(500);
const OFTEN_UNTIL: Duration = Duration::from_secs(5);
/// How often the controller learns that time passes.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// We have slept for longer than the peer waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubtful {
    /// When to give up.
    pub(super) end: Time,
    unheard_since: Time,
}

impl Connection {
    /// Lets time pass: notices silence, gives up when it lasts, drives the controller.
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
        if now.since(self.last_tick) >= TICK && self.silent_since.is_none() {
            self.last_tick = now;
            self.controller.on_tick(now.seconds_since(Time::default()));
        }
        if self.silent_since.is_none() && self.next_doubt().is_some_and(|due| due <= now) {
            self.ping_wanted = true;
            self.last_doubt = now;
            // What is on its way may be repeated once more.
            self.doubts = self.doubts.saturating_add(1);
            self.repeat_pass = Time::default();
        }
        if now.since(self.last_sent) >= self.keep_alive {
            self.ping_wanted = true;
        }
    }

    fn fall_silent(&mut self, now: Time) {
        self.silent_since = Some(self.last_heard);
        self.next_probe = now;
        self.ecn.on_silence();
    }

    /// The peer's host, or one on the way, says that our packets do not reach it. Anybody can say so: it is
    /// believed only while nothing comes although an answer may be due, and until the next packet of the peer.
    pub(crate) fn on_unreachable(&mut self, now: Time) {
        let some = self.rtt.smoothed() / 4;
        let oldest = self.sent.oldest_in_flight();
        let is_due = oldest.is_some_and(|sent| now.since(sent) > some);
        if self.silent_since.is_none() && is_due && now.since(self.last_heard) > some {
            self.fall_silent(now);
        }
    }

    /// We did not run for so long, until now. That is no silence of the peer's: it is asked at once, and has
    /// as much time to answer as if we had run on. But it may have given us up.
    pub(crate) fn on_sleep(&mut self, asleep: Duration, now: Time) {
        if now.since(self.last_heard) >= self.idle_timeout {
            self.doubtful.get_or_insert(Doubtful {
                end: now + DOUBTFUL_MAX + 4 * self.rtt.smoothed(),
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
    /// A receiver that expects more has no packets in flight whose fate would tell. A sender whose last
    /// packets were lost gets no report that says so, since reports go on for two round trips only.
    pub(super) fn next_doubt(&self) -> Option<Time> {
        let rtt = self.rtt.smoothed();
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

    /// How long after one question into the silence the next is asked. At first often: where packets get lost
    /// in bursts, each that is sent brings the end of the burst nearer.
    pub(super) fn probe_pause(&self, now: Time) -> Duration {
        let rtt = self.rtt.smoothed();
        let pause = rtt.clamp(PROBE_PAUSE_MIN, PROBE_PAUSE_MAX);
        match self.silent_since {
            Some(since) if now.since(since) < OFTEN_UNTIL + 5 * rtt => {
                (rtt / 8).max(PROBE_PAUSE_MIN).min(pause)
            }
            _ => pause,
        }
    }

    /// When the lack of any report must be taken for silence: long after one was due for the oldest
    /// packet in flight.
    pub(super) fn silence_deadline(&self) -> Option<Time> {
        let oldest = self.sent.oldest_in_flight()?;
        let rtt = self.rtt.smoothed();
        let window = self
            .sent
            .reorder_window(self.rtt.base(), self.last_progress);
        let patience = rtt.mul_f64(3.5) + 2 * window + Duration::from_millis(150);
        Some(oldest.max(self.last_progress) + patience)
    }
}
