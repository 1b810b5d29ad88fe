//! A model of BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
//!
//! The sending rate follows the greatest delivery rate of the last ten rounds. The window is twice
//! the product of this rate and the least round-trip time. BBR ignores loss, except at a
//! retransmission timeout. The model lacks the kernel's policer detection and packet conservation.

use std::{collections::VecDeque, time::Duration};

use crate::law::{Delivery, Law};

/// Congestion control of BBR version 1.
#[derive(Debug)]
pub struct Bbr {
    phase: Phase,
    round: u64,
    round_ends_at: u64,
    /// Numbers of rounds with their delivery rates, sorted by descending rate. The first entry is
    /// the greatest rate of the last ten rounds.
    rates: VecDeque<(u64, f64)>,
    rtt_min: Option<(Duration, Duration)>,
    /// Delivery rate at the last growth during start-up. `full_rounds` counts the rounds since that
    /// growth.
    full_rate: f64,
    full_rounds: u32,
    is_filled: bool,
    after_timeout: bool,
    /// Start position in the cycle of gains. Each flow has a different position.
    phase_offset: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Startup,
    Drain,
    /// Cycle of eight phases, each as long as the least round-trip time. One phase has a sending
    /// rate above the measured rate, and one phase has a lower rate. The other six phases have
    /// exactly the measured rate.
    ProbeRate {
        index: usize,
        began: Duration,
    },
    /// Phase with almost no segments in flight. The queue drains, so that the least round-trip time
    /// can be measured.
    ProbeRtt {
        ends: Option<Duration>,
    },
}

impl Bbr {
    /// Creates the state of a new connection. `phase_offset` is the first phase in the cycle of
    /// gains. The kernel chooses it at random.
    pub fn new(phase_offset: usize) -> Self {
        Self {
            phase: Phase::Startup,
            round: 0,
            round_ends_at: 0,
            rates: VecDeque::new(),
            rtt_min: None,
            full_rate: 0.0,
            full_rounds: 0,
            is_filled: false,
            after_timeout: false,
            phase_offset,
        }
    }

    fn rate(&self) -> Option<f64> {
        self.rates.front().map(|(_, rate)| *rate)
    }

    fn rtt_min(&self) -> Option<Duration> {
        self.rtt_min.map(|(rtt, _)| rtt)
    }

    /// Returns the bandwidth-delay product in segments: the rate times the least round-trip time.
    fn in_flight_ideal(&self) -> Option<f64> {
        Some(self.rate()? * self.rtt_min()?.as_secs_f64())
    }

    fn measure_rate(&mut self, rate: f64) {
        while self.rates.back().is_some_and(|(_, least)| *least <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self
            .rates
            .front()
            .is_some_and(|(round, _)| round + RATE_ROUNDS <= self.round)
        {
            self.rates.pop_front();
        }
    }

    fn probe_rate(&self, now: Duration) -> Phase {
        // The first phase is any phase except the phase that drains the queue.
        let index = match self.phase_offset % (CYCLE.len() - 1) {
            0 => 0,
            offset => offset + 1,
        };
        Phase::ProbeRate { index, began: now }
    }

    fn check_filled(&mut self) {
        let rate = self.rate().unwrap_or(0.0);
        if rate >= 1.25 * self.full_rate {
            self.full_rate = rate;
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
            self.is_filled |= self.full_rounds >= 3;
        }
    }
}

impl Law for Bbr {
    fn on_delivery(&mut self, delivery: &Delivery) {
        let now = delivery.now;
        self.after_timeout = false;
        let begins_round = delivery.delivered_before >= self.round_ends_at;
        if begins_round {
            self.round += 1;
            self.round_ends_at = delivery.delivered;
        }
        if let Some(rate) = delivery.rate
            && (delivery.is_window_limited || self.rate().is_none_or(|known| rate > known))
        {
            self.measure_rate(rate);
        }
        let is_stale = self
            .rtt_min
            .is_some_and(|(_, at)| now.saturating_sub(at) > RTT_MIN_AGE);
        if let Some(rtt) = delivery.rtt
            && (is_stale || self.rtt_min.is_none_or(|(least, _)| rtt <= least))
        {
            self.rtt_min = Some((rtt, now));
        }
        if begins_round && !self.is_filled {
            self.check_filled();
        }
        let ideal = self.in_flight_ideal().unwrap_or(f64::INFINITY);
        let in_flight = delivery.in_flight as f64;
        match &mut self.phase {
            Phase::Startup if self.is_filled => self.phase = Phase::Drain,
            Phase::Drain if in_flight <= ideal => self.phase = self.probe_rate(now),
            Phase::ProbeRate { index, began } => {
                let rtt_min = self.rtt_min.map_or(Duration::MAX, |(rtt, _)| rtt);
                let is_over = now.saturating_sub(*began) > rtt_min;
                let gain = CYCLE[*index];
                let moves_on = if gain > 1.0 {
                    is_over && (in_flight >= gain * ideal || delivery.is_recovering)
                } else if gain < 1.0 {
                    is_over || in_flight <= ideal
                } else {
                    is_over
                };
                if moves_on {
                    *index = (*index + 1) % CYCLE.len();
                    *began = now;
                }
            }
            Phase::ProbeRtt { ends: None } if in_flight <= WINDOW_MIN => {
                let longest = self.rtt_min().unwrap_or_default().max(PROBE_RTT_TIME);
                self.phase = Phase::ProbeRtt {
                    ends: Some(now + longest),
                };
            }
            Phase::ProbeRtt { ends: Some(ends) } if now >= *ends => {
                if let Some((_, at)) = &mut self.rtt_min {
                    *at = now;
                }
                self.phase = if self.is_filled {
                    self.probe_rate(now)
                } else {
                    Phase::Startup
                };
            }
            _ => {}
        }
        if is_stale && !matches!(self.phase, Phase::ProbeRtt { .. }) {
            self.phase = Phase::ProbeRtt { ends: None };
        }
    }

