//! Interval of reports, and the number of reports that cover each arrival.
//!
//! The input is the round-trip time, the loss of reports, the rate and the spacing of arrivals, and
//! the size of reports.

use std::time::Duration;

/// Cadence of reports.
#[derive(Debug)]
pub(super) struct ReportCadence {
    interval: Duration,
    redundancy: usize,
    rtt: Duration,
    /// Fraction of reports that get lost.
    loss: f64,
    /// Bytes that arrive per second, and bytes of a report, as moving averages.
    received_per_s: f64,
    report_bytes: f64,
    /// Time between the arrivals of two packets sent one after the other, as a moving average.
    packet_gap_s: f64,
}

/// Number of reports that cover each arrival, on a path that loses few reports.
pub(super) const REDUNDANCY_MIN: usize = 4;
/// Maximum number of reports that cover each arrival. At 64 % loss of reports, 0.5 % of arrivals
/// are in no report that arrives.
pub(super) const REDUNDANCY_MAX: usize = 12;
/// Loss of reports below which it counts as none.
const LOSS_MIN: f64 = 0.01;
/// Least and longest time between reports. A shorter one would cost processor time, and a longer
/// one would make the sender's view of a long path stale.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(50);
/// Bytes of reports beyond eight a round trip, as a fraction of the arriving bytes: on a path that
/// loses no reports, and on others.
const SHARE_CLEAN: f64 = 0.000_2;
const SHARE: f64 = 0.000_5;
/// Fraction of the arriving bytes that limits all reports together, unless that would leave fewer
/// than five a round trip.
const SHARE_MAX: f64 = 0.000_9;
/// Number of packets below which a path is short, and for each of which many it gets a report.
const SHORT: f64 = 16.0;
/// Longest time between reports on a short path.
const INTERVAL_SHORT_MAX: Duration = Duration::from_millis(75);
/// Time between two packets from which it is a pause of the sender and not its rate.
const GAP_MAX_S: f64 = 0.010;
/// Bytes of headers and of a report's fields.
pub(super) const REPORT_OVERHEAD: f64 = 70.0;
/// Weight of one report in the moving averages.
const GAIN: f64 = 1.0 / 8.0;

impl ReportCadence {
    pub(super) fn new(rtt: Duration) -> Self {
        let mut cadence = Self {
            interval: Duration::ZERO,
            redundancy: REDUNDANCY_MIN,
            rtt,
            loss: 0.0,
            received_per_s: 0.0,
            report_bytes: REPORT_OVERHEAD,
            packet_gap_s: 0.0,
        };
        cadence.set_interval();
        cadence
    }

    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
        self.set_interval();
    }

    /// Returns the time between two reports.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the number of reports that cover each arrival.
    pub(super) fn redundancy(&self) -> usize {
        self.redundancy
    }

    /// Returns the bytes that arrive per second.
    pub(super) fn received_per_s(&self) -> f64 {
        self.received_per_s
    }

    /// Sets the time between reports.
    ///
    /// It is an eighth of a round trip, 1 to 50 ms. It is less while all reports together take a
    /// small fraction of the arriving bytes. With more reports a burst of losses that takes fifty
    /// reports away is over sooner.
    fn set_interval(&mut self) {
        let share = if self.loss < LOSS_MIN {
            SHARE_CLEAN
        } else {
            SHARE
        };
        let apart = |share: f64| self.report_bytes / (share * self.received_per_s).max(1.0);
        let least = (self.rtt / 64).max(INTERVAL_MIN);
        let affordable = Duration::from_secs_f64(apart(share)).max(least);
        self.interval = self.interval_max().min(affordable);
        if self.loss < LOSS_MIN {
            // Where many packets are reordered reports are long, and must come less often.
            let dear = Duration::from_secs_f64(apart(SHARE_MAX));
            let rarest = (self.interval * 8 / 5).max(2 * INTERVAL_MIN);
            self.interval = self.interval.max(dear.min(rarest));
        }
    }

    /// Returns the longest time between reports: an eighth of a round trip, or on a path with only
    /// a few packets the time of [`SHORT`] packets.
    ///
    /// Where both directions share a radio, a report takes a third of a packet's airtime.
    pub(super) fn interval_max(&self) -> Duration {
        let told_by_each = REDUNDANCY_MIN as f64 / self.redundancy as f64;
        let packets = Duration::from_secs_f64(SHORT * self.packet_gap_s * told_by_each);
        if packets > self.rtt {
            packets.clamp(INTERVAL_MIN, INTERVAL_SHORT_MAX)
        } else {
            (self.rtt / 8).clamp(INTERVAL_MIN, INTERVAL_MAX)
        }
    }

    /// Covers each arrival by enough reports, if the fraction `loss` of reports gets lost.
    pub(super) fn set_report_loss(&mut self, loss: f64) {
        self.loss = loss;
        // loss^n <= 0.5 %
        let needed = if loss < LOSS_MIN {
            0.0
        } else {
            (0.005f64.ln() / loss.min(0.9).ln()).ceil()
        };
        self.redundancy = (needed as usize).clamp(REDUNDANCY_MIN, REDUNDANCY_MAX);
    }

    /// Adds the time between arrivals: since the previous newest arrival, `since` ago, the peer has
    /// sent `packets` packets.
    pub(super) fn measure_gap(&mut self, packets: u64, since: Duration) {
        let since_s = since.as_secs_f64() / packets as f64;
        if since_s < GAP_MAX_S {
            let gain = (packets as f64 / 16.0).min(1.0);
            self.packet_gap_s += (since_s - self.packet_gap_s) * gain;
        }
    }

    /// Adds a report of `written_bytes`, and the bytes that have arrived since the previous one.
    pub(super) fn reported(&mut self, written_bytes: f64, received_bytes: u64, since: Duration) {
        let received_per_s = received_bytes as f64 / since.as_secs_f64().max(1e-6);
        self.received_per_s += (received_per_s - self.received_per_s) * GAIN;
        self.report_bytes += (written_bytes - self.report_bytes) * GAIN;
        self.set_interval();
    }
}
