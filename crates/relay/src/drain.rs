//! The drain budget of an upload: the maximum number of file bytes between the client and the
//! server.
//!
//! After its last byte, a client waits for the server's final reply. All bytes between client and
//! server must therefore reach the server within a few seconds. The far gateway measures how fast
//! the server accepts bytes, and grants a budget. The near gateway reads from the client only while
//! fewer bytes than the budget are in flight. All counts are bytes of the file before coding.
//!
//! Inputs are the present time, the number of bytes that the server has accepted, and the duration
//! for which the gateway waited for the server. Outputs are [`Grant`]s. This module has no clock
//! and no socket.

#[cfg(test)]
mod simulation;

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::wire::Grant;

/// Measured rate of the server of one upload, and the drain budget that follows from this rate.
#[derive(Debug)]
pub(crate) struct DrainBudget {
    /// Time limit for the server to accept all bytes in flight, in seconds.
    limit_s: f64,
    rtt_s: f64,
    /// Number of bytes at the start of the upload that the measurement still excludes. Buffers in
    /// front of the server's program absorb these bytes, so these bytes do not show the server's
    /// rate.
    buffered_bytes: u64,
    /// Assumed rate of the server, in use until two spans (measuring periods) are complete.
    expected_bytes_per_s: f64,
    /// Totals of the upload at the start of the present span (measuring period).
    began: UploadTotals,
    latest: UploadTotals,
    /// Complete spans (measuring periods), the oldest first.
    spans: VecDeque<MeasuredSpan>,
    budget_bytes: u64,
    /// Latest grant sent to the near gateway, and the time of that grant.
    granted: Grant,
    granted_s: f64,
}

/// Totals of an upload, counted from the opening of its data connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UploadTotals {
    pub(crate) at_s: f64,
    /// Number of bytes that the server has accepted.
    pub(crate) accepted_bytes: u64,
    /// Total time for which the gateway waited for the server to accept bytes, in seconds.
    pub(crate) busy_s: f64,
}

/// A short period, and the number of bytes that the server accepted during the period.
#[derive(Debug, Clone, Copy)]
struct MeasuredSpan {
    length_s: f64,
    bytes: u64,
    /// Whether the server limited the transfer: the gateway waited for the server during most of
    /// the span.
    is_server_limited: bool,
}

impl DrainBudget {
    /// Creates the budget of an upload whose bytes in flight must reach the server within `limit`.
    ///
    /// `known_bytes_per_s` is the rate of the server in its previous upload.
    pub(crate) fn new(limit: Duration, rtt: Duration, known_bytes_per_s: Option<f64>) -> Self {
        let (limit_s, rtt_s) = (limit.as_secs_f64(), rtt.as_secs_f64());
        let budget_bytes = first_budget_bytes(limit, rtt, known_bytes_per_s);
        Self {
            limit_s,
            rtt_s,
            buffered_bytes: BUFFERED_BYTES,
            expected_bytes_per_s: known_bytes_per_s.unwrap_or_default() * KNOWN_SHARE,
            began: UploadTotals::default(),
            latest: UploadTotals::default(),
            spans: VecDeque::with_capacity(SPANS_MAX),
            budget_bytes,
            granted: Grant {
                accepted_bytes: 0,
                budget_bytes,
            },
            granted_s: 0.0,
        }
    }

    /// Creates an unlimited budget, for an upload without a waiting client.
    pub(crate) fn unlimited() -> Self {
        Self {
            buffered_bytes: u64::MAX,
            budget_bytes: u64::MAX,
            ..Self::new(LIMIT, Duration::ZERO, None)
        }
    }

    /// Records the present totals of the upload.
    pub(crate) fn observe(&mut self, totals: UploadTotals) {
        let bytes = totals
            .accepted_bytes
            .saturating_sub(self.latest.accepted_bytes);
        self.latest = totals;
        let buffered = bytes.min(self.buffered_bytes);
        self.buffered_bytes -= buffered;
        self.began.accepted_bytes += buffered;
        let span = self.present_span();
        if self.buffered_bytes > 0 {
            // A server that still waits for its first bytes is neither slow nor fast.
            if totals.accepted_bytes == 0 || !span.is_server_limited {
                self.began = totals;
            }
            return;
        }
        if span.length_s < self.span_s(span.is_server_limited) {
            return;
        }
        if self.spans.len() == SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back(span);
        self.began = totals;
        let budget = self.bytes_per_s() * drain_s(self.limit_s, self.rtt_s);
        self.budget_bytes = (budget as u64).max(BUDGET_MIN_BYTES);
    }

