//! Decision about when further connections join the download of a large file.
//!
//! A download begins with one connection. If several connections began together, they would leave
//! slow start together, overflow the bottleneck's queue, and wait for retransmissions. Therefore
//! further connections join only if the first connection cannot fill the path alone. Three signs
//! show this:
//!
//! - Bytes arrive in bursts with pauses between the bursts. In this case, the congestion window or
//!   the receive window is smaller than the bandwidth-delay product.
//! - The rate stays far below the rate of slow start.
//! - An earlier join has made the transfer faster.
//!
//! Without a sign, one connection joins as a trial after five measurement windows. If the missing
//! bytes need 30 s or more, up to seven connections join as a trial after two windows.

use std::time::{Duration, Instant};

/// Measurements of one file's download. They decide when further connections may join.
#[derive(Debug)]
pub(super) struct JoinController {
    /// Estimate of the round-trip time. `None` until the first bytes have arrived.
    round: Option<Duration>,
    window: RateWindow,
    /// Highest rate of any measurement window, in bytes per second.
    peak_bytes_per_s: f64,
    /// Highest rate of recent measurement windows, in bytes per second. Each window reduces the
    /// weight of older windows.
    best_bytes_per_s: f64,
    /// Two values for the latest consecutive measurement windows without growth of the rate: their
    /// number, and the sum of their rates in bytes per second.
    steady: (u32, f64),
    /// Evidence that another connection would make the download faster. Each measurement window
    /// adds to the evidence or resets it.
    evidence: f64,
    /// Number of connections that may join now.
    permits: usize,
    /// Time at which the permits were issued.
    permitted_at: Option<Instant>,
    /// End of the pause that follows a failed join. A join fails if its connection fails or does
    /// not appear.
    none_before: Option<Instant>,
    /// Number of consecutive failed joins.
    failures: u32,
    /// Rate in bytes per second before connections joined as a trial. A trial is a join without
    /// evidence that it helps.
    trial: Option<f64>,
    /// End of the pause after a trial that did not increase the rate.
    no_trial_before: Option<Instant>,
    /// Number of trials that did not increase the rate.
    failed_trials: u32,
    /// Whether any join has failed, because its connection failed or did not appear.
    has_failed: bool,
}

/// Time span over which the rate is measured.
#[derive(Debug)]
struct RateWindow {
    begun: Instant,
    bytes: u64,
    /// Time for which connections waited for bytes. Only pauses of up to 1.5 round trips are
    /// counted.
    silence: Duration,
    /// Whether a connection waited longer than 1.5 round trips, which indicates a retransmission.
    is_broken: bool,
}

/// State of a download, as input for a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct DownloadLoad {
    /// Number of connections that are downloading.
    pub(super) connections: usize,
    /// Maximum number of connections that may download.
    pub(super) connections_max: usize,
    /// Whether a connection has joined and has not delivered bytes yet.
    pub(super) is_any_opening: bool,
    /// Number of bytes that are still missing.
    pub(super) rest_bytes: u64,
}

