//! The drain budget of an upload: the file bytes that may lie between the client and the server.
//!
//! A client that has sent its last byte waits for the server's final reply. Everything between
//! client and server must therefore drain within a few seconds. The far gateway measures how fast
//! the server accepts bytes, and grants a budget. The near gateway reads from the client only while
//! fewer bytes than the budget are in flight. All counts are bytes of the file: coding on the link
//! changes nothing.
//!
//! In: the time, the bytes that the server has accepted, and the time that it took for them. Out:
//! [`Grant`]s. This module has no clock and no socket.

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

/// The rate of one upload's server, and the budget that follows from it.
#[derive(Debug)]
pub(crate) struct DrainBudget {
    /// Time in which everything must drain.
    limit_s: f64,
    rtt_s: f64,
    /// Remaining first bytes, which do not show the server's rate: buffers before its program
    /// absorb them.
    buffered_bytes: u64,
    /// Assumed rate until the first span has ended.
    expected_bytes_per_s: f64,
    /// Totals at the start of the present span.
    began: UploadTotals,
    latest: UploadTotals,
    /// Earlier spans, oldest first.
    spans: VecDeque<MeasuredSpan>,
    budget_bytes: u64,
    /// The latest grant sent to the near gateway, and its time.
    granted: Grant,
    granted_s: f64,
}

/// Totals of an upload since its data connection opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UploadTotals {
    pub(crate) at_s: f64,
    /// Bytes that the server has accepted.
    pub(crate) accepted_bytes: u64,
    /// Time for which the gateway waited for the server to accept bytes.
    pub(crate) busy_s: f64,
}

/// A short period, and the bytes that the server accepted in it.
#[derive(Debug, Clone, Copy)]
struct MeasuredSpan {
    length_s: f64,
    bytes: u64,
    /// The gateway waited for the server for most of the span: the server could not have accepted
    /// more.
    is_server_limited: bool,
}

impl DrainBudget {
    /// Creates the budget of an upload that must drain within `limit`.
    ///
    /// `known_bytes_per_s` is the rate of the server's last upload.
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

    /// Creates an unlimited budget, for an upload that no client waits for.
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

    /// Returns the next grant for the near gateway, if it is worth a message.
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

    /// Returns the time until the next observation of the totals. Short first spans recognise a
    /// fast server early.
    pub(crate) fn time_to_observation(&self) -> Duration {
        let is_idle = self.latest.accepted_bytes == 0;
        match () {
            () if is_idle && self.latest.at_s > YOUNG_S => CHECK_IDLE,
            () if self.spans.len() < SPANS_MAX => CHECK_FIRST,
            () => CHECK,
        }
    }

    /// Returns the file bytes that may be in flight.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Returns the measured rate of the server. `None` if the upload was too short to measure.
    pub(crate) fn measured_bytes_per_s(&self) -> Option<f64> {
        (!self.spans.is_empty() && self.latest.accepted_bytes >= MEASURED_BYTES)
            .then(|| self.bytes_per_s())
    }

    /// Returns the rate at which the server accepts bytes.
    ///
    /// The rate is the average over the spans that the server limited. Its lower bound is the
    /// highest rate of a span in which the server kept up. Each later limited span halves this
    /// bound.
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
        // A span in which buffers absorbed everything counts less with each later span that the
        // server limited.
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

    /// Returns the length of the present span. Spans are short while a server keeps up from the
    /// start, and then a part of a round trip.
    fn span_s(&self, is_server_limited: bool) -> f64 {
        match self.spans.is_empty() && !is_server_limited {
            true => SPAN_FIRST_S,
            false => (self.rtt_s / SPANS_PER_ROUND_TRIP).max(SPAN_MIN_S),
        }
    }
}

/// Returns the budget at the start of an upload, before any measurement.
///
/// A server that was fast may be slower now, so its earlier rate counts only in part.
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

/// Returns the time in which an upload must drain after the client's last byte. The client waits
/// for `wait`.
pub(crate) fn limit(wait: Duration) -> Duration {
    (wait / WAIT_SHARE).min(LIMIT_MAX)
}