    /// Returns the next grant for the near gateway. Returns `None` if the change is too small for a
    /// message.
    pub(crate) fn next_grant(&mut self) -> Option<Grant> {
        let grant = Grant {
            accepted_bytes: self.latest.accepted_bytes,
            budget_bytes: self.budget_bytes,
        };
        let was_unlimited = self.granted.budget_bytes == u64::MAX;
        if grant == self.granted || was_unlimited {
            return None;
        }
        let accepted = grant.accepted_bytes - self.granted.accepted_bytes;
        let is_wider = grant.budget_bytes >= self.granted.budget_bytes.saturating_mul(2);
        let is_much = accepted >= grant.budget_bytes / GRANTS_PER_BUDGET;
        let is_late = self.latest.at_s - self.granted_s >= GRANT_INTERVAL_S;
        (is_wider || is_much || is_late).then(|| {
            self.granted = grant;
            self.granted_s = self.latest.at_s;
            grant
        })
    }

    /// Returns the time until the caller must next observe the totals. The first observations are
    /// frequent, so that a fast server is detected early.
    pub(crate) fn time_to_observation(&self) -> Duration {
        let is_idle = self.latest.accepted_bytes == 0;
        match () {
            () if is_idle && self.latest.at_s > YOUNG_S => CHECK_IDLE,
            () if self.spans.len() < SPANS_MAX => CHECK_FIRST,
            () => CHECK,
        }
    }

    /// Returns the maximum number of file bytes in flight.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Returns the measured rate of the server. Returns `None` if the upload was too short for a
    /// measurement.
    pub(crate) fn measured_bytes_per_s(&self) -> Option<f64> {
        (!self.spans.is_empty() && self.latest.accepted_bytes >= MEASURED_BYTES)
            .then(|| self.bytes_per_s())
    }

    /// Returns the estimated rate at which the server accepts bytes.
    ///
    /// The estimate is the average over all spans in which the server limited the transfer. In
    /// other spans, the server kept up with the sender. The highest rate of these other spans is a
    /// lower bound of the estimate. Each later span in which the server limits the transfer halves
    /// this bound.
    fn bytes_per_s(&self) -> f64 {
        let mut kept_up: f64 = 0.0;
        if self.spans.len() < 2 {
            kept_up = self.expected_bytes_per_s;
        }
        let (mut bytes, mut time_s) = (0, 0.0);
        for span in &self.spans {
            if span.is_server_limited {
                bytes += span.bytes;
                time_s += span.length_s;
            } else {
                kept_up = kept_up.max(span.bytes as f64 / span.length_s);
            }
        }
        // Buffers may have absorbed all bytes of a span in which the server kept up. Each later
        // span in which the server limits the transfer therefore reduces the weight of such a span.
        let run = self
            .spans
            .iter()
            .rev()
            .take_while(|span| span.is_server_limited);
        kept_up *= 0.5_f64.powi(run.count() as i32);
        let limited = if time_s > 0.0 {
            bytes as f64 / time_s
        } else {
            0.0
        };
        kept_up.max(limited)
    }

    fn present_span(&self) -> MeasuredSpan {
        let length_s = self.latest.at_s - self.began.at_s;
        let busy_s = self.latest.busy_s - self.began.busy_s;
        MeasuredSpan {
            length_s,
            bytes: self
                .latest
                .accepted_bytes
                .saturating_sub(self.began.accepted_bytes),
            is_server_limited: busy_s > LIMITED_SHARE * length_s,
        }
    }

    /// Returns the required length of the present span (measuring period), in seconds. Before the
    /// first measurement, spans are very short while the server keeps up. Otherwise the length is
    /// one sixth of a round trip, but at least 0.1 s.
    fn span_s(&self, is_server_limited: bool) -> f64 {
        match self.spans.is_empty() && !is_server_limited {
            true => SPAN_FIRST_S,
            false => (self.rtt_s / SPANS_PER_ROUND_TRIP).max(SPAN_MIN_S),
        }
    }
}

/// Returns the budget at the start of an upload, before any measurement.
///
/// The function uses only a fraction of the server's earlier rate, because the server may be slower
/// now.
pub(crate) fn first_budget_bytes(
    limit: Duration,
    rtt: Duration,
    known_bytes_per_s: Option<f64>,
) -> u64 {
    let (limit_s, rtt_s) = (limit.as_secs_f64(), rtt.as_secs_f64());
    let unknown = limit_s * FIRST_BYTES_PER_S;
    let known = known_bytes_per_s.unwrap_or_default() * KNOWN_SHARE * drain_s(limit_s, rtt_s);
    (unknown.max(known) as u64).max(BUDGET_MIN_BYTES)
}

/// Returns the time within which all bytes in flight must reach the server, after the client's last
/// byte. `wait` is the client's timeout for the final reply.
pub(crate) fn limit(wait: Duration) -> Duration {
    (wait / WAIT_SHARE).min(LIMIT_MAX)
}

/// Time limit for a client that has not announced its timeout. WinSCP waits 15 s for the final
/// reply, FileZilla 20 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Divisor of the client's timeout: the bytes in flight must reach the server within one third of
/// that timeout. The remaining time is a reserve, because the server may become slower.
const WAIT_SHARE: u32 = 3;
/// Maximum time limit. A longer limit makes no upload faster, and uses more memory.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Returns the time, in seconds, in which the server should accept a complete budget.
fn drain_s(limit_s: f64, rtt_s: f64) -> f64 {
    BUDGET_ROUND_TRIPS * rtt_s + (BUDGET_SHARE * limit_s).min(BUDGET_TIME_MAX_S)
}