impl JoinController {
    /// Creates the state of a new download.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            round: None,
            window: RateWindow::new(now),
            peak_bytes_per_s: 0.0,
            best_bytes_per_s: 0.0,
            steady: (0, 0.0),
            evidence: 0.0,
            permits: 0,
            permitted_at: None,
            none_before: None,
            failures: 0,
            trial: None,
            no_trial_before: None,
            failed_trials: 0,
            has_failed: false,
        }
    }

    /// Resets the measurements, because the download starts again with one connection.
    pub(super) fn begin_again(&mut self, now: Instant) {
        *self = Self {
            none_before: self.none_before,
            failures: self.failures,
            failed_trials: self.failed_trials,
            has_failed: self.has_failed,
            ..Self::new(now)
        };
    }

    /// Records that a connection has received its first bytes. `opening` is the time since the
    /// connection requested them.
    pub(super) fn opened(&mut self, opening: Duration, now: Instant) {
        // The opening of a data connection takes two or three round trips, because the mover
        // requests a port and then the file.
        let round = (opening / OPENING_ROUNDS).max(ROUND_LEAST);
        self.round = Some(self.round.map_or(round, |it| it.min(round)));
        self.window = RateWindow::new(now);
    }

    /// Records bytes that a connection has received. `waited` is the time for which the connection
    /// waited for the bytes.
    pub(super) fn received(&mut self, bytes: u64, waited: Duration) {
        let Some(round) = self.round else {
            return;
        };
        self.window.bytes += bytes;
        if waited > round * 3 / 2 {
            self.window.is_broken = true;
        } else if waited >= round / 4 {
            self.window.silence += waited;
        }
    }

    /// Returns the estimate of the round-trip time, or `None` until the first bytes have arrived.
    pub(super) fn round(&self) -> Option<Duration> {
        self.round
    }

    /// Returns whether a connection may join now. Permits expire after some time.
    pub(super) fn has_permit(&mut self, now: Instant) -> bool {
        let life = self.round.unwrap_or_default() * PERMIT_ROUNDS;
        let life = life.max(PERMIT_LEAST);
        let is_old = self.permitted_at.is_some_and(|it| it + life < now);
        if self.permits > 0 && is_old {
            self.failed(now);
        }
        self.permits > 0
    }

    /// Uses one permit to join. Returns false if no permit is valid.
    pub(super) fn take_permit(&mut self, now: Instant) -> bool {
        let may = self.has_permit(now);
        self.permits -= usize::from(may);
        may
    }

    /// Records that a permitted connection has failed or has not appeared. No connection may join
    /// until a pause has ended.
    pub(super) fn failed(&mut self, now: Instant) {
        self.permits = 0;
        self.trial = None;
        self.has_failed = true;
        self.failures += 1;
        let pause = FAILURE_PAUSE * 2u32.pow(self.failures.min(FAILURE_DOUBLINGS_MAX) - 1);
        self.none_before = Some(now + pause);
    }

    /// Records that a joined connection has delivered bytes. Ends the pause after failed joins.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.none_before = None;
    }

    /// Issues permits to join, if the measurements show that more connections are useful. Returns
    /// the number of new permits.
    pub(super) fn decide(&mut self, load: DownloadLoad, now: Instant) -> usize {
        if self.has_permit(now) {
            return 0;
        }
        let free = load.connections_max.saturating_sub(load.connections);
        let is_paused = self.none_before.is_some_and(|it| now < it);
        self.judge(load, free > 0 && !is_paused, now);
        self.permits = self.permits.min(free);
        self.permitted_at = Some(now);
        self.permits
    }

    /// Evaluates the measurement window if it is complete. Issues permits if `may_join` is true and
    /// there are reasons to join.
    fn judge(&mut self, load: DownloadLoad, may_join: bool, now: Instant) {
        let Some(round) = self.round else {
            return;
        };
        if load.is_any_opening {
            self.window = RateWindow::new(now);
            return;
        }
        let length = (round * WINDOW_ROUNDS).max(WINDOW_LEAST);
        let span = now.saturating_duration_since(self.window.begun);
        if span < length {
            return;
        }
        let window = std::mem::replace(&mut self.window, RateWindow::new(now));
        let (rate, before) = (
            window.bytes as f64 / span.as_secs_f64(),
            self.best_bytes_per_s,
        );
        self.best_bytes_per_s = rate.max(before * AGED);
        let is_below_peak = rate < self.peak_bytes_per_s / 2.0;
        self.peak_bytes_per_s = self.peak_bytes_per_s.max(rate);
        if rate > before * GROWTH_LEAST {
            self.steady = (0, 0.0);
            self.evidence = 0.0;
            return;
        }
        let connections = load.connections.max(1);
        let silent = window.silence.as_secs_f64() / span.as_secs_f64();
        if window.is_broken {
            self.evidence += BROKEN_EVIDENCE;
        } else if connections as f64 - silent < BUSY_MAX || is_below_peak {
            self.evidence += 1.0;
        } else {
            self.evidence = 0.0;
        }
        self.steady = (self.steady.0 + 1, self.steady.1 + rate);
        let rest_s = load.rest_bytes as f64 / self.best_bytes_per_s.max(1.0);
        let rest_rounds = rest_s / round.as_secs_f64();
        if !may_join || rest_s < REST_LEAST_S || rest_rounds < REST_LEAST_ROUNDS {
            return;
        }
        let is_long = rest_s >= LONG_REST_S && self.failed_trials == 0 && !self.has_failed;
        let more = if is_long {
            connections.max(LONG_REST_CONNECTIONS)
        } else {
            connections
        };
        if self.evidence >= EVIDENCE_LEAST {
            self.permits = more;
            self.joined();
            return;
        }
        self.try_more(more, is_long, now);
    }

    /// Permits connections to join as a trial, and evaluates the previous trial. If the rate has
    /// not grown, no trial follows until a pause has ended.
    ///
    /// If the remaining bytes need a long time, a trial costs little compared with the time that it
    /// may save. In that case a trial begins earlier and with more connections.
    fn try_more(&mut self, more: usize, is_long: bool, now: Instant) {
        let (windows, sum) = self.steady;
        let windows_least = if is_long {
            LONG_REST_WINDOWS
        } else {
            TRIAL_WINDOWS
        };
        if windows < windows_least || self.no_trial_before.is_some_and(|it| now < it) {
            return;
        }
        let rate = sum / f64::from(windows);
        self.permits = match self.trial {
            Some(before) if rate < before * GAIN_LEAST && windows < TRIAL_WINDOWS => return,
            Some(before) if rate < before * GAIN_LEAST => {
                self.trial = None;
                self.failed_trials += 1;
                let pause = TRIAL_PAUSE * 2u32.saturating_pow(self.failed_trials.min(8));
                self.no_trial_before = Some(now + pause);
                self.steady = (0, 0.0);
                return;
            }
            Some(_) => more,
            None if is_long => LONG_REST_CONNECTIONS,
            None => 1,
        };
        self.trial = Some(rate);
        self.joined();
    }

    /// Resets the evidence and the count of windows, because connections may join now.
    fn joined(&mut self) {
        tracing::debug!(
            permits = self.permits,
            round_ms = self.round.map(|it| it.as_millis()),
            steady_windows = self.steady.0,
            evidence = self.evidence,
            best_bytes_per_s = self.best_bytes_per_s,
            "connections may join the download of a file"
        );
        self.steady = (0, 0.0);
        self.evidence = 0.0;
    }
}

