//! How long datagrams may wait in the socket: not so long that its buffer overflows.

use std::time::{Duration, Instant};

use units::ByteCount;

/// What came in lately, beside the room that the kernel has for it.
pub(super) struct Intake {
    room_bytes: f64,
    fetched: Instant,
    wait_max: Duration,
}

/// At the rate of late, waiting datagrams take this fraction (one over it) of the buffer at most: a rate may double
/// within a turn, and the kernel may count twice the bytes of a datagram.
const BUFFER_SHARE: f64 = 4.0;

impl Intake {
    /// The kernel has granted a buffer of size `buffer`.
    pub(super) fn new(buffer: ByteCount, now: Instant) -> Self {
        Self {
            room_bytes: buffer.bytes() as f64 / BUFFER_SHARE,
            fetched: now,
            wait_max: Duration::MAX,
        }
    }

    /// `bytes` bytes had come since the last time, and are fetched; they are all unless `has_more`.
    pub(super) fn fetched(&mut self, bytes: usize, has_more: bool, now: Instant) {
        let elapsed = now.saturating_duration_since(self.fetched);
        self.fetched = now;
        self.wait_max = match bytes {
            _ if has_more => Duration::ZERO,
            0 => Duration::MAX,
            _ => elapsed.mul_f64(self.room_bytes / bytes as f64),
        };
    }

    /// How long what comes next may wait: not at all, if there is more already.
    pub(super) fn wait_max(&self) -> Duration {
        self.wait_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_high_rate_a_small_buffer_is_emptied_in_time() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut intake = Intake::new(ByteCount::new(200_000), start);
        intake.fetched(0, false, start + ms(1));
        assert_eq!(intake.wait_max(), Duration::MAX);
        // 1 Gbit/s: the buffer is full after 1.6 ms.
        intake.fetched(125_000, false, start + ms(2));
        assert_eq!(intake.wait_max(), Duration::from_micros(400));
        intake.fetched(125_000, true, start + ms(3));
        assert_eq!(intake.wait_max(), Duration::ZERO);
    }
}
