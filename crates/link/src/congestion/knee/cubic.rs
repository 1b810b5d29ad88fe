//! The window law of CUBIC (RFC 9438), for the time in company of loss-based flows and at
//! policers.
//!
//! In: bytes acknowledged, cuts, the time. Out: a window. When to cut is the caller's business.

/// A CUBIC window, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cubic {
    /// Where growth levels off, W_max of RFC 9438.
    window_max: f64,
    /// When the last cut was, less pauses, and the window after it.
    epoch_s: f64,
    window_epoch: f64,
    /// The window that Reno would have, RFC 9438 section 4.3.
    reno: f64,
}

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
        self.reno += RENO_ALPHA * acked / self.reno.max(packet) * packet;
        let bound = TARGET_MAX * self.window_epoch.max(cubic.min(WINDOW_MAX));
        cubic.max(self.reno).min(bound)
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

    /// Cuts `window` for losses beyond those of a lossy path. There no flow is left that halves its rate on
    /// each loss, and chance may have caused a part of these, so the cut is smaller than that of
    /// [`cut`](Self::cut). Returns the new window.
    pub(super) fn cut_lossy(&mut self, window: f64, now_s: f64) -> f64 {
        self.window_max = window;
        self.window_epoch = window * BETA_LOSSY;
        self.reno = self.window_epoch;
        self.epoch_s = now_s;
        self.window_epoch
    }

    /// The window that growth levels off at: where the last loss came, or less by fast convergence.
    pub(super) fn window_max(&self) -> f64 {
        self.window_max
    }

    /// Takes `seconds` out of the time in which the window grows: a test of the queue, or a pause.
    pub(super) fn pause(&mut self, seconds: f64) {
        self.epoch_s += seconds;
    }
}

/// C of RFC 9438 section 5, in packets per cubed second.
const C: f64 = 0.4;
/// The multiplicative decrease of RFC 9438 section 4.6.
const BETA: f64 = 0.7;
/// The decrease on a lossy path: half of CUBIC's.
const BETA_LOSSY: f64 = 0.85;
/// Growth of the window that Reno would have, in packets a round trip: as fast on average as Reno's, given
/// the smaller decrease (RFC 9438 section 4.3).
const RENO_ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows at most by this factor in a round trip (RFC 9438 section 4.2). Here the factor applies to
/// the larger of the window after the cut and that of the cubic law, which bounds Reno's window, too.
const TARGET_MAX: f64 = 1.5;
/// No path holds a terabyte; keeps the bound finite after a long silence.
const WINDOW_MAX: f64 = 1e12;