impl RateWindow {
    fn new(begun: Instant) -> Self {
        Self {
            begun,
            bytes: 0,
            silence: Duration::ZERO,
            is_broken: false,
        }
    }
}

/// Approximate number of round trips from the request for a data connection to the first bytes.
const OPENING_ROUNDS: u32 = 2;

const ROUND_LEAST: Duration = Duration::from_millis(5);

/// Length of a measurement window in round trips. In slow start, the rate quadruples in two round
/// trips.
const WINDOW_ROUNDS: u32 = 2;

const WINDOW_LEAST: Duration = Duration::from_millis(50);

/// Factor for the highest rate of earlier windows. At the end of each window, this rate is
/// multiplied by the factor.
const AGED: f64 = 0.9;

/// Ratio of a window's rate to the best earlier rate. Above this ratio, the rate counts as growing.
const GROWTH_LEAST: f64 = 1.4;

/// Amount of evidence from a window with a retransmission. The value is below 1, because the end of
/// slow start also causes retransmissions.
const BROKEN_EVIDENCE: f64 = 0.5;

/// Amount of evidence at which connections join. A measurement window adds 1 if pauses between
/// bursts are long, or if the rate is below half of the highest rate.
const EVIDENCE_LEAST: f64 = 3.0;

/// Limit on the average number of busy connections. A measurement window with a lower average adds
/// evidence.
const BUSY_MAX: f64 = 0.6;

/// Shortest remaining time of the download, in seconds, at which connections may join.
const REST_LEAST_S: f64 = 5.0;

const REST_LEAST_ROUNDS: f64 = 16.0;

/// Number of windows over which the rate is averaged before and after a trial.
const TRIAL_WINDOWS: u32 = 5;

/// Smallest remaining time of the download, in seconds, for an early trial with several
/// connections.
const LONG_REST_S: f64 = 30.0;

const LONG_REST_WINDOWS: u32 = 2;

const LONG_REST_CONNECTIONS: usize = 7;

/// Smallest gain of a successful trial. The gain is the rate after the trial, divided by the rate
/// before the trial. After a successful trial, another trial follows immediately.
const GAIN_LEAST: f64 = 1.25;

/// Lifetime of a permit in round trips. Connecting and logging in takes six to eight round trips.
const PERMIT_ROUNDS: u32 = 16;

const PERMIT_LEAST: Duration = Duration::from_secs(5);

/// Pause after a connection has failed to join. Each further consecutive failure doubles the pause.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

const FAILURE_DOUBLINGS_MAX: u32 = 7;

