//! Progress of a job, and the limit on its rate.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep_until;
use units::{BitRate, ByteCount};

use crate::limit::RateLimit;

/// Counter of the bytes that all lanes of a job have moved, and the rate limit of the job.
#[derive(Debug)]
pub struct JobProgress {
    moved_bytes: AtomicU64,
    limiter: Arc<RateLimiter>,
}

/// A rate limit that several jobs may share.
#[derive(Debug)]
struct RateLimiter {
    rate_max: Option<RateLimit>,
    /// Time at which the rate limit permits further bytes.
    free_at: Mutex<Option<Instant>>,
}

impl JobProgress {
    /// Creates the progress of a job that has not moved any bytes yet.
    pub fn new(rate_max: Option<RateLimit>) -> Self {
        Self::at(Arc::new(RateLimiter {
            rate_max,
            free_at: Mutex::new(None),
        }))
    }

    /// Creates the progress of another job. The two jobs share one rate limit.
    pub fn beside(&self) -> Self {
        Self::at(self.limiter.clone())
    }

    fn at(limiter: Arc<RateLimiter>) -> Self {
        Self {
            moved_bytes: AtomicU64::new(0),
            limiter,
        }
    }

    /// Returns the number of bytes moved by all lanes. Bytes of failed attempts are included.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }

    /// Counts moved bytes, and waits until the rate limit permits more bytes.
    pub(super) async fn moved(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.pace(bytes).await;
    }

    /// Counts bytes that another job has moved. The rate limit does not apply to these bytes.
    pub(super) fn arrived(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes for one read. At a low rate limit the number is small, so that
    /// the connection is never idle for long.
    pub(super) fn step_bytes(&self) -> usize {
        let rate_bytes = self
            .limiter
            .rate_max()
            .map(|it| it.as_bytes_per_s() * STEP.as_secs_f64());
        rate_bytes.map_or(STEP_BYTES_MAX, |it| (it as usize).clamp(1, STEP_BYTES_MAX))
    }

    /// Applies the rate limit to bytes that are not counted as moved.
    pub(super) async fn pace(&self, bytes: usize) {
        if let Some(free_at) = self.limiter.take(bytes) {
            sleep_until(free_at.into()).await;
        }
    }
}

impl RateLimiter {
    /// Returns the rate limit at the present time of day.
    fn rate_max(&self) -> Option<BitRate> {
        let limit = self.rate_max.as_ref()?;
        let minute = match limit.changes() {
            true => minute_of_day(),
            false => 0,
        };
        limit.at(minute)
    }

    /// Reserves time for `bytes` bytes. Returns the time at which the rate limit permits further
    /// bytes.
    fn take(&self, bytes: usize) -> Option<Instant> {
        let takes = self.rate_max()?.time_to_send(ByteCount::new(bytes as u64));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // An idle period does not raise the limit on later bytes.
        let begins = free_at.map_or(now, |it| it.max(now));
        let ends = begins + takes;
        *free_at = Some(ends);
        Some(ends)
    }
}

/// Returns the minute of the day in the time zone of this machine.
fn minute_of_day() -> u16 {
    let now = jiff::Zoned::now();
    u16::try_from(i16::from(now.hour()) * 60 + i16::from(now.minute())).unwrap_or_default()
}

/// Longest time that the bytes of one read may take under the rate limit.
const STEP: Duration = Duration::from_millis(100);

const STEP_BYTES_MAX: usize = 256 * 1024;
