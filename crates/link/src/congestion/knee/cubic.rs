//! The window law of CUBIC (RFC 9438), for the time in company of loss-based flows and at
//! policers.

/// A CUBIC window, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cubic {
    window_max: f64,
    epoch_s: f64,
    window_epoch: f64,
    /// The window that Reno would have, RFC 9438 section 4.3.
    reno: f64,
}

/// RFC 9438 section 5: C in packets per cubed second, and the multiplicative decrease.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// The decrease on a lossy path.
const BETA_LOSSY: f64 = 0.85;

impl Cubic {
    /// Starts at `window`, taken for a window just cut.
    pub(super) fn new(window: f64, now_s: f64) -> Self {
        Self {
            window_max: window,
            epoch_s: now_s,
            window_epoch: window,
            reno: window,
        }
    }

    /// The window a round trip from now; packets are `packet` bytes.
    pub(super) fn window(&mut self, now_s: f64, rtt_s: f64, packet: f64, acked: f64) -> f64 {
        let t = now_s - self.epoch_s;
        let k = ((self.window_max - self.window_epoch).max(0.0) / packet / C).cbrt();
        let cubic = C * (t + rtt_s - k).powi(3) * packet + self.window_max;
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.reno += alpha * acked / self.reno.max(packet) * packet;
        cubic
            .max(self.reno)
            .min(1.5 * self.window_epoch.max(cubic.min(1e12)))
    }

    /// Cuts `window` for a loss. Returns the new one.
    pub(super) fn cut(&mut self, window: f64, now_s: f64) -> f64 {
        // Fast convergence: a window that did not regain its maximum leaves room for others.
        self.window_max = if window < self.window_max {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.window_epoch = window * BETA;
        self.reno = self.window_epoch;
        self.epoch_s = now_s;
        self.window_epoch
    }

    /// Cuts `window` for losses beyond those of a lossy path, where nobody is left who halves on each.
    /// Less than [`cut`](Self::cut) does, as chance may have had a part in it. Returns the new one.
    pub(super) fn cut_lossy(&mut self, window: f64, now_s: f64) -> f64 {
        self.window_max = window;
        self.window_epoch = window * BETA_LOSSY;
        self.reno = self.window_epoch;
        self.epoch_s = now_s;
        self.window_epoch
    }

    /// The window that growth levels off at: where the last loss came, or less of late.
    pub(super) fn window_max(&self) -> f64 {
        self.window_max
    }

    /// Forgets the time spent on a test of the queue.
    pub(super) fn pause(&mut self, seconds: f64) {
        self.epoch_s += seconds;
    }
}
