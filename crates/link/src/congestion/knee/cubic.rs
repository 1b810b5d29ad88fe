//! Window growth of CUBIC (RFC 9438). The sender uses this growth while it competes with loss-based
//! flows, and at policers.
//!
//! The input is cuts, the time, and the bytes that were acknowledged or declared lost. The output
//! is a window. The caller decides when to cut the window.

use crate::congestion::knee::Mechanism;
/// State of a CUBIC window, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CubicWindow {
    /// Window at which growth levels off: W_max of RFC 9438.
    window_max_bytes: f64,
    /// Time of the last cut, moved forward by the pauses since the cut. `window_epoch` is the
    /// window after the cut.
    epoch_s: f64,
    window_epoch: f64,
    /// Window that a Reno sender would have (RFC 9438 section 4.3).
    reno: f64,
}

impl CubicWindow {
    /// Creates the state directly after a cut to `window_bytes`.
    pub(super) fn new(window_bytes: f64, now_s: f64) -> Self {
        Self {
            window_max_bytes: window_bytes,
            epoch_s: now_s,
            window_epoch: window_bytes,
            reno: window_bytes,
        }
    }

    /// Returns the window that applies one round trip from now. `packet_bytes` is the size of a
    /// packet.
    pub(super) fn window_bytes(
        &mut self,
        now_s: f64,
        rtt_s: f64,
        packet_bytes: f64,
        acked: f64,
    ) -> f64 {
        let t = now_s - self.epoch_s;
        let k = ((self.window_max_bytes - self.window_epoch).max(0.0) / packet_bytes / C).cbrt();
        let cubic = C * (t + rtt_s - k).powi(3) * packet_bytes + self.window_max_bytes;
        self.reno += RENO_ALPHA * acked / self.reno.max(packet_bytes) * packet_bytes;
        let bound = TARGET_MAX * self.window_epoch.max(cubic.min(WINDOW_MAX));
        cubic
            .max(Mechanism::RenoFriendly.value(self.reno, 0.0))
            .min(bound)
    }

    /// Cuts the window `window_bytes` after a loss. Returns the new window.
    pub(super) fn cut(&mut self, window_bytes: f64, now_s: f64) -> f64 {
        // Fast convergence (RFC 9438 section 4.7): a window that did not regain its maximum leaves
        // room for other flows.
        self.window_max_bytes =
            if Mechanism::FastConvergence.acts(window_bytes < self.window_max_bytes) {
                window_bytes * (1.0 + BETA) / 2.0
            } else {
                window_bytes
            };
        self.window_epoch = window_bytes * BETA;
        self.reno = self.window_epoch;
        self.epoch_s = now_s;
        self.window_epoch
    }

    /// Cuts the window `window_bytes` after losses in excess of the path's loss floor. Returns the
    /// new window.
    ///
    /// A competing flow that halves its rate after each loss cannot survive on a path with a loss
    /// floor. Chance may also have caused a part of the losses. The cut is therefore smaller than
    /// the cut of [`cut`](Self::cut).
    pub(super) fn cut_lossy(&mut self, window_bytes: f64, now_s: f64) -> f64 {
        self.window_max_bytes = window_bytes;
        // Half of the usual decrease.
        self.window_epoch = window_bytes * f64::midpoint(1.0, BETA);
        self.reno = self.window_epoch;
        self.epoch_s = now_s;
        self.window_epoch
    }

    /// Returns the window at which growth levels off. This is the window at the last loss, or a
    /// smaller window after fast convergence.
    pub(super) fn window_max_bytes(&self) -> f64 {
        self.window_max_bytes
    }

    /// Excludes `seconds` from the time during which the window grows. The caller excludes tests of
    /// the queue and pauses of the application.
    pub(super) fn pause(&mut self, seconds: f64) {
        self.epoch_s += seconds;
    }
}

/// Constant C of RFC 9438 section 5, in packets per cubed second.
const C: f64 = 0.4;
/// Factor of the multiplicative decrease (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Growth of the Reno window in packets per round trip (RFC 9438 section 4.3).
///
/// CUBIC decreases its window less than Reno. With this growth, the average window equals Reno's
/// average window.
const RENO_ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Largest factor by which the window grows in a round trip (RFC 9438 section 4.2).
///
/// The factor applies to the window after the cut or to the window of the cubic function, whichever
/// is larger. The product also limits the Reno window.
const TARGET_MAX: f64 = 1.5;
/// Largest window in bytes. No path holds a terabyte. The maximum keeps the computed window finite
/// after a long time without reports.
const WINDOW_MAX: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: f64 = 1500.0;

    #[test]
    fn a_window_that_was_cut_is_back_after_the_time_that_the_cubic_law_takes() {
        let mut cubic = CubicWindow::new(1000.0 * PACKET, 0.0);
        assert_eq!(cubic.cut(1000.0 * PACKET, 0.0), 700.0 * PACKET);
        // K of RFC 9438 section 4.2: the cubic root of 300 packets / C.
        let k_s = (300.0 / C).cbrt();
        let before = cubic.window_bytes(k_s - 2.0, 0.0, PACKET, 0.0);
        assert!(before < 1000.0 * PACKET);
        let then = cubic.window_bytes(k_s, 0.0, PACKET, 0.0);
        assert!((then / (1000.0 * PACKET) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_pause_is_no_time_to_grow() {
        let mut paused = CubicWindow::new(1000.0 * PACKET, 0.0);
        let mut plain = paused;
        paused.pause(3.0);
        let window_bytes = plain.window_bytes(2.0, 0.1, PACKET, 0.0);
        assert_eq!(paused.window_bytes(5.0, 0.1, PACKET, 0.0), window_bytes);
    }

    #[test]
    fn a_small_window_grows_as_reno_s_does() {
        let mut cubic = CubicWindow::new(10.0 * PACKET, 0.0);
        cubic.cut(10.0 * PACKET, 0.0);
        let acked = 7.0 * PACKET;
        let window_bytes = cubic.window_bytes(0.01, 0.01, PACKET, acked);
        assert!((window_bytes / PACKET - 7.0 - RENO_ALPHA).abs() < 1e-9);
    }

    #[test]
    fn on_a_lossy_path_a_cut_is_half_as_deep_and_leaves_nothing_to_others() {
        let mut cubic = CubicWindow::new(1000.0 * PACKET, 0.0);
        assert_eq!(cubic.cut_lossy(500.0 * PACKET, 1.0), 425.0 * PACKET);
        assert_eq!(cubic.window_max_bytes(), 500.0 * PACKET);
        cubic.cut(400.0 * PACKET, 2.0);
        assert_eq!(cubic.window_max_bytes(), 340.0 * PACKET, "fast convergence");
    }
}
