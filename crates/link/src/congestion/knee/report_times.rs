//! Times of the peer's reports, and the time for which the sender continues without a report.
//!
//! The input is the times of reports, and whether the application limited the sender. The output is
//! the time since the last report, and the longest recent gap between two reports. Other modules
//! interpret the contents of reports.

use super::extremes::{WINDOW_ROUND_TRIPS, WindowedMax};
use crate::congestion::Digest;
use crate::congestion::knee::Mechanism;

/// Times at which reports of the peer arrived.
#[derive(Debug, Default)]
pub(super) struct ReportTimes {
    /// Arrival time of the last report. Until the first report arrives, the field holds the sending
    /// time of the first packet.
    last_s: Option<f64>,
    /// Reordering window in seconds: the time by which a packet may arrive late before it counts as
    /// lost.
    reorder_window_s: f64,
    /// Arrival time of the last report that arrived while the application, not the controller,
    /// limited the sending rate.
    app_limited_s: Option<f64>,
    /// Whether the time until the next report counts as a gap between reports. The flag is set by a
    /// report and cleared after a long time without reports.
    gap_has_begun: bool,
    gap: WindowedMax,
}

impl ReportTimes {
    /// Records a sent packet. Returns whether the packet is the first packet of the connection.
    pub(super) fn on_sent(&mut self, now_s: f64) -> bool {
        let is_first = self.last_s.is_none();
        self.last_s.get_or_insert(now_s);
        is_first
    }

    /// Returns the seconds from the last report to `now_s`.
    pub(super) fn since_s(&self, now_s: f64) -> f64 {
        now_s - self.last_s.unwrap_or(0.0)
    }

    /// Records a report that arrived at `now_s`. `base_s` is the base round-trip time of the path.
    pub(super) fn on_report(&mut self, digest: &Digest<'_>, base_s: f64, now_s: f64) {
        if self.gap_has_begun && !digest.app_limited {
            let gap_max_s = GAP_ROUND_TRIPS * base_s + GAP_S;
            let gap_s = self.since_s(now_s).min(gap_max_s);
            let window_s = GAP_WINDOW_S.max(WINDOW_ROUND_TRIPS * base_s);
            self.gap.insert(gap_s, now_s, window_s);
        }
        self.gap_has_begun = true;
        self.last_s = Some(now_s);
        self.reorder_window_s = digest.reorder_window_s;
        if digest.app_limited {
            self.app_limited_s = Some(now_s);
        }
    }

    /// Discards the gaps between reports after a long time without reports. That time itself does
    /// not count as a gap.
    pub(super) fn forget_gaps(&mut self) {
        self.gap_has_begun = false;
        self.gap = WindowedMax::default();
    }

    /// Whether the application limited the sending rate at a report within the last round trip.
    pub(super) fn were_app_limited_of_late(&self, rtt_s: f64) -> bool {
        let since_s = |limited_s| self.last_s.unwrap_or(0.0) - limited_s;
        self.app_limited_s
            .is_some_and(|limited_s| since_s(limited_s) < rtt_s)
    }

    /// Returns the excess of the reordering window over the usual time between two reports. The
    /// result is a multiple of the base round-trip time.
    pub(super) fn reordered(&self, base_s: f64) -> f64 {
        (self.reorder_window_s - interval_s(base_s)).max(0.0) / base_s
    }

    /// Returns the time for which the sender continues without a report, in seconds.
    pub(super) fn silence_s(&self, base_s: f64) -> f64 {
        let gap_s = Mechanism::ReportGap.value(self.gap.get().unwrap_or(0.0).max(GAP_S), GAP_S);
        interval_s(base_s) + gap_s
    }
}

/// Returns the usual time between two reports, in seconds.
pub(super) fn interval_s(base_s: f64) -> f64 {
    base_s / REPORTS_PER_ROUND_TRIP
}

/// Number of reports that the peer sends per round trip. Additional reports after losses do not
/// count.
const REPORTS_PER_ROUND_TRIP: f64 = 8.0;
/// Least time in seconds for which the sender continues without a report.
///
/// If a gap between two reports was longer within the last [`GAP_WINDOW_S`] seconds, the sender
/// continues for the length of that gap. The maximum is the least time plus [`GAP_ROUND_TRIPS`]
/// round trips. Bursts of losses also destroy reports.
const GAP_S: f64 = 0.3;
const GAP_ROUND_TRIPS: f64 = 2.0;
const GAP_WINDOW_S: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_goes_on_for_as_long_as_reports_stayed_away_before_within_a_bound() {
        let mut reports = ReportTimes::default();
        let report = Digest::default();
        for at_s in [1.0, 1.1, 1.2] {
            reports.on_report(&report, 0.1, at_s);
        }
        assert_eq!(reports.silence_s(0.8), 0.1 + GAP_S);
        reports.on_report(&report, 0.1, 1.6);
        let silence_s = reports.silence_s(0.8);
        assert!((silence_s - 0.5).abs() < 1e-9, "{silence_s}");
        reports.on_report(&report, 0.1, 60.0);
        let silence_s = reports.silence_s(0.8);
        assert!((silence_s - 0.6).abs() < 1e-9, "{silence_s}");
    }

    #[test]
    fn a_pause_of_the_application_is_no_gap_between_reports() {
        let mut reports = ReportTimes::default();
        reports.on_report(&Digest::default(), 0.1, 1.0);
        let idle = Digest {
            app_limited: true,
            ..Digest::default()
        };
        reports.on_report(&idle, 0.1, 1.5);
        assert_eq!(reports.silence_s(0.8), 0.1 + GAP_S);
    }

    #[test]
    fn a_pause_of_the_application_counts_for_a_round_trip() {
        let mut reports = ReportTimes::default();
        let idle = Digest {
            app_limited: true,
            ..Digest::default()
        };
        reports.on_report(&idle, 0.1, 1.0);
        assert!(reports.were_app_limited_of_late(0.1));
        reports.on_report(&Digest::default(), 0.1, 1.2);
        assert!(!reports.were_app_limited_of_late(0.1));
    }
}
