//! When does the peer report, and how long may the sender go without a report?
//!
//! In: the times of reports, and whether the application held the sender back. Out: the time since the last report,
//! and the longest gap between two of late. What reports say is the business of the other measurements.

use super::extremes::{WINDOW_ROUND_TRIPS, WindowedMax};
use crate::congestion::Digest;
use crate::congestion::knee::Mechanism;

/// The times of reports.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// When the last report came, or the first packet went if none has come.
    last_s: Option<f64>,
    /// How much later than its neighbours a packet may arrive.
    reorder_window_s: f64,
    /// When a report last showed that the application, not the controller, held the sender back.
    app_limited_s: Option<f64>,
    /// A report has come, and no long silence since: the next one ends a gap between two reports.
    gap_has_begun: bool,
    gap: WindowedMax,
}

impl Reports {
    /// A packet was sent. Returns whether it is the first.
    pub(super) fn on_sent(&mut self, now_s: f64) -> bool {
        let is_first = self.last_s.is_none();
        self.last_s.get_or_insert(now_s);
        is_first
    }

    /// Seconds from the last report to `now_s`.
    pub(super) fn since_s(&self, now_s: f64) -> f64 {
        now_s - self.last_s.unwrap_or(0.0)
    }

    /// A report came over a path with the base RTT `base_s`.
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

    /// A long silence is over: it says nothing of the gaps between reports.
    pub(super) fn forget_gaps(&mut self) {
        self.gap_has_begun = false;
        self.gap = WindowedMax::default();
    }

    /// Whether a report of the last round trip showed that the application held the sender back.
    pub(super) fn were_app_limited_of_late(&self, rtt_s: f64) -> bool {
        let since_s = |limited_s| self.last_s.unwrap_or(0.0) - limited_s;
        self.app_limited_s
            .is_some_and(|limited_s| since_s(limited_s) < rtt_s)
    }

    /// By how much of a round trip the reordering of packets delays the word of them, beyond the time between two
    /// reports.
    pub(super) fn reordered(&self, base_s: f64) -> f64 {
        (self.reorder_window_s - interval_s(base_s)).max(0.0) / base_s
    }

    /// For how long to go on sending without a report, in seconds.
    pub(super) fn silence_s(&self, base_s: f64) -> f64 {
        let gap_s = Mechanism::ReportGap.value(self.gap.get().unwrap_or(0.0).max(GAP_S), GAP_S);
        interval_s(base_s) + gap_s
    }
}

/// The usual time between two reports, in seconds.
pub(super) fn interval_s(base_s: f64) -> f64 {
    base_s / REPORTS_PER_ROUND_TRIP
}

/// Reports of the peer in a round trip, without more for lost ones.
const REPORTS_PER_ROUND_TRIP: f64 = 8.0;
/// The sender goes on without a report for this long at least. At most it goes on for [`GAP_ROUND_TRIPS`] longer, if the
/// time between two reports was as long within [`GAP_WINDOW_S`]: bursts of losses take reports, too.
const GAP_S: f64 = 0.3;
const GAP_ROUND_TRIPS: f64 = 2.0;
const GAP_WINDOW_S: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_goes_on_for_as_long_as_reports_stayed_away_before_within_a_bound() {
        let mut reports = Reports::default();
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
        let mut reports = Reports::default();
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
        let mut reports = Reports::default();
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