/// The limit for a client that does not announce its timeout: WinSCP waits 15 s, FileZilla 20 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// One over the part of a client's timeout that an upload may use. The server may become slower
/// while the upload drains.
const WAIT_SHARE: u32 = 3;
/// A longer limit gains nothing on any path, and takes memory.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Returns the time in which the server should accept a whole budget.
fn drain_s(limit_s: f64, rtt_s: f64) -> f64 {
    BUDGET_ROUND_TRIPS * rtt_s + (BUDGET_SHARE * limit_s).min(BUDGET_TIME_MAX_S)
}

/// Returns the bytes that may wait in one kernel buffer of an upload with this budget.
pub(crate) fn kernel_buffer_bytes(budget_bytes: u64) -> usize {
    usize::try_from(budget_bytes / KERNEL_SHARE).unwrap_or(usize::MAX)
}

/// The rates of servers in their last uploads.
#[derive(Debug, Default)]
pub(crate) struct ServerRates {
    /// Ordered by time of measurement, the latest last.
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

    /// Returns the rate of a server in its last upload, if that was recent.
    pub(crate) fn bytes_per_s(&self, server: IpAddr, now: Instant) -> Option<f64> {
        let known = self.lock();
        let rate = known.iter().find(|rate| rate.server == server)?;
        (now.saturating_duration_since(rate.at) < KNOWN).then_some(rate.bytes_per_s)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ServerRate>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Budget of an unknown server, for each second of the limit. A server of 300 kB/s accepts it in
/// two thirds of the limit. The rest of the limit is for kernel buffers.
const FIRST_BYTES_PER_S: f64 = 200e3;
/// The assumed part of a server's earlier rate.
const KNOWN_SHARE: f64 = 0.5;
/// The least budget: two seconds of a server of 100 kbit/s.
const BUDGET_MIN_BYTES: u64 = 24 << 10;
/// The budget holds the bytes that the server accepts in this many round trips, so that the server
/// never waits for the client ...
const BUDGET_ROUND_TRIPS: f64 = 1.5;
/// ... and in this part of the limit, so that the server does not wait for retransmissions either.
/// The rest of the limit is for kernel buffers.
const BUDGET_SHARE: f64 = 0.4;
/// Longest time of the limit's part, so that a long limit does not enlarge the budget further.
const BUDGET_TIME_MAX_S: f64 = 2.0;
/// Bytes that the kernels of both ends may hold before the server's program reads any. With a lower
/// value, a receive buffer of 64 KiB made a server of 10 Mbit/s seem ten times as fast.
const BUFFERED_BYTES: u64 = 256 << 10;
/// Fewest bytes of an upload that show the server's rate.
const MEASURED_BYTES: u64 = 3 * BUFFERED_BYTES;
/// Spans over which the rate is measured: 1.6 s, or at least two round trips.
const SPANS_MAX: usize = 16;
const SPAN_FIRST_S: f64 = 0.02;
const SPAN_MIN_S: f64 = 0.1;
const SPANS_PER_ROUND_TRIP: f64 = 6.0;
/// The server limits a span if the gateway waits for it during at least this part of the span.
const LIMITED_SHARE: f64 = 0.75;
/// A grant is sent whenever the server has accepted this part of the budget (one over it) ...
const GRANTS_PER_BUDGET: u64 = 8;
/// ... and otherwise at this interval.
const GRANT_INTERVAL_S: f64 = 0.1;
/// Interval of observations. It is shorter while an upload is young, and longer while no bytes
/// arrive.
const CHECK: Duration = Duration::from_millis(50);
const CHECK_FIRST: Duration = Duration::from_millis(10);
const CHECK_IDLE: Duration = Duration::from_millis(100);
const YOUNG_S: f64 = 3.0;
/// One over the part of a budget that a kernel buffer may hold.
const KERNEL_SHARE: u64 = 16;
/// Servers with a stored rate.
const SERVERS_MAX: usize = 64;
/// Lifetime of a measurement. A server that was fast then may be busy now.
const KNOWN: Duration = Duration::from_secs(600);