    fn on_loss(&mut self, _: u64, _: Duration) {}

    fn on_timeout(&mut self, _: u64, _: Duration) {
        self.after_timeout = true;
    }

    fn window(&self) -> f64 {
        if self.after_timeout {
            return 1.0;
        }
        let Some(ideal) = self.in_flight_ideal() else {
            return WINDOW_INITIAL;
        };
        match self.phase {
            Phase::ProbeRtt { .. } => WINDOW_MIN,
            Phase::Startup | Phase::Drain => (GAIN_HIGH * ideal).max(WINDOW_INITIAL),
            Phase::ProbeRate { .. } => (2.0 * ideal).max(WINDOW_MIN),
        }
    }

    fn pacing_rate(&self) -> Option<f64> {
        let gain = match self.phase {
            Phase::Startup => GAIN_HIGH,
            Phase::Drain => 1.0 / GAIN_HIGH,
            Phase::ProbeRate { index, .. } => CYCLE[index],
            Phase::ProbeRtt { .. } => 1.0,
        };
        // Before any measurement, the rate is the initial window in a millisecond, as in the
        // kernel.
        Some(gain * self.rate().unwrap_or(WINDOW_INITIAL / 0.001))
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::ProbeRate { .. } => "probe rate",
            Phase::ProbeRtt { .. } => "probe rtt",
        }
    }
}

/// Constants of the draft: the start-up gain, the cycle of gains, the lengths of the filters, and
/// the windows in segments. The start-up gain 2 / ln 2 doubles the rate each round.
const GAIN_HIGH: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const RATE_ROUNDS: u64 = 10;
const RTT_MIN_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const WINDOW_MIN: f64 = 4.0;
const WINDOW_INITIAL: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Line;

    #[test]
    fn one_flow_reaches_nearly_the_capacity_with_a_short_queue() {
        for (loss, queue) in [(0.0, 1.0), (0.01, 1.0), (0.0, 4.0)] {
            let mut line = Line::new(100e6, Duration::from_millis(40), queue);
            line.lose(loss, 1);
            line.add(Box::new(Bbr::new(0)));
            line.run(Duration::from_secs(60));
            let used = line.used(Duration::from_secs(5)) / (1.0 - loss);
            assert!(used > 0.93, "loss {loss}, queue {queue}: {used}");
            let queue_mean = line.queue_mean(Duration::from_secs(5));
            assert!(queue_mean < Duration::from_millis(20), "{queue_mean:?}");
        }
    }

    #[test]
    fn two_flows_share_roughly_evenly_where_the_queue_is_deep() {
        let mut line = Line::new(100e6, Duration::from_millis(40), 4.0);
        line.add(Box::new(Bbr::new(0)));
        line.add_at(Box::new(Bbr::new(3)), Duration::from_secs(2));
        line.run(Duration::from_secs(90));
        let jain = line.jain(Duration::from_secs(30));
        assert!(jain > 0.85, "{jain}");
    }
}
