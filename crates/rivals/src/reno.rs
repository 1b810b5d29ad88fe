//! Congestion control of Reno (RFC 5681, RFC 6582). The window grows by one segment each round
//! trip, and is halved after a loss.

use std::time::Duration;

use crate::law::{Delivery, Law};

/// Congestion control of Reno.
#[derive(Debug)]
pub struct Reno {
    window: f64,
    threshold: f64,
}

impl Reno {
    /// Creates the congestion control of a new connection, with the initial window.
    pub fn new() -> Self {
        Self {
            window: WINDOW_INITIAL,
            threshold: f64::INFINITY,
        }
    }
}

impl Default for Reno {
    fn default() -> Self {
        Self::new()
    }
}

impl Law for Reno {
    fn on_delivery(&mut self, delivery: &Delivery) {
        if delivery.is_recovering || !delivery.is_window_limited {
            return;
        }
        let segments = delivery.segments as f64;
        self.window += if self.window < self.threshold {
            segments
        } else {
            segments / self.window
        };
    }

    fn on_loss(&mut self, _: u64, _: Duration) {
        self.threshold = (self.window / 2.0).max(WINDOW_MIN);
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, in_flight: u64, _: Duration) {
        self.threshold = (in_flight as f64 / 2.0).max(WINDOW_MIN);
        self.window = 1.0;
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

/// Initial window in segments (RFC 6928).
pub(crate) const WINDOW_INITIAL: f64 = 10.0;
/// Minimum window after a reduction, in segments (RFC 5681 section 3.1).
pub(crate) const WINDOW_MIN: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Line;

    #[test]
    fn rate_under_random_loss_follows_the_formula_of_mathis() {
        // M. Mathis et al., 1997: rate = sqrt(3 / (2 p)) / RTT segments per second, with an
        // acknowledgement for each segment.
        for (loss, seed) in [(0.001, 1), (0.003, 2), (0.01, 3)] {
            let mut line = Line::new(100e6, Duration::from_millis(50), 10.0);
            line.lose(loss, seed);
            line.add(Box::new(Reno::new()));
            line.run(Duration::from_secs(200));
            let reached = line.rates(Duration::from_secs(20))[0];
            let formula = (1.5 / loss).sqrt() / 0.050;
            let factor = reached / formula;
            assert!((0.75..1.25).contains(&factor), "{loss}: {factor}");
        }
    }

    #[test]
    fn two_flows_share_evenly() {
        let mut line = Line::new(20e6, Duration::from_millis(40), 1.0);
        line.add(Box::new(Reno::new()));
        line.add_at(Box::new(Reno::new()), Duration::from_secs(5));
        line.run(Duration::from_secs(120));
        assert!(line.jain(Duration::from_secs(30)) > 0.9);
        assert!(line.drops() > 0, "they must have met the queue's end");
    }
}