/// Returns the size of each kernel buffer of an upload with this budget.
pub(crate) fn kernel_buffer_bytes(budget_bytes: u64) -> usize {
    usize::try_from(budget_bytes / KERNEL_SHARE).unwrap_or(usize::MAX)
}

/// Rate of each server in its latest upload.
#[derive(Debug, Default)]
pub(crate) struct ServerRates {
    /// Rates, sorted by the time of measurement. The latest is last.
    known: Mutex<VecDeque<ServerRate>>,
}

#[derive(Debug, Clone, Copy)]
struct ServerRate {
    server: IpAddr,
    bytes_per_s: f64,
    at: Instant,
}

impl ServerRates {
    /// Stores a rate that was measured at `now`.
    pub(crate) fn remember(&self, server: IpAddr, bytes_per_s: f64, now: Instant) {
        let mut known = self.lock();
        known.retain(|rate| rate.server != server);
        if known.len() == SERVERS_MAX {
            known.pop_front();
        }
        known.push_back(ServerRate {
            server,
            bytes_per_s,
            at: now,
        });
    }

    /// Returns the rate of a server in its latest upload. Returns `None` if the measurement is too
    /// old or does not exist.
    pub(crate) fn bytes_per_s(&self, server: IpAddr, now: Instant) -> Option<f64> {
        let known = self.lock();
        let rate = known.iter().find(|rate| rate.server == server)?;
        (now.saturating_duration_since(rate.at) < KNOWN).then_some(rate.bytes_per_s)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ServerRate>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rate that determines the first budget if the server's rate is unknown. The budget is this rate
/// multiplied by the time limit. A server of 300 kB/s accepts the budget in two thirds of the
/// limit. The last third is for the bytes in kernel buffers.
const FIRST_BYTES_PER_S: f64 = 200e3;
/// Fraction of a server's earlier rate that a new upload assumes.
const KNOWN_SHARE: f64 = 0.5;
/// Minimum budget. A server of 100 kbit/s accepts these bytes in two seconds.
const BUDGET_MIN_BYTES: u64 = 24 << 10;
/// Number of round trips for which the budget must last, so that the server never waits for the
/// client's bytes.
const BUDGET_ROUND_TRIPS: f64 = 1.5;
/// Fraction of the time limit for which the budget must last, in addition to
/// [`BUDGET_ROUND_TRIPS`]. With this budget, the server does not wait for retransmissions. The
/// remaining time is for the bytes in kernel buffers.
const BUDGET_SHARE: f64 = 0.4;
/// Maximum of the time that results from [`BUDGET_SHARE`], in seconds. A time limit above five
/// seconds therefore does not enlarge the budget.
const BUDGET_TIME_MAX_S: f64 = 2.0;
/// Number of bytes that the kernels of gateway and server may hold before the server's program
/// reads any byte. With a lower number, a receive buffer of 64 KiB made a server of 10 Mbit/s
/// appear ten times as fast.
const BUFFERED_BYTES: u64 = 256 << 10;
/// Minimum size of an upload for a measurement of the server's rate.
const MEASURED_BYTES: u64 = 3 * BUFFERED_BYTES;
/// Number of spans (measuring periods) over which the rate is averaged. 16 spans last 1.6 s. On
/// long paths, they last more than two round trips.
const SPANS_MAX: usize = 16;
const SPAN_FIRST_S: f64 = 0.02;
const SPAN_MIN_S: f64 = 0.1;
const SPANS_PER_ROUND_TRIP: f64 = 6.0;
/// Fraction of a span (measuring period). If the gateway waits for the server for longer than this
/// fraction, the server limits the transfer in this span.
const LIMITED_SHARE: f64 = 0.75;
/// Number of grants per budget. The gateway sends a grant each time the server has accepted one
/// eighth of the budget.
const GRANTS_PER_BUDGET: u64 = 8;
/// Time since the latest grant, in seconds. After this time, the gateway also sends a grant for a
/// small change. The gateway sends no grant while the values are unchanged.
const GRANT_INTERVAL_S: f64 = 0.1;
/// Interval between observations. The interval is shorter at the start of an upload, and longer
/// while no bytes arrive.
const CHECK: Duration = Duration::from_millis(50);
const CHECK_FIRST: Duration = Duration::from_millis(10);
const CHECK_IDLE: Duration = Duration::from_millis(100);
const YOUNG_S: f64 = 3.0;
/// Divisor of the budget: each kernel buffer may hold one sixteenth of the budget.
const KERNEL_SHARE: u64 = 16;
/// Maximum number of servers with a stored rate.
const SERVERS_MAX: usize = 64;
/// Lifetime of a measured rate. A server that was fast at the measurement may be busy later.
const KNOWN: Duration = Duration::from_secs(600);
