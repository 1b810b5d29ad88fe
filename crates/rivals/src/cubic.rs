//! Congestion control of CUBIC (RFC 9438). HyStart++ (RFC 9406) ends the slow start when the delay
//! rises. The model lacks the conservative slow start of HyStart++.

use std::time::Duration;

use crate::{
    law::{Delivery, Law},
    reno::{WINDOW_INITIAL, WINDOW_MIN},
};

/// Congestion control of CUBIC.
#[derive(Debug)]
pub struct Cubic {
    window: f64,
    threshold: f64,
    /// Window before the last reduction. If that window was below the previous maximum, a lower
    /// value is stored.
    window_max: f64,
    /// State of the cubic curve. `None` while the window does not follow the curve.
    epoch: Option<Epoch>,
    /// Window before the last reduction. This window determines how fast Reno's window would grow.
    window_prior: f64,
    rtt: Duration,
    exit: Exit,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    began: Duration,
    /// Seconds from the start of the curve until it reaches `window_max` again.
    k_s: f64,
    /// Window that Reno would have in the same situation, in segments.
    window_reno: f64,
}

/// Measurement of the delay. A rise of the delay ends slow start.
#[derive(Debug, Default)]
struct Exit {
    round_ends_at: u64,
    rtt_min: Option<Duration>,
    rtt_min_before: Option<Duration>,
    samples: u32,
}

impl Cubic {
    /// Creates the congestion control of a new connection, with the initial window.
    pub fn new() -> Self {
        Self {
            window: WINDOW_INITIAL,
            threshold: f64::INFINITY,
            window_max: 0.0,
            epoch: None,
            window_prior: 0.0,
            rtt: Duration::ZERO,
            exit: Exit::default(),
        }
    }

    fn cut(&mut self) {
        self.window_prior = self.window;
        self.window_max = if self.window < self.window_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.threshold = (self.window * BETA).max(WINDOW_MIN);
        self.epoch = None;
    }

    fn avoid(&mut self, segments: f64, now: Duration) {
        let window = self.window;
        let window_max = &mut self.window_max;
        let epoch = self.epoch.get_or_insert_with(|| {
            // After a slow start without a loss there is no previous maximum.
            *window_max = window_max.max(window);
            Epoch {
                began: now,
                k_s: ((*window_max - window) / C).cbrt(),
                window_reno: window,
            }
        });
        let window_max = self.window_max;
        let alpha = if epoch.window_reno < self.window_prior {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        } else {
            1.0
        };
        epoch.window_reno += alpha * segments / window;
        let curve = |t_s: f64| C * (t_s - epoch.k_s).powi(3) + window_max;
        let since_s = now.saturating_sub(epoch.began).as_secs_f64();
        if curve(since_s) < epoch.window_reno {
            self.window = epoch.window_reno.max(window);
            return;
        }
        let target = curve(since_s + self.rtt.as_secs_f64()).clamp(window, 1.5 * window);
        self.window += (target - window) / window * segments;
    }
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new()
    }
}

impl Law for Cubic {
    fn on_delivery(&mut self, delivery: &Delivery) {
        if let Some(rtt) = delivery.rtt {
            self.rtt = rtt;
        }
        if self.window < self.threshold && self.exit.is_due(delivery, self.window) {
            self.threshold = self.window;
        }
        if delivery.is_recovering || !delivery.is_window_limited {
            return;
        }
        let segments = delivery.segments as f64;
        if self.window < self.threshold {
            self.window += segments;
        } else {
            self.avoid(segments, delivery.now);
        }
    }

    fn on_loss(&mut self, _: u64, _: Duration) {
        self.cut();
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, _: u64, _: Duration) {
        self.cut();
        self.window = 1.0;
        self.exit = Exit::default();
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn state(&self) -> &'static str {
        if self.window < self.threshold {
            "slow start"
        } else {
            "avoidance"
        }
    }
}

impl Exit {
    /// Returns whether slow start must end. It must end if the least round-trip time of this round
    /// clearly exceeds the least round-trip time of the previous round.
    fn is_due(&mut self, delivery: &Delivery, window: f64) -> bool {
        if delivery.delivered_before >= self.round_ends_at {
            self.round_ends_at = delivery.delivered;
            self.rtt_min_before = self.rtt_min.take();
            self.samples = 0;
        }
        let Some(rtt) = delivery.rtt else {
            return false;
        };
        let rtt_min = self.rtt_min.map_or(rtt, |least| least.min(rtt));
        self.rtt_min = Some(rtt_min);
        self.samples += 1;
        let Some(before) = self.rtt_min_before else {
            return false;
        };
        let rise = (before / 8).clamp(RISE_MIN, RISE_MAX);
        window >= EXIT_WINDOW_MIN && self.samples >= EXIT_SAMPLES && rtt_min >= before + rise
    }
}

/// Constants of RFC 9438 sections 4.6 and 5: the factor of a window reduction, and segments per
/// cubed second.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// Constants of RFC 9406 section 4.3. The minimum window is the value of Linux.
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);
const EXIT_SAMPLES: u32 = 8;
const EXIT_WINDOW_MIN: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Line;

    #[test]
    fn one_flow_fills_a_line_whose_queue_holds_a_round_trip() {
        for rtt_ms in [20, 40, 100, 200] {
            let mut line = Line::new(100e6, Duration::from_millis(rtt_ms), 1.0);
            line.add(Box::new(Cubic::new()));
            line.run(Duration::from_secs(90));
            let used = line.used(Duration::from_secs(20));
            assert!(line.drops() > 0, "it must have met the queue's end");
            assert!(used > 0.95, "{rtt_ms} ms: {used}");
        }
    }

    #[test]
    fn two_flows_share_evenly() {
        for (queue, seed) in [(0.5, 1), (1.0, 2), (4.0, 3)] {
            let mut line = Line::new(100e6, Duration::from_millis(40), queue);
            line.jitter(seed);
            line.add(Box::new(Cubic::new()));
            line.add_at(Box::new(Cubic::new()), Duration::from_secs(3));
            line.run(Duration::from_secs(240));
            let jain = line.jain(Duration::from_secs(40));
            assert!(line.drops() > 0, "they must have met the queue's end");
            assert!(jain > 0.9, "queue {queue}: {jain}");
        }
    }

    #[test]
    fn rate_under_random_loss_follows_the_formula_of_the_standard() {
        // RFC 9438 section 5.1, for C = 0.4: if losses are evenly spaced, the window is 1.054 (RTT
        // / p)^0.75 segments. Random losses leave longer periods of steep growth: a fluid model
        // gives 1.1 to 1.3 times that window.
        let (rtt_s, loss) = (0.2, 0.000_5);
        let mut line = Line::new(400e6, Duration::from_secs_f64(rtt_s), 1.0);
        line.lose(loss, 5);
        line.add(Box::new(Cubic::new()));
        line.run(Duration::from_secs(600));
        let formula = 1.054 * (rtt_s / loss).powf(0.75) / rtt_s;
        let factor = line.rates(Duration::from_secs(60))[0] / formula;
        assert!((0.9..1.4).contains(&factor), "{factor}");
    }
}
