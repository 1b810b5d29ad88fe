//! Interval between reports, and the number of reports that cover each arrival.
//!
//! The input is the round-trip time, the fraction of lost reports, the rate and the spacing of
//! arrivals, and the size of reports.

use std::time::Duration;

/// Interval of reports, and the number of reports that cover each arrival.
#[derive(Debug)]
pub(super) struct ReportCadence {
    interval: Duration,
    redundancy: usize,
    rtt: Duration,
    /// Fraction of reports that are lost.
    loss: f64,
    /// Moving average of the bytes that arrive per second. `report_bytes` is the moving average of
    /// the size of a report.
    received_per_s: f64,
    report_bytes: f64,
    /// Moving average of the time between the arrivals of two consecutive packets.
    packet_gap_s: f64,
}

/// Number of reports that cover each arrival on a path that loses few reports.
pub(super) const REDUNDANCY_MIN: usize = 4;
/// Maximum number of reports that cover each arrival. If 64 % of reports are lost, 0.5 % of
/// arrivals appear in no report that the sender receives.
pub(super) const REDUNDANCY_MAX: usize = 12;
/// Fraction of lost reports below which a path counts as free of loss.
const LOSS_MIN: f64 = 0.01;
/// Least time between two reports. The maximum time is `INTERVAL_MAX`.
///
/// A shorter time would use too much processor time. A longer time would make the sender's
/// information about a long path too old.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(50);
/// Size limit of additional reports, as a fraction of the arriving bytes. Eight reports per round
/// trip are always permitted.
///
/// `SHARE_CLEAN` applies to paths that lose no reports, and `SHARE` applies to all other paths.
const SHARE_CLEAN: f64 = 0.000_2;
const SHARE: f64 = 0.000_5;
/// Size limit of all reports together on a path that loses no reports, as a fraction of the
/// arriving bytes. Five reports per round trip are always permitted.
const SHARE_MAX: f64 = 0.000_9;
/// Number of packets in a round trip. A path with fewer packets per round trip is short. On a short
/// path, the receiver sends one report for this number of packets.
const SHORT: f64 = 16.0;
/// Maximum time between two reports on a short path.
const INTERVAL_SHORT_MAX: Duration = Duration::from_millis(75);
/// Limit for the time between two packets. If the time is longer, the sender is assumed to have
/// paused. A pause does not count for the sending rate.
const GAP_MAX_S: f64 = 0.010;
/// Size of the headers and fixed fields of a report, in bytes.
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

    /// Returns the moving average of the bytes that arrive per second.
    pub(super) fn received_per_s(&self) -> f64 {
        self.received_per_s
    }

    /// Computes the time between two reports.
    ///
    /// The usual time is an eighth of a round trip, within 1 to 50 ms. The time is shorter while
    /// all reports together are a small fraction of the arriving bytes. With shorter intervals, a
    /// loss of fifty consecutive reports covers a shorter time.
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
            // If many packets are reordered, reports are long. They must then be sent less often.
            let dear = Duration::from_secs_f64(apart(SHARE_MAX));
            let rarest = (self.interval * 8 / 5).max(2 * INTERVAL_MIN);
            self.interval = self.interval.max(dear.min(rarest));
        }
    }

    /// Returns the maximum time between two reports: an eighth of a round trip. On a short path,
    /// the maximum is the time in which [`SHORT`] packets arrive.
    ///
    /// If both directions share a radio, a report uses a third of a data packet's airtime.
    pub(super) fn interval_max(&self) -> Duration {
        let told_by_each = REDUNDANCY_MIN as f64 / self.redundancy as f64;
        let packets = Duration::from_secs_f64(SHORT * self.packet_gap_s * told_by_each);
        if packets > self.rtt {
            packets.clamp(INTERVAL_MIN, INTERVAL_SHORT_MAX)
        } else {
            (self.rtt / 8).clamp(INTERVAL_MIN, INTERVAL_MAX)
        }
    }

    /// Sets the number of reports that cover each arrival. `loss` is the fraction of reports that
    /// are lost.
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

    /// Updates the average time between arrivals. `since` is the time since the packet with the
    /// previous highest number. The peer has sent `packets` packets in that time.
    pub(super) fn measure_gap(&mut self, packets: u64, since: Duration) {
        let since_s = since.as_secs_f64() / packets as f64;
        if since_s < GAP_MAX_S {
            let gain = (packets as f64 / 16.0).min(1.0);
            self.packet_gap_s += (since_s - self.packet_gap_s) * gain;
        }
    }

    /// Updates the averages after a report of `written_bytes` bytes. `since` is the time since the
    /// previous report. In that time, `received_bytes` bytes arrived.
    pub(super) fn reported(&mut self, written_bytes: f64, received_bytes: u64, since: Duration) {
        let received_per_s = received_bytes as f64 / since.as_secs_f64().max(1e-6);
        self.received_per_s += (received_per_s - self.received_per_s) * GAIN;
        self.report_bytes += (written_bytes - self.report_bytes) * GAIN;
        self.set_interval();
    }
}