/// Half of the pause after the first trial that did not increase the rate.
const TRIAL_PAUSE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    /// A simulated path of 37.5 MB/s. Bytes arrive in bursts, one burst per round trip.
    struct SimulatedPath {
        joins: JoinController,
        now: Instant,
        connections: usize,
        connections_max: usize,
        rest_bytes: u64,
    }

    impl SimulatedPath {
        fn new(rest_bytes: u64) -> Self {
            let now = Instant::now();
            let mut joins = JoinController::new(now);
            joins.opened(2 * ROUND, now);
            Self {
                joins,
                now,
                connections: 1,
                connections_max: 8,
                rest_bytes,
            }
        }

        /// Simulates one round trip in which each connection delivers `bytes_each` bytes. Permitted
        /// connections join immediately.
        fn round(&mut self, bytes_each: u64, pause: Duration) {
            let bytes = bytes_each * self.connections as u64;
            self.now += ROUND;
            self.rest_bytes = self.rest_bytes.saturating_sub(bytes);
            for _ in 0..self.connections {
                self.joins.received(bytes_each, pause);
            }
            self.joins.decide(self.load(), self.now);
            while self.joins.take_permit(self.now) {
                self.connections += 1;
                self.joins.opened(2 * ROUND, self.now);
            }
        }

        fn load(&self) -> DownloadLoad {
            DownloadLoad {
                connections: self.connections,
                connections_max: self.connections_max,
                is_any_opening: false,
                rest_bytes: self.rest_bytes,
            }
        }

        /// Simulates slow start until the path is full.
        fn slow_start(&mut self) {
            let mut bytes = 30_000;
            while bytes < FULL {
                let silence = 1.0 - bytes as f64 / FULL as f64;
                self.round(bytes, ROUND.mul_f64(silence));
                bytes *= 2;
            }
        }
    }

    /// Number of bytes that a full path delivers in one round trip.
    const FULL: u64 = 3_750_000;

    #[test]
    fn none_joins_a_connection_in_slow_start() {
        let mut path = SimulatedPath::new(1 << 30);
        path.slow_start();
        assert_eq!(path.connections, 1);
    }

    #[test]
    fn none_joins_on_a_full_path_a_file_that_ends_soon() {
        let mut path = SimulatedPath::new(100_000_000);
        path.slow_start();
        while path.rest_bytes > 0 {
            path.round(FULL, Duration::ZERO);
        }
        assert_eq!(path.connections, 1);
    }

    #[test]
    fn on_a_full_path_a_single_trial_joins() {
        let mut path = SimulatedPath::new(400_000_000);
        path.slow_start();
        while path.rest_bytes > 0 {
            path.round(FULL / path.connections as u64, Duration::ZERO);
        }
        assert_eq!(path.connections, 2);
    }

    /// The path loses one packet of a thousand. Slow start fills the path before the first loss.
    #[test]
    fn all_join_where_the_rate_stays_far_below_that_of_slow_start() {
        let mut path = SimulatedPath::new(100_000_000);
        path.slow_start();
        for _ in 0..60 {
            path.round(FULL / 20, Duration::ZERO);
        }
        assert_eq!(path.connections, 8);
    }

    #[test]
    fn all_join_where_one_leaves_most_of_the_path_idle() {
        let mut path = SimulatedPath::new(100_000_000);
        for _ in 0..26 {
            path.round(50_000, ROUND * 9 / 10);
        }
        assert_eq!(path.connections, 8);
    }

    #[test]
    fn connections_join_one_that_fills_half_of_the_path() {
        let mut path = SimulatedPath::new(500_000_000);
        for _ in 0..16 {
            path.round(FULL / 2, ROUND / 2);
        }
        assert_eq!(path.connections, 2);
    }

    #[test]
    fn all_join_by_and_by_where_each_makes_the_transfer_faster() {
        let mut path = SimulatedPath::new(1 << 30);
        for _ in 0..60 {
            path.round(50_000, Duration::ZERO);
        }
        assert_eq!(path.connections, 8);
    }

    /// The server's send buffer limits each connection. The server's congestion control paces the
    /// packets.
    #[test]
    fn several_join_at_once_where_the_rest_would_take_minutes() {
        let mut path = SimulatedPath::new(16 << 30);
        path.connections_max = 16;
        for _ in 0..6 {
            path.round(500_000, Duration::ZERO);
        }
        assert_eq!(path.connections, 1 + LONG_REST_CONNECTIONS);
        for _ in 0..6 {
            path.round(500_000, Duration::ZERO);
        }
        assert_eq!(path.connections, 16);
    }

    #[test]
    fn no_more_join_a_long_rest_than_the_job_permits() {
        let mut path = SimulatedPath::new(4 << 30);
        path.connections_max = 4;
        for _ in 0..60 {
            path.round(500_000, Duration::ZERO);
        }
        assert_eq!(path.connections, 4);
    }

    #[test]
    fn a_refusal_ends_the_permits_of_the_connections_after_it() {
        let mut path = SimulatedPath::new(16 << 30);
        while path.joins.decide(path.load(), path.now) == 0 {
            path.now += ROUND;
            path.joins.received(500_000, Duration::ZERO);
        }
        for _ in 0..3 {
            assert!(path.joins.take_permit(path.now));
        }
        path.joins.failed(path.now);
        assert!(
            !path.joins.take_permit(path.now),
            "four more were permitted"
        );
    }

    #[test]
    fn one_joins_at_a_time_after_one_was_refused() {
        let mut path = SimulatedPath::new(4 << 30);
        path.joins.failed(path.now);
        let mut counts = vec![path.connections];
        for _ in 0..100 {
            path.round(500_000, Duration::ZERO);
            counts.push(path.connections);
        }
        counts.dedup();
        assert_eq!(counts[..3], [1, 2, 4]);
    }

    #[test]
    fn on_a_full_path_a_single_one_joins_after_a_failed_trial_with_several() {
        let mut path = SimulatedPath::new(40 << 30);
        path.connections_max = 16;
        path.slow_start();
        let mut counts = vec![path.connections];
        for _ in 0..200 {
            path.round(FULL / path.connections as u64, Duration::ZERO);
            counts.push(path.connections);
        }
        counts.dedup();
        assert_eq!(counts[..3], [1, 8, 9]);
    }

    #[test]
    fn all_join_where_retransmissions_are_awaited_all_the_time() {
        let mut path = SimulatedPath::new(1 << 30);
        for _ in 0..60 {
            path.round(20_000, 2 * ROUND);
        }
        assert_eq!(path.connections, 8);
    }

    #[test]
    fn none_joins_for_the_retransmissions_at_the_end_of_slow_start() {
        let mut path = SimulatedPath::new(150_000_000);
        path.slow_start();
        for _ in 0..5 {
            path.round(FULL, 2 * ROUND);
        }
        path.round(2 * FULL, Duration::ZERO);
        while path.rest_bytes > 0 {
            path.round(FULL, Duration::ZERO);
        }
        assert_eq!(path.connections, 1);
    }

    #[test]
    fn permits_end_where_no_connection_comes() {
        let mut path = SimulatedPath::new(1 << 40);
        let load = DownloadLoad {
            connections: 1,
            connections_max: 8,
            is_any_opening: false,
            rest_bytes: 1 << 40,
        };
        let mut given = Vec::new();
        for round in 0..6_000 {
            path.now += ROUND;
            path.joins.received(50_000, ROUND * 9 / 10);
            if path.joins.decide(load, path.now) > 0 {
                given.push(round);
            }
        }
        // During these ten minutes, each failure doubles the pause.
        assert!((4..10).contains(&given.len()), "{given:?}");
        path.now += PERMIT_LEAST + ROUND;
        assert!(!path.joins.take_permit(path.now));
    }

    #[test]
    fn none_joins_for_a_while_after_one_was_refused() {
        let mut path = SimulatedPath::new(1 << 30);
        path.joins.failed(path.now);
        for _ in 0..45 {
            path.round(50_000, ROUND * 9 / 10);
        }
        assert_eq!(path.connections, 1);
        for _ in 0..45 {
            path.round(50_000, ROUND * 9 / 10);
        }
        assert_eq!(path.connections, 8);
    }

    #[test]
    fn a_download_that_begins_again_is_judged_anew() {
        let mut path = SimulatedPath::new(1 << 30);
        for _ in 0..26 {
            path.round(50_000, ROUND * 9 / 10);
        }
        assert_eq!(path.connections, 8);
        path.connections = 1;
        path.joins.begin_again(path.now);
        path.joins.opened(2 * ROUND, path.now);
        for _ in 0..26 {
            path.round(50_000, ROUND * 9 / 10);
        }
        assert_eq!(path.connections, 8);
    }
}
