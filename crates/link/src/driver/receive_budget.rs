//! Limit on the time for which datagrams may wait in the socket, so that the socket's buffer does
//! not overflow.

use std::time::{Duration, Instant};

use units::ByteCount;

/// Size of the socket's buffer, and the recent arrival rate.
pub(super) struct ReceiveBudget {
    room_bytes: f64,
    fetched: Instant,
    wait_max: Duration,
}

/// Divisor of the buffer size. The quotient is the maximum number of bytes that may wait at the
/// recent arrival rate. The rate may double while datagrams wait, and the kernel may charge twice
/// the size of each datagram to the buffer.
const BUFFER_SHARE: f64 = 4.0;

impl ReceiveBudget {
    /// Creates the state for a receive buffer of `buffer` bytes, the size that the kernel granted.
    pub(super) fn new(buffer: ByteCount, now: Instant) -> Self {
        Self {
            room_bytes: buffer.bytes() as f64 / BUFFER_SHARE,
            fetched: now,
            wait_max: Duration::MAX,
        }
    }

    /// Records that the driver has read `bytes` bytes, which arrived since the last call.
    /// `has_more` means that further datagrams wait in the socket.
    pub(super) fn fetched(&mut self, bytes: usize, has_more: bool, now: Instant) {
        let elapsed = now.saturating_duration_since(self.fetched);
        self.fetched = now;
        self.wait_max = match bytes {
            _ if has_more => Duration::ZERO,
            0 => Duration::MAX,
            _ => elapsed.mul_f64(self.room_bytes / bytes as f64),
        };
    }

    /// Returns the time for which the next datagrams may wait in the socket. It is zero if
    /// datagrams wait now.
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
        let mut receive_budget = ReceiveBudget::new(ByteCount::new(200_000), start);
        receive_budget.fetched(0, false, start + ms(1));
        assert_eq!(receive_budget.wait_max(), Duration::MAX);
        // 1 Gbit/s: the buffer is full after 1.6 ms.
        receive_budget.fetched(125_000, false, start + ms(2));
        assert_eq!(receive_budget.wait_max(), Duration::from_micros(400));
        receive_budget.fetched(125_000, true, start + ms(3));
        assert_eq!(receive_budget.wait_max(), Duration::ZERO);
    }
}
